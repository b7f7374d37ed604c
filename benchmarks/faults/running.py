"""Tiny runs in child processes, how they ended, and whether two of them are the same to the bit.

A child is forked from a process that has everything imported, so that a run takes about a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers.utils import logging as transformers_logging

from algorithms import Trainer, TrainingConfig, cli
from algorithms.checkpoints import MANIFEST, list_checkpoints
from algorithms.tracking import TIME_KEYS, read_jsonl

SETTINGS: dict[str, Any] = {
    "algorithm": ("prp", "sgt"),
    "verifier": "benchmarks.faults.judging:InProcess",
    "learning_rate": 1e-3,
    "problems_per_step": 2,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 6,
    "temperature": 2.0,
    "max_steps": 4,
    "eval_steps": 2,
    "eval_size": 2,
    "eval_samples": 1,
    "save_steps": 1,
    "num_threads": 1,
}
"""Two embedded policies with different algorithms, two updates a step, an evaluation every other step, every step saved."""

PATIENCE = 12_000
"""Looks at a child, a hundredth of a second apart, after which it counts as hanging. Looks, not seconds: when the whole machine
stands still, so does the one who looks.
"""

TRACEBACK = 70
"""Exit status of a child that an error has ended which the command does not explain."""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        status: its exit status; negative for the signal that ended it.
        said: what it wrote to the terminal.
    """

    status: int
    said: str

    @property
    def explained(self) -> bool:
        """Whether a mistake or trouble ended it, with one sentence as its last line and no traceback."""
        return self.status in (1, 2) and "Traceback" not in self.said and self.last_line.startswith("error: ")

    @property
    def last_line(self) -> str:
        """The last line that it wrote."""
        return self.said.strip().rpartition("\n")[2].rpartition("\r")[2]


class Laboratory:
    """A folder with an undisturbed run, beside which others are made.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self._number = 0
        transformers_logging.disable_progress_bar()
        torch.set_num_threads(1)
        self.undisturbed = self.new()
        Trainer(config(self.undisturbed)).train()  # in this process, which has everything warm then

    def new(self, like: Path | None = None) -> Path:
        """The name of a folder for another run; with `like` a copy of that one."""
        self._number += 1
        run = self.folder / f"run-{self._number}"
        if like is not None:
            shutil.copytree(like, run)
        return run

    def discard(self) -> None:
        """Remove all runs but those made before the first fault."""
        for path in self.folder.glob("run-*"):
            if path != self.undisturbed:
                shutil.rmtree(path, ignore_errors=True)

    def differences(self, run: Path) -> list[str]:
        """In what a finished run differs from the undisturbed one: nothing, if it has the same bits."""
        return differences(self.undisturbed, run)


def config(run: Path, **changes: Any) -> TrainingConfig:
    """The configuration of a tiny run."""
    return TrainingConfig(**{**SETTINGS, "output_dir": str(run), **changes})


def start(settings: TrainingConfig, inject: Callable[[], None] | None = None) -> int:
    """Begin a run in a child process; `inject` is called there first.

    Returns:
        The process.
    """
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    status = TRACEBACK
    try:
        log = os.open(_log(settings), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # By default all forks share one lock of their progress bars; a child that is killed while it holds it would leave it
        # locked for all that follow.
        tqdm.set_lock(threading.RLock())
        if inject is not None:
            inject()
        cli.run(settings)
        status = 0
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.setprofile(None)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def finish(process: int, settings: TrainingConfig) -> Ending:
    """Wait for a run."""
    for _ in range(PATIENCE):
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return Ending(os.waitstatus_to_exitcode(status), _log(settings).read_text(errors="replace"))
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return Ending(TRACEBACK, f"it hung\n{_log(settings).read_text(errors='replace')}")


def run(settings: TrainingConfig, inject: Callable[[], None] | None = None) -> Ending:
    """A whole run in a child process."""
    return finish(start(settings, inject), settings)


def _log(settings: TrainingConfig) -> Path:
    folder = Path(str(settings.output_dir))
    kind = "resumed" if settings.resume_from_checkpoint else "begun"
    return folder.with_name(f"{folder.name}.{kind}.log")


def differences(one: Path, other: Path) -> list[str]:
    """In what two finished runs differ: records without times, and the last checkpoint's weights, optimizers and counters."""
    found = [] if untimed(one) == untimed(other) else ["metrics.jsonl"]
    for name in ("completions.jsonl", "exchange.jsonl"):
        if (one / name).read_bytes() != (other / name).read_bytes():
            found.append(name)
    sums, others = _checksums(one), _checksums(other)
    return found + sorted(name for name in sums.keys() | others.keys() if sums.get(name) != others.get(name))


def untimed(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what is measured in seconds."""
    return [
        {k: v for k, v in line.items() if not k.removeprefix("train/").startswith(TIME_KEYS)}
        for line in read_jsonl(run / "metrics.jsonl")
    ]


def _checksums(run: Path) -> dict[str, str]:
    """SHA-256 of the last checkpoint's files, but for the configuration, which names the folder, and the counters, in which
    metrics.jsonl has a size that depends on how many digits its times have.
    """
    manifest = json.loads((list_checkpoints(run)[-1] / MANIFEST).read_bytes())["files"]
    left_out = ("config.yaml", "trainer_state.json")
    return {name: entry["sha256"] for name, entry in manifest.items() if name not in left_out}
