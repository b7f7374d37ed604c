"""Models in shards on several processes learn what one process learns; what they leave behind fits any number of processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from algorithms import Trainer, TrainingConfig
from algorithms.checkpoints import list_checkpoints
from algorithms.ranks import ALONE, Ranks
from algorithms.sharding import check_torchrun
from algorithms.tracking import TIME_KEYS, read_jsonl

SCRIPT = Path(__file__).with_name("processes.py")
ROOT = Path(__file__).parents[2]
CASES = ("sgt", "tied", "gemma", "prp", "beta", "short", "few", "adapter", "checkpointing")
SMALL: dict[str, Any] = {
    "problems_per_step": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 16,
    "max_steps": 2,
    "eval_steps": 2,
    "eval_size": 3,
    "eval_samples": 2,
    "save_steps": 1,
    "save_total_limit": 9,
    "num_threads": 1,
}
FLAGS = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]


def _processes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("processes", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


processes = _processes()


def launch(job: str, size: int, folder: Path, *arguments: str, **environment: str) -> tuple[list[int], str]:
    """Exit codes of a job's processes, and what they wrote to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), job, str(size), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    return codes, done.stderr


def relative_difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """Norm of the difference over the norm."""
    a, b = (torch.cat([part.detach().flatten().double() for part in parts]) for parts in (first, second))
    return float((a - b).norm() / b.norm())


# Shares


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 7])
def test_every_part_counts_once_and_all_processes_take_as_many_steps(size: int, count: int) -> None:
    parts = list(range(count))
    shares = [list(Ranks(rank=rank, size=size).shared(parts)) for rank in range(size)]
    assert sorted(part for share in shares for part, counts in share if counts) == parts
    assert {len(share) for share in shares} == {-(-count // size)}


def test_a_process_alone_has_everything() -> None:
    assert ALONE.gather("x") == ["x"] and ALONE.broadcast("x") == "x" and ALONE.together(lambda: "x") == "x"
    assert [part for part, counts in ALONE.shared("abc") if counts] == ["a", "b", "c"]


# Updates


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.scale)])
def sharded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first and the last of 2 or 4 processes have of each case."""
    folder = tmp_path_factory.mktemp(f"updates-{request.param}")
    codes, stderr = launch("updates", request.param, folder, *CASES, "sgt-bfloat16", "tied-bfloat16")
    assert codes == [0] * request.param, stderr
    return folder


def load(folder: Path, name: str, process: str = "first") -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / f"{name}-{process}.pt", weights_only=False)
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_step_are_those_of_one_process(sharded: Path, name: str) -> None:
    expected, found = processes.learn(name, ALONE), load(sharded, name)
    assert len(found["gradients"]) == len(expected["gradients"])
    assert relative_difference(found["gradients"][0], expected["gradients"][0]) < 1e-6
    for mine, one in zip(found["gradients"], expected["gradients"], strict=True):
        assert relative_difference(mine, one) < 1e-5  # later ones are of weights that differ by rounding
    assert found["weights"].keys() == expected["weights"].keys()
    assert relative_difference(list(found["weights"].values()), list(expected["weights"].values())) < 1e-6
    assert found["metrics"] == pytest.approx(expected["metrics"], rel=1e-4, abs=1e-6)
    for mine, one in zip(found["logprobs"], expected["logprobs"], strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), torch.from_numpy(one), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*CASES, "tied-bfloat16"])
def test_all_processes_end_with_the_same_whole_model(sharded: Path, name: str) -> None:
    first, last = load(sharded, name), load(sharded, name, "last")
    assert all(torch.equal(first["weights"][key], last["weights"][key]) for key in first["weights"])
    assert first["metrics"] == last["metrics"]


@pytest.mark.parametrize("name", ["sgt", "prp", "adapter", "tied-bfloat16"])
def test_the_state_is_that_of_one_process_and_only_the_first_one_holds_it(sharded: Path, name: str) -> None:
    case, _, dtype = name.partition("-")
    expected = processes.learn(case, ALONE, getattr(torch, dtype or "float32"))["state"]["optimizer"]
    found = load(sharded, name)["state"]["optimizer"]
    assert found["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    assert found["optimizer"]["state"].keys() == expected["optimizer"]["state"].keys()
    for key in ("exp_avg", "exp_avg_sq"):
        mine, one = ([state[key] for state in s["optimizer"]["state"].values()] for s in (found, expected))
        assert relative_difference(mine, one) < (5e-2 if dtype else 1e-5)
    assert [m is None for m in found["masters"]] == [m is None for m in expected["masters"]]
    if dtype:
        assert all(master.dtype == torch.float32 for master in found["masters"])
        assert relative_difference(found["masters"], expected["masters"]) < 2e-2
    others = load(sharded, name, "last")["state"]["optimizer"]["optimizer"]["state"]
    assert all(state["exp_avg"] is None for state in others.values())


@pytest.mark.parametrize("name", ["sgt", "tied"])
def test_bfloat16_learns_with_float32_masters(sharded: Path, name: str) -> None:
    exact, expected = processes.learn(name, ALONE), processes.learn(name, ALONE, torch.bfloat16)
    found = load(sharded, f"{name}-bfloat16")
    rounded, mine = (relative_difference(x["gradients"][0], exact["gradients"][0]) for x in (expected, found))
    assert mine < 1.5 * rounded < 0.1
    assert {value.dtype for value in found["weights"].values()} == {torch.bfloat16}
    assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=2e-2, abs=1e-3)


def test_an_error_of_one_process_is_raised_by_all_which_can_go_on(tmp_path: Path) -> None:
    codes, stderr = launch("errors", 3, tmp_path)
    assert codes == [0, 0, 0], stderr
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)] == [
        [[kind, "only here", [0, 10, 20]] for kind in ("ValueError", "EngineError", "WorkerLostError")]
    ] * 3


# Runs


def run_alone(folder: Path, **changes: Any) -> Path:
    Trainer(TrainingConfig(**{**SMALL, "algorithm": "sgt", "output_dir": str(folder), **changes})).train()
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps in one process."""
    return run_alone(tmp_path_factory.mktemp("alone") / "run", max_steps=3)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its first two steps in two processes."""
    folder = tmp_path_factory.mktemp("together") / "run"
    codes, stderr = launch("command", 2, folder, *FLAGS)
    assert codes == [0, 0], stderr
    return folder


def lines(run: Path, step: int) -> list[dict[str, Any]]:
    """Metrics of training up to a step, without seconds."""
    return [
        {key: value for key, value in line.items() if not key.removeprefix("train/").startswith(TIME_KEYS)}
        for line in read_jsonl(run / "metrics.jsonl")
        if line["step"] <= step and any(key.startswith("train/") for key in line)
    ]


def assert_same_metrics(mine: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Up to the rounding of float32 sums; gradients are near 0 where advantages cancel."""
    assert len(mine) == len(others) > 0
    for left, right in zip(mine, others, strict=True):
        numbers = {key: value for key, value in right.items() if isinstance(value, float)}
        assert {key: left[key] for key in left.keys() - numbers.keys()} == {
            key: right[key] for key in right.keys() - numbers.keys()
        }
        assert {key: left[key] for key in numbers} == pytest.approx(numbers, rel=1e-3, abs=1e-5)


def completions(run: Path, step: int) -> list[tuple[int, str, str, str]]:
    return [
        (line["step"], line["policy"], line["problem"], line["completion"])
        for line in read_jsonl(run / "completions.jsonl")
        if line["step"] <= step
    ]


def test_a_run_of_two_processes_is_that_of_one(alone: Path, together: Path) -> None:
    assert completions(together, 2) == completions(alone, 2) != []
    assert_same_metrics(lines(together, 2), lines(alone, 2))
    assert (
        len(read_jsonl(together / "exchange.jsonl")) == 2 * 2 * 4 * 4
    )  # steps, policies, problems, generations: nobody wrote twice


def test_a_checkpoint_of_shards_is_a_whole_model(alone: Path, together: Path) -> None:
    for name in ("policy_0", "policy_1"):
        mine, one = (
            AutoModelForCausalLM.from_pretrained(run / "checkpoint-2" / name).state_dict() for run in (together, alone)
        )
        assert mine.keys() == one.keys()
        assert relative_difference(list(mine.values()), list(one.values())) < 1e-6
    assert [path.name for path in list_checkpoints(together)] == ["checkpoint-1", "checkpoint-2"]


def test_one_process_goes_on_from_two(alone: Path, together: Path, tmp_path: Path) -> None:
    shutil.copytree(together, tmp_path / "run")
    run = run_alone(tmp_path / "run", max_steps=3, resume_from_checkpoint="auto")
    assert_same_metrics(lines(run, 3), lines(alone, 3))


def test_two_processes_go_on_from_one(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "run")
    codes, stderr = launch(
        "command", 2, tmp_path / "run", *FLAGS, "--max_steps", "3",
        "--resume_from_checkpoint", str(tmp_path / "run" / "checkpoint-2"),
    )  # fmt: skip
    assert codes == [0, 0], stderr
    assert_same_metrics(lines(tmp_path / "run", 3), lines(alone, 3))


@pytest.mark.scale
def test_two_processes_go_on_from_four(alone: Path, tmp_path: Path) -> None:
    codes, stderr = launch("command", 4, tmp_path / "run", *FLAGS)
    assert codes == [0] * 4, stderr
    assert_same_metrics(lines(tmp_path / "run", 2), lines(alone, 2))
    codes, stderr = launch(
        "command", 2, tmp_path / "run", *FLAGS, "--max_steps", "3", "--resume_from_checkpoint", "auto"
    )
    assert codes == [0, 0], stderr
    assert_same_metrics(lines(tmp_path / "run", 3), lines(alone, 3))


@pytest.mark.scale
def test_bfloat16_and_kl_run_with_torchrun(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "algorithms.prp",
    ]
    options = ["--dtype", "bf16", "--beta", "0.1", "--output_dir", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *FLAGS, *options], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("metrics, completions, exchange, checkpoints") == 1  # the first process alone speaks
    assert all(line["train/skipped_updates"] == 0 for line in lines(tmp_path / "run", 2) if line["policy"] != "pool")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-2" / "policy_0")
    assert model.dtype == torch.bfloat16


# Faults


def test_a_process_that_dies_ends_the_run_and_is_named(tmp_path: Path) -> None:
    codes, stderr = launch("broken", 2, tmp_path / "run", "1", str(int(signal.SIGKILL)), *FLAGS)
    assert codes == [1, -signal.SIGKILL], stderr
    assert "error: process 1 of 2 died" in stderr
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["checkpoint-1"]


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_process_alone_is_shown_and_ends_all(tmp_path: Path, rank: int) -> None:
    codes, stderr = launch("exhausted", 2, tmp_path / "run", str(rank), *FLAGS)
    assert codes == [1, 1], stderr
    assert "made up: out of memory" in stderr
    assert "collective mismatch" not in stderr


@pytest.mark.scale
def test_a_process_that_stops_ends_the_run_in_time_and_is_named(tmp_path: Path) -> None:
    codes, stderr = launch("broken", 3, tmp_path / "run", "1", str(int(signal.SIGSTOP)), *FLAGS, MRL_RANK_TIMEOUT="20")
    assert codes == [1, -signal.SIGKILL, 1], stderr
    assert "error: process 1 of 3 died, or did not answer" in stderr
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["checkpoint-1"]


@pytest.mark.scale
def test_a_full_disk_ends_all_processes_with_one_message(tmp_path: Path) -> None:
    codes, stderr = launch("full", 2, tmp_path / "run", *FLAGS)
    assert codes == [1, 0] and stderr.count("checkpoint-1 cannot be written (no space left on device)") == 1, stderr
    assert list_checkpoints(tmp_path / "run") == []


def test_mistakes_end_all_processes_with_one_message(tmp_path: Path) -> None:
    codes, stderr = launch("command", 2, tmp_path / "run", *FLAGS, "--offload_optimizer")
    assert (
        codes == [2, 0] and stderr.count("error: offload_optimizer=True, but of a policy with several processes") == 1
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"offload_optimizer": True}, "offload_optimizer=True"),
        ({"load_in_4bit": True, "use_peft": True}, "load_in_4bit=True"),
        ({"use_vllm": (True, False)}, "use_vllm=True"),
        ({"placement": "dedicated"}, "placement='dedicated'"),
        ({"placement": "colocated"}, "placement='colocated'"),
        ({"backend": "ray"}, "backend='ray', but torchrun"),
    ],
)
def test_what_makes_no_sense_in_shards_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        check_torchrun(TrainingConfig(**changes))


def test_single_gpus_are_refused() -> None:
    assert Ranks(size=2).device(["cpu"]) == "cpu"
    with pytest.raises(ValueError, match="every process has the GPU of its number"):
        Ranks(size=2).device(["cuda:0", "cuda:1"])


# GPUs


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_make_a_run(tmp_path: Path) -> None:
    codes, stderr = launch("command", 2, tmp_path / "run", *FLAGS, "--dtype", "bf16")
    assert codes == [0, 0], stderr
    assert len(lines(tmp_path / "run", 2)) == 2 * 3
