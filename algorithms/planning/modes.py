"""Who gets what: the modes of placement, each a function from the pool and the devices to one placement per policy.

`shared`: each policy on one device, which it may share with others; in one process they take turns, and if need be what a
policy does not need while it waits lies in the host's memory. `dedicated`: each policy has its own devices, so many that all
finish a step at about the same time; with vLLM, of several devices some learn and others sample. `colocated`: each policy has
its own devices, which all learn and all sample, in turn. A fourth way is a file that says it all.

A policy samples from the model that it trains, or from a copy in vLLM: beside the learner, in each of its processes, or on
devices of its own, which is what the plan calls an engine. Policies are told apart by their names and needs, never by their
order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, permutations
from typing import Any, Literal

from algorithms.planning import estimates
from algorithms.planning.cluster import Cluster, Device, parse_devices, readable, show_devices
from algorithms.planning.estimates import Memory, Model, Work
from algorithms.planning.plan import Placement, Plan, Role, Room

Processes = Literal["one", "torchrun", "ray"]
"""Whose the processes are. `one`: all of it is one process, in which a policy has one device. `torchrun`: one for each GPU, or
each node's cores, over all of which each policy is in shards. `ray`: each policy's own, one for each of its GPUs or nodes, over
which it is in shards, and one for each engine."""


class DoesNotFitError(ValueError):
    """The pool does not fit; the message says what is short."""


@dataclass(frozen=True)
class Pool:
    """What is to be placed, and where.

    Attributes:
        policies: model and work of each.
        cluster: what there is.
        devices: of one kind, those that may be used.
        processes: whose they are.
    """

    policies: tuple[tuple[Model, Work], ...]
    cluster: Cluster
    devices: tuple[Device, ...]
    processes: Processes

    @property
    def taken_in_turns(self) -> bool:
        """Whether policies take turns whatever the mode, since they have no processes of their own."""
        return self.processes in ("one", "torchrun")

    @property
    def nodes(self) -> list[list[Device]]:
        """The devices by node."""
        return _by_node(self.devices)

    @property
    def on_gpus(self) -> bool:
        """Whether the devices are GPUs."""
        return self.devices[0].kind == "cuda"


def make(pool: Pool, mode: str, assignment: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a mode.

    Args:
        pool: what is to be placed.
        mode: `shared`, `dedicated`, `colocated`, or the path of the file that the assignment is from.
        assignment: for each policy its devices; see `explicit`.

    Raises:
        DoesNotFitError: if it does not fit.
        ValueError: if the assignment is not of this pool and cluster.
    """
    if assignment is not None:
        placements = explicit(pool, assignment)
    elif mode == "shared":
        placements = shared(pool)
    else:
        placements = divided(pool, mode)
    plan = _plan(pool, placements, mode)
    for p in placements:
        if p.work.vllm is not None and not p.engine and p.learner.devices[0].kind == "cuda":
            whole = min(pool.cluster.nodes[device.node].gpu_memory for device in p.learner.devices)
            least = estimates.engine_memory(p.model, p.work, 1, 1, "cuda")
            if least > p.work.vllm.share * whole:
                raise DoesNotFitError(
                    f"placement={mode!r} does not fit: vllm_gpu_memory_utilization={p.work.vllm.share:g} of {readable(whole)} "
                    f"is too little for vLLM's copy of {p.name}, which needs {readable(least)} at least"
                )
    for room in plan.overloaded():
        here = " and ".join(p.name for p in placements if room in p.memory)
        where = "cpu" if room[1] == "cpu" else room[1]
        where += f" of node {room[0]}" if len(pool.cluster.nodes) > 1 else ""
        raise DoesNotFitError(
            f"placement={mode!r} does not fit: {where} has {readable(plan.rooms()[room])}, but {here} would need about "
            f"{readable(plan.load(room))}"
        )
    return plan


def shared(pool: Pool) -> list[Placement]:
    """Policies that share devices: under `torchrun` each is on all of them, else on one.

    What waits in one process is put aside if its GPU is too small otherwise.
    """
    if pool.processes == "torchrun":
        return [place(pool, model, work, pool.devices) for model, work in pool.policies]
    found = _spread(pool)
    if pool.processes == "one" and pool.on_gpus and _plan(pool, found).overloaded():
        aside = tuple((model, replace(work, offload=True)) for model, work in pool.policies)
        return _spread(replace(pool, policies=aside))
    return found


def divided(pool: Pool, mode: str) -> list[Placement]:
    """Each policy on its own devices, so many that all finish a step at about the same time.

    Every policy begins with as few as it fits on; then devices are given to, or moved between, policies, the fewest at a time
    that make the slowest faster, or at equal speed of the slowest the next slowest. In one process policies have one GPU each,
    or all cores, since they take turns.

    Args:
        pool: what is to be placed.
        mode: `dedicated` or `colocated`.

    Raises:
        DoesNotFitError: if there are too few devices.
    """
    if pool.processes == "one" and not pool.on_gpus:
        return _spread(pool)
    count = len(pool.devices)
    if count < len(pool.policies):
        raise DoesNotFitError(
            f"placement={mode!r} needs one device for each of {len(pool.policies)} policies, but there are {count} "
            f"({show_devices(pool.devices, node=len(pool.cluster.nodes) > 1)})"
        )
    if pool.processes == "one":
        return [place(pool, m, w, [device]) for (m, w), device in zip(pool.policies, pool.devices, strict=False)]

    @cache
    def layout(index: int, devices: tuple[Device, ...]) -> Placement | None:
        return _layout(pool, *pool.policies[index], devices, mode)

    order = sorted(range(len(pool.policies)), key=lambda i: _rank(*pool.policies[i]))
    counts = _fewest(pool, layout, mode)
    best = _evaluate(pool, layout, order, counts)
    if best is None:
        raise DoesNotFitError(
            f"placement={mode!r} does not fit: policies need {', '.join(map(str, counts))} devices each, which cannot be taken "
            f"from {len(pool.nodes)} nodes of {len(pool.nodes[0])}"
        )
    while True:
        free = count - sum(counts)
        moves: list[tuple[int, int | None, int]] = [(n, None, to) for to in order for n in range(1, free + 1)]
        moves += [(n, source, to) for source, to in permutations(order, 2) for n in range(1, counts[source])]
        for _, together in groupby(sorted(moves, key=lambda move: move[0]), key=lambda move: move[0]):
            tried = []
            for number, source, to in together:
                changed = [n + number * ((i == to) - (i == source)) for i, n in enumerate(counts)]
                found = _evaluate(pool, layout, order, changed)
                if found is not None and _times(found) < _times(best):
                    tried.append((_times(found), changed, found))
            if tried:
                _, counts, best = min(tried, key=lambda t: t[0])
                break
        else:
            return best


def explicit(pool: Pool, assignment: Mapping[str, Any]) -> list[Placement]:
    """As the user wrote it: for each policy `learner`, `rollout` (the learner's by default) and `tensor_parallel` (chosen).

    Raises:
        ValueError: if policies are missing or unknown, a device does not exist, or a policy's devices are no possible ones.

    Example of a file:
        policy_0: {learner: [cuda:0-2], rollout: [cuda:3], tensor_parallel: 1}
        policy_1: {learner: [1/cuda:0]}
    """
    names = [work.name for _, work in pool.policies]
    if set(assignment) != set(names):
        raise ValueError(f"placement names {', '.join(map(str, assignment))}, but the policies are {', '.join(names)}")
    placements = []
    for model, work in pool.policies:
        entry = assignment[work.name]
        if not isinstance(entry, Mapping) or not {"learner"} <= set(entry) <= {"learner", "rollout", "tensor_parallel"}:
            raise ValueError(
                f"placement of {work.name} is {entry!r}; write learner: [cuda:0], and if need be rollout and tensor_parallel"
            )
        learner = _listed(pool, work.name, entry["learner"])
        rollout = _listed(pool, work.name, entry["rollout"]) if "rollout" in entry else learner
        beside = set(learner) == set(rollout)
        if not beside and (pool.processes != "ray" or work.vllm is None):
            raise ValueError(
                f"placement of {work.name} is {entry!r}; other devices sample only with backend='ray' and use_vllm, and "
                "without a vllm_server_base_url: set them so, or give learner alone"
            )
        if not beside and set(learner) & set(rollout):
            raise ValueError(
                f"placement of {work.name} lets some of its learner's devices sample, and not the others; give rollout all of "
                "them, or none"
            )
        if pool.processes == "one" and len(learner if learner[0].kind == "cuda" else _by_node(learner)) > 1:
            raise ValueError(f"placement of {work.name}: in one process a policy has one GPU, or the cores of one node")
        parts = entry.get("tensor_parallel")
        possible = [1] if beside else _splits(model, rollout)
        if parts is not None and (type(parts) is not int or parts not in possible):
            raise ValueError(
                f"placement of {work.name} has tensor_parallel={parts!r}; {work.model_name} on these devices allows "
                f"{', '.join(map(str, possible))}"
            )
        placement = place(pool, model, work, learner, None if beside else rollout, None if beside else parts)
        idle = set(rollout) - set(placement.rollout.devices)
        if idle:
            raise ValueError(
                f"placement of {work.name} would leave {min(idle)} idle: an engine takes {placement.rollout.tensor_parallel} "
                "GPUs of one node; give another number of them, or tensor_parallel"
            )
        placements.append(placement)
    for first, second in permutations(placements, 2):
        common = first.devices & second.devices
        own = {device for engine in first.engines for device in engine}
        if common & own or (len(first.devices) > 1 and any(device.kind == "cuda" for device in common)):
            raise ValueError(
                f"placement gives {min(common)} to {first.name}, which has several devices, and to {second.name}; engines "
                "share theirs with nobody, nor do policies with several GPUs"
            )
    return placements


def place(
    pool: Pool,
    model: Model,
    work: Work,
    learner: Sequence[Device],
    rollout: Sequence[Device] | None = None,
    parts: int | None = None,
) -> Placement:
    """A policy on given devices.

    It has a process for each GPU that learns, or each node whose cores learn; with several it is in shards.

    Args:
        pool: for the cluster's speeds and memory.
        model, work: the policy's.
        learner: GPUs, or cores.
        rollout: those of engines; None lets each process sample, too, from the model that it trains or from a vLLM beside it.
        parts: devices that a copy of an engine's weights is split over; by default the fastest number that fits.
    """
    if rollout is not None and parts is None:
        found = [place(pool, model, work, learner, rollout, parts) for parts in _splits(model, rollout)]
        return min(found, key=lambda p: (_excess(pool, p), p.seconds, p.rollout.tensor_parallel))
    kind, learner = learner[0].kind, tuple(learner)
    shards = len(_by_node(learner)) if kind == "cpu" else len(learner)
    threads = estimates.useful_threads(model, work, len(learner) // shards) if kind == "cpu" else 1
    rate = estimates.speed(pool.cluster, kind, work.dtype, threads)
    memory: dict[Room, Memory] = {}
    if shards == 1:
        needed = estimates.learner_memory(model, work, 1, kind)
    else:
        needed = estimates.sharded_memory(model, work, shards, kind)
    if rollout is None:
        rows = min(work.batch, estimates.share_of_rollouts(work, shards))
        room = pool.cluster.nodes[learner[0].node].gpu_memory
        needed = estimates.with_sampling(needed, model, work, rows, kind, room)
    for device in learner:
        memory[device.node, device.torch_name] = needed
        if kind == "cuda":
            host = memory.get((device.node, "cpu"), Memory(0)).resting
            memory[device.node, "cpu"] = Memory(host + needed.host)
    if rollout is None:
        sampler = Role(learner, 1, shards, estimates.rollout_seconds(model, work, rate, 1, shards))
    else:
        assert parts is not None
        sampler = _engines(pool, model, work, rollout, parts)
        rows = min(work.batch, estimates.share_of_rollouts(work, sampler.data_parallel))
        for node, name in {(device.node, device.torch_name) for device in sampler.devices}:
            there = memory.get((node, name), Memory(0))
            sampling = estimates.engine_memory(model, work, rows, parts, sampler.devices[0].kind)
            # A learner on other cores of the node does not let go of what it has, nor an engine of its keys and values.
            memory[node, name] = replace(there, resting=there.resting + sampling)
        # The whole model passes through the nodes' memory: a copy, and what Ray keeps.
        handed = 2 * estimates.weight_bytes(model, work)
        for node in {learner[0].node, *(device.node for device in sampler.devices)}:
            there = memory.get((node, "cpu"), Memory(0))
            memory[node, "cpu"] = replace(there, resting=there.resting + handed)
    return Placement(
        model=model,
        work=work,
        learner=Role(learner, 1, shards, estimates.update_seconds(model, work, rate, shards)),
        rollout=sampler,
        micro_batch=estimates.micro_batch(work, shards),
        engine=rollout is not None,
        threads=threads,
        memory=memory,
        waiting=estimates.offload_seconds(model, work, shards) if kind == "cuda" else 0.0,
    )


def _engines(pool: Pool, model: Model, work: Work, devices: Sequence[Device], parts: int) -> Role:
    """Engines of so many GPUs each, or one on the cores of each node; GPUs that are left over are idle."""
    kind = devices[0].kind
    nodes = _by_node(devices)
    groups = nodes if kind == "cpu" else [group for node in nodes for group in _groups(node, parts)]
    threads = min(map(len, groups)) if kind == "cpu" else 1
    rate = estimates.speed(pool.cluster, kind, work.dtype, threads)
    seconds = estimates.rollout_seconds(model, work, rate, parts, len(groups))
    return Role(tuple(device for group in groups for device in group), parts, len(groups), seconds)


def _layout(pool: Pool, model: Model, work: Work, devices: tuple[Device, ...], mode: str) -> Placement | None:
    """The fastest use that a policy can make of devices that are its own; None if there is none that fits."""
    if not pool.on_gpus:
        found = [place(pool, model, work, devices)] if len(_by_node(devices)) == 1 else []
    elif len(devices) == 1:
        found = [place(pool, model, work, devices)]
    else:
        most = 1 if work.offload else min(len(devices), work.update_rows)  # shards are never offloaded
        if work.vllm is None or mode == "colocated":
            found = [place(pool, model, work, devices[:count]) for count in range(1, most + 1)]
        else:
            cuts = range(max(1, len(devices) - most), len(devices))
            found = [place(pool, model, work, devices[cut:], devices[:cut]) for cut in cuts]
    fitting = [placement for placement in found if _excess(pool, placement) == 0]
    return min(fitting, key=lambda p: (p.seconds, len(p.devices)), default=None)


def _fewest(pool: Pool, layout: Callable[[int, tuple[Device, ...]], Placement | None], mode: str) -> list[int]:
    """For each policy the fewest devices that it fits on.

    Raises:
        DoesNotFitError: if one does not fit at all, or they are too many.
    """
    counts = []
    limit = len(pool.devices) if pool.on_gpus else 1
    for index, (model, work) in enumerate(pool.policies):
        fewest = next((n for n in range(1, limit + 1) if layout(index, pool.devices[:n]) is not None), None)
        if fewest is None:
            beside = limit == 1 or mode == "colocated" or work.vllm is None
            learner = pool.devices[:limit] if beside else pool.devices[1:limit]
            needed = place(pool, model, work, learner)
            device = learner[0]
            peak = readable(needed.memory[device.node, device.torch_name].peak)
            capacity = pool.cluster.nodes[device.node]
            raise DoesNotFitError(
                f"placement={mode!r} does not fit: {work.name} needs about {peak} on each of "
                f"{len(learner)} devices that learn, with {readable(capacity.gpu_memory if pool.on_gpus else capacity.memory)}"
            )
        counts.append(fewest)
    if sum(counts) > len(pool.devices):
        needs = ", ".join(f"{work.name} {n}" for (_, work), n in zip(pool.policies, counts, strict=True))
        raise DoesNotFitError(
            f"placement={mode!r} does not fit: policies need at least {sum(counts)} devices ({needs}), but there are "
            f"{len(pool.devices)}"
        )
    return counts


def _evaluate(
    pool: Pool,
    layout: Callable[[int, tuple[Device, ...]], Placement | None],
    order: Sequence[int],
    counts: Sequence[int],
) -> list[Placement] | None:
    """The placements if policies have so many devices; None if they do not fit."""
    devices = _dealt(pool, sorted(order, key=lambda i: -counts[i]), counts)
    found = [layout(i, devices[i]) for i in range(len(counts))]
    placements = [placement for placement in found if placement is not None]
    if len(placements) < len(found):
        return None
    return None if _plan(pool, placements).overloaded() else placements


def _dealt(pool: Pool, order: Sequence[int], counts: Sequence[int]) -> dict[int, tuple[Device, ...]]:
    """Devices for each policy: whole nodes first, then what is left of it in one node, if there is one with so much room."""
    free = [list(node) for node in pool.nodes]
    dealt: dict[int, list[Device]] = {index: [] for index in order}

    def take(index: int, node: list[Device], number: int) -> None:
        dealt[index] += node[:number]
        del node[:number]

    for index in order:
        for node in free:
            if node and pool.on_gpus and counts[index] - len(dealt[index]) >= len(node):
                take(index, node, len(node))
    for index in sorted(order, key=lambda i: len(dealt[i]) - counts[i]):
        while missing := counts[index] - len(dealt[index]):
            enough = [node for node in free if len(node) >= missing]
            # GPUs: where least is left over; cores, which share their node's memory: where there is most room.
            node = min(enough, key=len) if enough and pool.on_gpus else max(free, key=len)
            take(index, node, min(missing, len(node)))
    return {index: tuple(devices) for index, devices in dealt.items()}


def _spread(pool: Pool) -> list[Placement]:
    """Each policy on the GPU, or on all cores of the node, that has most memory left; the largest policy first."""
    places = [[device] for device in pool.devices] if pool.on_gpus else pool.nodes
    left = [
        pool.cluster.nodes[p[0].node].gpu_memory if pool.on_gpus else pool.cluster.nodes[p[0].node].memory
        for p in places
    ]
    placements: dict[int, Placement] = {}
    for index in sorted(range(len(pool.policies)), key=lambda i: _rank(*pool.policies[i])):
        most = max(range(len(places)), key=lambda n: left[n])
        device = places[most][0]
        placements[index] = place(pool, *pool.policies[index], places[most])
        left[most] -= placements[index].memory[device.node, device.torch_name].peak
    return [placements[index] for index in range(len(pool.policies))]


def _listed(pool: Pool, name: str, words: Any) -> tuple[Device, ...]:
    """The devices of a list in a placement file.

    Raises:
        ValueError: if it is none, or a device is named twice or does not exist.
    """
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"placement of {name} has {words!r} for devices; write a list such as [cuda:0-3]")
    found = [device for word in words for device in parse_devices(word)]
    known = set(pool.cluster.devices("cuda") + pool.cluster.devices("cpu"))
    missing = [device for device in found if device not in known]
    if missing:
        raise ValueError(f"placement of {name} has {missing[0]}, which does not exist; there are {pool.cluster}")
    if len(set(found)) < len(found) or len({device.kind for device in found}) > 1:
        raise ValueError(f"placement of {name} has {words!r}; name each device once, and GPUs or cores alone")
    return tuple(found)


def _splits(model: Model, devices: Sequence[Device]) -> list[int]:
    """Numbers of GPUs of a node that one copy of a model can be split over; of cores it is not split."""
    if devices[0].kind == "cpu":
        return [1]
    most = max(len(node) for node in _by_node(devices))
    return [parts for parts in range(1, most + 1) if model.splits_into(parts)]


def _groups(devices: Sequence[Device], size: int) -> list[Sequence[Device]]:
    """Whole groups of so many neighbours."""
    return [devices[i : i + size] for i in range(0, len(devices) - size + 1, size)]


def _by_node(devices: Sequence[Device]) -> list[list[Device]]:
    """The devices of each node."""
    found: defaultdict[int, list[Device]] = defaultdict(list)
    for device in devices:
        found[device.node].append(device)
    return list(found.values())


def _excess(pool: Pool, placement: Placement) -> int:
    """Bytes by which a policy alone is too large for its rooms."""
    plan = _plan(pool, [placement])
    return sum(max(0, plan.load(room) - capacity) for room, capacity in plan.rooms().items())


def _plan(pool: Pool, placements: Sequence[Placement], mode: str = "") -> Plan:
    """A plan of these placements."""
    threads = max(placement.threads for placement in placements)
    return Plan(tuple(placements), pool.cluster, mode, pool.taken_in_turns, pool.processes == "one", threads)


def _times(placements: Sequence[Placement]) -> list[float]:
    """Seconds of the policies, the slowest first."""
    return sorted((placement.seconds for placement in placements), reverse=True)


def _rank(model: Model, work: Work) -> tuple[float, str]:
    """The order in which policies choose: those with most to do first; names decide between equals."""
    return -estimates.operations(model, work), work.name
