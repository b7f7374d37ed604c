"""PRP, Peer Rollout Pooling (arXiv 2605.07244): the peers' completions join the learner's batch.

    A_i  = (r_i - mean(r)) / (std(r) + 1e-4)          over own and peer completions of the problem together
    rho_t = pi(y_t) / pi_old(y_t)                      for a peer row one of
            snapshot:  pi_old = the learner's own policy before the update
            trace:     pi_old = the peer's sampling log-probs, aligned by the THL
    loss = - mean_t min(rho_t A_i, clip(rho_t, 1 - epsilon, 1 + epsilon_high) A_i)

Differs from GRPO in its rows: the peers' completions, retokenized, are added, and the advantage is over the joint group
(the joint group is our reading of the paper). With `trace`, set `delta` (dual clip): a negative advantage with a huge ratio
is otherwise unbounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from algorithms.advantages import joint_advantages
from algorithms.algorithm import Algorithm
from algorithms.samples import Group, Sample, make_sample, own_samples
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience


@dataclass(frozen=True)
class PRP(Algorithm):
    """Own rows and peers' rows, advantages over the joint group."""

    channels = ("rollouts", "rewards", "traces")

    prp_denominator: Literal["snapshot", "trace"] = "snapshot"
    """Old log-probs of a peer's row: the learner's own snapshot, or the peer's trace aligned by the THL."""

    prp_max_peer_rows: int | None = None
    """At most so many peer rows per problem, drawn uniformly; all of them by default."""

    prp_drop_constant_groups: bool = False
    """Leave out the peers' rows of a problem on which all rewards, own and peers', are equal."""

    def __post_init__(self) -> None:
        if self.prp_denominator not in ("snapshot", "trace"):
            raise ValueError(f"prp_denominator={self.prp_denominator!r} is unknown; use 'snapshot' or 'trace'")
        if self.prp_max_peer_rows is not None and self.prp_max_peer_rows < 0:
            raise ValueError(
                f"prp_max_peer_rows={self.prp_max_peer_rows} is negative; give at least 0, or leave it out"
            )

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """G own rows, and one for each peer record that is judged and survives retokenization."""
        traced = self.prp_denominator == "trace"
        # By name: which rows are drawn must not depend on the order in which the peers are listed.
        ordered = sorted((peer for peer in peers if peer.score is not None), key=lambda peer: peer.id)
        pool = [(peer, row) for peer in ordered if (row := retokenize(peer, traced=traced)) is not None]
        if self.prp_max_peer_rows is not None and len(pool) > self.prp_max_peer_rows:
            chosen = group.rng("prp").choice(len(pool), size=self.prp_max_peer_rows, replace=False)
            pool = [pool[i] for i in sorted(chosen)]
        peer_rewards = np.asarray([peer.score for peer, _ in pool], dtype=np.float64)
        own, peer = joint_advantages(group.rewards, peer_rewards, scale=self.scale_rewards)
        if self.prp_drop_constant_groups and not own.any() and not peer.any():
            pool, peer = [], peer[:0]
        return own_samples(group, own) + [
            make_sample(
                group.prompt_ids,
                row.token_ids,
                advantage=float(advantage),
                old_logprobs=row.logprobs if traced else None,
                source=record.agent,
            )
            for (record, row), advantage in zip(pool, peer, strict=True)
        ]


if __name__ == "__main__":
    from algorithms.cli import main

    main("prp")
