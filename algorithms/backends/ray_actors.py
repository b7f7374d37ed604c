"""What runs in Ray's actors: a policy's worker, or one of its engines, each in a process of its own on any node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # PyTorch's documentation names it so
from transformers.utils import logging as transformers_logging

from algorithms.adapters import base_source
from algorithms.config import PolicyConfig, TrainingConfig
from algorithms.policy import model_source
from algorithms.ranks import ALONE, Ranks, meet
from algorithms.rollouts.remote import RemoteEngine
from algorithms.rollouts.transformers import Rollout
from algorithms.rollouts.vllm import ColocatedEngine, require_vllm
from algorithms.worker import Worker


@dataclass(frozen=True)
class Place:
    """Where an actor runs: its node's address and id, and its process there."""

    address: str
    node: str
    process: int

    def __str__(self) -> str:
        return f"process {self.process} on node {self.address} ({self.node[:8]})"


@dataclass(frozen=True)
class Meeting:
    """Where the first of a policy's processes listens."""

    host: str
    port: int


class Remote:
    """What is in a process of its own, and made there.

    Args:
        folder: the driver's working folder, to which relative paths refer.
        threads: CPU threads of PyTorch.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        transformers_logging.disable_progress_bar()
        torch.set_num_threads(threads)

    def place(self) -> Place:
        """Where this is."""
        import ray

        return Place(ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id(), os.getpid())

    def enter(self) -> None:
        """Go to the driver's working folder.

        Raises:
            ValueError: if it is not here.
        """
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise ValueError(
                f"the working folder {self._folder} does not exist on node {self.place().address}; start the run in a folder "
                "that all nodes share"
            ) from error


class RemoteWorker(Remote):
    """A `Worker`, or one of those that hold a policy in shards."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder, threads)
        self._ranks = ALONE
        self._store: TCPStore | None = None
        self._worker: Worker | None = None

    def open_store(self) -> Meeting:
        """Where the other processes of the policy can find this one, which is the first."""
        store = TCPStore(self.place().address, 0, is_master=True, wait_for_workers=False)
        self._store = store
        return Meeting(store.host, store.port)

    def build(
        self, rank: int, size: int, meeting: Meeting | None, engines: Mapping[str, Any], arguments: tuple[Any, ...]
    ) -> None:
        """Meet the policy's other processes, and make the worker; see `Worker`.

        Args:
            rank: this process's number.
            size: how many there are.
            meeting: where the first one is found, if there are several.
            engines: actors that sample for the policy, by what they are called in errors; none if its processes do.
            arguments: the worker's.

        Raises:
            ValueError: if it cannot be made, or the driver's working folder is not here.
        """
        self.enter()
        if meeting is not None:
            store = self._store or TCPStore(meeting.host, meeting.port)
            config: TrainingConfig = arguments[0]
            self._ranks = meet(store, rank, size, patience=config.worker_timeout)
        self._worker = self._ranks.together(partial(_make, arguments, self._ranks, engines))

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call one of the worker's methods; of several processes all have to be asked, and the first answers."""
        answer = self._ranks.together(partial(getattr(self._worker, method), *arguments))
        return answer if self._ranks.first else None


class RemoteEngineProcess(Remote):
    """One of the engines behind a `RemoteEngine`."""

    def build(self, config: PolicyConfig, device: str, gpus: int) -> None:
        """Make the engine, without weights.

        Args:
            config: the policy's.
            device: the first one, as this process sees it.
            gpus: that the weights are split over.

        Raises:
            ValueError: if vLLM is missing, or cannot run the model.
        """
        self.enter()
        require_vllm(f"use_vllm=True for {config.name}", "leave use_vllm out")
        source = base_source(model_source(config.model_name_or_path))
        self._engine = ColocatedEngine(config, source, device, empty=True, alone=True, tensor_parallel=gpus)

    def generate(self, *arguments: Any) -> list[list[Rollout]]:
        """Sample; see `Engine.generate`."""
        return self._engine.generate(*arguments)

    def load_weights(self, weights: Mapping[str, torch.Tensor], tied: Mapping[str, str]) -> None:
        """Take new weights; see `Engine.load_weights`.

        Args:
            weights: by name.
            tied: names of others, each with that of the same weight.
        """
        self._engine.load_weights({**weights, **{name: weights[other] for name, other in tied.items()}})


def _make(arguments: tuple[Any, ...], ranks: Ranks, engines: Mapping[str, Any]) -> Worker:
    config, name, algorithm, device, total_steps, output_dir = arguments
    settings = next(policy for policy in config.policies() if policy.name == name)
    engine = RemoteEngine(settings, engines) if engines else None
    return Worker(config, name, algorithm, device, total_steps, output_dir, ranks, engine)
