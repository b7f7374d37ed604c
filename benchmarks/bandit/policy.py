"""A softmax policy over the K answers of a prompt, the success probability and its gradient in the logits.

The score of an answer is s(y) = grad log p(y) = e_y - p, a vector of length K.
"""

from __future__ import annotations

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """(..., K) probabilities from logits; a logit of -inf gives probability 0 (hard support)."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def success_gradient(p: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """(K,) gradient of the success probability J = p . rewards in the logits: p (rewards - J)."""
    return np.asarray(p * (rewards - p @ rewards))


def score_norms(p: np.ndarray) -> np.ndarray:
    """(K,) squared norm of each answer's score, |s(y)|^2 = 1 - 2 p(y) + sum p^2; at most 2.

    Computed as (sum over the others)^2 + the sum of their squares, which is the same: near p(y) = 1 nothing is left of the
    digits of a difference.
    """
    others = np.where(np.eye(len(p), dtype=bool), 0.0, p)
    return np.asarray(others.sum(axis=1) ** 2 + (others**2).sum(axis=1))


def importance_weights(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(K,) importance weights p / q of answers drawn from q; 0 where q is 0, for such an answer is never drawn."""
    ratio: np.ndarray = np.divide(p, q, out=np.zeros_like(p), where=q > 0)
    return ratio


def chi_square(p: np.ndarray, q: np.ndarray) -> float:
    """chi^2(p || q) = sum p^2 / q - 1; infinite if q misses an answer that p has."""
    if np.any((q == 0) & (p > 0)):
        return float("inf")
    return float(p @ importance_weights(p, q) - 1.0)
