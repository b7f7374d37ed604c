"""The learner: what it divides by, what it skips, what it survives, and what it keeps."""

from __future__ import annotations

import io
import math
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from algorithms.errors import NonFiniteError
from algorithms.learner import Learner
from algorithms.losses import Denominators, LossConfig, batch_loss, denominators, token_shares
from algorithms.memory import keep_freed_memory
from algorithms.offloading import lies_in_memory
from algorithms.optimization import MasterOptimizer, scheduled_learning_rate
from algorithms.samples import Sample, collate, make_sample

MakeLlama = Callable[..., LlamaForCausalLM]
MakeLearner = Callable[..., Learner]
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "gspo")


def make_problems(seed: int = 0, problems: int = 4, generations: int = 4) -> list[list[Sample]]:
    """Own rows of different lengths, the last of four with advantage 0; every other problem has an NLL row too."""
    rng = np.random.default_rng(seed)
    made = []
    for p in range(problems):
        prompt = rng.integers(3, 64, rng.integers(1, 6)).tolist()
        rows = []
        for g in range(generations):
            completion = rng.integers(3, 64, rng.integers(1, 9)).tolist()
            rows.append(
                make_sample(
                    prompt,
                    completion,
                    source="me",
                    advantage=0.0 if g == 3 else float(rng.normal()),
                    old_logprobs=rng.normal(-4, 0.5, len(completion)).tolist(),
                )
            )
        if p % 2:
            success = rng.integers(3, 64, 5).tolist()
            rows.append(make_sample(prompt, success, source="peer", nll_weight=0.1 / 5))
        made.append(rows)
    return made


def gradients(learner: Learner) -> list[list[torch.Tensor]]:
    return learner.optimizer.optimizer.gradients  # type: ignore[attr-defined, no-any-return]


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def identical(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def relative_difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """Norm of the difference over the norm."""
    a, b = (torch.cat([part.detach().flatten().double() for part in parts]) for parts in (first, second))
    return float((a - b).norm() / b.norm())


def row_logprobs(model: LlamaForCausalLM, sample: Sample, temperature: float = 1.0) -> torch.Tensor:
    """(T - 1,) log-probs of tokens 1, 2, ... from a plain forward pass of one row."""
    ids = torch.from_numpy(sample.token_ids)
    logits = model(ids[None]).logits[0, :-1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, ids[1:, None])[:, 0]


# Denominators and accumulation


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("beta", [0.0, 0.2])
def test_micro_batches_do_not_change_the_update(
    loss_type: Any, beta: float, make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    updated: dict[int, list[torch.Tensor]] = {}
    recorded: dict[int, list[torch.Tensor]] = {}
    losses: dict[int, float] = {}
    for size in (1, 3, 8, 64):
        learner = make_learner(make_llama(1), loss=LossConfig(loss_type, beta=beta), micro_batch_size=size)
        losses[size] = learner.update(make_problems())["loss"]
        updated[size], [recorded[size]] = weights(learner.model), gradients(learner)
    for size in (3, 8, 64):
        assert losses[size] == pytest.approx(losses[1], rel=1e-5)
        # What is left is the order of float32 sums.
        assert relative_difference(recorded[size], recorded[1]) < 2e-6
        assert relative_difference(updated[size], updated[1]) < 1e-6


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_each_token_weighs_the_same_in_any_micro_batch_exactly(loss_type: Any) -> None:
    rows = [row for problem in make_problems() for row in problem]
    config = LossConfig(loss_type)
    [divide_by] = denominators([make_problems()], loss_type)

    def shares(part: list[Sample]) -> list[list[float]]:
        batch = collate(part, [np.zeros_like(row.advantages) for row in part], "me", "cpu")
        result = token_shares(batch.loss_mask, config, divide_by)
        return [values[: len(row.token_ids)].tolist() for values, row in zip(result, part, strict=True)]

    whole = shares(rows)
    for size in (1, 3, 8):
        assert [s for i in range(0, len(rows), size) for s in shares(rows[i : i + size])] == whole


def test_the_nll_term_is_the_token_mean_per_success_over_the_prompts(
    make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    """Against plain autograd on whole rows: lambda / P * sum over rescued prompts of the model's own cross-entropy."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 64, n).tolist() for n in (2, 5, 3, 1)]
    successes = {0: rng.integers(3, 64, 7).tolist(), 3: rng.integers(3, 64, 2).tolist()}
    model = make_llama(1)
    expected = torch.zeros(())
    for p, success in successes.items():
        ids = torch.tensor([prompts[p] + success])
        labels = torch.tensor([[-100] * len(prompts[p]) + success])
        expected = expected + 0.3 * model(ids, labels=labels).loss / len(prompts)
    expected.backward()

    problems = [
        [
            *[make_sample(prompt, [7, 8], source="me", advantage=0.0, old_logprobs=[-1.0, -1.0])] * 3,
            *(
                [make_sample(prompt, successes[p], source="peer", nll_weight=0.3 / len(successes[p]))]
                if p in successes
                else []
            ),
        ]
        for p, prompt in enumerate(prompts)
    ]
    for micro_batch_size in (1, 2, 8):
        learner = make_learner(make_llama(1), micro_batch_size=micro_batch_size)
        metrics = learner.update(problems)
        assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-5)
        assert (metrics["rows_trained"], metrics["rows_skipped"]) == (2, 12)
        assert relative_difference(gradients(learner)[0], [p.grad for p in model.parameters()]) < 2e-6


def test_rows_without_gradient_are_left_out_but_counted(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    """Against one batch of all rows, those with advantage 0 included."""
    problems = make_problems()
    rows = [row for problem in problems for row in problem]
    model = make_llama(1)
    batch = collate(
        rows, [np.zeros_like(r.advantages) if r.old_logprobs is None else r.old_logprobs for r in rows], "me", "cpu"
    )
    logprobs = torch.nn.utils.rnn.pad_sequence([row_logprobs(model, row) for row in rows], batch_first=True)
    logprobs = torch.nn.functional.pad(logprobs, (1, 0))
    tokens = sum(int(row.loss_mask.sum()) for row in rows)
    terms = batch_loss(logprobs, None, batch, LossConfig(), Denominators(rows=16, tokens=tokens, prompts=4))
    terms.total.backward()

    learner = make_learner(make_llama(1))
    metrics = learner.update(problems)
    assert (metrics["rows_trained"], metrics["rows_skipped"]) == (14, 4)
    assert metrics["loss"] == pytest.approx(terms.total.item(), rel=1e-5)
    assert relative_difference(gradients(learner)[0], [p.grad for p in model.parameters()]) < 2e-6


def test_a_kl_term_needs_every_row_of_the_policy(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1), loss=LossConfig(beta=0.1))
    metrics = learner.update(make_problems())
    assert (metrics["rows_trained"], metrics["rows_skipped"]) == (18, 0)


def test_minibatches_and_iterations_make_updates(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1), problems_per_minibatch=3, num_iterations=2)
    metrics = learner.update(make_problems(problems=7))
    assert learner.version == learner.due == 2 * 3
    assert metrics["policy_version"] == 6
    assert metrics["rows_trained"] == 2 * (7 * 3 + 3)


def test_a_minibatch_that_nothing_moves_is_due_but_not_applied(
    make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    still = [[make_sample([3], [4, 5], source="me", advantage=0.0, old_logprobs=[-1.0, -1.0])]]
    learner = make_learner(
        make_llama(1), torch.optim.AdamW, lr_scheduler_type="linear", total_updates=4, learning_rate=0.4
    )
    learner.update(make_problems())
    before = weights(learner.model)
    metrics = learner.update(still)
    assert identical(weights(learner.model), before)
    assert (learner.version, learner.due) == (1, 2)
    assert "loss" not in metrics
    # Two of four updates are due, so half of the peak is left.
    assert learner.update(make_problems())["learning_rate"] == pytest.approx(0.2)


# Old log-probs


def test_the_snapshot_is_the_learners_own_policy(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    model = make_llama(1)
    rows = [row for problem in make_problems(seed=5) for row in problem if row.source == "me" and row.has_gradient]
    snapshot = [replace(row, old_logprobs=None, source="peer") for row in rows]
    learner = make_learner(model, micro_batch_size=3, temperature=0.7)
    with torch.no_grad():
        expected = [row_logprobs(model, row, 0.7).numpy() for row in rows]
    old = learner._old_logprobs(snapshot, snapshot=True)
    for row, values in zip(snapshot, expected, strict=True):
        start = int(row.loss_mask.argmax())
        assert not old[id(row)][:start].any()
        assert old[id(row)][start:] == pytest.approx(values[start - 1 :], abs=1e-5)


def peer_rows(problems: int) -> list[list[Sample]]:
    """Rows without old log-probs."""
    return [
        [make_sample([3, 4 + p], [5 + g, 9, 1], source="peer", advantage=(-1.0) ** g) for g in range(4)]
        for p in range(problems)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_snapshot_rows_start_with_a_ratio_of_exactly_one(
    dtype: torch.dtype, make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    """Also in micro-batches of another company than that of the snapshot, where log-probs differ in their last bits."""
    for config in ({"problems_per_minibatch": 6}, {"problems_per_minibatch": 6, "micro_batch_size": 1}):
        learner = make_learner(make_llama(1).to(dtype), **config)
        metrics = learner.update([*make_problems(), *peer_rows(2)])
        assert metrics["exchange/ratio_mean"] == 1.0
        assert metrics["exchange/ratio_variance"] == 0.0


@pytest.mark.parametrize("iterations", [1, 2])
def test_later_updates_are_measured_against_the_snapshot(
    iterations: int, make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    """By hand from the weights before and after the first of two updates: two minibatches, or the same one twice."""
    problems = peer_rows(2)
    size = 2 if iterations == 2 else 1
    first = make_learner(make_llama(1), problems_per_minibatch=size)
    first.update(problems[:size])
    before, after = make_llama(1), first.model
    ratios = [1.0] * (4 * size * 3)
    for row in [row for problem in problems[-size:] for row in problem]:
        with torch.no_grad():
            ratios += (row_logprobs(after, row) - row_logprobs(before, row))[1:].exp().tolist()
    learner = make_learner(make_llama(1), problems_per_minibatch=size, num_iterations=iterations)
    metrics = learner.update(problems)
    assert learner.version == 2
    assert metrics["exchange/ratio_mean"] == pytest.approx(np.mean(ratios), rel=1e-4)
    assert metrics["exchange/ratio_variance"] == pytest.approx(np.var(ratios), rel=1e-3)
    assert np.var(ratios) > 1e-3


def test_recorded_logprobs_are_used_as_they_are(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    model = make_llama(1)
    ids = [3, 4, 9, 1]
    with torch.no_grad():
        current = row_logprobs(model, make_sample(ids[:2], ids[2:], source="me"))[1:]
    row = make_sample(ids[:2], ids[2:], source="peer", advantage=1.0, old_logprobs=(current - 0.1).tolist())
    metrics = make_learner(model).update([[row]])
    assert metrics["exchange/ratio_mean"] == pytest.approx(math.exp(0.1), rel=1e-5)
    assert metrics["loss"] == pytest.approx(-math.exp(0.1), rel=1e-5)


def test_own_rows_report_the_difference_between_sampling_and_training(
    make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    model = make_llama(1)
    ids = [3, 4, 9, 1]
    with torch.no_grad():
        current = row_logprobs(model, make_sample(ids[:2], ids[2:], source="me"))[1:]
    off = current + torch.tensor([0.2, -0.4])
    row = make_sample(ids[:2], ids[2:], source="me", advantage=1.0, old_logprobs=off.tolist())
    metrics = make_learner(model, num_iterations=2).update([[row]])
    # Only of the first pass: later ones differ because the policy has moved.
    assert metrics["sampling/logp_difference_mean"] == pytest.approx(0.3, rel=1e-4)


def test_log_probs_are_those_of_a_plain_forward_pass_and_without_dropout(
    make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    model = make_llama(1, attention_dropout=0.5)
    learner = make_learner(model, micro_batch_size=2, temperature=1.3)
    rows = [([3, 4, 5, 9, 1], 2), ([7, 8], 1), ([6, 6, 6, 6, 6, 6, 2], 4)]
    with torch.no_grad():
        expected = [row_logprobs(model, make_sample(i[:s], i[s:], source="me"), 1.3)[s - 1 :] for i, s in rows]
    for values, wanted in zip(learner.logprobs(rows), expected, strict=True):
        assert values == pytest.approx(wanted.numpy(), abs=1e-5)
    learner.update(make_problems())
    first, second = learner.logprobs(rows), learner.logprobs(rows)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


# KL


def test_the_reference_is_the_initial_policy(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1), loss=LossConfig(beta=0.1))
    assert learner.update(make_problems())["kl"] == 0.0
    later = learner.update(make_problems())["kl"]
    assert later > 1e-4
    # By hand from two plain forward passes over all rows of the policy.
    model, reference = make_learner(make_llama(1), loss=LossConfig(beta=0.1)), make_llama(1)
    model.update(make_problems())
    total, tokens = 0.0, 0
    for problem in make_problems():
        for row in problem:
            with torch.no_grad():
                d = row_logprobs(reference, row).double() - row_logprobs(model.model, row).double()
            kl = (d.exp() - d - 1)[torch.from_numpy(row.loss_mask[1:])]
            total, tokens = total + float(kl.sum()), tokens + len(kl)
    assert later == pytest.approx(total / tokens, rel=1e-3)


def test_without_beta_there_is_no_reference(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1))
    assert learner._reference is None
    assert "kl" not in learner.update(make_problems())


# Gradient norm, learning rate


def test_the_gradient_is_scaled_down_to_the_norm(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    free, bound = make_learner(make_llama(1)), make_learner(make_llama(1), max_grad_norm=0.01)
    norm = free.update(make_problems())["grad_norm"]
    assert norm == pytest.approx(math.sqrt(sum(float(g.double().square().sum()) for g in gradients(free)[0])), rel=1e-5)
    assert norm > 0.01
    assert bound.update(make_problems())["grad_norm"] == pytest.approx(norm, rel=1e-6)
    scaled = [gradient * (0.01 / norm) for gradient in gradients(free)[0]]
    assert relative_difference(gradients(bound)[0], scaled) < 1e-4


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]),
        ("constant", 2, [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]),
        ("linear", 0, [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]),
        ("linear", 2, [1.0, 2.0, 2.0, 1.0, 0.0, 0.0]),
        # (1 + cos x) for x = 0, 45, 90, 135, 180 degrees.
        ("cosine", 0, [2.0, 1 + 0.5**0.5, 1.0, 1 - 0.5**0.5, 0.0, 0.0]),
        ("cosine", 4, [0.5, 1.0, 1.5, 2.0, 2.0, 0.0]),
    ],
)
def test_learning_rates_by_hand(schedule: Any, warmup: int, expected: list[float]) -> None:
    """Six updates of a run of four: beyond its end the rate stays at the last value."""
    rates = [scheduled_learning_rate(2.0, schedule, update, 4, warmup) for update in range(6)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_the_update_uses_the_scheduled_rate(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(
        make_llama(1), lr_scheduler_type="linear", learning_rate=0.2, total_updates=4, warmup_steps=2
    )
    for rate in (0.1, 0.2, 0.2, 0.1):
        before = weights(learner.model)
        assert learner.update(make_problems())["learning_rate"] == pytest.approx(rate)
        moved = [(b - a) / -rate for a, b in zip(before, weights(learner.model), strict=True)]
        assert relative_difference(moved, gradients(learner)[-1]) < 1e-3


# What is not finite


def poison(kind: str, learner: Learner) -> list[list[Sample]]:
    """Rows, or weights, that give a loss that is not finite."""
    advantage, nll_weight = {"advantage": (math.nan, 0.0), "nll_weight": (1.0, math.nan)}.get(kind, (1.0, 0.0))
    if kind == "weights":
        with torch.no_grad():
            learner.model.lm_head.weight[7] = math.nan
    old = [-400.0 if kind == "ratio" else -1.0, -1.0]
    advantage = -1.0 if kind == "ratio" else advantage
    return [
        *make_problems(),
        [make_sample([3], [4, 5], source="me", advantage=advantage, old_logprobs=old, nll_weight=nll_weight)],
    ]


@pytest.mark.parametrize("kind", ["advantage", "nll_weight", "weights", "ratio"])
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(
    kind: str, make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    learner = make_learner(
        make_llama(1), torch.optim.AdamW, problems_per_minibatch=5, max_skipped_updates=3, micro_batch_size=2
    )
    learner.update(make_problems())
    rows = poison(kind, learner)
    before = weights(learner.model)
    state = [value.clone() for s in learner.optimizer.optimizer.state.values() for value in s.values()]
    metrics = learner.update(rows)
    after = weights(learner.model)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True))
    assert identical(state, [v for s in learner.optimizer.optimizer.state.values() for v in s.values()])
    assert all(parameter.grad is None for parameter in learner.model.parameters())
    assert (learner.version, learner.skipped, metrics["skipped_updates"]) == (1, 1, 1.0)
    assert "loss" not in metrics


def test_a_run_of_updates_that_are_not_finite_stops(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1), problems_per_minibatch=5, max_skipped_updates=3)
    bad = poison("advantage", learner)
    learner.update(bad)
    learner.update(bad)
    learner.update(make_problems())  # a good one in between: the count begins anew
    learner.update(bad)
    learner.update(bad)
    with pytest.raises(NonFiniteError, match=r"me: .* 3 updates in a row; lower learning_rate"):
        learner.update(bad)
    assert (learner.version, learner.skipped) == (1, 5)


# Master weights and state


def test_small_updates_add_up_in_bfloat16() -> None:
    """Near 1 bfloat16 has steps of 2^-8 = 0.0039; 400 updates of 1e-5 are one of them, each alone is nothing."""
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = MasterOptimizer([parameter], torch.optim.SGD, lr=0.0)
    for update in range(400):
        parameter.sum().backward()
        optimizer.step(1e-5)
        if update == 100:
            assert parameter.tolist() == [1.0] * 3
    assert optimizer.masters[0].tolist() == pytest.approx([1 - 400e-5] * 3, abs=1e-5)
    assert parameter.tolist() == [1 - 2**-8] * 3


def test_gradients_of_a_bfloat16_model_are_summed_in_float32() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimizer = MasterOptimizer([parameter], torch.optim.SGD, lr=0.0)
    for gradient in (1.0, *[2**-10] * 8):
        (parameter * gradient).sum().backward()
        assert parameter.grad is None
    # In bfloat16, 1 + 2^-10 is 1.
    optimizer.step(1.0)
    assert optimizer.masters[0].item() == -(1 + 2**-7)
    assert optimizer.masters[0].grad is None


def test_float32_parameters_are_their_own_masters_and_frozen_ones_stay_out() -> None:
    trained, frozen = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer = MasterOptimizer([trained, frozen], torch.optim.SGD, lr=0.0)
    assert optimizer.masters[0] is trained
    assert len(optimizer.parameters) == 1


def restore(other: Learner, learner: Learner) -> None:
    """Give `other` the state of `learner`, written and read."""
    file = io.BytesIO()
    torch.save({"model": learner.model.state_dict(), "learner": learner.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other.model.load_state_dict(saved["model"])
    other.load_state_dict(saved["learner"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_survives_a_round_trip_bit_for_bit(
    dtype: torch.dtype, make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    learner, other = (
        make_learner(
            make_llama(seed).to(dtype),
            torch.optim.AdamW,
            lr_scheduler_type="linear",
            total_updates=9,
            learning_rate=1e-3,
        )
        for seed in (1, 2)
    )
    for seed in range(3):
        learner.update(make_problems(seed))
    restore(other, learner)
    assert (other.version, other.due, other.skipped) == (3, 3, 0)
    first, second = learner.update(make_problems(7)), other.update(make_problems(7))
    assert first == second
    assert identical(weights(learner.model), weights(other.model))
    assert identical(learner.optimizer.masters, other.optimizer.masters)


def test_a_float32_run_can_go_on_in_bfloat16(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    learner = make_learner(make_llama(1), torch.optim.AdamW, learning_rate=1e-3)
    learner.update(make_problems())
    other = make_learner(make_llama(2).to(torch.bfloat16), torch.optim.AdamW, learning_rate=1e-3)
    restore(other, learner)
    # The masters are those of the saved model, not of the one that was there before.
    assert relative_difference(other.optimizer.masters, weights(learner.model)) < 2**-8


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_get_the_gradients_of_the_tokens_that_they_met(
    make_llama: MakeLlama, make_learner: MakeLearner, tied: bool
) -> None:
    """Against PyTorch's own dense gradient of the same model in float32, on tokens that come many times."""
    exact = make_llama(1, tie_word_embeddings=tied).to(torch.bfloat16).float()
    model = make_llama(1, tie_word_embeddings=tied).to(torch.bfloat16)
    learner = make_learner(model, torch.optim.AdamW, learning_rate=1e-3)
    token_ids = torch.tensor([[5, 6, 5, 5, 7, 5]])
    for _ in range(2):
        for each in (exact, model):
            each(input_ids=token_ids, labels=token_ids).loss.backward()
    place = [parameter is model.get_input_embeddings().weight for parameter in model.parameters()].index(True)
    gradient = learner.optimizer.masters[place].grad
    expected = exact.get_input_embeddings().weight.grad
    assert gradient.layout == torch.strided
    assert (gradient - expected).norm() < 2**-5 * expected.norm()
    if not tied:
        assert sorted(set(gradient.nonzero()[:, 0].tolist())) == [5, 6, 7]


def test_float32_models_have_dense_gradients(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    """Clipping and PyTorch's AdamW take no others."""
    learner = make_learner(make_llama(1, tie_word_embeddings=False), torch.optim.AdamW, learning_rate=1e-3)
    before = weights(learner.model)
    learner.update(make_problems())
    assert not identical(before, weights(learner.model))
    assert not learner.model.get_input_embeddings().sparse


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_state_in_a_file_changes_nothing(
    make_llama: MakeLlama, make_learner: MakeLearner, tmp_path: Path, dtype: torch.dtype
) -> None:
    usual = make_learner(make_llama(1).to(dtype), torch.optim.AdamW, learning_rate=1e-2)
    model = make_llama(1).to(dtype)
    offloaded = Learner(
        "me", model, MasterOptimizer(model.parameters(), torch.optim.AdamW, offload=tmp_path, lr=0.1), usual.config
    )
    for _ in range(3):
        for learner in (usual, offloaded):
            learner.update(make_problems())
    assert identical(weights(usual.model), weights(offloaded.model))
    restored = make_learner(make_llama(2).to(dtype), torch.optim.AdamW, learning_rate=1e-2)
    restore(restored, offloaded)
    back = make_llama(3).to(dtype)
    into_file = Learner(
        "me", back, MasterOptimizer(back.parameters(), torch.optim.AdamW, offload=tmp_path, lr=0.1), usual.config
    )
    restore(into_file, usual)
    for learner in (usual, restored, into_file):
        learner.update(make_problems())
    assert identical(weights(usual.model), weights(restored.model))
    assert identical(weights(usual.model), weights(into_file.model))
    assert not list(tmp_path.iterdir()), "the file has no name, so nothing is left behind"


def test_gradients_of_an_offloaded_optimizer_lie_side_by_side_and_go_together(tmp_path: Path) -> None:
    """And a parameter without one is not stepped: its weights would decay."""
    layers = [torch.nn.Linear(3, 5, bias=False).to(torch.bfloat16) for _ in range(3)]
    parameters = [layer.weight for layer in layers]
    optimizer = MasterOptimizer(parameters, torch.optim.AdamW, offload=tmp_path, lr=0.1, weight_decay=0.5)
    before = [parameter.detach().clone() for parameter in parameters]
    for _ in range(2):
        with optimizer.resident():
            for layer in (layers[2], layers[0], layers[2]):
                layer(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
            first, none, last = (master.grad for master in optimizer.masters)
            assert none is None and first is not None and last is not None
            assert first.tolist() == [[1.0] * 3] * 5 and last.tolist() == [[2.0] * 3] * 5
            # 15 elements of 4 bytes, each gradient at a multiple of 64 bytes.
            assert last.data_ptr() - first.data_ptr() == 128
            optimizer.step(0.1)
        assert all(master.grad is None and not hasattr(master, "room") for master in optimizer.masters)
    assert [torch.equal(a, b) for a, b in zip(parameters, before, strict=True)] == [False, True, False]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_state_in_a_file_is_not_in_memory(tmp_path: Path) -> None:
    """32 layers of a million weights: masters and two moments are 384 MB, of which 12 MB are needed at a time."""
    script = (
        "import sys, torch; from pathlib import Path; from algorithms.optimization import MasterOptimizer\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(32)]).to(torch.bfloat16)\n"
        "folder = Path(sys.argv[1]) if sys.argv[1] else None\n"
        "optimizer = MasterOptimizer(model.parameters(), torch.optim.AdamW, offload=folder, lr=0.1)\n"
        "for _ in range(2):\n"
        "    model(torch.ones(2, 1024, dtype=torch.bfloat16)).sum().backward()\n"
        "    optimizer.step(0.1)\n"
        "[line] = [line for line in open('/proc/self/status') if line.startswith('VmRSS')]\n"
        "print(int(line.split()[1]) // 1024)"
    )
    beside, in_file = (
        int(subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True).stdout)
        for folder in ("", str(tmp_path))
    )
    assert beside - in_file > 300


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_freed_memory_is_kept_for_what_comes_next() -> None:
    """Twenty tensors one after the other: each page of all of them is mapped anew, or those of the first few alone."""
    script = (
        "import resource, torch\n"
        "from algorithms.memory import keep_freed_memory\n"
        "{call}\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "before = faults()\n"
        "for _ in range(20): torch.ones({numbers})\n"
        "print(faults() - before)"
    )

    def faults(call: str, numbers: int) -> int:
        command = [sys.executable, "-c", script.format(call=call, numbers=numbers)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    largest = keep_freed_memory()
    assert largest >= 1 << 25
    numbers = min(largest, 1 << 26) // 4
    pages = numbers * 4 // mmap.PAGESIZE
    # Without the setting, memory of more than 32 MB goes back to the system.
    assert faults("", 1 << 24) > 15 * (1 << 26) // mmap.PAGESIZE
    assert faults("keep_freed_memory()", numbers - 4096) < 4 * pages


def test_an_optimizer_that_counts_its_steps_takes_all_parameters_at_once(tmp_path: Path) -> None:
    class Slowing(torch.optim.Optimizer):
        """Steps of 1, 1/2, 1/3, ...: the count is the group's, not a parameter's."""

        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr, "k": 0})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                group["k"] += 1
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.sub_(parameter.grad / group["k"])

    layers = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    optimizer = MasterOptimizer(layers, Slowing, offload=tmp_path, lr=1.0)
    for _ in range(2):
        for layer in layers:
            layer.grad = torch.ones(2)
        optimizer.step(1.0)
    assert [layer.tolist() for layer in layers] == [[-1.5, -1.5]] * 3


def test_empty_parameters_need_no_file(tmp_path: Path) -> None:
    layer = torch.nn.Parameter(torch.zeros(0, 3, dtype=torch.bfloat16))
    MasterOptimizer([layer], torch.optim.AdamW, offload=tmp_path, lr=0.1).step(0.1)


def test_a_folder_in_memory_is_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n/dev/sdb {tmp_path}/disk ext4 rw 0 0\n")
    (tmp_path / "disk").mkdir()
    assert lies_in_memory(tmp_path, mounts)
    assert not lies_in_memory(tmp_path / "disk", mounts)
    assert not lies_in_memory(Path("/"), mounts)
    assert not lies_in_memory(tmp_path, tmp_path / "no such list")


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"offload_optimizer: .* has no room for another .*output_dir"):
        MasterOptimizer(
            torch.nn.Linear(2, 2).to(torch.bfloat16).parameters(), torch.optim.AdamW, offload=tmp_path, lr=0.1
        )


@pytest.mark.gpu
def test_offloaded_state_leaves_the_gpu(make_llama: MakeLlama, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model = make_llama(1).to(torch.bfloat16).cuda()
    optimizer = MasterOptimizer(model.parameters(), torch.optim.AdamW, offload=tmp_path, lr=0.1)
    with optimizer.resident():
        model(torch.tensor([[3, 4]], device="cuda")).logits.sum().backward()
        optimizer.step(0.1)
    state = optimizer.optimizer.state
    assert {master.device.type for master in optimizer.masters} == {"cpu"}
    assert {state[master]["exp_avg"].device.type for master in optimizer.masters} == {"cpu"}
    with optimizer.resident():
        assert {state[master]["exp_avg"].device.type for master in optimizer.masters} == {"cuda"}
