"""The benchmark of speed: its workload is what it says, its table is made by hand here, and its contenders run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.throughput.__main__ import contests, main, rows, run
from benchmarks.throughput.contenders import Measurement
from benchmarks.throughput.scaling import AXES, draw, show, workload
from benchmarks.throughput.workload import DEAD, LIVE, Chance, Workload, write_problems

SMALL = Workload(model=("tiny-llama",), problems=4, generations=4, tokens=8, dtype="fp32")


def test_every_so_many_th_prompt_is_live(tmp_path: Path) -> None:
    written = write_problems(replace(SMALL, problems=8, live=4), tmp_path / "problems.jsonl")
    assert [row["answer"] for row in written] == [LIVE, DEAD, DEAD, DEAD, LIVE, DEAD, DEAD, DEAD]
    assert [json.loads(line) for line in (tmp_path / "problems.jsonl").read_text().splitlines()] == written
    assert len({row["problem"] for row in written}) == 8


def test_rewards_are_drawn_by_the_completion() -> None:
    chance = Chance(0.25)
    scores = [chance.verify(f"completion {i}", LIVE).score for i in range(4000)]
    # Binomial: a standard deviation is 27.
    assert sum(score or 0 for score in scores) == pytest.approx(1000, abs=110)
    assert scores == [Chance(0.25).verify(f"completion {i}", LIVE).score for i in range(4000)]
    assert not any(chance.verify(f"completion {i}", DEAD).score for i in range(100))


def measured(*seconds: float, gigabytes: float = 1.0, **extra: float) -> Measurement:
    parts = {"generate": 0.5, "environment": 0.003, "rows": 0.001, "update": 0.4}
    return Measurement(list(seconds), int(gigabytes * 1e9), parts, 64.0, extra)


def test_the_table_by_hand() -> None:
    results = {
        "step a": {
            "as they fall": [measured(1.0, 2.0, 9.0), measured(4.0), measured(2.0)],
            "random": [measured(5.0, gigabytes=3.0)],
            "offloaded": [measured(10.0, gigabytes=2.0)],
            "TRL": [measured(20.0, gigabytes=4.0)],
        },
        "step b": {"as they fall": [measured(1.0)], "random": [measured(2.0)]},
        "generation": {"generation": [measured(4.0, transformers=11.0)]},
        "pool": {
            "SGT": [measured(6.0, gigabytes=5.0)],
            "GRPO": [measured(5.0)],
            "a": [measured(3.0, gigabytes=3.0)],
            "b": [measured(2.0, gigabytes=3.0)],
        },
    }
    found = {row.figure: row for row in rows(results, ["a", "b"])}
    assert {figure: round(row.ratio, 3) for figure, row in found.items()} == {
        "a: step, rewards as they fall; TRL / ours": 10.0,  # 20 over the median of 2, 4 and 2
        "a: step, rewards random; TRL / ours": 4.0,
        "a: step, rewards random, with offload_optimizer; TRL / ours": 2.0,
        "a: peak memory; ours / TRL": 0.75,
        "a: peak memory with offload_optimizer; ours / TRL": 0.5,
        "a: environment, exchange, THL; share of a step": 0.002,
        "b: environment, exchange, THL; share of a step": 0.004,
        "generation; Transformers / ours": 2.75,
        "two policies, SGT / sum of GRPO steps": 1.2,
        "two policies, GRPO / sum of GRPO steps": 1.0,
        "SGT / GRPO, two policies": 1.2,
        "two policies, memory / sum": 0.833,
    }
    missed = {figure for figure, row in found.items() if "(missed)" in row.cells()[-1]}
    assert missed == {
        "a: step, rewards random, with offload_optimizer; TRL / ours",
        "a: peak memory; ours / TRL",
        "two policies, SGT / sum of GRPO steps",
        "SGT / GRPO, two policies",
    }


def test_contests_take_turns() -> None:
    found = {contest.name: contest for contest in contests(["a", "b"], SMALL, 3, against_trl=True)}
    assert list(found) == ["step a", "step b", "generation", "pool"]
    assert [(label, kind, w.live) for label, kind, w in found["step b"].entries] == [
        ("as they fall", "ours", 4),
        ("random", "ours", 1),
        ("offloaded", "ours", 1),
        ("TRL", "trl", 1),
    ]
    assert [w.model for _, _, w in found["pool"].entries] == [("a", "b"), ("a", "b"), ("a",), ("b",)]


@pytest.mark.parametrize("kind", ["ours", "trl", "generation"])
def test_contenders_run(kind: str) -> None:
    if kind == "trl":
        pytest.importorskip("trl", reason="TRL is not installed")
    found = run(kind, SMALL, 2)
    assert len(found.seconds) == 2
    assert all(second > 0 for second in found.seconds)
    assert 10**8 < found.peak_bytes < 10**10
    assert 0 < found.tokens <= 8
    if kind == "ours":
        assert found.extra["zero_variance"] < 1
        assert sum(found.parts.values()) <= 1.01 * sum(found.seconds) / 2


def test_a_quarter_of_the_gates_opens() -> None:
    """Of 8 problems each policy fails on two, on which the other succeeds; the others have rewards of both kinds."""
    pair = replace(SMALL, model=("tiny-llama", "tiny-llama"), algorithm="sgt", problems=8, planned=True)
    found = run("ours", pair, 1)
    assert found.extra == {"rescue_rate": 0.25, "zero_variance": 0.25}
    assert found.tokens <= 8
    assert run("ours", replace(pair, algorithm="grpo"), 1).extra == {"rescue_rate": 0.0, "zero_variance": 0.25}


def test_the_peak_is_that_of_the_process_alone() -> None:
    """A process that has been larger starts one that is small."""
    ballast = bytearray(2 * 10**9)
    ballast[::4096] = b"x" * len(ballast[::4096])
    assert run("ours", SMALL, 1).peak_bytes < 1.5 * 10**9


def test_a_failing_contender_says_why() -> None:
    with pytest.raises(RuntimeError, match="model_name_or_path='/no/such/model'"):
        run("ours", replace(SMALL, model=("/no/such/model",)), 1)


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stored = tmp_path / "measured.json"
    assert main(["--models", "tiny-llama", "--quick", "--only", "step", "--output", str(stored)]) == 0
    assert json.loads(capsys.readouterr().out)["step tiny-llama"].keys() == {
        "as they fall",
        "random",
        "offloaded",
    }
    content = json.loads(stored.read_text())
    assert content["results"]["step tiny-llama"]["random"][0]["parts"]["update"] > 0
    # Asked again it measures only what is missing.
    del content["results"]["step tiny-llama"]["random"]
    content["results"]["step tiny-llama"]["offloaded"][0]["seconds"] = [7.0]
    stored.write_text(json.dumps(content))
    assert main(["--models", "tiny-llama", "--quick", "--only", "step", "--output", str(stored)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["step tiny-llama"]["offloaded"] == 7.0
    assert captured.err.count("s a step") == 1
    assert "a quick look: the bounds are for" in captured.err
    for other, differs in ((["tiny-llama"], "workload"), (["tiny-qwen3", "--quick"], "models")):
        with pytest.raises(SystemExit) as mistake:
            main(["--models", *other, "--output", str(stored)])
        assert mistake.value.code == 2
        assert f"holds measurements with {differs}" in capsys.readouterr().err


def test_scaling_changes_one_thing_at_a_time(tmp_path: Path) -> None:
    base = workload("policies", 1, "m", "bf16")
    assert workload("policies", 3, "m", "bf16") == replace(base, model=("m", "m", "m"))
    assert workload("tokens of a completion", 256, "m", "bf16") == replace(base, tokens=256)
    assert workload("completions of a prompt", 64, "m", "bf16") == replace(base, generations=64)
    found = {axis: {value: (value / 100, 1.5) for value in values} for axis, values in AXES.items()}
    assert "512" in show(found)
    assert "10.0" in show(found), "milliseconds for each"
    pytest.importorskip("matplotlib", reason="matplotlib (extra `plots`) is not installed")
    draw(found, "title", tmp_path / "scaling.svg")
    assert "<svg" in (tmp_path / "scaling.svg").read_text()
