"""Exact normal forms of expressions, without SymPy: fractions of polynomials over rational numbers, and their arithmetic.

A `Form` is numerator/denominator; a polynomial maps monomials to rational coefficients; a monomial is a set of
(atom, rational exponent). Atoms are what polynomial algebra cannot open: variables, pi, e, i, primes under a root,
functions of forms, powers with a symbolic exponent. Two expressions whose forms agree after cross-multiplication are
equal; forms that differ prove nothing unless both are plain numbers.

Every operation is bounded before it is done: exponents, factorials and products by the size of their result.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

Atom: TypeAlias = tuple[Any, ...]
Monomial: TypeAlias = frozenset[tuple[Atom, Fraction]]
Polynomial: TypeAlias = dict[Monomial, Fraction]

MOST_TERMS = 400
"""Polynomials with more terms are not multiplied out."""

MOST_BITS = 40_000
"""Rational numbers with more bits in numerator or denominator are refused: 40,000 bits are 12,000 digits."""

MOST_WORK = 3000
"""Products of terms (weighted by the length of coefficients) that one expression may cost."""

UNIT: Monomial = frozenset()
PI: Atom = ("const", "pi")
E: Atom = ("const", "e")
I: Atom = ("i",)  # noqa: E741 (the imaginary unit)


class TooLargeError(ValueError):
    """The value is too large to write down, so nothing is computed."""


class TooManyTermsError(TooLargeError):
    """A product of sums is too long to be multiplied out."""


class NotAnExpressionError(ValueError):
    """The tree is no single expression (a set, a relation, words)."""


class UndefinedError(ValueError):
    """The expression divides by zero or takes a function outside its domain."""


@dataclass(frozen=True)
class Form:
    """numerator / denominator, both polynomials; not reduced."""

    numerator: Polynomial
    denominator: Polynomial

    @property
    def rational(self) -> Fraction | None:
        """The value, if it is a plain rational number."""
        top, bottom = constant_of(self.numerator), constant_of(self.denominator)
        return None if top is None or bottom is None else top / bottom


ONE_POLYNOMIAL: Polynomial = {UNIT: Fraction(1)}


def constant(value: Fraction | int) -> Form:
    """A rational number as a form."""
    fraction = Fraction(value)
    if fraction.numerator.bit_length() > MOST_BITS or fraction.denominator.bit_length() > MOST_BITS:
        raise TooLargeError("a number too long to write down")
    return Form({UNIT: fraction} if fraction else {}, ONE_POLYNOMIAL)


def of_atom(atom: Atom, exponent: Fraction | int = 1) -> Form:
    """atom^exponent as a form; negative exponents stay in the numerator's monomial."""
    return Form({frozenset({(atom, Fraction(exponent))}): Fraction(1)}, ONE_POLYNOMIAL)


def constant_of(polynomial: Polynomial) -> Fraction | None:
    """The rational number that a polynomial is, or None."""
    if not polynomial:
        return Fraction(0)
    return polynomial[UNIT] if len(polynomial) == 1 and UNIT in polynomial else None


_work = threading.local()


def start_budget() -> None:
    """Give this thread's next expression `MOST_WORK` to spend."""
    _work.left = MOST_WORK


def spend(amount: float) -> None:
    """Count work on the expression that this thread reads, and refuse it when it is too much."""
    _work.left = getattr(_work, "left", MOST_WORK) - amount
    if _work.left < 0:
        raise TooLargeError("an expression that takes too long to multiply out")


def _monomial_product(left: Monomial, right: Monomial) -> tuple[Fraction, Monomial]:
    """left · right, with what roots of primes and powers of i leave as a rational factor."""
    if not left:
        return Fraction(1), right
    if not right:
        return Fraction(1), left
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, Fraction(0)) + exponent
    return reduced(exponents)


def reduced(exponents: dict[Atom, Fraction]) -> tuple[Fraction, Monomial]:
    """A monomial with roots of primes to exponents in [0, 1) and i to 0 or 1, and the rational factor left over."""
    factor = Fraction(1)
    for atom, exponent in list(exponents.items()):
        if atom[0] == "prime" and not 0 <= exponent < 1:
            whole = math.floor(exponent)
            factor *= Fraction(atom[1]) ** whole
            exponents[atom] = exponent - whole
        elif atom == I:
            factor *= -1 if exponent % 4 >= 2 else 1
            exponents[atom] = exponent % 2
    return factor, frozenset((atom, exponent) for atom, exponent in exponents.items() if exponent)


def poly_multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """left · right.

    Raises:
        TooLargeError: if it would have too many terms.
    """
    if len(left) * len(right) > 4 * MOST_TERMS:
        raise TooManyTermsError("a product of sums with too many terms")
    spend(len(left) * len(right))
    result: Polynomial = {}
    for left_monomial, left_coefficient in left.items():
        for right_monomial, right_coefficient in right.items():
            factor, monomial = _monomial_product(left_monomial, right_monomial)
            value = result.get(monomial, 0) + left_coefficient * right_coefficient * factor
            if value:
                result[monomial] = value
            else:
                result.pop(monomial, None)
    return result


def poly_add(left: Polynomial, right: Polynomial, scale: int = 1) -> Polynomial:
    """left + scale · right."""
    result = dict(left)
    for monomial, coefficient in right.items():
        value = result.get(monomial, 0) + scale * coefficient
        if value:
            result[monomial] = value
        else:
            result.pop(monomial, None)
    return result


def add(left: Form, right: Form) -> Form:
    """left + right."""
    if left.denominator == right.denominator:
        return Form(poly_add(left.numerator, right.numerator), left.denominator)
    return Form(
        poly_add(poly_multiply(left.numerator, right.denominator), poly_multiply(right.numerator, left.denominator)),
        poly_multiply(left.denominator, right.denominator),
    )


def multiply(left: Form, right: Form) -> Form:
    """left · right; sums too long to be multiplied out become atoms."""
    try:
        product = Form(
            poly_multiply(left.numerator, right.numerator), poly_multiply(left.denominator, right.denominator)
        )
    except TooManyTermsError:
        return multiply(_closed(left), _closed(right))
    bits = max((_bits(value) for value in product.numerator.values()), default=0)
    if bits > MOST_BITS:
        raise TooLargeError("a coefficient too long to write down")
    spend(bits * len(product.numerator) / 1000)
    return product


def _closed(form: Form) -> Form:
    """A form with more than one term as a single atom."""
    return of_atom(("form", key(form))) if max(len(form.numerator), len(form.denominator)) > 1 else form


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def reciprocal(form: Form) -> Form:
    """1 / form, with monomials brought into the numerator."""
    if not form.numerator:
        raise UndefinedError("division by zero")
    if len(form.numerator) == 1:
        ((monomial, coefficient),) = form.numerator.items()
        factor, inverse = reduced({atom: -exponent for atom, exponent in monomial})
        return Form(poly_multiply({inverse: factor / coefficient}, form.denominator), ONE_POLYNOMIAL)
    return Form(form.denominator, form.numerator)


def negate(form: Form) -> Form:
    """-form."""
    return Form({monomial: -value for monomial, value in form.numerator.items()}, form.denominator)


def difference(left: Form, right: Form) -> Polynomial:
    """The numerator of left - right: empty if and only if the forms agree."""
    if left.denominator == right.denominator:
        return poly_add(left.numerator, right.numerator, -1)
    return poly_add(
        poly_multiply(left.numerator, right.denominator), poly_multiply(right.numerator, left.denominator), -1
    )


def key(form: Form) -> Atom:
    """A hashable spelling of a form, the same for forms that differ by a constant factor on top and bottom."""
    lead = leading(form.denominator)
    scale = form.denominator[lead] if form.denominator else Fraction(1)
    return (
        frozenset((monomial, value / scale) for monomial, value in form.numerator.items()),
        frozenset((monomial, value / scale) for monomial, value in form.denominator.items()),
    )


def of_key(spelling: Atom) -> Form:
    """The form that `key` spelled."""
    return Form(dict(spelling[0]), dict(spelling[1]))


def leading(polynomial: Polynomial) -> Monomial:
    """A monomial of the polynomial that does not depend on the order of construction."""
    return min(polynomial, key=_order) if len(polynomial) > 1 else next(iter(polynomial))


def _order(monomial: Monomial) -> tuple[int, list[str]]:
    return len(monomial), sorted(repr(_spell(atom)) + str(exponent) for atom, exponent in monomial)


def _spell(value: Any) -> Any:
    """Nested frozensets as sorted tuples, for a stable order."""
    if isinstance(value, frozenset):
        return sorted(map(repr, map(_spell, value)))
    if isinstance(value, tuple):
        return tuple(map(_spell, value))
    return value
