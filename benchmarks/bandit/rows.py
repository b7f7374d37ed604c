"""One row: an answer drawn from q, whose score is weighted by a number that depends on the answer alone.

This is the part of an estimator in which PRP's denominators differ, freed of the group: c(y) = w(y) A(y) for a weight w and an
advantage A with a baseline that the row does not influence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.bandit.policy import score_norms


@dataclass(frozen=True)
class Moments:
    """What is known of a random gradient g.

    Attributes:
        mean: (K,) E g.
        second: E |g|^2.
    """

    mean: np.ndarray
    second: float

    @property
    def variance(self) -> float:
        """Trace of the covariance, E |g|^2 - |E g|^2."""
        return float(self.second - self.mean @ self.mean)


def row_moments(p: np.ndarray, q: np.ndarray, coefficients: np.ndarray) -> Moments:
    """Moments of c(y) s(y) with y drawn from q and s the score of the policy p.

    Args:
        p: (K,) the policy whose score it is.
        q: (K,) the policy that samples.
        coefficients: (K,) c.

    Example: an on-policy row with the reward as coefficient has the gradient of the success probability as mean.
        >>> row_moments(np.array([0.5, 0.5]), np.array([0.5, 0.5]), np.array([1.0, 0.0])).mean
        array([ 0.25, -0.25])
    """
    drawn = q * coefficients
    return Moments(drawn - drawn.sum() * p, float(drawn * coefficients @ score_norms(p)))


def sample_rows(
    p: np.ndarray, q: np.ndarray, coefficients: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """(draws, K) independent values of c(y) s(y), y drawn from q."""
    answers = rng.choice(len(q), size=draws, p=q)
    return np.asarray(coefficients[answers, None] * (np.eye(len(p))[answers] - p))


def clipped_weights(weights: np.ndarray, advantages: np.ndarray, epsilon: float = 0.2) -> np.ndarray:
    """The weights that the clipped surrogate leaves in the gradient.

    min(w A, clip(w, 1 - epsilon, 1 + epsilon) A) is constant, its gradient 0, where A > 0 and w > 1 + epsilon, and where
    A < 0 and w < 1 - epsilon; elsewhere its gradient is w A s.

    Args:
        weights, advantages: (K,), or a scalar advantage for all answers.
    """
    dead = ((advantages > 0) & (weights > 1 + epsilon)) | ((advantages < 0) & (weights < 1 - epsilon))
    return np.where(dead, 0.0, weights)


def minimal_variance_sampler(p: np.ndarray, advantages: np.ndarray) -> np.ndarray:
    """(K,) the q, proportional to p |A| |s|, under which the importance-weighted row has its least second moment."""
    density = p * np.abs(advantages) * np.sqrt(score_norms(p))
    return np.asarray(density / density.sum())


def best_baseline(p: np.ndarray, rewards: np.ndarray) -> float:
    """The b that minimises the variance of (r - b) s on policy: E[r |s|^2] / E |s|^2."""
    norms = score_norms(p)
    return float((p * norms) @ rewards / (p @ norms))


def baseline_variance(p: np.ndarray, rewards: np.ndarray, mean: float, variance: float = 0.0) -> float:
    """Variance (trace) of (r - B) s on policy, for an independent random baseline B: V(b*) + ((E B - b*)^2 + Var B) E |s|^2.

    Args:
        p, rewards: (K,).
        mean, variance: of B.
    """
    best = best_baseline(p, rewards)
    least = row_moments(p, p, rewards - best).variance
    return float(least + ((mean - best) ** 2 + variance) * (p @ score_norms(p)))
