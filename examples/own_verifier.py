"""A verifier of one's own: the last number decides, and a long text earns half.

python -m algorithms.sgt --verifier own_verifier:Brief --verifier_options '{"limit": 20}'
"""

import re

from verifiers import Verdict


class Brief:
    """Right if the last number is the answer, half right if the text is longer than `limit` characters."""

    def __init__(self, limit=60):
        self.limit = limit

    def verify(self, completion, answer, **metadata):
        # A completion is hostile input: look at a bounded part of it, and evaluate nothing.
        numbers = re.findall(r"-?\d+", completion[-1000:])
        if not numbers:
            return Verdict(0.0, None, "no_answer")
        if numbers[-1] != answer:
            return Verdict(0.0, numbers[-1], "wrong")
        if len(completion) > self.limit:
            return Verdict(0.5, numbers[-1], "partial", f"longer than {self.limit} characters")
        return Verdict(1.0, numbers[-1], "right")


if __name__ == "__main__":
    for text in (
        "6 * 24 = 144",
        "144, but I am not sure about it at all, so I say it again: 144",
        "24",
        "I do not know",
    ):
        print(Brief().verify(text, "144"))
