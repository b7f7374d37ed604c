"""Figures of an evaluation, from verdicts alone: no models, no files.

Every interval is a percentile bootstrap over problems: the problems are the sample, the completions of one problem stay
together. All policies are resampled alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.evaluation import majority_score, pass_at_k
from benchmarks.statistics import hierarchical_interval
from mrl_env.types import FinishReason, Problem
from verifiers import REASONS, Verdict

RESAMPLES = 2000
"""Bootstrap samples of an interval."""

LENGTH_BINS = 5
"""Quantiles of completion length."""

Figure = dict[str, float | None]
"""An estimate and its 95 % interval: `value`, `low`, `high`; no bounds where all problems agree, so that nothing varies."""


@dataclass(frozen=True)
class Spoken:
    """One completion, as far as figures are made of it.

    Attributes:
        verdict: how it was judged.
        length: tokens, end of sequence included.
        finish_reason: why it ended.
    """

    verdict: Verdict
    length: int
    finish_reason: FinishReason

    @property
    def score(self) -> float:
        """The verdict's score; 0 where no judgement exists."""
        return self.verdict.score or 0.0


@dataclass(frozen=True)
class Answered:
    """One policy's completions of one problem.

    Attributes:
        problem: the problem.
        greedy: the greedy completion.
        samples: k sampled ones, k at least 1.
    """

    problem: Problem
    greedy: Spoken
    samples: tuple[Spoken, ...]

    @property
    def successes(self) -> int:
        """Samples that solve the problem."""
        return sum(spoken.verdict.success for spoken in self.samples)


def policy_figures(answered: Sequence[Answered], seed: int) -> dict[str, Any]:
    """All figures of one policy.

    Args:
        answered: M problems, in the order of the other policies'.
        seed: of the bootstrap.

    Returns:
        `all` (see `metrics`), `subject` and `level` (metrics of each), `length` (see `length_figures`), `reasons` (share of
        the samples for each reason that occurs), and by problem `greedy` (score) and `successes` (of k).
    """
    reasons = Counter(spoken.verdict.reason for one in answered for spoken in one.samples)
    total = sum(reasons.values())
    return {
        "all": metrics(answered, seed),
        "subject": grouped_metrics(answered, "subject", seed),
        "level": grouped_metrics(answered, "level", seed),
        "length": length_figures([spoken for one in answered for spoken in one.samples]),
        "reasons": {reason: reasons[reason] / total for reason in REASONS if reasons[reason]},
        "greedy": [one.greedy.score for one in answered],
        "successes": [one.successes for one in answered],
    }


def metrics(answered: Sequence[Answered], seed: int) -> dict[str, Figure]:
    """Means over problems: `reward@1` (greedy), `mean@k`, `pass@1`, `pass@2`, `pass@4`, ... `pass@k`, `maj@k`."""
    k = len(answered[0].samples)
    per_problem: dict[str, Callable[[Answered], float]] = {
        "reward@1": lambda one: one.greedy.score,
        f"mean@{k}": lambda one: float(np.mean([spoken.score for spoken in one.samples])),
        **{f"pass@{j}": _pass_at(k, j) for j in pass_sizes(k)},
        f"maj@{k}": lambda one: majority_score([spoken.verdict for spoken in one.samples]),
    }
    return {name: figure([measure(one) for one in answered], seed) for name, measure in per_problem.items()}


def _pass_at(samples: int, j: int) -> Callable[[Answered], float]:
    return lambda one: pass_at_k(one.successes, samples, j)


def pass_sizes(k: int) -> list[int]:
    """The powers of two up to k, and k itself."""
    return sorted({1 << i for i in range(k.bit_length())} | {k})


def grouped_metrics(answered: Sequence[Answered], key: str, seed: int) -> dict[str, dict[str, Any]]:
    """For each value of a metadata key: the metrics of its problems, and their number as `problems`.

    Problems without the key are in no group.
    """
    groups: dict[Any, list[Answered]] = {}
    for one in answered:
        if key in one.problem.metadata:
            groups.setdefault(one.problem.metadata[key], []).append(one)
    ordered = sorted(groups, key=lambda value: (isinstance(value, str), value))
    return {str(value): {"problems": len(groups[value]), **metrics(groups[value], seed)} for value in ordered}


def length_figures(spoken: Sequence[Spoken]) -> dict[str, Any]:
    """How success goes with length.

    Returns:
        `mean`, `right`, `wrong`: mean tokens of all, of successful and of other completions (None if there are none); `cut`:
        share that ended at the limit; `quantiles`: the completions in `LENGTH_BINS` groups of about equal size from short
        to long, each with `shortest`, `longest`, `completions` and `accuracy`, the share of successes. Completions of one
        length are never split, so that there may be fewer groups.
    """
    lengths = np.array([one.length for one in spoken])
    success = np.array([one.verdict.success for one in spoken])
    edges = np.quantile(lengths, np.arange(1, LENGTH_BINS) / LENGTH_BINS)
    bins = np.searchsorted(edges, lengths)
    return {
        "mean": float(lengths.mean()),
        "right": float(lengths[success].mean()) if success.any() else None,
        "wrong": float(lengths[~success].mean()) if not success.all() else None,
        "cut": sum(one.finish_reason == "length" for one in spoken) / len(spoken),
        "quantiles": [
            {
                "shortest": int(lengths[bins == b].min()),
                "longest": int(lengths[bins == b].max()),
                "completions": int((bins == b).sum()),
                "accuracy": float(success[bins == b].mean()),
            }
            for b in np.unique(bins)
        ],
    }


def agreement(policies: Mapping[str, Sequence[Answered]], seed: int) -> dict[str, Any]:
    """Who solves what the other does not. A problem counts as solved if at least one of the k samples succeeds.

    Args:
        policies: name to M problems, all in the same order.
        seed: of the bootstrap.

    Returns:
        `rescue`: for each learner and each other policy as its peer the share of problems that the peer solves and the
        learner does not; `pairs`: for each pair the shares that `both` and `neither` solve, and `jaccard`: both, of those
        that either solves (None if there are none).
    """
    solved = {name: np.array([one.successes > 0 for one in answered]) for name, answered in policies.items()}
    rescue: dict[str, dict[str, Figure]] = {
        learner: {peer: figure(solved[peer] & ~solved[learner], seed) for peer in solved if peer != learner}
        for learner in solved
    }
    pairs = []
    for first, second in combinations(solved, 2):
        both, either = solved[first] & solved[second], solved[first] | solved[second]
        pairs.append(
            {
                "policies": [first, second],
                "both": figure(both, seed),
                "neither": figure(~either, seed),
                "jaccard": float(both.sum() / either.sum()) if either.any() else None,
            }
        )
    return {"rescue": rescue, "pairs": pairs}


def figure(values: Sequence[float] | NDArray[Any], seed: int) -> Figure:
    """The mean of one value per problem, with its percentile bootstrap interval.

    Args:
        values: (M,).
        seed: of the resampling, which depends on it and on M alone.
    """
    # With one group, the hierarchical bootstrap is the plain one.
    interval = hierarchical_interval([np.asarray(values, dtype=np.float64)], "evaluate", seed, draws=RESAMPLES)
    low, high = (interval.low, interval.high) if interval.known else (None, None)
    return {"value": interval.estimate, "low": low, "high": high}
