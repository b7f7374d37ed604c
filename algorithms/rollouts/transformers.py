"""Batched generation on a Transformers model: each prompt prefilled once, then one token a step with a KV cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from algorithms.errors import NonFiniteError
from algorithms.rollouts.sampling import SamplingConfig, draw_tokens, row_uniforms
from mrl_env.types import FinishReason

_COMPACT_BELOW = 0.75
"""Finished rows leave the batch once fewer than this share of its rows are still running."""


@dataclass
class Rollout:
    """One completion as sampled.

    Attributes:
        token_ids: (T,) end of sequence included if it was drawn.
        logprobs: (T,) nats; see `sampling.Drawn`.
        entropies: (T,) nats.
        finish_reason: why it ended.
    """

    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    finish_reason: FinishReason = "length"


@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    generations: int,
    config: SamplingConfig,
    seeds: Sequence[int],
    eos_token_ids: Collection[int],
    ends_answer: Callable[[list[int]], bool] | None = None,
) -> list[list[Rollout]]:
    """Sample completions.

    Args:
        model: a causal language model, used in evaluation mode.
        prompts: P prompts of at least one token each.
        generations: G completions per prompt.
        config: how to draw.
        seeds: P * G seeds, prompt by prompt: each row has its own stream.
        eos_token_ids: tokens that end a completion.
        ends_answer: whether a completion, as token ids, has just ended by itself; asked after every token.

    Returns:
        P lists of G rollouts.

    Raises:
        NonFiniteError: if the model's logits are NaN or infinite.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    rows = [Rollout([], [], []) for _ in range(len(prompts) * generations)]
    uniforms = torch.from_numpy(row_uniforms(seeds, config.max_completion_length)).to(device)
    token_ids, mask = _pad_left(prompts, device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    # Prompts are computed once each; their keys and values are then repeated for the group.
    output = model(
        input_ids=token_ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
    )
    logits = output.logits[:, -1].repeat_interleave(generations, dim=0)
    cache.batch_repeat_interleave(generations)
    mask = mask.repeat_interleave(generations, dim=0)
    position = positions[:, -1].repeat_interleave(generations, dim=0)
    running = torch.arange(len(rows), device=device)

    for step in range(config.max_completion_length):
        drawn = draw_tokens(logits, uniforms[running, step], config)
        if drawn.logprobs.isnan().any():
            raise NonFiniteError(
                f"{model.config.name_or_path or type(model).__name__}: logits are not finite at token {step} of the "
                "completions, so nothing can be drawn; the weights are broken, or too large for their dtype (try fp32)"
            )
        alive = _record(rows, running.tolist(), drawn.token_ids.tolist(), drawn.logprobs.tolist(),
                        drawn.entropies.tolist(), eos_token_ids, ends_answer)  # fmt: skip
        if step + 1 == config.max_completion_length or not any(alive):
            break
        next_ids, position = drawn.token_ids, position + 1
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        if sum(alive) < _COMPACT_BELOW * len(alive):
            kept = torch.tensor([i for i, lives in enumerate(alive) if lives], device=device)
            cache.batch_select_indices(kept)
            running, next_ids, position, mask = running[kept], next_ids[kept], position[kept], mask[kept]
        logits = model(
            input_ids=next_ids.unsqueeze(1),
            attention_mask=mask,
            position_ids=position.unsqueeze(1),
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
    model.train(was_training)
    return [rows[p * generations : (p + 1) * generations] for p in range(len(prompts))]


def _record(
    rows: list[Rollout],
    running: Sequence[int],
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    entropies: Sequence[float],
    eos_token_ids: Collection[int],
    ends_answer: Callable[[list[int]], bool] | None,
) -> list[bool]:
    """Append one token to every row that has not finished; returns which rows of the batch still run."""
    alive = []
    for row_index, token_id, logprob, entropy in zip(running, token_ids, logprobs, entropies, strict=True):
        row = rows[row_index]
        # A finished row may stay in the batch until enough others have finished.
        if row.finish_reason == "length":
            row.token_ids.append(token_id)
            row.logprobs.append(logprob)
            row.entropies.append(entropy)
            if token_id in eos_token_ids:
                row.finish_reason = "stop"
            elif ends_answer is not None and ends_answer(row.token_ids):
                row.finish_reason = "boxed"
        alive.append(row.finish_reason == "length")
    return alive


def _pad_left(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(P, T) ids padded with 0 on the left, and (P, T) int64 mask."""
    length = max(len(prompt) for prompt in prompts)
    token_ids = np.zeros((len(prompts), length), dtype=np.int64)
    mask = np.zeros((len(prompts), length), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        token_ids[row, length - len(prompt) :] = prompt
        mask[row, length - len(prompt) :] = 1
    return torch.from_numpy(token_ids).to(device), torch.from_numpy(mask).to(device)
