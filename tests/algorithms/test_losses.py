"""The loss by hand on tiny tensors, and against TRL's own code on the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import exp, inf, log, pi, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from algorithms.learner import Learner
from algorithms.logprobs import token_logprobs
from algorithms.losses import (
    Denominators,
    LossConfig,
    batch_loss,
    denominators,
    importance_weights,
    k3_kl,
    log_ratios,
    surrogate_loss,
    token_shares,
)
from algorithms.samples import Sample, collate, make_sample

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "gspo")


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor([values])


def surrogate_with_gradient(log_ratio: list[float], advantage: float, **config: Any) -> tuple[list[float], list[float]]:
    ratios = torch.tensor([log_ratio], requires_grad=True)
    loss = surrogate_loss(ratios, torch.full((1, len(log_ratio)), advantage), LossConfig(**config))
    loss.sum().backward()
    return loss[0].tolist(), ratios.grad[0].tolist()


def test_token_logprobs_by_hand() -> None:
    # Weights 1, 2, 5 of 8; at temperature 2 their square roots, which sum to 4.6502815.
    logits = torch.tensor([[0.0, log(2), log(5)]] * 3)
    ids = torch.tensor([0, 1, 2])
    assert token_logprobs(logits, ids, 1.0).exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], rel=1e-6)
    total = 1 + sqrt(2) + sqrt(5)
    expected = [1 / total, sqrt(2) / total, sqrt(5) / total]
    assert token_logprobs(logits, ids, 2.0).exp().tolist() == pytest.approx(expected, rel=1e-6)


def test_token_logprobs_of_a_low_precision_model_are_float32() -> None:
    logits = torch.linspace(-20, 20, 1000).to(torch.bfloat16).expand(2, -1)
    logprobs = token_logprobs(logits, torch.tensor([0, 999]), 1.0)
    assert logprobs.dtype == torch.float32
    expected = torch.log_softmax(logits.double(), -1)
    assert logprobs.tolist() == pytest.approx([float(expected[0, 0]), float(expected[1, 999])], rel=1e-6)


def test_ratios_clip_and_gradient_by_hand() -> None:
    # Log-probs -1 and -2 against old ones of -1.5 and -1: ratios e^0.5 = 1.6487 and e^-1 = 0.3679.
    log_ratio = log_ratios(tensor(-1, -2), tensor(-1.5, -1), torch.ones(1, 2, dtype=torch.bool), "grpo")
    assert log_ratio.tolist() == [[0.5, -1.0]]
    up, down = exp(0.5), exp(-1)
    # A = 1: the first is clipped at 1.28, so it has no gradient; the second is below the range and not clipped.
    loss, gradient = surrogate_with_gradient([0.5, -1.0], 1.0, epsilon=0.2, epsilon_high=0.28)
    assert loss == pytest.approx([-1.28, -down])
    assert gradient == pytest.approx([0.0, -down])
    # A = -1: the other way round.
    loss, gradient = surrogate_with_gradient([0.5, -1.0], -1.0, epsilon=0.2, epsilon_high=0.28)
    assert loss == pytest.approx([up, 0.8])
    assert gradient == pytest.approx([up, 0.0])


def test_dual_clip_bounds_what_a_negative_advantage_can_do() -> None:
    # e^0.5 = 1.6487 is cut at 1.5 where A < 0; A > 0 was clipped at 1.2 before and is left alone.
    loss, gradient = surrogate_with_gradient([0.5], -2.0, delta=1.5)
    assert loss == pytest.approx([3.0])
    assert gradient == [0.0]
    loss, gradient = surrogate_with_gradient([0.5], 2.0, delta=1.5)
    assert loss == pytest.approx([-2.4])
    assert gradient == [0.0]
    loss, gradient = surrogate_with_gradient([0.3], -2.0, delta=1.5)
    assert loss == pytest.approx([2 * exp(0.3)])
    assert gradient == pytest.approx([2 * exp(0.3)])


def test_a_ratio_beyond_float32_is_clipped_like_any_other() -> None:
    # e^200 is infinite in float32; a gradient of 0 times infinity would be NaN.
    loss, gradient = surrogate_with_gradient([200.0], 1.0)
    assert loss == pytest.approx([-1.2])
    assert gradient == [0.0]
    loss, gradient = surrogate_with_gradient([200.0], -1.0, delta=4.0)
    assert loss == pytest.approx([4.0])
    assert gradient == [0.0]
    loss, gradient = surrogate_with_gradient([200.0], 0.0)
    assert loss == [0.0]
    assert gradient == [0.0]
    # Nothing clips this one; the learner will skip the update.
    loss, _ = surrogate_with_gradient([200.0], -1.0)
    assert loss == [inf]


def test_sequence_ratio_is_the_geometric_mean_within_the_mask() -> None:
    logprobs, old = tensor(-1, -2, -9, -5), tensor(-1.5, -1, -1, -5.6)
    mask = torch.tensor([[True, True, False, True]])
    # Log ratios 0.5, -1, (8), 0.6: the mean of the three is 0.1 / 3.
    ratios = log_ratios(logprobs, old, mask, "gspo")
    assert ratios[0].tolist() == pytest.approx([0.1 / 3, 0.1 / 3, 0.0, 0.1 / 3], rel=1e-5)
    assert log_ratios(logprobs, old, mask, "grpo")[0].tolist() == pytest.approx([0.5, -1.0, 0.0, 0.6], rel=1e-6)
    assert log_ratios(logprobs, old, torch.zeros_like(mask), "gspo").tolist() == [[0.0] * 4]


def test_k3_by_hand() -> None:
    # d = ref - pi = -0.5, 0.5, 0: e^d - d - 1.
    kl = k3_kl(tensor(-1, -1, -1), tensor(-1.5, -0.5, -1))
    assert kl[0].tolist() == pytest.approx([exp(-0.5) - 0.5, exp(0.5) - 1.5, 0.0], rel=1e-5)
    assert kl[0, :2].tolist() == pytest.approx([0.10653066, 0.14872127], rel=1e-5)


def row(tokens: int, advantage: float | None = 1.0, nll_weight: float = 0.0) -> Sample:
    return make_sample(
        (3, 4),
        range(5, 5 + tokens),
        source="me",
        advantage=advantage,
        old_logprobs=[-1.0] * tokens,
        nll_weight=nll_weight,
    )


STEP = [
    # A minibatch of two prompts with 2, 3 and 1 tokens, and a row of 4 outside the policy gradient.
    [[row(2), row(3, 0.0)], [row(1), row(4, None, 0.1)]],
    # And one of a single prompt with 6 tokens.
    [[row(6)]],
]


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("grpo", [Denominators(3, 6, 2), Denominators(1, 6, 1)]),
        ("bnpo", [Denominators(3, 6, 2), Denominators(1, 6, 1)]),
        ("dapo", [Denominators(3, 6, 2), Denominators(1, 6, 1)]),
    ],
)
def test_denominators_count_rows_tokens_and_prompts(loss_type: Any, expected: list[Denominators]) -> None:
    assert denominators(STEP, loss_type) == expected


def test_dapo_averages_tokens_over_the_minibatches_of_the_step() -> None:
    step = [[[row(2), row(3)]], [[row(9)]]]
    assert [d.tokens for d in denominators(step, "dapo")] == [7.0, 7.0]
    assert [d.tokens for d in denominators(step, "bnpo")] == [5.0, 9.0]


def test_a_minibatch_without_policy_rows_divides_by_one() -> None:
    assert denominators([[[row(4, None, 0.1)], []]], "bnpo") == [Denominators(1, 1.0, 2)]


@pytest.mark.parametrize(
    ("loss_type", "shares"),
    [
        ("grpo", [1 / 4, 1 / 6]),  # one of 2 rows, then one of its 2 or 3 tokens
        ("gspo", [1 / 4, 1 / 6]),
        ("bnpo", [1 / 5, 1 / 5]),  # one of 5 tokens
        ("dapo", [1 / 5, 1 / 5]),
        ("dr_grpo", [1 / 20, 1 / 20]),  # 2 rows of at most 10 tokens
    ],
)
def test_token_shares_by_hand(loss_type: Any, shares: list[float]) -> None:
    mask = torch.tensor([[False, True, True, False], [False, True, True, True]])
    config = LossConfig(loss_type=loss_type, max_completion_length=10)
    result = token_shares(mask, config, Denominators(2, 5.0, 1))
    first, second = shares
    assert result.flatten().tolist() == pytest.approx([0, first, first, 0, 0, second, second, second], rel=1e-6)


def test_the_loss_is_the_sum_of_three_terms_by_hand() -> None:
    policy = make_sample((3,), (5, 6), source="me", advantage=2.0, old_logprobs=(-1.0, -1.0))
    rescue = make_sample((3,), (7, 8), source="peer", nll_weight=0.05)
    batch = collate([policy, rescue], [policy.old_logprobs, np.zeros(3)], "me", "cpu")
    logprobs = torch.tensor([[0.0, -0.9, -1.5], [0.0, -3.0, -4.0]])
    reference = torch.tensor([[0.0, -0.9, -1.0], [0.0, -9.0, -9.0]])
    config = LossConfig(loss_type="grpo", beta=0.5)
    terms = batch_loss(logprobs, reference, batch, config, Denominators(1, 2, 4))
    # Ratios e^0.1 and e^-0.5, both unclipped: the mean of -2 rho.
    surrogate = -(exp(0.1) + exp(-0.5))
    # d = 0 and 0.5 over two tokens.
    kl = (exp(0.5) - 1.5) / 2
    # 0.05 (3 + 4) over four prompts.
    nll = 0.35 / 4
    assert float(terms.surrogate) == pytest.approx(surrogate, rel=1e-6)
    assert float(terms.kl) == pytest.approx(kl, rel=1e-5)
    assert float(terms.nll) == pytest.approx(nll, rel=1e-6)
    assert float(terms.total) == pytest.approx(surrogate + 0.5 * kl + nll, rel=1e-6)


def test_what_lies_outside_the_masks_cannot_spoil_the_gradient() -> None:
    policy = make_sample((3, 4), (5,), source="me", advantage=1.0, old_logprobs=(-1.0,))
    batch = collate([policy], [policy.old_logprobs], "me", "cpu")
    logprobs = torch.tensor([[0.0, -300.0, -1.0]], requires_grad=True)
    # On the prompt's token the reference is 300 nats off: e^300 is infinite.
    reference = torch.tensor([[0.0, 0.0, -1.0]])
    terms = batch_loss(logprobs, reference, batch, LossConfig(beta=0.1), Denominators(1, 1, 1))
    terms.total.backward()
    assert terms.total.item() == pytest.approx(-1.0)
    assert logprobs.grad.tolist() == [[0.0, 0.0, -1.0]]


def test_importance_weights_by_hand() -> None:
    # The engine gave 1/2, 1/2, 1/10, 1/10 to tokens to which the learner gives 1/2, 1/4, 1/5, 9/10.
    engine, learner = (
        tensor(log(1 / 2), log(1 / 2), log(1 / 10), log(1 / 10)),
        tensor(log(1 / 2), log(1 / 4), log(1 / 5), log(9 / 10)),
    )
    assert importance_weights(learner - engine, 3.0)[0].tolist() == pytest.approx([1, 1 / 2, 2, 3], rel=1e-6)
    assert importance_weights(tensor(200.0), 3.0)[0].tolist() == pytest.approx([3])  # e^200 is infinite in float32


def test_what_another_engine_sampled_is_weighed_by_hand() -> None:
    # The learner's snapshot said -1 and -2 of both tokens, the engine -1.5 and -1.9 at sampling: weights e^0.5 and e^-0.1.
    own = make_sample((3,), (5, 6), source="me", advantage=1.0, old_logprobs=(-1.5, -1.9))
    peer = make_sample((3,), (7, 8), source="peer", advantage=1.0, old_logprobs=(-3.0, -3.0))
    snapshot = np.array([0.0, -1.0, -2.0])
    logprobs = torch.tensor([[0.0, -0.9, -2.5], [0.0, -2.9, -3.0]])

    def surrogate(cap: float | None, has_engine: bool = True) -> float:
        old = snapshot if has_engine else own.old_logprobs
        batch = collate([own, peer], [old, peer.old_logprobs], "me", "cpu", has_engine=has_engine)
        config = LossConfig(loss_type="bnpo", importance_cap=cap)
        terms = batch_loss(logprobs, None, batch, config, Denominators(2, 4, 1))
        # A peer's row has the denominator that the algorithm gave it, and no weight.
        assert terms.mismatch[1].tolist() == [0.0, 0.0, 0.0]
        return float(terms.surrogate)

    peers = exp(0.1) + 1
    assert surrogate(2.0) == pytest.approx(-(exp(0.5) * exp(0.1) + exp(-0.1) * exp(-0.5) + peers) / 4, rel=1e-6)
    assert surrogate(1.5) == pytest.approx(-(1.5 * exp(0.1) + exp(-0.1) * exp(-0.5) + peers) / 4, rel=1e-6)
    assert surrogate(None) == pytest.approx(-(exp(0.1) + exp(-0.5) + peers) / 4, rel=1e-6)
    # Without an engine the recorded log-probs are the old ones: e^0.6, clipped at 1.2, and e^-0.6.
    assert surrogate(2.0, has_engine=False) == pytest.approx(-(1.2 + exp(-0.6) + peers) / 4, rel=1e-6)


# Against TRL: its own `_compute_loss` on a trainer that was never constructed, so that the expected values are TRL's.


@dataclass(frozen=True)
class Rows:
    """A minibatch in both layouts: prompts left-padded and completions right-padded for TRL, rows for us."""

    inputs: dict[str, torch.Tensor]
    samples: list[Sample]


TEMPERATURE = 0.7
EPSILON, EPSILON_HIGH, MAX_LENGTH = 0.2, 0.28, 9


def make_rows(model: LlamaForCausalLM, seed: int, size: int) -> Rows:
    """Random rows: prompts of 1 to 5 tokens, completions of 1 to 7, masks with holes, old log-probs off by 0.3 nats."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(3, 64, rng.integers(1, 6)) for _ in range(size)]
    completions = [rng.integers(3, 64, rng.integers(1, 8)) for _ in range(size)]
    masks = [rng.random(len(c)) < 0.8 for c in completions]
    for mask in masks:
        mask[0] = True
    advantages = [0.0 if i % 4 == 3 else float(rng.normal()) for i in range(size)]
    left, right = max(map(len, prompts)), max(map(len, completions))
    names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "old_per_token_logps")
    inputs = {
        name: torch.zeros(
            size, left if "prompt" in name else right, dtype=torch.float32 if "logps" in name else torch.int64
        )
        for name in names
    }
    samples = []
    for i, (prompt, completion, mask) in enumerate(zip(prompts, completions, masks, strict=True)):
        ids = np.concatenate([prompt, completion])
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)[None]).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
        current = torch.log_softmax(logits, -1)[range(len(completion)), completion].numpy()
        old = (current + rng.normal(0, 0.3, len(completion))).astype(np.float32)
        inputs["prompt_ids"][i, left - len(prompt) :] = torch.from_numpy(prompt)
        inputs["prompt_mask"][i, left - len(prompt) :] = 1
        inputs["completion_ids"][i, : len(completion)] = torch.from_numpy(completion)
        inputs["completion_mask"][i, : len(completion)] = 1
        inputs["tool_mask"][i, : len(completion)] = torch.from_numpy(mask)
        inputs["old_per_token_logps"][i, : len(completion)] = torch.from_numpy(old)
        before = np.zeros(len(prompt), dtype=np.float32)
        loss_mask = np.concatenate([before > 0, mask])
        samples.append(
            Sample(
                token_ids=ids,
                loss_mask=loss_mask,
                advantages=np.where(loss_mask, advantages[i], 0).astype(np.float32),
                old_logprobs=np.concatenate([before, old]),
                nll_weights=np.zeros(len(ids), dtype=np.float32),
                source="me",
            )
        )
    inputs["advantages"] = torch.tensor(advantages)
    return Rows(inputs, samples)


def trl_losses(
    model: LlamaForCausalLM,
    reference: LlamaForCausalLM,
    minibatches: Sequence[Rows],
    loss_type: str,
    beta: float,
    delta: float | None,
    clip_max: float | None = None,
) -> tuple[list[float], list[list[torch.Tensor]], dict[str, list[float]]]:
    """TRL's loss, gradients and metrics of each minibatch, every minibatch one optimizer update of one step.

    With `clip_max`, the rows' old log-probs are those of vLLM, and TRL corrects for the difference (`token_truncate`).
    """
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.utils import add_fused_lm_head

    trainer = object.__new__(GRPOTrainer)
    trainer.accelerator = SimpleNamespace(
        autocast=nullcontext,
        num_processes=1,
        is_main_process=True,
        sync_gradients=True,
        gather=lambda x: x,
        reduce=lambda x, reduction: x,
    )
    trainer.args = SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=len(minibatches))
    trainer.model = model.train()
    trainer.loss_type = "grpo" if loss_type == "gspo" else loss_type
    trainer.importance_sampling_level = "sequence" if loss_type == "gspo" else "token"
    trainer.beta, trainer.epsilon_low, trainer.epsilon_high = beta, EPSILON, EPSILON_HIGH
    trainer.max_completion_length = MAX_LENGTH
    trainer.current_gradient_accumulation_steps = 1
    trainer.top_entropy_quantile, trainer.off_policy_mask_threshold = 1.0, None
    trainer.aux_loss_enabled = trainer._entropy_bonus_enabled = False
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = clip_max is not None
    trainer._metrics = {"train": defaultdict(list)}
    for patched in (model, reference):
        add_fused_lm_head(patched, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    # Over the whole generation batch, as TRL counts it.
    items = sum(rows.inputs["tool_mask"].sum() for rows in minibatches)
    losses, gradients = [], []
    for rows in minibatches:
        inputs = {**rows.inputs, "num_items_in_batch": items}
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            inputs["ref_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                reference, ids, mask, inputs["completion_ids"].shape[1]
            )
            if clip_max is not None:
                sampled = inputs["old_per_token_logps"]
                inputs["old_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                    model, ids, mask, inputs["completion_ids"].shape[1]
                )
                ratio = torch.exp((inputs["old_per_token_logps"] - sampled) * inputs["tool_mask"])
                inputs["importance_sampling_ratio"] = ratio.clamp(max=clip_max)
        model.zero_grad()
        loss = trainer._compute_loss(model, inputs)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append([p.grad.clone() for p in model.parameters()])
    return losses, gradients, trainer._metrics["train"]


@pytest.mark.parametrize("delta", [None, 1.4])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_loss_and_gradient_are_those_of_trl(
    loss_type: Any,
    beta: float,
    delta: float | None,
    make_llama: Callable[..., LlamaForCausalLM],
    make_learner: Callable[..., Learner],
) -> None:
    pytest.importorskip("trl", reason="TRL (extra `dev`) gives the expected values")
    model, reference = make_llama(1), make_llama(2)
    # Two minibatches of different size in tokens: `dapo` divides by their average.
    minibatches = [make_rows(model, seed=3, size=6), make_rows(model, seed=5, size=6)]
    losses, gradients, logged = trl_losses(model, reference, minibatches, loss_type, beta, delta)

    # A learning rate of 0 keeps the weights; a micro-batch of 4 splits each minibatch in two.
    learner = make_learner(
        make_llama(1),
        loss=LossConfig(loss_type, EPSILON, EPSILON_HIGH, delta, beta, MAX_LENGTH),
        temperature=TEMPERATURE,
        learning_rate=0.0,
        micro_batch_size=4,
        problems_per_minibatch=1,
    )
    if beta:
        learner._reference.model.load_state_dict(reference.state_dict())
    metrics = learner.update([rows.samples for rows in minibatches])

    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5, abs=1e-6)
    recorded = learner.optimizer.optimizer.gradients
    assert len(recorded) == 2
    for ours, theirs in zip(recorded, gradients, strict=True):
        largest = max(float(gradient.abs().max()) for gradient in theirs)
        assert largest > 0.01
        for mine, expected in zip(ours, theirs, strict=True):
            assert torch.allclose(mine, expected, rtol=1e-4, atol=2e-6 * largest)
    if beta and loss_type != "gspo":
        # With a KL term no row is left out. TRL logs a mean per minibatch, we log one over the tokens of both.
        tokens = [float(rows.inputs["tool_mask"].sum()) for rows in minibatches]
        for name in ("kl", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"):
            assert metrics[name] == pytest.approx(np.average(logged[name], weights=tokens), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_the_correction_for_another_engine_is_that_of_trl(
    loss_type: Any, make_llama: Callable[..., LlamaForCausalLM], make_learner: Callable[..., Learner]
) -> None:
    pytest.importorskip("trl", reason="TRL (extra `dev`) gives the expected values")
    model, beta, clip_max = make_llama(1), 0.3, 1.1
    minibatches = [make_rows(model, seed=3, size=6), make_rows(model, seed=5, size=6)]
    losses, gradients, _ = trl_losses(model, make_llama(2), minibatches, loss_type, beta, None, clip_max)
    learner = make_learner(
        make_llama(1),
        loss=LossConfig(loss_type, EPSILON, EPSILON_HIGH, None, beta, MAX_LENGTH, importance_cap=clip_max),
        temperature=TEMPERATURE,
        learning_rate=0.0,
        micro_batch_size=4,
        problems_per_minibatch=1,
        has_engine=True,
    )
    learner._reference.model.load_state_dict(make_llama(2).state_dict())
    metrics = learner.update([rows.samples for rows in minibatches])

    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5, abs=1e-6)
    for ours, theirs in zip(learner.optimizer.optimizer.gradients, gradients, strict=True):
        largest = max(float(gradient.abs().max()) for gradient in theirs)
        for mine, expected in zip(ours, theirs, strict=True):
            assert torch.allclose(mine, expected, rtol=1e-4, atol=2e-6 * largest)
    # The rows' log-probs are off by 0.3 nats (normal), whose mean absolute value is 0.3 sqrt(2 / pi).
    assert metrics["sampling/logp_difference_mean"] == pytest.approx(0.3 * sqrt(2 / pi), abs=0.08)
    assert metrics["sampling/importance_ratio_max"] > clip_max  # as it was before it was cut
