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
        """Let every policy answer its P prompts."""
        return {name: worker.rollout(step, prompts[name]) for name, worker in self.workers.items()}

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        """Let every policy learn; its metrics."""
        return {name: worker.learn(step, lessons[name]) for name, worker in self.workers.items()}

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
