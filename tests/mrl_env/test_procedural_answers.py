"""Every answer of the procedural problems, found a second time from the question's text alone.

Nothing of the generator is used here but its texts: a small reader evaluates LaTeX numerically (and exactly where all
is rational), and one check per template substitutes the answer back, counts by brute force, simulates, integrates, or
works with coordinates. Questions are read by regular expressions, so a question that lacks a number fails as well.
"""

from __future__ import annotations

import cmath
import itertools
import math
import random
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy

from mrl_env.problems.procedural.templates import TEMPLATES, Template

INSTANCES = 20
Check = Callable[[str, str], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enter a check under the name of its template."""
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


# --- reading LaTeX ----------------------------------------------------------------------------------------------------

TOKENS = re.compile(r"\d+(?:\.\d+)?|\\[A-Za-z]+|[^\s]")
FUNCTIONS: dict[str, Callable[[float], float]] = {
    r"\sin": math.sin,
    r"\cos": math.cos,
    r"\tan": math.tan,
    r"\arcsin": math.asin,
    r"\arccos": math.acos,
    r"\arctan": math.atan,
}


class Reader:
    """Recursive descent over a formula; numbers are fractions as long as possible, then floats or complex numbers."""

    def __init__(self, latex: str, names: dict[str, Any]) -> None:
        self.tokens = [t for t in TOKENS.findall(latex) if t not in (r"\left", r"\right")]
        self.place = 0
        self.names = names
        self.inside_bars = False

    @property
    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.next
        if not token or (expected and token != expected):
            raise SyntaxError(f"{expected!r} expected at {self.place} of {self.tokens}")
        self.place += 1
        return token

    def whole(self) -> Any:
        result = self.sum()
        if self.next:
            raise SyntaxError(f"{self.next!r} left over in {self.tokens}")
        return result

    def sum(self) -> Any:
        result = self.product()
        while self.next in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            result = result + sign * self.product()
        return result

    def product(self) -> Any:
        if self.next == "-":
            self.take()
            return -self.product()
        result = self.power()
        while True:
            if self.next in (r"\cdot", r"\times"):
                self.take()
                result = result * self.power()
            elif self.next in (r"\div", "/"):
                self.take()
                result = result / self.power()
            elif self.starts_factor():
                result = result * self.power()
            else:
                return result

    def starts_factor(self, simple: bool = False) -> bool:
        token = self.next
        if token[:1].isdigit() or (len(token) == 1 and token.isalpha()) or token in (r"\pi", r"\frac"):
            return True
        if simple or not token:
            return False
        if token == "|":
            return not self.inside_bars
        return token == "(" or token in (r"\sqrt", r"\binom", r"\log") or token in FUNCTIONS

    def power(self) -> Any:
        result = self.atom()
        while self.next in ("^", "!"):
            if self.take() == "!":
                result = Fraction(math.factorial(int(result)))
            elif self.next == r"\circ":
                self.take()
                result = float(result) * math.pi / 180
            else:
                exponent = self.group()
                whole = isinstance(exponent, Fraction) and exponent.denominator == 1
                result = result ** (int(exponent) if whole else float(exponent))
        return result

    def group(self) -> Any:
        if self.next != "{":
            return self.atom()
        self.take("{")
        result = self.sum()
        self.take("}")
        return result

    def atom(self) -> Any:
        token = self.take()
        if token[0].isdigit():
            return Fraction(token)
        if token == "(":
            result = self.sum()
            self.take(")")
            return result
        if token == "|":
            self.inside_bars = True
            result = abs(self.sum())
            self.take("|")
            self.inside_bars = False
            return result
        if token == r"\frac":
            return self.group() / self.group()
        if token == r"\binom":
            return Fraction(math.comb(int(self.group()), int(self.group())))
        if token == r"\sqrt":
            return root(self.group())
        if token == r"\pi":
            return math.pi
        if token == r"\log":
            self.take("_")
            base = self.group()
            return math.log(self.argument()) / math.log(base)
        if token in FUNCTIONS:
            exponent = 1
            if self.next == "^":
                self.take()
                exponent = int(self.group())
            return FUNCTIONS[token](float(self.argument())) ** exponent
        if token in self.names:
            return self.names[token]
        if token == "i":
            return 1j
        raise SyntaxError(f"{token!r} is unknown in {self.tokens}")

    def argument(self) -> Any:
        result = self.power()
        while self.starts_factor(simple=True):
            result = result * self.power()
        return result


def root(radicand: Any) -> Any:
    """The real square root, exact if it can be; a negative radicand is an error."""
    if isinstance(radicand, Fraction):
        p, q = math.isqrt(max(radicand.numerator, 0)), math.isqrt(radicand.denominator)
        if Fraction(p * p, q * q) == radicand:
            return Fraction(p, q)
    return math.sqrt(radicand)


def value(latex: str, **names: Any) -> Any:
    return Reader(latex, names).whole()


def polynomial(latex: str, variable: str = "x") -> sympy.Poly:
    symbol = sympy.Symbol(variable)
    return sympy.Poly(value(latex, **{variable: symbol}), symbol)


def close(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    if isinstance(a, (int, Fraction)) and isinstance(b, (int, Fraction)):
        return a == b
    return cmath.isclose(complex(a), complex(b), rel_tol=tolerance, abs_tol=tolerance)


def formulas(question: str) -> list[str]:
    return question.split("$")[1::2]


def numbers(text: str) -> list[int]:
    """All unsigned integers of a text, in order."""
    return [int(n) for n in re.findall(r"\d+", text)]


def find(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of the first match; no match is a failure."""
    match = re.search(pattern, text)
    assert match, f"{pattern} not found in {text}"
    return match.groups()


def ints(pattern: str, text: str) -> list[int]:
    return [int(group) for group in find(pattern, text)]


def split_commas(text: str) -> list[str]:
    """Parts between commas that stand outside all brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def unwrap(text: str) -> str:
    """The inside of one pair of parentheses."""
    text = text.replace(r"\left", "").replace(r"\right", "").strip()
    assert text[0] == "(", text
    assert text[-1] == ")", text
    return text[1:-1]


def tuple_of(text: str) -> list[Any]:
    return [value(part) for part in split_commas(unwrap(text))]


def list_of(text: str) -> list[Any]:
    return [value(part) for part in split_commas(text)]


def points_of(text: str, size: int = 2) -> list[tuple[int, ...]]:
    pattern = r"\((" + ", ".join([r"-?\d+"] * size) + r")\)"
    return [tuple(map(int, match.split(", "))) for match in re.findall(pattern, text)]


def matrices_of(text: str) -> list[list[list[Any]]]:
    bodies = re.findall(r"\\begin\{[pv]matrix\} (.*?) \\end", text)
    return [[[value(entry) for entry in row.split("&")] for row in body.split(r"\\")] for body in bodies]


def columns_of(text: str) -> list[list[Any]]:
    return [[row[0] for row in matrix] for matrix in matrices_of(text)]


def dot(u: Sequence[Any], v: Sequence[Any]) -> Any:
    return sum(a * b for a, b in zip(u, v, strict=True))


def times(a: list[list[Any]], b: list[list[Any]]) -> list[list[Any]]:
    return [[dot(row, column) for column in zip(*b, strict=True)] for row in a]


def increasing(values: Sequence[Any]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


def computes(question: str, answer: str) -> None:
    """The first formula has the value of the answer."""
    assert close(value(formulas(question)[0]), value(answer))


def same_function(expression: str, answer: str, variable: str = "x") -> None:
    for x in (Fraction(-7, 3), Fraction(5, 11), Fraction(13, 2), Fraction(4, 7)):
        assert close(value(expression, **{variable: x}), value(answer, **{variable: x}))


def satisfies(equation: str, **names: Any) -> bool:
    left, right = equation.split("=")
    return close(value(left, **names), value(right, **names))


def contains(intervals: str, x: Any) -> bool:
    for part in intervals.replace(r"\left", "").replace(r"\right", "").split(r"\cup"):
        part = part.strip()
        low, high = (
            -math.inf if end == r"-\infty" else math.inf if end == r"\infty" else value(end)
            for end in split_commas(part[1:-1])
        )
        assert low < high, intervals
        if low < x < high or (x == low and part[0] == "[") or (x == high and part[-1] == "]"):
            return True
    return False


def ends(intervals: str) -> list[Any]:
    plain = intervals.replace(r"\left", "").replace(r"\right", "")
    parts = [part.strip()[1:-1] for part in plain.split(r"\cup")]
    return [value(end) for part in parts for end in split_commas(part) if "infty" not in end]


def solves_everywhere(holds: Callable[[Fraction], bool], answer: str) -> None:
    """The answer's intervals hold exactly the points where the condition holds, on a fine grid and at all ends."""
    grid = [Fraction(k, 3) for k in range(-96, 97)]
    for end in ends(answer):
        grid += [end, end - Fraction(1, 1000), end + Fraction(1, 1000)]
    for x in grid:
        try:
            expected = holds(x)
        except (ZeroDivisionError, ValueError):
            expected = False
        assert contains(answer, x) == expected, (answer, x)


def compare(relation: str, a: Any, b: Any) -> bool:
    return bool({"<": a < b, ">": a > b, r"\le": a <= b, r"\ge": a >= b}[relation])


def inequality(question: str, answer: str) -> None:
    formula = next(f for f in formulas(question) if re.search(r"<|>|\\le|\\ge", f))
    left, relation, right = find(r"^(.*?) (<|>|\\le|\\ge) (.*)$", formula)
    solves_everywhere(lambda x: compare(relation, value(left, x=x), value(right, x=x)), answer)


# --- prealgebra -------------------------------------------------------------------------------------------------------

for name in ("fraction_sum", "order_of_operations", "nested_fraction"):
    CHECKS[name] = computes


@check
def check_percent_of(question: str, answer: str) -> None:
    (percent,) = ints(r"(\d+)\\%", question)
    (whole,) = ints(r"\$(\d+)\$", question)
    assert int(answer) * 100 == percent * whole


@check
def check_decimal_product(question: str, answer: str) -> None:
    a, b = re.findall(r"\d+\.\d+", question)
    assert Fraction(a) * Fraction(b) == Fraction(answer)


@check
def check_like_terms(question: str, answer: str) -> None:
    variable = find("([a-z])", answer)[0]
    same_function(formulas(question)[0], answer, variable)
    assert polynomial(answer, variable).degree() == 1
    assert "(" not in answer


@check
def check_missing_score(question: str, answer: str) -> None:
    if question.startswith("The mean"):
        count, mean, *scores = numbers(question)
    else:
        *scores, _, mean, count = numbers(question)
    scores.append(int(answer))
    assert len(scores) == count
    assert sum(scores) == mean * count


@check
def check_decimal_to_fraction(question: str, answer: str) -> None:
    assert Fraction(find(r"(\d+\.\d+)", question)[0]) == value(answer)


@check
def check_ratio_share(question: str, answer: str) -> None:
    a, b = ints(r"(\d+):(\d+)", question)
    (total,) = ints(r"\$(\d+)\$", question)
    assert (total - int(answer)) * b == int(answer) * a


@check
def check_successive_percents(question: str, answer: str) -> None:
    price, up, down = numbers(question)
    assert close(price * (1 + up / 100) * (1 - down / 100), value(answer))


@check
def check_rectangle_diagonal(question: str, answer: str) -> None:
    assert close(math.hypot(*numbers(question)), value(answer))


def digits_after_point(x: Fraction, base: int, count: int) -> list[int]:
    """Long division."""
    x -= x.numerator // x.denominator
    found = []
    for _ in range(count):
        x *= base
        found.append(x.numerator // x.denominator)
        x -= found[-1]
    return found


@check
def check_repeating_decimal(question: str, answer: str) -> None:
    whole, block = find(r"(\d+)\.\\overline\{(\d+)\}", question)
    result = value(answer)
    assert result.numerator // result.denominator == int(whole)
    assert digits_after_point(result, 10, 12) == [int(d) for d in block * 12][:12]


@check
def check_mixed_number_division(question: str, answer: str) -> None:
    left, right = (
        int(w) + Fraction(int(p), int(q)) for w, p, q in re.findall(r"(\d+)\\frac\{(\d+)\}\{(\d+)\}", question)
    )
    assert value(answer) * right == left


@check
def check_plate_with_holes(question: str, answer: str) -> None:
    found = numbers(question)
    length, width, holes, radius = found if len(found) == 4 else (*found[:2], 1, found[2])
    assert close(length * width - holes * math.pi * radius**2, value(answer))
    assert 2 * radius < width
    assert 2 * radius * holes < length


@check
def check_average_speed(question: str, answer: str) -> None:
    there, back = numbers(question)
    hours = Fraction(840, there) + Fraction(840, back)
    assert value(answer) * hours == 2 * 840


@check
def check_monomial_quotient(question: str, answer: str) -> None:
    expression = next(f for f in formulas(question) if "frac" in f)
    letters = sorted(set(re.findall("[a-z]", expression.replace("frac", ""))))
    assert len(letters) == 2
    for u, v in ((Fraction(2, 3), Fraction(5, 7)), (Fraction(-3), Fraction(11, 2))):
        names = dict(zip(letters, (u, v), strict=True))
        assert value(expression, **names) == value(answer, **names)
    assert "-" not in answer


@check
def check_count_integer_solutions(question: str, answer: str) -> None:
    formula = next(f for f in formulas(question) if "<" in f)
    low, middle, high = re.split(r"<|\\le", formula)
    hits = sum(value(low) < value(middle, n=Fraction(n)) <= value(high) for n in range(-50, 51))
    assert hits == int(answer)


@check
def check_two_pipes_and_drain(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    t = value(answer)
    assert t / a + t / b - t / c == 1


@check
def check_rectangle_with_semicircles(question: str, answer: str) -> None:
    if "track" in question:
        straight, diameter = numbers(question)
        assert close(2 * straight + math.pi * diameter, value(answer))
    else:
        a, b = numbers(question)
        halves = sum(2 * (math.pi * (side / 2) ** 2 / 2) for side in (a, b))
        assert close(a * b + halves, value(answer))


@check
def check_telescoping_product(question: str, answer: str) -> None:
    factors = re.findall(r"\(1 ([+-]) \\frac\{1\}\{(\d+)\}", question)
    assert [int(k) for _, k in factors[:3]] == list(range(int(factors[0][1]), int(factors[0][1]) + 3))
    sign = 1 if factors[0][0] == "+" else -1
    product = Fraction(1)
    for k in range(int(factors[0][1]), int(factors[-1][1]) + 1):
        product *= 1 + Fraction(sign, k)
    assert product == value(answer)


# --- algebra ----------------------------------------------------------------------------------------------------------


@check
def check_linear_equation(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "=" in f)
    variable = find("([a-z])", equation)[0]
    assert satisfies(equation, **{variable: value(answer)})
    assert not satisfies(equation, **{variable: value(answer) + 1})


@check
def check_slope(question: str, answer: str) -> None:
    (x1, y1), (x2, y2) = points_of(question)
    assert y1 + value(answer) * (x2 - x1) == y2


@check
def check_function_value(question: str, answer: str) -> None:
    (rule,) = find(r"\(x\) = (.*?)\$", question)
    (at,) = ints(r"[fgh]\((-?\d+)\)", question)
    assert value(rule, x=Fraction(at)) == int(answer)


@check
def check_binomial_product(question: str, answer: str) -> None:
    variable = find("([a-z])", answer)[0]
    same_function(formulas(question)[0], answer, variable)
    assert "(" not in answer


@check
def check_midpoint(question: str, answer: str) -> None:
    if "endpoints" in question:
        a, b = points_of(question)
        middle = tuple_of(answer)
    else:
        middle = tuple_of(find(r"is \$(.*?)\$", question)[0])
        a = points_of(find(r"\$A = (.*?)\$", question)[0])[0]
        b = tuple(tuple_of(answer))
    assert [m - p for m, p in zip(middle, a, strict=True)] == [q - m for m, q in zip(middle, b, strict=True)]


for name in ("linear_inequality", "quadratic_inequality", "rational_inequality", "quotient_inequality"):
    CHECKS[name] = inequality


@check
def check_linear_system(question: str, answer: str) -> None:
    x, y = tuple_of(answer)
    equations = [f for f in formulas(question) if "=" in f]
    assert len(equations) == 2
    assert all(satisfies(equation, x=x, y=y) for equation in equations)
    # one solution only: moving along either line leaves the other
    symbols = sympy.symbols("x y")
    matrix = sympy.Matrix(
        [
            [sympy.diff(value(equation.split("=")[0], x=symbols[0], y=symbols[1]), symbol) for symbol in symbols]
            for equation in equations
        ]
    )
    assert matrix.det() != 0


@check
def check_factor_quadratic(question: str, answer: str) -> None:
    quadratic, form = formulas(question)[:2]
    variable = find("([xyt])", quadratic)[0]
    a, b = tuple_of(answer)
    for x in (Fraction(3), Fraction(-5, 2), Fraction(7, 3)):
        assert value(form, a=a, b=b, **{variable: x}) == value(quadratic, **{variable: x})
    assert ("a < b" in question) == (polynomial(quadratic, variable).LC() == 1)
    assert "a < b" not in question or a < b


def roots_of(question: str, answer: str, count: int) -> None:
    formula = next(f for f in formulas(question) if "x^" in f)
    equation = formula if "=" in formula else f"{formula} = 0"
    found = list_of(answer)
    assert len(found) == count
    assert increasing(found)
    assert all(satisfies(equation, x=x) for x in found)
    assert polynomial(equation.split("=")[0]).degree() == count


@check
def check_quadratic_roots(question: str, answer: str) -> None:
    roots_of(question, answer, 2)


@check
def check_point_distance(question: str, answer: str) -> None:
    assert close(math.dist(*points_of(question)), value(answer))


@check
def check_line_through_points(question: str, answer: str) -> None:
    assert re.fullmatch(r"y = .*x( [+-] .*)?", answer)
    assert all(satisfies(answer, x=Fraction(x), y=Fraction(y)) for x, y in points_of(question))


@check
def check_absolute_value_equation(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "|" in f)
    found = list_of(answer)
    assert len(found) == 2
    assert increasing(found)
    assert all(satisfies(equation, x=x) for x in found)


@check
def check_exponential_equation(question: str, answer: str) -> None:
    left, right = next(f for f in formulas(question) if "=" in f).split("=")
    x = value(answer)
    logs = []
    for side in (left, right):
        base, exponent = find(r"(\d+)\^\{(.*)\}", side)
        logs.append(math.log(int(base)) * float(value(exponent, x=x)))
    assert close(*logs)


@check
def check_quadratic_formula(question: str, answer: str) -> None:
    quadratic = next(f for f in formulas(question) if "x^2" in f)
    coefficients = [float(c) for c in polynomial(quadratic.split("=")[0]).all_coeffs()]
    found = sorted(complex(r).real for r in mpmath.polyroots(coefficients, maxsteps=200, extraprec=100))
    assert close(found[1 if "larger" in question else 0], value(answer))


@check
def check_parabola_vertex(question: str, answer: str) -> None:
    (rule,) = find(r"\$y = (.*?)\$", question)
    h, k = tuple_of(answer)
    assert value(rule, x=h) == k
    assert value(rule, x=h + 3) == value(rule, x=h - 3) != k


@check
def check_inverse_function(question: str, answer: str) -> None:
    (rule,) = find(r"\(x\) = (.*?)\$", question)
    for x in (Fraction(29, 3), Fraction(-31, 7), Fraction(101)):
        assert value(rule, x=value(answer, x=x)) == x


@check
def check_infinite_geometric_series(question: str, answer: str) -> None:
    series = formulas(question)[0].removesuffix(r" + \cdots")
    terms = [value(part) for part in series.replace(" - ", " + -").split(" + ")]
    ratio = terms[1] / terms[0]
    assert len(terms) == 4
    assert all(b == a * ratio for a, b in itertools.pairwise(terms))
    total, term = 0.0, float(terms[0])
    for _ in range(3000):
        total, term = total + term, term * float(ratio)
    assert close(total, value(answer))


@check
def check_function_domain(question: str, answer: str) -> None:
    (rule,) = find(r"\$f\(x\) = (.*?)\$", question)

    def defined(x: Fraction) -> bool:
        value(rule, x=x)
        return True

    solves_everywhere(defined, answer)


@check
def check_symmetric_expression(question: str, answer: str) -> None:
    if "satisfy" in question:
        s, p = ints(r"a \+ b = (-?\d+)\$ and \$ab = (-?\d+)\$", question)
    else:
        one, linear, p = polynomial(find(r"of \$(.*?) = 0", question)[0]).all_coeffs()
        assert one == 1
        s = -linear
    difference = cmath.sqrt(complex(s) ** 2 - 4 * complex(p))
    a, b = (complex(s) + difference) / 2, (complex(s) - difference) / 2
    assert close(value(formulas(question)[-1], a=a, b=b), value(answer), 1e-8)


@check
def check_rationalize_denominator(question: str, answer: str) -> None:
    computes(question, answer)
    assert not re.search(r"\}\{[^}]*sqrt", answer)


# --- number theory ----------------------------------------------------------------------------------------------------


def dividing(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@check
def check_gcd_or_lcm(question: str, answer: str) -> None:
    a, b = numbers(question)
    if "multiple" in question:
        assert int(answer) == next(n for n in itertools.count(1) if n % a == 0 and n % b == 0)
    else:
        assert int(answer) == max(set(dividing(a)) & set(dividing(b)))


@check
def check_prime_exponents(question: str, answer: str) -> None:
    (n,) = ints(r"\$(\d+)\$", question)
    primes = ints(r"(\d+)\^a \\cdot (\d+)\^b \\cdot (\d+)\^c", question)
    assert all(sympy.isprime(p) for p in primes)
    assert math.prod(p ** int(e) for p, e in zip(primes, tuple_of(answer), strict=True)) == n


@check
def check_list_divisors(question: str, answer: str) -> None:
    shared = set.intersection(*(set(dividing(n)) for n in numbers(question)))
    assert [int(d) for d in list_of(answer)] == sorted(shared)


@check
def check_remainder(question: str, answer: str) -> None:
    a, b, m = numbers(question)
    total = a * b if "cdot" in question or "product" in question else a + b
    assert int(answer) in range(m)
    assert (total - int(answer)) % m == 0


@check
def check_divisor_count(question: str, answer: str) -> None:
    (n,) = numbers(question)
    assert int(answer) == sum(d % 2 == 0 or "even" not in question for d in dividing(n))


@check
def check_base_conversion(question: str, answer: str) -> None:
    if "subscript" in question:
        (n,) = ints(r"\$(\d+)\$ (?:in|from)", question)
        digits, base = find(r"^(\d+)_(\d)$", answer)
        assert f"N_{base}" in question
        assert int(digits, int(base)) == n
    else:
        digits, base = find(r"(\d+)_(\d)", question)
        assert int(digits, int(base)) == int(answer)


@check
def check_units_digit(question: str, answer: str) -> None:
    total = sum(int(a) ** int(n) for a, n in re.findall(r"(\d+)\^\{(\d+)\}", question))
    assert str(total)[-1] == answer


@check
def check_meeting_again(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    assert int(answer) == next(n for n in itertools.count(1) if n % a == n % b == n % c == 0)


@check
def check_linear_congruence(question: str, answer: str) -> None:
    a, b, c, m = ints(r"(\d+)x \+ (\d+) \\equiv (\d+) \\pmod\{(\d+)\}", question)
    assert [x for x in range(m) if (a * x + b - c) % m == 0] == [int(answer)]


@check
def check_divisor_sum(question: str, answer: str) -> None:
    assert int(answer) == sum(dividing(numbers(question)[0]))


@check
def check_base_arithmetic(question: str, answer: str) -> None:
    left, base, symbol, right, same = find(r"(\d+)_(\d) (\+|-|\\cdot) (\d+)_(\d)", question)
    a, b = int(left, int(base)), int(right, int(same))
    digits, last = find(r"^(\d+)_(\d)$", answer)
    assert base == same == last
    assert int(digits, int(base)) == {"+": a + b, "-": a - b, r"\cdot": a * b}[symbol] > 0


@check
def check_decimal_digit(question: str, answer: str) -> None:
    p, q = ints(r"\\frac\{(\d+)\}\{(\d+)\}", question)
    place, suffix = find(r"\$(\d+)\$(st|nd|rd|th)", question)
    assert digits_after_point(Fraction(p, q), 10, int(place))[-1] == int(answer)
    teen = int(place) % 100 in (11, 12, 13)
    assert suffix == ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(place[-1], "th"))


@check
def check_totient(question: str, answer: str) -> None:
    n = numbers(question)[-1] if "less" in question else ints(r"\\le (\d+)", question)[0]
    assert int(answer) == sum(math.gcd(k, n) == 1 for k in range(1, n))


@check
def check_three_remainders(question: str, answer: str) -> None:
    pairs = [(int(r), int(m)) for r, m in re.findall(r"\$(\d+)\$ when divided by \$(\d+)\$", question)]
    assert len(pairs) == 3
    assert int(answer) == next(n for n in itertools.count(1) if all(n % m == r for r, m in pairs))


@check
def check_factorial_divisibility(question: str, answer: str) -> None:
    (n,) = ints(r"(\d+)!", question)
    base = ints(r"\$(\d+)\^k", question)[0] if "^k" in question else ints(r"base \$(\d+)\$", question)[0]
    rest, count = math.factorial(n), 0
    while rest % base == 0:
        rest, count = rest // base, count + 1
    assert count == int(answer)


@check
def check_modular_power(question: str, answer: str) -> None:
    a, n = ints(r"(\d+)\^\{(\d+)\}", question)
    (m,) = ints(r"pmod\{(\d+)\}" if "pmod" in question else r"divided by \$(\d+)\$", question)
    assert a**n % m == int(answer)


@check
def check_repeating_in_base(question: str, answer: str) -> None:
    lead, block, base = find(r"0\.(\d*)\\overline\{(\d+)\}_(\d)", question)
    assert digits_after_point(value(answer), int(base), 11) == [int(d) for d in (lead + block * 6)[:11]]
    assert 0 < value(answer) < 1


@check
def check_factored_pairs(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "xy" in f)
    c = int(equation.split("=")[1])
    a, b = (int(k or 1) for k in find(r"\+ (\d*)x \+ (\d*)y", equation))
    found = [(x, y) for x in range(1, c + 1) for y in range(1, c + 1) if x * y + a * x + b * y == c]
    assert points_of(answer) == found


@check
def check_square_roots_modulo(question: str, answer: str) -> None:
    a, n = ints(r"x\^2 \\equiv (\d+) \\pmod\{(\d+)\}", question)
    found = [int(x) for x in list_of(answer)]
    assert found == sorted(sympy.ntheory.sqrt_mod(a, n, all_roots=True))
    assert f"0 \\le x < {n}" in question


@check
def check_multiplicative_order(question: str, answer: str) -> None:
    (a,) = ints(r"(\d+)\^n", question)
    m = numbers(question)[-1]
    assert int(answer) == next(n for n in itertools.count(1) if (a**n - 1) % m == 0)


@check
def check_two_coins(question: str, answer: str) -> None:
    a, b = numbers(question)
    limit = 2 * a * b
    reached = {a * x + b * y for x in range(limit // a + 1) for y in range(limit // b + 1)}
    missing = [n for n in range(1, limit) if n not in reached]
    assert int(answer) == (max(missing) if "largest" in question else len(missing))


@check
def check_perfect_square_values(question: str, answer: str) -> None:
    quadratic = next(f for f in formulas(question) if "n^2" in f)
    _, k, c = (int(v) for v in polynomial(quadratic, "n").all_coeffs())
    # Beyond this bound the value lies strictly between neighbouring squares or is reached by the scan.
    found = [n for n in range(1, 5000) if (v := n * n + k * n + c) >= 0 and math.isqrt(v) ** 2 == v]
    assert [int(n) for n in list_of(answer)] == found


@check
def check_count_positive_solutions(question: str, answer: str) -> None:
    a, b, c = ints(r"(\d+)x \+ (\d+)y = (\d+)", question)
    assert int(answer) == sum((c - a * x) % b == 0 for x in range(1, c) if c - a * x > 0)


# --- counting and probability -----------------------------------------------------------------------------------------


@check
def check_marble_draw(question: str, answer: str) -> None:
    bag = [color for count, color in re.findall(r"\$(\d+)\$ ([a-z]+)", question) for _ in range(int(count))]
    negative, color = find(r"that it is (not )?([a-z]+)\?", question)
    assert value(answer) == Fraction(sum((c == color) != bool(negative) for c in bag), len(bag))


@check
def check_independent_choices(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    assert int(answer) == len(list(itertools.product(range(a), range(b), range(c))))


CHECKS["factorial_quotient"] = computes


@check
def check_two_dice(question: str, answer: str) -> None:
    m, n = ints(r"(\d+)\$-sided.* \$(\d+)\$-sided", question)
    kind, target = find(r"is (exactly|at least) \$(\d+)\$", question)
    t = int(target)
    exact = lambda s: max(0, min(m, s - 1) - max(1, s - n) + 1)  # noqa: E731
    good = exact(t) if kind == "exactly" else sum(exact(s) for s in range(t, m + n + 1))
    assert value(answer) == Fraction(good, m * n)


@check
def check_committee(question: str, answer: str) -> None:
    i, j, m, n = numbers(question)
    ways = [sum(1 for _ in itertools.combinations(range(size), pick)) for size, pick in ((m, i), (n, j))]
    assert int(answer) == ways[0] * ways[1]


@check
def check_letter_arrangements(question: str, answer: str) -> None:
    (word,) = find(r"\b([A-Z]{5,})\b", question)

    def arrangements(left: tuple[int, ...]) -> int:
        if sum(left) == 0:
            return 1
        return sum(arrangements((*left[:i], n - 1, *left[i + 1 :])) for i, n in enumerate(left) if n)

    assert int(answer) == arrangements(tuple(word.count(letter) for letter in sorted(set(word))))


@check
def check_two_of_one_color(question: str, answer: str) -> None:
    i, j = numbers(question)
    pairs = list(itertools.combinations([0] * i + [1] * j, 2))
    same = sum(a == b for a, b in pairs)
    good = same if "same color" in question else len(pairs) - same
    assert value(answer) == Fraction(good, len(pairs))


@check
def check_binomial_probability(question: str, answer: str) -> None:
    if "coin" in question:
        n, k = numbers(question)
        p = Fraction(1, 2)
    else:
        p = value(find(r"probability \$(.*?)\$", question)[0])
        k, n = ints(r"exactly \$(\d+)\$ of \$(\d+)\$", question)
    spread = [Fraction(1)]
    for _ in range(n):
        spread = [
            (spread[i] * (1 - p) if i < len(spread) else 0) + (spread[i - 1] * p if i else 0)
            for i in range(len(spread) + 1)
        ]
    assert value(answer) == spread[k]


@check
def check_committee_at_least(question: str, answer: str) -> None:
    m, n, size = numbers(question)
    committees = list(itertools.combinations(range(m + n), size))
    good = sum(min(committee) < m for committee in committees)
    assert value(answer) == (Fraction(good, len(committees)) if "probability" in question else good)


@check
def check_lattice_paths(question: str, answer: str) -> None:
    _, goal, via = points_of(question)
    paths: dict[tuple[int, int, bool], int] = {(0, 0, False): 1}
    for x, y in itertools.product(range(goal[0] + 1), range(goal[1] + 1)):
        if (x, y) == (0, 0):
            continue
        for seen in (False, True):
            here = paths.get((x - 1, y, seen), 0) + paths.get((x, y - 1, seen), 0)
            now = seen or (x, y) == via
            paths[x, y, now] = paths.get((x, y, now), 0) + here
    assert int(answer) == paths[(*goal, "not pass" not in question)]


@check
def check_round_table(question: str, answer: str) -> None:
    apart = "must not" in question
    n, k = numbers(question)[:2] if not apart else (numbers(question)[0], 2)
    if n > 8:  # too many to list: seatings on numbered chairs, divided by the rotations
        together = n * math.factorial(k) * math.factorial(n - k) // n
        assert int(answer) == (math.factorial(n) // n - together if apart else together)
        return
    count = 0
    for rest in itertools.permutations(range(1, n)):
        seats = (0, *rest)
        places = sorted(i for i, person in enumerate(seats) if person < k)
        block = any(all((start + j) % n in places for j in range(k)) for start in places)
        count += block != apart
    assert int(answer) == count


@check
def check_expected_payout(question: str, answer: str) -> None:
    win, p = find(r"wins \$(\d+)\$ points with probability \$(.*?)\$,", question)
    small, q = find(r", wins \$(\d+)\$ points with probability \$(.*?)\$,", question)
    (lose,) = ints(r"loses \$(\d+)\$ points?", question)
    # over a common number of rounds, all outcomes occur a whole number of times
    rounds = math.lcm(value(p).denominator, value(q).denominator)
    wins, smalls = value(p) * rounds, value(q) * rounds
    losses = rounds - wins - smalls
    assert losses > 0
    assert value(answer) * rounds == wins * int(win) + smalls * int(small) - losses * lose


@check
def check_stars_and_bars(question: str, answer: str) -> None:
    if "solutions" in question:
        kinds = formulas(question)[0].count("x_")
        (total,) = ints(r"= (\d+)\$", question)
        (least,) = ints(r"\\ge (\d+)", question)
    else:
        total, kinds, *rest = numbers(question)
        least = rest[0] if rest else 0
        assert ("may get nothing" in question) == (least == 0)
    ways = [1] + [0] * total
    for _ in range(kinds):
        ways = [sum(ways[n - take] for take in range(least, n + 1)) for n in range(total + 1)]
    assert int(answer) == ways[total]


@check
def check_inclusion_exclusion(question: str, answer: str) -> None:
    (a, b) = ints(r"\$(\d+)\$ (?:or by|nor|and) \$(\d+)\$", question)
    (bound,) = ints(r"(?:to|than) \$(\d+)\$", question)
    hits = [(n % a == 0) + (n % b == 0) for n in range(1, bound + 1)]
    wanted = {"neither": (0,), "exactly one": (1,), "or both": (1, 2), "(or by both)": (1, 2)}
    accepted = next(counts for words, counts in wanted.items() if words in question)
    assert int(answer) == sum(hit in accepted for hit in hits)


@check
def check_two_bags(question: str, answer: str) -> None:
    a, b, c, d = ints(r"\$(\d+)\$.*?\$(\d+)\$.*?\$(\d+)\$.*?\$(\d+)\$", question)
    p = value(find(r"probability \$(.*?)\$", question)[0])
    names = re.findall(r"\$\d+\$ ([a-z]+)", question)
    assert names[0] == names[2] == find(r"that the marble is ([a-z]+)", question)[0]
    # as frequencies in many trials
    trials = p.denominator * (a + b) * (c + d)
    from_a = p * trials * a / (a + b)
    from_b = (trials - p * trials) * c / (c + d)
    assert value(answer) == from_a / (from_a + from_b)


@check
def check_binomial_coefficient_of(question: str, answer: str) -> None:
    x = sympy.Symbol("x")
    formula = next(f for f in formulas(question) if ")^" in f)
    expanded = sympy.expand(value(formula, x=x))
    power = ints(r"\$x\^(\d+)\$", question)[0] if "coefficient" in question else 0
    assert expanded.coeff(x, power) == int(answer)


@check
def check_chance_meeting(question: str, answer: str) -> None:
    span, v, w = numbers(question)
    steps = 20_000
    meets = 0.0
    for k in range(steps):  # the second arrival must fall into [t - w, t + v]
        t = (k + 0.5) * span / steps
        meets += min(span, t + v) - max(0, t - w)
    assert close(meets / steps / span, value(answer), 1e-6)


@check
def check_dart_in_rectangle(question: str, answer: str) -> None:
    length, width, r = numbers(question)
    spots = {
        "nearest corner": [(0, 0), (0, width), (length, 0), (length, width)],
        "center": [(length / 2, width / 2)],
        "lower left corner": [(0, 0)],
    }
    corners = next(where for words, where in spots.items() if words in question)
    steps, near = 4000, 0.0
    for k in range(steps):
        x = (k + 0.5) * length / steps
        for cx, cy in corners:
            half = math.sqrt(max(0.0, r * r - (x - cx) ** 2))
            near += min(width, cy + half) - max(0, cy - half)
    share = near / steps / width
    assert close(share if "less" in question else 1 - share, value(answer), 1e-3)


@check
def check_fixed_points(question: str, answer: str) -> None:
    n = numbers(question)[0]
    k = 0 if "none of them" in question else ints(r"exactly \$(\d+)\$", question)[0]
    good = math.comb(n, k) * round(math.factorial(n - k) / math.e)
    assert value(answer) == (Fraction(good, math.factorial(n)) if "probability" in question else good)


@check
def check_no_two_adjacent(question: str, answer: str) -> None:
    n, k = numbers(question)
    circle = "circle" in question
    good = 0
    for first in (0, 1):  # walk along the seats; state: (chosen so far, last seat chosen)
        states = {(first, first): 1}
        for _ in range(n - 1):
            following: dict[tuple[int, int], int] = {}
            for (chosen, last), ways in states.items():
                for now in (0, 1):
                    if not (last and now):
                        key = (chosen + now, now)
                        following[key] = following.get(key, 0) + ways
            states = following
        good += states.get((k, 0), 0) + (0 if circle and first else states.get((k, 1), 0))
    assert value(answer) == (Fraction(good, math.comb(n, k)) if "probability" in question else good)


@check
def check_gamblers_ruin(question: str, answer: str) -> None:
    p = float(value(find(r"probability \$(\\frac.*?)\$", question)[0]))
    start = ints(r"(?:has|at) \$(\d+)\$", question)[0]
    (goal,) = ints(r"(?:are|or) \$(\d+)\$", question)
    mass = [0.0] * (goal + 1)
    mass[start] = 1.0
    for _ in range(1500):
        moved = [0.0] * (goal + 1)
        moved[0], moved[goal] = mass[0], mass[goal]
        for position in range(1, goal):
            moved[position + 1] += p * mass[position]
            moved[position - 1] += (1 - p) * mass[position]
        mass = moved
    assert close(mass[goal], value(answer), 1e-8)


@check
def check_taking_turns(question: str, answer: str) -> None:
    players = list(find(r"^(\w+), (\w+) and (\w+) take", question))
    chances = [float(value(part)) for part in find(r"probabilities \$(.*?), (.*?)\$ and \$(.*?)\$", question)]
    (winner,) = find(r"that (\w+) wins", question)
    wins, alive = dict.fromkeys(players, 0.0), 1.0
    for turn in range(3000):
        player = turn % 3
        wins[players[player]] += alive * chances[player]
        alive *= 1 - chances[player]
    assert close(wins[winner], value(answer))


# --- geometry ---------------------------------------------------------------------------------------------------------


def in_degrees(answer: str) -> int:
    return int(find(r"^(-?\d+)\^\\circ$", answer)[0])


@check
def check_triangle_angle(question: str, answer: str) -> None:
    given = [int(n) for n in re.findall(r"= (\d+)\^\\circ", question)]
    result = in_degrees(answer)
    if "same length" in question:
        assert given[0] + 2 * result == 180
    elif "exterior" in question:
        assert sum(given) + (180 - result) == 180
    else:
        assert sum(given) + result == 180
    assert 0 < result < 180


@check
def check_circle_measure(question: str, answer: str) -> None:
    if "has a circumference" in question:
        r = value(find(r"circumference of \$(.*?)\$", question)[0]) / (2 * math.pi)
    else:
        (n,) = ints(r"\$(\d+)\$", question)
        r = n / 2 if "diameter" in question else n
    asked_area = "the area" in question or "its area" in question
    assert close(math.pi * r * r if asked_area else 2 * math.pi * r, value(answer))


@check
def check_rectangle_sides(question: str, answer: str) -> None:
    given, side = numbers(question)
    if "What is its perimeter" in question:
        assert (Fraction(int(answer), 2) - side) * side == given
    else:
        assert 2 * (side + Fraction(int(answer), side)) == given


@check
def check_pythagorean_side(question: str, answer: str) -> None:
    a, b = numbers(question)
    longest = max(a, b) if "hypotenuse of" in question or "ladder" in question else int(answer)
    assert sum(n * n for n in (a, b, int(answer))) == 2 * longest**2


@check
def check_sector_measure(question: str, answer: str) -> None:
    (angle,) = ints(r"(\d+)\^\\circ", question)
    (r,) = ints(r"radius \$(\d+)\$", question)
    theta = math.radians(angle)
    assert close(r * r * theta / 2 if "area" in question else r * theta, value(answer))


@check
def check_similar_triangles(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    assert value(answer) * a == b * c


@check
def check_special_right_triangle(question: str, answer: str) -> None:
    (angle,) = ints(r"angle of \$(\d+)\^", question)
    given, length = find(r"and (.*?) has length \$(\d+)\$", question)
    (asked,) = find(r"length of (.*?)\?", question)
    legs = sorted((math.sin(math.radians(angle)), math.cos(math.radians(angle))))
    sides = {"the hypotenuse": 1.0, "the shorter leg": legs[0], "the longer leg": legs[1], "each leg": legs[0]}
    assert ("each leg" in (given, asked)) == (angle == 45)
    assert close(sides[asked] / sides[given] * int(length), value(answer))


@check
def check_transformed_point(question: str, answer: str) -> None:
    z = complex(*points_of(question)[0])
    mirror = z.conjugate()
    if "y = x$" in question:
        image = 1j * mirror
    elif "y = -x$" in question:
        image = -1j * mirror
    elif "vertical" in question:
        image = 2 * ints(r"x = (-?\d+)", question)[0] - mirror
    elif "horizontal" in question:
        image = mirror + 2j * ints(r"y = (-?\d+)", question)[0]
    elif "counterclockwise" in question:
        image = 1j * z
    elif "clockwise" in question:
        image = -1j * z
    else:
        image = 2 * ints(r"through the point \$\((-?\d+), 0\)", question)[0] - z
    assert complex(*points_of(answer)[0]) == image


def shoelace(points: Sequence[tuple[float, float]]) -> float:
    turned = [*points[1:], points[0]]
    return abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(points, turned, strict=True))) / 2


def regular_polygon(sides: int, radius: float) -> list[tuple[float, float]]:
    corners = [cmath.rect(radius, 2 * math.pi * k / sides) for k in range(sides)]
    return [(corner.real, corner.imag) for corner in corners]


@check
def check_regular_polygon_area(question: str, answer: str) -> None:
    sides = 6 if "hexagon" in question else 3
    (n,) = numbers(question)
    unit = regular_polygon(sides, 1.0)
    side = math.dist(unit[0], unit[1])
    if "side length" in question:
        radius = n / side
    elif "perimeter" in question:
        radius = n / sides / side
    elif "diagonals" in question:
        radius = n / 2
    else:
        radius = n / 1.5  # the height of the triangle reaches from a corner past the center to the middle of a side
    assert close(shoelace(regular_polygon(sides, radius)), value(answer))


@check
def check_round_solid(question: str, answer: str) -> None:
    r, *rest = numbers(question)
    h = rest[0] if rest else 0
    steps = 4000

    def volume(radius_squared: Callable[[float], float], length: float) -> float:
        middles = ((k + 0.5) * length / steps for k in range(steps))
        return sum(math.pi * radius_squared(x) for x in middles) * length / steps

    if "volume of a cone" in question:
        expected = volume(lambda x: (r * x / h) ** 2, h)
    elif "volume of a cylinder" in question:
        expected = volume(lambda x: r * r, h)
    elif "volume of a sphere" in question:
        expected = 2 * volume(lambda x: r * r - x * x, r)
    elif "volume of a solid hemisphere" in question:
        expected = volume(lambda x: r * r - x * x, r)
    elif "area of a cylinder" in question:
        expected = 2 * math.pi * r * h + 2 * math.pi * r * r
    elif "area of a sphere" in question:
        expected = math.pi * r * r  # r is the diameter here
    else:
        expected = 3 * math.pi * r * r
    assert close(expected, value(answer), 1e-6)


def heron(a: float, b: float, c: float) -> float:
    s = (a + b + c) / 2
    return math.sqrt(s * (s - a) * (s - b) * (s - c))


@check
def check_triangle_from_vertices(question: str, answer: str) -> None:
    p, q, r = points_of(question)
    assert close(heron(math.dist(p, q), math.dist(q, r), math.dist(r, p)), value(answer), 1e-6)


@check
def check_box_diagonal(question: str, answer: str) -> None:
    assert close(math.dist((0, 0, 0), numbers(question)), value(answer))


def place_triangle(a: float, b: float, c: float) -> tuple[complex, complex, complex]:
    """Corners A, B, C with BC = a, CA = b, AB = c."""
    x = (b * b + c * c - a * a) / (2 * c)
    return 0j, complex(c, 0), complex(x, math.sqrt(b * b - x * x))


@check
def check_heron_area(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    _, _, top = place_triangle(a, b, c)
    assert close(c * top.imag / 2, value(answer))


@check
def check_third_side(question: str, answer: str) -> None:
    a, b, angle = numbers(question)
    assert close(abs(a - cmath.rect(b, math.radians(angle))), value(answer))


@check
def check_cone_surface(question: str, answer: str) -> None:
    if "rolled" in question:
        slant, angle = numbers(question)
        base_radius = math.sqrt(slant**2 - value(answer) ** 2)
        assert close(2 * math.pi * base_radius, slant * math.radians(angle), 1e-7)
    else:
        (r,) = ints(r"radius \$(\d+)\$", question)
        (h,) = ints(r"height \$?(?:of )?\$?(\d+)\$", question)
        # cut open, the surface is a sector of radius s whose arc is the circumference of the base
        slant = math.hypot(r, h)
        assert close(slant**2 * (2 * math.pi * r / slant) / 2, value(answer))


@check
def check_circular_segment(question: str, answer: str) -> None:
    r, angle = numbers(question)
    theta = math.radians(angle if "smaller" in question else 360 - angle)
    assert close(r * r * (theta - math.sin(theta)) / 2, value(answer))


@check
def check_angle_bisector(question: str, answer: str) -> None:
    c, b, a = ints(r"= (\d+)\$, .*?= (\d+)\$ and .*?= (\d+)\$", question)
    corner, q, r = place_triangle(a, b, c)
    d = q + (r - q) * float(value(answer)) / a
    first, second = cmath.phase((d - corner) / (q - corner)), cmath.phase((r - corner) / (d - corner))
    assert close(first, second)


@check
def check_triangle_circles(question: str, answer: str) -> None:
    a, b, c = numbers(question)
    angle = math.acos((b * b + c * c - a * a) / (2 * b * c))
    inscribed = "circle is inscribed in a triangle" in question.lower()
    expected = (b + c - a) / 2 * math.tan(angle / 2) if inscribed else a / (2 * math.sin(angle))
    assert close(expected, value(answer))


@check
def check_pyramid_volume(question: str, answer: str) -> None:
    side, edge = numbers(question)
    sides = next(n for word, n in (("triangle", 3), ("square", 4), ("hexagon", 6)) if word in question)
    radius = side / (2 * math.sin(math.pi / sides))
    base = regular_polygon(sides, radius)
    height = math.sqrt(edge**2 - radius**2)
    assert close(math.dist((*base[0], 0), (0, 0, height)), edge)
    assert close(shoelace(base) * height / 3, value(answer))


@check
def check_two_circles(question: str, answer: str) -> None:
    if "belt" in question:
        r, s = numbers(question)
        d = r + s
        lean = math.acos((s - r) / d)
        straight = 2 * math.sqrt(d * d - (s - r) ** 2)
        assert close(straight + r * 2 * lean + s * (2 * math.pi - 2 * lean), value(answer))
        return
    r, s, d = numbers(question)
    reach = s - r if "same side" in question else -s - r
    lean = math.acos(reach / d)
    normal = cmath.rect(1.0, lean)
    # the line touches the first circle at r * normal and the second one on the same or on the other side
    first = -r * normal
    second = d - s * normal if "same side" in question else d + s * normal
    assert close(abs(((second - first) * normal.conjugate()).real), 0)
    assert close(abs(second - first), value(answer))


@check
def check_circumcenter(question: str, answer: str) -> None:
    x, y = tuple_of(answer)
    squares = {(x - a) ** 2 + (y - b) ** 2 for a, b in points_of(question)}
    assert len(squares) == 1


@check
def check_cevian_length(question: str, answer: str) -> None:
    c, b, m, n = ints(r"= (\d+)\$ and .*?= (\d+)\$.*?= (\d+)\$ and .*?= (\d+)\$", question)
    corner, q, r = place_triangle(m + n, b, c)
    assert close(abs(q + (r - q) * m / (m + n) - corner), value(answer))


# --- intermediate algebra ---------------------------------------------------------------------------------------------

for name in ("complex_arithmetic", "complex_quotient", "logarithm_value"):
    CHECKS[name] = computes


@check
def check_remainder_theorem(question: str, answer: str) -> None:
    dividend, divisor = (polynomial(f) for f in formulas(question))
    assert sympy.rem(dividend, divisor) == int(answer)


@check
def check_even_or_odd(question: str, answer: str) -> None:
    (rule,) = find(r"f\(x\) = (.*?)\$", question)
    samples = [Fraction(1, 2), Fraction(3), Fraction(7, 5), Fraction(11, 4)]
    pairs = [(value(rule, x=x), value(rule, x=-x)) for x in samples]
    even, odd = all(a == b for a, b in pairs), all(a == -b for a, b in pairs)
    assert answer == rf"\text{{{'even' if even else 'odd' if odd else 'neither'}}}"


@check
def check_radical_sum(question: str, answer: str) -> None:
    computes(question, answer)
    assert re.fullmatch(r"-?\d*\\sqrt\{\d+\}", answer)


@check
def check_complex_roots(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "=" in f)
    found = list_of(answer)
    assert len(found) == 2
    assert not close(*found)
    scale = abs(complex(value(equation.split("=")[0], x=0)))
    assert all(abs(value(equation.split("=")[0], x=x)) < 1e-9 * scale for x in found)


@check
def check_polynomial_product(question: str, answer: str) -> None:
    variable = find("([a-z])", answer)[0]
    if "product of" in question:
        first, second = find(r"product of \$(.*?)\$ and \$(.*?)\$", question)
        expression = f"({first})({second})"
    else:
        expression = formulas(question)[0]
    same_function(expression, answer, variable)
    assert "(" not in answer


@check
def check_polynomial_quotient(question: str, answer: str) -> None:
    dividend, divisor = (polynomial(f) for f in formulas(question))
    quotient, rest = sympy.div(dividend, divisor)
    assert polynomial(answer) == (
        quotient if "What is the quotient" in question or "Find the quotient" in question else rest
    )


@check
def check_vieta_cubic(question: str, answer: str) -> None:
    cubic = next(f for f in formulas(question) if "x^3" in f).split("=")[0]
    coefficients = [int(c) for c in polynomial(cubic).all_coeffs()]
    r, s, t = (complex(z) for z in mpmath.polyroots(coefficients, maxsteps=500, extraprec=200))
    assert close(value(formulas(question)[-1], r=r, s=s, t=t), value(answer), 1e-7)


@check
def check_oblique_asymptote(question: str, answer: str) -> None:
    (rule,) = find(r"(\\frac\{.*\}\{.*?\})\$", question)
    for x in (Fraction(10**9), Fraction(-(10**9))):
        assert abs(value(rule, x=x) - value(answer.split("=")[1], x=x)) < Fraction(1, 10**6)


@check
def check_logarithmic_equation(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "log" in f)
    # both logarithms increase where they are defined, so there is no second solution
    assert satisfies(equation, x=value(answer))


@check
def check_cubic_roots(question: str, answer: str) -> None:
    roots_of(question, answer, 3)


@check
def check_partial_fractions(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "A" in f and "=" in f)
    a, b = tuple_of(answer)
    assert all(satisfies(equation, A=a, B=b, x=x) for x in (Fraction(1, 3), Fraction(50), Fraction(-29, 2)))


@check
def check_conic_foci(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "=" in f)
    left, right = equation.split("=")
    x, y = sympy.symbols("x y")
    curve = sympy.expand(value(left, x=x, y=y) - value(right))
    p, q = (curve.coeff(symbol, 2) for symbol in (x, y))
    h, k = (-curve.coeff(symbol, 1).coeff(other, 0) / (2 * s) for symbol, other, s in ((x, y, p), (y, x, q)))
    level = -curve.subs({x: h, y: k})
    # half axes squared (negative for the imaginary axis of a hyperbola); the foci lie on the longer or the real axis
    a2, b2 = float(level / p), float(level / q)
    assert ("hyperbola" in question) == (a2 * b2 < 0)
    half = float(value(answer)) / 2
    along_x = a2 > b2
    foci = [complex(h, k) + sign * (half if along_x else half * 1j) for sign in (1, -1)]
    sums = []
    for angle in (0.3, 1.1, 2.0, 2.9):
        if a2 * b2 > 0:
            offset = complex(math.sqrt(a2) * math.cos(angle), math.sqrt(b2) * math.sin(angle))
        else:
            offset = complex(math.sqrt(a2) / math.cos(angle), math.sqrt(-b2) * math.tan(angle))
        point = complex(h, k) + offset
        distances = [abs(point - focus) for focus in foci]
        sums.append(sum(distances) if a2 * b2 > 0 else abs(distances[0] - distances[1]))
    assert all(close(total, sums[0]) for total in sums)


@check
def check_am_gm_minimum(question: str, answer: str) -> None:
    expression = next(f for f in formulas(question) if "frac" in f)
    (bound,) = ints(r"x > (-?\d+)", question)
    low, high = bound + 1e-6, bound + 60.0
    for _ in range(200):
        third = (high - low) / 3
        if value(expression, x=low + third) < value(expression, x=high - third):
            high -= third
        else:
            low += third
    assert close(value(expression, x=low), value(answer), 1e-7)


@check
def check_linear_remainder(question: str, answer: str) -> None:
    if "P(x)" in question:
        conditions = [(int(a), int(r)) for a, r in re.findall(r"P\((-?\d+)\) = (-?\d+)", question)]
    else:
        parts = re.findall(r"divided by \$x ([+-] \d+)\$, the remainder is \$(-?\d+)\$", question)
        conditions = [(-int(shift.replace(" ", "")), int(r)) for shift, r in parts]
    assert len(conditions) == 2
    assert all(value(answer, x=Fraction(a)) == r for a, r in conditions)
    assert polynomial(answer).degree() == 1
    dividing_by = [-int(shift.replace(" ", "")) for shift in re.findall(r"\(x ([+-] \d+)\)", question)]
    assert sorted(dividing_by) == sorted(a for a, _ in conditions)


@check
def check_polynomial_with_roots(question: str, answer: str) -> None:
    first, second = find(r"has \$(.*?)\$ and \$(.*?)\$ among", question)
    found = polynomial(answer)
    scale = sum(abs(complex(c)) * 10**i for i, c in enumerate(reversed(found.all_coeffs())))
    for number in (first, second):
        assert abs(value(answer, x=complex(value(number)))) < 1e-9 * scale
    assert found.LC() == 1
    # a rational number needs degree 1, an irrational or non-real one degree 2, and the two are not conjugate
    assert found.degree() == sum(1 if re.fullmatch(r"-?\d+", number) else 2 for number in (first, second))


@check
def check_telescoping_sum(question: str, answer: str) -> None:
    pairs = [(int(p), int(q)) for p, q in re.findall(r"\\frac\{1\}\{(\d+) \\cdot (\d+)\}", question)]
    start, step = pairs[0][0], pairs[0][1] - pairs[0][0]
    assert pairs[:3] == [(start + step * k, start + step * (k + 1)) for k in range(3)]
    if len(pairs) == 4:
        total, p = Fraction(0), start
        while p <= pairs[3][0]:
            total += Fraction(1, p * (p + step))
            p += step
        assert p == pairs[3][1]
        assert total == value(answer)
    else:
        terms = 20_000
        partial = sum(1 / (p * (p + step)) for p in range(start, start + step * terms, step))
        assert 0 < float(value(answer)) - partial < 2 / (step**2 * terms)


@check
def check_linear_form_on_conic(question: str, answer: str) -> None:
    condition = next(f for f in formulas(question) if "^2" in f)
    form = next(f for f in formulas(question) if "x" in f and "y" in f and "=" not in f)
    if "frac" in condition:
        p2, q2 = ints(r"x\^2\}\{(\d+)\} \+ \\frac\{y\^2\}\{(\d+)\} = 1", condition)
    else:
        p2 = q2 = ints(r"= (\d+)", condition)[0]
    x, y = value(form, x=1, y=0), value(form, x=0, y=1)
    samples = (2 * math.pi * k / 20_000 for k in range(20_000))
    values = [x * math.sqrt(p2) * math.cos(t) + y * math.sqrt(q2) * math.sin(t) for t in samples]
    assert close(max(values) if "maximum" in question else min(values), value(answer), 1e-6)


@check
def check_functional_equation(question: str, answer: str) -> None:
    equation = next(f for f in formulas(question) if "=" in f)
    (point,) = find(r"Find \$f\((.*?)\)\$", question)
    x = value(point)
    left, right = equation.split("=")
    a, between, c = find(r"^(\d*)f\(x\) ([+-] \d*)f(.*)$", left.strip())
    inner = c.replace(r"\left", "").replace(r"\right", "").strip()[1:-1]
    first = int(a or 1)
    second = int(between.replace(" ", "") + ("1" if between.strip()[-1] in "+-" else ""))
    partner = value(inner, x=x)
    assert value(inner, x=partner) == x
    there = (value(right, x=x) - first * value(answer)) / second  # the value at the partner, from the first equation
    assert first * there + second * value(answer) == value(right, x=partner)
    assert abs(first) != abs(second)


@check
def check_rational_function_range(question: str, answer: str) -> None:
    (rule,) = find(r"f\(x\) = (.*?)\$", question)
    values = [value(rule, x=math.tan(math.pi * (k + 0.5) / 801 - math.pi / 2)) for k in range(801)]
    low, high = list_of(answer.replace(r"\left", "").replace(r"\right", "").strip()[1:-1])
    assert "[" in answer
    assert "]" in answer
    assert low <= min(values) + 1e-12
    assert max(values) <= high + 1e-12
    assert close(min(values), low, 1e-3)
    assert close(max(values), high, 1e-3)


# --- precalculus ------------------------------------------------------------------------------------------------------

for name in ("trigonometric_value", "inverse_trigonometric_sum", "polar_product", "de_moivre", "fifteen_degrees"):
    CHECKS[name] = computes


@check
def check_vector_combination(question: str, answer: str) -> None:
    u, v = columns_of(question)
    combination = formulas(question)[-1].replace(r"\mathbf{u}", "u").replace(r"\mathbf{v}", "v")
    expected = [value(combination, u=a, v=b) for a, b in zip(u, v, strict=True)]
    assert columns_of(answer) == [expected]


@check
def check_angle_units(question: str, answer: str) -> None:
    if "to degrees" in question or "How many degrees" in question:
        radians = value(next(f for f in formulas(question) if "pi" in f))
        assert close(math.degrees(radians), in_degrees(answer))
    else:
        assert close(math.radians(ints(r"(-?\d+)\^\\circ", question)[0]), value(answer))
        assert r"\pi" in answer


@check
def check_vector_length(question: str, answer: str) -> None:
    ends_of = points_of(question, 3) or [(0, 0, 0), columns_of(question)[0]]
    assert close(math.dist(*ends_of), value(answer))


@check
def check_matrix_product(question: str, answer: str) -> None:
    left, right = matrices_of(question)
    assert matrices_of(answer) == [times(left, right)]


@check
def check_polar_coordinates(question: str, answer: str) -> None:
    given, result = tuple_of(find(r"point \$(.*?)\$", question)[0]), tuple_of(answer)
    polar, rectangular = (given, result) if "in polar coordinates to" in question else (result, given)
    assert close(cmath.rect(float(polar[0]), float(polar[1])), complex(*map(float, rectangular)))
    assert polar is given or (polar[0] > 0 and 0 <= polar[1] < 2 * math.pi)


@check
def check_cross_product(question: str, answer: str) -> None:
    u, v = columns_of(question)
    (w,) = columns_of(answer)
    assert dot(u, w) == dot(v, w) == 0
    assert dot(w, w) == dot(u, u) * dot(v, v) - dot(u, v) ** 2
    assert sympy.Matrix([u, v, w]).det() > 0


@check
def check_sinusoid_feature(question: str, answer: str) -> None:
    (rule,) = find(r"(?:y|f\(x\)) = (.*?)\$", question)
    samples = [0.137 * k for k in range(1, 30)]
    if "period" in question:
        period = value(answer)
        assert period > 0
        assert all(close(value(rule, x=x), value(rule, x=x + period), 1e-6) for x in samples)
        for part in (2, 3):
            shifted = [(value(rule, x=x), value(rule, x=x + period / part)) for x in samples]
            assert not all(close(a, b, 1e-6) for a, b in shifted)
    else:
        (coefficient, below) = find(r"\\left\(\s*(\\frac\{\d+\}\{\d+\}|\d*)x()", rule)
        assert below == ""
        speed = float(value(coefficient or "1"))
        values = [value(rule, x=2 * math.pi / speed * k / 2000) for k in range(2000)]
        assert close(max(values) if "largest" in question else min(values), int(answer), 1e-4)


@check
def check_matrix_inverse(question: str, answer: str) -> None:
    assert times(matrices_of(question)[0], matrices_of(answer)[0]) == [[1, 0], [0, 1]]


@check
def check_quadrant_value(question: str, answer: str) -> None:
    name, given = find(r"\\(sin|cos) \\theta = (.*?)\$", question)
    low, high = find(r"\$(\S+) < \\theta < (.*?)\$", question)
    (asked,) = find(r"what is \$(.*?)\$", question)
    # bisection within the quadrant, where sine and cosine are monotonic
    a, b = float(value(low)), float(value(high))
    function = FUNCTIONS["\\" + name]
    rising = function(b) > function(a)
    for _ in range(100):
        middle = (a + b) / 2
        if (function(middle) < value(given)) == rising:
            a = middle
        else:
            b = middle
    assert close(function(a), value(given))
    assert close(value(asked.replace(r"\theta", "t"), t=a), value(answer), 1e-8)


@check
def check_vector_projection(question: str, answer: str) -> None:
    u, v = columns_of(question)
    (p,) = columns_of(answer)
    assert dot([a - b for a, b in zip(u, p, strict=True)], v) == 0
    assert all(p[i] * v[j] == p[j] * v[i] for i in range(len(v)) for j in range(len(v)))


@check
def check_determinant(question: str, answer: str) -> None:
    rows = matrices_of(question)[0]
    total = 0
    for order in itertools.permutations(range(3)):
        inversions = sum(order[i] > order[j] for i in range(3) for j in range(i + 1, 3))
        total += (-1) ** inversions * math.prod(rows[i][order[i]] for i in range(3))
    assert total == int(answer)
    assert "vmatrix" in question


@check
def check_angle_between_vectors(question: str, answer: str) -> None:
    u, v = columns_of(question)
    # the Law of Cosines in the triangle of the two vectors
    a, b, c = (math.hypot(*map(float, w)) for w in (u, v, [p - q for p, q in zip(u, v, strict=True)]))
    assert close((a * a + b * b - c * c) / (2 * a * b), value(answer), 1e-8)


@check
def check_trigonometric_equation(question: str, answer: str) -> None:
    left = next(f for f in formulas(question) if "= 0" in f).split("=")[0]
    found = list_of(answer)
    assert increasing(found)
    assert found[0] >= 0
    assert found[-1] < 2 * math.pi
    assert all(abs(value(left, x=x)) < 1e-9 for x in found)
    # no other zeros: neither a change of sign nor a touching minimum away from those that were found
    steps = 1500
    grid = [2 * math.pi * (k + 0.37) / steps for k in range(-2, steps + 2)]
    values = [value(left, x=x) for x in grid]
    for k in range(1, len(grid) - 1):
        crossing = values[k - 1] * values[k] < 0
        touching = abs(values[k]) < 1e-3 and abs(values[k]) <= min(abs(values[k - 1]), abs(values[k + 1]))
        if crossing or touching:
            turns = (abs(grid[k] - x - full) for x in found for full in (0, 2 * math.pi, -2 * math.pi))
            assert min(turns) < 3 * 2 * math.pi / steps, (left, grid[k])


@check
def check_point_to_plane(question: str, answer: str) -> None:
    point = points_of(question, 3)[0]
    left = next(f for f in formulas(question) if "= 0" in f).split("=")[0]
    d = value(left, x=0, y=0, z=0)
    normal = [value(left, **{"x": 0, "y": 0, "z": 0, letter: 1}) - d for letter in "xyz"]
    t = -Fraction(value(left, **dict(zip("xyz", point, strict=True)))) / dot(normal, normal)
    foot = [Fraction(p) + t * n for p, n in zip(point, normal, strict=True)]
    assert value(left, **dict(zip("xyz", foot, strict=True))) == 0
    assert close(math.dist([float(f) for f in foot], point), value(answer))


@check
def check_angle_sum_formula(question: str, answer: str) -> None:
    angles = {}
    pattern = r"\\(sin|cos) \\(alpha|beta) = (.*?)\$ with \$(\S+) < \S+ < (.*?)\$"
    for name, symbol, given, low, high in re.findall(pattern, question):
        wanted = float(value(given))
        base = math.asin(wanted) if name == "sin" else math.acos(wanted)
        mirrored = math.pi - base if name == "sin" else -base
        turns = [angle + 2 * math.pi * k for angle in (base, mirrored) for k in (-1, 0, 1)]
        (angles[symbol],) = [angle for angle in turns if value(low) < angle < value(high)]
    (asked,) = find(r"Find \$(.*?)\$", question)
    plain = asked.replace(r"\alpha", "a").replace(r"\beta", "b")
    assert close(value(plain, a=angles["alpha"], b=angles["beta"]), value(answer))


@check
def check_roots_of_complex_number(question: str, answer: str) -> None:
    n, target = find(r"\$z\^(\d) = (.*?)\$", question)
    w = complex(value(target))
    count, modulus = int(n), abs(w) ** (1 / int(n))
    all_angles = sorted(
        (cmath.phase(w) + 2 * math.pi * k) / count % (2 * math.pi)
        for k in range(-count, 2 * count)
        if k in range(count)
    )
    all_angles = sorted(0.0 if angle > 2 * math.pi - 1e-9 else angle for angle in all_angles)
    assert all(close(cmath.rect(modulus, angle) ** count, w, 1e-7) for angle in all_angles)
    if "Find all" in question:
        assert len(list_of(answer)) == count
        assert all(close(a, b) for a, b in zip(list_of(answer), all_angles, strict=True))
    else:
        (word,) = find(r"for the (\w+) of them", question)
        place = ("first", "second", "third", "fourth", "fifth", "sixth").index(word)
        assert close(value(answer), all_angles[place])


@check
def check_matrix_power(question: str, answer: str) -> None:
    matrix = matrices_of(question)[0]
    (n,) = ints(r"(?:matrix\}|\{A\})\^\{?(\d+)\}?", question)
    result = [[1, 0], [0, 1]]
    for _ in range(n):
        result = times(result, matrix)
    assert matrices_of(answer) == [result]


@check
def check_line_meets_plane(question: str, answer: str) -> None:
    p, q = points_of(question, 3)
    point = tuple_of(answer)
    plane = next(f for f in formulas(question) if "=" in f)
    assert satisfies(plane, **dict(zip("xyz", point, strict=True)))
    along, other = [b - a for a, b in zip(p, q, strict=True)], [b - a for a, b in zip(p, point, strict=True)]
    assert all(along[i] * other[j] == along[j] * other[i] for i in range(3) for j in range(3))


@check
def check_plane_through_points(question: str, answer: str) -> None:
    left = answer.removesuffix(" = 0")
    assert left != answer
    for point in points_of(question, 3):
        assert value(left, **dict(zip("xyz", map(Fraction, point), strict=True))) == 0
    d = value(left, x=0, y=0, z=0)
    normal = [value(left, **{"x": 0, "y": 0, "z": 0, letter: 1}) - d for letter in "xyz"]
    assert normal[0] > 0
    assert math.gcd(*(int(n) for n in (*normal, d))) == 1


@check
def check_skew_lines(question: str, answer: str) -> None:
    p, u, q, v = columns_of(question)
    gap = [b - a for a, b in zip(p, q, strict=True)]
    # the shortest connection is perpendicular to both lines: solve for the two parameters
    s, t = sympy.symbols("s t")
    connection = [g + t * b - s * a for g, a, b in zip(gap, u, v, strict=True)]
    solution = sympy.solve([dot(connection, u), dot(connection, v)], [s, t])
    assert close(math.hypot(*(float(c.subs(solution)) for c in connection)), value(answer))


@check
def check_triangle_in_space(question: str, answer: str) -> None:
    p, q, r = points_of(question, 3)
    assert close(heron(math.dist(p, q), math.dist(q, r), math.dist(r, p)), value(answer), 1e-6)


@check
def check_wave_range(question: str, answer: str) -> None:
    rule = next(f for f in formulas(question) if "sin" in f).removeprefix("f(x) =")
    values = [value(rule, x=2 * math.pi * k / 900) for k in range(900)]
    low, high = list_of(answer.replace(r"\left", "").replace(r"\right", "").strip()[1:-1])
    assert low <= min(values) <= low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) <= max(values) <= high


# --- the tests --------------------------------------------------------------------------------------------------------

ALL_TEMPLATES = [template for cell in TEMPLATES.values() for template in cell]


def test_every_template_has_its_check() -> None:
    assert {template.name for template in ALL_TEMPLATES} == set(CHECKS)


@pytest.mark.parametrize("template", ALL_TEMPLATES, ids=lambda template: template.name)
def test_answers_are_right(template: Template) -> None:
    seen = set()
    for instance in range(INSTANCES):
        draft = template.draw(random.Random(f"{template.name} {instance}"))
        CHECKS[template.name](draft.question, draft.answer)
        seen.add(draft.question)
    assert len(seen) > INSTANCES // 2


@pytest.mark.parametrize("template", ALL_TEMPLATES, ids=lambda template: template.name)
def test_checks_reject_the_answers_of_other_instances(template: Template) -> None:
    drafts = [template.draw(random.Random(f"other {template.name} {instance}")) for instance in range(5)]
    swapped = [(a.question, b.answer) for a, b in itertools.pairwise(drafts) if a.answer != b.answer]
    assert swapped
    for question, answer in swapped:
        with pytest.raises((AssertionError, ArithmeticError, LookupError, SyntaxError, TypeError, ValueError)):
            CHECKS[template.name](question, answer)


@pytest.mark.parametrize("template", ALL_TEMPLATES, ids=lambda template: template.name)
def test_equations_in_the_solutions_hold(template: Template) -> None:
    """In every chain of equations of a worked solution, neighbours that have a numerical value agree."""
    for instance in range(10):
        draft = template.draw(random.Random(f"{template.name} {instance}"))
        for formula in formulas(draft.solution):
            if template.name == "mixed_number_division":
                formula = re.sub(r"(\d+)(\\frac\{\d+\}\{\d+\})", r"(\1 + \2)", formula)
            for left, right in itertools.pairwise(formula.split("=")):
                try:
                    sides = value(left), value(right)
                except SyntaxError:  # a letter, a subscript, another relation: no number
                    continue
                assert close(*sides), (formula, draft.question)


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"2 + 3 \cdot (4 - 6) - 7", Fraction(-11)),
        (r"-\frac{3}{4} + 2^3", Fraction(29, 4)),
        (r"\frac{-4 - \sqrt{34}}{2}", (-4 - 34**0.5) / 2),
        (r"2\sin^2 \left(\frac{\pi}{6}\right) + \cos 60^\circ", 1.0),
        (r"(2 - i)(2 + i)", 5),
        (r"\log_{8} 4 + \frac{5!}{3!}", 20 + 2 / 3),
        (r"|3 - 8|2^{-1}", Fraction(5, 2)),
        (r"7\pi\sqrt{2}", 7 * math.pi * 2**0.5),
    ],
)
def test_the_reader(latex: str, expected: complex) -> None:
    assert close(value(latex), expected)
