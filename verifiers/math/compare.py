"""Whether two answers mean the same: what kinds of answer they are, and what is compared with what.

`Judge.same` dispatches on kinds; single expressions end in `Judge.expressions`, where exact forms decide and the second
tier is asked for the rest. Nothing here evaluates or simplifies by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from verifiers.math import sets, units
from verifiers.math.answers import (
    DEGREE,
    answer_value,
    are_alternatives,
    ascending,
    is_closed,
    is_closed_interval,
    is_collection,
    is_name,
    is_value,
    members,
    name_of,
    names_and_values,
    renamed_argument,
    renamed_parameter,
    same_brackets,
    without_approximation,
    without_conditions,
)
from verifiers.math.equality import quick
from verifiers.math.expressions import of_tree
from verifiers.math.forms import (
    Atom,
    Form,
    NotAnExpressionError,
    Polynomial,
    TooLargeError,
    UndefinedError,
    add,
    negate,
    poly_multiply,
)
from verifiers.math.matrices import rows_of
from verifiers.math.policy import Policy
from verifiers.math.signs import has_signs, spread
from verifiers.math.tree import (
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
    Pow,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Text,
    mentions,
    without,
)

Oracle = Callable[[Node, Node], bool]
"""Decides the equality of two expressions that exact forms could neither prove nor refute."""

LONGEST_LIST = 100
"""Lists longer than this are compared only if they are spelled the same."""

MOST_COMPARISONS = 3000
"""Pairs of values that one case may compare."""

PERCENT = Const("percent")


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
        gold, pred = without_conditions(gold), without_conditions(pred)
        if gold == pred:
            return True
        renamed = renamed_parameter(gold, pred)
        if renamed is not None and self.same(gold, renamed):
            return True
        if has_signs(gold) or has_signs(pred):
            return self.same(spread(gold), spread(pred))
        if isinstance(gold, Rel) and isinstance(pred, Rel):
            if self.relations(gold, pred):
                return True
            if not self.policy.any_variable and name_of(gold) != name_of(pred):
                return False
        if self.contradicts_itself(gold) or self.contradicts_itself(pred):
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
        if is_collection(gold) or is_collection(pred):
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
        gold, pred = ascending(without_approximation(gold)), ascending(without_approximation(pred))
        if gold.ops == pred.ops and all(map(self.expressions_safely, gold.parts, pred.parts)):
            return True
        if len(gold.ops) != 1 or len(pred.ops) != 1:
            return False
        if gold.ops == pred.ops == ("=",):
            return self.equations(gold, pred)
        return False

    def equations(self, gold: Rel, pred: Rel) -> bool:
        """Whether left - right of one is a constant times left - right of the other."""
        if is_name(gold.parts[0]) and is_closed(gold.parts[1]):
            return False  # x = 5 must be solved for, as values are compared
        renamed = renamed_argument(pred, gold)
        if renamed is not None and self.same(gold.parts[1], renamed):
            return True
        try:
            left, right = (_side_difference(rel) for rel in (gold, pred))
        except (NotAnExpressionError, TooLargeError, UndefinedError):
            return False
        return _proportional(left, right)

    def contradicts_itself(self, node: Node) -> bool:
        """Whether it equates two values that differ (`6 = 5`), and not a name with its value by whatever way."""
        if isinstance(node, Quantity):
            return self.contradicts_itself(node.value)
        if not isinstance(node, Rel) or not set(node.ops) <= {"=", "approx"}:
            return False
        first, *rest = without_approximation(node).parts
        return is_value(first) and not all(self.same(first, part) for part in rest if is_value(part))

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
            if units.contradict(gold_unit, pred_unit):
                angles = all("angle" in dict(unit.dimensions) for unit in (gold_unit, pred_unit))
                return angles and self.expressions_safely(gold_value, pred_value)
            if gold_unit.factor != pred_unit.factor and gold_unit.dimensions == pred_unit.dimensions:
                scaled = [
                    Mul((_number_part(value), Num(unit.factor)))
                    for value, unit in ((gold_value, gold_unit), (pred_value, pred_unit))
                ]
                return self.same(*scaled)
        elif not self.policy.units_optional and (gold_unit is None) != (pred_unit is None):
            return False
        for value, unit, other in ((gold_value, gold_unit, pred_value), (pred_value, pred_unit, gold_value)):
            if unit is None:
                continue
            if _takes_no_unit(other) and not _takes_no_unit(value):
                return False  # 5% is not 5 cm
            if isinstance(value, Ratio) and not isinstance(other, Ratio):
                return self.on_the_hour(value, other)
        return self.same(gold_value, pred_value)

    # --- several values ---

    def collections(self, gold: Node, pred: Node) -> bool:
        """Lists, tuples, sets, vectors and matrices."""
        if isinstance(gold, Matrix) or isinstance(pred, Matrix):
            return self.matrices(gold, pred)
        if isinstance(gold, (Text, Named)) or isinstance(pred, (Text, Named)):
            return False
        if is_closed_interval(gold) != is_closed_interval(pred):
            return False
        gold_items, pred_items = members(gold), members(pred)
        if gold_items is None or pred_items is None or max(len(gold_items), len(pred_items)) > LONGEST_LIST:
            return False
        if are_alternatives(gold) or are_alternatives(pred):
            gold_items, pred_items = self.distinct(gold_items), self.distinct(pred_items)
        gold_names, pred_names = names_and_values(gold_items), names_and_values(pred_items)
        if gold_names is not None and pred_names is not None and gold_names.keys() == pred_names.keys():
            return all(self.same(value, pred_names[name]) for name, value in gold_names.items())
        if any(map(self.contradicts_itself, [*gold_items, *pred_items])):
            return False
        named = (gold_names is None) != (pred_names is None)
        gold_items = [answer_value(item) for item in gold_items]
        pred_items = [answer_value(item) for item in pred_items]
        if isinstance(gold, Finite) or isinstance(pred, Finite):
            if isinstance(gold, Group) or isinstance(pred, Group):
                return False
            return self.unordered(self.distinct(gold_items), self.distinct(pred_items))
        if isinstance(gold, Group) and isinstance(pred, Group) and not same_brackets(gold, pred):
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
            gold_rows, pred_rows = rows_of(gold), rows_of(pred)
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
            if optional and mentions(gold, mark) != mentions(pred, mark):
                yield without(gold, mark), without(pred, mark)

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
        """a:b against a:b up to a factor, or a/b, which a time of day is not; times part by part."""
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
        if self.on_the_hour(ratio, other):
            return True
        if len(ratio.parts) != 2 or _is_time(ratio):
            return False
        return self.expressions_safely(Mul((ratio.parts[0], Pow(ratio.parts[1], Num(Fraction(-1))))), other)

    def on_the_hour(self, ratio: Ratio, other: Node) -> bool:
        """Whether a time of day without minutes has that many hours: 5:00 and 5."""
        return ratio.clock and all(map(_is_zero, ratio.parts[1:])) and self.same(ratio.parts[0], other)

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


def _takes_no_unit(value: Node) -> bool:
    """Whether a value is a share, a ratio or a numeral, none of which is measured in units."""
    return isinstance(value, Based) or (isinstance(value, Ratio) and not value.clock) or mentions(value, PERCENT)


def _is_time(ratio: Ratio) -> bool:
    """Whether a:b can only be hours and minutes: 1:03 has a zero that no ratio has, 9:24 is not in lowest terms."""
    match ratio.parts:
        case (Num(hours), Num(minutes)) if ratio.clock and hours.denominator == minutes.denominator == 1:
            return minutes < 10 or (minutes < 60 and math.gcd(int(hours), int(minutes)) > 1)
    return False


def _number_part(value: Node) -> Node:
    return without(value, DEGREE) if isinstance(value, Mul) and DEGREE in value.factors else value


def _decimal_digits(node: Node) -> int:
    if isinstance(node, Num):
        return node.digits
    return max((_decimal_digits(factor) for factor in node.factors), default=0) if isinstance(node, Mul) else 0


def _is_zero(node: Node) -> bool:
    return isinstance(node, Num) and node.value == 0
