"""Word lists, and numbers written as English words up to 999."""

from __future__ import annotations


def vocabulary(*lines: str) -> tuple[str, ...]:
    """The words of some lines of text, in order."""
    return tuple(" ".join(lines).split())


_UNITS = vocabulary(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen",
    "eighteen nineteen",
)
_TENS = dict(zip(vocabulary("twenty thirty forty fifty sixty seventy eighty ninety"), range(20, 100, 10), strict=True))
_VALUES = {word: value for value, word in enumerate(_UNITS)} | _TENS


def number(words: str) -> int | None:
    """The number that words spell ("forty-two", "one hundred and five"), or None.

    Example:
        >>> number("Twenty-three")
        23
    """
    parts = words.casefold().replace("-", " ").replace(" and ", " ").split()
    total = 0
    if len(parts) >= 2 and parts[1] == "hundred" and 1 <= _VALUES.get(parts[0], 0) <= 9:
        total, parts = 100 * _VALUES[parts[0]], parts[2:]
        if not parts:
            return total
    match parts:
        case [single] if single in _VALUES:
            return total + _VALUES[single]
        case [tens, units] if tens in _TENS and 1 <= _VALUES.get(units, 0) <= 9:
            return total + _TENS[tens] + _VALUES[units]
    return None
