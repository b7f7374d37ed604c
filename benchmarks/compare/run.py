"""One run of the grid, in a process of its own: `python -m benchmarks.compare.run FOLDER`.

    FOLDER/job.json        what is to be done; see `Job`
    FOLDER/metrics.jsonl   training and evaluations, as the trainer writes them; eval/kl and eval/entropy beside the others
    FOLDER/checkpoint-N    the newest, to go on from; when all is done, the final weights
    FOLDER/final.json      when all is done: the held-out score of each problem, by policy (until then scores.json)
    FOLDER/commit.txt      the commit of the code, a line for each start
    FOLDER/failed.txt      why the last process broke off, if it did; written by the grid

The trainer evaluates nothing itself: between its steps the policies are measured as they stand in memory, all methods on the
same problems with the same draws and the problems' own verifier, whatever a method is rewarded by.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from algorithms import Trainer, TrainingConfig
from algorithms.interruption import Interruption
from algorithms.policy import Policy, load_policy
from algorithms.tracking import POOL
from benchmarks.compare.measure import Measurement, from_json, measure, reach, to_json, unreachable
from benchmarks.files import replace_file
from verifiers.printing import log_to_terminal

STOPPED = 130
"""Exit status of a run that was interrupted and saved."""

AT_STAKE = 300.0
"""Seconds of training after which a checkpoint is written between measurements, too: what a kill can cost."""


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        config: of the run, without a folder; it evaluates nothing.
        measurement: of its policies.
        every: steps between measurements; the initial and the final policies are measured too.
        start: folder of what was measured of the starting policies, made by the first run that needs it.
    """

    config: TrainingConfig
    measurement: Measurement
    every: int
    start: Path

    def write(self, folder: Path) -> None:
        """Write `job.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "config": self.config.to_dict(), "measurement": to_json(self.measurement), "every": self.every,
            "start": str(self.start),
        }  # fmt: skip
        replace_file(folder / "job.json", values)

    @classmethod
    def read(cls, folder: Path) -> Job:
        """What `write` wrote."""
        values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        config = TrainingConfig.from_dict(values["config"])
        return cls(config, from_json(values["measurement"]), values["every"], Path(values["start"]))


def run(folder: Path) -> int:
    """Train and measure, going on from where an earlier process was stopped.

    Args:
        folder: with `job.json`.

    Returns:
        0, or `STOPPED`.

    Raises:
        FloatingPointError: if a policy cannot be measured in finite numbers.
    """
    parent = os.getppid()
    job = Job.read(folder)
    with locked(folder):
        if (folder / "final.json").exists():
            return 0
        with (folder / "commit.txt").open("a", encoding="utf-8") as file:
            print(commit() or "unknown", file=file)
        config = replace(job.config, output_dir=str(folder), resume_from_checkpoint="auto")
        trainer = Trainer(config)
        (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        start = measured_start(job, trainer)
        problems = job.measurement.problems()
        with Interruption() as interruption:
            if trainer.step == 0:
                log(trainer, start["evaluation"])
            saved = time.monotonic()
            while trainer.step < trainer.total_steps:
                trainer.train_step()
                last = trainer.step == trainer.total_steps
                due = last or trainer.step % job.every == 0
                # Without its parent a run has nobody to report to, and might meet the one that takes its place.
                stop = interruption.requested or os.getppid() != parent
                if due:
                    measured = {
                        name: measure(policy, load_start(job, trainer, name), problems, job.measurement)
                        for name, policy in trainer.policies.items()
                    }
                    log(trainer, {name: summary for name, (summary, _) in measured.items()})
                    replace_file(folder / "scores.json", {name: scores for name, (_, scores) in measured.items()})
                if due or stop or time.monotonic() - saved > AT_STAKE:
                    trainer.save()
                    saved = time.monotonic()
                if stop and not last:
                    trainer.close()
                    return STOPPED
        trainer.close()
        (folder / "scores.json").rename(folder / "final.json")
        shutil.rmtree(folder / f"checkpoint-{trainer.step}" / "optimizer")
    return 0


def log(trainer: Trainer, evaluation: Mapping[str, Mapping[str, float]]) -> None:
    """Record an evaluation of all policies, and their mean as the pool's.

    Raises:
        FloatingPointError: if a number is not finite; nothing is recorded then.
    """
    for name, summary in evaluation.items():
        if wrong := {key: value for key, value in summary.items() if not math.isfinite(value)}:
            raise FloatingPointError(f"at step {trainer.step} {name} has no finite {', '.join(wrong)}: {wrong}")
    summaries = dict(evaluation)
    first = next(iter(summaries.values()))
    mean = {key: sum(summary[key] for summary in summaries.values()) / len(summaries) for key in first}
    for name, summary in {**summaries, POOL: mean}.items():
        trainer.tracker.metrics(trainer.step, name, "eval", summary)


def load_start(job: Job, trainer: Trainer, name: str) -> Policy:
    """A policy as it began, on the device where it is now."""
    settings = next(policy for policy in job.config.policies() if policy.name == name)
    return load_policy(settings, trainer.plan.device(name))


def measured_start(job: Job, trainer: Trainer) -> dict[str, Any]:
    """What is measured of the starting policies, once for all runs that share them; others wait for it.

    Returns:
        `evaluation`: summary by policy; `reach`: successes of `reach_samples` by policy and problem; `unreachable`: problem
        ids by policy.
    """
    path = job.start / "start.json"
    with locked(job.start):
        if not path.exists():
            problems = job.measurement.problems()

            def of(policy: Policy) -> tuple[dict[str, int], dict[str, float]]:
                how = job.measurement
                return reach(policy, problems, how), measure(policy, policy, problems, how)[0]

            # No name holds a policy here, so that there is one at a time in memory.
            found = {name: of(load_start(job, trainer, name)) for name in trainer.policies}
            reached = {name: successes for name, (successes, _) in found.items()}
            evaluation = {name: summary for name, (_, summary) in found.items()}
            replace_file(path, {"evaluation": evaluation, "reach": reached, "unreachable": unreachable(reached)})
    start: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return start


def commit() -> str | None:
    """The commit that the code is at, `-dirty` if it was changed since; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a folder to oneself; it is free again when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".job.lock").open("w") as file:  # `.lock` is the trainer's own
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    log_to_terminal()
    transformers_logging.disable_progress_bar()
    sys.exit(run(Path(sys.argv[1])))
