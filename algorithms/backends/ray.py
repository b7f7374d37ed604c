"""Every worker in Ray actors of its own, wherever the cluster has room: all policies roll out and learn at once. This is
the driver's side; `ray_actors` is theirs.

A policy has an actor for each process of its plan; several hold it in shards (`algorithms/sharding.py`), and are asked the
same. Where the plan has engines on other devices, each is an actor, too, which the policy's first process asks. The driver
keeps environment, verification and exchange. The workers write checkpoints into the run's folder, which must be on a file
system that all nodes share (a single machine has one).
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from algorithms.algorithm import Algorithm
from algorithms.backends.ray_actors import Place, RemoteEngineProcess, RemoteWorker
from algorithms.backends.ray_cluster import connect, free_resources
from algorithms.config import TrainingConfig
from algorithms.devices import Plan
from algorithms.errors import WorkerLostError
from algorithms.planning.estimates import weight_bytes
from algorithms.worker import Lesson, Rollouts
from mrl_env.types import Message, Problem

logger = logging.getLogger(__name__)

_SETTINGS = ("VLLM_CPU_KVCACHE_SPACE", "MRL_RANK_TIMEOUT")
"""Variables of the driver's environment that hold for its actors, too."""

_PING = 5.0
"""Seconds within which an engine that has nothing to do says where it is."""


@dataclass(frozen=True)
class Seat:
    """What Ray reserves for a process.

    Attributes:
        resources: by Ray's names.
        device: the policy's, as the process sees it.
    """

    resources: Mapping[str, float]
    device: str


def seats(plan: Plan) -> dict[str, list[Seat]]:
    """From the plan to Ray's resources, for each policy's processes: on a CPU as many as there are threads, of a GPU a part."""
    processes = {placement.name: placement.processes_of_learner for placement in plan.placements}
    sharers = Counter(device for devices in processes.values() for device in devices)
    return {
        name: [
            Seat({"CPU": plan.threads}, "cpu")
            if device.kind == "cpu"
            else Seat({"CPU": 1, "GPU": 1 / sharers[device]}, "cuda:0")  # Ray shows a process only its own GPUs
            for device in devices
        ]
        for name, devices in processes.items()
    }


def engine_seats(plan: Plan) -> dict[str, list[Seat]]:
    """For each policy those of its engines, if they have devices of their own: whole GPUs, or cores."""
    return {
        placement.name: [
            Seat({"CPU": len(devices)}, "cpu")
            if devices[0].kind == "cpu"
            else Seat({"CPU": 1, "GPU": len(devices)}, "cuda:0")
            for devices in placement.engines
        ]
        for placement in plan.placements
    }


@dataclass
class Crew:
    """Actors that do the same.

    Attributes:
        kind: what each of them is, if there are several.
        seats: what Ray reserves for each.
        actors, places: once they have begun.
    """

    kind: Literal["shard", "engine"]
    seats: Sequence[Seat]
    actors: list[Any] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


class RayBackend:
    """Workers in actors, placed by one placement group with a bundle for each process.

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
        own = seats(plan)
        self._arguments = {
            name: (config, name, algorithm, own[name][0].device, total_steps, output_dir.resolve())
            for name, algorithm in algorithms.items()
        }
        self._policies = {policy.name: policy for policy in config.policies()}
        self._workers = {name: Crew("shard", own[name]) for name in algorithms}
        self._engines = {name: Crew("engine", found) for name, found in engine_seats(plan).items() if found}
        self._group: Any = None
        weights = sum(weight_bytes(p.model, p.work) for p in plan.placements if p.engine)
        self._connect = partial(
            connect, config.ray_address, sum(seat.resources["CPU"] for seat in self._seats), weights
        )
        self._joined = self._connect()
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
        self._joined = self._connect() or self._joined  # where it was closed meanwhile
        self._begin()

    def close(self) -> None:
        """End all actors, and leave the cluster if this joined it. Calls that still wait for them raise WorkerLostError."""
        import ray

        self._end()
        if self._joined:
            ray.shutdown()
            self._joined = False

    @property
    def _crews(self) -> list[Crew]:
        return [*self._workers.values(), *self._engines.values()]

    @property
    def _seats(self) -> list[Seat]:
        return [seat for crew in self._crews for seat in crew.seats]

    def _end(self) -> None:
        """End all actors."""
        import ray

        if not ray.is_initialized():
            return
        for crew in self._crews:
            for actor in crew.actors:
                ray.kill(actor, no_restart=True)
            for place in crew.places:
                if place.node == ray.get_runtime_context().get_node_id():
                    _kill_here(place.process)
            crew.actors, crew.places = [], []
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None

    def _begin(self) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundles = [dict(seat.resources) for seat in self._seats]
        self._group = ray.util.placement_group(bundles, strategy="PACK")
        if not self._group.wait(1):
            logger.warning("waiting for a cluster with %s; it has %s", bundles, free_resources())
            if not self._group.wait(self._timeout):
                raise WorkerLostError(
                    f"{', '.join(self._workers)}: Ray had no room for {bundles} within {self._timeout:g} s; it has "
                    f"{free_resources()}. Add nodes, or set num_threads or device so that the policies need less"
                )
        # On a running cluster processes have the environment of its nodes.
        settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
        environment = {"env_vars": settings} if settings else None
        bundle = count()
        for crew in self._crews:
            # An actor that dies is not begun anew by Ray: all policies have to go back to one step together.
            actor_class = ray.remote(max_restarts=0, max_task_retries=0)(_ACTORS[crew.kind])
            crew.actors = [
                actor_class.options(
                    num_cpus=seat.resources["CPU"],
                    num_gpus=seat.resources.get("GPU", 0),
                    runtime_env=environment,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, next(bundle)),
                ).remote(Path.cwd(), int(seat.resources["CPU"]))
                for seat in crew.seats
            ]
        for crews in (self._workers, self._engines):
            places = self._gather(
                crews, {n: [a.place.remote() for a in crew.actors] for n, crew in crews.items()}, "begin"
            )
            for name, crew in crews.items():
                crew.places = places[name]
                for rank in range(len(crew.actors)):
                    logger.info("%s", _about(name, crew, rank))
        making = {
            name: [
                actor.build.remote(self._policies[name], seat.device, int(seat.resources.get("GPU", 1)))
                for actor, seat in zip(crew.actors, crew.seats, strict=True)
            ]
            for name, crew in self._engines.items()
        }
        several = {n: [crew.actors[0].open_store.remote()] for n, crew in self._workers.items() if len(crew.actors) > 1}
        meetings = {name: found[0] for name, found in self._gather(self._workers, several, "open a port").items()}
        building = {}
        for name, crew in self._workers.items():
            engines = self._engines.get(name)
            known = {} if engines is None else {_about(name, engines, i): a for i, a in enumerate(engines.actors)}
            building[name] = [
                actor.build.remote(rank, len(crew.actors), meetings.get(name), known, self._arguments[name])
                for rank, actor in enumerate(crew.actors)
            ]
        self._gather(self._workers, building, "load its model")
        self._gather(self._engines, making, "begin with vLLM")

    def _ask(
        self, method: str, arguments: Mapping[str, Sequence[Any]], answered: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Call one method of some workers at once; their answers."""
        if not all(crew.actors for crew in self._crews):
            raise WorkerLostError(f"{', '.join(arguments)}: the workers have been ended")
        calls = {
            name: [actor.ask.remote(method, *mine) for actor in self._workers[name].actors]
            for name, mine in arguments.items()
        }
        return {name: answers[0] for name, answers in self._gather(self._workers, calls, method, answered).items()}

    def _gather(
        self,
        crews: Mapping[str, Crew],
        calls: Mapping[str, Sequence[Any]],
        what: str,
        answered: Callable[[], None] | None = None,
    ) -> dict[str, list[Any]]:
        """What some of each policy's actors answer; `answered` is called whenever a policy's first one has answered.

        Raises:
            WorkerLostError: naming the first actor that is lost, or those that are late.
            Exception: what an actor raised itself.
        """
        import ray

        waiting = {call: (name, rank) for name, own in calls.items() for rank, call in enumerate(own)}
        answers = {}
        deadline = time.monotonic() + self._timeout
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                late = [_about(name, crews[name], rank) for name, rank in waiting.values()]
                late += self._silent({name for name, _ in waiting.values()})
                raise WorkerLostError(
                    f"{'; '.join(late)}: no answer to {what!r} within worker_timeout={self._timeout:g} s"
                )
            name, rank = waiting.pop(ready[0])
            try:
                answers[name, rank] = ray.get(ready[0])
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, WorkerLostError):  # of another process, which can be begun anew
                    raise WorkerLostError(f"{_about(name, crews[name], rank)}: {error.cause}") from error
                raise (error.cause or error) from error
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"{_about(name, crews[name], rank)}: lost while it was asked to {what!r} ({type(error).__name__}: "
                    f"{str(error).partition(chr(10))[0]})"
                ) from error
            if answered is not None and rank == 0:
                answered()
        return {name: [answers[name, rank] for rank in range(len(own))] for name, own in calls.items()}

    def _silent(self, names: Collection[str]) -> list[str]:
        """Engines of these policies that say nothing."""
        import ray

        asked = {
            actor.place.remote(): _about(name, crew, rank)
            for name, crew in self._engines.items()
            if name in names
            for rank, actor in enumerate(crew.actors)
        }
        _, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PING) if asked else ([], [])
        return [asked[call] for call in silent]


_ACTORS = {"shard": RemoteWorker, "engine": RemoteEngineProcess}


def _about(name: str, crew: Crew, rank: int) -> str:
    """A policy, one of its actors, and where that is."""
    if not crew.actors:
        return name
    which = f"{crew.kind} {rank} of {len(crew.actors)}, " if crew.kind == "engine" or len(crew.actors) > 1 else ""
    where = crew.places[rank] if crew.places else "not begun"
    return f"{name} ({which}actor {crew.actors[rank]._actor_id.hex()}, {where})"


def _kill_here(process: int) -> None:
    """End an actor's process on this machine at once, also one that is stopped, so that it outlives no driver."""
    try:
        if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(process, signal.SIGKILL)
    except OSError:
        return  # it is gone
