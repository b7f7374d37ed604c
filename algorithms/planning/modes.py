"""Who gets what: the modes of placement, each a function from the pool and the devices to one placement per policy.

`shared`: policies take turns on all devices; what a policy does not need while it waits lies in the host's memory.
`dedicated`: each policy has its own devices, so many that all finish a step at about the same time; of several devices some
learn and others sample. `colocated`: each policy has its own devices, which all learn and all sample, in turn. A fourth way is
a file that says it all.

A policy on a single device, or on the cores of a node, samples from the model that it trains; so do policies in shards, of
which each process has the whole model, too. Others have an engine with weights of its own. Policies are told apart by their
names and needs, never by their order.
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

Processes = Literal["one", "torchrun", "ray", "engines"]
"""Whose the processes are. `one`: all of it is one process, in which a policy has one device. `torchrun`: one for each GPU, or
each node's cores, over all of which each policy is in shards. `ray`: each policy's own, one for each of its GPUs or nodes, over
which it is in shards. `engines`: the same, and others for rollouts; nothing runs such a plan yet."""


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
    processes: Processes = "engines"

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
        placements, turns = explicit(pool, assignment), pool.taken_in_turns
    elif mode == "shared":
        placements, turns = shared(pool), pool.processes != "ray"
    else:
        placements, turns = divided(pool, engine=mode == "colocated"), pool.taken_in_turns
    threads = max(placement.threads for placement in placements)
    plan = Plan(tuple(placements), pool.cluster, mode, turns, pool.taken_in_turns, threads)
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
    """Policies that share devices. In one process, and with Ray, each is on one device, the first policy on the first; else
    each is on all of them, and they take turns.

    Of a cluster's GPUs as many are taken as are fastest, the same number on each node.
    """
    if pool.processes == "torchrun":
        return [_in_shards(pool, model, work, pool.devices) for model, work in pool.policies]
    if pool.processes in ("one", "ray") and pool.on_gpus:
        count = len(pool.devices)
        return [place(pool, m, w, [pool.devices[i % count]]) for i, (m, w) in enumerate(pool.policies)]
    if not pool.on_gpus:
        return _in_turns_on_cores(pool)
    aside = len(pool.policies) > 1
    policies = [(model, replace(work, offload=work.offload or aside)) for model, work in pool.policies]
    rows = min(work.update_rows for _, work in policies)
    nodes = pool.nodes
    best: tuple[tuple[float, float, int], list[Placement]] | None = None
    for count in range(1, len(nodes) + 1):
        for gpus in range(1, len(nodes[count - 1]) + 1):
            devices = [device for node in nodes[:count] for device in node[:gpus]]
            if count * gpus > max(1, rows) or len(devices) < count * gpus:
                continue
            found = [place(pool, m, w, devices, devices if len(devices) > 1 else None) for m, w in policies]
            plan = Plan(tuple(found), pool.cluster, "shared", turns=True, one_process=False)
            excess = sum(max(0, plan.load(room) - capacity) for room, capacity in plan.rooms().items())
            rank = (excess, plan.seconds_per_step(), count * gpus)
            if best is None or rank < best[0]:
                best = rank, found
    assert best is not None
    return best[1]


def divided(pool: Pool, *, engine: bool) -> list[Placement]:
    """Each policy on its own devices, so many that all finish a step at about the same time.

    Every policy begins with as few as it fits on; then devices are given to, or moved between, policies, the fewest at a time
    that make the slowest faster, or at equal speed of the slowest the next slowest. In one process policies have one GPU each.

    Args:
        pool: what is to be placed.
        engine: whether all devices of a policy learn and sample in turn, with an engine beside the learner; with Ray they do so
            anyway, without an engine.

    Raises:
        DoesNotFitError: if there are too few devices.
    """
    mode, count = "colocated" if engine else "dedicated", len(pool.devices)
    if count < len(pool.policies):
        raise DoesNotFitError(
            f"placement={mode!r} needs one device for each of {len(pool.policies)} policies, but there are {count} "
            f"({show_devices(pool.devices, node=len(pool.cluster.nodes) > 1)})"
        )
    if pool.processes == "one" and pool.on_gpus:
        return [place(pool, m, w, [device]) for (m, w), device in zip(pool.policies, pool.devices, strict=False)]

    @cache
    def layout(index: int, devices: tuple[Device, ...]) -> Placement | None:
        return _layout(pool, *pool.policies[index], devices, engine=engine)

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
        cores = [device for device in (*learner, *rollout) if device.kind == "cpu"]
        spread = pool.processes != "ray" and len({d.node for d in cores}) > 1
        if cores and (set(learner) != set(rollout) or spread or len(cores) < 2 * len(learner)):
            raise ValueError(
                f"placement of {work.name}: cores learn and sample together, and lie in one node; name them once"
            )
        if pool.processes == "one" and (len(learner) > 1 or learner != rollout) and not cores:
            raise ValueError(f"placement of {work.name}: in one process a policy has one GPU; name one")
        if pool.processes == "ray" and not ({"learner"} == set(entry)):
            raise ValueError(
                f"placement of {work.name} is {entry!r}; with backend='ray' all devices of a policy learn and sample: give "
                "learner alone"
            )
        own = cores or (learner == rollout and len(learner) == 1)
        parts = entry.get("tensor_parallel")
        if parts is not None and (own or parts not in _splits(model, rollout)):
            possible = [1] if own else _splits(model, rollout)
            raise ValueError(
                f"placement of {work.name} has tensor_parallel={parts!r}; {work.model_name} on these devices allows "
                f"{', '.join(map(str, possible))}"
            )
        if pool.processes == "ray":
            placements.append(_in_shards(pool, model, work, learner))
        else:
            placements.append(place(pool, model, work, learner, None if own else rollout, parts))
    for first, second in permutations(placements, 2) if pool.processes == "ray" and pool.on_gpus else ():
        common = first.devices & second.devices
        if common and len(first.devices) > 1:
            raise ValueError(
                f"placement gives {min(common)} to {first.name}, which has several GPUs, and to {second.name}; policies with "
                "several GPUs cannot share them"
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

    Args:
        pool: for the cluster's speeds and memory.
        model, work: the policy's.
        learner: GPUs, or nodes with all of their cores, over which the learner is sharded.
        rollout: GPUs of an engine with its own weights; None samples from the learner's model.
        parts: GPUs that a copy of the engine's weights is split over; by default the fastest number that fits.
    """
    if rollout is not None and parts is None:
        found = [place(pool, model, work, learner, rollout, parts) for parts in _splits(model, rollout)]
        return min(found, key=lambda p: (_excess(pool, p), p.seconds, p.rollout.tensor_parallel))
    kind, learner = learner[0].kind, tuple(learner)
    shards = len({device.node for device in learner}) if kind == "cpu" else len(learner)
    threads = estimates.useful_threads(model, work, len(learner) // shards) if kind == "cpu" else 1
    rate = estimates.speed(pool.cluster, kind, work.dtype, threads)
    memory: dict[Room, Memory] = {}
    needed = estimates.learner_memory(model, work, shards, kind)
    if rollout is None:
        rows = min(work.batch, work.generated)
        node = pool.cluster.nodes[learner[0].node]
        needed = estimates.with_sampling(needed, model, work, rows, kind, node.gpu_memory)
    for device in learner:
        memory[device.node, device.torch_name] = needed
        if kind == "cuda":
            host = memory.get((device.node, "cpu"), Memory(0)).resting
            memory[device.node, "cpu"] = Memory(host + needed.host)
    if rollout is None:
        sampler = Role(learner, 1, 1, estimates.rollout_seconds(model, work, rate, 1, 1))
    else:
        assert parts is not None
        engines = [group for node in _by_node(rollout) for group in _groups(node, parts)]
        rows = min(work.batch, -(-work.generated // len(engines)))
        sampling = estimates.engine_memory(model, work, rows, parts)
        used = tuple(device for group in engines for device in group)
        for device in used:
            room = device.node, device.torch_name
            memory[room] = replace(memory.get(room, Memory(0)), sampling=sampling)
            memory.setdefault((device.node, "cpu"), Memory(0))
        sampler = Role(used, parts, len(engines), estimates.rollout_seconds(model, work, rate, parts, len(engines)))
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


def _layout(pool: Pool, model: Model, work: Work, devices: tuple[Device, ...], *, engine: bool) -> Placement | None:
    """The fastest use that a policy can make of devices that are its own; None if there is none that fits."""
    if not pool.on_gpus:
        found = [place(pool, model, work, devices)] if len(_by_node(devices)) == 1 else []
    elif len(devices) == 1:
        found = [place(pool, model, work, devices)]
    elif pool.processes == "ray":
        counts = range(1, 2 if work.offload else min(len(devices), work.update_rows) + 1)
        found = [_in_shards(pool, model, work, devices[:count]) for count in counts]
    elif engine:
        counts = range(1, min(len(devices), work.update_rows) + 1)
        found = [place(pool, model, work, devices[:count], devices[:count] if count > 1 else None) for count in counts]
    else:
        cuts = range(max(1, len(devices) - work.update_rows), len(devices))
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
            whole = limit == 1 or mode == "colocated" or pool.processes == "ray"
            learner = pool.devices[:limit] if whole else pool.devices[1:limit]
            needed = (_in_shards if pool.processes == "ray" else place)(pool, model, work, learner)
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
    plan = Plan(tuple(placements), pool.cluster, "", pool.taken_in_turns, pool.taken_in_turns)
    return None if plan.overloaded() else placements


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


def _in_turns_on_cores(pool: Pool) -> list[Placement]:
    """Each policy on all cores of the node that has most memory left, the largest policy first."""
    nodes = pool.nodes
    loads = [0] * len(nodes)
    placements: dict[int, Placement] = {}
    for index in sorted(range(len(pool.policies)), key=lambda i: _rank(*pool.policies[i])):
        node = min(range(len(nodes)), key=lambda n: loads[n] - pool.cluster.nodes[nodes[n][0].node].memory)
        placements[index] = place(pool, *pool.policies[index], nodes[node])
        loads[node] += next(iter(placements[index].memory.values())).peak
    return [placements[index] for index in range(len(pool.policies))]


def _in_shards(pool: Pool, model: Model, work: Work, devices: Sequence[Device]) -> Placement:
    """A policy on several processes, each of which samples from the whole model, too; see `algorithms/sharding.py`.

    With GPUs there is one process for each, with cores one for each node. A single process has no shards.
    """
    samplers = devices if pool.on_gpus else [cores[0] for cores in _by_node(devices)]
    if len(samplers) == 1 and pool.processes == "ray":
        return place(pool, model, work, devices)
    placement = place(pool, model, work, devices, samplers, 1)
    rows = min(work.batch, -(-work.generated // len(samplers)))
    needed = estimates.sharded_memory(model, work, len(samplers), rows, samplers[0].kind)
    rooms = {(device.node, device.torch_name): needed for device in samplers}
    return replace(placement, engine=False, memory={**placement.memory, **rooms})


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
    """Numbers of devices of a node that one copy of a model can be split over."""
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
    plan = Plan((placement,), pool.cluster, "", turns=False, one_process=pool.taken_in_turns)
    return sum(max(0, plan.load(room) - capacity) for room, capacity in plan.rooms().items())


def _times(placements: Sequence[Placement]) -> list[float]:
    """Seconds of the policies, the slowest first."""
    return sorted((placement.seconds for placement in placements), reverse=True)


def _rank(model: Model, work: Work) -> tuple[float, str]:
    """The order in which policies choose: those with most to do first; names decide between equals."""
    return -estimates.operations(model, work), work.name
