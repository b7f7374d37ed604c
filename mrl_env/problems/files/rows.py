r"""From one row to one `Problem`: which columns are understood, and what is wrong with a row that is not.

| column | becomes |
|---|---|
| `problem`, `question`, `prompt` or `question_stem` | the question: text, or a list of chat messages, the last the user's |
| `answer_full`, `answer` or `answerKey` | the reference answer, as it is; after the last `####` if it has one (GSM8K) |
| `solution` | metadata; without an answer column, the reference is in its last `\boxed{}`, or after its last `####` |
| `options` or `choices` | a multiple-choice problem: a list of texts, or `{"text": [...], "label": [...]}` |
| `subject` or `type` | metadata `subject` |
| `level` | metadata `level`, a whole number, also from "Level 5"; left out if it is none (MATH has "Level ?") |
| `id` | the problem's id; without it `<stem>-<row>`, rows counted from 0 |
| `verifier` | name of a registered verifier; a dotted path would let a data file run code, and is refused |
| any other | metadata under its own name, if the value is a JSON value |

Where several names are listed the first that has a value counts; null is no value.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from mrl_env.types import VERIFIER_ARGUMENTS, Message, Problem, user_message
from verifiers.extraction import boxes
from verifiers.printing import shown
from verifiers.registry import names

QUESTION_COLUMNS = ("problem", "question", "prompt", "question_stem")
# `answer_full` first: in MATH's test split it has what `answer`, the last of several boxes, is only a part of.
ANSWER_COLUMNS = ("answer_full", "answer", "answerKey")
OPTION_COLUMNS = ("options", "choices")
SUBJECT_COLUMNS = ("subject", "type")

DEEPEST = 32
"""Lists and objects within one another that a cell may have."""


class RowError(ValueError):
    """A malformed row.

    Attributes:
        reason: two or three words, the same for the same mistake, for counting.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def parse_row(cells: Mapping[str, Any], default_id: str, *, verifier: str | None = None) -> Problem:
    r"""The problem that a row describes.

    Args:
        cells: column to value.
        default_id: the problem's id where the row has none.
        verifier: takes the place of the row's own.

    Raises:
        RowError: naming the column, the value found and the remedy.

    Example:
        >>> row = {"question": "What is 6 times 3?", "answer": "6 * 3 = 18.\n#### 18", "type": "Prealgebra", "level": 1}
        >>> problem = parse_row(row, "mine-0")
        >>> problem.id, problem.answer, problem.metadata["subject"], problem.metadata["level"]
        ('mine-0', '18', 'Prealgebra', 1)
    """
    _check_depth(cells)
    _check_unicode(cells)
    question_column = _first(cells, QUESTION_COLUMNS, "question")
    messages = _messages(question_column, cells[question_column])
    answer, solution = _answer(cells)
    options = None
    options_column = _given(cells, OPTION_COLUMNS)
    if options_column is not None:
        options, labels = _options(options_column, cells[options_column])
        answer = _letter(cells, answer, options, labels)
        messages = _append(messages, lettered(options))
    subject_column = _given(cells, SUBJECT_COLUMNS)
    understood = {"id", "level", "solution", question_column, options_column, subject_column}
    understood |= {*ANSWER_COLUMNS, *VERIFIER_ARGUMENTS}
    metadata = {
        **{name: value for name, value in cells.items() if name not in understood and _is_json(value)},
        "subject": _text(cells, subject_column) if subject_column else None,
        "level": _level(cells.get("level")),
        "solution": solution,
        "options": options,
    }
    return Problem(
        id=_text(cells, "id") or default_id,
        messages=messages,
        answer=answer,
        verifier=verifier or _verifier(cells) or ("math" if options is None else "choice"),
        metadata={name: value for name, value in metadata.items() if value is not None},
    )


def lettered(options: Sequence[str]) -> str:
    r"""The options as a question shows them, a line each.

    Example:
        >>> lettered(["grass", "the sky"])
        'A. grass\nB. the sky'
    """
    return "\n".join(f"{letter}. {option}" for letter, option in zip(string.ascii_uppercase, options, strict=False))


def solution_answer(text: str) -> str | None:
    r"""The final answer of a worked solution: in the last complete box, or else after the last `####`.

    Args:
        text: LaTeX, or GSM8K's plain text.

    Returns:
        The answer as it stands in the box, or what follows `####` less the space around it; None if there is neither.

    Example:
        >>> solution_answer(r"So $x = \boxed{\frac{1}{2}}$, and \boxed{this never ends.")
        '\\frac{1}{2}'
    """
    found = boxes(text)
    return found[-1][2] if found else _after_hashes(text)


def _after_hashes(text: str) -> str | None:
    _, hashes, after = text.rpartition("####")
    return after.strip() if hashes else None


def _given(cells: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The first of these columns that has a value."""
    return next((column for column in columns if cells.get(column) is not None), None)


def _first(cells: Mapping[str, Any], columns: Sequence[str], what: str) -> str:
    """The same where there must be one."""
    column = _given(cells, columns)
    if column is not None:
        return column
    for present in columns:
        if present in cells:
            raise RowError(f"empty {what}", f"column {present!r}: has no value; give the {what}")
    raise RowError(
        "missing column",
        f"no column for the {what} ({', '.join(columns)}); there is: {', '.join(map(shown, list(cells)[:20]))}",
    )


def _text(cells: Mapping[str, Any], column: str) -> str | None:
    """The column's value as text: numbers are written out, null and blank text are None."""
    value = cells.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        return value
    if _is_number(value):
        return str(value)
    raise RowError(
        f"wrong type in {column!r}", f"column {column!r}: {shown(value)} is neither text nor a number; write it as text"
    )


def _verifier(cells: Mapping[str, Any]) -> str | None:
    """The row's own verifier, which must be registered: to import what a data file names would be to run its code."""
    name = _text(cells, "verifier")
    if name is not None and name not in names():
        raise RowError(
            "unknown verifier",
            f"column 'verifier': {shown(name)} is not registered (known: {', '.join(names())}); register it, or give "
            "a dotted path for all rows as the option verifier",
        )
    return name


def _answer(cells: Mapping[str, Any]) -> tuple[str, str | None]:
    """The reference answer, and the worked solution if there is one."""
    column = _first(cells, (*ANSWER_COLUMNS, "solution"), "answer")
    text, solution = _text(cells, column) or "", _text(cells, "solution")
    reference: str | None = text
    if column == "solution":
        reference = solution_answer(text)
    elif "####" in text:
        reference, solution = _after_hashes(text), solution or text
    if reference is None:
        raise RowError(
            "no answer in the solution",
            f"column 'solution': {shown(text)} has neither a complete \\boxed{{}} nor '####'; add a column 'answer'",
        )
    if not reference.strip():
        raise RowError("empty answer", f"column {column!r}: {shown(cells[column])} holds no answer; give the answer")
    return reference, solution


def _options(column: str, value: Any) -> tuple[list[str], list[str]]:
    """The options' texts, and their labels if the column has some; in a text cell both are written as JSON."""
    remedy = 'write a list of 2 to 26 texts, or {"text": [...], "label": [...]}'
    texts: Any = _from_json(value) if isinstance(value, str) else value
    labels: Any = []
    if isinstance(texts, dict):
        texts, labels = texts.get("text"), texts.get("label")
    if not (isinstance(texts, list) and isinstance(labels, list) and len(labels) in (0, len(texts))):
        raise RowError("malformed options", f"column {column!r}: {shown(value)} is no list of options; {remedy}")
    if not (2 <= len(texts) <= 26 and all(isinstance(text, str) or _is_number(text) for text in texts + labels)):
        raise RowError("malformed options", f"column {column!r}: {shown(value)} does not do as options; {remedy}")
    return [str(text) for text in texts], [str(label) for label in labels]


def _letter(cells: Mapping[str, Any], answer: str, options: list[str], labels: list[str]) -> str:
    """The letter of the right option; the answer gives it as a label, an index from 0, a letter, or the option's text.

    Only a whole number, not text, is an index, as it is on the hub; where labels are numbers, the labels count.
    """
    letters = string.ascii_uppercase[: len(options)]
    column = _given(cells, ANSWER_COLUMNS)
    index = cells[column] if column else None
    answer = answer.strip()
    if answer in labels:
        return letters[labels.index(answer)]
    if isinstance(index, int) and 0 <= index < len(options):
        return letters[index]
    if len(answer) == 1 and answer in letters:
        return answer
    if options.count(answer) == 1:
        return letters[options.index(answer)]
    raise RowError(
        "answer is no option",
        f"column {column or 'solution'!r}: {shown(answer)} names none of the {len(options)} options, or several; "
        f"give one of the letters {', '.join(letters)}",
    )


def _messages(column: str, value: Any) -> tuple[Message, ...]:
    """The question as chat messages: `role` and `content` of each, whatever else they hold."""
    if isinstance(value, str):
        if not value.strip():
            raise RowError("empty question", f"column {column!r}: {shown(value)} is blank; give the question")
        listed = _from_json(value) if value.startswith("[{") else None
        if not (isinstance(listed, list) and all("role" in message for message in listed if isinstance(message, dict))):
            return user_message(value)
        value = listed
    if not (isinstance(value, list) and value and all(_is_message(message) for message in value)):
        raise RowError(
            f"wrong type in {column!r}",
            f"column {column!r}: {shown(value)} is no question; write text, or chat messages "
            '[{"role": "user", "content": "..."}]',
        )
    if value[-1]["role"] != "user":
        raise RowError(
            "question does not end with the user",
            f"column {column!r}: the last message is by {shown(value[-1]['role'])}; end with the user's question",
        )
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    role, content = value.get("role"), value.get("content")
    return isinstance(role, str) and isinstance(content, str) and bool(role and content.strip())


def _append(messages: tuple[Message, ...], line: str) -> tuple[Message, ...]:
    """The conversation with one more line under the question."""
    last = messages[-1]
    return (*messages[:-1], {**last, "content": f"{last['content']}\n{line}"})


def _level(value: Any) -> int | None:
    if isinstance(value, str):
        match = re.fullmatch(r"(?:level)?\s*(\d{1,9})", value.strip(), re.IGNORECASE)
        return int(match[1]) if match else None
    return int(value) if _is_number(value) and value == int(value) and abs(value) < 10**9 else None


def _from_json(text: str) -> Any:
    """What the text says in JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_json(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _check_depth(cells: Mapping[str, Any]) -> None:
    """What is nested without end would exhaust the stack of whoever walks through it."""
    for column, value in cells.items():
        if _is_deeper(value, DEEPEST):
            raise RowError(
                "nested too deeply",
                f"column {shown(column)}: more than {DEEPEST} lists or objects within one another; write it flatter",
            )


def _is_deeper(value: Any, limit: int) -> bool:
    if not isinstance(value, list | tuple | dict):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(_is_deeper(item, limit - 1) for item in inner)


def _check_unicode(cells: Mapping[str, Any]) -> None:
    """Lone surrogates (as which bytes that are not UTF-8 arrive here) could be neither tokenized nor written out."""
    for column, value in cells.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        try:
            f"{column}{text}".encode()
        except UnicodeEncodeError as error:
            near = shown(error.object[max(error.start - 20, 0) : error.start + 20])
            raise RowError(
                "not UTF-8", f"column {column!r}: near {near} it is not valid UTF-8; save the file as UTF-8"
            ) from error
