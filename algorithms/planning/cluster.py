"""What there is: nodes with GPUs and CPU cores, discovered on this machine or described for one that is elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

GIB = 1024**3

Kind = Literal["cpu", "cuda"]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip

THREADS = torch.get_num_threads()
"""CPU threads that PyTorch chose for itself; it heeds OMP_NUM_THREADS."""

_KEYS = ("nodes", "gpus", "gpu_memory", "cpus", "memory", "gpu_tflops", "gpu_bandwidth", "core_gflops")


@dataclass(frozen=True, order=True)
class Device:
    """A GPU, or a CPU core.

    Attributes:
        node: its node's number.
        kind: `cuda` or `cpu`.
        index: its number on the node.
    """

    node: int
    kind: Kind
    index: int

    @property
    def torch_name(self) -> str:
        """What PyTorch calls it on its node; all cores of a node are one device."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def __str__(self) -> str:
        return f"{self.node}/{self.kind}:{self.index}"


@dataclass(frozen=True)
class Node:
    """One machine.

    Attributes:
        gpus: GPUs.
        gpu_memory: bytes of each GPU.
        cpus: cores.
        memory: bytes.
    """

    gpus: int
    gpu_memory: int
    cpus: int
    memory: int


@dataclass(frozen=True)
class Cluster:
    """Machines, and how fast their parts are.

    Speeds are peaks of data sheets; `estimates` knows what share of them is reached. The default GPU is an A100.

    Attributes:
        nodes: the machines.
        gpu_flops: operations per second of a GPU in bfloat16 matrix products.
        gpu_bandwidth: bytes per second of a GPU's memory.
        core_flops: operations per second of a CPU core in bfloat16 matrix products.
    """

    nodes: tuple[Node, ...]
    gpu_flops: float = 312e12
    gpu_bandwidth: float = 2.0e12
    core_flops: float = 0.2e12

    def devices(self, kind: Kind | None = None) -> tuple[Device, ...]:
        """All devices of a kind, by node and number; by default the GPUs, or the cores where there is no GPU.

        Example:
            >>> [str(device) for device in Cluster((Node(2, 80 * GIB, 8, GIB),) * 2).devices()]
            ['0/cuda:0', '0/cuda:1', '1/cuda:0', '1/cuda:1']
        """
        if kind is None:
            kind = "cuda" if any(node.gpus for node in self.nodes) else "cpu"
        counts = [node.gpus if kind == "cuda" else node.cpus for node in self.nodes]
        return tuple(Device(node, kind, index) for node, count in enumerate(counts) for index in range(count))

    def with_gpus(self, nodes: int, gpus: int) -> Cluster:
        """As many nodes like the first one, with so many GPUs each."""
        return replace(self, nodes=(replace(self.nodes[0], gpus=gpus),) * nodes)

    def __str__(self) -> str:
        parts = []
        for node in dict.fromkeys(self.nodes):
            gpus = f"{node.gpus} GPUs of {readable(node.gpu_memory)}, " if node.gpus else ""
            count = self.nodes.count(node)
            parts.append(
                f"{count} {'node' if count == 1 else 'nodes'} with {gpus}{node.cpus} cores, {readable(node.memory)}"
            )
        return "; ".join(parts)


def described(options: Mapping[str, Any]) -> Cluster:
    """The cluster that a mapping describes.

    Args:
        options: `nodes` (1), `gpus` per node (0), `gpu_memory` per GPU, `cpus` (8 per GPU, at least 8), `memory` of a node
            (twice that of its GPUs, at least 64 GiB), and the peaks `gpu_tflops`, `gpu_bandwidth` and `core_gflops`. Sizes are
            bytes or text such as 80GiB.

    Raises:
        ValueError: on an unknown key or a value that is no size, naming it.

    Example:
        >>> print(described({"nodes": 2, "gpus": 8, "gpu_memory": "80GiB", "cpus": 96, "memory": "1TiB"}))
        2 nodes with 8 GPUs of 80.0 GiB, 96 cores, 1024.0 GiB
    """
    for key in options:
        if key not in _KEYS:
            raise ValueError(f"cluster has the unknown key {key!r}; use some of {', '.join(_KEYS)}")
    counts = {key: options.get(key, default) for key, default in (("nodes", 1), ("gpus", 0))}
    counts["cpus"] = options.get("cpus", 0 if not isinstance(counts["gpus"], int) else max(8, 8 * counts["gpus"]))
    for key, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if key == "gpus" else 1):
            raise ValueError(
                f"cluster has {key}={value!r}; give a whole number of at least {0 if key == 'gpus' else 1}"
            )
    if counts["gpus"] and "gpu_memory" not in options:
        raise ValueError(
            f"cluster has gpus={counts['gpus']}, but no gpu_memory; give it too, such as gpu_memory: 80GiB"
        )
    gpu_memory = size(options.get("gpu_memory", 0), "gpu_memory")
    memory = size(options.get("memory", max(64 * GIB, 2 * counts["gpus"] * gpu_memory)), "memory")
    cluster = Cluster((Node(counts["gpus"], gpu_memory, counts["cpus"], memory),) * counts["nodes"])
    speeds = {
        "gpu_tflops": ("gpu_flops", 1e12),
        "core_gflops": ("core_flops", 1e9),
        "gpu_bandwidth": ("gpu_bandwidth", 1),
    }
    for key in speeds.keys() & options.keys():
        name, unit = speeds[key]
        value = size(options[key], key) if key == "gpu_bandwidth" else options[key]
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise ValueError(f"cluster has {key}={value!r}; give a number above 0")
        changed: dict[str, Any] = {name: value * unit}
        cluster = replace(cluster, **changed)
    return cluster


def discovered() -> Cluster:
    """This machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = torch.cuda.device_count()
    smallest = min((memory_of(f"cuda:{i}") for i in range(count)), default=0)
    # Where the system can say so, the cores that this process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Cluster((Node(count, smallest, cores, memory),))


def memory_of(device: str) -> int:
    """Bytes of memory that a GPU of this machine has in all."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def chosen(cluster: Cluster, wanted: Sequence[str]) -> tuple[Device, ...]:
    """The devices of a cluster that the option `device` means: those with these names, on every node.

    Raises:
        ValueError: if one does not exist, or cores and GPUs are mixed.
    """
    gpus, cores = cluster.devices("cuda"), cluster.devices("cpu")
    if tuple(wanted) == ("auto",):
        return cluster.devices()
    if set(wanted) == {"cpu"}:
        return cores
    known = sorted({device.torch_name for device in gpus}, key=lambda name: int(name[5:]))
    for name in wanted:
        if name not in known:
            mixed = "stands beside GPUs" if name == "cpu" else "does not exist here"
            raise ValueError(f"device={name!r} {mixed}; use {', '.join(('cpu alone', *known))}, or auto")
    return tuple(device for device in gpus if device.torch_name in wanted)


def parse_devices(text: str) -> tuple[Device, ...]:
    """The devices that a word of a placement file means.

    Raises:
        ValueError: if it is none.

    Example:
        >>> [str(device) for device in parse_devices("1/cuda:2-3")]
        ['1/cuda:2', '1/cuda:3']
        >>> str(*parse_devices("cpu:0"))
        '0/cpu:0'
    """
    found = re.fullmatch(r"(?:(\d{1,5})/)?(cpu|cuda):(\d{1,5})(?:-(\d{1,5}))?", text)
    if found is None:
        raise ValueError(f"{text!r} is no device; write cuda:0, cuda:0-3, or with the node's number 1/cuda:0-3")
    node, kind, first, last = found.groups()
    indices = range(int(first), int(last or first) + 1)
    return tuple(Device(int(node or 0), "cuda" if kind == "cuda" else "cpu", index) for index in indices)


def show_devices(devices: Sequence[Device], *, node: bool) -> str:
    """Devices as `parse_devices` reads them, ranges together; without the node's number where there is one node only.

    Example:
        >>> show_devices(parse_devices("cuda:0-2"), node=False)
        'cuda:0-2'
    """
    parts: list[list[Device]] = []
    for device in sorted(devices):
        if parts and parts[-1][-1] == replace(device, index=device.index - 1):
            parts[-1].append(device)
        else:
            parts.append([device])
    texts = []
    for part in parts:
        last = f"-{part[-1].index}" if len(part) > 1 else ""
        texts.append(f"{f'{part[0].node}/' if node else ''}{part[0].kind}:{part[0].index}{last}")
    return " ".join(texts)


def size(value: Any, name: str) -> int:
    """Bytes, from a number or from text such as 80GiB, 1.5 TB.

    Raises:
        ValueError: naming the field, if it is none.
    """
    text = str(value).strip().upper()
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?I?B?)", text)
    if isinstance(value, bool) or found is None or found[2] not in _UNITS:
        raise ValueError(f"{name}={value!r} is no size; write bytes, or a number with a unit such as 80GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def readable(count: float) -> str:
    """Bytes as text."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 1024**2:.0f} MiB"
