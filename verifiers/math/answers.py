"""What the tree of an answer says: names and values, conditions, members, arbitrary constants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from verifiers.math.tree import (
    Add,
    Apply,
    Cases,
    Const,
    Finite,
    Group,
    Items,
    Matrix,
    Mul,
    Named,
    Node,
    Num,
    Pow,
    Quantity,
    Ratio,
    Rel,
    Sym,
    Text,
    replaced,
    walk,
)

DEGREE = Const("degree")


def without_conditions(node: Node) -> Node:
    """An answer without what does not change it: one-cell matrices, systems as lists, conditions beside values."""
    if isinstance(node, Matrix) and len(node.rows) == len(node.rows[0]) == 1:
        return node.rows[0][0]
    if isinstance(node, Cases) and all(len(row) == 1 for row in node.rows):
        items = [item for (cell,) in node.rows for item in (cell.items if isinstance(cell, Items) else (cell,))]
        return without_conditions(Items(tuple(items)))
    if isinstance(node, Items):
        values = [item for item in node.items if not _is_condition(item)]
        only_values = not any(isinstance(item, Rel) and item.ops != ("=",) for item in values)
        if values and len(values) < len(node.items) and only_values:
            return values[0] if len(values) == 1 else Items(tuple(values), node.alternatives)
    return node


def _is_condition(node: Node) -> bool:
    r"""`k \in Z`, `x \ne 1`: what a variable may be, not what the answer is."""
    match node:
        case Rel(("in",), (_, Named())) | Rel(("!=",), (Sym(), _)):
            return True
    return False


def are_alternatives(node: Node) -> bool:
    """Whether a list was joined by "or"."""
    return isinstance(node, Items) and node.alternatives


def answer_value(node: Node) -> Node:
    """The value of an answer that carries a name (`x = 5`, `f(x) = 2x`, `5 = x`, `1/2 + 1/2 = 1`, `x ≈ 5`); else the node."""
    if isinstance(node, Quantity):
        inner = answer_value(node.value)
        return node if inner is node.value else Quantity(inner, node.words)
    match node:
        case Mul((Sym(name), Group() as point)) if name[:1].isupper():
            return point  # A(3, 4)
    if isinstance(node, Rel) and node.ops in (("in",), ("equiv",)) and is_name(node.parts[0]):
        return node.parts[1]
    if not isinstance(node, Rel) or not set(node.ops) <= {"=", "approx"}:
        return node
    node = without_approximation(node)
    first, last = node.parts[0], node.parts[-1]
    if is_name(first):
        return last
    if is_name(last) and len(node.parts) == 2:
        return first
    if is_closed(first) and all(map(is_closed, node.parts)):
        return last
    return node


def ascending(node: Rel) -> Rel:
    """A chain of > and >= as one of < and <=."""
    if not set(node.ops) <= {">", ">="}:
        return node
    return Rel(tuple({">": "<", ">=": "<="}[op] for op in reversed(node.ops)), node.parts[::-1])


def name_of(node: Rel) -> Node | None:
    """The name that an assignment gives a value to."""
    return node.parts[0] if is_name(node.parts[0]) else None


def without_approximation(node: Rel) -> Rel:
    """The chain up to its first ≈, unless only a name stands before it (`x ≈ 5`)."""
    if "approx" not in node.ops:
        return node
    cut = node.ops.index("approx")
    if cut == 0 and is_name(node.parts[0]):
        return Rel(("=",), node.parts[:2])
    if cut == 0:
        return Rel(("=",), (node.parts[0], node.parts[0]))
    return Rel(node.ops[:cut], node.parts[: cut + 1])


def is_name(node: Node) -> bool:
    """Whether a tree names an unknown: x, a_n, f(x), AB, (x, y), AB/CD, AB:CD, |AB|."""
    match node:
        case Sym():
            return True
        case Apply(name, arguments):
            return len(re.split(r"['_^]", name)[0]) == 1 or (name == "abs" and all(map(is_name, arguments)))
        case Group(_, _, items) | Ratio(items):
            return all(map(is_name, items))
        case Mul(factors) if any(isinstance(factor, Sym) and factor.name.startswith("angle") for factor in factors):
            return all(isinstance(factor, Sym) for factor in factors)
        case Mul(factors):
            return all(
                (isinstance(factor, Sym) and factor.name[:1].isupper())
                or (isinstance(factor, Mul) and is_name(factor))
                or (isinstance(factor, Pow) and factor.exponent == Num(Fraction(-1)) and is_name(factor.base))
                for factor in factors
            )
    return False


def is_closed(node: Node) -> bool:
    """Whether no variable, relation or word is in it."""
    return not any(isinstance(part, (Sym, Rel, Text)) for part in walk(node))


def is_value(node: Node) -> bool:
    """Whether a side of an equation has a value of its own: no names, no values of unknown functions.

    `e` and `i` alone are names too (an eccentricity, a rate).
    """
    return is_closed(node) and node not in (Const("e"), Const("i")) and not any(map(is_name, walk(node)))


def is_collection(node: Node) -> bool:
    """Whether it is made of several values: a list, set, tuple, matrix or matrix expression."""
    return isinstance(node, (Items, Finite, Group, Matrix)) or (
        isinstance(node, (Add, Mul)) and any(isinstance(part, Matrix) for part in walk(node))
    )


def members(node: Node) -> list[Node] | None:
    """The values side by side; the node itself if it is one value, None for a relation or matrix expression."""
    if isinstance(node, (Items, Finite, Group)):
        return list(node.items)
    if isinstance(node, Rel) or is_collection(node):
        return None
    return [node]


def is_closed_interval(node: Node) -> bool:
    """Whether it reads `[a, b]`: all numbers from a to b, and not the two."""
    return (
        isinstance(node, Group)
        and node.opening + node.closing == "[]"
        and len(node.items) == 2
        and not any(map(is_collection, node.items))
    )


def same_brackets(left: Group, right: Group) -> bool:
    """Whether brackets of two items, which may be intervals, agree; longer ones are tuples whatever they look like."""
    return len(left.items) != 2 or (left.opening, left.closing) == (right.opening, right.closing)


def names_and_values(items: Sequence[Node]) -> dict[Node, Node] | None:
    """The values of a list of assignments by their names; None if it is not one, or names repeat or number one unknown."""
    found: dict[Node, Node] = {}
    for item in items:
        if not isinstance(item, Rel) or not set(item.ops) <= {"=", "approx"} or not is_name(item.parts[0]):
            return None
        name = item.parts[0]
        if isinstance(name, Group) and isinstance(value := answer_value(item), Group) and len(items) == 1:
            return dict(zip(name.items, value.items, strict=False))
        if name in found:
            return None
        found[name] = answer_value(item)
    stems = {name.name.partition("_")[0] if isinstance(name, Sym) else name for name in found}
    return found if len(stems) == len(found) or len(found) == 1 else found if len(stems) > 1 else None


def renamed_argument(pred: Rel, gold: Rel) -> Node | None:
    """The right side of `f(t) = …` in the variable of `f(x) = …`; also of `y = …` where the other names a function."""
    gold_name, pred_name = gold.parts[0], pred.parts[0]
    if isinstance(gold_name, Apply) and isinstance(pred_name, Apply) and gold_name.name == pred_name.name:
        if len(gold_name.arguments) == len(pred_name.arguments) == 1:
            old, new = pred_name.arguments[0], gold_name.arguments[0]
            if isinstance(old, Sym) and isinstance(new, Sym):
                return replaced(pred.parts[1], old, new)
        return None
    if isinstance(gold_name, Apply) != isinstance(pred_name, Apply) and is_name(gold_name) and is_name(pred_name):
        return pred.parts[1]
    return None


def renamed_parameter(gold: Node, pred: Node) -> Node | None:
    r"""`pred` in the names of `gold`, if each has one variable more that can only be an arbitrary constant.

    That is the constant of integration, C or c, and the integer of a periodic family (`\pi/6 + n\pi`).
    """
    gold_names, pred_names = (_variables(node) for node in (gold, pred))
    if len(pred_names - gold_names) != 1:
        return None
    (old,) = pred_names - gold_names
    for new in gold_names - pred_names:
        both = {old.name, new.name}
        if both == {"C", "c"} or (both <= _INTEGER_NAMES and _is_periodic(gold) and _is_periodic(pred)):
            return replaced(pred, old, new)
    return None


_INTEGER_NAMES = {"k", "n", "m", "l", "ell"}


def _variables(node: Node) -> set[Sym]:
    return {part for part in walk(node) if isinstance(part, Sym)}


def _is_periodic(node: Node) -> bool:
    return any(
        isinstance(part, Mul)
        and any(isinstance(factor, Sym) and factor.name in _INTEGER_NAMES for factor in part.factors)
        and any(factor in (Const("pi"), DEGREE) for factor in part.factors)
        for part in walk(node)
    )
