"""The plan: where policies go, what they are expected to need, what is refused; and the dry run that prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from algorithms import TrainingConfig
from algorithms.config import read_yaml
from algorithms.devices import available_devices, make_plan
from algorithms.planning.cluster import described
from algorithms.planning.estimates import operations
from algorithms.pools import embedded_path
from algorithms.ranks import Ranks

QWEN_MATH: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
"""The architecture of Qwen2.5-Math-1.5B."""

QWEN3: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
"""The architecture of Qwen3-1.7B-Base."""


@pytest.fixture
def paper_pool(tmp_path: Path) -> tuple[str, ...]:
    """Folders with the architectures of the paper's pool, without weights or tokenizers."""
    Qwen2Config(**QWEN_MATH).save_pretrained(tmp_path / "Qwen2.5-Math-1.5B")
    Qwen3Config(**QWEN3).save_pretrained(tmp_path / "Qwen3-1.7B-Base")
    return str(tmp_path / "Qwen2.5-Math-1.5B"), str(tmp_path / "Qwen3-1.7B-Base")


def paper_config(models: tuple[str, ...], **changes: Any) -> TrainingConfig:
    """`configs/paper_pool.yaml` with models that are at hand."""
    values = read_yaml(Path(__file__).parents[2] / "configs" / "paper_pool.yaml")
    return TrainingConfig.from_dict({**values, "model_name_or_path": models, **changes})


def test_parameters_are_those_of_the_loaded_models() -> None:
    plan = make_plan(TrainingConfig())
    for placement, name in zip(plan.placements, ("tiny-llama", "tiny-qwen3"), strict=True):
        model = AutoModelForCausalLM.from_pretrained(embedded_path(name))
        assert placement.model.parameters == sum(p.numel() for p in model.parameters())
        head = model.get_output_embeddings().weight
        assert placement.model.head == head.numel()
        assert placement.model.embeddings == (0 if model.get_input_embeddings().weight is head else head.numel())


def test_processes_of_torchrun_share_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = make_plan(TrainingConfig(device=("cpu",)))
    monkeypatch.setattr("algorithms.devices.join_ranks", lambda: Ranks(rank=1, size=4, local_size=2))
    plan = make_plan(TrainingConfig(device=("cpu",)))
    assert list(plan.rooms().values()) == [alone.rooms()[0, "cpu"] // 2] * 4
    assert {placement.learner.data_parallel for placement in plan.placements} == {4}
    with pytest.raises(ValueError, match="backend='ray', but torchrun has begun the processes"):
        make_plan(TrainingConfig(backend="ray"))
    with pytest.raises(ValueError, match="cluster has 8 GPUs, but torchrun began 4 processes; begin one for each"):
        make_plan(TrainingConfig(), described({"gpus": 8, "gpu_memory": "80GiB"}))
    assert len(make_plan(TrainingConfig(), described({"gpus": 4, "gpu_memory": "80GiB"})).rooms()) == 5


def test_the_paper_pool_from_its_architectures(paper_pool: tuple[str, ...]) -> None:
    plan = make_plan(paper_config(paper_pool), described({"gpus": 4, "gpu_memory": "80GiB"}))
    # What the hub says of these models: 1.54 and 1.72 billion parameters.
    assert [round(p.model.parameters / 1e9, 2) for p in plan.placements] == [1.54, 1.72]
    assert [p.work.name for p in plan.placements] == ["policy_0", "policy_1"]


def test_with_ray_policies_are_planned_at_once_in_processes_of_their_own() -> None:
    local, ray = make_plan(TrainingConfig()), make_plan(TrainingConfig(backend="ray"))
    assert (local.turns, local.one_process) == (True, True)
    assert (ray.turns, ray.one_process) == (False, False)
    room = (0, "cpu")
    needs = [placement.memory[room] for placement in ray.placements]
    # Each policy's peak, and each one's own process.
    assert ray.load(room) - sum(need.peak for need in needs) == 2 * (
        local.load(room) - sum(n.resting for n in needs) - max(n.transient for n in needs)
    )


def test_with_ray_the_cores_are_divided(monkeypatch: pytest.MonkeyPatch, paper_pool: tuple[str, ...]) -> None:
    models = {"model_name_or_path": paper_pool, "dtype": "bf16", "device": "cpu", "placement": "shared"}
    monkeypatch.setattr("algorithms.planning.cluster.THREADS", 8)
    for module in ("algorithms.devices", "algorithms.backends.ray_cluster"):
        monkeypatch.setattr(f"{module}.discovered", lambda: described({"cpus": 8, "memory": "200GiB"}))
        monkeypatch.setattr(f"{module}.THREADS", 8)
    assert make_plan(TrainingConfig(**models)).threads == 8
    assert make_plan(TrainingConfig(**models, backend="ray")).threads == 4
    assert make_plan(TrainingConfig(**models, backend="ray", num_threads=3)).threads == 3


def test_with_ray_cores_of_engines_are_not_the_learners(tmp_path: Path) -> None:
    path = tmp_path / "placement.yaml"
    path.write_text("policy_0: {learner: [0/cpu:0-3], rollout: [0/cpu:4-7]}\npolicy_1: {learner: [1/cpu:0-7]}\n")
    settings: dict[str, Any] = {"placement": str(path), "backend": "ray", "use_vllm": True, "dtype": "bf16"}
    cluster = described({"nodes": 2, "cpus": 8, "memory": "64GiB"})
    plan = make_plan(TrainingConfig(**settings), cluster)
    assert plan.threads <= 4 and [len(engine) for p in plan.placements for engine in p.engines] == [4]
    path.write_text("policy_0: {learner: [0/cpu:0-3], rollout: [1/cpu:0-7]}\npolicy_1: {learner: [1/cpu:0-7]}\n")
    with pytest.raises(ValueError, match=r"placement gives 1/cpu:0 to policy_0, .* engines share theirs with nobody"):
        make_plan(TrainingConfig(**settings), cluster)


def test_with_ray_a_file_gives_a_policy_several_gpus_or_nodes(paper_pool: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "placement.yaml"
    path.write_text("policy_0: {learner: [0/cuda:0-1, 1/cuda:0]}\npolicy_1: {learner: [1/cuda:1]}\n")
    cluster = described({"nodes": 2, "gpus": 2, "gpu_memory": "80GiB"})
    plan = make_plan(paper_config(paper_pool, placement=str(path), backend="ray"), cluster)
    assert [[str(d) for d in p.processes_of_learner] for p in plan.placements] == [
        ["0/cuda:0", "0/cuda:1", "1/cuda:0"], ["1/cuda:1"]
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"offload_optimizer=True, but of a policy with several processes"):
        make_plan(paper_config(paper_pool, placement=str(path), backend="ray", offload_optimizer=True), cluster)
    path.write_text("policy_0: {learner: [0/cuda:0-1]}\npolicy_1: {learner: [0/cuda:1]}\n")
    with pytest.raises(
        ValueError, match=r"placement gives 0/cuda:1 to policy_0, which has several devices, and to policy_1"
    ):
        make_plan(paper_config(paper_pool, placement=str(path), backend="ray"), cluster)
    path.write_text("policy_0: {learner: [0/cpu:0-1, 1/cpu:0-1]}\npolicy_1: {learner: [2/cpu:0-3]}\n")
    cores = described({"nodes": 3, "cpus": 4, "memory": "64GiB"})
    plan = make_plan(paper_config(paper_pool, placement=str(path), backend="ray"), cores)
    assert [len(p.processes_of_learner) for p in plan.placements] == [2, 1]
    path.write_text("policy_0: {learner: [0/cuda:0], rollout: [0/cuda:1]}\npolicy_1: {learner: [1/cuda:1]}\n")
    with pytest.raises(
        ValueError, match=r"placement of policy_0 .*with backend='ray' and use_vllm.*give learner alone"
    ):
        make_plan(paper_config(paper_pool, placement=str(path), backend="ray"), cluster)


@pytest.mark.parametrize("mode", ["shared", "dedicated", "colocated"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 4), (1, 8), (2, 8)])
def test_the_paper_pool_on_clusters(paper_pool: tuple[str, ...], mode: str, nodes: int, gpus: int) -> None:
    cluster = described({"nodes": nodes, "gpus": gpus, "gpu_memory": "80GiB"})
    plan = make_plan(paper_config(paper_pool, placement=mode, backend="ray", use_vllm=True), cluster)
    used = set().union(*(p.devices for p in plan.placements))
    assert len(used) > (1 if mode == "shared" else gpus * nodes / 2)
    assert not plan.overloaded()
    assert any(p.engine for p in plan.placements) == (mode == "dedicated")
    assert ("0/cuda:0" in str(plan)) == (nodes > 1)


def test_state_by_hand() -> None:
    fp32, bf16, with_reference, in_file = (
        next(iter(make_plan(TrainingConfig(device="cpu", **changes)).placements[0].memory.values()))  # type: ignore[arg-type]
        for changes in ({}, {"dtype": "bf16"}, {"beta": 0.1}, {"dtype": "bf16", "offload_optimizer": True})
    )
    parameters = make_plan(TrainingConfig()).placements[0].model.parameters
    # fp32: weight 4, two moments 8. bf16: weight 2, master 4, moments 8. The gradient of 4 comes and goes.
    assert fp32.resting == 12 * parameters
    assert bf16.resting == 14 * parameters
    assert with_reference.resting == 16 * parameters
    assert in_file.resting == 2 * parameters, "masters and moments are not in memory"


def test_shares() -> None:
    config = TrainingConfig(problems_per_step=4, per_device_train_batch_size=16, max_completion_length=10)
    plan = make_plan(config)
    first = plan.placements[0]
    # 32 completions of 10 tokens: 2 operations per parameter to sample and 6 to learn.
    assert operations(first.model, first.work) == first.model.parameters * 320 * 8
    assert sum(map(plan.share, plan.placements)) == pytest.approx(1)


def test_shared_takes_turns_and_dedicated_needs_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("algorithms.planning.cluster.memory_of", lambda device: 2**40)
    three = TrainingConfig(model_name_or_path=("tiny-llama", "tiny-qwen3", "tiny-llama"))
    # The two larger ones, the Llamas, are apart.
    assert [p.device for p in make_plan(three).placements] == ["cuda:0", "cuda:0", "cuda:1"]
    two = TrainingConfig(placement="dedicated")
    assert [p.device for p in make_plan(two).placements] == ["cuda:0", "cuda:1"]
    with pytest.raises(ValueError, match=r"placement='dedicated' needs one device for each of 3 policies"):
        make_plan(replace(three, placement="dedicated"))


def test_dedicated_cores() -> None:
    plan = make_plan(TrainingConfig(placement="dedicated", backend="ray"), described({"cpus": 2}))
    assert [p.threads for p in plan.placements] == [1, 1]
    assert len({p.learner.devices for p in plan.placements}) == 2
    assert not plan.turns


def test_unknown_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"device='cuda:7' does not exist here; use cpu"):
        available_devices(["cuda:7"])
    assert available_devices(["cpu"]) == ["cpu"]


def test_what_does_not_fit_is_refused_with_what_would_help(paper_pool: tuple[str, ...]) -> None:
    tight = described({"gpus": 1, "gpu_memory": "34GiB"})
    with pytest.raises(ValueError, match=r"cuda:0 has 34.0 GiB, but policy_0 and policy_1 would need about") as error:
        make_plan(paper_config(paper_pool), tight)
    assert "it would fit with" in str(error.value) and " GPUs" in str(error.value)
    with pytest.raises(ValueError, match="placement='dedicated' needs one device for each of 2 policies") as error:
        make_plan(paper_config(paper_pool, placement="dedicated"), described({"gpus": 1, "gpu_memory": "80GiB"}))
    assert "placement=shared" in str(error.value) and "2 GPUs" in str(error.value)


def test_a_placement_file(tmp_path: Path, paper_pool: tuple[str, ...]) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text("policy_0: {learner: [cuda:0], rollout: [cuda:1]}\npolicy_1: {learner: [cuda:2-3]}\n")
    cluster = described({"gpus": 4, "gpu_memory": "80GiB"})
    config = paper_config(paper_pool, placement=str(file), backend="ray", use_vllm=True)
    plan = make_plan(config, cluster)
    assert [len(p.learner.devices) for p in plan.placements] == [1, 2]
    assert [len(p.engines) for p in plan.placements] == [1, 0]
    assert plan.device("policy_1") == "cuda:2"
    with pytest.raises(ValueError, match=r"other devices sample only with backend='ray' and use_vllm"):
        make_plan(replace(config, use_vllm=(False,)), cluster)
    with pytest.raises(ValueError, match=r"other devices sample only with backend='ray' and use_vllm"):
        make_plan(replace(config, backend="local"), cluster)
    with pytest.raises(ValueError, match=r"vllm_mode='server', but policy_1 has several processes"):
        make_plan(replace(config, vllm_mode="server"), cluster)
    file.write_text("policy_0: {learner: [cuda:0], rollout: [cuda:1]}\npolicy_1: {learner: [cuda:2]}\n")
    with pytest.raises(
        ValueError, match=r"vllm_mode='server', but the plan gives policy_0 engines on devices of their own"
    ):
        make_plan(replace(config, vllm_mode="server"), cluster)
    served = replace(config, vllm_mode="server", vllm_server_base_url=("http://a:1", "http://a:2"))
    with pytest.raises(ValueError, match=r"without a vllm_server_base_url: set them so, or give learner alone"):
        make_plan(served, cluster)
    file.write_text("policy_0: {learner: [cuda:0]}\npolicy_1: {learner: [cuda:0]}\n")
    with pytest.raises(
        ValueError, match=r"several policies would have a vLLM on 0/cuda:0, where they would start at the same"
    ):
        make_plan(config, described({"gpus": 1, "gpu_memory": "200GiB"}))
    with pytest.raises(ValueError, match=r"device=\['cuda:1'\], but with backend='ray' Ray hands out GPUs"):
        make_plan(replace(config, device=("cuda:1",)), cluster)
    with pytest.raises(
        ValueError, match=r"vllm_mode='colocate' puts the engine on the first GPU, but policy_1 would be on cuda"
    ):
        make_plan(replace(config, backend="local", placement="dedicated"), cluster)
    with pytest.raises(
        ValueError, match=r"vLLM lets one engine of a process sleep, and policy_0 and policy_1 are in one"
    ):
        replace(config, backend="local", vllm_enable_sleep_mode=True)
    with pytest.raises(
        ValueError, match=r"placement='nowhere.yaml' is not a file; use one of shared, dedicated, colocated"
    ):
        make_plan(TrainingConfig(placement="nowhere.yaml"))


def test_tiny_pools_take_one_thread_unless_told_otherwise() -> None:
    assert make_plan(TrainingConfig()).threads == 1
    assert make_plan(TrainingConfig(num_threads=2)).threads == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_name_or_path": "no/such/model"}, ["model_name_or_path='no/such/model'", "hub id"]),
        ({"model_name_or_path": "nowhere/model.gguf"}, ["nowhere/model.gguf", "is not a file"]),
    ],
)
def test_missing_models(changes: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError) as error:
        make_plan(TrainingConfig(**changes))
    for word in words:
        assert word in str(error.value)


class TestCommand:
    """`python -m algorithms.NAME` as a user runs it."""

    def run(self, name: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", f"algorithms.{name}", *flags]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    def test_dry_run_says_everything_and_writes_nothing(self, tmp_path: Path) -> None:
        done = self.run("sgt", tmp_path, "--dry_run", "--sgt_weight", "0.25")
        assert done.returncode == 0, done.stderr
        for word in ("sgt_weight: 0.25", "tiny-qwen3", "0.4 M", "estimated memory on cpu", "60 steps", "s each"):
            assert word in done.stdout
        assert "[INST]" in done.stdout and "<|user|>" in done.stdout
        assert list(tmp_path.iterdir()) == []

    def test_dry_run_for_a_cluster(self, tmp_path: Path, paper_pool: tuple[str, ...]) -> None:
        cluster = "{nodes: 2, gpus: 8, gpu_memory: 80GiB}"
        models = (
            "--model_name_or_path",
            *paper_pool,
            "--dtype",
            "bf16",
            "--placement",
            "dedicated",
            "--backend",
            "ray",
        )
        done = self.run("sgt", tmp_path, "--dry_run", "--cluster", cluster, *models)
        assert done.returncode == 0, done.stderr
        for word in ("2 nodes with 8 GPUs of 80.0 GiB", "1543.7 M", "0/cuda:", "no prompt of policy_0"):
            assert word in done.stdout
        done = self.run("sgt", tmp_path, "--cluster", cluster)
        assert done.returncode == 2 and "add --dry_run, or leave it out" in done.stderr

    @pytest.mark.parametrize("name", ["grpo", "prp", "xgrpo", "sgt"])
    def test_each_algorithm_runs(self, name: str, tmp_path: Path) -> None:
        flags = "--max_steps 1 --eval_size 4 --eval_samples 0 --max_completion_length 24 --output_dir run"
        done = self.run(name, tmp_path, *flags.split())
        assert done.returncode == 0, done.stderr
        assert "policy_0 (tiny-llama)" in done.stdout
        assert "tensorboard --logdir run" in done.stdout
        assert (tmp_path / "run/checkpoint-1/trainer_state.json").exists()

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ("--problems aritmetic", "did you mean 'arithmetic'"),
            ("--num_generations 1", "num_generations=1"),
            ("--problems nowhere.jsonl --eval_steps 0", "nowhere.jsonl"),
            ("--env math-mutal-v0", "did you mean 'math-mutual-v0'"),
            ("--verifier maths", "did you mean 'math'"),
            ("--config nowhere.yaml", "config='nowhere.yaml' is not a file"),
        ],
    )
    def test_mistakes_end_in_one_line(self, flags: str, message: str, tmp_path: Path) -> None:
        done = self.run("sgt", tmp_path, *flags.split())
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
