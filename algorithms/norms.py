"""Root-mean-square norms in fewer passes over memory, with the numbers of Transformers' own.

Transformers writes the norm as half a dozen operations, each of which keeps float32 tensors for the backward pass; a model
has two to six norms a layer. This one keeps its input as it came, and one number per token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable


class RMSNorm(torch.nn.Module):
    """x / sqrt(mean(x^2) + eps), times a weight.

    Args:
        weight: (D,) of the layer that this one replaces.
        eps: its epsilon.
        offset: whether the weight is a difference from 1, as in Gemma, and is multiplied before the result is rounded to the
            input's type; otherwise it is multiplied after it, as in Llama.
    """

    def __init__(self, weight: torch.nn.Parameter, eps: float, offset: bool) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps
        self.offset = offset

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(..., D) of the input's type."""
        scale = 1.0 + self.weight.float() if self.offset else self.weight
        if not torch.is_grad_enabled():
            return _normed(hidden, scale, self.eps)[0]
        normed: torch.Tensor = _RMSNorm.apply(hidden, scale, self.eps)  # type: ignore[no-untyped-call]
        return normed


def _normed(hidden: torch.Tensor, scale: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of (..., D) times a scale (D,), after rounding where both have one type, else before; and (..., 1) 1 / r."""
    exact = hidden.float()
    inverse = exact.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    if scale.dtype == hidden.dtype:
        return scale * (exact * inverse).to(hidden.dtype), inverse
    return (exact * inverse).mul_(scale).to(hidden.dtype), inverse


class _RMSNorm(torch.autograd.Function):
    """See `_normed`."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
        """(..., D) of the input's type."""
        result, inverse = _normed(hidden, scale, eps)
        ctx.save_for_backward(hidden, scale, inverse)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """With n = x / r: dL/dx = (g - n mean(g n)) / r for g = dL/dn.

        That is a layer norm's gradient of an input whose mean is 0, but for the mean of g, which a layer norm also takes away:
        it is added again. PyTorch has the former as one operation; that one's gradient of the weight is not used, since it is
        ten times as far off in bfloat16.
        """
        hidden, scale, inverse = ctx.saved_tensors
        width, gradient = hidden.shape[-1], gradient.contiguous()
        to_hidden, _, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, hidden, [width], torch.zeros_like(inverse), inverse, scale.float(), None, [True, False, False]
        )
        mean = torch.linalg.vecdot(gradient, scale.to(gradient.dtype)).div_(width).unsqueeze(-1)
        to_hidden.add_((mean * inverse).to(hidden.dtype))
        to_scale = None
        if ctx.needs_input_grad[1]:
            to_scale = (inverse.view(1, -1) @ (gradient * hidden).view(-1, width).float()).view(width).to(scale.dtype)
        return to_hidden, to_scale, None


@torch.no_grad()
def use_fused_norms(model: torch.nn.Module) -> None:
    """Replace the root-mean-square norms of a model on a CPU; layers that compute anything else stay as they are.

    Seen by trying: the replacement's output has to be the layer's to the bit.
    """
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            replacement = _replacement(layer)
            if replacement is not None:
                parent.register_module(name, replacement)


def _replacement(layer: torch.nn.Module) -> RMSNorm | None:
    """The layer's replacement; None if it is no norm of this kind."""
    weight = getattr(layer, "weight", None)
    eps = getattr(layer, "variance_epsilon", getattr(layer, "eps", None))
    if not (isinstance(weight, torch.nn.Parameter) and weight.device.type == "cpu" and weight.dim() == 1):
        return None
    if not (type(layer).__name__.endswith("RMSNorm") and isinstance(eps, float)):
        return None
    probe = torch.linspace(-3, 5, 2 * len(weight)).view(2, -1).to(weight.dtype)
    kept = weight.clone()
    # Weights of 1, as of a new model, would not tell the two kinds from others.
    weight.copy_(torch.linspace(0.3, 0.9, len(weight)))
    try:
        candidates = [RMSNorm(weight, eps, offset) for offset in (False, True)]
        expected = layer(probe)
        return next((candidate for candidate in candidates if torch.equal(candidate(probe), expected)), None)
    finally:
        weight.copy_(kept)
