"""Drawing tokens: filters, one random number per draw, and the log-probs of what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

_BLOCK = 1024
_BLOCK_ELEMENTS = {"cpu": 1 << 19}
"""Logits that are worked on at a time; on devices that are not listed, all of them."""
_NUCLEUS = (512, 8192)
"""So many likeliest tokens top-p looks through for its edge, before it sorts the whole vocabulary."""
_NO_SCORE = -1e4
"""Stands for a score of -inf where it is multiplied by 0."""


@dataclass(frozen=True)
class SamplingConfig:
    r"""How completions are drawn.

    Attributes:
        max_completion_length: tokens, end of sequence included.
        temperature: logits are divided by it; 0 is greedy.
        top_p: smallest set of likeliest tokens whose share of the mass (of the k, if `top_k` is set) reaches it; 1 is off.
        top_k: only the k likeliest tokens; 0 is off.
        min_p: only tokens with at least this share of the likeliest token's probability; 0 is off.
        stop_at_boxed: also stop behind a complete `\boxed{...}`.

    Raises:
        ValueError: on a value out of range.
    """

    max_completion_length: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_at_boxed: bool = False

    @property
    def unfiltered(self) -> bool:
        """Whether every token of the vocabulary may be drawn."""
        return self.top_p == 1 and self.top_k == 0 and self.min_p == 0

    def __post_init__(self) -> None:
        if self.max_completion_length < 1:
            raise ValueError(f"max_completion_length={self.max_completion_length} is too small; give at least 1")
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature} is negative; give 0 for greedy, or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} lies outside (0, 1]; 1 is off")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k} is negative; 0 is off")
        if not 0 <= self.min_p < 1:
            raise ValueError(f"min_p={self.min_p} lies outside [0, 1); 0 is off")


def filtered_probs(probs: torch.Tensor, config: SamplingConfig) -> torch.Tensor:
    """Probabilities with what top-k, then top-p, then min-p exclude set to 0; not renormalised. Ties at an edge stay in.

    Args:
        probs: (R, V) rows that sum to 1.

    Returns:
        (R, V).
    """
    if config.top_k and config.top_k < probs.shape[-1]:
        probs = torch.where(probs >= probs.topk(config.top_k, dim=-1).values[:, -1:], probs, 0.0)
    if config.top_p < 1:
        probs = torch.where(probs >= _nucleus_edge(probs, config.top_p), probs, 0.0)
    if config.min_p > 0:
        probs = torch.where(probs >= config.min_p * probs.amax(-1, keepdim=True), probs, 0.0)
    return probs


def _nucleus_edge(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """(R, 1): the least likely token that is still needed to reach `top_p`, the last whose predecessors do not reach it."""
    target = top_p * probs.sum(-1, keepdim=True, dtype=torch.float64)
    for size in (*_NUCLEUS, probs.shape[-1]):
        ordered = probs.topk(min(size, probs.shape[-1]), dim=-1).values
        mass = ordered.double().cumsum(-1)
        if bool((mass[:, -1:] >= target).all()):
            break
    needed = (mass - ordered < target).sum(-1, keepdim=True).clamp(min=1)
    return ordered.gather(-1, needed - 1)


def draw(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Indices drawn in proportion to the weights, by inverting the cumulative sum at one uniform number per row.

    First a block of the vocabulary is found, then a token within it, with sums in float64: one pass over the weights, and no
    loss of small probabilities in a vocabulary of 262,144.

    Args:
        weights: (R, V) non-negative, with a positive sum per row.
        uniforms: (R,) float64 in [0, 1).

    Returns:
        (R,) int64.
    """
    rows, size = weights.shape
    padded = torch.nn.functional.pad(weights, (0, -size % _BLOCK)).view(rows, -1, _BLOCK)
    blocks = padded.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniforms.unsqueeze(-1) * blocks[:, -1:]
    block = torch.searchsorted(blocks, target, right=True).clamp(max=blocks.shape[-1] - 1)
    before = torch.where(block > 0, blocks.gather(-1, (block - 1).clamp(min=0)), 0.0)
    inside = padded.gather(1, block.unsqueeze(-1).expand(-1, 1, _BLOCK)).squeeze(1)
    cumulative = inside.double().cumsum(-1)
    offset = torch.searchsorted(cumulative, target - before, right=True)
    # Rounding may point behind the last positive weight of the block; step back to it.
    last = _BLOCK - 1 - (inside.flip(-1) > 0).int().argmax(-1, keepdim=True)
    # Weights that are NaN point anywhere; an index outside the vocabulary would take down a GPU's context.
    return (block * _BLOCK + torch.minimum(offset, last)).squeeze(-1).clamp(max=size - 1)


@dataclass(frozen=True)
class Drawn:
    """One token per row.

    Attributes:
        token_ids: (R,) int64.
        logprobs: (R,) float32, nats, of the model at this temperature, before top-k, top-p and min-p: what a learner's
            forward pass computes.
        entropies: (R,) float32, nats, of the same distribution.
    """

    token_ids: torch.Tensor
    logprobs: torch.Tensor
    entropies: torch.Tensor


def draw_tokens(logits: torch.Tensor, uniforms: torch.Tensor, config: SamplingConfig) -> Drawn:
    """Draw the next token of each row.

    Args:
        logits: (R, V), any float type.
        uniforms: (R,) float64 in [0, 1), one per row; not read if greedy.
        config: temperature and filters. Greedy log-probs are those at temperature 1.
    """
    # A few rows at a time: on a CPU, what one operation wrote is still in the cache when the next one reads it.
    rows = max(1, _BLOCK_ELEMENTS.get(logits.device.type, logits.numel()) // logits.shape[-1])
    blocks = [_draw_block(logits[i : i + rows], uniforms[i : i + rows], config) for i in range(0, len(logits), rows)]
    return Drawn(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


def _draw_block(
    logits: torch.Tensor, uniforms: torch.Tensor, config: SamplingConfig
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, log-probs and entropies (R,) of a block of rows; see `draw_tokens`."""
    scores = logits.to(torch.float32, copy=True)
    if config.temperature not in (0.0, 1.0):
        scores.div_(config.temperature)
    # Below the maximum; scores of -inf get the weight 0, and may be multiplied by it.
    scores.sub_(scores.amax(-1, keepdim=True)).clamp_(min=_NO_SCORE)
    weights = torch.exp(scores)
    total = weights.sum(-1, keepdim=True)
    log_total = total.log()
    if config.temperature == 0:
        token_ids = scores.argmax(-1)
    elif config.unfiltered:
        token_ids = draw(weights, uniforms)
    else:
        token_ids = draw(filtered_probs(weights / total, config), uniforms)
    logprobs = (scores.gather(-1, token_ids.unsqueeze(-1)) - log_total).squeeze(-1)
    mean_score = torch.linalg.vecdot(weights, scores) / total.squeeze(-1)
    return token_ids, logprobs, log_total.squeeze(-1) - mean_score


def row_uniforms(seeds: Sequence[int], length: int) -> np.ndarray:
    """For each row its own stream of random numbers, so that no row's draws depend on its company.

    Args:
        seeds: R seeds of 64 bits.
        length: numbers per row.

    Returns:
        (R, length) float64 in [0, 1).
    """
    return np.stack([np.random.Generator(np.random.Philox(seed)).random(length) for seed in seeds])
