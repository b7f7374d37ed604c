"""Log-probs of packed rows: equal to plain forward passes and plain autograd, whatever is saved on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import algorithms.logprobs
from algorithms.logprobs import TokenLogProbs, plain_head, tiled_logprobs, token_logprobs
from algorithms.optimization import MasterOptimizer
from algorithms.packing import pack
from algorithms.samples import Sample, make_sample

MakeLlama = Callable[..., LlamaForCausalLM]
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama(**overrides: Any) -> PreTrainedModel:
    from transformers import LlamaConfig

    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **overrides}))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16))


def gemma3() -> PreTrainedModel:
    """Tied embeddings; two of three layers see only the last four tokens, fewer than a prompt has."""
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, head_dim=16, sliding_window=4, layer_types=layers))


def gemma2() -> PreTrainedModel:
    """Logits are squeezed into (-3, 3)."""
    return Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=16, sliding_window=4, final_logit_softcapping=3.0))


def granite() -> PreTrainedModel:
    """Logits are divided by 4."""
    return GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=4.0))


def cohere() -> PreTrainedModel:
    """Logits are multiplied by 0.25."""
    return CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25))


def phi() -> PreTrainedModel:
    """The head has a bias."""
    model = PhiForCausalLM(PhiConfig(**SHAPE))
    with torch.no_grad():
        model.lm_head.bias.normal_()
    return model


PLAIN = (llama, qwen3, gemma3)
SPECIAL = (gemma2, granite, cohere, phi)


def made(make: Callable[[], PreTrainedModel], dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    torch.manual_seed(0)
    return make().to(dtype).eval()


def sample_rows(seed: int = 0) -> list[Sample]:
    """Three prompts of different lengths with one to four rows each; masks with holes, NLL rows, a row of one token."""
    rng = np.random.default_rng(seed)
    rows = []
    for prompt_length, count in ((7, 4), (2, 3), (11, 1)):
        prompt = rng.integers(3, 64, prompt_length).tolist()
        for i in range(count):
            completion = rng.integers(3, 64, 1 if i == 2 else rng.integers(2, 9)).tolist()
            advantage = None if i == 1 else 1.0
            row = make_sample(prompt, completion, source="me", advantage=advantage, nll_weight=float(i == 1))
            if i == 0 and len(completion) > 3:
                row.loss_mask[prompt_length + 1] = False
                row.loss_mask[-1] = False
            rows.append(row)
    return rows


def plain(model: PreTrainedModel, rows: Sequence[Sample], temperature: float) -> torch.Tensor:
    """Row by row, whole logits, no cache: what PyTorch and Transformers say."""
    result = torch.zeros(len(rows), max(len(row.token_ids) for row in rows), dtype=next(model.parameters()).dtype)
    for i, row in enumerate(rows):
        ids = torch.from_numpy(row.token_ids)
        logits = model(ids[None], use_cache=False).logits[0, :-1]
        logprobs = torch.log_softmax(logits / temperature, -1).gather(-1, ids[1:, None])[:, 0]
        weighted = torch.from_numpy(row.weighted)
        result[i, : len(ids)] = torch.where(weighted, torch.nn.functional.pad(logprobs, (1, 0)), 0.0)
    return result


def weight_gradients(model: PreTrainedModel, logprobs: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of a sum with different weights for all tokens."""
    weights = torch.linspace(0.3, 1.7, logprobs.numel(), dtype=torch.float64).view_as(logprobs)
    gradients = torch.autograd.grad((logprobs * weights).sum(), list(model.parameters()), allow_unused=True)
    return [torch.zeros(()) if g is None else g for g in gradients]


# Against plain forward passes


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("make", [*PLAIN, *SPECIAL])
def test_packed_rows_have_the_log_probs_and_gradients_of_plain_ones(
    make: Callable[[], PreTrainedModel], temperature: float
) -> None:
    """In float64, where a difference would be a mistake; but norms and rotations compute in float32 there too, so gradients
    differ by the order of their sums. Special heads in float32: their log-probs are, and eager attention is NaN in float64."""
    model, rows = made(make, torch.float64 if make in PLAIN else torch.float32), sample_rows()
    expected = plain(model, rows, temperature)
    found = TokenLogProbs(model, temperature)(pack(rows, "cpu"))
    tolerance = 1e-10 if make in PLAIN else 1e-5
    assert (found - expected).abs().max() < tolerance
    for mine, theirs in zip(weight_gradients(model, found), weight_gradients(model, expected), strict=True):
        assert (mine - theirs).norm() <= (1e-6 if make in PLAIN else 1e-5) * (1 + theirs.norm())


@pytest.mark.parametrize("make", PLAIN)
def test_what_is_added_for_even_numbers_changes_nothing(make: Callable[[], PreTrainedModel]) -> None:
    """A prompt of 57 tokens, 8 completions of 63: columns are added to both, and 8 tokens to the 504 of the head."""
    rng = np.random.default_rng(0)
    prompt, *completions = (rng.integers(3, 64, length).tolist() for length in (57, *[63] * 8))
    rows = [make_sample(prompt, completion, source="me", advantage=1.0) for completion in completions]
    packed, model = pack(rows, "cpu"), made(make)
    assert (packed.prompt_ids.shape, packed.tail_ids.shape) == ((1, 64), (8, 65))
    seen: list[int] = []
    tiled = algorithms.logprobs.tiled_logprobs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            algorithms.logprobs,
            "tiled_logprobs",
            lambda hidden, *rest: seen.append(len(hidden)) or tiled(hidden, *rest),
        )
        found = TokenLogProbs(model)(packed)
    assert seen == [512]
    expected = plain(model, rows, 1.0)
    assert (found - expected).abs().max() < 1e-10
    for mine, theirs in zip(weight_gradients(model, found), weight_gradients(model, expected), strict=True):
        assert (mine - theirs).norm() <= 1e-6 * (1 + theirs.norm())


@pytest.mark.parametrize("make", PLAIN)
def test_recomputed_activations_change_nothing(make: Callable[[], PreTrainedModel]) -> None:
    model, rows = made(make), sample_rows()
    expected = TokenLogProbs(model)(pack(rows, "cpu"))
    gradients = weight_gradients(model, expected)
    model.activation_checkpointing_enable()
    model.train()
    found = TokenLogProbs(model)(pack(rows, "cpu"))
    assert (found - expected).abs().max() < 1e-10
    for mine, theirs in zip(weight_gradients(model, found), gradients, strict=True):
        assert (mine - theirs).norm() <= 1e-6 * (1 + theirs.norm())


def test_rows_do_not_depend_on_their_company() -> None:
    model, rows = made(llama), sample_rows()
    together = TokenLogProbs(model)(pack(rows, "cpu"))
    for i, row in enumerate(rows):
        alone = TokenLogProbs(model)(pack([row], "cpu"))
        assert (together[i, : alone.shape[1]] - alone[0]).abs().max() < 1e-10


def test_a_prompt_is_computed_once() -> None:
    """Counted at the embedding: three prompts padded to 11, and tails without their last token."""
    model, rows = made(llama), sample_rows()
    counted: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: counted.append(inputs[0].numel())
    )
    packed = pack(rows, "cpu")
    TokenLogProbs(model)(packed)
    handle.remove()
    # The first two passes are those that try the head.
    assert counted[-2:] == [3 * 11, len(rows) * (packed.tail_ids.shape[1] - 1)]


def gemma3_of_window(window: int) -> PreTrainedModel:
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, head_dim=16, sliding_window=window, layer_types=layers))


@pytest.mark.parametrize(("window", "shared"), [(10, True), (9, True), (8, False)])
def test_what_prompts_begin_with_is_computed_once(monkeypatch: pytest.MonkeyPatch, window: int, shared: bool) -> None:
    """Eight tokens, also of a prompt shorter than what the longest has to itself; not where a window has lost some."""
    monkeypatch.setattr("algorithms.packing._SHARED_TOKENS", 16)
    rng = np.random.default_rng(1)
    beginning = tuple(rng.integers(3, 64, 8).tolist())
    rows = []
    for p, length in enumerate((5, 1, 12)):
        prompt = (*beginning, 3 + p, *rng.integers(3, 64, length - 1).tolist())
        rows += [make_sample(prompt, rng.integers(3, 64, n).tolist(), source="me", advantage=1.0) for n in (4, 1, 7)]
    for make in (llama, lambda: gemma3_of_window(window)):
        model = made(make)
        counted: list[int] = []
        logprobs = TokenLogProbs(model)
        handle = model.get_input_embeddings().register_forward_hook(
            lambda module, inputs, output, counted=counted: counted.append(inputs[0].numel())
        )
        packed = pack(rows, "cpu")
        found = logprobs(packed)
        handle.remove()
        assert packed.common == 8
        assert counted == ([8, 3 * 12, 9 * 6] if shared or make is llama else [3 * 20, 9 * 6])
        expected = plain(model, rows, 1.0)
        assert (found - expected).abs().max() < 1e-10
        for mine, theirs in zip(weight_gradients(model, found), weight_gradients(model, expected), strict=True):
            assert (mine - theirs).norm() <= 1e-6 * (1 + theirs.norm())


# The head


@pytest.mark.parametrize("make", [*PLAIN, *SPECIAL])
def test_only_plain_heads_are_taken(make: Callable[[], PreTrainedModel]) -> None:
    model = made(make).train()
    head = plain_head(model)
    assert (head is model.get_output_embeddings()) is (make in PLAIN)
    assert model.training, "it keeps its mode"
    assert not model.get_output_embeddings()._forward_hooks, "and has no hook left"


def test_a_wrapped_head_is_not_plain() -> None:
    class Wrapped(torch.nn.Linear):
        pass

    model = made(llama)
    model.set_output_embeddings(Wrapped(32, 64, bias=False).double())
    assert plain_head(model) is None


@pytest.mark.parametrize("tile", [1, 7 * 5, 10**9])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kept", [0, 7 * 5 * 4 * 3 + 1, 10**9])
def test_tiles_are_plain_autograd_on_whole_logits(
    tile: int, temperature: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the backward pass makes all logits again, or some, or none."""
    monkeypatch.setattr(algorithms.logprobs, "_KEPT_BYTES", kept)
    monkeypatch.setitem(algorithms.logprobs._TILE_ELEMENTS, "cpu", tile)
    generator = torch.Generator().manual_seed(0)
    hidden = (3 * torch.randn(7, 12, generator=generator)).requires_grad_()
    weight = torch.randn(50, 12, generator=generator).requires_grad_()
    token_ids = torch.tensor([0, 49, 3, 3, 31, 7, 6])
    outer = torch.randn(7, generator=generator)
    expected = torch.log_softmax(hidden @ weight.T / temperature, -1).gather(-1, token_ids[:, None])[:, 0]
    found = tiled_logprobs(hidden, weight, token_ids, temperature)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-6)
    theirs = torch.autograd.grad((expected * outer).sum(), (hidden, weight))
    mine = torch.autograd.grad((found * outer).sum(), (hidden, weight))
    for a, b in zip(mine, theirs, strict=True):
        assert (a - b).norm() / b.norm() < 1e-6


def test_tiles_pass_the_gradient_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(algorithms.logprobs._TILE_ELEMENTS, "cpu", 12)
    hidden = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    token_ids = torch.tensor([0, 9, 4, 4])
    assert torch.autograd.gradcheck(lambda h, w: tiled_logprobs(h, w, token_ids, 0.7), (hidden, weight))


def test_tiles_in_bfloat16_are_as_good_as_whole_logits() -> None:
    """Both round the logits to bfloat16; against float64 neither is closer by more than a little."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 64, generator=generator).bfloat16().requires_grad_() for n in (40, 900))
    token_ids = torch.randint(900, (40,), generator=generator)
    exact = torch.log_softmax((hidden.double() @ weight.double().T), -1).gather(-1, token_ids[:, None])[:, 0]
    whole, tiled = token_logprobs(hidden @ weight.T, token_ids, 1.0), tiled_logprobs(hidden, weight, token_ids, 1.0)
    assert tiled.dtype == torch.float32
    assert (tiled - exact).abs().max() <= 1.1 * (whole - exact).abs().max() + 1e-4
    for parameter in (hidden, weight):
        [reference] = torch.autograd.grad(exact.sum(), parameter, retain_graph=True)
        [mine] = torch.autograd.grad(tiled.sum(), parameter, retain_graph=True)
        [theirs] = torch.autograd.grad(whole.sum(), parameter, retain_graph=True)
        assert (mine - reference).norm() <= 1.1 * (theirs - reference).norm() + 1e-3 * reference.norm()


def test_the_weights_gradient_goes_to_its_master() -> None:
    """Two backward passes add up in float32; the weight itself never has a gradient."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 64, generator=generator).bfloat16() for n in (40, 900))
    token_ids = torch.randint(900, (40,), generator=generator)
    exact = weight.double().requires_grad_()
    logprobs = torch.log_softmax(hidden.double() @ exact.T, -1).gather(-1, token_ids[:, None])
    [expected] = torch.autograd.grad(2 * logprobs.sum(), exact)
    parameter = torch.nn.Parameter(weight)
    optimizer = MasterOptimizer([parameter], torch.optim.SGD, lr=1.0)
    for _ in range(2):
        tiled_logprobs(hidden, parameter, token_ids, 1.0).sum().backward()
    [master] = optimizer.masters
    assert parameter.grad is None
    assert master.grad is not None
    assert (master.grad - expected).norm() < 2**-6 * expected.norm()


def test_a_frozen_side_gets_no_gradient() -> None:
    hidden, weight = torch.randn(3, 4, requires_grad=True), torch.randn(9, 4)
    tiled_logprobs(hidden, weight, torch.tensor([1, 2, 3]), 1.0).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.numel())
        return result


def test_memory_does_not_grow_with_tokens_times_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of 4,096 and 512 tokens have 2,097,152 logits; no tensor comes near, the weight is the largest."""
    monkeypatch.setitem(algorithms.logprobs._TILE_ELEMENTS, "cpu", 1 << 16)
    model = made(lambda: llama(vocab_size=4096), torch.float32)
    rows = [make_sample([3, 4], [5 + i, *[9] * 63], source="me", advantage=1.0) for i in range(8)]
    forward = TokenLogProbs(model)
    packed = pack(rows, "cpu")
    with Largest() as largest:
        forward(packed).sum().backward()
    assert largest.elements == 4096 * 32
