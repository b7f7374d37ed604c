"""Tiny models, scored groups and peers' records for the tests of the algorithms and the learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from algorithms.learner import Learner, LearnerConfig
from algorithms.losses import LossConfig
from algorithms.optimization import MasterOptimizer
from algorithms.rollouts.decoding import can_pack
from algorithms.samples import Group
from mrl_env.tokenization import TextTokenizer
from mrl_env.types import Completion, Experience, FinishReason, Problem, user_message
from verifiers import Verdict

MakeLlama = Callable[..., LlamaForCausalLM]
MakeGemma = Callable[..., Gemma3ForCausalLM]
MakeLearner = Callable[..., Learner]
MakeGroup = Callable[..., Group]
MakeRecord = Callable[..., Experience]


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=str)
def dtype_that_packs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """Types of weights that are sampled with in another layout, however small they are; skips where this CPU has none."""
    monkeypatch.setattr("algorithms.rollouts.decoding._LARGE", 1)
    dtype: torch.dtype = request.param
    if not can_pack(dtype):
        pytest.skip("this CPU has no instructions for products of bfloat16")
    return dtype


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors are fastest, and sums the same everywhere, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def make_llama() -> MakeLlama:
    """A random Llama of two layers; weights large enough for predictions far from uniform."""

    def make(seed: int = 0, **overrides: Any) -> LlamaForCausalLM:
        settings: dict[str, Any] = {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.2,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
        }
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**settings, **overrides})).eval()

    return make


@pytest.fixture(scope="session")
def make_gemma() -> MakeGemma:
    """A random Gemma 3: two of three layers see only the last four tokens, and query heads share a key head."""

    def make(**overrides: Any) -> Gemma3ForCausalLM:
        settings: dict[str, Any] = {
            "vocab_size": 96,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "initializer_range": 0.3,
        }
        torch.manual_seed(0)
        return Gemma3ForCausalLM(Gemma3TextConfig(**{**settings, **overrides})).eval()

    return make


class RecordingSGD(torch.optim.SGD):
    """Keeps the gradients of every step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gradients: list[list[torch.Tensor]] = []

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.gradients.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        super().step(closure)


@pytest.fixture(scope="session")
def make_learner() -> MakeLearner:
    """A learner named `me` whose optimizer keeps the gradients of every step, unless it gets another one."""

    def make(model: PreTrainedModel, optimizer: type[torch.optim.Optimizer] = RecordingSGD, **config: Any) -> Learner:
        settings: dict[str, Any] = {
            "loss": LossConfig(),
            "learning_rate": 0.1,
            "micro_batch_size": 4,
            "problems_per_minibatch": 4,
            "max_grad_norm": 1e9,
        }
        return Learner(
            "me",
            model,
            MasterOptimizer(model.parameters(), optimizer, lr=0.1),
            LearnerConfig(**{**settings, **config}),
        )

    return make


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, ids in the order of the byte-level alphabet, and `</s>` behind them (257 tokens)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


@pytest.fixture(scope="session")
def byte_text(byte_tokenizer: PreTrainedTokenizerFast) -> TextTokenizer:
    """The byte tokenizer as the THL sees it."""
    return TextTokenizer(byte_tokenizer)


def verdict(score: float | None) -> Verdict:
    """A verdict with this score."""
    return Verdict(score, "x", "error" if score is None else "right" if score == 1 else "wrong")


@pytest.fixture(scope="session")
def make_group(byte_text: TextTokenizer) -> MakeGroup:
    """A group with the given scores, whose completions are `a0`, `a1`, ... and an end of sequence."""

    def make(scores: Sequence[float | None], agent: str = "policy_0", problem: str = "p0", **fields: Any) -> Group:
        completions = []
        for i, _ in enumerate(scores):
            ids = (*byte_text.encode(f"a{i}"), byte_text.eos_token_id)
            completions.append(Completion(f"a{i}", ids, tuple(-0.1 * (i + j + 1) for j in range(len(ids)))))
        return Group(
            Problem(problem, user_message("1 + 1"), "2"),
            agent,
            tuple(byte_text.encode("1+1=")),
            tuple(completions),
            tuple(verdict(score) for score in scores),
            **fields,
        )

    return make


@pytest.fixture(scope="session")
def make_record(byte_text: TextTokenizer) -> MakeRecord:
    """A peer's record of the problem `p0`, traced unless told otherwise."""

    def make(
        text: str,
        score: float | None,
        agent: str = "policy_1",
        index: int = 0,
        finish_reason: FinishReason = "stop",
        traced: bool = True,
    ) -> Experience:
        stopped = finish_reason == "stop"
        ids = [*byte_text.encode(text), *([byte_text.eos_token_id] if stopped else [])]
        logprobs = [-0.5 - 0.01 * i for i in range(len(ids))]
        trace = byte_text.trace(ids, logprobs, stopped=stopped) if traced else None
        return Experience("p0", agent, index, finish_reason, 3, text, verdict(score), 0.0, trace)

    return make
