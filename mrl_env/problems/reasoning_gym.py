"""Any data set of the package `reasoning-gym` (Stojanovski et al. 2025, arXiv:2505.24760): `reasoning-gym-mutual-v0`.

The package draws the item `i` of a data set from the number `seed + i`, so data sets of neighbouring seeds share nearly all
items: a test set of seed 1 would consist of training problems of seed 0. Here every item is a data set of its own with a
seed derived by hash, and a question's own hash decides its split, so that none occurs in both, whatever the seeds.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index as as_int
from typing import Any

from mrl_env.problems.registry import Instructed, register
from mrl_env.seeding import derive_seed, digest
from mrl_env.types import Problem, ProblemSource, user_message
from verifiers.lookup import did_you_mean

SPLITS = ("train", "test")
DEFAULT_SIZES = {"train": 10_000, "test": 1_000}
TEST_BUCKETS = 4
"""One question in so many, by its hash, belongs to the test split: few, as some data sets take long to draw."""

MAX_ATTEMPTS = 100
"""Draws before giving up: at one question in four, a test question is missed this often with odds below 1e-12."""

MAX_SEED = 2**32
"""Seeds are below it, for the data sets that draw with NumPy."""

INSTRUCTION = "Put only the final answer between <answer> and </answer>."


def reasoning_gym(
    split: str = "train",
    seed: int = 0,
    dataset: str = "leg_counting",
    config: Mapping[str, Any] | None = None,
    size: int | None = None,
    instruction: str = INSTRUCTION,
) -> ProblemSource:
    """The problems of a data set, each with the instruction below it.

    Args:
        split: see `ReasoningGym`, as for the next four.
        seed: any integer.
        dataset: the data set's name.
        config: its settings.
        size: number of problems.
        instruction: stands below each question.

    Raises:
        ValueError: as `ReasoningGym`, or if the instruction is empty.
    """
    return Instructed(ReasoningGym(split, seed, dataset, config or {}, size), instruction)


@dataclass(frozen=True)
class ReasoningGym:
    """A sequence of problems of one of reasoning-gym's data sets, drawn on demand; nothing is stored.

    Args:
        split: `"train"` or `"test"`; no question occurs in both, whatever the seeds.
        seed: any integer; gives another sequence of problems of the same split.
        dataset: the data set's name, such as `"leg_counting"`.
        config: arguments of the data set but for `seed` and `size`, such as `{"max_animals": 3}`.
        size: number of problems; by default 10,000 for train and 1,000 for test.

    Raises:
        ValueError: if an argument is invalid, or reasoning-gym is not installed.
    """

    split: str = "train"
    seed: int = 0
    dataset: str = "leg_counting"
    config: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split={self.split!r} is unknown{did_you_mean(str(self.split), SPLITS)}")
        if not isinstance(self.seed, int):
            raise ValueError(f"seed={self.seed!r} is no integer; give one")
        if self.size is not None and (not isinstance(self.size, int) or self.size < 1):
            raise ValueError(f"size={self.size!r} is no positive integer; give at least 1, or None for the default")
        if not isinstance(self.config, Mapping):
            raise ValueError(f"config={self.config!r} is no mapping; give settings such as {{'max_animals': 3}}")
        for name in ("seed", "size"):
            if name in self.config:
                raise ValueError(f"config has {name}={self.config[name]!r}; give {name} beside config, not within")
        known = _package("reasoning_gym.factory").DATASETS
        if self.dataset not in known:
            raise ValueError(
                f"dataset={self.dataset!r} is no data set of reasoning-gym{did_you_mean(str(self.dataset), known)}"
            )
        try:
            self._draw(0)
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"config={dict(self.config)!r} does not do for the data set {self.dataset!r} ({error}); correct it"
            ) from error

    def __len__(self) -> int:
        return DEFAULT_SIZES[self.split] if self.size is None else self.size

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at `index`; negative indices count from the end.

        Raises:
            IndexError: if there is no such index.
            RuntimeError: if no question of the split turns up (the data set has too few distinct ones).
        """
        position = as_int(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} problems")
        for attempt in range(MAX_ATTEMPTS):
            entry = self._draw(derive_seed("reasoning_gym", self.dataset, self.split, self.seed, position, attempt))
            question = entry["question"]
            if split_of(question) == self.split:
                return Problem(
                    id=f"{self.dataset}-{self.split}-{self.seed}-{position}-{digest(question)}",
                    messages=user_message(question),
                    # Some data sets accept whatever meets their conditions, and name no answer.
                    answer=str(entry["answer"] or ""),
                    verifier="reasoning_gym",
                    metadata={"subject": self.dataset, "entry": entry},
                )
        raise RuntimeError(
            f"no {self.split} question of {self.dataset!r} in {MAX_ATTEMPTS} draws: with config={dict(self.config)!r} it "
            "has too few different ones; widen it"
        )

    def _draw(self, seed: int) -> dict[str, Any]:
        """The only entry of a data set of size 1."""
        package = _package("reasoning_gym")
        items = package.create_dataset(self.dataset, seed=seed % MAX_SEED, size=1, **self.config)
        entry: dict[str, Any] = items[0]
        return entry


def split_of(question: str) -> str:
    """The split that a question belongs to: `"test"` for one bucket in four of its hash, else `"train"`."""
    return "test" if derive_seed("reasoning_gym", "split", question) % TEST_BUCKETS == 0 else "train"


def _package(module: str) -> Any:
    """A module of reasoning-gym, imported when it is first needed.

    Raises:
        ValueError: if it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"'reasoning_gym' cannot be imported ({error}); run: pip install reasoning-gym, or pip install "
            "'mutual-rl[reasoning]'"
        ) from error


register("reasoning_gym", reasoning_gym)
