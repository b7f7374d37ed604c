r"""Normalised text to tokens. Numerals are read whole here, since only their spelling tells `1,000` from a list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from verifiers.math import units
from verifiers.math.normalise import CURRENCIES
from verifiers.math.words import vocabulary

MOST_TOKENS = 3000


class ParseError(ValueError):
    """The text is no answer in the grammar; nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class Token:
    """kind: number, name, command, text, or the character itself; `spaced`: blank before it."""

    kind: str
    value: str
    spaced: bool = False


FUNCTIONS = frozenset(
    vocabulary(
        "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc asin acos atan",
        "arcsinh arccosh arctanh asinh acosh atanh cis ln log lg exp sqrt cbrt abs Abs max min gcd lcm det factorial binomial",
        "floor ceil ceiling Max Min tg ctg cotg arctg arcctg cosec",
    )
)
_PLAIN_CONSTANTS = frozenset({"pi", "infinity", "infty", "oo", "inf"})
_GREEK_WORDS = frozenset(
    vocabulary("alpha beta gamma delta theta lambda mu sigma phi omega epsilon rho tau psi varphi")
)
_WORDS = frozenset(
    vocabulary(
        "and or if for all where when with any is are the of in to by no not yes per each any both none neither",
        "odd even true false only such that real numbers number than less more",
    )
)
_SUFFIXES = frozenset({"st", "nd", "rd", "th"})

_TEXT_COMMANDS = frozenset(
    vocabulary(
        "text textbf textit textrm textnormal textsf mbox hbox mathrm mathbf mathit mathsf operatorname bf rm boldsymbol",
        "mathcal bm",
    )
)
_NUMERAL = re.compile(
    r"\d{1,3}(?:\{,\}\d{3})+(?!\d)(?:\.\d+)?"  # thousands in TeX's braces
    r"|\d+\{,\}\d+"  # a decimal comma in TeX's braces
    r"|[1-9]\d{0,2}(?:,\d{3})+(?![\d,])(?:\.\d+)?"  # thousands
    r"|\d{1,3}(?: \d{3})+(?!\d| ?/)(?:\.\d+)?"  # thousands by thin spaces
    r"|(?:\d+\.\d*|\.\d+|\d+)[eE][+-]?\d+(?![\d.])"
    r"|\d+\.(?!\.)\d*|\.\d+|\d+"
)
_REPEATING = re.compile(r"\\(?:overline|bar|dot|overbar) ?(?:\{ ?(\d+) ?\}|(\d))")
_ELLIPSIS = re.compile(r" ?(?:\.\.\.|\\(?:l|c)?dots(?![A-Za-z]))")
_PERIOD = re.compile(r"(?<=[.\d])(\d{1,6}?)\1\1?$(?<=\d\d\d)")
_COMMAND = re.compile(r"\\([A-Za-z]+)\*? ?|\\(.)")
_OTHER_LETTERS = re.compile(r"[^\W\d_](?:[^\W_]|[^\x00-\x7f])*")
_HAS_WORD = re.compile(r"[A-Za-z]{2,}|[ap]\. ?m\b|\\", re.IGNORECASE)
_LEADING_NUMERAL = re.compile(r"[\d.:,/]*\d ")
_LETTER_LIST = re.compile(r"(?:\(?(?:[A-Z]|[IVX]+)\)?(?:,? (?:and|or) |, ?|$))+")
_WORD_THEN_DIGIT = re.compile(r"[A-Za-z]{2}.*\d")  # "or 43" must not hide in a text command
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")
_JOINED = re.compile(r"(.*[^\s,]),?\s+(and|or)", re.IGNORECASE)
_GROUPING = str.maketrans({"{": "", "}": "", "~": " "})
_UPRIGHT = frozenset({"text", "mathrm", "mbox", "textrm", "textnormal", "rm", "operatorname", "hbox", "textbf"})
_VALUE_ENDS = frozenset({"number", ")", "}", "]", "ordinal"})
_LETTERS = re.compile(r"[A-Za-z]+")
_SIGNS = frozenset("+-*/^_=<>()[]{}|,;:!%'&") | CURRENCIES.keys()
_TWO = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "==": "=", "=<": r"\le", "=>": r"\ge", "->": r"\to", "<>": r"\ne"}


def tokenize(text: str) -> list[Token]:
    """All tokens of a normalised text.

    Raises:
        ParseError: at a character outside the alphabet, or beyond `MOST_TOKENS`.
    """
    tokens: list[Token] = []
    for token in _tokens(text):
        tokens.append(token)
        if len(tokens) > MOST_TOKENS:
            raise ParseError(f"more than {MOST_TOKENS} tokens")
    return tokens


def _tokens(text: str) -> Iterator[Token]:
    position, depth, previous = 0, 0, ""
    while position < len(text):
        spaced = text[position] == " "
        if spaced:
            position += 1
            continue
        spaced = position > 0 and text[position - 1] == " "
        character = text[position]
        if character.isdigit() or (character == "." and text[position + 1 : position + 2].isdigit()):
            value, position = _numeral(text, position, depth)
            yield Token("number", value, spaced)
            previous = "number"
            continue
        if character == "\\":
            found, position = _command(text, position, spaced, previous)
            for token in found:
                yield token
                previous = "number" if token.value == "pi" else token.kind
                depth += (token.kind == "set{") - (token.kind == "set}")
            continue
        if character.isalpha():
            match = _LETTERS.match(text, position)
            if match is None:  # words in another script
                match = _OTHER_LETTERS.match(text, position)
                assert match is not None
                yield Token("text", match[0].strip(), spaced)
                position, previous = match.end(), "text"
                continue
            run = match[0]
            following = text[match.end() : match.end() + 1]
            for token in _letters(run, spaced, previous, following):
                yield token
                previous = token.kind
            position = match.end()
            continue
        if text[position : position + 3] == "...":
            yield Token("command", "ldots", spaced)
            position, previous = position + 3, "command"
            continue
        two = _TWO.get(text[position : position + 2])
        if two is not None and not (
            two == r"\ne" and previous == "number" and text[position + 2 : position + 3] == "="
        ):
            yield Token("command", two[1:], spaced) if two[0] == "\\" else Token(two, two, spaced)
            position, previous = position + 2, two
            continue
        if character not in _SIGNS:
            raise ParseError(f"unknown character {character!r}")
        depth += (character in "([") - (character in ")]")
        yield Token(character, character, spaced)
        position, previous = position + 1, character


def _numeral(text: str, start: int, depth: int) -> tuple[str, int]:
    """A numeral in the form `12345.67`, `1.5e3` or `0.12(34)` for a repeating part, and where it ends.

    Inside brackets a plain comma separates, unless what follows it cannot be a number of its own (`(1,000)`).
    """
    match = _NUMERAL.match(text, start)
    assert match is not None
    value = match[0]
    if depth > 0 and "," in value and "{" not in value and not all(part[0] == "0" for part in value.split(",")[1:]):
        match = re.compile(r"\d+").match(text, start)
        assert match is not None
        value = match[0]
    end = match.end()
    if "{,}" in value:
        whole, *groups = value.split("{,}")
        is_thousands = all(len(group.partition(".")[0]) == 3 for group in groups) and whole.lstrip("0")
        value = value.replace("{,}", "" if is_thousands else ".")
    value = value.replace(",", "").replace(" ", "")
    if value.endswith(".") and end < len(text) and text[end] not in "\\":
        value, end = value[:-1], end - 1
        if text[end : end + 1] == ".":
            end += 1  # a full stop or an integer written `5.`
    repeating = _REPEATING.match(text, end)
    if repeating and "." in value:
        return f"{value}({repeating[1] or repeating[2]})", repeating.end()
    ellipsis = _ELLIPSIS.match(text, end)
    period = _PERIOD.search(value) if ellipsis and "." in value else None
    if period is not None and ellipsis is not None:
        return f"{value}({period[1]})", ellipsis.end()
    return value, end


def _command(text: str, position: int, spaced: bool, previous: str) -> tuple[list[Token], int]:
    match = _COMMAND.match(text, position)
    if match is None:
        raise ParseError("a backslash at the end")
    end = match.end()
    if match[2] is not None:
        kinds = {"{": "set{", "}": "set}", "\\": "row", "%": "%", "|": "norm", "&": "text", "#": "text"}
        if match[2] not in kinds:
            raise ParseError(f"unknown command {match[0]!r}")
        return [Token(kinds[match[2]], match[2], spaced)], end
    name = match[1]
    if name in _TEXT_COMMANDS:
        if text[end : end + 1] != "{":
            return [], end
        content, end = _braced(text, end)
        if text[end : end + 1] == "_" and content.isalnum() and len(content) > 1:
            return [Token("text", content, spaced)], end  # digits and letters of a numeral with a base
        if name == "operatorname" and content.strip() in FUNCTIONS:
            return [Token("command", content.strip(), spaced)], end
        return _text_tokens(name, content.translate(_GROUPING).strip(), spaced, previous), end
    if name in ("begin", "end") and text[end : end + 1] == "{":
        content, end = _braced(text, end)
        return [Token(name, content.strip(" *"), spaced)], end
    if name in ("mathbb", "Bbb"):
        content, end = _braced(text, end) if text[end : end + 1] == "{" else (text[end : end + 1], end + 1)
        return [Token("set", content.strip(), spaced)], end
    return [Token("command", name, spaced)], end


def _text_tokens(command: str, content: str, spaced: bool, previous: str) -> list[Token]:
    """The content of a text command: mathematics if it has no words, else a text token behind a leading numeral.

    A closing "and" or "or" is a token of its own; a letter behind a value is a unit if there is one of that name.
    """
    content = content.strip(".:;!? ") if content.strip(".:;!? ,") else ","
    if content == ",":
        return []
    if content in FUNCTIONS - {"min", "max"}:
        return [Token("command", content, spaced)]
    if previous in _VALUE_ENDS and command in _UPRIGHT and units.read(content) is not None:  # cm^2 included
        return [Token("text", content, spaced)]
    if not _HAS_WORD.search(content):
        return list(_tokens(content))
    if _LETTER_LIST.fullmatch(content) or _ORDINAL.fullmatch(content) or _WORD_THEN_DIGIT.search(content):
        return list(_tokens(content))
    numeral = _LEADING_NUMERAL.match(content)
    head = list(_tokens(numeral[0])) if numeral else []
    words = content[numeral.end() if numeral else 0 :].strip()
    joined = _JOINED.fullmatch(words)
    tail = (
        [Token("text", joined[1], spaced), Token("text", joined[2], True)] if joined else [Token("text", words, spaced)]
    )
    return [*head, *tail]


def _braced(text: str, start: int) -> tuple[str, int]:
    """The content of the group that opens at `start`, and where it ends."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "{" and text[position - 1] != "\\":
            depth += 1
        elif text[position] == "}" and text[position - 1] != "\\":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position], position + 1
    raise ParseError("a brace that is never closed")


def _letters(run: str, spaced: bool, previous: str, following: str) -> Iterator[Token]:
    """A run of letters: a function, a constant, a word, a unit behind a number, or single-letter variables."""
    if run == "min" and (previous in _VALUE_ENDS or previous == "/") and following != "(":
        yield Token("text", run, spaced)
        return
    if run in FUNCTIONS or run in _PLAIN_CONSTANTS or run in _GREEK_WORDS:
        yield Token("command", run, spaced)
        return
    if run in _SUFFIXES and previous == "number" and not spaced:
        yield Token("ordinal", run, spaced)
        return
    # Behind a slash ("miles/day") short units are left out: there letters are more often variables.
    is_placed = (previous in _VALUE_ENDS and len(run) > 1) or (previous == "/" and len(run) > 2)
    is_unit = is_placed and units.is_bare_unit(run) and following != "("
    is_word = run.lower() in _WORDS and (len(run) > 2 or not run.isupper() or run == "OR")
    if is_word or is_unit or (previous == "text" and len(run) > 1):
        yield Token("text", run, spaced)
        return
    pieces = _split_functions(run, following)
    if len(pieces) == len(run) and len(run) >= 4:
        yield Token("text", run, spaced)
        return
    for index, piece in enumerate(pieces):
        kind = "name" if len(piece) == 1 else "command"
        yield Token(kind, piece, spaced if index == 0 else False)


def _split_functions(run: str, following: str) -> list[str]:
    """`xsin` → x, sin; `abc` → a, b, c: a known name ends the run, or single letters all through."""
    if following in ("(", "^", "", " ") or following.isdigit():
        for start in range(1, len(run) - 1):
            if run[start:] in FUNCTIONS or run[start:] in _PLAIN_CONSTANTS:
                return [*run[:start], run[start:]]
    for name in ("pi", "sqrt"):
        if run.startswith(name):
            return [name, *run[len(name) :]]
    return list(run)
