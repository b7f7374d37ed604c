"""What is measured of a policy on held-out problems: accuracy, and how far and how wide its distribution has become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from algorithms.config import TrainingConfig
from algorithms.evaluation import ProblemResult, evaluate, summarize
from algorithms.options import SamplingOptions
from algorithms.policy import Policy
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.setup import load_eval_problems
from benchmarks.compare.pools import settings_hash
from mrl_env.seeding import derive_seed
from mrl_env.types import Problem

EVAL_SEED = 0
"""Seed of held-out problems and of the draws on them: all runs of all seeds are measured alike."""

_ELEMENTS = 1 << 24
"""Logits of one forward pass, at most, unless a single row has more."""

_READ = (
    "model_name_or_path", "env", "problems", "problem_options", "skip_invalid", "eval_problems", "eval_problem_options",
    "verifier", "verifier_options", "eval_size", "eval_samples", "chat_template", "chat_template_kwargs", "dtype",
    *(field.name for field in fields(SamplingOptions)),
)  # fmt: skip
"""Settings that a measurement depends on."""


@dataclass(frozen=True)
class Measurement:
    """How policies are measured.

    Attributes:
        config: the study's settings with the pool's models, and without those of any method: its verifier is the true one.
        kl_problems: held-out problems on whose completions KL and entropy are taken.
        reach_samples: completions per held-out problem that tell what a starting policy can reach at all.
    """

    config: TrainingConfig
    kl_problems: int
    reach_samples: int

    def problems(self) -> list[Problem]:
        """The held-out problems."""
        return load_eval_problems(replace(self.config, seed=EVAL_SEED))

    def evaluate(self, policy: Policy, problems: Sequence[Problem], samples: int) -> list[ProblemResult]:
        """One policy on problems."""
        config = self.config
        return evaluate(
            policy,
            problems,
            config.sampling(),
            samples,
            EVAL_SEED,
            config.make_verifier(),
            config.generation_batch_size,
        )

    def describe(self, policy: Policy, start: Policy, problems: Sequence[Problem]) -> dict[str, float]:
        """`kl` to the start and `entropy`, both in nats per token, on completions that the policy samples at temperature 1.

        Args:
            policy: the one that is measured.
            start: as it began.
            problems: all held-out ones; the `kl_problems` first by hash are asked.
        """
        asked = sorted(problems, key=lambda problem: derive_seed(EVAL_SEED, "kl", problem.id))[: self.kl_problems]
        prompts = [policy.renderer.token_ids(problem.messages) for problem in asked]
        config = self.config
        groups = policy.generate(
            prompts,
            1,
            SamplingConfig(config.max_completion_length, stop_at_boxed=config.stop_at_boxed),
            [derive_seed(EVAL_SEED, "kl sample", problem.id) for problem in asked],
            config.generation_batch_size,
        )
        rows = [(prompt, group[0].token_ids) for prompt, group in zip(prompts, groups, strict=True)]
        kl, entropy = divergence(policy.model, start.model, rows)
        return {"kl": kl, "entropy": entropy}

    def key(self) -> str:
        """A hash of all that the measurement of the starting policies depends on."""
        settings = self.config.to_dict()
        return settings_hash({name: settings[name] for name in _READ}, self.kl_problems, self.reach_samples)


def measure(
    policy: Policy, start: Policy, problems: Sequence[Problem], how: Measurement
) -> tuple[dict[str, float], dict[str, float]]:
    """One policy against its start.

    Returns:
        The summary (see `evaluation.summarize`, and `kl`, `entropy`), and the score of each problem: the mean of its samples,
        or the greedy one without samples.
    """
    results = how.evaluate(policy, problems, how.config.eval_samples)
    scores = {r.problem.id: float(np.mean(r.samples)) if r.samples else r.greedy for r in results}
    return {**summarize(results), **how.describe(policy, start, problems)}, scores


def reach(policy: Policy, problems: Sequence[Problem], how: Measurement) -> dict[str, int]:
    """For each problem how many of `reach_samples` completions succeed."""
    results = how.evaluate(policy, problems, how.reach_samples)
    return {result.problem.id: sum(score >= 1 for score in result.samples) for result in results}


def unreachable(successes: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """For each policy the problems on which it never succeeds, but a peer does.

    Args:
        successes: policy to problem to number of successes.

    Example:
        >>> unreachable({"a": {"p": 0, "q": 3, "r": 0}, "b": {"p": 1, "q": 0, "r": 0}})
        {'a': ['p'], 'b': ['q']}
    """
    return {
        name: [
            problem
            for problem, number in own.items()
            if number == 0 and any(peer[problem] for other, peer in successes.items() if other != name)
        ]
        for name, own in successes.items()
    }


@torch.inference_mode()
def divergence(
    model: PreTrainedModel, start: PreTrainedModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[float, float]:
    """KL(model || start) and the model's entropy, exact at each position, in nats per token, averaged over all tokens.

    Args:
        model: a causal language model, on its device.
        start: one with the same vocabulary, on the same device.
        rows: prompt and completion as token ids; positions that predict the completion's tokens count.

    Returns:
        KL and entropy. KL is infinite if the model says what its start never would.
    """
    vocabulary = int(model.config.get_text_config().vocab_size)
    modes = [(m, m.training) for m in (model, start)]
    for m, _ in modes:
        m.eval()
    kl = entropy = 0.0
    ordered = sorted(rows, key=lambda row: len(row[0]) + len(row[1]))
    while ordered:
        longest = max(len(completion) for _, completion in ordered)
        size = max(1, _ELEMENTS // (longest * vocabulary))
        part, ordered = ordered[-size:], ordered[:-size]
        logp, logq = (_log_distributions(m, part) for m in (model, start))
        p = logp.exp()
        # A token without any chance, of logit -inf, counts 0: 0 log 0, not 0 times -inf.
        kl += float(torch.where(p > 0, p * (logp - logq), 0.0).sum())
        entropy -= float(torch.where(p > 0, p * logp, 0.0).sum())
    for m, training in modes:
        m.train(training)
    tokens = sum(len(completion) for _, completion in rows)
    return kl / tokens, entropy / tokens


def _log_distributions(model: PreTrainedModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> torch.Tensor:
    """(N, V) float32 log-probabilities at the positions that predict the N completion tokens of rows padded on the left."""
    device = next(model.parameters()).device
    longest = max(len(prompt) + len(completion) for prompt, completion in rows)
    last = max(len(completion) for _, completion in rows) + 1
    ids = torch.zeros((len(rows), longest), dtype=torch.int64)
    mask, counted = torch.zeros_like(ids), torch.zeros((len(rows), last), dtype=torch.bool)
    for i, (prompt, completion) in enumerate(rows):
        length = len(prompt) + len(completion)
        ids[i, -length:] = torch.tensor([*prompt, *completion])
        mask[i, -length:] = 1
        counted[i, -len(completion) - 1 : -1] = True
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0).to(device),
        use_cache=False,
        logits_to_keep=last,
    ).logits
    return torch.log_softmax(logits[counted.to(device)].float(), dim=-1)


def to_json(how: Measurement) -> dict[str, Any]:
    """A measurement as JSON values."""
    return {**asdict(how), "config": how.config.to_dict()}


def from_json(values: Mapping[str, Any]) -> Measurement:
    """What `to_json` gave."""
    return Measurement(**{**values, "config": TrainingConfig.from_dict(values["config"])})
