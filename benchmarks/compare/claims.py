"""The claims about experience sharing, each with a rule that was fixed before there were data.

Rules that all share:

* Everything is paired: method minus baseline with the same warm start and seed. Intervals are Student's t over the means of the
  warm starts, or over the pairs where there is one warm start (`benchmarks.statistics.cluster_interval`); the test says which.
* "Confirmed" and "refuted" each need an interval wholly on their side; everything between is "undecided", and so is whatever
  has one pair or no spread. A method without runs is "not tested".
* Reward is the greedy reward@1 on held-out problems at the last evaluation unless said otherwise; KL and entropy are means over
  training (normalised area under the curve), compared as ratios, in logarithms.
* The verdict is on the pool average, or the weaker policy where the claim names it; the figures hold every policy.

C7, about the exact bandit, is not here: `python -m benchmarks.bandit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from benchmarks.compare.results import (
    POOL,
    Measure,
    Results,
    area,
    curve,
    fall,
    final,
    groups,
    methods,
    of_weakest,
    paired,
    policies,
    runs_of,
    subjects,
    title,
    trained,
    unreachable,
    values,
    weakest,
)
from benchmarks.statistics import (
    Array,
    Interval,
    cluster_interval,
    cluster_p,
    equivalence_p,
    independent_units,
    share_at_or_above,
    welch_interval,
)

Verdict: TypeAlias = Literal["confirmed", "refuted", "undecided", "not tested"]
Pairs: TypeAlias = Mapping[str, Mapping[int, float]]

PAPER = ("grpo", "prp_s", "prp_t", "xgrpo", "sgt")
"""The methods among which the paper compares; controls compete for nothing."""

MARGIN = 0.015
"""Rewards closer than this count as equal (C2)."""

RATIO = 1.25
"""KL or entropy within a factor of 1.25 counts as comparable: the limits 0.80 to 1.25 of bioequivalence studies."""

REACH = 0.03
"""A method that gains less than this over the baseline on `unreachable` problems does not reach them (C5)."""

VIRTUALLY = 0.9
"""Share of checkpoints that is "virtually every" one (C1)."""


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


# C1 ---------------------------------------------------------------------------------------------------------------------


def best_average(results: Results) -> Finding:
    """C1: SGT has the best pool average and stays at or above the baseline at virtually every checkpoint.

    Confirmed iff the 95 % interval of SGT minus baseline is above 0, no other method of the paper with runs has a higher mean,
    and SGT is at or above the baseline at 90 % or more of the checkpoints (pool average, pairs times evaluations after the
    first). Refuted iff that interval is below 0, or that of SGT minus another method is, or the share is at most one half.
    """
    statement = "SGT has the best pool average, at or above GRPO at virtually every checkpoint"
    baseline = results["baseline"]
    if reason := lacking(results, "sgt", baseline):
        return not_tested("C1", statement, reason)
    pairs = paired(results, "sgt", baseline, POOL, final("reward"))
    if not pairs:
        return not_tested("C1", statement, "no runs of SGT and GRPO with the same warm start and seed")
    gain = cluster_interval(groups(pairs))
    rivals = {
        method: cluster_interval(groups(found))
        for method in methods(results)
        if method in (*PAPER, baseline)
        and method != "sgt"
        and (found := paired(results, "sgt", method, POOL, final("reward")))
    }
    share = checkpoint_share(results, "sgt", baseline, POOL)
    best = all(margin.estimate >= 0 for margin in rivals.values())
    closest = min(rivals, key=lambda method: rivals[method].estimate)
    area_gain = cluster_interval(groups(paired(results, "sgt", baseline, POOL, area("reward"))))
    by_policy = each_policy(results, "sgt", baseline, final("reward"))
    figures = {
        **bounds("reward, SGT - GRPO", gain),
        **bounds("area under the curve, SGT - GRPO", area_gain),
        "share of checkpoints at or above": share,
        **{f"reward, SGT - {title(method)}": margin.estimate for method, margin in rivals.items()},
        **as_figures("reward, SGT - GRPO", by_policy),
        **{
            f"{policy}: share of checkpoints at or above": checkpoint_share(results, "sgt", baseline, policy)
            for policy in policies(results)
        },
    }
    test = (
        f"final reward of the pool, SGT - GRPO: {points(gain)} points ({units(pairs)}), to be above 0; closest method of the "
        f"paper: {title(closest)}, {points(rivals[closest])}; at or above GRPO at {number(100 * share, 0)} % of "
        f"checkpoints, to be 90 % or more; area under the curve: {points(area_gain)}{as_text(by_policy)}"
    )
    confirmed = gain.low > 0 and best and share >= VIRTUALLY
    refuted = gain.known and (share <= 0.5 or any(margin.high < 0 for margin in rivals.values()))
    return Finding("C1", statement, verdict(confirmed, refuted), test, figures, cluster_p(groups(pairs)))


def checkpoint_share(results: Results, method: str, against: str, policy: str) -> float:
    """Share of (pair, evaluation after the first) at which the greedy reward is at or above another method's."""
    others = {(run["pool"], run["seed"]): curve(run, policy, "reward") for run in runs_of(results, against)}
    curves = []
    for run in runs_of(results, method):
        mine, theirs = curve(run, policy, "reward"), others.get((run["pool"], run["seed"]))
        if mine is not None and theirs is not None:
            curves.append((mine[1:], theirs[1:]))
    if not curves or not len(curves[0][0]):
        return math.nan
    return share_at_or_above([mine for mine, _ in curves], [theirs for _, theirs in curves])


# C2 ---------------------------------------------------------------------------------------------------------------------


def tracks_baseline(results: Results) -> Finding:
    """C2: XGRPO tracks the baseline closely and keeps the trust region.

    Confirmed iff the 90 % interval of the reward's difference lies within plus or minus 1.5 points (two one-sided tests at 5 %)
    and those of the KL and entropy ratios within 0.80 to 1.25. Refuted iff the 95 % interval of one of the three lies
    wholly outside its limits.
    """
    statement = "XGRPO equals GRPO: reward within 1.5 points, KL and entropy within a factor of 1.25"
    baseline = results["baseline"]
    if reason := lacking(results, "xgrpo", baseline):
        return not_tested("C2", statement, reason)
    tested = (
        ("reward", final("reward"), False, MARGIN),
        ("KL", area("kl"), True, math.log(RATIO)),
        ("entropy", area("entropy"), True, math.log(RATIO)),
    )
    pairs = {
        name: paired(results, "xgrpo", baseline, POOL, measure, log if ratio else float)
        for name, measure, ratio, _ in tested
    }
    if not pairs["reward"]:
        return not_tested("C2", statement, "no runs of XGRPO and GRPO with the same warm start and seed")
    narrow = {name: cluster_interval(groups(found), 0.9) for name, found in pairs.items()}
    wide = {name: cluster_interval(groups(found)) for name, found in pairs.items()}
    limits = {name: limit for name, _, _, limit in tested}
    confirmed = all(narrow[name].within(-limit, limit) for name, limit in limits.items())
    refuted = any(wide[name].low > limit or wide[name].high < -limit for name, limit in limits.items())
    figures: dict[str, float] = {}
    for name, measure, ratio, _ in tested:
        label = f"log {name} ratio" if ratio else name
        by_policy = each_policy(results, "xgrpo", baseline, measure, ratio)
        figures |= bounds(f"{label} (90 %)", narrow[name]) | as_figures(label, by_policy)
    rewards = each_policy(results, "xgrpo", baseline, final("reward"))
    test = (
        f"XGRPO - GRPO, pool ({units(pairs['reward'])}), 90 % intervals: reward {points(narrow['reward'])} points, to be "
        f"within 1.5; KL ratio {factor(narrow['KL'])}, entropy ratio {factor(narrow['entropy'])}, to be within "
        f"0.80 to 1.25; reward, 95 %{as_text(rewards)}"
    )
    return Finding(
        "C2", statement, verdict(confirmed, refuted), test, figures, equivalence_p(groups(pairs["reward"]), MARGIN)
    )


# C3, C4: one-sided statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Direction:
    """A claim that some difference lies on one side of a threshold.

    Attributes:
        claim, statement: as in `Finding`.
        method, against: X and Y of X - Y.
        measure: what is compared, and its name.
        name: of the measure.
        above: whether X - Y is claimed to be above the threshold (else below it).
        threshold: in the unit of the difference; of the ratio if `ratio`.
        ratio: whether logarithms are compared.
        weaker: whether the verdict is on each warm start's weaker policy instead of the pool.
    """

    claim: str
    statement: str
    method: str
    against: str
    measure: Measure
    name: str
    above: bool
    threshold: float = 0.0
    ratio: bool = False
    weaker: bool = False


def one_sided(results: Results, claimed: Direction) -> Finding:
    """Confirmed iff the 95 % interval lies wholly on the claimed side of the threshold, refuted iff wholly on the other."""
    if reason := lacking(results, claimed.method, claimed.against):
        return not_tested(claimed.claim, claimed.statement, reason)
    scale = log if claimed.ratio else float
    measure = of_weakest(results, claimed.measure) if claimed.weaker else claimed.measure
    pairs = paired(results, claimed.method, claimed.against, POOL, measure, scale)
    if not pairs:
        return not_tested(claimed.claim, claimed.statement, f"no pair of runs has {claimed.name}")
    threshold = math.log(claimed.threshold) if claimed.ratio else claimed.threshold
    interval = cluster_interval(groups(pairs))
    above, below = interval.low > threshold, interval.high < threshold
    label = f"log {claimed.name} ratio" if claimed.ratio else claimed.name
    where = "pool"
    if claimed.weaker:
        where = "weaker policy (" + ", ".join(f"{weakest(results, pool)} of {pool}" for pool in pairs) + ")"
    by_policy = each_policy(results, claimed.method, claimed.against, claimed.measure, claimed.ratio)
    figures = {
        **bounds(f"{'weaker policy' if claimed.weaker else 'pool'}: {label}", interval),
        **as_figures(label, by_policy),
    }
    quantity = (
        f"ratio of {claimed.name} {factor(interval)}" if claimed.ratio else f"{claimed.name} {points(interval)} points"
    )
    limit = f"{claimed.threshold:.2f}" if claimed.ratio else f"{100 * claimed.threshold:g}"
    test = (
        f"{title(claimed.method)} against {title(claimed.against)}, {where} ({units(pairs)}): {quantity}, to be "
        f"{'above' if claimed.above else 'below'} {limit}{as_text(by_policy, factor if claimed.ratio else points)}"
    )
    p = cluster_p([group - threshold for group in groups(pairs)])
    return Finding(
        claimed.claim,
        claimed.statement,
        verdict(above if claimed.above else below, below if claimed.above else above),
        test,
        figures,
        p,
    )


def pooling_is_unstable(results: Results) -> list[Finding]:
    """C3: PRP is unstable: lower entropy, higher KL, hurts the weaker policy; the trace denominator mitigates some of it.

    Each statement stands alone, for their signs may differ, and for each denominator (S snapshot, T trace); see `one_sided`:

    * a: the entropy is below the baseline's. b: the KL is above it.
    * c: the final reward of the weaker policy (lower mean@k at the start of that warm start) is below the baseline's.
    * d: the pool average falls farther from its best evaluation to its last than the baseline's.
    * e: T's final pool average is above S's. f: T's KL is below S's.

    The figures of e also hold ratio variance (median over steps), effective sample size and clip share of both.
    """
    baseline = results["baseline"]
    found = []
    for method in ("prp_s", "prp_t"):
        name = title(method)
        against = (method, baseline)
        for claimed in (
            Direction("C3a", f"{name} lowers the entropy", *against, area("entropy"), "entropy", False, 1, True),
            Direction("C3b", f"{name} raises the KL", *against, area("kl"), "KL", True, 1, True),
            Direction(
                "C3c", f"{name} hurts the weaker policy", *against, final("reward"), "reward", False, weaker=True
            ),
            Direction("C3d", f"{name} falls back from its best", *against, fall("reward"), "fall of reward", True),
        ):
            found.append(one_sided(results, claimed))
    both = ("prp_t", "prp_s")
    better = one_sided(
        results, Direction("C3e", "the trace denominator mends reward", *both, final("reward"), "reward", True)
    )
    nearer = one_sided(
        results, Direction("C3f", "the trace denominator mends KL", *both, area("kl"), "KL", False, 1, ratio=True)
    )
    return [*found, with_ratios(results, better), nearer]


def with_ratios(results: Results, finding: Finding) -> Finding:
    """A finding with the importance ratios of both kinds of PRP among its figures."""
    figures = dict(finding.figures)
    for method in ("prp_s", "prp_t"):
        for key in ("exchange/ratio_variance", "exchange/effective_sample_size", "clip_ratio/region_mean"):
            for policy in (POOL, *policies(results)):
                by_pool = values(results, method, policy, trained(key))
                if by_pool:
                    figures[f"{policy}: {key}, {title(method)}"] = float(
                        np.mean([group.mean() for group in groups(by_pool)])
                    )
    return Finding(finding.claim, finding.statement, finding.verdict, finding.test, figures, finding.p)


def keeps_entropy(results: Results) -> list[Finding]:
    """C4: SGT keeps the entropy comparable to or higher than the baseline's, and the KL low.

    * a: the entropy ratio is above 0.80 (not inferior). b: the KL ratio is below 1.25. Both by `one_sided`.
    """
    against = ("sgt", results["baseline"])
    claimed = (
        Direction(
            "C4a", "SGT keeps the entropy (80 % of GRPO's or more)", *against, area("entropy"), "entropy", True,
            1 / RATIO, True,
        ),
        Direction("C4b", "SGT keeps the KL low (125 % of GRPO's or less)", *against, area("kl"), "KL", False, RATIO, True),
    )  # fmt: skip
    return [one_sided(results, direction) for direction in claimed]


# C5 ---------------------------------------------------------------------------------------------------------------------


def crosses_boundary(results: Results) -> list[Finding]:
    """C5: XGRPO cannot put mass on answers that only a peer finds; SGT can.

    Measured as the final mean@k on problems of which the starting policy solved none in its samples and a peer some.

    * a: SGT's is above the baseline's. c: SGT's is above XGRPO's. Both by `one_sided`; a's figures hold each subject.
    * b: XGRPO gains less than 3 points over the baseline: confirmed iff the 95 % interval is below 3 points, refuted iff above.

    A softmax has full support, so a policy may find such answers by itself: the baseline shows how often.
    """
    baseline = results["baseline"]
    name = "mean@k on peer-only problems"
    claimed = (
        Direction("C5a", "SGT learns what only a peer could solve", "sgt", baseline, unreachable, name, True),
        Direction("C5b", "XGRPO does not (gains < 3 points)", "xgrpo", baseline, unreachable, name, False, REACH),
        Direction("C5c", "SGT learns more of it than XGRPO", "sgt", "xgrpo", unreachable, name, True),
    )
    first, *others = [one_sided(results, direction) for direction in claimed]
    figures = dict(first.figures)
    for method in (baseline, "xgrpo", "sgt"):
        for policy in (POOL, *policies(results)):
            levels = values(results, method, policy, unreachable)
            if levels:
                figures[f"{policy}: {name}, {title(method)}"] = float(np.mean([g.mean() for g in groups(levels)]))
    for subject in subjects(results):
        for policy in (POOL, *policies(results)):
            pairs = paired(results, "sgt", baseline, policy, final(f"subjects/{subject}"))
            if pairs:
                figures[f"{policy}: {subject}, SGT - GRPO"] = cluster_interval(groups(pairs)).estimate
    return [Finding(first.claim, first.statement, first.verdict, first.test, figures, first.p), *others]


# C6 ---------------------------------------------------------------------------------------------------------------------


def pays_where_policies_differ(studies: Sequence[Results]) -> list[Finding]:
    """C6: sharing pays with really heterogeneous pools, and on commonsense and science questions.

    * a: SGT's gain over the baseline (final pool average) is larger in pools with different tokenizers than in pools of one:
      Welch's 95 % interval of the difference above 0 confirms, below 0 refutes. Units are the warm starts of each kind, or the
      pairs where a kind has one. Pools say in `same_tokenizer` of which kind they are. Only studies with both kinds count, for
      others differ in more than that.
    * b: in the studies of multiple choice (the environment's name has `choice`) the gain is above 0, by its 95 % interval.

    Args:
        studies: several files; their baselines may differ.
    """
    different: list[Array] = []
    same: list[Array] = []
    choice: list[Array] = []
    for results in studies:
        pairs = paired(results, "sgt", results["baseline"], POOL, final("reward"))
        gains = dict(zip(pairs, groups(pairs), strict=True))
        kinds = {pool: results["pools"][pool].get("same_tokenizer") for pool in gains}
        if {True, False} <= set(kinds.values()):
            different += [gains[pool] for pool, kind in kinds.items() if kind is False]
            same += [gains[pool] for pool, kind in kinds.items() if kind is True]
        if "choice" in str(results["settings"].get("env", "")):
            choice += gains.values()
    return [_heterogeneity(different, same), _choice(choice)]


def _heterogeneity(different: Sequence[Array], same: Sequence[Array]) -> Finding:
    statement = "sharing gains more between different tokenizers than within one"
    if not different:
        return not_tested("C6a", statement, "no study has paired runs of SGT and GRPO in pools of both kinds")
    gain = welch_interval(independent_units(different), independent_units(same))
    figures = {
        **bounds("gain, different - same", gain),
        "gain, different tokenizers": float(np.mean([group.mean() for group in different])),
        "gain, same tokenizer": float(np.mean([group.mean() for group in same])),
    }
    test = (
        f"SGT - GRPO, final reward of the pool: {100 * figures['gain, different tokenizers']:+.1f} points with different "
        f"tokenizers ({len(different)} warm starts, {sum(map(len, different))} pairs), "
        f"{100 * figures['gain, same tokenizer']:+.1f} with one ({len(same)} warm starts, {sum(map(len, same))} pairs); "
        f"difference {points(gain)}, to be above 0"
    )
    return Finding("C6a", statement, verdict(gain.low > 0, gain.high < 0), test, figures)


def _choice(gains: Sequence[Array]) -> Finding:
    statement = "sharing gains on multiple-choice questions"
    if not gains:
        return not_tested("C6b", statement, "no paired runs of SGT and GRPO on multiple choice")
    gain = cluster_interval(gains)
    n = f"{sum(map(len, gains))} pairs, {len(gains)} warm start{'s' if len(gains) != 1 else ''}"
    test = f"SGT - GRPO, final reward of the pool ({n}): {points(gain)} points, to be above 0"
    figures = bounds("reward, SGT - GRPO", gain)
    return Finding("C6b", statement, verdict(gain.low > 0, gain.high < 0), test, figures, cluster_p(gains))


def judge(results: Results) -> list[Finding]:
    """C1 to C5 of one study."""
    return [
        best_average(results),
        tracks_baseline(results),
        *pooling_is_unstable(results),
        *keeps_entropy(results),
        *crosses_boundary(results),
    ]
