"""Runs on a Ray cluster of several nodes: the same bits as in one process, whatever dies on the way, and no process left."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from algorithms import Trainer, TrainingConfig
from algorithms.backends.ray import RayBackend, Seat, engine_seats, seats
from algorithms.backends.ray_cluster import cluster_of
from algorithms.devices import Plan, make_plan
from algorithms.errors import WorkerLostError
from algorithms.planning.cluster import described
from algorithms.sgt import SGT
from tests.algorithms.test_trainer import SMALL, _has_lines, assert_same_run, untimed, weights
from tests.scale.conftest import ray_processes, wait_until
from tests.scale.faults import Refusing, Struck

pytest.importorskip("ray")


def config(folder: Path, **changes: Any) -> TrainingConfig:
    """Of a run of four steps that saves after each; a machine that stands still now and then must not use up all restarts."""
    settings = {**SMALL, "algorithm": "sgt", "num_threads": 1, "save_steps": 1, "max_restarts": 10, "backend": "ray"}
    return TrainingConfig(**{**settings, "output_dir": str(folder), **changes})


def places(trainer: Trainer) -> dict[str, Any]:
    """Of each policy's first process."""
    backend = trainer.backend
    assert isinstance(backend, RayBackend)
    return {name: crew.places[0] for name, crew in backend._workers.items()}


def assert_each_completion_once(run: Path, steps: int = 4) -> None:
    records = [json.loads(line) for line in (run / "exchange.jsonl").read_text().splitlines()]
    ids = Counter((r["agent"], r["problem_id"], r["index"], r["policy_version"]) for r in records)
    # 4 problems x 4 completions, of each of two policies in every step
    assert len(records) == len(ids) == steps * 2 * 4 * 4
    assert {(x["step"], x["policy"]) for x in untimed(run) if "train/reward" in x} == {
        (step, policy) for step in range(1, steps + 1) for policy in ("policy_0", "policy_1", "pool")
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run in this process."""
    folder = tmp_path_factory.mktemp("local") / "run"
    Trainer(config(folder, backend="local")).train()
    return folder


class TestTwoNodes:
    def test_the_run_of_one_process_to_the_bit(self, cluster: Any, straight: Path, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run"))
        found = places(trainer)
        assert found["policy_0"].node != found["policy_1"].node
        assert os.getpid() not in {place.process for place in found.values()}
        with pytest.raises(ValueError, match="the workers live in other processes"):
            _ = trainer.policies
        assert set(trainer.train()) == {"policy_0", "policy_1"}
        assert_same_run(straight, tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")
        assert wait_until(lambda: not {place.process for place in found.values()} & ray_processes())

    @pytest.mark.scale
    def test_a_run_begins_on_ray_and_ends_in_one_process(self, cluster: Any, straight: Path, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "run", max_steps=2)).train()
        Trainer(config(tmp_path / "run", backend="local", resume_from_checkpoint="auto")).train()
        assert_same_run(straight, tmp_path / "run")

    @pytest.mark.scale
    def test_a_mistake_in_a_worker_is_raised_as_it_is(self, cluster: Any, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run", eval_steps=0), algorithms=[SGT(), Refusing()])
        with pytest.raises(ValueError, match="this was asked for"):
            trainer.train()

    @pytest.mark.scale
    def test_a_model_that_cannot_be_loaded(self, cluster: Any, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="chat_template"):
            Trainer(config(tmp_path / "run", chat_template="missing.jinja"))


class TestFaults:
    @pytest.mark.parametrize("by", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.scale)])
    def test_a_learner_is_killed_or_frozen_in_a_step(
        self, cluster: Any, straight: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, by: int
    ) -> None:
        struck = Struck(struck_flag=str(tmp_path / "flag"), struck_by=by)
        trainer = Trainer(config(tmp_path / "run", worker_timeout=40), algorithms=[SGT(), struck])
        place = places(trainer)["policy_1"]
        with caplog.at_level(logging.WARNING):
            trainer.train()
        assert (tmp_path / "flag").exists()
        message = next(r.getMessage() for r in caplog.records if "begin anew" in r.getMessage())
        assert f"process {place.process} on node {place.address}" in message
        assert re.match(r"policy_1 \(actor [0-9a-f]+, .*\n.*run/checkpoint-\d \(restart 1 of 10\)$", message), message
        assert_same_run(straight, tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")
        assert wait_until(lambda: place.process not in ray_processes())

    @pytest.mark.scale
    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_worker_is_killed_at_any_moment(self, cluster: Any, straight: Path, tmp_path: Path, seed: int) -> None:
        draw = random.Random(seed)
        trainer = Trainer(config(tmp_path / "run"))
        victim = places(trainer)[draw.choice(["policy_0", "policy_1"])].process
        lines, delay = draw.randrange(0, 12), draw.random() * 0.3

        def kill() -> None:
            wait_until(lambda: _has_lines(tmp_path / "run" / "metrics.jsonl", lines))
            time.sleep(delay)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        trainer.train()
        killer.join()
        assert_same_run(straight, tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")

    @pytest.mark.scale
    def test_a_rollout_is_killed(
        self, cluster: Any, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trainer = Trainer(config(tmp_path / "run"))
        rollout, killed = trainer.backend.rollout, []

        def strike(step: int, prompts: Any) -> Any:
            if step == 3 and not killed:
                killed.append(places(trainer)["policy_0"].process)
                threading.Timer(0.02, os.kill, (killed[0], signal.SIGKILL)).start()
            return rollout(step, prompts)

        monkeypatch.setattr(trainer.backend, "rollout", strike)
        trainer.train()
        assert killed
        assert_same_run(straight, tmp_path / "run")

    @pytest.mark.scale
    def test_a_node_dies(self, cluster: Any, straight: Path, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run", worker_timeout=60))
        cluster.one_cpu()  # room for the policy that loses its node
        hosting = {place.node for place in places(trainer).values()}
        (node,) = (node for node in cluster.worker_nodes if node.node_id in hosting)  # not the driver's own

        def kill() -> None:
            wait_until(lambda: _has_lines(tmp_path / "run" / "metrics.jsonl", 6))
            cluster.remove_node(node, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        trainer.train()
        killer.join()
        assert_same_run(straight, tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")

    @pytest.mark.scale
    def test_a_worker_that_dies_every_time_stops_the_run_and_is_named(self, cluster: Any, tmp_path: Path) -> None:
        struck = Struck(struck_flag=str(tmp_path / "flag"), struck_always=True)
        trainer = Trainer(config(tmp_path / "run", max_restarts=1, eval_steps=0), algorithms=[struck, SGT()])
        with pytest.raises(
            WorkerLostError, match=r"(?s)^policy_0 \(actor [0-9a-f]+, process \d+ on node .*max_restarts=1"
        ):
            trainer.train()
        assert weights(tmp_path / "run" / "checkpoint-1")

    def test_no_room_in_the_cluster(self, cluster: Any, tmp_path: Path) -> None:
        with pytest.raises(WorkerLostError, match=r"policy_0, policy_1: Ray had no room for \[\{'CPU': 64\}"):
            Trainer(config(tmp_path / "run", num_threads=64, worker_timeout=2))

    @pytest.mark.scale
    def test_the_driver_is_killed(
        self, cluster: Any, straight: Path, tmp_path: Path, environment: dict[str, str]
    ) -> None:
        run = tmp_path / "run"
        flags = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, "-m", "algorithms.sgt", *flags, "--output_dir", str(run), "--num_threads", "1"]
        command += ["--save_steps", "1", "--backend", "ray", "--ray_address", cluster.address]
        before = ray_processes()
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        assert wait_until(lambda: process.poll() is not None or _has_lines(run / "metrics.jsonl", 7), 300)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert wait_until(lambda: not {p for p in ray_processes() - before if _is_actor(p)}), (
            "actors outlive their driver"
        )
        command += ["--resume_from_checkpoint", "auto"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert_same_run(straight, run)


def _is_actor(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::RemoteWorker")
    except OSError:
        return False


@pytest.mark.scale
def test_ctrl_c_on_a_cluster_that_the_command_started(
    straight: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Every process of the command's group gets the signal, as from a terminal."""
    run = tmp_path / "run"
    flags = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "algorithms.sgt", *flags, "--output_dir", str(run), "--num_threads", "1"]
    command += ["--save_steps", "1", "--backend", "ray"]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert wait_until(lambda: process.poll() is not None or _has_lines(run / "metrics.jsonl", 4), 300)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    message = process.stderr.read().decode()
    assert process.wait() == 130, message
    assert f"--resume_from_checkpoint auto --output_dir {run}" in message
    assert wait_until(lambda: not _session(process.pid)), "processes of Ray were left behind"
    subprocess.run(
        [*command[:-2], "--resume_from_checkpoint", "auto"], env=environment, check=True, capture_output=True
    )
    assert_same_run(straight, run)


@pytest.mark.scale
def test_a_learner_of_lanes_is_killed_in_a_cluster_that_the_run_started(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Lanes leave the cluster when one is lost; the run begins another, and leaves that at its end."""
    Trainer(config(tmp_path / "local", backend="local", exchange_staleness=1)).train()
    script = f"""
import ray
from algorithms import Trainer, TrainingConfig
from algorithms.sgt import SGT
from tests.scale.faults import Struck
settings = {SMALL!r} | dict(algorithm="sgt", num_threads=1, save_steps=1, max_restarts=10, backend="ray", exchange_staleness=1)
struck = Struck(struck_flag={str(tmp_path / "flag")!r})
Trainer(TrainingConfig(**settings, output_dir={str(tmp_path / "run")!r}), algorithms=[SGT(), struck]).train()
assert not ray.is_initialized()
"""
    process = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=500
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "flag").exists()
    assert_same_run(tmp_path / "local", tmp_path / "run")


@pytest.mark.scale
def test_a_cluster_that_asks_for_a_token(tmp_path: Path, environment: dict[str, str]) -> None:
    """As docs/scale.md begins one; without the token nobody gets in, and is told what to set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    start = f"ray start --head --port {address.partition(':')[2]} --num-cpus 3 --include-dashboard false --block"
    command = [str(Path(sys.executable).with_name("ray")), *start.split()[1:]]
    head = subprocess.Popen(
        command, env=environment | token, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        plan = [sys.executable, "-m", "algorithms.sgt", "--dry_run", "--backend", "ray", "--ray_address", address]

        def joined() -> bool:
            done = subprocess.run(plan, env=environment | token, capture_output=True, text=True, cwd=tmp_path)
            return "1 node with 3 cores" in done.stdout

        assert wait_until(joined, 120)
        refused = subprocess.run(plan, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert refused.returncode == 2
        assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in refused.stderr
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        assert wait_until(lambda: not _session(head.pid))
        head.wait()


@pytest.mark.scale
def test_a_closed_trainer_leaves_the_cluster_that_it_started(tmp_path: Path, environment: dict[str, str]) -> None:
    """So that the next one in the process can join another."""
    script = f"""
import ray
from algorithms import Trainer, TrainingConfig
settings = {SMALL!r}
for name in ("first", "second"):
    folder = {str(tmp_path)!r} + "/" + name
    trainer = Trainer(TrainingConfig(**settings, algorithm="grpo", backend="ray", num_threads=1, output_dir=folder))
    assert ray.is_initialized()
    trainer.close()
    assert not ray.is_initialized()
print("done")
"""
    process = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip().endswith("done")


def _session(leader: int) -> list[int]:
    """The processes of a session, those that have ended left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue  # it has just ended
            if int(session) == leader and state != "Z":
                found.append(int(folder.name))
    return found


class TestShards:
    """A policy on two nodes, and one on a third."""

    @pytest.fixture
    def settings(self, cluster: Any, tmp_path: Path) -> dict[str, Any]:
        while len(cluster_of(None).nodes) < 3:
            cluster.one_cpu()
        placement = tmp_path / "placement.yaml"
        placement.write_text("policy_0: {learner: [0/cpu:0, 1/cpu:0]}\npolicy_1: {learner: [2/cpu:0]}\n")
        return {"placement": str(placement), "dtype": "fp32"}

    def test_the_run_of_one_process(self, settings: dict[str, Any], tmp_path: Path) -> None:
        Trainer(config(tmp_path / "local", backend="local", dtype="fp32")).train()
        trainer = Trainer(config(tmp_path / "run", **settings))
        assert isinstance(trainer.backend, RayBackend)
        nodes = {name: [place.node for place in crew.places] for name, crew in trainer.backend._workers.items()}
        assert [len(own) for own in nodes.values()] == [2, 1]
        assert len({node for own in nodes.values() for node in own}) == 3
        trainer.train()
        trainer.close()
        assert_each_completion_once(tmp_path / "run")
        for name in ("policy_0", "policy_1"):
            alone, sharded = (
                load_file(tmp_path / run / "checkpoint-4" / name / "model.safetensors") for run in ("local", "run")
            )
            for key, tensor in alone.items():
                torch.testing.assert_close(sharded[key], tensor, rtol=1e-4, atol=1e-5)

    @pytest.mark.scale
    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_shard_is_killed(
        self, settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, rank: int
    ) -> None:
        Trainer(config(tmp_path / "straight", **settings)).train()
        trainer = Trainer(config(tmp_path / "run", **settings, worker_timeout=120))
        assert isinstance(trainer.backend, RayBackend)
        victim = trainer.backend._workers["policy_0"].places[rank].process

        def kill() -> None:
            wait_until(lambda: _has_lines(tmp_path / "run" / "metrics.jsonl", 5))
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with caplog.at_level(logging.WARNING):
            trainer.train()
        killer.join()
        assert re.search(rf"policy_0 \(shard {rank} of 2, actor [0-9a-f]+, process {victim} on node", caplog.text)
        assert_same_run(tmp_path / "straight", tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")


class TestOwnPace:
    def test_lanes_give_what_taking_turns_gives(self, cluster: Any, straight: Path, tmp_path: Path) -> None:
        settings = {"exchange_staleness": 2, "save_steps": 3, "exchange_replay": str(straight / "exchange.jsonl")}
        for backend in ("local", "ray"):
            Trainer(config(tmp_path / backend, backend=backend, **settings)).train()
        assert_same_run(tmp_path / "local", tmp_path / "ray")
        assert any("train/exchange/rescue_rate/from_replay:policy_0" in line for line in untimed(tmp_path / "ray"))
        for step in (3, 4):
            delayed = [
                json.loads((tmp_path / b / f"checkpoint-{step}/delayed.json").read_text()) for b in ("local", "ray")
            ]
            for state in delayed:
                for lessons in state["lessons"].values():
                    assert len(lessons) == 2
                    for lesson in lessons:
                        del lesson["seconds"]
            assert delayed[0] == delayed[1]

    @pytest.mark.scale
    def test_a_learner_is_killed(self, cluster: Any, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "local", backend="local", exchange_staleness=1)).train()
        struck = Struck(struck_flag=str(tmp_path / "flag"))
        Trainer(config(tmp_path / "run", exchange_staleness=1), algorithms=[SGT(), struck]).train()
        assert (tmp_path / "flag").exists()
        assert_same_run(tmp_path / "local", tmp_path / "run")
        assert_each_completion_once(tmp_path / "run")


def test_the_plan_is_of_the_clusters_nodes(cluster: Any) -> None:
    nodes = cluster_of(None).nodes
    assert len(nodes) == len(cluster.list_all_nodes())
    assert {(node.cpus, node.gpus) for node in nodes} == {(1, 0)}
    assert all(node.memory > 2**28 for node in nodes)


class TestWithoutACluster:
    @staticmethod
    def plan(tmp_path: Path, placement: str, cluster: dict[str, Any], **changes: Any) -> Plan:
        path = tmp_path / "placement.yaml"
        path.write_text(placement)
        policies = ("tiny-llama", "tiny-qwen3", "tiny-llama")
        settings = TrainingConfig(model_name_or_path=policies, backend="ray", placement=str(path), **changes)
        return make_plan(settings, described(cluster))

    def test_seats_on_gpus(self, tmp_path: Path) -> None:
        own, half = Seat({"CPU": 1, "GPU": 1.0}, "cuda:0"), Seat({"CPU": 1, "GPU": 0.5}, "cuda:0")
        lines = "policy_0: {learner: [cuda:0-1]}", "policy_1: {learner: [cuda:2]}", "policy_2: {learner: [cuda:2]}"
        plan = self.plan(tmp_path, "\n".join(lines), {"gpus": 3, "gpu_memory": "80GiB"})
        assert seats(plan) == {"policy_0": [own, own], "policy_1": [half], "policy_2": [half]}
        assert engine_seats(plan) == {"policy_0": [], "policy_1": [], "policy_2": []}

    def test_seats_of_engines(self, tmp_path: Path) -> None:
        lines = (
            "policy_0: {learner: [cuda:0], rollout: [cuda:1-4], tensor_parallel: 2}",
            "policy_1: {learner: [cuda:5-6]}",
            "policy_2: {learner: [cuda:7], rollout: [1/cuda:0-1]}",
        )
        plan = self.plan(tmp_path, "\n".join(lines), {"nodes": 2, "gpus": 8, "gpu_memory": "80GiB"}, use_vllm=(True,))
        own = Seat({"CPU": 1, "GPU": 1.0}, "cuda:0")
        assert seats(plan) == {"policy_0": [own], "policy_1": [own, own], "policy_2": [own]}
        pair = Seat({"CPU": 1, "GPU": 2}, "cuda:0")
        assert engine_seats(plan) == {"policy_0": [pair, pair], "policy_1": [], "policy_2": [own, own]}

    def test_seats_on_cores(self, tmp_path: Path) -> None:
        lines = (
            "policy_0: {learner: [0/cpu:0-3, 1/cpu:0-3]}",
            "policy_1: {learner: [2/cpu:0-3]}",
            "policy_2: {learner: [2/cpu:0-3]}",
        )
        plan = replace(self.plan(tmp_path, "\n".join(lines), {"nodes": 3, "cpus": 4}), threads=3)
        seat = Seat({"CPU": 3}, "cpu")
        assert seats(plan) == {"policy_0": [seat, seat], "policy_1": [seat], "policy_2": [seat]}

    def test_the_local_backend_imports_no_ray(self) -> None:
        code = "import sys, algorithms.cli; print('ray' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"
