"""The processes of one run, or of one policy: as many as `torchrun` began, or as Ray has actors for it; or this one alone.

What they say to one another here is plain data: results, errors, commands. It goes through CPU memory, whatever the devices;
tensors are FSDP's affair (`algorithms/sharding.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from algorithms.errors import EngineError, NonFiniteError, RankLostError, WorkerLostError

T = TypeVar("T")


def _read_timeout() -> float:
    """Seconds from the environment.

    Raises:
        ValueError: if that is no number above 0.
    """
    text = os.environ.get("MRL_RANK_TIMEOUT", "1800")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ValueError(f"MRL_RANK_TIMEOUT={text!r} in the environment is no time; give seconds, such as 1800")
    return seconds


_TIMEOUT = _read_timeout()
"""Seconds that processes wait for one another."""

_LAST_CALL = min(10.0, _TIMEOUT)
"""Seconds in which those that are left say that they are, after something between processes has failed."""

_COMMON_ERRORS = (ValueError, OSError, NonFiniteError, EngineError, WorkerLostError)
"""Errors that end nothing but what was being done: when one process has one, all raise it, and can be asked on. A worker
that is lost is an engine of theirs, unless it is one of them (`RankLostError`)."""


@dataclass(eq=False)
class Ranks:
    """Processes that hold the same policies and do the same with them.

    Attributes:
        rank: this one's number: 0, 1, ...
        size: how many there are.
        local_rank: its number on its machine, which is that of its GPU.
        group: between them; None if there is one alone.
        store: one of PyTorch's, where they leave notes for one another; None if there is one alone.
        local_size: how many there are on this machine.
        lost: says that one of them is gone, once that is known: nothing can be said to all any more.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: dist.ProcessGroup | None = None
    store: Any = None
    local_size: int = 1
    lost: RankLostError | None = None

    @property
    def first(self) -> bool:
        """Whether this one leads: it has the environment, and writes all files."""
        return self.rank == 0

    def device(self, wanted: Sequence[str]) -> str:
        """The device of this process for what the option `device` says.

        Raises:
            ValueError: if it names single GPUs, of which every process has its own, or there are too few of them.
        """
        if tuple(wanted) not in (("auto",), ("cpu",)):
            raise ValueError(
                f"device={list(wanted)!r}, but under torchrun every process has the GPU of its number; use auto, or cpu"
            )
        gpus = torch.cuda.device_count()
        if tuple(wanted) == ("cpu",) or gpus == 0:
            return "cpu"
        if gpus < self.local_size:
            raise ValueError(
                f"device=auto, but torchrun began {self.local_size} processes for {gpus} GPUs; begin one for each, or use cpu"
            )
        return f"cuda:{self.local_rank}"

    def shared(self, parts: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """This process's parts, each with True; and, where others have one more, one with False.

        It is to be worked on like the others, since FSDP wants all processes to take the same steps, but must not count.

        Example:
            >>> list(Ranks(rank=1, size=2).shared("abc"))
            [('b', True), ('a', False)]
        """
        for place in range(self.rank, len(parts) - len(parts) % -self.size, self.size):
            yield (parts[place], True) if place < len(parts) else (parts[0], False)

    def gather(self, value: T) -> list[T]:
        """What each process gives, in their order; all of them have to call this.

        Raises:
            RankLostError: if one does not in time, naming it.
        """
        if self.group is None:
            return [value]
        gathered: list[Any] = [None] * self.size
        with self._watched():
            dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def broadcast(self, value: Any = None) -> Any:
        """What the first process gives.

        Raises:
            RankLostError: if a process is lost, naming it.
        """
        if self.group is None:
            return value
        box = [value]
        with self._watched():
            dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def together(self, act: Callable[[], T]) -> T:
        """The result of something that all processes do; if it fails for one of them for a common reason, it does for all.

        Raises:
            Exception: what `act` raised here, or else elsewhere.
            RankLostError: if a process is lost, naming it.
        """
        if self.group is None:
            return act()
        error: Exception | None = None
        try:
            with self._watched():
                result = act()
        except RankLostError:
            raise
        except _COMMON_ERRORS as raised:
            error = raised
        failures = [failure for failure in self.gather(error) if failure is not None]
        if failures:
            raise error or failures[0]
        return result

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Within it an error of what passes between processes becomes one that says which of them is missing.

        Raises:
            RankLostError: instead of that error.
        """
        if self.lost is not None:
            raise self.lost
        try:
            yield
        except (*_COMMON_ERRORS, RankLostError):
            raise
        except torch.OutOfMemoryError as error:  # the others go on waiting for this one
            self.lost = RankLostError(f"process {self.rank} of {self.size} is out of memory ({error})")
            raise
        except RuntimeError as error:  # PyTorch has no narrower one for a connection that was closed, or a timeout
            missing = self._missing()
            who = ", ".join(map(str, missing)) or "?"
            self.lost = RankLostError(
                f"process {who} of {self.size} died, or did not answer in time, or waits for process "
                f"{self.rank}, which failed. All end; go on with the same command and --resume_from_checkpoint auto, with any "
                f"number of processes. The error was: {error}"
            )
            if missing:
                raise self.lost from error
            raise  # all are here: it is another error, which says more by itself
        except BaseException:  # such as a second Ctrl-C, in the middle of something that the others wait for
            self.lost = RankLostError(f"process {self.rank} of {self.size} was interrupted")
            raise

    def _missing(self) -> list[int]:
        """Who does not notice within a little time that something has failed between processes."""
        keys = [f"noticed/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], "")
            with suppress(dist.DistStoreError):  # not all have come; who has not is seen below
                self.store.wait(keys, timedelta(seconds=_LAST_CALL))
            return [rank for rank, key in enumerate(keys) if not self.store.check([key])]
        except dist.DistNetworkError:  # the store has died too, with the process that held it
            return []

    def close(self) -> None:
        """End the others, which wait for what the first process says next; see `backends.sharded.serve`."""
        if self.group is not None and self.lost is None and dist.is_initialized():
            self.broadcast(None)
            dist.destroy_process_group()


ALONE = Ranks()
"""One process."""


@cache
def join_ranks() -> Ranks:
    """The processes that `torchrun` began; this one alone where it did not.

    Further calls give the same. CPU and GPUs can be used both, whatever the run wants.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        return ALONE
    local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=_TIMEOUT)))
    return meet(store, rank, size, local_rank, local_size)


def meet(
    store: Any, rank: int, size: int, local_rank: int = 0, local_size: int = 1, *, patience: float = _TIMEOUT
) -> Ranks:
    """Processes that know of one another by a common store; returns when all have come.

    Args:
        store: one of PyTorch's, where they leave their addresses.
        rank, size, local_rank, local_size: see `Ranks`.
        patience: seconds that they wait for one another.
    """
    timeout = timedelta(seconds=patience)
    backend = "gloo"
    if torch.cuda.device_count() >= local_size:
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return Ranks(rank, size, local_rank, dist.new_group(backend="gloo", timeout=timeout), store, local_size)
