"""Sets of real numbers as unions of intervals: from intervals, inequalities, set-builder notation and set operations.

Endpoints keep their trees. Where all of them are numbers, unions are merged and intersections and differences computed;
a set with symbolic endpoints stays the list of intervals that was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from verifiers.math.evaluate import Evaluator, OutsideDomainError, machine
from verifiers.math.expressions import of_tree
from verifiers.math.forms import UNIT, Atom, Form, NotAnExpressionError, TooLargeError, UndefinedError, difference
from verifiers.math.tree import (
    MINUS_ONE,
    Add,
    Apply,
    Builder,
    Const,
    Finite,
    Group,
    Items,
    Mul,
    Named,
    Node,
    Num,
    Quantity,
    Rel,
    SetOp,
    Sym,
    negative,
    walk,
)

INFINITY = Const("inf")
MINUS_INFINITY = negative(INFINITY)


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`; a point has both equal and closed."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


class NotASetError(ValueError):
    """The tree describes no set of real numbers that can be written as intervals."""


REALS = (Interval(MINUS_INFINITY, INFINITY, False, False),)


def is_infinite(node: Node) -> int:
    """1 for ∞ (or +∞), -1 for -∞, else 0."""
    if node == INFINITY:
        return 1
    return -1 if node == MINUS_INFINITY else 0


def looks_like_set(node: Node) -> bool:
    """Whether a tree can only be read as a set (unlike brackets, which may also be a tuple)."""
    match node:
        case SetOp() | Builder() | Named():
            return True
        case Rel(ops):
            return any(op in ("<", "<=", ">", ">=", "!=", "in") for op in ops)
        case Group(opening, closing):
            return opening + closing in ("(]", "[)")
        case Items(items):
            return all(map(looks_like_set, items)) or any(isinstance(i, Rel) and looks_like_set(i) for i in items)
        case Quantity(value):
            return looks_like_set(value)
    return False


def of_tree_set(node: Node) -> tuple[Interval, ...]:
    """The set that a tree describes, merged and sorted if all endpoints are numbers.

    Raises:
        NotASetError: if it describes none.
    """
    return merged(_of(node))


def _of(node: Node) -> tuple[Interval, ...]:
    match node:
        case Quantity(value):
            return _of(value)
        case Group(opening, closing, (low, high)):
            return (_interval(low, high, opening == "[", closing == "]"),)
        case Finite(items) if not any(isinstance(item, (Group, Finite, Items)) for item in items):
            return tuple(Interval(item, item, True, True) for item in items)
        case Named("R"):
            return REALS
        case Named("R^+") | Named("R_+") | Named("R_>0"):
            return (Interval(Num(Fraction(0)), INFINITY, False, False),)
        case Named("empty"):
            return ()
        case Builder(variable, conditions):
            if isinstance(variable, Rel) and variable.ops == ("in",) and variable.parts[1] == Named("R"):
                variable = variable.parts[0]
            return _of(conditions)
        case SetOp(op, left, right):
            return _operation(op, _of(left), _of(right))
        case Add((left, Mul((factor, right)))) if factor == MINUS_ONE and isinstance(right, (Finite, Named, Builder)):
            return _operation("difference", _of(left), _of(right))
        case Items(items, alternatives) if not any(isinstance(i, Group) and not looks_like_set(i) for i in items):
            pieces = [_of(item) for item in items]
            result = pieces[0]
            for piece in pieces[1:]:
                result = _operation("union" if alternatives else "intersection", result, piece)
            if not result and not alternatives:  # `x < 1, x > 2` can only mean "or"
                result = merged(tuple(interval for piece in pieces for interval in piece))
            return result
        case Rel():
            return _of_relation(node)
    raise NotASetError(f"{type(node).__name__} is no set of real numbers")


def _interval(low: Node, high: Node, low_closed: bool, high_closed: bool) -> Interval:
    if is_infinite(low) > 0 or is_infinite(high) < 0:
        raise NotASetError("an interval the wrong way round")
    return Interval(low, high, low_closed and not is_infinite(low), high_closed and not is_infinite(high))


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def _of_relation(node: Rel) -> tuple[Interval, ...]:
    if node.ops == ("in",):
        return _of(node.parts[1])
    if len(node.ops) == 1:
        return _solved(node.ops[0], node.parts[0], node.parts[1])
    if len(node.ops) == 2:
        left, middle, right = node.parts
        if not set(node.ops) <= _FLIPPED.keys():
            raise NotASetError("a chain of other relations than inequalities")
        if _is_variable(middle):
            return _operation("intersection", _half_line(_FLIPPED[node.ops[0]], left), _half_line(node.ops[1], right))
        return _operation("intersection", _solved(node.ops[0], left, middle), _solved(node.ops[1], middle, right))
    raise NotASetError("a chain of more than two relations")


def _solved(op: str, left: Node, right: Node) -> tuple[Interval, ...]:
    """The solutions of `left op right` for the one variable in it, which must be linear."""
    if op not in _FLIPPED:
        raise NotASetError(f"a relation {op!r}")
    if _is_variable(left) and not _mentions(right, left):
        return _half_line(op, right)
    if _is_variable(right) and not _mentions(left, right):
        return _half_line(_FLIPPED[op], left)
    slope, bound = _linear(left, right)
    return _half_line(op if slope > 0 else _FLIPPED[op], bound)


def _is_variable(node: Node) -> bool:
    return isinstance(node, Sym) or (isinstance(node, Apply) and len(node.name) == 1)


def _mentions(node: Node, variable: Node) -> bool:
    return any(part == variable for part in walk(node))


def _linear(left: Node, right: Node) -> tuple[Fraction, Node]:
    """(a, -b/a) of left - right = a·x + b."""
    try:
        left_form, right_form = of_tree(left), of_tree(right)
        rest = difference(left_form, right_form)
    except (NotAnExpressionError, TooLargeError, UndefinedError) as error:
        raise NotASetError(str(error)) from error
    if left_form.denominator.keys() != {UNIT} or right_form.denominator.keys() != {UNIT}:
        raise NotASetError("a variable below a fraction bar")
    unknown: set[Atom] = {atom for monomial in rest for atom, _ in monomial}
    if len(unknown) != 1 or next(iter(unknown))[0] != "sym":
        raise NotASetError("not exactly one variable")
    monomial = frozenset({(next(iter(unknown)), Fraction(1))})
    if not rest.keys() <= {UNIT, monomial}:
        raise NotASetError("not linear")
    slope = rest[monomial] * left_form.denominator[UNIT] * right_form.denominator[UNIT]
    return slope, Num(-rest.get(UNIT, Fraction(0)) / rest[monomial])


def _half_line(op: str, bound: Node) -> tuple[Interval, ...]:
    if op == "=":
        return (Interval(bound, bound, True, True),)
    if op == "!=":
        return (Interval(MINUS_INFINITY, bound, False, False), Interval(bound, INFINITY, False, False))
    if op in ("<", "<="):
        return (_interval(MINUS_INFINITY, bound, False, op == "<="),)
    return (_interval(bound, INFINITY, op == ">=", False),)


# --- operations on numbers' intervals ---


def value(node: Node) -> float:
    """The number that a tree stands for, ±inf included.

    Raises:
        NotASetError: if it is no real constant.
    """
    sign = is_infinite(node)
    if sign:
        return sign * float("inf")
    try:
        form: Form = of_tree(node)
        if form.rational is not None:
            return float(form.rational)
        found = Evaluator(machine(), {}, real=True).form(form)
    except (NotAnExpressionError, TooLargeError, UndefinedError, OutsideDomainError, OverflowError) as error:
        raise NotASetError(str(error)) from error
    return float(found.real)


def _numeric(intervals: tuple[Interval, ...]) -> bool:
    try:
        for interval in intervals:
            value(interval.low), value(interval.high)
    except NotASetError:
        return False
    return True


def merged(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Sorted, without empty intervals, overlapping and touching ones joined; unchanged with symbolic endpoints."""
    if not _numeric(intervals):
        return intervals
    kept = [
        i
        for i in intervals
        if value(i.low) < value(i.high) or (_same(i.low, i.high) and i.low_closed and i.high_closed)
    ]
    kept.sort(key=lambda i: (value(i.low), not i.low_closed))
    result: list[Interval] = []
    for interval in kept:
        if result and _touch(result[-1], interval):
            last = result[-1]
            if value(interval.high) > value(last.high) + 1e-12:
                result[-1] = Interval(last.low, interval.high, last.low_closed, interval.high_closed)
            elif _same(interval.high, last.high):
                closed = last.high_closed or interval.high_closed
                result[-1] = Interval(last.low, last.high, last.low_closed, closed)
        else:
            result.append(interval)
    return tuple(result)


def _same(left: Node, right: Node) -> bool:
    a, b = value(left), value(right)
    return a == b or abs(a - b) <= 1e-12 * max(abs(a), abs(b))


def _touch(left: Interval, right: Interval) -> bool:
    if _same(left.high, right.low):
        return left.high_closed or right.low_closed
    return value(left.high) > value(right.low)


def _complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    result: list[Interval] = []
    low: Node = MINUS_INFINITY
    closed = False
    for interval in merged(intervals):
        result.append(Interval(low, interval.low, closed, not interval.low_closed and not is_infinite(interval.low)))
        low, closed = interval.high, not interval.high_closed
    if is_infinite(low) <= 0:
        result.append(Interval(low, INFINITY, closed, False))
    return merged(tuple(i for i in result if not (is_infinite(i.low) and i.low == i.high)))


def _operation(op: str, left: tuple[Interval, ...], right: tuple[Interval, ...]) -> tuple[Interval, ...]:
    if op == "union":
        return merged((*left, *right))
    if not (_numeric(left) and _numeric(right)):
        if op == "intersection" and len(left) == len(right) == 1:
            return _between(left[0], right[0])
        raise NotASetError(f"{op} of sets with symbolic endpoints")
    if op == "difference":
        right = _complement(right)
    return _complement((*_complement(left), *_complement(right)))


def _between(left: Interval, right: Interval) -> tuple[Interval, ...]:
    """a < x and x < b with symbolic bounds."""
    for lower, upper in ((left, right), (right, left)):
        if is_infinite(lower.high) and is_infinite(upper.low):
            return (Interval(lower.low, upper.high, lower.low_closed, upper.high_closed),)
    raise NotASetError("an intersection of symbolic intervals")


def equal(left: tuple[Interval, ...], right: tuple[Interval, ...], same: Callable[[Node, Node], bool]) -> bool:
    """Whether two sets have the same intervals, endpoints compared by `same`."""
    if len(left) != len(right):
        return False
    rest = list(right)
    for interval in left:
        for candidate in rest:
            if (
                interval.low_closed == candidate.low_closed
                and interval.high_closed == candidate.high_closed
                and same(interval.low, candidate.low)
                and same(interval.high, candidate.high)
            ):
                rest.remove(candidate)
                break
        else:
            return False
    return True
