"""Many completions at once, with one rule for what goes wrong: everything is a Verdict, in order, and countable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from verifiers.registry import resolve
from verifiers.verdict import BadGoldError, Verdict, Verifier

CHUNK = 4096
"""Completions that are handed to a verifier's own `verify_batch` at a time."""


@runtime_checkable
class BatchVerifier(Protocol):
    """A verifier that judges a whole batch better than one by one (caches, workers)."""

    def verify_batch(
        self, completions: Sequence[str], answers: Sequence[str], metadata: Sequence[Mapping[str, Any]]
    ) -> list[Verdict]:
        """One Verdict per completion, in order; raises for nothing that a completion or an answer contains."""
        ...


@runtime_checkable
class AnswerChecker(Protocol):
    """A verifier that can tell before training whether it will be able to use a reference answer."""

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Return nothing, or raise BadGoldError."""
        ...


def safely(verifier: Verifier, completion: str, answer: str, metadata: Mapping[str, Any]) -> Verdict:
    """One verdict; a failure of the verifier or of the reference becomes a Verdict without a score.

    A bad reference must not stop a run after hours (that is what `check_answer` is for, before it), and an exception in
    a verifier must be neither a reward nor silence: both are counted under their reason and carry the text in `detail`.
    """
    try:
        return _checked(verifier, "verify", verifier.verify(completion, answer, **metadata))
    except BadGoldError as error:
        return Verdict(score=None, reason="bad_gold", detail=str(error))
    except Exception as error:  # whatever a user's verifier raises is shown and counted, never a score
        return _failed(f"{type(error).__name__}: {error}")


def _checked(verifier: object, method: str, result: object) -> Verdict:
    """What a verifier returned, if it is a Verdict; else an error that says so."""
    if isinstance(result, Verdict):
        return result
    name = type(verifier).__name__
    return _failed(f"{name}.{method} returned {result!r:.200} ({type(result).__name__}); return a verifiers.Verdict")


def _failed(detail: str) -> Verdict:
    return Verdict(score=None, reason="error", detail=detail)


def _batch_safely(
    verifier: BatchVerifier, completions: Sequence[str], answers: Sequence[str], metadata: Sequence[Mapping[str, Any]]
) -> list[Verdict]:
    """One verdict per completion from a verifier's own `verify_batch`; if that fails as a whole, they are all errors."""
    name = type(verifier).__name__
    try:
        found = list(verifier.verify_batch(completions, answers, metadata))
    except Exception as error:  # as in `safely`
        return [_failed(f"{name}.verify_batch: {type(error).__name__}: {error}")] * len(completions)
    if len(found) != len(completions):
        detail = (
            f"{name}.verify_batch returned {len(found)} results for {len(completions)} completions; return one each"
        )
        return [_failed(detail)] * len(completions)
    return [_checked(verifier, "verify_batch", result) for result in found]


def verify_batch(
    verifier: str | Verifier,
    completions: Sequence[str],
    answers: Sequence[str],
    metadata: Sequence[Mapping[str, Any]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """Judge completions against their answers; the result keeps the order.

    Args:
        verifier: a name, a dotted path, or a verifier.
        completions: N texts.
        answers: N reference answers.
        metadata: N mappings of keyword arguments for `verify`; none by default.
        progress: called after each chunk with the number of verdicts that it added (`tqdm.update` fits).

    Returns:
        N verdicts. A verifier's exception, or a result that is no Verdict, gives reason "error", an unusable answer reason
        "bad_gold", both without score.

    Raises:
        ValueError: if the lengths differ, or the verifier is unknown or a class.
    """
    if metadata is None:
        metadata = [{}] * len(completions)
    if not len(completions) == len(answers) == len(metadata):
        raise ValueError(
            f"completions ({len(completions)}), answers ({len(answers)}) and metadata ({len(metadata)}) differ in length; "
            "give one answer (and one mapping) per completion"
        )
    chosen = resolve(verifier)
    verdicts: list[Verdict] = []
    for start in range(0, len(completions), CHUNK):
        part = slice(start, start + CHUNK)
        if isinstance(chosen, BatchVerifier):
            found = _batch_safely(chosen, completions[part], answers[part], metadata[part])
        else:
            rows = zip(completions[part], answers[part], metadata[part], strict=True)
            found = [safely(chosen, *row) for row in rows]
        verdicts.extend(found)
        if progress is not None:
            progress(len(found))
    return verdicts


def check_answer(verifier: str | Verifier, answer: str, **metadata: Any) -> None:
    """Make sure that a verifier can use `answer` as a reference, before anything is trained on it.

    Does nothing for verifiers without a `check_answer` method.

    Raises:
        BadGoldError: if it cannot, saying why.
        ValueError: if the verifier is unknown or a class.
    """
    chosen = resolve(verifier)
    if isinstance(chosen, AnswerChecker):
        chosen.check_answer(answer, **metadata)
