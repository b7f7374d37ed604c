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
import re
from fractions import Fraction

from verifiers.math import units
from verifiers.math.lexer import FUNCTIONS, ParseError, Token, tokenize
from verifiers.math.normalise import CURRENCIES
from verifiers.math.tree import (
    MINUS_ONE,
    ONE,
    Add,
    Apply,
    Based,
    Big,
    Builder,
    Cases,
    Const,
    Finite,
    Group,
    Items,
    Matrix,
    Mul,
    Named,
    Node,
    Num,
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Sym,
    Text,
    negative,
    quotient,
)

DEEPEST = 60
"""Nesting beyond this is refused: answers have a handful of levels, bombs have thousands."""

LONGEST_NUMERAL = 4000
"""Digits of one numeral; Python itself refuses more than 4300."""

MOST_BARS = 8
"""With more bars than this, which of them open and which close is not searched for."""

MOST_CELLS = 400
"""Cells of a matrix."""

_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in", "notin": "notin", "approx": "approx", "sim": "approx",
    "simeq": "approx", "equiv": "equiv", "cong": "equiv", "colon=": "=", "doteq": "approx", "to": "to",
    "rightarrow": "to", "mapsto": "to",
}  # fmt: skip
_FUNCTION_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "Abs": "abs", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "ceiling": "ceil", "Max": "max", "Min": "min",
}  # fmt: skip
_INVERSES = {
    name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
}
_MANY_ARGUMENTS = frozenset({"max", "min", "gcd", "lcm", "binomial", "log"})
_FUNCTION_LETTERS = frozenset("fghFGH")
_CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "oo": "inf", "inf": "inf"}
_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar triangle angle "
    "mho aleph star square Box Pi".split()
)
_ACCENTS = frozenset("vec hat bar overline tilde overrightarrow widehat dot mathring underline overleftrightarrow".split())
_ELLIPSES = frozenset("ldots cdots dots vdots dotsc dotsb".split())
_MATRICES = frozenset("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix array smallmatrix".split())
_SYSTEMS = frozenset("cases aligned align gathered split rcases dcases".split())
_STARTERS = frozenset("frac sqrt binom dbinom tbinom lfloor lceil langle lvert lVert boxed sum prod".split())
_SETS_IN_WORDS = {
    "all real numbers": "R", "all reals": "R", "any real number": "R", "real numbers": "R", "empty set": "empty",
    "the empty set": "empty", "no solution": "empty", "no solutions": "empty", "no real solution": "empty",
    "no real solutions": "empty",
}  # fmt: skip
_HEDGES = frozenset({"approximately", "about", "approx", "around", "roughly", "nearly", "exactly", "just"})
_CONDITIONS = frozenset("for where when if with such is are as in on given whenever provided on over".split())
_SEPARATORS = re.compile(r"[,;]?\s*(?:(and|or)\s*,?|[,;])", re.IGNORECASE)
_ENDS = frozenset({")", "]", "}", "set}", "&", "row", "end", ",", ";"})


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
        return Parser(tokens).answer()
    if len(bars) > MOST_BARS:
        raise ParseError(f"more than {MOST_BARS} bars")
    error = ParseError("bars that do not pair")
    for roles in _bar_roles(len(bars)):
        attempt = list(tokens)
        for index, role in zip(bars, roles, strict=True):
            attempt[index] = Token(role, tokens[index].kind, tokens[index].spaced)
        try:
            return Parser(attempt).answer()
        except ParseError as failed:
            error = failed
    raise error


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


class Parser:
    """One pass over the tokens; `position` is the next one."""

    def __init__(self, tokens: list[Token]) -> None:
        """Start at the first token."""
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bound: list[str] = []

    # --- the stream ---

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

    # --- answers ---

    def answer(self) -> Node:
        """All tokens as one answer."""
        found = self.items()
        if self.token.kind:
            raise ParseError(f"{self.token.value!r} does not belong here")
        return found

    def items(self) -> Node:
        """Items up to a closing token."""
        self.enter()
        found: list[Node] = []
        alternatives = False
        while True:
            found.append(self.item())
            separator = self.separator()
            if separator is None:
                break
            alternatives |= separator == "or"
            if self.token.kind == "" or self.token.kind in _ENDS:
                if separator in ("and", "or"):
                    raise ParseError("a list that ends in a conjunction")
                break
        self.depth -= 1
        return found[0] if len(found) == 1 else Items(tuple(found), alternatives)

    def separator(self) -> str | None:
        """Step over what separates two items; several in a row (", and") are one."""
        found = None
        while True:
            token = self.token
            if token.kind in (",", ";"):
                found = found or ","
            elif token.kind == "text" and (match := _SEPARATORS.fullmatch(token.value)):
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
        if leading and (self.token.kind == "" or self.token.kind in _ENDS or self.at_separator()):
            return Named(_SETS_IN_WORDS[leading.lower()]) if leading.lower() in _SETS_IN_WORDS else Text(leading)
        if leading and leading.lower() not in _HEDGES:
            if not (leading.endswith((":", "=")) or self.accept(":") or self.accept("=")):
                raise ParseError(f"words {leading!r} in front of an expression")
        found = self.relation()
        trailing = self.words()
        found = _with_words(found, trailing) if trailing else found
        if trailing and self.token.kind and self.token.kind not in _ENDS and not self.at_separator():
            found = self.after_words(found, trailing)
        return found

    def words(self) -> str:
        """Text tokens up to something else, as one string; "and" and "or" between items are left alone."""
        words = []
        while (self.token.kind == "text" and not self.at_separator()) or self.token.kind in CURRENCIES:
            if self.token.kind in CURRENCIES:
                if self.peek().kind in ("number", "-"):
                    break
                words.append(CURRENCIES[self.token.kind])
                self.position += 1
                continue
            words.append(self.token.value)
            self.position += 1
            if self.token.kind == "^" and units.read(words[-1]) is not None:
                self.position += 1
                words[-1] += "^" + self.exponent_digits()
            elif self.token.kind == "/" and self.peek().kind in ("text", "name"):
                words[-1] += "/" + self.peek().value
                self.position += 2
        return " ".join(words)

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
        return token.kind in (",", ";") or (token.kind == "text" and _SEPARATORS.fullmatch(token.value) is not None)

    def after_words(self, found: Node, words: str) -> Node:
        """What may follow the words behind a value: the next part of a mixed unit (5 ft 6 in), or a condition.

        A condition ("for all x > 0") must itself be readable; it does not change the value.
        """
        if words.split()[0].lower() in _CONDITIONS:
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
        self.enter()
        if self.token.kind == "=" or (self.token.value in ("approx", "sim") and self.token.kind == "command"):
            self.position += 1
        parts = [self.residue(self.set_expression())]
        ops: list[str] = []
        while True:
            start, words = self.position, self.words()
            if words and not self.at_relation():
                self.position = start
                break
            if words:
                parts[-1] = _with_words(parts[-1], words)
            token = self.token
            op = _RELATIONS.get(token.value) if token.kind in ("=", "<", ">", "command") else None
            if token.kind == "command" and token.value == "not":
                self.position += 1
                op = {"=": "!=", "in": "notin"}.get(_RELATIONS.get(self.token.value, ""))
            if op is None:
                break
            self.position += 1
            ops.append(op)
            parts.append(self.residue(self.set_expression()))
        self.depth -= 1
        return Rel(tuple(ops), tuple(parts)) if ops else parts[0]

    def residue(self, value: Node) -> Node:
        r"""value, or value \pmod n."""
        if self.token.kind == "command" and self.token.value in ("pmod", "mod", "bmod"):
            self.position += 1
            return Apply("pmod", (value, self.argument() if self.token.kind == "{" else self.product()))
        return value

    def at_relation(self) -> bool:
        """Whether the next token relates two sides."""
        return self.token.kind in ("=", "<", ">") or (self.token.kind == "command" and self.token.value in _RELATIONS)

    def set_expression(self) -> Node:
        """Unions, intersections and differences, from the left."""
        found = self.ratio()
        while self.token.kind == "command" and self.token.value in ("cup", "cap", "setminus", "backslash"):
            op = {"cup": "union", "cap": "intersection"}.get(self.token.value, "difference")
            self.position += 1
            found = SetOp(op, found, self.ratio())
        return found

    def ratio(self) -> Node:
        """a : b : c."""
        start = self.position
        parts = [self.sum()]
        while self.token.kind == ":" and self.peek().kind not in ("", "="):
            self.position += 1
            parts.append(self.sum())
        if len(parts) == 1:
            return parts[0]
        spelled = [token.value for token in self.tokens[start : self.position] if token.kind == "number"]
        clock = len(spelled) == len(parts) and all(len(part) == 2 and part.isdigit() for part in spelled[1:])
        return Ratio(tuple(parts), clock)

    def sum(self) -> Node:
        """Signed terms."""
        self.enter()
        terms = []
        first = True
        while True:
            sign = self.sign()
            if sign is None and not first:
                break
            term = self.product()
            terms.append({"+": term, None: term}.get(sign) or self.signed(sign, term))
            first = False
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Add(tuple(terms))

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

    @staticmethod
    def signed(sign: str | None, term: Node) -> Node:
        """A term with its sign."""
        return negative(term) if sign == "-" else PlusMinus(term, sign == "mp")

    # --- products ---

    def product(self) -> Node:
        """Factors side by side or with operators; division binds like multiplication, from the left."""
        self.enter()
        found = self.factor()
        while True:
            token = self.token
            if token.kind == "*" or (token.kind == "command" and token.value in ("cdot", "times", "ast")):
                self.position += 1
                sign = self.sign()
                factor = self.factor()
                found = _times(found, factor if sign in (None, "+") else self.signed(sign, factor))
            elif token.kind == "/" or (token.kind == "command" and token.value == "div"):
                self.position += 1
                sign = self.sign()
                denominator = self.factor()
                found = quotient(found, denominator if sign in (None, "+") else self.signed(sign, denominator))
            elif self.starts_factor() and not self.numbers_collide(found):
                found = _times(found, self.factor())
            else:
                break
        self.depth -= 1
        return found

    def numbers_collide(self, before: Node) -> bool:
        """Whether a numeral follows a numeral or a bare letter, which is no multiplication that anybody writes."""
        last = before.factors[-1] if isinstance(before, Mul) else before
        return self.token.kind == "number" and isinstance(last, (Num, Sym, Based))

    def starts_factor(self) -> bool:
        """Whether the next token can begin a factor of an unwritten multiplication."""
        token = self.token
        if token.kind in ("number", "name", "(", "[", "{", "open|", "begin", "set", "set{"):
            return True
        return token.kind == "command" and (
            token.value in FUNCTIONS
            or token.value in _CONSTANTS
            or token.value in _GREEK
            or token.value in _ACCENTS
            or token.value in _ELLIPSES
            or token.value in _STARTERS
        )

    def factor(self) -> Node:
        """A primary with its powers and postfix signs."""
        found = self.primary()
        while True:
            token = self.token
            if token.kind == "^":
                found = self.power(found)
            elif token.kind == "!" and self.peek().kind != "=":
                self.position += 1
                found = Apply("factorial", (found,))
            elif token.kind == "%":
                self.position += 1
                found = _times(found, Const("percent"))
            elif token.kind == "ordinal":
                self.position += 1
            elif token.kind == "command" and token.value in ("degree", "circ"):
                self.position += 1
                found = self.degrees(found)
            else:
                return found

    def power(self, base: Node) -> Node:
        """What `^` does to `base`: a power, a degree sign, or an ordinal's suffix."""
        self.expect("^")
        token, after = self.token, self.peek()
        braced = token.kind == "{"
        inner = after if braced else token
        if inner.kind == "command" and inner.value in ("circ", "degree") and (not braced or self.peek(2).kind == "}"):
            self.position += 3 if braced else 1
            return self.degrees(base)
        if braced and inner.kind in ("text", "ordinal") and self.peek(2).kind == "}":
            if inner.value in ("st", "nd", "rd", "th"):
                self.position += 3
                return base
            raise ParseError(f"words {inner.value!r} as an exponent")
        if token.kind == "text" and token.value in ("st", "nd", "rd", "th"):
            self.position += 1
            return base
        sign = self.sign()
        exponent = self.argument() if token.kind == "{" else self.unbraced_exponent()
        return Pow(base, exponent if sign in (None, "+") else self.signed(sign, exponent))

    def unbraced_exponent(self) -> Node:
        """The exponent behind a bare `^`: one primary with its own power (`2^3^2`, `x^10` as people write it)."""
        found = self.primary()
        return self.power(found) if self.token.kind == "^" else found

    def degrees(self, value: Node) -> Node:
        """value°, with minutes and seconds of arc if they follow; °C and °F are temperatures."""
        if self.token.kind == "name" and self.token.value in ("C", "F"):
            self.position += 1
            return Quantity(value, "celsius" if self.tokens[self.position - 1].value == "C" else "fahrenheit")
        if self.token.kind == "number" and self.peek().kind == "'":
            minutes = self.number()
            self.expect("'")
            value = Add((value, quotient(minutes, Num(Fraction(60)))))
            if self.token.kind == "number" and self.peek().kind == "'" and self.peek(2).kind == "'":
                value = Add((value, quotient(self.number(), Num(Fraction(3600)))))
                self.position += 2
        return _times(value, Const("degree"))

    def argument(self) -> Node:
        """A TeX argument: a braced group, or one token, of a numeral one digit."""
        if self.accept("{"):
            found = self.items()
            self.expect("}")
            return found
        token = self.token
        if token.kind == "number" and len(token.value) > 1 and token.value.isdigit():
            self.tokens[self.position] = Token("number", token.value[1:])
            return Num(Fraction(int(token.value[0])))
        return self.primary()

    # --- primaries ---

    def primary(self) -> Node:
        """The smallest things."""
        self.enter()
        found = self.primary_at(self.token)
        self.depth -= 1
        return found

    def primary_at(self, token: Token) -> Node:
        """Dispatch on the next token."""
        if token.kind == "number":
            return self.numeral()
        if token.kind == "name":
            return self.name()
        if token.kind == "(" or token.kind == "[" or token.kind == "set{":
            return self.brackets()
        if token.kind == "{":
            return self.tex_group()
        if token.kind == "open|":
            return self.bars()
        if token.kind == "begin":
            return self.environment()
        if token.kind == "set":
            self.position += 1
            return self.signed_set(token.value)
        if token.kind in CURRENCIES:
            return self.money()
        if token.kind == "text" and self.peek().kind == "_":
            return self.based_letters()
        if token.kind == "command":
            self.position += 1
            return self.command(token.value)
        raise ParseError(f"unexpected {token.value or 'end'!r}")

    def signed_set(self, name: str) -> Node:
        """A number set with `^+`, `_{>0}` and the like in its name."""
        while self.token.kind in ("^", "_"):
            mark = self.token.kind
            self.position += 1
            if self.accept("{"):
                inner = []
                while self.token.kind and self.token.kind != "}":
                    inner.append(self.token.value)
                    self.position += 1
                self.expect("}")
                name += mark + "".join(inner)
            else:
                name += mark + self.token.value
                self.position += 1
        return Named(name)

    def money(self) -> Node:
        """A currency sign before an amount."""
        currency = CURRENCIES[self.token.kind]
        self.position += 1
        sign = self.sign()
        amount = self.product()
        return Quantity(negative(amount) if sign == "-" else amount, currency)

    def number(self) -> Num:
        """One numeral as it stands."""
        return _numeral(self.expect("number").value)

    def numeral(self) -> Node:
        """A numeral, perhaps with a base or a fraction that makes it mixed."""
        token = self.expect("number")
        if self.token.kind == "_":
            return self.based(token.value)
        whole = _numeral(token.value)
        mixed = self.mixed(whole) if token.value.isdigit() else None
        return whole if mixed is None else mixed

    def mixed(self, whole: Num) -> Num | None:
        r"""The mixed number that `1\frac12` or `1 1/2` spells, or None (then nothing is consumed)."""
        start, tokens = self.position, list(self.tokens)
        try:
            if self.accept("command", "frac"):
                top, bottom = self.argument(), self.argument()
            elif self.token.kind == "number" and self.token.spaced and self.peek().kind == "/":
                top = self.number()
                self.expect("/")
                bottom = self.number()
                if self.token.kind in ("^", "_", "name"):
                    raise ParseError("no mixed number")
            else:
                return None
        except ParseError:
            top = bottom = ONE
        if (
            isinstance(top, Num)
            and isinstance(bottom, Num)
            and top.value.denominator == bottom.value.denominator == 1
            and 0 < top.value < bottom.value
            and whole.value > 0
        ):
            return Num(whole.value + top.value / bottom.value)
        self.position, self.tokens = start, tokens
        return None

    def based(self, digits: str) -> Node:
        """The numeral `digits` with the base that follows `_`."""
        self.expect("_")
        base = self.argument_text()
        if not base.isdigit() or not 2 <= int(base) <= 64 or not digits.replace(".", "").isalnum():
            raise ParseError(f"{base!r} is no base")
        return Based(digits.upper(), int(base))

    def based_letters(self) -> Node:
        """`A5_{11}`: letters as digits."""
        return self.based(self.expect("text").value)

    def argument_text(self) -> str:
        """The tokens of one argument as text: subscripts."""
        if self.accept("{"):
            depth, parts = 1, []
            while True:
                token = self.token
                if token.kind == "":
                    raise ParseError("a subscript without an end")
                self.position += 1
                depth += (token.kind == "{") - (token.kind == "}")
                if depth == 0:
                    return "".join(parts)
                if token.kind not in "{}":
                    parts.append(token.value)
        token = self.token
        if token.kind not in ("number", "name", "command", "text"):
            raise ParseError("a subscript is missing")
        self.position += 1
        return token.value

    def name(self) -> Node:
        """A letter with its subscript and primes; a function if it is called like one."""
        token = self.expect("name")
        return self.named(token.value)

    def named(self, name: str) -> Node:
        """What a letter or Greek name stands for, given what follows it."""
        plain = name
        while self.token.kind in ("_", "'"):
            if self.accept("'"):
                name += "'"
            else:
                self.expect("_")
                name += "_" + self.argument_text()
        if name == "e" and name not in self.bound:
            return Const("e")
        if name == "i" and name not in self.bound:
            return Const("i")
        called = self.token.kind == "(" and not self.token.spaced
        if called and (plain in _FUNCTION_LETTERS or self.is_defined_here()):
            arguments = self.brackets()
            items = arguments.items if isinstance(arguments, Group) else (arguments,)
            return Apply(name, items)
        return Sym(name)

    def is_defined_here(self) -> bool:
        """Whether a letter before the next bracket is the head of a definition such as `T(10) = 2` or `x(t) = …`."""
        head = self.position - 1
        while head >= 0 and self.tokens[head].kind in ("_", "'", "name", "{", "}", "number") and head > self.position - 6:
            head -= 1
        if head >= 0 and self.tokens[head].kind not in (",", ";", "text", "(", "="):
            return False
        index = self.position + 1
        while index < len(self.tokens) and self.tokens[index].kind in ("name", "number", ","):
            index += 1
        ends = [self.tokens[place].kind if place < len(self.tokens) else "" for place in (index, index + 1)]
        return ends[0] == ")" and (ends[1] in ("=", "<", ">") or (ends[1] in (",", ")") and self.tokens[0].kind == "("))

    def brackets(self) -> Node:
        """Round, square or set brackets and what is in them."""
        opening = self.token.kind
        self.position += 1
        if opening == "set{":
            return self.set_braces()
        content = self.items()
        closing = self.token.kind
        if closing not in (")", "]"):
            raise ParseError(f"{opening!r} is not closed")
        self.position += 1
        if isinstance(content, Items):
            return Group(opening, closing, content.items)
        if opening + closing not in ("()", "[]"):
            raise ParseError("brackets of different kinds around one value")
        return content

    def set_braces(self) -> Node:
        """The inside of a set: elements, or a variable and its conditions."""
        if self.accept("set}"):
            return Named("empty")
        if self.token.kind == "begin":
            return self.left_brace_system()
        first = self.items()
        if self.token.kind == "mid" or (self.token.kind == "command" and self.token.value in ("mid", "vert")):
            self.position += 1
            conditions = self.items()
            self.expect("set}")
            return Builder(first, conditions)
        self.expect("set}")
        if isinstance(first, Ratio) and len(first.parts) == 2:
            return Builder(first.parts[0], first.parts[1])
        if isinstance(first, Rel) and isinstance(first.parts[0], Ratio):
            ratio = first.parts[0]
            return Builder(ratio.parts[0], Rel(first.ops, (ratio.parts[1], *first.parts[1:])))
        return Finite(first.items if isinstance(first, Items) else (first,))

    def left_brace_system(self) -> Node:
        r"""A system written as `\left\{ \begin{array} … \end{array} \right.`, or a matrix in set brackets."""
        found = self.environment()
        if self.accept("set}"):
            return Finite((found,))
        return Cases(found.rows) if isinstance(found, Matrix) else found

    def tex_group(self) -> Node:
        """A TeX group, or `{n \\choose k}`."""
        self.expect("{")
        found = self.items()
        if self.token.kind == "command" and self.token.value == "choose":
            self.position += 1
            found = Apply("binomial", (found, self.items()))
        self.expect("}")
        return found

    def bars(self) -> Node:
        """|x| or ‖x‖."""
        kind = self.token.value
        self.expect("open|")
        found = self.items()
        self.expect("close|")
        name = "norm" if kind == "norm" else "abs"
        if isinstance(found, Matrix):
            return Apply("det", (found,))
        return Apply(name, (found,))

    # --- commands ---

    def command(self, name: str) -> Node:
        """The primary that a command begins; its own token is behind."""
        if name in _CONSTANTS:
            return Const(_CONSTANTS[name])
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            return self.root()
        if name in ("binom", "dbinom", "tbinom"):
            return Apply("binomial", (self.argument(), self.argument()))
        if name in FUNCTIONS:
            return self.function(_FUNCTION_NAMES.get(name, name))
        if name in _GREEK:
            return self.greek(name)
        if name in _ELLIPSES:
            return Sym("…")
        if name in ("emptyset", "varnothing"):
            return Named("empty")
        if name == "boxed":
            return self.argument()
        if name in _ACCENTS:
            return self.accent(name)
        if name in ("lfloor", "lceil", "langle", "lvert", "lVert", "lbrace"):
            return self.fenced(name)
        if name in ("sum", "prod"):
            return self.big(name)
        raise ParseError(f"unknown command \\{name}")

    def greek(self, name: str) -> Node:
        """A Greek letter; `\\angle ABC` and `\\triangle ABC` are names with what follows."""
        if name in ("angle", "triangle"):
            letters = ""
            while self.token.kind == "name":
                letters += self.token.value
                self.position += 1
            return Sym(f"{name} {letters}")
        return self.named({"varphi": "phi", "varepsilon": "epsilon"}.get(name, name))

    def accent(self, name: str) -> Node:
        """A letter with an arrow, hat or bar; the mark does not make another variable, except over two letters."""
        text = self.argument_text()
        return Sym(text if len(text) == 1 and name in ("vec", "hat") else f"{name} {text}")

    def fraction(self) -> Node:
        r"""\frac with two arguments."""
        numerator = self.argument()
        return quotient(numerator, self.argument())

    def root(self) -> Node:
        r"""\sqrt[n]{x}, or a called `sqrt(x)`."""
        degree: Node = Num(Fraction(2))
        if self.accept("["):
            degree = self.sum()
            self.expect("]")
        if self.token.kind == "(":
            return Pow(self.brackets(), quotient(ONE, degree))
        return Pow(self.argument(), quotient(ONE, degree))

    def function(self, name: str) -> Node:
        """A named function: power, base, then its argument with or without brackets."""
        exponent: Node | None = None
        base: Node | None = None
        while self.token.kind in ("^", "_"):
            if self.accept("_"):
                base = self.argument()
            else:
                self.expect("^")
                sign = self.sign()
                exponent = self.argument() if self.token.kind == "{" else self.unbraced_exponent()
                exponent = negative(exponent) if sign == "-" else exponent
        inverse = exponent == MINUS_ONE and name in _INVERSES
        if inverse:
            name, exponent = _INVERSES[name], None
        arguments = self.function_arguments(name)
        found = _apply(name, arguments, base)
        return found if exponent is None else Pow(found, exponent)

    def function_arguments(self, name: str) -> tuple[Node, ...]:
        """`(x, y)`, `{x}`, or the factors up to the next sign or function."""
        token = self.token
        if token.kind in ("(", "{", "[", "set{"):
            content = self.tex_group() if token.kind == "{" else self.brackets()
            items = content.items if isinstance(content, (Group, Items, Finite)) else (content,)
            if len(items) > 1 and name not in _MANY_ARGUMENTS:
                raise ParseError(f"{name} takes one argument")
            return items
        factors = [self.function_factor()]
        while self.starts_factor() and not self.is_function() and not self.numbers_collide(factors[-1]):
            factors.append(self.function_factor())
        return (factors[0] if len(factors) == 1 else Mul(tuple(factors)),)

    def is_function(self) -> bool:
        """Whether the next token begins another function: `\\sin x \\cos x` is a product."""
        token = self.token
        return token.kind == "(" or (token.kind == "command" and token.value in FUNCTIONS - {"sqrt"})

    def function_factor(self) -> Node:
        """One factor of an argument without brackets; `/` belongs to it after a number or constant (`\\sin \\pi/6`)."""
        sign = self.sign() if self.token.kind == "-" else None
        found = self.factor()
        if self.token.kind == "/" and self.peek().kind == "number":
            self.position += 1
            found = quotient(found, self.factor())
        return negative(found) if sign == "-" else found

    def fenced(self, name: str) -> Node:
        """Floor, ceiling, angle brackets."""
        if name == "lbrace":
            raise ParseError("unexpected \\lbrace")
        content = self.items()
        closing = {"lfloor": "rfloor", "lceil": "rceil", "langle": "rangle", "lvert": "rvert", "lVert": "rVert"}[name]
        if not self.accept("command", closing):
            raise ParseError(f"\\{name} is not closed")
        if name == "langle":
            return Group("(", ")", content.items if isinstance(content, Items) else (content,))
        return Apply({"lfloor": "floor", "lceil": "ceil", "lvert": "abs", "lVert": "norm"}[name], (content,))

    def big(self, name: str) -> Node:
        r"""\sum or \prod with its range and body."""
        low: Node | None = None
        high: Node | None = None
        variable = ""
        while self.token.kind in ("_", "^"):
            if self.accept("_"):
                self.expect("{")
                variable = self.token.value
                self.bound.append(variable)
                condition = self.relation()
                self.expect("}")
                if not (isinstance(condition, Rel) and condition.ops == ("=",)):
                    raise ParseError("a sum over something else than a range")
                low = condition.parts[1]
            else:
                self.expect("^")
                high = self.argument()
        if low is None or high is None:
            raise ParseError("a sum without a range")
        body = self.product()
        self.bound.remove(variable)
        return Big(name, body, variable, low, high)

    # --- environments ---

    def environment(self) -> Node:
        """A matrix, or a system or definition by cases."""
        name = self.expect("begin").value
        if name == "array":
            self.argument_text()
        elif name not in _MATRICES and name not in _SYSTEMS:
            raise ParseError(f"unknown environment {name!r}")
        rows: list[list[Node]] = [[]]
        while not (self.token.kind == "end"):
            if self.accept("row"):
                rows.append([])
            elif self.token.kind == "&":
                self.position += 1
            else:
                rows[-1].append(self.items())
                if self.token.kind not in ("&", "row", "end"):
                    raise ParseError(f"{self.token.value or 'the end'!r} inside an environment")
            if sum(map(len, rows)) > MOST_CELLS:
                raise ParseError(f"more than {MOST_CELLS} cells")
        if self.expect("end").value != name:
            raise ParseError("environments that cross")
        rows = [row for row in rows if row]
        if not rows:
            raise ParseError("an empty environment")
        if name in _SYSTEMS:
            return Cases(tuple(tuple(row) for row in rows))
        if len({len(row) for row in rows}) != 1:
            raise ParseError("a matrix with rows of different lengths")
        matrix = Matrix(tuple(tuple(row) for row in rows))
        return Apply("det", (matrix,)) if name in ("vmatrix", "Vmatrix") else matrix


def _numeral(text: str) -> Num:
    """The exact value of a numeral as the lexer writes it, with its significant digits if it has a decimal mark."""
    if len(text) > LONGEST_NUMERAL:
        raise ParseError(f"a numeral of more than {LONGEST_NUMERAL} digits")
    if "(" in text:
        head, _, period = text.rstrip(")").partition("(")
        scale = 10 ** len(head.partition(".")[2])
        whole = Fraction(head + "0" if head.endswith(".") else head)
        return Num(whole + Fraction(int(period), (10 ** len(period) - 1) * scale))
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > LONGEST_NUMERAL:
        raise ParseError("a power of ten too large to write out")
    digits = len(mantissa.replace(".", "").lstrip("0")) if "." in mantissa else 0
    return Num(Fraction(text), digits)


def _times(left: Node, right: Node) -> Node:
    """left · right, flat; a relation in brackets behind a value is a condition on it (`k\\pi (k \\in Z)`)."""
    if isinstance(right, Rel):
        return left
    factors = left.factors if isinstance(left, Mul) else (left,)
    return Mul((*factors, right))


def _apply(name: str, arguments: tuple[Node, ...], base: Node | None) -> Node:
    if name == "exp":
        return Pow(Const("e"), arguments[0])
    if name == "sqrt":
        return Pow(arguments[0], Num(Fraction(1, 2)))
    if name == "cis":
        return Add((Apply("cos", arguments), Mul((Const("i"), Apply("sin", arguments)))))
    if name == "cbrt":
        return Pow(arguments[0], Num(Fraction(1, 3)))
    if name == "lg":
        return Apply("log", (arguments[0], Num(Fraction(10))))
    if name == "log":
        chosen = base if base is not None else arguments[1] if len(arguments) == 2 else None
        return Apply("ln", arguments[:1]) if chosen is None else Apply("log", (arguments[0], chosen))
    if base is not None:
        raise ParseError(f"{name} with a base")
    if name not in _MANY_ARGUMENTS and len(arguments) != 1:
        raise ParseError(f"{name} takes one argument")
    return Apply(name, arguments)


def _with_words(found: Node, words: str) -> Node:
    """A value with what is written behind it: scale words multiply, degrees are degrees, the rest is kept as words."""
    factor, rest = units.scale(words)
    if factor != 1:
        found = _times(found, Num(Fraction(factor)))
        words = rest
    key = words.lower().strip(" .,")
    if key in ("degree", "degrees", "deg"):
        return _times(found, Const("degree"))
    if key in ("percent", "percentage", "pct", "per cent"):
        return _times(found, Const("percent"))
    return Quantity(found, words) if words else found
