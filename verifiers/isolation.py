"""A small pool of long-lived worker processes for work that may hang, explode or crash.

The deadline of a call is enforced from outside, by SIGKILL, because inside a process nothing stops C code or a huge
integer power. Workers are plain `python -m verifiers.worker` children that speak JSON lines over pipes: no fork of the
caller, no pickles, no `__main__` guard, so it works from the main thread, other threads, asyncio, a forked or spawned
process, and a Ray actor alike. A worker is replaced after a kill, a crash, or enough calls that leaks could matter.

A call that failed for no reason of its own (its worker was killed, was out of memory, or got no processor time before the
deadline, since it or the machine stood still) is made once more in a fresh process, so that what happens around a worker does
not become part of a verdict.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
"""How long a worker may take to start: importing on a busy machine is slow, and no case's fault."""

_WORKED = 0.5
"""A call that has used this share of its deadline as processor time has had its time; one with less was held up."""


class DeadlineError(TimeoutError):
    """The call did not finish before its deadline; its worker was killed."""


class WorkerError(RuntimeError):
    """The call failed inside its worker, or the worker died of it; carries the text."""


class _HeldUpError(Exception):
    """A call failed for a reason outside of it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
        """What is to be raised if it happens again."""


class Worker:
    """One child process and the two pipes to it. Not thread-safe: the pool lends it to one thread at a time.

    Attributes:
        calls: made so far.
        seconds: that the last call took, without what was lost with a process that had to be replaced.
    """

    def __init__(self, memory_bytes: int) -> None:
        """Start the process and wait until it answers.

        Raises:
            WorkerError: if it does not come up.
        """
        self.calls = 0
        self.seconds = 0.0
        self._memory_bytes = memory_bytes
        self._start()

    def _start(self) -> None:
        environment = dict(os.environ)
        root = str(Path(__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verifiers.worker", str(self._memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a Ctrl-C in the terminal is the caller's to handle
        )
        try:
            status, _ = json.loads(self._read_line(time.monotonic() + START_SECONDS))
        except DeadlineError as error:
            self.kill()
            raise WorkerError(f"a verifier worker did not start within {START_SECONDS:.0f} s") from error
        except BaseException:
            self.kill()
            raise
        if status != "ready":
            raise WorkerError(f"a verifier worker answered {status!r} at its start")

    def call(self, path: str, arguments: list[Any], seconds: float) -> Any:
        """The value of `path(*arguments)` computed in the process, within `seconds`.

        Raises:
            DeadlineError: after `seconds`; the process is gone then.
            WorkerError: if the function raised, or if the process died or had no memory, twice.

        Whatever else interrupts the call (Ctrl-C, a signal's handler) ends the process too: its answer would otherwise
        stay in the pipe and be taken for the next call's.
        """
        try:
            return self._call(path, arguments, seconds)
        except _HeldUpError:
            self._start()
        try:
            return self._call(path, arguments, seconds)
        except _HeldUpError as error:
            raise error.error from None

    def _call(self, path: str, arguments: list[Any], seconds: float) -> Any:
        """As `call`, once; raises `_HeldUpError` where it should be tried again."""
        self.calls += 1
        start, worked = time.monotonic(), self._processor_seconds()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([path, arguments, seconds]).encode() + b"\n")
            self._process.stdin.flush()
            status, value = json.loads(self._read_line(start + seconds))
        except DeadlineError as error:
            had = self._processor_seconds() - worked
            self.kill()
            if had < _WORKED * seconds:
                raise _HeldUpError(error) from error
            raise
        except WorkerError as error:
            raise _HeldUpError(error) from error
        except OSError as error:
            self.kill()
            raise _HeldUpError(WorkerError(f"the worker was gone: {error}")) from error
        except BaseException:
            self.kill()
            raise
        finally:
            self.seconds = time.monotonic() - start
        if status != "ok":
            if value.startswith("MemoryError"):
                self.kill()
                raise _HeldUpError(WorkerError(value))
            raise WorkerError(value)
        return value

    def _processor_seconds(self) -> float:
        """Processor time that the process has used; without Linux's /proc infinite, so that no call counts as held up."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return math.inf
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once and reap it."""
        self._process.kill()
        self._process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        """Let go of the pipes; in a forked copy of the caller this is all that may be done to the worker."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # flushing into a dead process
                    pipe.close()

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise DeadlineError("no answer before the deadline")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self.kill()
                raise WorkerError(f"the worker died (exit status {self._process.returncode})")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class Pool:
    """Lends workers to threads; grows to `size` processes on demand."""

    def __init__(self, size: int, memory_bytes: int = 2 << 30, calls_per_worker: int = 2000) -> None:
        """Describe the pool; processes start when first needed.

        Args:
            size: the largest number of processes, hence of calls at once; further callers wait.
            memory_bytes: address space of one process.
            calls_per_worker: a process is replaced after that many calls, so that caches inside cannot grow for ever.
        """
        self._memory_bytes = memory_bytes
        self._calls_per_worker = calls_per_worker
        self._slots = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self.size = size

    def call(self, path: str, arguments: list[Any], seconds: float) -> Any:
        """The value of the function at dotted path `verifiers.…:name`, computed in a worker within `seconds`.

        Waiting for a free worker and starting one do not count towards the deadline.

        Raises:
            DeadlineError: if it took longer; the worker was killed.
            WorkerError: if the function raised or killed its process.
        """
        with self.lend() as worker:
            return worker.call(path, arguments, seconds)

    @contextlib.contextmanager
    def lend(self) -> Iterator[Worker]:
        """A worker for the caller alone, as soon as one is free; for callers that time their calls themselves.

        Raises:
            WorkerError: if a new one is needed and does not come up.
        """
        with self._slots:
            worker = self._take()
            try:
                yield worker
            finally:
                self._give(worker)

    def warm_up(self, path: str, arguments: list[Any]) -> None:
        """Start all processes and let each compute one call, so that imports are not part of the first cases' time."""
        threads = [threading.Thread(target=self.call, args=(path, arguments, START_SECONDS)) for _ in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """End all idle processes; the pool may still be used, and starts new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()

    def forget(self) -> None:
        """Drop the workers of the process that this one was forked from, without touching them."""
        for worker in self._idle:
            worker.close_pipes()
        self.__init__(self.size, self._memory_bytes, self._calls_per_worker)  # type: ignore[misc]  # fresh locks

    def _take(self) -> Worker:
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.kill()
        return Worker(self._memory_bytes)

    def _give(self, worker: Worker) -> None:
        if not worker.alive:
            return
        if worker.calls >= self._calls_per_worker:
            worker.kill()
            return
        with self._lock:
            self._idle.append(worker)


@functools.cache
def shared_pool() -> Pool:
    """The pool that all verifiers of this process share: as many workers as processors, four at most."""
    pool = Pool(size=max(1, min(4, os.cpu_count() or 1)))
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.forget)
    return pool
