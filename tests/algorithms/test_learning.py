"""Policies that learn, through the whole path: sampling, verdicts, exchange, rows, learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from algorithms.algorithm import Algorithm
from algorithms.grpo import GRPO
from algorithms.learner import Learner
from algorithms.losses import LossConfig
from algorithms.policy import Policy
from algorithms.prp import PRP
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.samples import Group
from algorithms.sgt import SGT
from algorithms.xgrpo import XGRPO
from mrl_env.exchange import MemoryExchange
from mrl_env.seeding import derive_seed
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Completion, Experience, Problem, user_message
from verifiers import Verdict

MakeLearner = Callable[..., Learner]
MakeRecord = Callable[..., Experience]


class Bigrams(PreTrainedModel):
    """The smallest language model: a table of logits for the next token, given the last one."""

    config_class = LlamaConfig

    def __init__(self, size: int) -> None:
        super().__init__(LlamaConfig(vocab_size=size, num_hidden_layers=1))
        self.table = torch.nn.Embedding(size, size)
        self.generation_config = None

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.table

    def get_output_embeddings(self) -> None:
        return None

    def forward(self, input_ids: torch.Tensor, logits_to_keep: int | torch.Tensor, **_: Any) -> SimpleNamespace:
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return SimpleNamespace(logits=self.table(input_ids[:, kept]))


def make_bandit(tokenizer: PreTrainedTokenizerFast, support: float) -> Policy:
    """Answers `a` or `c` with one half each, `b` with a probability of about e^-support / 2, and stops."""
    model = Bigrams(len(tokenizer))
    token = {text: tokenizer.convert_tokens_to_ids(text) for text in ("?", "a", "b", "c", "</s>")}
    with torch.no_grad():
        model.table.weight.fill_(-1000.0)
        model.table.weight[token["?"], [token["a"], token["c"]]] = 0.0
        model.table.weight[token["?"], token["b"]] = -support
        for answer in "abc":
            model.table.weight[token[answer], token["</s>"]] = 0.0
    return Policy("policy_0", model, tokenizer)


def chance(policy: Policy, answer: str) -> float:
    """The bandit's probability of an answer."""
    table = cast(Bigrams, policy.model).table.weight.detach().double()
    question, token = policy.text.encode("?") + policy.text.encode(answer)
    return float(table[question].softmax(-1)[token])


def train(
    policy: Policy,
    learner: Learner,
    algorithm: Algorithm,
    problems: Sequence[Problem],
    score: Callable[[str], float],
    steps: int,
    peers: Sequence[Experience] = (),
    length: int = 4,
    generations: int = 8,
) -> list[float]:
    """The straight line of a step, many times; returns the mean reward of each."""
    exchange = MemoryExchange(["policy_0", "policy_1"])
    exchange.publish(peers)
    means = []
    for step in range(steps):
        prompts = [tuple(policy.text.encode(problem.question)) for problem in problems]
        seeds = [derive_seed(step, problem.id, g) for problem in problems for g in range(generations)]
        answers = policy.generate(prompts, generations, SamplingConfig(max_completion_length=length), seeds)
        seen = exchange.view("policy_0", [problem.id for problem in problems])
        retokenize = Retokenizer(policy.text, length)
        rows, scores = [], []
        for problem, prompt, completions, records in zip(problems, prompts, answers, seen, strict=True):
            verdicts = tuple(judge(completion, score) for completion in completions)
            group = Group(problem, "policy_0", prompt, tuple(completions), verdicts, seed=step)
            rows.append(algorithm.rows(group, records, retokenize))
            scores += [verdict.score or 0.0 for verdict in verdicts]
        learner.update(rows)
        means.append(sum(scores) / len(scores))
    return means


def judge(completion: Completion, score: Callable[[str], float]) -> Verdict:
    value = score(completion.text)
    return Verdict(value, completion.text, "right" if value == 1 else "wrong")


BANDIT = [Problem("p0", user_message("?"), "b")]


@pytest.mark.parametrize(
    ("algorithm", "escapes"),
    [
        (GRPO(), False),
        (XGRPO(), False),
        (XGRPO(xgrpo_mix=0.5), False),
        (SGT(), True),
        (SGT(sgt_weight=0.0), False),
        (PRP(), True),
    ],
)
@pytest.mark.parametrize("peer_solves", [True, False])
def test_only_a_peers_text_leads_out_of_zero_support(
    algorithm: Algorithm,
    escapes: bool,
    peer_solves: bool,
    byte_tokenizer: PreTrainedTokenizerFast,
    make_learner: MakeLearner,
    make_record: MakeRecord,
) -> None:
    """An answer of probability e^-30 is never sampled: rewards alone, one's own or a peer's, cannot raise it."""
    policy = make_bandit(byte_tokenizer, support=30)
    learner = make_learner(policy.model, torch.optim.Adam, learning_rate=1.0, micro_batch_size=64)
    peers = [make_record("b" if peer_solves else "c", float(peer_solves), index=i) for i in range(8)]
    assert chance(policy, "b") == pytest.approx(0.5 * 2.718281828**-30, rel=1e-3)
    rewards = train(policy, learner, algorithm, BANDIT, lambda text: float(text == "b"), 40, peers)
    if escapes and peer_solves:
        assert chance(policy, "b") > 0.9
        assert rewards[0] == 0.0
        assert sum(rewards[-10:]) / 10 > 0.9
    else:
        assert chance(policy, "b") < 1e-10
        assert rewards == [0.0] * 40
    if not peer_solves or isinstance(algorithm, GRPO):
        assert learner.version == 0, "all rewards are equal: no gradient, no update"
    if peer_solves and isinstance(algorithm, XGRPO):
        assert learner.version == 40, "it moves in every step, though not there"


def test_the_gate_closes_once_the_policy_succeeds(
    byte_tokenizer: PreTrainedTokenizerFast, make_learner: MakeLearner, make_record: MakeRecord
) -> None:
    """SGT's escape ends in GRPO: when all own answers succeed, nothing moves any more."""
    policy = make_bandit(byte_tokenizer, support=8)
    learner = make_learner(policy.model, torch.optim.Adam, learning_rate=1.0, micro_batch_size=64)
    peers = [make_record("b", 1.0)]
    train(policy, learner, SGT(), BANDIT, lambda text: float(text == "b"), 30, peers)
    settled = learner.version
    assert train(policy, learner, SGT(), BANDIT, lambda text: float(text == "b"), 10, peers) == [1.0] * 10
    assert learner.version == settled


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "gspo"])
def test_a_tiny_language_model_learns_a_trivial_task(
    loss_type: Any, byte_tokenizer: PreTrainedTokenizerFast, make_learner: MakeLearner
) -> None:
    """A random Llama that says any bytes learns to say letters: about a fifth of the bytes are."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(byte_tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            eos_token_id=byte_tokenizer.eos_token_id,
            bos_token_id=None,
            pad_token_id=None,
        )
    )
    policy = Policy("me", model, byte_tokenizer)
    learner = make_learner(
        model,
        torch.optim.AdamW,
        loss=LossConfig(loss_type, max_completion_length=6),
        learning_rate=1e-2,
        micro_batch_size=64,
        max_grad_norm=1.0,
    )
    problems = [Problem(f"p{i}", user_message(text), "") for i, text in enumerate(["one", "three", "seven", "ten"])]

    def letters(text: str) -> float:
        return sum(c.isascii() and c.isalpha() for c in text) / max(1, len(text))

    rewards = train(policy, learner, GRPO(), problems, letters, steps=40, length=6)
    assert sum(rewards[:3]) / 3 < 0.35
    assert sum(rewards[-3:]) / 3 > 0.9
