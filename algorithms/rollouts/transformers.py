"""Batched generation on a Transformers model.

What all prompts begin with is computed once, and each prompt once for all of its completions; then one token a step is drawn
for every row. Rows that have finished leave the batch, and prompts that wait for a place enter it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from algorithms.errors import NonFiniteError
from algorithms.packing import common_prefix
from algorithms.rollouts.cache import RowCache, merged, repeated
from algorithms.rollouts.decoding import packed_weights
from algorithms.rollouts.sampling import SamplingConfig, draw_tokens, row_uniforms
from mrl_env.types import FinishReason

_COMPACT_BELOW = 0.75
"""Finished rows leave the batch, and waiting prompts enter it, once fewer than this share of its rows are still running."""


@dataclass
class Rollout:
    """One completion as sampled.

    Attributes:
        token_ids: (T,) end of sequence included if it was drawn.
        logprobs: (T,) nats; see `sampling.Drawn`.
        entropies: (T,) nats.
        finish_reason: why it ended.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
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
    *,
    batch_size: int | None = None,
    progress: Callable[[int], None] | None = None,
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
        batch_size: rows sampled at a time, at least one prompt's; None is all of them.
        progress: called with the number of completions that were just finished.

    Returns:
        P lists of G rollouts.

    Raises:
        NonFiniteError: if the model's logits are NaN or infinite.
    """
    was_training = model.training
    model.eval()
    rows = [Rollout() for _ in range(len(prompts) * generations)]
    sampler = _Sampler(model, config, seeds, eos_token_ids, ends_answer, rows, progress or (lambda finished: None))
    places = max(1, (batch_size or len(rows)) // generations)
    waiting = 0
    batch: _Batch | None = None
    with packed_weights(model):
        sampler.share(prompts)
        while batch is not None or waiting < len(prompts):
            free = places if batch is None else (places * generations - batch.running) // generations
            entering = prompts[waiting : waiting + free]
            new = sampler.prefill(entering, generations, first_row=waiting * generations) if entering else None
            waiting += len(entering)
            batch = _joined([part for part in (batch, new) if part is not None])
            while batch is not None and batch.running >= _COMPACT_BELOW * len(batch.rows):
                sampler.step(batch)
                batch = batch if batch.running else None
    model.train(was_training)
    return [rows[p * generations : (p + 1) * generations] for p in range(len(prompts))]


@dataclass
class _Batch:
    """Rows in the making.

    Attributes:
        rows: R indices of the rollouts.
        alive: R flags: which of them still run.
        cache: of all tokens but the last.
        token_ids: (R,) int64, each row's last token.
        positions: (R,) int64, its place in the row.
        drawn: (R,) int64, the tokens drawn so far.
    """

    rows: list[int]
    alive: list[bool]
    cache: RowCache
    token_ids: torch.Tensor
    positions: torch.Tensor
    drawn: torch.Tensor

    @property
    def running(self) -> int:
        """Rows that still run."""
        return sum(self.alive)


def _joined(batches: Sequence[_Batch]) -> _Batch | None:
    """The running rows of several batches in one; None if none runs."""
    batches = [batch for batch in batches if batch.running]
    if not batches:
        return None
    if len(batches) == 1 and all(batches[0].alive):
        return batches[0]
    kept = [[i for i, lives in enumerate(batch.alive) if lives] for batch in batches]
    indices = [torch.tensor(k, device=batch.token_ids.device) for k, batch in zip(kept, batches, strict=True)]
    return _Batch(
        rows=[batch.rows[i] for batch, k in zip(batches, kept, strict=True) for i in k],
        alive=[True] * sum(map(len, kept)),
        cache=merged([(batch.cache, index) for batch, index in zip(batches, indices, strict=True)]),
        token_ids=torch.cat([batch.token_ids[index] for batch, index in zip(batches, indices, strict=True)]),
        positions=torch.cat([batch.positions[index] for batch, index in zip(batches, indices, strict=True)]),
        drawn=torch.cat([batch.drawn[index] for batch, index in zip(batches, indices, strict=True)]),
    )


@dataclass
class _Sampler:
    """What all batches of one call share; see `generate`."""

    model: PreTrainedModel
    config: SamplingConfig
    seeds: Sequence[int]
    eos_token_ids: Collection[int]
    ends_answer: Callable[[list[int]], bool] | None
    rollouts: list[Rollout]
    progress: Callable[[int], None]

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.uniforms = torch.from_numpy(row_uniforms(self.seeds, self.config.max_completion_length)).to(self.device)
        self.prefix: RowCache | None = None

    def share(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute what all prompts begin with, such as solved examples, if that is worth a forward pass of its own."""
        if shared := common_prefix(prompts):
            token_ids = torch.tensor([prompts[0][:shared]], device=self.device)
            self.prefix = RowCache(token_ids.new_zeros(1))
            self._logits(token_ids, torch.arange(shared, device=self.device).unsqueeze(0), self.prefix)

    def prefill(self, prompts: Sequence[Sequence[int]], generations: int, first_row: int) -> _Batch:
        """A new batch of `generations` rows a prompt, with the first token of each drawn."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        token_ids = _pad_left(prompts).to(self.device)
        columns = token_ids.shape[1]
        starts = columns - lengths
        cache = RowCache(starts) if self.prefix is None else repeated(self.prefix, starts)
        shared = cache.get_seq_length()
        positions = (torch.arange(shared, columns, device=self.device) - starts.unsqueeze(-1)).clamp(min=0)
        logits = self._logits(token_ids[:, shared:], positions, cache)
        each = torch.arange(len(prompts), device=self.device).repeat_interleave(generations)
        count = len(each)
        batch = _Batch(
            rows=list(range(first_row, first_row + count)),
            alive=[True] * count,
            cache=merged([(cache, each)]),
            token_ids=lengths.new_zeros(count),
            positions=lengths[each] - 1,
            drawn=lengths.new_zeros(count),
        )
        self._draw(batch, logits[each])
        return batch

    def step(self, batch: _Batch) -> None:
        """One more token for every row."""
        self._draw(batch, self._logits(batch.token_ids.unsqueeze(-1), batch.positions.unsqueeze(-1), batch.cache))

    def _logits(self, token_ids: torch.Tensor, positions: torch.Tensor, cache: RowCache) -> torch.Tensor:
        """(R, V) logits behind the last of the tokens (R, n)."""
        output = self.model(
            input_ids=token_ids,
            attention_mask=cache.mask(token_ids.shape[1]),
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _draw(self, batch: _Batch, logits: torch.Tensor) -> None:
        """Draw and record one token for every row of the batch."""
        # A finished row may stay in the batch until enough others have finished; its place and its random numbers stand still.
        uniforms = self.uniforms[batch.rows, batch.drawn.clamp(max=self.config.max_completion_length - 1)]
        drawn = draw_tokens(logits, uniforms, self.config)
        if drawn.logprobs.isnan().any():
            name = self.model.config.name_or_path or type(self.model).__name__
            raise NonFiniteError(
                f"{name}: logits are not finite at token {int(batch.drawn.max())} of the completions, so nothing can be "
                "drawn; the weights are broken, or too large for their dtype (try fp32)"
            )
        moves = torch.tensor(batch.alive, device=self.device).long()
        batch.token_ids, batch.positions, batch.drawn = drawn.token_ids, batch.positions + moves, batch.drawn + moves
        finished = 0
        recorded = zip(
            batch.rows, drawn.token_ids.tolist(), drawn.logprobs.tolist(), drawn.entropies.tolist(), strict=True
        )
        for place, (row, *token) in enumerate(recorded):
            if batch.alive[place]:
                batch.alive[place] = self._record(self.rollouts[row], *token)
                finished += not batch.alive[place]
        if finished:
            self.progress(finished)

    def _record(self, rollout: Rollout, token_id: int, logprob: float, entropy: float) -> bool:
        """Append one token; returns whether the completion goes on."""
        rollout.token_ids.append(token_id)
        rollout.logprobs.append(logprob)
        rollout.entropies.append(entropy)
        if token_id in self.eos_token_ids:
            rollout.finish_reason = "stop"
        elif self.ends_answer is not None and self.ends_answer(rollout.token_ids):
            rollout.finish_reason = "boxed"
        return rollout.finish_reason == "length" and len(rollout.token_ids) < self.config.max_completion_length


def _pad_left(prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """(P, T) int64 ids padded with 0 on the left."""
    length = max(len(prompt) for prompt in prompts)
    token_ids = np.zeros((len(prompts), length), dtype=np.int64)
    for row, prompt in zip(token_ids, prompts, strict=True):
        row[length - len(prompt) :] = prompt
    return torch.from_numpy(token_ids)
