"""The statistics against SciPy 1.17.1 (its figures are written here: SciPy is no dependency), hand values and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.statistics import (
    Interval,
    area_under_curve,
    cluster_interval,
    cluster_p,
    equivalence_p,
    generator,
    hierarchical_band,
    hierarchical_interval,
    holm,
    interquartile_mean,
    probability_of_improvement,
    share_at_or_above,
    share_of_wins,
    sign_flip_p,
    stratified_interval,
    student_cdf,
    student_quantile,
    superiority,
    welch_interval,
)

DIFFERENCES = [0.036, 0.035, 0.038, 0.012, -0.004, 0.021, 0.05]
X = np.array([0.587, 0.591, 0.580, 0.602, 0.577])
Y = np.array([0.551, 0.556, 0.560, 0.549, 0.571])
SCORES = np.array([0.1, 0.9, 0.3, 0.5, 0.45, 0.7, 0.2, 0.65, 0.8, 0.05])


@pytest.mark.parametrize(
    ("t", "degrees", "expected"),
    [
        (0.7, 1, 0.6944001122142147),
        (-2.5, 3, 0.04385332350403278),
        (1.3, 2.7, 0.8532736781480773),
        (4.0, 30, 0.9998090771819581),
        (0.0, 5, 0.5),
    ],
)
def test_student_cdf_is_that_of_scipy(t: float, degrees: float, expected: float) -> None:
    assert student_cdf(t, degrees) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [(0.975, 1, 12.7062047362), (0.975, 2, 4.3026527297), (0.95, 2, 2.9199855804), (0.1, 7.5, -1.4052118464)],
)
def test_student_quantile_is_that_of_scipy(probability: float, degrees: float, expected: float) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(expected, abs=1e-9)


def test_t_interval_and_p_are_those_of_scipy() -> None:
    one_sample = cluster_interval([DIFFERENCES])
    assert (one_sample.low, one_sample.high) == pytest.approx((0.009900836757969014, 0.0438134489563167), abs=1e-12)
    assert cluster_p([DIFFERENCES]) == pytest.approx(0.008211751652116846, abs=1e-12)
    assert cluster_p([X - Y]) == pytest.approx(0.019592985164546967, abs=1e-12), "ttest_rel"
    welch = welch_interval(X, Y[:4])
    assert (welch.low, welch.high) == pytest.approx((0.021070581343857503, 0.045729418656142246), abs=1e-12)


def test_with_several_groups_their_means_are_the_units() -> None:
    groups = [[0.01, 0.03], [0.05], [0.03, 0.05, 0.04]]
    assert cluster_interval(groups).estimate == pytest.approx((0.02 + 0.05 + 0.04) / 3)
    means_only = cluster_interval([[0.02, 0.05, 0.04]])
    found = cluster_interval(groups)
    assert (found.low, found.high) == pytest.approx((means_only.low, means_only.high))
    assert (found.n, found.groups) == (6, 3)


def test_two_one_sided_tests_are_those_of_scipy() -> None:
    """ttest_1samp against -0.03 gives 8.84e-5 and against +0.03 gives 0.3331: the larger counts."""
    assert equivalence_p([DIFFERENCES], 0.03) == pytest.approx(0.3330521051008833, abs=1e-12)


@pytest.mark.parametrize("margin", [0.02, 0.035, 0.0405, 0.0410, 0.05])
def test_equivalence_is_the_90_percent_interval_within_the_margin(margin: float) -> None:
    interval = cluster_interval([DIFFERENCES], level=0.9)
    assert (equivalence_p([DIFFERENCES], margin) < 0.05) == interval.within(-margin, margin)


def test_percentile_bootstrap_is_that_of_scipy() -> None:
    """`scipy.stats.bootstrap(..., method="percentile")` with 400,000 resamples gives [0.29, 0.64]."""
    found = hierarchical_interval([SCORES], "scipy", draws=40_000)
    assert found.estimate == pytest.approx(0.465)
    assert (found.low, found.high) == pytest.approx((0.29, 0.64), abs=0.006)


def test_stratified_bootstrap_of_the_interquartile_mean_is_that_of_scipy() -> None:
    """One stratum: `bootstrap` of `trim_mean(., 0.25)` gives [0.2333, 0.6917]."""
    found = stratified_interval([SCORES], "scipy", draws=40_000)
    assert (found.low, found.high) == pytest.approx((0.23333, 0.69167), abs=0.01)


def test_strata_are_resampled_apart() -> None:
    """Within each stratum the values agree, so that no resampling within strata can change anything; across, it would."""
    found = stratified_interval([[0.1, 0.1], [0.9, 0.9]])
    assert found.estimate == pytest.approx(0.5)
    assert not found.known


@pytest.mark.parametrize(("n", "expected"), [(10, 0.4666666667), (7, 0.43), (3, 0.4333333333)])
def test_interquartile_mean_is_trim_mean_of_scipy(n: int, expected: float) -> None:
    assert float(interquartile_mean(SCORES[:n])) == pytest.approx(expected)


def test_interquartile_mean_by_hand() -> None:
    """Of 1..8 the middle half is 3, 4, 5, 6; an outlier does not move it."""
    assert float(interquartile_mean(np.array([8.0, 1, 7, 2, 6, 3, 5, 4]))) == 4.5
    assert float(interquartile_mean(np.array([8e9, 1, 7, 2, 6, 3, 5, 4]))) == 4.5


def test_hierarchical_bootstrap_of_two_groups_by_enumeration() -> None:
    """Groups (0, 1) and (10, 11), drawn twice with replacement: the distribution of the mean has 2 * 2 * 4 * 4 equal cases.

    Both draws are the first group in a quarter of the cases, and then the mean is 0 with chance 1/16: P(mean = 0) = 1/64.
    So the 1/128 quantile is 0, the 1/64 + 1/1000 quantile above 0.
    """
    groups = [[0.0, 1.0], [10.0, 11.0]]
    assert hierarchical_interval(groups, level=1 - 2 / 128, draws=40_000).low == 0.0
    assert hierarchical_interval(groups, level=1 - 2 * (1 / 64 + 0.004), draws=40_000).low == 0.25
    assert hierarchical_interval(groups).estimate == 5.5


def test_groups_weigh_alike_whatever_their_size() -> None:
    assert hierarchical_interval([[0.0, 0.0, 0.0, 0.0], [1.0]]).estimate == 0.5


def test_the_same_seed_gives_the_same_interval_and_another_another() -> None:
    groups = [SCORES[:5], SCORES[5:]]
    assert hierarchical_interval(groups, "a") == hierarchical_interval(groups, "a")
    assert hierarchical_interval(groups, "a") != hierarchical_interval(groups, "b")


def test_coverage_with_warm_starts_as_a_random_effect() -> None:
    """3 warm starts (sd 1) of 2 runs (sd 0.5), truth 0, 600 experiments.

    Student's t over the warm starts keeps its 95 %; the percentile bootstrap covers about 79 %, as the module says; treating
    the six runs as independent (one group) covers less than that.
    """
    rng = generator("coverage")
    covered = np.zeros(3)
    for trial in range(600):
        data = list(rng.normal(0, 1, (3, 1)) + rng.normal(0, 0.5, (3, 2)))
        intervals = (
            cluster_interval(data),
            hierarchical_interval(data, trial, draws=300),
            hierarchical_interval([np.concatenate(data)], trial, draws=300),
        )
        covered += [interval.low < 0 < interval.high for interval in intervals]
    exact, bootstrap, naive = covered / 600
    assert 0.92 < exact < 0.98
    assert 0.74 < bootstrap < 0.84
    assert naive < bootstrap


def test_the_band_is_the_interval_at_each_step() -> None:
    curves = [np.array([[0.1, 0.4], [0.2, 0.8]]), np.array([[0.3, 0.5]])]
    mean, low, high = hierarchical_band(curves, draws=2000)
    assert mean == pytest.approx([(0.15 + 0.3) / 2, (0.6 + 0.5) / 2])
    assert (low < mean).all() and (mean < high).all()
    assert low[0] >= 0.1 and high[0] <= 0.3


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.1], [0.0, 0.0, 0.0]])
def test_one_value_or_no_spread_gives_no_interval(values: list[float]) -> None:
    for interval in (cluster_interval([values]), hierarchical_interval([values]), stratified_interval([values])):
        assert interval.estimate == pytest.approx(values[0])
        assert not interval.known
        assert not interval.within(-1, 1)
        assert not interval.low > -1
        assert not interval.high < 1
    assert math.isnan(cluster_p([values]))
    assert math.isnan(equivalence_p([values], 0.5))


def test_one_run_of_each_of_two_groups_is_two_values() -> None:
    found = cluster_interval([[0.1], [0.2]])
    assert found.known and found.high - found.estimate == pytest.approx(12.7062047 * 0.05)


def test_interval_within_is_strict() -> None:
    assert Interval(0, -0.01, 0.01, 5, 1).within(-0.015, 0.015)
    assert not Interval(0, -0.015, 0.01, 5, 1).within(-0.015, 0.015)


def test_superiority_is_mann_whitney_over_the_pairs() -> None:
    """`mannwhitneyu(...).statistic / (n m)` of SciPy; the second has ties."""
    assert float(superiority(X, Y)) == 1.0
    assert float(superiority(np.array([1.0, 2, 2, 5]), np.array([2.0, 3, 0]))) == pytest.approx(0.5833333333)


def test_probability_of_improvement_averages_tasks() -> None:
    """Task 1: X wins all 4 comparisons; task 2: one win, one tie, two losses = 0.375."""
    found = probability_of_improvement([[2.0, 3.0], [1.0, 4.0]], [[0.0, 1.0], [4.0, 3.5]])
    assert found.estimate == pytest.approx((1.0 + 0.375) / 2)
    assert found.low <= found.estimate <= found.high
    assert not probability_of_improvement([[2.0, 3.0]], [[0.0, 1.0]]).known, "always won: the bootstrap has no spread"
    assert probability_of_improvement([[1.0]], [[1.0]]).estimate == 0.5


def test_share_of_wins_counts_ties_half() -> None:
    assert share_of_wins([1.0, 2.0, 0.0, -1.0]) == 0.625


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        (DIFFERENCES, 0.03125),
        (list(X - Y), 0.0625),
        ([1.0, -2, 3, 3, -1, 0, 5, 4], 0.140625),
        ([0.3], 1.0),
        ([0.0, 0.0], 1.0),
        ([0.1, 0.1], 0.5),
    ],
)
def test_sign_flips_are_the_permutation_test_of_scipy(differences: list[float], expected: float) -> None:
    """`permutation_test(permutation_type="samples", n_resamples=inf)`; the last three by hand."""
    assert sign_flip_p(differences) == pytest.approx(expected, abs=1e-12)


def test_sign_flips_of_forty_pairs_are_near_the_normal_limit() -> None:
    values = generator("forty").normal(0.3, 1, 40)
    z = abs(values.sum()) / math.sqrt(float((values**2).sum()))
    assert sign_flip_p(values) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.05)


def test_of_many_pairs_signs_are_drawn() -> None:
    """Against the exact p of the normal limit, erfc(|z| / sqrt 2), within three Monte-Carlo errors; and never 0."""
    for n in (41, 300):
        values = generator("many").normal(0.1, 1, n)
        z = abs(values.sum()) / math.sqrt(float((values**2).sum()))
        expected = math.erfc(z / math.sqrt(2))
        assert sign_flip_p(values) == pytest.approx(expected, abs=3 * math.sqrt(expected / 20_000) + 0.005)
        assert sign_flip_p(values) == sign_flip_p(values)
    assert sign_flip_p(np.ones(41)) == 1 / 20_001


def test_holm_by_hand() -> None:
    """Ordered .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04; made monotone .04 .06 .06 .06."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
    adjusted = holm([0.01, math.nan, 0.5])
    assert math.isnan(adjusted[1]) and [adjusted[0], adjusted[2]] == pytest.approx([0.02, 0.5])


def test_area_under_curve_by_hand() -> None:
    """From 0 to 1 over 10 steps, then flat at 1 for 30: (5 + 30) / 40."""
    assert area_under_curve([0, 10, 40], [0.0, 1.0, 1.0]) == pytest.approx(0.875)
    assert area_under_curve([20, 60], [0.5, 0.5]) == 0.5


def test_share_at_or_above_counts_equality() -> None:
    assert share_at_or_above([[0.1, 0.2], [0.3, 0.4]], [[0.1, 0.3], [0.2, 0.1]]) == 0.75


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="groups is empty"):
        cluster_interval([])
    with pytest.raises(ValueError, match=r"groups\[1\] is empty"):
        hierarchical_interval([[0.1], []])
    with pytest.raises(ValueError, match=r"groups\[0\] holds nan"):
        cluster_interval([[0.1, float("nan")]])
    with pytest.raises(ValueError, match="strata is empty"):
        stratified_interval([])
    with pytest.raises(ValueError, match="x has 1 tasks and y 2"):
        probability_of_improvement([[1.0]], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="margin=0"):
        equivalence_p([[1.0, 2.0]], 0)
    with pytest.raises(ValueError, match=r"p_values=.*must be in \[0, 1\]"):
        holm([1.5])
    with pytest.raises(ValueError, match="must increase"):
        area_under_curve([0, 0], [1.0, 1.0])
    with pytest.raises(ValueError, match="two or more points"):
        area_under_curve([0], [1.0])
    with pytest.raises(ValueError, match="evaluate both at the same steps"):
        share_at_or_above([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="degrees=0"):
        student_cdf(1.0, 0)
    with pytest.raises(ValueError, match="probability=1"):
        student_quantile(1, 3)
