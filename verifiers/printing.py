"""Foreign text on its way to a terminal, a log or an error message: without what drives a terminal, and not too long."""

from __future__ import annotations

import logging
import reprlib
from typing import Any


def printable(text: str) -> str:
    r"""The text with control characters and line breaks escaped, fit for one line of a terminal or a log.

    What is escaped is what `str.isprintable` says is not printable: escape sequences, bidirectional overrides, invisible
    characters, halves of surrogate pairs.

    Example:
        >>> print(printable("red\x1b[31m\n"))
        red\x1b[31m\n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, whose line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))


def shown(value: Any) -> str:
    """The value for an error message, cut to a length that can be read."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 80
    return shortener.repr(value)


class PrintableFormatter(logging.Formatter):
    """A formatter of log records whose lines cannot drive a terminal, whoever wrote a part of them."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines, printable."""
        return printable_lines(super().format(record))


def log_to_terminal(level: int = logging.INFO) -> None:
    """Let the log go to standard error, from a level on, unless it already goes somewhere."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
