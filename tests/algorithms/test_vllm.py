"""Sampling by another engine, without vLLM: what the engine is given, and what the learner makes of its log-probs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import algorithms.policy
from algorithms import Trainer, TrainingConfig
from algorithms.adapters import merged_weights
from algorithms.config import EngineConfig, PolicyConfig
from algorithms.devices import make_plan
from algorithms.errors import EngineError
from algorithms.learner import Learner
from algorithms.losses import LossConfig
from algorithms.planning.cluster import described
from algorithms.policy import Policy, load_policy
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout, generate
from algorithms.rollouts.vllm import ServerEngine, make_engine, rollout, sampling_arguments
from algorithms.samples import Sample, make_sample
from algorithms.tracking import TIME_KEYS, read_jsonl

MakeLlama = Callable[..., LlamaForCausalLM]
MakeLearner = Callable[..., Learner]


class ShiftedEngine:
    """Samples with a copy of the model in Transformers, and says of every token a log-prob that is `shift` nats too low."""

    max_length = None
    answers_all = False

    def __init__(self, model: Any, shift: float) -> None:
        self.model, self.shift = model, shift
        self.received: list[dict[str, torch.Tensor]] = []

    def generate(self, *arguments: Any, progress: Any = None) -> list[list[Rollout]]:
        groups = generate(self.model, *arguments, progress=progress)
        for one in (one for group in groups for one in group):
            one.logprobs = [logprob - self.shift for logprob in one.logprobs]
            one.entropies = []
        return groups

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.received.append({name: weight.clone() for name, weight in weights.items()})
        self.model.load_state_dict(self.received[-1], strict=False)
        self.model.tie_weights()


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> list[ShiftedEngine]:
    """Engines of the policies with `use_vllm`, as they are made."""
    made: list[ShiftedEngine] = []

    def make(config: PolicyConfig, source: str, device: str) -> ShiftedEngine | None:
        if not config.use_vllm:
            return None
        # Of other weights than the policy's: it has to be given those first.
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        torch.nn.init.normal_(model.lm_head.weight)
        made.append(ShiftedEngine(model, 0.1))
        return made[-1]

    monkeypatch.setattr(algorithms.policy, "make_engine", make)
    return made


SMALL: dict[str, Any] = {
    "algorithm": "sgt",
    "problems_per_step": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "max_completion_length": 24,
    "max_steps": 3,
    "eval_steps": 0,
    "save_steps": 0,
    "learning_rate": 1e-3,
    "use_vllm": (True, False),
    "seed": 2,
}
"""Of this seed, policy_0 has right and wrong answers in every step, so that every step measures."""


def run(folder: Path, **changes: Any) -> tuple[Trainer, list[dict[str, Any]]]:
    trainer = Trainer(TrainingConfig(**{**SMALL, "output_dir": str(folder), **changes}))
    trainer.train()
    lines = read_jsonl(folder / "metrics.jsonl")
    return trainer, [
        {k: v for k, v in line.items() if not k.removeprefix("train/").startswith(TIME_KEYS)} for line in lines
    ]


def of(lines: Sequence[dict[str, Any]], policy: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["policy"] == policy]


# Runs


def test_a_run_measures_and_corrects_a_known_mismatch(tmp_path: Path, shifted: list[ShiftedEngine]) -> None:
    trainer, lines = run(tmp_path / "shifted")
    (engine,) = shifted
    for line in of(lines, "policy_0"):
        assert line["train/sampling/logp_difference_mean"] == pytest.approx(0.1, abs=1e-5)
        assert line["train/sampling/importance_ratio_mean"] == pytest.approx(exp(0.1), rel=1e-5)
        assert line["train/sampling/importance_ratio_max"] == pytest.approx(exp(0.1), rel=1e-4)
        assert "train/entropy" not in line
    for line in of(lines, "policy_1"):
        assert "train/entropy" in line
    own = [line for line in of(lines, "policy_1") if "train/sampling/importance_ratio_mean" in line]
    assert len(own) >= 1
    assert all(line["train/sampling/importance_ratio_mean"] == pytest.approx(1, rel=1e-5) for line in own)

    # The weights before each step, and no others: those of the policy as it was loaded, and as it was updated.
    assert len(engine.received) == 3
    config = trainer.config.policies()[0]
    start = merged_weights(load_policy(replace(config, use_vllm=False), "cpu").model)
    assert engine.received[0].keys() == start.keys()
    assert all(torch.equal(engine.received[0][name], weight) for name, weight in start.items())
    assert not torch.equal(engine.received[2]["model.norm.weight"], engine.received[1]["model.norm.weight"])

    # A weight of e^0.1 on every token is a gradient that is e^0.1 times as large, which a cap of 1 takes back.
    norms = [
        of(run(tmp_path / str(i), max_steps=1, **changes)[1], "policy_0")[0]["train/grad_norm"]
        for i, changes in enumerate(
            (
                {"algorithm": "grpo"},
                {"algorithm": "grpo", "vllm_importance_sampling_clip_max": 1.0},
                {"algorithm": "grpo", "vllm_importance_sampling_correction": False},
                {"algorithm": "grpo", "use_vllm": False},
            )
        )
    ]
    assert norms[0] == pytest.approx(exp(0.1) * norms[3], rel=1e-4)
    assert norms[1] == pytest.approx(norms[3], rel=1e-4)
    assert norms[2] == pytest.approx(norms[3], rel=1e-4)


def test_a_resumed_run_gives_the_engine_the_saved_weights(tmp_path: Path, shifted: list[ShiftedEngine]) -> None:
    _, whole = run(tmp_path / "whole", eval_steps=1, eval_size=4, eval_samples=0)
    kept = {"eval_steps": 1, "eval_size": 4, "eval_samples": 0, "save_steps": 1, "max_steps": 2}
    run(tmp_path / "parts", **kept)
    _, resumed = run(tmp_path / "parts", **{**kept, "max_steps": 3}, resume_from_checkpoint="auto")
    assert resumed == whole


# The learner


def rows_of(source: str, shift: float, model: LlamaForCausalLM, seed: int) -> list[list[Sample]]:
    """Four problems of two rows whose recorded log-probs are those of the model, less `shift`."""
    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(4):
        rows = []
        for advantage in (1.0, -0.7):
            ids = rng.integers(3, 64, 8)
            with torch.no_grad():
                logits = model(torch.from_numpy(ids)[None]).logits[0, 2:-1]
            logprobs = torch.log_softmax(logits, -1)[range(5), ids[3:]] - shift
            rows.append(
                make_sample(ids[:3], ids[3:], source=source, advantage=advantage, old_logprobs=logprobs.tolist())
            )
        problems.append(rows)
    return problems


def test_one_update_a_step_takes_no_forward_pass_more(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    model = make_llama(1)
    counts = []
    for has_engine, per_minibatch in ((False, 4), (True, 4), (True, 2)):
        learner = make_learner(make_llama(1), has_engine=has_engine, problems_per_minibatch=per_minibatch)
        forward, calls = learner._forward, []
        learner._forward = lambda packed, forward=forward, calls=calls: (calls.append(1), forward(packed))[1]  # type: ignore[assignment]
        learner.update(rows_of("me", 0.2, model, 0))
        counts.append(len(calls))
    # Of several updates, the later ones need a snapshot.
    assert counts == [2, 2, 4]


def test_the_snapshot_of_a_second_update_is_that_of_the_steps_beginning(
    make_llama: MakeLlama, make_learner: MakeLearner
) -> None:
    learner = make_learner(make_llama(1), has_engine=True, num_iterations=2, learning_rate=0.5)
    metrics = learner.update(rows_of("me", 0.2, make_llama(1), 0))
    assert metrics["sampling/logp_difference_mean"] == pytest.approx(0.2, abs=1e-5)
    assert metrics["sampling/importance_ratio_max"] == pytest.approx(exp(0.2), rel=1e-5)
    assert metrics["clip_ratio/region_mean"] > 0  # it has moved


def test_peers_rows_keep_their_denominators(make_llama: MakeLlama, make_learner: MakeLearner) -> None:
    peers = rows_of("peer", 0.3, make_llama(1), 0)
    gradients = []
    for has_engine in (False, True):
        learner = make_learner(make_llama(1), has_engine=has_engine, loss=LossConfig(importance_cap=3.0, epsilon=0.9))
        metrics = learner.update(peers)
        assert metrics["exchange/ratio_mean"] == pytest.approx(exp(0.3), rel=1e-5)
        assert "sampling/importance_ratio_mean" not in metrics
        gradients.append(learner.optimizer.optimizer.gradients[0])  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# What vLLM gets, and what is made of its answers


def test_completions_end_where_the_models_own_would() -> None:
    def boxed(ids: list[int]) -> bool:
        return ids[-1] == 8

    def of(*ids: int, ends: Callable[[list[int]], bool] | None = None) -> tuple[list[int], list[float], str]:
        made = rollout(ids, [-0.1 * i for i in range(len(ids))], {2, 3}, ends)
        assert made.entropies == []
        return made.token_ids, [round(logprob, 1) for logprob in made.logprobs], made.finish_reason

    assert of(5, 6, 3) == ([5, 6, 3], [0.0, -0.1, -0.2], "stop")
    assert of(5, 8, 6) == ([5, 8, 6], [0.0, -0.1, -0.2], "length")
    assert of(5, 8, 6, 2, ends=boxed) == ([5, 8], [0.0, -0.1], "boxed")
    assert of(5, 6, 2, ends=boxed) == ([5, 6, 2], [0.0, -0.1, -0.2], "stop")
    assert of(5, 6, ends=boxed) == ([5, 6], [0.0, -0.1], "length")


class Server(BaseHTTPRequestHandler):
    """As much of vLLM's server as is spoken to: says the prompt's first token as often as it may, but `refuses` seed 0."""

    routes: tuple[str, ...] = ("/collective_rpc",)
    refuses = False
    asked: list[tuple[str, dict[str, Any]]]

    def do_GET(self) -> None:
        self._answer({"paths": dict.fromkeys(self.routes)} if self.path == "/openapi.json" else None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        if self.path != "/inference/v1/generate":
            self._answer({})
            return
        if self.refuses and body["sampling_params"]["seed"] == 0:
            self.send_error(400, "no seed 0 today")
            return
        ids = [body["token_ids"][0]] * body["sampling_params"]["max_tokens"]
        content = [{"token_id": token, "logprob": -0.5} for token in ids]
        self._answer({"choices": [{"token_ids": ids, "logprobs": {"content": content}, "finish_reason": "length"}]})

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(self, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[tuple[type[Server], str]]:
    handler = type("Handler", (Server,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield handler, f"http://127.0.0.1:{listening.server_port}/"
        listening.shutdown()


def settings(**engine: Any) -> PolicyConfig:
    return replace(TrainingConfig().policies()[0], use_vllm=True, engine=EngineConfig(**{"mode": "server", **engine}))


@pytest.mark.parametrize("answer", [b"<html>welcome</html>", b"{}"])
def test_another_server_than_vllms_is_named(answer: bytes) -> None:
    class Web(Server):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"" if self.path == "/health" else answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listening.server_port}"
        with pytest.raises((EngineError, ValueError), match=f"{url}.*(is it a vLLM server|takes no weights)"):
            make_engine(settings(server_base_url=url), "nowhere", "cpu")
        listening.shutdown()


def test_a_folder_for_weights_that_is_none_is_named(server: tuple[type[Server], str]) -> None:
    with pytest.raises(ValueError, match="vllm_server_weights_dir='/nonexistent' is no folder"):
        make_engine(settings(server_base_url=server[1], server_weights_dir="/nonexistent"), "nowhere", "cpu")


def test_a_server_gets_requests_and_weights(server: tuple[type[Server], str], tmp_path: Path) -> None:
    handler, url = server
    engine = make_engine(settings(server_base_url=url, server_weights_dir=str(tmp_path)), "nowhere", "cpu")
    assert engine is not None
    sampling = SamplingConfig(max_completion_length=3, temperature=0.7, top_k=5)
    groups = engine.generate([(7, 8), (9,)], 2, sampling, [2**64 - 1, 2, 4, 6], {1, 2})
    assert [[one.token_ids for one in group] for group in groups] == [[[7] * 3] * 2, [[9] * 3] * 2]
    assert groups[0][0].logprobs == [-0.5] * 3
    # Old keys and values go first; the requests come in any order.
    assert handler.asked[0] == ("/reset_prefix_cache", {})
    sent = sorted((body["token_ids"], body["sampling_params"]["seed"]) for _, body in handler.asked[1:])
    assert sent == [([7, 8], 1), ([7, 8], 2**63 - 1), ([9], 2), ([9], 3)]
    assert handler.asked[1][1]["sampling_params"].items() >= {
        "temperature": 0.7, "top_k": 5, "max_tokens": 3, "stop_token_ids": [1, 2], "ignore_eos": True, "logprobs": 0,
    }.items()  # fmt: skip

    weight = torch.arange(6.0).view(2, 3)
    engine.load_weights({"a": weight.T, "b": weight, "tied": weight})
    assert handler.asked[-2][1]["method"] == "update_config"
    path, body = handler.asked[-1]
    assert (path, body["method"]) == ("/collective_rpc", "reload_weights")
    folder = Path(body["kwargs"]["weights_path"])
    assert folder.parent == tmp_path
    saved = load_file(folder / "model.safetensors")
    assert torch.equal(saved["a"], weight.T)
    assert torch.equal(saved["b"], weight)
    assert torch.equal(saved["tied"], weight)


def test_what_a_server_refuses_is_said(server: tuple[type[Server], str]) -> None:
    handler, url = server
    engine = ServerEngine(settings(), url)
    handler.refuses = True
    with pytest.raises(RuntimeError, match=r"/inference/v1/generate answers 400(?s:.)*no seed 0 today"):
        engine.generate([(7,)], 1, SamplingConfig(), [0], {1})
    handler.routes = ()
    with pytest.raises(ValueError, match="VLLM_SERVER_DEV_MODE=1"):
        ServerEngine(settings(), url)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"vllm_server_base_url='http://127.0.0.1:9' is not ready within .*=0.2 s .*does not answer"
    ):
        ServerEngine(settings(server_timeout=0.2), "http://127.0.0.1:9")


def test_seeds_have_63_bits() -> None:
    assert sampling_arguments(SamplingConfig(), 2**64 - 1, {1})["seed"] == 2**63 - 1


# Settings


def test_the_plan_counts_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    def resting(**changes: Any) -> int:
        plan = make_plan(TrainingConfig(model_name_or_path=("tiny-llama", "tiny-qwen3"), dtype="fp32", **changes))
        (memory,) = plan.placement("policy_0").memory.values()
        return memory.resting

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    model = load_policy(TrainingConfig(dtype="fp32").policies()[0], "cpu").model
    head = model.get_output_embeddings().weight.numel()
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    weights = sum(parameter.numel() for parameter in model.parameters())
    # Weights, a head of its own if it was tied, a packed head; two GiB, and 600 MiB of vLLM itself.
    expected = 4 * (weights + (2 if tied else 1) * head) + 2 * 1024**3 + 600 * 1024**2
    assert resting(use_vllm=True) - resting() == expected
    assert resting(use_vllm=(False, True)) == resting()
    elsewhere = ("http://a", None)
    assert resting(use_vllm=(True, False), vllm_mode="server", vllm_server_base_url=elsewhere) == resting()
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "lots")
    with pytest.raises(ValueError, match="VLLM_CPU_KVCACHE_SPACE='lots' in the environment is no size"):
        resting(use_vllm=True)


def test_the_plan_counts_a_share_of_a_gpu() -> None:
    cluster = described({"gpus": 1, "gpu_memory": "40GiB", "memory": "256GiB"})
    few: dict[str, Any] = {"model_name_or_path": "tiny-llama", "vllm_gpu_memory_utilization": 0.5}
    plain, beside, sleeps = (
        make_plan(TrainingConfig(**few, **changes), cluster).placement("policy_0").memory[0, "cuda:0"]
        for changes in ({}, {"use_vllm": True}, {"use_vllm": True, "vllm_enable_sleep_mode": True})
    )
    share = 20 * 1024**3
    assert (beside.resting - plain.resting, beside.sampling) == (share, 0)
    assert (sleeps.resting, sleeps.sampling) == (plain.resting, share)
    assert sleeps.host > plain.host


def test_without_vllm_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match=r"use_vllm=True for policy_0 needs vLLM; install it as docs/scale.md says"):
        load_policy(settings(), "cpu")


def test_the_transformers_that_vllm_asks_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.19.0")
    with pytest.raises(ValueError, match=r"transformers 5.19.0 is installed, and 5.24 or newer is needed"):
        load_policy(TrainingConfig().policies()[0], "cpu")


def test_a_colocated_engine_is_on_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("algorithms.rollouts.vllm.require_vllm", lambda *arguments: None)
    with pytest.raises(ValueError, match="policy_0 is on cuda:1; set vllm_mode server"):
        make_engine(settings(mode="colocate"), "nowhere", "cuda:1")


def test_use_vllm_is_per_policy_and_a_flag_without_value_is_all() -> None:
    assert [p.use_vllm for p in TrainingConfig(use_vllm=(True, False)).policies()] == [True, False]
    assert [p.use_vllm for p in TrainingConfig(use_vllm=()).policies()] == [True, True]
    config = TrainingConfig(use_vllm=True, vllm_mode="server", vllm_max_model_length=512)
    assert config.policies()[1].engine == EngineConfig(mode="server", max_model_length=512)
    assert config.loss().importance_cap == 3.0
    assert replace(config, vllm_importance_sampling_correction=False).loss().importance_cap is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vllm_mode": "remote"}, "vllm_mode='remote' is unknown; use one of colocate, server"),
        ({"vllm_gpu_memory_utilization": 1.5}, r"vllm_gpu_memory_utilization=1.5 is invalid; give a share in \(0, 1\]"),
        (
            {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": ("localhost:8000", "http://b:1")},
            "'localhost:8000' is no server's address",
        ),
        (
            {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": ("http://b:1", "http://b:1/")},
            "a server of its own",
        ),
        ({"vllm_importance_sampling_clip_max": 0.5}, "vllm_importance_sampling_clip_max=0.5 is invalid"),
        ({"vllm_server_timeout": 0}, "vllm_server_timeout=0"),
        ({"vllm_max_model_length": 64}, "vllm_max_model_length=64 is invalid; it must exceed max_completion_length"),
        (
            {"vllm_server_base_url": "http://a"},
            "policy_0 does not sample with a server; set use_vllm and vllm_mode server",
        ),
        (
            {"vllm_server_base_url": "http://a", "use_vllm": True, "vllm_mode": "server"},
            "each policy needs a server of its own",
        ),
        (
            {"use_vllm": True, "use_peft": True, "load_in_4bit": True},
            "use_vllm=True and load_in_4bit=True for policy_0",
        ),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


# Weights


def test_merged_weights_are_those_that_peft_merges(make_llama: MakeLlama, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the extra peft is not installed")
    config = replace(TrainingConfig().policies()[0], use_peft=True, lora_r=4)
    policy = load_policy(config, "cpu")
    for name, parameter in policy.model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.1)
    policy.save(tmp_path)
    expected = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    expected = expected.merge_and_unload().state_dict()
    merged = merged_weights(policy.model)
    for name, weight in merged.items():
        assert torch.allclose(weight, expected[name], atol=1e-6), name
    start = merged_weights(load_policy(replace(config, use_peft=False), "cpu").model)
    assert merged.keys() == start.keys()
    assert not torch.allclose(
        merged["model.layers.0.self_attn.q_proj.weight"], start["model.layers.0.self_attn.q_proj.weight"]
    )


def test_a_policy_without_engine_hands_nothing_over(make_llama: MakeLlama, byte_tokenizer: Any) -> None:
    policy = Policy("me", make_llama(vocab_size=300), byte_tokenizer)
    policy.update_engine()
    assert policy.generate([(5, 6)], 1, SamplingConfig(max_completion_length=2), [0])[0][0].entropy is not None
