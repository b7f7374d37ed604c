"""The propositions of docs/theory.md: exact identities, simulations, sign conditions, counterexamples, the command line."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithms.algorithm import Algorithm
from algorithms.grpo import GRPO
from algorithms.losses import LossConfig, batch_loss, denominators
from algorithms.prp import PRP
from algorithms.samples import Group, collate
from algorithms.sgt import SGT
from algorithms.xgrpo import XGRPO
from benchmarks.bandit.__main__ import main
from benchmarks.bandit.groups import (
    METHODS,
    Method,
    Prompt,
    advantage_tables,
    gate_probability,
    gradient_moments,
    rescue_product,
    sample_gradients,
)
from benchmarks.bandit.policy import chi_square, importance_weights, score_norms, softmax, success_gradient
from benchmarks.bandit.propositions import EXAMPLE, LEARNER, MASKED, PEER, REWARDS, all_checks, generator
from benchmarks.bandit.rows import (
    baseline_variance,
    best_baseline,
    clipped_weights,
    minimal_variance_sampler,
    row_moments,
    sample_rows,
)
from benchmarks.bandit.trajectories import complementary_logits, first_above, train, train_all
from mrl_env.tokenization import Retokenized
from mrl_env.types import Completion, Experience, Problem, user_message
from verifiers import Verdict

OWN_SAMPLES = ("grpo", "xgrpo", "grpo_centred", "xgrpo_centred")
"""Methods whose rows are all the learner's own."""


unhurried = settings(deadline=None, max_examples=60)


def spread(p: np.ndarray) -> np.ndarray:
    """(K, K) scores, row y is e_y - p."""
    return np.eye(len(p)) - p


@st.composite
def prompts(draw: st.DrawFn, own: int = 4, peers: int = 4, successes: int | None = None) -> Prompt:
    """Random policies on 3 to 6 answers, at least one right and one wrong."""
    answers = draw(st.integers(3, 6))
    logits = st.lists(st.floats(-6, 6), min_size=answers, max_size=answers)
    p, q = softmax(np.array(draw(logits))), softmax(np.array(draw(logits)))
    right = successes if successes is not None else draw(st.integers(1, answers - 1))
    return Prompt(p, q, (np.arange(answers) < right).astype(float), own, peers)


# The policy


def test_the_gradient_is_that_of_the_success_probability() -> None:
    logits, step = np.array([0.3, -1.0, 0.7, 0.1]), 1e-6
    rewards = np.array([1.0, 0.0, 1.0, 0.0])
    numeric = [
        (softmax(logits + step * e) @ rewards - softmax(logits - step * e) @ rewards) / (2 * step) for e in np.eye(4)
    ]
    assert success_gradient(softmax(logits), rewards) == pytest.approx(numeric, abs=1e-9)


def test_score_norms_of_an_almost_certain_answer() -> None:
    p = np.array([1 - 3e-9, 1e-9, 2e-9])
    # (3e-9)^2 + (1e-9)^2 + (2e-9)^2, far below what is left of 1 - 2 p + sum p^2
    assert score_norms(p)[0] == pytest.approx(14e-18, rel=1e-12)


def test_score_norms_and_chi_square_by_hand() -> None:
    p = np.array([0.5, 0.25, 0.25])
    assert score_norms(p) == pytest.approx((spread(p) ** 2).sum(axis=1), abs=1e-15)
    assert chi_square(np.array([0.5, 0.5]), np.array([0.25, 0.75])) == pytest.approx(1 / 3, abs=1e-15)
    assert chi_square(p, p) == pytest.approx(0, abs=1e-15)
    assert chi_square(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == float("inf")
    assert softmax(np.array([0.0, -np.inf])).tolist() == [1.0, 0.0]


# All propositions: exact against simulated


def test_every_exact_value_lies_within_four_standard_errors_of_the_simulation() -> None:
    checks = all_checks(20_000, seed=1)
    assert len(checks) >= 30
    assert {found.quantity: found.deviation for found in checks if abs(found.deviation) > 4} == {}
    assert [found.proposition for found in checks] == sorted(found.proposition for found in checks)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_whole_expected_gradient_agrees_with_the_simulation(name: str) -> None:
    values = sample_gradients(METHODS[name], EXAMPLE, 20_000, generator(2, name))
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - gradient_moments(METHODS[name], EXAMPLE).mean) < 4 * error)


# The rows are those of the algorithms


def retokenize(record: Experience, *, traced: bool = False) -> Retokenized:
    """Answers are single tokens, their text the token's number; the trace is the peer's log-prob."""
    assert record.text is not None
    return Retokenized((int(record.text),), (float(np.log(PEER3[int(record.text)])),) if traced else None, 0.0)


LEARNER3, PEER3 = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.1, 0.3])


def gradient_of_rows(algorithm: Algorithm, own: Sequence[int], peers: Sequence[int], epsilon: float) -> np.ndarray:
    """Minus the gradient, in the logits, of the suite's loss of the suite's rows; answer 0 is right."""
    verdicts = [Verdict(float(y == 0), str(y), "right" if y == 0 else "wrong") for y in range(3)]
    logprobs = torch.log_softmax(
        logits := torch.tensor(np.log(LEARNER3), requires_grad=True), dim=0
    )  # the learner is its own snapshot
    problem = Problem("p", user_message("?"), "0")
    group = Group(
        problem,
        "policy_0",
        (0,),
        tuple(Completion(str(y), (y,), (float(np.log(LEARNER3[y])),)) for y in own),
        tuple(verdicts[y] for y in own),
    )
    records = [Experience("p", "policy_1", i, "stop", 0, text=str(y), verdict=verdicts[y]) for i, y in enumerate(peers)]
    rows = algorithm.rows(group, records, retokenize)  # type: ignore[arg-type]
    answers = torch.tensor([int(row.token_ids[1]) for row in rows])
    old = [
        np.array([0.0, np.log(LEARNER3[row.token_ids[1]])]) if row.old_logprobs is None else row.old_logprobs
        for row in rows
    ]
    scored = torch.stack([torch.zeros(len(rows), dtype=torch.float64), logprobs[answers]], dim=1)
    config = LossConfig(epsilon=epsilon, epsilon_high=epsilon)
    batch = collate(rows, old, "policy_0", "cpu")
    batch_loss(scored, None, batch, config, denominators([[rows]], "grpo")[0]).total.backward()
    assert logits.grad is not None
    return -logits.grad.numpy()


@pytest.mark.parametrize(
    ("name", "algorithm", "epsilon"),
    [
        ("grpo", GRPO(), 0.2),
        ("xgrpo", XGRPO(), 0.2),
        ("prp_s", PRP(), 0.2),
        ("prp_t", PRP(prp_denominator="trace"), 1e6),
        ("prp_t_clipped", PRP(prp_denominator="trace"), 0.2),
        ("sgt", SGT(), 0.2),
        ("grpo_centred", GRPO(scale_rewards=False), 0.2),
        ("xgrpo_centred", XGRPO(scale_rewards=False), 0.2),
        ("prp_t_centred", PRP(prp_denominator="trace", scale_rewards=False), 1e6),
    ],
)
def test_moments_are_those_of_the_suites_own_rows_and_loss(name: str, algorithm: Algorithm, epsilon: float) -> None:
    """Every outcome of two own and two peer samples, through `rows` and `batch_loss`, weighted by its probability."""
    mean, second = np.zeros(3), 0.0
    for own in itertools.product(range(3), repeat=2):
        for peers in itertools.product(range(3), repeat=2):
            chance = LEARNER3[list(own)].prod() * PEER3[list(peers)].prod()
            gradient = gradient_of_rows(algorithm, own, peers, epsilon)
            mean, second = mean + chance * gradient, second + chance * gradient @ gradient
    exact = gradient_moments(METHODS[name], Prompt(LEARNER3, PEER3, np.eye(3)[0], 2, 2))
    # The suite's streams are float32.
    assert exact.mean == pytest.approx(mean, abs=1e-6)
    assert exact.second == pytest.approx(second, abs=1e-6)


# 1. The ratio with the trace as denominator


@unhurried
@given(prompts(), st.floats(-1, 1))
def test_1a_the_traced_row_is_unbiased(prompt: Prompt, baseline: float) -> None:
    p, q, rewards = prompt.p, prompt.q, prompt.rewards
    moments = row_moments(p, q, importance_weights(p, q) * (rewards - baseline))
    assert moments.mean == pytest.approx(success_gradient(p, rewards), abs=1e-12)


def test_1a_where_the_peer_never_goes_the_row_is_biased() -> None:
    """Two answers, the learner on both with 1/2, the peer never on the right one: E g = (1/2) A s of the other."""
    p, q, rewards = np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([1.0, 0.0])
    moments = row_moments(p, q, importance_weights(p, q) * rewards)
    assert moments.mean.tolist() == [0.0, 0.0]
    assert success_gradient(p, rewards).tolist() == [0.25, -0.25]


@unhurried
@given(prompts(), st.floats(-1, 1))
def test_1b_the_second_moment_is_one_plus_chi_square_times_a_tilted_mean(prompt: Prompt, baseline: float) -> None:
    p, q = prompt.p, prompt.q
    advantages = prompt.rewards - baseline
    growth = 1 + chi_square(p, q)
    second = row_moments(p, q, importance_weights(p, q) * advantages).second
    sizes = advantages**2 * score_norms(p)
    tilted = p**2 / q / (p**2 / q).sum()
    assert second == pytest.approx(growth * (tilted @ sizes), rel=1e-10)
    assert growth * sizes.min() * (1 - 1e-10) <= second <= growth * sizes.max() * (1 + 1e-10)
    by_definition = sum(
        q[y] * ((p[y] / q[y] * advantages[y] * spread(p)[y]) ** 2).sum() for y in range(len(p))
    )  # the sum over outcomes
    assert second == pytest.approx(by_definition, rel=1e-10)


def test_1c_more_chi_square_can_mean_less_variance() -> None:
    advantages = REWARDS - LEARNER @ REWARDS
    best = minimal_variance_sampler(LEARNER, advantages)
    sampled = row_moments(LEARNER, best, importance_weights(LEARNER, best) * advantages)
    assert chi_square(LEARNER, best) > 0.5
    assert sampled.variance < 0.3 * row_moments(LEARNER, LEARNER, advantages).variance


@unhurried
@given(prompts(), st.floats(0.01, 0.99))
def test_1c_no_sampler_beats_the_best(prompt: Prompt, baseline: float) -> None:
    p, q, advantages = prompt.p, prompt.q, prompt.rewards - baseline
    best = minimal_variance_sampler(p, advantages)
    least = row_moments(p, best, importance_weights(p, best) * advantages).second
    assert least == pytest.approx(float(p @ (np.abs(advantages) * np.sqrt(score_norms(p)))) ** 2, rel=1e-10)
    assert least <= row_moments(p, q, importance_weights(p, q) * advantages).second * (1 + 1e-10)


@unhurried
@given(prompts(), st.integers(1, 8), st.integers(1, 8))
def test_1d_when_peers_rows_pay(prompt: Prompt, own: int, peers: int) -> None:
    """Mean of G own and M peer rows against the mean of G own rows: better exactly if V_peer < (2 + M/G) V_own."""
    p, q, advantages = prompt.p, prompt.q, prompt.rewards - prompt.p @ prompt.rewards
    one = row_moments(p, p, advantages).variance
    other = row_moments(p, q, importance_weights(p, q) * advantages).variance
    threshold = (2 + peers / own) * one
    assume(abs(other - threshold) > 1e-9 * threshold)
    assert ((own * one + peers * other) / (own + peers) ** 2 < one / own) == (other < threshold)


@unhurried
@given(prompts(own=3, peers=2))
def test_1d_the_joint_mean_shrinks_the_gradient_by_one_in_all_rows(prompt: Prompt) -> None:
    moments = gradient_moments(METHODS["prp_t_centred"], prompt)
    assert moments.mean == pytest.approx((1 - 1 / 5) * success_gradient(prompt.p, prompt.rewards), abs=1e-12)


# 2. The snapshot, the residual, the clip


@unhurried
@given(prompts(), st.floats(-1, 1))
def test_2a_the_snapshot_climbs_another_objective(prompt: Prompt, baseline: float) -> None:
    p, q, advantages = prompt.p, prompt.q, prompt.rewards - baseline
    moments = row_moments(p, q, advantages)
    assert moments.mean == pytest.approx(q * advantages - (q @ advantages) * p, abs=1e-12)
    bias = moments.mean - success_gradient(p, prompt.rewards)
    assert bias == pytest.approx(((q - p) * advantages) @ spread(p), abs=1e-12)
    largest = np.abs(advantages).max()
    assert np.linalg.norm(bias) <= np.sqrt(2) * largest * np.abs(q - p).sum() + 1e-12
    assert moments.second <= 2 * largest**2 + 1e-12


@unhurried
@given(prompts())
def test_2a_with_the_peers_mean_as_baseline_it_is_the_peers_own_gradient(prompt: Prompt) -> None:
    p, q, rewards = prompt.p, prompt.q, prompt.rewards
    assert row_moments(p, q, rewards - q @ rewards).mean == pytest.approx(success_gradient(q, rewards), abs=1e-12)


def test_2a_the_snapshots_objective_is_the_weighted_log_likelihood() -> None:
    logits, advantages, step = np.log(LEARNER), REWARDS - 0.3, 1e-6

    def objective(at: np.ndarray) -> float:
        return float(PEER @ (advantages * np.log(softmax(at))))

    numeric = [(objective(logits + step * e) - objective(logits - step * e)) / (2 * step) for e in np.eye(6)]
    assert row_moments(LEARNER, PEER, advantages).mean == pytest.approx(numeric, abs=1e-8)


@unhurried
@given(prompts(), st.floats(0, 1), st.data())
def test_2b_the_residual_of_a_trace_bounds_bias_and_second_moment(
    prompt: Prompt, bound: float, data: st.DataObject
) -> None:
    p, q, advantages = prompt.p, prompt.q, prompt.rewards - prompt.p @ prompt.rewards
    errors = bound * np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(p), max_size=len(p))))
    weights = importance_weights(p, q)
    exact, off = row_moments(p, q, weights * advantages), row_moments(p, q, weights * np.exp(-errors) * advantages)
    bias = off.mean - success_gradient(p, prompt.rewards)
    assert bias == pytest.approx((p * advantages * np.expm1(-errors)) @ spread(p), abs=1e-12)
    size = float(p @ (np.abs(advantages) * np.sqrt(score_norms(p))))
    assert np.linalg.norm(bias) <= np.expm1(bound) * size + 1e-12
    assert np.exp(-2 * bound) * exact.second * (1 - 1e-10) <= off.second
    assert off.second <= np.exp(2 * bound) * exact.second * (1 + 1e-10)
    if np.expm1(bound) * size < np.linalg.norm(success_gradient(p, prompt.rewards)) * (1 - 1e-9):
        assert off.mean @ success_gradient(p, prompt.rewards) > 0


def test_2c_what_the_clip_leaves() -> None:
    weights = np.array([0.5, 1.0, 1.5, 0.5, 1.0, 1.5])
    advantages = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    assert clipped_weights(weights, advantages).tolist() == [0.5, 1.0, 0.0, 0.0, 1.0, 1.5]


# 3. XGRPO


@pytest.mark.parametrize("name", [*OWN_SAMPLES, "prp_t", "prp_t_clipped"])
def test_3a_no_gradient_on_what_the_learner_cannot_say(name: str) -> None:
    assert np.all(sample_gradients(METHODS[name], MASKED, 2000, generator(3, name))[:, :2] == 0)
    assert gradient_moments(METHODS[name], MASKED).mean[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["prp_s", "sgt"])
def test_3a_rows_that_carry_the_answer_have_one(name: str) -> None:
    """Though at a logit of -inf it moves nothing: there the support is the model's, not the method's."""
    assert gradient_moments(METHODS[name], MASKED).mean[1] > 0.05


@unhurried
@given(prompts(), st.sampled_from([*OWN_SAMPLES, "prp_t"]))
def test_3b_the_mean_is_a_positive_multiple_of_the_gradient(prompt: Prompt, name: str) -> None:
    gradient, mean = success_gradient(prompt.p, prompt.rewards), gradient_moments(METHODS[name], prompt).mean
    length = mean @ gradient / (gradient @ gradient)
    assert length > 0
    assert mean == pytest.approx(length * gradient, abs=1e-12)


@unhurried
@given(prompts(own=3, peers=2))
def test_3b_without_scaling_the_multiple_is_known(prompt: Prompt) -> None:
    gradient = success_gradient(prompt.p, prompt.rewards)
    for name, multiple in (("grpo_centred", 1 - 1 / 3), ("xgrpo_centred", 1 - 1 / 5)):
        assert gradient_moments(METHODS[name], prompt).mean == pytest.approx(multiple * gradient, abs=1e-12)


@unhurried
@given(prompts(), st.sampled_from(OWN_SAMPLES))
def test_3a_own_samples_move_a_rare_answer_at_the_square_of_its_probability(prompt: Prompt, name: str) -> None:
    gradient, mean = success_gradient(prompt.p, prompt.rewards), gradient_moments(METHODS[name], prompt).mean
    success = float(prompt.p @ prompt.rewards)
    tables = advantage_tables(METHODS[name].rule, prompt.own, prompt.peers)
    bound = tables[0].max() - tables[1].min()
    assert mean @ gradient <= 2 * bound * success**2 * (1 - success) ** 2 + 1e-12


@pytest.mark.parametrize("name", OWN_SAMPLES)
def test_3a_a_sampled_gradient_touches_a_rare_answer_in_proportion(name: str) -> None:
    """E |g(y)| <= 2 max|A| p(y) (1 - p(y)), whatever the peer earns."""
    prompt = Prompt(rare(0.002), rare(0.9), np.eye(5)[0], 4, 4)
    values = np.abs(sample_gradients(METHODS[name], prompt, 20_000, generator(4, name))[:, 0])
    bound = 2 * np.abs(advantage_tables(METHODS[name].rule, 4, 4)[:2]).max() * 0.002 * 0.998
    assert 0 < values.mean() <= bound + 4 * values.std() / np.sqrt(len(values))


@unhurried
@given(prompts(own=4, peers=4, successes=1))
def test_3b_xgrpo_rejects_failures_along_the_gradient(prompt: Prompt) -> None:
    """E[-s | failure] = grad J / (1 - J): the rescue set adds to XGRPO's mean, where GRPO has nothing."""
    p, rewards = prompt.p, prompt.rewards
    success = float(p @ rewards)
    failing = p * (1 - rewards) / (1 - success)
    assert -(failing @ spread(p)) == pytest.approx(success_gradient(p, rewards) / (1 - success), abs=1e-12)
    assert advantage_tables(METHODS["xgrpo"].rule, 4, 4)[1, 0, 1:].max() < 0
    assert advantage_tables(METHODS["grpo"].rule, 4, 4)[:, 0].any() == np.False_


@unhurried
@given(prompts(), st.floats(0, 1), st.floats(0, 1))
def test_3c_the_variance_of_a_shifted_baseline(prompt: Prompt, own: float, pool: float) -> None:
    p, rewards = prompt.p, prompt.rewards
    best, size = best_baseline(p, rewards), float(p @ score_norms(p))
    for mean in (own, pool):
        expected = row_moments(p, p, rewards - mean).variance
        assert baseline_variance(p, rewards, mean) == pytest.approx(expected, abs=1e-12)
    shift = row_moments(p, p, rewards - pool).variance - row_moments(p, p, rewards - own).variance
    assert shift == pytest.approx(size * ((pool - best) ** 2 - (own - best) ** 2), abs=1e-12)


def test_3c_a_baseline_estimated_from_more_rewards() -> None:
    """An independent mean of n rewards as baseline: the spread of the estimate counts as size * J (1 - J) / n."""
    success, rng = float(LEARNER @ REWARDS), generator(5)
    for count in (8, 16):
        baselines = rng.binomial(count, success, size=40_000) / count
        scores = sample_rows(LEARNER, LEARNER, np.ones(6), 40_000, rng)
        # The sampled answer is the positive entry of its score, e_y - p.
        values = (REWARDS[scores.argmax(axis=1)] - baselines)[:, None] * scores
        squares = ((values - success_gradient(LEARNER, REWARDS)) ** 2).sum(axis=1)
        exact = baseline_variance(LEARNER, REWARDS, success, success * (1 - success) / count)
        assert abs(squares.mean() - exact) < 4 * squares.std() / 200


def relative_variance(method: Method, prompt: Prompt) -> float:
    """Variance over the squared length of the mean."""
    moments = gradient_moments(method, prompt)
    return moments.variance / float(moments.mean @ moments.mean)


def rare(success: float, answers: int = 5) -> np.ndarray:
    return np.array([success] + [(1 - success) / (answers - 1)] * (answers - 1))


def test_3d_the_pool_lowers_the_noise_where_the_policies_agree_and_raises_it_where_they_complement() -> None:
    rewards = np.eye(5)[0]
    agree, complement = (Prompt(rare(p), rare(q), rewards) for p, q in ((0.5, 0.5), (0.01, 0.9)))
    ratios = [
        relative_variance(METHODS["xgrpo"], prompt) / relative_variance(METHODS["grpo"], prompt)
        for prompt in (agree, complement)
    ]
    assert ratios[0] < 0.9
    assert ratios[1] > 10
    # And without the std the variance itself, before it is compared with the mean, can grow even where they agree.
    raw = [gradient_moments(METHODS[name], agree).variance for name in ("grpo", "xgrpo")]
    assert raw[1] > raw[0]


def test_3d_between_equal_policies_in_a_sweep() -> None:
    """Observed, not proved: without the std the pool never adds relative noise; with it, it can, by less than 1 %."""
    rng, ratios = generator(6), []
    for _ in range(300):
        p = softmax(1.5 * rng.normal(size=5))
        prompt = Prompt(p, p, (np.arange(5) < rng.integers(1, 5)).astype(float))
        ratios.append(
            [
                relative_variance(METHODS["xgrpo" + kind], prompt) / relative_variance(METHODS["grpo" + kind], prompt)
                for kind in ("_centred", "")
            ]
        )
    centred, scaled = np.array(ratios).T
    assert centred.max() < 1
    assert 1 < scaled.max() < 1.01


# 4. SGT


@pytest.mark.parametrize(("own", "peer"), [(0.0, 0.0), (0.3, 0.6), (1.0, 0.5), (0.0, 1.0)])
def test_4a_the_gate_by_enumeration(own: float, peer: float) -> None:
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=5):
        mine, theirs = outcome[:2], outcome[2:]
        if not any(mine) and any(theirs):
            total += float(np.prod([own if s else 1 - own for s in mine] + [peer if s else 1 - peer for s in theirs]))
    assert gate_probability(own, peer, 2, 3) == pytest.approx(total, abs=1e-15)


@unhurried
@given(prompts())
def test_4a_sgt_is_grpo_and_the_rescue_in_proportion_to_the_gate(prompt: Prompt) -> None:
    p, q, rewards = prompt.p, prompt.q, prompt.rewards
    extra = gradient_moments(METHODS["sgt"], prompt).mean - gradient_moments(METHODS["grpo"], prompt).mean
    transferred = q * rewards / (q @ rewards)
    gate = gate_probability(float(p @ rewards), float(q @ rewards), prompt.own, prompt.peers)
    assert extra == pytest.approx(0.1 * gate * (transferred - p), abs=1e-12)


def test_4a_outside_the_rescue_set_sgt_adds_nothing() -> None:
    for p, q in (((1.0, 0.0), (0.5, 0.5)), ((0.5, 0.5), (0.0, 1.0)), ((1.0, 0.0), (0.0, 1.0))):
        prompt = Prompt(np.array(p), np.array(q), np.array([1.0, 0.0]))
        assert gradient_moments(METHODS["sgt"], prompt).mean.tolist() == (
            gradient_moments(METHODS["grpo"], prompt).mean.tolist()
        )


@unhurried
@given(prompts(), st.data())
def test_4b_the_product_and_its_sign(prompt: Prompt, data: st.DataObject) -> None:
    p, rewards = prompt.p, prompt.rewards
    success = float(p @ rewards)
    gradient = success_gradient(p, rewards)
    answer = data.draw(st.integers(0, int(rewards.sum()) - 1))
    product = rescue_product(p, rewards, np.eye(len(p))[answer])
    assert product == pytest.approx(float(spread(p)[answer] @ gradient), abs=1e-12)
    if p[answer] >= float(p**2 @ rewards):
        assert product > 0
    proportional = rescue_product(p, rewards, p * rewards / success)
    assert proportional == pytest.approx(float(gradient @ gradient) / success, rel=1e-9)
    assert proportional > 0
    if success * rewards.sum() <= 1:
        assert rescue_product(p, rewards, rewards / rewards.sum()) > 0


@unhurried
@given(prompts(successes=1))
def test_4b_one_right_answer_is_always_a_positive_direction(prompt: Prompt) -> None:
    p, rewards = prompt.p, prompt.rewards
    expected = p[0] * (1 - p[0]) ** 2 + p[0] * (p[1:] ** 2).sum()
    assert rescue_product(p, rewards, rewards) == pytest.approx(expected, rel=1e-9)
    assert expected > 0


@pytest.mark.parametrize(
    ("right", "transferred"),
    [((0.8, 0.001), (0.0, 1.0)), ((0.0999, 0.0001), (0.0, 1.0)), ((0.8, 0.001), (0.5, 0.5))],
)
def test_4c_a_rarer_right_answer_can_lower_the_success_probability(
    right: Sequence[float], transferred: Sequence[float]
) -> None:
    """Two right answers, a hundred wrong ones: also where success is rare, and, where it is not, for a uniform draw."""
    wrong = np.full(100, (1 - sum(right)) / 100)
    p = np.concatenate([right, wrong])
    rewards = np.concatenate([[1.0, 1.0], np.zeros(100)])
    drawn = np.concatenate([transferred, np.zeros(100)])
    assert rescue_product(p, rewards, drawn) < 0
    moved = softmax(np.log(p) + 1e-3 * (drawn - p))
    assert moved @ rewards < p @ rewards
    assert drawn @ np.log(moved) > drawn @ np.log(p)


@unhurried
@given(prompts(), st.data())
def test_4d_the_transferred_answer_grows_at_a_rate_that_does_not_vanish(prompt: Prompt, data: st.DataObject) -> None:
    p = prompt.p
    answer = data.draw(st.integers(0, len(p) - 1))
    rate = float(spread(p)[answer] @ spread(p)[answer])  # d log p(y) along its own score
    assert rate >= (1 - p[answer]) ** 2


# 5. Training


@pytest.fixture(scope="module")
def curves() -> dict[str, np.ndarray]:
    return train_all(1e-3, 0.5, 150, 1.0)


def test_5_only_carried_answers_escape(curves: dict[str, np.ndarray]) -> None:
    ends = {name: success[-1, :, [0, 1]] for name, success in curves.items()}
    escaped = {name for name, success in curves.items() if first_above(success[:, 0, 0], 0.5) is not None}
    assert escaped == {"prp_s", "sgt"}
    for name in set(ends) - escaped:
        assert curves[name][-1, 0, 0] < 0.01
    for success in curves.values():
        assert success[-1, 0, 1] > 0.95  # each learns what it finds itself
        # The two policies are mirror images.
        assert success[:, 0, 0] == pytest.approx(success[:, 1, 1], rel=1e-9)


def test_5_a_step_is_the_expected_gradient() -> None:
    logits = complementary_logits(0.01, 0.4)
    chances = softmax(logits)
    assert chances[:, :, 0].ravel() == pytest.approx([0.01, 0.4, 0.4, 0.01])
    mean = gradient_moments(METHODS["sgt"], Prompt(chances[0, 0], chances[1, 0], np.eye(6)[0])).mean
    after = softmax(logits[0, 0] + 0.5 * mean)[0]
    assert train(METHODS["sgt"], logits, 1, 0.5)[1, 0, 0] == pytest.approx(after, abs=1e-15)


def test_5_nothing_starts_at_zero() -> None:
    with pytest.raises(ValueError, match=r"rare=0.0 is no probability strictly between 0 and 1"):
        complementary_logits(0.0, 0.5)


# The document


def test_the_document_shows_the_exact_values() -> None:
    """Each line `1a trace: E |g|^2   0.19006 ...` of docs/theory.md, against what the functions give now."""
    text = (Path(__file__).parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")
    expected = {f"{found.proposition:3} {found.quantity}": f"{found.exact:.5f}" for found in all_checks(2, seed=0)}
    shown = {name: match[1] for name in expected if (match := re.search(rf"^ *{re.escape(name)} +(\S+)", text, re.M))}
    assert shown == expected


# The command line

QUICK = ["--draws", "200", "--steps", "5"]


def test_the_command_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--output", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert "gate probability" in printed and "PRP, snapshot" in printed
    written = json.loads((tmp_path / "new" / "bandit.json").read_text(encoding="utf-8"))
    assert np.array(written["success"]["sgt"]).shape == (6, 2, 2)
    gate = next(found for found in written["checks"] if found["quantity"] == "gate probability")
    assert gate["exact"] == pytest.approx(0.88**8 * (1 - 0.5**8))
    assert (tmp_path / "new" / "trajectories.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "trajectories.svg").read_text(encoding="utf-8")


def test_the_same_seed_gives_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in ("3", "3", "4"):
        assert main([*QUICK, "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_without_matplotlib_the_remedy_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*QUICK, "--output", str(tmp_path)]) == 2
    assert "pip install 'mutual-rl[plots]'" in capsys.readouterr().err
    assert main([*QUICK, "--output", str(tmp_path), "--no-plot"]) == 0


@pytest.mark.parametrize("wrong", [["--draws", "1"], ["--steps", "0"], ["--rare", "1.5"]])
def test_wrong_options_are_named(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, *wrong]) == 2
    assert wrong[0].removeprefix("--") + "=" in capsys.readouterr().err
