"""Finished runs side by side: the table against records written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import report


def write_run(folder: Path, after: float, rescued: list[float]) -> Path:
    folder.mkdir(parents=True)
    lines = [{"step": 0, "policy": "policy_0", "eval/reward": 0.25, "eval/subject/mult": 0.5}]
    lines += [
        {"step": i + 1, "policy": "policy_0", "train/exchange/rescue_rate": rate} for i, rate in enumerate(rescued)
    ]
    lines += [{"step": 2, "policy": "policy_0", "eval/reward": after, "eval/subject/mult": 1.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_before_and_after_of_each_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "grpo", 0.5, [0.0, 0.0]), write_run(tmp_path / "sgt", 0.75, [0.5, 0.25])]
    rows = {line.split()[0]: line.split()[1:] for line in report(runs).splitlines() if line.strip()}
    assert rows["policy_0"] == ["before", "grpo", "sgt"]
    assert rows["reward"] == ["0.250", "0.500", "0.750"]
    assert rows["mult"] == ["0.500", "1.000", "1.000"]
    assert rows["rescued"] == ["in", "training", "0.0%", "37.5%"]


def test_runs_that_were_evaluated_in_different_ways(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 0.5, [0.0]) for name in ("a", "b")]
    text = (runs[1] / "metrics.jsonl").read_text().replace("eval/subject/mult", "eval/mean@4")
    (runs[1] / "metrics.jsonl").write_text(text)
    rows = {line.split()[0]: line.split()[1:] for line in report(runs).splitlines() if line.strip()}
    assert rows["mult"] == ["0.500", "1.000", "-"]
    assert rows["mean@4"] == ["0.500", "-", "1.000"]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / seed / "sgt", 0.5, [0.0]) for seed in ("a", "b")]
    header = report(runs).splitlines()[0]
    assert str(runs[0]) in header and str(runs[1]) in header


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no runs given"):
        report([])
    with pytest.raises(ValueError, match=r"has no metrics.jsonl"):
        report([tmp_path])
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="was never evaluated"):
        report([tmp_path])
