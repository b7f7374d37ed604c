"""Writing exact answers in LaTeX as MATH does: no `1x`, no `+ -3`, fractions reduced, radicals simplified."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

Number = int | Fraction


def number(value: Number) -> str:
    r"""An integer or a reduced fraction: `-7`, `-\frac{3}{4}`."""
    return multiple(value, "")


def multiple(factor: Number, symbol: str) -> str:
    r"""A rational multiple with the symbol in the numerator: `\frac{3\pi}{4}`, `-\sqrt{2}`, `0`."""
    factor = Fraction(factor)
    top = abs(factor.numerator)
    sign = "-" if factor < 0 else ""
    if factor == 0:
        return "0"
    numerator = symbol if symbol and top == 1 else f"{top}{symbol}"
    return f"{sign}{numerator}" if factor.denominator == 1 else f"{sign}\\frac{{{numerator}}}{{{factor.denominator}}}"


def frac(numerator: int | str, denominator: int | str) -> str:
    """A fraction exactly as given, not reduced: for the steps of a solution, and for written expressions."""
    return f"\\frac{{{numerator}}}{{{denominator}}}"


def root(radicand: int | str) -> str:
    """A square root exactly as given, not simplified."""
    return f"\\sqrt{{{radicand}}}"


def pi(factor: Number) -> str:
    r"""A rational multiple of pi: `\frac{3\pi}{4}`."""
    return multiple(factor, "\\pi")


def term(factor: Number, symbol: str) -> str:
    r"""One term of a sum: letters follow their coefficient (`\frac{3}{4}x`), `\pi` and radicals go on the fraction."""
    factor = Fraction(factor)
    if symbol.startswith("\\") or not symbol or factor.denominator == 1:
        return multiple(factor, symbol)
    return number(factor) + symbol


def combination(*terms: tuple[Number, str]) -> str:
    """A sum of `(factor, symbol)` terms with its signs in order; zero terms vanish.

    Example:
        >>> combination((3, "x"), (-1, "y"), (0, "z"), (-5, ""))
        '3x - y - 5'
    """
    return signed_sum(term(factor, symbol) for factor, symbol in terms if factor != 0)


def signed_sum(parts: Iterable[str]) -> str:
    """Written terms joined by plus, or by minus where a term starts with a minus sign; `0` if there are none."""
    text = ""
    for part in parts:
        if not text:
            text = part
        elif part.startswith("-"):
            text += f" - {part[1:]}"
        else:
            text += f" + {part}"
    return text or "0"


def power(symbol: str, exponent: int) -> str:
    """`symbol` to a non-negative integer power, braces where needed: `x^{12}`, `x`, and nothing for the power 0."""
    if exponent == 0:
        return ""
    if exponent == 1:
        return symbol
    return f"{symbol}^{exponent}" if 0 <= exponent <= 9 else f"{symbol}^{{{exponent}}}"


def polynomial(coefficients: Sequence[Number], variable: str = "x") -> str:
    """A polynomial from its coefficients, highest power first.

    Example:
        >>> polynomial([1, 0, -2, 1])
        'x^3 - 2x + 1'
    """
    degree = len(coefficients) - 1
    return combination(*((c, power(variable, degree - place)) for place, c in enumerate(coefficients)))


def factor_for_root(root: Number, variable: str = "x") -> str:
    """The primitive linear factor with this root: `(x - 3)`, `(2x + 1)`, and `x` for the root 0."""
    root = Fraction(root)
    return variable if root == 0 else f"({polynomial([root.denominator, -root.numerator], variable)})"


def paren(value: Number) -> str:
    """A number as a factor or a subtrahend: in parentheses if negative."""
    return f"({number(value)})" if value < 0 else number(value)


def square_part(n: int) -> tuple[int, int]:
    """`(a, b)` with `n = a^2 b` and b square-free, for n >= 1."""
    outside, inside, p = 1, 1, 2
    while p * p <= n:
        exponent = 0
        while n % p == 0:
            n //= p
            exponent += 1
        outside *= p ** (exponent // 2)
        inside *= p ** (exponent % 2)
        p += 1
    return outside, inside * n


def surd(factor: Number, radicand: int) -> str:
    """`factor * sqrt(radicand)` in simplest radical form, for a radicand >= 0."""
    if radicand == 0:
        return "0"
    outside, inside = square_part(radicand)
    return multiple(Fraction(factor) * outside, "" if inside == 1 else root(inside))


def square_root(value: Number) -> str:
    """The square root of a non-negative rational in simplest radical form, the denominator rationalised."""
    value = Fraction(value)
    return surd(Fraction(1, value.denominator), value.numerator * value.denominator)


def quotient(terms: Sequence[tuple[int, str]], denominator: int) -> str:
    r"""A sum of integer multiples over an integer, reduced; a minus shared by all terms goes in front of the fraction.

    Example:
        >>> quotient([(4, ""), (-2, "\\sqrt{3}")], 6)
        '\\frac{2 - \\sqrt{3}}{3}'
    """
    terms = [(factor, symbol) for factor, symbol in terms if factor]
    if len(terms) < 2:
        return multiple(Fraction(terms[0][0], denominator), terms[0][1]) if terms else "0"
    shared = math.gcd(*(factor for factor, _ in terms), denominator) * (1 if denominator > 0 else -1)
    terms, denominator = [(factor // shared, symbol) for factor, symbol in terms], denominator // shared
    if denominator == 1:
        return combination(*terms)
    sign = "-" if all(factor < 0 for factor, _ in terms) else ""
    top = combination(*((-factor if sign else factor, symbol) for factor, symbol in terms))
    return f"{sign}\\frac{{{top}}}{{{denominator}}}"


def surd_sum(rational: int, factor: int, radicand: int, denominator: int = 1) -> str:
    """`(rational + factor * sqrt(radicand)) / denominator`, reduced to lowest terms over one fraction bar."""
    outside, inside = square_part(radicand) if radicand else (0, 1)
    factor *= outside
    if inside == 1:
        return number(Fraction(rational + factor, denominator))
    return quotient([(rational, ""), (factor, root(inside))], denominator)


def equal(*sides: str, sign: str = "=") -> str:
    """A chain of equations or congruences; a side that repeats the one before it is left out."""
    return f" {sign} ".join(side for place, side in enumerate(sides) if place == 0 or side != sides[place - 1])


def complex_number(real: Number, imaginary: Number) -> str:
    r"""`a + bi`: `3 - 2i`, `\frac{1}{2} + \frac{3}{2}i`, `-i`, `5`."""
    return combination((real, ""), (imaginary, "i"))


def _fence(left: str, body: str, right: str) -> str:
    return f"\\left{left} {body} \\right{right}" if "\\frac" in body else f"{left}{body}{right}"


def ordered(items: Iterable[str]) -> str:
    """A pair, a triple or a point: `(3, -1)`; fractions get stretching parentheses."""
    return _fence("(", ", ".join(items), ")")


def interval(left: str, right: str, brackets: str) -> str:
    r"""An interval from its written ends and its brackets, for example `interval("-2", "\infty", "[)")`."""
    return _fence(brackets[0], f"{left}, {right}", brackets[1])


def listing(items: Iterable[str]) -> str:
    """Several answers, separated by commas."""
    return ", ".join(items)


def matrix(rows: Sequence[Sequence[Number]], environment: str = "pmatrix") -> str:
    """A matrix, in parentheses unless another environment (`vmatrix` for a determinant) is named."""
    body = " \\\\ ".join(" & ".join(number(entry) for entry in row) for row in rows)
    return f"\\begin{{{environment}}} {body} \\end{{{environment}}}"


def column(entries: Sequence[Number]) -> str:
    """A column vector."""
    return matrix([[entry] for entry in entries])


def degrees(value: int) -> str:
    """An angle in degrees."""
    return f"{value}^\\circ"


def product(factors: Iterable[Number]) -> str:
    """Numbers joined by multiplication dots; negative ones after the first in parentheses."""
    return " \\cdot ".join(paren(factor) if place else number(factor) for place, factor in enumerate(factors))


def factorization(primes: Mapping[int, int]) -> str:
    r"""A product of prime powers, smallest prime first: `2^3 \cdot 5`."""
    return " \\cdot ".join(power(str(prime), exponent) for prime, exponent in sorted(primes.items()))


def decimal(value: Fraction) -> str:
    """A terminating decimal, written out exactly; the denominator may have only the prime factors 2 and 5.

    Raises:
        ValueError: if the decimal does not terminate.
    """
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
        if digits > 20:
            raise ValueError(f"value={value} has no terminating decimal; write it as a fraction")
    scaled = abs(int(value * 10**digits))
    sign = "-" if value < 0 else ""
    text = str(scaled).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)
