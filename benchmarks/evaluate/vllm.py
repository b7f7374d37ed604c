"""Answers by vLLM instead of Transformers.

Written after vLLM's documentation and tested against a stand-in with the same names and signatures only: it has never run
against the real engine. vLLM is imported when an engine is made, and not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from algorithms.adapters import is_adapter_folder
from algorithms.config import PolicyConfig
from algorithms.policy import load_renderer, load_tokenizer, model_source
from algorithms.rollouts.sampling import SamplingConfig
from mrl_env.tokenization import TextTokenizer
from mrl_env.types import Completion

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


class VllmPolicy:
    """A model served by vLLM in this process; answers like `algorithms.policy.Policy`.

    The model ends a completion with what vLLM takes from the same files: the tokenizer's end of sequence and those that the
    generation settings name. vLLM's own sampler draws, so completions differ from those of Transformers; each has its seed.

    Args:
        config: the policy's settings.

    Raises:
        ValueError: if vLLM is not installed, or the tokenizer cannot be loaded or is unsuitable.
    """

    def __init__(self, config: PolicyConfig) -> None:
        try:
            vllm = importlib.import_module("vllm")
        except ImportError as error:
            raise ValueError(
                "backend='vllm' needs vLLM and a GPU; install it with: pip install 'mutual-rl[vllm]', or use "
                "--backend transformers"
            ) from error
        tokenizer = load_tokenizer(config)
        self.renderer = load_renderer(config, tokenizer)
        self._text = TextTokenizer(tokenizer)
        source = model_source(config.model_name_or_path)
        if is_adapter_folder(source):
            raise ValueError(
                f"policies has {config.model_name_or_path!r}, an adapter, which backend='vllm' does not load; use "
                "--backend transformers, or merge it into its model"
            )
        self._vllm = vllm
        self._engine = vllm.LLM(
            model=source,
            tokenizer=source,
            dtype=DTYPES[config.dtype],
            trust_remote_code=config.trust_remote_code,
            enable_prefix_caching=True,
        )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int = 512,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """Answer prompts; see `Policy.generate`.

        Each completion is a request of its own, since a seed belongs to a request; prefix caching computes their common
        prompt once. vLLM plans its batches itself, so `batch_size` is not read, and progress comes at the end.

        Raises:
            RuntimeError: if vLLM gave a completion up.
        """
        requests = [
            self._vllm.TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts for _ in range(generations)
        ]
        outputs = self._engine.generate(requests, [self._params(sampling, seed) for seed in seeds], use_tqdm=False)
        completions = [self._completion(output.outputs[0]) for output in outputs]
        if progress is not None:
            progress(len(completions))
        return [completions[p * generations : (p + 1) * generations] for p in range(len(prompts))]

    def _params(self, sampling: SamplingConfig, seed: int) -> Any:
        return self._vllm.SamplingParams(
            n=1,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=seed >> 1,  # vLLM's are signed
            max_tokens=sampling.max_completion_length,
            logprobs=0,  # of the drawn token, and of no other
            detokenize=False,
        )

    def _completion(self, output: Any) -> Completion:
        """vLLM's output as a completion. Its log-probs are the model's at temperature 1, whatever was drawn at."""
        if output.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM gave a completion up: finish_reason={output.finish_reason!r}")
        token_ids = tuple(output.token_ids)
        logprobs = tuple(
            float(place[token_id].logprob) for place, token_id in zip(output.logprobs, token_ids, strict=True)
        )
        stopped = output.finish_reason == "stop"
        spoken = token_ids[:-1] if stopped else token_ids
        return Completion(
            text=self._text.decode(spoken).decode("utf-8", errors="replace"),
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=output.finish_reason,
            trace=self._text.trace(token_ids, logprobs, stopped=stopped),
        )
