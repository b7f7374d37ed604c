"""Where the workers of a run live: in this process (`local`), in an actor each (`ray`), or in shards (under `torchrun`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from algorithms.algorithm import Algorithm
from algorithms.backends.backend import Backend
from algorithms.backends.local import LocalBackend
from algorithms.backends.sharded import ShardedBackend
from algorithms.config import TrainingConfig
from algorithms.devices import Plan
from algorithms.ranks import join_ranks
from algorithms.worker import Worker

__all__ = ["Backend", "LocalBackend", "make_backend"]


def make_backend(
    config: TrainingConfig, algorithms: Mapping[str, Algorithm], plan: Plan, total_steps: int, output_dir: Path
) -> Backend:
    """The configured backend, with its workers; where `torchrun` began several processes, in shards on all of them.

    Args:
        config: the run's.
        algorithms: each policy's.
        plan: where the policies run.
        total_steps: of the run.
        output_dir: the run's folder.

    Raises:
        ValueError: if a policy cannot be loaded, or there is no such cluster.
        WorkerLostError: if a worker does not come up, or a process is lost meanwhile.
    """
    ranks = join_ranks()
    if ranks.size > 1:
        return ShardedBackend(config, algorithms, plan.threads, total_steps, output_dir, ranks)
    if config.backend == "ray":
        from algorithms.backends.ray import RayBackend  # Ray is optional

        return RayBackend(config, algorithms, plan, total_steps, output_dir)
    return LocalBackend(
        [
            Worker(_as_planned(config, plan, name), name, algorithm, plan.device(name), total_steps, output_dir)
            for name, algorithm in algorithms.items()
        ]
    )


def _as_planned(config: TrainingConfig, plan: Plan, name: str) -> TrainingConfig:
    """The settings with which a policy fits where the plan has it."""
    return replace(config, offload_optimizer=plan.placement(name).work.offload)
