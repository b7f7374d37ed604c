"""The trainer: one step is a straight line.

    reset -> every policy generates -> env.step (verify, publish, read the peers) -> every policy learns -> log -> save

It knows no algorithm by name, and not where the policies live: each one's worker turns scored groups and peers' records into
rows and learns from them (`algorithms/worker.py`), and a backend reaches the workers (`algorithms/backends`). Where policies
may be ahead of one another, each takes its steps in a thread (`algorithms/lanes.py`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pettingzoo import ParallelEnv
from tqdm.auto import tqdm

from algorithms.alarms import Alarms
from algorithms.algorithm import Algorithm, refuse_delay
from algorithms.backends import Backend, LocalBackend, make_backend
from algorithms.checkpoints import (
    claim_folder,
    clear_run,
    forget_later_checkpoints,
    read_state,
    resolve_checkpoint,
    save_checkpoint,
)
from algorithms.config import TrainingConfig, read_yaml
from algorithms.delay import Delay
from algorithms.devices import Plan, make_plan
from algorithms.errors import NonFiniteError, RankLostError, WorkerLostError
from algorithms.interruption import Interruption
from algorithms.lanes import Lanes
from algorithms.policy import Policy
from algorithms.ranks import join_ranks
from algorithms.setup import also_trained, check_answers, load_eval_problems, make_env, make_exchange, planned_steps
from algorithms.tracking import POOL, Tracker, evaluations, table
from algorithms.worker import Lesson, Worker
from mrl_env.exchange import peer_experiences
from mrl_env.types import Problem

logger = logging.getLogger(__name__)

MAY_CHANGE = {
    "max_steps", "num_train_epochs", "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "save_steps",
    "save_total_limit", "logging_steps", "log_completions", "placement", "device", "backend", "ray_address",
    "worker_timeout", "max_restarts",
}  # fmt: skip
"""Settings that a resumed run may change without being another run."""

Metrics = dict[str, dict[str, float]]
"""By policy and name."""

POOLED = ("reward", "reward_std", "frac_reward_zero_std", "success", "entropy", "kl", "exchange/rescue_rate")
"""Metrics whose mean over the policies is recorded for the pool."""


class Trainer:
    """A run: several policies, one environment, one exchange.

    Args:
        config: everything that the run depends on.
        env: an environment of one's own with the observations and infos of `MutualEnv`; by default the configured one.
        algorithms: ready algorithms, one per policy; by default the configured ones.

    Raises:
        ValueError: if a model, a problem source, a device or a folder does not fit, before anything is trained.

    Example:
        >>> trainer = Trainer(TrainingConfig(algorithm="sgt", max_steps=2, output_dir="runs/example"))  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(
        self,
        config: TrainingConfig,
        env: ParallelEnv[str, Any, Any] | None = None,
        algorithms: Sequence[Algorithm] | None = None,
    ) -> None:
        if not (ranks := join_ranks()).first:
            raise ValueError(
                f"this is process {ranks.rank} of {ranks.size}; let all but the first call algorithms.backends.sharded.serve"
            )
        self.config = config
        self.output_dir = run_folder(config)
        self.lock = claim_folder(
            self.output_dir,
            resuming=config.resume_from_checkpoint is not None,
            overwrite=config.overwrite_output_dir,
        )
        try:
            self._prepare(env, algorithms)
        except BaseException:
            self.lock.release()
            raise

    def _prepare(self, env: ParallelEnv[str, Any, Any] | None, algorithms: Sequence[Algorithm] | None) -> None:
        """Everything that a step needs; raises what `__init__` does."""
        config = self.config
        resuming = config.resume_from_checkpoint is not None
        checkpoint = resolve_checkpoint(self.output_dir, config.resume_from_checkpoint)
        names = [policy.name for policy in config.policies()]
        self.algorithms = dict(zip(names, algorithms or config.algorithms(), strict=True))
        self.plan: Plan = make_plan(config)
        logger.info("device plan\n%s", self.plan)
        torch.set_num_threads(self.plan.threads)
        refuse_delay(list(self.algorithms.values()), config.exchange_staleness)
        self._exchange = make_exchange(config, names, self.output_dir)
        self.env = env or make_env(config, self.algorithms, self._exchange)
        if list(self.env.possible_agents) != names:
            raise ValueError(
                f"env has the agents {self.env.possible_agents}, but the policies are {names}; name them alike"
            )
        if env is not None and config.eval_steps and config.eval_problems is None:
            raise ValueError("env is your own, so eval_problems must be named; or evaluate never with eval_steps=0")
        self.eval_problems = load_eval_problems(config)
        check_answers(self.eval_problems, config.make_verifier())
        source: Any = getattr(self.env.unwrapped, "source", None)
        if getattr(source, "stored", False):  # rows of a file; what a source makes is checked as it is asked
            rows = [source[i] for i in range(len(source))]
            check_answers(rows, config.make_verifier())
            _warn_of_leaks(rows, self.eval_problems)
        self.total_steps = planned_steps(config, self.env)
        # Another one's environment asks all policies at a time.
        self._own_pace = (
            config.backend == "ray" and config.exchange_staleness > 0 and env is None and ":" not in config.env
        )
        self.backend: Backend = make_backend(config, self.algorithms, self.plan, self.total_steps, self.output_dir)
        if resuming and checkpoint is None:
            logger.warning("%s has no checkpoint yet: the run begins anew", self.output_dir)
        if checkpoint is not None:
            _warn_of_changes(checkpoint, config)
        try:
            self._begin(checkpoint)
        except BaseException:
            self.backend.close()
            raise

    def _begin(self, checkpoint: Path | None) -> None:
        """Bring workers, counters and records to the state of a checkpoint, or to that of a new run."""
        self.step = 0
        self.delay = Delay(self.algorithms, self.config.exchange_staleness)
        self.alarms = {
            name: Alarms(
                name,
                reads_peers="rollouts" in algorithm.channels and len(self.algorithms) > 1,
                delay=self.config.exchange_staleness,
            )
            for name, algorithm in self.algorithms.items()
        }
        if checkpoint is None:
            clear_run(self.output_dir)
            self.tracker = Tracker(self.output_dir)
            return
        self.backend.load(checkpoint)
        self.delay.load(checkpoint)
        state = read_state(checkpoint)
        self.step = state["step"]
        logger.info("going on from %s: %d of %d steps are done", checkpoint, self.step, self.total_steps)
        forget_later_checkpoints(self.output_dir, self.step)
        for name, alarms in self.alarms.items():
            alarms.restore(state["alarms"][name])
        self.tracker = Tracker(self.output_dir, self.step, state["sizes"])

    def train(self) -> Metrics:
        """Run to the last step; evaluate and save on the way.

        Returns:
            For each policy the summary of its final evaluation (see `evaluation.summarize`); empty without evaluation.

        Raises:
            ValueError: if a problem of the run is unusable; the steps before it are saved, or, where policies go their own
                pace, those before the last checkpoint.
            KeyboardInterrupt: after a first Ctrl-C the running step is finished and saved; the message says how to go on.
            NonFiniteError: if loss or gradient is not finite for too long, or weights are not.
            RankLostError: if a process that holds a shard is lost.
            WorkerLostError: if workers in other processes are lost again and again; see `max_restarts`.
        """
        furthest, losses = self.step, 0
        try:
            (self.output_dir / "config.yaml").write_text(self.config.to_yaml(), encoding="utf-8")
            with Interruption() as interruption, self._progress("training", self.total_steps, "step", self.step) as bar:
                lanes = self._lanes()
                while self.step < self.total_steps:
                    try:
                        self._advance(lanes, bar, interruption)
                    except RankLostError:
                        raise
                    except WorkerLostError as error:
                        losses = losses + 1 if self.step <= furthest else 1
                        furthest = max(furthest, self.step)
                        losses = self._recover(error, losses)
                        lanes = self._lanes()
                        bar.n = self.step
        finally:
            self.close()
        return self.results()

    def close(self) -> None:
        """End the workers, close the records, and let others write to the folder; for who takes steps without `train`."""
        self.lock.release()
        self.tracker.close()
        self.backend.close()

    def _advance(self, lanes: Lanes | None, bar: tqdm[Any], interruption: Interruption) -> None:
        """To the next step behind which all policies are evaluated or saved, and do so."""
        if self.step == 0 and self.config.eval_steps:
            self._evaluate()
        periods = [period for period in (self.config.eval_steps, self.config.save_steps) if period]
        until = min([self.total_steps, *((self.step // period + 1) * period for period in periods)])
        steps = self._take_turns(until, interruption) if lanes is None else self._run(lanes, until, interruption)
        with closing(steps):
            for metrics in steps:
                bar.set_postfix_str(self._headline(metrics), refresh=False)
                bar.update()
        last = self.step == self.total_steps
        if self.config.eval_steps and (last or self.step % self.config.eval_steps == 0):
            self._evaluate()
        if last or (self.config.save_steps and self.step % self.config.save_steps == 0):
            self.save()
        if interruption.requested and not last:
            self.save()
            raise KeyboardInterrupt(
                f"stopped after step {self.step} of {self.total_steps}, saved in {self.output_dir}; go on with "
                f"the same command and --resume_from_checkpoint auto --output_dir {self.output_dir}"
            )

    def _take_turns(self, until: int, interruption: Interruption) -> Generator[Metrics, None, None]:
        """Steps of all policies together, up to one of them; the metrics of each."""
        while self.step < until:
            yield self._train_step_or_save()
            if interruption.requested:
                return

    def _run(self, lanes: Lanes, until: int, interruption: Interruption) -> Generator[Metrics, None, None]:
        """Steps of policies that go their own pace, up to one of them; the metrics of each, when all have done it."""
        started = time.perf_counter()
        with closing(lanes.run(self.step + 1, until)) as steps:
            for played in steps:
                self.step += 1
                metrics = {name: dict(each.metrics) for name, each in played.items()}
                environment = sum(each.environment for each in played.values())
                times = {"time/environment": environment, "step_time": time.perf_counter() - started}
                started = time.perf_counter()
                self._record({name: each.lesson for name, each in played.items()}, metrics, times)
                yield metrics
                if interruption.requested:
                    lanes.stop()

    def _lanes(self) -> Lanes | None:
        """The policies' lanes from the present step on, if they go their own pace."""
        if not self._own_pace:
            return None
        return Lanes(self.config, self.algorithms, self.backend, self._exchange, self.delay, self.step)

    def _recover(self, error: WorkerLostError, losses: int) -> int:
        """Begin all workers anew, and go back to the last checkpoint.

        Args:
            error: which of them was lost.
            losses: times in a row that one was lost without a step forward.

        Returns:
            The same number; larger, if it happens again meanwhile.

        Raises:
            WorkerLostError: if that are too many.
        """
        if losses > self.config.max_restarts:
            raise WorkerLostError(
                f"{error}\nThat was the {losses}. loss without a step forward, and max_restarts={self.config.max_restarts}. "
                f"What was saved in {self.output_dir} is whole; go on with --resume_from_checkpoint auto --output_dir "
                f"{self.output_dir}"
            ) from error
        checkpoint = resolve_checkpoint(self.output_dir, "auto")
        logger.warning(
            "%s\nAll workers begin anew from %s (restart %d of %d)",
            error, checkpoint or "the initial weights", losses, self.config.max_restarts,
        )  # fmt: skip
        self.tracker.close()
        try:
            self.backend.restart()
            self._begin(checkpoint)
        except WorkerLostError as again:
            return self._recover(again, losses + 1)
        return losses

    def _train_step_or_save(self) -> Metrics:
        """A step; if problems, prompts or verifiers fail before any weight has moved, nothing is lost."""
        before, sizes = self.step, self.tracker.sizes()
        try:
            return self.train_step()
        except (NonFiniteError, WorkerLostError):
            raise
        except Exception:
            if before > 0 and self.step == before:
                self.tracker.cut(sizes)
                self.save()
            raise

    def train_step(self) -> Metrics:
        """One step of all policies.

        Returns:
            Metrics by policy.

        Raises:
            ValueError: if a problem's answer is unusable, or a prompt does not fit a model's context.
        """
        started = time.perf_counter()
        step = self.step + 1
        observations, _ = self.env.reset(options={"episode": self.step})
        rollouts = self.backend.rollout(step, {name: observations[name]["prompts"] for name in self.algorithms})
        answered = time.perf_counter()
        observations, _, _, _, infos = self.env.step({name: said.completions for name, said in rollouts.items()})
        environment = {"time/environment": time.perf_counter() - answered}
        self.step = step  # from here on weights move; what fails before leaves the run as it was
        lessons = {
            name: Lesson(infos[name]["problems"], said, infos[name]["verdicts"], peer_experiences(observations[name]))
            for name, said in rollouts.items()
        }
        metrics = self.backend.learn(step, {name: self.delay.swap(name, lesson) for name, lesson in lessons.items()})
        self._record(lessons, metrics, {**environment, "step_time": time.perf_counter() - started})
        return metrics

    def _record(self, lessons: Mapping[str, Lesson], metrics: Metrics, times: Mapping[str, float]) -> None:
        """Write what all policies did in the present step."""
        for name, lesson in lessons.items():
            self._log_completions(name, lesson)
            self.alarms[name].check(self.step, metrics[name])
        self._log(metrics, times)

    def save(self) -> Path:
        """Write a checkpoint of the present step.

        Raises:
            OSError: if it cannot be written; nothing is lost, earlier checkpoints stay.
        """
        self.tracker.flush()
        return save_checkpoint(
            self.output_dir,
            self.step,
            self._save_policies,
            {
                "alarms": {name: alarms.state() for name, alarms in self.alarms.items()},
                "sizes": self.tracker.sizes(),
            },
            self.config.to_yaml(),
            self.config.save_total_limit,
        )

    def _save_policies(self, folder: Path) -> None:
        self.backend.save(folder)
        self.delay.save(folder)

    @property
    def workers(self) -> dict[str, Worker]:
        """The policies' workers, where they live in this process.

        Raises:
            ValueError: if they live in other processes.
        """
        if not isinstance(self.backend, LocalBackend):
            raise ValueError("the workers live in other processes; use the local backend to reach them")
        return self.backend.workers

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies, where they live in this process; see `workers`."""
        return {name: worker.policy for name, worker in self.workers.items()}

    def results(self) -> dict[str, dict[str, float]]:
        """The newest evaluation of each policy."""
        return {name: found[-1] for name, found in evaluations(self.output_dir).items() if name != POOL}

    def report(self) -> str:
        """A table per policy: before and after, in all and by subject; and the share of rescued problems."""
        models = {policy.name: policy.model_name_or_path for policy in self.config.policies()}
        lines: list[str] = []
        for name, found in evaluations(self.output_dir).items():
            if name == POOL:
                continue
            before, after = found[0], found[-1]
            rows = [
                (
                    key.removeprefix("subject/"),
                    f"{before[key]:.3f}",
                    f"{after[key]:.3f}",
                    f"{after[key] - before[key]:+.3f}",
                )
                for key in after
            ]
            lines += [table((f"{name} ({models[name]})", "before", "after", "change"), rows), ""]
        return "\n".join(lines)

    def _evaluate(self) -> None:
        """Evaluate all policies on the held-out problems and record it."""
        total = len(self.algorithms) * len(self.eval_problems) * (1 + self.config.eval_samples)
        with self._progress(f"evaluating at step {self.step}", total, "completion") as bar:
            summaries = self.backend.evaluate(self.eval_problems, bar.update)
        for name, summary in summaries.items():
            self.tracker.metrics(self.step, name, "eval", summary)
        self.tracker.metrics(self.step, POOL, "eval", _mean_of(list(summaries.values())))
        self.tracker.flush()

    def _log(self, metrics: Mapping[str, Mapping[str, float]], pool: Mapping[str, float]) -> None:
        if self.step % self.config.logging_steps and self.step != self.total_steps:
            return
        for name, values in metrics.items():
            self.tracker.metrics(self.step, name, "train", values)
        shared = {key for key in POOLED if all(key in values for values in metrics.values())}
        averages = _mean_of([{key: values[key] for key in sorted(shared)} for values in metrics.values()])
        self.tracker.metrics(self.step, POOL, "train", {**averages, **pool})

    def _log_completions(self, name: str, lesson: Lesson) -> None:
        """Keep what a policy said to the first problems of a step."""
        answers = zip(lesson.problems, lesson.rollouts.completions, lesson.verdicts, strict=True)
        self.tracker.completions(
            [
                {
                    "step": self.step,
                    "policy": name,
                    "problem": problem.id,
                    "question": problem.question,
                    "answer": problem.answer,
                    "completion": completion.text,
                    "finish_reason": completion.finish_reason,
                    **asdict(verdict),
                }
                for problem, completions, verdicts in itertools.islice(answers, self.config.log_completions)
                for completion, verdict in zip(completions, verdicts, strict=True)
            ]
        )

    def _headline(self, metrics: Mapping[str, Mapping[str, float]]) -> str:
        rewards = " ".join(f"{values['reward']:.2f}" for values in metrics.values())
        rescued = " ".join(f"{values['exchange/rescue_rate']:.0%}" for values in metrics.values())
        return f"reward {rewards}, rescued {rescued}"

    def _progress(self, title: str, total: int, unit: str, initial: int = 0) -> tqdm[Any]:
        return tqdm(total=total, initial=initial, desc=title, unit=unit, dynamic_ncols=True, leave=title == "training")


def run_folder(config: TrainingConfig) -> Path:
    """Where the run is written: the configured folder, that of the checkpoint to resume from, or a new one.

    Raises:
        ValueError: if the newest checkpoint of no folder is asked for.
    """
    if config.output_dir is not None:
        return Path(config.output_dir)
    if config.resume_from_checkpoint == "auto":
        raise ValueError("resume_from_checkpoint='auto' takes the newest checkpoint of output_dir; name output_dir")
    if config.resume_from_checkpoint is not None:
        return Path(config.resume_from_checkpoint).parent
    return new_output_dir(config)


def new_output_dir(config: TrainingConfig) -> Path:
    """A new folder `runs/ALGORITHM-TIME`; runs that begin in the same second get different ones."""
    names = "-".join(dict.fromkeys(name.rpartition(":")[2].lower() for name in config.algorithm))
    base = f"{names}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        folder = Path("runs", base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("unreachable")


def _warn_of_leaks(training: Sequence[Problem], held_out: Sequence[Problem]) -> None:
    """Say how many held-out problems are trained on."""
    if leaked := also_trained(training, held_out):
        logger.warning(
            "%d of %d held-out problems are trained on as well, such as %s (%.80r): their scores say nothing about new ones. "
            "Leave them out of problems or of eval_problems",
            len(leaked), len(held_out), leaked[0].id, leaked[0].question,
        )  # fmt: skip


def _warn_of_changes(checkpoint: Path, config: TrainingConfig) -> None:
    """Say which settings differ from those of the run that is resumed."""
    saved = read_yaml(checkpoint / "config.yaml")
    changed = {k: (saved.get(k), v) for k, v in config.to_dict().items() if k not in MAY_CHANGE and saved.get(k) != v}
    if changed:
        differences = "; ".join(f"{key}: {old!r} is now {new!r}" for key, (old, new) in changed.items())
        logger.warning("the run goes on with other settings than it began with: %s", differences)


def _mean_of(summaries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over policies of each metric that all of them have."""
    shared = [key for key in summaries[0] if all(key in summary for summary in summaries)]
    return {key: sum(summary[key] for summary in summaries) / len(summaries) for key in shared}
