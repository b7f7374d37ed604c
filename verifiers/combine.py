"""Verifiers made of verifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.batch import check_answer, safely
from verifiers.registry import resolve
from verifiers.verdict import Reason, Verdict, Verifier


class WeightedSum:
    """The mean of several verifiers' scores with weights; without a score as soon as one of them has none."""

    def __init__(self, weights: Mapping[str | Verifier, float]) -> None:
        """Name the parts.

        Args:
            weights: a positive weight per verifier (or name, or dotted path); they need not sum to 1.

        Raises:
            ValueError: if there are none, a weight is not positive, or a name is unknown.
        """
        if not weights or not all(weight > 0 for weight in weights.values()):
            raise ValueError(f"weights={dict(weights)!r} must name at least one verifier, each with a weight > 0")
        total = sum(weights.values())
        self._parts = [(resolve(verifier), weight / total) for verifier, weight in weights.items()]

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if one of the parts cannot use the reference."""
        for verifier, _ in self._parts:
            check_answer(verifier, answer, **metadata)

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion by all parts."""
        verdicts = [safely(verifier, completion, answer, metadata) for verifier, _ in self._parts]
        scores = [verdict.score for verdict in verdicts]
        if any(score is None for score in scores):
            return _without_score(verdicts)
        total = sum(weight * (score or 0.0) for (_, weight), score in zip(self._parts, scores, strict=True))
        return _joined(verdicts, min(1.0, total))


class AllOf:
    """The least of several verifiers' scores: right only if all say so."""

    def __init__(self, parts: Sequence[str | Verifier]) -> None:
        """Name the parts: verifiers, names or dotted paths.

        Raises:
            ValueError: if there are none or a name is unknown.
        """
        if not parts:
            raise ValueError("parts is empty; name at least one verifier")
        self._parts = [resolve(part) for part in parts]

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if one of the parts cannot use the reference."""
        for verifier in self._parts:
            check_answer(verifier, answer, **metadata)

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion by all parts."""
        verdicts = [safely(verifier, completion, answer, metadata) for verifier in self._parts]
        scores = [verdict.score for verdict in verdicts]
        if any(score is None for score in scores):
            return _without_score(verdicts)
        return _joined(verdicts, min(score for score in scores if score is not None))


def _without_score(verdicts: Sequence[Verdict]) -> Verdict:
    first = next(verdict for verdict in verdicts if verdict.score is None)
    return Verdict(None, first.extracted, first.reason, first.detail)


def _joined(verdicts: Sequence[Verdict], score: float) -> Verdict:
    extracted = next((verdict.extracted for verdict in verdicts if verdict.extracted is not None), None)
    failed: Reason = next((verdict.reason for verdict in verdicts if verdict.reason != "right"), "wrong")
    reason: Reason = "right" if score >= 1 else "partial" if score > 0 else failed
    return Verdict(score, extracted, reason, "; ".join(f"{verdict.reason} {verdict.score:g}" for verdict in verdicts))
