"""What a template is: a function that draws one instance of a kind of problem, and the table of all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

SUBJECTS: tuple[str, ...] = (
    "prealgebra",
    "algebra",
    "number_theory",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "precalculus",
)
LEVELS: tuple[int, ...] = (1, 2, 3, 4, 5)

NAMES: tuple[str, ...] = (
    "Ada", "Bela", "Chen", "Dara", "Emil", "Farah", "Goran", "Hana", "Iker", "Jana", "Kofi", "Lena", "Mika", "Nora",
    "Omar", "Priya", "Rosa", "Sami", "Tova", "Yuki",
)  # fmt: skip


@dataclass(frozen=True)
class Draft:
    r"""One drawn instance.

    Attributes:
        question: text with LaTeX between dollar signs.
        answer: LaTeX without dollar signs.
        steps: the worked solution, without its last sentence (the boxed answer).

    Example:
        >>> Draft("What is $1 + 1$?", "2", "Adding gives $1 + 1 = 2$.").solution
        'Adding gives $1 + 1 = 2$. The answer is $\\boxed{2}$.'
    """

    question: str
    answer: str
    steps: str

    @property
    def solution(self) -> str:
        """The worked solution, ending in the boxed answer."""
        return f"{self.steps} The answer is $\\boxed{{{self.answer}}}$."


Draw = Callable[[random.Random], Draft]


@dataclass(frozen=True)
class Template:
    """A kind of problem: where it stands in the curriculum, and how to draw an instance of it."""

    name: str
    subject: str
    level: int
    draw: Draw


TEMPLATES: dict[tuple[str, int], list[Template]] = {(subject, level): [] for subject in SUBJECTS for level in LEVELS}
"""All templates by subject and level, in the order of their definition."""


def template(subject: str, level: int) -> Callable[[Draw], Draw]:
    """Decorator that enters a drawing function into the table, under its own name.

    Raises:
        ValueError: if the name is taken.
    """

    def enter(draw: Draw) -> Draw:
        if any(draw.__name__ == known.name for cell in TEMPLATES.values() for known in cell):
            raise ValueError(f"template {draw.__name__!r} exists already; choose another name")
        TEMPLATES[subject, level].append(Template(draw.__name__, subject, level, draw))
        return draw

    return enter


def nonzero(rng: random.Random, bound: int) -> int:
    """A uniform integer in [-bound, bound] other than 0."""
    return rng.choice((-1, 1)) * rng.randint(1, bound)


def distinct(rng: random.Random, low: int, high: int, count: int) -> list[int]:
    """`count` different integers in [low, high], ascending."""
    return sorted(rng.sample(range(low, high + 1), count))


def reduced(rng: random.Random, low: int, high: int, max_denominator: int) -> Fraction:
    """A fraction that is no integer, with a value in [low, high] and a denominator of 2 to `max_denominator`."""
    while True:
        denominator = rng.randint(2, max_denominator)
        value = Fraction(rng.randint(low * denominator, high * denominator), denominator)
        if value.denominator > 1:
            return value


def counted(count: int, plural: str) -> str:
    """A count with its noun, for nouns whose plural only adds an s: `$1$ coin`, `$3$ coins`."""
    return f"${count}$ {plural[:-1] if count == 1 else plural}"
