"""Training: two policies on two prompts, each with an answer that only the other one finds.

Both policies climb the exact expected gradient of their method (no sampling noise), each the other's peer at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.bandit.groups import METHODS, Method, Prompt, gradient_moments
from benchmarks.bandit.policy import softmax
from benchmarks.pictures import empty_figure

ANSWERS = 6
"""Answers of each prompt; the first is right."""

SHOWN = {
    "grpo": "GRPO",
    "xgrpo": "XGRPO",
    "prp_s": "PRP, snapshot",
    "prp_t": "PRP, trace",
    "prp_t_clipped": "PRP, trace, clipped",
    "sgt": "SGT",
}


def complementary_logits(rare: float, common: float) -> np.ndarray:
    """(2, 2, K) logits [policy, prompt, answer]: policy n finds the right answer of prompt n rarely, the other one often.

    Their wrong answers differ too: half of what is left falls on answer 1 for policy 0, on answer 2 for policy 1.

    Args:
        rare, common: success probabilities, in (0, 1).

    Raises:
        ValueError: if one lies outside.
    """
    for name, chance in (("rare", rare), ("common", common)):
        if not 0 < chance < 1:
            raise ValueError(f"{name}={chance} is no probability strictly between 0 and 1; give one")
    logits = np.empty((2, 2, ANSWERS))
    for policy in range(2):
        for prompt in range(2):
            success = rare if policy == prompt else common
            chances = np.full(ANSWERS, (1 - success) / 2 / (ANSWERS - 2))
            chances[0], chances[1 + policy] = success, (1 - success) / 2
            logits[policy, prompt] = np.log(chances)
    return logits


def train(
    method: Method, logits: np.ndarray, steps: int, learning_rate: float, *, own: int = 8, peers: int = 8
) -> np.ndarray:
    """Success probabilities while both policies train.

    Args:
        method: of both policies.
        logits: (2, P, K) at the start; answer 0 of each prompt is right.
        steps: updates of all logits at once.
        learning_rate: of a prompt's logits.
        own, peers: completions per prompt.

    Returns:
        (steps + 1, 2, P).
    """
    rewards = np.eye(logits.shape[-1])[0]
    success = []
    for _ in range(steps):
        chances = softmax(logits)
        success.append(chances[..., 0])
        gradients = [
            [gradient_moments(method, Prompt(p, q, rewards, own, peers)).mean for p, q in zip(*pair, strict=True)]
            for pair in ((chances[0], chances[1]), (chances[1], chances[0]))
        ]
        logits = logits + learning_rate * np.array(gradients)
    return np.stack([*success, softmax(logits)[..., 0]])


def train_all(rare: float, common: float, steps: int, learning_rate: float) -> dict[str, np.ndarray]:
    """For each method of `SHOWN`, (steps + 1, 2, 2) success probabilities [step, policy, prompt]."""
    start = complementary_logits(rare, common)
    return {name: train(METHODS[name], start, steps, learning_rate) for name in SHOWN}


def first_above(success: np.ndarray, level: float) -> int | None:
    """First step at which a (steps + 1,) curve reaches a level; None if it never does."""
    reached = np.flatnonzero(success >= level)
    return int(reached[0]) if reached.size else None


def plot(curves: Mapping[str, np.ndarray], folder: Path) -> list[Path]:
    """Draw policy 0 on both prompts to `trajectories.png` and `.svg`, and return their paths.

    Raises:
        ValueError: if Matplotlib is missing.
    """
    figure = empty_figure(9.0, 3.6)
    titles = ("only the peer finds the answer (log scale)", "the learner finds the answer itself")
    for prompt, (axes, title) in enumerate(zip(figure.subplots(1, 2), titles, strict=True)):
        for name, success in curves.items():
            style = "--" if name == "prp_t_clipped" else "-"
            axes.plot(success[:, 0, prompt], style, label=SHOWN[name])
        axes.set(title=title, xlabel="step", ylabel="success probability", yscale="log" if prompt == 0 else "linear")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    paths = [folder / f"trajectories.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths
