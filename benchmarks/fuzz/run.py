"""One target after the other: draw, check, measure, keep what failed."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from benchmarks.fuzz.targets import Target
from mrl_env.seeding import derive_rng

LIMIT_SECONDS = 5.0
"""CPU time of one input, what was drawn and all its checks together. Questions to workers have deadlines of their own."""

HEADROOM_BYTES = 4 << 30
"""Address space that a target may take beyond what the process has when it begins."""


class HangError(Exception):
    """An input took more CPU time than the limit, and was interrupted."""


@dataclass
class Statistics:
    """What one target did.

    Attributes:
        name: the target.
        inputs: how many were tried.
        failures: how many failed.
        cpu_seconds: of this process, all together.
        slowest: CPU seconds of the slowest input.
        slowest_index: its number.
        peak_mib: largest resident memory while the target ran; None where the system does not say.
    """

    name: str
    inputs: int = 0
    failures: int = 0
    cpu_seconds: float = 0.0
    slowest: float = 0.0
    slowest_index: int = 0
    peak_mib: float | None = None
    kinds: dict[str, int] = field(default_factory=dict)


def run(target: Target, inputs: int, seed: int, failures: TextIO, progress: Callable[[int], Any]) -> Statistics:
    """Try a target.

    Args:
        target: what is tried.
        inputs: how many.
        seed: input `i` is drawn by hash from seed, target and `i`, so that it can be made again alone.
        failures: gets a JSON line for each input that failed.
        progress: called with 1 after each input.
    """
    check = target.prepare()
    found = Statistics(target.name)
    reset_peak()
    with bounded(HEADROOM_BYTES):
        for index in range(inputs):
            case: Any = None
            before = time.process_time()
            try:
                with interrupted(2 * LIMIT_SECONDS):
                    case = target.make(derive_rng(seed, "fuzz", target.name, index))
                    check(case)
                error = None
            except Exception as raised:  # every one is a finding, and the next input is tried
                error = "".join(traceback.format_exception_only(raised)).strip()
                place = traceback.extract_tb(raised.__traceback__)[-1]
                error = f"{error[:2000]} ({Path(place.filename).name}, line {place.lineno})"
            spent = time.process_time() - before
            if error is None and spent > LIMIT_SECONDS:
                error = f"TooSlow: {spent:.1f} s of CPU time"
            found.inputs += 1
            found.cpu_seconds += spent
            if spent > found.slowest:
                found.slowest, found.slowest_index = spent, index
            if error is not None:
                found.failures += 1
                kind = error.partition(":")[0]
                found.kinds[kind] = found.kinds.get(kind, 0) + 1
                line = {
                    "target": target.name,
                    "seed": seed,
                    "index": index,
                    "error": error,
                    "input": repr(case)[:100_000],
                }
                failures.write(json.dumps(line) + "\n")
                failures.flush()
            progress(1)
    found.peak_mib = peak()
    return found


@contextlib.contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise `HangError` inside after so much CPU time: the clock would also count while other processes run."""

    def stop(signum: int, frame: object) -> None:
        raise HangError(f"more than {seconds} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def bounded(headroom: int) -> Iterator[None]:
    """Within, more address space than now and `headroom` bytes is a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = _status("VmSize")
    if now is not None:
        resource.setrlimit(resource.RLIMIT_AS, (int(now * 1024) + headroom, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def reset_peak() -> None:
    """Let the system count the peak of resident memory anew, where it can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> float | None:
    """Largest resident memory since `reset_peak`, in MiB."""
    found = _status("VmHWM")
    return None if found is None else found / 1024


def _status(key: str) -> float | None:
    """A figure of this process in KiB, by the system's name for it."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{key}:")), None)
