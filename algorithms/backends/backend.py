"""What the trainer asks of the workers, all policies at a time; how they are reached is a backend's affair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from algorithms.worker import Lesson, Rollouts
from mrl_env.types import Message, Problem


class Backend(Protocol):
    """The workers of a run. Mappings are from policy to what concerns it, in the order of the policies.

    Where workers live in other processes, every method raises `WorkerLostError` if one of them dies or is late. Then none of
    them may be asked on before `restart`.
    """

    def rollout(self, step: int, prompts: Mapping[str, Sequence[Sequence[Message]]]) -> dict[str, Rollouts]:
        """Let some policies answer their P prompts; see `Worker.rollout`."""
        ...

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        """Let some policies learn; their metrics. See `Worker.learn`."""
        ...

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
        """Evaluate every policy; its summary. `progress` is called with numbers of finished completions."""
        ...

    def save(self, folder: Path) -> None:
        """Write every policy into a folder that exists; see `Worker.save`."""
        ...

    def load(self, folder: Path) -> None:
        """Take what `save` wrote; see `Worker.load`."""
        ...

    def restart(self) -> None:
        """Bring all workers back as they began; `load` follows, where there is a checkpoint."""
        ...

    def close(self) -> None:
        """End the workers' processes; calls that wait for them end with `WorkerLostError`."""
        ...
