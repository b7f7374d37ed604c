"""Loud warnings about what makes a run useless: no reward at all, a verifier that fails, a gate that never opens."""

from __future__ import annotations

import logging
from collections.abc import Mapping

logger = logging.getLogger(__name__)

GATE_PATIENCE = 20
"""Steps without a single row from a peer, though there could be some, after which a policy that reads its peers' rollouts is
reported."""

MISMATCH = 0.1
"""Mean difference, in nats per token, between the log-probs at sampling and those of the learner with the same weights, above
which they are reported as another model's."""

_NEVER_AGAIN = -1


class Alarms:
    """Watches the metrics of one policy.

    Args:
        name: the policy.
        reads_peers: whether it should get rows from its peers.
        delay: steps for which there can be none at the beginning.
    """

    def __init__(self, name: str, *, reads_peers: bool, delay: int = 0) -> None:
        self._name = name
        self._patience = GATE_PATIENCE + delay
        self._zero_rewards = 0
        self._without_peer_rows = 0 if reads_peers else _NEVER_AGAIN

    def check(self, step: int, metrics: Mapping[str, float]) -> None:
        """Look at one step's metrics and warn."""
        self._check_rewards(step, metrics)
        self._check_verifier(step, metrics)
        self._check_mismatch(step, metrics)
        self._check_gate(metrics)

    def state(self) -> dict[str, int]:
        """What a resumed run must remember."""
        return {"zero_rewards": self._zero_rewards, "without_peer_rows": self._without_peer_rows}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take up what `state` gave."""
        self._zero_rewards, self._without_peer_rows = state["zero_rewards"], state["without_peer_rows"]

    def _check_rewards(self, step: int, metrics: Mapping[str, float]) -> None:
        self._zero_rewards = self._zero_rewards + 1 if metrics["reward"] == 0 else 0
        if self._zero_rewards in (1, 10, 100, 1000):
            shares = [(k.removeprefix("verdicts/"), v) for k, v in metrics.items() if k.startswith("verdicts/")]
            reasons = ", ".join(f"{reason} {share:.0%}" for reason, share in shares)
            logger.warning(
                "%s: every reward of step %d is 0 (%d in a row). Verdicts: %s. Look at completions.jsonl: is the answer in "
                "the form that the verifier reads (\\boxed{} for math), is max_completion_length enough, are the problems in "
                "reach?",
                self._name,
                step,
                self._zero_rewards,
                reasons,
            )

    def _check_verifier(self, step: int, metrics: Mapping[str, float]) -> None:
        if metrics.get("verdicts/error"):
            logger.warning(
                "%s: the verifier failed on %.0f %% of the completions of step %d; they carry no reward. The reasons stand in "
                "exchange.jsonl",
                self._name,
                100 * metrics["verdicts/error"],
                step,
            )

    def _check_mismatch(self, step: int, metrics: Mapping[str, float]) -> None:
        difference = metrics.get("sampling/logp_difference_mean", 0.0)
        if difference > MISMATCH:
            logger.warning(
                "%s: in step %d the log-probs at sampling and those of the learner differ by %.2f nats per token. With vLLM: "
                "does the server sample with logprobs-mode processed_logprobs, does it get the weights? "
                "(top_p, top_k and min_p make a difference of their own.) Else try dtype fp32",
                self._name,
                step,
                difference,
            )

    def _check_gate(self, metrics: Mapping[str, float]) -> None:
        if self._without_peer_rows == _NEVER_AGAIN:
            return
        self._without_peer_rows = _NEVER_AGAIN if metrics["exchange/peer_rows"] else self._without_peer_rows + 1
        if self._without_peer_rows == self._patience:
            logger.warning(
                "%s: no peer's completion has reached its rows in %d steps. Either its peers solve nothing that it does not "
                "solve itself, or their text is dropped (drop rate %.0f %% in this step)",
                self._name,
                self._patience,
                100 * metrics["exchange/drop_rate"],
            )
