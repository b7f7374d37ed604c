"""All workers in each of several processes, over which their models are sharded: the policies take turns on all of them.

The first process runs the trainer, with the environment, the verifiers and all files. What it asks of the workers it tells the
others, which `serve`: they do the same, since each has a part of the weights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from algorithms.algorithm import Algorithm
from algorithms.backends.local import LocalBackend
from algorithms.config import TrainingConfig
from algorithms.errors import NonFiniteError, RankLostError
from algorithms.interruption import Interruption
from algorithms.ranks import Ranks
from algorithms.worker import Lesson, Rollouts, Worker
from mrl_env.types import Message, Problem

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ShardedBackend(LocalBackend):
    """The workers of the first process, and through it those of the others.

    Args:
        config: the run's.
        algorithms: each policy's.
        threads: CPU threads of PyTorch of each process.
        total_steps: of the run.
        output_dir: the run's folder, which all processes must see.
        ranks: the processes.

    Raises:
        ValueError: if a policy cannot be loaded.
        RankLostError: from here on always, if a process is lost.
    """

    def __init__(
        self,
        config: TrainingConfig,
        algorithms: Mapping[str, Algorithm],
        threads: int,
        total_steps: int,
        output_dir: Path,
        ranks: Ranks,
    ) -> None:
        self._ranks = ranks
        arguments = (config, dict(algorithms), threads, total_steps, output_dir.resolve())
        ranks.broadcast(("build", arguments))
        super().__init__(ranks.together(partial(_workers, ranks, *arguments)))

    def rollout(self, step: int, prompts: Mapping[str, Sequence[Sequence[Message]]]) -> dict[str, Rollouts]:
        """Let every policy answer its P prompts, which the processes share."""
        return self._ask(super().rollout, "rollout", step, prompts)

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        """Let every policy learn; its metrics."""
        return self._ask(super().learn, "learn", step, lessons)

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
        """Evaluate every policy; its summary."""
        self._ranks.broadcast(("evaluate", (problems, _unseen)))
        return self._ranks.together(partial(super().evaluate, problems, progress))

    def save(self, folder: Path) -> None:
        """Write every policy into a folder, as a model that was not sharded."""
        self._ask(super().save, "save", folder.resolve())

    def load(self, folder: Path) -> None:
        """Take what `save` wrote, with any number of processes."""
        self._ask(super().load, "load", folder.resolve())

    def _ask(self, method: Callable[..., T], name: str, *arguments: Any) -> T:
        """The first process's result of a method that all processes call on their workers."""
        self._ranks.broadcast((name, arguments))
        return self._ranks.together(partial(method, *arguments))


def serve(ranks: Ranks) -> int:
    """Do with this process's workers what the first process asks, until it ends.

    Returns:
        0, or 1 if a process was lost.
    """
    backend: LocalBackend | None = None
    # The first process decides what an interruption means.
    with Interruption():
        while True:
            try:
                command = ranks.broadcast()
                if command is None:
                    return 0
                name, arguments = command
                if name == "build":
                    backend = LocalBackend(ranks.together(partial(_workers, ranks, *arguments)))
                else:
                    ranks.together(partial(getattr(backend, name), *arguments))
            except RankLostError as error:
                logger.error("process %d: %s", ranks.rank, error)
                return 1
            except (NonFiniteError, OSError, ValueError):
                continue  # the first process has it too


def _workers(
    ranks: Ranks,
    config: TrainingConfig,
    algorithms: Mapping[str, Algorithm],
    threads: int,
    total_steps: int,
    output_dir: Path,
) -> list[Worker]:
    """This process's workers."""
    torch.set_num_threads(threads)
    device = ranks.device(config.device)
    return [
        Worker(config, name, algorithm, device, total_steps, output_dir, ranks)
        for name, algorithm in algorithms.items()
    ]


def _unseen(finished: int) -> None:
    """Progress that nobody watches."""
