"""Advantages worked out by hand, and what must hold of them exactly."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from algorithms.advantages import group_advantages, joint_advantages, mixed_advantages

NAN = float("nan")


def test_group_by_hand() -> None:
    # Mean 1/4; sample variance (0.75^2 + 3 * 0.25^2) / 3 = 0.25, so the deviation is 0.5.
    expected = [0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001]
    assert group_advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx(expected, rel=1e-12)
    assert expected[:2] == pytest.approx([1.49970006, -0.49990002], rel=1e-8)


def test_group_without_scaling_is_only_centred() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 0.0], scale=False).tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("seed", range(5))
def test_group_agrees_with_the_standard_library(seed: int) -> None:
    rewards = np.random.default_rng(seed).random(7).tolist()
    mean, deviation = statistics.mean(rewards), statistics.stdev(rewards)
    assert group_advantages(rewards) == pytest.approx([(r - mean) / (deviation + 1e-4) for r in rewards], rel=1e-12)


def test_unjudged_completions_are_left_out_and_get_nothing() -> None:
    # Judged are 1 and 0: mean 1/2, sample deviation sqrt(1/2).
    value = 0.5 / (0.5**0.5 + 1e-4)
    assert group_advantages([1.0, None, 0.0]) == pytest.approx([value, 0.0, -value], rel=1e-12)
    assert value == pytest.approx(0.70700679, rel=1e-8)


@pytest.mark.parametrize("scores", [[], [None, None], [1.0], [None, 0.3], [0.7]])
def test_fewer_than_two_judgements_say_nothing(scores: list[float | None]) -> None:
    assert group_advantages(scores).tolist() == [0.0] * len(scores)


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1 / 3, 1.0])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 12])
def test_constant_groups_are_exactly_zero(reward: float, size: int) -> None:
    # 0.1 + 0.1 + 0.1 is not 0.3: a mean that rounds would leave an advantage of 1e-13, and Adam would take a step.
    own, pool = np.full(size, reward), np.full(2 * size + 1, reward)
    assert not group_advantages(own).any()
    assert not any(part.any() for part in joint_advantages(own, pool))
    for mix in (0.0, 0.3, 1.0):
        assert not mixed_advantages(own, pool, mix).any()


def test_joint_by_hand() -> None:
    # Eight rewards, four of them 1: mean 1/2, sample variance 8 * 0.25 / 7, deviation sqrt(2/7).
    own, peers = joint_advantages(np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0]))
    value = 0.5 / ((2 / 7) ** 0.5 + 1e-4)
    assert own == pytest.approx([value, -value, -value, -value], rel=1e-12)
    assert peers == pytest.approx([value, value, value, -value], rel=1e-12)
    assert value == pytest.approx(0.93523938, rel=1e-8)


def test_joint_without_peers_is_the_group_exactly() -> None:
    own = np.array([0.1, 0.9, NAN, 0.4])
    alone, none = joint_advantages(own, np.array([]))
    assert alone.tolist() == group_advantages(own).tolist()
    assert none.shape == (0,)


def test_mixed_by_hand() -> None:
    # Own: mean 0.25, deviation 0.5. The pool of eight: mean 0.5, deviation sqrt(2/7). Half of each: mean 0.375.
    own = np.array([1.0, 0.0, 0.0, 0.0])
    pool = np.concatenate([own, [1.0, 1.0, 1.0, 0.0]])
    deviation = 0.5 * (0.5 + (2 / 7) ** 0.5) + 1e-4
    assert mixed_advantages(own, pool, 0.5) == pytest.approx([0.625 / deviation, *[-0.375 / deviation] * 3], rel=1e-12)
    assert 0.625 / deviation == pytest.approx(1.2080534, rel=1e-7)
    assert mixed_advantages(own, pool, 1.0, scale=False).tolist() == [0.5, -0.5, -0.5, -0.5]


def test_mixed_at_zero_and_with_a_pool_of_oneself_is_the_group_exactly() -> None:
    own = np.array([0.1, 0.9, NAN, 0.4, 1 / 3])
    pool = np.concatenate([own, [0.7, 0.2]])
    for scale in (True, False):
        expected = group_advantages(own, scale=scale).tolist()
        assert mixed_advantages(own, pool, 0.0, scale=scale).tolist() == expected
        for mix in (0.3, 1.0):
            assert mixed_advantages(own, own, mix, scale=scale).tolist() == expected


def test_mixed_tells_an_unsolved_group_that_it_is_below_the_pool() -> None:
    own, pool = np.zeros(2), np.array([0.0, 0.0, 1.0, 1.0])
    # The pool: mean 1/2, sample deviation sqrt(4 * 0.25 / 3).
    assert mixed_advantages(own, pool, 1.0) == pytest.approx([-0.5 / (3**-0.5 + 1e-4)] * 2, rel=1e-12)
    assert mixed_advantages(np.array([NAN, NAN]), pool, 1.0).tolist() == [0.0, 0.0]


def test_the_order_of_completions_and_peers_changes_nothing_at_all() -> None:
    rewards = np.array([0.1, 1 / 3, 0.7, 0.2, 1 / 7])
    expected = group_advantages(rewards)
    own, peers = rewards[:2], rewards[2:]
    joint_own, joint_peers = joint_advantages(own, peers)
    mixed = mixed_advantages(own, rewards, 0.7)
    for order in itertools.permutations(range(5)):
        assert np.array_equal(group_advantages(rewards[list(order)]), expected[list(order)])
        assert np.array_equal(mixed_advantages(own, rewards[list(order)], 0.7), mixed)
    for order in itertools.permutations(range(3)):
        shuffled_own, shuffled_peers = joint_advantages(own, peers[list(order)])
        assert np.array_equal(shuffled_own, joint_own)
        assert np.array_equal(shuffled_peers, joint_peers[list(order)])
