"""GRPO, Group Relative Policy Optimization (arXiv 2402.03300): each policy learns alone. The baseline of the others.

    A_i  = (r_i - mean(r)) / (std(r) + 1e-4)          over the policy's own G completions of the problem
    rho_t = pi(y_t) / pi_old(y_t)
    loss = - mean_t min(rho_t A_i, clip(rho_t, 1 - epsilon, 1 + epsilon_high) A_i)  +  beta KL(pi || pi_init)

Nothing crosses between policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from algorithms.advantages import group_advantages
from algorithms.algorithm import Algorithm
from algorithms.samples import Group, Sample, own_samples
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience


@dataclass(frozen=True)
class GRPO(Algorithm):
    """Own rows, advantages over the own group."""

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """G rows."""
        return own_samples(group, group_advantages(group.rewards, scale=self.scale_rewards))


if __name__ == "__main__":
    from algorithms.cli import main

    main("grpo")
