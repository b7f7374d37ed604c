"""What a run leaves to read: metrics.jsonl, completions.jsonl, and one TensorBoard event folder per policy and for the pool."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

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
        self._writers: dict[str, SummaryWriter] = {}
        for name in RECORD_FILES:
            truncate(folder / name, (sizes or {}).get(name, 0))

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
            self._writer(name).add_scalar(f"{group}/{key}", value, step)
        append_jsonl(self._folder / "metrics.jsonl", [line])

    def completions(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Record sampled completions."""
        append_jsonl(self._folder / "completions.jsonl", records)

    def flush(self) -> None:
        """Write out what TensorBoard still buffers."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, name: str) -> SummaryWriter:
        if name not in self._writers:
            self._writers[name] = SummaryWriter(
                str(self._folder / "tensorboard" / name), purge_step=self._start_step + 1 if self._start_step else None
            )
        return self._writers[name]


def append_jsonl(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records to a JSON Lines file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


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
