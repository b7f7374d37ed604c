"""The page and pictures of made-up results: right numbers, the same bytes again, and what changes is found."""

from __future__ import annotations

import json
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.compare.figures import FIGURES, OTHER, STYLES, draw_all, draw_curves, stretches, subject_table
from benchmarks.compare.methods import METHODS
from benchmarks.compare.report import (
    claims_page,
    differences_table,
    main,
    markdown_table,
    p_value,
    results_table,
    rounded,
    same_drawing,
    stale,
    to_json,
    write_all,
    write_report,
)
from benchmarks.compare.results import POOL, load

Make = Callable[..., dict[str, Any]]
Effects = dict[str, dict[str, Any]]

DOCS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def results(made_up: Make, as_in_the_paper: Effects) -> dict[str, Any]:
    return made_up(as_in_the_paper)


@pytest.fixture(scope="module")
def written(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of `results`."""
    output = tmp_path_factory.mktemp("report")
    write_all([results], output)
    return output


def cells(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_results_table_by_hand(made_up: Make) -> None:
    """Without noise, three warm starts end at .60, .62 and .64 for policy_0: mean .62; mean@k lies 3 points lower."""
    results = made_up({"grpo": {}, "sgt": {"reward": (0.6, 0.5), "kl": (0.2, 0.1)}}, noise=0)
    found = cells(results_table(results, "policy_0"))
    assert found["method"] == ["runs", "reward@1", "mean@k", "area", "IQM", "KL", "entropy", "gate"]
    assert found["SGT"][:3] == ["6", "62.0 [60.0, 64.0]", "59.0 [57.0, 61.0]"]
    assert found["SGT"][4:] == ["62.0", "0.200", "0.075", ""], "no spread within a warm start, none at all, no gate"
    assert cells(results_table(results, POOL))["SGT"][1] == "57.0 [55.0, 59.0]"


def test_the_pools_interquartile_mean_is_over_runs_of_the_pool(made_up: Make) -> None:
    """Six runs with pool averages .54, .56 and .73, twice each: without the first and the last the mean is .5975."""
    results = made_up({"grpo": {}, "sgt": {"reward": (0.58, 0.50)}}, noise=0)
    for run in results["runs"]:
        if run["method"] == "sgt" and run["pool"] == "start_2":
            run["policies"]["policy_0"]["reward"][-1] += 0.3
    assert cells(results_table(results, POOL))["SGT"][4].startswith("59.8")


def test_runs_that_are_missing_are_told(made_up: Make, dropped: Callable[..., None], tmp_path: Path) -> None:
    results = made_up({"grpo": {}, "sgt": {}, "xgrpo": {}})
    dropped(results, "sgt", "start_1", 0, "FloatingPointError: kl=nan")
    dropped(results, "sgt", "start_1", 1, None)
    for pool in results["pools"]:
        for seed in (0, 1):
            dropped(results, "xgrpo", pool, seed, None)
    for run in results["runs"][:3]:
        run["commits"] = ["older", "old-dirty"]
    results["runs"][3]["commits"] = None
    table = cells(results_table(results, POOL))
    assert (table["GRPO"][0], table["SGT"][0]) == ("6", "4 of 6; 1 broke off; 1 unfinished")
    assert table["XGRPO"] == ["0 of 6; 6 unfinished", *[""] * 7]
    write_report(results, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "- 10 of 18 runs: 2 methods" in page
    assert (
        "- **XGRPO: 0 of 6; 6 unfinished**\n"
        "- **SGT: 4 of 6; 1 broke off; 1 unfinished**; start_1 seed 0 broke off at step 43 (FloatingPointError: kl=nan)\n"
        in page
    )
    assert (
        "- commit of the runs `0123456789abcdef`, `not recorded`, `old-dirty`, `older`; of this page's numbers "
        "`0123456789abcdef`" in page
    )


def test_the_command_on_the_page_makes_it_again(written: Path, tmp_path: Path) -> None:
    page = (written / "made-up" / "README.md").read_text()
    line = next(line for line in page.splitlines() if "benchmarks.compare.report" in line)
    arguments = shlex.split(line.replace("FOLDER", str(written)))[3:]
    before = (written / "made-up" / "README.md").read_bytes()
    (written / "made-up" / "README.md").unlink()
    assert main(arguments) == 0
    assert (written / "made-up" / "README.md").read_bytes() == before


def test_differences_table_by_hand(made_up: Make) -> None:
    results = made_up({"grpo": {}, "sgt": {"reward": (0.6, 0.5)}}, noise=0)
    table = differences_table(results, "policy_0")
    assert table is not None
    found = cells(table)
    assert found["SGT"][:3] == ["6", "+5.0", "+5.0"], "no spread, no interval"
    assert found["SGT"][4:7] == ["0.031", "1.00", "1.00"], "2 / 2^6; won all"
    assert differences_table(made_up({"grpo": {}}), POOL) is None


def test_the_page_says_how_it_was_made(written: Path) -> None:
    page = (written / "made-up" / "README.md").read_text()
    for fact in (
        "python -m benchmarks.compare --study made-up",
        "0123456789abcdef",
        "torch 2.13.0",
        "x86_64 AVX2, 2 cores, GPU: none",
        "30 runs: 5 methods, 3 warm start(s), 2 seed(s)",
        "6 pairs, 3 warm starts",
        "95 s of training per run",
        "- commit `0123456789abcdef`; python",
        "each at 5 % by itself, not adjusted",
        "the luck of the 288 held-out problems",
    ):
        assert fact in page
    for name in FIGURES:
        assert f"({name}.svg)" in page and f"({name}.png)" in page
    assert "ot tested" not in page


def test_what_was_not_tested_takes_one_line(made_up: Make, tmp_path: Path) -> None:
    write_report(made_up({"grpo": {}}, pools=("one",), seeds=1), tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "## Verdicts" not in page and "## Differences" not in page
    assert (
        "Not tested here: C1, C4a, C4b, C5a, C5c (no run of SGT); C2, C5b (no run of XGRPO); C3a, C3b, C3c, C3d (no"
        in page
    )
    assert not (tmp_path / "differences.svg").exists()


def test_all_pictures_are_there_and_well_formed(written: Path) -> None:
    for name in FIGURES:
        assert (written / "made-up" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        text = (written / "made-up" / f"{name}.svg").read_text()
        ElementTree.fromstring(text)
        assert "made-up: 6 runs per method from 3 warm starts" in text
        assert "dc:date" not in text


def test_the_largest_picture_is_small(written: Path) -> None:
    """Both files of it: a repository keeps every version."""
    assert sum((written / "made-up" / f"dynamics.{kind}").stat().st_size for kind in ("png", "svg")) < 300_000


def test_from_the_written_file_come_the_same_bytes(written: Path, tmp_path: Path) -> None:
    """Also of the pixels: the drawing is deterministic."""
    assert main([str(written / "made-up" / "results.json"), "--output", str(tmp_path)]) == 0
    before = {path.relative_to(written): path.read_bytes() for path in written.rglob("*") if path.is_file()}
    after = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert before.keys() == after.keys()
    assert len(before) == 2 * len(FIGURES) + 3
    for name in before:
        assert before[name] == after[name], name


def test_the_order_of_warm_starts_is_that_of_the_file(made_up: Make, tmp_path: Path) -> None:
    effects: dict[str, Any] = {"grpo": {}, "sgt": {}}
    write_report(made_up(effects, pools=("b", "c", "a"), seeds=2), tmp_path / "made-up")
    path = tmp_path / "made-up" / "results.json"
    assert main([str(path), "--output", str(tmp_path / "again")]) == 0
    for name in ("README.md", "curves.svg", "differences.svg"):
        assert (tmp_path / "made-up" / name).read_bytes() == (tmp_path / "again" / "made-up" / name).read_bytes(), name


def test_check_finds_what_changed(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = json.loads((written / "made-up" / "results.json").read_text())
    arguments = [str(written / "made-up" / "results.json"), "--output", str(written), "--check"]
    assert main(arguments) == 0
    assert "up to date" in capsys.readouterr().out
    for path in written.rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(written)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    stored["runs"][0]["policies"]["policy_0"]["reward"][-1] += 0.02
    (tmp_path / "made-up" / "results.json").write_text(to_json(stored))
    (tmp_path / "made-up" / "old.svg").write_text("<svg/>")
    (tmp_path / "made-up" / "subjects.svg").unlink()
    assert main([str(tmp_path / "made-up" / "results.json"), "--output", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "made-up/README.md differs",
        "made-up/curves.svg differs",
        "made-up/differences.svg differs",
        "made-up/subjects.svg is missing",
        "made-up/old.svg is not made any more",
    ]
    assert (tmp_path / "made-up" / "README.md").read_bytes() == (written / "made-up" / "README.md").read_bytes()


def test_pages_in_the_docs_are_those_of_their_results() -> None:
    stored = sorted(DOCS.glob("*/results.json"))
    if not stored:
        pytest.skip("no results are stored in docs/results")
    assert stale([load(path) for path in stored], DOCS) == []


def test_what_is_the_same_drawing() -> None:
    def text(number: str, identity: str, version: str = "3.11.2", colour: str = "#000000") -> str:
        return f'<!-- Matplotlib v{version}, --><path id="{identity}" d="M {number} 2" style="fill: {colour}"/>'

    one = text("10.50", "p0123456789")
    assert same_drawing(one, text("10.51", "pabcdef0123"))
    assert not same_drawing(one, text("10.60", "p0123456789"))
    assert not same_drawing(one, text("10.50", "p0123456789", colour="#000001"))
    assert not same_drawing(one, one + one)
    assert same_drawing(one, text("99", "p0123456789", version="3.12.0")), "another Matplotlib draws otherwise"


def test_claims_page_has_the_studies_side_by_side(made_up: Make, as_in_the_paper: Effects, tmp_path: Path) -> None:
    one = made_up({"grpo": {}, "sgt": {"reward": (0.7, 0.7)}})
    other = made_up({"grpo": {}, "sgt": {"reward": (0.4, 0.4)}}) | {"study": "some-harm"}
    with pytest.raises(ValueError, match="two have one name"):
        write_all([one, one], tmp_path)
    lines = claims_page([other, one]).splitlines()
    assert any("| claim | made-up | some-harm |" in line for line in lines)
    assert next(line for line in lines if line.startswith("| C1 ")).endswith("| confirmed | refuted |")
    assert next(line for line in lines if line.startswith("| C2 ")).endswith("| – | – |")


def test_json_is_rounded_sorted_and_has_a_line_per_run(results: dict[str, Any]) -> None:
    text = to_json(rounded(results))
    assert '"seconds":95.1235,' in text
    assert len(text.splitlines()) == 2 + len(results["runs"]) + 1 + len(results)
    found = json.loads(text)
    assert list(found) == sorted(found)
    assert rounded(found) == found
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({**results, "machine": {"cores": float("nan")}})


def test_wrong_input_is_told(tmp_path: Path, results: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    for text, message in (("{", "is no JSON"), ("[]", "schema='list'"), ('{"schema": 1}', "no study, baseline")):
        path.write_text(text)
        assert main([str(path), "--output", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
    assert main([str(tmp_path / "none.json"), "--output", str(tmp_path)]) == 2


def test_without_matplotlib_the_remedy_is_named(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'mutual-rl\[plots\]'"):
        draw_all(results)


def test_every_method_has_its_own_look() -> None:
    assert set(STYLES) == set(METHODS)
    assert len(set(map(str, STYLES.values()))) == len(STYLES)
    assert OTHER not in STYLES.values()


def test_curves_show_the_means(made_up: Make) -> None:
    results = made_up({"grpo": {}, "sgt": {"reward": (0.6, 0.5)}}, noise=0)
    figure = draw_curves(results)
    lines = {line.get_label(): line for line in figure.axes[1].get_lines()}
    assert lines["SGT"].get_ydata()[-1] == pytest.approx(0.62)
    assert lines["SGT"].get_color() == STYLES["sgt"][0]
    assert [axes.get_title() for axes in figure.axes] == ["pool average", "policy_0", "policy_1"]
    assert len(figure.axes[0].collections) == 2, "a band per method"
    assert not draw_curves(made_up({"grpo": {}}, pools=("one",), seeds=1)).axes[0].collections, "one run, no band"


def test_subjects_by_hand(made_up: Make) -> None:
    """Three warm starts: .55, .57, .59 end .57 on average; poly lies .2 below, addsub .2 above; the start is .31."""
    table = subject_table(made_up({"grpo": {}}, noise=0), "policy_0", ["addsub", "poly", "none"])
    assert table[:, :2] == pytest.approx(np.array([[0.51, 0.11], [0.77, 0.37]]))
    assert np.isnan(table[:, 2]).all()


def test_training_is_drawn_by_evaluations_or_eighths() -> None:
    assert stretches(range(0, 101, 5)) == list(range(0, 101, 5))
    assert stretches([0, 16]) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert stretches([10, 12, 13]) == [10, 11, 12, 13], "fewer steps than eight"
    assert stretches([3]) == [3]


def test_small_texts() -> None:
    assert markdown_table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"
    assert (p_value(0.0004), p_value(0.0123), p_value(float("nan"))) == ("< 0.001", "0.012", "")
