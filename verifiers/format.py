"""Whether a completion has an answer in the asked form, right or wrong: a control for what reward alone can teach."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from verifiers.extraction import Source, extract
from verifiers.verdict import Verdict


class FormatVerifier:
    """Score 1 for any answer that was found by one of the given rules of extraction."""

    def __init__(self, sources: Collection[Source] = ("tag", "box", "hash")) -> None:
        """Choose the rules.

        Args:
            sources: among tag, box, hash, marker, bare.

        Raises:
            ValueError: for an unknown rule.
        """
        unknown = set(sources) - set(get_args(Source))
        if unknown:
            raise ValueError(f"sources={sorted(unknown)} are no rules of extraction; use {', '.join(get_args(Source))}")
        self._sources = frozenset(sources)

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge the form of one completion; the reference is not looked at."""
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        right = found.source in self._sources
        return Verdict(float(right), found.text, "right" if right else "wrong", f"found by {found.source}")
