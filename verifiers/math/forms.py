"""Exact normal forms of expressions, without SymPy: fractions of polynomials over rational numbers.

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

from verifiers.math.tree import Add, Apply, Big, Const, Matrix, Mul, Node, Num, Pow, Sym
from verifiers.math.words import vocabulary

Atom: TypeAlias = tuple[Any, ...]
Monomial: TypeAlias = frozenset[tuple[Atom, Fraction]]
Polynomial: TypeAlias = dict[Monomial, Fraction]

MOST_TERMS = 400
"""Polynomials with more terms are not multiplied out."""

MOST_BITS = 40_000
"""Rational numbers with more bits in numerator or denominator are refused: 40,000 bits are 12,000 digits."""

LARGEST_FACTORIAL = 3000
"""n! with a larger n is refused (3000! has 9131 digits)."""

LARGEST_EXPANSION = 12
"""Sums are multiplied out up to this power."""

MOST_SUMMANDS = 1000
"""Terms of a written-out sum or product."""

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
        top, bottom = _constant(self.numerator), _constant(self.denominator)
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


def _constant(polynomial: Polynomial) -> Fraction | None:
    if not polynomial:
        return Fraction(0)
    return polynomial[UNIT] if len(polynomial) == 1 and UNIT in polynomial else None


# --- arithmetic ---


_work = threading.local()


def _spend(amount: float) -> None:
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
    return _reduced(exponents)


def _reduced(exponents: dict[Atom, Fraction]) -> tuple[Fraction, Monomial]:
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
    _spend(len(left) * len(right))
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
    _spend(bits * len(product.numerator) / 1000)
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
        factor, inverse = _reduced({atom: -exponent for atom, exponent in monomial})
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
    lead = _leading(form.denominator)
    scale = form.denominator[lead] if form.denominator else Fraction(1)
    return (
        frozenset((monomial, value / scale) for monomial, value in form.numerator.items()),
        frozenset((monomial, value / scale) for monomial, value in form.denominator.items()),
    )


def of_key(spelling: Atom) -> Form:
    """The form that `key` spelled."""
    return Form(dict(spelling[0]), dict(spelling[1]))


def _leading(polynomial: Polynomial) -> Monomial:
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


# --- powers ---


def power(base: Form, exponent: Form) -> Form:
    """base^exponent.

    Raises:
        TooLargeError, UndefinedError.
    """
    rational = exponent.rational
    if rational is not None:
        return _rational_power(base, rational)
    if _constant(exponent.denominator) is None:
        return of_atom(("pow", key(base), key(exponent)))
    scale = _constant(exponent.denominator) or Fraction(1)
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
        for prime, exponent in _factor(number):
            result = multiply(result, of_atom(("exp", ("prime", prime), monomial), coefficient * exponent))
        return result
    if number == -1:
        return of_atom(("exp", ("minus one",), monomial), coefficient)
    single = _single_atom(base)
    if single is not None:
        return of_atom(("exp", single, monomial), coefficient)
    return of_atom(("exp", ("form", key(base)), monomial), coefficient)


def _single_atom(form: Form) -> Atom | None:
    if _constant(form.denominator) != 1 or len(form.numerator) != 1:
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
        return _number_power(number, exponent)
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
        factor, monomial = _reduced(raised)
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


def _number_power(number: Fraction, exponent: Fraction) -> Form:
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
    for prime, count in _factor(number):
        whole = math.floor(exponent * count)
        _check_power(Fraction(prime), abs(whole))
        left = exponent * count - whole
        result = multiply(result, constant(Fraction(prime) ** whole))
        if left:
            result = multiply(result, of_atom(("prime", prime), left))
    return result


def _factor(number: Fraction) -> list[tuple[int, int]]:
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
            outside = multiply(outside, _number_power(coefficient, exponent))
            coefficient = Fraction(1)
        if not inside and coefficient == 1:
            return outside
        if coefficient == 1 and len(inside) == 1 and next(iter(inside))[1] == 1:
            return multiply(outside, of_atom(next(iter(inside))[0], exponent))
        return multiply(outside, _split_root(Form({inside: coefficient}, ONE_POLYNOMIAL), exponent))
    content, primitive = _content(base)
    if content != 1:
        return multiply(_number_power(content, exponent), _split_root(primitive, exponent))
    return _split_root(base, exponent)


def _is_positive_power(atom: Atom) -> bool:
    """Whether an atom is a positive number to a power without i, hence positive itself."""
    return atom[0] == "exp" and atom[1][0] in ("prime", "const") and all(factor != I for factor, _ in atom[2])


def _atom_power(atom: Atom, exponent: Fraction) -> Form:
    if atom[0] == "prime":
        return _number_power(Fraction(atom[1]), exponent)
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
    lead = _constant(form.denominator)
    if lead is not None and lead > 0:
        total = content / lead
        return total, Form({m: value / content for m, value in form.numerator.items()}, ONE_POLYNOMIAL)
    return content, Form({m: value / content for m, value in form.numerator.items()}, form.denominator)


# --- from trees ---


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
        _work.left = MOST_WORK
        bound = {}
    _spend(1)
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
    if _constant(argument.denominator) != 1 or argument.numerator.keys() != {frozenset({(PI, Fraction(1))})}:
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
    return None if square is None else _number_power(Fraction(square, 4), Fraction(1, 2))


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
        and form.numerator[_leading(form.numerator)] * form.denominator[_leading(form.denominator)] < 0
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
    for prime, exponent in _factor(number):
        result = add(result, multiply(constant(exponent), of_atom(("fn", "ln", key(constant(prime))))))
    return result


def _single_power(form: Form) -> tuple[Atom, Fraction] | None:
    if _constant(form.denominator) != 1 or len(form.numerator) != 1:
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
