"""How a fault gets into a run: at a moment inside a method, counted in calls and returns of functions, or at a system call.

All of this happens in a child process; see `running`.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from algorithms import checkpoints, learner
from algorithms.learner import Learner
from algorithms.trainer import Trainer
from algorithms.worker import Worker
from benchmarks.faults import tracing
from verifiers import isolation

Place = tuple[type, str]
"""A method of a class."""

GENERATION: Place = (Worker, "rollout")
UPDATE: Place = (Learner, "update")
EVALUATION: Place = (Worker, "evaluate")
PREPARATION: Place = (Trainer, "__init__")
TRAINING: Place = (Trainer, "train")
JUDGING: Place = (isolation.Worker, "call")

Happening = Callable[[Any], None]
"""What is to happen; gets the object whose method is running."""


def at_moments(place: Place, moments: Mapping[int, Happening], record: Path | None = None) -> None:
    """Let things happen while a method runs.

    Args:
        place: the method.
        moments: number of the event (a call or return of any function, inside any run of this method) to what happens there.
        record: a file that gets the number of events, when the process is over with the method for now.
    """
    owner, name = place
    original = getattr(owner, name)
    events = 0

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        def tick(frame: FrameType, event: str, argument: object) -> None:
            nonlocal events
            happening = moments.get(events)
            events += 1
            if happening is not None:
                sys.setprofile(None)
                try:
                    happening(self)
                finally:
                    sys.setprofile(tick)

        sys.setprofile(tick)
        try:
            return original(self, *args, **kwargs)
        finally:
            sys.setprofile(None)
            if record is not None:
                record.write_text(str(events))

    setattr(owner, name, watched)


def before(place: Place, happening: Happening) -> None:
    """Let something happen at each call of a method."""
    owner, name = place
    original = getattr(owner, name)

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        happening(self)
        return original(self, *args, **kwargs)

    setattr(owner, name, watched)


def send(number: signal.Signals) -> Happening:
    """The process gets a signal."""
    return lambda _: os.kill(os.getpid(), number)


def fill_disk(bytes_left: int) -> Happening:
    """From now on no file can grow beyond so many bytes, whoever writes it."""

    def happening(_: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return happening


def protect(folder: Path) -> Happening:
    """From now on nothing can be written in a folder."""

    def happening(_: Any) -> None:
        set_writable(folder, False)

    return happening


def set_writable(folder: Path, writable: bool) -> None:
    """Allow or forbid to write a folder and all in it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o755 if writable else 0o555) if path.is_dir() else (0o644 if writable else 0o444))


def turn_clock(seconds: float) -> Happening:
    """From now on the time of day is another."""
    true_time = time.time
    return lambda _: setattr(time, "time", lambda: true_time() + seconds)


def break_weight(draw: random.Random) -> Happening:
    """One weight of a learner's model becomes NaN or infinite."""

    def happening(victim: Any) -> None:
        weights = draw.choice(list(victim.model.parameters())).data.view(-1)
        weights[draw.randrange(len(weights))] = draw.choice([torch.nan, torch.inf])

    return happening


def break_loss(from_call: int, value: float) -> None:
    """From the n-th loss on each is NaN or infinite."""
    original, calls = vars(learner)["batch_loss"], 0

    def broken(*args: Any) -> Any:
        nonlocal calls
        terms = original(*args)
        calls += 1
        return terms if calls <= from_call else replace(terms, total=terms.total * value)

    vars(learner)["batch_loss"] = broken


def break_gradient(from_call: int, value: float) -> None:
    """From the n-th update on one element of the gradient is NaN or infinite."""
    original, calls = torch.nn.utils.clip_grad_norm_, 0

    def broken(parameters: Any, max_norm: float) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > from_call:
            next(p.grad for p in parameters if p.grad is not None).view(-1)[0] = value
        return original(parameters, max_norm)

    vars(torch.nn.utils)["clip_grad_norm_"] = broken


def hurt_worker(how: str) -> Happening:
    """The worker that is judging is killed, frozen, or has no more memory."""

    def happening(worker: Any) -> None:
        process = worker._process
        if how == "out of memory":
            resource.prlimit(process.pid, resource.RLIMIT_AS, (1, 1))
        else:
            process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)

    return happening


def trace_saving(number: int) -> None:
    """Let the parent stop the process at each system call that the n-th checkpoint (0, 1, ...) is written with."""
    original, saved = checkpoints.save_checkpoint, 0

    def traced(*args: Any, **kwargs: Any) -> Path:
        nonlocal saved
        saved += 1
        if saved != number + 1:
            return original(*args, **kwargs)
        tracing.begin()
        try:
            return original(*args, **kwargs)
        finally:
            tracing.end()

    sys.modules[Trainer.__module__].save_checkpoint = traced  # type: ignore[attr-defined]
