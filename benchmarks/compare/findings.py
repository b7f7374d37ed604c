"""A verdict with what it rests on, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from benchmarks.compare.results import Measure, Results, broken, groups, methods, paired, policies, title
from benchmarks.statistics import Interval, cluster_interval

Verdict: TypeAlias = Literal["confirmed", "refuted", "undecided", "not tested"]
Pairs: TypeAlias = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Finding:
    """What was found about a claim.

    Attributes:
        claim: "C1", or "C3a" for a part.
        statement: what is claimed.
        verdict: by the rule in the docstring of the claim's function.
        test: what was tested, with the number of runs and the threshold.
        figures: numbers by name, every policy included.
        p: of the main test, two-sided (of the equivalence test where the claim is one); NaN if there is none.
    """

    claim: str
    statement: str
    verdict: Verdict
    test: str
    figures: Mapping[str, float]
    p: float = math.nan


def verdict(confirmed: bool, refuted: bool) -> Verdict:
    """Confirmed wins, then refuted, else undecided."""
    return "confirmed" if confirmed else "refuted" if refuted else "undecided"


def not_tested(claim: str, statement: str, reason: str) -> Finding:
    """A finding without data."""
    return Finding(claim, statement, "not tested", reason, {})


def lacking(results: Results, *needed: str) -> str | None:
    """Names the first of the methods without runs."""
    return next((f"no run of {title(name)}" for name in needed if name not in methods(results)), None)


def survivors(finding: Finding, results: Results, *names: str, both: bool = False) -> Finding:
    """A finding, undecided where it was confirmed (or refuted, if `both`) by what is left of methods of which runs broke off.

    Args:
        finding: from the runs that are complete.
        results: of its study.
        names: of the methods that are compared.
        both: whether such runs speak for the claim, so that the others cannot refute it.
    """
    lost = {name: number for name in names if (number := len(broken(results, name)))}
    if not lost or finding.verdict not in ("confirmed", "refuted" if both else "confirmed"):
        return finding
    why = ", ".join(f"{number} of {title(name)}" for name, number in lost.items())
    return replace(
        finding, verdict="undecided", test=f"{finding.test}; not {finding.verdict}, since runs broke off: {why}"
    )


def units(pairs: Pairs) -> str:
    """How many pairs and warm starts, and what the interval is over."""
    n, starts = sum(map(len, pairs.values())), len(pairs)
    over = f"{starts} warm starts" if starts > 1 else "one warm start, for which alone it speaks"
    return f"{n} pair{'s' if n != 1 else ''}, {over}"


def number(value: float, digits: int, sign: str = "") -> str:
    """A number, rounded, and zero without a minus; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def bracket(interval: Interval, scale: float = 1.0, digits: int = 3, sign: str = "") -> str:
    """An estimate and its bounds, these left out where there are none."""
    numbers = [number(value * scale, digits, sign) for value in (interval.estimate, interval.low, interval.high)]
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}]" if interval.known else numbers[0]


def points(interval: Interval) -> str:
    """A difference of rewards in percentage points."""
    return bracket(interval, 100, 1, "+")


def factor(interval: Interval) -> str:
    """A logarithm of a ratio as the ratio."""
    estimate, low, high = (math.exp(value) for value in (interval.estimate, interval.low, interval.high))
    return bracket(Interval(estimate, low, high, interval.n, interval.groups), digits=2)


def bounds(name: str, interval: Interval) -> dict[str, float]:
    """An interval as figures; bounds that there are not are left out."""
    known = {f"{name}, low": interval.low, f"{name}, high": interval.high} if interval.known else {}
    return {name: interval.estimate, **known}


def log(value: float) -> float:
    """Natural logarithm of a KL or an entropy; below 1e-6 nats they count as 1e-6."""
    return math.log(max(value, 1e-6))


def each_policy(
    results: Results, method: str, against: str, measure: Measure, ratio: bool = False
) -> dict[str, Interval]:
    """The 95 % interval of every policy's differences, of logarithms if `ratio`."""
    found = {
        policy: groups(paired(results, method, against, policy, measure, log if ratio else float))
        for policy in policies(results)
    }
    return {policy: cluster_interval(pairs) for policy, pairs in found.items() if pairs}


def as_figures(name: str, by_policy: Mapping[str, Interval]) -> dict[str, float]:
    """The policies' intervals as figures."""
    return {
        key: value
        for policy, interval in by_policy.items()
        for key, value in bounds(f"{policy}: {name}", interval).items()
    }


def as_text(by_policy: Mapping[str, Interval], show: Callable[[Interval], str] = points) -> str:
    """The policies' intervals as the end of a sentence."""
    return "; by policy: " + ", ".join(f"{policy} {show(interval)}" for policy, interval in by_policy.items())
