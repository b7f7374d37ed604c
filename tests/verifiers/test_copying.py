"""Repeating the question is no answer: what is right by value, but only copied, earns nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import verifiers
from verifiers import BadGoldError

CASES = [
    # reference, answer, question, expected
    (r"\frac{3}{4}", r"\frac{6}{8}", r"Simplify $\frac{6}{8}$.", "wrong"),
    (r"\frac{3}{4}", r"\frac{3}{4}", r"Simplify $\frac{6}{8}$.", "right"),
    (r"\frac{3}{4}", r"\frac{6}{8}", r"What share of eight pieces are six?", "right"),
    (r"x^2+2x+1", r"(x+1)^2", r"Expand $(x + 1)^2$.", "wrong"),
    (r"x^2+2x+1", r"x^{2} + 2x + 1", r"Expand $(x + 1)^2$.", "right"),
    (r"13", r"4+9", r"Compute $4 + 9$.", "wrong"),
    (r"13", r"13", r"Compute $4 + 9$.", "right"),
    (r"2\sqrt{3}", r"\sqrt{12}", r"Simplify $\sqrt{12}$.", "wrong"),
    (r"2\sqrt{3}", r"\sqrt{12}", r"Simplify $\frac{\sqrt{48}}{2}$.", "right"),
    # What the question offers may be chosen from it.
    (r"\frac{1}{2}", r"\dfrac12", r"Which is larger, $\dfrac12$ or $\frac13$?", "right"),
    (r"\frac12", r"1/2", r"Is it 1/2 or 1/3?", "right"),
    (r"5", r"5", r"Is 5 prime, or 6?", "right"),
    (r"3", r"x=3", r"Solve $x=3$.", "right"),
    # Digits of a longer number are no copy.
    (r"\frac34", r"6/8", r"Reduce $16/81$, then something else.", "right"),
]


@pytest.mark.parametrize(("reference", "answer", "question", "expected"), CASES)
def test_copies(reference: str, answer: str, question: str, expected: str) -> None:
    verifier = verifiers.get("math")
    completion = rf"So it is \boxed{{{answer}}}."
    assert verifier.verify(completion, reference, question=question).reason == expected
    (verdict,) = verifiers.verify_batch("math", [completion], [reference], [{"question": question}])
    assert verdict.reason == expected


def test_without_the_question_values_decide() -> None:
    assert verifiers.get("math").verify(r"\boxed{\sqrt{12}}", r"2\sqrt{3}").reason == "right"


def test_no_reference_of_math_is_refused_for_standing_in_its_question(shared: Path) -> None:
    verifier = verifiers.get("math")
    for name in ("math_train", "math_test"):
        for line in (shared / "data" / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            answer = row.get("answer_full") or row["answer"]
            if answer.strip():
                verdict = verifier.verify(rf"\boxed{{{answer}}}", answer, question=row["problem"])
                assert verdict.reason == "right", row["id"]


@pytest.mark.parametrize("answer", ["", "  ", "$$", r"\frac{1}{", "}2{{"])
def test_references_that_cannot_be_given(answer: str) -> None:
    with pytest.raises(BadGoldError):
        verifiers.check_answer("math", answer)


@pytest.mark.parametrize("answer", [r"\left\{1, 2\right\}", r"[0, 1)", r"\text{Monday}", "east"])
def test_references_that_can(answer: str) -> None:
    verifiers.check_answer("math", answer)
