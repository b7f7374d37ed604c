"""The fuzzing command finds what is broken, and finds nothing in what is there; the soak tells what grows."""

from __future__ import annotations

import io
import json
import random
import time
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.fuzz import run as fuzz_run
from benchmarks.fuzz.__main__ import main
from benchmarks.fuzz.run import Statistics, run
from benchmarks.fuzz.targets import BrokenError, Check, Target, require, targets


def tried(check: Check, inputs: int = 20) -> tuple[Statistics, list[dict[str, object]]]:
    found = io.StringIO()
    target = Target("mine", 1.0, lambda rng: rng.randrange(10), lambda: check)
    statistics = run(target, inputs, 0, found, lambda count: None)
    return statistics, [json.loads(line) for line in found.getvalue().splitlines()]


def test_a_failing_input_is_written_with_its_number_and_can_be_made_again() -> None:
    def check(case: int) -> None:
        require(case != 3, "a three")

    statistics, lines = tried(check, 200)
    assert statistics.inputs == 200
    assert 5 < statistics.failures == len(lines) < 50
    assert all(line["input"] == "3" and "a three" in str(line["error"]) for line in lines)
    again, same = tried(check, 200)
    assert same == lines
    assert again.failures == statistics.failures


def test_an_input_that_hangs_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_run, "LIMIT_SECONDS", 0.05)

    def check(case: int) -> None:
        end = time.process_time() + 60
        while time.process_time() < end:
            pass

    statistics, lines = tried(check, 2)
    assert statistics.failures == 2
    assert all("HangError" in str(line["error"]) for line in lines)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_run, "HEADROOM_BYTES", 1 << 27)

    def check(case: int) -> None:
        bytearray(1 << 30)

    _, lines = tried(check, 1)
    assert "MemoryError" in str(lines[0]["error"])


@pytest.mark.parametrize("name", [target.name for target in targets()])
def test_nothing_is_found(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "failures.jsonl"
    status = main(["--inputs", "400", "--seed", "1", "--only", name, "--failures", str(path)])
    assert (status, path.read_text(encoding="utf-8")) == (0, "")
    assert f"{name}" in capsys.readouterr().out


def test_the_shares_add_up() -> None:
    assert sum(target.share for target in targets()) == pytest.approx(1.0)
    with pytest.raises(BrokenError, match="so"):
        require(False, "so")


def test_the_slope_by_hand() -> None:
    assert soak.slope([1, 3, 5, 7]) == 2
    assert soak.slope([0, 0, 0, 100, 0, 0, 0]) == 0  # one outlier moves no median
    assert soak.growth([9, 9, 9, 9, 0, 1, 2, 3]) == 3


@pytest.mark.parametrize(
    ("curve", "values", "flat"),
    [
        ("rss_mib", [100.0, *[200.0] * 30], True),
        ("rss_mib", [100.0 + i for i in range(40)], False),
        ("rss_mib", [200.0 - i for i in range(40)], True),
        ("rate", [50.0 + i for i in range(40)], True),
        ("rate", [50.0 - i for i in range(40)], False),
        ("descriptors", [5, 6, 5, 7] * 20, True),
        ("descriptors", [float(5 + i // 4) for i in range(80)], False),
        ("children", [2.0] * 20, True),
    ],
)
def test_what_is_flat(curve: str, values: list[float], flat: bool) -> None:
    assert soak.is_flat(curve, values) is flat


def test_a_short_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = soak.main(["--steps", "12", "--every", "0", "--output", str(tmp_path)])
    lines = [json.loads(line) for line in (tmp_path / "environment.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["steps"] for line in lines] == list(range(1, 13))
    assert all(line["rss_mib"] > 10 and line["descriptors"] >= 3 and line["threads"] >= 1 for line in lines)
    assert (tmp_path / "environment.png").stat().st_size > 1000
    said = capsys.readouterr().out
    assert "environment: 12 steps" in said
    assert status == ("NOT FLAT" in said)  # twelve steps are too few to be flat for certain
    assert soak.main(["--steps", "2", "--every", "0", "--output", str(tmp_path)]) == 2


def test_canned_completions_are_of_many_kinds() -> None:
    drawn = [soak.canned(random.Random(i), "42") for i in range(200)]
    assert len({str(completion)[:30] for completion in drawn}) > 50
