"""The elementary arithmetic source: right answers, right steps, reproducible items, disjoint splits, clear errors."""

from __future__ import annotations

import math
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest

from mrl_env.problems import arithmetic, load_problems
from mrl_env.problems.arithmetic import LEVELS, SUBJECTS, Arithmetic, make_exercise, split_of

NUMBER = r"(-?\d+)"


def expected_answer(question: str) -> Fraction:
    """The answer worked out from the text alone, by other means than the source's."""
    if match := re.fullmatch(rf"Multiply {NUMBER} by {NUMBER}\.", question):
        return Fraction(int(match[1]) * int(match[2]))
    if match := re.fullmatch(rf"Solve {NUMBER}x \+ {NUMBER} = (?:{NUMBER}x \+ )?{NUMBER}\.", question):
        left, b, right, d = (int(group or 0) for group in match.groups())
        return Fraction(d - b, left - right)
    if match := re.fullmatch(rf"Find {NUMBER} mod {NUMBER}\.", question):
        return Fraction(math.fmod(int(match[1]), int(match[2])))
    if match := re.fullmatch(rf"Find the gcd of {NUMBER} and {NUMBER}\.", question):
        return Fraction(max(d for d in range(1, 999) if int(match[1]) % d == 0 == int(match[2]) % d))
    if match := re.fullmatch(rf"Find {NUMBER}% of {NUMBER}\.", question):
        return Fraction(int(match[1]) * int(match[2]), 100)
    if match := re.fullmatch(rf"Evaluate (x\^2 \+ )?{NUMBER}x \+ {NUMBER} at x = {NUMBER}\.", question):
        x = int(match[4])
        return Fraction(x * int(match[2]) + int(match[3]) + (x * x if match[1] else 0))
    match = re.fullmatch(r"Compute ([\d +-]+)\.", question)
    assert match, f"question of unknown form: {question}"
    return Fraction(sum(int(term) for term in re.findall(r"[+-]?\d+", match[1].replace(" ", ""))))


def test_every_answer_is_right_and_boxed_last() -> None:
    subjects, levels = Counter[str](), Counter[int]()
    for problem in Arithmetic("train", seed=1, size=4000):
        assert Fraction(problem.answer) == expected_answer(problem.question), problem
        assert problem.metadata["solution"].endswith(f" \\boxed{{{problem.answer}}}"), problem
        assert (problem.verifier, [m["role"] for m in problem.messages]) == ("math", ["user"])
        subjects[problem.metadata["subject"]] += 1
        levels[problem.metadata["level"]] += 1
    assert set(subjects) == {"addsub", "mult", "linear", "modgcd", "percent", "poly"}
    assert min(subjects.values()) > 4000 / 6 * 0.8
    assert set(levels) == {1, 2, 3}
    assert min(levels.values()) > 4000 / 3 * 0.8


def test_every_step_of_the_solutions_holds() -> None:
    operations = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    steps = 0
    for problem in Arithmetic("train", seed=2, size=3000):
        for a, operator, b, result in re.findall(r"(\d+) ([+*-]) (\d+) = (\d+)", problem.metadata["solution"]):
            assert operations[operator](int(a), int(b)) == int(result), problem
            steps += 1
    assert steps > 3000


def test_hand_checked_items_stay_what_they_are() -> None:
    """Pins the drawing: a change here changes every published result on this source."""
    first = [Arithmetic("train", seed=0, subjects=[subject])[0] for subject in SUBJECTS]
    assert [(problem.question, problem.answer) for problem in first] == [
        ("Compute 23 + 10 - 15.", "18"),
        ("Multiply 6 by 24.", "144"),
        ("Solve 8x + 12 = 2x + 48.", "6"),
        ("Find 33 mod 6.", "3"),
        ("Find 9% of 1400.", "126"),
        ("Evaluate x^2 + 3x + 4 at x = 3.", "22"),
    ]


def test_an_item_depends_on_split_seed_and_index_only() -> None:
    long, short = Arithmetic("test", seed=3, size=50), Arithmetic("test", seed=3, size=7)
    assert [long[i] for i in range(7)] == list(short)
    assert list(pickle.loads(pickle.dumps(short))) == list(short)
    assert short[-1] == short[6]
    assert [p.question for p in Arithmetic("test", seed=4, size=7)] != [p.question for p in short]


def test_items_are_the_same_in_another_process() -> None:
    code = (
        "import sys; from mrl_env.problems.arithmetic import Arithmetic;"
        "print('|'.join(p.question for p in Arithmetic('train', 5, 20)));"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert output == ["|".join(p.question for p in Arithmetic("train", 5, 20)), "set()"]


def test_train_and_test_share_no_question() -> None:
    train = {p.question for seed in (0, 1) for p in Arithmetic("train", seed, size=5000)}
    test = {p.question for seed in (0, 1, 2) for p in Arithmetic("test", seed, size=1000)}
    assert len(train) > 3000
    assert len(test) > 300
    assert not train & test


def test_a_tenth_of_all_questions_is_held_out() -> None:
    rng = random.Random(0)
    drawn = {make_exercise(rng.choice(SUBJECTS), rng.choice(LEVELS), rng).question for _ in range(20_000)}
    held_out = sum(split_of(question) == "test" for question in drawn)
    assert 0.08 < held_out / len(drawn) < 0.12


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("level", LEVELS)
def test_both_splits_have_every_subject_and_level(subject: str, level: int) -> None:
    for split in ("train", "test"):
        problems = list(Arithmetic(split, size=30, subjects=[subject], levels=[level]))
        assert {(p.metadata["subject"], p.metadata["level"]) for p in problems} == {(subject, level)}
        assert len({p.question for p in problems}) >= 3


def test_ids_are_unique_and_reading_past_the_end_stops() -> None:
    source = load_problems("arithmetic", split="test", seed=9, size=25)
    assert len({problem.id for problem in source}) == len(source) == 25
    with pytest.raises(IndexError):
        source[25]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, r"split='tset'.*did you mean 'test'"),
        ({"size": 0}, r"size=0 .*at least 1"),
        ({"subjects": ["polly"]}, r"subjects=\['polly'\].*did you mean 'poly'"),
        ({"subjects": "poly"}, r"subjects='poly' is not a list"),
        ({"subjects": []}, r"subjects=\[\].*addsub"),
        ({"levels": (0, 1)}, r"levels=\(0, 1\).*1, 2, 3"),
        ({"levels": ()}, r"levels=\(\).*1, 2, 3"),
    ],
)
def test_bad_arguments_name_field_value_and_remedy(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arithmetic(**arguments)  # type: ignore[arg-type]


def test_a_split_that_never_comes_up_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "split_of", lambda question: "train")
    with pytest.raises(ValueError, match=r"split='test' has no question .* subject 'mult', level 1; leave"):
        Arithmetic("test", subjects=["mult"], levels=[1])[0]
