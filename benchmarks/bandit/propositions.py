"""The propositions on one example: exact values beside those of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.bandit.groups import (
    METHODS,
    Prompt,
    gate_probability,
    gradient_moments,
    rescue_product,
    sample_gradients,
)
from benchmarks.bandit.policy import chi_square, importance_weights, success_gradient
from benchmarks.bandit.rows import (
    baseline_variance,
    clipped_weights,
    minimal_variance_sampler,
    row_moments,
    sample_rows,
)
from mrl_env.seeding import derive_seed

LEARNER = np.array([0.10, 0.02, 0.40, 0.30, 0.10, 0.08])
PEER = np.array([0.05, 0.45, 0.10, 0.10, 0.25, 0.05])
REWARDS = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
EXAMPLE = Prompt(LEARNER, PEER, REWARDS)
"""Two right answers: one that both find at times, one that is the peer's."""

RESIDUALS = np.array([0.1, -0.1, -0.1, 0.1, 0.05, 0.0])
"""Errors of a trace, in nats, at most 0.1."""

MASKED = Prompt(np.array([0.0, 0.0, 0.5, 0.3, 0.1, 0.1]), PEER, REWARDS)
"""The learner cannot produce either right answer."""


@dataclass(frozen=True)
class Check:
    """A quantity, exactly and simulated.

    Attributes:
        proposition: its number in `docs/theory.md`.
        quantity: what it is.
        exact: its value.
        estimate: mean of the simulated values.
        error: the standard error of that mean.
    """

    proposition: str
    quantity: str
    exact: float
    estimate: float
    error: float

    @property
    def deviation(self) -> float:
        """Standard errors between the two; 0 where they agree to rounding, for what does not vary has no error."""
        difference = self.estimate - self.exact
        return 0.0 if abs(difference) < 1e-12 else difference / self.error


def generator(seed: int, *place: str) -> np.random.Generator:
    """The stream of a seed and a place."""
    return np.random.Generator(np.random.Philox(derive_seed(seed, "bandit", *place)))


def check(proposition: str, quantity: str, exact: float, values: np.ndarray) -> Check:
    """Compare an exact value with the mean of (draws,) independent simulated ones."""
    return Check(
        proposition, quantity, float(exact), float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    )


def row_checks(draws: int, seed: int) -> list[Check]:
    """Propositions 1 and 2: a peer's row with each denominator."""
    p, q, advantages = LEARNER, PEER, REWARDS - LEARNER @ REWARDS
    gradient, ratio = success_gradient(p, REWARDS), importance_weights(p, q)
    best = minimal_variance_sampler(p, advantages)
    answers = generator(seed, "ratios").choice(len(q), size=draws, p=q)
    checks = [check("1b", "E w^2 = 1 + chi^2", 1 + chi_square(p, q), ratio[answers] ** 2)]
    for proposition, name, sampler, weights in (
        ("1a", "trace", q, ratio),
        ("1c", "best sampler", best, importance_weights(p, best)),
        ("1c", "on policy", p, np.ones_like(p)),
        ("2a", "snapshot", q, np.ones_like(p)),
        ("2b", "trace with residuals", q, ratio * np.exp(-RESIDUALS)),
        ("2c", "trace, clipped", q, clipped_weights(ratio, advantages)),
    ):
        exact = row_moments(p, sampler, weights * advantages)
        rows = sample_rows(p, sampler, weights * advantages, draws, generator(seed, "rows", name))
        checks.append(check(proposition, f"{name}: <E g, grad J>", exact.mean @ gradient, rows @ gradient))
        checks.append(check(proposition, f"{name}: E |g|^2", exact.second, (rows**2).sum(axis=1)))
    return checks


def group_checks(draws: int, seed: int) -> list[Check]:
    """Propositions 3 and 4: groups of rows, and the gate."""
    gradient = success_gradient(LEARNER, REWARDS)
    checks = []
    for proposition, name in (
        ("1d", "prp_t_centred"),
        ("3b", "grpo_centred"),
        ("3b", "xgrpo_centred"),
        ("3b", "grpo"),
        ("3b", "xgrpo"),
        ("3b", "prp_t"),
        ("2a", "prp_s"),
        ("4", "sgt"),
    ):
        exact = gradient_moments(METHODS[name], EXAMPLE)
        found = sample_gradients(METHODS[name], EXAMPLE, draws, generator(seed, "groups", name))
        scale = gradient @ gradient
        checks.append(
            check(
                proposition,
                f"{name}: <E g, grad J> / |grad J|^2",
                exact.mean @ gradient / scale,
                found @ gradient / scale,
            )
        )
        checks.append(check(proposition, f"{name}: E |g|^2", exact.second, (found**2).sum(axis=1)))
    hidden = sample_gradients(METHODS["xgrpo"], MASKED, draws, generator(seed, "masked"))
    checks.append(check("3a", "xgrpo, p = 0: E |g(y)|", 0.0, np.abs(hidden[:, 1])))
    checks.append(shifted_baseline(draws, seed))
    checks.extend(gate_checks(draws, seed))
    return checks


def shifted_baseline(draws: int, seed: int) -> Check:
    """Proposition 3c: the variance of an own row under the peer's success probability as baseline."""
    mean = float(PEER @ REWARDS)
    rows = sample_rows(LEARNER, LEARNER, REWARDS - mean, draws, generator(seed, "baseline"))
    gradient = success_gradient(LEARNER, REWARDS)
    return check(
        "3c",
        "baseline J_peer: variance",
        baseline_variance(LEARNER, REWARDS, mean),
        ((rows - gradient) ** 2).sum(axis=1),
    )


def gate_checks(draws: int, seed: int) -> list[Check]:
    """Proposition 4: how often the gate opens, and where the transferred success leads."""
    own, peer = float(LEARNER @ REWARDS), float(PEER @ REWARDS)
    rng = generator(seed, "gate")
    opened = (rng.random((draws, EXAMPLE.own)) >= own).all(axis=1) & (rng.random((draws, EXAMPLE.peers)) < peer).any(
        axis=1
    )
    transferred = PEER * REWARDS / peer
    scores = sample_rows(LEARNER, transferred, np.ones_like(PEER), draws, generator(seed, "transfer"))
    return [
        check("4a", "gate probability", gate_probability(own, peer, EXAMPLE.own, EXAMPLE.peers), opened.astype(float)),
        check(
            "4b",
            "rescue: <E s(y*), grad J>",
            rescue_product(LEARNER, REWARDS, transferred),
            scores @ success_gradient(LEARNER, REWARDS),
        ),
    ]


def all_checks(draws: int, seed: int) -> list[Check]:
    """Every check, ordered by proposition."""
    return sorted(row_checks(draws, seed) + group_checks(draws, seed), key=lambda found: found.proposition)
