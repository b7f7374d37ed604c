"""The statistics of the comparison: pure functions of arrays, without files, plots or knowledge of what is compared.

Two kinds of interval, because a handful of runs is a small sample:

* `hierarchical_interval` resamples the groups (warm starts) and the runs in them: what most readers expect, but percentile
  intervals of few groups are too narrow. For 3 groups of 2 runs whose group means vary twice as much as the runs in a group,
  a nominal 95 % interval covers the truth about 79 % of the time (simulated in `tests/compare/test_statistics.py`).
* `cluster_interval` is Student's t over the group means: exact for normal data however few the groups, hence wide. Verdicts
  rest on this one.

Where the data cannot give an interval (one value, or no spread at all among a few discrete ones) the bounds are NaN: every
comparison with them is false, so nothing can be concluded from them by accident.

Sources: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13 (percentile interval); Davison and
Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8 (hierarchical data); Agarwal et al., "Deep
Reinforcement Learning at the Edge of the Statistical Precipice" (2021, arXiv 2108.13264) (interquartile mean, stratified
bootstrap, probability of improvement); Schuirmann (1987) (two one-sided tests); Holm (1979); Phipson and Smyth,
"Permutation P-values Should Never Be Zero" (2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from mpmath import betainc

from mrl_env.seeding import derive_seed

Array: TypeAlias = npt.NDArray[np.float64]

DRAWS = 4000
"""Bootstrap samples: the Monte-Carlo error of a 95 % bound is then about a twentieth of a standard error."""

MAX_FLIPS = 40
"""Most differences for which every sign is tried (2^20 sums for each half)."""

RANDOM_FLIPS = 20_000
"""Signs that are drawn for more: the error of a p of 0.05 is then 0.0015."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval.

    Attributes:
        estimate: the statistic of the data.
        low, high: bounds; NaN where the data cannot give them.
        n: values behind it.
        groups: independent groups behind it; with one, the interval speaks of that group alone.
    """

    estimate: float
    low: float
    high: float
    n: int
    groups: int

    @property
    def known(self) -> bool:
        """Whether there are bounds."""
        return not math.isnan(self.low)

    def within(self, low: float, high: float) -> bool:
        """Whether all of the interval lies strictly between two numbers; false where it has no bounds."""
        return self.low > low and self.high < high


def generator(*parts: str | int) -> np.random.Generator:
    """The stream of a place: the same parts give the same numbers in every process."""
    return np.random.Generator(np.random.Philox(derive_seed("statistics", *parts)))


def finite(values: npt.ArrayLike, name: str = "values") -> Array:
    """An array of floats, copied.

    Raises:
        ValueError: if it is empty or holds NaN or infinity.
    """
    array = np.array(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name} is empty; give at least one number")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}; leave out runs that did not finish")
    return array


def finite_groups(groups: Sequence[npt.ArrayLike], name: str = "groups") -> list[Array]:
    """Each group by `finite`.

    Raises:
        ValueError: if there is none, or one is empty or not finite.
    """
    if not len(groups):
        raise ValueError(f"{name} is empty; give at least one group")
    return [finite(group, f"{name}[{index}]") for index, group in enumerate(groups)]


# Bootstrap --------------------------------------------------------------------------------------------------------------


def percentile_interval(estimate: float, samples: Array, level: float, n: int, groups: int) -> Interval:
    """The interval between two quantiles of (draws,) bootstrap values; without bounds if these do not vary."""
    if np.ptp(samples) <= 1e-12 * max(1.0, abs(estimate)):
        return Interval(estimate, math.nan, math.nan, n, groups)
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), n, groups)


def resample(values: Array, draws: int, rng: np.random.Generator) -> Array:
    """(draws, n, ...) samples with replacement along the first axis of (n, ...)."""
    return values[rng.integers(len(values), size=(draws, len(values)))]


def hierarchical_means(groups: Sequence[Array], draws: int, rng: np.random.Generator) -> Array:
    """Means of resampled data: first groups, then values within each drawn group.

    Args:
        groups: one (n_g, ...) array per group, all with one shape behind n_g.
        draws: bootstrap samples.
        rng: of the resampling.

    Returns:
        (draws, ...) means over the drawn groups' means. A group drawn twice is resampled twice.
    """
    chosen = rng.integers(len(groups), size=(draws, len(groups)))
    means = np.empty((*chosen.shape, *groups[0].shape[1:]))
    for index, group in enumerate(groups):
        places = chosen == index
        means[places] = resample(group, int(places.sum()), rng).mean(axis=1)
    mean: Array = means.mean(axis=1)
    return mean


def hierarchical_interval(
    groups: Sequence[npt.ArrayLike], *seed: str | int, level: float = 0.95, draws: int = DRAWS
) -> Interval:
    """The mean of the group means, with a percentile interval in which the group is a random effect.

    Args:
        groups: one (n_g,) array per warm start: the runs that began there. With one group the interval is conditional on it.
        *seed: what names the random stream.
        level: coverage meant.
        draws: bootstrap samples.

    Raises:
        ValueError: for no group, an empty one, NaN or infinity.
    """
    found = finite_groups(groups)
    samples = hierarchical_means(found, draws, generator("hierarchical", *seed))
    estimate = float(np.mean([group.mean() for group in found]))
    return percentile_interval(estimate, samples, level, sum(map(len, found)), len(found))


def hierarchical_band(
    groups: Sequence[npt.ArrayLike], *seed: str | int, level: float = 0.95, draws: int = DRAWS
) -> tuple[Array, Array, Array]:
    """Mean curve and pointwise percentile band, whole runs being resampled.

    Args:
        groups: one (n_g, steps) array per warm start.
        *seed, level, draws: as in `hierarchical_interval`.

    Returns:
        Mean, lower and upper bound, (steps,) each. With a single run the band has no width: say so where you draw it.

    Raises:
        ValueError: as `hierarchical_interval`.
    """
    found = finite_groups(groups)
    samples = hierarchical_means(found, draws, generator("band", *seed))
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.mean([group.mean(axis=0) for group in found], axis=0), low, high


def interquartile_mean(values: Array, axis: int = -1) -> Array:
    """Mean of what is left when floor(n/4) values are cut off at each end (Agarwal et al. 2021, section 4.3).

    Fewer than four values leave nothing to cut: this is their mean.
    """
    n = values.shape[axis]
    ordered = np.sort(values, axis=axis)
    middle: Array = np.take(ordered, np.arange(n // 4, n - n // 4), axis=axis).mean(axis=axis)
    return middle


def stratified_interval(
    strata: Sequence[npt.ArrayLike], *seed: str | int, level: float = 0.95, draws: int = DRAWS
) -> Interval:
    """Interquartile mean over all values with the stratified bootstrap of Agarwal et al. (2021, section 4.2).

    Args:
        strata: one (n_s,) array per task (policy of a warm start): its runs, resampled within the stratum only. The strata
            are fixed, so the interval speaks of these alone.
        *seed, level, draws: as in `hierarchical_interval`. A stratum with one run hides how much runs differ: no bounds then.

    Raises:
        ValueError: as `hierarchical_interval`.
    """
    found = finite_groups(strata, "strata")
    everything = np.concatenate(found)
    estimate = float(interquartile_mean(everything))
    if min(map(len, found)) < 2:
        return Interval(estimate, math.nan, math.nan, len(everything), len(found))
    rng = generator("stratified", *seed)
    samples = interquartile_mean(np.concatenate([resample(values, draws, rng) for values in found], axis=1))
    return percentile_interval(estimate, samples, level, len(everything), len(found))


def superiority(x: Array, y: Array) -> Array:
    """P(X > Y) + P(X = Y)/2 over all pairs of (..., n) and (..., m): the Mann-Whitney statistic divided by n m."""
    left, right = x[..., :, None], y[..., None, :]
    share: Array = ((left > right) + 0.5 * (left == right)).mean(axis=(-2, -1))
    return share


def probability_of_improvement(
    x: Sequence[npt.ArrayLike],
    y: Sequence[npt.ArrayLike],
    *seed: str | int,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """Chance that a run of X beats a run of Y on the same task, averaged over tasks (Agarwal et al. 2021, section 4.3).

    Args:
        x, y: per task the (n,) and (m,) results of independent runs; ties count one half.
        *seed, level, draws: as in `hierarchical_interval`; runs are resampled within each task. There are no
            bounds if a task has one run.

    Raises:
        ValueError: if X and Y have different numbers of tasks, or as `hierarchical_interval`.
    """
    left, right = finite_groups(x, "x"), finite_groups(y, "y")
    if len(left) != len(right):
        raise ValueError(f"x has {len(left)} tasks and y {len(right)}; give the same tasks for both")
    estimate = float(np.mean([superiority(a, b) for a, b in zip(left, right, strict=True)]))
    n = sum(map(len, left))
    if min(map(len, (*left, *right))) < 2:
        return Interval(estimate, math.nan, math.nan, n, len(left))
    rng = generator("improvement", *seed)
    samples = [superiority(resample(a, draws, rng), resample(b, draws, rng)) for a, b in zip(left, right, strict=True)]
    return percentile_interval(estimate, np.mean(samples, axis=0), level, n, len(left))


def share_of_wins(differences: npt.ArrayLike) -> float:
    """Paired probability of improvement: share of positive differences, ties counting one half.

    Raises:
        ValueError: if there is none, or one is not finite.
    """
    values = finite(differences, "differences")
    return float((values > 0).mean() + 0.5 * (values == 0).mean())


# Student's t ------------------------------------------------------------------------------------------------------------


def student_cdf(t: float, degrees: float) -> float:
    """P(T <= t) of Student's t (Abramowitz and Stegun 26.7.1 and 26.5.27).

    Raises:
        ValueError: if the degrees of freedom are not positive.
    """
    if degrees <= 0:
        raise ValueError(f"degrees={degrees}: give a positive number of degrees of freedom")
    tail = float(betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)) / 2
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=256)
def student_quantile(probability: float, degrees: float) -> float:
    """The t with P(T <= t) = probability, by bisection.

    Raises:
        ValueError: if the probability is not strictly between 0 and 1, or the degrees are not positive.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability={probability}: give a number strictly between 0 and 1")
    if probability < 0.5:
        return -student_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while student_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def standard_error(values: Array) -> float:
    """Standard error of a mean; NaN for one value, and for several that do not differ at all.

    Rewards on a few hundred problems are discrete: two equal ones say nothing about how much a third would differ.
    """
    if len(values) < 2 or np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())):
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def independent_units(groups: Sequence[npt.ArrayLike]) -> Array:
    """The values that a t statistic may treat as independent: the group means, or, of a single group, its values.

    Raises:
        ValueError: for no group, an empty one, NaN or infinity.
    """
    found = finite_groups(groups)
    return found[0] if len(found) == 1 else np.array([group.mean() for group in found])


def cluster_interval(groups: Sequence[npt.ArrayLike], level: float = 0.95) -> Interval:
    """Mean of the group means with Student's t interval over them (over the values, if there is one group).

    Args:
        groups: one (n_g,) array per warm start, of paired differences for instance.
        level: coverage.

    Raises:
        ValueError: for no group, an empty one, NaN or infinity.
    """
    units = independent_units(groups)
    estimate, error = float(units.mean()), standard_error(units)
    total = sum(np.size(group) for group in groups)
    if math.isnan(error):
        return Interval(estimate, math.nan, math.nan, total, len(groups))
    reach = student_quantile((1 + level) / 2, len(units) - 1) * error
    return Interval(estimate, estimate - reach, estimate + reach, total, len(groups))


def cluster_p(groups: Sequence[npt.ArrayLike]) -> float:
    """Two-sided p of a t test that the mean is 0, on the same units as `cluster_interval`; NaN where that has no bounds.

    Raises:
        ValueError: as `cluster_interval`.
    """
    units = independent_units(groups)
    error = standard_error(units)
    return math.nan if math.isnan(error) else 2 * student_cdf(-abs(float(units.mean())) / error, len(units) - 1)


def equivalence_p(groups: Sequence[npt.ArrayLike], margin: float) -> float:
    """p of two one-sided t tests that the mean lies within plus or minus a margin (Schuirmann 1987).

    It is below 0.05 exactly if the 90 % `cluster_interval` lies within the margin.

    Args:
        groups: as in `cluster_interval`.
        margin: half the width of what counts as equal, positive.

    Returns:
        The larger of both p values; NaN for one value or no spread.

    Raises:
        ValueError: if the margin is not positive, or as `cluster_interval`.
    """
    if margin <= 0:
        raise ValueError(f"margin={margin}: give the positive difference below which two results count as equal")
    units = independent_units(groups)
    mean, error = float(units.mean()), standard_error(units)
    if math.isnan(error):
        return math.nan
    return student_cdf(max(-(mean + margin), mean - margin) / error, len(units) - 1)


def welch_interval(x: npt.ArrayLike, y: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Difference of the means of two independent samples with unequal variances (Welch 1947).

    Args:
        x, y: (n,) and (m,) independent values.
        level: coverage.

    Raises:
        ValueError: if one is empty or not finite.
    """
    a, b = finite(x, "x"), finite(y, "y")
    estimate, errors = float(a.mean() - b.mean()), np.array([standard_error(a), standard_error(b)]) ** 2
    if np.isnan(errors).any():
        return Interval(estimate, math.nan, math.nan, len(a) + len(b), 2)
    degrees = errors.sum() ** 2 / (errors[0] ** 2 / (len(a) - 1) + errors[1] ** 2 / (len(b) - 1))
    reach = student_quantile((1 + level) / 2, float(degrees)) * math.sqrt(errors.sum())
    return Interval(estimate, estimate - reach, estimate + reach, len(a) + len(b), 2)


# Tests without a distribution, several tests, curves --------------------------------------------------------------------


def signed_sums(values: Array) -> Array:
    """(2^n,) sums of (n,) values under every choice of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def sign_flip_p(differences: npt.ArrayLike) -> float:
    """Two-sided p of the paired permutation test on the mean: every choice of signs is counted (Fisher 1935).

    The sums of both halves are tabulated and joined, so 2^n choices cost 2^(n/2). Its smallest value is 2^(1-n): with five
    pairs or fewer it cannot fall below 0.05, whatever the data. Of more than `MAX_FLIPS` differences `RANDOM_FLIPS` choices
    are drawn, the same ones each time, and the data's own counts as one more (Phipson and Smyth 2010).

    Args:
        differences: (n,) paired differences.

    Returns:
        Share of sign choices whose sum is at least as far from 0 as the data's.

    Raises:
        ValueError: if there is none, or one is not finite.
    """
    values = finite(differences, "differences")
    threshold = abs(float(values.sum())) - 1e-9 * float(np.abs(values).sum())  # equal sums differ by rounding
    if threshold <= 0:
        return 1.0
    if len(values) > MAX_FLIPS:
        rng = generator("sign flips", len(values))
        sums = np.zeros(RANDOM_FLIPS)
        for value in values:
            sums += np.where(rng.random(RANDOM_FLIPS) < 0.5, value, -value)
        return float((1 + (np.abs(sums) >= threshold).sum()) / (1 + RANDOM_FLIPS))
    half = len(values) // 2
    left, right = signed_sums(values[:half]), signed_sums(values[half:])
    right.sort()
    above = len(right) - np.searchsorted(right, threshold - left, side="left")
    return float(2 * above.sum() / (len(left) * len(right)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values of several tests (Holm 1979): the familywise error is held without assuming independence.

    NaN stays NaN and does not count as a test.

    Raises:
        ValueError: if one is outside [0, 1].
    """
    if any(not 0 <= p <= 1 for p in p_values if not math.isnan(p)):
        raise ValueError(f"p_values={list(p_values)}: each must be in [0, 1]")
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def area_under_curve(steps: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Trapezoid area divided by the range of the steps: the mean height of the curve, in the unit of the values.

    Args:
        steps: (n,) increasing, n >= 2.
        values: (n,).

    Raises:
        ValueError: if the lengths differ, there are fewer than two points, or the steps do not increase.
    """
    x, y = finite(steps, "steps"), finite(values)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise ValueError(f"steps {x.shape} and values {y.shape}: give two or more points, one value per step")
    if (np.diff(x) <= 0).any():
        raise ValueError(f"steps={x.tolist()} must increase")
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (x[-1] - x[0]))


def share_at_or_above(curve: npt.ArrayLike, baseline: npt.ArrayLike) -> float:
    """Share of points at which a curve is at or above another of the same shape.

    Raises:
        ValueError: if the shapes differ, there is no point, or one is not finite.
    """
    a, b = finite(curve, "curve"), finite(baseline, "baseline")
    if a.shape != b.shape:
        raise ValueError(f"curve has shape {a.shape} and baseline {b.shape}; evaluate both at the same steps")
    return float((a >= b - 1e-12).mean())
