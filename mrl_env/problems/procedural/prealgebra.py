"""Prealgebra: fractions, percentages, decimals, ratios, means, first areas and exponents."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import NAMES, Draft, distinct, nonzero, reduced, template

SUBJECT = "prealgebra"


@template(SUBJECT, 1)
def fraction_sum(rng: Random) -> Draft:
    """Sum or difference of two proper fractions."""
    while True:
        b, d = rng.sample(range(2, 16), 2)
        a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
        if math.gcd(a, b) == math.gcd(c, d) == 1:
            break
    sign = rng.choice((1, -1))
    common = math.lcm(b, d)
    p, q = a * common // b, c * common // d
    result = Fraction(p + sign * q, common)
    plus = "+" if sign == 1 else "-"
    expression = rf"\frac{{{a}}}{{{b}}} {plus} \frac{{{c}}}{{{d}}}"
    return Draft(
        rng.choice((f"Compute ${expression}$.", f"What is the value of ${expression}$?"))
        + " Express your answer as a fraction in lowest terms.",
        tex.number(result),
        rf"The least common denominator is ${common}$, so ${expression} = \frac{{{p}}}{{{common}}} {plus} "
        rf"\frac{{{q}}}{{{common}}} = {tex.equal(tex.frac(p + sign * q, common), tex.number(result))}$.",
    )


@template(SUBJECT, 1)
def order_of_operations(rng: Random) -> Draft:
    """A product of a number and a parenthesis inside a sum."""
    a, b, c, e = rng.randint(2, 40), rng.randint(2, 9), rng.randint(1, 15), rng.randint(1, 30)
    d = rng.choice([n for n in range(1, 16) if n != c])
    sign = rng.choice(("+", "-"))
    inner, result = c - d, a + (1 if sign == "+" else -1) * b * (c - d) - e
    expression = rf"{a} {sign} {b} \cdot ({c} - {d}) - {e}"
    return Draft(
        rng.choice((f"Evaluate ${expression}$.", f"Find the value of ${expression}$.")),
        str(result),
        rf"The parenthesis comes first: ${c} - {d} = {inner}$. Then the product: ${b} \cdot {tex.paren(inner)} = "
        rf"{b * inner}$. Working from left to right, ${a} {sign} {tex.paren(b * inner)} - {e} = {result}$.",
    )


@template(SUBJECT, 1)
def percent_of(rng: Random) -> Draft:
    """A percentage of a whole number, with an integer result."""
    percent, whole = 5 * rng.randint(1, 30), 20 * rng.randint(1, 50)
    result = percent * whole // 100
    wording = rng.choice(
        (
            rf"What is ${percent}\%$ of ${whole}$?",
            rf"Find ${percent}\%$ of ${whole}$.",
            rf"A school has ${whole}$ lockers, and the number of its students is ${percent}\%$ of that. How many "
            "students does the school have?",
        )
    )
    return Draft(
        wording,
        str(result),
        rf"${percent}\%$ of ${whole}$ is $\frac{{{percent}}}{{100}} \cdot {whole} = \frac{{{percent * whole}}}{{100}} "
        rf"= {result}$.",
    )


@template(SUBJECT, 1)
def decimal_product(rng: Random) -> Draft:
    """Product of two short decimals."""
    left = Fraction(rng.choice([n for n in range(2, 100) if n % 10]), rng.choice((10, 100)))
    right = Fraction(rng.choice([n for n in range(2, 60) if n % 10]), 10)
    a, b = tex.decimal(left), tex.decimal(right)
    result = tex.decimal(left * right)
    return Draft(
        rng.choice((rf"Multiply ${a}$ by ${b}$.", rf"Compute ${a} \times {b}$."))
        + " Express your answer as a decimal.",
        result,
        rf"As fractions, ${a} \times {b} = {tex.number(left)} \cdot {tex.number(right)} = {tex.number(left * right)}$, "
        f"which is ${result}$ as a decimal.",
    )


@template(SUBJECT, 2)
def like_terms(rng: Random) -> Draft:
    """Expand one parenthesis and collect like terms."""
    variable = rng.choice("xyabnt")
    while True:
        a, b, c, d, e = nonzero(rng, 7), rng.randint(1, 9), nonzero(rng, 9), nonzero(rng, 12), nonzero(rng, 12)
        if abs(a) > 1 and a * b + d and a * c + e:
            break
    inside = tex.polynomial([b, c], variable)
    tail = tex.combination((d, variable), (e, ""))
    expression = tex.signed_sum([f"{a}({inside})", tail])
    result = tex.polynomial([a * b + d, a * c + e], variable)
    return Draft(
        rng.choice((f"Simplify ${expression}$.", f"Expand and combine like terms: ${expression}$.")),
        result,
        f"Distributing gives ${a}({inside}) = {tex.polynomial([a * b, a * c], variable)}$. Adding ${tail}$ and "
        f"collecting like terms, the coefficient of ${variable}$ is ${a * b} + {tex.paren(d)} = {a * b + d}$ and the "
        f"constant is ${a * c} + {tex.paren(e)} = {a * c + e}$.",
    )


@template(SUBJECT, 2)
def missing_score(rng: Random) -> Draft:
    """The value that gives a list the wanted mean."""
    count = rng.randint(3, 5)
    while True:
        scores = [rng.randint(60, 100) for _ in range(count)]
        mean = rng.randint(70, 95)
        missing = mean * (count + 1) - sum(scores)
        if 50 <= missing <= 100:
            break
    written = ", ".join(f"${score}$" for score in scores[:-1]) + f" and ${scores[-1]}$"
    name = rng.choice(NAMES)
    return Draft(
        rng.choice(
            (
                f"{name} scored {written} on the first ${count}$ tests. What must {name} score on the next test to "
                f"have an average (mean) of exactly ${mean}$ on all ${count + 1}$ tests?",
                f"The mean of ${count + 1}$ numbers is ${mean}$. All but one of them are {written}. What is the "
                "remaining number?",
            )
        ),
        str(missing),
        rf"The ${count + 1}$ values must add up to ${count + 1} \cdot {mean} = {mean * (count + 1)}$. The known ones "
        rf"add up to ${' + '.join(map(str, scores))} = {sum(scores)}$, so the other one is ${mean * (count + 1)} - "
        rf"{sum(scores)} = {missing}$.",
    )


@template(SUBJECT, 2)
def decimal_to_fraction(rng: Random) -> Draft:
    """A terminating decimal as a common fraction."""
    while True:
        thousandths = rng.randint(4, 2999)
        value = Fraction(thousandths, 1000)
        if 1 < value.denominator < 1000:
            break
    written = tex.decimal(value)
    digits = len(written.split(".")[1])
    top = int(value * 10**digits)
    shared = top // value.numerator
    reduce = (
        "which is already in lowest terms"
        if shared == 1
        else rf"and dividing numerator and denominator by ${shared}$ gives ${tex.number(value)}$"
    )
    return Draft(
        rng.choice(
            (
                f"Write ${written}$ as a common fraction in lowest terms.",
                f"Express the decimal ${written}$ as a fraction in lowest terms.",
            )
        ),
        tex.number(value),
        rf"The last digit stands for ${10**digits}$ths, so ${written} = \frac{{{top}}}{{{10**digits}}}$, {reduce}.",
    )


@template(SUBJECT, 2)
def ratio_share(rng: Random) -> Draft:
    """One part of a total split in a given ratio."""
    while True:
        a, b = rng.randint(2, 11), rng.randint(2, 11)
        if a != b and math.gcd(a, b) == 1:
            break
    unit = rng.randint(2, 30)
    total = unit * (a + b)
    first, second, place = rng.choice(
        (
            ("cats", "dogs", "at a shelter"),
            ("red tiles", "blue tiles", "on a wall"),
            ("novels", "comics", "on a shelf"),
            ("boys", "girls", "in a choir"),
        )
    )
    return Draft(
        rng.choice(
            (
                f"The ratio of {first} to {second} {place} is ${a}:{b}$. There are ${total}$ {first} and {second} in "
                f"all. How many {second} are there?",
                f"Altogether there are ${total}$ {first} and {second} {place}, in the ratio ${a}:{b}$. How many of "
                f"them are {second}?",
            )
        ),
        str(unit * b),
        f"The ratio has ${a} + {b} = {a + b}$ equal parts, so one part is ${total} \\div {a + b} = {unit}$. The "
        rf"{second} make up ${b}$ parts, that is ${b} \cdot {unit} = {unit * b}$.",
    )


@template(SUBJECT, 3)
def successive_percents(rng: Random) -> Draft:
    """A rise and a fall by percentages, one after the other."""
    price, up, down = 400 * rng.randint(1, 20), 5 * rng.randint(1, 12), 5 * rng.randint(1, 12)
    raised = Fraction(price * (100 + up), 100)
    final = raised * (100 - down) / 100
    thing = rng.choice(("motorbike", "piano", "painting", "necklace", "sailboat"))
    return Draft(
        rng.choice(
            (
                rf"The price of a {thing} is ${price}$ dollars. It is first raised by ${up}\%$, and the new price is "
                rf"then lowered by ${down}\%$. What is the final price, in dollars?",
                rf"A {thing} costs ${price}$ dollars. The seller increases the price by ${up}\%$ and later takes "
                rf"${down}\%$ off the increased price. How many dollars does it cost in the end?",
            )
        ),
        tex.number(final),
        rf"After the increase the price is ${price} \cdot \frac{{{100 + up}}}{{100}} = {tex.number(raised)}$ dollars. "
        rf"After the decrease it is ${tex.number(raised)} \cdot \frac{{{100 - down}}}{{100}} = {tex.number(final)}$ "
        "dollars.",
    )


@template(SUBJECT, 3)
def rectangle_diagonal(rng: Random) -> Draft:
    """Diagonal of a rectangle, a simplified radical."""
    while True:
        a, b = distinct(rng, 2, 24, 2)
        square = a * a + b * b
        if math.isqrt(square) ** 2 != square and tex.square_part(square)[0] > 1:
            break
    answer = tex.surd(1, square)
    if rng.random() < 0.5:
        a, b = b, a
    return Draft(
        rng.choice(
            (
                f"A rectangle is ${a}$ units long and ${b}$ units wide. How many units long is its diagonal?",
                f"The sides of a rectangle measure ${a}$ and ${b}$. What is the length of a diagonal?",
                f"The legs of a right triangle are ${a}$ and ${b}$. What is the length of the hypotenuse?",
            )
        )
        + " Express your answer in simplest radical form.",
        answer,
        rf"By the Pythagorean Theorem the square of the length is ${a}^2 + {b}^2 = {a * a} + {b * b} = {square}$, so "
        rf"the length is ${tex.root(square)} = {answer}$.",
    )


@template(SUBJECT, 3)
def repeating_decimal(rng: Random) -> Draft:
    """A purely repeating decimal as a common fraction."""
    whole = rng.choice((0, 0, 1, 2, 3))
    if rng.random() < 0.15:
        length, block = 1, rng.randint(1, 8)
    else:
        length, block = 2, rng.choice([n for n in range(1, 99) if n % 11])
    nines = 10**length - 1
    value = whole + Fraction(block, nines)
    written = rf"{whole}.\overline{{{block:0{length}d}}}"
    shifted = f"{10**length}x"
    return Draft(
        rng.choice(
            (
                f"Write the repeating decimal ${written}$ as a common fraction in lowest terms.",
                f"Express ${written}$ as a fraction in lowest terms.",
            )
        ),
        tex.number(value),
        rf"Let $x = {written}$. The block has length ${length}$, so ${shifted} - x = {whole * 10**length + block} - "
        rf"{whole}$, that is ${nines}x = {whole * nines + block}$. Hence $x = "
        rf"{tex.equal(tex.frac(whole * nines + block, nines), tex.number(value))}$.",
    )


@template(SUBJECT, 3)
def mixed_number_division(rng: Random) -> Draft:
    """Quotient of two mixed numbers."""
    left, right = reduced(rng, 1, 7, 9), reduced(rng, 1, 7, 9)
    while left == right or left < 1 or right < 1:
        left, right = reduced(rng, 1, 7, 9), reduced(rng, 1, 7, 9)
    written = [f"{v.numerator // v.denominator}{tex.number(v % 1)}" for v in (left, right)]
    result = left / right
    return Draft(
        rng.choice(
            (
                rf"Compute ${written[0]} \div {written[1]}$.",
                f"What is the result when ${written[0]}$ is divided by ${written[1]}$?",
            )
        )
        + " Express your answer as a whole number or as a fraction in lowest terms.",
        tex.number(result),
        rf"As fractions, ${written[0]} = {tex.number(left)}$ and ${written[1]} = {tex.number(right)}$. Dividing means "
        rf"multiplying by the reciprocal: ${tex.number(left)} \cdot {tex.number(1 / right)} = {tex.number(result)}$.",
    )


@template(SUBJECT, 4)
def plate_with_holes(rng: Random) -> Draft:
    """Area of a rectangle with circular holes."""
    holes, radius = rng.randint(1, 4), rng.randint(2, 6)
    width = rng.randint(2 * radius + 1, 2 * radius + 12)
    length = rng.randint(2 * radius * holes + 1, 2 * radius * holes + 15)
    answer = tex.combination((width * length, ""), (-holes * radius * radius, r"\pi"))
    each = "" if holes == 1 else "each "
    hole = "a circular hole" if holes == 1 else f"${holes}$ circular holes that do not overlap"
    return Draft(
        rng.choice(
            (
                f"A rectangular metal plate measures ${length}$ inches by ${width}$ inches. Out of it {hole}, {each}of "
                f"radius ${radius}$ inches, {'is' if holes == 1 else 'are'} cut. How many square inches of metal are "
                f"left?",
                f"From a ${length}$ by ${width}$ rectangle of paper, {hole}, {each}of radius ${radius}$, "
                f"{'is' if holes == 1 else 'are'} removed. What is the remaining area?",
            )
        )
        + r" Express your answer in terms of $\pi$.",
        answer,
        rf"The rectangle has area ${length} \cdot {width} = {length * width}$, and a hole has area $\pi \cdot "
        rf"{radius}^2 = {tex.pi(radius * radius)}$. So the remaining area is ${length * width} - {holes} \cdot "
        rf"{tex.pi(radius * radius)}$.",
    )


@template(SUBJECT, 4)
def average_speed(rng: Random) -> Draft:
    """Average speed over two equal distances."""
    while True:
        v, w = rng.randint(6, 70), rng.randint(6, 70)
        if v != w and 2 * v * w % (v + w):
            break
    result = Fraction(2 * v * w, v + w)
    name = rng.choice(NAMES)
    return Draft(
        rng.choice(
            (
                f"{name} drives to a town at ${v}$ miles per hour and comes back along the same road at ${w}$ miles "
                f"per "
                "hour. What is the average speed for the whole trip, in miles per hour?",
                f"A train covers the first half of its route at ${v}$ miles per hour and the second half, which is "
                f"equally long, at ${w}$ miles per hour. What is its average speed over the route, in miles per hour?",
            )
        )
        + " Express your answer as a common fraction.",
        tex.number(result),
        rf"Let each half be $d$ miles long. The time taken is $\frac{{d}}{{{v}}} + \frac{{d}}{{{w}}} = "
        rf"\frac{{{v + w}d}}{{{v * w}}}$ hours. The average speed is $2d \div \frac{{{v + w}d}}{{{v * w}}} = "
        f"{tex.equal(tex.frac(2 * v * w, v + w), tex.number(result))}$.",
    )


@template(SUBJECT, 4)
def monomial_quotient(rng: Random) -> Draft:
    """Simplify a quotient of monomials in two variables."""
    first, second = rng.choice((("x", "y"), ("a", "b"), ("m", "n"), ("p", "q")))
    shared = rng.randint(2, 9)
    while True:
        u, v = rng.randint(1, 9), rng.randint(1, 9)
        a, b, c, d = (rng.randint(1, 9) for _ in range(4))
        if math.gcd(u, v) == 1 and a != c and b != d:
            break
    i, j = a - c, b - d
    top = tex.power(first, max(i, 0)) + tex.power(second, max(j, 0))
    bottom = tex.power(first, max(-i, 0)) + tex.power(second, max(-j, 0))
    numerator, denominator = tex.multiple(u, top), tex.multiple(v, bottom)
    answer = numerator if denominator == "1" else tex.frac(numerator, denominator)
    expression = (
        rf"\frac{{{u * shared}{tex.power(first, a)}{tex.power(second, b)}}}"
        rf"{{{v * shared}{tex.power(first, c)}{tex.power(second, d)}}}"
    )
    return Draft(
        rng.choice(
            (
                f"Simplify ${expression}$, where ${first}$ and ${second}$ are nonzero.",
                f"Assuming that ${first}$ and ${second}$ are not zero, write ${expression}$ in simplest form.",
            )
        )
        + " Use only positive exponents.",
        answer,
        rf"The numbers reduce by ${shared}$: $\frac{{{u * shared}}}{{{v * shared}}} = {tex.number(Fraction(u, v))}$. "
        rf"Subtracting exponents, ${first}^{{{a} - {c}}} = {first}^{{{i}}}$ and ${second}^{{{b} - {d}}} = "
        rf"{second}^{{{j}}}$; a negative exponent puts the power into the denominator.",
    )


@template(SUBJECT, 4)
def count_integer_solutions(rng: Random) -> Draft:
    """Number of integers in a two-sided linear inequality."""
    factor, shift = rng.randint(2, 9), nonzero(rng, 30)
    low = rng.randint(-60, 20)
    high = low + rng.randint(4 * factor, 16 * factor)
    smallest = (low - shift) // factor + 1
    largest = (high - shift) // factor
    middle = tex.polynomial([factor, shift], "n")
    return Draft(
        rng.choice(
            (
                rf"How many integers $n$ satisfy ${low} < {middle} \le {high}$?",
                rf"Find the number of integers $n$ for which ${low} < {middle} \le {high}$.",
            )
        ),
        str(largest - smallest + 1),
        rf"Subtracting ${tex.paren(shift)}$ gives ${low - shift} < {factor}n \le {high - shift}$, so "
        rf"${tex.number(Fraction(low - shift, factor))} < n \le {tex.number(Fraction(high - shift, factor))}$. The "
        rf"integers run from ${smallest}$ to ${largest}$, and there are ${largest} - {tex.paren(smallest)} + 1 = "
        f"{largest - smallest + 1}$ of them.",
    )


@template(SUBJECT, 5)
def nested_fraction(rng: Random) -> Draft:
    """A continued fraction of depth four."""
    a, b, c, d = (rng.randint(1, 9) for _ in range(4))
    while d == 1:
        d = rng.randint(2, 9)
    sign = rng.choice(("+", "-")) if b > 1 else "+"
    third = c + Fraction(1, d)
    second = b + 1 / third
    result = a + 1 / second if sign == "+" else a - 1 / second
    expression = rf"{a} {sign} \frac{{1}}{{{b} + \frac{{1}}{{{c} + \frac{{1}}{{{d}}}}}}}"
    return Draft(
        rng.choice((f"Compute ${expression}$.", f"Simplify ${expression}$."))
        + " Express your answer as a common fraction in lowest terms.",
        tex.number(result),
        rf"Work from the bottom up: ${c} + \frac{{1}}{{{d}}} = {tex.number(third)}$, then ${b} + "
        rf"{tex.number(1 / third)} = {tex.number(second)}$, and finally ${a} {sign} {tex.number(1 / second)} = "
        rf"{tex.number(result)}$.",
    )


@template(SUBJECT, 5)
def two_pipes_and_drain(rng: Random) -> Draft:
    """Time to fill a tank through two pipes while a drain is open."""
    while True:
        a, b, c = rng.randint(2, 15), rng.randint(2, 15), rng.randint(4, 30)
        rate = Fraction(1, a) + Fraction(1, b) - Fraction(1, c)
        if a != b and rate > 0 and (1 / rate).denominator > 1:
            break
    thing = rng.choice(("tank", "pool", "cistern"))
    return Draft(
        rng.choice(
            (
                f"One pipe fills a {thing} in ${a}$ hours and another pipe fills it in ${b}$ hours. A drain empties "
                f"the full {thing} in ${c}$ hours. If both pipes and the drain are open, how many hours does it take "
                f"to fill the empty {thing}?",
                f"An empty {thing} can be filled by a first pipe alone in ${a}$ hours and by a second pipe alone in "
                f"${b}$ hours, while a leak would empty it in ${c}$ hours. With both pipes on and the leak not mended, "
                f"after how many hours is the {thing} full?",
            )
        )
        + " Express your answer as a common fraction.",
        tex.number(1 / rate),
        rf"In one hour the part filled is $\frac{{1}}{{{a}}} + \frac{{1}}{{{b}}} - \frac{{1}}{{{c}}} = "
        rf"{tex.number(rate)}$. The time needed is the reciprocal of this rate, ${tex.number(1 / rate)}$ hours.",
    )


@template(SUBJECT, 5)
def rectangle_with_semicircles(rng: Random) -> Draft:
    """Area or perimeter of a rectangle with semicircles built on its sides."""
    a, b = distinct(rng, 2, 40, 2)
    if rng.random() < 0.5:
        answer = tex.combination((a * b, ""), (Fraction(a * a + b * b, 4), r"\pi"))
        return Draft(
            f"On each side of a rectangle with sides ${a}$ and ${b}$ a semicircle is drawn outside the rectangle, with "
            f"that "
            "side as its diameter. What is the total area of the figure formed by the rectangle and the four "
            "semicircles? "
            r"Express your answer in terms of $\pi$.",
            answer,
            rf"The rectangle has area ${a} \cdot {b} = {a * b}$. Opposite semicircles make two full circles, of radius "
            rf"${tex.number(Fraction(a, 2))}$ and ${tex.number(Fraction(b, 2))}$, with areas "
            rf"${tex.pi(Fraction(a * a, 4))}$ and ${tex.pi(Fraction(b * b, 4))}$. The total is ${answer}$.",
        )
    answer = tex.combination((2 * b, ""), (a, r"\pi"))
    return Draft(
        rf"A track consists of two parallel straight parts, each ${b}$ meters long, joined at both ends by semicircles "
        rf"of diameter ${a}$ meters. How many meters long is one lap of the track? Express your answer in terms of "
        rf"$\pi$.",
        answer,
        rf"The two straight parts are $2 \cdot {b} = {2 * b}$ meters long together. The two semicircles make one "
        rf"circle of diameter ${a}$, whose circumference is ${tex.pi(a)}$ meters. One lap is ${answer}$ meters.",
    )


@template(SUBJECT, 5)
def telescoping_product(rng: Random) -> Draft:
    """A product of factors 1 - 1/k or 1 + 1/k that collapses."""
    first = rng.randint(2, 15)
    last = first + rng.randint(5, 80)
    minus = rng.random() < 0.5
    sign = "-" if minus else "+"
    result = Fraction(first - 1, last) if minus else Fraction(last + 1, first)

    def factor(k: int) -> str:
        return rf"\left(1 {sign} \frac{{1}}{{{k}}}\right)"

    def written(k: int) -> str:
        return tex.frac(k - 1 if minus else k + 1, k)

    expression = factor(first) + factor(first + 1) + factor(first + 2) + r"\cdots" + factor(last)
    left = tex.frac(first - 1, last) if minus else tex.frac(last + 1, first)
    return Draft(
        rng.choice((f"Compute the product ${expression}$.", f"Simplify ${expression}$."))
        + " Express your answer as a whole number or as a fraction in lowest terms.",
        tex.number(result),
        rf"Each factor is one fraction: ${written(first)} \cdot {written(first + 1)} \cdots {written(last)}$. Each "
        rf"numerator cancels against a neighbouring denominator, and what remains is "
        rf"${tex.equal(left, tex.number(result))}$.",
    )
