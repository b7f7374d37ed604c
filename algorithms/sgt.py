"""SGT, Success-Gated Transfer (arXiv 2605.07244): one verified success crosses, and only to a policy that has none.

    g(x) = [the learner has no success on x, and some peer has one]
    loss = loss_GRPO + lambda sum_{x: g(x) = 1} NLL(y*(x)) / (prompts in the minibatch)         lambda = sgt_weight
    NLL(y*) = - mean_t log pi(y*_t), the learner's end of sequence included

Differs from GRPO in one added row per rescued problem: a peer's success y*, retokenized, with an NLL weight and no policy
gradient. A success is a verdict of 1 on a completion that was not cut off. lambda = 0.1 is what GRAFT (arXiv 2609.37868)
reports of the paper's setting; drawing y* uniformly and the denominators are our reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from algorithms.advantages import group_advantages
from algorithms.algorithm import Algorithm
from algorithms.samples import Group, Sample, make_sample, own_samples
from mrl_env.tokenization import Retokenized, Retokenizer
from mrl_env.types import Experience

Selection = Literal["uniform", "shortest", "likeliest"]


@dataclass(frozen=True)
class SGT(Algorithm):
    """GRPO's rows, and one retokenized success where only a peer succeeded."""

    channels = ("rollouts", "rewards")

    sgt_weight: float = 0.1
    """Weight lambda of a rescued problem's negative log-likelihood; 0 is GRPO."""

    sgt_select: Selection = "uniform"
    """Which of the peers' successes is learnt: a uniform draw, the shortest in the learner's tokens, or the likeliest under
    the learner (per token)."""

    def __post_init__(self) -> None:
        if self.sgt_weight < 0:
            raise ValueError(
                f"sgt_weight={self.sgt_weight} is negative, which would unlearn successes; give at least 0"
            )
        if self.sgt_select not in ("uniform", "shortest", "likeliest"):
            raise ValueError(f"sgt_select={self.sgt_select!r} is unknown; use 'uniform', 'shortest' or 'likeliest'")

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """G rows, and one more if the gate is open and a success survives retokenization."""
        rows = own_samples(group, group_advantages(group.rewards, scale=self.scale_rewards))
        if group.solved or self.sgt_weight == 0:
            return rows
        # By name: which success is drawn must not depend on the order in which the peers are listed.
        successes = sorted(
            (peer for peer in peers if peer.success and peer.finish_reason != "length"), key=lambda peer: peer.id
        )
        candidates = [(peer, row) for peer in successes if (row := retokenize(peer)) is not None]
        if candidates:
            peer, success = candidates[self._select(group, [row for _, row in candidates])]
            weight = self.sgt_weight / len(success.token_ids)
            rows.append(make_sample(group.prompt_ids, success.token_ids, nll_weight=weight, source=peer.agent))
        return rows

    def _select(self, group: Group, candidates: Sequence[Retokenized]) -> int:
        """Index of the success to learn."""
        if self.sgt_select == "shortest":
            return int(np.argmin([len(candidate.token_ids) for candidate in candidates]))
        if self.sgt_select == "likeliest":
            if group.mean_logprobs is None:
                raise ValueError(
                    "sgt_select='likeliest' needs the learner's log-probs; use 'uniform' or 'shortest' here"
                )
            return int(np.argmax(group.mean_logprobs([candidate.token_ids for candidate in candidates])))
        return int(group.rng("sgt").integers(len(candidates)))


if __name__ == "__main__":
    from algorithms.cli import main

    main("sgt")
