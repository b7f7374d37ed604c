"""Root-mean-square norms: Transformers' numbers, and its gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from algorithms.norms import RMSNorm, use_fused_norms

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def models() -> dict[str, PreTrainedModel]:
    torch.manual_seed(0)
    made: dict[str, PreTrainedModel] = {
        "llama": LlamaForCausalLM(LlamaConfig(**SHAPE)),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)),
        "gemma3": Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, head_dim=16)),
    }
    for model in made.values():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(parameter, 0.7, 0.2)
    return made


# Norms of a layer, of the queries and keys, and of the last output.
NORMS = {"llama": 2 * 2 + 1, "qwen3": 2 * 4 + 1, "gemma3": 2 * 6 + 1}


@pytest.mark.parametrize("architecture", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_with_fused_norms_is_the_same_model(architecture: str, dtype: torch.dtype) -> None:
    usual = models()[architecture].to(dtype)
    fused = copy.deepcopy(usual)
    use_fused_norms(fused)
    assert sum(isinstance(module, RMSNorm) for module in fused.modules()) == NORMS[architecture]
    assert list(fused.state_dict()) == list(usual.state_dict())
    ids = torch.randint(3, 60, (3, 12), generator=torch.Generator().manual_seed(0))
    for model in (usual, fused):
        model(ids, labels=ids).loss.backward()
    with torch.no_grad():
        assert torch.equal(fused(ids).logits, usual(ids).logits)
    # bfloat16 gradients of Transformers itself are off by a few of its 2^-8.
    tolerance = 2e-6 if dtype == torch.float32 else 3e-2
    for (name, parameter), other in zip(fused.named_parameters(), usual.parameters(), strict=True):
        assert parameter.grad is not None and other.grad is not None
        difference = (parameter.grad - other.grad).float().norm() / other.grad.float().norm()
        assert difference < tolerance, name


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8), (2, 3, 4, 8)])
def test_gradients_against_double_precision(offset: bool, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    layer = Gemma3RMSNorm(8) if offset else LlamaRMSNorm(8)
    torch.nn.init.normal_(layer.weight, generator=generator)
    hidden = torch.randn(shape, generator=generator, requires_grad=True)
    upstream = torch.randn(shape, generator=generator)
    RMSNorm(layer.weight, 1e-6, offset)(hidden).backward(upstream)
    exact, weight = hidden.detach().double().requires_grad_(), layer.weight.detach().double().requires_grad_()
    norm = exact / (exact.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    (norm * (weight + offset)).backward(upstream.double())
    torch.testing.assert_close(hidden.grad, exact.grad.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(layer.weight.grad, weight.grad.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offset", [False, True])
def test_gradients_in_bfloat16_are_off_by_less_than_its_resolution(offset: bool) -> None:
    """Over many rows: sums of as many products as tokens must not be kept in bfloat16."""
    generator = torch.Generator().manual_seed(1)
    layer = (Gemma3RMSNorm(64) if offset else LlamaRMSNorm(64)).to(torch.bfloat16)
    torch.nn.init.normal_(layer.weight, 1.0 - offset, 0.2, generator=generator)
    hidden = (3 * torch.randn((1000, 64), generator=generator)).to(torch.bfloat16).requires_grad_()
    upstream = torch.randn((1000, 64), generator=generator).to(torch.bfloat16)
    RMSNorm(layer.weight, 1e-6, offset)(hidden).backward(upstream)
    exact, weight = hidden.detach().double().requires_grad_(), layer.weight.detach().double().requires_grad_()
    norm = exact / (exact.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    (norm * (weight + offset)).backward(upstream.double())
    for mine, theirs in ((hidden.grad, exact.grad), (layer.weight.grad, weight.grad)):
        assert mine is not None and theirs is not None
        assert (mine - theirs).norm() < 2**-8 * theirs.norm()


def test_less_is_kept_for_the_backward_pass() -> None:
    """In bfloat16 the input (2 bytes) and a number per token, where Transformers keeps 2 + 4 bytes or more."""
    layer = LlamaRMSNorm(64).to(torch.bfloat16)
    fused = RMSNorm(layer.weight, layer.variance_epsilon, offset=False)

    def kept(norm: torch.nn.Module) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        hidden = torch.randn(100, 64).to(torch.bfloat16).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            norm(hidden)
        return sum(sizes.values())

    assert kept(fused) == 100 * 64 * 2 + 64 * 2 + 100 * 4
    assert kept(layer) > 2 * kept(fused)


def test_other_norms_stay() -> None:
    model = PhiForCausalLM(PhiConfig(**{**SHAPE, "num_key_value_heads": 4}))
    before = [type(module) for module in model.modules()]
    use_fused_norms(model)
    assert [type(module) for module in model.modules()] == before

    class DoubledRMSNorm(LlamaRMSNorm):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(hidden_states)

    layers = torch.nn.Sequential(DoubledRMSNorm(8))
    use_fused_norms(layers)
    assert type(layers[0]) is DoubledRMSNorm
