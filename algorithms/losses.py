"""The loss of the learner, as small functions on tensors.

A minibatch's loss is a sum of three terms over its tokens: a clipped surrogate, beta times a KL estimate, and a weighted
negative log-likelihood. Each token's share is divided by a denominator of the whole minibatch that is known before the
first forward pass, so splitting the minibatch into micro-batches, or over devices, cannot change the gradient.

Names and meaning of `loss_type`, `epsilon`, `epsilon_high`, `delta` and `beta` are TRL's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from algorithms.samples import Batch, Sample

LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "gspo"]

_MAX_LOG_RATIO = 80.0
"""Where a ratio is clipped from above, it is cut at e^80 before: the gradient of an infinite one is 0 * inf = NaN."""


@dataclass(frozen=True)
class LossConfig:
    """What the loss depends on.

    Attributes:
        loss_type: how tokens are averaged.
            `grpo`: mean over each row, then over rows; `bnpo`: mean over the minibatch's tokens; `dapo`: as `bnpo`, with the
            average number of tokens over the minibatches of the step; `dr_grpo`: sum over tokens divided by rows times
            `max_completion_length`; `gspo`: as `grpo`, with one ratio per row, the geometric mean of its tokens' ratios
            (arXiv 2507.18071).
        epsilon: the ratio is clipped below at 1 - epsilon.
        epsilon_high: and above at 1 + epsilon_high.
        delta: upper bound of the unclipped ratio (dual clip); without it a negative advantage with a huge ratio is unbounded.
        beta: weight of the KL to the initial policy.
        max_completion_length: for `dr_grpo`.
        importance_cap: upper bound of the weights of tokens that another engine than the learner's own model has sampled; see
            `importance_weights`. None weighs all tokens alike.
    """

    loss_type: LossType = "grpo"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    beta: float = 0.0
    max_completion_length: int = 256
    importance_cap: float | None = None


@dataclass(frozen=True)
class Denominators:
    """What the terms of a minibatch's loss are divided by.

    Attributes:
        rows: rows that carry policy gradient.
        tokens: their tokens, in the minibatch (`bnpo`) or averaged over the step's minibatches (`dapo`).
        prompts: prompts of the minibatch, for the NLL term.
    """

    rows: int
    tokens: float
    prompts: int


def denominators(minibatches: Sequence[Sequence[Sequence[Sample]]], loss_type: LossType) -> list[Denominators]:
    """The denominators of each minibatch of a step; rows without gradient count too.

    Args:
        minibatches: for each minibatch, for each of its prompts, the rows.
        loss_type: decides whose tokens count.
    """
    tokens = [sum(int(row.loss_mask.sum()) for prompt in batch for row in prompt) for batch in minibatches]
    average = sum(tokens) / len(tokens)
    return [
        Denominators(
            rows=max(1, sum(bool(row.loss_mask.any()) for prompt in batch for row in prompt)),
            tokens=max(1.0, average if loss_type == "dapo" else count),
            prompts=max(1, len(batch)),
        )
        for batch, count in zip(minibatches, tokens, strict=True)
    ]


def log_ratios(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, mask: torch.Tensor, loss_type: LossType
) -> torch.Tensor:
    """log(pi / pi_old) per token; for `gspo` its mean over the row, on every token of the row.

    Args:
        logprobs, old_logprobs: (B, T) nats.
        mask: (B, T) bool.

    Returns:
        (B, T), 0 outside the mask.
    """
    ratios = torch.where(mask, logprobs - old_logprobs, 0.0)
    if loss_type != "gspo":
        return ratios
    means = ratios.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(mask, means, 0.0)


def surrogate_loss(log_ratio: torch.Tensor, advantages: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """-min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) per token, rho bounded by `delta` if set.

    Args:
        log_ratio, advantages: (B, T).

    Returns:
        (B, T).
    """
    # Without `delta`, nothing bounds the ratio of a negative advantage: it may become infinite, and the update is skipped.
    bounded = advantages >= 0 if config.delta is None else torch.ones_like(advantages, dtype=torch.bool)
    ratio = torch.where(bounded, log_ratio.clamp(max=_MAX_LOG_RATIO), log_ratio).exp()
    clipped = ratio.clamp(1 - config.epsilon, 1 + config.epsilon_high)
    if config.delta is not None:
        ratio = ratio.clamp(max=config.delta)
    return -torch.min(ratio * advantages, clipped * advantages)


def importance_weights(mismatch: torch.Tensor, cap: float) -> torch.Tensor:
    """min(pi_old / pi_sampled, cap) per token: truncated importance sampling (Ionides 2008, Journal of Computational and
    Graphical Statistics 17(2)), for completions that were not sampled from the learner's own distribution.

    TRL's `vllm_importance_sampling_mode="token_truncate"`, where the cap is `vllm_importance_sampling_clip_max`. A token that
    the engine samples too often counts less, and one that it samples too rarely more, but none more than `cap` times.

    Args:
        mismatch: (B, T) log(pi_old / pi_sampled), nats; 0 where there is none.
        cap: more than 0.

    Returns:
        (B, T).
    """
    return mismatch.clamp(max=math.log(cap)).exp()


def k3_kl(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(pi || ref) per token: exp(d) - d - 1 with d = ref - pi; never negative.

    Source: Schulman, "Approximating KL divergence" (2020). Shapes (B, T).
    """
    difference = ref_logprobs - logprobs
    return difference.exp() - difference - 1


def token_shares(mask: torch.Tensor, config: LossConfig, divide_by: Denominators) -> torch.Tensor:
    """What each token's surrogate (and KL) counts in the minibatch's loss.

    Args:
        mask: (B, T) bool.

    Returns:
        (B, T) float32, 0 outside the mask.
    """
    if config.loss_type in ("grpo", "gspo"):
        return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * divide_by.rows)
    if config.loss_type == "dr_grpo":
        return mask / float(divide_by.rows * config.max_completion_length)
    return mask / divide_by.tokens


@dataclass(frozen=True)
class LossTerms:
    """The parts of a micro-batch's loss: scalars, already divided, so that the parts of micro-batches add up.

    Attributes:
        surrogate, kl, nll: scalar tensors; `total` is their sum with `beta` applied.
        log_ratio: (B, T) detached log(pi / pi_old), nats; see `log_ratios`.
        mismatch: (B, T) log(pi_old / pi_sampled), nats, of rows that were sampled elsewhere; 0 outside them.
        kl_per_token: (B, T) detached, or None without a reference.
    """

    surrogate: torch.Tensor
    kl: torch.Tensor
    nll: torch.Tensor
    total: torch.Tensor
    log_ratio: torch.Tensor
    mismatch: torch.Tensor
    kl_per_token: torch.Tensor | None


def batch_loss(
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    batch: Batch,
    config: LossConfig,
    divide_by: Denominators,
) -> LossTerms:
    """The loss of one micro-batch.

    Args:
        logprobs: (B, T) log-probs of `batch.token_ids`; column 0 is not read.
        ref_logprobs: (B, T) under the initial policy; None when `beta` is 0.
        batch: the rows.
        divide_by: the denominators of the whole minibatch.
    """
    log_ratio = log_ratios(logprobs, batch.old_logprobs, batch.loss_mask, config.loss_type)
    shares = token_shares(batch.loss_mask, config, divide_by)
    sampled = batch.loss_mask & batch.sampled_elsewhere.unsqueeze(-1)
    mismatch = torch.where(sampled, batch.old_logprobs - batch.sampling_logprobs, 0.0)
    per_token = surrogate_loss(log_ratio, batch.advantages, config)
    if config.importance_cap is not None:
        per_token = per_token * importance_weights(mismatch, config.importance_cap)
    surrogate = (per_token * shares).sum()
    nll = -(torch.where(batch.nll_weights != 0, logprobs, 0.0) * batch.nll_weights).sum() / divide_by.prompts
    kl_per_token = None
    kl = logprobs.new_zeros(())
    if ref_logprobs is not None:
        # Masked before the exponential: one that overflows outside the mask would still spoil the gradient.
        kl_per_token = k3_kl(
            torch.where(batch.loss_mask, logprobs, 0.0), torch.where(batch.loss_mask, ref_logprobs, 0.0)
        )
        kl = (kl_per_token * shares).sum()
    return LossTerms(
        surrogate=surrogate,
        kl=kl,
        nll=nll,
        total=surrogate + config.beta * kl + nll,
        log_ratio=log_ratio.detach(),
        mismatch=mismatch,
        kl_per_token=None if kl_per_token is None else kl_per_token.detach(),
    )
