"""An algorithm of one's own: GRPO, and every success of a peer as a target, needed or not.

python own_algorithm.py --imitate_weight 0.1                                # a complete run
python -m algorithms.grpo --algorithm own_algorithm:Imitate grpo            # of two policies, the first only
"""

from dataclasses import dataclass

from algorithms import Algorithm, make_sample, own_samples
from algorithms.advantages import group_advantages


@dataclass(frozen=True)
class Imitate(Algorithm):
    """GRPO's rows, and one row for each success of a peer."""

    channels = ("rollouts", "rewards")  # what it reads of its peers

    imitate_weight: float = 0.05
    """Weight of the peers' successes."""

    def rows(self, group, peers, retokenize):
        rows = own_samples(group, group_advantages(group.rewards, scale=self.scale_rewards))
        for peer in peers:
            if peer.success and (success := retokenize(peer)) is not None:  # None: it did not survive, and was counted
                weight = self.imitate_weight / len(success.token_ids)
                rows.append(make_sample(group.prompt_ids, success.token_ids, nll_weight=weight, source=peer.agent))
        return rows


if __name__ == "__main__":
    from algorithms.cli import main

    main("own_algorithm:Imitate")
