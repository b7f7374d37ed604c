"""The smallest parts of an answer: numerals, names, functions, fractions, brackets, bars, environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction

from verifiers.math.grammar import (
    ACCENTS,
    CONDITIONS,
    CONSTANTS,
    ELLIPSES,
    FUNCTION_LETTERS,
    FUNCTION_NAMES,
    GREEK,
    INVERSES,
    MANY_ARGUMENTS,
    MATRICES,
    MOST_CELLS,
    SYSTEMS,
    apply_function,
    numeral,
    signed,
    times,
)
from verifiers.math.lexer import FUNCTIONS, ParseError, Token
from verifiers.math.normalise import CURRENCIES
from verifiers.math.stream import Stream
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
    Pow,
    Quantity,
    Ratio,
    Rel,
    Sym,
    negative,
    quotient,
)


class Primaries(Stream, ABC):
    """Reads primaries; what they contain is read by the levels above, which `Parser` adds."""

    @abstractmethod
    def items(self) -> Node:
        """Items up to a closing token."""

    @abstractmethod
    def relation(self) -> Node:
        """A chain of relations."""

    @abstractmethod
    def sum(self) -> Node:
        """Signed terms."""

    @abstractmethod
    def product(self) -> Node:
        """Factors side by side or with operators."""

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
                found = times(found, Const("percent"))
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
        self.enter()
        found = self.raised(base)
        self.depth -= 1
        return found

    def raised(self, base: Node) -> Node:
        """`base` to what stands behind the caret."""
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
        return Pow(base, exponent if sign in (None, "+") else signed(sign, exponent))

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
        return times(value, Const("degree"))

    def numbers_collide(self, before: Node) -> bool:
        """Whether a numeral follows a numeral or a bare letter, which is no multiplication that anybody writes."""
        last = before.factors[-1] if isinstance(before, Mul) else before
        if self.token.kind != "number" or not isinstance(last, (Num, Sym, Const, Based)):
            return False
        return not (isinstance(last, Sym) and self.token.spaced and self.peek().kind == "^")  # n 2^n

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
        if token.kind in ("(", "[", "]", "set{"):
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
        return numeral(self.expect("number").value)

    def numeral(self) -> Node:
        """A numeral, perhaps with a base or a fraction that makes it mixed."""
        token = self.expect("number")
        if self.token.kind == "_":
            return self.based(token.value)
        whole = numeral(token.value)
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
            depth = 1
            parts: list[str] = []
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
        if plain in FUNCTION_LETTERS and [self.peek(n).value for n in range(6)] == ["^", "{", "-", "1", "}", "("]:
            self.position += 5
            name += "^{-1}"
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
        if called and (plain in FUNCTION_LETTERS or self.is_defined_here()):
            arguments = self.brackets()
            items = arguments.items if isinstance(arguments, Group) else (arguments,)
            return Apply(name, items)
        return Sym(name)

    def is_defined_here(self) -> bool:
        """Whether a letter before the next bracket is the head of a definition such as `T(10) = 2` or `x(t) = …`."""
        head = self.position - 1
        while (
            head >= 0 and self.tokens[head].kind in ("_", "'", "name", "{", "}", "number") and head > self.position - 6
        ):
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
        french = opening == "]" or closing == "["  # ]0, 1[ is an open interval
        if closing not in (")", "]", "[") or (french and not (isinstance(content, Items) and len(content.items) == 2)):
            raise ParseError(f"{opening!r} is not closed")
        self.position += 1
        opening, closing = opening.replace("]", "("), closing.replace("[", ")")
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
        r"""A TeX group, or `{n \choose k}`."""
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
        if name in CONSTANTS:
            return Const(CONSTANTS[name])
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            return self.root()
        if name in ("binom", "dbinom", "tbinom"):
            return Apply("binomial", (self.argument(), self.argument()))
        if name in FUNCTIONS:
            return self.function(FUNCTION_NAMES.get(name, name))
        if name in GREEK:
            return self.greek(name)
        if name in ELLIPSES:
            return Sym("…")
        if name in ("emptyset", "varnothing"):
            return Named("empty")
        if name == "boxed":
            return self.argument()
        if name in ACCENTS:
            return self.accent(name)
        if name in ("lfloor", "lceil", "langle", "lvert", "lVert"):
            return self.fenced(name)
        if name in ("sum", "prod"):
            return self.big(name)
        raise ParseError(f"unknown command \\{name}")

    def greek(self, name: str) -> Node:
        r"""A Greek letter; `\angle ABC` and `\triangle ABC` are names with what follows."""
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
        inverse = exponent == MINUS_ONE and name in INVERSES
        if inverse:
            name, exponent = INVERSES[name], None
        arguments = self.function_arguments(name)
        found = apply_function(name, arguments, base)
        return found if exponent is None else Pow(found, exponent)

    def function_arguments(self, name: str) -> tuple[Node, ...]:
        """`(x, y)`, `{x}`, or the factors up to the next sign or function."""
        token = self.token
        if token.kind in ("(", "{", "[", "set{"):
            content = self.tex_group() if token.kind == "{" else self.brackets()
            items = content.items if isinstance(content, (Group, Items, Finite)) else (content,)
            if len(items) > 1 and name not in MANY_ARGUMENTS:
                raise ParseError(f"{name} takes one argument")
            return items
        factors = [self.function_factor()]
        while self.starts_factor() and not self.is_function() and not self.numbers_collide(factors[-1]):
            factors.append(self.function_factor())
        return (factors[0] if len(factors) == 1 else Mul(tuple(factors)),)

    def is_function(self) -> bool:
        r"""Whether the next token begins another function: `\sin x \cos x` is a product."""
        token = self.token
        return token.kind == "(" or (token.kind == "command" and token.value in FUNCTIONS - {"sqrt"})

    def function_factor(self) -> Node:
        r"""One factor of an argument without brackets; `/` belongs to it after a number or constant (`\sin \pi/6`)."""
        sign = self.sign() if self.token.kind == "-" else None
        found = self.factor()
        if self.token.kind == "/" and self.peek().kind == "number":
            self.position += 1
            found = quotient(found, self.factor())
        return negative(found) if sign == "-" else found

    def fenced(self, name: str) -> Node:
        """Floor, ceiling, angle brackets."""
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
        elif name not in MATRICES and name not in SYSTEMS:
            raise ParseError(f"unknown environment {name!r}")
        rows: list[list[Node]] = [[]]
        while self.token.kind != "end":
            if self.accept("row"):
                rows.append([])
            elif self.token.kind == "&":
                self.position += 1
            else:
                if self.token.kind == "text" and self.token.value.lower().strip(" ,") in CONDITIONS:
                    self.position += 1
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
        if name in SYSTEMS:
            return Cases(tuple(tuple(row) for row in rows))
        if len({len(row) for row in rows}) != 1:
            raise ParseError("a matrix with rows of different lengths")
        matrix = Matrix(tuple(tuple(row) for row in rows))
        return Apply("det", (matrix,)) if name in ("vmatrix", "Vmatrix") else matrix
