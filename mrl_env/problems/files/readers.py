"""From a file to its rows: one generator for each format, which says for every row where it stands.

A row is a mapping from column to value, or a `RowError` where the row cannot even be read. What makes the rest of the
file unreadable (a missing bracket in a whole JSON file, an open quote in CSV) is a `ValueError` that names the place.
Files are UTF-8; bytes that are not are kept as lone surrogates, so that `rows` can point at the one cell that has them.
What is held in memory at a time is bounded, whatever the file: a line, a JSON file, a few rows of Parquet.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from mrl_env.problems.files.rows import RowError
from verifiers.printing import shown

Cells = Mapping[str, Any]
Rows = Iterator[tuple[str, Cells | RowError]]
"""Where the row stands (`"line 3"`, `"row 3"`, counted from 1), and the row."""

LONGEST_LINE = 1 << 24
"""Characters of one line of JSONL or CSV."""

LARGEST_JSON = 1 << 30
"""Bytes of a JSON file, which is parsed as a whole."""

LARGEST_GROUP = 1 << 30
"""Bytes of one row group of a Parquet file, uncompressed."""

PARQUET_ROWS = 8
"""Rows that are decoded at a time: each may hold the largest value of its column."""


def read_jsonl(path: Path) -> Rows:
    """One JSON object a line; blank lines are passed over."""
    # JSON strings may hold U+2028 and its like, which are no line ends of the format.
    with _text(path, newline="\n") as file:
        for number, line in enumerate(_lines(file), start=1):
            if len(line) > LONGEST_LINE:
                yield (
                    f"line {number}",
                    RowError("line too long", f"more than {LONGEST_LINE:,} characters; cut the line"),
                )
            elif line.strip():
                yield f"line {number}", _parse_object(line.removesuffix("\n"))


def read_json(path: Path) -> Rows:
    """A list of objects, or an object whose `data` is one.

    Raises:
        ValueError: if the file is broken JSON (naming the line), or neither of the two.
    """
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(
            f"{path}: {size:,} bytes of JSON are more than {LARGEST_JSON:,}; write one object a line, as .jsonl"
        )
    with _text(path) as file:
        text = file.read()
    if not text.strip():
        return
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}, character {error.colno}: broken JSON ({error.msg}); repair it, "
            "or name the file .jsonl if it has one object a line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: JSON that cannot be read ({error!s:.200}); repair it") from error
    rows = content.get("data") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        found = f"an object with the keys {shown(list(content))}" if isinstance(content, dict) else shown(content)
        raise ValueError(f'{path}: holds {found}; give a list of objects, or {{"data": [...]}}')
    yield from at_rows(rows)


def read_csv(path: Path) -> Rows:
    """Comma-separated, quoted with `"`, the first record being the column names. An empty cell is a missing value.

    A row's place is the line that it begins on.

    Raises:
        ValueError: on a repeated column name, or an open quote (naming the line).
    """
    header: list[str] = []
    begin = 1
    with _text(path, newline="") as file:
        reader = csv.reader(_short_lines(file, path), strict=True)
        try:
            for record in reader:
                place, begin = f"line {begin}", reader.line_num + 1
                if not record:
                    continue
                if header:
                    yield place, _csv_cells(header, record)
                    continue
                header = [name.strip() for name in record]
                if repeated := sorted(name for name, count in Counter(header).items() if count > 1):
                    raise ValueError(
                        f"{path}, {place}: repeats the column names {shown(repeated)}; rename all but one of each"
                    )
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {begin}: broken CSV ({error}); look for an open quote from there on"
            ) from error


def read_parquet(path: Path) -> Rows:
    """The rows of a Parquet file, through PyArrow.

    Raises:
        ValueError: if PyArrow is not installed, or finds no Parquet file.
    """
    parquet = import_extra("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            # Of the groups, not of their columns: to ask for a damaged one ends the process (PyArrow 26, found by fuzzing).
            sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
            if max(sizes, default=0) > LARGEST_GROUP:
                raise ValueError(
                    f"{path}: a row group has {max(sizes):,} bytes, more than {LARGEST_GROUP:,}; write it with smaller row "
                    "groups"
                )
            yield from at_rows(row for batch in file.iter_batches(PARQUET_ROWS) for row in batch.to_pylist())
    except (importlib.import_module("pyarrow").ArrowException, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({error}); write it anew, or correct its name") from error


READERS: Mapping[str, Callable[[Path], Rows]] = {
    ".csv": read_csv,
    ".json": read_json,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
"""The reader for each file name extension."""


def at_rows(rows: Iterable[Any]) -> Rows:
    """Rows that have no lines, each with its number; a `RowError` for what is no mapping from column to value."""
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row if isinstance(row, dict) else _not_an_object(row)


def import_extra(module: str) -> Any:
    """A module of the extra `data`, imported when it is first needed.

    Raises:
        ValueError: if it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{module.partition('.')[0]!r} cannot be imported ({error}); run: pip install 'mutual-rl[data]'"
        ) from error


@contextmanager
def _text(path: Path, newline: str = "\n") -> Iterator[TextIO]:
    """The file as text, behind its byte order mark; bytes that are not UTF-8 are lone surrogates."""
    with path.open(encoding="utf-8", errors="surrogateescape", newline=newline) as file:
        start = file.read(1)
        # The bytes FF and FE, which begin UTF-16, are never part of UTF-8.
        if start in ("\udcff", "\udcfe"):
            raise ValueError(f"{path}, line 1: begins like UTF-16, not UTF-8; save the file as UTF-8")
        if start != "\ufeff":
            file.seek(0)
        yield file


def _lines(file: TextIO) -> Iterator[str]:
    """The lines with their ends; of one that is too long its first characters, one more than a line may have."""
    while line := file.readline(LONGEST_LINE + 1):
        yield line
        while len(line) > LONGEST_LINE and not line.endswith("\n"):
            line = file.readline(LONGEST_LINE + 1)


def _short_lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of CSV, where a line too long leaves no place to go on from."""
    for number, line in enumerate(_lines(file), start=1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"{path}, line {number}: more than {LONGEST_LINE:,} characters; cut the line")
        yield line


def _parse_object(line: str) -> Cells | RowError:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        near = shown(line[max(error.pos - 20, 0) : error.pos + 20])
        return RowError(
            "broken JSON", f"character {error.colno}: broken JSON ({error.msg}) near {near}; write one object a line"
        )
    except (ValueError, RecursionError) as error:
        return RowError("broken JSON", f"JSON that cannot be read ({error!s:.200}); write one flat object a line")
    return row if isinstance(row, dict) else _not_an_object(row)


def _not_an_object(row: Any) -> RowError:
    return RowError("not an object", f"{shown(row)} is no object; write one object with named columns")


def _csv_cells(header: list[str], record: list[str]) -> Cells | RowError:
    if len(record) != len(header):
        return RowError(
            "wrong number of cells",
            f"{len(record)} cells under {len(header)} column names, the last being {shown(record[-1])}; "
            'put a cell that has commas, quotes or line breaks in "..."',
        )
    return {name: cell or None for name, cell in zip(header, record, strict=True)}
