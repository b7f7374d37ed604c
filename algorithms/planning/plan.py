"""The plan: for each policy who learns it, who samples it, what that takes; and the table that is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from algorithms.planning.cluster import Cluster, Device, readable, show_devices
from algorithms.planning.estimates import PROCESS_BYTES, Memory, Model, Work, operations
from algorithms.tracking import table

Room = tuple[int, str]
"""What has a memory of its own: (node, `cuda:3`), or (node, `cpu`) for all cores of a node and for what GPUs put aside."""


@dataclass(frozen=True)
class Role:
    """Learning, or sampling, of one policy.

    Attributes:
        devices: where. One replica's devices stand together, replica after replica.
        tensor_parallel: devices that one copy of the weights is split over.
        data_parallel: how many share the rows: of a learner all its devices, over which its state is sharded, too; of rollouts
            the engines.
        seconds: of a step, estimated.
    """

    devices: tuple[Device, ...]
    tensor_parallel: int
    data_parallel: int
    seconds: float


@dataclass(frozen=True)
class Placement:
    """One line of the plan.

    Attributes:
        model, work: the policy's architecture and what it has to do.
        learner, rollout: who does it.
        micro_batch: rows of a forward pass on each of the learner's devices.
        engine: whether completions are sampled by engines on devices of their own.
        threads: CPU threads, where cores learn; else 1.
        memory: for each room what the policy takes there, without the processes themselves.
        waiting: seconds of a step to bring back what was put aside.
    """

    model: Model
    work: Work
    learner: Role
    rollout: Role
    micro_batch: int
    engine: bool
    threads: int
    memory: Mapping[Room, Memory]
    waiting: float = 0.0

    @property
    def name(self) -> str:
        """The policy's."""
        return self.work.name

    @property
    def device(self) -> str:
        """The first learner's, as PyTorch calls it."""
        return self.learner.devices[0].torch_name

    @property
    def processes_of_learner(self) -> tuple[Device, ...]:
        """For each process that learns its device: a GPU, or of a node's cores the first."""
        first = {device.node: device for device in reversed(self.learner.devices)}
        return tuple(d for d in self.learner.devices if d.kind == "cuda" or d == first[d.node])

    @property
    def engines(self) -> tuple[tuple[Device, ...], ...]:
        """For each engine with devices of its own those: GPUs, or cores of a node."""
        if not self.engine:
            return ()
        size = self.rollout.tensor_parallel
        nodes = [tuple(same) for _, same in groupby(self.rollout.devices, key=lambda device: device.node)]
        return tuple(
            node[i : i + n]
            for node in nodes
            for n in [size if node[0].kind == "cuda" else len(node)]
            for i in range(0, len(node), n)
        )

    @property
    def devices(self) -> frozenset[Device]:
        """All of the policy's devices."""
        return frozenset(self.learner.devices + self.rollout.devices)

    @property
    def seconds(self) -> float:
        """Of a step: rollout and update, one after the other."""
        return self.rollout.seconds + self.learner.seconds + self.waiting

    def processes(self, room: Room) -> int:
        """Processes in a room, where each policy has its own."""
        roles = [self.learner.devices] + ([self.rollout.devices] if self.engine else [])
        if room[1] == "cpu":
            here = [{device for device in role if device.node == room[0]} for role in roles]
            return sum(sum(device.kind == "cuda" for device in role) or int(bool(role)) for role in here)
        return sum(any((device.node, device.torch_name) == room for device in role) for role in roles)


@dataclass(frozen=True)
class Plan:
    """Where every policy runs.

    Attributes:
        placements: one per policy, in order.
        cluster: what there is.
        mode: `shared`, `dedicated`, `colocated`, or the path of a placement file.
        turns: whether policies take turns; otherwise all work at the same time.
        one_process: whether all of it is one process, as in the local backend.
        threads: CPU threads of PyTorch of a process that learns.
    """

    placements: tuple[Placement, ...]
    cluster: Cluster
    mode: str
    turns: bool
    one_process: bool
    threads: int = 1

    def placement(self, name: str) -> Placement:
        """A policy's line."""
        return next(placement for placement in self.placements if placement.name == name)

    def device(self, name: str) -> str:
        """Where a policy learns, as PyTorch calls it; of several devices the first."""
        return self.placement(name).device

    def rooms(self) -> dict[Room, int]:
        """For each room that is used, the bytes that it has."""
        used = sorted({room for placement in self.placements for room in placement.memory})
        nodes = self.cluster.nodes
        return {(node, name): nodes[node].memory if name == "cpu" else nodes[node].gpu_memory for node, name in used}

    def load(self, room: Room) -> int:
        """Bytes that a room holds at the peak."""
        here = [(placement, placement.memory[room]) for placement in self.placements if room in placement.memory]
        if self.turns:
            total = sum(m.resting for _, m in here) + max((m.transient for _, m in here), default=0)
        else:
            total = sum(m.peak for _, m in here)
        counts = [placement.processes(room) for placement, _ in here]
        processes = 1 if self.one_process else max(counts) if self.turns else sum(counts)
        return total + processes * PROCESS_BYTES["cpu" if room[1] == "cpu" else "cuda"]

    def overloaded(self) -> list[Room]:
        """Rooms that cannot hold what they are to hold."""
        return [room for room, capacity in self.rooms().items() if self.load(room) > capacity]

    def seconds_per_step(self) -> float:
        """A rough guess of a step's time."""
        seconds = [placement.seconds for placement in self.placements]
        return sum(seconds) if self.turns else max(seconds)

    def share(self, placement: Placement) -> float:
        """A policy's part of the step's floating-point operations, in [0, 1]."""
        return operations(placement.model, placement.work) / sum(operations(p.model, p.work) for p in self.placements)

    def __str__(self) -> str:
        several = len(self.cluster.nodes) > 1
        rows: list[tuple[str, ...]] = []
        for p in self.placements:
            largest = {name[:4]: 0 for _, name in p.memory}
            for (_, name), memory in p.memory.items():
                largest[name[:4]] = max(largest[name[:4]], memory.peak)
            rows.append((
                p.name, p.work.model_name, p.work.algorithm, p.work.dtype, millions(p.model),
                show_devices(p.learner.devices, node=several), str(p.learner.data_parallel), str(p.micro_batch),
                show_devices(p.rollout.devices, node=several), f"{p.rollout.tensor_parallel} x {p.rollout.data_parallel}",
                readable(largest["cuda" if "cuda" in largest else "cpu"]), readable(largest.get("cpu", 0)),
                f"{p.rollout.seconds:.3g} s", f"{p.learner.seconds:.3g} s", f"{self.share(p):.0%}",
            ))  # fmt: skip
        header: tuple[str, ...] = (
            "policy", "model", "algorithm", "dtype", "parameters", "learner", "shards", "micro-batch", "rollouts", "tp x dp",
            "per device", "on a host", "rollout", "update", "compute",
        )  # fmt: skip
        if not any(room[1] != "cpu" for room in self.rooms()):
            header, rows = header[:11] + header[12:], [row[:11] + row[12:] for row in rows]
        used: dict[str, tuple[int, int]] = {}
        for (node, name), capacity in self.rooms().items():
            kind = "a GPU" if name != "cpu" else f"cpu of node {node}" if several else "cpu"
            used[kind] = max(used.get(kind, (0, 0)), (self.load((node, name)), capacity))
        most = ", ".join(f"{kind}: {readable(load)} of {readable(capacity)}" for kind, (load, capacity) in used.items())
        order = "policies take turns" if self.turns else "policies work at the same time"
        return (
            f"{self.cluster}; placement {self.mode}, {order}\n{table(header, rows)}\n"
            f"estimated memory on {most}; CPU threads: {self.threads}"
        )


def millions(model: Model) -> str:
    """How many parameters there are, and how many of them are trained."""
    every = f"{model.parameters / 1e6:.1f} M"
    return every if model.trained == model.parameters else f"{model.trained / 1e6:.1f} M of {every}"
