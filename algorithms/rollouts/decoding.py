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


@contextmanager
def packed_weights(model: PreTrainedModel) -> Iterator[None]:
    """Within it the bfloat16 layers of a model on a CPU use reordered copies of their weights, which must not change meanwhile.

    Layers with a common input become one product. The products are the same, and for a few rows faster by up to a quarter, and
    where they are joined by a seventh more. On other devices, and on CPUs without instructions for it, nothing happens.
    """
    packed: list[torch.nn.Module] = []
    if model.device.type == "cpu" and can_pack():
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


def can_pack() -> bool:
    """Whether this CPU has the instructions for products of bfloat16 that the layout is made for, such as AVX-512."""
    supported: bool = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def _products(model: PreTrainedModel) -> Iterator[list[torch.nn.Linear]]:
    """The bfloat16 linear layers of a model, each once: those with a common input together, the others by themselves."""
    layers: dict[int, torch.nn.Linear] = {id(layer): layer for layer in filter(_is_plain, model.modules())}
    for module in model.modules():
        for names in _SIBLINGS:
            children = [getattr(module, name, None) for name in names]
            # A layer with an adapter holds the model's own one.
            found = [layers.get(id(getattr(child, "base_layer", child))) for child in children]
            together = [layer for layer in found if layer is not None]
            if len(together) == len(names) and len({(x.bias is None, x.in_features) for x in together}) == 1:
                for sibling in together:
                    del layers[id(sibling)]
                yield together
    yield from ([layer] for layer in layers.values())


def _is_plain(module: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    """Whether it is exactly a linear layer in bfloat16: adapters and quantized layers compute something else."""
    return type(module) is torch.nn.Linear and module.weight.dtype == torch.bfloat16


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
