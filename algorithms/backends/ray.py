"""Every worker in a Ray actor of its own, wherever the cluster has room: all policies roll out and learn at once.

The driver keeps environment, verification and exchange. The workers write checkpoints into the run's folder, which must be on a
file system that all nodes share (a single machine has one).
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from algorithms.algorithm import Algorithm
from algorithms.config import TrainingConfig
from algorithms.devices import Plan
from algorithms.errors import WorkerLostError
from algorithms.worker import Lesson, Rollouts, Worker
from mrl_env.types import Message, Problem

logger = logging.getLogger(__name__)

_OBJECT_STORE = 128 * 1024**2
"""Bytes of shared memory of a cluster that is started here: prompts and completions pass through it, never weights."""


@dataclass(frozen=True)
class Seat:
    """What Ray reserves for a policy.

    Attributes:
        resources: by Ray's names.
        device: the policy's, as its own process sees it.
    """

    resources: Mapping[str, float]
    device: str


def seats(plan: Plan, names: Iterable[str]) -> dict[str, Seat]:
    """From the plan to Ray's resources: on a CPU as many as there are threads, of a GPU the policy's part."""
    devices = {name: plan.device(name) for name in names}
    policies_on = Counter(devices.values())
    return {
        name: Seat({"CPU": plan.threads}, "cpu")
        if device == "cpu"
        else Seat({"CPU": 1, "GPU": 1 / policies_on[device]}, "cuda:0")  # Ray shows a process only its own GPUs
        for name, device in devices.items()
    }


@dataclass(frozen=True)
class Place:
    """Where an actor runs: its node's address and id, and its process there."""

    address: str
    node: str
    process: int

    def __str__(self) -> str:
        return f"process {self.process} on node {self.address} ({self.node[:8]})"


class RemoteWorker:
    """A `Worker` in a process of its own.

    Args:
        folder: the driver's working folder, to which relative paths refer.
        threads: CPU threads of PyTorch.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._worker: Worker | None = None
        transformers_logging.disable_progress_bar()
        torch.set_num_threads(threads)

    def place(self) -> Place:
        """Where this is."""
        import ray

        return Place(ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id(), os.getpid())

    def build(self, *arguments: Any) -> None:
        """Make the worker; see `Worker`.

        Raises:
            ValueError: if it cannot be made, or the driver's working folder is not here.
        """
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise ValueError(
                f"the working folder {self._folder} does not exist on node {self.place().address}; start the run in a folder "
                "that all nodes share"
            ) from error
        self._worker = Worker(*arguments)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call one of the worker's methods."""
        return getattr(self._worker, method)(*arguments)


class RayBackend:
    """Workers in actors, placed by one placement group with a bundle for each policy.

    Args:
        config: the run's.
        algorithms: each policy's.
        plan: where the policies run.
        total_steps: of the run.
        output_dir: the run's folder.

    Raises:
        ValueError: if Ray is not installed or no cluster answers at the address; or as `Worker` does.
        WorkerLostError: if the actors do not come up in time.
    """

    def __init__(
        self,
        config: TrainingConfig,
        algorithms: Mapping[str, Algorithm],
        plan: Plan,
        total_steps: int,
        output_dir: Path,
    ) -> None:
        self._timeout = config.worker_timeout
        self._seats = seats(plan, algorithms)
        self._arguments = {
            name: (config, name, algorithm, self._seats[name].device, total_steps, output_dir.resolve())
            for name, algorithm in algorithms.items()
        }
        self._actors: dict[str, Any] = {}
        self._places: dict[str, Place] = {}
        self._group: Any = None
        self._joined = connect(config.ray_address, sum(seat.resources["CPU"] for seat in self._seats.values()))
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def rollout(self, step: int, prompts: Mapping[str, Sequence[Sequence[Message]]]) -> dict[str, Rollouts]:
        """Let the policies answer their P prompts, all at once.

        Raises:
            WorkerLostError: if one is lost.
        """
        return self._ask("rollout", {name: (step, mine) for name, mine in prompts.items()})

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        """Let the policies learn, all at once; their metrics.

        Raises:
            WorkerLostError: if one is lost.
        """
        return self._ask("learn", {name: (step, lesson) for name, lesson in lessons.items()})

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
        """Evaluate every policy, all at once; its summary.

        Raises:
            WorkerLostError: if one is lost.
        """
        config: TrainingConfig = next(iter(self._arguments.values()))[0]
        completions = len(problems) * (1 + config.eval_samples)
        return self._ask("evaluate", dict.fromkeys(self._arguments, (problems,)), lambda: progress(completions))

    def save(self, folder: Path) -> None:
        """Let every policy write itself into a folder that all nodes see.

        Raises:
            WorkerLostError: if one is lost.
        """
        self._ask("save", dict.fromkeys(self._arguments, (folder.resolve(),)))

    def load(self, folder: Path) -> None:
        """Let every policy take what `save` wrote.

        Raises:
            WorkerLostError: if one is lost.
        """
        self._ask("load", dict.fromkeys(self._arguments, (folder.resolve(),)))

    def restart(self) -> None:
        """End all actors, also those that are only late, and begin anew with the initial weights.

        Raises:
            WorkerLostError: if the actors do not come up in time.
        """
        self._end()
        self._begin()

    def close(self) -> None:
        """End all actors, and leave the cluster if this joined it. Calls that still wait for them raise WorkerLostError."""
        import ray

        self._end()
        if self._joined:
            ray.shutdown()
            self._joined = False

    def _end(self) -> None:
        """End all actors."""
        import ray

        if not ray.is_initialized():
            return
        for actor in self._actors.values():
            ray.kill(actor, no_restart=True)
        for place in self._places.values():
            if place.node == ray.get_runtime_context().get_node_id():
                _kill_here(place.process)
        self._actors, self._places = {}, {}
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None

    def _begin(self) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundles = [dict(seat.resources) for seat in self._seats.values()]
        self._group = ray.util.placement_group(bundles, strategy="PACK")
        if not self._group.wait(1):
            logger.warning("waiting for a cluster with %s; it has %s", bundles, _free(ray))
            if not self._group.wait(self._timeout):
                raise WorkerLostError(
                    f"{', '.join(self._seats)}: Ray had no room for {bundles} within {self._timeout:g} s; it has "
                    f"{_free(ray)}. Add nodes, or set num_threads or device so that the policies need less"
                )
        # An actor that dies is not begun anew by Ray: all policies have to go back to one step together.
        actor_class = ray.remote(max_restarts=0, max_task_retries=0)(RemoteWorker)
        for i, (name, seat) in enumerate(self._seats.items()):
            self._actors[name] = actor_class.options(
                num_cpus=seat.resources["CPU"],
                num_gpus=seat.resources.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, i),
            ).remote(Path.cwd(), int(seat.resources["CPU"]))
        self._places = self._gather({name: actor.place.remote() for name, actor in self._actors.items()}, "begin")
        for name, place in self._places.items():
            logger.info("%s: actor %s, %s", name, self._actors[name]._actor_id.hex(), place)
        self._gather(
            {name: actor.build.remote(*self._arguments[name]) for name, actor in self._actors.items()}, "load its model"
        )

    def _ask(
        self, method: str, arguments: Mapping[str, Sequence[Any]], answered: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Call one method of some workers at once; their answers."""
        actors = self._actors
        if not actors:
            raise WorkerLostError(f"{', '.join(arguments)}: the workers have been ended")
        calls = {name: actors[name].ask.remote(method, *mine) for name, mine in arguments.items()}
        return self._gather(calls, method, answered)

    def _gather(
        self, calls: Mapping[str, Any], what: str, answered: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """The answers, by policy.

        Raises:
            WorkerLostError: naming the first policy that is lost, or those that are late.
            Exception: what a worker raised itself.
        """
        import ray

        names = {call: name for name, call in calls.items()}
        answers = {}
        deadline = time.monotonic() + self._timeout
        while names:
            ready, _ = ray.wait(list(names), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                late = "; ".join(self._about(name) for name in names.values())
                raise WorkerLostError(f"{late}: no answer to {what!r} within worker_timeout={self._timeout:g} s")
            name = names.pop(ready[0])
            try:
                answers[name] = ray.get(ready[0])
            except ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"{self._about(name)}: lost while it was asked to {what!r} ({type(error).__name__}: "
                    f"{str(error).partition(chr(10))[0]})"
                ) from error
            if answered is not None:
                answered()
        return {name: answers[name] for name in calls}

    def _about(self, name: str) -> str:
        """A policy, its actor, and where that is."""
        actor = self._actors.get(name)
        known = "" if actor is None else f" (actor {actor._actor_id.hex()}, {self._places.get(name, 'not begun')})"
        return f"{name}{known}"


def connect(address: str | None, cpus: float) -> bool:
    """Join the cluster at an address, or that of RAY_ADDRESS, or start one here; one that this process is in already serves.

    Args:
        address: of a running cluster.
        cpus: that a cluster started here offers at least.

    Returns:
        Whether this process was in no cluster before.

    Raises:
        ValueError: if Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError("backend='ray' needs Ray; install it with: pip install 'mutual-rl[ray]'") from error
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        ray.init(
            address="local",
            num_cpus=max(int(cpus), os.cpu_count() or 1),
            object_store_memory=_OBJECT_STORE,
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
        return True
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"no Ray cluster can be joined at ray_address={address!r} ({error}); start one with ray start --head, or leave "
            "ray_address and RAY_ADDRESS out"
        ) from error
    return True


def _free(ray: Any) -> dict[str, float]:
    """What the cluster has free."""
    free = ray.available_resources()
    return {name: free.get(name, 0.0) for name in ("CPU", "GPU")}


def _kill_here(process: int) -> None:
    """End an actor's process on this machine at once, also one that is stopped, so that it outlives no driver."""
    try:
        if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(process, signal.SIGKILL)
    except OSError:
        return  # it is gone
