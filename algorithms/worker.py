"""A worker: one policy with its model, learner and algorithm.

What goes in and comes out is plain data, and what comes out depends on the weights and on what went in alone. So a backend may
keep a worker in this process or in another one, on this machine or elsewhere, and may ask it again after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import mrl_env
from algorithms.algorithm import Algorithm
from algorithms.config import TrainingConfig
from algorithms.evaluation import evaluate, summarize
from algorithms.metrics import completion_metrics, exchange_metrics, staleness_metrics
from algorithms.policy import Policy, load_policy
from algorithms.ranks import ALONE, Ranks
from algorithms.rollouts.engine import Engine
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.samples import Group, Sample
from algorithms.setup import make_learner
from mrl_env.seeding import derive_seed
from mrl_env.types import Completion, Experience, Message, Problem
from verifiers import Verdict


@dataclass(frozen=True)
class Rollouts:
    """What a policy answered in one step.

    Attributes:
        prompts: P prompts, as rendered by its template and tokenizer.
        completions: P lists of G completions.
        seconds: that it took.
    """

    prompts: Sequence[tuple[int, ...]]
    completions: Sequence[Sequence[Completion]]
    seconds: float


@dataclass(frozen=True)
class Lesson:
    """What a policy learns from: its own answers to one step's problems, and what the exchange shows of its peers'.

    Attributes:
        problems: P problems.
        rollouts: its answers.
        verdicts: P lists of G verdicts.
        peers: P lists of the peers' records, in any number.
        delayed: the lesson of `exchange_staleness` steps ago; what is learnt from it are the peers' records.
    """

    problems: Sequence[Problem]
    rollouts: Rollouts
    verdicts: Sequence[Sequence[Verdict]]
    peers: Sequence[Sequence[Experience]]
    delayed: Lesson | None = None


class SharedAnswers:
    """A policy whose processes share the prompts, unless it has an engine for all of them; it answers like the policy alone.

    Args:
        policy: as this process has it.
        ranks: the processes.
    """

    def __init__(self, policy: Policy, ranks: Ranks) -> None:
        self.renderer = policy.renderer
        self._policy = policy
        self._ranks = ranks

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int = 512,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """P lists of G completions of P prompts; see `Policy.generate`."""
        engine = self._policy.engine
        size = 1 if engine is not None and engine.answers_all else self._ranks.size
        mine = range(self._ranks.rank, len(prompts) if self._ranks.rank < size else 0, size)
        own = self._ranks.together(
            lambda: (
                self._policy.generate(
                    [prompts[p] for p in mine],
                    generations,
                    sampling,
                    [seed for p in mine for seed in seeds[p * generations : (p + 1) * generations]],
                    batch_size,
                    progress,
                )
                if mine
                else []
            )
        )
        shares = self._ranks.gather(own)
        if progress is not None and size > 1:
            progress((len(prompts) - len(mine)) * generations)
        return [shares[p % size][p // size] for p in range(len(prompts))]


class Worker:
    """One policy of a run.

    Args:
        config: the run's.
        name: of the policy.
        algorithm: makes its rows.
        device: where it runs.
        total_steps: of the run, for the learning rate's schedule.
        output_dir: the run's folder.
        ranks: the processes that have this worker, all of which must be asked the same.
        engine: samples instead of the policy's model; by default one is made, if the configuration asks for it.

    Raises:
        ValueError: if model, tokenizer, template or optimizer cannot be loaded or do not fit together.

    Attributes:
        policy: the model and how it speaks.
        learner: trains the policy's model.
    """

    def __init__(
        self,
        config: TrainingConfig,
        name: str,
        algorithm: Algorithm,
        device: str,
        total_steps: int,
        output_dir: Path,
        ranks: Ranks = ALONE,
        engine: Engine | None = None,
    ) -> None:
        self.config = config
        self.name = name
        self.algorithm = algorithm
        self.policy = load_policy(next(p for p in config.policies() if p.name == name), device, engine)
        self.learner = make_learner(config, self.policy, total_steps, output_dir, ranks)
        self._ranks = ranks
        self._answerer = SharedAnswers(self.policy, ranks)

    def rollout(self, step: int, prompts: Sequence[Sequence[Message]]) -> Rollouts:
        """Answer one step's problems.

        Args:
            step: 1, 2, ...; decides the random draws.
            prompts: P problems, each as chat messages.

        Raises:
            ValueError: if a prompt does not fit the model's context.
            NonFiniteError: if the weights are broken.
        """
        started = time.perf_counter()
        rendered = [self.policy.renderer.token_ids(messages) for messages in prompts]
        generations = self.config.num_generations
        seeds = [
            derive_seed(self.config.seed, "rollout", self.name, step, p, g)
            for p in range(len(rendered))
            for g in range(generations)
        ]
        completions = self._answerer.generate(
            rendered, generations, self.config.sampling(), seeds, self.config.generation_batch_size
        )
        return Rollouts(rendered, completions, time.perf_counter() - started)

    def learn(self, step: int, lesson: Lesson) -> dict[str, float]:
        """Make the algorithm's rows, and learn from them.

        Args:
            step: 1, 2, ...; decides the random draws.
            lesson: of this step.

        Returns:
            Metrics of completions, exchange and update.

        Raises:
            NonFiniteError: if loss or gradient is not finite for too long.
        """
        started = time.perf_counter()
        groups = self._groups(step, lesson)
        retokenize = mrl_env.Retokenizer(self.policy.text, self.config.max_completion_length)
        rows = [self.algorithm.rows(group, seen, retokenize) for group, seen in zip(groups, lesson.peers, strict=True)]
        if lesson.delayed is not None:
            late = self._peer_rows(step - self.config.exchange_staleness, lesson.delayed, retokenize)
            rows = [[*own, *peers] for own, peers in zip(rows, late, strict=True)]
        stale = {} if lesson.delayed is None else staleness_metrics(self.learner.version, lesson.delayed.peers)
        exchanged = exchange_metrics(self.name, rows, retokenize)
        made = time.perf_counter()
        # Models may draw (dropout); what they draw depends on the place, not on the history.
        places = (step,) if self._ranks.first else (step, self._ranks.rank)
        torch.manual_seed(derive_seed(self.config.seed, "update", self.name, *places))
        updated = self.learner.update(rows)
        self.policy.version = self.learner.version
        return {
            **completion_metrics(groups),
            **exchanged,
            **stale,
            **updated,
            "time/generate": lesson.rollouts.seconds,
            "time/rows": made - started,
            "time/update": time.perf_counter() - made,
        }

    def evaluate(self, problems: Sequence[Problem], progress: Callable[[int], None] | None = None) -> dict[str, float]:
        """Answer held-out problems.

        Args:
            problems: M problems.
            progress: called with the number of completions that were just finished.

        Returns:
            A summary; see `evaluation.summarize`.
        """
        results = evaluate(
            self._answerer,
            problems,
            self.config.sampling(),
            self.config.eval_samples,
            self.config.seed,
            self.config.make_verifier(),
            self.config.generation_batch_size,
            progress,
        )
        return summarize(results)

    def save(self, folder: Path) -> None:
        """Write `folder/NAME`, the model, and `folder/optimizer/NAME.pt`, everything else.

        Raises:
            OSError: if they cannot be written.
            NonFiniteError: if the weights are broken.
        """
        self.learner.check_weights()
        state = self.learner.state_dict()

        def write() -> None:
            try:
                self.policy.save(folder / self.name)
                (folder / "optimizer").mkdir(exist_ok=True)
                torch.save(state, folder / "optimizer" / f"{self.name}.pt")
            except Exception as error:  # of a full disk, each library says it in its own way
                raise OSError(str(error)) from error

        # All hear of it here, before they collect the next policy's state.
        self._ranks.together(write if self._ranks.first else lambda: None)
        self.learner.optimizer.rest()

    def load(self, folder: Path) -> None:
        """Take what `save` wrote.

        Raises:
            ValueError: if it is not there, or is another model's.
        """
        if not (folder / self.name).is_dir():
            saved = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != "optimizer")
            raise ValueError(
                f"{folder} has no policy {self.name!r} (it has {', '.join(saved)}); resume with the same policies"
            )
        try:
            self.policy.load_weights(folder / self.name)
        except RuntimeError as error:
            raise ValueError(
                f"{folder / self.name} holds another model than {self.name} is; resume with the same models"
            ) from error
        device = next(self.policy.model.parameters()).device
        # What will lie in a file or in shards is not read into memory first.
        mmap = self.learner.optimizer.read_in_parts
        state = torch.load(
            folder / "optimizer" / f"{self.name}.pt",
            map_location="cpu" if mmap else device,
            weights_only=True,
            mmap=mmap,
        )
        self.learner.load_state_dict(state)
        self.policy.version = self.learner.version

    def _peer_rows(self, step: int, lesson: Lesson, retokenize: mrl_env.Retokenizer) -> list[list[Sample]]:
        """For each problem of an earlier step the rows that its peers wrote; its own are learnt already."""
        return [
            [row for row in self.algorithm.rows(group, seen, retokenize) if row.source != self.name]
            for group, seen in zip(self._groups(step, lesson), lesson.peers, strict=True)
        ]

    def _groups(self, step: int, lesson: Lesson) -> list[Group]:
        """One group per problem."""
        seed = derive_seed(self.config.seed, "algorithm", step)
        return [
            Group(problem, self.name, prompt, tuple(answers), tuple(judged), seed, self._scorer(prompt))
            for problem, prompt, answers, judged in zip(
                lesson.problems, lesson.rollouts.prompts, lesson.rollouts.completions, lesson.verdicts, strict=True
            )
        ]

    def _scorer(self, prompt: tuple[int, ...]) -> Callable[[Sequence[Sequence[int]]], list[float]]:
        def mean_logprobs(candidates: Sequence[Sequence[int]]) -> list[float]:
            rows = [((*prompt, *candidate), len(prompt)) for candidate in candidates]
            return [float(logprobs.mean()) for logprobs in self.learner.logprobs(rows)]

        return mean_logprobs
