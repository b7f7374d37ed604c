"""The smaller verifiers, the combinators, the command line and the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import verifiers
from benchmarks import verifier as benchmark
from verifiers import BadGoldError, Verdict, isolation, reasoning_gym
from verifiers.combine import AllOf, WeightedSum
from verifiers.exact import ExactVerifier
from verifiers.format import FormatVerifier
from verifiers.math.words import number
from verifiers.numeric import NumericVerifier

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("answer", "completion", "score"),
    [
        ("3.14159", r"\boxed{3.1416}", 1.0),
        ("3.14159", r"\boxed{3.15}", 0.0),
        (r"\pi", r"\boxed{3.14159}", 1.0),
        (r"\frac{1}{3}", r"\boxed{0.33333}", 1.0),
        (r"1\text{ m}", r"\boxed{100\text{ cm}}", 1.0),
        (r"1\text{ m}", r"\boxed{1\text{ s}}", 0.0),
        (r"1\text{ m}", r"\boxed{1}", 1.0),
        (r"90^\circ", r"\boxed{90}", 1.0),
        ("1e6", r"\boxed{x = 1{,}000{,}001}", 1.0),
        ("5", r"\boxed{(5, 6)}", 0.0),
        ("5", r"\boxed{x}", 0.0),
        ("0", r"\boxed{0.00001}", 0.0),
    ],
)
def test_numeric(answer: str, completion: str, score: float) -> None:
    assert verifiers.get("numeric").verify(completion, answer).score == score


def test_numeric_tolerances_and_errors() -> None:
    assert NumericVerifier(relative=0, absolute=0.5).verify(r"\boxed{10.4}", "10").success
    assert not NumericVerifier(relative=0, absolute=0.3).verify(r"\boxed{10.4}", "10").success
    with pytest.raises(ValueError, match="relative=-1"):
        NumericVerifier(relative=-1)
    with pytest.raises(BadGoldError):
        verifiers.get("numeric").verify(r"\boxed{1}", "many")


def test_exact() -> None:
    exact = verifiers.get("exact")
    assert exact.verify(r"\boxed{ The  Cat }", "the cat").success
    assert not exact.verify(r"\boxed{2}", "2.0").success
    assert not ExactVerifier(ignore_case=False).verify(r"\boxed{cat}", "Cat").success
    with pytest.raises(BadGoldError):
        exact.verify("x", " ")


def test_regex_matches_the_whole_answer_under_a_deadline() -> None:
    regex = verifiers.get("regex")
    assert regex.verify(r"\boxed{aab}", "a+b").success
    assert not regex.verify(r"\boxed{xaab}", "a+b").success
    assert regex.verify(r"\boxed{" + "a" * 40 + "c}", "(a+)+b").reason == "timeout"
    with pytest.raises(BadGoldError, match="regular expression"):
        regex.verify("x", "(")


@pytest.mark.parametrize(
    ("answer", "completion", "score"),
    [
        ("yes", r"\boxed{\text{True}}", 1.0),
        ("yes", "The answer is yes.", 1.0),
        ("true", "Answer: No", 0.0),
        ("false", "Answer: incorrect", 1.0),
        ("no", r"\boxed{perhaps}", 0.0),
    ],
)
def test_boolean(answer: str, completion: str, score: float) -> None:
    assert verifiers.get("boolean").verify(completion, answer).score == score


def test_boolean_needs_a_truth_value() -> None:
    with pytest.raises(BadGoldError, match="neither yes nor no"):
        verifiers.check_answer("boolean", "maybe")


def test_format_does_not_look_at_the_reference() -> None:
    form = verifiers.get("format")
    assert form.verify(r"\boxed{wrong}", "right").success
    assert not form.verify("The answer is 4.", "4").success
    assert form.verify("I will not say anything about this at all", "4").reason == "no_answer"
    assert FormatVerifier(["marker"]).verify("The answer is 4.", "5").success
    with pytest.raises(ValueError, match="boxes"):
        FormatVerifier(["boxes"])  # type: ignore[list-item]


@pytest.fixture
def own_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers for reasoning-gym that start in the test, with its environment."""
    pool = isolation.Pool(size=1)
    monkeypatch.setattr(reasoning_gym, "shared_pool", lambda: pool)
    yield
    pool.close()


STAND_IN = """
def get_score_answer_fn(name):
    assert name == "sums"
    def score(answer, entry):
        assert entry["metadata"]["terms"] == (1, 1), "a list is no tuple"
        return 1.0 if int(answer) == int(entry["answer"]) else 0.01
    return score
"""
"""A package with reasoning-gym's entry point, found by the worker through PYTHONPATH."""


def test_reasoning_gym_delegates(own_pool: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reasoning_gym.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    metadata = {"source_dataset": "sums", "terms": (1, 1)}
    entry: dict[str, Any] = {"question": "1+1", "answer": "2", "metadata": metadata}
    verifier = verifiers.get("reasoning_gym")
    assert verifier.verify("<answer>2</answer>", "2", entry=entry) == Verdict(1.0, "2", "right")
    assert verifier.verify("<answer>3</answer>", "2", entry=entry) == Verdict(0.01, "3", "partial")
    # its scorer raises ValueError on this answer, but not on its own: the answer is to blame
    words = verifier.verify("<answer>two</answer>", "2", entry=entry)
    assert (words.score, words.reason) == (0.0, "wrong")
    verifiers.check_answer("reasoning_gym", "2", entry=entry)

    from_json = json.loads(json.dumps(entry))
    lost = verifier.verify("<answer>2</answer>", "2", entry=from_json)
    assert (lost.score, lost.reason) == (None, "error")
    assert "a list is no tuple" in lost.detail
    with pytest.raises(BadGoldError, match="a list is no tuple"):
        verifiers.check_answer("reasoning_gym", "2", entry=from_json)
    with pytest.raises(ValueError, match="source_dataset"):
        verifier.verify("<answer>2</answer>", "2", entry={"metadata": {}})


def test_entries_keep_their_types_on_the_way_to_a_worker() -> None:
    entry = {"answer": None, "metadata": {1: ("a", [2, (3.5,)]), "tuple": {}, (0, 1): True, "dict": [[1, 2]]}}
    assert reasoning_gym.unpacked(json.loads(json.dumps(reasoning_gym.packed(entry)))) == entry


REASONING_GYM_TASKS = """
    advanced_geometry arc_1d arc_agi base_conversion basic_arithmetic bf binary_matrix calendar_arithmetic chain_sum
    complex_arithmetic count_primes countdown cryptarithm dice family_relationships fraction_simplification futoshiki gcd
    group_anagrams jugs knights_knaves letter_jumble maze mini_sudoku number_sorting palindrome_generation
    polynomial_equations prime_factorization rearc shortest_path simple_integration sokoban spiral_matrix sudoku
    syllogism tower_of_hanoi word_ladder
"""


def test_reasoning_gym_itself(own_pool: None) -> None:
    library = pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    verifier = verifiers.get("reasoning_gym")
    for name in REASONING_GYM_TASKS.split():
        for entry in library.create_dataset(name, size=2, seed=3):
            answer = entry["answer"]
            verifiers.check_answer("reasoning_gym", answer, entry=entry)
            for completion in (f"<answer>{answer}</answer>", rf"It is \boxed{{{answer}}}"):
                assert verifier.verify(completion, answer, entry=entry).success, (name, answer)
            wrong = verifier.verify("<answer>none of these words</answer>", answer, entry=entry)
            assert wrong.score is not None and wrong.score < 1, name


def test_weighted_sum() -> None:
    both = WeightedSum({"math": 3.0, "format": 1.0})
    assert both.verify(r"\boxed{0.5}", r"\frac12").score == 1.0
    assert both.verify("The answer is 0.5.", r"\frac12").score == 0.75
    assert both.verify(r"\boxed{3}", r"\frac12").score == 0.25
    assert both.verify(r"\boxed{3}", r"\frac12").reason == "partial"
    assert both.verify(r"\boxed{3}", "").score is None
    with pytest.raises(BadGoldError):
        both.check_answer("")
    with pytest.raises(ValueError, match="weight > 0"):
        WeightedSum({"math": 0.0})


def test_all_of() -> None:
    both = AllOf(["math", FormatVerifier(["box"])])
    assert both.verify(r"\boxed{0.5}", r"\frac12").success
    assert both.verify("The answer is 0.5.", r"\frac12").score == 0.0
    assert both.verify("The answer is 0.5.", r"\frac12").reason == "wrong"
    with pytest.raises(ValueError, match="parts is empty"):
        AllOf([])


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("four", 4),
        ("Forty-Two", 42),
        ("one hundred and five", 105),
        ("three hundred", 300),
        ("forty ten", None),
        ("x", None),
    ],
)
def test_number_words(words: str, value: int | None) -> None:
    assert number(words) == value


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_command_line_explains() -> None:
    done = run("verifiers", "--gold", r"\frac12", "--pred", r"So it is \boxed{0.5}.")
    assert done.returncode == 0
    assert "'0.5', found by rule 'box'" in done.stdout
    assert "right, score 1.0" in done.stdout
    assert run("verifiers", "--gold", "2", "--pred", r"\boxed{3}").returncode == 1
    assert run("verifiers", "--gold", "", "--pred", r"\boxed{3}").returncode == 2


def test_benchmark_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "class": "one", "gold": "2", "pred": r"\boxed{2}", "expected": True},
        {"id": "b", "class": "one", "gold": "2", "pred": "3", "form": "answer", "expected": True},
        {"id": "c", "class": "two", "gold": "2", "pred": "2", "form": "answer", "expected": False},
        {"id": "d", "class": "two", "gold": "2", "pred": "2", "form": "answer", "expected": False, "disputed": True},
    ]
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert benchmark.main(["--cases", str(cases)]) == 0
    printed = capsys.readouterr().out
    assert "33.33 % of 3 undisputed cases" in printed
    assert "false positives   1" in printed
    assert "false negatives   1" in printed
    assert "  b one expected True" in printed
    assert "  d " not in printed


def test_benchmark_reports_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"gold": "1"}\n', encoding="utf-8")
    assert benchmark.main(["--cases", str(broken)]) == 2
    assert "line 1" in capsys.readouterr().err
    assert benchmark.main(["--cases", str(tmp_path / "missing.jsonl")]) == 2


def test_benchmark_runs_math_verify_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = types.ModuleType("math_verify")
    peer.parse = lambda text: [text]  # type: ignore[attr-defined]
    peer.verify = lambda gold, found: False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "math_verify", peer)
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"gold": "2", "pred": r"\boxed{2}", "expected": True}), encoding="utf-8")
    assert benchmark.main(["--cases", str(cases), "--against", "math-verify"]) == 0
    printed = capsys.readouterr().out
    assert "Math-Verify\n  accuracy          0.00 %" in printed
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert benchmark.main(["--cases", str(cases), "--against", "math-verify"]) == 2
