"""Peers' records that come K steps late: what is learnt when, who waits for whom, and that a resumed run is the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import Trainer, TrainingConfig
from algorithms.algorithm import Algorithm
from algorithms.delay import Delay
from algorithms.errors import WorkerLostError
from algorithms.grpo import GRPO
from algorithms.lanes import Lanes
from algorithms.metrics import staleness_metrics
from algorithms.samples import Group, Sample, make_sample, own_samples
from algorithms.worker import Lesson, Rollouts
from algorithms.xgrpo import XGRPO
from mrl_env.exchange import MemoryExchange
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Completion, Experience, Message, Problem
from tests.algorithms.test_trainer import SMALL, assert_same_run, untimed


def config(output_dir: Path, **changes: Any) -> TrainingConfig:
    settings = {**SMALL, "algorithm": "sgt", "num_threads": 1, "eval_steps": 0}
    return TrainingConfig(**{**settings, "output_dir": str(output_dir), **changes})


@dataclass(frozen=True)
class Recorder(Algorithm):
    """Own rows and one for each peer record; remembers what it was shown."""

    channels = ("rollouts", "rewards")

    seen: list[tuple[Group, Sequence[Experience]]] = field(default_factory=list)

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        self.seen.append((group, peers))
        rows = own_samples(group, np.ones(len(group.completions)))  # every update moves
        return rows + [make_sample(group.prompt_ids, (5, 6), nll_weight=0.1, source=peer.agent) for peer in peers]


class TestWhatIsLearnt:
    def test_own_completions_at_once_and_peers_k_steps_later(self, tmp_path: Path) -> None:
        recorders = [Recorder(), Recorder()]
        trainer = Trainer(config(tmp_path / "run", exchange_staleness=2), algorithms=recorders)
        metrics = [trainer.train_step() for _ in range(4)]
        seen = [recorders[0].seen[i : i + 4] for i in range(0, len(recorders[0].seen), 4)]  # 4 problems a call
        # Steps 1 and 2 show their own completions alone; in steps 3 and 4 those of steps 1 and 2 come back, with the peer's.
        assert len(seen) == 6
        first, second, third, late_first, fourth, late_second = seen
        for groups in (first, second, third, fourth):
            assert all(not peers for _, peers in groups)
        for own, late in ((first, late_first), (second, late_second)):
            for (group, _), (again, peers) in zip(own, late, strict=True):
                assert again.problem == group.problem and again.completions == group.completions
                assert again.verdicts == group.verdicts and again.seed == group.seed
                assert [(peer.agent, peer.problem_id, peer.index) for peer in peers] == [
                    ("policy_1", group.problem.id, i) for i in range(4)
                ]
        said = {g.problem.id: [c.text for c in g.completions] for g, _ in recorders[1].seen[:4]}
        assert {peers[0].problem_id: [peer.text for peer in peers] for _, peers in late_first} == said
        assert [m["policy_0"]["exchange/peer_rows"] for m in metrics] == [0, 0, 16, 16]
        # Two updates in each step, two steps ago.
        assert [m["policy_0"].get("exchange/staleness") for m in metrics] == [None, None, 4.0, 4.0]

    def test_staleness_is_the_mean_difference_in_updates(self) -> None:
        records = [Experience("p", "b", i, "stop", version) for i, version in enumerate((3, 5))]
        assert staleness_metrics(7, [records, []]) == {"exchange/staleness": 3.0}  # (7 - 3 + 7 - 5) / 2
        assert staleness_metrics(7, [[]]) == {}

    def test_nothing_is_changed_without_delay(self) -> None:
        lesson = Lesson([], Rollouts([], [], 0.0), [], [])
        assert Delay(["a"], 0).swap("a", lesson) is lesson

    def test_a_delay_longer_than_the_run_is_a_run_alone(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "grpo", algorithm="grpo", max_steps=2)).train()
        Trainer(config(tmp_path / "sgt", exchange_staleness=9, max_steps=2)).train()
        assert untimed(tmp_path / "grpo") == untimed(tmp_path / "sgt")

    def test_scalars_cannot_come_late(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"exchange_staleness=1, but XGRPO .*set exchange_staleness=0"):
            TrainingConfig(algorithm=("sgt", "xgrpo"), exchange_staleness=1)
        with pytest.raises(ValueError, match=r"exchange_staleness=1, but XGRPO"):
            Trainer(config(tmp_path / "run", exchange_staleness=1), algorithms=[GRPO(), XGRPO()])
        with pytest.raises(ValueError, match="exchange_staleness=-1 is invalid"):
            TrainingConfig(exchange_staleness=-1)

    def test_any_algorithm_that_reads_scalars_alone_is_refused(self, tmp_path: Path) -> None:
        class Watcher(GRPO):
            channels = ("rewards",)

        with pytest.raises(ValueError, match="exchange_staleness=1, but Watcher"):
            Trainer(config(tmp_path / "run", exchange_staleness=1), algorithms=[GRPO(), Watcher()])

    @pytest.mark.parametrize("changes", [
        {"algorithm_options": {"sgt_weight": 0.0}},
        {"exchange_topology": "none"},
        {"model_name_or_path": "tiny-llama"},
    ], ids=["weight 0", "nobody is read", "one policy"])  # fmt: skip
    def test_grpos_weights_where_nothing_crosses(self, changes: dict[str, Any], tmp_path: Path) -> None:
        shared = {"model_name_or_path": changes["model_name_or_path"]} if "model_name_or_path" in changes else {}
        trainers = [
            Trainer(config(tmp_path / "grpo", algorithm="grpo", **shared)),
            Trainer(config(tmp_path / "sgt", exchange_staleness=1, **changes)),
        ]
        for trainer in trainers:
            trainer.train()
        for name, policy in trainers[0].policies.items():
            weights = trainers[1].policies[name].model.state_dict()
            assert all(torch.equal(tensor, weights[key]) for key, tensor in policy.model.state_dict().items())

    def test_accumulation_leaves_what_is_learnt(self, tmp_path: Path) -> None:
        found = []
        for rows, parts in ((8, 1), (4, 2), (2, 4)):
            trainer = Trainer(
                config(
                    tmp_path / str(parts),
                    algorithm="prp",
                    exchange_staleness=1,
                    per_device_train_batch_size=rows,
                    gradient_accumulation_steps=parts,
                    dtype="fp32",
                    max_steps=3,
                )
            )
            trainer.train()
            found.append({name: policy.model.state_dict() for name, policy in trainer.policies.items()})
        for other in found[1:]:
            for name, weights in found[0].items():
                for key, tensor in weights.items():
                    torch.testing.assert_close(other[name][key], tensor, rtol=1e-4, atol=1e-5)


class TestResume:
    def test_metadata_that_json_does_not_hold_is_named(self, tmp_path: Path) -> None:
        delay = Delay(["a"], 1)
        problem = Problem("p", ({"role": "user", "content": "?"},), "1", metadata={"odds": Fraction(1, 2)})
        delay.swap("a", Lesson([problem], Rollouts([], [], 0.0), [], []))
        with pytest.raises(ValueError, match=r"exchange_staleness=1 .*Fraction"):
            delay.save(tmp_path)

    def test_to_the_same_bits(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "straight", algorithm="prp", exchange_staleness=2)).train()
        Trainer(config(tmp_path / "run", algorithm="prp", exchange_staleness=2, max_steps=2)).train()
        again = Trainer(config(tmp_path / "run", algorithm="prp", exchange_staleness=2, resume_from_checkpoint="auto"))
        assert [len(kept) for kept in again.delay.lessons.values()] == [2, 2]
        again.train()
        assert_same_run(tmp_path / "straight", tmp_path / "run")

    def test_with_another_delay_is_refused(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "run", exchange_staleness=2, max_steps=2)).train()
        for other in (0, 1):
            with pytest.raises(ValueError, match=rf"exchange_staleness={other}, but the run .* has 2"):
                Trainer(config(tmp_path / "run", exchange_staleness=other, resume_from_checkpoint="auto"))


class Paced:
    """A backend whose policies answer when they are let; it keeps what each was asked, and learnt."""

    def __init__(self, names: Sequence[str]) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.lessons: dict[tuple[str, int], Lesson] = {}
        self.closed = threading.Event()
        self.gates: dict[str, threading.Semaphore] = {}
        self.failing: dict[str, BaseException] = {}
        self.names = names

    def rollout(self, step: int, prompts: Mapping[str, Sequence[Sequence[Message]]]) -> dict[str, Rollouts]:
        (name,) = prompts
        self.log.append((name, "rollout", step))
        if name in self.failing:
            raise self.failing[name]
        if name in self.gates:
            while not self.gates[name].acquire(timeout=0.01):
                if self.closed.is_set():
                    raise WorkerLostError(f"{name}: the workers have been ended")
        answer = [Completion(f"{name} {step}", (1, 2), (-0.1, -0.1), policy_version=step)] * 2
        return {name: Rollouts([(1,)] * len(prompts[name]), [answer] * len(prompts[name]), 0.0)}

    def learn(self, step: int, lessons: Mapping[str, Lesson]) -> dict[str, dict[str, float]]:
        ((name, lesson),) = lessons.items()
        self.lessons[name, step] = lesson
        self.log.append((name, "learn", step))
        return {name: {"reward": 0.0}}

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
        raise AssertionError("not asked")

    def save(self, folder: Path) -> None:
        raise AssertionError("not asked")

    load = save

    def restart(self) -> None:
        raise AssertionError("not asked")

    def close(self) -> None:
        self.closed.set()


def lanes(backend: Paced, delay: Delay, exchange: MemoryExchange, timeout: float = 60.0) -> Lanes:
    settings = TrainingConfig(
        agents=("fast", "slow"), problems_per_step=2, num_generations=2, per_device_train_batch_size=2,
        exchange_staleness=delay.steps, algorithm="sgt", worker_timeout=timeout,
    )  # fmt: skip
    return Lanes(settings, dict(zip(backend.names, settings.algorithms(), strict=True)), backend, exchange, delay, 0)


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("did not come to hold")


class TestLanes:
    NAMES = ("fast", "slow")

    def test_a_fast_policy_is_k_steps_ahead_and_never_more(self) -> None:
        backend, delay, exchange = Paced(self.NAMES), Delay(self.NAMES, 2), MemoryExchange(self.NAMES)
        slow = backend.gates["slow"] = threading.Semaphore(0)
        steps: list[Any] = []
        running = threading.Thread(target=lambda: steps.extend(lanes(backend, delay, exchange).run(1, 6)))
        running.start()
        for published in range(5):
            # With `published` steps said by the slow one, the fast one has answered two more and one that it cannot learn.
            furthest = min(6, published + 3)
            wait_until(lambda f=furthest: ("fast", "rollout", f) in backend.log)
            threading.Event().wait(0.2)
            assert max(step for name, what, step in backend.log if (name, what) == ("fast", "learn")) == min(
                6, published + 2
            )
            assert max(step for name, _, step in backend.log if name == "fast") == furthest
            slow.release()
        slow.release()
        running.join()
        assert len(steps) == 6
        # Each learnt in step s what the other said in step s - 2.
        for name, other in (("fast", "slow"), ("slow", "fast")):
            assert backend.lessons[name, 2].delayed is None
            for step in range(3, 7):
                late = backend.lessons[name, step].delayed
                assert late is not None
                assert late.rollouts.completions[0][0].text == f"{name} {step - 2}"
                assert {record.text for records in late.peers for record in records} == {f"{other} {step - 2}"}
            # What is kept for later has been heard as well.
            assert [kept.peers[0][0].text for kept in delay.lessons[name]] == [f"{other} 5", f"{other} 6"]

    def test_a_policy_that_fails_ends_all_and_is_what_is_raised(self) -> None:
        backend = Paced(self.NAMES)
        backend.failing["slow"] = WorkerLostError("slow (actor ab): lost")
        with pytest.raises(WorkerLostError, match="slow"):
            list(lanes(backend, Delay(self.NAMES, 1), MemoryExchange(self.NAMES)).run(1, 6))
        assert backend.closed.is_set()
        assert threading.active_count() == len([t for t in threading.enumerate() if "_lane" not in t.name])

    def test_who_never_publishes_is_named(self) -> None:
        backend = Paced(self.NAMES)
        backend.gates["slow"] = threading.Semaphore(0)
        with pytest.raises(TimeoutError, match=r"fast has waited for slow to publish round 1"):
            list(lanes(backend, Delay(self.NAMES, 1), MemoryExchange(self.NAMES), timeout=0.1).run(1, 6))

    def test_stopping_ends_behind_the_furthest_step(self) -> None:
        backend, delay = Paced(self.NAMES), Delay(self.NAMES, 2)
        slow = backend.gates["slow"] = threading.Semaphore(1)
        running = lanes(backend, delay, MemoryExchange(self.NAMES))
        steps = running.run(1, 100)
        next(steps)
        wait_until(lambda: ("fast", "rollout", 4) in backend.log)
        running.stop()
        slow.release(100)
        assert len(list(steps)) == 3
        assert max(step for _, _, step in backend.log) == 4
