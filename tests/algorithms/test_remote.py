"""Engines in other processes, with actors that answer at once in Ray's place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algorithms.config import TrainingConfig
from algorithms.errors import EngineError, WorkerLostError
from algorithms.rollouts.remote import RemoteEngine
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout


class LostError(Exception):
    """Stands for Ray's error of a dead actor."""


class TaskError(Exception):
    """Stands for Ray's error of a call that raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


@dataclass(frozen=True, eq=False)
class Call:
    """What a call gives, or raises."""

    error: Exception | None
    value: Any


class FakeActor:
    """Answers like an engine: each completion says its prompt and its seed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.received: list[Any] = []

        def generate(prompts: Any, generations: int, config: Any, seeds: Any, eos: Any) -> list[list[Rollout]]:
            assert len(seeds) == len(prompts) * generations
            drawn = iter(seeds)
            return [
                [
                    Rollout([prompt[0], next(drawn), 7, 8], [-1.0] * 4, finish_reason="length")
                    for _ in range(generations)
                ]
                for prompt in prompts
            ]

        def load_weights(weights: dict[str, torch.Tensor], tied: dict[str, str]) -> None:
            self.received.append((weights, tied))

        def call(method: Any) -> Any:
            return SimpleNamespace(remote=lambda *arguments: Call(error, method(*arguments)))

        self.generate, self.load_weights = call(generate), call(load_weights)


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(call: Any) -> Any:
        if call.error is not None:
            raise call.error
        return call.value

    def wait(calls: Any) -> Any:
        return calls[-1:], calls[:-1]  # the last one is ready first

    exceptions = SimpleNamespace(RayError=(LostError, TaskError), RayTaskError=TaskError)
    fake = SimpleNamespace(get=get, wait=wait, put=lambda value: value, exceptions=exceptions)
    monkeypatch.setitem(sys.modules, "ray", fake)


def engine(*actors: Any) -> RemoteEngine:
    return RemoteEngine(TrainingConfig().policies()[0], {f"engine {i}": actor for i, actor in enumerate(actors)})


SAMPLING = SamplingConfig(max_completion_length=4)


@pytest.mark.usefixtures("fake_ray")
@pytest.mark.parametrize("engines", [1, 2, 3, 5])
def test_prompts_and_seeds_stay_together_however_many_engines_there_are(engines: int) -> None:
    prompts = [[100 + p] for p in range(4)]
    seeds = list(range(8))
    answers = engine(*(FakeActor() for _ in range(engines))).generate(prompts, 2, SAMPLING, seeds, ())
    assert [[one.token_ids[:2] for one in group] for group in answers] == [
        [[100 + p, 2 * p], [100 + p, 2 * p + 1]] for p in range(4)
    ]


@pytest.mark.usefixtures("fake_ray")
def test_the_policy_says_what_ends_an_answer() -> None:
    (group,) = engine(FakeActor()).generate([[1]], 1, SAMPLING, [5], (), lambda ids: ids[-1] == 7)
    assert (group[0].token_ids, group[0].finish_reason) == ([1, 5, 7], "boxed")


@pytest.mark.usefixtures("fake_ray")
def test_tied_weights_are_sent_once() -> None:
    actors = FakeActor(), FakeActor()
    whole = torch.arange(6.0).reshape(2, 3)
    engine(*actors).load_weights({"embed": whole, "first_row": whole[0], "lm_head": whole, "norm": torch.ones(3)})
    for actor in actors:
        ((weights, tied),) = actor.received
        assert set(weights) == {"embed", "first_row", "norm"} and tied == {"lm_head": "embed"}


@pytest.mark.usefixtures("fake_ray")
def test_a_lost_engine_is_named_and_errors_of_vllm_are_themselves() -> None:
    with pytest.raises(WorkerLostError, match=r"engine 1 is lost \(LostError: gone\)"):
        engine(FakeActor(), FakeActor(LostError("gone"))).generate([[1], [2]], 1, SAMPLING, [0, 1], ())
    with pytest.raises(EngineError, match="given up"):
        engine(FakeActor(TaskError(EngineError("given up")))).generate([[1]], 1, SAMPLING, [0], ())
