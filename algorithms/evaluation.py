"""Evaluation on held-out problems: greedy and sampled, by problem, so that any table can be made of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Protocol

import numpy as np

from algorithms.policy import PromptRenderer
from algorithms.rollouts.sampling import SamplingConfig
from mrl_env.seeding import derive_seed
from mrl_env.types import Completion, Problem
from verifiers import Verdict, Verifier, verify_batch
from verifiers.printing import printable

MOST_SUBJECTS = 64
"""Subjects that have a metric of their own."""

LONGEST_SUBJECT = 60
"""Characters of a subject in a metric's name."""


class Answerer(Protocol):
    """What is asked for completions: a `Policy`, or anything that answers like one; see its `generate`."""

    renderer: PromptRenderer

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int = ...,
        progress: Callable[[int], None] | None = ...,
    ) -> list[list[Completion]]:
        """P lists of G completions of P prompts."""
        ...


@dataclass(frozen=True)
class Answers:
    """What one policy said to one problem, and how it was judged.

    Attributes:
        problem: the problem.
        completions: the greedy one, then k sampled ones.
        verdicts: one for each.
    """

    problem: Problem
    completions: tuple[Completion, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class ProblemResult:
    """How one policy did on one problem.

    Attributes:
        problem: the problem.
        greedy: score of the greedy completion; 0 where no judgement exists.
        samples: k scores of sampled completions.
        majority: score of the sampled completion whose extracted answer is the most frequent one (the first of them).
    """

    problem: Problem
    greedy: float
    samples: tuple[float, ...]
    majority: float


def evaluate(
    policy: Answerer,
    problems: Sequence[Problem],
    sampling: SamplingConfig,
    samples: int,
    seed: int,
    verifier: str | Verifier | None = None,
    batch_size: int = 512,
    progress: Callable[[int], None] | None = None,
) -> list[ProblemResult]:
    """The scores of `answer`, with its arguments; the completions are let go.

    Returns:
        M results.
    """
    results = []
    for answers in answer(policy, problems, sampling, samples, seed, verifier, batch_size, progress):
        scores = [verdict.score or 0.0 for verdict in answers.verdicts]
        majority = majority_score(answers.verdicts[1:])
        results.append(ProblemResult(answers.problem, scores[0], tuple(scores[1:]), majority))
    return results


def answer(
    policy: Answerer,
    problems: Sequence[Problem],
    sampling: SamplingConfig,
    samples: int,
    seed: int,
    verifier: str | Verifier | None = None,
    batch_size: int = 512,
    progress: Callable[[int], None] | None = None,
) -> list[Answers]:
    """Answer each problem once greedily and `samples` times by sampling, and verify.

    The random draws depend on the seed and the problem alone, so all evaluations of all policies face the same luck.

    Args:
        policy: who answers.
        problems: M problems.
        sampling: of the sampled completions.
        samples: k; may be 0.
        seed: of the draws.
        verifier: judges all problems; by default each names its own.
        batch_size: rows sampled at a time.
        progress: called with the number of completions just finished.

    Returns:
        M answers.
    """
    prompts = [policy.renderer.token_ids(problem.messages) for problem in problems]
    greedy = policy.generate(prompts, 1, replace(sampling, temperature=0.0), [0] * len(problems), batch_size, progress)
    drawn: list[list[Completion]] = [[] for _ in problems]
    if samples:
        seeds = [derive_seed(seed, "eval", problem.id, i) for problem in problems for i in range(samples)]
        drawn = policy.generate(prompts, samples, sampling, seeds, batch_size, progress)
    groups = [(*first, *more) for first, more in zip(greedy, drawn, strict=True)]
    judged = _verify(problems, groups, verifier)
    return [
        Answers(problem, completions, tuple(verdicts))
        for problem, completions, verdicts in zip(problems, groups, judged, strict=True)
    ]


def _verify(
    problems: Sequence[Problem], groups: Sequence[Sequence[Completion]], verifier: str | Verifier | None
) -> list[list[Verdict]]:
    """Verdicts of each problem's completions, judged in one batch per verifier."""
    # By name, since a verifier of one's own need not be hashable; all under one where it judges them all.
    by_verifier: defaultdict[str, list[int]] = defaultdict(list)
    for p, problem in enumerate(problems):
        by_verifier[problem.verifier if verifier is None else ""].append(p)
    verdicts: list[list[Verdict]] = [[] for _ in problems]
    for name, indices in by_verifier.items():
        flat = [(p, completion) for p in indices for completion in groups[p]]
        judged = verify_batch(
            name if verifier is None else verifier,
            [completion.text for _, completion in flat],
            [problems[p].answer for p, _ in flat],
            [problems[p].evidence for p, _ in flat],
        )
        for (p, _), verdict in zip(flat, judged, strict=True):
            verdicts[p].append(verdict)
    return verdicts


def majority_score(verdicts: Sequence[Verdict]) -> float:
    """Score of the most frequent extracted answer (maj@k); of several, the one that came first; 0 without any answer."""
    answers = Counter(verdict.extracted for verdict in verdicts if verdict.extracted is not None)
    if not answers:
        return 0.0
    winner = answers.most_common(1)[0][0]
    return next(verdict.score or 0.0 for verdict in verdicts if verdict.extracted == winner)


def pass_at_k(successes: int, samples: int, k: int) -> float:
    """Unbiased chance that at least one of k samples succeeds (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Args:
        successes: c of the n samples.
        samples: n, at least k.
        k: how many are drawn.
    """
    return 1.0 - comb(samples - successes, k) / comb(samples, k)


def subject_name(subject: object) -> str:
    """A subject as a part of a metric's name: printable, in one level, and of at most 60 characters."""
    return printable(str(subject)[:LONGEST_SUBJECT]).replace("/", "_")[:LONGEST_SUBJECT]


def summarize(results: Sequence[ProblemResult]) -> dict[str, float]:
    """Means over problems: `reward` (greedy, reward@1), `mean@k`, `pass@k`, `maj@k`, and by subject.

    `subject/<name>` is the mean over samples, or greedy without samples. Data decide what subjects there are: beyond the
    first 64 by name, the others are one, `subject/others`.
    """
    summary = {"reward": float(np.mean([result.greedy for result in results]))}
    k = len(results[0].samples)
    if k:
        summary[f"mean@{k}"] = float(np.mean([np.mean(result.samples) for result in results]))
        solved = [sum(score >= 1 for score in result.samples) for result in results]
        summary[f"pass@{k}"] = float(np.mean([pass_at_k(successes, k, k) for successes in solved]))
        summary[f"maj@{k}"] = float(np.mean([result.majority for result in results]))
    by_subject: defaultdict[str, list[float]] = defaultdict(list)
    for result in results:
        if "subject" in result.problem.metadata:
            score = float(np.mean(result.samples)) if k else result.greedy
            by_subject[subject_name(result.problem.metadata["subject"])].append(score)
    for name in sorted(by_subject)[MOST_SUBJECTS:]:
        scores = by_subject.pop(name)
        by_subject["others"] += scores
    return {**summary, **{f"subject/{name}": float(np.mean(by_subject[name])) for name in sorted(by_subject)}}
