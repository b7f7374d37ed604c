"""What a run leaves to read: metrics.jsonl, completions.jsonl, and one TensorBoard event folder per policy and for the pool."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from algorithms.checkpoints import sync
from verifiers.printing import printable

POOL = "pool"

TIME_KEYS = ("step_time", "time/")
"""Metrics that hold seconds; two runs of one seed agree in all the others."""


RECORD_FILES = ("metrics.jsonl", "completions.jsonl", "exchange.jsonl")


class Tracker:
    """Writes the records of a run. Lines are flushed as they are written.

    Args:
        folder: the run's output folder.
        start_step: steps done so far; whatever an interrupted run wrote behind it is removed.
        sizes: bytes of each record file after `start_step`, as `sizes()` gave them then.
    """

    def __init__(self, folder: Path, start_step: int = 0, sizes: Mapping[str, int] | None = None) -> None:
        self._folder = folder
        self._start_step = start_step
        self._curves: dict[str, EventFile] = {}
        self.cut(sizes or {})

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Cut the record files to what they were when `sizes` were taken; see `truncate`.

        Raises:
            ValueError: if one is shorter than that.
        """
        for name in RECORD_FILES:
            truncate(self._folder / name, sizes.get(name, 0))

    def sizes(self) -> dict[str, int]:
        """Bytes of each record file."""
        files = {name: self._folder / name for name in RECORD_FILES}
        return {name: path.stat().st_size for name, path in files.items() if path.exists()}

    def metrics(self, step: int, name: str, group: str, values: Mapping[str, float]) -> None:
        """Record one policy's (or the pool's) metrics of a step.

        Args:
            step: 1, 2, ... for training; also 0 for evaluation.
            name: a policy's name, or `POOL`.
            group: `train` or `eval`; becomes the prefix of TensorBoard tags and the keys.
            values: metric to value; values that are not finite are written as strings.
        """
        line: dict[str, Any] = {"step": step, "policy": name}
        for key, value in values.items():
            line[f"{group}/{key}"] = value if math.isfinite(value) else str(value)
            self._curve(name).scalar(f"{group}/{key}", value, step)
        append_jsonl(self._folder / "metrics.jsonl", [line])

    def completions(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Record sampled completions."""
        append_jsonl(self._folder / "completions.jsonl", records)

    def flush(self) -> None:
        """Write out what TensorBoard still buffers, and wait until all records are on the disk."""
        for curve in self._curves.values():
            curve.flush()
        sync(*(self._folder / name for name in self.sizes()), *self._folder.glob("tensorboard/*/events.*"))

    def close(self) -> None:
        """Close all files."""
        curves = list(self._curves.values())
        self._curves.clear()
        for curve in curves:
            curve.close()

    def _curve(self, name: str) -> EventFile:
        if name not in self._curves:
            self._curves[name] = EventFile(self._folder / "tensorboard" / name, self._start_step)
        return self._curves[name]


class EventFile:
    """A TensorBoard event file, written by the caller's own thread: what cannot be written is an error there and then.

    Args:
        folder: made if missing; the file comes behind those that are there, whatever the clock says, since TensorBoard reads
            them by name.
        start_step: what earlier files say of later steps is void.
    """

    def __init__(self, folder: Path, start_step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(path.name.split(".")[3]) for path in folder.glob("events.out.tfevents.*")]
        self._file = (folder / f"events.out.tfevents.{max(numbers, default=0) + 1:010d}").open("xb")
        self._records = RecordWriter(self._file)
        self._write(Event(file_version="brain.Event:2"))
        if start_step:
            self._write(Event(step=start_step + 1, session_log=SessionLog(status=SessionLog.START)))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add a point to a curve."""
        self._write(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))

    def flush(self) -> None:
        """Hand everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Flush, and close the file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())


def append_jsonl(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records to a JSON Lines file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON Lines file.

    Raises:
        ValueError: naming the first line that is none.
    """
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number} is no JSON ({error}); restore the file, or remove the line"
            ) from error
    return records


def evaluations(run: Path) -> dict[str, list[dict[str, float]]]:
    """For each policy, and the pool, its evaluations from first to last, keys without the prefix `eval/`.

    Raises:
        ValueError: if the folder holds no run.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise ValueError(f"{run} has no metrics.jsonl; give the output_dir of a run")
    found: dict[str, list[dict[str, float]]] = {}
    for line in read_jsonl(path):
        values = {key.removeprefix("eval/"): value for key, value in line.items() if key.startswith("eval/")}
        if values:
            found.setdefault(line["policy"], []).append(values)
    return found


def truncate(path: Path, size: int) -> None:
    """Cut a file to what it was at a checkpoint: the steps behind it are done again, their lines must not stand twice.

    Raises:
        ValueError: if the file is shorter than that, so that lines are missing.
    """
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise ValueError(f"{path} has {found} bytes, but had {size} at the checkpoint; restore it, or begin a new run")
    if found > size:
        with path.open("r+b") as file:
            file.truncate(size)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain-text table, fit for a terminal: the first column to the left, the others to the right."""
    header, rows = [printable(cell) for cell in header], [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
