r"""Tokens to a tree, by recursive descent over a strict grammar of answers.

    answer    := item ((',' | ';' | 'and' | 'or') item)*
    item      := set (relation set)* words?
    set       := ratio ((∪ | ∩ | ∖) ratio)*
    ratio     := sum (':' sum)*
    sum       := ['+'|'-'|'±'] product (('+'|'-'|'±') product)*
    product   := factor ((× | · | * | / | ÷ | nothing) factor)*
    factor    := primary ('^' argument | '!' | '%' | degree)*
    primary   := number | name | function | fraction | root | brackets | bars | matrix | cases | sum or product sign

What cannot be consumed to the last token raises ParseError: no prefix is ever kept.
"""

from __future__ import annotations

import itertools

from verifiers.math import units
from verifiers.math.grammar import (
    APPROXIMATELY,
    CONDITIONS,
    DEEPEST_TREE,
    ENDS,
    MOST_BARS,
    OPENERS,
    RELATIONS,
    SEPARATORS,
    SET_OPERATORS,
    SETS_IN_WORDS,
    signed,
    times,
    with_words,
)
from verifiers.math.lexer import ParseError, Token, tokenize
from verifiers.math.normalise import CURRENCIES
from verifiers.math.primaries import Primaries
from verifiers.math.tree import (
    Add,
    Apply,
    Items,
    Mul,
    Named,
    Node,
    Num,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Text,
    depth,
    quotient,
)


def parse(text: str) -> Node:
    """The tree of a normalised text.

    Raises:
        ParseError: if the text is not an answer of the grammar, or too large for one.
    """
    tokens = tokenize(text)
    if not tokens:
        raise ParseError("nothing to read")
    bars = [index for index, token in enumerate(tokens) if token.kind in ("|", "norm")]
    if not bars:
        return checked(Parser(tokens).answer())
    if len(bars) > MOST_BARS:
        raise ParseError(f"more than {MOST_BARS} bars")
    error = ParseError("bars that do not pair")
    for roles in _bar_roles(len(bars)):
        attempt = list(tokens)
        for index, role in zip(bars, roles, strict=True):
            attempt[index] = Token(role, tokens[index].kind, tokens[index].spaced)
        try:
            return checked(Parser(attempt).answer())
        except ParseError as failed:
            error = failed
    raise error


def checked(tree: Node) -> Node:
    """The tree, unless it is deeper than what the walks over it can bear (`2!!!…`)."""
    if depth(tree) > DEEPEST_TREE:
        raise ParseError(f"a tree deeper than {DEEPEST_TREE}")
    return tree


def _bar_roles(count: int) -> list[tuple[str, ...]]:
    """All ways to let bars open, close, or (one of them) stand for "such that", the likely ways first."""
    found = []
    for roles in itertools.product(("open|", "close|", "mid"), repeat=count):
        depth, lowest = 0, 0
        for role in roles:
            depth += {"open|": 1, "close|": -1, "mid": 0}[role]
            lowest = min(lowest, depth)
        if depth == 0 and lowest == 0 and roles.count("mid") <= 1:
            found.append(roles)
    found.sort(key=lambda roles: roles.count("mid"))
    return found[:200]


class Parser(Primaries):
    """Reads whole answers, level by level."""

    # --- answers ---

    def answer(self) -> Node:
        """All tokens as one answer."""
        found = self.items()
        if self.token.kind:
            raise ParseError(f"{self.token.value!r} does not belong here")
        return found

    def items(self) -> Node:
        """Items up to a closing token."""
        found: list[Node] = []
        starts = [0]  # where the alternatives of "a, b or c, d" begin
        alternatives = False
        while True:
            found.append(self.item())
            separator = self.separator()
            if separator is None:
                break
            alternatives |= separator == "or"
            if separator == "or":
                starts.append(len(found))
            if self.token.kind == "" or self.token.kind in ENDS:
                if separator in ("and", "or"):
                    raise ParseError("a list that ends in a conjunction")
                break
        if len(found) == 1:
            return found[0]
        lengths = {end - start for start, end in itertools.pairwise([*starts, len(found)])}
        if len(starts) > 1 and len(lengths) == 1 and lengths != {1} and all(isinstance(item, Rel) for item in found):
            size = lengths.pop()
            return Items(tuple(Items(tuple(found[i : i + size])) for i in range(0, len(found), size)), True)
        return Items(tuple(found), alternatives)

    def separator(self) -> str | None:
        """Step over what separates two items; several in a row (", and") are one."""
        found = None
        while True:
            token = self.token
            if token.kind in (",", ";"):
                found = found or ","
            elif token.kind == "text" and (match := SEPARATORS.fullmatch(token.value)):
                found = (match[1] or found or ",").lower()
            elif token.kind == "command" and token.value in ("land", "lor", "wedge", "vee"):
                found = "and" if token.value in ("land", "wedge") else "or"
            else:
                return found
            self.position += 1

    def item(self) -> Node:
        """A relation or expression with the words around it."""
        if self.token.kind == "command" and self.token.value in ("forall", "exists"):
            quantifier = self.token.value
            self.position += 1
            return Apply(quantifier, (self.relation(),))
        leading = self.words()
        if leading and (self.token.kind == "" or self.token.kind in ENDS or self.at_separator()):
            return Named(SETS_IN_WORDS[leading.lower()]) if leading.lower() in SETS_IN_WORDS else Text(leading)
        is_label = leading.endswith((":", "=")) or leading.lower() in APPROXIMATELY
        if leading and not (is_label or self.accept(":") or self.accept("=")):
            raise ParseError(f"words {leading!r} in front of an expression")
        found = self.relation()
        trailing = self.words()
        found = with_words(found, trailing) if trailing else found
        if trailing and self.token.kind and self.token.kind not in ENDS and not self.at_separator():
            found = self.after_words(found, trailing)
        return found

    def words(self) -> str:
        """Text tokens up to something else, as one string; "and" and "or" between items are left alone."""
        words = []
        if self.token.kind == "/" and self.peek().kind == "text":
            words.append("per")
            self.position += 1
        while (self.token.kind == "text" and not self.at_separator() and self.peek().kind != "_") or (
            self.token.kind in CURRENCIES
        ):
            if self.token.kind in CURRENCIES:
                if not self.ends_amount(self.peek()):
                    break
                words.append(CURRENCIES[self.token.kind])
                self.position += 1
                continue
            words.append(self.token.value)
            self.position += 1
            if self.token.kind == "^":
                self.position += 1
                words[-1] += "^" + self.exponent_digits()
            elif self.token.kind == "/" and self.peek().kind in ("text", "name"):
                words[-1] += "/" + self.peek().value
                self.position += 2
        return " ".join(words)

    @staticmethod
    def ends_amount(token: Token) -> bool:
        """Whether a currency sign before this token stands behind its amount (5 $), not before one ($5)."""
        return token.kind in ENDS | {"", "=", "<", ">", "text", "+", "*", "/", "."} or token.value in RELATIONS

    def exponent_digits(self) -> str:
        """The exponent of a unit: a small integer, braced or not."""
        braced = self.accept("{")
        digits = self.expect("number").value
        if braced:
            self.expect("}")
        return digits

    def at_separator(self) -> bool:
        """Whether the next token is a comma, "and" or "or"."""
        token = self.token
        return token.kind in (",", ";") or (token.kind == "text" and SEPARATORS.fullmatch(token.value) is not None)

    def after_words(self, found: Node, words: str) -> Node:
        """What may follow the words behind a value: the next part of a mixed unit (5 ft 6 in), or a condition.

        A condition ("for all x > 0") must itself be readable; it does not change the value.
        """
        if words.split()[0].lower() in CONDITIONS:
            self.items()
            return found
        first, second = units.read(words), None
        part = self.product() if self.token.kind == "number" else None
        if part is not None:
            second = units.read(self.words())
        if first is None or second is None or first.dimensions != second.dimensions or not isinstance(found, Quantity):
            raise ParseError(f"{words!r} in the middle of an answer")
        assert part is not None
        smaller = Mul((part, Num(second.factor / first.factor)))
        return Quantity(Add((found.value, smaller)), found.words)

    def relation(self) -> Node:
        """A chain of relations."""
        if self.token.kind == "=" or (self.token.value in ("approx", "sim") and self.token.kind == "command"):
            self.position += 1
        parts = [self.residue(self.set_expression())]
        ops: list[str] = []
        while True:
            start, words = self.position, "" if self.token.value == "in" else self.words()
            if words and not self.at_relation():
                self.position = start
                break
            if words:
                parts[-1] = with_words(parts[-1], words)
            token = self.token
            op = RELATIONS.get(token.value) if token.kind in ("=", "<", ">", "command") else None
            if token.kind == "text" and token.value == "in" and self.peek().kind in OPENERS:
                op = "in"
            if token.kind == "command" and token.value == "not":
                self.position += 1
                op = {"=": "!=", "in": "notin"}.get(RELATIONS.get(self.token.value, ""))
            if op is None:
                break
            self.position += 1
            ops.append(op)
            parts.append(self.residue(self.set_expression()))
        return Rel(tuple(ops), tuple(parts)) if ops else parts[0]

    def residue(self, value: Node) -> Node:
        r"""value, or value \pmod n."""
        if self.token.kind == "command" and self.token.value in ("pmod", "mod", "bmod"):
            self.position += 1
            return Apply("pmod", (value, self.argument() if self.token.kind == "{" else self.product()))
        return value

    def at_relation(self) -> bool:
        """Whether the next token relates two sides."""
        return self.token.kind in ("=", "<", ">") or (self.token.kind == "command" and self.token.value in RELATIONS)

    def set_expression(self) -> Node:
        """Unions, intersections and differences, from the left."""
        found = self.ratio()
        while self.token.kind == "command" and self.token.value in SET_OPERATORS:
            op = {"cup": "union", "cap": "intersection"}.get(self.token.value, "difference")
            self.position += 1
            found = SetOp(op, found, self.ratio())
        return found

    def ratio(self) -> Node:
        """a : b : c."""
        start = self.position
        parts = [self.sum()]
        while (self.token.kind == ":" and self.peek().kind not in ("", "=")) or (
            self.token.kind == "text" and self.token.value == "to" and self.peek().kind == "number"
        ):
            self.position += 1
            parts.append(self.sum())
        if len(parts) == 1:
            return parts[0]
        spelled = [token.value for token in self.tokens[start : self.position] if token.kind == "number"]
        clock = len(spelled) == len(parts) and all(len(part) == 2 and part.isdigit() for part in spelled[1:])
        return Ratio(tuple(parts), clock)

    def sum(self) -> Node:
        """Signed terms."""
        terms = []
        first = True
        while True:
            sign = self.sign()
            if sign is None and not first:
                break
            term = self.product()
            terms.append({"+": term, None: term}.get(sign) or signed(sign, term))
            first = False
        return terms[0] if len(terms) == 1 else Add(tuple(terms))

    # --- products ---

    def product(self) -> Node:
        """Factors side by side or with operators; division binds like multiplication, from the left."""
        found = self.factor()
        while True:
            token = self.token
            if token.kind == "*" or (token.kind == "command" and token.value in ("cdot", "times", "ast")):
                self.position += 1
                sign = self.sign()
                factor = self.factor()
                found = times(found, factor if sign in (None, "+") else signed(sign, factor))
            elif token.kind == "/" and self.peek().kind == "text":  # $5/hour
                return found
            elif token.kind == "/" or (token.kind == "command" and token.value == "div"):
                self.position += 1
                sign = self.sign()
                denominator = self.factor()
                found = quotient(found, denominator if sign in (None, "+") else signed(sign, denominator))
            elif self.starts_factor() and not self.numbers_collide(found):
                found = times(found, self.factor())
            else:
                break
        return found
