"""Where the workers of a run live: in this process (`local`), or each in an actor of its own (`ray`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from algorithms.algorithm import Algorithm
from algorithms.backends.backend import Backend
from algorithms.backends.local import LocalBackend
from algorithms.config import TrainingConfig
from algorithms.devices import Plan
from algorithms.worker import Worker

__all__ = ["Backend", "LocalBackend", "make_backend"]


def make_backend(
    config: TrainingConfig, algorithms: Mapping[str, Algorithm], plan: Plan, total_steps: int, output_dir: Path
) -> Backend:
    """The configured backend, with its workers.

    Args:
        config: the run's.
        algorithms: each policy's.
        plan: where the policies run.
        total_steps: of the run.
        output_dir: the run's folder.

    Raises:
        ValueError: if a policy cannot be loaded, or there is no such cluster.
        WorkerLostError: if a worker does not come up.
    """
    if config.backend == "ray":
        from algorithms.backends.ray import RayBackend  # Ray is optional

        return RayBackend(config, algorithms, plan, total_steps, output_dir)
    return LocalBackend(
        [
            Worker(config, name, algorithm, plan.device(name), total_steps, output_dir)
            for name, algorithm in algorithms.items()
        ]
    )
