"""Precalculus: trigonometry, polar form and powers of complex numbers, vectors, matrices, lines and planes in space."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import Draft, nonzero, template

SUBJECT = "precalculus"
BOLD_A = r"\mathbf{A}"
RADICAL = " Express your answer in simplest radical form."
HALF = Fraction(1, 2)

Surd = tuple[Fraction, int]
"""`(factor, radicand)` for factor * sqrt(radicand)."""

_SINES: dict[int, Surd] = {
    0: (Fraction(0), 1),
    30: (HALF, 1),
    45: (HALF, 2),
    60: (HALF, 3),
    90: (Fraction(1), 1),
}
NOTABLE = tuple(sorted({30 * n for n in range(12)} | {45 * n for n in range(8)}))
"""Angles of one turn, in degrees, that are multiples of 30 or 45."""

Vector = tuple[int, ...]


def _sine(angle: int) -> Surd:
    """Exact sine of a multiple of 30 or 45 degrees."""
    angle %= 360
    sign = 1 if angle < 180 else -1
    angle %= 180
    factor, radicand = _SINES[min(angle, 180 - angle)]
    return sign * factor, radicand


def _cosine(angle: int) -> Surd:
    """Exact cosine of a multiple of 30 or 45 degrees."""
    return _sine(angle + 90)


def _tangent(angle: int) -> Surd:
    """Exact tangent of a multiple of 30 or 45 degrees that is no odd multiple of 90."""
    (s, m), (c, n) = _sine(angle), _cosine(angle)
    return s / (c * n), m * n


def _radians(angle: int) -> str:
    """An angle in degrees, written in radians."""
    return tex.pi(Fraction(angle, 180))


def _dot(u: Vector, v: Vector) -> int:
    return sum(a * b for a, b in zip(u, v, strict=True))


def _cross(u: Vector, v: Vector) -> Vector:
    return (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])


def _minus(u: Vector, v: Vector) -> Vector:
    return tuple(a - b for a, b in zip(u, v, strict=True))


def _vector(rng: Random, bound: int, size: int = 3) -> Vector:
    """A vector of integers up to `bound`, at most one of them zero."""
    while True:
        entries = tuple(rng.randint(-bound, bound) for _ in range(size))
        if sum(entry == 0 for entry in entries) <= 1 and any(entries):
            return entries


def _parenthesized(written: str) -> str:
    """A written number as a factor or an argument: in parentheses if negative."""
    if not written.startswith("-"):
        return written
    return rf"\left({written}\right)" if "frac" in written else f"({written})"


def _point(point: Vector) -> str:
    return tex.ordered(map(str, point))


@template(SUBJECT, 1)
def trigonometric_value(rng: Random) -> Draft:
    """Sine, cosine or tangent of a notable angle in any turn, in degrees or radians."""
    name, function = rng.choice((("sin", _sine), ("cos", _cosine), ("tan", _tangent)))
    angle = rng.choice(NOTABLE) + 360 * rng.randint(-4, 4)
    while (name == "tan" and angle % 180 == 90) or angle == 0:
        angle = rng.choice(NOTABLE) + 360 * rng.randint(-4, 4)
    answer = tex.surd(*function(angle))
    reduced = angle % 360
    degrees = rng.random() < 0.6
    written, small = (tex.degrees(angle), tex.degrees(reduced)) if degrees else (_radians(angle), _radians(reduced))
    turn = tex.degrees(360) if degrees else r"2\pi"
    signed = _parenthesized(written)
    start = (
        ""
        if reduced == angle
        else f"Adding a multiple of ${turn}$ changes nothing, so the angle may be replaced by ${small}$. "
    )
    return Draft(
        rng.choice((rf"Compute $\{name} {signed}$.", rf"What is the exact value of $\{name} {signed}$?")),
        answer,
        rf"{start}On the unit circle, $\{name} {small} = {answer}$.",
    )


@template(SUBJECT, 1)
def vector_combination(rng: Random) -> Draft:
    """A linear combination of two column vectors."""
    size = rng.choice((2, 3))
    u, v = _vector(rng, 9, size), _vector(rng, 9, size)
    a, b = rng.randint(2, 6), nonzero(rng, 6)
    result = [a * x + b * y for x, y in zip(u, v, strict=True)]
    expression = tex.combination((a, r"\mathbf{u}"), (b, r"\mathbf{v}"))
    parts = ", ".join(
        f"${a} \\cdot {tex.paren(x)} + {tex.paren(b)} \\cdot {tex.paren(y)} = {a * x + b * y}$"
        for x, y in zip(u, v, strict=True)
    )
    return Draft(
        rf"Let $\mathbf{{u}} = {tex.column(u)}$ and $\mathbf{{v}} = {tex.column(v)}$. Find ${expression}$.",
        tex.column(result),
        f"Working entry by entry: {parts}.",
    )


@template(SUBJECT, 1)
def angle_units(rng: Random) -> Draft:
    """Degrees to radians and back."""
    angle = nonzero(rng, 180) * rng.choice((4, 5))
    if rng.random() < 0.5:
        return Draft(
            rng.choice(
                (
                    rf"Convert ${angle}^\circ$ to radians.",
                    rf"What is the radian measure of an angle of ${angle}^\circ$?",
                )
            )
            + r" Express your answer in terms of $\pi$.",
            _radians(angle),
            rf"One degree is $\frac{{\pi}}{{180}}$ radians, so the measure is ${angle} \cdot \frac{{\pi}}{{180}} = "
            rf"{_radians(angle)}$.",
        )
    return Draft(
        rng.choice(
            (
                f"Convert ${_radians(angle)}$ radians to degrees.",
                f"How many degrees is an angle of ${_radians(angle)}$ radians?",
            )
        ),
        tex.degrees(angle),
        rf"Since $\pi$ radians are $180^\circ$, the angle is ${tex.number(Fraction(angle, 180))} \cdot 180^\circ = "
        rf"{angle}^\circ$.",
    )


@template(SUBJECT, 1)
def vector_length(rng: Random) -> Draft:
    """Length of a vector in space, or distance of two points in space."""
    while True:
        u = _vector(rng, 9)
        square = _dot(u, u)
        if math.isqrt(square) ** 2 != square:
            break
    answer = tex.surd(1, square)
    if rng.random() < 0.5:
        question = f"Find the length of the vector ${tex.column(u)}$."
        start = ""
    else:
        p = _vector(rng, 9)
        q = tuple(a + b for a, b in zip(p, u, strict=True))
        question = f"What is the distance between the points ${_point(p)}$ and ${_point(q)}$ in space?"
        start = f"The difference of the points is ${_point(u)}$. "
    squares = " + ".join(str(x * x) for x in u)
    return Draft(
        question + RADICAL,
        answer,
        rf"{start}The length is $\sqrt{{{squares}}} = {tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 2)
def matrix_product(rng: Random) -> Draft:
    """Product of two 2 by 2 matrices, or of a matrix and a vector of size 3."""
    if rng.random() < 0.6:
        a, b, c, d, e, f, g, h = (rng.randint(-7, 7) for _ in range(8))
        left, right = [[a, b], [c, d]], [[e, f], [g, h]]
    else:
        left = [[rng.randint(-6, 6) for _ in range(3)] for _ in range(3)]
        right = [[n] for n in _vector(rng, 6)]
    columns = list(zip(*right, strict=True))
    result = [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in left]
    corner = " + ".join(rf"{tex.paren(x)} \cdot {tex.paren(y)}" for x, y in zip(left[0], columns[0], strict=True))
    return Draft(
        rng.choice(
            (
                f"Compute ${tex.matrix(left)} {tex.matrix(right)}$.",
                f"Find the product ${tex.matrix(left)} {tex.matrix(right)}$.",
            )
        ),
        tex.matrix(result),
        f"Each entry is a row of the first factor times a column of the second. The first entry is ${corner} = "
        f"{result[0][0]}$, and "
        "the others are found in the same way.",
    )


@template(SUBJECT, 2)
def polar_coordinates(rng: Random) -> Draft:
    """Polar to rectangular coordinates and back."""
    r, angle = rng.randint(1, 30), rng.choice(NOTABLE)
    (c, m), (s, n) = _cosine(angle), _sine(angle)
    x, y = tex.surd(r * c, m), tex.surd(r * s, n)
    theta = _radians(angle)
    if rng.random() < 0.5:
        turn = 2 * rng.randint(-1, 2)
        shifted = _radians(angle + 180 * turn)
        return Draft(
            f"Convert the point ${tex.ordered((str(r), shifted))}$ in polar coordinates to rectangular coordinates. "
            f"Express your "
            "answer as an ordered pair $(x, y)$.",
            tex.ordered((x, y)),
            rf"We have $x = r \cos \theta = {r} \cdot {_parenthesized(tex.surd(c, m))} = {x}$ and $y = r \sin \theta = "
            rf"{r} \cdot {_parenthesized(tex.surd(s, n))} = {y}$.",
        )
    return Draft(
        f"Convert the point ${tex.ordered((x, y))}$ in rectangular coordinates to polar coordinates. Express your "
        f"answer in the form "
        r"$(r, \theta)$, where $r > 0$ and $0 \le \theta < 2\pi$.",
        tex.ordered((str(r), theta)),
        rf"The distance from the origin is $r = {r}$. From $\cos \theta = {tex.surd(c, m)}$ and $\sin \theta = "
        rf"{tex.surd(s, n)}$ we get $\theta = {theta}$.",
    )


@template(SUBJECT, 2)
def cross_product(rng: Random) -> Draft:
    """Cross product of two vectors."""
    while True:
        u, v = _vector(rng, 8), _vector(rng, 8)
        result = _cross(u, v)
        if any(result):
            break
    first = rf"{tex.paren(u[1])} \cdot {tex.paren(v[2])} - {tex.paren(u[2])} \cdot {tex.paren(v[1])} = {result[0]}"
    second = rf"{tex.paren(u[2])} \cdot {tex.paren(v[0])} - {tex.paren(u[0])} \cdot {tex.paren(v[2])} = {result[1]}"
    third = rf"{tex.paren(u[0])} \cdot {tex.paren(v[1])} - {tex.paren(u[1])} \cdot {tex.paren(v[0])} = {result[2]}"
    return Draft(
        rng.choice(
            (
                rf"Compute the cross product ${tex.column(u)} \times {tex.column(v)}$.",
                rf"Let $\mathbf{{a}} = {tex.column(u)}$ and $\mathbf{{b}} = {tex.column(v)}$. Find $\mathbf{{a}} "
                rf"\times \mathbf{{b}}$.",
            )
        ),
        tex.column(result),
        f"The three entries are ${first}$, ${second}$ and ${third}$.",
    )


@template(SUBJECT, 2)
def sinusoid_feature(rng: Random) -> Draft:
    """Period, or largest value, of a trigonometric function."""
    name = rng.choice(("sin", "cos", "tan"))
    a, d = nonzero(rng, 9), nonzero(rng, 9)
    b = Fraction(rng.randint(1, 12), rng.choice((1, 1, 2, 3, 5)))
    shift = Fraction(rng.choice((1, 2, 3)), rng.choice((2, 3, 4, 5, 6)))
    inside = tex.combination((b, "x"), (rng.choice((1, -1)) * shift, r"\pi"))
    wave = rf"{'' if abs(a) == 1 else abs(a)}\{name} \left({inside}\right)"
    rule = tex.signed_sum([("-" if a < 0 else "") + wave, str(d)])
    if name != "tan" and rng.random() < 0.3:
        which, extreme = rng.choice((("largest", d + abs(a)), ("smallest", d - abs(a))))
        return Draft(
            rf"What is the {which} value of $y = {rule}$ for real $x$?",
            str(extreme),
            rf"The function $\{name}$ takes all values from $-1$ to $1$, so ${rule}$ takes all values from "
            rf"${d - abs(a)}$ to ${d + abs(a)}$.",
        )
    base = 1 if name == "tan" else 2
    answer = tex.pi(base / b)
    return Draft(
        rng.choice((f"Find the period of $y = {rule}$.", f"What is the smallest positive period of $f(x) = {rule}$?")),
        answer,
        rf"The function $\{name}$ has period ${tex.pi(base)}$. Here $x$ has the coefficient ${tex.number(b)}$, so the "
        rf"period is ${tex.pi(base)} \div {tex.number(b)} = {answer}$.",
    )


@template(SUBJECT, 2)
def inverse_trigonometric_sum(rng: Random) -> Draft:
    """A sum or difference of two inverse trigonometric values."""

    def draw() -> tuple[str, int, str]:
        name = rng.choice(("arcsin", "arccos", "arctan"))
        if name == "arccos":
            angle = rng.choice((30, 45, 60, 90, 120, 135, 150, 180))
            value = _cosine(angle)
        else:
            angle = rng.choice((30, 45, 60)) * rng.choice((1, -1)) if name == "arctan" else rng.choice(
                (-90, -60, -45, -30, 30, 45, 60, 90)
            )  # fmt: skip
            value = _tangent(angle) if name == "arctan" else _sine(angle)
        return name, angle, rf"\{name} {_parenthesized(tex.surd(*value))}"

    while True:
        (f, a, first), (g, b, second) = draw(), draw()
        sign = rng.choice((1, -1))
        m = rng.randint(1, 3)
        if f != g and m * a + sign * b:
            break
    total = m * a + sign * b
    expression = f"{'' if m == 1 else m}{first} {'+' if sign == 1 else '-'} {second}"
    return Draft(
        rng.choice((f"Evaluate ${expression}$.", f"Compute ${expression}$.")) + " Express your answer in radians.",
        _radians(total),
        rf"The two values are ${first} = {_radians(a)}$ and ${second} = {_radians(b)}$. So the expression equals "
        rf"${_radians(total)}$.",
    )


@template(SUBJECT, 3)
def matrix_inverse(rng: Random) -> Draft:
    """Inverse of a 2 by 2 matrix."""
    while True:
        a, b, c, d = (rng.randint(-8, 8) for _ in range(4))
        det = a * d - b * c
        if det and (a, b, c, d).count(0) <= 1 and abs(det) <= 40:
            break
    inverse = [[Fraction(d, det), Fraction(-b, det)], [Fraction(-c, det), Fraction(a, det)]]
    return Draft(
        rng.choice(
            (
                f"Find the inverse of the matrix ${tex.matrix([[a, b], [c, d]])}$.",
                f"Let $\\mathbf{{A}} = {tex.matrix([[a, b], [c, d]])}$. Compute $\\mathbf{{A}}^{{-1}}$.",
            )
        ),
        tex.matrix(inverse),
        f"The determinant is $D = {tex.paren(a)} \\cdot {tex.paren(d)} - {tex.paren(b)} \\cdot {tex.paren(c)} = "
        f"{det}$. The inverse is $\\frac{{1}}{{D}}$ times ${tex.matrix([[d, -b], [-c, a]])}$, which is "
        f"${tex.matrix(inverse)}$.",
    )


@template(SUBJECT, 3)
def quadrant_value(rng: Random) -> Draft:
    """A trigonometric value from another one and the quadrant."""
    while True:
        q = rng.randint(3, 13)
        p = rng.randint(1, q - 1)
        if math.gcd(p, q) == 1:
            break
    quadrant = rng.randint(1, 4)
    sign_cos = 1 if quadrant in (1, 4) else -1
    sign_sin = 1 if quadrant in (1, 2) else -1
    rest = q * q - p * p
    low, high = ("0", r"\frac{\pi}{2}", r"\pi", r"\frac{3\pi}{2}", r"2\pi")[quadrant - 1 : quadrant + 1]
    given, other = rng.choice((("cos", "sin"), ("sin", "cos")))
    sign_given, sign_other = (sign_cos, sign_sin) if given == "cos" else (sign_sin, sign_cos)
    value = Fraction(sign_given * p, q)
    other_value = tex.surd(Fraction(sign_other, q), rest)
    sine_cosine = tex.surd(Fraction(2 * sign_sin * sign_cos * p, q * q), rest)
    double = 2 * value * value - 1 if given == "cos" else 1 - 2 * value * value
    tangent = (
        tex.surd(Fraction(sign_sin * sign_cos, p), rest)
        if given == "cos"
        else tex.surd(Fraction(sign_sin * sign_cos * p, rest), rest)
    )
    asked, answer, last = rng.choice(
        (
            (rf"\{other} \theta", other_value, ""),
            (r"\tan \theta", tangent, rf" Dividing $\sin \theta$ by $\cos \theta$ gives ${tangent}$."),
            (r"\sin 2\theta", sine_cosine, rf" So $\sin 2\theta = 2 \sin \theta \cos \theta = {sine_cosine}$."),
            (
                r"\cos 2\theta",
                tex.number(double),
                rf" So $\cos 2\theta = \cos^2 \theta - \sin^2 \theta = {tex.number(double)}$.",
            ),
        )
    )
    return Draft(
        rf"If $\{given} \theta = {tex.number(value)}$ and ${low} < \theta < {high}$, what is ${asked}$?{RADICAL}",
        answer,
        rf"From $\sin^2 \theta + \cos^2 \theta = 1$ we get $\{other}^2 \theta = {tex.number(1 - value * value)}$. For "
        rf"${low} < \theta < {high}$ the {'sine' if other == 'sin' else 'cosine'} is "
        rf"{'positive' if sign_other > 0 else 'negative'}, so $\{other} \theta = {other_value}$.{last}",
    )


@template(SUBJECT, 3)
def vector_projection(rng: Random) -> Draft:
    """Projection of one vector onto another."""
    size = rng.choice((2, 2, 3))
    while True:
        u, v = _vector(rng, 7, size), _vector(rng, 5, size)
        dot = _dot(u, v)
        if dot:
            break
    share = Fraction(dot, _dot(v, v))
    result = [share * x for x in v]
    return Draft(
        rng.choice(
            (
                f"Find the projection of the vector ${tex.column(u)}$ onto the vector ${tex.column(v)}$.",
                rf"Let $\mathbf{{u}} = {tex.column(u)}$ and $\mathbf{{v}} = {tex.column(v)}$. Compute the projection "
                rf"of $\mathbf{{u}}$ onto "
                r"$\mathbf{v}$.",
            )
        ),
        tex.column(result),
        rf"The projection is $\frac{{\mathbf{{u}} \cdot \mathbf{{v}}}}{{\mathbf{{v}} \cdot \mathbf{{v}}}} "
        rf"\mathbf{{v}}$ with $\mathbf{{u}} \cdot \mathbf{{v}} = {dot}$ and $\mathbf{{v}} \cdot \mathbf{{v}} = "
        rf"{_dot(v, v)}$. The factor is ${tex.number(share)}$, which gives ${tex.column(result)}$.",
    )


@template(SUBJECT, 3)
def determinant(rng: Random) -> Draft:
    """Determinant of a 3 by 3 matrix."""
    rows = [tuple(rng.randint(-6, 6) for _ in range(3)) for _ in range(3)]
    minors = _cross(rows[1], rows[2])
    result = _dot(rows[0], minors)
    body = tex.matrix(rows, "vmatrix")
    products = " + ".join(rf"{tex.paren(x)} \cdot {tex.paren(y)}" for x, y in zip(rows[0], minors, strict=True))
    return Draft(
        rng.choice((f"Compute the determinant ${body}$.", f"Evaluate ${body}$.")),
        str(result),
        f"Expanding along the first row, the cofactors are ${minors[0]}$, ${minors[1]}$ and ${minors[2]}$. The "
        f"determinant is ${products} = {result}$.",
    )


@template(SUBJECT, 3)
def polar_product(rng: Random) -> Draft:
    """Product or quotient of two complex numbers in polar form, in rectangular form."""
    r, s = rng.randint(2, 9), rng.randint(2, 9)
    total = rng.choice([angle for angle in NOTABLE if angle % 90])
    multiply = rng.random() < 0.6
    first = rng.choice([n for n in range(5, 360, 5) if n % 30])
    second = (total - first) % 360 if multiply else (first - total) % 360
    modulus = Fraction(r * s) if multiply else Fraction(r, s)
    (c, m), (d, n) = _cosine(total), _sine(total)
    real, imaginary = tex.surd(modulus * c, m), tex.multiple(modulus * d, "i" if n == 1 else f"i{tex.root(n)}")
    answer = tex.signed_sum([real, imaginary])

    def cis(radius: int, angle: int) -> str:
        return rf"{radius}(\cos {angle}^\circ + i \sin {angle}^\circ)"

    expression = rf"{cis(r, first)} \cdot {cis(s, second)}" if multiply else tex.frac(cis(r, first), cis(s, second))
    angles = f"{first}^\\circ {'+' if multiply else '-'} {second}^\\circ"
    size = rf"{r} \cdot {s} = {r * s}" if multiply else rf"\frac{{{r}}}{{{s}}}"
    return Draft(
        rng.choice((f"Compute ${expression}$.", f"Evaluate ${expression}$."))
        + " Express your answer in the form $a + bi$.",
        answer,
        rf"In polar form the moduli are {'multiplied' if multiply else 'divided'}, ${size}$, and the angles are "
        rf"{'added' if multiply else 'subtracted'}: ${angles}$, which is ${total}^\circ$ up to full turns. With $\cos "
        rf"{total}^\circ = {tex.surd(c, m)}$ and $\sin {total}^\circ = {tex.surd(d, n)}$ the result is ${answer}$.",
    )


@template(SUBJECT, 3)
def angle_between_vectors(rng: Random) -> Draft:
    """Cosine of the angle between two vectors."""
    size = rng.choice((2, 3))
    while True:
        u, v = _vector(rng, 5, size), _vector(rng, 5, size)
        dot, square = _dot(u, v), _dot(u, u) * _dot(v, v)
        if dot and dot * dot != square:
            break
    answer = tex.surd(Fraction(dot, square), square)
    return Draft(
        rng.choice(
            (
                rf"Let $\theta$ be the angle between the vectors ${tex.column(u)}$ and ${tex.column(v)}$. Find $\cos "
                rf"\theta$.",
                f"What is the cosine of the angle between ${tex.column(u)}$ and ${tex.column(v)}$?",
            )
        )
        + RADICAL,
        answer,
        rf"The dot product is ${dot}$ and the lengths are ${tex.surd(1, _dot(u, u))}$ and ${tex.surd(1, _dot(v, v))}$. "
        rf"The cosine is the dot product divided by both lengths, ${answer}$.",
    )


@template(SUBJECT, 4)
def de_moivre(rng: Random) -> Draft:
    """A high power of a complex number with a notable angle."""
    angle = rng.choice([n for n in NOTABLE if n % 90])
    scale, n = rng.randint(1, 3), rng.randint(4, 14)
    while scale**n > 300:
        scale, n = rng.randint(1, 3), rng.randint(4, 14)
    # Of modulus 2 * scale (angles of 30 and 60 degrees) or sqrt(2) * scale (45 degrees).
    square = 4 * scale**2 if angle % 30 == 0 else 2 * scale**2
    outside, inside = tex.square_part(square)

    def rectangular(modulus_factor: int, modulus_radicand: int, at: int) -> str:
        (c, a), (s, b) = _cosine(at), _sine(at)
        o, i = tex.square_part(b * modulus_radicand)
        imaginary = tex.multiple(modulus_factor * s * o, "i" if i == 1 else f"i{tex.root(i)}")
        return tex.signed_sum(
            part for part in (tex.surd(modulus_factor * c, a * modulus_radicand), imaginary) if part != "0"
        )

    base = rectangular(outside, inside, angle)
    power_outside, power_inside = tex.square_part(square**n)
    answer = rectangular(power_outside, power_inside, angle * n)
    modulus = tex.surd(power_outside, power_inside)
    written = tex.power(f"({base})", n)
    return Draft(
        rng.choice((f"Compute ${written}$.", f"Evaluate ${written}$, where $i^2 = -1$."))
        + " Express your answer in the form $a + bi$, in simplest radical form.",
        answer,
        rf"The number ${base}$ has modulus ${tex.surd(outside, inside)}$ and angle ${angle}^\circ$. By De Moivre's "
        rf"Theorem its power has modulus ${modulus}$ and angle ${n} \cdot {angle}^\circ = {n * angle}^\circ$, that is "
        rf"${n * angle % 360}^\circ$. So it equals ${answer}$.",
    )


@template(SUBJECT, 4)
def trigonometric_equation(rng: Random) -> Draft:
    """A quadratic equation in sine or cosine, solved in one turn."""
    name, function = rng.choice((("sin", _sine), ("cos", _cosine)))
    inside = (Fraction(0), HALF, -HALF, Fraction(1), Fraction(-1))
    outside = (
        *(Fraction(n, d) for d in (1, 2, 3) for n in (-5, -4, 4, 5) if n % d or d == 1),
        Fraction(2),
        Fraction(-3),
    )
    while True:
        u = rng.choice(inside)
        v = rng.choice(inside if rng.random() < 0.5 else outside)
        times = rng.choice((1, 1, 2))
        if u != v and (abs(v) <= 1 or u):
            break
    solutions = [
        angle
        for angle in range(0, 360, 15)
        if times * angle % 360 in NOTABLE and function(times * angle) in ((u, 1), (v, 1))
    ]
    lead = math.lcm(u.denominator, v.denominator)
    if (lead * (u + v)).denominator > 1 or (lead * u * v).denominator > 1:
        lead = u.denominator * v.denominator
    wave = rf"\{name} {'' if times == 1 else times}x"
    left = tex.combination(
        (lead, rf"\{name}^2 {'' if times == 1 else times}x"), (-lead * (u + v), wave), (lead * u * v, "")
    )
    shared = rf"$\{name} {'' if times == 1 else times}x$"
    reach = (
        f" The value ${tex.number(v)}$ is impossible because it does not lie between $-1$ and $1$."
        if abs(v) > 1
        else ""
    )
    return Draft(
        rng.choice(
            (
                rf"Find all solutions of ${left} = 0$ with $0 \le x < 2\pi$.",
                rf"Solve ${left} = 0$ for $0 \le x < 2\pi$.",
            )
        )
        + " Give the solutions in radians, in increasing order, separated by commas.",
        tex.listing(_radians(angle) for angle in solutions),
        rf"As a quadratic equation in {shared} this has the roots ${tex.number(u)}$ and ${tex.number(v)}$.{reach} "
        rf"Going once around the circle with $x$, the possible values of {shared} are taken at $x = "
        rf"{tex.listing(_radians(angle) for angle in solutions)}$.",
    )


@template(SUBJECT, 4)
def point_to_plane(rng: Random) -> Draft:
    """Distance from a point to a plane."""
    while True:
        normal, point = _vector(rng, 6), _vector(rng, 9)
        d = nonzero(rng, 15)
        value = _dot(normal, point) + d
        if value:
            break
    square = _dot(normal, normal)
    answer = tex.surd(Fraction(abs(value), square), square)
    left = tex.combination((normal[0], "x"), (normal[1], "y"), (normal[2], "z"), (d, ""))
    return Draft(
        rng.choice(
            (
                f"What is the distance from the point ${_point(point)}$ to the plane ${left} = 0$?",
                f"Find the distance between the plane ${left} = 0$ and the point ${_point(point)}$.",
            )
        )
        + RADICAL,
        answer,
        rf"Putting the point into the left side gives ${value}$. The normal vector has length ${tex.surd(1, square)}$. "
        rf"The distance is ${tex.equal(tex.frac(abs(value), tex.surd(1, square)), answer)}$.",
    )


@template(SUBJECT, 4)
def angle_sum_formula(rng: Random) -> Draft:
    """Sine or cosine of a sum or difference from two rational values in given quadrants."""
    triples = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29))
    quadrants = (("0", r"\frac{\pi}{2}", 1, 1), (r"\frac{\pi}{2}", r"\pi", -1, 1), (r"\pi", r"\frac{3\pi}{2}", -1, -1))

    def draw(symbol: str) -> tuple[Fraction, Fraction, str]:
        a, b, c = rng.choice(triples)
        if rng.random() < 0.5:
            a, b = b, a
        low, high, sign_cos, sign_sin = rng.choice(quadrants)
        cosine, sine = Fraction(sign_cos * a, c), Fraction(sign_sin * b, c)
        name, value = rng.choice((("sin", sine), ("cos", cosine)))
        return cosine, sine, rf"$\{name} {symbol} = {tex.number(value)}$ with ${low} < {symbol} < {high}$"

    ca, sa, first = draw(r"\alpha")
    cb, sb, second = draw(r"\beta")
    asked, value, formula = rng.choice(
        (
            (r"\sin(\alpha + \beta)", sa * cb + ca * sb, r"\sin \alpha \cos \beta + \cos \alpha \sin \beta"),
            (r"\sin(\alpha - \beta)", sa * cb - ca * sb, r"\sin \alpha \cos \beta - \cos \alpha \sin \beta"),
            (r"\cos(\alpha + \beta)", ca * cb - sa * sb, r"\cos \alpha \cos \beta - \sin \alpha \sin \beta"),
            (r"\cos(\alpha - \beta)", ca * cb + sa * sb, r"\cos \alpha \cos \beta + \sin \alpha \sin \beta"),
        )
    )
    return Draft(
        f"Suppose that {first}, and {second}. Find ${asked}$. Express your answer as an integer or as a fraction in "
        f"lowest terms.",
        tex.number(value),
        rf"The quadrants fix the signs: $\sin \alpha = {tex.number(sa)}$, $\cos \alpha = {tex.number(ca)}$, $\sin "
        rf"\beta = {tex.number(sb)}$ and $\cos \beta = {tex.number(cb)}$. So ${asked} = {formula} = "
        rf"{tex.number(value)}$.",
    )


@template(SUBJECT, 4)
def fifteen_degrees(rng: Random) -> Draft:
    """Sine, cosine or tangent of an odd multiple of 15 degrees."""
    name = rng.choice(("sin", "cos", "tan"))
    angle = rng.choice([n for n in range(-705, 1080, 30) if n % 45])
    reduced = angle % 360
    # sin 15 = (sqrt 6 - sqrt 2)/4, sin 75 = (sqrt 6 + sqrt 2)/4, tan 15 = 2 - sqrt 3 and tan 75 = 2 + sqrt 3;
    # every other value follows by symmetry.
    at = (reduced + 90) % 360 if name == "cos" else reduced
    steep = 1 if min(at % 180, 180 - at % 180) == 75 else -1
    if name == "tan":
        sign, terms, denominator = (1 if at % 180 < 90 else -1), [(2, ""), (steep, tex.root(3))], 1
    else:
        sign, terms, denominator = (1 if at < 180 else -1), [(1, tex.root(6)), (steep, tex.root(2))], 4
    signed_terms = [(sign * factor, symbol) for factor, symbol in terms]
    answer = tex.quotient(sorted(signed_terms, key=lambda term: term[0] < 0), denominator)
    degrees = rng.random() < 0.5
    written = tex.degrees(angle) if degrees else _radians(angle)
    signed = _parenthesized(written)
    split = next(n for n in (45, 135, 225, 315) if abs(reduced - n) in (30, 60) and (reduced - n) % 30 == 0)
    step = reduced - split
    a, b = tex.degrees(split), tex.degrees(abs(step))
    plus, minus = ("+", "-") if step > 0 else ("-", "+")
    formula = {
        "sin": rf"\sin {a} \cos {b} {plus} \cos {a} \sin {b}",
        "cos": rf"\cos {a} \cos {b} {minus} \sin {a} \sin {b}",
        "tan": rf"\frac{{\tan {a} {plus} \tan {b}}}{{1 {minus} \tan {a} \tan {b}}}",
    }[name]
    needed = [(r"\tan", _tangent)] if name == "tan" else [(r"\sin", _sine), (r"\cos", _cosine)]
    known = [
        f"${symbol} {tex.degrees(n)} = {tex.surd(*function(n))}$"
        for n in (split, abs(step))
        for symbol, function in needed
    ]
    return Draft(
        rng.choice((rf"Compute $\{name} {signed}$.", rf"What is the exact value of $\{name} {signed}$?")) + RADICAL,
        answer,
        rf"Up to full turns the angle is ${reduced}^\circ = {a} {plus} {b}$, so the value is ${formula}$. With "
        f"{', '.join(known)} this is ${answer}$.",
    )


@template(SUBJECT, 5)
def roots_of_complex_number(rng: Random) -> Draft:
    """Angles of all n-th roots of a complex number."""
    n = rng.randint(3, 6)
    angle = rng.choice([a for a in range(0, 360, 30) if a % n == 0])
    modulus = rng.randint(1, 4) ** n
    (c, m), (s, k) = _cosine(angle), _sine(angle)
    real, imaginary = tex.surd(modulus * c, m), tex.multiple(modulus * s, "i" if k == 1 else f"i{tex.root(k)}")
    target = tex.signed_sum(part for part in (real, imaginary) if part != "0")
    angles = [(angle + 360 * j) // n for j in range(n)]
    power = tex.power("z", n)
    if rng.random() < 0.7:
        return Draft(
            rf"The solutions of ${power} = {target}$ are written in the form $r(\cos \theta + i \sin \theta)$ with $r "
            rf"> 0$ and $0^\circ "
            r"\le \theta < 360^\circ$. Find all the values of $\theta$, in degrees. List them in increasing order, "
            r"separated by commas.",
            tex.listing(map(tex.degrees, angles)),
            rf"The right side has modulus ${modulus}$ and angle ${angle}^\circ$. So ${n}\theta = {angle}^\circ + k "
            rf"\cdot 360^\circ$ for $k = 0, 1, \ldots, {n - 1}$, which gives $\theta = "
            rf"{tex.listing(map(tex.degrees, angles))}$.",
        )
    pick = rng.randrange(n)
    place = ("first", "second", "third", "fourth", "fifth", "sixth")[pick]
    return Draft(
        rf"The solutions of ${power} = {target}$ are written in the form $r(\cos \theta + i \sin \theta)$ with $r > 0$ "
        rf"and $0 \le \theta < 2\pi$, ordered by increasing $\theta$. What is $\theta$, in radians, for the {place} of "
        rf"them?",
        _radians(angles[pick]),
        rf"The right side has modulus ${modulus}$ and angle ${_radians(angle)}$. So ${n}\theta = {_radians(angle)} + "
        rf"2k\pi$ for $k = 0, 1, \ldots, {n - 1}$, and the {place} solution belongs to $k = {pick}$: $\theta = "
        rf"{_radians(angles[pick])}$.",
    )


@template(SUBJECT, 5)
def matrix_power(rng: Random) -> Draft:
    """A power of a triangular or a rotation-like 2 by 2 matrix."""
    if rng.random() < 0.6:
        while True:
            p, q, r = nonzero(rng, 3), nonzero(rng, 9), nonzero(rng, 3)
            if p == r and abs(p) == 1:
                n = rng.randint(10, 99)
                break
            if p != r:
                n = rng.randint(4, 7)
                break
        entries = [[p, q], [0, r]]
        corner = q * sum(p ** (n - 1 - j) * r**j for j in range(n))
        result = [[p**n, corner], [0, r**n]]
        steps = (
            rf"The powers stay triangular, with ${tex.paren(p)}^{{{n}}} = {p**n}$ and ${tex.paren(r)}^{{{n}}} = "
            rf"{r**n}$ on the diagonal. The upper right entry is ${tex.paren(q)}$ times the sum of all products "
            rf"${tex.paren(p)}^{{i}} {tex.paren(r)}^{{j}}$ with $i + j = {n - 1}$, which is ${corner}$."
        )
    else:
        while True:
            a, b = nonzero(rng, 3), nonzero(rng, 3)
            n = rng.randint(3, 8)
            if (a * a + b * b) ** n < 10**6:
                break
        entries = [[a, -b], [b, a]]
        x, y = 1, 0
        for _ in range(n):
            x, y = x * a - y * b, x * b + y * a
        result = [[x, -y], [y, x]]
        z = tex.complex_number(a, b)
        steps = (
            r"Matrices of the form $\begin{pmatrix} x & -y \\ y & x \end{pmatrix}$ multiply like the complex numbers "
            r"$x + yi$. "
            rf"Since $({z})^{n} = {tex.complex_number(x, y)}$, the power is ${tex.matrix(result)}$."
        )
    return Draft(
        rng.choice(
            (
                f"Compute ${tex.power(tex.matrix(entries), n)}$.",
                rf"Let $\mathbf{{A}} = {tex.matrix(entries)}$. Find ${tex.power(BOLD_A, n)}$.",
            )
        ),
        tex.matrix(result),
        steps,
    )


@template(SUBJECT, 5)
def line_meets_plane(rng: Random) -> Draft:
    """Where the line through two points meets a plane."""
    while True:
        p, direction, normal = _vector(rng, 8), _vector(rng, 5), _vector(rng, 5)
        q = tuple(a + b for a, b in zip(p, direction, strict=True))
        d = rng.randint(-20, 20)
        slope = _dot(normal, direction)
        if slope and d != _dot(normal, p):
            break
    t = Fraction(d - _dot(normal, p), slope)
    point = tex.ordered(tex.number(a + t * b) for a, b in zip(p, direction, strict=True))
    plane = f"{tex.combination((normal[0], 'x'), (normal[1], 'y'), (normal[2], 'z'))} = {d}"
    value = tex.combination((_dot(normal, p), ""), (slope, "t"))
    return Draft(
        rng.choice(
            (
                f"The line through ${_point(p)}$ and ${_point(q)}$ meets the plane ${plane}$ at one point. Find this "
                f"point.",
                f"Find the point where the plane ${plane}$ meets the line through the points ${_point(p)}$ and "
                f"${_point(q)}$.",
            )
        )
        + " Express your answer as an ordered triple $(x, y, z)$.",
        point,
        rf"The points of the line are ${_point(p)} + t {_point(direction)}$. Putting them into the equation of the "
        rf"plane gives ${value} = {d}$, so $t = {tex.number(t)}$. The point is ${point}$.",
    )


@template(SUBJECT, 5)
def plane_through_points(rng: Random) -> Draft:
    """Equation of the plane through three points."""
    while True:
        p, q, r = (_vector(rng, 6) for _ in range(3))
        u, v = _minus(q, p), _minus(r, p)
        normal = _cross(u, v)
        if all(normal):
            break
    constant = -_dot(normal, p)
    shared = math.gcd(*normal, constant) * (1 if normal[0] > 0 else -1)
    a, b, c, d = (n // shared for n in (*normal, constant))
    answer = f"{tex.combination((a, 'x'), (b, 'y'), (c, 'z'), (d, ''))} = 0"
    return Draft(
        f"Find the equation of the plane that passes through ${_point(p)}$, ${_point(q)}$ and ${_point(r)}$. Express "
        f"your answer in the "
        r"form $Ax + By + Cz + D = 0$, where $A$, $B$, $C$ and $D$ are integers with $A > 0$ and $\gcd(|A|, |B|, |C|, "
        r"|D|) = 1$.",
        answer,
        rf"Two directions in the plane are ${_point(u)}$ and ${_point(v)}$. Their cross product ${_point(normal)}$ is "
        rf"a normal vector, which in lowest terms with a positive first entry is ${_point((a, b, c))}$. Putting in "
        rf"${_point(p)}$ gives $D = {d}$.",
    )


@template(SUBJECT, 5)
def skew_lines(rng: Random) -> Draft:
    """Distance between two skew lines."""
    while True:
        p, q = _vector(rng, 7), _vector(rng, 7)
        u, v = _vector(rng, 4), _vector(rng, 4)
        normal = _cross(u, v)
        value = _dot(normal, _minus(q, p))
        if any(normal) and value:
            break
    square = _dot(normal, normal)
    answer = tex.surd(Fraction(abs(value), square), square)
    return Draft(
        rf"Two lines in space are given by ${tex.column(p)} + s {tex.column(u)}$ and ${tex.column(q)} + t "
        rf"{tex.column(v)}$, where $s$ and $t$ run through the real numbers. What is the shortest distance between the "
        rf"two lines?{RADICAL}",
        answer,
        rf"The cross product of the directions is ${_point(normal)}$, of length ${tex.surd(1, square)}$. Its dot "
        rf"product with the difference ${_point(_minus(q, p))}$ of the starting points is ${value}$. The distance is "
        f"${tex.equal(tex.frac(abs(value), tex.surd(1, square)), answer)}$.",
    )


@template(SUBJECT, 5)
def triangle_in_space(rng: Random) -> Draft:
    """Area of a triangle with vertices in space."""
    while True:
        p, q, r = (_vector(rng, 7) for _ in range(3))
        u, v = _minus(q, p), _minus(r, p)
        normal = _cross(u, v)
        square = _dot(normal, normal)
        if square:
            break
    answer = tex.surd(HALF, square)
    return Draft(
        rng.choice(
            (
                f"What is the area of the triangle with vertices ${_point(p)}$, ${_point(q)}$ and ${_point(r)}$ in "
                f"space?",
                f"Let $A = {_point(p)}$, $B = {_point(q)}$ and $C = {_point(r)}$. Find the area of triangle $ABC$.",
            )
        )
        + RADICAL,
        answer,
        rf"Two sides are ${_point(u)}$ and ${_point(v)}$. Their cross product is ${_point(normal)}$, of length "
        rf"${tex.equal(tex.root(square), tex.surd(1, square))}$. The area is half of this, ${answer}$.",
    )


@template(SUBJECT, 5)
def wave_range(rng: Random) -> Draft:
    """Range of `a sin x + b cos x + c`."""
    while True:
        a, b, c = nonzero(rng, 9), nonzero(rng, 9), nonzero(rng, 9)
        square = a * a + b * b
        if math.isqrt(square) ** 2 != square:
            break
    times = rng.randint(1, 5)
    inside = tex.multiple(times, "x")
    rule = tex.combination((a, rf"\sin {inside}"), (b, rf"\cos {inside}"), (c, ""))
    low, high = tex.surd_sum(c, -1, square), tex.surd_sum(c, 1, square)
    return Draft(
        rng.choice(
            (
                f"Find the range of the function $f(x) = {rule}$, where $x$ is any real number.",
                f"What is the set of all values of ${rule}$ for real $x$?",
            )
        )
        + " Express your answer in interval notation, in simplest radical form.",
        tex.interval(low, high, "[]"),
        rf"The combination of sine and cosine is a wave with amplitude $\sqrt{{{a * a} + {b * b}}} = "
        rf"{tex.equal(tex.root(square), tex.surd(1, square))}$ and takes all values between minus and plus its "
        rf"amplitude. Adding ${c}$ gives the range from ${low}$ to ${high}$.",
    )
