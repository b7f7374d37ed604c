"""What a verifier is and what it answers: the two types that everything else in this package is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

Reason = Literal["right", "wrong", "partial", "no_answer", "refused", "timeout", "bad_gold", "error"]

REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Verdict:
    """The judgement of one completion.

    Attributes:
        score: in [0, 1], or None where no judgement exists (the verifier itself failed, or the reference answer is
            unusable). None is never a reward: whoever consumes it leaves the completion out and counts it.
        extracted: the answer found in the completion, as text; None if there was none.
        reason: one word for counting (see `Reason`).
        detail: a sentence for people; may be empty.

    The score may be given as any real number (`True`, a NumPy scalar) and is kept as a Python float.

    Raises:
        ValueError: if the score is no number in [0, 1], `extracted` is no text, or the reason is unknown.

    Example:
        >>> Verdict(score=1.0, extracted="42", reason="right")
        Verdict(score=1.0, extracted='42', reason='right', detail='')
    """

    score: float | None
    extracted: str | None = None
    reason: Reason = "wrong"
    detail: str = ""

    def __post_init__(self) -> None:
        if self.score is not None:
            try:
                score = None if isinstance(self.score, str) else float(self.score)
            except (TypeError, ValueError, OverflowError):
                score = None
            if score is None:
                raise ValueError(f"score={self.score!r} is no number; give one in [0, 1], or None for no judgement")
            if not 0.0 <= score <= 1.0:
                raise ValueError(f"score={self.score!r} lies outside [0, 1]; scale the reward before making a Verdict")
            object.__setattr__(self, "score", score)
        if self.extracted is not None and not isinstance(self.extracted, str):
            raise ValueError(f"extracted={self.extracted!r} is no text; give str(...) of it, or None")
        if self.reason not in REASONS:
            raise ValueError(f"reason={self.reason!r} is unknown; use one of {', '.join(REASONS)}")

    @property
    def success(self) -> bool:
        """Whether the completion counts as solved: a score of 1."""
        return self.score is not None and self.score >= 1.0


def reason_of(score: float) -> Reason:
    """The reason that goes with a score and nothing else: right, wrong or partial."""
    return "right" if score >= 1 else "wrong" if score <= 0 else "partial"


class BadGoldError(ValueError):
    """The reference answer itself cannot be used; an error of the data, never a reward."""


@runtime_checkable
class Verifier(Protocol):
    """Anything with `verify`; a plain class of the user's own is enough."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Args:
            completion: the model's text: hostile input, never evaluated.
            answer: the reference answer.
            **metadata: the problem's metadata, for verifiers that need more than the answer (options, units).

        Raises:
            BadGoldError: if `answer` cannot be used as a reference.
        """
        ...
