"""What is fuzzed: for each target how an input is made, and what must hold for it.

A check raises whatever goes wrong: an exception of the code under test, or `BrokenError` where an invariant does not hold.
The `ValueError`s that the documentation promises for malformed input are caught here, and nothing else is.
"""

from __future__ import annotations

import functools
import json
import math
import random
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from benchmarks.fuzz import generators as g
from mrl_env.exchange import (
    CHANNELS,
    MemoryExchange,
    ReplayExchange,
    channel_record,
    from_json,
    read_jsonl,
    to_json,
)
from mrl_env.problems import load_problems
from mrl_env.spaces import RECORDS
from mrl_env.tokenization import DropReason, Retokenized, TextTokenizer, align, retokenize, word_boundaries
from mrl_env.types import Experience, FinishReason, Trace
from verifiers import REASONS, BadGoldError, Verdict, get
from verifiers.math.verifier import MathVerifier

Check = Callable[[Any], None]


class BrokenError(AssertionError):
    """An invariant that does not hold."""


@dataclass(frozen=True)
class Target:
    """One thing that is fuzzed.

    Attributes:
        name: what `--only` calls it.
        share: its part of all inputs.
        make: draws an input.
        prepare: loads what the check needs and gives the check.
    """

    name: str
    share: float
    make: Callable[[random.Random], Any]
    prepare: Callable[[], Check]


def require(holds: bool, what: str) -> None:
    """Raise `BrokenError` unless it holds."""
    if not holds:
        raise BrokenError(what)


# --- verifiers ---


def math_case(rng: random.Random) -> dict[str, str]:
    """A reference (sound or not), a completion, at times a question."""
    reference = g.answer(rng)
    question = "" if rng.random() < 0.5 else f"Compute ${g.mutated(rng, reference)}$. {g.text(rng, 20)}"
    return {"completion": g.completion(rng, reference), "answer": reference, "question": question}


def check_math() -> Check:
    """Twice the same verdict from verifiers with different memories; a reference that can be used is its own answer."""
    known, math_verifier = get("math"), MathVerifier

    def check(case: dict[str, str]) -> None:
        reference, question = case["answer"], case["question"]
        try:
            verdict = known.verify(case["completion"], reference, question=question)
        except BadGoldError:
            return
        again = math_verifier().verify(case["completion"], reference, question=question)
        if "timeout" not in (verdict.reason, again.reason):
            require(again == verdict, f"{verdict} and then {again}")
        _check_binary(verdict)
        # What is boxed whole is extracted whole only if its braces match and no box or tag of its own takes precedence.
        if (
            not set(reference) & set("<>{}#\\")
            and reference.strip(" $.,;:*\n")
            and len(reference) < 500
            and not reference.rstrip().endswith("^")
        ):
            own = known.verify(rf"\boxed{{{reference}}}", reference)
            require(own.reason in ("right", "no_answer"), f"the reference itself gets {own}")

    return check


def _check_binary(verdict: Verdict) -> None:
    require(verdict.score in (0.0, 1.0), f"score {verdict.score}")
    require((verdict.score == 1.0) == (verdict.reason == "right"), f"{verdict.reason} with score {verdict.score}")
    require(verdict.reason in REASONS, f"reason {verdict.reason}")
    require(verdict.reason not in ("error", "bad_gold"), f"{verdict}")
    require(verdict.score == 0.0 or verdict.extracted is not None, "rewarded without an answer")


_OTHERS: dict[str, Sequence[str]] = {
    "choice": ("A", "B", "C"),
    "boolean": ("yes", "no", "True", "0"),
    "exact": ("the cat", "42", r"\frac{1}{2}", "é"),
    "numeric": ("3.14159", "42", r"1\text{ m}", r"50\%", "1e300", "-0.001"),
    "regex": (r"\d+", "a+b", "[a-z ]*", r"(?:x|y)+z?"),
    "format": ("",),
}


def other_case(rng: random.Random) -> dict[str, Any]:
    """A verifier, a reference (at times a hostile one), a completion, for `choice` its options."""
    name = rng.choice([name for name in _OTHERS for _ in range(1 if name == "regex" else 4)])
    reference = rng.choice(_OTHERS[name])
    if name != "regex" and rng.random() < 0.15:  # a pattern is the user's own, and not foreign text
        reference = g.answer(rng)
    options = [rng.choice((g.text(rng, 8), g.answer(rng), "A", "red", "none of these")) for _ in range(3)]
    spoken = g.completion(rng, rng.choice([reference, *options]))
    return {"verifier": name, "completion": spoken, "answer": reference, "options": options}


def check_others() -> Check:
    """Twice the same verdict; a score of 0 or 1 that goes with the reason."""

    def check(case: dict[str, Any]) -> None:
        verifier = get(case["verifier"])
        about = {"options": case["options"]} if case["verifier"] == "choice" else {}
        try:
            verdict = verifier.verify(case["completion"], case["answer"], **about)
        except BadGoldError:
            return
        again = verifier.verify(case["completion"], case["answer"], **about)
        if "timeout" not in (verdict.reason, again.reason):
            require(again == verdict, f"{verdict} and then {again}")
        _check_binary(verdict)

    return check


# --- THL ---


def thl_case(rng: random.Random) -> dict[str, Any]:
    """Either a text (or ids, special and unknown ones too) that crosses from one tokenizer to another, or a text with two
    adversarial partitions of its bytes.
    """
    kind = rng.choice(("text", "text", "ids", "spans"))
    spoken = rng.choice((g.valid_text, g.answer, lambda r: g.completion(r, g.answer(r))))(rng)
    spoken = spoken.encode("utf-8", "ignore").decode(
        "utf-8"
    )  # what a tokenizer takes; records have the rest, in `exchange`
    if rng.random() < 0.1:
        spoken += rng.choice(("<|im_end|>", "</s>", "<s>", "<0x41>", "▁a", "Ġa", "<unk>", "<|begin_of_text|>", "�"))
    case: dict[str, Any] = {
        "kind": kind,
        "text": spoken[:4000],
        "source": rng.random(),
        "learner": rng.random(),
        "finish_reason": rng.choice(get_args(FinishReason)),
        "limit": rng.choice((0, 1, 5, 64, 10_000)),
        "logprobs": rng.getrandbits(32),
    }
    if kind == "ids":
        case["ids"] = [
            rng.choice((rng.randrange(300), rng.randrange(2000), rng.randrange(200_000), 0))
            for _ in range(rng.randint(0, 30))
        ]
    if kind == "spans":
        case["text"] = g.valid_text(rng, rng.choice((3, 30, 200)))
        length = len(case["text"].encode())
        case["spans"] = [g.cut(rng, length, rng.choice((0, 3, 40))) for _ in range(2)]
    return case


def tokenizers() -> list[TextTokenizer]:
    """Of the two embedded models, and three made here: bytes alone, byte-level merges of noise, SentencePiece-like."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from algorithms.pools import EMBEDDED, embedded_path

    found = [PreTrainedTokenizerFast.from_pretrained(str(embedded_path(name))) for name in EMBEDDED]
    rng = random.Random(0)
    corpus = [
        g.valid_text(rng) + g.completion(rng, g.answer(rng)).encode("utf-8", "ignore").decode() for _ in range(2000)
    ]
    for size in (256, 1500):
        bytewise = Tokenizer(models.BPE())
        bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=size == 1500, use_regex=size != 1500)
        bytewise.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        bytewise.train_from_iterator(
            corpus,
            trainers.BpeTrainer(
                vocab_size=size + 1, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
            ),
        )
        found.append(PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<end>"))
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"abcdefghijxyz0123456789+-=(){}\\",
    ]
    merges = [("▁", "a"), ("a", "b"), ("1", "2"), ("▁", "▁"), ("12", "3")]
    vocabulary = {token: i for i, token in enumerate([*tokens, *(left + right for left, right in merges)])}
    pieces = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    found.append(PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="<unk>", bos_token="<s>", eos_token="</s>"))
    return [TextTokenizer(tokenizer) for tokenizer in found]


def check_thl() -> Check:
    """Text is kept byte by byte, the mass of the log-probs up to rounding, and one tokenizer is the identity."""
    ready = tokenizers()

    def check(case: dict[str, Any]) -> None:
        if case["kind"] == "spans":
            sides = case["spans"]
            _check_alignment(case["text"], sides[0], sides[1], random.Random(case["logprobs"]))
            return
        source, learner = (ready[int(case[side] * len(ready))] for side in ("source", "learner"))
        _check_crossing(source, learner, case)

    return check


def _logprobs(count: int, rng: random.Random) -> list[float]:
    return [rng.choice((0.0, -rng.random(), -rng.expovariate(0.1), -1e-30, -1e4)) for _ in range(count)]


def _check_crossing(source: TextTokenizer, learner: TextTokenizer, case: dict[str, Any]) -> None:
    stopped = case["finish_reason"] == "stop"
    spoken = case["ids"] if case["kind"] == "ids" else source.encode(case["text"])
    logprobs = _logprobs(len(spoken) + stopped, random.Random(case["logprobs"]))
    trace = source.trace([*spoken, *[source.eos_token_id] * stopped], logprobs, stopped=stopped)
    written = source.decode(spoken).decode("utf-8", errors="replace")
    record = Experience("p", "a", 0, case["finish_reason"], 0, text=written, trace=trace)
    result = retokenize(learner, record, case["limit"])
    if not isinstance(result, Retokenized):
        require(result in get_args(DropReason), f"dropped as {result!r}")
        return
    require(len(result.token_ids) <= case["limit"], "longer than the limit")
    own = result.token_ids[:-1] if stopped else result.token_ids
    require(learner.decode(own) == written.encode(), "another text")
    require(not stopped or result.token_ids[-1] == learner.eos_token_id, "the end of sequence is lost")
    require(result.residual_bound >= 0 and math.isfinite(result.residual_bound), f"bound {result.residual_bound}")
    require(trace is None or result.logprobs is not None, "the trace is lost")
    if trace is not None and result.logprobs is not None:
        require(len(result.logprobs) == len(result.token_ids), "a trace of another length")
        scale = math.fsum(map(abs, (*trace.logprobs, trace.eos_logprob or 0.0)))
        require(abs(math.fsum(result.logprobs) - trace.total) <= 1e-9 * scale, "mass is lost")
        if source is learner and list(own) == list(spoken):
            require(list(result.logprobs) == logprobs, "one tokenizer is not the identity")


def _check_alignment(
    text: str, source: list[tuple[int, int]], target: list[tuple[int, int]], rng: random.Random
) -> None:
    """Of each word by itself, with its boundaries looked up anew: the mass, its even spread, and the bound."""
    logprobs = _logprobs(len(source), rng)
    aligned, bounds = align(text, source, logprobs, target)
    require(len(aligned) == len(bounds) == len(target), "another length")
    require(abs(math.fsum(aligned) - math.fsum(logprobs)) <= 1e-9 * math.fsum(map(abs, logprobs)), "mass is lost")
    if source == target:
        require(aligned == logprobs, "equal partitions are not the identity")
        return
    places = word_boundaries(text, source, target)
    encoded = text.encode()
    for start, end in pairwise(places):
        require(start == 0 or encoded[start:].decode()[0].isspace(), f"a word begins at byte {start} without a space")
        inside = [i for i, span in enumerate(target) if start <= span[0] and span[1] <= end]
        mass = math.fsum(p for p, span in zip(logprobs, source, strict=True) if start <= span[0] and span[1] <= end)
        require(
            bool(inside) and target[inside[0]][0] == start and target[inside[-1]][1] == end, "a token crosses a word"
        )
        for i in inside:
            require(math.isclose(aligned[i], mass / len(inside), rel_tol=1e-9, abs_tol=1e-12), "an uneven word")
            require(
                math.isclose(bounds[i], abs(mass) * (1 - 1 / len(inside)), rel_tol=1e-9, abs_tol=1e-9), "a wrong bound"
            )


# --- exchange ---

_AUTHORS = ("policy_0", "policy_1", "a", "b.c", "x-1")


def experience(rng: random.Random) -> Experience:
    """A sound record."""
    spoken = g.text(rng) if rng.random() < 0.9 else None
    spans = g.cut(rng, len(spoken.encode("utf-8", "ignore")), rng.randint(0, 6)) if spoken else []
    stopped = rng.random() < 0.5
    trace = Trace(tuple(spans), tuple(_logprobs(len(spans), rng)), -rng.random() if stopped else None)
    return Experience(
        problem_id=rng.choice(("p0", "p1", g.text(rng, 10) or "p")),
        agent=rng.choice(_AUTHORS),
        index=rng.randint(0, 9),
        finish_reason=rng.choice(get_args(FinishReason)),
        policy_version=rng.choice((0, 1, 10**6)),
        text=spoken,
        verdict=rng.choice(
            (None, Verdict(rng.choice((None, 0.0, 0.3, 1.0)), g.text(rng, 9), rng.choice(REASONS), g.text(rng, 9)))
        ),
        advantage=rng.choice((None, 0.0, -0.5, 1e300)),
        trace=rng.choice((None, trace)),
    )


def exchange_case(rng: random.Random) -> bytes:
    """Lines of an exchange file: sound, with a field of another kind, with flipped bytes, or plain JSON."""
    return b"\n".join(_exchange_line(rng) for _ in range(1 if rng.random() < 0.8 else rng.randint(2, 6)))


def _exchange_line(rng: random.Random) -> bytes:
    draw = rng.random()
    if draw < 0.05:
        return g.to_json(g.json_value(rng)).encode()
    line = to_json(experience(rng))
    if draw < 0.3:
        return line.encode()
    record = json.loads(line)
    place = record
    if draw < 0.75:
        inner = [value for value in record.values() if isinstance(value, dict)]
        if inner and rng.random() < 0.5:
            place = rng.choice(inner)
        key = rng.choice([*place, g.text(rng, 6)])
        change = rng.randrange(4)
        if change == 0:
            place.pop(key, None)
        elif change == 1 and isinstance(place.get(key), list):
            place[key] = [*place[key], g.json_value(rng, 2)]
        else:
            place[key] = g.json_value(rng, 2)
        return g.to_json(record).encode()
    return g.mutated_bytes(rng, line.encode())


def check_exchange() -> Check:
    """A line is a `ValueError`, or a record that is written and read again, fits the spaces, and can be retokenized."""
    learner = tokenizers()[0]
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")  # goes with the closure
    path = Path(folder.name, "exchange.jsonl")
    sampling = random.Random(0)

    def check(content: bytes) -> None:
        lines = content.split(b"\n")
        sound: list[Experience] = []
        for line in lines:
            try:
                sound.append(from_json(line))
            except ValueError:
                continue
        for record in sound:
            require(from_json(to_json(record)) == record, "written and read it is another record")
            for channel in CHANNELS:
                shown = channel_record(record, channel)
                require(
                    RECORDS[channel].feature_space.contains(shown), f"outside the space of {channel}: {shown!r:.300}"
                )
            if record.text is not None:
                retokenize(learner, record, 1000)
            hash(record)
        if len(lines) > 1 or sampling.random() < 0.05:
            _check_file(path, content, len(lines) if len(sound) == len(lines) else None)

    check.folder = folder  # type: ignore[attr-defined]
    return check


def _check_file(path: Path, content: bytes, records: int | None) -> None:
    """The lines as a file, and as a run that is replayed."""
    path.write_bytes(content)
    try:
        found = list(read_jsonl(path))
    except ValueError:
        require(records is None, "sound lines, but a file that cannot be read")
        return
    require(len(found) == records, "lines are lost")
    try:
        exchange = ReplayExchange(MemoryExchange(["me"]), path)
    except ValueError:  # an author's name that is none
        return
    (view,) = exchange.view("me", [found[0].problem_id])
    require(all(record.agent.startswith("replay:") for record in view), "a replayed record passes for a living agent's")


# --- problem files ---

_ROWS: tuple[dict[str, Any], ...] = (
    {"problem": "What is 1 + 1?", "answer": "2"},
    {"question": "How many?", "answer": "6 * 3 = 18.\n#### 18", "type": "Prealgebra", "level": "Level 1"},
    {"problem": "Solve.", "solution": r"So $x = \boxed{\frac{1}{2}}$.", "level": 5, "id": "p-7"},
    {"question": "Which?", "options": ["red", "green", "blue"], "answer": "B", "subject": "colours"},
    {
        "question_stem": "Which?",
        "choices": {"text": ["a", "b"], "label": ["1", "2"]},
        "answerKey": "2",
        "verifier": "choice",
    },
    {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 * 7?"}], "answer": 42},
)
_COLUMNS = sorted({column for row in _ROWS for column in row} | {"metadata", "completion", "self", "entry", "question"})


def problem_case(rng: random.Random) -> dict[str, Any]:
    """A file of one to four rows in one of the formats, and how it is read."""
    rows = [_row(rng) for _ in range(rng.randint(1, 4))]
    suffix = rng.choice((".jsonl", ".jsonl", ".json", ".csv", ".parquet"))
    content = _written(rng, rows, suffix)
    if rng.random() < 0.3:
        content = g.mutated_bytes(rng, content)
    return {
        "suffix": suffix,
        "content": content,
        "domain": rng.choice((None, None, "choice", "gsm8k")),
        "options": {"skip_invalid": rng.random() < 0.5, **({"limit": 1} if rng.random() < 0.1 else {})},
    }


def _row(rng: random.Random) -> Any:
    row: Any = dict(rng.choice(_ROWS))
    for _ in range(rng.choice((0, 0, 1, 2))):
        column = rng.choice([*_COLUMNS, g.text(rng, 8)])
        row[column] = rng.choice((g.answer, g.text, g.json_value, g.valid_text))(rng)
    return g.json_value(rng, 2) if rng.random() < 0.03 else row


def _written(rng: random.Random, rows: list[Any], suffix: str) -> bytes:
    if suffix == ".jsonl":
        return "\n".join(g.to_json(row) for row in rows).encode()
    if suffix == ".json":
        return g.to_json(rng.choice((rows, rows, {"data": rows}, rows[0]))).encode()
    flat = [row if isinstance(row, dict) else {"problem": str(row)} for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    if suffix == ".csv":
        cells = [[_cell(row.get(column, "")) for column in columns] for row in flat]
        quoted = [
            ['"' + cell.replace('"', '""') + '"' if rng.random() < 0.95 else cell for cell in line]
            for line in [columns, *cells]
        ]
        return "\n".join(map(",".join, quoted)).encode("utf-8", "surrogatepass")
    return _parquet(flat, columns)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else g.to_json(value)


def _parquet(rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    arrays = []
    for column in columns:
        values = [row.get(column) for row in rows]
        try:
            arrays.append(pyarrow.array(values))
        except (
            pyarrow.ArrowException,
            OverflowError,
            UnicodeEncodeError,
            ValueError,
        ):  # of several kinds, or too large
            arrays.append(pyarrow.array([_cell(value).encode("utf-8", "ignore").decode() for value in values]))
    names = [column.encode("utf-8", "ignore").decode() for column in columns]
    sink = pyarrow.BufferOutputStream()
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), sink)
    except pyarrow.ArrowException:  # objects without fields, which the format has no place for
        pyarrow.parquet.write_table(pyarrow.table({"problem": ["p"], "answer": ["1"]}), sink)
        return bytes(sink.getvalue().to_pybytes()) + b"PAR1"
    return bytes(sink.getvalue().to_pybytes())


def check_problems() -> Check:
    """A file is a `ValueError` or problems that can be written as UTF-8 and JSON, with known verifiers and distinct ids."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")

    def check(case: dict[str, Any]) -> None:
        path = Path(folder.name, f"rows{case['suffix']}")
        path.write_bytes(case["content"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                source = load_problems(str(path), domain=case["domain"], **case["options"])
            except ValueError as error:
                require(len(str(error)) < 20_000, "an error message of more than 20,000 characters")
                return
        problems = [source[i] for i in range(len(source))]
        require(len({problem.id for problem in problems}) == len(problems), "two problems with one id")
        for problem in problems:
            require(bool(problem.question.strip()) and bool(problem.answer.strip()), "a blank question or answer")
            get(problem.verifier)
            written = json.dumps([problem.messages, problem.metadata], allow_nan=False, ensure_ascii=False)
            f"{written}{problem.id}{problem.answer}".encode()
            replace(problem)

    check.folder = folder  # type: ignore[attr-defined]
    return check


@functools.cache
def targets() -> tuple[Target, ...]:
    """All targets; the shares add up to 1."""
    return (
        Target("math", 0.15, math_case, check_math),
        Target("others", 0.25, other_case, check_others),
        Target("thl", 0.25, thl_case, check_thl),
        Target("exchange", 0.3, exchange_case, check_exchange),
        Target("problems", 0.05, problem_case, check_problems),
    )
