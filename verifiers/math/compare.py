"""Whether two answers mean the same: what kinds of answer they are, and what is compared with what.

`Judge.same` dispatches on kinds; single expressions end in `Judge.expressions`, where exact forms decide and the second
tier is asked for the rest. Nothing here evaluates or simplifies by itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from verifiers.math import sets, units
from verifiers.math.equality import quick
from verifiers.math.forms import (
    Atom,
    Form,
    NotAnExpressionError,
    Polynomial,
    TooLargeError,
    UndefinedError,
    add,
    negate,
    of_tree,
    poly_multiply,
)
from verifiers.math.policy import Policy
from verifiers.math.tree import (
    Add,
    Apply,
    Based,
    Builder,
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
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Sym,
    Text,
    negative,
    walk,
)

Oracle = Callable[[Node, Node], bool]
"""Decides the equality of two expressions that exact forms could neither prove nor refute."""

MOST_SIGNS = 4
"""Signs ± in one answer; each doubles the answers that it stands for."""

LONGEST_LIST = 100
"""Lists longer than this are compared only if they are spelled the same."""

MOST_COMPARISONS = 3000
"""Pairs of values that one case may compare."""

PERCENT = Const("percent")
DEGREE = Const("degree")


class Judge:
    """Compares trees under a policy."""

    def __init__(self, policy: Policy, oracle: Oracle) -> None:
        """Keep the policy and what settles hard equalities."""
        self.policy = policy
        self.oracle = oracle
        self.comparisons = 0

    def same(self, gold: Node, pred: Node) -> bool:
        """Whether `pred` gives the answer `gold`."""
        self.comparisons += 1
        if self.comparisons > MOST_COMPARISONS:
            raise TooLargeError(f"more than {MOST_COMPARISONS} comparisons")
        gold, pred = _bare(gold), _bare(pred)
        if gold == pred:
            return True
        renamed = _renamed_parameter(gold, pred)
        if renamed is not None and self.same(gold, renamed):
            return True
        if _has_signs(gold) or _has_signs(pred):
            return self.same(_spread(gold), _spread(pred))
        if isinstance(gold, Rel) and isinstance(pred, Rel):
            if self.relations(gold, pred):
                return True
            if not self.policy.any_variable and _name_of(gold) != _name_of(pred):
                return False
        if sets.looks_like_set(gold) or sets.looks_like_set(pred):
            decided = self.as_sets(gold, pred)
            if decided is not None:
                return decided
        return self.values(answer_value(gold), answer_value(pred))

    def values(self, gold: Node, pred: Node) -> bool:
        """Compare what is left when names of the answer (`x =`) are taken off."""
        if gold == pred:
            return True
        if isinstance(gold, Quantity) or isinstance(pred, Quantity):
            return self.quantities(gold, pred)
        if _is_collection(gold) or _is_collection(pred):
            return self.collections(gold, pred)
        if isinstance(gold, Rel) or isinstance(pred, Rel):
            return False
        if isinstance(gold, Cases) or isinstance(pred, Cases):
            return self.cases(gold, pred)
        if isinstance(gold, SetOp) and isinstance(pred, SetOp):
            return self.set_operations(gold, pred)
        if isinstance(gold, (Text, Named, Builder, SetOp)) or isinstance(pred, (Text, Named, Builder, SetOp)):
            return False
        return self.scalars(gold, pred)

    # --- relations ---

    def relations(self, gold: Rel, pred: Rel) -> bool:
        """Equations up to a factor, inequalities up to a positive one; definitions up to the name of the argument."""
        gold, pred = _ascending(_without_approximation(gold)), _ascending(_without_approximation(pred))
        if gold.ops == pred.ops and all(map(self.expressions_safely, gold.parts, pred.parts)):
            return True
        if len(gold.ops) != 1 or len(pred.ops) != 1:
            return False
        if gold.ops == pred.ops == ("=",):
            return self.equations(gold, pred)
        return False

    def equations(self, gold: Rel, pred: Rel) -> bool:
        """Whether left - right of one is a constant times left - right of the other."""
        if _is_name(gold.parts[0]) and _is_closed(gold.parts[1]):
            return False  # x = 5 must be solved for, as values are compared
        renamed = _rename_argument(pred, gold)
        if renamed is not None and self.same(gold.parts[1], renamed):
            return True
        try:
            left, right = (_side_difference(rel) for rel in (gold, pred))
        except (NotAnExpressionError, TooLargeError, UndefinedError):
            return False
        return _proportional(left, right)

    def as_sets(self, gold: Node, pred: Node) -> bool | None:
        """Compare as sets of real numbers; None if either is none."""
        try:
            return sets.equal(sets.of_tree_set(gold), sets.of_tree_set(pred), self.same)
        except sets.NotASetError:
            return None

    def set_operations(self, gold: SetOp, pred: SetOp) -> bool:
        """Operations on sets that have only names; unions and intersections in any order."""
        if gold.op != pred.op:
            return False
        if self.same(gold.left, pred.left) and self.same(gold.right, pred.right):
            return True
        return gold.op != "difference" and self.same(gold.left, pred.right) and self.same(gold.right, pred.left)

    # --- units ---

    def quantities(self, gold: Node, pred: Node) -> bool:
        """Values with words behind them: units must not contradict, other words are remarks."""
        gold_value, gold_words = (gold.value, gold.words) if isinstance(gold, Quantity) else (gold, "")
        pred_value, pred_words = (pred.value, pred.words) if isinstance(pred, Quantity) else (pred, "")
        gold_unit, pred_unit = _unit(gold_value, gold_words), _unit(pred_value, pred_words)
        if gold_unit is not None and pred_unit is not None:
            if gold_unit.dimensions != pred_unit.dimensions:
                angles = all("angle" in dict(unit.dimensions) for unit in (gold_unit, pred_unit))
                return angles and self.expressions_safely(gold_value, pred_value)
            if gold_unit.factor != pred_unit.factor:
                scaled = [
                    Mul((_number_part(value), Num(unit.factor)))
                    for value, unit in ((gold_value, gold_unit), (pred_value, pred_unit))
                ]
                return self.same(*scaled)
        elif not self.policy.units_optional and (gold_unit is None) != (pred_unit is None):
            return False
        return self.same(gold_value, pred_value)

    # --- several values ---

    def collections(self, gold: Node, pred: Node) -> bool:
        """Lists, tuples, sets, vectors and matrices."""
        if isinstance(gold, Matrix) or isinstance(pred, Matrix):
            return self.matrices(gold, pred)
        if isinstance(gold, (Text, Named)) or isinstance(pred, (Text, Named)):
            return False
        gold_items, pred_items = _members(gold), _members(pred)
        if gold_items is None or pred_items is None or max(len(gold_items), len(pred_items)) > LONGEST_LIST:
            return False
        if _are_alternatives(gold) or _are_alternatives(pred):
            gold_items, pred_items = self.distinct(gold_items), self.distinct(pred_items)
        gold_names, pred_names = _names(gold_items), _names(pred_items)
        if gold_names is not None and pred_names is not None and gold_names.keys() == pred_names.keys():
            return all(self.same(value, pred_names[name]) for name, value in gold_names.items())
        named = (gold_names is None) != (pred_names is None)
        gold_items = [answer_value(item) for item in gold_items]
        pred_items = [answer_value(item) for item in pred_items]
        if isinstance(gold, Finite) or isinstance(pred, Finite):
            if isinstance(gold, Group) or isinstance(pred, Group):
                return False
            return self.unordered(self.distinct(gold_items), self.distinct(pred_items))
        if isinstance(gold, Group) and isinstance(pred, Group) and not _same_brackets(gold, pred):
            return False
        if isinstance(gold, Group) or isinstance(pred, Group) or named or self.policy.ordered_lists:
            return len(gold_items) == len(pred_items) and all(map(self.same, gold_items, pred_items))
        return self.unordered(gold_items, pred_items)

    def unordered(self, gold: Sequence[Node], pred: Sequence[Node]) -> bool:
        """Whether the items can be paired off (equality is transitive, so greedily)."""
        if len(gold) != len(pred):
            return False
        rest = list(pred)
        for item in gold:
            if item in rest:
                rest.remove(item)
                continue
            match = next((index for index, other in enumerate(rest) if self.same(item, other)), None)
            if match is None:
                return False
            del rest[match]
        return True

    def distinct(self, items: Iterable[Node]) -> list[Node]:
        """Items without repetitions."""
        found: list[Node] = []
        for item in dict.fromkeys(items):
            if not any(self.same(item, other) for other in found):
                found.append(item)
        return found

    def matrices(self, gold: Node, pred: Node) -> bool:
        """Matrices entry by entry; a row or column is also a vector; products and sums are carried out."""
        try:
            gold_rows, pred_rows = _rows(gold), _rows(pred)
        except (NotAnExpressionError, TooLargeError, UndefinedError):
            return False
        if [len(row) for row in gold_rows] != [len(row) for row in pred_rows]:
            if isinstance(gold, Matrix) and isinstance(pred, Matrix):
                return False
            if 1 not in (len(gold_rows), len(gold_rows[0])) or 1 not in (len(pred_rows), len(pred_rows[0])):
                return False
        gold_cells = list(itertools.chain(*gold_rows))
        pred_cells = list(itertools.chain(*pred_rows))
        return len(gold_cells) == len(pred_cells) and all(map(self.same, gold_cells, pred_cells))

    def cases(self, gold: Node, pred: Node) -> bool:
        """Systems of relations in any order; functions by cases, case by case."""
        if isinstance(gold, Cases) and isinstance(pred, Cases):
            rest = list(pred.rows)
            for row in gold.rows:
                match = next((o for o in rest if len(o) == len(row) and all(map(self.same, row, o))), None)
                if match is None:
                    return False
                rest.remove(match)
            return not rest
        system, other = (gold, pred) if isinstance(gold, Cases) else (pred, gold)
        assert isinstance(system, Cases)
        if all(len(row) == 1 for row in system.rows):
            return self.same(Items(tuple(row[0] for row in system.rows)), other)
        return False

    def residues(self, gold: Node, pred: Node) -> bool:
        """a mod n: the same modulus, and values that differ by a multiple of it."""
        if not (isinstance(gold, Apply) and isinstance(pred, Apply) and gold.name == pred.name == "pmod"):
            return False
        if not self.same(gold.arguments[1], pred.arguments[1]):
            return False
        try:
            first, second, modulus = (
                of_tree(n).rational for n in (gold.arguments[0], pred.arguments[0], gold.arguments[1])
            )
        except (NotAnExpressionError, UndefinedError):
            return False
        if first is not None and second is not None and modulus:
            return ((first - second) / modulus).denominator == 1
        return self.same(gold.arguments[0], pred.arguments[0])

    # --- single values ---

    def scalars(self, gold: Node, pred: Node) -> bool:
        """Numbers and expressions under the policies on bases, ratios, percent and degrees."""
        if isinstance(gold, Based) or isinstance(pred, Based):
            return self.based(gold, pred)
        if isinstance(gold, Ratio) or isinstance(pred, Ratio):
            return self.ratios(gold, pred)
        if any(isinstance(node, Apply) and node.name == "pmod" for node in (gold, pred)):
            return self.residues(gold, pred)
        if sets.is_infinite(gold) or sets.is_infinite(pred):
            return sets.is_infinite(gold) == sets.is_infinite(pred)
        return any(self.expressions_safely(*pair) for pair in self.readings(gold, pred))

    def readings(self, gold: Node, pred: Node) -> Iterable[tuple[Node, Node]]:
        """The pairs to compare: as written, and with a percent or degree sign left off where only one side has it."""
        yield gold, pred
        for mark, optional in ((PERCENT, self.policy.percent_optional), (DEGREE, self.policy.degrees_optional)):
            if optional and _mentions(gold, mark) != _mentions(pred, mark):
                yield _without(gold, mark), _without(pred, mark)

    def based(self, gold: Node, pred: Node) -> bool:
        """Same digits in the same base; without a base, the same digits (by policy)."""
        if isinstance(gold, Based) and isinstance(pred, Based):
            return gold.base == pred.base and gold.digits.lstrip("0") == pred.digits.lstrip("0")
        numeral, other = (gold, pred) if isinstance(gold, Based) else (pred, gold)
        assert isinstance(numeral, Based)
        if not self.policy.base_optional or not isinstance(other, Num) or other.value < 0:
            return False
        return other.value == Fraction(numeral.digits) if numeral.digits.replace(".", "").isdigit() else False

    def ratios(self, gold: Node, pred: Node) -> bool:
        """a:b against a:b up to a factor, or a/b; times of day part by part."""
        if isinstance(gold, Ratio) and isinstance(pred, Ratio):
            if gold.clock and pred.clock:
                longest = max(len(gold.parts), len(pred.parts))
                zeros = (Num(Fraction(0)),) * longest
                return all(map(self.same, (*gold.parts, *zeros)[:longest], (*pred.parts, *zeros)[:longest]))
            if len(gold.parts) != len(pred.parts):
                return False
            first, second = gold.parts[0], pred.parts[0]
            return (
                all(
                    self.same(Mul((a, second)), Mul((b, first)))
                    for a, b in zip(gold.parts[1:], pred.parts[1:], strict=True)
                )
                and not _is_zero(first)
                and not _is_zero(second)
            )
        ratio, other = (gold, pred) if isinstance(gold, Ratio) else (pred, gold)
        assert isinstance(ratio, Ratio)
        if ratio.clock and all(map(_is_zero, ratio.parts[1:])):
            return self.same(ratio.parts[0], other)
        if len(ratio.parts) != 2:
            return False
        return self.expressions_safely(Mul((ratio.parts[0], Pow(ratio.parts[1], Num(Fraction(-1))))), other)

    def expressions_safely(self, gold: Node, pred: Node) -> bool:
        """`expressions`, with "no" where one side is no expression or has no value."""
        if gold == pred:
            return True
        try:
            return self.expressions(gold, pred)
        except (NotAnExpressionError, UndefinedError):
            return False

    def expressions(self, gold: Node, pred: Node) -> bool:
        """Whether two expressions are equal.

        Raises:
            NotAnExpressionError, UndefinedError, TooLargeError.
        """
        left, right = of_tree(gold), of_tree(pred)
        decided = quick(left, right)
        if decided is None:
            decided = self.oracle(gold, pred)
        return decided or self.same_digits(gold, left, pred, right)

    def same_digits(self, gold: Node, left: Form, pred: Node, right: Form) -> bool:
        """Whether one side is a decimal with so many digits that it can only be the other's value, printed."""
        for node, form, other in ((gold, left, right), (pred, right, left)):
            digits = _decimal_digits(node)
            value = form.rational
            if value is None or digits < self.policy.float_digits:
                continue
            exact = other.rational
            if exact is None:
                try:
                    exact = Fraction(sets.value(pred if node is gold else gold))
                except (sets.NotASetError, OverflowError, ValueError):
                    continue
            if abs(value - exact) <= abs(exact) * Fraction(1, 10 ** (min(digits, 15) - 1)):
                return True
        return False


# --- reading trees ---


def _bare(node: Node) -> Node:
    """An answer without what does not change it: one-cell matrices, systems as lists, conditions beside values."""
    if isinstance(node, Matrix) and len(node.rows) == len(node.rows[0]) == 1:
        return node.rows[0][0]
    if isinstance(node, Cases) and all(len(row) == 1 for row in node.rows):
        items = [item for (cell,) in node.rows for item in (cell.items if isinstance(cell, Items) else (cell,))]
        return _bare(Items(tuple(items)))
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


def _are_alternatives(node: Node) -> bool:
    return isinstance(node, Items) and node.alternatives


def answer_value(node: Node) -> Node:
    """The value of an answer that carries a name (`x = 5`, `f(x) = 2x`, `5 = x`, `1/2 + 1/2 = 1`, `x ≈ 5`); else the node."""
    if isinstance(node, Quantity):
        inner = answer_value(node.value)
        return node if inner is node.value else Quantity(inner, node.words)
    if isinstance(node, Rel) and node.ops in (("in",), ("equiv",)) and _is_name(node.parts[0]):
        return node.parts[1]
    if not isinstance(node, Rel) or not set(node.ops) <= {"=", "approx"}:
        return node
    node = _without_approximation(node)
    first, last = node.parts[0], node.parts[-1]
    if _is_name(first):
        return last
    if _is_name(last) and len(node.parts) == 2:
        return first
    if _is_closed(first) and all(map(_is_closed, node.parts)):
        return last
    return node


def _ascending(node: Rel) -> Rel:
    """A chain of > and >= as one of < and <=."""
    if not set(node.ops) <= {">", ">="}:
        return node
    return Rel(tuple({">": "<", ">=": "<="}[op] for op in reversed(node.ops)), node.parts[::-1])


def _name_of(node: Rel) -> Node | None:
    """The name that an assignment gives a value to."""
    return node.parts[0] if _is_name(node.parts[0]) else None


def _without_approximation(node: Rel) -> Rel:
    """The chain up to its first ≈, unless only a name stands before it (`x ≈ 5`)."""
    if "approx" not in node.ops:
        return node
    cut = node.ops.index("approx")
    if cut == 0 and _is_name(node.parts[0]):
        return Rel(("=",), node.parts[:2])
    if cut == 0:
        return Rel(("=",), (node.parts[0], node.parts[0]))
    return Rel(node.ops[:cut], node.parts[: cut + 1])


def _is_name(node: Node) -> bool:
    """Whether a tree names an unknown: x, a_n, f(x), AB, (x, y), AB/CD, AB:CD, |AB|."""
    match node:
        case Sym():
            return True
        case Apply(name, arguments):
            return len(re.split(r"['_^]", name)[0]) == 1 or (name == "abs" and all(map(_is_name, arguments)))
        case Group(_, _, items) | Ratio(items):
            return all(map(_is_name, items))
        case Mul(factors) if any(isinstance(factor, Sym) and factor.name.startswith("angle") for factor in factors):
            return all(isinstance(factor, Sym) for factor in factors)
        case Mul(factors):
            return all(
                (isinstance(factor, Sym) and factor.name[:1].isupper())
                or (isinstance(factor, Mul) and _is_name(factor))
                or (isinstance(factor, Pow) and factor.exponent == Num(Fraction(-1)) and _is_name(factor.base))
                for factor in factors
            )
    return False


def _is_closed(node: Node) -> bool:
    return not any(isinstance(part, (Sym, Rel, Text)) for part in walk(node))


def _has_signs(node: Node) -> bool:
    return any(isinstance(part, PlusMinus) for part in walk(node))


def _spread(node: Node) -> Node:
    """An answer with ± as the list of answers that it stands for; a ∓ goes against the ± before it."""
    if isinstance(node, (Items, Finite)):
        spread = [_spread(item) for item in node.items]
        flat = [part for item in spread for part in (item.items if isinstance(item, Items) else (item,))]
        return Finite(tuple(flat)) if isinstance(node, Finite) else Items(tuple(flat))
    if isinstance(node, Rel) and not _is_closed(node) and _is_name(node.parts[0]) and set(node.ops) <= {"=", "approx"}:
        return _spread(answer_value(node))
    if not _has_signs(node):
        return node
    count = sum(isinstance(part, PlusMinus) and not part.flipped for part in walk(node))
    if not count:
        return _spread(_mapped_signs(node))
    if count > MOST_SIGNS:
        raise TooLargeError(f"more than {MOST_SIGNS} signs ±")
    found: list[Node] = []
    for signs in itertools.product((True, False), repeat=count):
        found.append(_signed(node, list(signs), [True]))
    return Items(tuple(found))


def _mapped_signs(node: Node) -> Node:
    """∓ alone means the same as ±."""
    if isinstance(node, PlusMinus):
        return PlusMinus(_mapped_signs(node.value))
    return _mapped(node, _mapped_signs)


def _signed(node: Node, signs: list[bool], last: list[bool]) -> Node:
    if isinstance(node, PlusMinus):
        inner = _signed(node.value, signs, last)
        if node.flipped:
            positive = not last[0]
        else:
            positive = signs.pop(0)
            last[0] = positive
        return inner if positive else negative(inner)
    return _mapped(node, lambda child: _signed(child, signs, last))


def _mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every child replaced, in order."""

    def apply(value: object) -> object:
        if isinstance(value, Node):
            return change(value)
        return tuple(apply(item) for item in value) if isinstance(value, tuple) else value

    names = type(node).__dataclass_fields__
    return type(node)(**{name: apply(getattr(node, name)) for name in names})


def _mentions(node: Node, part: Node) -> bool:
    return any(found == part for found in walk(node))


def _without(node: Node, mark: Const) -> Node:
    """The tree with a factor such as % or ° taken as 1."""
    return _mapped(node, lambda child: Num(Fraction(1)) if child == mark else _without(child, mark))


def _is_collection(node: Node) -> bool:
    return isinstance(node, (Items, Finite, Group, Matrix)) or (
        isinstance(node, (Add, Mul)) and any(isinstance(part, Matrix) for part in walk(node))
    )


def _members(node: Node) -> list[Node] | None:
    if isinstance(node, (Items, Finite, Group)):
        return list(node.items)
    if isinstance(node, (Add, Mul, Rel)):
        return None
    return [node]


def _same_brackets(left: Group, right: Group) -> bool:
    return len(left.items) != 2 or (left.opening, left.closing) == (right.opening, right.closing)


def _names(items: Sequence[Node]) -> dict[Node, Node] | None:
    """The values of a list of assignments by their names; None if it is not one, or names repeat or number one unknown."""
    found: dict[Node, Node] = {}
    for item in items:
        if not isinstance(item, Rel) or not set(item.ops) <= {"=", "approx"} or not _is_name(item.parts[0]):
            return None
        name = item.parts[0]
        if isinstance(name, Group) and isinstance(value := answer_value(item), Group) and len(items) == 1:
            return dict(zip(name.items, value.items, strict=False))
        if name in found:
            return None
        found[name] = answer_value(item)
    stems = {name.name.partition("_")[0] if isinstance(name, Sym) else name for name in found}
    return found if len(stems) == len(found) or len(found) == 1 else found if len(stems) > 1 else None


def _rename_argument(pred: Rel, gold: Rel) -> Node | None:
    """The right side of `f(t) = …` in the variable of `f(x) = …`; also of `y = …` where the other names a function."""
    gold_name, pred_name = gold.parts[0], pred.parts[0]
    if isinstance(gold_name, Apply) and isinstance(pred_name, Apply) and gold_name.name == pred_name.name:
        if len(gold_name.arguments) == len(pred_name.arguments) == 1:
            old, new = pred_name.arguments[0], gold_name.arguments[0]
            if isinstance(old, Sym) and isinstance(new, Sym):
                return _replaced(pred.parts[1], old, new)
        return None
    if isinstance(gold_name, Apply) != isinstance(pred_name, Apply) and _is_name(gold_name) and _is_name(pred_name):
        return pred.parts[1]
    return None


def _renamed_parameter(gold: Node, pred: Node) -> Node | None:
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
            return _replaced(pred, old, new)
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


def _replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node == old else _mapped(node, lambda child: _replaced(child, old, new))


def _side_difference(rel: Rel) -> Form:
    return add(of_tree(rel.parts[0]), negate(of_tree(rel.parts[1])))


def _proportional(left: Form, right: Form) -> bool:
    """Whether the numerators differ by a constant factor other than zero."""
    first, second = _cleared(left.numerator), _cleared(right.numerator)
    if not first or first.keys() != second.keys():
        return False
    return len({first[monomial] / second[monomial] for monomial in first}) == 1


def _cleared(polynomial: Polynomial) -> Polynomial:
    """A polynomial times the powers of its atoms that stand below a fraction bar."""
    lowest: dict[Atom, Fraction] = {}
    for monomial in polynomial:
        for atom, exponent in monomial:
            if exponent < lowest.get(atom, 0):
                lowest[atom] = exponent
    return poly_multiply(polynomial, {frozenset((atom, -e) for atom, e in lowest.items()): Fraction(1)})


def _unit(value: Node, words: str) -> units.Unit | None:
    if words:
        return units.read(words)
    return units.read("degrees") if isinstance(value, Mul) and DEGREE in value.factors else None


def _number_part(value: Node) -> Node:
    return _without(value, DEGREE) if isinstance(value, Mul) and DEGREE in value.factors else value


def _decimal_digits(node: Node) -> int:
    if isinstance(node, Num):
        return node.digits
    return max((_decimal_digits(factor) for factor in node.factors), default=0) if isinstance(node, Mul) else 0


def _is_zero(node: Node) -> bool:
    return isinstance(node, Num) and node.value == 0


# --- matrices ---


def _rows(node: Node) -> list[list[Node]]:
    """The entries of a matrix expression.

    Raises:
        NotAnExpressionError: if it is none.
    """
    match node:
        case Matrix(rows):
            return [list(row) for row in rows]
        case Group(_, _, items) | Items(items):
            if all(isinstance(item, Group) for item in items) and len({len(_members(i) or ()) for i in items}) == 1:
                return [list(_members(item) or ()) for item in items]
            return [list(items)]
        case Add(terms):
            tables = [_rows(term) for term in terms]
            if len({(len(table), len(table[0])) for table in tables}) != 1:
                raise NotAnExpressionError("a sum of matrices of different shapes")
            return [[Add(cells) for cells in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]
        case Mul(factors):
            scalars = tuple(factor for factor in factors if not _is_collection(factor))
            tables = [_rows(factor) for factor in factors if _is_collection(factor)]
            if not tables:
                raise NotAnExpressionError("a matrix inside an expression")
            result = tables[0]
            for table in tables[1:]:
                result = _matrix_product(result, table)
            return [[Mul((*scalars, cell)) for cell in row] for row in result] if scalars else result
    raise NotAnExpressionError("no matrix")


def _matrix_product(left: list[list[Node]], right: list[list[Node]]) -> list[list[Node]]:
    if len(left[0]) != len(right) or len(left) * len(right) * len(right[0]) > 1000:
        raise NotAnExpressionError("a product of matrices that do not fit")
    return [
        [Add(tuple(Mul((a, b)) for a, b in zip(row, column, strict=True))) for column in zip(*right, strict=True)]
        for row in left
    ]
