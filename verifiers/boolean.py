"""Yes or no, true or false."""

from __future__ import annotations

from typing import Any

from verifiers.choice import plain
from verifiers.extraction import extract
from verifiers.verdict import BadGoldError, Verdict

_WORDS = {
    **dict.fromkeys(("yes", "true", "correct", "right", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "incorrect", "wrong", "f", "n", "0"), False),
}


class BooleanVerifier:
    """Compare truth values; `yes`, `true`, `correct` are one answer, `no`, `false`, `incorrect` the other."""

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError unless the reference is a word for yes or no."""
        if plain(answer) not in _WORDS:
            raise BadGoldError(f"answer={answer!r} is neither yes nor no; use one of {', '.join(_WORDS)}")

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        words = plain(found.text)
        value = _WORDS.get(words, _WORDS.get(words.split(",")[0]))
        right = value is _WORDS[plain(answer)]
        return Verdict(float(right), found.text, "right" if right else "wrong")
