"""Normal forms of trees: sums, products, powers, functions with their exact values, and determinants."""

from __future__ import annotations

import math
from fractions import Fraction

from verifiers.math.forms import (
    PI,
    Atom,
    E,
    Form,
    I,
    NotAnExpressionError,
    TooLargeError,
    UndefinedError,
    add,
    constant,
    constant_of,
    key,
    leading,
    multiply,
    negate,
    of_atom,
    reciprocal,
    spend,
    start_budget,
)
from verifiers.math.powers import number_power, power, prime_powers
from verifiers.math.tree import Add, Apply, Big, Const, Matrix, Mul, Node, Num, Pow, Sym
from verifiers.math.words import vocabulary

LARGEST_FACTORIAL = 3000
"""n! with a larger n is refused (3000! has 9131 digits)."""

MOST_SUMMANDS = 1000
"""Terms of a written-out sum or product."""


def of_tree(node: Node, bound: dict[str, Form] | None = None) -> Form:
    """The form of an expression.

    Args:
        node: a tree of numbers, names, sums, products, powers and functions.
        bound: values of the index variables of sums around it; None for a whole expression, which gets a fresh budget.

    Raises:
        NotAnExpressionError: for sets, relations, words, lists.
        TooLargeError: for what cannot be written down.
        UndefinedError: for a division by zero and the like.
    """
    if bound is None:
        start_budget()
        bound = {}
    spend(1)
    match node:
        case Num(value):
            return constant(value)
        case Sym(name):
            return bound[name] if name in bound else of_atom(("sym", name))
        case Const("pi"):
            return of_atom(PI)
        case Const("e"):
            return of_atom(E)
        case Const("i"):
            return of_atom(I)
        case Const("degree"):
            return multiply(of_atom(PI), constant(Fraction(1, 180)))
        case Const("percent"):
            return constant(Fraction(1, 100))
        case Add(terms):
            result = of_tree(terms[0], bound)
            for term in terms[1:]:
                result = add(result, of_tree(term, bound))
            return result
        case Mul(factors):
            result = of_tree(factors[0], bound)
            for factor in factors[1:]:
                result = multiply(result, of_tree(factor, bound))
            return result
        case Pow(base, Num(value)) if value == -1:
            return reciprocal(of_tree(base, bound))
        case Pow(Const("e"), exponent):
            return _exponential(of_tree(exponent, bound))
        case Pow(base, exponent):
            return power(of_tree(base, bound), of_tree(exponent, bound))
        case Apply(name, arguments):
            return _apply(name, arguments, bound)
        case Big():
            return _big(node, bound)
    raise NotAnExpressionError(f"{type(node).__name__} is not an expression")


def _exponential(exponent: Form) -> Form:
    rational = exponent.rational
    return of_atom(E, rational) if rational is not None else power(of_atom(E), exponent)


def _big(node: Big, bound: dict[str, Form]) -> Form:
    low, high = of_tree(node.low, bound), of_tree(node.high, bound)
    first, last = low.rational, high.rational
    if first is None or last is None or first.denominator != 1 or last.denominator != 1:
        inner = of_tree(node.body, {**bound, node.variable: of_atom(("bound", len(bound)))})
        return of_atom((node.op, key(inner), key(low), key(high)))
    if last - first >= MOST_SUMMANDS:
        raise TooLargeError(f"a {node.op} over more than {MOST_SUMMANDS} terms")
    result = constant(0 if node.op == "sum" else 1)
    for index in range(int(first), int(last) + 1):
        term = of_tree(node.body, {**bound, node.variable: constant(index)})
        result = add(result, term) if node.op == "sum" else multiply(result, term)
    return result


_ODD = frozenset(vocabulary("sin tan cot csc arcsin arctan sinh tanh coth csch arcsinh arctanh"))
_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_EVEN = frozenset(vocabulary("cos sec cosh sech abs"))


def _apply(name: str, arguments: tuple[Node, ...], bound: dict[str, Form]) -> Form:
    if name == "det":
        return _determinant(arguments[0], bound)
    forms = [of_tree(argument, bound) for argument in arguments]
    numbers = [form.rational for form in forms]
    exact = _exact(name, numbers)
    if exact is not None:
        return constant(exact)
    if name == "log":
        return multiply(_logarithm(forms[0]), reciprocal(_logarithm(forms[1])))
    if name == "ln":
        return _logarithm(forms[0])
    if name == "binomial":
        return of_atom(("fn", name, *map(key, forms)))
    turn = _half_turns(forms[0]) if name in _TRIGONOMETRIC else None
    special = None if turn is None else _special_angle(name, turn)
    if special is not None:
        return special
    if name in _ODD or name in _EVEN:
        flipped = _is_negative(forms[0])
        argument = negate(forms[0]) if flipped else forms[0]
        result = of_atom(("fn", name, key(argument)))
        return negate(result) if flipped and name in _ODD else result
    if name in ("max", "min", "gcd", "lcm"):
        return of_atom(("fn", name, frozenset(map(key, forms))))
    return of_atom(("fn", name, *map(key, forms)))


def _half_turns(argument: Form) -> Fraction | None:
    """r, if the argument is r·pi for a rational r."""
    if constant_of(argument.denominator) != 1 or argument.numerator.keys() != {frozenset({(PI, Fraction(1))})}:
        return None
    return next(iter(argument.numerator.values()))


def _sine(turn: Fraction) -> Form | None:
    """sin(turn·pi) where it is 0, 1/2, sqrt(2)/2, sqrt(3)/2 or 1, up to sign."""
    turn %= 2
    if turn >= 1:
        positive = _sine(turn - 1)
        return None if positive is None else negate(positive)
    squares = {Fraction(0): 0, Fraction(1, 6): 1, Fraction(1, 4): 2, Fraction(1, 3): 3, Fraction(1, 2): 4}
    square = squares.get(min(turn, 1 - turn))
    return None if square is None else number_power(Fraction(square, 4), Fraction(1, 2))


def _special_angle(name: str, turn: Fraction) -> Form | None:
    """A trigonometric function of turn·pi where sine and cosine are known exactly."""
    sine, cosine = _sine(turn), _sine(Fraction(1, 2) - turn)
    if sine is None or cosine is None:
        return None
    top, bottom = {
        "sin": (sine, constant(1)), "cos": (cosine, constant(1)), "tan": (sine, cosine), "cot": (cosine, sine),
        "sec": (constant(1), cosine), "csc": (constant(1), sine),
    }[name]  # fmt: skip
    return multiply(top, reciprocal(bottom))


def _is_negative(form: Form) -> bool:
    """Whether the leading coefficient is negative, so that f(-x) is always written with x."""
    return (
        bool(form.numerator)
        and form.numerator[leading(form.numerator)] * form.denominator[leading(form.denominator)] < 0
    )


def _logarithm(argument: Form) -> Form:
    number = argument.rational
    if number is None:
        single = _single_power(argument)
        if single is not None and single[0] == E:
            return constant(single[1])
        return of_atom(("fn", "ln", key(argument)))
    if number <= 0:
        if number == 0:
            raise UndefinedError("ln 0")
        return of_atom(("fn", "ln", key(argument)))
    result = constant(0)
    for prime, exponent in prime_powers(number):
        result = add(result, multiply(constant(exponent), of_atom(("fn", "ln", key(constant(prime))))))
    return result


def _single_power(form: Form) -> tuple[Atom, Fraction] | None:
    if constant_of(form.denominator) != 1 or len(form.numerator) != 1:
        return None
    ((monomial, coefficient),) = form.numerator.items()
    return next(iter(monomial)) if coefficient == 1 and len(monomial) == 1 else None


def _exact(name: str, numbers: list[Fraction | None]) -> Fraction | int | None:
    """The exact value of a function of rational numbers, where it is rational."""
    known = [number for number in numbers if number is not None]
    if len(known) != len(numbers):
        return None
    integers = [int(number) for number in known if number.denominator == 1]
    first = known[0]
    all_integers = len(integers) == len(known)
    if name == "factorial":
        if not all_integers or first < 0:
            raise UndefinedError("the factorial of something else than a natural number")
        if first > LARGEST_FACTORIAL:
            raise TooLargeError("a factorial too large to write down")
        return math.factorial(integers[0])
    if name == "binomial" and all_integers and len(integers) == 2:
        top, bottom = integers
        if top < 0 or bottom < 0:
            return None
        if min(bottom, top - bottom) > LARGEST_FACTORIAL:
            raise TooLargeError("a binomial coefficient too large to write down")
        return math.comb(top, bottom)
    if name == "abs":
        return abs(first)
    if name == "floor":
        return math.floor(first)
    if name == "ceil":
        return math.ceil(first)
    if name in ("max", "min"):
        return max(known) if name == "max" else min(known)
    if name in ("gcd", "lcm") and all_integers:
        return math.gcd(*integers) if name == "gcd" else math.lcm(*integers)
    if first == 0 and name in ("sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh"):
        return 0
    if first == 0 and name in ("cos", "cosh", "sec", "sech"):
        return 1
    return None


def _determinant(matrix: Node, bound: dict[str, Form]) -> Form:
    if not isinstance(matrix, Matrix) or len(matrix.rows) != len(matrix.rows[0]) or len(matrix.rows) > 5:
        raise NotAnExpressionError("the determinant of something else than a small square matrix")
    return _laplace([[of_tree(cell, bound) for cell in row] for row in matrix.rows])


def _laplace(rows: list[list[Form]]) -> Form:
    if len(rows) == 1:
        return rows[0][0]
    result = constant(0)
    for column, cell in enumerate(rows[0]):
        minor = _laplace([[*row[:column], *row[column + 1 :]] for row in rows[1:]])
        result = add(result, multiply(cell if column % 2 == 0 else negate(cell), minor))
    return result
