"""Intermediate algebra: polynomials, complex numbers, logarithms, conics, extrema, functional equations."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import Draft, distinct, nonzero, template

SUBJECT = "intermediate_algebra"
INFINITY = r"\infty"
RADICAL = " Express your answer in simplest radical form."


def _times(left: list[int], right: list[int]) -> list[int]:
    """Product of two polynomials given by their coefficients, highest power first."""
    result = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            result[i + j] += a * b
    return result


def _at(coefficients: list[int], x: int) -> int:
    """Value of a polynomial."""
    value = 0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value


@template(SUBJECT, 1)
def remainder_theorem(rng: Random) -> Draft:
    """Remainder of a polynomial modulo a linear factor."""
    coefficients = [
        nonzero(rng, 4),
        *(rng.randint(-9, 9) for _ in range(rng.randint(1, 2))),
        nonzero(rng, 9),
        nonzero(rng, 15),
    ]
    at = nonzero(rng, 3)
    result = _at(coefficients, at)
    polynomial = tex.polynomial(coefficients)
    return Draft(
        rng.choice(
            (
                f"What is the remainder when ${polynomial}$ is divided by ${tex.polynomial([1, -at])}$?",
                f"Find the remainder of the division of ${polynomial}$ by ${tex.polynomial([1, -at])}$.",
            )
        ),
        str(result),
        f"By the Remainder Theorem the remainder is the value of the polynomial at $x = {at}$, which is "
        f"${' + '.join(tex.paren(c * at ** (len(coefficients) - 1 - i)) for i, c in enumerate(coefficients) if c)} = "
        f"{result}$.",
    )


@template(SUBJECT, 1)
def complex_arithmetic(rng: Random) -> Draft:
    """A product, a square, or a combination of complex numbers."""
    while True:
        a, b, c, d = (nonzero(rng, 9) for _ in range(4))
        if a * c != b * d and a * d != -b * c and abs(a) != abs(b):
            break
    z, w = tex.complex_number(a, b), tex.complex_number(c, d)
    kind = rng.randrange(3)
    if kind == 0:
        expression, result = f"({z})({w})", tex.complex_number(a * c - b * d, a * d + b * c)
        steps = (
            f"Multiplying out, $({z})({w}) = "
            f"{tex.combination((a * c, ''), (a * d, 'i'), (b * c, 'i'), (b * d, 'i^2'))}$. Since $i^2 = -1$, this is "
            f"${result}$."
        )
    elif kind == 1:
        expression, result = f"({z})^2", tex.complex_number(a * a - b * b, 2 * a * b)
        steps = (
            f"Squaring, $({z})^2 = {tex.combination((a * a, ''), (2 * a * b, 'i'), (b * b, 'i^2'))}$. Since $i^2 = "
            f"-1$, this is ${result}$."
        )
    else:
        m, n = rng.randint(2, 6), rng.randint(2, 6)
        expression = f"{m}({z}) - {n}({w})"
        result = tex.complex_number(m * a - n * c, m * b - n * d)
        steps = (
            f"The real part is ${m} \\cdot {tex.paren(a)} - {n} \\cdot {tex.paren(c)} = {m * a - n * c}$ and the "
            f"imaginary part is ${m} \\cdot {tex.paren(b)} - {n} \\cdot {tex.paren(d)} = {m * b - n * d}$."
        )
    return Draft(
        rng.choice(
            (f"Evaluate ${expression}$, where $i^2 = -1$.", f"Simplify ${expression}$, where $i = \\sqrt{{-1}}$.")
        )
        + " Express your answer in the form $a + bi$.",
        result,
        steps,
    )


@template(SUBJECT, 1)
def even_or_odd(rng: Random) -> Draft:
    """Parity of a function."""
    kind = rng.choice(("even", "odd", "neither"))
    a, b, c = nonzero(rng, 9), nonzero(rng, 9), nonzero(rng, 9)
    even = tex.combination((a, tex.power("x", rng.choice((4, 6)))), (b, "x^2"), (c, ""))
    odd = tex.combination((a, tex.power("x", rng.choice((5, 7)))), (b, "x^3"), (c, "x"))
    mixed = tex.combination((a, tex.power("x", rng.choice((4, 6)))), (b, "x^3"), (c, "x" if rng.random() < 0.5 else ""))
    m = rng.randint(1, 9)
    rule, steps = {
        "even": rng.choice(
            (
                (even, "only even powers of $x$ occur, so $f(-x) = f(x)$"),
                (
                    tex.frac(even, f"x^2 + {m}"),
                    "numerator and denominator do not change with the sign of $x$, so $f(-x) = f(x)$",
                ),
                (
                    tex.frac(odd, tex.polynomial([1, 0, m, 0])),
                    "numerator and denominator both change their signs, so $f(-x) = f(x)$",
                ),
            )
        ),
        "odd": rng.choice(
            (
                (odd, "only odd powers of $x$ occur, so $f(-x) = -f(x)$"),
                (
                    tex.frac(odd, f"x^2 + {m}"),
                    "the numerator changes its sign and the denominator does not, so $f(-x) = -f(x)$",
                ),
            )
        ),
        "neither": rng.choice(
            (
                (mixed, "even and odd powers of $x$ both occur, so $f(-x)$ is neither $f(x)$ nor $-f(x)$"),
                (
                    tex.frac(even, tex.polynomial([1, 0, 0, m, m + 20])),
                    "the numerator keeps its value, but the denominator has even and odd powers, so $f(-x)$ is neither "
                    "$f(x)$ nor "
                    "$-f(x)$",
                ),
            )
        ),
    }[kind]
    return Draft(
        f"Is the function $f(x) = {rule}$ an even function, an odd function, or neither? "
        'Answer with "even", "odd" or "neither".',
        rf"\text{{{kind}}}",
        f"Replacing $x$ by $-x$, {steps}. The answer in one word: {kind}.",
    )


@template(SUBJECT, 1)
def radical_sum(rng: Random) -> Draft:
    """A sum of square roots with one common radical."""
    inside = rng.choice((2, 3, 5, 6, 7, 10, 11))
    while True:
        a, b, c = (rng.randint(1, 9) for _ in range(3))
        s, t = rng.choice((1, -1)), rng.choice((1, -1))
        total = a + s * b + t * c
        if len({a, b, c}) == 3 and total:
            break
    plus, more = ("+" if s > 0 else "-"), ("+" if t > 0 else "-")
    expression = f"{tex.root(a * a * inside)} {plus} {tex.root(b * b * inside)} {more} {tex.root(c * c * inside)}"
    answer = tex.surd(total, inside)
    symbol = tex.root(inside)
    simple = tex.combination((a, symbol), (s * b, symbol), (t * c, symbol))
    return Draft(
        rng.choice(
            (f"Simplify ${expression}$.", f"Write ${expression}$ as a single radical with an integer coefficient.")
        )
        + RADICAL,
        answer,
        f"Taking the square factors out of the roots, the expression is ${simple} = {answer}$.",
    )


@template(SUBJECT, 2)
def complex_quotient(rng: Random) -> Draft:
    """Quotient of two complex numbers."""
    while True:
        a, b, c, d = (nonzero(rng, 9) for _ in range(4))
        if a * d != b * c and a * c != -b * d:
            break
    norm = c * c + d * d
    real, imaginary = a * c + b * d, b * c - a * d
    expression = tex.frac(tex.complex_number(a, b), tex.complex_number(c, d))
    answer = tex.complex_number(Fraction(real, norm), Fraction(imaginary, norm))
    conjugate = tex.complex_number(c, -d)
    return Draft(
        rng.choice(
            (
                f"Write ${expression}$ in the form $a + bi$, where $a$ and $b$ are real numbers.",
                f"Divide: ${expression}$. Express your answer in the form $a + bi$ with real numbers $a$ and $b$.",
            )
        ),
        answer,
        f"Multiplying numerator and denominator by the conjugate ${conjugate}$ makes the denominator ${c * c} + "
        f"{d * d} = {norm}$ and the numerator $({tex.complex_number(a, b)})({conjugate}) = "
        f"{tex.complex_number(real, imaginary)}$. So the quotient is ${answer}$.",
    )


@template(SUBJECT, 2)
def complex_roots(rng: Random) -> Draft:
    """Quadratic equations with conjugate roots."""
    p, square = nonzero(rng, 9), rng.randint(1, 60)
    outside, inside = tex.square_part(square)
    radical = "i" if inside == 1 else rf"i{tex.root(inside)}"
    roots = [tex.combination((p, ""), (sign * outside, radical)) for sign in (1, -1)]
    lead = rng.choice((1, 1, 2, 3))
    equation = f"{tex.polynomial([lead, -2 * lead * p, lead * (p * p + square)])} = 0"
    return Draft(
        rng.choice(
            (
                f"Find all complex solutions of ${equation}$.",
                f"Solve ${equation}$ over the complex numbers.",
            )
        )
        + " List the solutions, separated by commas.",
        tex.listing(roots),
        (f"Dividing by ${lead}$ and completing" if lead > 1 else "Completing")
        + f" the square, $({tex.polynomial([1, -p])})^2 = {-square}$. So ${tex.polynomial([1, -p])} = \\pm "
        f"{tex.root(-square)}$, which gives $x = {roots[0]}$ and $x = {roots[1]}$.",
    )


@template(SUBJECT, 2)
def polynomial_product(rng: Random) -> Draft:
    """Product of two quadratics, or of a linear factor and a cubic."""
    if rng.random() < 0.5:
        left = [rng.randint(1, 3), nonzero(rng, 6), nonzero(rng, 9)]
        right = [rng.randint(1, 3), nonzero(rng, 6), nonzero(rng, 9)]
    else:
        left = [rng.randint(1, 4), nonzero(rng, 9)]
        right = [rng.randint(1, 3), rng.randint(-5, 5), nonzero(rng, 6), nonzero(rng, 9)]
    variable = rng.choice("xyzt")
    result = tex.polynomial(_times(left, right), variable)
    first, second = tex.polynomial(left, variable), tex.polynomial(right, variable)
    rows = ", ".join(
        f"${tex.polynomial([*_times([c], right), *([0] * (len(left) - 1 - place))], variable)}$"
        for place, c in enumerate(left)
    )
    return Draft(
        rng.choice(
            (
                f"Expand $({first})({second})$ and collect like terms.",
                f"What polynomial in ${variable}$ is the product of ${first}$ and ${second}$? Express your answer in "
                f"expanded form.",
            )
        ),
        result,
        f"Multiplying ${second}$ by each term of ${first}$ gives {rows}. Adding these up, the product is ${result}$.",
    )


@template(SUBJECT, 2)
def logarithm_value(rng: Random) -> Draft:
    """Sum or difference of two logarithms of powers of the bases' roots."""

    def draw() -> tuple[int, int, int]:
        prime = rng.choice((2, 3, 5, 7, 10))
        limit = {2: 6, 3: 4, 5: 3, 7: 3, 10: 4}[prime]
        m = rng.randint(1, limit)
        n = rng.choice([n for n in range(-limit, limit + 1) if n and n != m])
        return prime, m, n

    (p, m, n), (q, s, t) = draw(), draw()
    while p == q:
        q, s, t = draw()

    def written(prime: int, base_power: int, power: int) -> str:
        argument = str(prime**power) if power > 0 else tex.frac(1, prime**-power)
        return rf"\log_{{{prime**base_power}}} {argument}"

    sign = rng.choice((1, -1))
    first, second = Fraction(n, m), Fraction(t, s)
    result = first + sign * second
    expression = f"{written(p, m, n)} {'+' if sign == 1 else '-'} {written(q, s, t)}"
    return Draft(
        rng.choice((f"Evaluate ${expression}$.", f"Compute ${expression}$."))
        + " Express your answer as an integer or as a fraction in lowest terms.",
        tex.number(result),
        f"In powers of ${p}$: ${written(p, m, n)} = {tex.equal(tex.frac(n, m), tex.number(first))}$. In powers of "
        f"${q}$: ${written(q, s, t)} = {tex.equal(tex.frac(t, s), tex.number(second))}$. "
        f"{'Adding' if sign == 1 else 'Subtracting'}, the value is ${tex.number(result)}$.",
    )


@template(SUBJECT, 3)
def polynomial_quotient(rng: Random) -> Draft:
    """Quotient, or remainder, of a polynomial division by a quadratic."""
    divisor = [1, rng.randint(-5, 5), nonzero(rng, 6)]
    quotient = [nonzero(rng, 4), *(rng.randint(-6, 6) for _ in range(rng.randint(0, 1))), nonzero(rng, 8)]
    remainder = [nonzero(rng, 9), nonzero(rng, 9)]
    dividend = _times(divisor, quotient)
    dividend[-2] += remainder[0]
    dividend[-1] += remainder[1]
    top, bottom = tex.polynomial(dividend), tex.polynomial(divisor)
    asked, answer = rng.choice((("quotient", tex.polynomial(quotient)), ("remainder", tex.polynomial(remainder))))
    return Draft(
        rng.choice(
            (
                f"What is the {asked} when ${top}$ is divided by ${bottom}$?",
                f"Dividing ${top}$ by ${bottom}$ gives a quotient and a remainder. Find the {asked}.",
            )
        ),
        answer,
        f"Long division gives ${top} = ({bottom})({tex.polynomial(quotient)}) + ({tex.polynomial(remainder)})$. The "
        f"{asked} is ${answer}$.",
    )


@template(SUBJECT, 3)
def vieta_cubic(rng: Random) -> Draft:
    """A symmetric function of the roots of a cubic."""
    lead = rng.choice((1, 1, 2, 3))
    b, c, d = nonzero(rng, 9), nonzero(rng, 9), nonzero(rng, 9)
    e1, e2, e3 = Fraction(-b, lead), Fraction(c, lead), Fraction(-d, lead)
    expression, value, step = rng.choice(
        (
            ("r^2 + s^2 + t^2", e1 * e1 - 2 * e2, r"(r + s + t)^2 - 2(rs + st + tr)"),
            (r"\frac{1}{r} + \frac{1}{s} + \frac{1}{t}", e2 / e3, r"\frac{rs + st + tr}{rst}"),
            ("(1 + r)(1 + s)(1 + t)", 1 + e1 + e2 + e3, r"1 + (r + s + t) + (rs + st + tr) + rst"),
            (r"\frac{1}{rs} + \frac{1}{st} + \frac{1}{tr}", e1 / e3, r"\frac{r + s + t}{rst}"),
            ("(r + s)(s + t)(t + r)", e1 * e2 - e3, r"(r + s + t)(rs + st + tr) - rst"),
        )
    )
    return Draft(
        rng.choice(
            (
                f"Let $r$, $s$ and $t$ be the roots of ${tex.polynomial([lead, b, c, d])} = 0$. Compute "
                f"${expression}$.",
                f"The polynomial ${tex.polynomial([lead, b, c, d])}$ has the complex roots $r$, $s$ and $t$, counted "
                f"with multiplicity. Find ${expression}$.",
            )
        ),
        tex.number(value),
        f"By Vieta's formulas $r + s + t = {tex.number(e1)}$, $rs + st + tr = {tex.number(e2)}$ and $rst = "
        f"{tex.number(e3)}$. The expression equals ${step} = {tex.number(value)}$.",
    )


@template(SUBJECT, 3)
def oblique_asymptote(rng: Random) -> Draft:
    """Slant asymptote of a rational function."""
    while True:
        a, b, c = nonzero(rng, 6), rng.randint(-9, 9), rng.randint(-15, 15)
        p = nonzero(rng, 7)
        intercept, rest = b + a * p, c + p * (b + a * p)
        if rest and intercept:
            break
    rule = tex.frac(tex.polynomial([a, b, c]), tex.polynomial([1, -p]))
    answer = f"y = {tex.polynomial([a, intercept])}"
    return Draft(
        rng.choice(
            (
                f"What is the oblique asymptote of the graph of $y = {rule}$?",
                f"The graph of $f(x) = {rule}$ has a slant asymptote. Find its equation.",
            )
        )
        + " Express your answer in the form $y = mx + b$.",
        answer,
        f"Dividing, ${rule} = "
        f"{tex.signed_sum([tex.polynomial([a, intercept]), tex.frac(rest, tex.polynomial([1, -p]))])}$. For large "
        f"$|x|$ the last fraction tends to $0$, so the graph approaches ${answer}$.",
    )


@template(SUBJECT, 3)
def logarithmic_equation(rng: Random) -> Draft:
    """`log(x - p) + log(x - q) = n` with one admissible root."""
    base = rng.choice((2, 2, 3, 3, 4, 5, 6, 10))
    limit = {2: 7, 3: 4, 4: 3, 5: 3, 6: 3, 10: 2}[base]
    i, j = distinct(rng, 0, limit, 2)
    root = rng.randint(-12, 20)
    p, q = root - base**i, root - base**j
    while p == 0 or q == 0:
        root = rng.randint(-12, 20)
        p, q = root - base**i, root - base**j
    n = i + j
    factors = [tex.polynomial([1, -p]), tex.polynomial([1, -q])]
    rng.shuffle(factors)
    other = p + q - root
    return Draft(
        rng.choice(
            (
                rf"Solve $\log_{{{base}}} ({factors[0]}) + \log_{{{base}}} ({factors[1]}) = {n}$ for the real number "
                rf"$x$.",
                rf"Find the real number $x$ that satisfies $\log_{{{base}}} ({factors[0]}) + \log_{{{base}}} "
                rf"({factors[1]}) = {n}$.",
            )
        ),
        str(root),
        f"Combining the logarithms gives $({factors[0]})({factors[1]}) = {base}^{n} = {base**n}$, a quadratic equation "
        f"with the solutions $x = {root}$ and $x = {other}$. For $x = {other}$ the arguments of the logarithms are "
        f"negative, so only $x = {root}$ remains.",
    )


@template(SUBJECT, 4)
def cubic_roots(rng: Random) -> Draft:
    """All roots of a cubic with rational roots."""
    while True:
        q = rng.choice((1, 1, 2, 3))
        r, s, t = Fraction(nonzero(rng, 7), q), Fraction(nonzero(rng, 7)), Fraction(nonzero(rng, 7))
        if r.denominator == q and len({r, s, t}) == 3:
            break
    coefficients = _times(_times([q, -int(q * r)], [1, -int(s)]), [1, -int(t)])
    roots = sorted((r, s, t))
    first = s
    rest = _times([q, -int(q * r)], [1, -int(t)])
    return Draft(
        rng.choice(
            (
                f"Find all roots of the polynomial ${tex.polynomial(coefficients)}$.",
                f"Find all solutions of ${tex.polynomial(coefficients)} = 0$.",
            )
        )
        + " List them in increasing order, separated by commas.",
        tex.listing(map(tex.number, roots)),
        f"Trying the divisors of the constant term shows that $x = {tex.number(first)}$ is a root. Dividing by "
        f"${tex.polynomial([1, -int(first)])}$ leaves ${tex.polynomial(rest)} = "
        f"{tex.factor_for_root(r)}{tex.factor_for_root(t)}$, with the roots ${tex.number(r)}$ and ${tex.number(t)}$.",
    )


@template(SUBJECT, 4)
def partial_fractions(rng: Random) -> Draft:
    """The two constants of a partial fraction decomposition."""
    while True:
        p, q = nonzero(rng, 9), rng.randint(-15, 15)
        a, b = nonzero(rng, 8), nonzero(rng, 8)
        if a != b and p * a + q and p * b + q:
            break
    first, second = Fraction(p * a + q, a - b), Fraction(p * b + q, b - a)
    whole = tex.frac(tex.polynomial([p, q]), f"{tex.factor_for_root(a)}{tex.factor_for_root(b)}")
    parts = f"{tex.frac('A', tex.polynomial([1, -a]))} + {tex.frac('B', tex.polynomial([1, -b]))}"
    return Draft(
        rng.choice(
            (
                f"The equation ${whole} = {parts}$ holds for all real $x$ where both sides are defined. Find the "
                f"ordered pair "
                "$(A, B)$ of constants.",
                f"Find the ordered pair $(A, B)$ of constants such that ${whole} = {parts}$ for all admissible values "
                f"of $x$.",
            )
        ),
        tex.ordered(map(tex.number, (first, second))),
        f"Clearing denominators, ${tex.polynomial([p, q])} = A{tex.factor_for_root(b)} + B{tex.factor_for_root(a)}$. "
        f"Setting $x = {a}$ gives ${p * a + q} = {tex.multiple(a - b, 'A')}$, so $A = {tex.number(first)}$; setting $x "
        f"= {b}$ gives ${p * b + q} = {tex.multiple(b - a, 'B')}$, so $B = {tex.number(second)}$.",
    )


@template(SUBJECT, 4)
def conic_foci(rng: Random) -> Draft:
    """Distance between the foci of an ellipse or a hyperbola."""
    while True:
        a2, b2 = rng.randint(2, 60), rng.randint(2, 60)
        if a2 != b2:
            break
    h, k = nonzero(rng, 6), nonzero(rng, 6)
    x, y = f"({tex.polynomial([1, -h])})^2", f"({tex.polynomial([1, -k], 'y')})^2"
    kind = rng.randrange(3)
    if kind == 0:
        curve, square = "hyperbola", a2 + b2
        equation = f"{tex.frac(x, a2)} - {tex.frac(y, b2)} = 1"
        step = f"For a hyperbola $c^2$ is the sum of the denominators, ${a2} + {b2} = {square}$."
    else:
        curve, square = "ellipse", abs(a2 - b2)
        equation = f"{tex.frac(x, a2)} + {tex.frac(y, b2)} = 1"
        step = (
            f"For an ellipse $c^2$ is the difference of the denominators, ${max(a2, b2)} - {min(a2, b2)} = {square}$."
        )
        if kind == 2:
            a2, b2 = rng.choice(
                ((4, 9), (9, 4), (4, 3), (3, 4), (2, 5), (5, 2), (7, 4), (3, 7), (2, 3), (3, 2), (5, 4), (2, 9))
            )
            square = abs(a2 - b2)
            constant = b2 * h * h + a2 * k * k - a2 * b2
            equation = (
                tex.combination((b2, "x^2"), (a2, "y^2"), (-2 * b2 * h, "x"), (-2 * a2 * k, "y"), (constant, ""))
                + " = 0"
            )
            step = (
                f"Completing the squares gives ${tex.term(b2, x)} + {tex.term(a2, y)} = {a2 * b2}$, that is "
                f"${tex.frac(x, a2)} + {tex.frac(y, b2)} = 1$. So $c^2 = {max(a2, b2)} - {min(a2, b2)} = {square}$."
            )
    answer = tex.surd(2, square)
    return Draft(
        rng.choice(
            (
                f"What is the distance between the foci of the {curve} ${equation}$?",
                f"The equation ${equation}$ describes {'an' if curve == 'ellipse' else 'a'} {curve}. How far apart are "
                f"its two foci?",
            )
        )
        + RADICAL,
        answer,
        f"Let $c$ be the distance from the center to a focus. {step} The foci are $2c = {answer}$ apart.",
    )


@template(SUBJECT, 4)
def am_gm_minimum(rng: Random) -> Draft:
    """Minimum of a sum whose product is constant."""
    a, b, c = rng.randint(1, 12), rng.randint(1, 20), nonzero(rng, 8) if rng.random() < 0.6 else 0
    below = tex.polynomial([1, -c])
    expression = tex.signed_sum([tex.polynomial([a, 0]), tex.frac(b, below)])
    answer = tex.surd_sum(a * c, 2, a * b)
    shifted = f"{tex.term(a, f'({below})')} + {tex.frac(b, below)}" if c else expression
    shift = f" Adding ${a * c}$ gives the minimum ${answer}$." if c else ""
    rewrite = f"Write the expression as ${tex.signed_sum([shifted, tex.number(a * c)])}$. " if c else ""
    return Draft(
        rng.choice(
            (
                f"What is the minimum value of ${expression}$ for real $x > {c}$?",
                f"Let $x$ be a real number with $x > {c}$. Find the smallest possible value of ${expression}$.",
            )
        )
        + RADICAL,
        answer,
        rf"{rewrite}By the AM-GM inequality ${shifted} \ge 2\sqrt{{{a} \cdot {b}}} = {tex.surd(2, a * b)}$, with "
        rf"equality when the two terms are equal.{shift}",
    )


@template(SUBJECT, 4)
def linear_remainder(rng: Random) -> Draft:
    """Remainder modulo a product of two linear factors from the two single remainders."""
    a, b = rng.sample([n for n in range(-7, 8) if n], 2)
    slope = Fraction(nonzero(rng, 9), rng.choice((1, 1, 2, 3)))
    while (slope * (b - a)).denominator > 1:
        slope = Fraction(nonzero(rng, 9), rng.choice((1, 1, 2, 3)))
    r = nonzero(rng, 20)
    s = int(r + slope * (b - a))
    answer = tex.polynomial([slope, r - slope * a])
    one, two = tex.polynomial([1, -a]), tex.polynomial([1, -b])
    return Draft(
        rng.choice(
            (
                f"When a polynomial is divided by ${one}$, the remainder is ${r}$. When it is divided by ${two}$, the "
                f"remainder is ${s}$. What is the remainder when it is divided by $({one})({two})$?",
                f"A polynomial $P(x)$ satisfies $P({a}) = {r}$ and $P({b}) = {s}$. Find the remainder when $P(x)$ is "
                f"divided by $({one})({two})$.",
            )
        )
        + " Express your answer as a polynomial in $x$.",
        answer,
        rf"The remainder has the form $mx + n$ and takes the values ${r}$ at $x = {a}$ and ${s}$ at $x = {b}$. So $m = "
        rf"\frac{{{s} - {tex.paren(r)}}}{{{b} - {tex.paren(a)}}} = {tex.number(slope)}$ and $n = {r} - "
        rf"{tex.paren(slope)} \cdot {tex.paren(a)} = {tex.number(r - slope * a)}$.",
    )


@template(SUBJECT, 5)
def quotient_inequality(rng: Random) -> Draft:
    """A quadratic over a linear polynomial compared with zero."""
    points = distinct(rng, -9, 9, 3)
    pole = rng.choice([n for n in points if n])
    roots = [n for n in points if n != pole]
    relation = rng.choice(("<", r"\le", ">", r"\ge"))
    strict = relation in ("<", ">")
    a, b, c = points

    def left(n: int) -> str:
        return "(" if strict or n == pole else "["

    def right(n: int) -> str:
        return ")" if strict or n == pole else "]"

    if relation in (">", r"\ge"):
        parts = [tex.interval(str(a), str(b), left(a) + right(b)), tex.interval(str(c), INFINITY, left(c) + ")")]
    else:
        parts = [tex.interval("-" + INFINITY, str(a), "(" + right(a)), tex.interval(str(b), str(c), left(b) + right(c))]
    answer = r" \cup ".join(parts)
    quadratic = tex.polynomial([1, -sum(roots), roots[0] * roots[1]])
    expression = tex.frac(quadratic, tex.polynomial([1, -pole]))
    return Draft(
        rng.choice(
            (
                f"Solve the inequality ${expression} {relation} 0$.",
                f"Find all real numbers $x$ for which ${expression} {relation} 0$.",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        f"The numerator factors as ${tex.factor_for_root(roots[0])}{tex.factor_for_root(roots[1])}$, so the sign can "
        f"change only at ${a}$, ${b}$ and ${c}$. To the right of ${c}$ the quotient is positive, and the sign "
        f"alternates from interval to interval. The point ${pole}$ is excluded because the denominator vanishes there.",
    )


@template(SUBJECT, 5)
def polynomial_with_roots(rng: Random) -> Draft:
    """Monic polynomial of least degree with rational coefficients and two given irrational or complex roots."""
    p = rng.randint(-5, 5)
    if rng.random() < 0.5:
        n = rng.choice((2, 3, 5, 6, 7, 10, 11))
        first = [1, -2 * p, p * p - n]
        one, partner = tex.combination((p, ""), (1, tex.root(n))), tex.combination((p, ""), (-1, tex.root(n)))
    else:
        q = rng.randint(1, 5)
        first = [1, -2 * p, p * p + q * q]
        one, partner = tex.complex_number(p, q), tex.complex_number(p, -q)
    r = nonzero(rng, 6)
    second = [1, -r]
    if rng.random() < 0.5:
        m = rng.choice((13, 14, 15, 17, 19))
        s = rng.randint(-3, 3)
        second = [1, -2 * s, s * s - m]
        two = tex.combination((s, ""), (1, tex.root(m)))
        also = f" and of ${two}$ the number ${tex.combination((s, ''), (-1, tex.root(m)))}$"
    else:
        two, also = str(r), ""
    answer = tex.polynomial(_times(first, second))
    return Draft(
        f"Find the monic polynomial in $x$ of least degree with rational coefficients that has ${one}$ and ${two}$ "
        f"among its roots. "
        "Express your answer in expanded form.",
        answer,
        f"With ${one}$ its conjugate ${partner}$ must be a root{also}. The corresponding factors with rational "
        f"coefficients are ${tex.polynomial(first)}$ and ${tex.polynomial(second)}$. Their product is ${answer}$.",
    )


@template(SUBJECT, 5)
def telescoping_sum(rng: Random) -> Draft:
    """Finite or infinite sums of products of reciprocals in arithmetic progression."""
    a, b = rng.randint(1, 7), rng.randint(0, 9)
    n = rng.randint(8, 120)
    infinite = rng.random() < 0.4
    total = Fraction(1, a * (a + b)) - (0 if infinite else Fraction(1, a * (a * (n + 1) + b)))

    def factor(k: int) -> int:
        return a * k + b

    shown = " + ".join(rf"\frac{{1}}{{{factor(k)} \cdot {factor(k + 1)}}}" for k in (1, 2, 3))
    last = "" if infinite else rf" + \frac{{1}}{{{factor(n)} \cdot {factor(n + 1)}}}"
    rest = "" if infinite else f" - {tex.frac(1, factor(n + 1))}"
    scale = "" if a == 1 else rf"{tex.frac(1, a)} \cdot "
    general = rf"\frac{{1}}{{m(m + {a})}} = {scale}\left(\frac{{1}}{{m}} - \frac{{1}}{{m + {a}}}\right)"
    head = tex.number(Fraction(1, factor(1)))
    inner = head if infinite else rf"\left({head}{rest}\right)"
    return Draft(
        rng.choice(
            (
                rf"Compute the {'infinite ' if infinite else ''}sum ${shown} + \cdots{last}$.",
                rf"Evaluate ${shown} + \cdots{last}$" + (", where the sum goes on forever." if infinite else "."),
            )
        )
        + " Express your answer as a common fraction.",
        tex.number(total),
        rf"Since ${general}$, all inner terms cancel in pairs. What remains is "
        f"${tex.equal(scale + inner, tex.number(total))}$.",
    )


@template(SUBJECT, 5)
def linear_form_on_conic(rng: Random) -> Draft:
    """Extreme value of a linear form on a circle or an ellipse."""
    a, b = nonzero(rng, 9), nonzero(rng, 9)
    p, q = rng.randint(2, 9), rng.randint(2, 9)
    circle = rng.random() < 0.4
    which, sign = rng.choice((("maximum", 1), ("minimum", -1)))
    form = tex.combination((a, "x"), (b, "y"))
    if circle:
        n = rng.randint(2, 60)
        condition, square = f"x^2 + y^2 = {n}", (a * a + b * b) * n
        step = rf"$({form})^2 \le ({a * a} + {b * b})(x^2 + y^2) = {square}$"
    else:
        condition = f"{tex.frac('x^2', p * p)} + {tex.frac('y^2', q * q)} = 1"
        square = (a * p) ** 2 + (b * q) ** 2
        step = (
            rf"$({form})^2 = \left({a * p} \cdot \frac{{x}}{{{p}}} {'+' if b > 0 else '-'} {abs(b) * q} \cdot "
            rf"\frac{{y}}{{{q}}}\right)^2 \le {(a * p) ** 2} + {(b * q) ** 2} = {square}$"
        )
    answer = tex.surd(sign, square)
    return Draft(
        rng.choice(
            (
                f"The real numbers $x$ and $y$ satisfy ${condition}$. What is the {which} value of ${form}$?",
                f"Find the {which} of ${form}$ over all real numbers $x$ and $y$ with ${condition}$.",
            )
        )
        + RADICAL,
        answer,
        rf"By the Cauchy-Schwarz inequality, {step}, and equality is attained for both signs. So the {which} is "
        rf"${answer}$.",
    )


@template(SUBJECT, 5)
def functional_equation(rng: Random) -> Draft:
    """A functional equation that pairs x with 1/x or with c - x."""
    while True:
        a, b = rng.randint(1, 6), nonzero(rng, 6)
        if abs(a) != abs(b):
            break
    m, n = nonzero(rng, 6), rng.randint(-6, 6)
    right = tex.polynomial([m, n])
    if rng.random() < 0.5:
        x: Fraction = Fraction(nonzero(rng, 6))
        while abs(x) == 1:
            x = Fraction(nonzero(rng, 6))
        partner, rule, domain = 1 / x, r"f\left(\frac{1}{x}\right)", "all nonzero real numbers $x$"
        here, there = m * x + n, m * partner + n
    else:
        c = rng.randint(1, 9)
        x = Fraction(rng.randint(-6, 12))
        while 2 * x == c:
            x = Fraction(rng.randint(-6, 12))
        partner, rule, domain = c - x, f"f({c} - x)", "all real numbers $x$"
        right = tex.polynomial([m, 0, n])
        here, there = m * x * x + n, m * partner * partner + n
    value = (a * here - b * there) / (a * a - b * b)
    equation = f"{tex.combination((a, 'f(x)'), (b, rule))} = {right}"
    at, other = tex.number(x), tex.number(partner)
    at_other = rf"f\left({other}\right)" if partner.denominator > 1 else f"f({other})"
    return Draft(
        f"A function $f$ satisfies ${equation}$ for {domain}. Find $f({at})$.",
        tex.number(value),
        f"Setting $x = {at}$ gives ${tex.combination((a, f'f({at})'), (b, at_other))} = {tex.number(here)}$. Setting "
        f"$x = {other}$ gives ${tex.combination((b, f'f({at})'), (a, at_other))} = {tex.number(there)}$. Multiplying "
        f"the first equation by ${a}$ and the second by ${b}$ and subtracting, "
        f"${tex.multiple(a * a - b * b, f'f({at})')} = {tex.number(a * here - b * there)}$, so $f({at}) = "
        f"{tex.number(value)}$.",
    )


@template(SUBJECT, 5)
def rational_function_range(rng: Random) -> Draft:
    """Range of a quotient of two quadratics."""
    p, a, m = nonzero(rng, 6), nonzero(rng, 12), rng.randint(1, 5)
    half = Fraction(abs(a), 2 * m)
    answer = tex.interval(tex.number(p - half), tex.number(p + half), "[]")
    below = f"x^2 + {m * m}"
    rule = tex.frac(tex.polynomial([p, a, p * m * m]), below)
    return Draft(
        rng.choice(
            (
                f"Find the range of the function $f(x) = {rule}$, where $x$ is any real number.",
                f"What is the set of all values of $f(x) = {rule}$ for real $x$?",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        rf"Dividing, $f(x) = {tex.signed_sum([str(p), tex.frac(tex.multiple(a, 'x'), below)])}$. By the AM-GM "
        rf"inequality $x^2 + {m * m} \ge {2 * m} |x|$, so the fraction takes exactly the values from "
        rf"${tex.number(-half)}$ to ${tex.number(half)}$. Adding ${p}$ gives the range.",
    )
