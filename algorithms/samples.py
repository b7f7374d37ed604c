"""From scored completions to training rows: the one seam between an algorithm and the learner.

An algorithm is a pure function from (my scored group, what the exchange shows me, a retokenizer) to rows. A row is five
streams of one length; whoever executes it needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mrl_env.seeding import derive_seed
from mrl_env.types import Completion, Problem
from verifiers import Verdict


@dataclass(frozen=True)
class Group:
    """One policy's completions of one problem, with their verdicts.

    Attributes:
        problem: what was asked.
        agent: who answered.
        prompt_ids: the problem as rendered by this policy's template and tokenizer.
        completions: G completions.
        verdicts: G verdicts.
        seed: for an algorithm's own random draws about this group; see `rng`.
        mean_logprobs: scores candidate completions (lists of the policy's token ids) under its present weights: mean
            log-prob per token in nats. None where no model is at hand.

    Raises:
        ValueError: if there are not as many verdicts as completions.

    Example:
        >>> from mrl_env.types import user_message
        >>> right, wrong = Verdict(1.0, "2", "right"), Verdict(0.0, "3", "wrong")
        >>> completions = (Completion("2", (7, 0), (-0.1, -0.1)), Completion("3", (8, 0), (-2.0, -0.1)))
        >>> group = Group(Problem("p0", user_message("1 + 1"), "2"), "policy_0", (5, 6), completions, (right, wrong))
        >>> group.rewards.tolist(), group.solved
        ([1.0, 0.0], True)
    """

    problem: Problem
    agent: str
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    verdicts: tuple[Verdict, ...]
    seed: int = 0
    mean_logprobs: Callable[[Sequence[Sequence[int]]], list[float]] | None = None

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.verdicts):
            raise ValueError(f"{len(self.completions)} completions but {len(self.verdicts)} verdicts; give one each")

    @property
    def rewards(self) -> np.ndarray:
        """(G,) float64 scores; NaN where no judgement exists."""
        return np.asarray([np.nan if v.score is None else v.score for v in self.verdicts], dtype=np.float64)

    @property
    def solved(self) -> bool:
        """Whether any of the completions is a verified success."""
        return any(verdict.success for verdict in self.verdicts)

    def rng(self, *purpose: str) -> np.random.Generator:
        """A generator for one purpose, independent of every other purpose, group and policy."""
        return np.random.Generator(np.random.Philox(derive_seed(self.seed, self.agent, self.problem.id, *purpose)))


@dataclass(frozen=True)
class Sample:
    """A training row: five streams of one length T (prompt and completion). Entry t speaks of predicting token t.

    Attributes:
        token_ids: (T,) int64.
        loss_mask: (T,) bool: tokens that carry policy gradient and KL. Masks are data, never guessed from padding.
        advantages: (T,) float32.
        old_logprobs: (T,) float32, nats, read where `loss_mask`; None lets the learner take its own snapshot.
        nll_weights: (T,) float32: weight of each token's negative log-likelihood.
        source: the agent that wrote the completion, for the metrics.

    Raises:
        ValueError: if the streams differ in length, or speak of the first token, which nothing predicts.

    Example: a prompt of two tokens and a completion of two, advantage 0.5.
        >>> sample = make_sample((5, 6), (7, 0), advantage=0.5, old_logprobs=(-0.1, -0.2), source="policy_0")
        >>> sample.loss_mask.tolist(), sample.advantages.tolist(), sample.nll_weights.tolist()
        ([False, False, True, True], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0])
    """

    token_ids: np.ndarray
    loss_mask: np.ndarray
    advantages: np.ndarray
    old_logprobs: np.ndarray | None
    nll_weights: np.ndarray
    source: str

    def __post_init__(self) -> None:
        streams = [self.token_ids, self.loss_mask, self.advantages, self.nll_weights]
        streams += [] if self.old_logprobs is None else [self.old_logprobs]
        if len({stream.shape for stream in streams}) != 1 or self.token_ids.ndim != 1:
            raise ValueError(f"the streams have shapes {[stream.shape for stream in streams]}; all must be one (T,)")
        if self.loss_mask[:1].any() or self.nll_weights[:1].any():
            raise ValueError("the first token is masked in, but nothing predicts it; rows need a prompt")

    @property
    def weighted(self) -> np.ndarray:
        """(T,) bool: tokens whose log-prob enters the loss."""
        weighted: np.ndarray = self.loss_mask | (self.nll_weights != 0)
        return weighted

    @property
    def has_gradient(self) -> bool:
        """Whether the row moves the policy even without a KL term."""
        return bool(self.nll_weights.any() or self.advantages[self.loss_mask].any())


def make_sample(
    prompt_ids: Sequence[int] | np.ndarray,
    completion_ids: Sequence[int] | np.ndarray,
    *,
    source: str,
    advantage: float | None = None,
    old_logprobs: Sequence[float] | None = None,
    nll_weight: float = 0.0,
) -> Sample:
    """A row from one prompt and one completion.

    Args:
        prompt_ids: (P,) at least one token.
        completion_ids: (C,).
        source: the agent that wrote the completion.
        advantage: one value for all completion tokens; None for a row outside the policy gradient.
        old_logprobs: (C,) nats; None for the learner's own snapshot.
        nll_weight: one value for all completion tokens.
    """
    prompt, completion = len(prompt_ids), len(completion_ids)
    behind = np.arange(prompt + completion) >= prompt
    return Sample(
        token_ids=np.asarray([*prompt_ids, *completion_ids], dtype=np.int64),
        loss_mask=behind if advantage is not None else np.zeros_like(behind),
        advantages=np.where(behind, advantage or 0.0, 0.0).astype(np.float32),
        old_logprobs=None
        if old_logprobs is None
        else np.concatenate([np.zeros(prompt), np.asarray(old_logprobs, dtype=np.float64)]).astype(np.float32),
        nll_weights=np.where(behind, nll_weight, 0.0).astype(np.float32),
        source=source,
    )


def own_samples(group: Group, advantages: np.ndarray) -> list[Sample]:
    """The group's own completions as rows, with their original ids and the log-probs recorded at sampling.

    Args:
        group: G completions.
        advantages: (G,).
    """
    return [
        make_sample(
            group.prompt_ids,
            completion.token_ids,
            advantage=float(advantage),
            old_logprobs=completion.logprobs,
            source=group.agent,
        )
        for completion, advantage in zip(group.completions, advantages, strict=True)
    ]


@dataclass(frozen=True)
class Batch:
    """What the loss reads of rows, padded on the right to one length; tensors on one device.

    Attributes:
        loss_mask: (B, T) bool.
        advantages: (B, T) float32.
        old_logprobs: (B, T) float32.
        nll_weights: (B, T) float32.
        own: (B,) bool, rows that the learner wrote itself.
        unrecorded: (B,) bool, rows that came without old log-probs of the learner: those in the batch are its snapshot.
        sampling_logprobs: (B, T) float32, of the engine that sampled, in rows that were `sampled_elsewhere`.
        sampled_elsewhere: (B,) bool, own rows that another engine than the learner's own model has sampled.
    """

    loss_mask: torch.Tensor
    advantages: torch.Tensor
    old_logprobs: torch.Tensor
    nll_weights: torch.Tensor
    own: torch.Tensor
    unrecorded: torch.Tensor
    sampling_logprobs: torch.Tensor
    sampled_elsewhere: torch.Tensor


def collate(
    samples: Sequence[Sample],
    old_logprobs: Iterable[np.ndarray],
    agent: str,
    device: torch.device | str,
    *,
    has_engine: bool = False,
) -> Batch:
    """Pad rows into a batch.

    Args:
        samples: B rows.
        old_logprobs: for each row (T,) nats: its own stream, or the learner's snapshot where it has none.
        agent: the learner, to tell its own rows from its peers'.
        device: where the tensors go.
        has_engine: whether another engine than the learner's own model samples for it, so that the old log-probs of its own
            rows are the engine's. Of peers' rows the algorithm says what they are.
    """
    recorded = [sample.old_logprobs is not None for sample in samples]
    elsewhere = [has_engine and has and sample.source == agent for sample, has in zip(samples, recorded, strict=True)]
    length = max(len(sample.token_ids) for sample in samples)

    def pad(streams: Iterable[np.ndarray], dtype: type) -> torch.Tensor:
        padded: np.ndarray = np.zeros((len(samples), length), dtype=dtype)
        for row, stream in zip(padded, streams, strict=True):
            row[: len(stream)] = stream
        return torch.from_numpy(padded).to(device)

    return Batch(
        loss_mask=pad((sample.loss_mask for sample in samples), np.bool_),
        advantages=pad((sample.advantages for sample in samples), np.float32),
        old_logprobs=pad(old_logprobs, np.float32),
        nll_weights=pad((sample.nll_weights for sample in samples), np.float32),
        own=torch.tensor([sample.source == agent for sample in samples], device=device),
        unrecorded=torch.tensor(
            [other or not has for has, other in zip(recorded, elsewhere, strict=True)], device=device
        ),
        sampling_logprobs=pad((np.zeros(0) if s.old_logprobs is None else s.old_logprobs for s in samples), np.float32),
        sampled_elsewhere=torch.tensor(elsewhere, device=device),
    )
