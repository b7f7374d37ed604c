"""XGRPO, Cross-Policy GRPO Advantage Sharing (arXiv 2605.07244): only scalar rewards cross between policies.

    mu    = (1 - lambda) mean(r_own) + lambda mean(r_pool)
    sigma = (1 - lambda) std(r_own)  + lambda std(r_pool)          lambda = xgrpo_mix
    A_i   = (r_i - mu) / (sigma + 1e-4)                            for the policy's own completions

Differs from GRPO in the statistics behind the advantage: those of all policies' rewards on the problem (lambda = 1), mixed
with the own ones (lambda < 1; the mixture is our addition), so a policy is measured against the pool. No text crosses: what
only a peer can solve gets no gradient towards a solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from algorithms.advantages import mixed_advantages
from algorithms.algorithm import Algorithm
from algorithms.samples import Group, Sample, own_samples
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience


@dataclass(frozen=True)
class XGRPO(Algorithm):
    """Own rows, advantages under the pool's reward statistics."""

    channels = ("rewards",)

    xgrpo_mix: float = 1.0
    """Weight of the pool's mean and standard deviation, in [0, 1]; 0 is GRPO."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.xgrpo_mix <= 1.0:
            raise ValueError(f"xgrpo_mix={self.xgrpo_mix} lies outside [0, 1]; 0 is GRPO, 1 the pool alone")

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """G rows."""
        own = group.rewards
        pool = np.concatenate([own, np.asarray([np.nan if p.score is None else p.score for p in peers])])
        return own_samples(group, mixed_advantages(own, pool, self.xgrpo_mix, scale=self.scale_rewards))


if __name__ == "__main__":
    from algorithms.cli import main

    main("xgrpo")
