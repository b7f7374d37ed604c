"""The mathematical verifier on hand-written cases of every kind, its extraction order, its policies and its limits."""

from __future__ import annotations

import asyncio
import builtins
import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import verifiers
from verifiers import BadGoldError
from verifiers.extraction import extract, extract_reference
from verifiers.math import symbolic
from verifiers.math.policy import Policy
from verifiers.math.reading import read
from verifiers.math.tree import from_json, to_json
from verifiers.math.verifier import MathVerifier

CASES = [
    tuple(line.split(" || "))
    for line in (Path(__file__).parent / "equality_cases.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.fixture(scope="module")
def verifier() -> MathVerifier:
    made = MathVerifier()
    made.warm_up()
    return made


@pytest.mark.parametrize(("gold", "answer", "expected"), CASES)
def test_equality(verifier: MathVerifier, gold: str, answer: str, expected: str) -> None:
    verdict = verifier.verify(rf"So it is $\boxed{{{answer}}}$.", gold)
    assert verdict.success == (expected == "T"), verdict


@pytest.mark.parametrize(
    ("completion", "answer", "source"),
    [
        (r"so \boxed{42}.", "42", "box"),
        (r"\boxed{\frac{1}{2}} and then \boxed{2}", "2", "box"),
        (r"\boxed {  x^2 }", "  x^2 ", "box"),
        (r"\fbox{7}", "7", "box"),
        (r"\boxed 7", "7", "box"),
        (r"\boxed{1} and \boxed{2", "1", "box"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}", "box"),
        (r"\boxed{\boxed{42}}", "42", "box"),
        (r"\boxed{42<|im_end|>}", "42", "box"),
        (r"\boxed{1}<|im_end|>\boxed{2}", "1", "box"),
        (r"<think>\boxed{1}</think>The answer is 2.", "2", "marker"),
        (r"<answer>4</answer> or \boxed{5}", "4", "tag"),
        (r"<answer>\boxed{4}</answer>", "4", "tag"),
        ("16 - 3 = 13\n#### 13", "13", "hash"),
        ("#### 10\nMore.\n#### 20", "20", "hash"),
        (r"\boxed{3} #### 4", "3", "box"),
        ("The answer is 41. Wait, the answer is 42.", "42", "marker"),
        ("The final answer is: $x = 5$.", "$x = 5$", "marker"),
        ("**Final Answer: 3**", "3", "marker"),
        ("**Answer:** 5 cm", "5 cm", "marker"),
        ("Answer: B because C is not valid", "B", "marker"),
        ("The answer is 72, in total, so the farmer earns that.", "72", "marker"),
        ("Final Answer: The largest $n$ is 34.", "34", "marker"),
        ("答案是42。", "42", "marker"),
        ("La réponse est 42.", "42", None),
        ("Die Antwort lautet 42.", "42", "marker"),
        ("42", "42", "bare"),
        (r"$\frac{1}{2}$", r"$\frac{1}{2}$", "bare"),
        ("sqrt(3)-1", "sqrt(3)-1", "bare"),
    ],
)
def test_extraction(completion: str, answer: str, source: str | None) -> None:
    found = extract(completion)
    if source is None:
        found = extract(completion, fallback=True)
        source = found.source if found else None
    assert found is not None
    assert (found.text, found.source) == (answer, source)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "I think it could be 42 or something like it in the end",
        "<think>it must be \\boxed{42}",
        r"\boxed{}",
        r"The result is \boxed{42",
        "Since 3 + 4 = 7 we are done.",
    ],
)
def test_no_answer(completion: str) -> None:
    assert extract(completion) is None or not extract(completion).text.strip()  # type: ignore[union-attr]


def test_fallback_takes_the_last_number_and_only_when_asked() -> None:
    text = "Since 3 + 4 = 7 we are done."
    assert extract(text) is None
    found = extract(text, fallback=True)
    assert found is not None
    assert (found.text, found.source) == ("7", "fallback")


@pytest.mark.parametrize(
    ("gold", "reference"),
    [
        (r"\boxed{1} papers and \boxed{2} bins", "1, 2"),
        (r"First \boxed{5}. That was only the beginning of a long story. Then \boxed{6}", "6"),
        (r"\boxed{004} and again \boxed{004}", "004"),
        (r"$\boxed{x+2}$ or $\boxed{2+x}$", r"x+2 \text{ or } 2+x"),
        (r"$\boxed{\frac{25}{13}} = \boxed{1\frac{12}{13}}$", r"1\frac{12}{13}"),
        (r"we get $\boxed{1}.$ Also $\boxed{2}$", "2"),
        ("Some steps\n#### 72", "72"),
        (r"\frac12", r"\frac12"),
    ],
)
def test_reference_extraction(gold: str, reference: str) -> None:
    assert extract_reference(gold) == reference


def test_a_right_number_beside_a_wrong_answer_is_wrong(verifier: MathVerifier) -> None:
    for completion in (
        r"We find 42. <answer>41</answer>",
        r"\boxed{42} was my guess, but it is \boxed{43}.",
        r"\boxed{42} or \boxed{43} or \boxed{44}",
        r"The answer is 43. (42 is wrong.)",
        r"\boxed{41, 42, 43}",
        r"\boxed{42 \text{ or } 43}",
        r"\boxed{[41, 43]}",
        r"\boxed{41 \pm 1}",
    ):
        assert not verifier.verify(completion, "42").success, completion


def test_verdict_carries_reason_and_answer(verifier: MathVerifier) -> None:
    verdict = verifier.verify(r"\boxed{43}", "42")
    assert (verdict.score, verdict.extracted, verdict.reason) == (0.0, "43", "wrong")
    assert verifier.verify("no idea at all, sorry about that one", "42").reason == "no_answer"
    assert verifier.verify(r"\boxed{10^{10}!}", "42").reason == "refused"
    for empty in ("", "  ", r"\boxed{}", "$$"):
        with pytest.raises(BadGoldError):
            verifier.verify(r"\boxed{1}", empty)


@pytest.mark.parametrize(
    ("policy", "gold", "answer", "expected"),
    [
        (Policy(percent_optional=False), r"50\%", "50", False),
        (Policy(percent_optional=False), r"50\%", "0.5", True),
        (Policy(units_optional=False), r"5\text{ cm}", "5", False),
        (Policy(degrees_optional=False), r"45^\circ", "45", False),
        (Policy(degrees_optional=False), r"45^\circ", r"\frac{\pi}{4}", True),
        (Policy(base_optional=False), "52_8", "52", False),
        (Policy(ordered_lists=True), "1, 2", "2, 1", False),
        (Policy(any_variable=False), "x=5", "y=5", False),
        (Policy(any_variable=False), "x=5", "5", True),
        (Policy(decimal_comma=False), "2.74", "2,74", False),
        (Policy(), "2.74", "2,74", True),
        (Policy(float_digits=5), r"\pi", "3.14159", True),
        (Policy(number_words=True), "4", r"\text{four}", True),
        (Policy(number_words=True), "23", "twenty-three", True),
        (Policy(), "4", r"\text{four}", False),
    ],
)
def test_policies(policy: Policy, gold: str, answer: str, expected: bool) -> None:
    assert MathVerifier(policy).verify(rf"\boxed{{{answer}}}", gold).success == expected


def test_trees_survive_the_way_to_a_worker() -> None:
    for gold, answer, _ in CASES:
        for text in (gold, answer):
            tree = read(text).tree
            if tree is not None:
                assert from_json(json.loads(json.dumps(to_json(tree)))) == tree


def test_model_text_is_never_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    import sympy.parsing.sympy_parser

    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("text was evaluated")

    monkeypatch.setattr(sympy.parsing.sympy_parser, "parse_expr", refuse)
    monkeypatch.setattr(builtins, "eval", refuse)
    monkeypatch.setattr(builtins, "exec", refuse)
    in_process = MathVerifier()
    checked = 0
    for gold, answer, expected in CASES:
        oracle = lambda a, b: symbolic.equal(to_json(a), to_json(b)) is True  # noqa: E731
        reason, _ = in_process.decide(gold, answer, oracle)
        assert (reason == "right") == (expected == "T"), (gold, answer)
        checked += 1
    assert checked > 500
    for hostile in (
        "__import__('os').getpid()*0",
        "().__class__.__base__.__subclasses__()",
        "open('x','w').write('y')",
    ):
        assert in_process.decide("0", hostile)[0] != "right"


BOMBS = {
    "power tower": r"\boxed{9^{9^{9^{9^9}}}}",
    "small power tower": r"\boxed{\left(\frac12\right)^{10^{10}}}",
    "symbolic power tower": r"\boxed{x^{10^{10^{10}}}}",
    "factorial": r"\boxed{10^{10}!}",
    "factorials": r"\boxed{3!!!!!!}",
    "shifted factorial": r"\boxed{(n+10^7)!}",
    "nested braces": r"\boxed{" + "{" * 10_000 + "1" + "}" * 10_000 + "}",
    "open boxes": r"\boxed{" * 10_000,
    "nested fractions": r"\boxed{" + r"\frac{1}{1+" * 3000 + "1" + "}" * 3000 + "}",
    "two megabytes of prose": "the quick brown 1 fox " * 100_000,
    "two megabytes of dollars": "$ a " * 500_000,
    "two megabytes of markers": "the answer is " * 150_000,
    "two megabytes of digits": "1" * 2_000_000,
    "nested sums": r"\boxed{\sum_{k=1}^{999}\sum_{j=1}^{999} jk}",
    "long product": r"\boxed{\prod_{k=1}^{900}(x+k)}",
    "long product of sums": r"\boxed{" + "(a+b+c+d)" * 40 + "}",
    "many signs": r"\boxed{" + r"1\pm" * 40 + "1}",
    "many bars": r"\boxed{" + "|x" * 40 + "}",
    "exponentials": r"\boxed{e^{e^{e^{e^{e^{10}}}}}}",
    "huge angle": r"\boxed{\sin(\sin(\sin(\sin(10^{400}x))))^{99}}",
    "huge numeral": r"\boxed{" + "9" * 5000 + "}",
    "scientific": r"\boxed{1e999999999}",
    "large set": r"\boxed{\{" + ",".join(map(str, range(300))) + r"\}}",
    "matrix power": r"\boxed{\begin{pmatrix}1&1\\1&0\end{pmatrix}^{10^{9}}}",
    "floor": r"\boxed{\lfloor 10^{5000}\sqrt{2} \rfloor}",
}


@pytest.mark.usefixtures("settled_heap")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_wrong_and_quick(verifier: MathVerifier, name: str) -> None:
    for gold in ("42", "x^2+1", "1,2,3", r"\sqrt{2}+1"):
        start = time.process_time()
        verdict = verifier.verify(BOMBS[name], gold)
        assert time.process_time() - start < 0.5
        assert not verdict.success
        assert verdict.score == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "2" + "^2" * 1400,
        "2" + "!" * 2000,
        "-" * 3000 + "1",
        r"\sin " * 500 + "x",
        "1" + "/2" * 1000,
        "x=" * 900 + "1",
        r"1\cup" * 400 + "1",
        "a_{" * 300 + "1" + "}" * 300,
        "2" + r"^\circ" * 500,
    ],
    ids=["powers", "factorials", "signs", "functions", "quotients", "chain", "unions", "subscripts", "degrees"],
)
def test_long_chains_are_refused_without_recursion(answer: str) -> None:
    for gold in ("42", "x^2+1"):
        assert MathVerifier().decide(gold, answer)[0] in ("wrong", "refused")


def test_brackets_may_be_nested_reasonably_deep() -> None:
    assert MathVerifier().decide("42", "(" * 40 + "42" + ")" * 40)[0] == "right"


def test_batch_agrees_with_one_by_one_and_keeps_order(verifier: MathVerifier) -> None:
    rows = [(rf"\boxed{{{answer}}}", gold) for gold, answer, _ in CASES] + [(bomb, "42") for bomb in BOMBS.values()]
    rows += [(r"\boxed{1}", "")]
    random.Random(0).shuffle(rows)
    completions, answers = zip(*rows, strict=True)
    counted: list[int] = []
    batch = verifiers.verify_batch(MathVerifier(), completions, answers, progress=counted.append)
    assert sum(counted) == len(rows)
    for (completion, gold), verdict in zip(rows, batch, strict=True):
        if gold:
            assert verdict.success == verifier.verify(completion, gold).success
        else:
            assert verdict.reason == "bad_gold"


def test_threads_and_asyncio_give_the_same_verdicts() -> None:
    verifier = MathVerifier()
    cases = CASES[::3]

    def judge(case: tuple[str, ...]) -> bool:
        return verifier.verify(rf"\boxed{{{case[1]}}}", case[0]).success == (case[2] == "T")

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(judge, cases))

    async def many() -> list[bool]:
        return [judge(case) for case in cases[::10]]

    assert all(asyncio.run(many()))


# --- on the shared cases ---


def test_shared_cases(shared: Path) -> None:
    from benchmarks.verifier import alternate, load, ours

    cases = load(shared / "cases" / "verifier.jsonl")
    judge = ours()
    outcomes = [alternate([judge], case)[0] for case in cases if not case.disputed]
    wrong = [outcome for outcome in outcomes if not outcome.agrees]
    assert len(wrong) <= 0.015 * len(outcomes)
    assert sum(outcome.right is True for outcome in wrong) <= 3
    assert all(outcome.right is not None for outcome in outcomes)


def test_bombs_are_no_answers(verifier: MathVerifier) -> None:
    from benchmarks.verifier import bombs

    reasons = [verifier.verify(bomb, "1").reason for bomb in bombs()]
    assert reasons[:3] == ["refused"] * 3, "two power towers and a factorial"
    assert set(reasons) <= {"refused", "no_answer", "wrong"}


def _math_golds(shared: Path) -> list[tuple[str, str]]:
    rows = [
        json.loads(line)
        for name in ("math_train.jsonl", "math_test.jsonl")
        for line in (shared / "data" / name).read_text(encoding="utf-8").splitlines()
    ]
    return [(row["type"], row["answer"]) for row in rows if row["answer"]]


def test_every_gold_of_math_equals_itself(shared: Path, verifier: MathVerifier) -> None:
    golds = {answer for _, answer in _math_golds(shared)}
    assert [gold for gold in golds if not verifier.verify(rf"Thus $\boxed{{{gold}}}$.", gold).success] == []


def _simple_number(text: str) -> Fraction | None:
    """An independent reading of the plainest golds: integers, decimals and simple fractions."""
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return Fraction(text)
    match = re.fullmatch(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}", text)
    return Fraction(int(match[2]), int(match[3])) * (-1 if match[1] else 1) if match else None


def test_unequal_golds_of_a_type_are_never_right(shared: Path, verifier: MathVerifier) -> None:
    by_type: dict[str, list[str]] = {}
    for kind, answer in _math_golds(shared):
        by_type.setdefault(kind, []).append(answer)
    generator = random.Random(7)
    kinds = sorted(by_type)
    compared = 0
    for _ in range(20_000):
        gold, other = generator.sample(by_type[generator.choice(kinds)], 2)
        expected = _simple_number(gold), _simple_number(other)
        if None in expected:
            continue
        compared += 1
        assert (verifier.decide(gold, other)[0] == "right") == (expected[0] == expected[1]), (gold, other)
    assert compared > 5000
