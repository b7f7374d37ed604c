"""The grid: what a run is known by, that it goes on after a kill, that it gives the same again, and what its results hold."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithms.pools import embedded_path
from benchmarks.compare import __main__ as command
from benchmarks.compare import report
from benchmarks.compare.__main__ import main, make_study, parse_overrides, parser, studies
from benchmarks.compare.collect import policy_curves
from benchmarks.compare.grid import Board, Cell, make_cells
from benchmarks.compare.measure import Measurement
from benchmarks.compare.pools import find_pool, find_pools
from benchmarks.compare.results import check

SMALL = [
    "--algorithms", "grpo", "prp_t", "--seeds", "1", "--max_steps", "5", "--eval_steps", "2", "--eval_size", "12",
    "--eval_samples", "2", "--kl_problems", "6", "--reach_samples", "4", "--problems_per_step", "4", "--num_generations", "4",
    "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1", "--max_completion_length", "40",
]  # fmt: skip


def cells(*arguments: str, output: Path = Path("out")) -> list[Cell]:
    options, rest = parser().parse_known_args(arguments)
    return make_cells(make_study(options, parse_overrides(rest)), output)


@pytest.fixture(scope="module")
def reported() -> list[tuple[Any, Path]]:
    return []


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, reported: list[tuple[Any, Path]]) -> Path:
    """A finished grid of two methods."""
    output = tmp_path_factory.mktemp("grid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_report", lambda results, folder: reported.append((results, folder)))
        assert main([*SMALL, "--output", str(output), "--jobs", "2"]) == 0
    return output


def results(output: Path) -> dict[str, Any]:
    """Results without what may differ between two grids: seconds, and where they were written."""
    found: dict[str, Any] = json.loads((output / "results.json").read_text())
    found.pop("command")
    for run in found["runs"]:
        assert run.pop("seconds") > 0
    return found


def test_what_the_results_hold(grid: Path, reported: list[tuple[Any, Path]]) -> None:
    found = json.loads((grid / "results.json").read_text())
    assert reported == [(found, grid / "report")]
    check(found)
    assert found["schema"] == 1 and found["baseline"] == "grpo" and found["settings"]["eval_size"] == 12
    assert [(run["method"], run["pool"], run["seed"]) for run in found["runs"]] == [
        ("grpo", "tiny", 0),
        ("prp_t", "tiny", 0),
    ]
    start = found["pools"]["tiny"]["start"]
    for run in found["runs"]:
        for name, curves in run["policies"].items():
            assert curves["steps"] == [0, 2, 4, 5]
            assert curves["reward"][0] == start[name]["reward"]
            assert curves["kl"][0] == 0 and all(kl > 0 for kl in curves["kl"][1:])
            assert all(len(values) == 4 for values in curves["subjects"].values())
            assert all(len(values) == 5 for values in curves["train"].values())
            assert curves["train"]["steps"] == [1, 2, 3, 4, 5]
            assert ("exchange/effective_sample_size" in curves["train"]) == (run["method"] == "prp_t")
            assert (curves["unreachable"] is None) == (start[name]["unreachable"] == [])
    # The same problems were asked first: before any update, rewards in training are those of the same completions.
    first, second = (
        [run["policies"][p]["train"]["reward"][0] for p in ("policy_0", "policy_1")] for run in found["runs"]
    )
    assert first == second
    events = sorted(path.parent.relative_to(grid / "tensorboard") for path in grid.glob("tensorboard/**/events*"))
    assert Path("tiny/prp_t-seed0/policy_1") in events and len(events) == 6
    assert not list(grid.glob("runs/**/optimizer"))


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(12000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("nothing happened for two minutes")


def test_after_kill_and_interruption_it_goes_on_and_gives_the_same(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "write_report", lambda results, folder: None)
    arguments = [*SMALL, "--output", str(tmp_path), "--jobs", "1"]
    runs = {cell.method: cell for cell in cells(*arguments, output=tmp_path)}
    # Killed with all its processes while the second run is at its first checkpoint.
    line = [sys.executable, "-m", "benchmarks.compare", *arguments]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: (runs["prp_t"].folder / "checkpoint-2").exists() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert runs["grpo"].done and not runs["prp_t"].done
    finished = (runs["grpo"].folder / "final.json").stat().st_mtime_ns

    # Interrupted as soon as it goes on.
    def interrupt() -> None:
        wait_until(lambda: "going on from" in (runs["prp_t"].folder / "log.txt").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(arguments) == 130
    thread.join()
    assert "1 of 2 runs are done; go on with the same command" in capsys.readouterr().err
    assert main(arguments) == 0
    assert (runs["grpo"].folder / "final.json").stat().st_mtime_ns == finished
    assert results(tmp_path) == results(grid)


def test_what_is_done_is_not_done_again_and_a_failure_is_told(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "write_report", lambda results, folder: None)
    for name in ("a", "b"):
        (tmp_path / "broken" / name).mkdir(parents=True)
        (tmp_path / "broken" / name / "config.json").write_text("{}")
    arguments = [*SMALL, "--algorithms", "grpo", "--output", str(grid), "--pool", "tiny", str(tmp_path / "broken")]
    before = results(grid)
    assert main([*arguments, "--dry_run"]) == 0
    states = [line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[1], row[4]) for row in states] == [
        ("tiny", "grpo", "done"),
        ("broken", "grpo", "0 of 5 steps"),
    ]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "1 of them done already" in said.out and "failed with status 1: broken grpo" in said.out
    assert "ValueError: model_name_or_path=" in said.out
    assert "failed: broken grpo seed 0" in said.err
    assert results(grid)["runs"] == before["runs"][:1]


def test_a_run_is_known_by_what_decides_it(tmp_path: Path) -> None:
    for name in ("tiny-llama", "tiny-qwen3"):
        shutil.copytree(embedded_path(name) or "", tmp_path / "copy" / name)
    (base,) = cells("--algorithms", "grpo", "--seeds", "1")
    pool = str(tmp_path / "copy")
    (elsewhere,) = cells("--algorithms", "grpo", "--seeds", "1", "--pool", pool, "--jobs", "3", "--output", "elsewhere")
    assert elsewhere.hash == base.hash and elsewhere.pool.name == "copy"
    assert base.folder == Path("out/runs/tiny/grpo") / f"seed0-{base.hash}"
    weights = tmp_path / "copy" / "tiny-llama" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    others = [
        cells("--algorithms", "grpo", "--seeds", "1", *more)[0].hash
        for more in (["--max_steps", "99"], ["--eval_steps", "10"], ["--eval_size", "99"], ["--first_seed", "1"])
    ]
    assert len({base.hash, *others}) == 5
    shutil.copytree(tmp_path / "copy", tmp_path / "changed")
    assert cells("--algorithms", "grpo", "--seeds", "1", "--pool", str(tmp_path / "changed"))[0].hash != base.hash


def test_a_problem_file_is_known_by_its_contents(tmp_path: Path) -> None:
    def hashed(folder: str, answer: str) -> str:
        path = tmp_path / folder / "problems.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"problem": "1 + 1", "answer": answer}) + "\n")
        (cell,) = cells("--algorithms", "grpo", "--seeds", "1", "--problems", str(path), "--eval_problems", str(path))
        return cell.hash

    assert hashed("here", "2") == hashed("there", "2") != hashed("elsewhere", "3")


def test_all_methods_face_the_same_data() -> None:
    found = cells("--algorithms", "grpo", "sgt", "random_reward", "--seeds", "2", "--first_seed", "100")
    assert [(cell.seed, cell.method) for cell in found[:3]] == [(100, "grpo"), (100, "sgt"), (100, "random_reward")]
    assert [cell.job.config.seed for cell in found] == [100] * 3 + [101] * 3
    assert len({cell.hash for cell in found}) == 6
    # Held-out accuracy never comes from the verifier that a control is rewarded by.
    assert [cell.job.config.verifier is None for cell in found[:3]] == [True, True, False]
    assert all(cell.job.measurement == found[0].job.measurement for cell in found)
    assert found[0].job.measurement.config.verifier is None


@pytest.mark.parametrize("name", studies())
def test_the_recipes_are_grids(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in (1, 2):
        for part in ("llama", "qwen3"):
            shutil.copytree(embedded_path("tiny-llama") or "", tmp_path / f"seed{k}" / part)
    for file in ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"):
        (tmp_path / file).write_bytes(file.encode())
    monkeypatch.setenv("MRL_WARM", str(tmp_path))
    monkeypatch.setenv("MRL_MODELS", str(tmp_path))
    found = cells("--study", name)
    assert "grpo" in {cell.method for cell in found}
    assert {len(cell.pool.models) for cell in found} == {{"three": 3, "four": 4}.get(name, 2)}
    assert len({cell.folder for cell in found}) == len(found)
    (quick,) = cells("--study", name, "--seeds", "1", "--algorithms", "grpo", "--pool", "tiny", "--max_steps", "2")
    assert quick.job.config.max_steps == 2
    if name == "stress":
        assert quick.job.config.learning_rate == (3e-4,)


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRL_MODELS", raising=False)
    monkeypatch.delenv("NOT_SET", raising=False)
    for arguments, message in (
        (["--algorithms", "sgtt"], "did you mean 'sgt'"),
        (["--max_stepz", "3"], "did you mean 'max_steps'"),
        (["--seed", "3"], "give seeds and first_seed"),
        (["--pool", "small"], "MRL_MODELS"),
        (["--pool", "$NOT_SET/seed1"], "not set"),
        (["--pool", "/no/such/folder"], "no folder with at least two model folders"),
        (["--pool", "tiny-llama,nothing"], "'nothing'"),
        (["--pool", "tiny", "tiny"], "two pools of one name"),
        (["--study", "tinny"], "did you mean 'tiny'"),
        (["--eval_steps", "0"], "measures nothing"),
        (["--seeds", "0"], "at least one"),
        (["--jobs", "0"], "at least 1"),
        (["--max_steps"], "no value"),
        (["6"], "belongs to no option"),
    ):
        assert main(arguments) == 2, arguments
        assert message in capsys.readouterr().err


def test_pools_by_name(tmp_path: Path) -> None:
    assert find_pool("tiny").models == ("tiny-llama", "tiny-qwen3")
    assert find_pool("three=tiny-llama,tiny-qwen3,tiny-llama").name == "three"
    for k in (1, 2):
        for part in ("qwen3", "llama"):
            (tmp_path / f"seed{k}" / part).mkdir(parents=True)
            (tmp_path / f"seed{k}" / part / "config.json").write_text("{}")
    first, second = find_pools([str(tmp_path / "seed1"), f"other={tmp_path / 'seed2'}"])
    assert (first.name, second.name) == ("seed1", "other")
    assert [Path(model).name for model in first.models] == ["llama", "qwen3"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_progress_is_drawn_anew_only_on_a_terminal(out: io.StringIO, tmp_path: Path) -> None:
    (cell,) = cells("--algorithms", "grpo", "--seeds", "1", output=tmp_path)
    cell.folder.mkdir(parents=True)
    (cell.folder / "metrics.jsonl").write_text(
        '{"step": 6, "policy": "a"}\n{"step": 7, "policy": "a"}\n{"step": 8, "po'
    )
    board = Board(out, 2)
    board.say("begins")
    board.show([cell], 1)
    board.show([cell], 1)
    board.say("done")
    table = (
        "1 of 2 done  method  seed           state\n"
        "-----------  ------  ----  --------------\n"
        "tiny           grpo     0  7 of 100 steps\n"
    )
    shown = f"{table}\x1b[3F\x1b[J" if out.isatty() else ""
    assert out.getvalue() == f"begins\n{shown}done\n"


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("algorithms: [sgt]\nseeds: 3\nlearning_rate: 2e-4\nmax_steps: 7\n")
    found = cells("--study", str(recipe), "--max_steps", "5")
    assert [cell.seed for cell in found] == [0, 1, 2]
    assert found[0].job.config.learning_rate == (2e-4,) and found[0].job.config.max_steps == 5


def test_numbers_that_json_lacks_are_null() -> None:
    how = Measurement(
        command.make_cells(make_study(parser().parse_args([]), {}), Path())[0].job.measurement.config, 1, 1
    )
    evaluated = {
        "step": 0,
        "eval/reward": 0.5,
        "eval/mean@2": 0.25,
        "eval/pass@2": 0.5,
        "eval/kl": 0.0,
        "eval/entropy": 1.0,
    }
    trained = [
        {"step": 1, "train/reward": 0.5, "train/exchange/ratio_variance": "inf"},
        {"step": 2, "train/reward": 0.5},
        {"step": 3, "train/reward": 0.5, "train/exchange/ratio_variance": 2.0},
    ]
    curves = policy_curves([evaluated, *trained], how, {"p": 0.5, "q": 1.0, "r": 0.0}, ["p", "q"])
    assert curves["unreachable"] == 0.75
    assert curves["train"] == {"steps": [1, 2, 3], "reward": [0.5] * 3, "exchange/ratio_variance": [None, None, 2.0]}
    assert policy_curves([evaluated], how, {"p": 0.5}, [])["unreachable"] is None
