"""vLLM itself: what it samples, that weights reach it, and whole runs. Runs where vLLM is installed: `make test-vllm`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import Trainer, TrainingConfig
from algorithms.config import PolicyConfig
from algorithms.learner import Learner, LearnerConfig
from algorithms.losses import LossConfig
from algorithms.optimization import MasterOptimizer
from algorithms.policy import Policy, load_policy
from algorithms.rollouts.sampling import SamplingConfig
from benchmarks.evaluate.vllm import VllmPolicy
from mrl_env.types import Completion
from tests.algorithms.test_trainer import untimed

pytest.importorskip("vllm", reason="vLLM is not installed")

PROMPTS = [(5, 6, 7, 8), (9, 10, 11), tuple(range(20, 60))]
SEEDS = [2**63 + 1000003 * i for i in range(12)]
SAMPLING = SamplingConfig(max_completion_length=16)


@pytest.fixture(scope="module", autouse=True)
def _small_cache() -> Iterator[None]:
    """Little memory for keys and values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"))
        yield


def settings(model: str, **changes: Any) -> PolicyConfig:
    return TrainingConfig(model_name_or_path=model, use_vllm=True, **changes).policies()[0]


def differences(policy: Policy, groups: list[list[Completion]], temperature: float = 1.0) -> np.ndarray:
    """Of engine and learner, for each sampled token: nats."""
    optimizer = MasterOptimizer(policy.model.parameters(), torch.optim.SGD, lr=1.0)
    learner = Learner(policy.name, policy.model, optimizer, LearnerConfig(LossConfig(), temperature))
    completions = [(prompt, one) for prompt, group in zip(PROMPTS, groups, strict=True) for one in group]
    found = learner.logprobs([((*prompt, *one.token_ids), len(prompt)) for prompt, one in completions])
    recorded = [np.asarray(one.logprobs) for _, one in completions]
    return np.concatenate([np.abs(mine - theirs) for mine, theirs in zip(found, recorded, strict=True)])


def shaken(policy: Policy) -> None:
    """Other weights, as if by an update."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.1 * parameter.std() * torch.randn_like(parameter))
    policy.version += 1


def ids(groups: list[list[Completion]]) -> list[tuple[int, ...]]:
    return [one.token_ids for group in groups for one in group]


# One engine


@pytest.fixture(scope="module")
def policy(vllm_pool: tuple[str, str]) -> Policy:
    return load_policy(settings(vllm_pool[1]), "cpu")


def test_the_process_stays_as_it_was(policy: Policy) -> None:
    threads = torch.get_num_threads()
    policy.generate(PROMPTS, 1, SAMPLING, SEEDS[:3])
    assert torch.get_num_threads() == threads
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_log_probs_are_the_learners(policy: Policy) -> None:
    groups = policy.generate(PROMPTS, 4, SAMPLING, SEEDS)
    assert differences(policy, groups).max() < 1e-4
    assert {len(group) for group in groups} == {4}
    assert all(one.entropy is None for group in groups for one in group)


def test_log_probs_are_of_what_was_drawn_from(policy: Policy) -> None:
    """At the temperature; of top-k, renormalized over the k likeliest."""
    hot = policy.generate(PROMPTS, 4, replace(SAMPLING, temperature=2.0), SEEDS)
    assert differences(policy, hot, temperature=2.0).max() < 1e-4
    greedy = policy.generate(PROMPTS, 1, replace(SAMPLING, temperature=0.0), SEEDS[:3])
    assert differences(policy, greedy).max() < 1e-4
    for group, prompt in zip(policy.generate(PROMPTS, 4, replace(SAMPLING, top_k=3), SEEDS), PROMPTS, strict=True):
        for one in group:
            with torch.no_grad():
                logits = policy.model(torch.tensor([[*prompt, *one.token_ids]])).logits[0, len(prompt) - 1 : -1]
            kept = logits.topk(3, dim=-1)
            assert all(token in row for token, row in zip(one.token_ids, kept.indices.tolist(), strict=True))
            own = logits.gather(-1, torch.tensor(one.token_ids)[:, None])[:, 0]
            expected = own - kept.values.logsumexp(-1)
            assert np.allclose(one.logprobs, expected.numpy(), atol=1e-4)


def test_greedy_completions_are_those_of_the_model(policy: Policy) -> None:
    greedy = replace(SAMPLING, temperature=0.0)
    theirs = policy.generate(PROMPTS, 1, greedy, SEEDS[:3])
    engine, policy.engine = policy.engine, None
    ours = policy.generate(PROMPTS, 1, greedy, SEEDS[:3])
    policy.engine = engine
    assert ids(theirs) == ids(ours)
    assert [one[0].finish_reason for one in theirs] == [one[0].finish_reason for one in ours]


def test_each_row_has_its_seed(policy: Policy) -> None:
    once = ids(policy.generate(PROMPTS, 4, SAMPLING, SEEDS))
    assert ids(policy.generate(PROMPTS, 4, SAMPLING, SEEDS)) == once
    assert len(set(once[:4])) == 4  # other completions of the same prompt
    # Neither the order nor the company matters, but for noise.
    assert ids(policy.generate(PROMPTS[::-1], 4, SAMPLING, SEEDS[8:] + SEEDS[4:8] + SEEDS[:4]))[8:] == once[:4]
    assert ids(policy.generate(PROMPTS[:1], 1, SAMPLING, SEEDS[2:3])) == once[2:3]


def test_completions_end_at_every_token_that_ends_them(policy: Policy) -> None:
    """Any of the policy's ends, whatever vLLM finds in the model's files."""
    before = policy.eos_token_ids
    drawn = ids(policy.generate(PROMPTS, 4, SAMPLING, SEEDS))
    other = next(one[3] for one in drawn if len(one) > 4)
    policy.eos_token_ids = before | {other}
    try:
        ended = [one for group in policy.generate(PROMPTS, 4, SAMPLING, SEEDS) for one in group]
    finally:
        policy.eos_token_ids = before
    expected = [one[: one.index(other) + 1] if other in one else one for one in drawn]
    assert [one.token_ids for one in ended] == expected
    assert all(one.finish_reason == "stop" for one in ended if one.token_ids[-1] == other)


def test_weights_reach_the_engine_and_only_when_they_are_handed_over(policy: Policy) -> None:
    before = policy.generate(PROMPTS, 4, SAMPLING, SEEDS)
    version = policy.version
    shaken(policy)
    policy.version = version  # nobody has said so yet: the engine has a copy of its own
    stale = policy.generate(PROMPTS, 4, SAMPLING, SEEDS)
    assert ids(stale) == ids(before)
    assert differences(policy, stale).mean() > 0.1
    policy.version = version + 1
    assert differences(policy, policy.generate(PROMPTS, 4, SAMPLING, SEEDS)).max() < 1e-4


def test_an_adapter_is_merged(vllm_pool: tuple[str, str]) -> None:
    pytest.importorskip("peft", reason="the extra peft is not installed")
    adapted = load_policy(settings(vllm_pool[0], use_peft=True, lora_r=4), "cpu")
    assert differences(adapted, adapted.generate(PROMPTS, 4, SAMPLING, SEEDS)).max() < 1e-4
    with torch.no_grad():
        for name, parameter in adapted.model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.2)
    assert differences(adapted, adapted.generate(PROMPTS, 4, SAMPLING, SEEDS)).mean() > 0.05
    adapted.version += 1
    assert differences(adapted, adapted.generate(PROMPTS, 4, SAMPLING, SEEDS)).max() < 1e-4


def test_a_model_that_vllm_cannot_run_is_named() -> None:
    """The embedded models have heads of 24."""
    with pytest.raises(ValueError, match=r"vLLM cannot run 'tiny-llama' of policy_0 here; leave use_vllm out"):
        load_policy(settings("tiny-llama"), "cpu")


def test_evaluation_answers_like_the_model(vllm_pool: tuple[str, str], policy: Policy) -> None:
    backend = VllmPolicy(settings(vllm_pool[1]))
    greedy = replace(SAMPLING, temperature=0.0)
    fresh = load_policy(replace(settings(vllm_pool[1]), use_vllm=False), "cpu")
    expected = fresh.generate(PROMPTS, 1, greedy, SEEDS[:3])
    found = backend.generate(PROMPTS, 1, greedy, SEEDS[:3])
    assert [(one.token_ids, one.text, one.finish_reason) for (one,) in found] == [
        (one.token_ids, one.text, one.finish_reason) for (one,) in expected
    ]


# A server


def test_a_server_samples_like_the_colocated_engine(vllm_pool: tuple[str, str], policy: Policy) -> None:
    served = load_policy(settings(vllm_pool[1], vllm_mode="server"), "cpu")
    fresh = load_policy(settings(vllm_pool[1]), "cpu")
    assert ids(served.generate(PROMPTS, 4, SAMPLING, SEEDS)) == ids(fresh.generate(PROMPTS, 4, SAMPLING, SEEDS))
    shaken(served)
    groups = served.generate(PROMPTS, 4, SAMPLING, SEEDS)
    assert differences(served, groups).max() < 1e-4
    process = served.engine._process  # type: ignore[union-attr]
    assert process.poll() is None
    served.engine = None  # with the engine goes its server
    assert process.poll() is not None


def test_a_server_that_cannot_run_the_model_says_why() -> None:
    with pytest.raises(ValueError, match=r"the vLLM server fails (?s:.)*leave use_vllm out for it"):
        load_policy(settings("tiny-llama", vllm_mode="server"), "cpu")


# Runs


def test_a_run_is_on_policy_and_the_same_again(vllm_config: Callable[..., TrainingConfig]) -> None:
    trainer, again = Trainer(vllm_config()), Trainer(vllm_config())
    trainer.train()
    lines = untimed(trainer.output_dir)
    policies = [line for line in lines if line["policy"] != "pool"]
    assert len(policies) == 6
    for line in policies:
        assert line["train/sampling/logp_difference_mean"] < 1e-5
        assert line["train/sampling/importance_ratio_mean"] == pytest.approx(1, abs=1e-5)
        assert line["train/sampling/importance_ratio_max"] == pytest.approx(1, abs=1e-3)
        assert line["train/policy_version"] == line["step"] * 1.0
    # The learning rate moves the policy: had the engine kept the first weights, the difference would show it.
    assert policies[-1]["train/kl"] > 1e-3
    again.train()
    assert untimed(again.output_dir) == lines
