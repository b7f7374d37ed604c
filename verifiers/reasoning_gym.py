"""Tasks of the `reasoning-gym` package, scored by their own `score_answer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifiers.extraction import extract
from verifiers.isolation import DeadlineError, WorkerError, shared_pool
from verifiers.verdict import Verdict, reason_of

SCORE_SECONDS = 5.0
"""For one score; some of its tasks replay a puzzle."""


class ReasoningGymVerifier:
    """Delegate to the scoring function of the data set that an entry came from.

    Metadata `entry` is the entry as reasoning-gym made it, with `metadata.source_dataset`. Its scoring functions see
    model text and some evaluate it, so they run in a worker under a deadline.
    """

    def verify(self, completion: str, answer: str, entry: Mapping[str, Any] | None = None, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            ValueError: if `entry` is missing or names no data set.
        """
        name = (entry or {}).get("metadata", {}).get("source_dataset")
        if entry is None or name is None:
            raise ValueError("entry is missing or has no metadata.source_dataset; pass reasoning-gym's entry")
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        try:
            score = shared_pool().call("verifiers.reasoning_gym:score", [found.text, dict(entry), name], SCORE_SECONDS)
        except DeadlineError as error:
            return Verdict(0.0, found.text, "timeout", str(error))
        except WorkerError as error:
            return Verdict(None, found.text, "error", str(error))
        return Verdict(min(1.0, max(0.0, score)), found.text, reason_of(score))


def score(candidate: str, entry: dict[str, Any], name: str) -> float:
    """reasoning-gym's score of an answer; called inside a worker."""
    import reasoning_gym

    return float(reasoning_gym.get_score_answer_fn(name)(answer=candidate, entry=entry))
