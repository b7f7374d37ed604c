"""MATH-like problems drawn by templates: the embedded default source, with exact answers and worked solutions.

Seven subjects after MATH, levels 1 to 5, several templates for each pair of them. Every quantity is an integer, a
fraction or a radical that is known exactly by construction; number theory asks SymPy for factorizations and orders.

An item is a pure function of `(split, seed, index)`. Which split an instance belongs to is decided by its question
text alone (`split_of`), so no seed, and no wording, can carry a test problem into a training set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as as_int

from mrl_env.problems.procedural import (  # noqa: F401  (importing a subject enters its templates into the table)
    algebra,
    counting_and_probability,
    geometry,
    intermediate_algebra,
    number_theory,
    prealgebra,
    precalculus,
)
from mrl_env.problems.procedural.templates import LEVELS, SUBJECTS, TEMPLATES
from mrl_env.problems.registry import register
from mrl_env.seeding import derive_rng, digest
from mrl_env.types import Problem, user_message
from verifiers.lookup import did_you_mean

SPLITS = ("train", "test")
DEFAULT_SIZES = {"train": 10_000, "test": 1_000}
BUCKETS = 10
MAX_ATTEMPTS = 1_000


def split_of(question: str) -> str:
    """The split that a question belongs to: `"test"` for one bucket in ten of a fixed hash, else `"train"`.

    Only what the mathematics hangs on is hashed: the numbers and operators of each formula, the numbers between the
    formulas, and words in capitals (strings of letters to be arranged). Another wording, another name of a variable or
    another order of the same facts therefore stays in the same split; equal texts do so a fortiori.
    """
    parts = question.split("$")
    formulas = (re.sub(r"\\?[A-Za-z]+|\s", "", formula) for formula in parts[1::2])
    facts = [formula for formula in formulas if any(character.isdigit() for character in formula)]
    facts += re.findall(r"\d+|\b[A-Z]{3,}\b", " ".join(parts[::2]))
    digest = hashlib.sha256("\n".join(sorted(facts)).encode()).digest()
    return "test" if int.from_bytes(digest[:8], "big") % BUCKETS == 0 else "train"


@dataclass(frozen=True)
class ProceduralMath:
    """A sequence of MATH-like problems, drawn on demand; nothing is stored.

    Args:
        split: `"train"` or `"test"`; no question occurs in both, whatever the seeds.
        seed: any integer; gives another sequence of problems of the same split.
        size: number of problems; by default 10,000 for train and 1,000 for test.
        subjects: some of `SUBJECTS`; all of them by default.
        levels: some of 1 to 5.

    Raises:
        ValueError: if an argument is not one of these.

    Example:
        >>> problem = ProceduralMath("train", seed=0, subjects=("algebra",), levels=(1,))[0]
        >>> problem.id, problem.metadata["subject"], problem.metadata["level"]
        ('math-train-0-0', 'algebra', 1)
    """

    split: str = "train"
    seed: int = 0
    size: int | None = None
    subjects: Sequence[str] | None = None
    levels: Sequence[int] = LEVELS

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split={self.split!r} is unknown{did_you_mean(str(self.split), SPLITS)}")
        if not isinstance(self.seed, int):
            raise ValueError(f"seed={self.seed!r} is no integer; give one")
        if self.size is not None and (not isinstance(self.size, int) or self.size < 1):
            raise ValueError(f"size={self.size!r} is no positive integer; give at least 1, or None for the default")
        if self.subjects is not None:
            _check_choice("subjects", self.subjects, SUBJECTS)
        _check_choice("levels", self.levels, LEVELS)

    def __len__(self) -> int:
        return DEFAULT_SIZES[self.split] if self.size is None else self.size

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at `index`; negative indices count from the end.

        Raises:
            IndexError: if there is no such index.
            RuntimeError: if no instance of the split turns up (the chosen cells have too few distinct problems).
        """
        position = as_int(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} problems")
        rng = derive_rng("math", self.split, self.seed, position)
        subject, level = rng.choice(self.subjects or SUBJECTS), rng.choice(self.levels)
        for _ in range(MAX_ATTEMPTS):
            template = rng.choice(TEMPLATES[subject, level])
            draft = template.draw(rng)
            if split_of(draft.question) == self.split:
                return Problem(
                    id=f"math-{self.split}-{self.seed}-{position}-{digest(draft.question)}",
                    messages=user_message(draft.question),
                    answer=draft.answer,
                    verifier="math",
                    metadata={
                        "subject": subject,
                        "level": level,
                        "template": template.name,
                        "solution": draft.solution,
                    },
                )
        raise RuntimeError(
            f"no {self.split} problem of {subject}, level {level}, in {MAX_ATTEMPTS} draws: its templates have too few "
            f"instances"
        )


def _check_choice(field: str, chosen: Sequence[object], known: Sequence[object]) -> None:
    """Raise `ValueError` unless `chosen` is a non-empty sequence of known values."""
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not chosen:
        raise ValueError(f"{field}={chosen!r} is no list of choices; give some of {', '.join(map(str, known))}")
    for value in chosen:
        if value not in known:
            raise ValueError(f"{field}: {value!r} is unknown{did_you_mean(str(value), map(str, known))}")


register("math", ProceduralMath)
