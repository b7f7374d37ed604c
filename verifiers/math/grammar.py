"""The vocabulary of the grammar, its limits, and how its pieces become nodes."""

from __future__ import annotations

import re
from fractions import Fraction

from verifiers.math import units
from verifiers.math.lexer import ParseError
from verifiers.math.tree import (
    Add,
    Apply,
    Const,
    Mul,
    Node,
    Num,
    PlusMinus,
    Pow,
    Quantity,
    Rel,
    Sym,
    negative,
)
from verifiers.math.words import vocabulary

DEEPEST = 60
"""Nesting beyond this is refused: answers have a handful of levels, bombs have thousands."""

DEEPEST_TREE = 150
"""Levels of a tree; the recursive functions over trees stay far from Python's limit."""

LONGEST_NUMERAL = 4000
"""Digits of one numeral; Python itself refuses more than 4300."""

MOST_BARS = 8
"""With more bars than this, which of them open and which close is not searched for."""

MOST_CELLS = 400
"""Cells of a matrix."""

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in", "notin": "notin", "approx": "approx", "sim": "approx",
    "simeq": "approx", "equiv": "equiv", "cong": "equiv", "colon=": "=", "doteq": "approx", "to": "to",
    "rightarrow": "to", "mapsto": "to",
}  # fmt: skip
FUNCTION_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "Abs": "abs", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "ceiling": "ceil", "Max": "max", "Min": "min",
    "tg": "tan", "ctg": "cot", "cotg": "cot", "arctg": "arctan", "arcctg": "arccot", "cosec": "csc",
}  # fmt: skip
INVERSES = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
MANY_ARGUMENTS = frozenset({"max", "min", "gcd", "lcm", "binomial", "log"})
FUNCTION_LETTERS = frozenset("fghFGH")
CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "oo": "inf", "inf": "inf"}
GREEK = frozenset(
    vocabulary(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau",
        "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar triangle angle",
        "mho aleph star square Box Pi",
    )
)
ACCENTS = frozenset(
    vocabulary("vec hat bar overline tilde overrightarrow widehat dot mathring underline overleftrightarrow")
)
ELLIPSES = frozenset(vocabulary("ldots cdots dots vdots dotsc dotsb"))
MATRICES = frozenset(vocabulary("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix array smallmatrix"))
SYSTEMS = frozenset(vocabulary("cases aligned align gathered split rcases dcases"))
OPENERS = frozenset({"(", "[", "set{", "{", "set"})
SET_OPERATORS = frozenset({"cup", "cap", "setminus", "backslash"})
STARTERS = frozenset(vocabulary("frac sqrt binom dbinom tbinom lfloor lceil langle lvert lVert boxed sum prod"))
SETS_IN_WORDS = {
    "all real numbers": "R", "all reals": "R", "any real number": "R", "real numbers": "R", "empty set": "empty",
    "the empty set": "empty", "no solution": "empty", "no solutions": "empty", "no real solution": "empty",
    "no real solutions": "empty",
}  # fmt: skip
APPROXIMATELY = frozenset({"approximately", "about", "approx", "around", "roughly", "nearly", "exactly", "just"})
HEDGING_WORDS = frozenset({"or", "not", "either", "maybe", "perhaps", "possibly", "versus", "vs", "else", "otherwise"})
CONDITIONS = frozenset(vocabulary("for where when if with such is are as in on given whenever provided on over"))
SEPARATORS = re.compile(r"[,;]?\s*(?:(and|or)\s*,?|[,;])", re.IGNORECASE)
ENDS = frozenset({")", "]", "}", "set}", "&", "row", "end", ",", ";"})


def numeral(text: str) -> Num:
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


def times(left: Node, right: Node) -> Node:
    r"""left · right, flat; a relation in brackets behind a value is a condition on it (`k\pi (k \in Z)`)."""
    if isinstance(right, Rel):
        return left
    factors = left.factors if isinstance(left, Mul) else (left,)
    return Mul((*factors, right))


def apply_function(name: str, arguments: tuple[Node, ...], base: Node | None) -> Node:
    """A named function of its arguments; exponentials and roots become powers.

    Raises:
        ParseError: for the wrong number of arguments, or a base where there is none.
    """
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
    if name not in MANY_ARGUMENTS and len(arguments) != 1:
        raise ParseError(f"{name} takes one argument")
    return Apply(name, arguments)


def with_words(found: Node, words: str) -> Node:
    """A value with what is written behind it: scale words multiply, degrees are degrees, the rest is kept as words.

    Words that take the answer back or offer another are no remark.
    """
    if not HEDGING_WORDS.isdisjoint(re.findall(r"[a-z]+", words.lower())):
        raise ParseError(f"an answer that is hedged: {words!r}")
    if (
        isinstance(found, Sym)
        and units.read(words) is None
        and words.split()[0].lower() not in CONDITIONS - {"is", "are"}
    ):
        raise ParseError("a sentence")  # "A is taller than B" is no value A with a remark
    factor, rest = units.scale(words)
    if factor != 1 and isinstance(found, Quantity):
        return Quantity(times(found.value, Num(Fraction(factor))), found.words)
    if factor != 1:
        found = times(found, Num(Fraction(factor)))
        words = rest
    if isinstance(found, Quantity) and words.lower().startswith("per "):  # $5 per hour
        return Quantity(found.value, f"{found.words} {words}")
    key = words.lower().strip(" .,")
    if key in ("degree", "degrees", "deg"):
        return times(found, Const("degree"))
    if key in ("percent", "percentage", "pct", "per cent"):
        return times(found, Const("percent"))
    return Quantity(found, words) if words else found


def signed(sign: str | None, term: Node) -> Node:
    """A term with its sign."""
    if isinstance(term, Quantity):
        return Quantity(signed(sign, term.value), term.words)
    return negative(term) if sign == "-" else PlusMinus(term, sign == "mp")
