"""Multiple choice: a letter, or the text of an option, against the letter of the right option."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from verifiers.extraction import extract
from verifiers.verdict import BadGoldError, Verdict

_LABELLED = re.compile(
    r"(?:[(\[](?=.[)\].:,]))?([A-Za-z])(?!\s*[+*^])[)\].:,]*(?:(?:\s+|(?=[^\x00-\x7f]))(.*))?", re.DOTALL
)
_ANOTHER_OPTION = re.compile(
    r"^(?:or|and|not|as well as)\b|^[/&,|、，∨→]|^[-–—−]+\s*[(\[]?[A-Z][)\].:]*$"
    r"|^[(\[]?[A-Za-z](?:[)\].:,;]+(?:\s|$)|$)|^[A-Z](?:\s+[A-Z])+$"
    r"|(?:\bor|\band|\bas well as|[/,;&|、，∨→])\s*[(\[]?[A-Z](?:[)\].:]|\s+\S)"
)
_BRACKETED = re.compile(r"([(\[]) ?([A-Za-z]) ?([)\]])")
_TWO_LETTERS = re.compile(r"[A-Za-z],? [A-Za-z]")
_WHY = re.compile(r"(?:because|since|is|as|for|by)\b")
_LEADING_MARKS = re.compile(r"^[ .,;:!]+(?!\d)")
_QUOTED = re.compile(r"([\"']{1,2}) ?(.*?) ?\1")
_EXCLAMATION = re.compile(r"(?<=[^\W\d_]{2})[ !]+$")
_TEX_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|bf|rm)\b")


def exact(text: str) -> str:
    """Text for comparison, as it is but for blanks."""
    return " ".join(text.split())


def unwrapped(text: str) -> str:
    """Text for comparison with regard to case and punctuation: without LaTeX font commands, braces and quotes around it."""
    text = unicodedata.normalize("NFKC", _TEX_TEXT.sub(" ", text)).replace("\\ ", " ")
    text = exact(re.sub(r"[{}$`*~\\]", " ", text))
    quoted = _QUOTED.fullmatch(text)
    return quoted[2] if quoted else text


def plain(text: str) -> str:
    """Text for comparison in words: as `unwrapped`, without double quotes and outer punctuation, in lower case.

    A point in front of a digit, a prime and the sign of a factorial belong to a value and stay.
    """
    text = exact(unwrapped(text).replace('"', " "))
    text = _LEADING_MARKS.sub("", text).rstrip(" .,;:")
    return _EXCLAMATION.sub("", text).casefold()


def split_label(text: str) -> tuple[str | None, str]:
    """The letter that a text starts with, in upper case (None without one), and the rest of the text, whatever it is."""
    text = _unmarked(text)
    match = _LABELLED.fullmatch(text)
    return (None, text) if match is None else (match[1].upper(), (match[2] or "").strip())


def read_letter(text: str) -> tuple[str | None, str]:
    """The option letter that a text starts with, in upper case (None without one), and the rest of the text.

    Examples: `B`, `(B)`, `B.`, `(B) 42`, `b) blue`, `B: because …`. A letter followed by other options (`A or B`,
    `A/B`), running on into a word, or in a formula (`(a + b)c`, `A + 1`) is none.
    """
    text = _unmarked(text)
    letter, rest = split_label(text)
    if letter is None:
        return None, text
    if text[:1].isalpha() and text[1:2] == " " and (text[0].islower() or rest[:1].islower()) and not _WHY.match(rest):
        return None, text  # an article: "a dog"
    return (None, text) if _ANOTHER_OPTION.search(rest) else (letter, rest)


def _unmarked(text: str) -> str:
    """Text without LaTeX font commands, braces, quotes and emphasis, and without blanks within `( B )`."""
    text = " ".join(re.sub(r"[{}$`*\"'~\\]", " ", _TEX_TEXT.sub(" ", text)).split())
    return _BRACKETED.sub(r"\1\2\3", text)


def words(text: str) -> str:
    """Text for comparison with what `read_letter` leaves behind a letter: as `plain`, without any apostrophe."""
    return plain(text.replace("'", " "))


_COMPARISONS: tuple[Callable[[str], str], ...] = (exact, unwrapped, plain)


def _named(text: str, options: Sequence[str], comparisons: Sequence[Callable[[str], str]] = _COMPARISONS) -> list[str]:
    """The letters of the options that a text spells, by the strictest comparison that finds one."""
    for spelled in comparisons:
        named = [chr(ord("A") + i) for i, option in enumerate(options) if spelled(option) == spelled(text)]
        if named:
            return named
    return []


class ChoiceVerifier:
    """Compare the chosen option with the right letter; metadata `options` holds the options' texts in order.

    The completion may give the letter (`B`, `(B)`, `**B**`), the letter with its text, or the text alone. A letter with
    its own text is right, however that begins ("(B) not hungry"); with another option's text it is contradictory and wrong.
    Options may be shuffled from call to call: only `options` counts.
    """

    def check_answer(self, answer: str, options: Sequence[str] = (), **metadata: Any) -> None:
        """Raise BadGoldError unless `answer` is a letter, within `options` if they are given."""
        letter, rest = read_letter(answer)
        if letter is None or rest:
            raise BadGoldError(f"answer={answer!r:.200} is not an option's letter; give one letter such as 'B'")
        if options and ord(letter) - ord("A") >= len(options):
            raise BadGoldError(f"answer={answer!r:.200} is beyond the {len(options)} options")

    def verify(self, completion: str, answer: str, options: Sequence[str] = (), **metadata: Any) -> Verdict:
        """Judge one completion against a letter.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer, options)
        gold, _ = read_letter(answer)
        found = extract(completion)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        chosen, why = self._choose(found.text, options)
        right = gold in chosen
        return Verdict(float(right), found.text, "right" if right else "wrong", why or f"chose {' or '.join(chosen)}")

    @staticmethod
    def _choose(text: str, options: Sequence[str]) -> tuple[list[str], str]:
        """The letters that a text names (several where options are spelled the same), and why there is none."""
        letter, rest = read_letter(text)
        if letter is not None and not rest and ord(letter) - ord("A") < max(len(options), 1):
            return [letter], ""
        named = _named(text, options)
        if named:
            spellings = {unwrapped(options[ord(name) - ord("A")]) for name in named}
            return (named, "") if len(spellings) == 1 else ([], f"may be option {' or '.join(named)}")
        label, rest = split_label(text)
        # "A, B" is no letter with its text, even where an option's text is a letter; "A. B" may be.
        spelled = (
            _named(rest, options, (*_COMPARISONS, words))
            if rest and not _TWO_LETTERS.fullmatch(_unmarked(text))
            else []
        )
        if label is None or not (letter or spelled):
            return [], "neither a letter nor the text of an option"
        if spelled and label not in spelled:
            return [], f"letter {label} with the text of option {spelled[0]}"
        return [label], ""
