"""One Ray cluster for all tests of this folder: two nodes with one CPU each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


def ray_processes() -> set[int]:
    """Actors and other workers of Ray on this machine."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_bytes().startswith(b"ray::"):
                    found.add(int(folder.name))
            except OSError:
                continue  # it has just ended
    return found


def wait_until(holds: Any, seconds: float = 60.0) -> bool:
    """Whether a condition comes to hold within some time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes on this machine; nothing of it is left behind."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_worker_niceness", "0")  # as by default a busy machine would let the workers starve
    before = ray_processes()
    memory = {"object_store_memory": 80 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
    cluster.one_cpu = lambda: cluster.add_node(num_cpus=1, **memory)
    cluster.one_cpu()
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    environment.undo()
    assert wait_until(lambda: ray_processes() <= before), "processes of Ray were left behind"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a command that is started."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
