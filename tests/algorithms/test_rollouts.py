"""Sampling: what is drawn, what is recorded of it, and that no row depends on its company."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3ForCausalLM,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from algorithms.policy import Policy, has_complete_box
from algorithms.pools import embedded_path
from algorithms.prp import PRP
from algorithms.rollouts.sampling import SamplingConfig, draw, draw_tokens, filtered_probs, row_uniforms
from algorithms.rollouts.transformers import Rollout, generate
from algorithms.samples import Group
from mrl_env.problems.arithmetic import Arithmetic
from mrl_env.seeding import derive_seed
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience, Problem, user_message
from verifiers import Verdict


@pytest.fixture(scope="module", params=["tiny-llama", "tiny-qwen3"])
def policy(request: pytest.FixtureRequest) -> Policy:
    folder = embedded_path(request.param)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return Policy("policy_0", model, AutoTokenizer.from_pretrained(folder))


def prompts_of(policy: Policy) -> list[tuple[int, ...]]:
    """Four prompts of different lengths, as the policy was trained on."""
    prompts = [policy.renderer.token_ids(problem.messages) for problem in Arithmetic("test", size=4)]
    assert len({len(prompt) for prompt in prompts}) > 1, "padding is to be exercised"
    return prompts


def seeds_for(count: int) -> list[int]:
    return [derive_seed(0, "test", i) for i in range(count)]


def fresh_logprobs(
    model: PreTrainedModel, prompt: tuple[int, ...], rollout: Rollout, temperature: float
) -> tuple[list[float], list[float]]:
    """Log-probs and entropies of a completion from one forward pass over the whole row, summed in float64."""
    ids = torch.tensor([[*prompt, *rollout.token_ids]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.double() / temperature, -1)
    chosen = logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
    return chosen.tolist(), (-(logprobs.exp() * logprobs).sum(-1)).tolist()


# What is recorded


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 4e-6), (torch.float32, 5e-5)])
@pytest.mark.parametrize("temperature", [1.6, 2.0])
def test_recorded_logprobs_are_those_of_a_fresh_forward_pass(
    policy: Policy, temperature: float, dtype: torch.dtype, tolerance: float
) -> None:
    """Up to the rounding of logits to recorded float32; in float32 also the noise of another order of sums: 1e-5 on average."""
    prompts, model = prompts_of(policy), copy.deepcopy(policy.model).to(dtype)
    config = SamplingConfig(max_completion_length=60, temperature=temperature)
    groups = generate(model, prompts, 8, config, seeds_for(32), policy.eos_token_ids)
    lengths = {len(rollout.token_ids) for group in groups for rollout in group}
    assert len(lengths) > 3, "rows are to finish at different times, so that the batch is compacted"
    differences: list[float] = []
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group:
            logprobs, entropies = fresh_logprobs(model, prompt, rollout, temperature)
            assert rollout.logprobs == pytest.approx(logprobs, abs=tolerance)
            assert rollout.entropies == pytest.approx(entropies, abs=tolerance)
            differences += [abs(a - b) for a, b in zip(rollout.logprobs, logprobs, strict=True)]
    assert sum(differences) / len(differences) < 1e-5


def test_filters_do_not_change_what_is_recorded(policy: Policy) -> None:
    """Log-probs are the model's at this temperature, before any filter: what the learner's forward pass computes."""
    prompts = prompts_of(policy)
    config = SamplingConfig(max_completion_length=20, temperature=1.5, top_p=0.8, top_k=20, min_p=0.01)
    for prompt, group in zip(
        prompts, generate(policy.model, prompts, 3, config, seeds_for(12), policy.eos_token_ids), strict=True
    ):
        for rollout in group:
            assert rollout.logprobs == pytest.approx(fresh_logprobs(policy.model, prompt, rollout, 1.5)[0], abs=5e-5)


def test_sliding_windows_and_compaction(make_gemma: Callable[..., Gemma3ForCausalLM]) -> None:
    model = make_gemma()
    prompts = [(5, 6, 7, 8, 9, 10, 11, 12), (3,), (4, 5, 6)]
    # A tenth of the vocabulary ends a row, so most rows finish long before the last.
    groups = generate(model, prompts, 8, SamplingConfig(max_completion_length=30), seeds_for(24), set(range(20, 30)))
    lengths = sorted(len(rollout.token_ids) for group in groups for rollout in group)
    assert lengths[0] < 5
    assert lengths[-1] > 12
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group:
            assert rollout.logprobs == pytest.approx(fresh_logprobs(model, prompt, rollout, 1.0)[0], abs=2e-5)


# Company


def test_a_row_is_the_same_alone_and_in_company(policy: Policy) -> None:
    prompts = prompts_of(policy)
    config = SamplingConfig(max_completion_length=40)
    seeds = seeds_for(16)
    together = generate(policy.model, prompts, 4, config, seeds, policy.eos_token_ids)
    for p, prompt in enumerate(prompts):
        for g in range(4):
            [[alone]] = generate(policy.model, [prompt], 1, config, [seeds[4 * p + g]], policy.eos_token_ids)
            assert alone.token_ids == together[p][g].token_ids
            assert alone.logprobs == pytest.approx(together[p][g].logprobs, abs=5e-5)


@pytest.mark.parametrize(
    "lengths",
    [(1, 1, 1), (5, 1, 12), (40, 2, 3)],  # the last: the second row is shorter than what the first has to itself
    ids=str,
)
def test_what_prompts_begin_with_is_computed_once(
    make_gemma: Callable[..., Gemma3ForCausalLM], monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    """In float64, with sliding windows: log-probs of a fresh pass, tokens of prompts that are computed apart."""
    model = make_gemma().double()
    beginning = tuple(int(i) for i in np.random.default_rng(0).integers(3, 60, 20))
    prompts = [(*beginning, 3 + p, *range(7, 6 + length)) for p, length in enumerate(lengths)]
    config, counted = SamplingConfig(max_completion_length=12), list[int]()
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: counted.append(inputs[0].numel())
    )
    apart = generate(model, prompts, 4, config, seeds_for(12), set(range(20, 24)))
    assert counted[0] == 3 * (20 + max(lengths)), "20 tokens of two prompts are not worth a pass of their own"
    counted.clear()
    monkeypatch.setattr("algorithms.packing._SHARED_TOKENS", 2 * 20)
    for batch_size in (None, 4):
        shared = generate(model, prompts, 4, config, seeds_for(12), set(range(20, 24)), batch_size=batch_size)
        for prompt, group, other in zip(prompts, shared, apart, strict=True):
            for rollout, plain in zip(group, other, strict=True):
                assert rollout.token_ids == plain.token_ids
                assert rollout.logprobs == pytest.approx(fresh_logprobs(model, prompt, rollout, 1.0)[0], abs=4e-6)
        assert counted[:2] == [
            20,
            (3 if batch_size is None else 1) * (max(lengths) if batch_size is None else lengths[0]),
        ]
        counted.clear()
    handle.remove()


def test_batch_size_does_not_change_completions(policy: Policy) -> None:
    prompts, config = prompts_of(policy), SamplingConfig(max_completion_length=24)
    finished: list[int] = []
    whole = policy.generate(prompts, 3, config, seeds_for(12))
    for batch_size in (4, 6, 7, 9):
        parts = policy.generate(prompts, 3, config, seeds_for(12), batch_size=batch_size, progress=finished.append)
        assert [[c.token_ids for c in group] for group in parts] == [[c.token_ids for c in group] for group in whole]
        assert sum(finished) == 12
        finished.clear()


def test_rows_with_one_seed_are_equal_and_with_others_differ(policy: Policy) -> None:
    prompt = prompts_of(policy)[0]
    config = SamplingConfig(max_completion_length=24, temperature=3.0)
    [group] = generate(policy.model, [prompt], 6, config, [7, 7, 1, 2, 3, 4], policy.eos_token_ids)
    assert group[0].token_ids == group[1].token_ids
    assert len({tuple(rollout.token_ids) for rollout in group}) == 5


def test_the_model_keeps_its_mode(make_llama: Callable[..., LlamaForCausalLM]) -> None:
    model = make_llama(attention_dropout=0.9)
    for training in (True, False):
        model.train(training)
        runs = [generate(model, [(3, 4)], 2, SamplingConfig(max_completion_length=9), [1, 2], {1}) for _ in range(2)]
        assert runs[0] == runs[1], "no dropout while sampling"
        assert model.training is training


# Greedy and stopping


def test_greedy_is_that_of_transformers(policy: Policy) -> None:
    prompts = prompts_of(policy)
    groups = generate(
        policy.model,
        prompts,
        1,
        SamplingConfig(max_completion_length=48, temperature=0.0),
        [0] * 4,
        policy.eos_token_ids,
    )
    for prompt, [rollout] in zip(prompts, groups, strict=True):
        ids = torch.tensor([prompt])
        expected = policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=48, pad_token_id=0
        )
        assert rollout.token_ids == expected[0, len(prompt) :].tolist()
        # Greedy log-probs are those at temperature 1.
        assert rollout.logprobs == pytest.approx(fresh_logprobs(policy.model, prompt, rollout, 1.0)[0], abs=5e-5)


def test_a_completion_ends_with_its_end_of_sequence_or_at_the_limit(policy: Policy) -> None:
    groups = policy.generate(
        prompts_of(policy), 8, SamplingConfig(max_completion_length=20, temperature=2.0), seeds_for(32)
    )
    completions = [completion for group in groups for completion in group]
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    traced = 0
    for completion in completions:
        ends = [token_id in policy.eos_token_ids for token_id in completion.token_ids]
        if completion.finish_reason == "stop":
            assert ends == [False] * (len(ends) - 1) + [True]
            assert len(ends) <= 20
        else:
            assert ends == [False] * 20
        assert policy.tokenizer.eos_token not in completion.text
        if completion.trace is None:
            assert "\ufffd" in completion.text, "only bytes that are no text have no trace"
            continue
        traced += 1
        assert (completion.trace.eos_logprob is not None) == (completion.finish_reason == "stop")
        spoken = [bool(policy.text.token_bytes(token_id)) for token_id in completion.token_ids]
        counted = [lp for lp, s, end in zip(completion.logprobs, spoken, ends, strict=True) if s or end]
        assert completion.trace.total == pytest.approx(sum(counted), abs=1e-4)
    assert traced > 16


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_broken_weights_are_named(
    value: float, temperature: float, make_llama: Callable[..., LlamaForCausalLM]
) -> None:
    model = make_llama()
    with torch.no_grad():
        model.lm_head.weight[7] = value
    with pytest.raises(RuntimeError, match="LlamaForCausalLM: logits are not finite at token 0"):
        generate(model, [(3, 4)], 2, SamplingConfig(temperature=temperature), [1, 2], {1})


def test_length_one(policy: Policy) -> None:
    [[rollout]] = generate(
        policy.model, [prompts_of(policy)[0]], 1, SamplingConfig(max_completion_length=1), [1], policy.eos_token_ids
    )
    assert len(rollout.token_ids) == len(rollout.logprobs) == len(rollout.entropies) == 1


def test_an_end_of_sequence_at_once(policy: Policy) -> None:
    """Every token ends the completion: one step, however long it may be."""
    every = set(range(policy.model.config.vocab_size))
    groups = generate(policy.model, prompts_of(policy), 2, SamplingConfig(), seeds_for(8), every)
    assert all(len(r.token_ids) == 1 and r.finish_reason == "stop" for group in groups for r in group)


def test_stop_behind_a_complete_box(policy: Policy) -> None:
    prompts = prompts_of(policy)
    free = policy.generate(prompts, 4, SamplingConfig(max_completion_length=64), seeds_for(16))
    stopped = policy.generate(prompts, 4, SamplingConfig(max_completion_length=64, stop_at_boxed=True), seeds_for(16))
    boxed = 0
    for longer, shorter in zip(chain(*free), chain(*stopped), strict=True):
        assert longer.text.startswith(shorter.text)
        assert longer.token_ids[: len(shorter.token_ids)] == shorter.token_ids
        if shorter.finish_reason == "boxed":
            boxed += 1
            assert has_complete_box(shorter.text)
            assert not has_complete_box(policy.text.decode(shorter.token_ids[:-1]).decode())
            assert shorter.trace is not None
            assert shorter.trace.eos_logprob is None
    assert boxed > 8


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        (r"so \boxed{4}", True),
        (r"so \boxed{4", False),
        (r"\boxed{\frac{1}{2}", False),
        (r"\boxed{\frac{1}{2}}", True),
        (r"\frac{1}{2} {}", False),
        (r"} \boxed{}", True),
        (r"\boxed 4}", False),
        ("", False),
    ],
)
def test_what_a_complete_box_is(text: str, complete: bool) -> None:
    assert has_complete_box(text) is complete


# With one tokenizer the THL is the identity


def test_a_peer_with_the_same_tokenizer_gives_its_own_ids_and_logprobs(policy: Policy) -> None:
    [prompt] = prompts_of(policy)[:1]
    [completions] = policy.generate([prompt], 12, SamplingConfig(max_completion_length=60), seeds_for(12))
    right = Verdict(1.0, "42", "right")
    group = Group(Problem("p0", user_message("6 * 7"), "42"), "policy_1", prompt, (), ())
    kept = 0
    for i, completion in enumerate(completions):
        record = Experience(
            "p0", "policy_0", i, completion.finish_reason, 0, completion.text, right, 0.0, completion.trace
        )
        stopped = completion.finish_reason == "stop"
        spoken = list(completion.token_ids[: len(completion.token_ids) - stopped])
        rows = PRP(prp_denominator="trace").rows(group, [record], Retokenizer(policy.text, 60))
        # A model may sample a text in other pieces than its tokenizer cuts it; then the ids cannot be the same.
        if policy.text.encode(completion.text) == spoken:
            kept += 1
            [row] = rows
            assert row.token_ids.tolist() == [*prompt, *completion.token_ids]
            assert row.old_logprobs is not None
            recorded = np.asarray(completion.logprobs, dtype=np.float32)
            assert row.old_logprobs[row.loss_mask].tolist() == recorded.tolist()
    assert kept >= 6


# Drawing


def reference_draw(weights: np.ndarray, uniform: float) -> int:
    """The first index whose cumulative weight, in extended precision, exceeds the uniform's share of the total."""
    cumulative = np.cumsum(weights.astype(np.longdouble))
    return int(np.searchsorted(cumulative, np.longdouble(uniform) * cumulative[-1], side="right"))


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 3000, 4096])
def test_draws_invert_the_cumulative_sum(size: int) -> None:
    rng = np.random.default_rng(size)
    weights = rng.random((64, size)).astype(np.float32) ** 8
    weights[rng.random((64, size)) < 0.5] = 0
    weights[:, -1] = 0.5
    uniforms = rng.random(64)
    drawn = draw(torch.from_numpy(weights), torch.from_numpy(uniforms)).tolist()
    assert drawn == [reference_draw(row, u) for row, u in zip(weights, uniforms, strict=True)]


def test_evenly_spaced_numbers_hit_every_token_in_proportion() -> None:
    """20,000 numbers at the middle of as many equal steps: each token gets n p of them, up to one at either edge."""
    weights = torch.rand(1500, generator=torch.Generator().manual_seed(0)) ** 4
    weights[::3] = 0
    count = 20_000
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    drawn = torch.cat([draw(weights.expand(2000, -1), part) for part in uniforms.split(2000)])
    hits = torch.bincount(drawn, minlength=1500)
    expected = weights.double() / weights.double().sum() * count
    assert float((hits - expected).abs().max()) <= 1
    assert not hits[::3].any()


def test_zero_weights_are_never_drawn_at_either_end() -> None:
    almost_one = math.nextafter(1.0, 0.0)
    for size in (10, 1024, 5000):
        for only in (0, size // 2, size - 1):
            weights = torch.zeros(3, size)
            weights[:, only] = 1e-30
            uniforms = torch.tensor([0.0, 0.5, almost_one], dtype=torch.float64)
            assert draw(weights, uniforms).tolist() == [only] * 3


def test_rounding_never_leads_behind_the_last_weight() -> None:
    """Two ways to sum a block differ in their last bits; at the largest number below 1 that must not show."""
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.random((500, 2000)).astype(np.float32) ** 4)
    weights[:, 1700:] = 0
    uniforms = torch.full((500,), math.nextafter(1.0, 0.0), dtype=torch.float64)
    assert draw(weights, uniforms).tolist() == [1699] * 500


def test_the_tail_of_a_large_vocabulary_can_be_reached() -> None:
    """262,144 tokens, one of which has almost all of the mass: sums in float32 would never reach those behind it."""
    size = 262_144
    weights = torch.full((1, size), 1e-12)
    weights[0, 1000] = 1.0
    total = float(weights.double().sum())
    assert draw(weights, torch.tensor([math.nextafter(1.0, 0.0)], dtype=torch.float64)).item() == size - 1
    assert draw(weights, torch.tensor([0.0], dtype=torch.float64)).item() == 0
    for target in (5, 999, 1001, 100_000, 262_000):
        inside = float(weights[0, :target].double().sum()) + 0.5e-12
        assert draw(weights, torch.tensor([inside / total], dtype=torch.float64)).item() == target


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        # Of probabilities 0.4, 0.3, 0.2, 0.06, 0.04.
        ({}, 5),
        ({"top_k": 2}, 2),
        ({"top_k": 9}, 5),
        ({"top_p": 0.69}, 2),
        ({"top_p": 0.71}, 3),
        ({"top_p": 1e-6}, 1),
        ({"min_p": 0.4}, 3),
        ({"min_p": 0.6}, 2),
        # The first two are 70 % of all, but 78 % of the first three.
        ({"top_k": 3, "top_p": 0.75}, 2),
        ({"top_k": 4, "min_p": 0.14}, 4),
    ],
)
def test_filters_by_hand(options: dict[str, Any], kept: int) -> None:
    order = [3, 0, 4, 1, 2]
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.06, 0.04]])[:, order]
    filtered = filtered_probs(probs, SamplingConfig(**options))
    expected = [p if rank < kept else 0.0 for p, rank in zip(probs[0].tolist(), order, strict=True)]
    assert filtered[0].tolist() == expected


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 17},
        {"top_p": 0.9},
        {"min_p": 0.05},
        {"top_k": 40, "top_p": 0.6},
        {"top_k": 100, "top_p": 0.95, "min_p": 0.02, "temperature": 1.7},
    ],
)
def test_filters_keep_what_those_of_transformers_keep(options: dict[str, Any]) -> None:
    config = SamplingConfig(**options)
    logits = torch.randn(50, 1200, generator=torch.Generator().manual_seed(1)) * 3
    warpers = LogitsProcessorList([TemperatureLogitsWarper(config.temperature)])
    if config.top_k:
        warpers.append(TopKLogitsWarper(config.top_k))
    if config.top_p < 1:
        warpers.append(TopPLogitsWarper(config.top_p))
    if config.min_p:
        warpers.append(MinPLogitsWarper(config.min_p))
    expected = warpers(torch.zeros(50, 1, dtype=torch.int64), logits) > -math.inf
    kept = filtered_probs((logits / config.temperature).softmax(-1), config) > 0
    assert torch.equal(kept, expected)
    assert 1 < int(kept.sum()) < kept.numel()


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.3}, {"top_k": 6, "top_p": 0.8}]
)
def test_draws_follow_the_filtered_distribution(options: dict[str, Any]) -> None:
    """Chi-square of 8,000 draws, with seeds derived as in a run, over a vocabulary of two blocks."""
    config = SamplingConfig(**options)
    logits = torch.full((1500,), -math.inf)
    support = torch.tensor([0, 3, 700, 1023, 1024, 1200, 1400, 1499])
    logits[support] = torch.tensor([0.0, 0.5, -1.0, 1.0, 0.2, -0.5, 0.8, -0.2])
    probs = (logits[support].double() / config.temperature).softmax(-1)
    keep = torch.ones(8, dtype=torch.bool)
    ordered = probs.sort(descending=True)
    if config.top_k:
        keep[ordered.indices[config.top_k :]] = False
    if config.top_p < 1:
        mass = torch.where(keep, probs, 0)[ordered.indices]
        keep[ordered.indices[(mass.cumsum(0) - mass) / mass.sum() >= config.top_p]] = False
    keep &= probs >= config.min_p * probs.max()
    expected = torch.where(keep, probs, 0) / probs[keep].sum()

    draws = 8000
    uniforms = torch.from_numpy(row_uniforms([derive_seed(9, i) for i in range(draws)], 1))[:, 0]
    drawn = torch.cat([draw_tokens(logits.expand(1000, -1), part, config).token_ids for part in uniforms.split(1000)])
    hits = torch.stack([(drawn == token).sum() for token in support]).double()
    assert int(hits.sum()) == draws
    assert not hits[~keep].any()
    chi_square = float(((hits - draws * expected)[keep] ** 2 / (draws * expected)[keep]).sum())
    # Seven degrees of freedom or fewer: above 24.3 once in a thousand.
    assert chi_square < 24.3


def test_log_probs_and_entropy_by_hand() -> None:
    logits = torch.tensor([[math.log(1), math.log(2), math.log(5), -math.inf]])
    drawn = draw_tokens(logits, torch.tensor([0.2], dtype=torch.float64), SamplingConfig())
    # Cumulative shares 1/8, 3/8, 1: 0.2 lies in the second.
    assert drawn.token_ids.tolist() == [1]
    assert drawn.logprobs.tolist() == pytest.approx([math.log(2 / 8)])
    entropy = -sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8))
    assert drawn.entropies.tolist() == pytest.approx([entropy])


def test_low_precision_logits_are_drawn_in_float32() -> None:
    logits = torch.randn(4, 2000, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    uniforms = torch.tensor([0.1, 0.4, 0.6, 0.9], dtype=torch.float64)
    low, full = draw_tokens(logits, uniforms, SamplingConfig()), draw_tokens(logits.float(), uniforms, SamplingConfig())
    assert low.token_ids.tolist() == full.token_ids.tolist()
    assert low.logprobs.tolist() == full.logprobs.tolist()


def test_streams_of_uniforms() -> None:
    first = row_uniforms([5, 6, 5], 1000)
    assert first.dtype == np.float64
    assert np.array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])
    # A longer stream begins with the shorter one: the length limit does not change what is drawn before it.
    assert np.array_equal(row_uniforms([5], 2000)[0, :1000], first[0])
    assert abs(first.mean() - 0.5) < 0.02
    assert (first >= 0).all()
    assert (first < 1).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_completion_length", 0),
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.0),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field}={value}"):
        SamplingConfig(**{field: value})
