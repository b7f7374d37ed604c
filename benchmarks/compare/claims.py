"""The claims about experience sharing, each with a rule that is fixed before its data are read.

What is changed later is told where the results are.

Rules that all share:

* Everything is paired: method minus baseline with the same warm start and seed. Intervals are Student's t over the means of the
  warm starts, or over the pairs where there is one warm start (`benchmarks.statistics.cluster_interval`); the test says which.
* "Confirmed" and "refuted" each need an interval wholly on their side; everything between is "undecided", and so is whatever
  has one pair or no spread. A method without runs is "not tested".
* Each verdict is at 5 % by itself; nothing is adjusted for how many there are. The page shows Holm's p beside.
* A run that broke off is no accident that leaves the others untouched: no claim is confirmed while a run of the methods that it
  names broke off, and C3, which says that a method breaks, is not refuted either (`survivors`).
* No interval contains the luck of the held-out problems, which are the same in all runs.
* Reward is the greedy reward@1 on held-out problems at the last evaluation unless said otherwise; KL and entropy are means over
  training (normalised area under the curve), compared as ratios, in logarithms.
* The verdict is on the pool average, or the weaker policy where the claim names it; the figures hold every policy.

C7, about the exact bandit, is not here: `python -m benchmarks.bandit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.compare.findings import (
    Finding,
    as_figures,
    as_text,
    bounds,
    each_policy,
    factor,
    lacking,
    log,
    not_tested,
    number,
    points,
    survivors,
    units,
    verdict,
)
from benchmarks.compare.results import (
    POOL,
    Measure,
    Results,
    area,
    curve,
    fall,
    final,
    groups,
    held_out,
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
    cluster_interval,
    cluster_p,
    equivalence_p,
    independent_units,
    share_at_or_above,
    welch_interval,
)

PAPER = ("grpo", "prp_s", "prp_t", "xgrpo", "sgt")
"""The methods among which the paper compares; controls compete for nothing."""

MARGIN = 0.015
"""Rewards closer than this count as equal (C2)."""

FEWEST = 4
"""Held-out problems that `MARGIN` must stand for: where one or two answers fill it, nothing can be said of equality."""

RATIO = 1.25
"""KL or entropy within a factor of 1.25 counts as comparable: the limits 0.80 to 1.25 of bioequivalence studies."""

REACH = 0.03
"""A method that gains less than this over the baseline on `unreachable` problems does not reach them (C5)."""

ALIKE = 2.0
"""Pools of which one has more than so many times the other's peer-only problems differ in more than their tokenizers (C6a)."""

VIRTUALLY = 0.9
"""Share of checkpoints that is "virtually every" one (C1)."""


# C1 ---------------------------------------------------------------------------------------------------------------------


def best_average(results: Results) -> Finding:
    """C1: SGT has the best pool average and stays at or above the baseline at virtually every checkpoint.

    Confirmed iff the 95 % interval of SGT minus baseline is above 0, no other method of the paper with runs has a higher mean,
    and SGT is at or above the baseline at 90 % or more of the checkpoints (pool average, pairs times evaluations after the
    first). Refuted iff the interval of SGT minus the baseline or another method of the paper is below 0, all of them at 95 %
    together (Bonferroni): of four rivals that are no better one is ahead with its own 95 % in up to a tenth of all studies. The
    share refutes nothing, for between two equal methods it is below one half as often as above.
    """
    statement = "SGT has the best pool average, at or above GRPO at virtually every checkpoint"
    baseline = results["baseline"]
    if reason := lacking(results, "sgt", baseline):
        return not_tested("C1", statement, reason)
    pairs = paired(results, "sgt", baseline, POOL, final("reward"))
    if not pairs:
        return not_tested("C1", statement, "no runs of SGT and GRPO with the same warm start and seed")
    gain = cluster_interval(groups(pairs))
    rival_pairs = {
        method: groups(found)
        for method in methods(results)
        if method in (*PAPER, baseline)
        and method != "sgt"
        and (found := paired(results, "sgt", method, POOL, final("reward")))
    }
    rivals = {method: cluster_interval(found) for method, found in rival_pairs.items()}
    together = [cluster_interval(found, 1 - 0.05 / len(rivals)) for found in rival_pairs.values()]
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
    refuted = any(margin.high < 0 for margin in together)
    finding = Finding("C1", statement, verdict(confirmed, refuted), test, figures, cluster_p(groups(pairs)))
    return survivors(finding, results, "sgt", baseline)


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
    wholly outside its limits. Undecided whatever they say if 1.5 points are fewer than `FEWEST` held-out problems. Its p is the
    largest of the three tests' (intersection-union).
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
    fine = MARGIN * held_out(results) >= FEWEST
    confirmed = fine and all(narrow[name].within(-limit, limit) for name, limit in limits.items())
    refuted = fine and any(wide[name].low > limit or wide[name].high < -limit for name, limit in limits.items())
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
    if not fine:
        test += f"; {held_out(results)} held-out problems are too few to tell 1.5 points"
    p = float(np.max([equivalence_p(groups(found), limits[name]) for name, found in pairs.items()]))  # NaN if one is
    return survivors(
        Finding("C2", statement, verdict(confirmed, refuted), test, figures, p), results, "xgrpo", baseline
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
        breaks: whether it is claimed that a method breaks; see `survivors`.
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
    breaks: bool = False


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
    found = Finding(
        claimed.claim,
        claimed.statement,
        verdict(above if claimed.above else below, below if claimed.above else above),
        test,
        figures,
        cluster_p([group - threshold for group in groups(pairs)]),
    )
    return survivors(found, results, claimed.method, claimed.against, both=claimed.breaks)


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
            found.append(one_sided(results, replace(claimed, breaks=True)))
    both = ("prp_t", "prp_s")
    better = one_sided(
        results,
        Direction("C3e", "the trace denominator mends reward", *both, final("reward"), "reward", True, breaks=True),
    )
    nearer = one_sided(
        results,
        Direction("C3f", "the trace denominator mends KL", *both, area("kl"), "KL", False, 1, True, breaks=True),
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
    return replace(finding, figures=figures)


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
    return [replace(first, figures=figures), *others]


# C6 ---------------------------------------------------------------------------------------------------------------------


def pays_where_policies_differ(studies: Sequence[Results]) -> list[Finding]:
    """C6: sharing pays with really heterogeneous pools, and on commonsense and science questions.

    * a: SGT's gain over the baseline (final pool average) is larger in pools with different tokenizers than in pools of one:
      the 95 % interval of the difference above 0 confirms, below 0 refutes. It is Welch's over the warm starts of each kind
      (over the pairs of a kind that has one); with one warm start of each kind and two or more seeds in common, it is
      Student's t over the differences by seed. Where a kind has one warm start, the verdict speaks for that one alone. Pools
      say in `same_tokenizer` of which kind they are. Only studies with both kinds count, for others differ in more than that.
      So do pools in which peers have much more to tell: the verdict is withheld where the policies of one kind have more
      than twice as many problems that only a peer solves at the start as those of the other.
    * b: in the studies of multiple choice (the environment's name has `choice`) the gain is above 0, by its 95 % interval.

    Args:
        studies: several files; their baselines may differ.
    """
    different: list[Mapping[int, float]] = []
    same: list[Mapping[int, float]] = []
    choice: list[Array] = []
    with_kinds, with_choice = [], []
    chances: dict[bool, list[float]] = {True: [], False: []}
    for results in studies:
        gains = paired(results, "sgt", results["baseline"], POOL, final("reward"))
        kinds = {pool: results["pools"][pool].get("same_tokenizer") for pool in gains}
        if {True, False} <= set(kinds.values()):
            different += [gains[pool] for pool, kind in kinds.items() if kind is False]
            same += [gains[pool] for pool, kind in kinds.items() if kind is True]
            with_kinds.append(results)
            for pool, kind in ((pool, kind) for pool, kind in kinds.items() if kind is not None):
                chances[kind] += _peer_only(results["pools"][pool])
        if "choice" in str(results["settings"].get("env", "")):
            choice += groups(gains)
            with_choice.append(results)
    heterogeneity, questions = _unlike(_heterogeneity(different, same), chances[False], chances[True]), _choice(choice)
    for results in with_kinds:
        heterogeneity = survivors(heterogeneity, results, "sgt", results["baseline"])
    for results in with_choice:
        questions = survivors(questions, results, "sgt", results["baseline"])
    return [heterogeneity, questions]


def _heterogeneity(by_seed: Sequence[Mapping[int, float]], by_seed_same: Sequence[Mapping[int, float]]) -> Finding:
    statement = "sharing gains more between different tokenizers than within one"
    if not by_seed:
        return not_tested("C6a", statement, "no study has paired runs of SGT and GRPO in pools of both kinds")
    different, same = ([np.array(list(gains.values())) for gains in kind] for kind in (by_seed, by_seed_same))
    seeds = sorted(set(by_seed[0]) & set(by_seed_same[0])) if len(by_seed) == len(by_seed_same) == 1 else []
    p = math.nan
    if len(seeds) > 1:
        pairs = [np.array([by_seed[0][seed] - by_seed_same[0][seed] for seed in seeds])]
        gain, p, how = cluster_interval(pairs), cluster_p(pairs), f"paired by {len(seeds)} seeds"
    else:
        gain, how = welch_interval(independent_units(different), independent_units(same)), "Welch"
    figures = {
        **bounds("gain, different - same", gain),
        "gain, different tokenizers": float(np.mean([group.mean() for group in different])),
        "gain, same tokenizer": float(np.mean([group.mean() for group in same])),
    }
    test = (
        f"SGT - GRPO, final reward of the pool: {100 * figures['gain, different tokenizers']:+.1f} points with different "
        f"tokenizers ({len(different)} warm starts, {sum(map(len, different))} pairs), "
        f"{100 * figures['gain, same tokenizer']:+.1f} with one ({len(same)} warm starts, {sum(map(len, same))} pairs); "
        f"difference {points(gain)} ({how}), to be above 0"
    )
    single = [name for name, kind in (("different tokenizers", different), ("one tokenizer", same)) if len(kind) == 1]
    if single:
        test += f"; one warm start with {' and one with '.join(single)}, for which alone it speaks"
    return Finding("C6a", statement, verdict(gain.low > 0, gain.high < 0), test, figures, p)


def _peer_only(pool: Mapping[str, Any]) -> list[float]:
    """For each policy the share of the held-out problems that only a peer solves at the start."""
    return [len(start["unreachable"]) / pool["problems"] for start in pool["start"].values()]


def _unlike(finding: Finding, different: Sequence[float], same: Sequence[float]) -> Finding:
    """C6a, withheld where the two kinds of pools differ too much in their peer-only problems, whose shares are given."""
    if not different:
        return finding
    more, less = sorted((float(np.mean(different)), float(np.mean(same))), reverse=True)
    seen = (
        f"{finding.test}; of the problems only a peer solves {100 * np.mean(different):.0f} % at the start with different "
        f"tokenizers, {100 * np.mean(same):.0f} % with one"
    )
    if more <= ALIKE * less or finding.verdict == "undecided":
        return replace(finding, test=seen)
    why = f"not {finding.verdict}, since peers have more to tell in one kind of pool, whatever their tokenizers"
    return replace(finding, verdict="undecided", test=f"{seen}: {why}")


def _choice(gains: Sequence[Array]) -> Finding:
    statement = "sharing gains on multiple-choice questions"
    if not gains:
        return not_tested("C6b", statement, "no paired runs of SGT and GRPO on multiple choice")
    gain = cluster_interval(gains)
    n = units({str(index): dict(enumerate(group)) for index, group in enumerate(gains)})
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
