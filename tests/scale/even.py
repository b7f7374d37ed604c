"""A verifier for models that know nothing."""

from __future__ import annotations

from typing import Any

from verifiers import Verdict


class EvenLength:
    """Scores 1 for a completion of an even number of characters: models that know nothing learn from some of their answers."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        even = len(completion) % 2 == 0
        return Verdict(float(even), completion, "right" if even else "wrong")
