"""Problems from files and hub datasets: what each column becomes, on real data, and what each mistake is answered."""

from __future__ import annotations

import csv
import json
import pickle
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mrl_env.problems.files import HubProblems, ParsedProblems, is_problem_file, load_problem_file
from mrl_env.problems.files.rows import solution_answer
from mrl_env.types import ProblemSource


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Lists and objects in cells are written as JSON, missing values as nothing."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({c: json.dumps(v) if isinstance(v, list | dict) else v for c, v in row.items()})
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = pyarrow.table({column: [row.get(column) for row in rows] for column in columns})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    return path


def load_rows(folder: Path, rows: list[Any], **options: Any) -> ParsedProblems:
    return load_problem_file(write_jsonl(folder / "mine.jsonl", rows), **options)


def load_text(folder: Path, name: str, text: str | bytes, **options: Any) -> ParsedProblems:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_problem_file(path, **options)


ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "problem": 'What is $1+1$,\nsaid "simply"? 数 😀 \u2028 end',
        "solution": "It is \\boxed{2}.",
        "type": "Prealgebra",
        "level": "Level 1",
        "source": "by hand",
    },
    {
        "id": "b",
        "problem": "Which is blue?",
        "answer": "B",
        "options": ["grass", "the sky, by day"],
        "subject": "Colours",
        "level": "3",
    },
    {
        "id": "c",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6 times 3?"}],
        "answer": "6 * 3 = <<6*3=18>>18\n#### 18",
        "verifier": "exact",
    },
]
"""One problem of each kind, its values all text, so that CSV can hold them too."""


@pytest.mark.parametrize("form", ["jsonl", "json list", "json data", "csv", "parquet"])
def test_every_format_gives_the_same_problems(tmp_path: Path, form: str) -> None:
    if form == "jsonl":
        path = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    elif form == "csv":
        path = write_csv(tmp_path / "rows.CSV", ROWS)
    elif form == "parquet":
        path = write_parquet(tmp_path / "rows.parquet", ROWS)
    else:
        path = tmp_path / "rows.json"
        path.write_text(json.dumps(ROWS if form == "json list" else {"version": 1, "data": ROWS}), encoding="utf-8")
    first, second, third = load_problem_file(path)

    assert (first.id, first.answer, first.verifier) == ("a", "2", "math")
    assert first.messages == ({"role": "user", "content": 'What is $1+1$,\nsaid "simply"? 数 😀 \u2028 end'},)
    assert first.metadata == {
        "subject": "Prealgebra",
        "level": 1,
        "solution": "It is \\boxed{2}.",
        "source": "by hand",
    }
    assert (second.id, second.answer, second.verifier) == ("b", "B", "choice")
    assert second.question == "Which is blue?\nA. grass\nB. the sky, by day"
    assert second.metadata == {"subject": "Colours", "level": 3, "options": ["grass", "the sky, by day"]}
    assert (third.id, third.answer, third.verifier) == ("c", "18", "exact")
    assert third.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 6 times 3?"},
    )
    assert third.metadata == {"solution": "6 * 3 = <<6*3=18>>18\n#### 18"}


def test_it_is_a_sequence_that_can_be_pickled(tmp_path: Path) -> None:
    source = load_rows(tmp_path, ROWS)
    assert isinstance(source, ProblemSource)
    assert len(source) == 3
    assert source[-1].id == "c"
    assert [problem.id for problem in source[:2]] == ["a", "b"]
    with pytest.raises(IndexError):
        source[3]
    assert list(pickle.loads(pickle.dumps(source))) == list(source)


class TestColumns:
    @pytest.mark.parametrize(
        ("row", "question"),
        [
            ({"problem": "p", "question": "q", "prompt": "r"}, "p"),
            ({"prompt": "r", "question": "q"}, "q"),
            ({"problem": None, "prompt": "r"}, "r"),
            ({"problem": "[1, 2] has which sum?"}, "[1, 2] has which sum?"),
            ({"problem": '[{"a": 1}] is what?'}, '[{"a": 1}] is what?'),
            ({"problem": '[{"role": "user", "content": "as JSON"}]'}, "as JSON"),
        ],
    )
    def test_question(self, tmp_path: Path, row: dict[str, Any], question: str) -> None:
        assert load_rows(tmp_path, [{**row, "answer": "1"}])[0].question == question

    @pytest.mark.parametrize(
        ("row", "answer"),
        [
            ({"answer": " \\$ 5"}, " \\$ 5"),
            ({"answer": "2", "solution": "\\boxed{3}"}, "2"),
            ({"answer": None, "solution": "\\boxed{3}"}, "3"),
            ({"answer": "3", "answer_full": "3, -3"}, "3, -3"),
            ({"answer": "3", "answer_full": None}, "3"),
            ({"answerKey": "7"}, "7"),
            ({"answer": 18}, "18"),
            ({"answer": 0}, "0"),
            ({"answer": -0.5}, "-0.5"),
            ({"answer": "no 1,080\n#### 5 #### 1,080 "}, "1,080"),
            ({"solution": "a \\boxed{1} b \\boxed{2} c"}, "2"),
            ({"solution": "#### 4 \\boxed{2}"}, "2"),
            ({"solution": "thus\n#### 4"}, "4"),
        ],
    )
    def test_answer(self, tmp_path: Path, row: dict[str, Any], answer: str) -> None:
        assert load_rows(tmp_path, [{"problem": "p", **row}])[0].answer == answer

    @pytest.mark.parametrize(
        ("row", "solution"),
        [
            ({"answer": "2"}, None),
            ({"answer": "2", "solution": "one and one"}, "one and one"),
            ({"solution": "so \\boxed{2}"}, "so \\boxed{2}"),
            ({"answer": "one and one\n#### 2"}, "one and one\n#### 2"),
            ({"answer": "one and one\n#### 2", "solution": "by counting"}, "by counting"),
        ],
    )
    def test_solution(self, tmp_path: Path, row: dict[str, Any], solution: str | None) -> None:
        problem = load_rows(tmp_path, [{"problem": "p", **row}])[0]
        assert (problem.answer, problem.metadata.get("solution")) == ("2", solution)

    @pytest.mark.parametrize(
        ("text", "reference"),
        [
            (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
            (r"\fbox{a}, or \boxed{b}, or \fbox{c}", "c"),
            (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
            (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
            (r"\boxed{1 \\} then", r"1 \\"),
            (r"\boxed {17}", "17"),
            (r"\boxed 9$.", "9"),
            (r"\boxed{2} and \boxed{3 never closed", "2"),
            (r"\boxed{ open \boxed{3}", "3"),
            (r"\boxed{\text{in } \boxed{4}}", r"\text{in } \boxed{4}"),
            (r"\boxed{}", ""),
            (r"\boxedness{5}", None),
            ("no answer at all {1}", None),
        ],
    )
    def test_reference_of_a_solution(self, text: str, reference: str | None) -> None:
        assert solution_answer(text) == reference

    @pytest.mark.parametrize(
        ("level", "expected"),
        [("Level 5", 5), ("level 2", 2), (" 3 ", 3), (4, 4), (4.0, 4), ("Level ?", None), ("hard", None), (2.5, None)],
    )
    def test_level(self, tmp_path: Path, level: Any, expected: int | None) -> None:
        metadata = load_rows(tmp_path, [{"problem": "p", "answer": "1", "level": level}])[0].metadata
        assert metadata == ({} if expected is None else {"level": expected})

    def test_ids(self, tmp_path: Path) -> None:
        rows = [{"problem": "p", "answer": "1"} for _ in range(4)]
        rows[1]["id"], rows[2]["id"] = 7, "x"  # type: ignore[assignment]
        assert [problem.id for problem in load_rows(tmp_path, rows)] == ["mine-0", "7", "x", "mine-3"]

    def test_other_columns_are_kept_where_they_are_json(self, tmp_path: Path) -> None:
        row = {"problem": "p", "answer": "1", "subject": "s", "type": "t", "flags": [True, {"a": 1.5}], "nothing": None}
        text = json.dumps(row)[:-1] + ', "not_json": NaN, "deep": [Infinity]}'
        assert load_text(tmp_path, "a.jsonl", text)[0].metadata == {
            "subject": "s",
            "type": "t",
            "flags": [True, {"a": 1.5}],
        }

    def test_no_metadata_collides_with_a_verifiers_own_arguments(self, tmp_path: Path) -> None:
        row = {"problem": "p", "answer": "1", "answer_full": "1, 2", "completion": "c", "self": "s", "verifier": "math"}
        assert load_rows(tmp_path, [row])[0].metadata == {}

    @pytest.mark.parametrize(
        ("options", "answer", "letter"),
        [
            (["x", "y", "z"], "C", "C"),
            (["x", "y", "z"], 2, "C"),  # the hub's class labels count from 0
            (["x", "y", "z"], "y", "B"),
            ([10, 20], "20", "B"),
            ('["x", "y"]', "B", "B"),
            ({"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "B", "B"),
            ({"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "3", "C"),
            ({"text": ["x", "y", "z"], "label": [1, 2, 3]}, 3, "C"),
            (["B", "A"], "A", "A"),  # a letter is a letter first
            (["x", "x", "y"], "C", "C"),
        ],
    )
    @pytest.mark.parametrize("column", ["options", "choices"])
    def test_multiple_choice(self, tmp_path: Path, column: str, options: Any, answer: Any, letter: str) -> None:
        problem = load_rows(tmp_path, [{"question": "q", column: options, "answerKey": answer}])[0]
        assert (problem.verifier, problem.answer) == ("choice", letter)
        texts = problem.metadata["options"]
        assert problem.question == "\n".join(["q", *(f"{a}. {text}" for a, text in zip("ABC", texts, strict=False))])
        assert set(problem.metadata) == {"options"}


class TestOptions:
    ROWS: ClassVar[list[dict[str, Any]]] = [
        {"problem": "p0", "answer": "1", "subject": "Algebra", "level": 1},
        {"problem": "p1", "answer": "1", "subject": "Geometry", "level": 1, "verifier": "choice"},
        {"problem": "p2", "answer": "1", "subject": "Algebra", "level": 2},
        {"problem": "p3", "answer": "1"},
    ]

    @pytest.mark.parametrize(
        ("options", "rows"),
        [
            ({}, [0, 1, 2, 3]),
            ({"subjects": ["algebra"]}, [0, 2]),
            ({"levels": (1,)}, [0, 1]),
            ({"subjects": ["Algebra", "Geometry"], "levels": [2]}, [2]),
            ({"limit": 2}, [0, 1]),
            ({"subjects": ["Algebra"], "limit": 1}, [0]),
            ({"limit": 9}, [0, 1, 2, 3]),
        ],
    )
    def test_filters(self, tmp_path: Path, options: dict[str, Any], rows: list[int]) -> None:
        source = load_rows(tmp_path, self.ROWS, **options)
        assert [problem.question for problem in source] == [f"p{row}" for row in rows]
        # Filters leave the ids of the rows that stay as they were.
        assert [problem.id for problem in source] == [f"mine-{row}" for row in rows]

    def test_limit_reads_no_further(self, tmp_path: Path) -> None:
        assert len(load_rows(tmp_path, [*self.ROWS, {"bad": 1}], limit=4)) == 4

    def test_verifier(self, tmp_path: Path) -> None:
        assert [p.verifier for p in load_rows(tmp_path, self.ROWS)] == ["math", "choice", "math", "math"]
        assert {p.verifier for p in load_rows(tmp_path, self.ROWS, verifier="a.b:C")} == {"a.b:C"}

    @pytest.mark.parametrize(
        ("options", "fragments"),
        [
            ({"subjects": ["Algebr"]}, ["subjects", "'Algebr'", "does not occur", "did you mean 'Algebra'?"]),
            ({"subjects": ["Algebra", "Chess"]}, ["'Chess'", "Algebra, Geometry"]),
            ({"levels": [7]}, ["levels", "7", "1, 2"]),
            ({"subjects": ["Geometry"], "levels": [2]}, ["both subjects=['Geometry'] and levels=[2]"]),
            ({"subjects": "Algebra"}, ["subjects='Algebra'", "give a list"]),
            ({"subjects": []}, ["subjects=[]", "give a list"]),
            ({"levels": 3}, ["levels=3", "give a list"]),
            ({"levels": ["1"]}, ["levels=['1']", "give a list"]),
            ({"limit": 0}, ["limit=0", "at least 1"]),
            ({"limit": True}, ["limit=True"]),
            ({"skip_invalid": "yes"}, ["skip_invalid='yes'", "True or False"]),
            ({"verifier": ""}, ["verifier=''"]),
            ({"subject": ["Algebra"]}, ["subject=['Algebra']", "did you mean 'subjects'?"]),
        ],
    )
    def test_invalid(self, tmp_path: Path, options: dict[str, Any], fragments: list[str]) -> None:
        with pytest.raises(ValueError) as error:
            load_rows(tmp_path, self.ROWS, **options)
        for fragment in fragments:
            assert fragment in str(error.value)

    def test_a_filter_on_what_no_row_has(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="its rows name none"):
            load_rows(tmp_path, [{"problem": "p", "answer": "1"}], subjects=["Algebra"])


GOOD = '{"problem": "p", "answer": "1"}\n'

MALFORMED: list[tuple[str, str | bytes, str, list[str]]] = [
    # file name, content, reason, what the error says
    ("a.jsonl", GOOD + '{"problem": "p" "answer": "1"}\n', "broken JSON", ["line 2, character 17", "delimiter"]),
    ("a.jsonl", GOOD + "\n\n{\n", "broken JSON", ["line 4"]),
    ("a.jsonl", "[" * 100_000 + "\n" + GOOD, "broken JSON", ["line 1", "cannot be read"]),
    ("a.jsonl", GOOD + '{"answer": ' + "9" * 5000 + "}", "broken JSON", ["line 2", "cannot be read"]),
    ("a.jsonl", GOOD + '["p", "1"]\n', "not an object", ["line 2", "['p', '1']", "named columns"]),
    ("a.jsonl", (GOOD + '{"problem": "café", "answer": "1"}').encode("latin-1"), "not UTF-8",
     ["line 2", "column 'problem'", "caf\\udce9", "save the file as UTF-8"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "1", "tags": ["\\ud800"]}', "not UTF-8", ["line 2, column 'tags'"]),
    ("a.jsonl", GOOD + '{"text": "p", "answer": "1"}', "missing column",
     ["line 2", "problem, question, prompt", "there is: 'text', 'answer'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "gold": "1"}', "missing column",
     ["line 2", "answer", "solution", "there is: 'problem', 'gold'"]),
    ("a.jsonl", GOOD + '{"problem": "  ", "answer": "1"}', "empty question", ["line 2, column 'problem': '  '"]),
    ("a.jsonl", GOOD + '{"problem": null, "answer": "1"}', "empty question", ["line 2, column 'problem'"]),
    ("a.jsonl", GOOD + '{"problem": 5, "answer": "1"}', "wrong type in 'problem'", ["line 2", "5", "write text"]),
    ("a.jsonl", GOOD + '{"prompt": [], "answer": "1"}', "wrong type in 'prompt'", ["line 2", "[]", '"role"']),
    ("a.jsonl", GOOD + '{"prompt": [{"role": "user"}], "answer": "1"}', "wrong type in 'prompt'", ["{'role': 'user'}"]),
    ("a.jsonl", GOOD + '{"prompt": [{"role": "assistant", "content": "2"}], "answer": "1"}',
     "question does not end with the user", ["line 2, column 'prompt'", "'assistant'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": ""}', "empty answer", ["line 2, column 'answer': ''", "give"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": null}', "empty answer", ["line 2, column 'answer'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "18\\n#### "}', "empty answer", ["line 2, column 'answer'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "solution": "so \\\\boxed{ }"}', "empty answer", ["column 'solution'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": ["1"]}', "wrong type in 'answer'", ["['1']", "as text"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": true}', "wrong type in 'answer'", ["True"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "1", "id": [1]}', "wrong type in 'id'", ["[1]"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "1", "subject": {}}', "wrong type in 'subject'", ["{}"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "1", "verifier": ["math"]}', "wrong type in 'verifier'", ["line 2"]),
    ("a.jsonl", GOOD + '{"problem": "p", "solution": "it is \\\\boxed{4"}', "no answer in the solution",
     ["line 2, column 'solution'", "it is", "add a column 'answer'"]),
    ("a.jsonl", '{"id": "x", "problem": "p", "answer": "1"}\n' * 2, "duplicate id",
     ["line 2, column 'id': 'x'", "line 1", "unique"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "A", "options": "x or y"}', "malformed options",
     ["line 2, column 'options': 'x or y'", "write a list"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "A", "options": ["x"]}', "malformed options", ["['x']", "2 to 26"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "A", "options": ["x", null]}', "malformed options", ["None"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "A", "choices": {"text": ["x", "y"], "label": ["A"]}}',
     "malformed options", ["column 'choices'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "C", "options": ["x", "y"]}', "answer is no option",
     ["line 2, column 'answer': 'C'", "2 options", "A, B"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": 2, "options": ["x", "y"]}', "answer is no option", ["'2'"]),
    ("a.jsonl", GOOD + '{"problem": "p", "answer": "x", "options": ["x", "x"]}', "answer is no option", ["several"]),
    ("a.json", "[" + GOOD + ', {"problem": "p"}]', "missing column", ["row 2", "there is: 'problem'"]),
    ("a.json", "[" + GOOD + ", 7]", "not an object", ["row 2", "7"]),
    ("a.csv", 'problem,answer\n"two\nlines",1\n\n"two\nmore",\n', "empty answer", ["line 5, column 'answer'"]),
    ("a.csv", "problem,answer\np,1\n1, 2, 3?,6\n", "wrong number of cells",
     ["line 3", "4 cells under 2 column names", "'6'"]),
    ("a.csv", b"problem,answer\np,1\ncaf\xe9,1\n", "not UTF-8", ["line 3, column 'problem'", "caf\\udce9"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "reason", "fragments"), MALFORMED)
def test_a_malformed_row_is_refused_or_counted(
    tmp_path: Path, name: str, content: str | bytes, reason: str, fragments: list[str]
) -> None:
    with pytest.raises(ValueError) as error:
        load_text(tmp_path, name, content)
    for fragment in [str(tmp_path / name), "1 malformed row;", "skip_invalid=True", *fragments]:
        assert fragment in str(error.value)
    assert len(str(error.value)) < 1000  # values are cut

    path = tmp_path / name
    with pytest.warns(UserWarning, match="left out") as caught:
        source = load_problem_file(path, skip_invalid=True)
    assert source.skipped == {reason: 1}
    assert len(source) == 1
    assert [str(warning.message) for warning in caught] == [f"{path}: left out 1 malformed row (1 {reason})"]
    assert caught[0].filename == __file__  # it points at the caller


def test_many_malformed_rows_are_counted_and_the_first_named(tmp_path: Path) -> None:
    rows = [{"problem": "p"}, "text", {"problem": "p", "answer": "1"}, *[{"problem": "p"}] * 5]
    with pytest.raises(ValueError) as error:
        load_rows(tmp_path, rows)
    first, *lines = str(error.value).split("\n")
    assert "7 malformed rows" in first
    assert [line.split(",")[0].strip() for line in lines] == [
        "line 1",
        "line 2",
        "line 4",
        "line 5",
        "line 6",
        "and 2 more",
    ]
    with pytest.warns(UserWarning, match=r"left out 7 malformed rows \(6 missing column, 1 not an object\)"):
        source = load_rows(tmp_path, rows, skip_invalid=True)
    assert source.skipped == {"missing column": 6, "not an object": 1}
    assert [problem.id for problem in source] == ["mine-2"]


def test_nothing_left_out_is_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_rows(tmp_path, ROWS, skip_invalid=True).skipped == {}


UNREADABLE: list[tuple[str, str | bytes, list[str]]] = [
    ("a.jsonl", "", ["has no rows"]),
    ("a.jsonl", "\n \n", ["has no rows"]),
    ("a.json", "", ["has no rows"]),
    ("a.json", '{"data": []}', ["has no rows"]),
    ("a.csv", "", ["has no rows"]),
    ("a.csv", "problem,answer\n", ["has no rows"]),
    ("a.jsonl", "nonsense", ["has no usable rows"]),
    ("a.json", '[\n  {"problem": "p",\n   "answer": }]', ["line 3, character 14", "broken JSON"]),
    ("a.json", GOOD * 2, ["line 2, character 1", "Extra data", "name the file .jsonl"]),
    ("a.json", "[" * 100_000, ["cannot be read"]),
    ("a.json", '{"rows": [], "version": 2}', ["['rows', 'version']", '{"data": [...]}']),
    ("a.json", '"text"', ["'text'", "a list of objects"]),
    ("a.csv", 'problem,answer\np,1\n"open,1\np,1\n', ["line 3", "open quote"]),
    ("a.csv", "problem,answer, problem\np,1,2\n", ["line 1", "['problem']", "rename"]),
    ("a.csv", "problem;answer\np;1\n", ["has no usable rows"]),
    ("a.jsonl", GOOD.encode("utf-16"), ["line 1", "UTF-16", "save the file as UTF-8"]),
    ("a.parquet", "PAR, but no Parquet", ["cannot be read as Parquet"]),
    ("a.parquet", "", ["cannot be read as Parquet"]),
    ("a.txt", GOOD, ["'.txt' is unknown", ".csv, .json, .jsonl, .parquet"]),
]


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize(("name", "content", "fragments"), UNREADABLE)
def test_a_file_without_usable_rows(tmp_path: Path, name: str, content: str | bytes, fragments: list[str]) -> None:
    """With skip_invalid, which cannot help here."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    with pytest.raises(ValueError) as error:
        load_text(tmp_path, name, content, skip_invalid=True)
    for fragment in [str(tmp_path / name), *fragments]:
        assert fragment in str(error.value)


def test_csv_with_another_delimiter_shows_its_header(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is: 'problem;answer'"):
        load_text(tmp_path, "a.csv", "problem;answer\np;1\n")


def test_a_byte_order_mark_and_carriage_returns_do_no_harm(tmp_path: Path) -> None:
    for name, text in {"a.jsonl": GOOD, "a.json": f"[{GOOD}]", "a.csv": "problem,answer\np,1\n"}.items():
        content = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
        assert [(problem.question, problem.answer) for problem in load_text(tmp_path, name, content)] == [("p", "1")]


class TestFileNames:
    @pytest.mark.parametrize("path", ["a.jsonl", "A.JSON", "~/a.csv", "x/a.parquet", "owner/name", "./train"])
    def test_meant_as_files(self, path: str) -> None:
        assert is_problem_file(path)

    @pytest.mark.parametrize("path", ["math", "pkg.module:factory", "hub", "json", "a.txt"])
    def test_not_meant_as_files(self, path: str) -> None:
        assert not is_problem_file(path)

    def test_an_existing_file_is_one_whatever_it_is_called(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a.txt").touch()
        assert is_problem_file("a.txt")

    def test_missing_with_a_neighbour(self, tmp_path: Path) -> None:
        for name in ("math_train.jsonl", "gsm8k.csv", "notes.txt"):
            (tmp_path / name).touch()
        with pytest.raises(
            ValueError, match=r"math_trian\.jsonl: there is no such file; did you mean 'math_train\.jsonl'"
        ):
            load_problem_file(tmp_path / "math_trian.jsonl")
        with pytest.raises(ValueError, match=r"no such file; known: gsm8k\.csv, math_train\.jsonl$"):
            load_problem_file(str(tmp_path / "zzz.json"))

    def test_missing_without(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="nor any problem file in its folder"):
            load_problem_file(tmp_path / "a.jsonl")
        with pytest.raises(ValueError, match=r"no folder .*sub.*'hub:owner/name'"):
            load_problem_file(tmp_path / "sub" / "a.jsonl")
        with pytest.raises(ValueError, match="is a folder"):
            load_problem_file(tmp_path)

    def test_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        write_jsonl(tmp_path / "mine.jsonl", ROWS)
        assert len(load_problem_file("~/mine.jsonl")) == 3


class TestParquet:
    def test_malformed_rows_have_numbers(self, tmp_path: Path) -> None:
        rows: list[dict[str, Any]] = [
            {"problem": "p", "answer": "1"},
            {"problem": "p", "answer": None},
            {"problem": None, "answer": "1"},
        ]
        with pytest.raises(ValueError) as error:
            load_problem_file(write_parquet(tmp_path / "a.parquet", rows))
        assert "row 2, column 'answer'" in str(error.value)
        assert "row 3, column 'problem'" in str(error.value)

    def test_values_that_json_lacks_are_left_out(self, tmp_path: Path) -> None:
        rows = [{"problem": "p", "answer": 2.5, "raw": b"x", "nan": float("nan"), "level": 3, "tags": ["a"]}]
        problem = load_problem_file(write_parquet(tmp_path / "a.parquet", rows))[0]
        assert problem.answer == "2.5"
        assert problem.metadata == {"level": 3, "tags": ["a"]}

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.parquet").touch()
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(ValueError, match=r"'pyarrow' .*pip install 'mutual-rl\[data\]'"):
            load_problem_file(tmp_path / "a.parquet")


class TestHub:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A local dataset of two splits, which Datasets loads as it would load one of the hub's."""
        datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        datasets.disable_progress_bars()
        folder = tmp_path / "toy"
        folder.mkdir()
        row = {"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "level": "Level 2"}
        datasets.Dataset.from_list([{**row, "answerKey": "2"}, {**row, "answerKey": "9"}]).to_parquet(
            folder / "train-00000-of-00001.parquet"
        )
        datasets.Dataset.from_list([{**row, "answerKey": "1"}]).to_parquet(folder / "test-00000-of-00001.parquet")
        return folder

    def test_a_dataset_folder(self, folder: Path) -> None:
        with pytest.warns(
            UserWarning, match=rf"hub:{folder}\[train\]: left out 1 malformed row \(1 answer is no option\)"
        ):
            train = HubProblems(str(folder), split="train", skip_invalid=True)
        assert [(p.id, p.answer, p.question) for p in train] == [("toy-train-0", "B", "q\nA. x\nB. y")]
        assert train.skipped == {"answer is no option": 1}
        (test,) = HubProblems(str(folder), split="test")
        assert (test.id, test.answer, test.verifier) == ("toy-test-0", "A", "choice")
        assert test.metadata == {"options": ["x", "y"], "level": 2}
        assert list(pickle.loads(pickle.dumps(train))) == list(train)

    def test_a_malformed_row(self, folder: Path) -> None:
        with pytest.raises(
            ValueError, match=r"\[train\]: 1 malformed row(.|\n)*row 2, column 'answerKey': '9' names none"
        ):
            HubProblems(str(folder))

    def test_what_does_not_exist(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"hub:.*toy' cannot be loaded with split='validation'.*check"):
            HubProblems(str(folder), split="validation")
        with pytest.raises(ValueError, match=r"hub:.*toys' cannot be loaded with split='train'"):
            HubProblems(f"{folder}s")

    def test_what_is_asked_of_datasets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
        asked: list[Any] = []

        def load_dataset(
            path: str, name: str | None = None, *, split: str, revision: str | None
        ) -> list[dict[str, str]]:
            asked.append((path, name, split, revision))
            return [{"question": "q", "answer": "a #### 1"}]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        (problem,) = HubProblems("openai/gsm8k", split="test", config="main", revision="v1")
        HubProblems("openai/gsm8k")
        assert asked == [("openai/gsm8k", "main", "test", "v1"), ("openai/gsm8k", None, "train", None)]
        assert (problem.id, problem.answer) == ("gsm8k-test-0", "1")

    def test_an_unknown_option_is_seen_before_anything_is_loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ValueError, match=r"limits=3.*did you mean 'limit'"):
            HubProblems("owner/name", limits=3)

    def test_without_datasets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ValueError, match=r"'datasets' .*pip install 'mutual-rl\[data\]'"):
            HubProblems("owner/name")


class TestRealData:
    """On MATH, GSM8K, ARC, OpenBookQA and CommonsenseQA themselves; counts are the datasets' published ones."""

    def test_math_train_has_two_rows_without_an_answer(self, shared: Path) -> None:
        path = shared / "data" / "math_train.jsonl"
        with pytest.raises(ValueError) as error:
            load_problem_file(path)
        assert str(error.value).split("\n")[1:] == [
            "  line 5342, column 'answer': '' holds no answer; give the answer",
            "  line 5344, column 'answer': '' holds no answer; give the answer",
        ]
        with pytest.warns(UserWarning, match=r"left out 2 malformed rows \(2 empty answer\)"):
            source = load_problem_file(path, skip_invalid=True)
        assert (len(source), source.skipped) == (7498, {"empty answer": 2})
        assert Counter(problem.metadata["subject"] for problem in source) == {
            "Algebra": 1744,
            "Intermediate Algebra": 1295,
            "Prealgebra": 1205,
            "Geometry": 870,
            "Number Theory": 869 - 2,
            "Counting & Probability": 771,
            "Precalculus": 746,
        }
        assert [p.id for p in source if "level" not in p.metadata] == ["math-train-2773", "math-train-2832"]
        assert {p.metadata["level"] for p in source if "level" in p.metadata} == {1, 2, 3, 4, 5}
        assert (source[0].id, source[0].answer, source[0].verifier) == ("math-train-0", "0", "math")
        assert source[0].question.startswith("Let \\[f(x) = \\left\\{\n\\begin{array}{cl} ax+3, &\\text{ if }x>2")
        assert list(pickle.loads(pickle.dumps(source))) == list(source)

    @pytest.mark.usefixtures("settled_heap")
    def test_math_loads_quickly(self, shared: Path) -> None:
        path = shared / "data" / "math_train.jsonl"
        began = time.process_time()
        with pytest.warns(UserWarning, match="left out"):
            load_problem_file(path, skip_invalid=True)
        assert time.process_time() - began < 1.0  # seconds; 0.2 is usual

    def test_math_test_prefers_the_full_answer(self, shared: Path) -> None:
        source = load_problem_file(shared / "data" / "math_test.jsonl")
        assert len(source) == 5000
        answers = {problem.id: problem.answer for problem in source}
        full = {
            "math-test-333": "3, -3",
            "math-test-414": "-2,1",
            "math-test-2152": "5 - 10i, 11, -3 + 6i",
            "math-test-2549": "-\\tfrac32, -\\tfrac34",
            "math-test-2656": "-10879,10879",
            "math-test-2703": "\\frac{2}{5},3",
            "math-test-2716": "(10,0), (0,0)",
            "math-test-2912": "\\left(\\tfrac32, -\\tfrac52\\right), \\left(-\\tfrac52, -\\tfrac52\\right)",
            "math-test-2936": "(3, -5), (0, 0)",
            "math-test-4559": "-1,2",
            "math-test-4562": "30^\\circ,45^\\circ,105^\\circ",
            "math-test-4860": "\\frac{\\pi}{4},\\frac{5\\pi}{4}",
        }
        assert {id: answers[id] for id in full} == full
        assert answers["math-test-0"] == "2"
        assert source[0].metadata.keys() == {"subject", "level", "solution", "answer_type", "in_math500"}
        assert sum(problem.metadata["in_math500"] for problem in source) == 500

    def test_the_last_box_of_a_solution_is_its_answer(self, shared: Path, tmp_path: Path) -> None:
        """The same 12,500 references, whether they come from the column `answer` or out of `solution`."""
        for name in ("math_train.jsonl", "math_test.jsonl"):
            lines = (shared / "data" / name).read_text(encoding="utf-8").split("\n")
            rows = [row for line in lines if line and (row := json.loads(line))["answer"].strip()]
            kept = [{"problem": row["problem"], "solution": row["solution"]} for row in rows]
            assert [p.answer for p in load_rows(tmp_path, kept)] == [row["answer"] for row in rows]

    def test_gsm8k(self, shared: Path, tmp_path: Path) -> None:
        assert len(load_problem_file(shared / "data" / "gsm8k_test.jsonl")) == 1319
        train = load_problem_file(shared / "data" / "gsm8k_train.jsonl")
        assert (len(train), train[0].answer, train[345].answer) == (7473, "72", "1,080")
        # In the dataset's original form, the column `answer` holds the rationale.
        original = [{"question": p.question, "answer": p.metadata["solution"]} for p in train]
        parsed = load_rows(tmp_path, original)
        assert [p.answer for p in parsed] == [p.answer for p in train]
        assert [p.metadata for p in parsed] == [p.metadata for p in train]

    @pytest.mark.parametrize(
        ("name", "count", "options"),
        [
            ("arc_challenge_test", 1172, {3, 4, 5}),
            ("arc_challenge_train", 1119, {3, 4, 5}),
            ("arc_easy_test", 2376, {3, 4, 5}),
            ("arc_easy_train", 2251, {3, 4, 5}),
            ("commonsenseqa_dev", 1221, {5}),
            ("commonsenseqa_train", 9741, {5}),
            ("openbookqa_test", 500, {4}),
            ("openbookqa_train", 4957, {4}),
        ],
    )
    def test_multiple_choice(self, shared: Path, name: str, count: int, options: set[int]) -> None:
        source = load_problem_file(shared / "data" / f"mc_{name}.jsonl")
        assert len(source) == count
        assert {problem.verifier for problem in source} == {"choice"}
        assert {len(problem.metadata["options"]) for problem in source} == options
        for problem in source:
            right = problem.metadata["options"][ord(problem.answer) - ord("A")]
            assert f"\n{problem.answer}. {right}" in problem.question

    def test_arc_as_it_is_asked(self, shared: Path) -> None:
        problem = load_problem_file(shared / "data" / "mc_arc_challenge_train.jsonl", limit=1)[0]
        assert problem.id == "arc-challenge-train-0"
        assert problem.question == (
            "George wants to warm his hands quickly by rubbing them. Which skin surface will produce the most heat?\n"
            "A. dry palms\nB. wet palms\nC. palms covered with oil\nD. palms covered with lotion"
        )
        assert problem.answer == "A"
