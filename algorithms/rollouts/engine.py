"""What samples in a model's place: an inference engine with a copy of its weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import torch

from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout


class Engine(Protocol):
    """An engine that samples for one policy.

    Its log-probs are not quite those of the model that is trained, even with the same weights: other kernels round otherwise.
    The learner measures the difference and corrects for it; see `losses.importance_weights`.

    Attributes:
        max_length: of prompt and completion together, in tokens; None if it is the model's.
        answers_all: whether it answers all prompts of a policy that is in shards; otherwise each of the policy's processes has
            an engine of its own, which answers that process's.
    """

    max_length: int | None
    answers_all: bool

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
        """Sample completions; see `rollouts.transformers.generate`."""
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take new weights, under the names of the model's files, and forget what was computed with the old ones."""
        ...
