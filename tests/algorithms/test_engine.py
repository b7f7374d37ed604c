"""What makes sampling fast changes nothing: grouped attention, the buffered cache, packed weights, blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import algorithms.attention
import algorithms.rollouts.sampling
from algorithms.attention import additive_mask, grouped_attention, use_grouped_attention
from algorithms.policy import Policy
from algorithms.rollouts.cache import RowCache, is_cacheable, merged
from algorithms.rollouts.decoding import packed_weights
from algorithms.rollouts.sampling import SamplingConfig, draw_tokens, filtered_probs
from algorithms.rollouts.transformers import generate

MakeLlama = Callable[..., LlamaForCausalLM]
MakeGemma = Callable[..., Gemma3ForCausalLM]


# Grouped attention


def attention_inputs(rows: int, heads: int, shared: int, tokens: int, columns: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values, and a causal mask in which the second row lacks its first two columns."""
    generator = torch.Generator().manual_seed(0)

    def make(n: int, length: int) -> torch.Tensor:
        return torch.randn(rows, n, length, 8, generator=generator, dtype=torch.float64).requires_grad_()

    mask = torch.ones(tokens, columns, dtype=torch.bool).tril(columns - tokens).expand(rows, 1, -1, -1).clone()
    mask[1, :, :, :2] = False
    return make(heads, tokens), make(shared, columns), make(shared, columns), mask


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_grouped_attention_is_attention(heads: int, shared: int, tokens: int, scaling: float | None) -> None:
    """Against PyTorch's, on repeated keys and values, with gradients."""
    query, key, value, mask = attention_inputs(3, heads, shared, tokens, 9)
    repeated = [states.repeat_interleave(heads // shared, dim=1) for states in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=scaling)
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)
    found, weights = grouped_attention(torch.nn.Module(), query, key, value, bias, scaling=scaling)
    assert weights is None
    assert torch.allclose(found, expected.transpose(1, 2), atol=1e-12)
    outer = torch.randn(expected.shape, dtype=torch.float64)
    theirs = torch.autograd.grad((expected * outer).sum(), (query, key, value))
    mine = torch.autograd.grad((found * outer.transpose(1, 2)).sum(), (query, key, value))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 5])
def test_no_mask_is_a_causal_one(tokens: int) -> None:
    """Without a cache before them, as prompts are computed."""
    query, key, value, _ = attention_inputs(2, 4, 4, tokens, tokens)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    found, _ = grouped_attention(torch.nn.Module(), query, key, value, None)
    assert torch.allclose(found, expected.transpose(1, 2), atol=1e-12)


@pytest.mark.parametrize(
    ("tokens", "masked", "arguments"),
    [(33, True, {}), (5, False, {"is_causal": False}), (5, True, {"dropout": 0.1}), (5, True, {"softcap": 30.0})],
)
def test_what_is_long_or_special_goes_the_usual_way(
    tokens: int, masked: bool, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Width 8: more than 32 tokens are long."""
    calls: list[dict[str, Any]] = []

    def usual(module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
        calls.append(kwargs)
        return torch.zeros(()), None

    monkeypatch.setattr(algorithms.attention, "sdpa_attention_forward", usual)
    query, key, value, mask = attention_inputs(2, 4, 2, tokens, 40)
    bias = torch.zeros(mask.shape, dtype=torch.float64) if masked else None
    grouped_attention(torch.nn.Module(), query, key, value, bias, **arguments)
    assert len(calls) == 1
    assert calls[0].items() >= arguments.items()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_leave_padding_finite(dtype: torch.dtype) -> None:
    """A padded token sees nothing; were it NaN, everything that is multiplied by it would be."""
    mask = additive_mask(
        batch_size=2,
        q_length=3,
        kv_length=3,
        attention_mask=torch.tensor([[False, False, True], [True, True, True]]),
        dtype=dtype,
    )
    assert mask is not None
    lowest = torch.finfo(dtype).min
    assert mask.dtype == dtype
    assert mask[0, 0].tolist() == [[lowest] * 3, [lowest] * 3, [lowest, lowest, 0]]
    assert mask[1, 0].tolist() == [[0, lowest, lowest], [0, 0, lowest], [0, 0, 0]]


@pytest.mark.parametrize("architecture", ["gemma", "llama"])
def test_a_model_with_grouped_attention_computes_the_same(
    architecture: str, make_llama: MakeLlama, make_gemma: MakeGemma, tmp_path: Path
) -> None:
    model: PreTrainedModel = make_llama() if architecture == "llama" else make_gemma()
    ids = torch.randint(3, 60, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    mask[2, 9:] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = model(ids, attention_mask=mask, position_ids=positions).logits
        use_grouped_attention(model)
        found = model(ids, attention_mask=mask, position_ids=positions).logits
    assert model.config._attn_implementation == "grouped"
    assert (found - expected)[mask.bool()].abs().max() < 2e-5
    model.save_pretrained(tmp_path)
    assert "grouped" not in (tmp_path / "config.json").read_text(), "a checkpoint is one for everybody"


def test_other_attentions_stay(make_llama: MakeLlama) -> None:
    model = make_llama()
    model.set_attn_implementation("eager")
    use_grouped_attention(model)
    assert model.config._attn_implementation == "eager"


# The cache


def filled(model: PreTrainedModel, rows: list[list[int]]) -> tuple[RowCache, list[DynamicCache]]:
    """The cache of padded rows, and Transformers' own of each row alone."""
    length = max(map(len, rows))
    ids = torch.tensor([[0] * (length - len(row)) + row for row in rows])
    cache = RowCache(torch.tensor([length - len(row) for row in rows]))
    positions = (torch.arange(length) - cache.starts[:, None]).clamp(min=0)
    alone = [DynamicCache() for _ in rows]
    with torch.no_grad():
        model(input_ids=ids, attention_mask=cache.mask(length), position_ids=positions, cache=cache, use_cache=True)
        for row, own in zip(rows, alone, strict=True):
            model(input_ids=torch.tensor([row]), cache=own, use_cache=True)
    return cache, alone


def test_merged_caches_hold_each_rows_keys_and_values(make_llama: MakeLlama) -> None:
    """Rows of two caches, one taken twice, one left out: in their columns stand what a cache of the row alone has."""
    model = make_llama()
    first, first_alone = filled(model, [[5, 6, 7, 8, 9], [10, 11, 12], [13]])
    second, second_alone = filled(model, [[20, 21, 22, 23], [24, 25]])
    result = merged([(first, torch.tensor([1, 2])), (second, torch.tensor([1, 0, 0]))])
    expected = [first_alone[1], first_alone[2], second_alone[1], second_alone[0], second_alone[0]]
    lengths = [3, 1, 2, 4, 4]
    assert result.get_seq_length() == 4, "the longest row that was taken"
    assert result.starts.tolist() == [1, 3, 2, 0, 0]
    for layer, buffers in enumerate(result.layers):
        assert buffers.keys.shape[2] == 32
        for row, (own, length) in enumerate(zip(expected, lengths, strict=True)):
            for mine, theirs in ((buffers.keys, own.layers[layer].keys), (buffers.values, own.layers[layer].values)):
                assert (mine[row, :, 4 - length : 4] - theirs[0]).abs().max() < 1e-5
                assert not mine[row, :, 4:].any()
    assert all(layer.keys is None for layer in first.layers), "never two copies of everything"


def test_masks_show_each_rows_columns() -> None:
    cache = RowCache(torch.tensor([0, 2]))
    assert cache.mask(3).tolist() == [[True, True, True], [False, False, True]]
    cache.update(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4), 0)
    grown = merged([(cache, torch.tensor([0, 1]))])
    assert grown.mask(1).tolist() == [[True] * 4 + [False] * 28, [False, False, True, True] + [False] * 28]


def test_buffers_grow_and_keep_what_they_hold() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, 1, n, 4, generator=generator) for n in (3, 1, 31, 1, 40)]
    cache = RowCache(torch.zeros(2, dtype=torch.int64))
    capacities = []
    for i, part in enumerate(parts):
        keys, values = cache.update(part, -part, 0)
        whole = torch.cat(parts[: i + 1], dim=2)
        assert torch.equal(keys[:, :, : whole.shape[2]], whole)
        assert torch.equal(values[:, :, : whole.shape[2]], -whole)
        assert not keys[:, :, whole.shape[2] :].any(), "masked columns are multiplied by 0, and must be finite"
        capacities.append(keys.shape[2])
    assert capacities == [3, 32, 64, 64, 96]


def test_models_with_another_memory_are_refused(byte_tokenizer: PreTrainedTokenizerFast) -> None:
    config = MambaConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, state_size=4)
    assert not is_cacheable(config)
    with pytest.raises(ValueError, match=r"the model of policy_0 \(mamba\) carries more than keys and values"):
        Policy("policy_0", MambaForCausalLM(config), byte_tokenizer)


# Packed weights


def test_nothing_is_packed_where_the_cpu_cannot(make_llama: MakeLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_llama().to(torch.bfloat16)
    monkeypatch.setattr("algorithms.rollouts.decoding.can_pack", lambda dtype: False)
    with packed_weights(model):
        assert "forward" not in model.lm_head.__dict__


def test_packed_weights_compute_the_same_and_leave_no_trace(
    make_llama: MakeLlama, dtype_that_packs: torch.dtype
) -> None:
    model = make_llama(attention_bias=True).to(dtype_that_packs)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        exact = copy_in_double(model)(ids).logits
        before = model(ids).logits
        with packed_weights(model):
            assert "forward" in model.lm_head.__dict__
            packed = model(ids).logits
        model.lm_head.weight.zero_()
        assert "forward" not in model.lm_head.__dict__
        assert not model(ids).logits.any(), "behind it the weights count as they are"
    # In float32 either order of the sums may be the luckier one.
    assert (packed - exact).abs().max() <= 1.5 * (before - exact).abs().max() + 1e-5 * (
        dtype_that_packs == torch.float32
    )


def test_layers_with_a_common_input_are_one_product(make_llama: MakeLlama, dtype_that_packs: torch.dtype) -> None:
    """Their outputs are those of the layers, also when a second input comes before all of them were called."""
    model = make_llama(attention_bias=True).to(dtype_that_packs)
    attention = model.model.layers[0].self_attn
    first, second = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0)).to(dtype_that_packs)
    tolerance = 1 / 64 if dtype_that_packs == torch.bfloat16 else 1e-5
    layers = (attention.q_proj, attention.k_proj, attention.v_proj)
    with torch.inference_mode():
        expected = [[layer(inputs).float() for layer in layers] for inputs in (first, second)]
        with packed_weights(model):
            found = [layers[0](first), layers[1](first)]
            other = [layer(second) for layer in layers]
            found.append(layers[2](first))
    for mine, theirs in ((found, expected[0]), (other, expected[1])):
        for a, b in zip(mine, theirs, strict=True):
            assert torch.allclose(a.float(), b, rtol=tolerance, atol=tolerance)


def copy_in_double(model: LlamaForCausalLM) -> LlamaForCausalLM:
    other = LlamaForCausalLM(model.config).double().eval()
    other.load_state_dict(model.state_dict())
    return other


def test_only_plain_layers_are_packed_and_in_float32_only_large_ones(make_llama: MakeLlama) -> None:
    class Adapted(torch.nn.Linear):
        pass

    model = make_llama().to(torch.bfloat16)
    model.lm_head = Adapted(32, 64, bias=False, dtype=torch.bfloat16)
    with packed_weights(model):
        assert "forward" not in model.lm_head.__dict__
    single = make_llama(vocab_size=1 << 13)
    with packed_weights(single):
        assert "forward" in single.lm_head.__dict__, "32 times 8192 elements"
        assert "forward" not in single.model.layers[0].mlp.down_proj.__dict__
    with packed_weights(single.double()):
        assert "forward" not in single.lm_head.__dict__, "there is no layout for it"


def test_an_error_while_sampling_unpacks(make_llama: MakeLlama) -> None:
    model = make_llama().to(torch.bfloat16)

    def fail(token_ids: list[int]) -> bool:
        raise KeyError("broken")

    with pytest.raises(KeyError):
        generate(model, [(3, 4)], 2, SamplingConfig(), [1, 2], {1}, fail)
    assert "forward" not in model.lm_head.__dict__


# Drawing in blocks of rows


@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 5, "min_p": 0.01}, {"temperature": 0.0}])
def test_blocks_of_rows_change_nothing(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(11, 2000, generator=generator)
    uniforms = torch.rand(11, dtype=torch.float64, generator=generator)
    whole = draw_tokens(logits, uniforms, SamplingConfig(**options))
    for elements in (1, 4000, 7000):
        monkeypatch.setitem(algorithms.rollouts.sampling._BLOCK_ELEMENTS, "cpu", elements)
        parts = draw_tokens(logits, uniforms, SamplingConfig(**options))
        assert torch.equal(parts.token_ids, whole.token_ids)
        assert parts.logprobs.tolist() == pytest.approx(whole.logprobs.tolist(), abs=1e-6)
        assert parts.entropies.tolist() == pytest.approx(whole.entropies.tolist(), abs=1e-5)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.9999])
def test_the_nucleus_is_that_of_a_sorted_vocabulary(spread: float, top_p: float) -> None:
    """From distributions so flat that thousands of tokens are needed, to peaks; against a sum in Python."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(spread * torch.randn(3, 20_000, generator=generator), -1)
    kept = filtered_probs(probs, SamplingConfig(top_p=top_p))
    for row, mine in zip(probs.tolist(), kept, strict=True):
        mass, edge = 0.0, 0.0
        for p in sorted(row, reverse=True):
            if mass >= top_p * sum(row):
                break
            mass, edge = mass + p, p
        expected = sum(p >= edge for p in row)
        # Sums of 20,000 numbers in another order differ in the last digits.
        assert abs(int((mine > 0).sum()) - expected) <= (0 if expected < 10_000 else 3 + 20_000 * (spread == 0))


# Rows that leave and enter


def test_waiting_prompts_take_the_places_of_finished_rows(make_llama: MakeLlama) -> None:
    """Twelve rows in four places: forward passes are fewer than one batch after the other would need."""
    model = make_llama()
    prompts = [(3,) * (i + 1) for i in range(12)]
    config, ends = SamplingConfig(max_completion_length=30), set(range(10, 14))
    seeds = list(range(12))
    passes: list[int] = []
    handle = model.register_forward_hook(lambda module, inputs, output: passes.append(len(output.logits)))
    whole = generate(model, prompts, 1, config, seeds, ends)
    passes.clear()
    finished: list[int] = []
    inside = generate(model, prompts, 1, config, seeds, ends, batch_size=4, progress=finished.append)
    handle.remove()
    assert [[r.token_ids for r in g] for g in inside] == [[r.token_ids for r in g] for g in whole]
    assert sum(finished) == 12
    assert max(passes) <= 4
    lengths = [len(r.token_ids) for [r] in whole]
    batches = sum(max(lengths[i : i + 4]) for i in range(0, 12, 4))
    assert sum(size > 1 for size in passes) < batches
