"""Groups: the expected gradient and its variance of each algorithm's rows for one prompt, exactly.

Rewards are 0 or 1, so every advantage depends on the numbers of own and peer successes, k of G and j of M, alone. Given
(k, j) the rows are independent, and each is of one of five kinds: an own success, an own failure, a peer's success, a peer's
failure, a transferred success. So (G + 1)(M + 1) binomial terms give all moments; no answers are enumerated. The advantages
are computed by the functions with which the algorithms train.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from algorithms.advantages import group_advantages, joint_advantages, mixed_advantages
from benchmarks.bandit.policy import importance_weights
from benchmarks.bandit.rows import Moments, clipped_weights, row_moments

Rule = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From (G,) own and (M,) peer rewards to the (G,) and (M,) advantages of their rows."""

Weights = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""From the learner's and the peer's (K,) probabilities, and the sign of the advantage, to the (K,) weights of peer rows."""


@dataclass(frozen=True)
class Method:
    """An algorithm on a prompt.

    Attributes:
        rule: the advantages.
        peer_weights: what multiplies the score of a peer's row; None if peers have no rows.
        sgt_weight: weight of the log-likelihood of a transferred success.
    """

    rule: Rule
    peer_weights: Weights | None = None
    sgt_weight: float = 0.0


def _grpo(own: np.ndarray, peers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return group_advantages(own), np.zeros(len(peers))


def _grpo_centred(own: np.ndarray, peers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return group_advantages(own, scale=False), np.zeros(len(peers))


def _xgrpo(own: np.ndarray, peers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mixed_advantages(own, np.concatenate([own, peers]), 1.0), np.zeros(len(peers))


def _xgrpo_centred(own: np.ndarray, peers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mixed_advantages(own, np.concatenate([own, peers]), 1.0, scale=False), np.zeros(len(peers))


def _prp_centred(own: np.ndarray, peers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return joint_advantages(own, peers, scale=False)


def _snapshot(p: np.ndarray, q: np.ndarray, sign: float) -> np.ndarray:
    return np.ones_like(p)


def _trace(p: np.ndarray, q: np.ndarray, sign: float) -> np.ndarray:
    return importance_weights(p, q)


def _clipped_trace(p: np.ndarray, q: np.ndarray, sign: float) -> np.ndarray:
    return clipped_weights(importance_weights(p, q), np.full(len(p), sign))


METHODS = {
    "grpo": Method(_grpo),
    "xgrpo": Method(_xgrpo),
    "prp_s": Method(joint_advantages, _snapshot),
    "prp_t": Method(joint_advantages, _trace),
    "prp_t_clipped": Method(joint_advantages, _clipped_trace),
    "sgt": Method(_grpo, sgt_weight=0.1),
    "grpo_centred": Method(_grpo_centred),
    "xgrpo_centred": Method(_xgrpo_centred),
    "prp_t_centred": Method(_prp_centred, _trace),
}
"""The algorithms; `clipped` with the clipped surrogate at the first update, `centred` without the division by the std."""


@dataclass(frozen=True)
class Prompt:
    """A prompt, the two policies on it and what they sample.

    Attributes:
        p, q: (K,) probabilities of the learner and of the peer.
        rewards: (K,) 0 or 1.
        own, peers: numbers G and M of completions.
    """

    p: np.ndarray
    q: np.ndarray
    rewards: np.ndarray
    own: int = 8
    peers: int = 8

    def counts(self) -> np.ndarray:
        """(G + 1, M + 1) probabilities of k own and j peer successes."""
        return np.outer(
            binomial(self.own, float(self.p @ self.rewards)), binomial(self.peers, float(self.q @ self.rewards))
        )


def binomial(trials: int, chance: float) -> np.ndarray:
    """(trials + 1,) probabilities of 0..trials successes."""
    ways = np.array([comb(trials, k) for k in range(trials + 1)], dtype=np.float64)
    k = np.arange(trials + 1)
    return np.asarray(ways * chance**k * (1.0 - chance) ** (trials - k))


def gate_probability(own_success: float, peer_success: float, own: int, peers: int) -> float:
    """Probability of no own and some peer success: (1 - J)^G (1 - (1 - J_peer)^M)."""
    return float((1 - own_success) ** own * (1 - (1 - peer_success) ** peers))


@cache
def advantage_tables(rule: Rule, own: int, peers: int) -> np.ndarray:
    """(4, G + 1, M + 1) advantages of an own success, own failure, peer's success, peer's failure, given (k, j).

    0 where there is no such row.
    """
    tables = np.zeros((4, own + 1, peers + 1))
    for k in range(own + 1):
        for j in range(peers + 1):
            rewards = [np.repeat([1.0, 0.0], [count, total - count]) for count, total in ((k, own), (j, peers))]
            for row, (advantages, count) in enumerate(zip(rule(*rewards), (k, j), strict=True)):
                tables[2 * row, k, j] = advantages[0] if count else 0.0
                tables[2 * row + 1, k, j] = advantages[-1] if count < len(advantages) else 0.0
    return tables


def gradient_moments(method: Method, prompt: Prompt) -> Moments:
    """Exact moments of the ascent direction that the method's rows for a prompt give, divided by their number.

    Given (k, j), with n rows of a kind of coefficient a, conditional mean u and conditional second moment m,
    E |g|^2 = |sum n a u|^2 + sum n a^2 (m - |u|^2), the sums over the kinds.
    """
    p, q, rewards, own, peers = prompt.p, prompt.q, prompt.rewards, prompt.own, prompt.peers
    k, j = np.indices((own + 1, peers + 1))
    numbers = np.stack([k, own - k, j, peers - j, (k == 0) & (j > 0)]).astype(np.float64)
    coefficients = np.concatenate([advantage_tables(method.rule, own, peers), np.zeros((1, own + 1, peers + 1))])
    coefficients /= own + (peers if method.peer_weights else 0)
    coefficients[4] = method.sgt_weight
    weights = method.peer_weights or (lambda p, q, sign: np.zeros_like(p))
    kinds = [
        _conditional(p, p * rewards, np.ones_like(p)),
        _conditional(p, p * (1 - rewards), np.ones_like(p)),
        _conditional(p, q * rewards, weights(p, q, 1.0)),
        _conditional(p, q * (1 - rewards), weights(p, q, -1.0)),
        _conditional(p, q * rewards, np.ones_like(p)),
    ]
    means = np.stack([kind.mean for kind in kinds])
    variances = np.array([kind.variance for kind in kinds])
    totals = np.einsum("ckj,cd->kjd", numbers * coefficients, means)
    spread = np.einsum("ckj,c->kj", numbers * coefficients**2, variances)
    chances = prompt.counts()
    return Moments(
        np.einsum("kj,kjd->d", chances, totals), float((chances * ((totals**2).sum(axis=-1) + spread)).sum())
    )


def _conditional(p: np.ndarray, mass: np.ndarray, weights: np.ndarray) -> Moments:
    """Moments of w(y) s(y), y drawn from `mass` (K,), which need not sum to 1; zero if it is empty."""
    total = mass.sum()
    return row_moments(p, mass / total, weights) if total > 0 else Moments(np.zeros_like(p), 0.0)


def sample_gradients(method: Method, prompt: Prompt, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, K) independent ascent directions: answers are drawn, and rows made of them as the algorithm does."""
    p, q, rewards = prompt.p, prompt.q, prompt.rewards
    scores = np.eye(len(p)) - p
    own = rng.choice(len(p), size=(draws, prompt.own), p=p)
    peers = rng.choice(len(q), size=(draws, prompt.peers), p=q)
    k, j = (rewards[answers].sum(axis=1).astype(int) for answers in (own, peers))
    tables = advantage_tables(method.rule, prompt.own, prompt.peers)[:, k, j][..., None]
    gradients = (np.where(rewards[own] == 1, tables[0], tables[1])[..., None] * scores[own]).sum(axis=1)
    if method.peer_weights:
        signed = np.where(rewards == 1, method.peer_weights(p, q, 1.0), method.peer_weights(p, q, -1.0))
        advantages = np.where(rewards[peers] == 1, tables[2], tables[3])
        gradients += ((advantages * signed[peers])[..., None] * scores[peers]).sum(axis=1)
    gradients /= prompt.own + (prompt.peers if method.peer_weights else 0)
    # The peer's successes are exchangeable, so the first has the law of a uniform draw among them.
    first = peers[np.arange(draws), (rewards[peers] == 1).argmax(axis=1)]
    gradients[(k == 0) & (j > 0)] += method.sgt_weight * scores[first][(k == 0) & (j > 0)]
    return np.asarray(gradients)


def rescue_product(p: np.ndarray, rewards: np.ndarray, transferred: np.ndarray) -> float:
    """<E grad log p(y*), grad J> for y* drawn from `transferred`, (K,) probabilities on the successes.

    = (1 - J)(E p(y*) - sum over successes of p^2) + J sum over failures of p^2.
    """
    success = float(p @ rewards)
    squares = p**2
    return float((1 - success) * (transferred @ p - squares @ rewards) + success * (squares @ (1 - rewards)))
