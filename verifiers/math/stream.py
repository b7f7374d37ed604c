"""The token stream that the parser walks along."""

from __future__ import annotations

from verifiers.math.grammar import ACCENTS, CONSTANTS, DEEPEST, ELLIPSES, ENDS, GREEK, SET_OPERATORS, STARTERS
from verifiers.math.lexer import FUNCTIONS, ParseError, Token


class Stream:
    """A list of tokens and the place of the next one, with a bound on nesting."""

    def __init__(self, tokens: list[Token]) -> None:
        """Start at the first token."""
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bound: list[str] = []

    @property
    def token(self) -> Token:
        """The next token; its kind is "" at the end."""
        return self.tokens[self.position] if self.position < len(self.tokens) else Token("", "")

    def peek(self, ahead: int = 1) -> Token:
        """The token `ahead` places on."""
        index = self.position + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("", "")

    def accept(self, kind: str, value: str | None = None) -> bool:
        """Step over the next token if it is of this kind (and value)."""
        if self.token.kind == kind and (value is None or self.token.value == value):
            self.position += 1
            return True
        return False

    def expect(self, kind: str) -> Token:
        """Step over the next token, which must be of this kind."""
        token = self.token
        if token.kind != kind:
            raise ParseError(f"expected {kind!r}, found {token.value or 'the end'!r}")
        self.position += 1
        return token

    def enter(self) -> None:
        """One level deeper."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ParseError(f"nested deeper than {DEEPEST}")

    def sign(self) -> str | None:
        """Step over one sign (or several, `+-`, `--`)."""
        found: str | None = None
        while True:
            token = self.token
            if token.kind in ("+", "-"):
                found = token.kind if found is None else "-" if (found == "-") != (token.kind == "-") else "+"
            elif token.kind == "command" and token.value in ("pm", "mp") and found is None:
                found = token.value
            else:
                return found
            self.position += 1

    def starts_factor(self) -> bool:
        """Whether the next token can begin a factor of an unwritten multiplication."""
        token = self.token
        if token.kind == "[" and (
            self.peek().kind in ENDS or self.peek().kind == "" or self.peek().value in SET_OPERATORS
        ):
            return False  # it closes ]0, 1[
        if token.kind in ("number", "name", "(", "[", "{", "open|", "begin", "set", "set{"):
            return True
        return token.kind == "command" and (
            token.value in FUNCTIONS
            or token.value in CONSTANTS
            or token.value in GREEK
            or token.value in ACCENTS
            or token.value in ELLIPSES
            or token.value in STARTERS
        )
