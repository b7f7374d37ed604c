"""Answers with ±: the list of answers that they stand for."""

from __future__ import annotations

import itertools

from verifiers.math.answers import answer_value, is_closed, is_name
from verifiers.math.forms import (
    TooLargeError,
)
from verifiers.math.tree import (
    Finite,
    Items,
    Node,
    PlusMinus,
    Rel,
    mapped,
    negative,
    walk,
)

MOST_SIGNS = 4
"""Signs ± in one answer; each doubles the answers that it stands for."""


def has_signs(node: Node) -> bool:
    """Whether a ± or ∓ is left anywhere."""
    return any(isinstance(part, PlusMinus) for part in walk(node))


def spread(node: Node) -> Node:
    """An answer with ± as the list of answers that it stands for; a ∓ goes against the ± before it."""
    if isinstance(node, (Items, Finite)):
        flat = [
            part for item in map(spread, node.items) for part in (item.items if isinstance(item, Items) else (item,))
        ]
        return Finite(tuple(flat)) if isinstance(node, Finite) else Items(tuple(flat))
    if isinstance(node, Rel) and not is_closed(node) and is_name(node.parts[0]) and set(node.ops) <= {"=", "approx"}:
        return spread(answer_value(node))
    if not has_signs(node):
        return node
    count = sum(isinstance(part, PlusMinus) and not part.flipped for part in walk(node))
    if not count:
        return spread(_unflipped(node))
    if count > MOST_SIGNS:
        raise TooLargeError(f"more than {MOST_SIGNS} signs ±")
    found: list[Node] = []
    for signs in itertools.product((True, False), repeat=count):
        found.append(_chosen(node, list(signs), [True]))
    return Items(tuple(found))


def _unflipped(node: Node) -> Node:
    """∓ alone means the same as ±."""
    if isinstance(node, PlusMinus):
        return PlusMinus(_unflipped(node.value))
    return mapped(node, _unflipped)


def _chosen(node: Node, signs: list[bool], last: list[bool]) -> Node:
    if isinstance(node, PlusMinus):
        inner = _chosen(node.value, signs, last)
        if node.flipped:
            positive = not last[0]
        else:
            positive = signs.pop(0)
            last[0] = positive
        return inner if positive else negative(inner)
    return mapped(node, lambda child: _chosen(child, signs, last))
