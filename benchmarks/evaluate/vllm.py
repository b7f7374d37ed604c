"""Answers by vLLM instead of Transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from transformers import GenerationConfig

from algorithms.adapters import is_adapter_folder
from algorithms.config import PolicyConfig
from algorithms.policy import (
    closes_box,
    eos_token_ids,
    load_model_config,
    load_renderer,
    load_tokenizer,
    model_source,
    spoken,
)
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.vllm import ColocatedEngine, require_vllm
from mrl_env.tokenization import TextTokenizer
from mrl_env.types import Completion

_SHARE = 0.9
"""Of a GPU's memory: nothing else is on it."""


class VllmPolicy:
    """A model in vLLM, without one in Transformers beside it; answers like `algorithms.policy.Policy`.

    vLLM's own sampler draws, so completions differ from those of Transformers; each has its seed.

    Args:
        config: the policy's settings.

    Raises:
        ValueError: if vLLM is not installed or cannot run the model, or the tokenizer cannot be loaded or is unsuitable.
    """

    def __init__(self, config: PolicyConfig) -> None:
        require_vllm("backend='vllm'", "use --backend transformers")
        tokenizer = load_tokenizer(config)
        self.renderer = load_renderer(config, tokenizer)
        self._text = TextTokenizer(tokenizer)
        source = model_source(config.model_name_or_path)
        if is_adapter_folder(source):
            raise ValueError(
                f"policies has {config.model_name_or_path!r}, an adapter, which backend='vllm' does not load; use "
                "--backend transformers, or merge it into its model"
            )
        self._eos_token_ids = eos_token_ids(_generation_config(config, source), self._text)
        config = replace(config, engine=replace(config.engine, gpu_memory_utilization=_SHARE))
        self._engine = ColocatedEngine(config, source, "cuda" if torch.cuda.is_available() else "cpu")

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int = 512,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """Answer prompts; see `Policy.generate`. vLLM plans its batches itself, so `batch_size` is not read.

        Raises:
            RuntimeError: if vLLM gave a completion up.
        """
        ends_answer = partial(closes_box, self._text) if sampling.stop_at_boxed else None
        groups = self._engine.generate(
            prompts, generations, sampling, seeds, self._eos_token_ids, ends_answer, progress=progress
        )
        return [[spoken(rollout, self._text) for rollout in group] for group in groups]


def _generation_config(config: PolicyConfig, source: str) -> GenerationConfig:
    """What `from_pretrained` makes a model's `generation_config` of."""
    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:
        return GenerationConfig.from_model_config(load_model_config(config))
