"""Weights in the layout that a CPU's matrix products want, made once a rollout instead of anew for every token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeGuard

import torch
from transformers import PreTrainedModel

_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that Transformers' models apply to one input."""


_LARGE = 1 << 18
"""Elements from which on a product in float32 gains by another layout; smaller weights stay in the CPU's cache as they are."""


@contextmanager
def packed_weights(model: PreTrainedModel) -> Iterator[None]:
    """Within it layers of a model on a CPU use reordered copies of their weights, which must not change meanwhile.

    Layers with a common input become one product. The products are the same up to rounding, and for a few rows faster: in
    bfloat16, on CPUs with instructions for it, by up to a quarter, and where they are joined by a seventh more; in float32
    large ones by half or more. On other devices nothing happens.
    """
    packed: list[torch.nn.Module] = []
    if model.device.type == "cpu":
        for layers in _products(model):
            product = _PackedProduct(layers)
            for index, layer in enumerate(layers):
                layer.forward = partial(product, index)  # type: ignore[method-assign]
            packed += layers
    try:
        yield
    finally:
        for module in packed:
            del module.forward


def can_pack(dtype: torch.dtype) -> bool:
    """Whether the layout exists for weights of this type: for bfloat16 only on CPUs with instructions such as AVX-512's."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    supported: bool = dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def _products(model: PreTrainedModel) -> Iterator[list[torch.nn.Linear]]:
    """The linear layers of a model that gain, each once: those with a common input together, the others by themselves."""
    layers: dict[int, torch.nn.Linear] = {id(layer): layer for layer in filter(_is_plain, model.modules())}
    found: list[list[torch.nn.Linear]] = []
    for module in model.modules():
        for names in _SIBLINGS:
            children = [getattr(module, name, None) for name in names]
            # A layer with an adapter holds the model's own one.
            siblings = [layers.get(id(getattr(child, "base_layer", child))) for child in children]
            together = [layer for layer in siblings if layer is not None]
            kinds = {(x.bias is None, x.in_features, x.weight.dtype) for x in together}
            if len(together) == len(names) and len(kinds) == 1:
                for sibling in together:
                    del layers[id(sibling)]
                found.append(together)
    found += [[layer] for layer in layers.values()]
    yield from filter(_gains, found)


def _is_plain(module: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    """Whether it is exactly a linear layer, of a type that there is a layout for; quantized layers compute something else."""
    return type(module) is torch.nn.Linear and can_pack(module.weight.dtype)


def _gains(layers: Sequence[torch.nn.Linear]) -> bool:
    """Whether a product is faster in the other layout."""
    weights = [layer.weight for layer in layers]
    return weights[0].dtype == torch.bfloat16 or sum(weight.numel() for weight in weights) >= _LARGE


class _PackedProduct:
    """One product for layers that are applied to the same input, one after the other.

    Args:
        layers: n linear layers with as many inputs, in the order in which they are called; all with a bias or none.
    """

    def __init__(self, layers: Sequence[torch.nn.Linear]) -> None:
        weights = [layer.weight.detach() for layer in layers]
        self._sizes = [len(weight) for weight in weights]
        joined = weights[0] if len(weights) == 1 else torch.cat(weights)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(joined, None)
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._inputs: torch.Tensor | None = None
        self._outputs: Sequence[torch.Tensor] = ()

    def __call__(self, index: int, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs (..., N) of one layer."""
        if inputs is not self._inputs:
            product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight, self._bias, "none", [], "")
            if len(self._sizes) == 1:
                return product
            self._inputs, self._outputs = inputs, product.split(self._sizes, dim=-1)
        outputs = self._outputs[index]
        if index == len(self._sizes) - 1:
            self._inputs, self._outputs = None, ()
        return outputs
