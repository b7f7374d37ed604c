"""An answer's text, read once: its spelling, its words, its tree."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from verifiers.math.lexer import ParseError
from verifiers.math.normalise import normalise
from verifiers.math.parser import parse
from verifiers.math.tree import Finite, Group, Items, Named, Node, Num, Quantity, Text, walk

LONGEST = 4000
"""Characters of an answer that is parsed; longer ones are compared only as text."""

_BLANKS = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")
_FONT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|mathbf|textnormal) ?\{([^{}]*)\}")
_MATHEMATICS = re.compile(r"[\\{}^_]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ONE_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_OPTION = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf|mbox) ?\{)? ?(?:[A-Z]|\([A-Z]\)|[A-Z][.:)]) ?\}?(?:(?<=[).:}]) ?.*)?|[A-Z] [A-Z\d].*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Reading:
    """An answer's text, its normalised spelling, and its tree, or why it has none.

    Attributes:
        compact: the spelling without blanks that mean nothing.
        words: the spelling without text commands, in lower case.
        wordy: whether words, and no LaTeX, are left in it, so that `words` may be compared.
    """

    text: str
    spelling: str
    tree: Node | None
    problem: str
    compact: str
    words: str
    wordy: bool

    @property
    def is_option(self) -> bool:
        """Whether it is an option of a multiple choice: a capital letter alone, in brackets, or with its text."""
        return _OPTION.fullmatch(self.spelling) is not None


@functools.lru_cache(maxsize=16_384)
def read(text: str) -> Reading:
    """Normalise and parse an answer; a failure is part of the result."""
    tree, problem = None, ""
    if len(text) > LONGEST:
        spelling, problem = " ".join(text.split()), f"longer than {LONGEST} characters"
    else:
        spelling = normalise(text)
        try:
            tree = parse(spelling)
        except (ParseError, RecursionError) as error:
            problem = str(error)
    plain = " ".join(_FONT.sub(r"\1", spelling).split())
    has_words = tree is None or any(isinstance(node, (Text, Quantity, Named)) for node in walk(tree))
    return Reading(
        text=text,
        spelling=spelling,
        tree=tree,
        problem=problem,
        compact=_BLANKS.sub("", spelling),
        words=_BLANKS.sub("", plain).casefold(),
        wordy=has_words and _WORD.search(plain) is not None and _MATHEMATICS.search(plain) is None,
    )


def other_reading(candidate: Reading, other: Reading, decimal_comma: bool) -> Node | None:
    """A comma read the other way, where the other side's kind asks for it.

    `2,74` is a list of two, or a decimal if the other side is one, with a point; `70,110` is a number, or a list of two if the
    other side is a list.
    """
    is_list = isinstance(other.tree, (Items, Group, Finite))
    is_decimal = isinstance(other.tree, Num) and other.tree.digits > 0
    if isinstance(candidate.tree, Items) and is_decimal and decimal_comma:
        spelling = candidate.spelling.replace(",", ".") if _ONE_COMMA.fullmatch(candidate.spelling) else ""
    elif isinstance(candidate.tree, Num) and is_list and _THOUSANDS.fullmatch(candidate.spelling):
        spelling = candidate.spelling.replace(",", ", ")
    else:
        return None
    try:
        return parse(spelling)
    except ParseError:
        return None
