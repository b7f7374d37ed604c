"""Numbers within a tolerance, in compatible units."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from verifiers.extraction import extract, extract_reference
from verifiers.math import sets, units
from verifiers.math.answers import answer_value
from verifiers.math.reading import read
from verifiers.math.tree import Const, Mul, Node, Num, Quantity, walk
from verifiers.verdict import BadGoldError, Verdict


class NumericVerifier:
    """Compare one number with a reference up to a relative or absolute tolerance.

    Units are converted where both sides name one, contradictory units are wrong, and a unit on one side only is taken for
    the other's. Without sign or words a percent and a fraction are different numbers.
    """

    def __init__(self, relative: float = 1e-4, absolute: float = 0.0, fallback: bool = False) -> None:
        """Set the tolerances.

        Args:
            relative: largest |candidate - reference| / |reference|.
            absolute: largest |candidate - reference|; one of the two suffices.
            fallback: accept the last number of a completion without an answer format.

        Raises:
            ValueError: if a tolerance is negative or no number.
        """
        for name, tolerance in (("relative", relative), ("absolute", absolute)):
            if not tolerance >= 0:
                raise ValueError(f"{name}={tolerance!r} is no tolerance; give a number >= 0")
        self._relative = relative
        self._absolute = absolute
        self._fallback = fallback

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError unless the reference is a number."""
        if _number(extract_reference(answer)) is None:
            raise BadGoldError(f"answer={answer!r:.200} is no number")

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion, self._fallback)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        candidate, reference = _number(found.text), _number(extract_reference(answer))
        if candidate is None or reference is None:
            return Verdict(0.0, found.text, "wrong", "not a number")
        (value, unit), (target, target_unit) = candidate, reference
        if unit is not None and target_unit is not None:
            if unit.dimensions != target_unit.dimensions:
                return Verdict(0.0, found.text, "wrong", "a unit of another kind")
            value *= float(unit.factor / target_unit.factor)
        error = abs(value - target)
        right = error <= self._absolute or error <= self._relative * abs(target)
        return Verdict(float(right), found.text, "right" if right else "wrong", f"differs by {error:.6g}")


def _number(text: str) -> tuple[float, units.Unit | None] | None:
    """The finite real number that an answer gives, and its unit if it names one that is known."""
    tree = read(text).tree
    if tree is None:
        return None
    tree = answer_value(tree)
    unit = None
    if isinstance(tree, Quantity):
        unit = units.read(tree.words)
        tree = tree.value
    elif isinstance(tree, Mul) and Const("degree") in tree.factors:
        unit = units.read("degrees")
        tree = _without_degrees(tree)
    if any(isinstance(node, Quantity) for node in walk(tree)):
        return None
    try:
        value = sets.value(tree)
    except sets.NotASetError:
        return None
    return (value, unit) if math.isfinite(value) else None


def _without_degrees(tree: Mul) -> Node:
    return Mul(tuple(Num(Fraction(1)) if factor == Const("degree") else factor for factor in tree.factors))
