"""What is counted: of one update of a learner, and of one step's completions and rows. Names are TRL's where it has one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from algorithms.losses import LossConfig, LossTerms
from algorithms.samples import Batch, Group, Sample
from mrl_env.exchange import pool_statistics
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience
from verifiers import REASONS


class UpdateMeter:
    """Collects means over one update of a learner, weighted by tokens, rows or optimizer updates."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._weights: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._largest: dict[str, float] = {}

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        self._counts[name] += number

    def mean(self, name: str, value: float, weight: float = 1.0) -> None:
        """Add a value to a weighted mean."""
        self._sums[name] += value * weight
        self._weights[name] += weight

    def largest(self, name: str, value: float) -> None:
        """Add a value to a maximum."""
        self._largest[name] = max(value, self._largest.get(name, value))

    def add(self, other: UpdateMeter) -> None:
        """Take in what another one has collected."""
        for name, value in other._sums.items():
            self._sums[name] += value
            self._weights[name] += other._weights[name]
        self._counts.update(other._counts)
        for name, value in other._largest.items():
            self.largest(name, value)

    @torch.no_grad()
    def observe(self, batch: Batch, terms: LossTerms, config: LossConfig, *, fresh: bool) -> None:
        """Token statistics of one micro-batch: over the rows that are trained, not over those that were left out.

        Args:
            batch: (B, T) rows.
            terms: their loss.
            config: where the ratio is clipped.
            fresh: whether the weights are still those of the step's beginning.
        """
        mask, ratio = batch.loss_mask, terms.log_ratio.exp()
        tokens = float(mask.sum())
        if tokens == 0:
            return
        low = (ratio < 1 - config.epsilon) & (batch.advantages < 0) & mask
        high = (ratio > 1 + config.epsilon_high) & (batch.advantages > 0) & mask
        self.mean("clip_ratio/low_mean", float(low.sum()) / tokens, tokens)
        self.mean("clip_ratio/high_mean", float(high.sum()) / tokens, tokens)
        self.mean("clip_ratio/region_mean", float((low | high).sum()) / tokens, tokens)
        if terms.kl_per_token is not None:
            self.mean("kl", float(terms.kl_per_token.sum()) / tokens, tokens)
        own = mask & batch.own.unsqueeze(-1)
        # Of the model's own samples it is seen as long as the weights are those that sampled.
        sampled = own & batch.sampled_elsewhere.unsqueeze(-1)
        mismatch = terms.mismatch[sampled] if sampled.any() else terms.log_ratio[own] if fresh else own.new_zeros(0)
        if len(mismatch):
            ratios = mismatch.exp()
            self.mean("sampling/logp_difference_mean", float(mismatch.abs().mean()), len(mismatch))
            self.mean("sampling/importance_ratio_mean", float(ratios.mean()), len(mismatch))
            self.largest("sampling/importance_ratio_max", float(ratios.max()))
        peers = mask & ~own
        if peers.any():
            self.mean("exchange/ratio_mean", float(ratio[peers].mean()), float(peers.sum()))
            self.mean("exchange/ratio_square_mean", float((ratio[peers] ** 2).mean()), float(peers.sum()))

    def result(self) -> dict[str, float]:
        """All means, maxima and counts; the second moment of peers' ratios r becomes their variance, and their effective sample
        size (sum r)^2 / (n sum r^2) as a share of the n tokens: 1 if all weigh alike.
        """
        metrics = {name: total / self._weights[name] for name, total in self._sums.items()}
        square = metrics.pop("exchange/ratio_square_mean", None)
        if square is not None:
            mean = metrics["exchange/ratio_mean"]
            metrics["exchange/ratio_variance"] = square - mean**2
            if square > 0:  # not if all ratios underflow
                metrics["exchange/effective_sample_size"] = mean**2 / square
        return {**metrics, **self._largest, **{name: float(number) for name, number in self._counts.items()}}


def completion_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards, lengths, entropy and verdicts of one policy's completions in one step.

    `reward` is the mean over judged completions, `reward_std` the mean over groups of their standard deviation,
    `frac_reward_zero_std` the share of groups without spread, `success` the share of groups with a verified success, and
    `verdicts/<reason>` the share of completions with that verdict.
    """
    completions = [completion for group in groups for completion in group.completions]
    verdicts = Counter(verdict.reason for group in groups for verdict in group.verdicts)
    lengths = [len(completion.token_ids) for completion in completions]
    ended = [len(c.token_ids) for c in completions if c.finish_reason != "length"]
    entropies = [(c.entropy, len(c.token_ids)) for c in completions if c.entropy is not None]
    spreads = [pool_statistics(group.rewards)[1] for group in groups]
    every = np.concatenate([group.rewards[~np.isnan(group.rewards)] for group in groups])
    metrics = {
        "reward": float(every.mean()) if every.size else 0.0,
        "reward_std": float(np.mean(spreads)),
        "frac_reward_zero_std": float(np.mean([spread == 0 for spread in spreads])),
        "success": float(np.mean([group.solved for group in groups])),
        "completions/mean_length": float(np.mean(lengths)),
        "completions/min_length": float(np.min(lengths)),
        "completions/max_length": float(np.max(lengths)),
        "completions/clipped_ratio": 1 - len(ended) / len(completions),
        "completions/mean_terminated_length": float(np.mean(ended)) if ended else 0.0,
    }
    if entropies:
        metrics["entropy"] = sum(e * n for e, n in entropies) / max(1, sum(n for _, n in entropies))
    for reason in REASONS:
        if verdicts[reason]:
            metrics[f"verdicts/{reason}"] = verdicts[reason] / len(completions)
    return metrics


def exchange_metrics(agent: str, problems: Sequence[Iterable[Sample]], retokenizer: Retokenizer) -> dict[str, float]:
    """What crossed to one learner in one step.

    `exchange/peer_rows` counts rows written by peers; `exchange/rescue_rate` is the share of problems with an NLL row, in all
    and per source; `exchange/drop_rate` the share of retokenized records that were dropped, in all and per reason;
    `exchange/residual_bound` the mean bound of the THL's error, in nats per token.
    """
    rows = [(p, row) for p, problem in enumerate(problems) for row in problem if row.source != agent]
    rescued = {(p, row.source) for p, row in rows if row.nll_weights.any()}
    metrics = {
        "exchange/peer_rows": float(len(rows)),
        "exchange/rescue_rate": len({p for p, _ in rescued}) / len(problems),
    }
    for source in sorted({source for _, source in rescued}):
        metrics[f"exchange/rescue_rate/from_{source}"] = sum(s == source for _, s in rescued) / len(problems)
    seen = retokenizer.kept + retokenizer.dropped.total()
    metrics["exchange/drop_rate"] = retokenizer.dropped.total() / seen if seen else 0.0
    for reason, number in sorted(retokenizer.dropped.items()):
        metrics[f"exchange/drop_rate/{reason}"] = number / seen
    if retokenizer.residual_bounds:
        metrics["exchange/residual_bound"] = float(np.mean(retokenizer.residual_bounds))
    return metrics


def staleness_metrics(version: int, problems: Iterable[Sequence[Experience]]) -> dict[str, float]:
    """How old the peers' records are: `exchange/staleness` is the mean difference between the learner's number of updates and
    that of a record's author when it was sampled; nothing, where there are no records.

    Args:
        version: updates of the learner so far.
        problems: for each problem the records that it reads.
    """
    differences = [version - record.policy_version for records in problems for record in records]
    return {"exchange/staleness": float(np.mean(differences))} if differences else {}
