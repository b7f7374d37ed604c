"""The package as others use it: names, verdicts, batches, adapters, and what an import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import verifiers
from verifiers import BadGoldError, Verdict
from verifiers.trl import RewardFunctionVerifier, as_reward_function


def test_import_loads_no_heavy_library() -> None:
    code = "import verifiers, sys; print(sorted({'torch', 'transformers', 'sympy', 'mpmath'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_built_in_names_make_verifiers() -> None:
    for name in ("math", "choice"):
        assert name in verifiers.names()
        assert hasattr(verifiers.get(name), "verify")


class Fragile:
    """A verifier that fails in every way."""

    def verify(self, completion: str, answer: str, **metadata: object) -> Verdict:
        if answer == "bad":
            raise BadGoldError("no reference")
        if completion == "boom":
            raise RuntimeError("broken")
        return Verdict(1.0, completion, "right")


def test_batch_keeps_order_and_turns_failures_into_verdicts_without_a_score() -> None:
    found = verifiers.verify_batch(Fragile(), ["a", "boom", "c", "d"], ["x", "x", "bad", "x"])
    assert [verdict.reason for verdict in found] == ["right", "error", "bad_gold", "right"]
    assert [verdict.score for verdict in found] == [1.0, None, None, 1.0]
    assert found[1].detail == "RuntimeError: broken"


def test_batch_refuses_lists_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        verifiers.verify_batch("math", ["1"], ["1", "2"])


def test_check_answer() -> None:
    verifiers.check_answer("math", r"\frac12")
    with pytest.raises(BadGoldError):
        verifiers.check_answer("math", r"\boxed{}")
    with pytest.raises(BadGoldError):
        verifiers.check_answer("choice", "E", options=["red", "green"])
    verifiers.check_answer(Fragile(), "anything")


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("The answer is B.", 1.0),
        (r"\boxed{\text{(B)}}", 1.0),
        (r"\boxed{b}", 1.0),
        (r"\boxed{green}", 1.0),
        (r"\boxed{B. green}", 1.0),
        (r"\boxed{B. red}", 0.0),
        (r"\boxed{A}", 0.0),
        (r"\boxed{A or B}", 0.0),
        (r"\boxed{AB}", 0.0),
        ("I like B", 0.0),
    ],
)
def test_choice(completion: str, expected: float) -> None:
    verdict = verifiers.get("choice").verify(completion, "B", options=["red", "green", "blue"])
    assert verdict.score == expected


@pytest.mark.parametrize(
    ("completion", "options", "expected"),
    [
        ("The answer is (B) a tiger hunts a deer.", ["a map", "a tiger hunts a deer", "C"], 1.0),
        ("The answer is a tiger hunts a deer.", ["a map", "a tiger hunts a deer", "C"], 1.0),
        (r"\boxed{a map}", ["a map", "a tiger hunts a deer", "C"], 0.0),
        ("Answer: (B) more than 20 g because of the heat", ["20 g", "more than 20 g because of the heat"], 1.0),
        ("Answer: (B) 20 g", ["20 g", "more than 20 g because of the heat"], 0.0),
        (r"\boxed{Rr}", ["RR", "Rr", "rr"], 1.0),
        (r"\boxed{RR}", ["RR", "Rr", "rr"], 0.0),
        (r"\boxed{B}", ["B", "A"], 1.0),
        (r"\boxed{same}", ["other", "same", "same"], 1.0),
        ("The answer is B, C.", ["x", "y", "z"], 0.0),
        ("The answer is A B C.", ["x", "y", "z"], 0.0),
    ],
)
def test_choice_by_text(completion: str, options: list[str], expected: float) -> None:
    assert verifiers.get("choice").verify(completion, "B", options=options).score == expected


def test_reward_function_for_trl() -> None:
    reward = as_reward_function("math", answer_column="solution")
    chat = [[{"role": "assistant", "content": r"\boxed{2}"}], [{"role": "assistant", "content": r"\boxed{3}"}]]
    assert reward(prompts=["p", "p"], completions=chat, solution=["2", "2"], level=[1, 2]) == [1.0, 0.0]
    assert reward(prompts=["p"], completions=[r"\boxed{2}"], solution=[r"\boxed{}"]) == [None]
    with pytest.raises(ValueError, match="answer_column='solution'"):
        reward(prompts=["p"], completions=["2"], answer=["2"])


def test_verifier_from_a_trl_reward_function() -> None:
    def length(prompts: list[str], completions: list[str], answer: list[str], **columns: object) -> list[float | None]:
        return [None if not answer[0] else min(1.0, len(completions[0]) / int(answer[0]))]

    verifier = RewardFunctionVerifier(length)
    assert verifier.verify("abcd", "4") == Verdict(1.0, "abcd", "right")
    assert verifier.verify("ab", "4").reason == "partial"
    assert verifier.verify("ab", "").score is None
