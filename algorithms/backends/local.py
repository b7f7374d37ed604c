"""All workers in this process: the policies take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from algorithms.worker import Lesson, Rollouts, Worker
from mrl_env.types import Message, Problem


class LocalBackend:
    """Workers that take turns.

    Args:
        workers: one per policy, in order.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = {worker.name: worker for worker in workers}

    def rollout(self, step: int, prompts: Mapping[str, Sequence[Sequence[Message]]]) -> dict[str, Rollouts]:
        """Let the policies answer their P prompts."""
        return {name: self.workers[name].rollout(step, mine) for name, mine in prompts.items()}

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        """Let the policies learn; their metrics."""
        return {name: self.workers[name].learn(step, lesson) for name, lesson in lessons.items()}

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
        """Evaluate every policy; its summary."""
        return {name: worker.evaluate(problems, progress) for name, worker in self.workers.items()}

    def save(self, folder: Path) -> None:
        """Write every policy into a folder."""
        for worker in self.workers.values():
            worker.save(folder)

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        for worker in self.workers.values():
            worker.load(folder)

    def restart(self) -> None:
        """Nothing: workers in this process are not lost."""

    def close(self) -> None:
        """Nothing: the workers can be asked on."""
