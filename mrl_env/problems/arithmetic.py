"""Elementary arithmetic in six subjects: problems that a language model of a few hundred thousand parameters can learn.

It is the problem source of the embedded demonstration pool, apart from the MATH-like default. Numbers are small on
purpose, so that tens of optimizer steps are enough to see an algorithm work; every answer is an integer, and every
problem has a worked solution of a line. Operands are drawn such that the usual slips (a wrong sign, adding for
multiplying, reporting the quotient for the remainder, the rest for the part) never give the right answer by luck.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mrl_env.problems.registry import register
from mrl_env.seeding import derive_rng, derive_seed, digest
from mrl_env.types import Problem, user_message
from verifiers.lookup import did_you_mean

SPLITS = ("train", "test")
LEVELS = (1, 2, 3)
TEST_BUCKETS = 10
"""One bucket in so many, by hash of the question, belongs to the test split."""

MAX_ATTEMPTS = 2000
"""Draws before giving up: at one question in ten, a test question is missed this often with odds below 1e-91."""


@dataclass(frozen=True)
class Exercise:
    r"""A question with its worked solution and the numbers it was made from.

    Attributes:
        subject: one of `SUBJECTS`.
        level: 1 to 3; how large the numbers are and how many steps it takes.
        question: the text that is asked.
        solution: the worked solution, ending in `\boxed{answer}`.
        answer: the right answer.
        operands: the numbers in the question, in reading order; a subtracted number of `addsub` is negative, an absent
            `x` on the right of `linear` counts as 0.

    Example:
        >>> make_exercise("addsub", 3, random.Random(5)).operands
        (24, -10, 14)
    """

    subject: str
    level: int
    question: str
    solution: str
    answer: int
    operands: tuple[int, ...]


Draft = tuple[str, str, int, tuple[int, ...]]
"""Question, steps, answer, operands."""


def boxed(steps: str, answer: int) -> str:
    r"""A worked solution: the steps, then the answer in a box.

    Example:
        >>> boxed("1 + 1 = 2.", 2)
        '1 + 1 = 2. \\boxed{2}'
    """
    return f"{steps} \\boxed{{{answer}}}"


def running_total(first: int, *terms: int) -> str:
    """The steps of adding signed terms one after the other.

    Example:
        >>> running_total(37, 48, -12)
        '37 + 48 = 85. 85 - 12 = 73.'
    """
    steps, total = [], first
    for term in terms:
        steps.append(f"{total} {_sign(term)} {abs(term)} = {total + term}.")
        total += term
    return " ".join(steps)


def _percent_unit(percent: int) -> int:
    """The percentage that a solution starts from: the largest of 10, 5 and 1 that divides."""
    return next(unit for unit in (10, 5, 1) if percent % unit == 0)


def _sign(term: int) -> str:
    return "+" if term > 0 else "-"


def _addsub(level: int, rng: random.Random) -> Draft:
    largest = {1: 20, 2: 40, 3: 30}[level]
    first = rng.randint(5, largest)
    second = rng.randint(2, first - 1) * rng.choice((1, -1))
    operands: tuple[int, ...] = (first, second)
    if level == 3:
        third = rng.randint(2, 15)
        operands = (first, second, third if second < 0 or third > first + second else -third)
    question = f"Compute {first} " + " ".join(f"{_sign(term)} {abs(term)}" for term in operands[1:]) + "."
    return question, running_total(*operands), sum(operands), operands


def _mult(level: int, rng: random.Random) -> Draft:
    a = rng.randint(2, 9)
    if level == 1:
        b = rng.randint(3, 9)
        return f"Multiply {a} by {b}.", f"{a} * {b} = {a * b}.", a * b, (a, b)
    tens = 10 if level == 2 else rng.choice((20, 30, 40))
    units = rng.randint(1, 9)
    b = tens + units
    steps = f"{a} * {tens} = {a * tens}. {a} * {units} = {a * units}. {running_total(a * tens, a * units)}"
    return f"Multiply {a} by {b}.", steps, a * b, (a, b)


def _linear(level: int, rng: random.Random) -> Draft:
    slope = rng.randint(2, 4 if level < 3 else 6)
    x = rng.randint(2, 9 if level < 3 else 12)
    right = 0 if level == 1 else rng.randint(2, 5)
    b = rng.randint(5, 12 if level < 3 else 20)
    left, d = slope + right, b + slope * x
    question = f"Solve {left}x + {b} = " + (f"{right}x + {d}." if right else f"{d}.")
    return question, f"{slope}x = {d} - {b} = {d - b}. x = {x}.", x, (left, b, right, d)


def _modgcd(level: int, rng: random.Random) -> Draft:
    return _gcd(level, rng) if level > 1 and rng.random() < 0.5 else _mod(level, rng)


def _mod(level: int, rng: random.Random) -> Draft:
    modulus = rng.randint(2 * level, 2 * level + 3)
    quotient = rng.randint(2, 9)
    rest = rng.choice([r for r in range(modulus) if r != quotient])
    multiple = modulus * quotient
    number = multiple + rest
    steps = f"{modulus} * {quotient} = {multiple}. {number} - {multiple} = {rest}."
    return f"Find {number} mod {modulus}.", steps, rest, (number, modulus)


def _gcd(level: int, rng: random.Random) -> Draft:
    factors = range(2, 6 if level == 2 else 10)
    m, n = rng.choice([(m, n) for m in factors for n in factors if m != n and math.gcd(m, n) == 1])
    divisor = rng.choice([g for g in range(2, 10) if g not in (m, n)])
    a, b = divisor * m, divisor * n
    return f"Find the gcd of {a} and {b}.", f"{a} = {divisor} * {m}. {b} = {divisor} * {n}.", divisor, (a, b)


def _percent(level: int, rng: random.Random) -> Draft:
    unit = {1: 10, 2: rng.choice((1, 5)), 3: rng.choice((1, 5, 10))}[level]
    # Not 50%: who takes the rest for the part would be right.
    times = rng.choice([times for times in range(2, 10) if _percent_unit(unit * times) == unit and unit * times != 50])
    part = rng.randint(3, 12) if level < 3 else rng.randint(11, 20)
    percent, whole = unit * times, part * 100 // unit
    steps = f"{unit}% is {part}. {part} * {times} = {part * times}."
    return f"Find {percent}% of {whole}.", steps, part * times, (percent, whole)


def _poly(level: int, rng: random.Random) -> Draft:
    x = rng.randint(2, 6 if level == 2 else 9)
    slope = rng.randint(2, 6 if level == 2 else 9)
    constant = rng.randint(2, 12)
    value = slope * x
    if level == 1:
        question = f"Evaluate {slope}x + {constant} at x = {x}."
        steps = f"{slope} * {x} = {value}. {running_total(value, constant)}"
        return question, steps, value + constant, (slope, constant, x)
    question = f"Evaluate x^2 + {slope}x + {constant} at x = {x}."
    return question, running_total(x * x, value, constant), x * x + value + constant, (slope, constant, x)


_DRAW: dict[str, Callable[[int, random.Random], Draft]] = {
    "addsub": _addsub,
    "mult": _mult,
    "linear": _linear,
    "modgcd": _modgcd,
    "percent": _percent,
    "poly": _poly,
}

SUBJECTS = tuple(_DRAW)
"""Sums and differences, products, linear equations, remainders and common divisors, percentages, polynomials."""


def make_exercise(subject: str, level: int, rng: random.Random) -> Exercise:
    """Draw one exercise of a subject and level, from either split.

    Args:
        subject: one of `SUBJECTS`.
        level: 1, 2 or 3.
        rng: where the numbers come from.
    """
    question, steps, answer, operands = _DRAW[subject](level, rng)
    return Exercise(subject, level, question, boxed(steps, answer), answer, operands)


def split_of(question: str) -> str:
    """The split that a question belongs to: a fixed function of its text, so no seed can move it across."""
    return "test" if derive_seed("arithmetic split", question) % TEST_BUCKETS == 0 else "train"


class Arithmetic(Sequence[Problem]):
    r"""Problems of elementary arithmetic with integer answers, drawn on access.

    Item `i` is a pure function of (split, seed, i, subjects, levels). A question belongs to the test split or to the
    training split by a hash of its text, so the two are disjoint for all seeds and sizes. Within a split questions
    repeat: there are only some thousands.

    Args:
        split: `"train"` or `"test"`; one question in ten is a test question.
        seed: another seed, another sequence.
        size: number of problems.
        subjects: names out of `SUBJECTS`; None means all.
        levels: difficulties out of 1, 2, 3.

    Raises:
        ValueError: if an argument is out of range, naming it, its value and the remedy.

    Example:
        >>> problem = Arithmetic("train", seed=0, subjects=["percent"])[0]
        >>> problem.question, problem.answer
        ('Find 9% of 1400.', '126')
        >>> problem.metadata["solution"]
        '1% is 14. 14 * 9 = 126. \\boxed{126}'
    """

    def __init__(
        self,
        split: str = "train",
        seed: int = 0,
        size: int = 10_000,
        subjects: Sequence[str] | None = None,
        levels: Sequence[int] = LEVELS,
    ) -> None:
        self.split = split
        self.seed = seed
        self.size = size
        self.subjects = SUBJECTS if subjects is None else tuple(subjects)
        self.levels = tuple(levels)
        if split not in SPLITS:
            raise ValueError(f"split={split!r} is unknown{did_you_mean(split, SPLITS)}")
        if size < 1:
            raise ValueError(f"size={size!r} leaves no problems; give at least 1")
        if isinstance(subjects, str) or not self.subjects:
            raise ValueError(f"subjects={subjects!r} is not a list of names; give some of {', '.join(SUBJECTS)}")
        for subject in self.subjects:
            if subject not in SUBJECTS:
                raise ValueError(f"subjects={subjects!r} has the unknown {subject!r}{did_you_mean(subject, SUBJECTS)}")
        if not self.levels or not set(self.levels) <= set(LEVELS):
            raise ValueError(f"levels={levels!r} is not a list of levels; give some of {', '.join(map(str, LEVELS))}")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Problem:  # type: ignore[override]  # no slices: a source is read item by item
        exercise = self.exercise(index)
        return Problem(
            id=f"arithmetic-{self.split}-{self.seed}-{range(self.size)[index]}-{digest(exercise.question)}",
            messages=user_message(exercise.question),
            answer=str(exercise.answer),
            metadata={"subject": exercise.subject, "level": exercise.level, "solution": exercise.solution},
        )

    def __iter__(self) -> Iterator[Problem]:
        return (self[index] for index in range(self.size))

    def exercise(self, index: int) -> Exercise:
        """The exercise behind problem `index`, with its operands.

        Raises:
            IndexError: if the index is out of range.
            ValueError: if no question of this split turns up within `MAX_ATTEMPTS` draws.
        """
        rng = derive_rng("arithmetic", self.split, self.seed, range(self.size)[index])
        subject, level = rng.choice(self.subjects), rng.choice(self.levels)
        for _ in range(MAX_ATTEMPTS):
            exercise = make_exercise(subject, level, rng)
            if split_of(exercise.question) == self.split:
                return exercise
        raise ValueError(
            f"split={self.split!r} has no question among {MAX_ATTEMPTS} draws of subject {subject!r}, level {level}; "
            f"leave that subject or level out"
        )


register("arithmetic", Arithmetic)
