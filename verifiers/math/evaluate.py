"""Numerical values of normal forms at a point, in machine or arbitrary precision, with the domain taken seriously.

Variables are real. Unless the expression contains i, every intermediate value must be real too: a point where a root or
logarithm leaves the reals lies outside the expression's domain and says nothing. Odd roots of negative numbers are real.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from verifiers.math.forms import Atom, Form, I, Polynomial, of_key
from verifiers.math.words import vocabulary

KNOWN_FUNCTIONS = frozenset(
    vocabulary(
        "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh",
        "arctanh ln abs floor ceil factorial binomial max min",
    )
)


class OutsideDomainError(ValueError):
    """The expression has no (real) value at the point, or none within the range of the arithmetic."""


def variables(polynomials: Iterable[Polynomial]) -> set[Atom]:
    """All atoms that stand for a free value: variables and unknown functions."""
    found: set[Atom] = set()
    stack: list[Any] = [monomial for polynomial in polynomials for monomial in polynomial]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple) and value and _is_free(value):
            found.add(value)
        elif isinstance(value, (tuple, frozenset)):
            stack.extend(value)
    return found


def _is_free(atom: Atom) -> bool:
    if atom[0] == "fn":
        return atom[1] not in KNOWN_FUNCTIONS
    return atom[0] in ("sym", "bound")


def contains_i(polynomials: Iterable[Polynomial]) -> bool:
    """Whether the imaginary unit occurs anywhere."""
    stack: list[Any] = [monomial for polynomial in polynomials for monomial in polynomial]
    while stack:
        value = stack.pop()
        if value == I:
            return True
        if isinstance(value, (tuple, frozenset)):
            stack.extend(value)
    return False


def machine() -> SimpleNamespace:
    """Arithmetic in double precision."""
    return SimpleNamespace(
        number=lambda value: complex(value.numerator / value.denominator),
        exp=cmath.exp, log=cmath.log, sin=cmath.sin, cos=cmath.cos, tan=cmath.tan, asin=cmath.asin, acos=cmath.acos,
        atan=cmath.atan, sinh=cmath.sinh, cosh=cmath.cosh, tanh=cmath.tanh, asinh=cmath.asinh, acosh=cmath.acosh,
        atanh=cmath.atanh, pi=math.pi, e=math.e, gamma=lambda value: complex(math.gamma(value.real)),
        tolerance=1e-9, largest=1e100, smallest=1e-100,
    )  # fmt: skip


class OutOfRangeError(OutsideDomainError):
    """A value is too large or too small for the arithmetic, or for the time that it would take."""


LARGEST_EXPONENT = 10**6
"""Of e; beyond this a power is out of range in any precision used here."""

LARGEST_ANGLE = 10**25
"""Beyond this the digits of an angle's fraction of a turn are not to be had."""

LARGEST_GAMMA = 10**5
"""Argument of a factorial."""


_LARGEST_ARGUMENTS = {
    **dict.fromkeys(("sin", "cos", "tan", "cot", "sec", "csc"), LARGEST_ANGLE),
    **dict.fromkeys(("sinh", "cosh", "tanh", "coth", "sech", "csch"), LARGEST_EXPONENT),
    **dict.fromkeys(("factorial", "binomial"), LARGEST_GAMMA),
}


class Evaluator:
    """Evaluates polynomials and forms at one point."""

    def __init__(self, arithmetic: Any, point: Mapping[Atom, Any], real: bool) -> None:
        """Fix the arithmetic (see `machine`), the values of the variables, and whether all values must be real."""
        self._lib = arithmetic
        self._point = point
        self._real = real

    def polynomial(self, polynomial: Polynomial) -> tuple[Any, Any]:
        """The value, and the magnitude of its largest term (what cancellation is measured against).

        Raises:
            OutsideDomainError: if it has none.
        """
        total: Any = 0
        largest: Any = 0
        for monomial, coefficient in polynomial.items():
            term = self._lib.number(coefficient)
            for atom, exponent in monomial:
                term = term * (
                    self.power(self.atom(atom), exponent) if atom[0] != "exp" else self._exponential(atom, exponent)
                )
            total = total + term
            largest = max(largest, abs(term))
        return total, largest

    def form(self, form: Form) -> Any:
        """numerator / denominator."""
        bottom, scale = self.polynomial(form.denominator)
        if abs(bottom) <= self._lib.tolerance * scale:
            raise OutsideDomainError("division by zero")
        top, largest = self.polynomial(form.numerator)
        if abs(top) <= self._lib.tolerance * largest:
            return 0 * bottom  # what cancels to rounding errors is zero
        return self.checked(top / bottom)

    def checked(self, value: Any) -> Any:
        """The value, if it is finite and, where it must be, real."""
        size = abs(value)
        if not size < self._lib.largest or (0 < size < self._lib.smallest):
            raise OutOfRangeError("out of range")
        if self._real and abs(value.imag) > self._lib.tolerance * max(size, self._lib.smallest):
            raise OutsideDomainError("not real")
        return value

    def power(self, base: Any, exponent: Fraction) -> Any:
        """base^exponent for a rational exponent; odd roots of negative real numbers are real."""
        if exponent == 1:
            return base
        if exponent.denominator == 1:
            if base == 0 and exponent < 0:
                raise OutsideDomainError("division by zero")
            if abs(exponent.numerator) > 100_000:
                raise OutOfRangeError("a power out of range")
            return self.checked(base**exponent.numerator)
        if base == 0:
            if exponent < 0:
                raise OutsideDomainError("division by zero")
            return base
        is_real = abs(base.imag) <= self._lib.tolerance * abs(base)
        if is_real and base.real < 0 and exponent.denominator % 2 == 1:
            size = self._lib.exp(self._lib.number(exponent) * self._lib.log(-base.real))
            return self.checked(-size if exponent.numerator % 2 else size)
        if is_real:
            base = base.real + 0 * base
        return self.checked(self._lib.exp(self._lib.number(exponent) * self._lib.log(base)))

    def atom(self, atom: Atom) -> Any:
        """The value of an atom."""
        kind = atom[0]
        if atom in self._point:
            return self._point[atom]
        if kind == "const":
            return (self._lib.pi if atom[1] == "pi" else self._lib.e) + self._lib.number(Fraction(0))
        if kind == "i":
            return 1j + self._lib.number(Fraction(0))
        if kind == "prime":
            return self._lib.number(Fraction(atom[1]))
        if kind in ("root", "form"):
            return self.form(of_key(atom[1]))
        if kind == "exp":
            return self._exponential(atom, Fraction(1))
        if kind == "pow":
            base, exponent = self.form(of_key(atom[1])), self.form(of_key(atom[2]))
            return self._general_power(base, exponent)
        if kind == "fn":
            return self._function(atom)
        raise OutsideDomainError(f"{kind} has no numerical value")

    def _exponential(self, atom: Atom, coefficient: Fraction) -> Any:
        base_atom, monomial = atom[1], atom[2]
        base = -self._lib.number(Fraction(1)) if base_atom == ("minus one",) else self.atom(base_atom)
        exponent = self._lib.number(coefficient)
        for factor, power in monomial:
            exponent = exponent * self.power(self.atom(factor), power)
        return self._general_power(base, exponent)

    def _general_power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            raise OutsideDomainError("zero to a power")
        product = exponent * self._lib.log(base)
        if abs(product) > LARGEST_EXPONENT:
            raise OutOfRangeError("an exponent out of range")
        return self.checked(self._lib.exp(product))

    def _function(self, atom: Atom) -> Any:
        name = atom[1]
        if name in ("max", "min"):
            values = [self.checked(self.form(of_key(argument))) for argument in atom[2]]
            if any(abs(value.imag) > self._lib.tolerance * abs(value) for value in values):
                raise OutsideDomainError(f"{name} of complex numbers")
            return (max if name == "max" else min)(values, key=lambda value: value.real)
        arguments = [self.form(of_key(argument)) for argument in atom[2:]]
        try:
            value = self.checked(self._named(name, arguments))
        except OutsideDomainError:
            raise
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise OutsideDomainError(f"{name}: {error}") from error
        return 0 * value if abs(value) <= self._lib.tolerance * abs(arguments[0]) else value  # sin(pi) is zero

    def _named(self, name: str, arguments: list[Any]) -> Any:
        lib, first = self._lib, arguments[0]
        if name in _LARGEST_ARGUMENTS and max(map(abs, arguments)) > _LARGEST_ARGUMENTS[name]:
            raise OutOfRangeError(f"{name} of a number out of range")
        if name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
            return getattr(lib, name)(first)
        if name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"):
            return getattr(lib, "a" + name[3:])(first)
        if name in ("cot", "sec", "csc", "coth", "sech", "csch"):
            base = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh", "sech": "cosh", "csch": "sinh"}[name]
            return 1 / getattr(lib, base)(first)
        if name == "arccot":
            return lib.pi / 2 - lib.atan(first)
        if name == "arcsec":
            return lib.acos(1 / first)
        if name == "arccsc":
            return lib.asin(1 / first)
        if name == "ln":
            return lib.log(first)
        if name == "abs":
            return abs(first) + 0 * first
        if name in ("floor", "ceil"):
            nearest = round(first.real)
            if abs(first.real - nearest) < lib.tolerance:
                raise OutsideDomainError("a rounded value at a jump")
            return (math.floor if name == "floor" else math.ceil)(first.real) + 0 * first
        if name == "factorial":
            return lib.gamma(first + 1)
        if name == "binomial":
            return lib.gamma(first + 1) / (lib.gamma(arguments[1] + 1) * lib.gamma(first - arguments[1] + 1))
        raise OutsideDomainError(f"{name} is an unknown function")
