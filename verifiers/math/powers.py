"""Powers of normal forms: exact roots of numbers, split into roots of primes; symbolic exponents; roots as atoms."""

from __future__ import annotations

import math
from fractions import Fraction

from verifiers.math.forms import (
    MOST_BITS,
    MOST_TERMS,
    ONE_POLYNOMIAL,
    PI,
    UNIT,
    Atom,
    E,
    Form,
    I,
    Monomial,
    TooLargeError,
    TooManyTermsError,
    UndefinedError,
    constant,
    constant_of,
    key,
    multiply,
    of_atom,
    reciprocal,
    reduced,
)

LARGEST_EXPANSION = 12
"""Sums are multiplied out up to this power."""


def power(base: Form, exponent: Form) -> Form:
    """base^exponent.

    Raises:
        TooLargeError, UndefinedError.
    """
    rational = exponent.rational
    if rational is not None:
        return _rational_power(base, rational)
    if constant_of(exponent.denominator) is None:
        return of_atom(("pow", key(base), key(exponent)))
    scale = constant_of(exponent.denominator) or Fraction(1)
    result = constant(1)
    for monomial, coefficient in exponent.numerator.items():
        value = coefficient / scale
        if not monomial:
            result = multiply(result, _rational_power(base, value))
        else:
            result = multiply(result, _symbolic_power(base, monomial, value))
    return result


def _symbolic_power(base: Form, monomial: Monomial, coefficient: Fraction) -> Form:
    """base^(coefficient·monomial), so that powers of one base multiply: 2^(n+1) = 2·2^n."""
    number = base.rational
    if number is not None and number > 0:
        result = constant(1)
        for prime, exponent in prime_powers(number):
            result = multiply(result, of_atom(("exp", ("prime", prime), monomial), coefficient * exponent))
        return result
    if number == -1:
        return of_atom(("exp", ("minus one",), monomial), coefficient)
    single = _single_atom(base)
    if single is not None:
        return of_atom(("exp", single, monomial), coefficient)
    return of_atom(("exp", ("form", key(base)), monomial), coefficient)


def _single_atom(form: Form) -> Atom | None:
    if constant_of(form.denominator) != 1 or len(form.numerator) != 1:
        return None
    ((monomial, coefficient),) = form.numerator.items()
    if coefficient != 1 or len(monomial) != 1:
        return None
    ((atom, exponent),) = monomial
    return atom if exponent == 1 else None


def _rational_power(base: Form, exponent: Fraction) -> Form:
    if exponent == 0:
        if base.rational == 0:
            raise UndefinedError("0^0")
        return constant(1)
    number = base.rational
    if number is not None:
        return number_power(number, exponent)
    if exponent.denominator == 1:
        return _integer_power(base, exponent.numerator)
    if abs(exponent) > 1000:
        raise TooLargeError("an exponent too large")
    return _root(base, exponent)


def _integer_power(base: Form, exponent: int) -> Form:
    if exponent < 0:
        return _integer_power(reciprocal(base), -exponent)
    if len(base.numerator) == 1 and len(base.denominator) == 1 and UNIT in base.denominator:
        ((monomial, coefficient),) = base.numerator.items()
        coefficient /= base.denominator[UNIT]
        _check_power(coefficient, exponent)
        raised = {atom: count * exponent for atom, count in monomial}
        _check_primes(raised)
        factor, monomial = reduced(raised)
        return Form({monomial: factor * coefficient**exponent}, ONE_POLYNOMIAL)
    terms = max(len(base.numerator), len(base.denominator))
    if exponent <= LARGEST_EXPANSION and terms**exponent <= 100 * MOST_TERMS:
        try:
            result = base
            for _ in range(exponent - 1):
                result = multiply(result, base)
            return result
        except TooManyTermsError:
            pass
    return of_atom(("form", key(base)), exponent)


def _check_primes(exponents: dict[Atom, Fraction]) -> None:
    for atom, exponent in exponents.items():
        if atom[0] == "prime":
            _check_power(Fraction(atom[1]), math.ceil(abs(exponent)))


def _check_power(base: Fraction, exponent: int) -> None:
    """Refuse base^exponent by the logarithm of its size, before it is computed."""
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and (exponent > MOST_BITS or bits * exponent > MOST_BITS):
        raise TooLargeError("a power too large to write down")


def number_power(number: Fraction, exponent: Fraction) -> Form:
    """A rational number to a rational power: exact, with roots split into roots of primes."""
    if number == 0:
        if exponent < 0:
            raise UndefinedError("division by zero")
        return constant(0)
    if exponent.denominator == 1:
        _check_power(number, abs(exponent.numerator))
        return constant(number**exponent.numerator)
    if abs(exponent) > MOST_BITS:
        raise TooLargeError("an exponent too large")
    result = constant(1)
    if number < 0:
        if exponent.denominator == 2:
            result = of_atom(I, exponent.numerator % 4)
            result = multiply(result, constant(1))
        elif exponent.denominator % 2 == 1:  # the real root
            result = constant(-1 if exponent.numerator % 2 else 1)
        else:
            return of_atom(("pow", key(constant(number)), key(constant(exponent))))
        number = -number
    for prime, count in prime_powers(number):
        whole = math.floor(exponent * count)
        _check_power(Fraction(prime), abs(whole))
        left = exponent * count - whole
        result = multiply(result, constant(Fraction(prime) ** whole))
        if left:
            result = multiply(result, of_atom(("prime", prime), left))
    return result


def prime_powers(number: Fraction) -> list[tuple[int, int]]:
    """Prime powers of a positive rational; a cofactor without small primes stays whole (roots of it are opened)."""
    found: dict[int, int] = {}
    for value, sign in ((number.numerator, 1), (number.denominator, -1)):
        for prime in _SMALL_PRIMES:
            if prime * prime > value:
                break
            while value % prime == 0:
                value //= prime
                found[prime] = found.get(prime, 0) + sign
        if value > 1:
            root, degree = _perfect_power(value)
            found[root] = found.get(root, 0) + sign * degree
    return [(prime, exponent) for prime, exponent in found.items() if exponent]


def _perfect_power(value: int) -> tuple[int, int]:
    for degree in (2, 3, 5):
        root = round(value ** (1 / degree)) if value.bit_length() < 500 else 0
        for candidate in (root - 1, root, root + 1):
            if candidate > 1 and candidate**degree == value:
                inner, power_ = _perfect_power(candidate)
                return inner, power_ * degree
    return value, 1


def _sieve(limit: int) -> tuple[int, ...]:
    flags = bytearray([1]) * limit
    for number in range(2, int(limit**0.5) + 1):
        if flags[number]:
            flags[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return tuple(number for number in range(2, limit) if flags[number])


_SMALL_PRIMES = _sieve(1000)


def _root(base: Form, exponent: Fraction) -> Form:
    """A fractional power of something that is no number: positive constants are taken out, the rest is an atom."""
    if len(base.numerator) == 1 and len(base.denominator) == 1 and UNIT in base.denominator:
        ((monomial, coefficient),) = base.numerator.items()
        coefficient /= base.denominator[UNIT]
        outside = constant(1)
        inside: Monomial = frozenset()
        for atom, count in monomial:
            if atom[0] == "prime" or atom in (PI, E) or _is_positive_power(atom):
                outside = multiply(outside, _atom_power(atom, count * exponent))
            else:
                inside |= {(atom, count)}
        if coefficient > 0:
            outside = multiply(outside, number_power(coefficient, exponent))
            coefficient = Fraction(1)
        if not inside and coefficient == 1:
            return outside
        if coefficient == 1 and len(inside) == 1 and next(iter(inside))[1] == 1:
            return multiply(outside, of_atom(next(iter(inside))[0], exponent))
        return multiply(outside, _split_root(Form({inside: coefficient}, ONE_POLYNOMIAL), exponent))
    content, primitive = _content(base)
    if content != 1:
        return multiply(number_power(content, exponent), _split_root(primitive, exponent))
    return _split_root(base, exponent)


def _is_positive_power(atom: Atom) -> bool:
    """Whether an atom is a positive number to a power without i, hence positive itself."""
    return atom[0] == "exp" and atom[1][0] in ("prime", "const") and all(factor != I for factor, _ in atom[2])


def _atom_power(atom: Atom, exponent: Fraction) -> Form:
    if atom[0] == "prime":
        return number_power(Fraction(atom[1]), exponent)
    return of_atom(atom, exponent)


def _split_root(base: Form, exponent: Fraction) -> Form:
    """base^(k + f) as base^k · (base)^f, with 0 < f < 1 on an atom of its own."""
    whole = math.floor(exponent)
    part = of_atom(("root", key(base)), exponent - whole)
    return part if whole == 0 else multiply(_integer_power(base, whole), part)


def _content(form: Form) -> tuple[Fraction, Form]:
    """A positive rational factor of all coefficients, and the form without it."""
    numerators = [abs(value.numerator) for value in form.numerator.values()]
    denominators = [value.denominator for value in form.numerator.values()]
    content = Fraction(math.gcd(*numerators), math.lcm(*denominators))
    lead = constant_of(form.denominator)
    if lead is not None and lead > 0:
        total = content / lead
        return total, Form({m: value / content for m, value in form.numerator.items()}, ONE_POLYNOMIAL)
    return content, Form({m: value / content for m, value in form.numerator.items()}, form.denominator)
