"""Defects found in review, each with what it let through."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import verifiers
from verifiers import Verdict
from verifiers.combine import AllOf, WeightedSum
from verifiers.extraction import extract
from verifiers.isolation import Pool
from verifiers.trl import as_reward_function

# --- an interrupted call ---


class Interrupted(BaseException):
    """What the alarm's handler raises, as Ctrl-C would."""


def test_an_interrupted_call_leaves_no_answer_for_the_next_one() -> None:
    def interrupt(signum: int, frame: object) -> None:
        raise Interrupted

    pool = Pool(size=1)
    echo = "verifiers.lookup:did_you_mean"
    pool.warm_up(echo, ["a", []])
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted):
            # hundreds of close matches between strings of two letters: seconds
            pool.call(echo, ["ab" * 99, ["ba" * 95 + str(number) for number in range(1000)]], 60.0)
        assert pool.call(echo, ["mth", ["math"]], 60.0) == "; did you mean 'math'?"
        assert pool.call(echo, ["choise", ["choice"]], 60.0) == "; did you mean 'choice'?"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        pool.close()


# --- verifiers of the user's own ---


class Returns:
    """A verifier that returns what it is told to."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        return self.result  # type: ignore[no-any-return]


class ReturnsBatch(Returns):
    """The same for a batch; an exception is raised."""

    def verify_batch(
        self, completions: Sequence[str], answers: Sequence[str], metadata: Sequence[Mapping[str, Any]]
    ) -> list[Verdict]:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result  # type: ignore[no-any-return]


@pytest.mark.parametrize("result", [1.0, True, np.float32(1), np.bool_(True), None, "right", (1.0, "x")])
def test_what_is_no_verdict_is_an_error_that_names_the_verifier(result: Any) -> None:
    (verdict,) = verifiers.verify_batch(Returns(result), ["a"], ["a"])
    assert (verdict.score, verdict.reason) == (None, "error")
    assert "Returns" in verdict.detail
    assert repr(result) in verdict.detail
    assert "return a verifiers.Verdict" in verdict.detail
    joined = WeightedSum({Returns(result): 1.0}).verify("a", "a")
    assert (joined.score, joined.reason) == (None, "error")


def test_a_batch_with_one_result_that_is_no_verdict_keeps_the_others() -> None:
    good = Verdict(1.0, "a", "right")
    found = verifiers.verify_batch(ReturnsBatch([good, 0.5]), ["a", "b"], ["a", "b"])
    assert found[0] == good
    assert (found[1].score, found[1].reason) == (None, "error")
    assert "0.5" in found[1].detail


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([], "0 results for 2"),
        ([Verdict(1.0, "a", "right")] * 3, "3 results for 2"),
        (RuntimeError("out of luck"), "out of luck"),
        (None, "NoneType"),
    ],
)
def test_a_batch_that_fails_as_a_whole_is_counted_and_shown(result: Any, words: str) -> None:
    counted: list[int] = []
    found = verifiers.verify_batch(ReturnsBatch(result), ["a", "b"], ["a", "b"], progress=counted.append)
    assert [(verdict.score, verdict.reason) for verdict in found] == [(None, "error")] * 2
    assert all("ReturnsBatch" in verdict.detail and words in verdict.detail for verdict in found)
    assert counted == [2]


@pytest.mark.parametrize("score", [True, np.float32(1.0), np.int64(1), 1])
def test_a_score_is_kept_as_a_float(score: Any) -> None:
    verdict = Verdict(score, "a", "right")
    assert type(verdict.score) is float
    assert verdict.score == 1.0


@pytest.mark.parametrize("score", ["1", [1.0], 1j, float("nan"), 10**400])
def test_a_score_that_is_none_is_refused(score: Any) -> None:
    with pytest.raises(ValueError, match="score="):
        Verdict(score)


def test_an_extracted_answer_is_text() -> None:
    with pytest.raises(ValueError, match="extracted=42"):
        Verdict(1.0, 42, "right")  # type: ignore[arg-type]


def test_a_class_is_no_verifier() -> None:
    class Mine:
        def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
            return Verdict(1.0, completion, "right")

    refused: Any = Mine
    verifiers.register("makes_a_class", lambda: refused, replace=True)
    for attempt in (
        lambda: verifiers.verify_batch(refused, ["a"], ["a"]),
        lambda: verifiers.check_answer(refused, "a"),
        lambda: verifiers.make("makes_a_class"),
        lambda: AllOf([refused]),
        lambda: WeightedSum({refused: 1.0}),
        lambda: as_reward_function(refused),
    ):
        with pytest.raises(ValueError, match=r"give an instance, Mine\(\)"):
            attempt()
    with pytest.raises(ValueError, match="verify"):
        verifiers.check_answer(object(), "a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is no name"):
        verifiers.get(refused)
    assert verifiers.verify_batch(Mine(), ["a"], ["a"])[0].success


# --- false equations ---


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        *(("5", answer, "wrong") for answer in ("6=5", "0=5", "1=2=5", "7+1=5", "5=6=5", r"\pi=5")),
        *(
            ("5", answer, "right")
            for answer in ("2+3=5", "x=5", "5=x", "f(2)=5", "x=2+3=5", "x=2+4=5", "10/2=5", "5=5")
        ),
        ("2,3", "1=2,7=3", "wrong"),
        ("2,3", "x=2,7=3", "wrong"),
        ("2,3", "1+1=2,x=3", "right"),
        ("2,3", "a=2,b=3", "right"),
        (r"\frac12", r"e=\frac12", "right"),  # an eccentricity
        ("5 cm", r"6=5\text{ cm}", "wrong"),
    ],
)
def test_a_number_is_no_name(reference: str, answer: str, expected: str) -> None:
    assert verifiers.get("math").verify(rf"\boxed{{{answer}}}", reference).reason == expected


# --- options that differ in case or punctuation ---


@pytest.mark.parametrize(
    ("options", "answer", "chosen"),
    [
        (("BB", "bb"), r"\text{Bb}", None),
        (("BB", "bb"), r"\text{bb}", "B"),
        (("n", "n!"), "$n!$", "B"),
        (("n", "n!"), "$n$", "A"),
        (("n", "n^2"), "$n!$", None),
        (("CO", "Co"), r"\text{Co}", "B"),
        (("CO", "Co"), r"\text{CO}", "A"),
        (("5", ".5"), r"\text{.5}", "B"),
        (("5", "6"), r"\text{.5}", None),
        (("f", "f'"), "$f'$", "B"),
        (("f", "g"), "$f'$", None),
        (("red", "blue"), "'Red'", "A"),
        (("red", "blue"), '\\text{"Blue."}', "B"),
        (("Red.", "Blue!"), r"\textbf{red}", "A"),
        (("red", "blue"), r"\text{Blue!}", "B"),
        (("red", "red"), r"\text{Red}", "AB"),
        (("do", "don't"), "A. don't", None),
        (("do", "don't"), "B. don't", "B"),
        (("BB", "bb"), "A. bb", None),
        (("dog", "cat"), "A as well as B", None),
        (("dog", "cat"), "A、B", None),
        (("dog", "cat"), "A → B", None),
        (("dog", "cat"), "B as well", "B"),
    ],
)
def test_options_that_differ_only_in_case_or_marks(options: tuple[str, str], answer: str, chosen: str | None) -> None:
    verifier = verifiers.get("choice")
    accepted = {
        letter for letter in "AB" if verifier.verify(rf"\boxed{{{answer}}}", letter, options=list(options)).success
    }
    assert accepted == set(chosen or "")


# --- time ---


@pytest.mark.usefixtures("settled_heap")
@pytest.mark.parametrize("repeats", [3_000, 30_000, 100_000])
@pytest.mark.parametrize("word", ["is ", "the ", ": ", "answer is ", "5 ", "word, "])
def test_extraction_is_linear(word: str, repeats: int) -> None:
    start = time.process_time()
    found = extract("answer is " + word * repeats + "5")
    assert time.process_time() - start < 1.0
    assert found is None or len(found.text) <= 5_000


def test_the_last_copula_in_front_of_a_value_counts() -> None:
    found = extract("The answer is that the length of it is 5 as it should be")
    assert found is not None
    assert found.text == "5"


# --- restating the question ---

QUESTION = "Something that is asked with the numbers 2, 3 and 10 in it."


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("Compute 37 + 48", "85", "48+37"),
        ("Multiply 7 by 13", "91", "7*13"),
        ("Divide the difference of 20 and 5 by 3", "5", "(20-5)/3"),
        (r"Find $9\%$ of 1400", "126", r"9\%\cdot1400"),
        ("Evaluate $x^2+3x+4$ at 5", "44", "5^2+3*5+4"),
        ("the greatest common divisor of 12 and 18", "6", r"\gcd(12,18)"),
        ("choose 7 of 10", "120", r"\binom{10}{7}"),
        (QUESTION, "120", "5!"),
        (QUESTION, "4", r"\sqrt{16}"),
        (QUESTION, "3", r"\log_2 8"),
        (QUESTION, r"\frac12", r"\sin 30^\circ"),
        (QUESTION, "3", r"\lfloor 3.5 \rfloor"),
        (QUESTION, "5", "|-5|"),
        (QUESTION, "5", "-(-5)"),
        (QUESTION, "5", "x=2+3"),
        (QUESTION, r"\frac{5}{42}", "5/6/7"),
        (QUESTION, "1000", "10^3"),
        (QUESTION, "5", r"2+3\text{ apples}"),
        (QUESTION, r"45^\circ", r"30^\circ+15^\circ"),
        (QUESTION, "8.2", "20.5/2.5"),
        (r"Simplify $\frac{6}{8}$", r"\frac34", "6/8"),
        ("Simplify 6/8", r"\frac34", r"\frac{6}{8}"),
        (r"Simplify $\dfrac{6}{8}$", r"\frac34", r"\tfrac68"),
    ],
)
def test_a_computation_is_no_answer_to_a_question(question: str, reference: str, answer: str) -> None:
    verifier = verifiers.get("math")
    completion = rf"\boxed{{{answer}}}"
    assert verifier.verify(completion, reference).reason == "right"
    assert verifier.verify(completion, reference, question=question).reason == "wrong"
    (verdict,) = verifiers.verify_batch("math", [completion], [reference], [{"question": question}])
    assert verdict.reason == "wrong"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("85", "85"),
        ("85", "48+37=85"),
        ("85", "x=85"),
        ("-5", "-5.0"),
        (r"\frac34", r"\frac{6}{8}=\frac{3}{4}"),
        ("0.75", r"\frac{3}{4}"),
        ("0.75", "-\\frac{-3}{4}"),
        ("3.5", r"3\frac12"),
        ("50", r"50\%"),
        ("120000", r"1.2\times10^5"),
        ("3000000", r"3\text{ million}"),
        ("1000", "1{,}000"),
        ("256", "2^8"),
        ("5", r"5\text{ cm}"),
        ("5", r"\$5.00"),
        ("52", "52_8"),
        (r"45^\circ", r"\frac{\pi}{4}"),
        (r"\sqrt{2}+1", r"1+\sqrt{2}"),  # no plain number
        ("6x", "2x+4x"),
    ],
)
def test_ways_to_write_a_number(reference: str, answer: str) -> None:
    verdict = verifiers.get("math").verify(rf"\boxed{{{answer}}}", reference, question=QUESTION)
    assert verdict.reason == "right", verdict


# --- quotations ---


@pytest.mark.parametrize("completion", [
    'A 12" pipe is cut in 3, so each piece is \\boxed{4}" long.',
    r'F\"ur alle gilt \boxed{4} f\"ur n.',
    r'The answer is \boxed{4}, which he called "small".',
])  # fmt: skip
def test_inches_and_dots_on_letters_are_no_quotation(completion: str) -> None:
    assert verifiers.get("math").verify(completion, "4").score == 1.0


@pytest.mark.parametrize(("said", "reference", "score"), [
    ("yes, incorrect", "yes", 0.0),
    ("no, correct", "no", 0.0),
    ("yes, yes and no, not sure", "yes", 0.0),
    ("no, it is not true", "no", 1.0),
    ("yes, it isn't false", "yes", 1.0),
    ("no, the right side is smaller", "no", 1.0),
])  # fmt: skip
def test_a_word_and_its_opposite_are_no_answer(said: str, reference: str, score: float) -> None:
    assert verifiers.get("boolean").verify(rf"\boxed{{{said}}}", reference).score == score


# --- the word "boxed" within a box ---


@pytest.mark.parametrize("answer", ["3 boxed", "x boxed y", "the boxed set", "fboxes of x"])
def test_the_word_boxed_does_not_close_the_box_around_it(answer: str) -> None:
    r"""Found by fuzzing: the word was taken for a box that begins there, and `\boxed{x boxed y}` for an open one."""
    verdict = verifiers.get("math").verify(rf"So it is $\boxed{{{answer}}}$.", answer)
    assert (verdict.score, verdict.extracted) == (1.0, answer)
