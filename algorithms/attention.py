"""Attention on a CPU as batched matrix products, for sequences of up to a few hundred tokens.

PyTorch's kernel is made for long sequences: for short ones most of its time does not go into products, least of all in its
backward pass, and keys and values must be repeated for the heads that share them. Here the heads that share keys are rows
of one product. Long sequences, whose scores would take much memory, and attentions with special terms go the usual way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "grouped"
"""What Transformers knows this attention by."""

_SPECIAL = ("softcap", "position_bias", "s_aux")
"""Arguments that only some attentions have."""

_LONG = 4
"""A sequence is long if it has more tokens than so many times a head's width: then its scores take more memory than twice
what the repeated keys and values would."""


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let a model on a CPU that uses PyTorch's attention use this one; other models stay as they are."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(NAME)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as one of Transformers' functions.

    Args:
        module: the attention layer.
        query: (R, H, n, D).
        key, value: (R, K, C, D), where K divides H.
        attention_mask: (R, 1, n, C) to be added to the scores, as `additive_mask` gives it; None for causal ones.
        dropout: share of the attention weights to drop.
        scaling: of the scores; by default the root of 1 / D.

    Returns:
        (R, n, H, D), and None.
    """
    rows, heads, tokens, width = query.shape
    special = dropout > 0 or any(kwargs.get(name) is not None for name in _SPECIAL)
    special = special or (attention_mask is None and not _is_causal(module, kwargs))
    if special or tokens > _LONG * width:
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return result
    shared = key.shape[1]
    grouped = (query * (width**-0.5 if scaling is None else scaling)).reshape(rows * shared, -1, width)
    scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).view(rows, shared, heads // shared, tokens, -1)
    if attention_mask is None and tokens > 1:
        attention_mask = _causal(tokens, key.shape[2], scores)
    if attention_mask is not None:
        scores = scores + attention_mask.unsqueeze(1)
    weights = torch.softmax(scores, dim=-1).view(rows * shared, -1, key.shape[2])
    outputs = torch.bmm(weights, value.flatten(0, 1)).view(rows, heads, tokens, width)
    return outputs.transpose(1, 2).contiguous(), None


def _is_causal(module: torch.nn.Module, arguments: Mapping[str, Any]) -> bool:
    """What no mask means, as Transformers' attentions read it."""
    asked = arguments.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


def _causal(tokens: int, columns: int, scores: torch.Tensor) -> torch.Tensor:
    """(1, 1, n, C) to be added to the scores: the last of n tokens sees all C columns, each one before it one less."""
    lowest = torch.full((tokens, columns), torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
    return lowest.triu(columns - tokens + 1)[None, None]


def additive_mask(**kwargs: Any) -> torch.Tensor | None:
    """Transformers' mask for PyTorch's attention, as numbers to add to the scores: 0, or the lowest of their type.

    Not minus infinity: a padded token sees nothing at all, and would be NaN.
    """
    mask: torch.Tensor | None = sdpa_mask(**kwargs)
    if mask is None:
        return None
    return torch.zeros(mask.shape, dtype=kwargs["dtype"], device=mask.device).masked_fill_(
        ~mask, torch.finfo(kwargs["dtype"]).min
    )


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, additive_mask)
