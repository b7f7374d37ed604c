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
from transformers import AutoModelForCausalLM

from algorithms import TrainingConfig
from algorithms.devices import Need, Placement, Plan, available_devices, make_plan, refuse_overload
from algorithms.pools import embedded_path


def test_parameters_are_those_of_the_loaded_models() -> None:
    plan = make_plan(TrainingConfig())
    for placement, name in zip(plan.placements, ("tiny-llama", "tiny-qwen3"), strict=True):
        model = AutoModelForCausalLM.from_pretrained(embedded_path(name))
        assert placement.need.parameters == sum(p.numel() for p in model.parameters())


def test_weights_by_hand() -> None:
    fp32, bf16, with_reference, in_file = (
        make_plan(TrainingConfig(device="cpu", **changes)).placements[0].need  # type: ignore[arg-type]
        for changes in ({}, {"dtype": "bf16"}, {"beta": 0.1}, {"dtype": "bf16", "offload_optimizer": True})
    )
    # fp32: weight 4, gradient 4, two moments 8. bf16: weight 2, master 4 with its gradient 4, moments 8.
    assert fp32.weights == 16 * fp32.parameters
    assert bf16.weights == 18 * bf16.parameters
    assert with_reference.weights == 20 * fp32.parameters
    assert in_file.weights == 6 * bf16.parameters, "masters and moments are not in memory"


def test_work_and_shares() -> None:
    config = TrainingConfig(problems_per_step=4, per_device_train_batch_size=16, max_completion_length=10)
    plan = make_plan(config)
    first = plan.placements[0].need
    # 32 completions of 10 tokens: 2 operations per parameter to sample and 6 to learn.
    assert first.flops == first.parameters * 320 * 8
    assert sum(placement.share for placement in plan.placements) == pytest.approx(1)


def test_shared_takes_turns_and_dedicated_needs_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("algorithms.devices.memory_of", lambda device: 2**40)
    three = TrainingConfig(model_name_or_path=("tiny-llama", "tiny-qwen3", "tiny-llama"))
    assert [p.device for p in make_plan(three).placements] == ["cuda:0", "cuda:1", "cuda:0"]
    two = TrainingConfig(placement="dedicated")
    assert [p.device for p in make_plan(two).placements] == ["cuda:0", "cuda:1"]
    with pytest.raises(ValueError, match=r"placement='dedicated' needs one device for each of 3 policies"):
        make_plan(replace(three, placement="dedicated"))


def test_unknown_devices_are_named() -> None:
    with pytest.raises(ValueError, match=r"device='cuda:7' does not exist here; use one of cpu"):
        available_devices(["cuda:7"])
    assert available_devices(["cpu"]) == ["cpu"]


def test_what_does_not_fit_is_refused_with_what_would_help() -> None:
    policy = TrainingConfig().policies()[0]
    need = Need(parameters=1, trained=1, weights=3 * 2**30, training=2**30, rollout=2**29, flops=1.0, layer_calls=1)
    placements = tuple(Placement(policy, "cpu", need, 0.5) for _ in range(2))
    refuse_overload(Plan(placements, {"cpu": 8 * 2**30}, threads=1))
    with pytest.raises(ValueError, match=r"device='cpu' has 7.0 GiB, but .* about 8.0 GiB; lower") as error:
        refuse_overload(Plan(placements, {"cpu": 7 * 2**30}, threads=1))
    assert "policy_0" in str(error.value)


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
