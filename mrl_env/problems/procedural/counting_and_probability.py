"""Counting and probability: arrangements, selections, dice and bags, expectation, geometric probability, recursions."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import NAMES, Draft, counted, distinct, template

SUBJECT = "counting_and_probability"
FRACTION = " Express your answer as a common fraction."
COLORS = ("red", "blue", "green", "white", "black", "yellow")


def _binom(n: int, k: int) -> str:
    return rf"\binom{{{n}}}{{{k}}}"


@template(SUBJECT, 1)
def marble_draw(rng: Random) -> Draft:
    """Probability that one marble has a colour, or has not."""
    a, b, c = rng.sample(COLORS, 3)
    i, j, k = (rng.randint(2, 15) for _ in range(3))
    total = i + j + k
    negative = rng.random() < 0.5
    good = j + k if negative else i
    result = Fraction(good, total)
    return Draft(
        f"A bag contains ${i}$ {a}, ${j}$ {b} and ${k}$ {c} marbles. One marble is drawn at random. What is the "
        f"probability that it is {'not ' if negative else ''}{a}?{FRACTION}",
        tex.number(result),
        f"There are ${i} + {j} + {k} = {total}$ marbles, and ${good}$ of them are {'not ' if negative else ''}{a}. The "
        f"probability is ${tex.equal(tex.frac(good, total), tex.number(result))}$.",
    )


@template(SUBJECT, 1)
def independent_choices(rng: Random) -> Draft:
    """Product rule in a story."""
    a, b, c = rng.randint(2, 12), rng.randint(2, 12), rng.randint(2, 9)
    name = rng.choice(NAMES)
    question = rng.choice(
        (
            f"{name} has ${a}$ shirts, ${b}$ pairs of trousers and ${c}$ hats. How many different outfits consisting "
            f"of one "
            "shirt, one pair of trousers and one hat are possible?",
            f"A menu offers ${a}$ soups, ${b}$ main dishes and ${c}$ desserts. In how many ways can {name} order a "
            f"meal of one "
            "soup, one main dish and one dessert?",
            f"From village A to village B there are ${a}$ roads, from B to C there are ${b}$, and from C to D there "
            f"are ${c}$. "
            "How many routes lead from A through B and C to D?",
        )
    )
    return Draft(
        question,
        str(a * b * c),
        f"The three choices are independent, so their numbers are multiplied: ${tex.product((a, b, c))} = "
        f"{a * b * c}$.",
    )


@template(SUBJECT, 1)
def factorial_quotient(rng: Random) -> Draft:
    """A quotient of factorials, or a binomial coefficient."""
    if rng.random() < 0.5:
        n = rng.randint(6, 30)
        k = rng.randint(2, 3 if n > 14 else 5)
        result = math.comb(n, k)
        top = r" \cdot ".join(str(n - i) for i in range(k))
        return Draft(
            rng.choice((f"Compute ${_binom(n, k)}$.", f"What is the value of ${_binom(n, k)}$?")),
            str(result),
            rf"${_binom(n, k)} = \frac{{{top}}}{{{k}!}} = {result}$.",
        )
    n = rng.randint(6, 60)
    gap = rng.randint(1, 2)
    k = rng.randint(2, 4)
    result_fraction = Fraction(math.factorial(n), math.factorial(n - gap) * math.factorial(k))
    top = r" \cdot ".join(str(n - i) for i in range(gap))
    expression = rf"\frac{{{n}!}}{{{n - gap}! \cdot {k}!}}"
    return Draft(
        rng.choice((f"Compute ${expression}$.", f"Simplify ${expression}$."))
        + " Express your answer as a whole number or as a fraction in lowest terms.",
        tex.number(result_fraction),
        rf"Cancelling ${n - gap}!$ leaves $\frac{{{top}}}{{{k}!}} = "
        rf"{tex.equal(tex.frac(math.perm(n, gap), math.factorial(k)), tex.number(result_fraction))}$.",
    )


@template(SUBJECT, 1)
def two_dice(rng: Random) -> Draft:
    """Probability of a sum of two fair dice with given numbers of faces."""
    m, n = rng.randint(4, 12), rng.randint(4, 12)
    kind = rng.choice(("exactly", "at least"))
    target = rng.randint(4, m + n - 2)
    good = sum(
        (i + j == target) if kind == "exactly" else (i + j >= target) for i in range(1, m + 1) for j in range(1, n + 1)
    )
    result = Fraction(good, m * n)
    return Draft(
        f"A fair ${m}$-sided die with faces numbered $1$ to ${m}$ and a fair ${n}$-sided die with faces numbered $1$ "
        f"to ${n}$ are rolled. What is the probability that the sum of the two numbers is {kind} ${target}$?{FRACTION}",
        tex.number(result),
        rf"There are ${m} \cdot {n} = {m * n}$ equally likely outcomes. Counting for each value of the first die, "
        rf"${good}$ of them have a sum of {kind} ${target}$. The probability is "
        f"${tex.equal(tex.frac(good, m * n), tex.number(result))}$.",
    )


@template(SUBJECT, 2)
def committee(rng: Random) -> Draft:
    """A committee with given numbers from two groups."""
    m, n = rng.randint(4, 12), rng.randint(4, 12)
    i, j = rng.randint(1, 4), rng.randint(1, 4)
    result = math.comb(m, i) * math.comb(n, j)
    first, second, whole, verb = rng.choice(
        (
            ("teachers", "students", "committee", "formed"),
            ("pianists", "singers", "group", "formed"),
            ("novels", "poetry books", "package", "put together"),
        )
    )
    return Draft(
        f"In how many ways can a {whole} of {counted(i, first)} and {counted(j, second)} be {verb} from ${m}$ {first} "
        f"and ${n}$ {second}?",
        str(result),
        rf"There are ${_binom(m, i)} = {math.comb(m, i)}$ choices of {first} and ${_binom(n, j)} = {math.comb(n, j)}$ "
        rf"choices of {second}. Together there are ${math.comb(m, i)} \cdot {math.comb(n, j)} = {result}$ ways.",
    )


@template(SUBJECT, 2)
def letter_arrangements(rng: Random) -> Draft:
    """Arrangements of a string with repeated letters."""
    while True:
        counts = [rng.choice((1, 1, 2, 2, 3)) for _ in range(rng.randint(3, 5))]
        if 5 <= sum(counts) <= 9 and max(counts) > 1:
            break
    letters = rng.sample("ABCDEGHKLMNPRST", len(counts))
    tiles = [letter for letter, count in zip(letters, counts, strict=True) for _ in range(count)]
    rng.shuffle(tiles)
    word = "".join(tiles)
    n = len(word)
    repeated = sorted((count for count in counts if count > 1), reverse=True)
    result = math.factorial(n) // math.prod(map(math.factorial, repeated))
    bottom = r" \cdot ".join(f"{count}!" for count in repeated)
    return Draft(
        rng.choice(
            (
                rf"How many different strings can be made by rearranging all letters of the string {word} (the string "
                rf"itself "
                "counts as one of them)?",
                rf"In how many distinguishable ways can the ${n}$ letters of {word} be arranged in a row?",
            )
        ),
        str(result),
        rf"There are ${n}$ letters, so ${n}!$ arrangements if all were different. Exchanging equal letters changes "
        rf"nothing, which leaves $\frac{{{n}!}}{{{bottom}}} = {result}$.",
    )


@template(SUBJECT, 2)
def two_of_one_color(rng: Random) -> Draft:
    """Two draws without replacement: equal or different colours."""
    a, b = rng.sample(COLORS, 2)
    i, j = rng.randint(2, 14), rng.randint(2, 14)
    total = i + j
    same = rng.random() < 0.5
    good = math.comb(i, 2) + math.comb(j, 2) if same else i * j
    result = Fraction(good, math.comb(total, 2))
    count = rf"{_binom(i, 2)} + {_binom(j, 2)} = {good}" if same else rf"{i} \cdot {j} = {good}"
    return Draft(
        f"An urn contains ${i}$ {a} balls and ${j}$ {b} balls. Two balls are drawn at random without replacement. What "
        f"is the probability that they have {'the same color' if same else 'different colors'}?{FRACTION}",
        tex.number(result),
        rf"There are ${_binom(total, 2)} = {math.comb(total, 2)}$ equally likely pairs. Of these, ${count}$ have "
        f"{'the same color' if same else 'different colors'}, so the probability is "
        f"${tex.equal(tex.frac(good, math.comb(total, 2)), tex.number(result))}$.",
    )


@template(SUBJECT, 2)
def binomial_probability(rng: Random) -> Draft:
    """Exactly k successes in n independent trials."""
    n = rng.randint(3, 7)
    k = rng.randint(1, n - 1)
    if rng.random() < 0.4:
        p = Fraction(1, 2)
        setting, event = f"A fair coin is flipped ${n}$ times.", f"exactly ${k}$ of the flips are heads"
    else:
        denominator = rng.randint(3, 6)
        p = Fraction(rng.randint(1, denominator - 1), denominator)
        name = rng.choice(NAMES)
        chance = f"with probability ${tex.number(p)}$, independently of the other rounds"
        setting = f"In each round of a game, {name} wins {chance}."
        event = f"{name} wins exactly ${k}$ of ${n}$ rounds"
    result = math.comb(n, k) * p**k * (1 - p) ** (n - k)
    hits, misses = (rf"\left({tex.number(chance)}\right)" for chance in (p, 1 - p))
    return Draft(
        f"{setting} What is the probability that {event}?{FRACTION}",
        tex.number(result),
        rf"There are ${_binom(n, k)} = {math.comb(n, k)}$ ways to choose the successes, and each has probability "
        f"${tex.power(hits, k)} {tex.power(misses, n - k)}$. The product is ${tex.number(result)}$.",
    )


@template(SUBJECT, 3)
def committee_at_least(rng: Random) -> Draft:
    """Committees, or their probability, with at least one member of a group."""
    m, n = rng.randint(3, 9), rng.randint(4, 10)
    size = rng.randint(3, min(5, n))
    total, none = math.comb(m + n, size), math.comb(n, size)
    first, second = rng.choice((("women", "men"), ("juniors", "seniors"), ("biologists", "chemists")))
    intro = f"From a club with ${m}$ {first} and ${n}$ {second}, a committee of ${size}$ is chosen"
    one = {"women": "woman", "juniors": "junior", "biologists": "biologist"}[first]
    if rng.random() < 0.5:
        return Draft(
            f"{intro}. How many of the possible committees contain at least one {one}?",
            str(total - none),
            rf"There are ${_binom(m + n, size)} = {total}$ committees, and ${_binom(n, size)} = {none}$ of them "
            rf"consist of {second} only. This leaves ${total} - {none} = {total - none}$.",
        )
    result = Fraction(total - none, total)
    return Draft(
        f"{intro} at random. What is the probability that it contains at least one {one}?{FRACTION}",
        tex.number(result),
        rf"There are ${_binom(m + n, size)} = {total}$ committees, and ${_binom(n, size)} = {none}$ of them consist of "
        rf"{second} only. The probability is $1 - \frac{{{none}}}{{{total}}} = {tex.number(result)}$.",
    )


@template(SUBJECT, 3)
def lattice_paths(rng: Random) -> Draft:
    """Shortest lattice paths through a point, or avoiding it."""
    x, y = rng.randint(3, 8), rng.randint(3, 8)
    a, b = rng.randint(1, x - 1), rng.randint(1, y - 1)
    total, first = math.comb(x + y, x), math.comb(a + b, a)
    second = math.comb(x + y - a - b, x - a)
    avoid = rng.random() < 0.5
    result = total - first * second if avoid else first * second
    through = (
        rf"Through $({a}, {b})$ there are ${_binom(a + b, a)} \cdot {_binom(x + y - a - b, x - a)} = {first} \cdot "
        rf"{second} = {first * second}$ paths"
    )
    steps = (
        rf"Altogether there are ${_binom(x + y, x)} = {total}$ paths. {through}, which leaves ${total} - "
        rf"{first * second} = {result}$."
        if avoid
        else f"{through}: any path to $({a}, {b})$ is followed by any path from there."
    )
    move = "Each step goes one unit to the right or one unit up."
    return Draft(
        f"How many paths lead from $(0, 0)$ to $({x}, {y})$ and {'do not pass' if avoid else 'pass'} through $({a}, "
        f"{b})$? {move}",
        str(result),
        steps,
    )


@template(SUBJECT, 3)
def round_table(rng: Random) -> Draft:
    """People at a round table, with some who want to sit together or apart."""
    n, k = rng.randint(6, 11), rng.randint(2, 4)
    people = rng.choice(("people", "students", "knights"))
    friends = rng.choice(("friends", "cousins", "triplets" if k == 3 else "colleagues"))
    table = "Rotations of a seating count as the same seating."
    if k == 2 and rng.random() < 0.5:
        result = math.factorial(n - 1) - 2 * math.factorial(n - 2)
        one, two = rng.sample(NAMES, 2)
        return Draft(
            f"In how many ways can ${n}$ {people} sit around a round table if two of them, {one} and {two}, must not "
            f"sit next to each other? {table}",
            str(result),
            rf"Without the condition there are $({n} - 1)! = {math.factorial(n - 1)}$ seatings. With {one} and {two} "
            rf"side by side they form a block with $2$ inner orders, which gives $2 \cdot ({n} - 2)! = "
            rf"{2 * math.factorial(n - 2)}$. The difference is ${result}$.",
        )
    blocks = n - k + 1
    result = math.factorial(blocks - 1) * math.factorial(k)
    return Draft(
        f"In how many ways can ${n}$ {people}, among them ${k}$ {friends}, sit around a round table so that the ${k}$ "
        f"{friends} occupy ${k}$ consecutive seats? {table}",
        str(result),
        rf"The ${k}$ {friends} form one block, which leaves ${blocks}$ objects around the table: $({blocks} - 1)! = "
        rf"{math.factorial(blocks - 1)}$ ways. Inside the block there are ${k}! = {math.factorial(k)}$ orders. The "
        rf"product is ${result}$.",
    )


@template(SUBJECT, 3)
def expected_payout(rng: Random) -> Draft:
    """Expected value of a game with three outcomes."""
    while True:
        p, q = Fraction(1, rng.randint(2, 8)), Fraction(1, rng.randint(3, 9))
        win, small, lose = rng.randint(10, 60), rng.randint(2, 9), rng.randint(1, 15)
        if p + q < 1 and p != q:
            break
    rest = 1 - p - q
    result = p * win + q * small - rest * lose
    name = rng.choice(NAMES)
    return Draft(
        f"In one round of a game, {name} wins ${win}$ points with probability ${tex.number(p)}$, wins ${small}$ points "
        f"with probability ${tex.number(q)}$, and otherwise loses {counted(lose, 'points')}. What is the expected "
        f"change of {name}'s score in one round? Express your answer as an integer or as a fraction in lowest terms.",
        tex.number(result),
        rf"The loss has probability $1 - {tex.number(p)} - {tex.number(q)} = {tex.number(rest)}$. The expected value "
        rf"is ${tex.number(p)} \cdot {win} + {tex.number(q)} \cdot {small} - {tex.number(rest)} \cdot {lose} = "
        rf"{tex.number(result)}$.",
    )


@template(SUBJECT, 4)
def stars_and_bars(rng: Random) -> Draft:
    """Distributions of identical objects with lower bounds."""
    kinds = rng.randint(3, 5)
    least = rng.randint(0, 3)
    total = kinds * least + rng.randint(4, 15)
    free = total - kinds * least
    result = math.comb(free + kinds - 1, kinds - 1)
    things, people = rng.choice((("coins", "children"), ("pencils", "students"), ("apples", "baskets")))
    each = f", if each of them must get at least {counted(least, things)}" if least else ""
    given = (
        rf"Setting aside ${least}$ for each first, ${total} - {kinds} \cdot {least} = {free}$ remain to be distributed "
        rf"freely. "
        if least
        else ""
    )
    variables = ", ".join(f"x_{i}" for i in range(1, kinds + 1))
    question = rng.choice(
        (
            f"In how many ways can ${total}$ identical {things} be distributed among ${kinds}$ different "
            f"{people}{each}?" + (f" Some of the {people} may get nothing." if least == 0 else ""),
            f"How many solutions does ${' + '.join(f'x_{i}' for i in range(1, kinds + 1))} = {total}$ have in integers "
            rf"${variables} \ge {least}$?",
        )
    )
    return Draft(
        question,
        str(result),
        given
        + f"A distribution of ${free}$ objects is a row of ${free}$ stars and ${kinds - 1}$ bars, so the number of "
        f"ways is ${_binom(free + kinds - 1, kinds - 1)} = {result}$.",
    )


@template(SUBJECT, 4)
def inclusion_exclusion(rng: Random) -> Draft:
    """Numbers up to a bound divisible by at least one, exactly one, or none of two numbers."""
    while True:
        a, b = distinct(rng, 3, 15, 2)
        if b % a:
            break
    bound = rng.randint(100, 1000)
    both = math.lcm(a, b)
    x, y, z = bound // a, bound // b, bound // both
    kind, result, step = rng.choice(
        (
            (f"divisible by ${a}$ or by ${b}$ (or by both)", x + y - z, f"${x} + {y} - {z}$"),
            (f"divisible by neither ${a}$ nor ${b}$", bound - x - y + z, f"${bound} - {x} - {y} + {z}$"),
            (f"divisible by exactly one of ${a}$ and ${b}$", x + y - 2 * z, rf"${x} + {y} - 2 \cdot {z}$"),
        )
    )
    return Draft(
        rng.choice(
            (
                f"How many of the integers from $1$ to ${bound}$ are {kind}?",
                f"Find the number of positive integers not greater than ${bound}$ that are {kind}.",
            )
        ),
        str(result),
        f"There are ${x}$ multiples of ${a}$, ${y}$ multiples of ${b}$, and ${z}$ multiples of both, that is of "
        f"${both}$. By inclusion and exclusion the count is {step}, which is ${result}$.",
    )


@template(SUBJECT, 4)
def two_bags(rng: Random) -> Draft:
    """Bayes' rule with two bags."""
    first, second = rng.sample(COLORS, 2)
    a, b, c, d = (rng.randint(2, 10) for _ in range(4))
    p = Fraction(rng.randint(1, 3), 4) if rng.random() < 0.5 else Fraction(rng.randint(1, 2), 3)
    left, right = p * Fraction(a, a + b), (1 - p) * Fraction(c, c + d)
    result = left / (left + right)
    return Draft(
        f"Bag A contains ${a}$ {first} and ${b}$ {second} marbles; bag B contains ${c}$ {first} and ${d}$ {second} "
        f"marbles. Bag A is chosen with probability ${tex.number(p)}$ and otherwise bag B, and one marble is drawn at "
        f"random from the chosen bag. Given that the marble is {first}, what is the probability that it came from bag "
        f"A?{FRACTION}",
        tex.number(result),
        rf"The probability of bag A and {first} is ${tex.number(p)} \cdot {tex.frac(a, a + b)} = {tex.number(left)}$, "
        rf"that of bag B and {first} is ${tex.number(1 - p)} \cdot {tex.frac(c, c + d)} = {tex.number(right)}$. The "
        rf"conditional probability is ${tex.number(left)} \div \left({tex.number(left)} + {tex.number(right)}\right) = "
        rf"{tex.number(result)}$.",
    )


@template(SUBJECT, 4)
def binomial_coefficient_of(rng: Random) -> Draft:
    """A coefficient, or the constant term, in a binomial expansion."""
    a, b = rng.randint(1, 4), rng.choice((-3, -2, -1, 1, 2, 3))
    if rng.random() < 0.5:
        n = rng.randint(5, 9)
        k = rng.randint(2, n - 2)
        result = math.comb(n, k) * a**k * b ** (n - k)
        base = tex.polynomial([a, b])
        return Draft(
            rng.choice(
                (
                    f"What is the coefficient of $x^{k}$ in the expansion of $({base})^{n}$?",
                    f"Find the coefficient of $x^{k}$ when $({base})^{n}$ is expanded.",
                )
            ),
            str(result),
            rf"By the Binomial Theorem the term with $x^{k}$ is ${_binom(n, k)} ({tex.multiple(a, 'x')})^{k} "
            rf"({b})^{n - k}$. Its coefficient is ${math.comb(n, k)} \cdot {a**k} \cdot {tex.paren(b ** (n - k))} = "
            rf"{result}$.",
        )
    # In (ax^p + b/x^q)^n the constant term takes x^p exactly k times, with pk = q(n - k).
    p, q, scale = rng.choice(((1, 1, 2), (1, 1, 3), (1, 1, 4), (2, 1, 2), (2, 1, 3), (1, 2, 2), (1, 2, 3)))
    n, k = scale * (p + q), scale * q
    result = math.comb(n, k) * a**k * b ** (n - k)
    sign = "+" if b > 0 else "-"
    base = rf"{tex.multiple(a, tex.power('x', p))} {sign} \frac{{{abs(b)}}}{{{tex.power('x', q)}}}"
    return Draft(
        rf"Find the constant term in the expansion of $\left({base}\right)^{n}$.",
        str(result),
        rf"In the term with $k$ factors ${tex.multiple(a, tex.power('x', p))}$ the exponent of $x$ is "
        rf"${tex.multiple(p, 'k')} - {q if q > 1 else ''}({n} - k)$, which is zero for $k = {k}$. That term is "
        rf"${_binom(n, k)} \cdot {a**k} \cdot {tex.paren(b ** (n - k))} = {result}$.",
    )


@template(SUBJECT, 4)
def chance_meeting(rng: Random) -> Draft:
    """Two random arrivals with different waiting times."""
    span = rng.choice((30, 40, 45, 60, 90, 120))
    v, w = rng.randint(2, span // 2), rng.randint(2, span // 2)
    one, two = rng.sample(NAMES, 2)
    missed = Fraction((span - v) ** 2 + (span - w) ** 2, 2 * span**2)
    result = 1 - missed
    return Draft(
        f"{one} and {two} each arrive at a station at a random moment of the same ${span}$ minutes, independently and "
        f"uniformly distributed. {one} waits ${v}$ minutes and then leaves, {two} waits ${w}$ minutes and then leaves. "
        f"What is the probability that they meet?{FRACTION}",
        tex.number(result),
        rf"Let the arrival times be coordinates in a square of side ${span}$. They miss each other if {two} comes more "
        rf"than ${v}$ minutes after {one}, or {one} more than ${w}$ minutes after {two}: two right triangles with legs "
        rf"${span - v}$ and ${span - w}$. The probability of meeting is $1 - \frac{{{span - v}^2 + {span - w}^2}}{{2 "
        rf"\cdot {span}^2}} = {tex.number(result)}$.",
    )


@template(SUBJECT, 5)
def dart_in_rectangle(rng: Random) -> Draft:
    """Probability, with pi, that a random point of a rectangle lies near its corners or its center."""
    r = rng.randint(2, 8)
    length, width = rng.randint(2 * r, 2 * r + 12), rng.randint(2 * r, 2 * r + 12)
    place, circles, region = rng.choice(
        (
            ("the nearest corner of the rectangle", Fraction(1), "four quarter circles, which do not overlap and have"),
            ("the center of the rectangle", Fraction(1), "a circle, which fits into the rectangle and has"),
            ("the lower left corner of the rectangle", Fraction(1, 4), "a quarter circle, which fits inside and has"),
        )
    )
    near = rng.random() < 0.6
    share = circles * r * r / (length * width)
    answer = tex.pi(share) if near else tex.combination((1, ""), (-share, r"\pi"))
    last = "" if near else f" The complement has probability ${answer}$."
    return Draft(
        f"A point is chosen uniformly at random inside a rectangle with sides ${length}$ and ${width}$. What is the "
        f"probability that its distance to {place} is {'less' if near else 'greater'} than ${r}$? Express your answer "
        f"in terms of $\\pi$.",
        answer,
        rf"The points at a distance less than ${r}$ form {region} the area ${tex.pi(circles * r * r)}$. The rectangle "
        rf"has area ${length} \cdot {width} = {length * width}$, so the probability of this region is "
        rf"${tex.pi(share)}$.{last}",
    )


@template(SUBJECT, 5)
def fixed_points(rng: Random) -> Draft:
    """Random permutations with an exact number of fixed points."""
    n = rng.randint(4, 10)
    k = rng.randint(0, n - 2)
    derangements = [1, 0]
    while len(derangements) <= n:
        derangements.append((len(derangements) - 1) * (derangements[-1] + derangements[-2]))
    rest = derangements[n - k]
    good = math.comb(n, k) * rest
    things, owners = rng.choice(
        (("letters", "envelopes"), ("hats", "guests"), ("keys", "locks"), ("name tags", "desks"))
    )
    right = "is where it belongs" if k < 2 else "are where they belong"
    event = f"none of them {right}" if k == 0 else f"exactly ${k}$ of them {right}"
    others = f"All ${n}$" if k == 0 else f"The other ${n - k}$"
    intro = f"There are ${n}$ {things} for ${n}$ {owners}, one for each."
    steps = (
        f"There are ${_binom(n, k)} = {math.comb(n, k)}$ ways to choose the {things} that end up right. {others} must "
        f"be misplaced, which is possible in $D_{{{n - k}}} = {rest}$ ways, from $D_0 = 1$, $D_1 = 0$ and $D_m = (m - "
        f"1)(D_{{m - 1}} + D_{{m - 2}})$."
    )
    if rng.random() < 0.4:
        return Draft(
            f"{intro} In how many ways can the {things} be given out, one to each of the {owners}, so that {event}?",
            str(good),
            rf"{steps} The count is ${math.comb(n, k)} \cdot {rest} = {good}$.",
        )
    result = Fraction(good, math.factorial(n))
    return Draft(
        f"{intro} The {things} are given out at random, one to each of the {owners}. What is the probability that "
        f"{event}?"
        f"{FRACTION}",
        tex.number(result),
        rf"{steps} The probability is $\frac{{{math.comb(n, k)} \cdot {rest}}}{{{n}!}} = {tex.number(result)}$.",
    )


@template(SUBJECT, 5)
def no_two_adjacent(rng: Random) -> Draft:
    """Choosing seats in a row or a circle, no two of them adjacent."""
    n = rng.randint(8, 30)
    k = rng.randint(3, min(8, (n - 1) // 2))
    circle = rng.random() < 0.5
    if circle:
        good = math.comb(n - k - 1, k - 1) * n // k
        count = (
            rf"In a row of ${n}$ seats there would be ${_binom(n - k + 1, k)}$ ways; those that use both ends, "
            rf"${_binom(n - k - 1, k - 2)}$ of them, are not allowed in a circle. This leaves "
            rf"${math.comb(n - k + 1, k)} - {math.comb(n - k - 1, k - 2)} = {good}$."
        )
    else:
        good = math.comb(n - k + 1, k)
        count = (
            rf"Placing the ${n - k}$ seats that are not chosen leaves ${n - k + 1}$ gaps, each with room for at most "
            rf"one chosen seat: ${_binom(n - k + 1, k)} = {good}$ ways."
        )
    shape = "in a circle around a table" if circle else "in a row"
    intro = f"There are ${n}$ numbered seats {shape}."
    if rng.random() < 0.5:
        return Draft(
            f"{intro} In how many ways can ${k}$ of the seats be chosen so that no two chosen seats are next to each "
            f"other?",
            str(good),
            count,
        )
    total = math.comb(n, k)
    result = Fraction(good, total)
    return Draft(
        f"{intro} A set of ${k}$ seats is chosen at random. What is the probability that no two chosen seats are next "
        f"to each other?{FRACTION}",
        tex.number(result),
        rf"There are ${_binom(n, k)} = {total}$ possible choices. {count} The probability is "
        f"${tex.equal(tex.frac(good, total), tex.number(result))}$.",
    )


@template(SUBJECT, 5)
def gamblers_ruin(rng: Random) -> Draft:
    """A random walk between two barriers."""
    goal = rng.randint(3, 8)
    start = rng.randint(1, goal - 1)
    p = rng.choice([Fraction(a, b) for a, b in ((1, 3), (2, 3), (1, 4), (3, 4), (1, 5), (2, 5), (3, 5), (4, 5))])
    ratio = (1 - p) / p
    result = (1 - ratio**start) / (1 - ratio**goal)
    name = rng.choice(NAMES)
    intro = rng.choice(
        (
            f"{name} has {counted(start, 'coins')} and plays a game repeatedly. In each round {name} wins one coin "
            f"with probability ${tex.number(p)}$ and otherwise loses one coin. {name} stops when there are ${goal}$ "
            f"coins, or none. What is the probability that {name} stops with ${goal}$ coins?",
            f"A frog sits at ${start}$ on the number line. Each second it jumps one unit to the right with probability "
            f"${tex.number(p)}$ and otherwise one unit to the left, until it reaches $0$ or ${goal}$. What is the "
            f"probability that it reaches ${goal}$ before $0$?",
        )
    )
    return Draft(
        intro + FRACTION,
        tex.number(result),
        rf"Let $u_k$ be the probability from position $k$; then $u_k = {tex.number(p)} u_{{k + 1}} + "
        rf"{tex.number(1 - p)} u_{{k - 1}}$ with $u_0 = 0$ and $u_{goal} = 1$. The differences $u_{{k + 1}} - u_k$ "
        rf"form a geometric sequence with ratio $r = {tex.number(ratio)}$, so $u_{start} = \frac{{1 - r^{start}}}{{1 - "
        rf"r^{goal}}} = {tex.number(result)}$.",
    )


@template(SUBJECT, 5)
def taking_turns(rng: Random) -> Draft:
    """Three players with different chances take turns until one succeeds."""
    chances = [Fraction(1, rng.randint(2, 9)) for _ in range(3)]
    if len(set(chances)) == 1:
        chances[0] = Fraction(1, chances[0].denominator + 1)
    players = rng.sample(NAMES, 3)
    who = rng.randrange(3)
    miss = [1 - chance for chance in chances]
    round_fails = math.prod(miss, start=Fraction(1))
    first_round = math.prod(miss[:who], start=Fraction(1)) * chances[who]
    result = first_round / (1 - round_fails)
    listed = ", ".join(tex.number(chance) for chance in chances[:2])
    return Draft(
        f"{players[0]}, {players[1]} and {players[2]} take turns throwing at a target, in this order, again and again, "
        f"until someone hits it and wins. Their throws hit with probabilities ${listed}$ and "
        f"${tex.number(chances[2])}$, respectively, independently of each other. What is the probability that "
        f"{players[who]} wins?{FRACTION}",
        tex.number(result),
        rf"The probability that {players[who]} wins in the first round is ${tex.number(first_round)}$, and a whole "
        rf"round passes without a hit with probability $q = {tex.number(round_fails)}$. Summing over the rounds, the "
        rf"probability is ${tex.number(first_round)} (1 + q + q^2 + \cdots) = {tex.number(first_round)} \div "
        rf"{tex.number(1 - round_fails)} = {tex.number(result)}$.",
    )
