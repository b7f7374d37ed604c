"""Geometry: angles, triangles, circles, polygons, solids, coordinates."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import Draft, distinct, nonzero, template

SUBJECT = "geometry"
IN_PI = r" Express your answer in terms of $\pi$."
RADICAL = " Express your answer in simplest radical form."
TRIPLES = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29), (9, 40, 41), (12, 35, 37), (11, 60, 61))
SQRT2, SQRT3 = tex.root(2), tex.root(3)


def _triangle(rng: Random, low: int, high: int) -> tuple[int, int, int]:
    """Integer sides, ascending, of a triangle that is neither flat nor equilateral."""
    while True:
        a, b, c = sorted(rng.randint(low, high) for _ in range(3))
        if a + b > c and a < c:
            return a, b, c


def _sixteen_area_squared(a: int, b: int, c: int) -> int:
    """Heron: 16 times the square of the area of a triangle."""
    return (a + b + c) * (-a + b + c) * (a - b + c) * (a + b - c)


@template(SUBJECT, 1)
def triangle_angle(rng: Random) -> Draft:
    """The third angle of a triangle, an exterior angle, or a base angle."""
    a, b = rng.randint(20, 85), rng.randint(20, 85)
    p, q, r = rng.sample("ABCDEFGHJKLMNPQRST", 3)
    kind = rng.randrange(3)
    if kind == 0:
        return Draft(
            rf"In triangle ${p}{q}{r}$, $\angle {p} = {a}^\circ$ and $\angle {q} = {b}^\circ$. What is the measure of "
            rf"$\angle {r}$, in degrees?",
            tex.degrees(180 - a - b),
            rf"The angles of a triangle add up to $180^\circ$, so $\angle {r} = 180^\circ - {a}^\circ - {b}^\circ = "
            rf"{180 - a - b}^\circ$.",
        )
    if kind == 1:
        return Draft(
            rf"In triangle ${p}{q}{r}$, $\angle {p} = {a}^\circ$ and $\angle {q} = {b}^\circ$. What is the measure of "
            rf"the exterior angle of the triangle at ${r}$, in degrees?",
            tex.degrees(a + b),
            rf"An exterior angle equals the sum of the two interior angles that are not adjacent to it: ${a}^\circ + "
            rf"{b}^\circ = {a + b}^\circ$.",
        )
    a *= 2
    return Draft(
        rf"In triangle ${p}{q}{r}$ the sides $\overline{{{p}{q}}}$ and $\overline{{{p}{r}}}$ have the same length, and "
        rf"$\angle {p} = {a}^\circ$. What is the measure of $\angle {q}$, in degrees?",
        tex.degrees(90 - a // 2),
        rf"The triangle is isosceles, so $\angle {q} = \angle {r}$. Together they measure $180^\circ - {a}^\circ = "
        rf"{180 - a}^\circ$, and each of them half of it, ${90 - a // 2}^\circ$.",
    )


@template(SUBJECT, 1)
def circle_measure(rng: Random) -> Draft:
    """Area or circumference of a circle from its radius or diameter, or from each other."""
    r = rng.randint(2, 60)
    unit = rng.choice(("inches", "centimeters", "meters", "feet"))
    area, circumference = tex.pi(r * r), tex.pi(2 * r)
    if rng.random() < 0.35:
        return Draft(
            rf"A circle has a circumference of ${circumference}$ {unit}. What is its area, in square {unit}?{IN_PI}",
            area,
            rf"From $2\pi r = {circumference}$ we get $r = {r}$, so the area is $\pi \cdot {r}^2 = {area}$.",
        )
    by_diameter = rng.random() < 0.5
    given = f"a diameter of ${2 * r}$ {unit}" if by_diameter else f"a radius of ${r}$ {unit}"
    start = f"The radius is half of ${2 * r}$, that is ${r}$. " if by_diameter else ""
    if rng.random() < 0.5:
        return Draft(
            f"What is the area, in square {unit}, of a circle with {given}?{IN_PI}",
            area,
            rf"{start}The area is $\pi r^2 = \pi \cdot {r}^2 = {area}$.",
        )
    return Draft(
        f"A circle has {given}. What is its circumference, in {unit}?{IN_PI}",
        circumference,
        rf"{start}The circumference is $2 \pi r = 2 \pi \cdot {r} = {circumference}$.",
    )


@template(SUBJECT, 1)
def rectangle_sides(rng: Random) -> Draft:
    """Perimeter from area and a side, or area from perimeter and a side."""
    a, b = rng.randint(2, 40), rng.randint(2, 40)
    while a == b:
        b = rng.randint(2, 40)
    if rng.random() < 0.5:
        return Draft(
            f"A rectangle has an area of ${a * b}$ square units, and one of its sides is ${a}$ units long. What is its "
            "perimeter, in units?",
            str(2 * (a + b)),
            rf"The other side is ${a * b} \div {a} = {b}$, so the perimeter is $2({a} + {b}) = {2 * (a + b)}$.",
        )
    return Draft(
        f"The perimeter of a rectangle is ${2 * (a + b)}$ units, and one of its sides is ${a}$ units long. What is its "
        f"area, in "
        "square units?",
        str(a * b),
        rf"Half of the perimeter is ${a + b}$, so the other side is ${a + b} - {a} = {b}$ and the area is ${a} \cdot "
        rf"{b} = {a * b}$.",
    )


@template(SUBJECT, 1)
def pythagorean_side(rng: Random) -> Draft:
    """The missing side of a right triangle with integer sides."""
    scale = rng.randint(1, 9)
    a, b, c = (scale * n for n in rng.choice(TRIPLES))
    if rng.random() < 0.5:
        a, b = b, a
    if rng.random() < 0.5:
        return Draft(
            rng.choice(
                (
                    f"The legs of a right triangle have lengths ${a}$ and ${b}$. What is the length of the hypotenuse?",
                    f"A ship sails ${a}$ miles due north and then ${b}$ miles due east. How many miles is it from its "
                    f"starting "
                    "point?",
                )
            ),
            str(c),
            rf"By the Pythagorean Theorem, ${a}^2 + {b}^2 = {a * a} + {b * b} = {c * c}$, and $\sqrt{{{c * c}}} = "
            rf"{c}$.",
        )
    return Draft(
        rng.choice(
            (
                f"The hypotenuse of a right triangle is ${c}$ and one leg is ${a}$. What is the length of the other "
                f"leg?",
                f"A ladder of length ${c}$ feet leans against a vertical wall. Its foot is ${a}$ feet away from the "
                f"wall on level "
                "ground. How many feet high is its top?",
            )
        ),
        str(b),
        rf"By the Pythagorean Theorem, the square of the missing side is ${c}^2 - {a}^2 = {c * c} - {a * a} = "
        rf"{b * b}$, and $\sqrt{{{b * b}}} = {b}$.",
    )


@template(SUBJECT, 2)
def sector_measure(rng: Random) -> Draft:
    """Area of a sector or length of an arc."""
    r, angle = rng.randint(2, 24), rng.choice([n for n in range(10, 360, 5) if n != 180])
    share = Fraction(angle, 360)
    if rng.random() < 0.5:
        answer = tex.pi(share * r * r)
        return Draft(
            rf"What is the area of a sector with a central angle of ${angle}^\circ$ in a circle of radius "
            rf"${r}$?{IN_PI}",
            answer,
            rf"The sector is $\frac{{{angle}}}{{360}} = {tex.number(share)}$ of the circle, whose area is "
            rf"${tex.pi(r * r)}$. Its area is ${tex.number(share)} \cdot {tex.pi(r * r)} = {answer}$.",
        )
    answer = tex.pi(share * 2 * r)
    return Draft(
        rf"In a circle of radius ${r}$, how long is an arc with a central angle of ${angle}^\circ$?{IN_PI}",
        answer,
        rf"The arc is $\frac{{{angle}}}{{360}} = {tex.number(share)}$ of the circumference, which is "
        rf"${tex.pi(2 * r)}$. Its length is ${tex.number(share)} \cdot {tex.pi(2 * r)} = {answer}$.",
    )


@template(SUBJECT, 2)
def similar_triangles(rng: Random) -> Draft:
    """A missing length by similarity."""
    a, b, c = rng.randint(3, 20), rng.randint(3, 20), rng.randint(3, 30)
    while len({a, b, c}) < 3:
        a, b, c = rng.randint(3, 20), rng.randint(3, 20), rng.randint(3, 30)
    result = Fraction(b * c, a)
    question = rng.choice(
        (
            rf"Triangles $ABC$ and $DEF$ are similar, with $A$, $B$, $C$ corresponding to $D$, $E$, $F$. If $AB = "
            rf"{a}$, $DE = {b}$ and $BC = {c}$, what is $EF$?",
            f"A vertical pole ${a}$ feet tall casts a shadow ${b}$ feet long. At the same time a building ${c}$ feet "
            f"tall casts a "
            "shadow on level ground. How many feet long is the shadow of the building?",
        )
    )
    return Draft(
        question + " Express your answer as an integer or as a fraction in lowest terms.",
        tex.number(result),
        rf"Corresponding lengths are proportional with the factor "
        rf"${tex.equal(tex.frac(b, a), tex.number(Fraction(b, a)))}$, so the length is ${c} \cdot "
        rf"{tex.number(Fraction(b, a))} = {tex.number(result)}$.",
    )


@template(SUBJECT, 2)
def special_right_triangle(rng: Random) -> Draft:
    """Sides of 30-60-90 and 45-45-90 triangles."""
    n = rng.randint(2, 60)
    # (given side, asked side, square of their quotient, explanation)
    given, asked, square, ratio = rng.choice(
        (
            ("hypotenuse", "shorter leg", Fraction(1, 4), rf"1 : {SQRT3} : 2"),
            ("hypotenuse", "longer leg", Fraction(3, 4), rf"1 : {SQRT3} : 2"),
            ("shorter leg", "longer leg", Fraction(3), rf"1 : {SQRT3} : 2"),
            ("longer leg", "hypotenuse", Fraction(4, 3), rf"1 : {SQRT3} : 2"),
            ("longer leg", "shorter leg", Fraction(1, 3), rf"1 : {SQRT3} : 2"),
            ("hypotenuse", "legs", Fraction(1, 2), rf"1 : 1 : {SQRT2}"),
            ("legs", "hypotenuse", Fraction(2), rf"1 : 1 : {SQRT2}"),
        )
    )
    angle = 45 if ratio.startswith("1 : 1") else rng.choice((30, 60))
    answer = tex.square_root(square * n * n)
    given = "each leg" if given == "legs" else f"the {given}"
    asked = "each leg" if asked == "legs" else f"the {asked}"
    return Draft(
        rf"A right triangle has an angle of ${angle}^\circ$, and {given} has length ${n}$. What is the length of "
        rf"{asked}?{RADICAL}",
        answer,
        rf"The sides of such a triangle are in the ratio ${ratio}$. So the length of {asked} is ${n} \cdot "
        rf"{tex.square_root(square)} = {answer}$.",
    )


@template(SUBJECT, 2)
def transformed_point(rng: Random) -> Draft:
    """A reflected or rotated point."""
    while True:
        x, y = nonzero(rng, 15), nonzero(rng, 15)
        if abs(x) != abs(y):
            break
    k = nonzero(rng, 8)
    move, image, rule = rng.choice(
        (
            ("reflected over the line $y = x$", (y, x), "swaps the two coordinates"),
            ("reflected over the line $y = -x$", (-y, -x), "swaps the two coordinates and changes both signs"),
            (
                f"reflected over the vertical line $x = {k}$",
                (2 * k - x, y),
                f"replaces $x$ by ${2 * k} - x$ and keeps $y$",
            ),
            (
                f"reflected over the horizontal line $y = {k}$",
                (x, 2 * k - y),
                f"keeps $x$ and replaces $y$ by ${2 * k} - y$",
            ),
            (r"rotated $90^\circ$ counterclockwise about the origin", (-y, x), "sends $(x, y)$ to $(-y, x)$"),
            (r"rotated $90^\circ$ clockwise about the origin", (y, -x), "sends $(x, y)$ to $(y, -x)$"),
            (f"reflected through the point $({k}, 0)$", (2 * k - x, -y), f"sends $(x, y)$ to $({2 * k} - x, -y)$"),
        )
    )
    return Draft(
        f"The point $({x}, {y})$ is {move}. What are the coordinates of its image? Express your answer as an ordered "
        f"pair $(x, y)$.",
        f"({image[0]}, {image[1]})",
        f"This transformation {rule}, so $({x}, {y})$ goes to $({image[0]}, {image[1]})$.",
    )


@template(SUBJECT, 3)
def regular_polygon_area(rng: Random) -> Draft:
    """Area of an equilateral triangle or a regular hexagon."""
    n = rng.randint(2, 80)
    shape, sides, share = rng.choice(
        (("equilateral triangle", 3, Fraction(1, 4)), ("regular hexagon", 6, Fraction(3, 2)))
    )
    kind = rng.randrange(3)
    if kind == 0:
        side, given, step = Fraction(n), f"side length ${n}$", ""
    elif kind == 1:
        side, given = Fraction(n, sides), f"perimeter ${n}$"
        step = f"The side length is ${tex.equal(tex.frac(n, sides), tex.number(side))}$. "
    elif sides == 6:
        side, given = Fraction(n, 2), f"longest diagonals of length ${n}$"
        step = f"The longest diagonal is twice the side, so the side length is ${tex.number(side)}$. "
    else:
        area = tex.multiple(Fraction(n * n, 3), SQRT3)
        return Draft(
            f"What is the area of an equilateral triangle with height ${n}$?{RADICAL}",
            area,
            rf"The height is $\frac{{\sqrt{{3}}}}{{2}}$ times the side, so the side is $\frac{{2}}{{\sqrt{{3}}}} \cdot "
            rf"{n} = {tex.multiple(Fraction(2 * n, 3), SQRT3)}$. The area is $\frac{{1}}{{2}} \cdot "
            rf"{tex.multiple(Fraction(2 * n, 3), SQRT3)} \cdot {n} = {area}$.",
        )
    area = tex.multiple(share * side * side, SQRT3)
    formula = r"\frac{\sqrt{3}}{4} s^2" if sides == 3 else r"6 \cdot \frac{\sqrt{3}}{4} s^2"
    square = tex.number(side * side)
    return Draft(
        f"What is the area of {'an' if sides == 3 else 'a'} {shape} with {given}?{RADICAL}",
        area,
        f"{step}The area is ${formula}$ with $s^2 = {square}$, which gives ${area}$.",
    )


@template(SUBJECT, 3)
def round_solid(rng: Random) -> Draft:
    """Volume or surface of cones, cylinders, spheres and hemispheres."""
    r, h = rng.randint(2, 20), rng.randint(2, 20)
    radius, both = f"$r = {r}$", f"$r = {r}$ and $h = {h}$"
    what, factor, formula, values = rng.choice(
        (
            (
                f"volume of a cone with base radius ${r}$ and height ${h}$",
                Fraction(r * r * h, 3),
                r"\frac{1}{3} \pi r^2 h",
                both,
            ),
            (f"volume of a cylinder with radius ${r}$ and height ${h}$", Fraction(r * r * h), r"\pi r^2 h", both),
            (
                f"total surface area of a cylinder with radius ${r}$ and height ${h}$, both bases included",
                Fraction(2 * r * (r + h)),
                r"2 \pi r^2 + 2 \pi r h",
                both,
            ),
            (f"volume of a sphere with radius ${r}$", Fraction(4 * r**3, 3), r"\frac{4}{3} \pi r^3", radius),
            (f"surface area of a sphere with diameter ${2 * r}$", Fraction(4 * r * r), r"4 \pi r^2", radius),
            (f"volume of a solid hemisphere with radius ${r}$", Fraction(2 * r**3, 3), r"\frac{2}{3} \pi r^3", radius),
            (
                f"total surface area of a solid hemisphere with radius ${r}$, its flat face included",
                Fraction(3 * r * r),
                r"2 \pi r^2 + \pi r^2",
                radius,
            ),
        )
    )
    return Draft(
        rng.choice((f"What is the {what}?{IN_PI}", f"Find the {what}.{IN_PI}")),
        tex.pi(factor),
        f"The formula is ${formula}$ with {values}, which gives ${tex.pi(factor)}$.",
    )


@template(SUBJECT, 3)
def triangle_from_vertices(rng: Random) -> Draft:
    """Area of a triangle in the coordinate plane."""
    while True:
        points = [(rng.randint(-9, 9), rng.randint(-9, 9)) for _ in range(3)]
        (x1, y1), (x2, y2), (x3, y3) = points
        u, v, s, t = x2 - x1, y2 - y1, x3 - x1, y3 - y1
        cross = u * t - v * s
        if cross:
            break
    result = Fraction(abs(cross), 2)
    return Draft(
        rng.choice(
            (
                f"What is the area of the triangle with vertices $({x1}, {y1})$, $({x2}, {y2})$ and $({x3}, {y3})$?",
                f"The points $A = ({x1}, {y1})$, $B = ({x2}, {y2})$ and $C = ({x3}, {y3})$ are joined to form a "
                f"triangle. Find its "
                "area.",
            )
        ),
        tex.number(result),
        rf"From the first vertex the other two are reached by $({u}, {v})$ and $({s}, {t})$. The area is "
        rf"$\frac{{1}}{{2}} |{tex.product((u, t))} - {tex.paren(v)} \cdot {tex.paren(s)}| = \frac{{1}}{{2}} \cdot "
        rf"{abs(cross)} = {tex.number(result)}$.",
    )


@template(SUBJECT, 3)
def box_diagonal(rng: Random) -> Draft:
    """Space diagonal of a box, or an edge from it."""
    while True:
        a, b, c = (rng.randint(2, 15) for _ in range(3))
        square = a * a + b * b + c * c
        if math.isqrt(square) ** 2 != square:
            break
    answer = tex.surd(1, square)
    return Draft(
        rng.choice(
            (
                f"A rectangular box has edges of length ${a}$, ${b}$ and ${c}$. How long is a diagonal that joins two "
                f"opposite "
                "corners through the inside of the box?",
                f"A box is ${a}$ inches wide, ${b}$ inches deep and ${c}$ inches high. What is the length, in inches, "
                f"of the "
                "longest straight thin rod that fits into it?",
            )
        )
        + RADICAL,
        answer,
        rf"Using the Pythagorean Theorem twice, the square of the diagonal is ${a}^2 + {b}^2 + {c}^2 = {square}$, so "
        rf"its length is ${tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 4)
def heron_area(rng: Random) -> Draft:
    """Area of a triangle from its three sides."""
    a, b, c = _triangle(rng, 3, 20)
    s = Fraction(a + b + c, 2)
    inner = _sixteen_area_squared(a, b, c)
    answer = tex.square_root(Fraction(inner, 16))
    parts = r" \cdot ".join(tex.number(n) for n in (s, s - a, s - b, s - c))
    shown = [a, b, c]
    rng.shuffle(shown)
    return Draft(
        rng.choice(
            (
                f"What is the area of a triangle with side lengths ${shown[0]}$, ${shown[1]}$ and ${shown[2]}$?",
                f"A triangle has sides of length ${shown[0]}$, ${shown[1]}$ and ${shown[2]}$. Find its area.",
            )
        )
        + RADICAL,
        answer,
        rf"The semiperimeter is $s = {tex.number(s)}$. By Heron's formula the area is $\sqrt{{{parts}}} = "
        rf"{tex.equal(tex.root(tex.number(Fraction(inner, 16))), answer)}$.",
    )


@template(SUBJECT, 4)
def third_side(rng: Random) -> Draft:
    """Third side of a triangle from two sides and their angle."""
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    angle, twice_cosine = rng.choice(((60, 1), (120, -1)))
    while a == b and angle == 60:
        b = rng.randint(2, 20)
    square = a * a + b * b - twice_cosine * a * b
    answer = tex.surd(1, square)
    p, q, r = rng.sample("ABCDEFGHJKLMNPQRST", 3)
    sign = "-" if twice_cosine == 1 else "+"
    return Draft(
        rf"In triangle ${p}{q}{r}$, ${p}{q} = {a}$, ${p}{r} = {b}$ and $\angle {p} = {angle}^\circ$. What is the "
        rf"length of $\overline{{{q}{r}}}$?{RADICAL}",
        answer,
        rf"By the Law of Cosines, ${q}{r}^2 = {a}^2 + {b}^2 - 2 \cdot {a} \cdot {b} \cos {angle}^\circ = {a * a} + "
        rf"{b * b} {sign} {a * b} = {square}$. So ${q}{r} = {tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 4)
def cone_surface(rng: Random) -> Draft:
    """Lateral area of a cone with an irrational slant height, or the height of a cone rolled from a sector."""
    r, h = rng.randint(1, 15), rng.randint(1, 15)
    if rng.random() < 0.6:
        square = r * r + h * h
        outside, inside = tex.square_part(square)
        answer = tex.multiple(r * outside, r"\pi" if inside == 1 else rf"\pi{tex.root(inside)}")
        return Draft(
            rng.choice(
                (
                    f"A right circular cone has base radius ${r}$ and height ${h}$. What is the area of its lateral "
                    f"surface, the "
                    "base not included?",
                    f"Find the lateral surface area (without the base) of a right circular cone of height ${h}$ and "
                    f"base radius ${r}$.",
                )
            )
            + r" Express your answer in terms of $\pi$, in simplest radical form.",
            answer,
            rf"The slant height is $\sqrt{{{r}^2 + {h}^2}} = {tex.equal(tex.root(square), tex.surd(1, square))}$. The "
            rf"lateral area is $\pi$ times the radius times the slant height, which is ${answer}$.",
        )
    angle = rng.choice((60, 72, 90, 120, 144, 180, 216, 240, 270, 288, 300))
    share = Fraction(angle, 360)
    slant = share.denominator * rng.randint(1, 8)
    radius = int(share * slant)
    square = slant * slant - radius * radius
    answer = tex.surd(1, square)
    return Draft(
        rf"A sector with radius ${slant}$ and central angle ${angle}^\circ$ is rolled up to form the lateral surface "
        rf"of a cone. What is the height of the cone?{RADICAL}",
        answer,
        rf"The arc, ${tex.number(share)} \cdot 2 \pi \cdot {slant} = {tex.pi(2 * radius)}$, becomes the circumference "
        rf"of the base, so the base radius is ${radius}$. The slant height is ${slant}$, and the height is "
        rf"$\sqrt{{{slant}^2 - {radius}^2}} = {tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 4)
def circular_segment(rng: Random) -> Draft:
    """Area between a chord and its arc."""
    r = rng.randint(2, 60)
    angle, factor, symbol = rng.choice(
        ((60, Fraction(1, 4), SQRT3), (90, Fraction(1, 2), ""), (120, Fraction(1, 4), SQRT3))
    )
    sector, triangle = Fraction(angle * r * r, 360), factor * r * r
    smaller = rng.random() < 0.6
    pi_part = sector if smaller else r * r - sector
    answer = tex.combination((pi_part, r"\pi"), (-triangle if smaller else triangle, symbol))
    words = "smaller" if smaller else "larger"
    combined = "less" if smaller else "plus"
    return Draft(
        rf"A chord of a circle of radius ${r}$ subtends a central angle of ${angle}^\circ$ and cuts the disk into two "
        rf"regions. What is the area of the {words} region? Express your answer in terms of $\pi$, in simplest radical "
        rf"form.",
        answer,
        rf"The sector on the {words} side has area ${tex.pi(pi_part)}$. The triangle formed by the chord and two radii "
        rf"has area $\frac{{1}}{{2}} \cdot {r}^2 \sin {angle}^\circ = {tex.multiple(triangle, symbol)}$. The region is "
        rf"the sector {combined} the triangle, ${answer}$.",
    )


@template(SUBJECT, 4)
def angle_bisector(rng: Random) -> Draft:
    """Where an angle bisector divides the opposite side."""
    while True:
        a, b, c = (rng.randint(3, 25) for _ in range(3))
        if a + b > c and b + c > a and a + c > b and b != c:
            break
    result = Fraction(a * c, b + c)
    p, q, r, d = rng.sample("ABCDEFGHJKLMNPQRST", 4)
    return Draft(
        rf"In triangle ${p}{q}{r}$, ${p}{q} = {c}$, ${p}{r} = {b}$ and ${q}{r} = {a}$. The bisector of $\angle {p}$ "
        rf"meets side $\overline{{{q}{r}}}$ at ${d}$. What is ${q}{d}$? Express your answer as an integer or as a "
        rf"fraction in lowest terms.",
        tex.number(result),
        rf"By the Angle Bisector Theorem, ${q}{d} : {d}{r} = {p}{q} : {p}{r} = {c} : {b}$. So ${q}{d}$ is "
        rf"$\frac{{{c}}}{{{b + c}}}$ of ${q}{r} = {a}$, which is "
        rf"${tex.equal(tex.frac(a * c, b + c), tex.number(result))}$.",
    )


@template(SUBJECT, 5)
def triangle_circles(rng: Random) -> Draft:
    """Inradius or circumradius of a triangle with given sides."""
    a, b, c = _triangle(rng, 4, 20)
    inner = _sixteen_area_squared(a, b, c)
    area = tex.square_root(Fraction(inner, 16))
    shown = [a, b, c]
    rng.shuffle(shown)
    sides = f"${shown[0]}$, ${shown[1]}$ and ${shown[2]}$"
    if rng.random() < 0.5:
        answer = tex.square_root(Fraction(inner, 4 * (a + b + c) ** 2))
        return Draft(
            f"A circle is inscribed in a triangle with side lengths {sides}. What is the radius of the "
            f"circle?{RADICAL}",
            answer,
            rf"By Heron's formula the area of the triangle is $K = {area}$. With the semiperimeter $s = "
            rf"{tex.number(Fraction(a + b + c, 2))}$, the radius is $\frac{{K}}{{s}} = {answer}$.",
        )
    answer = tex.square_root(Fraction((a * b * c) ** 2, inner))
    return Draft(
        f"A triangle with side lengths {sides} is inscribed in a circle. What is the radius of the circle?{RADICAL}",
        answer,
        rf"By Heron's formula the area of the triangle is $K = {area}$. The radius of the circumscribed circle is "
        rf"$\frac{{abc}}{{4K}}$ with $abc = {tex.product(shown)} = {a * b * c}$, which gives ${answer}$.",
    )


@template(SUBJECT, 5)
def pyramid_volume(rng: Random) -> Draft:
    """Volume of a regular pyramid from its base edge and lateral edge."""
    sides, base = rng.choice(((3, "an equilateral triangle"), (4, "a square"), (6, "a regular hexagon")))
    while True:
        s, e = rng.randint(2, 18), rng.randint(3, 24)
        # squared distance from the center of the base to its vertices: s^2/3, s^2/2, s^2
        height_squared = e * e - Fraction(s * s, {3: 3, 4: 2, 6: 1}[sides])
        if height_squared > 0 and (sides != 3 or s != e or rng.random() < 0.5):
            break
    base_area_squared = {3: Fraction(3 * s**4, 16), 4: Fraction(s**4), 6: Fraction(27 * s**4, 4)}[sides]
    answer = tex.square_root(base_area_squared * height_squared / 9)
    return Draft(
        f"The base of a pyramid is {base} with side length ${s}$, and each of its lateral edges has length ${e}$. What "
        f"is the volume of the pyramid?{RADICAL}",
        answer,
        rf"All lateral edges are equal, so the foot of the height is the center of the base, at distance "
        rf"${tex.square_root(e * e - height_squared)}$ from the vertices of the base. The height is "
        rf"${tex.square_root(height_squared)}$ and the area of the base is ${tex.square_root(base_area_squared)}$. A "
        rf"third of their product is ${answer}$.",
    )


@template(SUBJECT, 5)
def two_circles(rng: Random) -> Draft:
    """Common tangents of two circles, or a belt around two circles that touch."""
    if rng.random() < 0.3:
        r = rng.randint(1, 30)
        # Radii r and 3r at distance 4r: the tangents make angles of 60 degrees with the line of centers.
        answer = tex.combination((4 * r, SQRT3), (Fraction(14 * r, 3), r"\pi"))
        return Draft(
            rf"Two wheels with radii ${r}$ and ${3 * r}$ lie in a plane and touch each other from outside. A tight "
            rf"belt runs around "
            r"both of them without crossing itself. How long is the belt? Express your answer in terms of $\pi$, in "
            r"simplest radical "
            "form.",
            answer,
            rf"The centers are ${4 * r}$ apart. Each straight part has length $\sqrt{{{4 * r}^2 - {2 * r}^2}} = "
            rf"{tex.multiple(2 * r, SQRT3)}$ and makes an angle of $30^\circ$ with the line of centers, so the belt "
            rf"covers $240^\circ$ of the large wheel and $120^\circ$ of the small one: ${tex.pi(4 * r)}$ and "
            rf"${tex.pi(Fraction(2 * r, 3))}$. In all, the length is ${answer}$.",
        )
    r, s = distinct(rng, 1, 20, 2)
    d = rng.randint(r + s + 1, r + s + 25)
    outer = rng.random() < 0.5
    square = d * d - (s - r) ** 2 if outer else d * d - (s + r) ** 2
    answer = tex.surd(1, square)
    leg = f"{s} - {r}" if outer else f"{s} + {r}"
    return Draft(
        f"Two circles have radii ${r}$ and ${s}$, and their centers are ${d}$ units apart. A line touches both "
        f"circles, which lie on {'the same side' if outer else 'opposite sides'} of the line. What is the distance "
        f"between the two points of contact?"
        f"{RADICAL}",
        answer,
        rf"Shifting the tangent to the center of the smaller circle gives a right triangle with hypotenuse ${d}$ and "
        rf"one leg ${leg} = {s - r if outer else s + r}$. The other leg is $\sqrt{{{d}^2 - "
        rf"{s - r if outer else s + r}^2}} = {tex.equal(tex.root(square), answer)}$.",
    )


@template(SUBJECT, 5)
def circumcenter(rng: Random) -> Draft:
    """Center of the circle through three points."""
    while True:
        points = [(rng.randint(-9, 9), rng.randint(-9, 9)) for _ in range(3)]
        (x1, y1), (x2, y2), (x3, y3) = points
        a, b, c, d = 2 * (x2 - x1), 2 * (y2 - y1), 2 * (x3 - x1), 2 * (y3 - y1)
        det = a * d - b * c
        if det:
            break
    e = x2 * x2 + y2 * y2 - x1 * x1 - y1 * y1
    f = x3 * x3 + y3 * y3 - x1 * x1 - y1 * y1
    center = tex.ordered(map(tex.number, (Fraction(e * d - b * f, det), Fraction(a * f - e * c, det))))
    return Draft(
        rng.choice(
            (
                f"Find the center of the circle that passes through $({x1}, {y1})$, $({x2}, {y2})$ and $({x3}, {y3})$.",
                f"Which point of the plane has the same distance to $({x1}, {y1})$, $({x2}, {y2})$ and $({x3}, {y3})$?",
            )
        )
        + " Express your answer as an ordered pair $(x, y)$.",
        center,
        rf"Equal distances to the first and second point mean ${tex.combination((a, 'x'), (b, 'y'))} = {e}$; equal "
        rf"distances to the first and third point mean ${tex.combination((c, 'x'), (d, 'y'))} = {f}$. The solution of "
        rf"this system is ${center}$.",
    )


@template(SUBJECT, 5)
def cevian_length(rng: Random) -> Draft:
    """Length of a cevian by Stewart's theorem; the median is the special case of equal parts."""
    while True:
        m, n = rng.randint(1, 12), rng.randint(1, 12)
        b, c = rng.randint(3, 20), rng.randint(3, 20)
        a = m + n
        if a + b > c and b + c > a and a + c > b and b != c:
            break
    square = Fraction(b * b * m + c * c * n, a) - m * n
    answer = tex.square_root(square)
    p, q, r, d = rng.sample("ABCDEFGHJKLMNPQRST", 4)
    return Draft(
        rf"In triangle ${p}{q}{r}$, ${p}{q} = {c}$ and ${p}{r} = {b}$. Point ${d}$ lies on side $\overline{{{q}{r}}}$ "
        rf"with ${q}{d} = {m}$ and ${d}{r} = {n}$. What is ${p}{d}$?{RADICAL}",
        answer,
        rf"By Stewart's Theorem, ${b}^2 \cdot {m} + {c}^2 \cdot {n} = {a} ({p}{d}^2 + {m} \cdot {n})$, so ${p}{d}^2 = "
        rf"\frac{{{b * b * m + c * c * n}}}{{{a}}} - {m * n} = {tex.number(square)}$ and ${p}{d} = {answer}$.",
    )
