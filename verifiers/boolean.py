"""Yes or no, true or false."""

from __future__ import annotations

import re
from typing import Any

from verifiers.choice import plain
from verifiers.extraction import extract
from verifiers.verdict import BadGoldError, Verdict

_WORDS = {
    **dict.fromkeys(("yes", "true", "correct", "right", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "incorrect", "wrong", "f", "n", "0"), False),
}


_SPOKEN = ("yes", "true", "no", "false")
_TAKEN_BACK = re.compile(r"(?:\bnot|n't|n’t)\s+\w+")
_HEDGE = re.compile(r"\s*(?:or|and|/|&|but)\b")


def _truth(text: str) -> bool | None:
    """What a text says: a word for yes or no, alone or with a clause behind a comma that does not take it back."""
    word, comma, clause = text.partition(",")
    value = _WORDS.get(text, _WORDS.get(word))
    if comma and value is not None:
        said = [_WORDS[other] for other in re.findall(r"\w+", _TAKEN_BACK.sub("", clause)) if other in _SPOKEN]
        if _HEDGE.match(clause) or (not value) in (*said, _WORDS.get(clause.strip())):
            return None
    return value


class BooleanVerifier:
    """Compare truth values; `yes`, `true`, `correct` are one answer, `no`, `false`, `incorrect` the other."""

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError unless the reference is a word for yes or no."""
        if plain(answer) not in _WORDS:
            raise BadGoldError(f"answer={answer!r:.200} is neither yes nor no; use one of {', '.join(_WORDS)}")

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        value = _truth(plain(found.text))
        right = value is _WORDS[plain(answer)]
        return Verdict(float(right), found.text, "right" if right else "wrong")
