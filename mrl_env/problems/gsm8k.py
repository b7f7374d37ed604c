r"""Grade-school word problems in the format of GSM8K (Cobbe et al. 2021, arXiv:2110.14168): `gsm8k-mutual-v0`.

The answer is the number behind the last `####` of the worked solution, less its thousands commas. Without data of the
user's, the dataset is read from the hub; none is shipped.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from mrl_env.problems.files import load_rows
from mrl_env.problems.files.rows import RowError
from mrl_env.problems.registry import Instructed, register
from mrl_env.types import Problem, ProblemSource
from verifiers.printing import shown

HUB = "hub:openai/gsm8k"
"""The dataset by its authors, with the splits train and test."""

INSTRUCTION = r"Put the final answer in \boxed{}."

_NUMBER = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?")


def gsm8k(
    split: str = "train",
    seed: int = 0,
    data: str = HUB,
    instruction: str = INSTRUCTION,
    **options: Any,
) -> ProblemSource:
    """The problems of a file or hub dataset in GSM8K's format.

    Args:
        split: of the hub dataset, `"train"` or `"test"`; a file is one split.
        seed: changes nothing: no problem is drawn.
        data: a file, or `hub:owner/name`.
        instruction: stands below each question.
        **options: see `mrl_env.problems.files.ReadOptions`; for a hub dataset also `config` and `revision`.

    Raises:
        ValueError: if the data cannot be read; on malformed rows and answers that are no number, naming the place.
    """
    if data == HUB:
        options = {"config": "main", **options}
    return Instructed(load_rows(data, split, convert=with_plain_number, **options), instruction)


def with_plain_number(problem: Problem) -> Problem:
    """The problem with its answer without thousands commas.

    Raises:
        RowError: if the answer is no number.

    Example:
        >>> from mrl_env.types import user_message
        >>> with_plain_number(Problem("p", user_message("How many?"), "1,080")).answer
        '1080'
    """
    answer = problem.answer.strip()
    if _NUMBER.fullmatch(answer) is None:
        raise RowError(
            "answer is no number", f"the answer {shown(problem.answer)} is no number; write one, such as '#### 1,080'"
        )
    return replace(problem, answer=answer.replace(",", ""))


register("gsm8k", gsm8k)
