"""Controls as plug-ins, by dotted path: what is left of a method's gain if one part of it is taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from algorithms.grpo import GRPO
from algorithms.samples import Group, Sample
from algorithms.sgt import SGT
from mrl_env.seeding import derive_rng
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience
from verifiers import Verdict


@dataclass(frozen=True)
class UngatedTransfer(SGT):
    """SGT without its gate: a peer's success is learnt wherever there is one, whether the learner needs it or not."""

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """GRPO's G rows, and the row that SGT would add if the learner had failed."""
        failed = replace(group, verdicts=tuple(Verdict(0.0, None, "wrong") for _ in group.verdicts))
        added = super().rows(failed, peers, retokenize)[len(group.completions) :]
        return GRPO(scale_rewards=self.scale_rewards).rows(group, (), retokenize) + added


@dataclass(frozen=True)
class RescueOnly(SGT):
    """SGT without reinforcement: only the peers' successes on problems where the learner has none are learnt."""

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """SGT's rows, all advantages 0."""
        return [
            replace(row, advantages=np.zeros_like(row.advantages)) for row in super().rows(group, peers, retokenize)
        ]


class RandomReward:
    """A verifier without judgement: a fair coin, by hash of question and completion."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Right or wrong, the same for the same completion of the same problem."""
        right = derive_rng("random reward", metadata.get("question", ""), completion).random() < 0.5
        return Verdict(float(right), None, "right" if right else "wrong")
