"""Number theory: divisors, primes, bases, remainders, congruences, Diophantine equations. Facts come from SymPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from random import Random
from types import MappingProxyType

from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural.templates import Draft, distinct, nonzero, template

SUBJECT = "number_theory"


@functools.lru_cache(maxsize=16_384)
def _factors(n: int) -> Mapping[int, int]:
    """The prime factorization of n >= 1, as exponents by prime."""
    from sympy import factorint

    return MappingProxyType(factorint(n))


def _composite(rng: Random, low: int, high: int, largest: int) -> tuple[int, Mapping[int, int]]:
    """A number in [low, high] with at least two different primes, none above `largest`, and its factorization."""
    while True:
        n = rng.randint(low, high)
        primes = _factors(n)
        if len(primes) >= 2 and max(primes) <= largest:
            return n, primes


def _digits(n: int, base: int) -> list[int]:
    """Digits of n >= 1 in a base, highest first."""
    digits = []
    while n:
        n, digit = divmod(n, base)
        digits.append(digit)
    return digits[::-1]


def _in_base(n: int, base: int) -> str:
    """`n` written in a base up to 9, with the base as subscript."""
    return f"{''.join(map(str, _digits(n, base)))}_{base}"


@template(SUBJECT, 1)
def gcd_or_lcm(rng: Random) -> Draft:
    """Greatest common divisor or least common multiple of two numbers."""
    g = rng.randint(2, 18)
    while True:
        p, q = rng.randint(2, 15), rng.randint(2, 15)
        if math.gcd(p, q) == 1:
            break
    a, b = g * p, g * q
    factored = f"${a} = {tex.factorization(_factors(a))}$ and ${b} = {tex.factorization(_factors(b))}$"
    if rng.random() < 0.5:
        return Draft(
            rng.choice(
                (
                    f"What is the greatest common divisor of ${a}$ and ${b}$?",
                    f"Find the largest positive integer that divides both ${a}$ and ${b}$.",
                )
            ),
            str(g),
            f"The prime factorizations are {factored}. Taking each shared prime with the smaller exponent gives ${g}$.",
        )
    return Draft(
        rng.choice(
            (
                f"What is the least common multiple of ${a}$ and ${b}$?",
                f"Find the smallest positive integer that is a multiple of both ${a}$ and ${b}$.",
            )
        ),
        str(g * p * q),
        f"The prime factorizations are {factored}. Taking every prime with the larger exponent gives "
        f"${tex.factorization(_factors(g * p * q))} = {g * p * q}$.",
    )


@template(SUBJECT, 1)
def prime_exponents(rng: Random) -> Draft:
    """Exponents in a prime factorization; asked as a triple, so that the number itself is no answer."""
    primes = sorted(rng.sample((2, 3, 5, 7, 11), 3))
    while True:
        exponents = [rng.randint(1, 4) for _ in primes]
        n = math.prod(p**e for p, e in zip(primes, exponents, strict=True))
        if n <= 9000:
            break
    form = r" \cdot ".join(f"{p}^{letter}" for p, letter in zip(primes, "abc", strict=True))
    factored = r" \cdot ".join(f"{p}^{e}" for p, e in zip(primes, exponents, strict=True))
    return Draft(
        rng.choice(
            (
                f"The number ${n}$ can be written as ${form}$ with positive integers $a$, $b$ and $c$. Find the "
                f"ordered "
                "triple $(a, b, c)$.",
                f"Find the prime factorization of ${n}$ in the form ${form}$, and express your answer as the ordered "
                f"triple "
                "$(a, b, c)$.",
            )
        ),
        tex.ordered(map(str, exponents)),
        f"Dividing out the primes one after the other, ${n} = {factored}$, so the exponents are ${exponents[0]}$, "
        f"${exponents[1]}$ and ${exponents[2]}$.",
    )


@template(SUBJECT, 1)
def list_divisors(rng: Random) -> Draft:
    """All positive divisors, or all common divisors."""
    from sympy import divisors

    if rng.random() < 0.4:
        n, found = 0, [1]
        while not 4 <= len(found) <= 10:
            n = rng.randint(12, 200)
            found = divisors(n)
        question = f"List all positive divisors of ${n}$"
        steps = f"The divisors come in pairs with product ${n}$: " + ", ".join(
            rf"${d} \cdot {n // d}$" for d in found if d * d <= n
        )
    else:
        g, found = 0, [1]
        while len(found) < 3:
            g = rng.randint(4, 60)
            found = divisors(g)
        p = q = 1
        while p == q or math.gcd(p, q) > 1:
            p, q = rng.randint(1, 12), rng.randint(1, 12)
        question = f"List all positive integers that divide both ${g * p}$ and ${g * q}$"
        steps = (
            f"The common divisors are the divisors of the greatest common divisor of ${g * p}$ and ${g * q}$, which is "
            f"${g}$"
        )
    return Draft(
        f"{question} in increasing order, separated by commas.",
        tex.listing(map(str, found)),
        f"{steps}. In increasing order there are ${len(found)}$ of them.",
    )


@template(SUBJECT, 1)
def remainder(rng: Random) -> Draft:
    """Remainder of a sum or a product."""
    m = rng.randint(3, 13)
    a, b = rng.randint(20, 400), rng.randint(20, 400)
    operation, symbol, value = rng.choice(((r"\cdot", "product", a * b), ("+", "sum", a + b)))
    r, s = a % m, b % m
    small = r * s if operation != "+" else r + s
    return Draft(
        rng.choice(
            (
                f"What is the remainder when ${a} {operation} {b}$ is divided by ${m}$?",
                f"Find the remainder when the {symbol} of ${a}$ and ${b}$ is divided by ${m}$.",
            )
        ),
        str(value % m),
        f"Dividing by ${m}$, the number ${a}$ leaves ${r}$ and ${b}$ leaves ${s}$. So the {symbol} leaves the same "
        f"remainder as ${r} {operation} {s} = {small}$, which is ${small % m}$.",
    )


@template(SUBJECT, 2)
def divisor_count(rng: Random) -> Draft:
    """Number of positive divisors, or of the even ones."""
    n, primes = _composite(rng, 60, 3000, 13)
    even = n % 2 == 0 and rng.random() < 0.5
    choices = [e if even and p == 2 else e + 1 for p, e in sorted(primes.items())]
    result = math.prod(choices)
    explain = "the exponent of $2$ must be at least $1$, and " if even else ""
    return Draft(
        rng.choice(
            (
                f"How many {'even ' if even else ''}positive divisors does ${n}$ have?",
                f"Find the number of {'even ' if even else ''}positive integers that divide ${n}$.",
            )
        ),
        str(result),
        f"The prime factorization is ${n} = {tex.factorization(primes)}$. In a divisor {explain}each exponent is "
        f"chosen independently, which gives ${tex.equal(tex.product(choices), str(result))}$ divisors.",
    )


@template(SUBJECT, 2)
def base_conversion(rng: Random) -> Draft:
    """To another base, or from it."""
    base = rng.randint(2, 9)
    n = rng.randint(base, min(base**5, 2000))
    digits = _digits(n, base)
    sum_of_powers = " + ".join(
        rf"{digit} \cdot {tex.power(str(base), len(digits) - 1 - place) or 1}" for place, digit in enumerate(digits)
    )
    if rng.random() < 0.6:
        return Draft(
            rng.choice(
                (
                    f"Write the base $10$ number ${n}$ in base ${base}$.",
                    f"Convert ${n}$ from base $10$ to base ${base}$.",
                )
            )
            + f" Express your answer with the base as a subscript, in the form $N_{base}$.",
            _in_base(n, base),
            f"Expanding in powers of ${base}$, ${n} = {sum_of_powers}$, so the digits are "
            f"${''.join(map(str, digits))}$.",
        )
    return Draft(
        rng.choice(
            (
                f"Convert ${_in_base(n, base)}$ to base $10$.",
                f"What is the value of ${_in_base(n, base)}$ when written in base $10$?",
            )
        ),
        str(n),
        f"The digits stand for ${sum_of_powers} = {n}$.",
    )


@template(SUBJECT, 2)
def units_digit(rng: Random) -> Draft:
    """Units digit of a power, or of a sum of two powers."""
    a, b = rng.sample([n for n in range(2, 40) if n % 10 not in (0, 1, 5, 6)], 2)
    m, n = rng.randint(11, 99), rng.randint(11, 99)

    def explained(base: int, exponent: int) -> tuple[int, str]:
        cycle = [base % 10]
        while (step := cycle[-1] * base % 10) != cycle[0]:
            cycle.append(step)
        digit = cycle[(exponent - 1) % len(cycle)]
        listed = ", ".join(map(str, cycle))
        return digit, (
            f"The units digits of the powers of ${base}$ repeat ${listed}$ with period ${len(cycle)}$, so "
            f"${base}^{{{exponent}}}$ ends in ${digit}$."
        )

    first, steps = explained(a, m)
    if rng.random() < 0.5:
        return Draft(f"What is the units digit of ${a}^{{{m}}}$?", str(first), steps)
    second, more = explained(b, n)
    return Draft(
        f"Find the units digit of ${a}^{{{m}}} + {b}^{{{n}}}$.",
        str((first + second) % 10),
        f"{steps} {more} The sum ends in the units digit of ${first} + {second} = {first + second}$.",
    )


@template(SUBJECT, 2)
def meeting_again(rng: Random) -> Draft:
    """A least common multiple in a story."""
    while True:
        a, b, c = distinct(rng, 4, 40, 3)
        if math.gcd(a, b) > 1 and math.gcd(b, c) > 1 and math.lcm(a, b, c) not in (a, b, c):
            break
    result = math.lcm(a, b, c)
    factored = ", ".join(f"${n} = {tex.factorization(_factors(n))}$" for n in (a, b, c))
    return Draft(
        rng.choice(
            (
                f"Three lighthouses flash every ${a}$, ${b}$ and ${c}$ seconds. They have just flashed at the same "
                f"moment. "
                "In how many seconds will all three next flash together?",
                f"Three runners start together and circle a track in ${a}$, ${b}$ and ${c}$ minutes. After how many "
                f"minutes "
                "are all three at the starting point together for the first time?",
                f"Find the smallest positive integer that is divisible by ${a}$, ${b}$ and ${c}$.",
            )
        ),
        str(result),
        f"We need the least common multiple. From {factored} it is ${tex.factorization(_factors(result))} = {result}$.",
    )


@template(SUBJECT, 3)
def linear_congruence(rng: Random) -> Draft:
    """`ax + b = c` modulo m with one solution."""
    m = rng.randint(7, 60)
    a = rng.choice([n for n in range(2, m) if math.gcd(n, m) == 1])
    x, b = rng.randrange(m), rng.randint(1, 30)
    c = (a * x + b) % m
    inverse = pow(a, -1, m)
    right = (c - b) % m
    steps = tex.equal(str(inverse * right), str(x), sign=r"\equiv")
    return Draft(
        rng.choice(
            (
                rf"Find the integer $x$ with $0 \le x < {m}$ such that ${a}x + {b} \equiv {c} \pmod{{{m}}}$.",
                rf"What is the smallest nonnegative integer $x$ that satisfies ${a}x + {b} \equiv {c} \pmod{{{m}}}$?",
            )
        ),
        str(x),
        rf"Subtracting ${b}$ gives ${a}x \equiv {right} \pmod{{{m}}}$. Since ${a} \cdot {inverse} = {a * inverse} "
        rf"\equiv 1 \pmod{{{m}}}$, multiplying by ${inverse}$ gives $x \equiv {steps} \pmod{{{m}}}$.",
    )


@template(SUBJECT, 3)
def divisor_sum(rng: Random) -> Draft:
    """Sum of the positive divisors."""
    n, primes = _composite(rng, 30, 1200, 19)
    factors = [sum(p**k for k in range(e + 1)) for p, e in sorted(primes.items())]
    written = "".join(f"({' + '.join(str(p**k) for k in range(e + 1))})" for p, e in sorted(primes.items()))
    result = math.prod(factors)
    return Draft(
        rng.choice(
            (
                f"What is the sum of all positive divisors of ${n}$?",
                f"Find the sum of the positive integers that divide ${n}$.",
            )
        ),
        str(result),
        rf"The prime factorization is ${n} = {tex.factorization(primes)}$. The sum of the divisors is ${written} = "
        rf"{tex.equal(tex.product(factors), str(result))}$.",
    )


@template(SUBJECT, 3)
def base_arithmetic(rng: Random) -> Draft:
    """Sum, difference or product of two numbers in a base."""
    base = rng.randint(3, 9)
    b, a = distinct(rng, base, base**4 - 1, 2)
    symbol, result = rng.choice((("+", a + b), ("-", a - b)))
    if rng.random() < 0.3:
        a, b = rng.randint(base, base**3 - 1), rng.randint(2, base**2 - 1)
        symbol, result = r"\cdot", a * b
    expression = f"{_in_base(a, base)} {symbol} {_in_base(b, base)}"
    return Draft(
        rng.choice(
            (
                f"Compute ${expression}$ in base ${base}$.",
                f"Evaluate ${expression}$.",
            )
        )
        + f" Express your answer in base ${base}$, with the base as a subscript.",
        _in_base(result, base),
        f"In base $10$ the numbers are ${a}$ and ${b}$, and ${a} {symbol} {b} = {result}$. Dividing by ${base}$ "
        f"repeatedly gives the digits ${''.join(map(str, _digits(result, base)))}$ in base ${base}$.",
    )


@template(SUBJECT, 3)
def decimal_digit(rng: Random) -> Draft:
    """A far digit of a repeating decimal."""
    q = rng.choice((7, 11, 13, 17, 19, 21, 27, 33, 37, 39, 41))
    p = rng.choice([n for n in range(1, q) if math.gcd(n, q) == 1])
    place = rng.randint(30, 999)
    period, power = 1, 10 % q
    while power != 1:
        period, power = period + 1, power * 10 % q
    block = f"{p * (10**period - 1) // q:0{period}d}"
    position = (place - 1) % period + 1
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return Draft(
        rng.choice(
            (
                rf"What is the ${place}${suffix} digit after the decimal point in the decimal representation of "
                rf"$\frac{{{p}}}{{{q}}}$?",
                rf"The fraction $\frac{{{p}}}{{{q}}}$ is written as a decimal. Find the digit in the ${place}${suffix} "
                rf"place "
                "after the decimal point.",
            )
        ),
        block[position - 1],
        rf"We have $\frac{{{p}}}{{{q}}} = 0.\overline{{{block}}}$, which repeats every ${period}$ digits. Since "
        rf"${place}$ is ${position}$ more than a multiple of ${period}$, the digit is number ${position}$ of the "
        rf"block.",
    )


@template(SUBJECT, 3)
def totient(rng: Random) -> Draft:
    """How many numbers up to n are relatively prime to it."""
    n, factored = _composite(rng, 20, 1500, 31)
    primes = sorted(factored)
    result = n
    for p in primes:
        result = result // p * (p - 1)
    product = "".join(rf"\left(1 - {tex.frac(1, p)}\right)" for p in primes)
    return Draft(
        rng.choice(
            (
                f"How many positive integers less than ${n}$ are relatively prime to ${n}$?",
                f"Find the number of integers $k$ with $1 \\le k \\le {n}$ that have no common factor with ${n}$ other "
                f"than $1$.",
            )
        ),
        str(result),
        f"The primes that divide ${n}$ are {', '.join(f'${p}$' for p in primes)}. The count is ${n}{product} = "
        f"{result}$.",
    )


@template(SUBJECT, 4)
def three_remainders(rng: Random) -> Draft:
    """Smallest positive integer with three given remainders."""
    while True:
        moduli = distinct(rng, 3, 13, 3)
        if all(math.gcd(a, b) == 1 for a in moduli for b in moduli if a != b):
            break
    product = math.prod(moduli)
    n = rng.randint(max(moduli) + 1, product - 1)
    rests = [n % m for m in moduli]
    two = n % (moduli[1] * moduli[2])
    first, second, third = (f"${rest}$ when divided by ${m}$" for rest, m in zip(rests, moduli, strict=True))
    listed = f"{first}, {second}, and {third}"
    return Draft(
        rng.choice(
            (
                f"What is the smallest positive integer that leaves a remainder of {listed}?",
                f"A positive integer leaves a remainder of {listed}. Find the smallest integer with this property.",
            )
        ),
        str(n),
        f"The last two conditions together say that the number leaves ${two}$ when divided by ${moduli[1]} \\cdot "
        f"{moduli[2]} = {moduli[1] * moduli[2]}$. Going through ${two}$, ${two + moduli[1] * moduli[2]}$, "
        f"${two + 2 * moduli[1] * moduli[2]}$, and so on, the first one that leaves ${rests[0]}$ when divided by "
        f"${moduli[0]}$ is ${n}$; by the Chinese Remainder Theorem it is the only one below ${product}$.",
    )


@template(SUBJECT, 4)
def factorial_divisibility(rng: Random) -> Draft:
    """Highest power of a number that divides a factorial, or trailing zeros in a base."""
    n = rng.randint(25, 400)
    p, multiplicity = rng.choice(((2, 1), (3, 1), (5, 1), (7, 1), (2, 2), (3, 2), (2, 3)))
    base = p**multiplicity
    counts = []
    step = p
    while step <= n:
        counts.append((step, n // step))
        step *= p
    exponent = sum(count for _, count in counts)
    result = exponent // multiplicity
    floors = " + ".join(rf"\left\lfloor \frac{{{n}}}{{{step}}} \right\rfloor" for step, _ in counts)
    values = " + ".join(str(count) for _, count in counts)
    last = (
        ""
        if multiplicity == 1
        else f" Since ${base} = {p}^{multiplicity}$, we divide by ${multiplicity}$ and round down."
    )
    return Draft(
        rng.choice(
            (
                f"What is the largest integer $k$ such that ${base}^k$ divides ${n}!$?",
                f"In how many zeros does ${n}!$ end when it is written in base ${base}$?",
            )
        ),
        str(result),
        f"The exponent of ${p}$ in ${n}!$ is ${floors} = {tex.equal(values, str(exponent))}$.{last}",
    )


@template(SUBJECT, 4)
def modular_power(rng: Random) -> Draft:
    """Remainder of a large power."""
    m = rng.randint(7, 60)
    a = rng.choice([n for n in range(2, 60) if math.gcd(n, m) == 1 and n % m not in (1, m - 1)])
    exponent = rng.randint(40, 2100)
    order, power = 1, a % m
    while power != 1:
        order, power = order + 1, power * a % m
    rest = exponent % order
    result = pow(a, exponent, m)
    return Draft(
        rng.choice(
            (
                f"What is the remainder when ${a}^{{{exponent}}}$ is divided by ${m}$?",
                rf"Find the integer $r$ with $0 \le r < {m}$ such that ${a}^{{{exponent}}} \equiv r \pmod{{{m}}}$.",
            )
        ),
        str(result),
        rf"The powers of ${a}$ modulo ${m}$ repeat with period ${order}$, since ${a}^{{{order}}} \equiv 1 "
        rf"\pmod{{{m}}}$. As ${exponent} = {order} \cdot {exponent // order} + {rest}$, we have ${a}^{{{exponent}}} "
        rf"\equiv {a}^{{{rest}}} \equiv {result} \pmod{{{m}}}$.",
    )


@template(SUBJECT, 4)
def repeating_in_base(rng: Random) -> Draft:
    """A repeating expansion in a base as a fraction in base ten."""
    base = rng.randint(3, 9)
    block = rng.randint(1, base * base - 2)
    while block % (base + 1) == 0:
        block = rng.randint(1, base * base - 2)
    lead = rng.randint(0, base - 1) if rng.random() < 0.6 else None
    digits = f"{block // base}{block % base}"
    tail = Fraction(block, base * base - 1)
    value = tail if lead is None else (lead + tail) / base
    written = rf"0.{'' if lead is None else lead}\overline{{{digits}}}_{base}"
    steps = (
        rf"The block $\overline{{{digits}}}_{base}$ has the value ${block}$ and length $2$, so the purely repeating "
        rf"part is $0.\overline{{{digits}}}_{base} = {tex.equal(tex.frac(block, base * base - 1), tex.number(tail))}$."
    )
    if lead is not None:
        steps += (
            rf" With the leading digit, the number is $\frac{{1}}{{{base}}} \left({lead} + {tex.number(tail)}\right) = "
            rf"{tex.number(value)}$."
        )
    return Draft(
        rng.choice(
            (
                f"Write the base ${base}$ number ${written}$ as a common fraction in base $10$.",
                f"What common fraction, written in base $10$, equals the base ${base}$ number ${written}$?",
            )
        ),
        tex.number(value),
        steps,
    )


@template(SUBJECT, 4)
def factored_pairs(rng: Random) -> Draft:
    """Positive solutions of `xy + ax + by = c` by completing the product."""
    while True:
        a, b = rng.randint(1, 9), rng.randint(1, 9)
        n = rng.randint(12, 300)
        pairs = [(d - b, n // d - a) for d in range(b + 1, n + 1) if n % d == 0 and n // d > a]
        if 2 <= len(pairs) <= 5 and n > a * b:
            break
    c = n - a * b
    equation = f"{tex.combination((1, 'xy'), (a, 'x'), (b, 'y'))} = {c}"
    return Draft(
        rng.choice(
            (
                f"Find all ordered pairs $(x, y)$ of positive integers that satisfy ${equation}$.",
                f"Solve ${equation}$ in positive integers $x$ and $y$. Give all ordered pairs $(x, y)$.",
            )
        )
        + " List the pairs in order of increasing $x$, separated by commas.",
        tex.listing(f"({x}, {y})" for x, y in pairs),
        f"Adding ${a * b}$ to both sides completes the product: $(x + {b})(y + {a}) = {n}$. The first factor is larger "
        f"than ${b}$ and the second larger than ${a}$, so the first factor can only be "
        f"{', '.join(f'${x + b}$' for x, _ in pairs)}, and each choice gives one pair.",
    )


@template(SUBJECT, 5)
def square_roots_modulo(rng: Random) -> Draft:
    """All square roots of a residue modulo a product of two odd primes."""
    while True:
        p, q = sorted(rng.sample((3, 5, 7, 11, 13, 17), 2))
        n = p * q
        x = rng.randint(2, n - 1)
        if math.gcd(x, n) == 1:
            break
    a = x * x % n
    roots = [r for r in range(n) if r * r % n == a]
    return Draft(
        rng.choice(
            (
                rf"Find all integers $x$ with $0 \le x < {n}$ such that $x^2 \equiv {a} \pmod{{{n}}}$.",
                rf"The congruence $x^2 \equiv {a} \pmod{{{n}}}$ has several solutions with $0 \le x < {n}$. Find all "
                rf"of them.",
            )
        )
        + " List them in increasing order, separated by commas.",
        tex.listing(map(str, roots)),
        rf"Since ${n} = {p} \cdot {q}$, we solve modulo each prime: $x \equiv \pm {x % p} \pmod{{{p}}}$ and $x \equiv "
        rf"\pm {x % q} \pmod{{{q}}}$. The four combinations of signs give, by the Chinese Remainder Theorem, "
        f"${tex.listing(map(str, roots))}$.",
    )


@template(SUBJECT, 5)
def multiplicative_order(rng: Random) -> Draft:
    """Smallest exponent that gives 1 modulo m."""
    from sympy import n_order
    from sympy import totient as euler

    while True:
        m, a = rng.randint(11, 140), rng.randint(2, 40)
        if a < m and math.gcd(a, m) == 1 and a * a % m != 1:
            break
    phi, order = int(euler(m)), int(n_order(a, m))
    smaller = [d for d in range(1, order) if order % d == 0]
    tried = ", ".join(rf"${a}^{{{d}}} \equiv {pow(a, d, m)}$" for d in smaller)
    return Draft(
        rng.choice(
            (
                f"What is the smallest positive integer $n$ such that ${a}^n - 1$ is divisible by ${m}$?",
                rf"Find the smallest positive integer $n$ for which ${a}^n \equiv 1 \pmod{{{m}}}$.",
            )
        ),
        str(order),
        rf"By Euler's Theorem $n$ divides $\varphi({m}) = {phi}$. Modulo ${m}$ we find ${a}^{{{order}}} \equiv 1$, "
        rf"while for the proper divisors of ${order}$ we have {tried}.",
    )


@template(SUBJECT, 5)
def two_coins(rng: Random) -> Draft:
    """Largest amount, or number of amounts, that two coins cannot pay."""
    while True:
        a, b = distinct(rng, 3, 40, 2)
        if math.gcd(a, b) == 1:
            break
    intro, largest_one, how_many = rng.choice(
        (
            (
                f"A shop sells stickers only in packs of ${a}$ and packs of ${b}$.",
                "What is the largest number of stickers that cannot be bought exactly?",
                "How many positive integers are numbers of stickers that cannot be bought exactly?",
            ),
            (
                f"In a certain game every move scores either ${a}$ or ${b}$ points.",
                "What is the largest integer that is not a possible total score?",
                "How many positive integers are not possible total scores?",
            ),
        )
    )
    largest, count = a * b - a - b, (a - 1) * (b - 1) // 2
    if rng.random() < 0.5:
        return Draft(
            f"{intro} {largest_one}",
            str(largest),
            rf"As ${a}$ and ${b}$ are relatively prime, the largest number not of the form ${a}x + {b}y$ with "
            rf"nonnegative integers $x$ and $y$ is ${a} \cdot {b} - {a} - {b} = {largest}$.",
        )
    return Draft(
        f"{intro} {how_many}",
        str(count),
        rf"As ${a}$ and ${b}$ are relatively prime, exactly half of the numbers from $0$ to ${a} \cdot {b} - {a} - {b} "
        rf"= {largest}$ are not of the form ${a}x + {b}y$ with nonnegative integers $x$ and $y$: $\frac{{({a} - 1)({b} "
        rf"- 1)}}{{2}} = {count}$.",
    )


@template(SUBJECT, 5)
def perfect_square_values(rng: Random) -> Draft:
    """All positive n that make a quadratic a perfect square."""
    while True:
        k, c = rng.randint(1, 40), nonzero(rng, 60)
        d = k * k - 4 * c
        if d <= 0:
            continue
        # (2n + k)^2 - (2s)^2 = d = uv with u <= v, so 2n + k = (u + v)/2
        halves = [(u + d // u) // 2 for u in range(1, math.isqrt(d) + 1) if d % u == 0 and (d // u - u) % 4 == 0]
        found = sorted({(half - k) // 2 for half in halves if half > k and (half - k) % 2 == 0})
        if 1 <= len(found) <= 4:
            break
    quadratic = tex.polynomial([1, k, c], "n")
    return Draft(
        rng.choice(
            (
                f"Find all positive integers $n$ for which ${quadratic}$ is a perfect square.",
                f"For which positive integers $n$ is ${quadratic}$ the square of an integer?",
            )
        )
        + " List them in increasing order, separated by commas.",
        tex.listing(map(str, found)),
        f"Set ${quadratic} = s^2$ with $s \\ge 0$. Multiplying by $4$ and completing the square, $(2n + {k})^2 - "
        f"(2s)^2 = {d}$, so $(2n + {k} - 2s)(2n + {k} + 2s) = {d}$. Running through the factorizations of ${d}$ into "
        f"two factors whose difference is divisible by $4$ and keeping those with $n > 0$ gives $n = "
        f"{tex.listing(map(str, found))}$.",
    )


@template(SUBJECT, 5)
def count_positive_solutions(rng: Random) -> Draft:
    """Number of positive integer solutions of a linear Diophantine equation."""
    while True:
        a, b = distinct(rng, 3, 17, 2)
        if math.gcd(a, b) == 1:
            break
    c = rng.randint(4 * a * b, 14 * a * b)
    x0 = c * pow(a, -1, b) % b or b
    largest = (c - b) // a
    result = (largest - x0) // b + 1
    return Draft(
        rng.choice(
            (
                f"How many ordered pairs $(x, y)$ of positive integers satisfy ${a}x + {b}y = {c}$?",
                f"Find the number of solutions of ${a}x + {b}y = {c}$ in positive integers $x$ and $y$.",
            )
        ),
        str(result),
        rf"Modulo ${b}$ the equation becomes ${a}x \equiv {c % b} \pmod{{{b}}}$, so $x \equiv {x0 % b} \pmod{{{b}}}$. "
        rf"Since $y \ge 1$ means $x \le {largest}$, the possible values are $x = {x0}, {x0 + b}, {x0 + 2 * b}, \ldots$ "
        rf"up to ${x0 + (result - 1) * b}$, which makes ${result}$ solutions.",
    )
