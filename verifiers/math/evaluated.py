r"""Whether a number was worked out: `85` answers "compute 48 + 37", `37 + 48` does not, though it is equal.

Asked only where the question is known and the reference is a plain number; the values are compared elsewhere.
"""

from __future__ import annotations

import re
from fractions import Fraction

from verifiers.math.answers import answer_value
from verifiers.math.reading import Reading, read
from verifiers.math.tree import (
    MINUS_ONE,
    Add,
    Based,
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
    Text,
    children,
)

_WORDS = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|mathbf|textnormal) ?\{[^{}]*\}")
_DIVISION = re.compile(r"\\[dtc]?frac|\\div|÷|(?<=[\d)}\]])\s*/\s*(?=[\d({\[+\\-])")
_TWO_SIGNS = re.compile(r"[-−][\s({\[]*[-−]")
_SIGN_BEHIND_A_VALUE = re.compile(r"[^\s({\[=,]\s*[-+−]")
_EQUAL = re.compile(r"=|\\approx|≈")
_SCALE = re.compile(r"hundred|thousand|million|billion|trillion|dozen")
_NUMERAL = re.compile(r"\d+")


def is_plain_number(node: Node) -> bool:
    """Whether a reference is one number: an integer, decimal or fraction, perhaps with a name, a unit, % or °."""
    value = answer_value(node)
    match value:
        case Num():
            return True
        case Quantity(inner, _):
            return is_plain_number(inner)
        case Mul((Num(), Const("percent" | "degree"))):
            return True
    return False


def is_evaluated(answer: Reading, question: str) -> bool:
    r"""Whether an answer gives a number instead of a computation.

    Numbers are numerals with a sign, one fraction of two of them, mixed numbers, percents, degrees, units, numerals with a
    base, `a \cdot 10^b` with one digit in front of the point, and one power of two numerals unless the question has both. Of
    a chain of equations one side must be a number (`48 + 37 = 85`). What cannot be read counts as one: it is no computation.
    """
    if answer.tree is None:
        return True
    value = answer.tree.value if isinstance(answer.tree, Quantity) else answer.tree
    if isinstance(value, Rel):
        sides = [read(side) for side in _EQUAL.split(answer.spelling)]
        return any(
            side.tree is not None and not _is_relation(side.tree) and is_evaluated(side, question) for side in sides
        )
    spelling = _WORDS.sub(" ", answer.spelling)
    if not isinstance(value, (Items, Group, Finite, Matrix, Cases)) and (
        len(_DIVISION.findall(spelling)) > 1 or _TWO_SIGNS.search(spelling)
    ):
        return False  # the parser folds quotients and signs of numerals
    return _is_number(answer.tree, answer.spelling, question)


def _is_relation(node: Node) -> bool:
    return isinstance(node.value if isinstance(node, Quantity) else node, Rel)


def _is_number(node: Node, spelling: str, question: str) -> bool:
    match node:
        case Num() | Const() | Based() | Named() | Text():
            return True
        case Quantity(Add((Num(), Mul((Num(), Num())))), _):  # 3 h 5 min
            return _SIGN_BEHIND_A_VALUE.search(_WORDS.sub(" ", spelling)) is None
        case Quantity(value, _):
            return _is_number(value, spelling, question)
        case Rel(_, parts):
            return any(_is_number(part, spelling, question) for part in parts)
        case Items() | Group() | Finite() | Matrix() | Cases() | Ratio():
            return all(_is_number(child, spelling, question) for child in children(node))
        case Pow(Num(base), Num(exponent)) if exponent.denominator == 1:
            numerals = {
                str(abs(part)) for number in (base, exponent) for part in (number.numerator, number.denominator)
            }
            return not numerals - {"1"} <= set(_NUMERAL.findall(question))
        case Mul((sign, Pow() | Const() as rest)) if sign == MINUS_ONE:
            return _is_number(rest, spelling, question)
        case Mul((sign, *factors)) if sign == MINUS_ONE and len(factors) > 1:
            return _is_numeral_product(tuple(factors), spelling)
        case Mul(factors):
            return _is_numeral_product(factors, spelling)
    return False


def _is_numeral_product(factors: tuple[Node, ...], spelling: str) -> bool:
    r"""Whether a product is only how one number is written: `50\%`, `45^\circ`, `\pi/4`, `1.2 \cdot 10^5`, 3 million."""
    match factors:
        case (Num(), Const()) | (Const(), Pow(Num(), Num(Fraction(numerator=-1, denominator=1)))):
            return True
        case (Num(), Const(), Pow(Num(), Num(Fraction(numerator=-1, denominator=1)))):
            return True
        case (Num(mantissa), Pow(Num(Fraction(numerator=10, denominator=1)), Num(exponent))):
            return 1 <= abs(mantissa) < 10 and exponent.denominator == 1
        case (Num(), Num()):
            return _SCALE.search(spelling.lower()) is not None
    return False
