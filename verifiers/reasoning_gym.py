"""Tasks of the `reasoning-gym` package, scored by their own `score_answer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifiers.extraction import extract
from verifiers.isolation import DeadlineError, WorkerError, shared_pool
from verifiers.verdict import BadGoldError, Verdict, reason_of

SCORE_SECONDS = 5.0
"""For one score; some of its tasks replay a puzzle."""


class ReasoningGymVerifier:
    """Delegate to the scoring function of the data set that an entry came from.

    Metadata `entry` is the entry as reasoning-gym made it, with `metadata.source_dataset`. Its scoring functions see
    model text and some evaluate it, so they run in a worker under a deadline.
    """

    def check_answer(self, answer: str, entry: Mapping[str, Any] | None = None, **metadata: Any) -> None:
        """Make sure that reasoning-gym gives the entry's own answer a score of 1; entries without an answer pass.

        Raises:
            BadGoldError: if it does not.
            ValueError: if `entry` is missing or names no data set.
        """
        entry, name = _with_source(entry)
        if entry.get("answer") is None:
            return
        try:
            own = _score(entry["answer"], entry, name)
        except (DeadlineError, WorkerError) as error:
            raise BadGoldError(f"reasoning-gym cannot score {name}'s own answer: {error}") from error
        if own < 1:
            raise BadGoldError(
                f"reasoning-gym scores {name}'s own answer {own}; keep entries as it made them (JSON turns tuples into lists)"
            )

    def verify(self, completion: str, answer: str, entry: Mapping[str, Any] | None = None, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            ValueError: if `entry` is missing or names no data set.
        """
        entry, name = _with_source(entry)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        try:
            score = _score(found.text, entry, name)
        except DeadlineError as error:
            return Verdict(0.0, found.text, "timeout", str(error))
        except WorkerError as error:
            return _blamed(found.text, entry, name, error)
        return Verdict(min(1.0, max(0.0, score)), found.text, reason_of(score))


def _with_source(entry: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
    """The entry and the name of the data set that it came from."""
    about = entry.get("metadata") if isinstance(entry, Mapping) else None
    name = about.get("source_dataset") if isinstance(about, Mapping) else None
    if entry is None or not isinstance(name, str):
        raise BadGoldError("entry is missing or has no metadata.source_dataset; pass reasoning-gym's entry")
    return entry, name


def _score(candidate: str | None, entry: Mapping[str, Any], name: str) -> float:
    """What `score` gives in a worker."""
    arguments = [candidate, packed(entry), name]
    return float(shared_pool().call("verifiers.reasoning_gym:score", arguments, SCORE_SECONDS))


def _blamed(candidate: str, entry: Mapping[str, Any], name: str, error: WorkerError) -> Verdict:
    """The verdict where scoring failed: an answer is wrong if the scorer fails on it and not on the entry's own."""
    try:
        _score(entry.get("answer"), entry, name)
    except (DeadlineError, WorkerError):
        return Verdict(None, candidate, "error", str(error))
    return Verdict(0.0, candidate, "wrong", f"reasoning-gym cannot read it: {error}")


def packed(value: Any) -> Any:
    """A value for JSON that `unpacked` restores with its tuples and the types of its keys, which JSON would change."""
    if isinstance(value, Mapping):
        return {"dict": [[packed(key), packed(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": list(map(packed, value))}
    return list(map(packed, value)) if isinstance(value, list) else value


def unpacked(value: Any) -> Any:
    """The inverse of `packed`."""
    if isinstance(value, list):
        return list(map(unpacked, value))
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(unpacked, value["tuple"]))
    return {unpacked(key): unpacked(item) for key, item in value["dict"]}


def score(candidate: str | None, entry: Any, name: str) -> float:
    """reasoning-gym's score of an answer to a `packed` entry; called inside a worker."""
    import reasoning_gym

    return float(reasoning_gym.get_score_answer_fn(name)(answer=candidate, entry=unpacked(entry)))
