"""Answers as text: equal strings, and strings that match a pattern."""

from __future__ import annotations

import re
from typing import Any

from verifiers.extraction import extract
from verifiers.isolation import DeadlineError, shared_pool
from verifiers.verdict import BadGoldError, Verdict

MATCH_SECONDS = 0.5
"""For one match of a pattern: a careless pattern on a hostile text can take for ever."""


class ExactVerifier:
    """The extracted answer must be the reference, up to blanks around and between words and, by default, case."""

    def __init__(self, ignore_case: bool = True) -> None:
        """Choose whether case matters."""
        self._ignore_case = ignore_case

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if the reference is empty."""
        if not answer.strip():
            raise BadGoldError("the reference answer is empty")

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        right = self._plain(found.text) == self._plain(answer)
        return Verdict(float(right), found.text, "right" if right else "wrong")

    def _plain(self, text: str) -> str:
        joined = " ".join(text.split())
        return joined.casefold() if self._ignore_case else joined


class RegexVerifier:
    """The reference is a regular expression that the whole extracted answer must match."""

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if the reference is no regular expression."""
        try:
            re.compile(answer)
        except re.error as error:
            raise BadGoldError(f"answer={answer!r} is no regular expression: {error}") from error

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion; the match runs in a worker under a deadline.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        try:
            right = shared_pool().call("verifiers.exact:full_match", [answer, found.text], MATCH_SECONDS)
        except DeadlineError:
            return Verdict(0.0, found.text, "timeout", f"the pattern took longer than {MATCH_SECONDS} s")
        return Verdict(float(right), found.text, "right" if right else "wrong")


def full_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text."""
    return re.fullmatch(pattern, text) is not None
