"""The grid: what a run is known by, that it goes on after a kill, that it gives the same again, and what its results hold."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

import pytest

from algorithms.pools import embedded_path
from benchmarks.compare import __main__ as command
from benchmarks.compare import report
from benchmarks.compare import run as process
from benchmarks.compare.__main__ import lost_runs, main, make_study, parse_overrides, parser, studies
from benchmarks.compare.collect import collect, policy_curves, thinned, windows
from benchmarks.compare.grid import COMMON, Board, Cell, _reason, make_cells
from benchmarks.compare.measure import Measurement
from benchmarks.compare.pools import SMALL as SMALL_MODELS
from benchmarks.compare.pools import find_pool, find_pools, settings_hash
from benchmarks.compare.results import check
from benchmarks.compare.run import log

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
        assert run.pop("seconds") > 0 and run.pop("commits")
    return found


def test_what_the_results_hold(grid: Path, reported: list[tuple[Any, Path]]) -> None:
    found = json.loads((grid / "results.json").read_text())
    assert reported == [(found, grid / "report" / "compare")]
    check(found)
    assert found["schema"] == 1 and found["baseline"] == "grpo" and found["settings"]["eval_size"] == 12
    assert [(run["method"], run["pool"], run["seed"]) for run in found["runs"]] == [
        ("grpo", "tiny", 0),
        ("prp_t", "tiny", 0),
    ]
    assert (found["planned"], found["missing"]) == (2, [])
    assert (found["pools"]["tiny"]["problems"], found["pools"]["tiny"]["same_tokenizer"]) == (12, False)
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
    assert len((runs["prp_t"].folder / "commit.txt").read_text().split()) == 1
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
    assert len((runs["prp_t"].folder / "commit.txt").read_text().split()) == 3, "a line for each start"
    assert not (runs["prp_t"].folder / "failed.txt").exists(), "an interruption is no failure"


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
    after = results(grid)
    assert after["runs"] == before["runs"][:1] and after["planned"] == 2
    (lost,) = after["missing"]
    assert (lost["method"], lost["pool"], lost["seed"], lost["steps"]) == ("grpo", "broken", 0, 0)
    assert lost["reason"].startswith("ValueError: model_name_or_path=")
    # What the other grid left is gone.
    assert sorted(path.name for path in (grid / "tensorboard" / "tiny").iterdir()) == ["grpo-seed0"]
    assert main([*arguments, "--dry_run"]) == 0
    assert "0 of 5 steps, broke off" in capsys.readouterr().out


def finished(*arguments: str, output: Path) -> list[Cell]:
    """Cells with the records of complete runs, made up, of two held-out problems."""
    found = cells(*arguments, output=output)
    for cell in found:
        names = [policy.name for policy in cell.job.config.policies()]
        cell.folder.mkdir(parents=True)
        cell.job.start.mkdir(parents=True, exist_ok=True)
        evaluated = {f"eval/{key}": 0.5 for key in ("reward", "mean@2", "pass@2", "kl", "entropy")}
        steps = (0, cell.job.config.max_steps)
        records = [{"step": step, "policy": name, **evaluated} for step in steps for name in names]
        (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (cell.folder / "final.json").write_text(json.dumps({name: {"p": 0.5, "q": 1.0} for name in names}))
        start = {
            "evaluation": {name: {"reward": 0.5} for name in names},
            "reach": {name: {"p": 0, "q": 1} for name in names},
            "unreachable": {name: [] for name in names},
        }
        (cell.job.start / "start.json").write_text(json.dumps(start))
    return found


def collected(found: list[Cell], *arguments: str) -> dict[str, Any]:
    options, rest = parser().parse_known_args(arguments)
    return collect(make_study(options, parse_overrides(rest)), found, "command")


def test_tokenizers_are_compared_by_what_they_do(tmp_path: Path) -> None:
    """A tokenizer.json that is written otherwise is the same one; one with two ids exchanged is another."""
    original = Path(embedded_path("tiny-llama") or "")
    for name in ("indented", "swapped"):
        shutil.copytree(original, tmp_path / name)
        content = json.loads((original / "tokenizer.json").read_text())
        if name == "swapped":
            vocabulary = content["model"]["vocab"]
            first, second = sorted(vocabulary, key=vocabulary.get)[-2:]
            vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(content, indent=3))
    pools = [f"{name}=tiny-llama,{tmp_path / name}" for name in ("indented", "swapped")]
    pools.append("other=tiny-llama,tiny-llama,tiny-qwen3")
    arguments = ["--algorithms", "grpo", "--seeds", "1", "--pool", *pools]
    found = collected(finished(*arguments, output=tmp_path / "out"), *arguments)["pools"]
    assert {name: pool["same_tokenizer"] for name, pool in found.items()} == {
        "indented": True,
        "swapped": False,
        "other": False,
    }
    assert found["other"]["problems"] == 2


@pytest.mark.models
def test_tokenizers_of_gguf_files_are_compared(models: Path, tmp_path: Path) -> None:
    small = [str(sorted(models.glob(f"{name}*.gguf"))[0]) for name in SMALL_MODELS]
    arguments = [
        "--algorithms",
        "grpo",
        "--seeds",
        "1",
        "--pool",
        f"one={small[0]},{small[0]}",
        f"small={small[0]},{small[1]}",
    ]
    found = collected(finished(*arguments, output=tmp_path), *arguments)["pools"]
    assert (found["one"]["same_tokenizer"], found["small"]["same_tokenizer"]) == (True, False)


def test_what_is_missing_is_listed(tmp_path: Path) -> None:
    """One run is complete, one was measured in other than finite numbers, one broke off, one has not got there."""
    arguments = ["--algorithms", "grpo", "--seeds", "4"]
    whole, infinite, broken, unfinished = finished(*arguments, output=tmp_path)
    lines = (infinite.folder / "metrics.jsonl").read_text().splitlines()
    (infinite.folder / "metrics.jsonl").write_text(
        "\n".join([*lines[:-1], lines[-1].replace('"eval/kl": 0.5', '"eval/kl": "inf"')]) + "\n"
    )
    for cell in (broken, unfinished):
        (cell.folder / "final.json").unlink()
    (broken.folder / "failed.txt").write_text("ended by SIGKILL")
    (whole.folder / "commit.txt").write_text("aaa\nbbb-dirty\naaa\n")
    found = collected([whole, infinite, broken, unfinished], *arguments)
    assert [(run["seed"], run["commits"]) for run in found["runs"]] == [(0, ["aaa", "bbb-dirty"])]
    assert found["planned"] == 4
    assert [(lost["seed"], lost["steps"], lost["reason"]) for lost in found["missing"]] == [
        (1, 100, "at step 100 policy_1 has no finite eval/kl"),
        (2, 100, "ended by SIGKILL"),
        (3, 100, None),
    ]
    assert collected([infinite, whole], *arguments)["runs"][0]["commits"] == ["aaa", "bbb-dirty"]
    (whole.folder / "commit.txt").unlink()
    assert collected([whole], *arguments)["runs"][0]["commits"] is None


def test_a_killed_run_is_told_by_its_signal(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("INFO: begun\n\nValueError: no\n\n")
    assert _reason(log, 1) == "ValueError: no"
    assert _reason(log, -9) == "ended by SIGKILL"
    log.write_text("x" * 1000)
    assert len(_reason(log, 1)) == 300
    log.write_text("")
    assert _reason(log, 3) == "exit status 3"


def test_a_measure_that_is_not_finite_ends_the_run() -> None:
    """Nothing is recorded of it: the tracker would be asked."""
    trainer: Any = SimpleNamespace(step=43)
    with pytest.raises(FloatingPointError, match="at step 43 b has no finite kl"):
        log(trainer, {"a": {"kl": 1.0}, "b": {"kl": math.inf, "reward": 0.5}})


@pytest.mark.parametrize(("at_stake", "kept"), [(0.0, ["checkpoint-1"]), (300.0, [])])
def test_steps_that_took_long_are_saved_between_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_stake: float, kept: list[str]
) -> None:
    (cell,) = cells(*SMALL, "--algorithms", "grpo", "--reach_samples", "1", output=tmp_path)
    cell.job.write(cell.folder)
    step = process.Trainer.train_step

    def killed_in_the_second(trainer: Any) -> Any:
        if trainer.step == 1:
            raise KeyboardInterrupt
        return step(trainer)

    monkeypatch.setattr(process.Trainer, "train_step", killed_in_the_second)
    monkeypatch.setattr(process, "AT_STAKE", at_stake)
    with pytest.raises(KeyboardInterrupt):
        process.run(cell.folder)
    assert [path.name for path in cell.folder.glob("checkpoint-*")] == kept


def test_one_starting_policy_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Loaded:
        pass

    def load(*_: Any) -> Loaded:
        assert not alive
        policy = Loaded()
        alive.add(policy)
        return policy

    monkeypatch.setattr(process, "load_start", load)
    monkeypatch.setattr(process, "reach", lambda policy, problems, how: {"p": 1})
    monkeypatch.setattr(process, "measure", lambda policy, start, problems, how: ({"reward": 1.0}, {}))
    (cell,) = cells("--algorithms", "grpo", "--seeds", "1", output=tmp_path)
    trainer: Any = SimpleNamespace(policies=["policy_0", "policy_1"])
    assert list(process.measured_start(cell.job, trainer)["reach"]) == ["policy_0", "policy_1"]


def test_training_curves_are_thinned_to_means_and_medians() -> None:
    """Of 120 steps three make a point: 1, 2, 3 have the mean 2; 1, 2, 999 the median 2."""
    assert [list(window) for window in windows(range(1, 6))] == [[1], [2], [3], [4], [5]]
    assert [window[-1] for window in windows(range(1, 121))] == list(range(3, 121, 3))
    assert [window[-1] for window in windows(range(1, 102))][-2:] == [99, 101]
    values = [1.0, 2.0, 3.0, None, 1.0, 2.00001, *[None] * 114]
    assert thinned(values, fmean) == [2.0, 1.5, *[None] * 38]
    assert thinned([1.0, 2.0, 999.0, *[None] * 117], median)[0] == 2.0
    assert thinned([1 / 3], fmean) == [0.3333]


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
    assert base.hash == "f71121acd4", "that of docs/results/tiny, from before there were adapters"
    (adapted,) = cells("--algorithms", "grpo", "--seeds", "1", "--use_peft", "True")
    assert adapted.hash != base.hash
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


def test_a_problem_file_of_a_domain_is_known_by_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the domain's name, in the home folder, and as a replayed exchange."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def hashed(key: str, value: str, content: str) -> str:
        (tmp_path / Path(value.rpartition(":")[2]).name).write_text(content)
        return settings_hash({key: value})

    for key, value in (
        ("problems", f"gsm8k:{tmp_path}/d.jsonl"),
        ("eval_problems", f"choice:{tmp_path}/test.jsonl"),
        ("eval_problems", "choice:~/test.jsonl"),
        ("problems", "~/d.jsonl"),
        ("exchange_replay", f"{tmp_path}/exchange.jsonl"),
    ):
        assert hashed(key, value, "one") == hashed(key, value, "one") != hashed(key, value, "two"), value
    one = hashed("problems", "gsm8k:~/d.jsonl", "one")
    assert one == hashed("problems", f"gsm8k:{tmp_path}/d.jsonl", "one"), "wherever it lies"
    assert one != hashed("problems", "choice:~/d.jsonl", "one"), "another domain reads it otherwise"
    # As before there were domains: what has none is known by the same hash.
    assert settings_hash({"problems": "math", "eval_problems": None, "exchange_replay": None}) == "c5b3cef5e9"


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
    for start in ("seed1", "seed2", "same", "one"):
        for part in ("llama", "qwen3"):
            shutil.copytree(embedded_path("tiny-llama") or "", tmp_path / start / part)
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
        assert quick.job.config.learning_rate == (3 * COMMON["learning_rate"],)


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
        (["--seeds", "0"], "seeds=0 is invalid; give an integer of at least 1"),
        (["--first_seed", "-1"], "first_seed=-1"),
        (["--kl_problems", "0"], "kl_problems=0"),
        (["--reach_samples", "0"], "reach_samples=0"),
        (["--algorithms", ""], "algorithms=['']"),
        (["--domain", ""], "domain=''"),
        (["--domain", "arithmetics"], "did you mean 'arithmetic-mutual-v0'"),
        (["--domain", "arithmetics", "--dry_run"], "did you mean 'arithmetic-mutual-v0'"),
        (["--eval_problems", "/no/such/file.jsonl"], "no folder"),
        (["--problems", "/no/such/file.jsonl", "--eval_problems", "arithmetic"], "no folder"),
        (["--pool", "tiny-llama,"], "names ''"),
        (["--pool", "name="], "no models"),
        (["--pool", "a/b=tiny-llama,tiny-qwen3"], "name with '/'"),
        (["--report", "docs/results"], "give 'docs/results/compare'"),
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
    recipe.write_text("algorithms: sgt\npool: tiny\n")
    assert {(cell.method, cell.pool.name) for cell in cells("--study", str(recipe))} == {("sgt", "tiny")}
    for line, message in (
        ("seeds: two", "seeds='two'"),
        ("seeds: true", "seeds=True"),
        ("first_seed: 0.5", "first_seed=0.5"),
        ("algorithms: []", r"algorithms=\[\]"),
        ("algorithms: [1]", r"algorithms=\[1\]"),
        ("pool: {a: b}", "pool={'a': 'b'}"),
        ("domain: [math]", r"domain=\['math'\]"),
    ):
        recipe.write_text(f"{line}\n")
        with pytest.raises(ValueError, match=message):
            cells("--study", str(recipe))


def test_a_report_that_loses_runs_is_told(tmp_path: Path) -> None:
    stored = tmp_path / "results.json"
    assert lost_runs({"runs": []}, stored) == 0
    stored.write_text(json.dumps({"runs": [{"hash": "a"}, {"hash": "b"}]}))
    assert lost_runs({"runs": [{"hash": "a"}, {"hash": "c"}]}, stored) == 1
    assert lost_runs({"runs": [{"hash": "a"}, {"hash": "b"}]}, stored) == 0


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
