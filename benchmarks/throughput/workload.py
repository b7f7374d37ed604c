"""What every contender does: the same prompts, the same shapes, the same rewards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrl_env.problems import load_problems
from mrl_env.seeding import derive_rng
from verifiers import Verdict

LIVE, DEAD = "live", "dead"


@dataclass(frozen=True)
class Workload:
    """One kind of step.

    Attributes:
        model: hub id, folder, `.gguf` file or embedded model of each policy.
        algorithm: which of ours; TRL has GRPO only.
        problems: prompts of a step.
        generations: completions per prompt and policy.
        tokens: of a completion, at most.
        live: every so many-th prompt can be rewarded; on the others all rewards are 0, so that they carry no gradient.
        success: probability of a reward on a live prompt.
        dtype: of the weights.
        planned: whether rewards are planned instead of drawn, so that a quarter of the gates opens: each policy fails on
            every fourth prompt, policies on different ones, and succeeds with every other completion elsewhere. All
            completions count as finished, and a peer's text may be twice as long in the learner's tokens: few end within
            64, and only those can rescue.
        offload: whether the optimizer's state is kept out of the way.
    """

    model: tuple[str, ...]
    algorithm: str = "grpo"
    problems: int = 8
    generations: int = 8
    tokens: int = 64
    live: int = 1
    success: float = 0.5
    dtype: str = "bf16"
    planned: bool = False
    offload: bool = False


class Chance:
    """A verifier without judgement: on live problems a completion is right with a fixed probability, by its hash.

    Args:
        success: the probability.
    """

    def __init__(self, success: float = 0.5) -> None:
        self.success = success

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Right or wrong, the same for the same completion."""
        lucky = answer == LIVE and derive_rng("chance", completion).random() < self.success
        return Verdict(float(lucky), answer, "right" if lucky else "wrong")


RIGHT = "✓"
"""Stands behind a completion that is planned to be right."""


class Planned:
    """A verifier that finds a completion right if the plan says so, in the last words of its text."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Right or wrong."""
        right = completion.endswith(RIGHT)
        return Verdict(float(right), answer, "right" if right else "wrong")


def planned_success(policy: int, problem: int, generation: int) -> bool:
    """Whether a completion is planned to be right; see `Workload.planned`.

    Args:
        policy, problem, generation: 0, 1, ...
    """
    return problem % 4 != policy % 4 and generation % 2 == 0


def questions(number: int) -> list[str]:
    """Generated problems of about thirty tokens, which make prompts of about sixty with a chat template."""
    source = load_problems("math", split="train", seed=0)
    found: list[str] = []
    for i in range(len(source)):
        question = source[i].question
        if 100 <= len(question) <= 160:
            found.append(question)
        if len(found) == number:
            return found
    raise ValueError(f"only {len(found)} of {number} problems are long enough; ask for fewer")


def write_problems(workload: Workload, path: Path) -> list[dict[str, str]]:
    """Write the workload's problems as a file; also returns them."""
    rows = [
        {"problem": question, "answer": LIVE if i % workload.live == 0 else DEAD}
        for i, question in enumerate(questions(workload.problems))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows
