"""The Ray cluster that a run is in: joining or starting it, and what it has."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from typing import Any

from algorithms.planning.cluster import THREADS, Cluster, Node, discovered, memory_of

_OBJECT_STORE = 128 * 1024**2
"""Bytes of shared memory of a cluster that is started here, for prompts and completions."""

_LOOK_TIMEOUT = 60.0
"""Seconds in which a node has to say what it has."""


def cluster_of(address: str | None) -> Cluster:
    """What Ray may use: of the cluster that this process is in, or that an address, or RAY_ADDRESS, leads to; or this machine.

    Nodes without a CPU for Ray do not count.

    Raises:
        ValueError: if Ray is not installed, no cluster answers, or it has no such node, or a GPU of it does not answer.
    """
    ray = _ray()
    if not (ray.is_initialized() or address or os.environ.get("RAY_ADDRESS")):
        here = discovered()
        return replace(here, nodes=tuple(replace(node, cpus=min(node.cpus, THREADS)) for node in here.nodes))
    joined = connect(address, 0)
    try:
        found = [(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
        nodes = tuple(
            Node(
                gpus=int(has.get("GPU", 0)),
                gpu_memory=_gpu_memory(ray, node) if has.get("GPU", 0) >= 1 else 0,
                cpus=int(has["CPU"]),
                memory=int(has["memory"]),
            )
            for node, has in sorted(found)
            if has.get("CPU", 0) >= 1
        )
    finally:
        if joined:
            ray.shutdown()
    if not nodes:
        raise ValueError(
            "backend='ray', but no node of the cluster has a CPU for Ray; start one with ray start --num-cpus N"
        )
    return Cluster(nodes)


def _gpu_memory(ray: Any, node: str) -> int:
    """Bytes of a GPU of a node, asked there.

    Raises:
        ValueError: if all of its GPUs are taken, or the node does not answer.
    """
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    call = ray.remote(num_cpus=0, num_gpus=0.01, max_retries=0)(memory_of)
    try:
        return int(ray.get(call.options(scheduling_strategy=there).remote("cuda:0"), timeout=_LOOK_TIMEOUT))
    except (ray.exceptions.GetTimeoutError, ray.exceptions.RayError) as error:
        raise ValueError(
            f"node {node[:8]} of Ray's cluster does not say how much memory its GPUs have ({type(error).__name__}); are they "
            "all in use? Wait until one is free"
        ) from error


def _ray() -> Any:
    """The package.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError("backend='ray' needs Ray; install it with: pip install 'mutual-rl[ray]'") from error
    return ray


def connect(address: str | None, cpus: float, weights: int = 0) -> bool:
    """Join the cluster at an address, or that of RAY_ADDRESS, or start one here; one that this process is in already serves.

    Args:
        address: of a running cluster.
        cpus: that a cluster started here offers at least.
        weights: bytes that pass from learners to engines at a time.

    Returns:
        Whether this process was in no cluster before.

    Raises:
        ValueError: if Ray is not installed, or no cluster answers.
    """
    ray = _ray()
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        ray.init(
            address="local",
            num_cpus=max(int(cpus), os.cpu_count() or 1),
            object_store_memory=_OBJECT_STORE + weights,
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
        return True
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdecimal() and "/" not in host:  # Ray itself would try for many minutes
            socket.create_connection((host, int(port)), timeout=_LOOK_TIMEOUT).close()
        ray.init(address=address, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"no Ray cluster can be joined at ray_address={address!r} ({error}); start one with ray start --head; if it "
            "asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN; or leave ray_address and RAY_ADDRESS out"
        ) from error
    return True


def free_resources() -> dict[str, float]:
    """What the cluster has free."""
    import ray

    free = ray.available_resources()
    return {name: free.get(name, 0.0) for name in ("CPU", "GPU")}
