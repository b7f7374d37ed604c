"""KL and entropy against what is summed by hand, on models whose distributions are known; and what a start cannot reach."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from algorithms import TrainingConfig
from algorithms.policy import load_policy
from benchmarks.compare import measure as module
from benchmarks.compare.measure import Measurement, divergence, from_json, measure, reach, to_json, unreachable


def two_tokens(logit: float) -> LlamaForCausalLM:
    """Says token 1 with odds e^logit against token 0, whatever stands before: the last layer sees a constant."""
    config = LlamaConfig(
        vocab_size=2,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=16,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # All hidden states are (1, 1, 1, 1), which the norm leaves as they are.
        model.model.embed_tokens.weight.fill_(1.0)
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight[1] = logit / 4
    return model


def random_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=31,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.5,
        )
    )


ROWS = [((0, 1), (1, 0, 1)), ((1,), (0,)), ((1, 1, 0, 1), (1, 1, 1, 1, 0))]


def test_two_tokens_by_hand() -> None:
    # 3/4 against 1/4, and 1/2 against 1/2: the same at each of the nine tokens.
    kl, entropy = divergence(two_tokens(math.log(3)), two_tokens(0.0), ROWS)
    assert kl == pytest.approx(0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5), rel=1e-5)
    assert entropy == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-5)
    kl, entropy = divergence(two_tokens(0.0), two_tokens(math.log(3)), ROWS)
    assert kl == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), rel=1e-5)
    assert entropy == pytest.approx(math.log(2), rel=1e-5)


@pytest.mark.parametrize("elements", [1, 31 * 9 * 2, 1 << 24], ids=["row by row", "two rows", "at once"])
def test_against_one_row_and_position_after_the_other(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    monkeypatch.setattr(module, "_ELEMENTS", elements)
    model, start = random_model(0), random_model(1)
    kls, entropies = [], []
    for prompt, completion in ROWS:
        for place in range(len(completion)):
            before = torch.tensor([[*prompt, *completion[:place]]])
            with torch.no_grad():
                p = torch.softmax(model(before).logits[0, -1].double(), -1)
                q = torch.softmax(start(before).logits[0, -1].double(), -1)
            kls.append(float(torch.sum(p * torch.log(p / q))))
            entropies.append(float(-torch.sum(p * torch.log(p))))
    kl, entropy = divergence(model, start, ROWS)
    assert kl == pytest.approx(sum(kls) / 9, rel=1e-4)
    assert entropy == pytest.approx(sum(entropies) / 9, rel=1e-4)


def test_tokens_without_a_chance_count_nothing() -> None:
    """Logits (0, -inf): all mass on token 0, which the start gives one half: KL is log 2, entropy 0. Back, it is infinite."""
    certain = two_tokens(-math.inf)
    kl, entropy = divergence(certain, two_tokens(0.0), ROWS)
    assert kl == pytest.approx(math.log(2)) and entropy == 0
    assert divergence(certain, certain, ROWS) == (0, 0)
    assert divergence(two_tokens(0.0), certain, ROWS)[0] == math.inf


def test_a_model_is_where_it_is_and_stays_in_its_mode() -> None:
    model = random_model(0).train()
    kl, entropy = divergence(model, model, ROWS)
    assert kl == 0.0 and entropy > 0
    assert model.training


def test_what_only_a_peer_reaches() -> None:
    successes = {
        "a": {"p": 0, "q": 3, "r": 0, "s": 0},
        "b": {"p": 1, "q": 0, "r": 0, "s": 0},
        "c": {"p": 0, "q": 1, "r": 0, "s": 9},
    }
    assert unreachable(successes) == {"a": ["p", "s"], "b": ["q", "s"], "c": ["p"]}


@pytest.fixture(scope="module")
def how() -> Measurement:
    config = TrainingConfig(
        problems="arithmetic", eval_size=12, eval_samples=2, max_completion_length=32, num_threads=1,
        verifier="format", seed=5,
    )  # fmt: skip
    return Measurement(config, kl_problems=4, reach_samples=3)


def test_a_starting_policy(how: Measurement) -> None:
    problems = how.problems()
    # All runs are measured on the same problems, whatever their seed.
    assert [p.id.rsplit("-", 2)[0] for p in problems] == ["arithmetic-test-0"] * 12
    policy = load_policy(how.config.policies()[0], "cpu")
    summary, scores = measure(policy, policy, problems, how)
    assert summary["kl"] == 0.0 and 0 < summary["entropy"] < math.log(512)
    assert {"reward", "mean@2", "pass@2", "subject/poly"} <= summary.keys()
    assert summary["mean@2"] == pytest.approx(sum(scores.values()) / 12)
    assert list(scores) == [problem.id for problem in problems]
    # The tiny pool writes its answers into boxes, and it is their form alone that is judged here.
    assert reach(policy, problems, how) == dict.fromkeys(scores, 3)
    assert set(scores.values()) == {1.0}


def test_a_measurement_survives_json_and_has_a_key(how: Measurement) -> None:
    again = from_json(to_json(how))
    assert to_json(again) == to_json(how) and again.key() == how.key()

    def key(**changes: object) -> str:
        return Measurement(TrainingConfig.from_dict({**how.config.to_dict(), **changes}), 4, 3).key()

    assert key() == key(learning_rate=1e-3, seed=1, max_steps=7) == how.key()
    others = {key(eval_size=13), key(verifier=None), key(temperature=0.9), key(model_name_or_path=["tiny-llama"] * 2)}
    assert len(others | {how.key()}) == 5
