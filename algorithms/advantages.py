"""Advantages from rewards: what a group, a joint group, or a mixture of a group and the pool says of each completion."""

from __future__ import annotations

import numpy as np

from mrl_env.exchange import group_advantages, pool_statistics, standardise

__all__ = ["group_advantages", "joint_advantages", "mixed_advantages"]


def joint_advantages(own: np.ndarray, peers: np.ndarray, *, scale: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Advantages over the union of own and peer completions (PRP).

    Args:
        own: (G,) rewards, NaN where no judgement exists.
        peers: (M,) rewards of the peers' completions of the same problem.
        scale: divide by the standard deviation.

    Returns:
        (G,) and (M,) float64. Without peers the first is `group_advantages(own)`.

    Example:
        >>> joint_advantages(np.array([0.0, 0.0]), np.array([1.0, 1.0]), scale=False)
        (array([-0.5, -0.5]), array([0.5, 0.5]))
    """
    joint = group_advantages(np.concatenate([own, peers]), scale=scale)
    return joint[: len(own)], joint[len(own) :]


def mixed_advantages(own: np.ndarray, pool: np.ndarray, mix: float, *, scale: bool = True) -> np.ndarray:
    """Own advantages under statistics mixed from the own group and the pool (XGRPO).

    A_i = (r_i - mu) / (sigma + 1e-4) with mu = (1 - mix) mu_own + mix mu_pool, and sigma likewise.

    Args:
        own: (G,) rewards, NaN where no judgement exists.
        pool: (K,) rewards of all policies on the problem, the own ones included.
        mix: 0 is the own group alone (GRPO), 1 the pool alone.
        scale: divide by the standard deviation.

    Returns:
        (G,) float64.

    Example: no success of one's own, half of the pool succeeds.
        >>> mixed_advantages(np.array([0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0]), mix=1.0, scale=False)
        array([-0.5, -0.5])
    """
    own_mean, own_std = pool_statistics(own)
    pool_mean, pool_std = pool_statistics(pool)
    # Written as a step from the own value, so that mix = 0, and a pool of oneself, give exactly the own value.
    mean = own_mean + mix * (pool_mean - own_mean)
    std = own_std + mix * (pool_std - own_std)
    return standardise(own, mean, std if scale else None)
