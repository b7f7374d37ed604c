r"""Multiple choice (ARC, OpenBookQA, CommonsenseQA, or a file of one's own): `choice-mutual-v0`.

Options are shuffled, so that no policy earns by preferring a letter. The order is derived by hash from the seed and the
problem's id, hence the same for every agent, and in every process.

- What speaks of all other options ("none of the above", "all of these", "both") comes last.
- A question is left as it is if an option speaks of letters ("both A and C", "B only") or is one, or if options stand
  below an "all of the above": their order has a meaning.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mrl_env.problems.files import is_problem_file, load_rows
from mrl_env.problems.files.rows import RowError, lettered
from mrl_env.problems.registry import Instructed, register
from mrl_env.seeding import derive_rng
from mrl_env.types import Problem, ProblemSource
from verifiers.lookup import did_you_mean

INSTRUCTION = r"Put the letter of the right option in \boxed{}."


@dataclass(frozen=True)
class HubDataset:
    """Where a dataset lies on the hub.

    Attributes:
        name: `owner/name`.
        config: its configuration.
        test: the split that is held out.
    """

    name: str
    config: str
    test: str = "test"


DATASETS = {
    "arc_challenge": HubDataset("allenai/ai2_arc", "ARC-Challenge"),
    "arc_easy": HubDataset("allenai/ai2_arc", "ARC-Easy"),
    "openbookqa": HubDataset("allenai/openbookqa", "main"),
    # The answers of its test split are not published.
    "commonsenseqa": HubDataset("tau/commonsense_qa", "default", test="validation"),
}
"""Datasets by the names that `data` knows."""


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


_QUANTIFIERS = frozenset(_words("all none both neither any either some most two three"))
_ALONE = frozenset(_words("all none both neither"))
"""Quantifiers that speak of the other options without a further word."""

_ORDERED = frozenset(_words("above below following preceding previous"))
_SAID_OF_OPTIONS = _ORDERED | frozenset(
    _words(
        "of the these those them other others listed given options answers choices statements alternatives responses "
        "ones is are correct true right false wrong apply applies here"
    )
)
_SAID_OF_LETTERS = frozenset(
    _words(
        "and or nor but not only both neither either all of the option options answer answers choice choices is are "
        "correct true right false wrong"
    )
)


def choice(
    split: str = "train",
    seed: int = 0,
    data: str = "arc_challenge",
    instruction: str = INSTRUCTION,
    **options: Any,
) -> ProblemSource:
    """Multiple-choice problems with their options shuffled.

    Args:
        split: `"train"` or `"test"`; a file is one split.
        seed: decides the order of each problem's options.
        data: a file with the columns `problem`, `options` and `answer` (or others, see `mrl_env.problems.files.rows`); one
            of `DATASETS`; or `hub:owner/name`.
        instruction: stands below each question.
        **options: see `mrl_env.problems.files.ReadOptions`; for a hub dataset also `config` and `revision`.

    Raises:
        ValueError: if the data cannot be read; on malformed rows and rows without options, naming the place.
    """
    if data in DATASETS:
        dataset = DATASETS[data]
        data, options = f"hub:{dataset.name}", {"config": dataset.config, **options}
        split = dataset.test if split == "test" else split
    elif not data.startswith("hub:") and not is_problem_file(data):
        raise ValueError(
            f"problems='choice:{data}' is neither a .jsonl, .json, .csv or .parquet file, nor hub:owner/name, nor a known "
            f"dataset{did_you_mean(data, DATASETS)}"
        )
    return Instructed(load_rows(data, split, convert=partial(shuffled, seed=seed), **options), instruction)


def shuffled(problem: Problem, seed: int) -> Problem:
    """The problem with its options in another order; the answer's letter follows its text.

    Args:
        problem: a question followed by its lettered options, which metadata `options` lists; the answer is a letter.
        seed: any integer.

    Raises:
        RowError: if the problem has no options.
    """
    options = problem.metadata.get("options")
    if options is None:
        raise RowError("no options", "there is no column for the options (options, choices); give 2 to 26 of them")
    order = option_order(options, seed, problem.id)
    permuted = [options[i] for i in order]
    question = f"{problem.question.removesuffix(lettered(options))}{lettered(permuted)}"
    return replace(
        problem,
        messages=(*problem.messages[:-1], {**problem.messages[-1], "content": question}),
        answer=string.ascii_uppercase[order.index(string.ascii_uppercase.index(problem.answer))],
        metadata={**problem.metadata, "options": permuted},
    )


def option_order(options: Sequence[str], seed: int, problem_id: str) -> list[int]:
    """Which option comes first, second, and so on.

    Args:
        options: their texts, in the order of the data.
        seed: any integer.
        problem_id: the problem's.

    Returns:
        A permutation of the options' indices.

    Example:
        >>> option_order(["red", "none of these", "green", "blue"], 0, "p")[-1]
        1
        >>> option_order(["red", "green", "blue", "A or B"], 0, "p")
        [0, 1, 2, 3]
    """
    kept = [is_anchor(option) for option in options]
    if any(map(partial(names_letters, count=len(options)), options)) or _above_others(options, kept):
        return list(range(len(options)))
    free = [i for i in range(len(options)) if not kept[i]]
    derive_rng("choice", seed, problem_id).shuffle(free)
    return free + [i for i in range(len(options)) if kept[i]]


def is_anchor(option: str) -> bool:
    """Whether an option speaks of the other options together.

    Example:
        >>> [is_anchor(text) for text in ("None of the above.", "both", "both parents", "two")]
        [True, True, False, False]
    """
    words = _words(option)
    if not words or words[0] not in _QUANTIFIERS:
        return False
    return words[0] in _ALONE if len(words) == 1 else _SAID_OF_OPTIONS.issuperset(words[1:])


def names_letters(option: str, count: int) -> bool:
    """Whether an option consists of options' letters, and of words said of them.

    Args:
        option: its text.
        count: how many options there are.

    Example:
        >>> [names_letters(text, 4) for text in ("Both A and C", "(b) only", "C", "vitamins A and C", "E")]
        [True, True, True, False, False]
    """
    words, letters = _words(option), set(string.ascii_lowercase[:count])
    return not letters.isdisjoint(words) and (letters | _SAID_OF_LETTERS).issuperset(words)


def _above_others(options: Sequence[str], kept: Sequence[bool]) -> bool:
    """Whether an option follows one that speaks of those above or below it."""
    ordered = [keep and not _ORDERED.isdisjoint(_words(option)) for option, keep in zip(options, kept, strict=True)]
    return True in ordered and False in kept[ordered.index(True) :]


register("choice", choice)
