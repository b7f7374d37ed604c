"""What makes a token at a time faster on a CPU, where PyTorch's kernels are made for long sequences.

Two things, for the time of a rollout: attention of a single token as two batched products over whole buffers, and weights in
the layout that the processor's matrix products want, so that it is not made anew for every token. Both compute what the
model computes, up to rounding. On other devices, and for models that do not use PyTorch's own attention, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "mutual_rl_decoding"
_SPECIAL = ("softcap", "position_bias", "s_aux")
"""Arguments of attentions that are not plain; those are left to the usual function."""


@contextmanager
def fast_decoding(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model decodes faster. Its weights must not change meanwhile.

    Args:
        model: as it is; afterwards as it was.
    """
    if model.device.type != "cpu" or model.config._attn_implementation != "sdpa":
        yield
        return
    packed = _pack_weights(model)
    model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")
        for module in packed:
            del module.forward


def decoding_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one token a row; the heads that share keys are the rows of one product.

    Args:
        module: the attention layer.
        query: (R, H, n, D); for more than one token the usual function is called.
        key, value: (R, K, C, D), where K divides H.
        attention_mask: (R, 1, 1, C) to be added to the scores, as `decoding_mask` gives it.
        scaling: of the scores; the root of 1 / D by default.

    Returns:
        (R, n, H, D), and None.
    """
    rows, heads, tokens, width = query.shape
    if tokens != 1 or any(kwargs.get(name) is not None for name in _SPECIAL):
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return result
    shared = key.shape[1]
    grouped = query.reshape(rows * shared, heads // shared, width) * (width**-0.5 if scaling is None else scaling)
    scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).view(rows, shared, heads // shared, -1)
    if attention_mask is not None:
        scores += attention_mask
    weights = torch.softmax(scores, dim=-1).flatten(0, 1)
    return torch.bmm(weights, value.flatten(0, 1)).view(rows, 1, heads, width), None


def decoding_mask(**kwargs: Any) -> torch.Tensor | None:
    """Transformers' mask; where it is that of one token a row, as numbers to add: 0, or minus infinity."""
    mask: torch.Tensor | None = sdpa_mask(**kwargs)
    if mask is None or kwargs["q_length"] != 1:
        return mask
    return torch.zeros(mask.shape, dtype=kwargs["dtype"], device=mask.device).masked_fill_(~mask, -torch.inf)


AttentionInterface.register(_NAME, decoding_attention)
AttentionMaskInterface.register(_NAME, decoding_mask)


def _pack_weights(model: PreTrainedModel) -> list[torch.nn.Linear]:
    """Let the model's bfloat16 layers use reordered copies of their weights; returns these layers."""
    if not torch.backends.mkldnn.is_available():
        return []
    packed = []
    for module in model.modules():
        # Exactly this class: adapters and quantized layers compute something else.
        if type(module) is torch.nn.Linear and module.weight.dtype == torch.bfloat16:
            weight = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), None)
            module.forward = partial(_packed_linear, weight, module.bias)  # type: ignore[method-assign]
            packed.append(module)
    return packed


def _packed_linear(weight: torch.Tensor, bias: torch.Tensor | None, inputs: torch.Tensor) -> torch.Tensor:
    """A linear layer with a reordered weight."""
    outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return outputs
