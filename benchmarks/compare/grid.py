"""The grid: methods x pools x seeds as cells, each a run in a process of its own; finished ones are reused, others go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch

from algorithms.config import TrainingConfig
from algorithms.options import AdapterOptions, VllmOptions
from algorithms.setup import make_env
from algorithms.tracking import table
from benchmarks.compare.measure import Measurement
from benchmarks.compare.methods import method_settings
from benchmarks.compare.pools import Pool, settings_hash
from benchmarks.compare.run import Job
from mrl_env.exchange import MemoryExchange

COMMON: dict[str, Any] = {
    "problems_per_step": 16,
    "num_generations": 8,
    "max_completion_length": 64,
    "learning_rate": 3e-4,
    "warmup_steps": 5,
    "per_device_train_batch_size": 32,
    "gradient_accumulation_steps": 2,
    "loss_type": "bnpo",
    "max_steps": 100,
    "eval_steps": 20,
    "eval_size": 288,
    "eval_samples": 2,
    "num_threads": 1,
}
"""Settings of all methods unless the study says otherwise: those of the demonstration, with more steps and a larger learning
rate, which was chosen for GRPO alone on seeds that no study reports (see docs/results)."""

_PLACE = (
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "device", "placement",
    "backend", "ray_address", "worker_timeout", "max_restarts",
)  # fmt: skip
"""Settings that say where, and do not decide the result."""

_ADDED_LATER = (AdapterOptions, VllmOptions)
"""Sections that change nothing unless they are used: runs from before there were such options are known by the same hash."""


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        name: of the results.
        methods: names in `METHODS`.
        pools: warm starts.
        seeds: of the runs.
        domain: `NAME` of the environment `NAME-mutual-v0`.
        settings: keys of `TrainingConfig` that all methods share; `COMMON` where they are silent.
        kl_problems: held-out problems on which KL and entropy are measured.
        reach_samples: completions per held-out problem that tell what a starting policy can reach.
    """

    name: str
    methods: tuple[str, ...]
    pools: tuple[Pool, ...]
    seeds: tuple[int, ...]
    domain: str
    settings: Mapping[str, Any]
    kl_problems: int = 96
    reach_samples: int = 64

    def shared(self) -> dict[str, Any]:
        """The settings that all methods share, but models and seed."""
        return {**COMMON, "env": f"{self.domain}-mutual-v0", **self.settings}


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        method: its name.
        pool: its warm start.
        seed: of its data order and draws.
        job: what its process does.
        folder: where.
        hash: of everything that decides the result, but the code.
    """

    method: str
    pool: Pool
    seed: int
    job: Job
    folder: Path
    hash: str

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / "final.json").is_file()

    @property
    def failed(self) -> str | None:
        """Why the run broke off; None if it did not, or is going on."""
        path = self.folder / "failed.txt"
        return path.read_text(encoding="utf-8").strip() if path.is_file() and not self.done else None

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.pool.name} {self.method} seed {self.seed}"

    def steps(self) -> int:
        """Steps in the records so far."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return 0
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - (1 << 14)))
            lines = file.read().split(b"\n")
        # The last one is empty, or being written.
        return int(json.loads(lines[-2])["step"]) if len(lines) > 2 else 0

    def state(self) -> str:
        """`done`, or how far the run is."""
        if self.done:
            return "done"
        broke = ", broke off" if self.failed else ""
        return f"{self.steps()} of {self.job.config.max_steps} steps{broke}"


def make_cells(study: Study, output: Path) -> list[Cell]:
    """All runs of a study, one seed after the other, so that what is there early can be compared.

    Args:
        study: what is compared.
        output: where everything is written.

    Raises:
        ValueError: on an unknown method or an invalid setting.
    """
    cells = []
    shared = study.shared()
    for seed in study.seeds:
        for method in study.methods:
            for pool in study.pools:
                places = {"model_name_or_path": list(pool.models)}
                measurement = Measurement(
                    TrainingConfig.from_dict({**shared, **places, "algorithm": "grpo"}),
                    study.kl_problems,
                    study.reach_samples,
                )
                if not measurement.config.eval_steps:
                    raise ValueError("eval_steps=0 measures nothing; give the steps between evaluations")
                config = TrainingConfig.from_dict(
                    {
                        **method_settings(method, shared, len(pool.models)),
                        **places,
                        "seed": seed,
                        # What the run's own process does: measure, save, and keep one checkpoint.
                        "eval_steps": 0,
                        "save_steps": 0,
                        "save_total_limit": 1,
                        "exchange_log": False,
                        "logging_steps": 1,
                    }
                )
                start = output / "pools" / f"{pool.name}-{measurement.key()}"
                job = Job(config, measurement, measurement.config.eval_steps, start)
                key = config_hash(job)
                folder = output / "runs" / pool.name / method / f"seed{seed}-{key}"
                cells.append(Cell(method, pool, seed, job, folder, key))
    return cells


def check_problems(cells: Sequence[Cell]) -> None:
    """See that there are the problems to train on, and those that are held out.

    Raises:
        ValueError: if the domain is unknown, or a file is missing or malformed.
    """
    config, measurement = cells[0].job.config, cells[0].job.measurement
    agents = [policy.name for policy in config.policies()]
    make_env(config, dict(zip(agents, config.algorithms(), strict=True)), MemoryExchange(agents))
    measurement.problems()


def config_hash(job: Job) -> str:
    """Depends on all that decides a run's records, but the code."""
    settings = {key: value for key, value in job.config.to_dict().items() if key not in _PLACE}
    for section in _ADDED_LATER:
        names = [option.name for option in fields(section)]
        if all(getattr(job.config, name) == getattr(section(), name) for name in names):
            settings = {key: value for key, value in settings.items() if key not in names}
    if job.config.exchange_staleness == 0:
        del settings["exchange_staleness"]  # as before there was one
    return settings_hash(settings, job.measurement.key(), job.every)


def show_cells(cells: Sequence[Cell]) -> str:
    """What there is to do, as a table."""
    rows = [(cell.pool.name, cell.method, str(cell.seed), cell.hash, cell.state()) for cell in cells]
    return table(("pool", "method", "seed", "hash", "state"), rows)


def default_jobs() -> int:
    """As many runs at once as there are GPUs, or else CPU cores."""
    return torch.cuda.device_count() or len(os.sched_getaffinity(0))


def run_grid(cells: Sequence[Cell], jobs: int, out: TextIO) -> list[Cell]:
    """Run what is not done yet.

    Args:
        cells: runs.
        jobs: processes at once.
        out: for the progress: a live table on a terminal, lines elsewhere.

    Returns:
        Those that failed; why, has been printed.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the running processes have saved and ended; a second one lets them end
            without.
    """
    waiting = [cell for cell in cells if not cell.done]
    total, reused = len(cells), len(cells) - len(waiting)
    board = Board(out, total)
    board.say(f"{total} runs, {reused} of them done already; {min(jobs, max(1, len(waiting)))} at once")
    running: dict[int, tuple[Cell, subprocess.Popen[bytes], float]] = {}
    failed: list[Cell] = []
    asked = told = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while running or (waiting and not asked):
            for slot in range(jobs):
                if slot not in running and waiting and not asked:
                    cell = waiting.pop(0)
                    running[slot] = (cell, _start(cell, slot), time.monotonic())
                    board.say(f"begins: {cell.label}, {cell.state()} ({cell.folder})")
            while told < asked:
                told += 1
                for _, process, _ in running.values():
                    process.terminate()
            for slot, (cell, process, begun) in list(running.items()):
                status = process.poll()
                if status is None:
                    continue
                del running[slot]
                if status == 0:
                    done = sum(other.done for other in cells)
                    board.say(f"done: {cell.label} in {time.monotonic() - begun:.0f} s ({done} of {total})")
                elif not asked:
                    failed.append(cell)
                    (cell.folder / "failed.txt").write_text(_reason(cell.folder / "log.txt", status), encoding="utf-8")
                    board.say(f"failed with status {status}: {cell.label}\n{_tail(cell.folder / 'log.txt')}")
            board.show([cell for cell, _, _ in running.values()], sum(cell.done for cell in cells))
            time.sleep(0.2)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if asked and not all(cell.done for cell in cells):
        raise KeyboardInterrupt(f"{sum(c.done for c in cells)} of {total} runs are done; go on with the same command")
    return failed


def _start(cell: Cell, slot: int) -> subprocess.Popen[bytes]:
    """A process for a run, with as many threads as it is to use, on one of the GPUs, if there are any."""
    cell.job.write(cell.folder)
    (cell.folder / "failed.txt").unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(cell.job.config.num_threads or 1)}
    if (count := torch.cuda.device_count()) > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(i) for i in range(count)]
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % count]
    with (cell.folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.compare.run", str(cell.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def _tail(path: Path, lines: int = 15) -> str:
    """The end of a text file, indented."""
    found = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in found)


def _reason(path: Path, status: int) -> str:
    """Why a run broke off: the signal that ended it, or the last line that it wrote, cut at 300 characters."""
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit status {status}"


class Board:
    """Progress: messages stay, and on a terminal the running runs are shown below them.

    Args:
        out: where to.
        total: number of runs.
    """

    def __init__(self, out: TextIO, total: int) -> None:
        self._out = out
        self._total = total
        self._live = out.isatty()
        self._lines = 0
        self._shown = float("-inf")

    def say(self, message: str) -> None:
        """Print a message that stays."""
        self._clear()
        print(message, file=self._out, flush=True)

    def show(self, running: Sequence[Cell], done: int) -> None:
        """Draw the table anew, at most every other second."""
        if not (running and self._live) or time.monotonic() - self._shown < 2:
            return
        self._clear()
        rows = [(cell.pool.name, cell.method, str(cell.seed), cell.state()) for cell in running]
        text = table((f"{done} of {self._total} done", "method", "seed", "state"), rows)
        print(text, file=self._out, flush=True)
        self._lines, self._shown = text.count("\n") + 1, time.monotonic()

    def _clear(self) -> None:
        if self._lines:
            self._out.write(f"\x1b[{self._lines}F\x1b[J")
            self._lines, self._shown = 0, float("-inf")
