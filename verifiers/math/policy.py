"""What counts as the same answer where people differ; `docs/verifiers.md` gives the reason for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The choices of the mathematical verifier. The defaults are those of the benchmark."""

    percent_optional: bool = True
    """50% answers 50 and 0.5, and the other way round; off: only 0.5."""

    units_optional: bool = True
    """5 cm answers 5, and the other way round. Two units that contradict one another are wrong in any case."""

    degrees_optional: bool = True
    """45° answers 45, and the other way round; 45° always equals pi/4."""

    base_optional: bool = True
    """52 answers 52_8, whose digits it has. Two bases that differ are wrong in any case, equal values or not."""

    ordered_lists: bool = False
    """Whether the order of a list without brackets matters; in tuples it always does, in sets never."""

    any_variable: bool = True
    """y = 5 answers x = 5: the name on the left is the problem's, not the answer's."""

    decimal_comma: bool = True
    """2,74 answers 2.74 where the other side is one decimal number; elsewhere the comma separates."""

    float_digits: int = 12
    """A decimal of at least that many significant digits equals an exact value that it agrees with in all of them."""

    number_words: bool = False
    """Whether "four" answers 4."""
