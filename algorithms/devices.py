"""MWRA, Multi-Worker Resource Allocation: which policy runs where, what it needs, and whether it fits.

The plan is made from the models' configurations and a description of the machines alone, and printed before any weights are
loaded; see `algorithms.planning` and docs/scale.md.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from algorithms.config import PolicyConfig, TrainingConfig, read_yaml
from algorithms.options import PLACEMENTS
from algorithms.planning.cluster import THREADS, Cluster, chosen, discovered
from algorithms.planning.estimates import Model, read_model, read_work
from algorithms.planning.modes import DoesNotFitError, Pool, Processes, make
from algorithms.planning.plan import Placement, Plan
from algorithms.planning.remedies import remedies
from algorithms.policy import load_model_config
from algorithms.precision import warn_if_slow
from algorithms.ranks import Ranks, join_ranks
from algorithms.sharding import check_sharding, check_torchrun

__all__ = ["Placement", "Plan", "available_devices", "make_plan"]


def make_plan(config: TrainingConfig, cluster: Cluster | None = None) -> Plan:
    """Place the policies of a run.

    Args:
        config: the run's.
        cluster: where the run would be, with the same processes; None is what there is: this machine, the processes of
            `torchrun`, or Ray's cluster.

    Raises:
        ValueError: if settings make no sense in shards, a device does not exist, Ray's cluster does not answer, or the policies
            do not fit: then the message says what would fit.
    """
    ranks = join_ranks()
    processes: Processes = "ray" if config.backend == "ray" else "one"
    here = cluster is None and processes != "ray"  # other machines warn when they load their policies
    devices = None
    if ranks.size > 1:
        check_torchrun(config)
        processes, cluster = "torchrun", cluster or _of_ranks(ranks, ranks.device(config.device))
        devices = cluster.devices()
        places = len(devices) if devices[0].kind == "cuda" else len(cluster.nodes)
        if places != ranks.size:
            raise ValueError(
                f"cluster has {places} {'GPUs' if devices[0].kind == 'cuda' else 'nodes without GPUs'}, but torchrun began "
                f"{ranks.size} processes; begin one for each"
            )
    elif cluster is None and config.backend == "ray":
        from algorithms.backends.ray_cluster import cluster_of  # Ray is optional

        cluster = cluster_of(config.ray_address)
    elif cluster is None:
        cluster = discovered()
    if processes == "ray" and any(":" in device for device in config.device):
        raise ValueError(
            f"device={list(config.device)!r}, but with backend='ray' Ray hands out GPUs; use auto, or cpu, and let "
            "CUDA_VISIBLE_DEVICES name the GPUs that it may use"
        )
    if processes == "one" and len(cluster.nodes) > 1:
        raise ValueError(
            f"cluster has {len(cluster.nodes)} nodes, but backend='local' runs on one; set backend ray, or begin the run with "
            "torchrun"
        )
    policies = config.policies()
    models = [read_model(policy, load_model_config(policy)) for policy in policies]
    works = [read_work(policy, config) for policy in policies]
    pool = Pool(
        tuple(zip(models, works, strict=True)),
        cluster,
        chosen(cluster, config.device) if devices is None else devices,
        processes,
    )
    assignment = read_placement(config.placement)
    try:
        plan = make(pool, config.placement, assignment)
    except DoesNotFitError as error:
        if assignment is not None:
            raise ValueError(
                f"{error}; name more devices, or let placement be shared, dedicated or colocated"
            ) from error
        adapted = (lambda: _with_adapters(config)) if importlib.util.find_spec("peft") else None
        helpful = remedies(pool, config.placement, adapted)
        advice = (
            f"it would fit with {', or '.join(helpful)}"
            if helpful
            else "no single setting makes it fit; use smaller models"
        )
        raise ValueError(f"{error}; {advice}") from error
    if processes == "ray":
        in_shards = {placement.name for placement in plan.placements if len(placement.processes_of_learner) > 1}
        check_sharding(config, [policy for policy in policies if policy.name in in_shards])
    _check_engines(policies, plan, processes)
    if here:
        for policy, placement in zip(policies, plan.placements, strict=True):
            warn_if_slow(policy.dtype, placement.learner.devices[0].kind)
    return replace(plan, threads=config.num_threads or _threads(plan, processes))


def available_devices(wanted: Sequence[str]) -> list[str]:
    """The devices of this machine that the option `device` means, as PyTorch calls them.

    Raises:
        ValueError: if one does not exist here.
    """
    return list(dict.fromkeys(device.torch_name for device in chosen(discovered(), wanted)))


def read_placement(placement: str) -> Mapping[str, Any] | None:
    """The assignment in a placement file; None for a mode.

    Raises:
        ValueError: if the file is missing or no mapping.
    """
    if placement in PLACEMENTS:
        return None
    if not Path(placement).is_file():
        raise ValueError(f"placement={placement!r} is not a file; use one of {', '.join(PLACEMENTS)}, or write it")
    return read_yaml(placement)


def _of_ranks(ranks: Ranks, device: str) -> Cluster:
    """What the processes have: a GPU each; or on CPUs a node each, since those of a machine share its cores and its memory."""
    here = discovered()
    if device != "cpu":
        return here.with_gpus(-(-ranks.size // ranks.local_size), ranks.local_size)
    machine, count = here.nodes[0], ranks.local_size
    share = replace(machine, gpus=0, cpus=max(1, machine.cpus // count), memory=machine.memory // count)
    return replace(here, nodes=(share,) * ranks.size)


def _threads(plan: Plan, processes: Processes) -> int:
    """CPU threads of a process: what its largest policy can use, or beside GPUs as many as PyTorch likes; of a node's cores
    policies with processes of their own have equal parts.
    """
    if processes == "ray":
        learners = [placement.processes_of_learner for placement in plan.placements]
        nodes = Counter(device.node for devices in learners for device in devices)
        taken = Counter(d.node for p in plan.placements for engine in p.engines for d in engine if d.kind == "cpu")
        cores = {node: plan.cluster.nodes[node].cpus - taken[node] for node in nodes}
        return max(1, min(plan.threads, *(cores[node] // count for node, count in nodes.items())))
    on_gpus = any(placement.learner.devices[0].kind == "cuda" for placement in plan.placements)
    return THREADS if on_gpus else min(plan.threads, THREADS)


def _check_engines(policies: Sequence[PolicyConfig], plan: Plan, processes: Processes) -> None:
    """Refuse engines that vLLM could not start where the plan has them.

    Raises:
        ValueError: naming the policy and the remedy.
    """
    beside: Counter[Any] = Counter()
    for policy, placement in zip(policies, plan.placements, strict=True):
        if not policy.use_vllm or policy.engine.server_base_url is not None:
            continue
        if placement.engine and policy.engine.mode == "server":
            raise ValueError(
                f"vllm_mode='server', but the plan gives {policy.name} engines on devices of their own, which are no servers; "
                "set vllm_mode colocate"
            )
        first = placement.learner.devices[0]
        if placement.engine or first.kind == "cpu":
            continue
        if processes == "one" and policy.engine.mode == "colocate" and first.torch_name != "cuda:0":
            raise ValueError(
                f"vllm_mode='colocate' puts the engine on the first GPU, but {policy.name} would be on {first.torch_name}; set "
                "vllm_mode server, device cuda:0, or backend ray"
            )
        beside.update(placement.learner.devices)
    crowded = [device for device, count in beside.items() if count > 1]
    if processes == "ray" and crowded:
        raise ValueError(
            f"several policies would have a vLLM on {crowded[0]}, where they would start at the same time, which vLLM does not "
            "allow; let placement be dedicated or colocated, or leave backend ray out"
        )


def _with_adapters(config: TrainingConfig) -> tuple[Model, ...]:
    """The pool's architectures as they would be with adapters."""
    policies = replace(config, use_peft=(True,)).policies()
    return tuple(read_model(policy, load_model_config(policy)) for policy in policies)
