"""Sampling by engines in other processes: Ray actors, each with a copy of the policy's weights on devices of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from algorithms.config import PolicyConfig
from algorithms.errors import WorkerLostError
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout
from algorithms.rollouts.vllm import rollout


class RemoteEngine:
    """Engines that share a policy's prompts; each answers every n-th of them.

    Args:
        config: the policy's settings.
        actors: one for each engine, by what it is called in errors.
    """

    answers_all = True

    def __init__(self, config: PolicyConfig, actors: Mapping[str, Any]) -> None:
        self.max_length = config.engine.max_model_length
        self._names, self._actors = list(actors), list(actors.values())

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        config: SamplingConfig,
        seeds: Sequence[int],
        eos_token_ids: Collection[int],
        ends_answer: Callable[[list[int]], bool] | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Rollout]]:
        """Sample completions; see `Engine.generate`.

        Raises:
            WorkerLostError: if an engine is lost.
            EngineError: if vLLM gave a completion up.
        """
        count = len(self._actors)
        calls = []
        for first, actor in zip(range(min(count, len(prompts))), self._actors, strict=False):
            own = range(first, len(prompts), count)
            drawn = [seed for p in own for seed in seeds[p * generations : (p + 1) * generations]]
            ids = [list(prompts[p]) for p in own]
            calls.append(actor.generate.remote(ids, generations, config, drawn, eos_token_ids))
        answers = self._gather(calls)
        groups = [answers[p % count][p // count] for p in range(len(prompts))]
        if progress is not None:
            progress(len(seeds))
        # What ends an answer is the policy's to say, which has the tokenizer.
        return [[rollout(one.token_ids, one.logprobs, eos_token_ids, ends_answer) for one in group] for group in groups]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take new weights; see `Engine.load_weights`. They are put into Ray's object store once, for all engines.

        Raises:
            WorkerLostError: if an engine is lost.
        """
        import ray

        first: dict[tuple[int, torch.Size], str] = {}
        tied = {}
        for name, weight in weights.items():
            if (same := first.setdefault((weight.data_ptr(), weight.shape), name)) != name:
                tied[name] = same
        stored = ray.put({name: weight.cpu() for name, weight in weights.items() if name not in tied})
        self._gather([actor.load_weights.remote(stored, tied) for actor in self._actors])

    def _gather(self, calls: Sequence[Any]) -> list[Any]:
        """What the engines answer.

        Raises:
            WorkerLostError: naming the one that is lost.
            Exception: what an engine raised itself.
        """
        import ray

        answers: list[Any] = [None] * len(calls)
        waiting = {call: place for place, call in enumerate(calls)}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting))
            place = waiting.pop(ready)
            try:
                answers[place] = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"{self._names[place]} is lost ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
                ) from error
        return answers
