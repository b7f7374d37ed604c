"""Algebra: lines, linear and quadratic equations and inequalities, systems, functions, series, radicals."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import Draft, distinct, nonzero, reduced, template

SUBJECT = "algebra"
INFINITY = r"\infty"


@template(SUBJECT, 1)
def linear_equation(rng: Random) -> Draft:
    """`ax + b = cx + d` with an integer solution."""
    variable = rng.choice("xyntz")
    root = nonzero(rng, 15)
    a, c = (nonzero(rng, 12) for _ in range(2))
    while a == c:
        c = nonzero(rng, 12)
    b = nonzero(rng, 30)
    d = (a - c) * root + b
    equation = f"{tex.polynomial([a, b], variable)} = {tex.polynomial([c, d], variable)}"
    return Draft(
        rng.choice(
            (
                f"Solve ${equation}$ for ${variable}$.",
                f"If ${equation}$, what is the value of ${variable}$?",
                f"Find the value of ${variable}$ such that ${equation}$.",
            )
        ),
        str(root),
        f"Moving the terms with ${variable}$ to the left and the constants to the right gives "
        f"${tex.polynomial([a - c, 0], variable)} = {d} - {tex.paren(b)} = {d - b}$, so ${variable} = {root}$.",
    )


@template(SUBJECT, 1)
def slope(rng: Random) -> Draft:
    """Slope of the line through two points."""
    while True:
        x1, y1, x2, y2 = (rng.randint(-12, 12) for _ in range(4))
        if x1 != x2 and y1 != y2:
            break
    result = Fraction(y2 - y1, x2 - x1)
    return Draft(
        rng.choice(
            (
                f"What is the slope of the line that passes through $({x1}, {y1})$ and $({x2}, {y2})$?",
                f"Find the slope of the line containing the points $({x1}, {y1})$ and $({x2}, {y2})$.",
            )
        ),
        tex.number(result),
        rf"The slope is the change in $y$ over the change in $x$: $\frac{{{y2} - {tex.paren(y1)}}}{{{x2} - "
        rf"{tex.paren(x1)}}}"
        f" = {tex.equal(tex.frac(y2 - y1, x2 - x1), tex.number(result))}$.",
    )


@template(SUBJECT, 1)
def function_value(rng: Random) -> Draft:
    """Value of a quadratic function."""
    name, a, b, c, at = rng.choice("fgh"), nonzero(rng, 5), nonzero(rng, 9), nonzero(rng, 15), nonzero(rng, 7)
    result = a * at * at + b * at + c
    rule = tex.polynomial([a, b, c])
    return Draft(
        rng.choice(
            (
                f"If ${name}(x) = {rule}$, what is ${name}({at})$?",
                f"Let ${name}(x) = {rule}$. Find ${name}({at})$.",
            )
        ),
        str(result),
        f"Substituting $x = {at}$, the terms are ${tex.term(a, f'({at})^2')} = {a * at * at}$, "
        f"${tex.term(b, f'({at})')} = {b * at}$ and ${c}$. Their sum is ${result}$.",
    )


@template(SUBJECT, 1)
def binomial_product(rng: Random) -> Draft:
    """Expand a product of two binomials."""
    variable = rng.choice("xyt")
    a, c = rng.randint(1, 4), rng.randint(1, 4)
    b, d = nonzero(rng, 9), nonzero(rng, 9)
    product = f"({tex.polynomial([a, b], variable)})({tex.polynomial([c, d], variable)})"
    result = tex.polynomial([a * c, a * d + b * c, b * d], variable)
    return Draft(
        rng.choice((f"Expand ${product}$.", f"Multiply out and collect like terms: ${product}$.")),
        result,
        f"The square term is ${tex.polynomial([a * c, 0, 0], variable)}$, the mixed terms are "
        f"${tex.polynomial([a * d, 0], variable)}$ and ${tex.polynomial([b * c, 0], variable)}$, and the constant is "
        f"${b * d}$. Together, ${product} = {result}$.",
    )


@template(SUBJECT, 2)
def midpoint(rng: Random) -> Draft:
    """Midpoint of a segment, or its other end."""
    while True:
        (x1, y1), (x2, y2) = ((rng.randint(-15, 15), rng.randint(-15, 15)) for _ in range(2))
        if (x1, y1) != (x2, y2):
            break
    middle = tex.ordered(map(tex.number, (Fraction(x1 + x2, 2), Fraction(y1 + y2, 2))))
    form = "Express your answer as an ordered pair $(x, y)$."
    if rng.random() < 0.5:
        return Draft(
            f"What is the midpoint of the segment with endpoints $({x1}, {y1})$ and $({x2}, {y2})$? {form}",
            middle,
            rf"Averaging the coordinates gives $x = \frac{{{x1} + {tex.paren(x2)}}}{{2}} = "
            rf"{tex.number(Fraction(x1 + x2, 2))}$ and $y = \frac{{{y1} + {tex.paren(y2)}}}{{2}} = "
            rf"{tex.number(Fraction(y1 + y2, 2))}$.",
        )
    return Draft(
        f"The midpoint of the segment $\\overline{{AB}}$ is ${middle}$, and $A = ({x1}, {y1})$. Find $B$. {form}",
        f"({x2}, {y2})",
        rf"The midpoint averages the coordinates, so each coordinate of $B$ is twice that of the midpoint less that of "
        rf"$A$: $x = {x1 + x2} - {tex.paren(x1)} = {x2}$ and $y = {y1 + y2} - {tex.paren(y1)} = {y2}$.",
    )


@template(SUBJECT, 2)
def linear_inequality(rng: Random) -> Draft:
    """A linear inequality, solved by an interval."""
    while True:
        a, c = nonzero(rng, 9), rng.randint(-9, 9)
        b, d = nonzero(rng, 20), nonzero(rng, 20)
        if abs(a - c) > 1:
            break
    relation, flipped, strict = rng.choice(
        (("<", ">", True), (">", "<", True), (r"\le", r"\ge", False), (r"\ge", r"\le", False))
    )
    bound = Fraction(d - b, a - c)
    final = relation if a > c else flipped
    written = tex.number(bound)
    if final in ("<", r"\le"):
        answer = tex.interval(r"-\infty", written, "()" if strict else "(]")
    else:
        answer = tex.interval(written, r"\infty", "()" if strict else "[)")
    inequality = f"{tex.polynomial([a, b])} {relation} {tex.polynomial([c, d])}"
    turn = "" if a > c else ", which is negative, so the inequality sign turns"
    return Draft(
        rng.choice(
            (
                f"Solve ${inequality}$.",
                f"Find all real numbers $x$ such that ${inequality}$.",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        rf"Collecting terms gives ${tex.polynomial([a - c, 0])} {relation} {d - b}$. Dividing by ${a - c}${turn}: $x "
        rf"{final} {written}$.",
    )


@template(SUBJECT, 2)
def linear_system(rng: Random) -> Draft:
    """Two linear equations in two unknowns."""
    x, y = nonzero(rng, 9), nonzero(rng, 9)
    while True:
        a, b, c, d = (nonzero(rng, 7) for _ in range(4))
        det = a * d - b * c
        if det:
            break
    e, f = a * x + b * y, c * x + d * y
    first = f"{tex.combination((a, 'x'), (b, 'y'))} = {e}"
    second = f"{tex.combination((c, 'x'), (d, 'y'))} = {f}"
    return Draft(
        rng.choice(
            (
                f"Solve the system of equations ${first}$ and ${second}$.",
                f"Find the ordered pair $(x, y)$ that satisfies both ${first}$ and ${second}$.",
                f"The lines ${first}$ and ${second}$ intersect at one point. Find this point.",
            )
        )
        + " Express your answer as an ordered pair $(x, y)$.",
        f"({x}, {y})",
        f"Multiplying the first equation by ${d}$ and the second by ${b}$ and subtracting eliminates $y$: "
        f"${tex.multiple(det, 'x')} = {d * e} - {tex.paren(b * f)} = {det * x}$, so $x = {x}$. Then "
        f"${tex.multiple(b, 'y')} = {e} - {tex.paren(a * x)} = {b * y}$, so $y = {y}$.",
    )


@template(SUBJECT, 2)
def factor_quadratic(rng: Random) -> Draft:
    """Factor a quadratic over the integers; the constants of the factors are asked, so the quadratic is no answer."""
    variable = rng.choice("xyt")
    lead = rng.choice((1, 1, 2, 3))
    while True:
        p, q = nonzero(rng, 11), nonzero(rng, 11)
        if (p < q or lead > 1) and math.gcd(lead, q) == 1 and lead * p + q:
            break
    quadratic = tex.polynomial([lead, lead * p + q, p * q], variable)
    form = f"({variable} + a)({tex.polynomial([lead, 0], variable)} + b)"
    where = "where $a$ and $b$ are integers" + (" with $a < b$" if lead == 1 else "")
    return Draft(
        rng.choice(
            (
                f"The quadratic ${quadratic}$ can be factored as ${form}$, {where}. Find the ordered pair $(a, b)$.",
                f"Factor ${quadratic}$ in the form ${form}$, {where}. Express your answer as the ordered pair $(a, "
                f"b)$.",
            )
        ),
        f"({p}, {q})",
        f"We need two numbers with product ${lead * p * q}$ (the first coefficient times the last) and sum "
        f"${lead * p + q}$: they are ${lead * p}$ and ${q}$. Splitting the middle term and grouping gives "
        f"$({tex.polynomial([1, p], variable)})({tex.polynomial([lead, q], variable)})$, so $a = {p}$ and $b = {q}$.",
    )


@template(SUBJECT, 3)
def quadratic_roots(rng: Random) -> Draft:
    """Both rational roots of a quadratic."""
    lead = rng.choice((1, 2, 3, 4, 5))
    p = Fraction(nonzero(rng, 12), lead)
    q = nonzero(rng, 9)
    while p.denominator != lead or p == q:
        p, q = Fraction(nonzero(rng, 12), lead), nonzero(rng, 9)
    coefficients = [lead, int(-lead * (p + q)), int(lead * p * q)]
    shift = nonzero(rng, 20) if rng.random() < 0.5 else 0
    equation = f"{tex.polynomial([*coefficients[:2], coefficients[2] + shift])} = {shift}"
    low, high = sorted((p, Fraction(q)))
    factors = tex.factor_for_root(p) + tex.factor_for_root(q)
    answer = tex.listing(map(tex.number, (low, high)))
    return Draft(
        rng.choice((f"Solve ${equation}$.", f"Find all values of $x$ that satisfy ${equation}$."))
        + " List all solutions in increasing order, separated by commas.",
        answer,
        f"With everything on one side the equation is ${tex.polynomial(coefficients)} = 0$, and the left side factors "
        f"as ${factors}$. Setting each factor to zero gives $x = {tex.number(low)}$ and $x = {tex.number(high)}$.",
    )


@template(SUBJECT, 3)
def point_distance(rng: Random) -> Draft:
    """Distance between two lattice points, a simplified radical."""
    while True:
        x1, y1, x2, y2 = (rng.randint(-12, 12) for _ in range(4))
        square = (x1 - x2) ** 2 + (y1 - y2) ** 2
        if x1 != x2 and y1 != y2 and math.isqrt(square) ** 2 != square:
            break
    answer = tex.surd(1, square)
    return Draft(
        rng.choice(
            (
                f"What is the distance between the points $({x1}, {y1})$ and $({x2}, {y2})$ in the coordinate plane?",
                f"Find the length of the segment from $({x1}, {y1})$ to $({x2}, {y2})$.",
            )
        )
        + " Express your answer in simplest radical form.",
        answer,
        rf"The coordinates differ by ${abs(x1 - x2)}$ and ${abs(y1 - y2)}$, so the distance is "
        rf"$\sqrt{{{abs(x1 - x2)}^2 + {abs(y1 - y2)}^2}} = {tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 3)
def line_through_points(rng: Random) -> Draft:
    """Slope-intercept equation of a line."""
    m = reduced(rng, -4, 4, 5) if rng.random() < 0.6 else Fraction(nonzero(rng, 6))
    intercept = nonzero(rng, 9)
    k1, k2 = rng.sample([k for k in range(-4, 5) if k], 2)
    x1, x2 = k1 * m.denominator, k2 * m.denominator
    y1, y2 = int(m * x1) + intercept, int(m * x2) + intercept
    answer = f"y = {tex.polynomial([m, intercept])}"
    return Draft(
        rng.choice(
            (
                f"Find the equation of the line through $({x1}, {y1})$ and $({x2}, {y2})$.",
                f"A line passes through the points $({x1}, {y1})$ and $({x2}, {y2})$. What is its equation?",
            )
        )
        + " Express your answer in the form $y = mx + b$.",
        answer,
        rf"The slope is $m = \frac{{{y2} - {tex.paren(y1)}}}{{{x2} - {tex.paren(x1)}}} = {tex.number(m)}$. The first "
        rf"point gives $b = {y1} - {tex.paren(m)} \cdot {tex.paren(x1)} = {intercept}$.",
    )


@template(SUBJECT, 3)
def absolute_value_equation(rng: Random) -> Draft:
    """`|ax + b| = c` with its two solutions."""
    a, b, c = rng.randint(1, 7), nonzero(rng, 15), rng.randint(1, 25)
    inside = tex.polynomial([a, b])
    low, high = Fraction(-c - b, a), Fraction(c - b, a)
    return Draft(
        rng.choice((f"Solve $|{inside}| = {c}$.", f"Find all real numbers $x$ such that $|{inside}| = {c}$."))
        + " List all solutions in increasing order, separated by commas.",
        tex.listing(map(tex.number, (low, high))),
        f"Either ${inside} = {c}$, so ${tex.multiple(a, 'x')} = {c - b}$ and $x = {tex.number(high)}$, or ${inside} = "
        f"{-c}$, so ${tex.multiple(a, 'x')} = {-c - b}$ and $x = {tex.number(low)}$.",
    )


@template(SUBJECT, 3)
def exponential_equation(rng: Random) -> Draft:
    """An equation between powers of a common base."""
    base = rng.choice((2, 3, 5))
    limit = {2: 5, 3: 4, 5: 3}[base]
    while True:
        m, n = rng.sample(range(1, limit + 1), 2)
        a, c = rng.randint(1, 4), rng.randint(1, 4)
        b, d = nonzero(rng, 9), nonzero(rng, 9)
        if m * a != n * c:
            break
    root = Fraction(n * d - m * b, m * a - n * c)
    left, right = tex.polynomial([a, b]), tex.polynomial([c, d])
    equation = f"{base**m}^{{{left}}} = {base**n}^{{{right}}}"
    exponents = [side if times == 1 else f"{times}({side})" for times, side in ((m, left), (n, right))]
    return Draft(
        rng.choice((f"Solve for $x$: ${equation}$.", f"Find the value of $x$ for which ${equation}$.")),
        tex.number(root),
        f"Both sides are powers of ${base}$: comparing exponents, ${exponents[0]} = {exponents[1]}$. So "
        f"${tex.equal(tex.multiple(m * a - n * c, 'x'), str(n * d - m * b))}$ and $x = {tex.number(root)}$.",
    )


@template(SUBJECT, 4)
def quadratic_formula(rng: Random) -> Draft:
    """Larger or smaller irrational root of a quadratic."""
    while True:
        a, b, c = rng.randint(1, 6), nonzero(rng, 12), nonzero(rng, 12)
        discriminant = b * b - 4 * a * c
        if discriminant > 0 and math.isqrt(discriminant) ** 2 != discriminant and math.gcd(a, b, c) == 1:
            break
    which, sign = rng.choice((("larger", 1), ("smaller", -1)))
    answer = tex.surd_sum(-b, sign, discriminant, 2 * a)
    quadratic = tex.polynomial([a, b, c])
    return Draft(
        rng.choice(
            (
                f"What is the {which} of the two solutions of ${quadratic} = 0$?",
                f"The equation ${quadratic} = 0$ has two real solutions. Find the {which} one.",
            )
        )
        + " Express your answer in simplest radical form.",
        answer,
        rf"By the quadratic formula, $x = \frac{{{-b} \pm \sqrt{{{b * b} - 4 \cdot {tex.paren(a)} \cdot "
        rf"{tex.paren(c)}}}}}"
        rf"{{{2 * a}}} = \frac{{{-b} \pm \sqrt{{{discriminant}}}}}{{{2 * a}}}$. The {which} value is ${answer}$.",
    )


@template(SUBJECT, 4)
def parabola_vertex(rng: Random) -> Draft:
    """Vertex of a parabola by completing the square."""
    a, constant = nonzero(rng, 4), nonzero(rng, 20)
    h = Fraction(nonzero(rng, 11), rng.choice((1, 1, 2)))
    k = constant - a * h * h
    quadratic = tex.polynomial([a, -2 * a * h, constant])
    square = f"{'' if a == 1 else '-' if a == -1 else a}{_shifted_square(h)}"
    return Draft(
        rng.choice(
            (
                f"Find the vertex of the parabola $y = {quadratic}$.",
                f"The graph of $y = {quadratic}$ is a parabola. What are the coordinates of its vertex?",
            )
        )
        + " Express your answer as an ordered pair $(x, y)$.",
        tex.ordered(map(tex.number, (h, k))),
        f"Completing the square, ${quadratic} = {tex.signed_sum([square, tex.number(k)])}$. The square vanishes at $x "
        f"= {tex.number(h)}$, where $y = {tex.number(k)}$.",
    )


def _shifted_square(h: Fraction) -> str:
    """`(x - h)^2` with its sign in order."""
    return rf"\left({tex.polynomial([1, -h])}\right)^2" if h.denominator > 1 else f"({tex.polynomial([1, -h])})^2"


@template(SUBJECT, 4)
def inverse_function(rng: Random) -> Draft:
    """Inverse of a fractional linear function."""
    name = rng.choice("fgh")
    while True:
        a, b, c, d = nonzero(rng, 7), nonzero(rng, 9), rng.randint(1, 6), nonzero(rng, 9)
        if a * d != b * c and math.gcd(a, b, c, d) == 1:
            break
    rule = rf"\frac{{{tex.polynomial([a, b])}}}{{{tex.polynomial([c, d])}}}"
    # y = (ax + b)/(cx + d) gives x = (b - dy)/(cy - a)
    answer = rf"\frac{{{tex.polynomial([-d, b])}}}{{{tex.polynomial([c, -a])}}}"
    return Draft(
        rng.choice(
            (
                f"If ${name}(x) = {rule}$, find ${name}^{{-1}}(x)$.",
                f"Let ${name}(x) = {rule}$. Find a formula for the inverse function ${name}^{{-1}}(x)$.",
            )
        )
        + " Express your answer as a single fraction in $x$.",
        answer,
        rf"Setting $y = {rule}$ gives $y({tex.polynomial([c, d])}) = {tex.polynomial([a, b])}$, so "
        rf"$x({tex.polynomial([c, -a], 'y')}) = {tex.polynomial([-d, b], 'y')}$. Solving for $x$ and renaming $y$ to "
        rf"$x$, ${name}^{{-1}}(x) = {answer}$.",
    )


@template(SUBJECT, 4)
def quadratic_inequality(rng: Random) -> Draft:
    """A quadratic inequality, solved by one interval or a union of two rays."""
    lead = rng.choice((1, 1, 2, 3))
    p, q = distinct(rng, -10, 10, 2)
    low, high = sorted((Fraction(p, lead), Fraction(q)))
    while low == high or low.denominator * high.denominator != lead:
        p, q = distinct(rng, -10, 10, 2)
        low, high = sorted((Fraction(p, lead), Fraction(q)))
    quadratic = tex.polynomial([lead, -lead * (low + high), lead * low * high])
    relation, strict, inside = rng.choice(
        (("<", True, True), (r"\le", False, True), (">", True, False), (r"\ge", False, False))
    )
    a, b = tex.number(low), tex.number(high)
    if inside:
        answer = tex.interval(a, b, "()" if strict else "[]")
        where = "between the roots"
    else:
        first = tex.interval(r"-\infty", a, "()" if strict else "(]")
        answer = rf"{first} \cup {tex.interval(b, INFINITY, '()' if strict else '[)')}"
        where = "outside the roots"
    return Draft(
        rng.choice(
            (
                f"Solve the inequality ${quadratic} {relation} 0$.",
                f"Find all real values of $x$ such that ${quadratic} {relation} 0$.",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        f"The quadratic factors as ${tex.factor_for_root(low)}{tex.factor_for_root(high)}$, with roots ${a}$ and "
        f"${b}$. Its graph opens upward, so the inequality holds {where}{'' if strict else ', the roots included'}.",
    )


@template(SUBJECT, 4)
def infinite_geometric_series(rng: Random) -> Draft:
    """Sum of an infinite geometric series, or its first term from the sum."""
    ratio = reduced(rng, -1, 1, 9)
    first = Fraction(rng.randint(1, 30), rng.choice((1, 1, 1, 2, 3)))
    terms = [first * ratio**k for k in range(4)]
    total = first / (1 - ratio)
    series = tex.signed_sum([*map(tex.number, terms), r"\cdots"])
    return Draft(
        rng.choice(
            (
                f"Find the sum of the infinite geometric series ${series}$.",
                f"Compute ${series}$, where each term is ${tex.number(ratio)}$ times the one before.",
            )
        ),
        tex.number(total),
        rf"The first term is $a = {tex.number(first)}$ and the common ratio is $r = {tex.number(ratio)}$, so the sum "
        rf"is $\frac{{a}}{{1 - r}} = {tex.number(first)} \div {tex.number(1 - ratio)} = {tex.number(total)}$.",
    )


@template(SUBJECT, 5)
def rational_inequality(rng: Random) -> Draft:
    """`(x - p)/(x - q) < k`: an inequality with a pole."""
    while True:
        p, q, k = nonzero(rng, 12), nonzero(rng, 12), nonzero(rng, 6)
        if p != q and k != 1:
            break
    # (x - p)/(x - q) - k = ((1 - k)x - (p - kq))/(x - q)
    root = Fraction(p - k * q, 1 - k)
    relation = rng.choice(("<", r"\le", ">", r"\ge"))
    strict = relation in ("<", ">")
    # Far to the right the difference has the sign of 1 - k; between root and pole it has the other one.
    wants_positive = relation in (">", r"\ge")
    outside = wants_positive == (k < 1)
    low, high = sorted((root, Fraction(q)))
    at_low = "(" if strict or low == q else "["
    at_high = ")" if strict or high == q else "]"
    a, b = tex.number(low), tex.number(high)
    if outside:
        left = tex.interval(r"-\infty", a, "(" + (")" if at_low == "(" else "]"))
        right = tex.interval(b, r"\infty", ("(" if at_high == ")" else "[") + ")")
        answer = rf"{left} \cup {right}"
    else:
        answer = tex.interval(a, b, at_low + at_high)
    fraction = rf"\frac{{{tex.polynomial([1, -p])}}}{{{tex.polynomial([1, -q])}}}"
    difference = rf"\frac{{{tex.polynomial([1 - k, k * q - p])}}}{{{tex.polynomial([1, -q])}}}"
    return Draft(
        rng.choice(
            (
                f"Solve ${fraction} {relation} {k}$.",
                f"Find all real numbers $x$ that satisfy ${fraction} {relation} {k}$.",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        rf"Bringing ${k}$ to the left gives ${difference} {relation} 0$. The numerator vanishes at $x = "
        rf"{tex.number(root)}$ and the denominator at $x = {q}$, which is excluded. Testing the sign of the quotient "
        rf"in the intervals cut by these two points leaves ${answer}$.",
    )


@template(SUBJECT, 5)
def function_domain(rng: Random) -> Draft:
    """Domain of a square root of a quadratic over a linear factor, or of a difference of square roots."""
    low, high = distinct(rng, -12, 12, 2)
    while high - low < 2:
        low, high = distinct(rng, -12, 12, 2)
    if rng.random() < 0.5:
        hole = rng.randint(low + 1, high - 1)
        radicand = tex.polynomial([-1, low + high, -low * high])
        rule = rf"\frac{{\sqrt{{{radicand}}}}}{{{tex.polynomial([1, -hole])}}}"
        answer = rf"{tex.interval(str(low), str(hole), '[)')} \cup {tex.interval(str(hole), str(high), '(]')}"
        steps = (
            rf"The radicand factors as $-{tex.factor_for_root(low)}{tex.factor_for_root(high)}$ and is nonnegative for "
            rf"${low} \le x \le {high}$. The denominator vanishes at $x = {hole}$, which lies in this interval and "
            rf"must be "
            "left out."
        )
    else:
        m, n = rng.randint(2, 6), rng.randint(1, 5)
        first, second = tex.polynomial([m, -m * low]), tex.polynomial([-n, n * high])
        rule = rf"\sqrt{{{first}}} + \frac{{1}}{{\sqrt{{{second}}}}}"
        answer = tex.interval(str(low), str(high), "[)")
        steps = (
            rf"The first root needs ${first} \ge 0$, that is $x \ge {low}$. The second stands in a denominator, so "
            rf"${second} > 0$, that is $x < {high}$."
        )
    return Draft(
        rng.choice(
            (
                f"Find the domain of the real-valued function $f(x) = {rule}$.",
                f"For which real numbers $x$ is $f(x) = {rule}$ defined as a real number?",
            )
        )
        + " Express your answer in interval notation.",
        answer,
        steps,
    )


@template(SUBJECT, 5)
def symmetric_expression(rng: Random) -> Draft:
    """A symmetric expression in two numbers with known sum and product."""
    s, p = nonzero(rng, 12), nonzero(rng, 12)
    square = s * s - 2 * p
    cube = s**3 - 3 * p * s
    cubes = f"$a^3 + b^3 = (a + b)^3 - 3ab(a + b) = {s**3} - {tex.paren(3 * p * s)}$"
    ratio = rf"$\frac{{a}}{{b}} + \frac{{b}}{{a}} = \frac{{(a + b)^2 - 2ab}}{{ab}} = \frac{{{square}}}{{{p}}}$"
    reciprocals = (
        r"$\frac{1}{a^2} + \frac{1}{b^2} = \frac{(a + b)^2 - 2ab}{(ab)^2} = " + rf"\frac{{{square}}}{{{p * p}}}$"
    )
    fourths = (
        rf"$a^2 + b^2 = {tex.paren(s)}^2 - 2 \cdot {tex.paren(p)} = {square}$ and $a^4 + b^4 = (a^2 + b^2)^2 - 2(ab)^2 "
        rf"= {square**2} - {2 * p * p}$"
    )
    expression, value, step = rng.choice(
        (
            ("a^3 + b^3", Fraction(cube), cubes),
            (r"\frac{a}{b} + \frac{b}{a}", Fraction(square, p), ratio),
            (r"\frac{1}{a^2} + \frac{1}{b^2}", Fraction(square, p * p), reciprocals),
            ("a^4 + b^4", Fraction(square**2 - 2 * p * p), fourths),
        )
    )
    return Draft(
        rng.choice(
            (
                f"The complex numbers $a$ and $b$ satisfy $a + b = {s}$ and $ab = {p}$. Find ${expression}$.",
                f"Let $a$ and $b$ be the solutions of ${tex.polynomial([1, -s, p])} = 0$, counted with multiplicity. "
                f"Compute ${expression}$.",
            )
        ),
        tex.number(value),
        f"We have $a + b = {s}$ and $ab = {p}$. Then {step}, which equals ${tex.number(value)}$.",
    )


@template(SUBJECT, 5)
def rationalize_denominator(rng: Random) -> Draft:
    """A fraction whose denominator is a sum of two square roots."""
    while True:
        m, n = rng.sample(range(2, 24), 2)
        factor = rng.randint(1, 30)
        if tex.square_part(m)[0] == tex.square_part(n)[0] == 1:
            break
    sign = rng.choice((1, -1))
    plus, minus = ("+", "-") if sign == 1 else ("-", "+")
    terms = [(factor, tex.root(m)), (-sign * factor, tex.root(n))]
    answer = tex.quotient(terms if m > n else terms[::-1], m - n)
    expression = rf"\frac{{{factor}}}{{\sqrt{{{m}}} {plus} \sqrt{{{n}}}}}"
    return Draft(
        rng.choice(
            (
                f"Rationalize the denominator of ${expression}$ and simplify.",
                f"Write ${expression}$ with an integer denominator, in simplest radical form.",
            )
        ),
        answer,
        rf"Multiplying numerator and denominator by $\sqrt{{{m}}} {minus} \sqrt{{{n}}}$ makes the denominator ${m} - "
        rf"{n} = {m - n}$. So the value is $\frac{{{factor}(\sqrt{{{m}}} {minus} \sqrt{{{n}}})}}{{{m - n}}} = "
        rf"{answer}$.",
    )
