"""The small typed tree that answers are read into. Nodes are immutable, hashable values; nothing here computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """Base of all nodes."""


@dataclass(frozen=True, slots=True)
class Num(Node):
    """An exact rational number; `digits` counts the significant digits of a literal with a decimal mark, else 0."""

    value: Fraction
    digits: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Sym(Node):
    """A variable, with its subscript and primes in the name (`x_{12}`, `f'`); `…` is an ellipsis."""

    name: str


@dataclass(frozen=True, slots=True)
class Const(Node):
    """One of pi, e, i, inf, degree (pi/180), percent (1/100)."""

    name: str


@dataclass(frozen=True, slots=True)
class Add(Node):
    """A sum."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mul(Node):
    """A product."""

    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pow(Node):
    """A power; quotients are powers of -1, roots are powers of 1/n."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """A function of known or unknown name applied to arguments."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PlusMinus(Node):
    """±value; `flipped` for ∓."""

    value: Node
    flipped: bool = False


@dataclass(frozen=True, slots=True)
class Big(Node):
    """A sum or product over a range: op is "sum" or "prod"."""

    op: str
    body: Node
    variable: str
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class Based(Node):
    """A numeral with a base: the digits as written, not their value, since conversion is what such problems ask."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Ratio(Node):
    """a:b or a:b:c; also times of day, which `clock` marks (hours and two-digit minutes)."""

    parts: tuple[Node, ...]
    clock: bool = False


@dataclass(frozen=True, slots=True)
class Group(Node):
    """Items in brackets: a tuple, a vector, a list, or an interval; which one, the other side decides."""

    opening: str
    closing: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Items(Node):
    """Several answers side by side: joined by commas, semicolons, "and" or "or"."""

    items: tuple[Node, ...]
    alternatives: bool = False


@dataclass(frozen=True, slots=True)
class Finite(Node):
    """A set given by its elements."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Builder(Node):
    """{variable | conditions}."""

    variable: Node
    conditions: Node


@dataclass(frozen=True, slots=True)
class Named(Node):
    """A set with a name: R, Q, Z, N, C, empty."""

    name: str


@dataclass(frozen=True, slots=True)
class SetOp(Node):
    """union, intersection or difference of two sets."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Rel(Node):
    """A chain of relations: parts[0] ops[0] parts[1] ops[1] …; ops are = != < <= > >= in notin approx equiv."""

    ops: tuple[str, ...]
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix(Node):
    """Rows of equal length."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Cases(Node):
    """A system of relations, or a function by cases: rows of one or two entries (value, condition)."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Text(Node):
    """Words."""

    words: str


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A value with words behind it: a unit or a remark."""

    value: Node
    words: str


CLASSES: dict[str, type[Node]] = {
    cls.__name__: cls
    for cls in (
        *(Num, Sym, Const, Add, Mul, Pow, Apply, PlusMinus, Big, Based, Ratio, Group, Items, Finite, Builder, Named),
        *(SetOp, Rel, Matrix, Cases, Text, Quantity),
    )
}


def children(node: Node) -> list[Node]:
    """The nodes directly below."""
    return [child for item in fields(node) for child in _nodes(getattr(node, item.name))]


def _nodes(value: Any) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    if isinstance(value, tuple):
        return [child for item in value for child in _nodes(item)]
    return []


def walk(node: Node) -> list[Node]:
    """The node and everything below, parents first."""
    found = [node]
    for current in found:
        found.extend(children(current))
    return found


def depth(node: Node) -> int:
    """Levels of a tree, counted without recursion."""
    levels = 0
    level = [node]
    while level:
        levels += 1
        level = [child for parent in level for child in children(parent)]
    return levels


def to_json(value: Any) -> Any:
    """Nodes as nested lists of strings and numbers, for another process."""
    if isinstance(value, Node):
        return [type(value).__name__, *(to_json(getattr(value, item.name)) for item in fields(value))]
    if isinstance(value, tuple):
        return ["tuple", *map(to_json, value)]
    if isinstance(value, Fraction):
        return f"{value.numerator:x}/{value.denominator:x}"  # hexadecimal has no limit on its length
    return value


def from_json(value: Any) -> Any:
    """The inverse of `to_json`."""
    if not isinstance(value, list):
        return value
    name, *rest = value
    if name == "tuple":
        return tuple(map(from_json, rest))
    if name == "Num":
        numerator, denominator = rest[0].split("/")
        return Num(Fraction(int(numerator, 16), int(denominator, 16)), rest[1])
    return CLASSES[name](*map(from_json, rest))


ONE = Num(Fraction(1))
MINUS_ONE = Num(Fraction(-1))


def negative(node: Node) -> Node:
    """-node; of a literal, the negative literal."""
    if isinstance(node, Num):
        return Num(-node.value, node.digits)
    return Mul((MINUS_ONE, *(node.factors if isinstance(node, Mul) else (node,))))


def quotient(numerator: Node, denominator: Node) -> Node:
    """numerator / denominator; of two literal integers, the exact fraction."""
    if (
        isinstance(numerator, Num)
        and isinstance(denominator, Num)
        and denominator.value
        and not numerator.digits
        and not denominator.digits
    ):
        return Num(numerator.value / denominator.value)
    return Mul((numerator, Pow(denominator, MINUS_ONE)))


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every child replaced, in order."""

    def apply(value: object) -> object:
        if isinstance(value, Node):
            return change(value)
        return tuple(apply(item) for item in value) if isinstance(value, tuple) else value

    names = type(node).__dataclass_fields__
    return type(node)(**{name: apply(getattr(node, name)) for name in names})


def mentions(node: Node, part: Node) -> bool:
    """Whether `part` is the node or stands somewhere below."""
    return any(found == part for found in walk(node))


def without(node: Node, mark: Const) -> Node:
    """The tree with a factor such as % or ° taken as 1."""
    return mapped(node, lambda child: Num(Fraction(1)) if child == mark else without(child, mark))


def replaced(node: Node, old: Node, new: Node) -> Node:
    """The node with every `old` below it as `new`."""
    return new if node == old else mapped(node, lambda child: replaced(child, old, new))
