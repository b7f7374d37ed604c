"""Log-probs of tokens under a model, with little memory and nothing computed twice.

Three savings, each exact: a prompt is computed once for all rows that share it, and what all prompts begin with once for all
prompts; logits are made only where a token is weighted; and they are made in tiles of the vocabulary, of which few are kept, so
that memory does not grow with tokens times vocabulary. Where a model does not allow one of them, the plain way is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from algorithms.optimization import master_gradient
from algorithms.packing import EVEN, Packed, room
from algorithms.rollouts.cache import is_cacheable, moved

_TILE_ELEMENTS = {"cpu": 1 << 20}
"""Logits of a tile: on a CPU so many that they stay in its cache."""
_TILE_ELEMENTS_ELSEWHERE = 1 << 27

_KEPT_BYTES = 64 << 20
"""Logits that a forward pass keeps for its backward pass, at most; the others are made again."""


class TokenLogProbs:
    """Log-probs of packed rows under a model.

    Args:
        model: a causal language model.
        temperature: logits are divided by it, as at sampling.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0) -> None:
        self.model = model
        self.temperature = temperature
        self._head = plain_head(model)
        self._cacheable = is_cacheable(model.config)

    def __call__(self, packed: Packed) -> torch.Tensor:
        """(B, T) float32, nats; 0 where no token is weighted."""
        count = len(packed.weighted)
        # Some tokens more, of which nothing is made, for a product of an even number.
        chosen = torch.nn.functional.pad(packed.weighted, (0, room(count, EVEN)))
        outputs = self._outputs(packed).flatten(0, 1).index_select(0, chosen)
        targets = packed.tail_ids.flatten()[chosen]
        if self._head is None:
            logprobs = token_logprobs(outputs, targets, self.temperature)
        else:
            logprobs = tiled_logprobs(outputs, self._head.weight, targets, self.temperature)
        rows, length = packed.shape
        return logprobs.new_zeros(rows * length).index_put((packed.places,), logprobs[:count]).view(rows, length)

    def _outputs(self, packed: Packed) -> torch.Tensor:
        """(B, L, width): what predicts the tails' tokens, as hidden states, or as logits where the head must be the model's."""
        # Transformers recomputes activations in the backward pass only where there is no cache.
        if self._cacheable and not (self.model.training and self.model.is_activation_checkpointing):
            return self._shared(packed)
        mask = torch.cat([packed.prompt_mask[packed.prompt_of], packed.tail_mask], dim=1)
        return self._run(
            torch.cat([packed.prompt_ids[packed.prompt_of], packed.tail_ids], dim=1)[:, :-1],
            mask[:, :-1],
            (mask.cumsum(-1) - 1).clamp(min=0)[:, :-1],
            packed.tail_ids.shape[1],
            use_cache=False,
        )

    def _shared(self, packed: Packed) -> torch.Tensor:
        """Each prompt once, then the tails behind its keys and values, through which gradients flow back."""
        cache = DynamicCache(config=self.model.config)
        positions = (packed.prompt_mask.cumsum(-1) - 1).clamp(min=0)
        common = self._begin(packed, positions, cache)
        first = self._run(
            packed.prompt_ids[:, common:], packed.prompt_mask, positions[:, common:], 1, cache=cache, use_cache=True
        )
        first = _for_rows(first, packed.prompt_of)
        tails = packed.tail_ids.shape[1] - 1
        if tails == 0:
            return first
        _change(cache, lambda values: _for_rows(values, packed.prompt_of))
        steps = torch.arange(1, tails + 1, device=positions.device)
        behind = self._run(
            packed.tail_ids[:, :-1],
            torch.cat([packed.prompt_mask[packed.prompt_of], packed.tail_mask[:, :-1]], dim=1),
            positions[packed.prompt_of, -1:] + steps,
            tails,
            cache=cache,
            use_cache=True,
        )
        return torch.cat([first, behind], dim=1)

    def _begin(self, packed: Packed, positions: torch.Tensor, cache: DynamicCache) -> int:
        """Fill a cache with what all prompts begin with, a row for each (see `rollouts.cache.repeated`); returns its tokens."""
        # A layer with a sliding window keeps no more than the window, from which nothing could be moved.
        windows = [layer.sliding_window for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer)]
        common = packed.common if packed.common < min(windows, default=packed.common + 1) else 0
        if common:
            starts = (~packed.prompt_mask).sum(-1)
            longest, first = int(starts.argmin()), int(starts.min())
            ids, mask, places = (
                x[longest : longest + 1, first : first + common]
                for x in (packed.prompt_ids, packed.prompt_mask, positions)
            )
            self._run(ids, mask, places, 1, cache=cache, use_cache=True)
            _change(cache, lambda values: moved(values, starts))
        return common

    def _run(
        self, token_ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, last: int, **cache: Any
    ) -> torch.Tensor:
        """The outputs (n, last, width) of the last columns of a forward pass over token ids (n, C)."""
        inputs = {"input_ids": token_ids, "attention_mask": mask, "position_ids": positions, **cache}
        if self._head is None:
            logits: torch.Tensor = self.model(**inputs, logits_to_keep=last).logits
            return logits
        hidden: torch.Tensor = self.model.base_model(**inputs).last_hidden_state[:, -last:]
        return hidden


@torch.no_grad()
def plain_head(model: PreTrainedModel) -> torch.nn.Linear | None:
    """The layer that makes a model's logits from its body's hidden states, if nothing else does: no bias, no scale, no cap.

    Seen by trying: the layer's output is replaced, and has to come out of the model unchanged.
    """
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.bias is not None:
        return None
    seen: list[torch.Tensor] = []
    replaced: list[torch.Tensor] = []

    def replace(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        seen.append(inputs[0])
        replaced.append(torch.linspace(-99, 99, output.numel(), device=output.device).view_as(output).to(output.dtype))
        return replaced[0]

    token_ids = torch.zeros((1, 2), dtype=torch.int64, device=head.weight.device)
    was_training = model.training
    model.eval()
    handle = head.register_forward_hook(replace)
    try:
        logits = model(input_ids=token_ids, use_cache=False).logits
        hidden = model.base_model(input_ids=token_ids, use_cache=False)[0]
    finally:
        handle.remove()
        model.train(was_training)
    plain = torch.equal(logits, replaced[0].to(logits.dtype)) and torch.equal(hidden, seen[0])
    return head if plain else None


def token_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, temperature: float) -> torch.Tensor:
    """Log-probs of the given tokens, in float32.

    Args:
        logits: (..., V), any float type.
        token_ids: (...,) int64.
        temperature: logits are divided by it, as at sampling.

    Returns:
        (...,) float32, nats.
    """
    logits = logits.float() / temperature
    return logits.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(logits, dim=-1)


def tiled_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, token_ids: torch.Tensor, temperature: float
) -> torch.Tensor:
    """`token_logprobs(hidden @ weight.T, ...)` without ever holding all logits.

    The forward pass keeps one number per token, the logarithm of the sum of exponentials, and a few tiles of the logits; the
    backward pass makes the other tiles again, and writes the weight's gradient tile by tile, if the weight has a float32 master
    into that one's gradient.

    Args:
        hidden: (N, D), any float type.
        weight: (V, D) of the same type.
        token_ids: (N,) int64.
        temperature: logits are divided by it.

    Returns:
        (N,) nats, float32, or float64 if the inputs are.
    """
    result: torch.Tensor = _TiledLogProbs.apply(hidden, weight, token_ids, temperature)  # type: ignore[no-untyped-call]
    return result


class _TiledLogProbs(torch.autograd.Function):
    """See `tiled_logprobs`."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, token_ids: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        """Log-probs (N,)."""
        maximum = torch.full((len(hidden),), -torch.inf, dtype=_accumulator(hidden.dtype), device=hidden.device)
        total, chosen = torch.zeros_like(maximum), torch.zeros_like(maximum)
        kept: list[torch.Tensor] = []
        room = _KEPT_BYTES if any(ctx.needs_input_grad) else 0
        for start, size in _tiles(hidden, weight):
            product = _product(hidden, weight, start, size)
            room -= product.numel() * product.element_size()
            if room >= 0:
                kept.append(product)
            logits = _logits(product, temperature)
            rows, columns = _inside(token_ids, start, size)
            chosen[rows] = logits[rows, columns]
            higher = torch.maximum(maximum, logits.amax(-1))
            total.mul_(torch.exp(maximum - higher)).add_(logits.sub_(higher.unsqueeze(-1)).exp_().sum(-1))
            maximum = higher
        log_total = maximum + total.log()
        ctx.save_for_backward(hidden, weight, token_ids, log_total, *kept)
        ctx.temperature = temperature
        return chosen - log_total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        """d log p(token) / d logit = (1 at the token, else 0) - p."""
        hidden, weight, token_ids, log_total, *kept = ctx.saved_tensors
        gradient = gradient / ctx.temperature
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        to_hidden = torch.zeros_like(hidden, dtype=log_total.dtype) if needs_hidden else None
        collected = master_gradient(weight) if needs_weight else None
        to_weight = torch.empty_like(weight) if needs_weight and collected is None else None
        for tile, (start, size) in enumerate(_tiles(hidden, weight)):
            product = kept[tile] if tile < len(kept) else _product(hidden, weight, start, size)
            logits = _logits(product, ctx.temperature)
            rows, columns = _inside(token_ids, start, size)
            logits.sub_(log_total.unsqueeze(-1)).exp_().mul_(-gradient.unsqueeze(-1))
            logits[rows, columns] += gradient[rows]
            to_logits = logits.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden += to_logits @ weight[start : start + size]
            if collected is not None:
                collected[start : start + size] += to_logits.T @ hidden
            if to_weight is not None:
                torch.mm(to_logits.T, hidden, out=to_weight[start : start + size])
        return None if to_hidden is None else to_hidden.to(hidden.dtype), to_weight, None, None


def _tiles(hidden: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[int, int]]:
    """(First token, number of tokens) for each tile of the vocabulary."""
    size = max(1, _TILE_ELEMENTS.get(hidden.device.type, _TILE_ELEMENTS_ELSEWHERE) // max(1, len(hidden)))
    for start in range(0, len(weight), size):
        yield start, min(size, len(weight) - start)


def _product(hidden: torch.Tensor, weight: torch.Tensor, start: int, size: int) -> torch.Tensor:
    """(N, size) logits of a tile in the model's type, as in its own head: others would differ from those at sampling."""
    return hidden @ weight[start : start + size].T


def _logits(product: torch.Tensor, temperature: float) -> torch.Tensor:
    """A tile's logits at a temperature, in the accumulator's type; may be overwritten."""
    logits = product.to(_accumulator(product.dtype), copy=True)
    return logits if temperature == 1 else logits.div_(temperature)


def _inside(token_ids: torch.Tensor, start: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows whose token lies in a tile, and its column there."""
    rows = ((token_ids >= start) & (token_ids < start + size)).nonzero().squeeze(-1)
    return rows, token_ids[rows] - start


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type in which logits are summed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _change(cache: DynamicCache, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace the keys and values of all layers, but of those that share another one's and have none of their own."""
    for layer in cache.layers:
        if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
            layer.keys, layer.values = change(layer.keys), change(layer.values)


def _for_rows(values: torch.Tensor, prompt_of: torch.Tensor) -> torch.Tensor:
    """Values (P, ...) of prompts, for each of their rows (B, ...)."""
    if len(values) == 1:
        return values.expand(len(prompt_of), *values.shape[1:])
    return values.index_select(0, prompt_of)
