"""Nothing gets in: what foreign text may not do, and the inputs that fuzzing found."""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from algorithms.evaluation import LONGEST_SUBJECT, MOST_SUBJECTS, ProblemResult, subject_name, summarize
from algorithms.tracking import table
from benchmarks.evaluate.show import Table
from mrl_env import Experience, JsonlExchange, MemoryExchange, MutualEnv, ReplayExchange, Trace
from mrl_env import exchange as exchange_module
from mrl_env.exchange import from_json, read_jsonl, to_json
from mrl_env.problems.files import load_problem_file, readers
from mrl_env.types import Problem, user_message
from verifiers import BadGoldError, Verdict, get
from verifiers.printing import PrintableFormatter, printable_lines, shown

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("mrl_env", "verifiers", "algorithms", "benchmarks")

FORBIDDEN_NAMES = {"eval", "exec", "compile", "sympify", "parse_expr", "parse_latex", "__import__"}
FORBIDDEN_CALLS = {"pickle", "marshal", "shelve", "dill", "joblib"}


def _calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a file with what is called, as written."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _keyword(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == name), None)


def test_no_code_is_made_of_text_and_nothing_is_unpickled() -> None:
    seen = 0
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for called, call in _calls(path):
            seen += 1
            where = f"{path.relative_to(ROOT)}, line {call.lineno}: {called}"
            assert called not in FORBIDDEN_NAMES, where
            assert called.rpartition(".")[2] not in {"sympify", "parse_expr", "parse_latex", "system", "popen"}, where
            assert called.partition(".")[0] not in FORBIDDEN_CALLS, where
            assert _keyword(call, "shell") is None, where
            assert _keyword(call, "allow_pickle") is None, where
            if called == "torch.load":
                assert _keyword(call, "weights_only") == "True", where
            if called.startswith("yaml."):
                assert called in ("yaml.safe_load", "yaml.safe_dump"), where
            trusted = _keyword(call, "trust_remote_code")
            assert trusted is None or trusted.endswith(".trust_remote_code"), where
            # Completions and names reach TensorBoard as numbers and tags only.
            assert called.rpartition(".")[2] not in ("add_text", "add_hparams", "add_embedding"), where
    assert seen > 1000


def test_remote_code_is_off_unless_asked_for() -> None:
    from algorithms.config import TrainingConfig

    assert TrainingConfig().trust_remote_code is False


# --- on its way to a terminal ---

ESCAPES = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J\r"


def _harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_tables_logs_and_messages_are_printable() -> None:
    assert _harmless(table((ESCAPES, "b"), [("a\n", ESCAPES)]))
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "%s\nsecond", (ESCAPES,), None)
    assert PrintableFormatter("%(message)s").format(record).split("\n")[1] == "second"
    assert _harmless(PrintableFormatter("%(message)s").format(record))
    assert printable_lines("a\x1b\nb\t") == "a\\x1b\nb\\t"
    assert len(shown("a" * 10**6)) < 200


def test_a_page_shows_markup_as_text() -> None:
    page = Table(
        "<script>",
        ("a|b", "c"),
        [("[x](javascript:alert(1))", "<img src=x onerror=alert(1)>"), ("`", "0.5 [0.4, 0.6]")],
    )
    written = page.markdown()
    assert "<script" not in written
    assert "<img" not in written
    assert "](j" not in written
    assert "| \\` | 0.5 [0.4, 0.6] |" in written
    assert "a\\|b" in written


def test_a_command_names_a_mistake_without_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from algorithms.cli import main

    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({ESCAPES: 1}), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main("grpo", ["--config", str(path)])
    assert stopped.value.code == 2
    assert _harmless(capsys.readouterr().err)


def test_data_decide_neither_how_many_metrics_there_are_nor_what_they_are_called() -> None:
    def result(subject: Any) -> ProblemResult:
        return ProblemResult(Problem("p", user_message("?"), "1", metadata={"subject": subject}), 1.0, (), 0.0)

    names = [key for key in summarize([result(f"s{i:05}") for i in range(500)]) if key.startswith("subject/")]
    assert len(names) == MOST_SUBJECTS + 1
    assert "subject/others" in names
    hostile = subject_name("../" + ESCAPES + "x" * 10**6)
    assert hostile.isprintable()
    assert len(hostile) <= LONGEST_SUBJECT
    assert "/" not in hostile
    assert subject_name("Counting & Probability") == "Counting & Probability"
    others = summarize(
        [*(result(f"a{i:02}") for i in range(MOST_SUBJECTS)), result("others"), result("p"), result("q")]
    )
    assert others["subject/others"] == 1.0


# --- names ---


@pytest.mark.parametrize("name", ["../a", "a/b", "..", ".a", "", "a\n", "a\x1b", "a" * 65, "a b", "ä"])
def test_an_agent_is_called_by_a_plain_word(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        MutualEnv(agents=[name], problems="arithmetic")


@pytest.mark.parametrize("author", ["../../x", "a\x1b[2J", "<b>", "a" * 65, ""])
def test_a_replayed_author_is_called_by_a_plain_word(tmp_path: Path, author: str) -> None:
    path = tmp_path / "exchange.jsonl"
    JsonlExchange([author], path=path).publish([Experience("p", author, 0, "stop", 0, text="x")])
    with pytest.raises(ValueError, match="an author called") as refused:
        ReplayExchange(MemoryExchange(["me"]), path)
    assert _harmless(str(refused.value))


def test_a_replayed_file_has_not_more_authors_than_there_can_be_metrics(tmp_path: Path) -> None:
    path = tmp_path / "exchange.jsonl"
    authors = [f"a{i}" for i in range(exchange_module.MOST_AUTHORS + 1)]
    JsonlExchange(authors, path=path).publish(Experience("p", author, 0, "stop", 0, text="x") for author in authors)
    with pytest.raises(ValueError, match="65 authors"):
        ReplayExchange(MemoryExchange(["me"]), path)


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "my.module:Verifier", "antigravity:x", "maths"])
def test_a_data_file_imports_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"problem": "p", "answer": "1", "verifier": name}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"column 'verifier'.* is not registered"):
        load_problem_file(path)
    assert load_problem_file(path, verifier="exact")[0].verifier == "exact"


# --- exchange files ---

SOUND = Experience(
    "p", "a", 0, "stop", 0, text="x", verdict=Verdict(1.0, "x", "right"), trace=Trace(((0, 1),), (-1.0,), -0.5)
)


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("text", "44", "text=44"),
        ("text", "[]", "text="),
        ("problem_id", "{}", "problem_id="),
        ("agent", "-0.5", "agent="),
        ("index", "true", "index="),
        ("index", "-1", "index="),
        ("index", '"0"', "index="),
        ("index", "1" + "0" * 400, "index="),
        ("index", "1" * 5000, ""),  # more digits than Python reads
        ("policy_version", "1.0", "policy_version="),
        ("finish_reason", '"tired"', "finish_reason="),
        ("finish_reason", "[[]]", "finish_reason="),
        ("advantage", "1e999", "advantage="),
        ("advantage", "NaN", "NaN"),
        ("advantage", "1" + "0" * 400, "advantage="),
        ("verdict", '{"score": 1, "extracted": null, "reason": "right", "detail": 0}', "detail="),
        ("verdict", '{"score": 1e999, "extracted": null, "reason": "right", "detail": ""}', "score="),
        ("verdict", "[]", "verdict="),
        ("verdict", "{}", "verdict="),
        ("trace", '{"spans": [[0, 1]], "logprobs": ["-1"], "eos_logprob": null}', "logprobs="),
        ("trace", '{"spans": [[0, 1e999]], "logprobs": [-1], "eos_logprob": null}', "spans="),
        ("trace", '{"spans": [[0, 1, 2]], "logprobs": [-1], "eos_logprob": null}', "spans="),
        ("trace", '{"spans": [[0, 1]], "logprobs": [-1e999], "eos_logprob": null}', "logprobs="),
        ("trace", '{"spans": [[0, 1]], "logprobs": [-1], "eos_logprob": "x"}', "eos_logprob="),
        ("text", "[" * 100_000 + "]" * 100_000, "without end"),
        ("verdict", '{"a":' * 100_000 + "1" + "}" * 100_000, "without end"),
    ],
)
def test_a_field_of_another_kind_is_refused(field: str, value: str, names: str) -> None:
    fields = json.loads(to_json(SOUND))
    fields[field] = "\0"
    line = json.dumps(fields).replace(json.dumps("\0"), value)
    with pytest.raises(ValueError, match=names) as refused:
        from_json(line)
    assert len(str(refused.value)) < 1000
    assert from_json(to_json(SOUND)) == SOUND


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exchange.jsonl"
    path.write_text(f"{to_json(SOUND)}\n{'x' * 5000}\n", encoding="utf-8")
    monkeypatch.setattr(exchange_module, "LONGEST_LINE", 1000)
    with pytest.raises(ValueError, match=r"line 2: .* more than 1,000 bytes"):
        list(read_jsonl(path))


# --- problem files ---

GOOD = {"problem": "p", "answer": "1"}


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ('"level": 1' + "0" * 400, None),
        ('"score": 1' + "0" * 400, None),
        ('"more": ' + "[" * 40 + "]" * 40, "within one another"),
        ('"more": ' + '{"a":' * 900 + "1" + "}" * 900, "within one another"),
        ('"more": ' + "[" * 100_000 + "]" * 100_000, "broken JSON|cannot be read"),
        ('"id": ' + json.dumps("x" * 10**5), None),
        ('"answer": 1' + "0" * 5000, "cannot be read"),
    ],
)
def test_what_fuzzing_found_in_rows(tmp_path: Path, cells: str, words: str | None) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{json.dumps(GOOD)[:-1]}, {cells}}}\n{{"problem": "q", "answer": "2"}}\n', encoding="utf-8")
    if words is None:
        first, _ = load_problem_file(path)
        assert "level" not in first.metadata
        json.dumps(dict(first.metadata), allow_nan=False)
        return
    with pytest.raises(ValueError, match=words) as refused:
        load_problem_file(path)
    assert len(str(refused.value)) < 2000


def test_a_long_line_is_one_malformed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 100)
    rows = [GOOD, {"problem": "q" * 950, "answer": "2"}, {"problem": "r", "answer": "3"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.warns(UserWarning, match="1 line too long"):
        found = load_problem_file(path, skip_invalid=True)
    assert [(problem.question, problem.id) for problem in found] == [("p", "rows-0"), ("r", "rows-2")]
    with pytest.raises(ValueError, match="line 2, more than 100 characters"):
        load_problem_file(path)
    table_path = tmp_path / "rows.csv"
    table_path.write_text(f"problem,answer\np,1\n{'q' * 950},2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 3: more than 100 characters"):
        load_problem_file(table_path)


def test_a_large_json_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LARGEST_JSON", 100)
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([GOOD] * 20), encoding="utf-8")
    with pytest.raises(ValueError, match=r"more than 100; write one object a line, as \.jsonl"):
        load_problem_file(path)


def test_a_large_row_group_of_parquet_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"problem": ["p" * 10_000], "answer": ["1"]}), path)
    assert len(load_problem_file(path)) == 1
    monkeypatch.setattr(readers, "LARGEST_GROUP", 1000)
    with pytest.raises(ValueError, match="more than 1,000; write it with smaller row groups"):
        load_problem_file(path)


FLIPPED = """
import pathlib, sys
from mrl_env.problems.files.source import load_problem_file

path = pathlib.Path(sys.argv[1])
whole = path.read_bytes()
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for position in range(footer, len(whole)):
    path.write_bytes(whole[:position] + bytes([whole[position] ^ 2]) + whole[position + 1 :])
    try:
        load_problem_file(path)
    except ValueError:
        pass
print("survived", len(whole) - footer)
"""


def test_a_damaged_footer_of_parquet_does_not_end_the_process(tmp_path: Path) -> None:
    """Found by fuzzing: PyArrow aborts when it is asked for some damaged columns."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"problem": ["p", "q"], "answer": ["1", "2"]}), path)
    done = subprocess.run([sys.executable, "-c", FLIPPED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 100


def test_a_header_of_many_columns_takes_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",".join(["a"] * 300_000) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"repeats the column names \['a'\]"):
        load_problem_file(path)


@pytest.mark.parametrize("entry", ["x", [], {"metadata": 5}, {"metadata": {"source_dataset": ["a"]}}, None])
def test_an_entry_of_another_kind_is_an_error_of_the_data(entry: Any) -> None:
    with pytest.raises(BadGoldError, match="entry"):
        get("reasoning_gym").verify(r"\boxed{1}", "1", entry=entry)
