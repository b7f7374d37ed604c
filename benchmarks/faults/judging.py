"""A verifier of the fault runs: every text has a judgement, so that policies learn from whatever they say."""

from __future__ import annotations

import re
from typing import Any

from verifiers import Verdict
from verifiers.isolation import shared_pool

PATTERN = "[^0-4]*(?:[0-4][^0-4]*[0-4][^0-4]*)*"
"""What passes: texts with an even number of digits below 5, since that is often so and often not."""

SECONDS = 1.0
"""Deadline of a judgement in a worker."""


class InProcess:
    """Scores 1 where the text matches `PATTERN`, else 0."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge by the digits."""
        return _verdict(re.fullmatch(PATTERN, completion) is not None)


class InWorker:
    """The same judgement, computed in one of the workers that judge what is hard."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge by the digits."""
        return _verdict(shared_pool().call("verifiers.exact:full_match", [PATTERN, completion], SECONDS))


def _verdict(right: bool) -> Verdict:
    return Verdict(float(right), None, "right" if right else "wrong")
