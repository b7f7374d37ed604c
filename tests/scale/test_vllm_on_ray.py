"""vLLM on a Ray cluster: beside the learner, in each of its shards, and on nodes of its own. Runs where both are installed."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from algorithms import Trainer, TrainingConfig
from algorithms.backends.ray import RayBackend
from algorithms.backends.ray_cluster import cluster_of
from tests.algorithms.test_trainer import _has_lines, assert_same_run, untimed
from tests.scale.conftest import wait_until

pytest.importorskip("vllm", reason="vLLM is not installed")
pytest.importorskip("ray", reason="Ray is not installed")

Config = Callable[..., TrainingConfig]


@pytest.fixture(scope="module")
def ray_config(cluster: Any, vllm_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Of a run on a cluster of three nodes of a core each, with a placement; it saves each step."""
    while len(cluster_of(None).nodes) < 3:
        cluster.one_cpu()

    def made(placement: str, **changes: Any) -> TrainingConfig:
        file = tmp_path_factory.mktemp("placement") / "placement.yaml"
        file.write_text(placement)
        return vllm_config(**{"backend": "ray", "placement": str(file), "save_steps": 1, "max_restarts": 10, **changes})

    return made


@pytest.fixture(scope="module")
def straight(vllm_config: Config) -> Path:
    """The run of one process, with an engine for each policy in it."""
    trainer = Trainer(vllm_config(save_steps=1))
    trainer.train()
    return trainer.output_dir


ENGINE = "policy_0: {learner: [0/cpu:0], rollout: [1/cpu:0]}\npolicy_1: {learner: [2/cpu:0]}\n"
"""One policy has an engine on a node of its own, the other one beside its learner."""


def backend(trainer: Trainer) -> RayBackend:
    assert isinstance(trainer.backend, RayBackend)
    return trainer.backend


def test_an_engine_on_a_node_of_its_own(ray_config: Config, straight: Path) -> None:
    trainer = Trainer(ray_config(ENGINE))
    (engine,), (learner,) = (
        crews["policy_0"].places for crews in (backend(trainer)._engines, backend(trainer)._workers)
    )
    assert engine.process != learner.process and engine.node != learner.node
    assert set(backend(trainer)._engines) == {"policy_0"}
    trainer.train()
    assert_same_run(straight, trainer.output_dir, last=3)


@pytest.mark.scale
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_is_killed_or_frozen(
    ray_config: Config, straight: Path, caplog: pytest.LogCaptureFixture, by: int
) -> None:
    """The policies go back to the last checkpoint together, with an engine that has its weights."""
    trainer = Trainer(ray_config(ENGINE, worker_timeout=90))
    victim = backend(trainer)._engines["policy_0"].places[0].process

    def strike() -> None:
        wait_until(lambda: _has_lines(trainer.output_dir / "metrics.jsonl", 3))
        os.kill(victim, by)

    striker = threading.Thread(target=strike)
    striker.start()
    with caplog.at_level(logging.WARNING):
        trainer.train()
    striker.join()
    said = next(record.getMessage() for record in caplog.records if "begin anew" in record.getMessage())
    engine = rf"policy_0 \(engine 0 of 1, actor [0-9a-f]+, process {victim} on node [^)]*\)\)"
    assert re.search(
        rf"policy_0 \(actor .*: {engine} is lost" if by == signal.SIGKILL else rf"{engine}: no answer to", said
    ), said
    assert_same_run(straight, trainer.output_dir, last=3)


@pytest.mark.scale
@pytest.mark.parametrize(
    "placement",
    [
        "policy_0: {learner: [0/cpu:0, 1/cpu:0]}\npolicy_1: {learner: [2/cpu:0]}\n",
        "policy_0: {learner: [0/cpu:0, 1/cpu:0], rollout: [2/cpu:0]}\npolicy_1: {learner: [3/cpu:0]}\n",
        "policy_0: {learner: [0/cpu:0], rollout: [1/cpu:0, 2/cpu:0]}\npolicy_1: {learner: [3/cpu:0]}\n",
    ],
    ids=["an engine in each shard", "shards and an engine", "two engines"],
)
def test_shards_and_several_engines(cluster: Any, ray_config: Config, straight: Path, placement: str) -> None:
    """What one engine and one learner do, up to rounding."""
    while len(cluster_of(None).nodes) < 4:
        cluster.one_cpu()
    trainer = Trainer(ray_config(placement))
    trainer.train()
    for expected, line in zip(untimed(straight), untimed(trainer.output_dir), strict=True):
        assert line["train/reward"] == expected["train/reward"]
        if line["policy"] != "pool":
            assert line["train/sampling/logp_difference_mean"] < 1e-5
            assert line["train/loss"] == pytest.approx(expected["train/loss"], abs=1e-4)
    for name in ("policy_0", "policy_1"):
        alone, found = (
            load_file(run / "checkpoint-3" / name / "model.safetensors") for run in (straight, trainer.output_dir)
        )
        for key, tensor in alone.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-3)
