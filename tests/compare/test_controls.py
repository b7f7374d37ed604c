"""The controls beside what they leave out of SGT, on groups made by hand; and that the trainer takes them by their paths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import verifiers
from algorithms import TrainingConfig
from algorithms.grpo import GRPO
from algorithms.samples import Group, Sample
from algorithms.sgt import SGT
from benchmarks.compare.controls import RandomReward, RescueOnly, UngatedTransfer
from benchmarks.compare.methods import METHODS, method_settings
from mrl_env.tokenization import Retokenized, Retokenizer
from mrl_env.types import Completion, Experience, Problem, user_message
from verifiers import Verdict


class ByCharacter(Retokenizer):
    """Characters are tokens."""

    def __init__(self) -> None:
        pass

    def __call__(self, record: Experience, *, traced: bool = False) -> Retokenized | None:
        return Retokenized(tuple(ord(c) for c in record.text or ""), None, 0.0)


def judged(score: float) -> Verdict:
    return Verdict(score, "x", "right" if score == 1 else "wrong")


def group(scores: Sequence[float]) -> Group:
    completions = tuple(Completion(f"a{i}", (97, 48 + i, 0), (-0.1, -0.2, -0.3)) for i in range(len(scores)))
    verdicts = tuple(map(judged, scores))
    return Group(Problem("p0", user_message("1 + 1"), "2"), "policy_0", (5, 6), completions, verdicts, seed=3)


def peers(*scores: float) -> list[Experience]:
    return [Experience("p0", "policy_1", i, "stop", 0, f"peer{i}", judged(s)) for i, s in enumerate(scores)]


def same(rows: Sequence[Sample], expected: Sequence[Sample]) -> None:
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row.source == other.source
        for stream in ("token_ids", "loss_mask", "advantages", "nll_weights"):
            np.testing.assert_array_equal(getattr(row, stream), getattr(other, stream))


def test_without_the_gate_a_success_crosses_also_where_it_is_not_needed() -> None:
    solved = group([1.0, 0.0])
    rows = UngatedTransfer(sgt_weight=0.5).rows(solved, peers(0.0, 1.0), ByCharacter())
    same(rows[:2], GRPO().rows(solved, (), ByCharacter()))
    assert len(rows) == 3 and len(SGT().rows(solved, peers(0.0, 1.0), ByCharacter())) == 2
    assert rows[2].source == "policy_1"
    # "peer1" has five tokens, which share the weight of a half, behind a prompt of two.
    np.testing.assert_allclose(rows[2].nll_weights, [0, 0, 0.1, 0.1, 0.1, 0.1, 0.1], rtol=1e-6)
    assert not rows[2].loss_mask.any()


def test_without_the_gate_nothing_else_changes() -> None:
    failed = group([0.0, 0.0, 0.0])
    several = peers(1.0, 0.0, 1.0, 1.0)
    same(
        UngatedTransfer().rows(failed, several, ByCharacter()),
        SGT().rows(failed, several, ByCharacter()),
    )
    same(
        UngatedTransfer().rows(group([1.0, 0.0]), peers(0.0), ByCharacter()),
        GRPO().rows(group([1.0, 0.0]), (), ByCharacter()),
    )


def test_rescues_only() -> None:
    rows = RescueOnly(sgt_weight=0.5).rows(group([0.0, 0.0]), peers(1.0), ByCharacter())
    assert [row.has_gradient for row in rows] == [False, False, True]
    np.testing.assert_allclose(rows[2].nll_weights[2:], 0.1, rtol=1e-6)
    # Where the learner succeeds itself there is nothing to learn, though GRPO would.
    rows = RescueOnly().rows(group([1.0, 0.0]), peers(1.0), ByCharacter())
    assert [row.has_gradient for row in rows] == [False, False]
    assert all(row.has_gradient for row in GRPO().rows(group([1.0, 0.0]), (), ByCharacter()))


def test_random_reward_is_a_fair_coin_that_does_not_change() -> None:
    coin = RandomReward()
    scores = [coin.verify(f"completion {i}", "4").score for i in range(4000)]
    # Binomial: a standard deviation is 32.
    assert sum(score or 0 for score in scores) == pytest.approx(2000, abs=130)
    assert scores == [RandomReward().verify(f"completion {i}", "4").score for i in range(4000)]
    # Another question is another coin, so that half of the completions fall differently, whatever the answer.
    asked, answered, other = (
        [coin.verify(f"completion {i}", answer, question=question).score for i in range(4000)]
        for question, answer in (("a", "4"), ("a", "5"), ("b", "4"))
    )
    assert answered == asked
    assert sum(a != b for a, b in zip(asked, other, strict=True)) == pytest.approx(2000, abs=130)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_a_configuration(name: str) -> None:
    shared = {"num_generations": 8, "gradient_accumulation_steps": 2, "model_name_or_path": ["a", "b"]}
    config = TrainingConfig.from_dict(method_settings(name, shared, 2))
    assert len(config.algorithms()) == 2
    if config.verifier is not None:
        assert isinstance(config.make_verifier(), verifiers.Verifier)


def test_the_budget_is_that_of_all_policies() -> None:
    shared = {"num_generations": 8, "gradient_accumulation_steps": 2}
    three = method_settings("grpo_budget", shared, 3)
    assert (three["num_generations"], three["gradient_accumulation_steps"]) == (24, 6)
    assert method_settings("grpo", shared, 3) == {**shared, "algorithm": "grpo"}


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'prp_x'.*did you mean 'prp_"):
        method_settings("prp_x", {}, 2)
