"""Are two expressions equal? First exactly by normal forms, then numerically, then (in a worker) in high precision.

`quick` needs no SymPy and answers yes, no or "don't know"; `verifiers.math.symbolic` settles the rest.
"""

from __future__ import annotations

import hashlib
import random
from fractions import Fraction
from typing import Any

from verifiers.math.evaluate import Evaluator, OutsideDomainError, contains_i, machine, variables
from verifiers.math.forms import Atom, Form, Polynomial, TooLargeError, difference

POINTS = 4
"""Points at which machine precision may refute an equality."""

INTEGER_POINTS = range(1000, 1006)
"""Numbers of the points with integer coordinates, tried where no other point is inside the domain: (-1)^n."""

REFUTED = 1e-6
"""Relative to the largest term, a difference beyond this is no rounding error at double precision."""


def quick(left: Form, right: Form) -> bool | None:
    """Whether two expressions are equal, as far as exact arithmetic and a refutation in double precision can tell.

    Returns:
        True if the forms agree; False if both are numbers and do not, or if the values differ clearly at a point;
        None otherwise.
    """
    try:
        rest = difference(left, right)
    except TooLargeError:
        return None
    if not rest:
        return True
    if left.rational is not None and right.rational is not None:
        return False
    return False if refuted(left, right, rest) else None


def refuted(left: Form, right: Form, rest: Polynomial) -> bool:
    """Whether double precision shows that `rest`, the numerator of left - right, is not zero everywhere."""
    arithmetic = machine()
    parts = (left.numerator, left.denominator, right.numerator, right.denominator)
    names = sorted(variables(parts), key=repr)
    real = not contains_i(parts)
    inside = 0
    for index in [*range(POINTS), *INTEGER_POINTS] if names else [0]:
        if inside and index == INTEGER_POINTS.start:
            break
        point = {name: complex(value) for name, value in zip(names, sample(names, index), strict=True)}
        try:
            evaluator = Evaluator(arithmetic, point, real and bool(names))
            evaluator.form(left)
            evaluator.form(right)
            value, largest = evaluator.polynomial(rest)
        except (OutsideDomainError, OverflowError, ZeroDivisionError, ValueError):
            continue
        inside += 1
        if abs(value) > REFUTED * largest and arithmetic.smallest < largest < arithmetic.largest:
            return True
    return False


def sample(names: list[Atom], index: int) -> list[Fraction]:
    """One point with rational coordinates away from integers, the same in every process.

    By turns from (0, 4), (-4, 4), (0, 1) and (-1, 1): lengths must be positive, and inverse functions take small values.
    `INTEGER_POINTS` have small positive integers instead.
    """
    seed = hashlib.sha256(f"{index}:{names!r}".encode()).digest()
    generator = random.Random(seed)
    values = []
    if index in INTEGER_POINTS:
        return [Fraction(generator.randrange(1, 10) + 2 * (index - INTEGER_POINTS.start)) for _ in names]
    for _ in names:
        value = Fraction(generator.randrange(1, 1000), 1009) + Fraction(1, 7919)
        value *= 4 if index % 4 < 2 else 1
        values.append(value if index % 2 == 0 or generator.random() < 0.5 else -value)
    return values


def zero_in(arithmetic: Any, rest: Polynomial, point: dict[Atom, Any], real: bool, tolerance: Any) -> bool:
    """Whether `rest` vanishes at a point within `tolerance` of its largest term."""
    value, largest = Evaluator(arithmetic, point, real).polynomial(rest)
    return bool(abs(value) <= tolerance * largest)
