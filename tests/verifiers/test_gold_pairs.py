"""References against each other: which pairs are drawn, and what is printed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gold_pairs import main, sample_pairs


def test_all_pairs_of_one_subject_are_drawn_once() -> None:
    golds = [("a", "1"), ("a", "2"), ("b", "1"), ("a", "1"), ("a", "3"), ("b", "4"), ("c", "5")]
    expected = {("1", "2"), ("1", "3"), ("2", "1"), ("2", "3"), ("3", "1"), ("3", "2"), ("1", "4"), ("4", "1")}
    everything = sample_pairs(golds, 100, seed=0)
    assert len(everything) == 8 and set(everything) == expected
    some = sample_pairs(golds, 5, seed=1)
    assert len(set(some)) == 5 and set(some) <= expected
    assert some == sample_pairs(golds, 5, seed=1) != sample_pairs(golds, 5, seed=2)
    assert sample_pairs([("a", "1")], 5, seed=0) == []


def test_accepted_pairs_and_failing_golds_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "golds.jsonl"
    rows = [
        {"type": "angles", "answer": r"45^\circ"},
        {"type": "angles", "answer": "45"},
        {"type": "angles", "answer": "46"},
        {"type": "angles", "answer": " "},
        {"type": "broken", "answer": r"\frac{1}{2"},
        {"answer": "45", "problem": "a line\u2028of its own"},
    ]
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert main(["--data", str(data), "--pairs", "100"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "golds against themselves: 1 of 5 fail"
    assert printed[1].startswith(r"  '\\frac{1}{2': bad_gold: ")
    assert "pairs of different golds: 2 of 6 accepted" in printed
    assert [line for line in printed if " = " in line] == [r"  '45' = '45^\\circ'", r"  '45^\\circ' = '45'"]
    assert printed[-1] == "verdicts: wrong 4, right 2"


def test_lines_that_are_no_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.jsonl"
    for line in ('{"gold": "1"}', "[1]", "{"):
        broken.write_text('{"answer": "1"}\n' + line + "\n", encoding="utf-8")
        assert main(["--data", str(broken)]) == 2
        assert "line 2" in capsys.readouterr().err
    assert main(["--data", str(tmp_path / "missing.jsonl")]) == 2
