"""Evaluation: estimators against enumeration, majority by hand, and who is judged by what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from algorithms.evaluation import ProblemResult, evaluate, majority_score, pass_at_k, summarize
from algorithms.policy import Policy
from algorithms.rollouts.sampling import SamplingConfig
from mrl_env.types import Completion, Message, Problem, user_message
from verifiers import Verdict


def judged(*answers: tuple[str | None, float | None]) -> list[Verdict]:
    return [Verdict(score, extracted, "right" if score == 1 else "wrong") for extracted, score in answers]


@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(samples: int) -> None:
    for successes, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        subsets = list(itertools.combinations([True] * successes + [False] * (samples - successes), k))
        assert pass_at_k(successes, samples, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@pytest.mark.parametrize(
    ("verdicts", "score"),
    [
        (judged(("2", 1.0), ("3", 0.0), ("2", 1.0)), 1.0),
        (judged(("2", 1.0), ("3", 0.0), ("3", 0.0)), 0.0),
        # A tie goes to the answer that came first.
        (judged(("3", 0.0), ("2", 1.0), ("2", 1.0), ("3", 0.0)), 0.0),
        (judged(("2", 1.0), ("3", 0.0)), 1.0),
        # Completions without an answer do not vote, however many they are.
        (judged((None, 0.0), (None, 0.0), (None, 0.0), ("2", 1.0)), 1.0),
        (judged((None, 0.0), (None, 0.0)), 0.0),
        # A winner that nobody could judge counts as 0.
        (judged(("2", None), ("2", None), ("3", 1.0)), 0.0),
        ([], 0.0),
    ],
)
def test_majority_by_hand(verdicts: list[Verdict], score: float) -> None:
    assert majority_score(verdicts) == score


def problem(name: str, subject: str | None = None, verifier: str = "math") -> Problem:
    metadata = {} if subject is None else {"subject": subject}
    return Problem(name, user_message(name), "2", verifier=verifier, metadata=metadata)


def test_summary_by_hand() -> None:
    results = [
        ProblemResult(problem("a", "algebra"), 1.0, (1.0, 0.0, 0.0, 0.0), 0.0),
        ProblemResult(problem("b", "algebra"), 0.0, (0.0, 0.5, 0.0, 0.0), 0.0),
        ProblemResult(problem("c", "geometry"), 0.0, (1.0, 1.0, 1.0, 0.5), 1.0),
    ]
    assert summarize(results) == pytest.approx(
        {
            "reward": 1 / 3,
            "mean@4": (0.25 + 0.125 + 0.875) / 3,
            # A half is no success.
            "pass@4": 2 / 3,
            "maj@4": 1 / 3,
            "subject/algebra": (0.25 + 0.125) / 2,
            "subject/geometry": 0.875,
        }
    )


def test_summary_of_greedy_answers_alone() -> None:
    results = [ProblemResult(problem("a", "algebra"), 1.0, (), 0.0), ProblemResult(problem("b"), 0.5, (), 0.0)]
    assert summarize(results) == {"reward": 0.75, "subject/algebra": 1.0}


class Renderer:
    """Prompts are the question's characters."""

    def token_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(ord(character) for character in messages[-1]["content"])


class Scripted:
    """A policy that says what it was told: greedily the first text, by sampling the others."""

    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.texts = texts
        self.renderer = Renderer()
        self.asked: list[tuple[float, int, list[int]]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int,
        progress: Callable[[int], None] | None,
    ) -> list[list[Completion]]:
        self.asked.append((sampling.temperature, generations, list(seeds)))
        first = 0 if sampling.temperature == 0 else 1
        names = ["".join(map(chr, prompt)) for prompt in prompts]
        return [[Completion(text) for text in self.texts[name][first : first + generations]] for name in names]


@dataclass
class Equals:
    """Right is what equals the answer; `?` cannot be judged. As a plain dataclass it is not hashable."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        if completion == "?":
            raise RuntimeError("no idea")
        return Verdict(float(completion == answer), completion, "right" if completion == answer else "wrong")


def scripted(texts: dict[str, list[str]]) -> Policy:
    return cast(Policy, Scripted(texts))


def test_evaluation_judges_greedy_and_samples_apart() -> None:
    # With the vote of the greedy 3, it would be a tie that 3 wins.
    policy = scripted({"a": ["3", "3", "2", "2"], "b": ["2", "?", "3", "?"]})
    results = evaluate(policy, [problem("a"), problem("b")], SamplingConfig(), 3, seed=0, verifier=Equals())
    assert [(r.greedy, r.samples, r.majority) for r in results] == [(0.0, (0.0, 1.0, 1.0), 1.0), (1.0, (0.0,) * 3, 0.0)]
    assert [r.problem.id for r in results] == ["a", "b"]


def test_each_problem_is_judged_by_its_own_verifier() -> None:
    def boxed(text: str) -> str:
        return rf"\boxed{{{text}}}"

    problems = [
        problem("a"),
        Problem("b", user_message("b"), "B", verifier="choice", metadata={"options": ["one", "two", "three"]}),
        problem("c"),
    ]
    policy = scripted({"a": [boxed("4/2")], "b": [boxed("B")], "c": [boxed("3")]})
    results = evaluate(policy, problems, SamplingConfig(), 0, seed=0)
    assert [(r.greedy, r.samples) for r in results] == [(1.0, ()), (1.0, ()), (0.0, ())]


def test_luck_depends_on_seed_and_problem_alone() -> None:
    texts = {name: ["2"] * 3 for name in "abc"}

    def seeds(names: str, seed: int) -> dict[str, list[int]]:
        policy = Scripted(texts)
        evaluate(cast(Policy, policy), [problem(n) for n in names], SamplingConfig(), 2, seed, verifier=Equals())
        assert [(temperature, generations) for temperature, generations, _ in policy.asked] == [(0.0, 1), (1.0, 2)]
        drawn = policy.asked[1][2]
        return {name: drawn[2 * i : 2 * i + 2] for i, name in enumerate(names)}

    first = seeds("abc", 0)
    assert seeds("ca", 0) == {"c": first["c"], "a": first["a"]}
    assert len({seed for pair in first.values() for seed in pair}) == 6
    assert not set(first["a"]) & set(seeds("a", 1)["a"])
