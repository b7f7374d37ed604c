"""The source of MATH-like problems: determinism, splits, coverage, the form of its texts, and its arguments."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from mrl_env.problems import ProceduralMath, load_problems, names
from mrl_env.problems.procedural import latex as tex
from mrl_env.problems.procedural import split_of
from mrl_env.problems.procedural.templates import LEVELS, SUBJECTS, TEMPLATES, Draft, template
from mrl_env.types import Problem, ProblemSource

ALL_TEMPLATES = [template for cell in TEMPLATES.values() for template in cell]


@pytest.fixture(scope="module")
def train() -> list[Problem]:
    return [*ProceduralMath("train", seed=0, size=3000)]


@pytest.fixture(scope="module")
def test() -> list[Problem]:
    return [*ProceduralMath("test", seed=0, size=2500)]


class TestPurity:
    def test_equal_arguments_give_equal_problems(self, train: list[Problem]) -> None:
        again = ProceduralMath("train", seed=0, size=3000)
        assert [again[i] for i in range(300)] == train[:300]

    def test_the_order_of_access_does_not_matter(self, train: list[Problem]) -> None:
        source = ProceduralMath("train", seed=0)
        order = list(range(0, 600, 2))
        random.Random(1).shuffle(order)
        assert all(source[i] == train[i] for i in order)

    def test_the_size_does_not_change_the_items(self, train: list[Problem]) -> None:
        assert ProceduralMath("train", seed=0, size=7)[3] == train[3]

    def test_another_process_draws_the_same(self, train: list[Problem]) -> None:
        code = (
            "import hashlib; from mrl_env.problems import ProceduralMath; s = ProceduralMath('train', seed=0);"
            "print(hashlib.sha256(repr([s[i] for i in range(150)]).encode()).hexdigest())"
        )
        digests = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(digests) == 1

    def test_seeds_and_indices_give_different_problems(self) -> None:
        a, b = (ProceduralMath("train", seed=seed, size=300) for seed in (0, 1))
        assert sum(x.question == y.question for x, y in zip(a, b, strict=True)) < 6
        # item i + 1 of one seed is not item i of the next: seeds are not shifted copies
        assert sum(a[i + 1].question == b[i].question for i in range(299)) < 6

    def test_pickling(self, train: list[Problem]) -> None:
        source = ProceduralMath("train", seed=0, subjects=["algebra"], levels=[2, 3])
        copy = pickle.loads(pickle.dumps(source))
        assert copy == source
        assert copy[5] == source[5]
        assert pickle.loads(pickle.dumps(train[0])) == train[0]


class TestSplits:
    def test_no_question_is_in_both_splits(self, train: list[Problem], test: list[Problem]) -> None:
        trained = {problem.question for problem in train}
        tested = {problem.question for problem in test}
        for seed in (1, 2, 77):
            trained |= {problem.question for problem in ProceduralMath("train", seed=seed, size=1500)}
            tested |= {problem.question for problem in ProceduralMath("test", seed=seed, size=500)}
        assert not trained & tested
        assert len(trained) > 5000
        assert len(tested) > 1500

    def test_every_item_obeys_the_rule(self, train: list[Problem], test: list[Problem]) -> None:
        assert {split_of(problem.question) for problem in train} == {"train"}
        assert {split_of(problem.question) for problem in test} == {"test"}

    def test_one_bucket_in_ten(self) -> None:
        shares = Counter(split_of(f"Compute ${a} + {b}$.") for a in range(100) for b in range(100))
        assert 850 < shares["test"] < 1150

    def test_wording_and_letters_do_not_move_an_instance(self) -> None:
        for a in range(200):
            spellings = (
                f"Solve $3x + {a} = 7$ for $x$.",
                f"If $3n + {a} = 7$, what is the value of $n$?",
                f"Find the value of $t$ such that $3t + {a} = 7$.",
            )
            assert len({split_of(spelling) for spelling in spellings}) == 1
            stories = (f"Ada has ${a}$ coins and Omar ${a + 3}$.", f"Omar has ${a + 3}$ coins and Ada ${a}$.")
            assert len({split_of(story) for story in stories}) == 1


class TestCoverage:
    def test_every_template_occurs_in_both_splits(self, train: list[Problem], test: list[Problem]) -> None:
        for problems in (train, test):
            seen = {problem.metadata["template"] for problem in problems}
            assert seen == {template.name for template in ALL_TEMPLATES}

    def test_subjects_and_levels_are_drawn_evenly(self, train: list[Problem]) -> None:
        cells = Counter((problem.metadata["subject"], problem.metadata["level"]) for problem in train)
        assert set(cells) == {(subject, level) for subject in SUBJECTS for level in LEVELS}
        assert min(cells.values()) > 0.6 * len(train) / 35
        assert max(cells.values()) < 1.5 * len(train) / 35

    def test_at_least_three_templates_in_each_cell(self) -> None:
        assert all(len(cell) >= 3 for cell in TEMPLATES.values())
        assert len({template.name for template in ALL_TEMPLATES}) == len(ALL_TEMPLATES)

    @pytest.mark.parametrize("cell", TEMPLATES, ids=lambda cell: f"{cell[0]}-{cell[1]}")
    def test_each_cell_has_many_problems(self, cell: tuple[str, int]) -> None:
        questions = {
            template.draw(random.Random(f"{template.name} {i}")).question
            for template in TEMPLATES[cell]
            for i in range(200)
        }
        assert len(questions) > 500

    def test_filters(self) -> None:
        source = ProceduralMath("test", size=60, subjects=("geometry", "precalculus"), levels=[2, 5])
        seen = {(problem.metadata["subject"], problem.metadata["level"]) for problem in source}
        assert seen == {("geometry", 2), ("geometry", 5), ("precalculus", 2), ("precalculus", 5)}

    def test_answers_are_not_integers_alone(self, train: list[Problem]) -> None:
        kinds = Counter(kind_of(problem.answer) for problem in train)
        assert kinds["integer"] < 0.45 * len(train)
        assert set(kinds) >= {
            "integer", "fraction", "decimal", "radical", "pi", "degrees", "polynomial", "equation", "interval", "tuple",
            "list", "complex", "matrix", "base", "text",
        }  # fmt: skip


def kind_of(answer: str) -> str:
    """A rough kind by the look of an answer."""
    patterns = (
        ("text", r"\\text"),
        ("matrix", r"pmatrix"),
        ("equation", r"="),
        ("interval", r"infty|\\cup|^(\\left)?\[|\]$|\)\]|\](\\right)?$"),
        ("list", r"^[^()]*, |\), \("),
        ("tuple", r"^(\\left)?\(.*,.*\)$"),
        ("base", r"_\d$"),
        ("degrees", r"circ"),
        ("complex", r"(?<![a-z])i(?![a-z])"),
        ("polynomial", r"(?<![\\a-z])[a-z](?![a-z])"),
        ("pi", r"\\pi"),
        ("radical", r"sqrt"),
        ("fraction", r"frac"),
        ("decimal", r"\d\.\d"),
        ("integer", r"^-?\d+$"),
    )
    return next(kind for kind, pattern in patterns if re.search(pattern, answer))


class TestItems:
    def test_the_record(self) -> None:
        source = ProceduralMath("test", seed=11, size=20)
        problem = source[4]
        assert problem.id == f"math-test-11-4-{hashlib.sha256(problem.question.encode()).hexdigest()[:8]}"
        assert problem.verifier == "math"
        assert [message["role"] for message in problem.messages] == ["user"]
        assert problem.question == problem.messages[0]["content"]
        assert set(problem.metadata) == {"subject", "level", "template", "solution"}
        assert type(problem.metadata["level"]) is int
        assert json.loads(json.dumps(dict(problem.metadata))) == dict(problem.metadata)

    def test_the_sequence(self) -> None:
        source = ProceduralMath("train", seed=5, size=12)
        assert isinstance(source, ProblemSource)
        assert len(source) == len([*source]) == 12
        assert source[-1] == source[11]
        for index in (12, -13):
            with pytest.raises(IndexError, match="out of range for 12 problems"):
                source[index]
        assert len({problem.id for problem in source}) == 12

    def test_default_sizes(self) -> None:
        assert len(ProceduralMath()) == 10_000
        assert len(ProceduralMath("test")) == 1_000
        assert ProceduralMath()[9_999].id.startswith("math-train-0-9999-")

    def test_by_name(self) -> None:
        assert "math" in names()
        source = load_problems("math", split="test", seed=3, size=8, levels=[1])
        assert source[2] == ProceduralMath("test", seed=3, levels=(1,))[2]

    def test_solutions_end_in_the_boxed_answer(self, train: list[Problem], test: list[Problem]) -> None:
        for problem in train + test:
            solution = problem.metadata["solution"]
            head, _, tail = solution.rpartition(r"$\boxed{")
            assert tail == problem.answer + "}$."
            assert head.count(r"\boxed") == 0
            assert len(head) > 40

    def test_solutions_work_with_the_numbers_of_the_instance(self, train: list[Problem]) -> None:
        steps: dict[str, set[str]] = {}
        for problem in train:
            steps.setdefault(problem.metadata["template"], set()).add(problem.metadata["solution"])
        for name, different in steps.items():
            assert len(different) > 5, name
        assert sum(map(len, steps.values())) > 0.9 * len(train)


UGLY = {
    "two signs": r"[+-] -|--|\+ \+",
    "a coefficient 1": r"(?<![\d._])1(?:[a-z](?![a-z])|\\(?:pi|sqrt|sin|cos|tan|mathbf))",
    "a coefficient 0": r"(?<![\d.])0(?:[a-z]|\\(?:pi|sqrt))",
    "a trivial exponent": r"\^(?:1|0)(?!\d)|\^\{[01]\}",
    "a denominator of 1": r"\\frac\{[^{}]*\}\{1\}",
    "blanks": r"  | [.,?](?!\.)|\$\$|\n",
    "an unfilled place": r"\{\}|None|Fraction|\{[a-z_]+\.|\[\]",
    "a plural of one": r"\$1\$ [a-z]+s\b",
}


@pytest.fixture(scope="module")
def drafts() -> list[tuple[str, Draft]]:
    return [(t.name, t.draw(random.Random(f"text {t.name} {i}"))) for t in ALL_TEMPLATES for i in range(25)]


class TestTexts:
    @pytest.mark.parametrize("flaw", UGLY)
    def test_questions_and_answers_are_well_written(self, drafts: list[tuple[str, Draft]], flaw: str) -> None:
        for name, draft in drafts:
            for text in (draft.question, draft.answer):
                assert not re.search(UGLY[flaw], text), (name, text)

    @pytest.mark.parametrize("flaw", ["two signs", "a coefficient 1", "blanks", "an unfilled place"])
    def test_solutions_are_well_written(self, drafts: list[tuple[str, Draft]], flaw: str) -> None:
        for name, draft in drafts:
            assert not re.search(UGLY[flaw], draft.solution), (name, draft.solution)

    def test_brackets_and_dollars_are_balanced(self, drafts: list[tuple[str, Draft]]) -> None:
        for name, draft in drafts:
            for text in (draft.question, draft.answer, draft.solution):
                assert text.count("$") % 2 == 0, (name, text)
                assert text.count("{") == text.count("}"), (name, text)
                assert len(re.findall(r"\\left\b", text)) == len(re.findall(r"\\right\b", text)), (name, text)
                assert len(re.findall(r"\\begin", text)) == len(re.findall(r"\\end", text)), (name, text)
            assert "$" not in draft.answer

    def test_questions_are_sentences(self, drafts: list[tuple[str, Draft]]) -> None:
        for name, draft in drafts:
            assert re.match(r"[A-Z]", draft.question), (name, draft.question)
            assert draft.question[-1] in ".?", (name, draft.question)

    def test_answers_are_in_lowest_terms(self, drafts: list[tuple[str, Draft]]) -> None:
        for name, draft in drafts:
            for p, q in re.findall(r"\\frac\{(-?\d+)\}\{(-?\d+)\}", draft.answer):
                assert int(q) > 1, (name, draft.answer)
                assert math.gcd(int(p), int(q)) == 1, (name, draft.answer)
            for n in map(int, re.findall(r"\\sqrt\{(\d+)\}", draft.answer)):
                assert n > 1, (name, draft.answer)
                assert all(n % (k * k) for k in range(2, math.isqrt(n) + 1)), (name, draft.answer)

    def test_the_answer_does_not_stand_in_the_question(self, drafts: list[tuple[str, Draft]]) -> None:
        """A policy must not be paid for copying a formula of the question."""
        copied = [name for name, draft in drafts if draft.answer in draft.question.split("$")[1::2]]
        # a number may happen to be among those given
        assert len(copied) < 0.03 * len(drafts), Counter(copied)


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"split": "tset"}, r"split='tset' .*did you mean 'test'"),
            ({"split": "validation"}, r"split='validation' .*known: test, train"),
            ({"seed": "0"}, r"seed='0' is no integer"),
            ({"seed": 1.0}, r"seed=1.0 is no integer"),
            ({"size": 0}, r"size=0 is no positive integer"),
            ({"size": -4}, r"size=-4"),
            ({"size": 2.5}, r"size=2.5"),
            ({"subjects": ()}, r"subjects=\(\) .*give some of prealgebra"),
            ({"subjects": "algebra"}, r"subjects='algebra' is no list"),
            ({"subjects": ["algebra", "algerba"]}, r"subjects: 'algerba' .*did you mean 'algebra'"),
            ({"levels": []}, r"levels=\[\] .*1, 2, 3, 4, 5"),
            ({"levels": 3}, r"levels=3 is no list"),
            ({"levels": (1, 6)}, r"levels: 6 is unknown"),
            ({"levels": ("1",)}, r"levels: '1' is unknown"),
        ],
    )
    def test_a_wrong_argument_is_named(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ProceduralMath(**arguments)

    def test_a_template_name_is_taken_once(self) -> None:
        def slope(rng: random.Random) -> Draft:
            return Draft("?", "1", "")

        with pytest.raises(ValueError, match="'slope' exists already"):
            template("algebra", 1)(slope)

    def test_a_split_without_instances_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fixed = Draft("What is $1 + 1$?", "2", "Adding gives $1 + 1 = 2$.")
        other = {"train": "test", "test": "train"}[split_of(fixed.question)]
        lonely = type(ALL_TEMPLATES[0])("lonely", "algebra", 1, lambda rng: fixed)
        monkeypatch.setitem(TEMPLATES, ("algebra", 1), [lonely])
        with pytest.raises(RuntimeError, match=rf"no {other} problem of algebra, level 1"):
            ProceduralMath(other, subjects=["algebra"], levels=[1])[0]

    def test_the_import_is_light(self) -> None:
        code = (
            "import sys, mrl_env.problems.procedural;"
            "print(sorted({'sympy', 'torch', 'transformers'} & set(sys.modules)))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == "[]"


class TestLatex:
    """Expected texts written by hand."""

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            (tex.number(Fraction(-6, 4)), r"-\frac{3}{2}"),
            (tex.number(0), "0"),
            (tex.multiple(Fraction(3, 4), r"\pi"), r"\frac{3\pi}{4}"),
            (tex.multiple(-1, r"\sqrt{2}"), r"-\sqrt{2}"),
            (tex.pi(Fraction(-1, 2)), r"-\frac{\pi}{2}"),
            (tex.term(Fraction(3, 4), "x"), r"\frac{3}{4}x"),
            (tex.combination((-1, "x"), (0, "y"), (Fraction(1, 2), ""), (1, "z")), r"-x + \frac{1}{2} + z"),
            (tex.combination((0, "x")), "0"),
            (tex.signed_sum(["a", "-b", "c"]), "a - b + c"),
            (tex.polynomial([1, 0, -1, 4]), "x^3 - x + 4"),
            (tex.polynomial([-2] + [0] * 12, "t"), "-2t^{12}"),
            (tex.factor_for_root(Fraction(-1, 2)), "(2x + 1)"),
            (tex.factor_for_root(0), "x"),
            (tex.paren(-3), "(-3)"),
            (tex.paren(Fraction(1, 2)), r"\frac{1}{2}"),
            (tex.surd(2, 72), r"12\sqrt{2}"),
            (tex.surd(Fraction(1, 3), 36), "2"),
            (tex.surd(5, 0), "0"),
            (tex.square_root(Fraction(8, 3)), r"\frac{2\sqrt{6}}{3}"),
            (tex.surd_sum(2, 1, 8, 4), r"\frac{1 + \sqrt{2}}{2}"),
            (tex.surd_sum(-2, -2, 3, 4), r"-\frac{1 + \sqrt{3}}{2}"),
            (tex.surd_sum(0, 3, 5, 6), r"\frac{\sqrt{5}}{2}"),
            (tex.surd_sum(1, 2, 9, 14), r"\frac{1}{2}"),
            (tex.surd_sum(4, -2, 3, -2), r"-2 + \sqrt{3}"),
            (tex.quotient([(0, "a"), (3, "b")], 6), r"\frac{b}{2}"),
            (tex.quotient([(0, "a")], 6), "0"),
            (tex.complex_number(Fraction(1, 2), -1), r"\frac{1}{2} - i"),
            (tex.complex_number(0, 3), "3i"),
            (tex.complex_number(0, 0), "0"),
            (tex.ordered(["1", "-2"]), "(1, -2)"),
            (tex.ordered([r"\frac{1}{2}", "3"]), r"\left( \frac{1}{2}, 3 \right)"),
            (tex.interval(r"-\infty", "3", "(]"), r"(-\infty, 3]"),
            (tex.interval("-2", r"\frac{1}{3}", "[)"), r"\left[ -2, \frac{1}{3} \right)"),
            (tex.matrix([[1, -2], [Fraction(1, 2), 0]]), r"\begin{pmatrix} 1 & -2 \\ \frac{1}{2} & 0 \end{pmatrix}"),
            (tex.column([3, -4]), r"\begin{pmatrix} 3 \\ -4 \end{pmatrix}"),
            (tex.product([2, -3, 4]), r"2 \cdot (-3) \cdot 4"),
            (tex.factorization({5: 1, 2: 3}), r"2^3 \cdot 5"),
            (tex.decimal(Fraction(-1, 8)), "-0.125"),
            (tex.decimal(Fraction(12)), "12"),
            (tex.equal("a", "a", "b"), "a = b"),
            (tex.degrees(-30), r"-30^\circ"),
        ],
    )
    def test_writing(self, written: str, expected: str) -> None:
        assert written == expected

    def test_a_decimal_that_does_not_end(self) -> None:
        with pytest.raises(ValueError, match="1/3 has no terminating decimal"):
            tex.decimal(Fraction(1, 3))

    def test_square_part(self) -> None:
        for n in range(1, 2000):
            outside, inside = tex.square_part(n)
            assert outside**2 * inside == n
            assert all(inside % (k * k) for k in range(2, math.isqrt(inside) + 1))
