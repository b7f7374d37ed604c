"""The trainer: one step is a straight line.

    reset -> every policy generates -> env.step (verify, publish, read the peers) -> rows -> learner.update -> log -> save

It knows no algorithm by name: each policy's algorithm turns scored groups and peers' records into rows, and each policy's
learner executes rows.
"""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pettingzoo import ParallelEnv
from tqdm.auto import tqdm

import mrl_env
from algorithms.algorithm import Algorithm
from algorithms.checkpoints import list_checkpoints, load_checkpoint, resolve_checkpoint, save_checkpoint
from algorithms.config import TrainingConfig
from algorithms.devices import Plan, make_plan
from algorithms.evaluation import ProblemResult, evaluate, summarize
from algorithms.learner import Learner, LearnerConfig
from algorithms.metrics import completion_metrics, exchange_metrics
from algorithms.optimization import MasterOptimizer
from algorithms.policy import load_policy
from algorithms.samples import Group, Sample
from algorithms.tracking import POOL, Tracker, read_jsonl, table
from mrl_env.exchange import Exchange, JsonlExchange, ReplayExchange, peer_experiences
from mrl_env.problems import load_problems
from mrl_env.problems.files import is_problem_file
from mrl_env.seeding import derive_seed
from mrl_env.types import Completion, Experience, Problem
from verifiers.lookup import import_dotted

logger = logging.getLogger(__name__)

GATE_PATIENCE = 20
"""Steps without a single row from a peer after which a policy whose algorithm reads rollouts is reported."""


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
        self.config = config
        self.output_dir = Path(config.output_dir or default_output_dir(config))
        self._checkpoint = _prepare_folder(self.output_dir, config)
        names = [policy.name for policy in config.policies()]
        self.algorithms = dict(zip(names, algorithms or config.algorithms(), strict=True))
        self.plan: Plan = make_plan(config)
        logger.info("plan\n%s", self.plan)
        torch.set_num_threads(self.plan.threads)
        self.env = env if env is not None else make_env(config, self.algorithms, self._exchange(names))
        if list(self.env.possible_agents) != names:
            raise ValueError(
                f"env has the agents {self.env.possible_agents}, but the policies are {names}; name them alike"
            )
        self.eval_problems = load_eval_problems(config)
        self.total_steps = planned_steps(config, self.env)
        self.policies = {p.name: load_policy(p, self.plan.device(p.name)) for p in config.policies()}
        self.learners = {name: self._make_learner(name) for name in names}
        self.step = 0
        self._silent: dict[str, dict[str, int]] = {name: {"zero": 0, "no_peer_rows": 0} for name in names}
        sizes: Mapping[str, int] = {}
        if self._checkpoint is not None:
            state = load_checkpoint(self._checkpoint, self.policies, self.learners)
            self.step, self._silent, sizes = state["step"], state["silent"], state["sizes"]
        self.tracker = Tracker(self.output_dir, self.step, sizes)
        self._interrupted = False

    def train(self) -> dict[str, dict[str, float]]:
        """Run to the last step; evaluate and save on the way.

        Returns:
            For each policy the summary of its final evaluation (see `evaluation.summarize`); empty without evaluation.

        Raises:
            KeyboardInterrupt: after a first Ctrl-C the running step is finished and saved; the message says how to go on.
            NonFiniteError: if loss or gradient is not finite for too long.
        """
        (self.output_dir / "config.yaml").write_text(self.config.to_yaml(), encoding="utf-8")
        if self.step == 0 and self.config.eval_steps:
            self._evaluate()
        try:
            with self._watch_signals(), self._progress("training", self.total_steps, "step", self.step) as bar:
                while self.step < self.total_steps:
                    metrics = self.train_step()
                    bar.set_postfix_str(self._headline(metrics), refresh=False)
                    bar.update()
                    last = self.step == self.total_steps
                    if self.config.eval_steps and (last or self.step % self.config.eval_steps == 0):
                        self._evaluate()
                    if last or (self.config.save_steps and self.step % self.config.save_steps == 0):
                        self.save()
                    if self._interrupted and not last:
                        self.save()
                        raise KeyboardInterrupt(
                            f"stopped after step {self.step} of {self.total_steps}, saved in {self.output_dir}; go on with "
                            f"--resume_from_checkpoint auto --output_dir {self.output_dir}"
                        )
        finally:
            self.tracker.close()
        return self.results()

    def train_step(self) -> dict[str, dict[str, float]]:
        """One step of all policies.

        Returns:
            Metrics by policy.
        """
        started = time.perf_counter()
        observations, _ = self.env.reset(options={"episode": self.step})
        self.step += 1
        prompts = {
            name: [policy.renderer.token_ids(messages) for messages in observations[name]["prompts"]]
            for name, policy in self.policies.items()
        }
        completions: dict[str, list[list[Completion]]] = {}
        seconds: dict[str, dict[str, float]] = {name: {} for name in self.policies}
        for name, policy in self.policies.items():
            with _timed(seconds[name], "time/generate"):
                completions[name] = policy.generate(
                    prompts[name],
                    self.config.num_generations,
                    self.config.sampling(),
                    self._rollout_seeds(name, len(prompts[name])),
                    self.config.generation_batch_size,
                )
        environment: dict[str, float] = {}
        with _timed(environment, "time/environment"):
            observations, _, _, _, infos = self.env.step(completions)
        metrics: dict[str, dict[str, float]] = {}
        for name, policy in self.policies.items():
            learner = self.learners[name]
            with _timed(seconds[name], "time/rows"):
                groups = self._groups(name, infos[name], prompts[name], completions[name])
                rows, exchanged = self._rows(name, groups, peer_experiences(observations[name]))
            with _timed(seconds[name], "time/update"):
                # Models may draw (dropout); what they draw depends on the place, not on the history.
                torch.manual_seed(derive_seed(self.config.seed, "update", name, self.step))
                updated = learner.update(rows)
            policy.version = learner.version
            metrics[name] = {**completion_metrics(groups), **exchanged, **updated, **seconds[name]}
            self._log_completions(name, groups)
            self._warn(name, metrics[name])
        self._log(metrics, {**environment, "step_time": time.perf_counter() - started})
        return metrics

    def save(self) -> Path:
        """Write a checkpoint of the present step.

        Raises:
            OSError: if it cannot be written; nothing is lost, earlier checkpoints stay.
        """
        self.tracker.flush()
        return save_checkpoint(
            self.output_dir,
            self.step,
            self.policies,
            self.learners,
            {"silent": self._silent, "sizes": self.tracker.sizes()},
            self.config.to_yaml(),
            self.config.save_total_limit,
        )

    def results(self) -> dict[str, dict[str, float]]:
        """The newest evaluation of each policy."""
        return {name: evaluations[-1] for name, evaluations in self._evaluations().items()}

    def report(self) -> str:
        """A table per policy: before and after, in all and by subject; and the share of rescued problems."""
        models = {policy.name: policy.model_name_or_path for policy in self.config.policies()}
        lines: list[str] = []
        for name, evaluations in self._evaluations().items():
            before, after = evaluations[0], evaluations[-1]
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

    def _exchange(self, names: Sequence[str]) -> Exchange:
        exchange: Exchange = JsonlExchange(
            names, self.config.exchange_topology, path=self.output_dir / "exchange.jsonl"
        )
        if self.config.exchange_replay is not None:
            exchange = ReplayExchange(exchange, self.config.exchange_replay)
        return exchange

    def _make_learner(self, name: str) -> Learner:
        config = self.config
        policy = next(p for p in config.policies() if p.name == name)
        model = self.policies[name].model
        if config.gradient_checkpointing:
            model.activation_checkpointing_enable()
        rows = policy.per_device_train_batch_size * config.gradient_accumulation_steps
        problems = rows // config.num_generations
        optimizer = MasterOptimizer(
            model.parameters(), import_dotted(config.optim), lr=policy.learning_rate, **config.optim_args
        )
        return Learner(
            name,
            model,
            optimizer,
            LearnerConfig(
                loss=config.loss(),
                temperature=config.temperature,
                learning_rate=policy.learning_rate,
                lr_scheduler_type=config.lr_scheduler_type,
                warmup_steps=config.warmup_steps,
                total_updates=self.total_steps * config.num_iterations * config.problems_per_step // problems,
                micro_batch_size=policy.per_device_train_batch_size,
                problems_per_minibatch=problems,
                num_iterations=config.num_iterations,
                max_grad_norm=config.max_grad_norm,
                max_skipped_updates=config.max_skipped_updates,
            ),
        )

    def _rollout_seeds(self, name: str, problems: int) -> list[int]:
        return [
            derive_seed(self.config.seed, "rollout", name, self.step, p, g)
            for p in range(problems)
            for g in range(self.config.num_generations)
        ]

    def _groups(
        self,
        name: str,
        info: Mapping[str, Any],
        prompts: Sequence[tuple[int, ...]],
        completions: Sequence[Sequence[Completion]],
    ) -> list[Group]:
        """One group per problem."""
        seed = derive_seed(self.config.seed, "algorithm", self.step)
        return [
            Group(problem, name, prompt, tuple(answers), verdicts, seed, self._scorer(name, prompt))
            for problem, prompt, answers, verdicts in zip(
                info["problems"], prompts, completions, info["verdicts"], strict=True
            )
        ]

    def _scorer(self, name: str, prompt: tuple[int, ...]) -> Callable[[Sequence[Sequence[int]]], list[float]]:
        def mean_logprobs(candidates: Sequence[Sequence[int]]) -> list[float]:
            rows = [((*prompt, *candidate), len(prompt)) for candidate in candidates]
            return [float(logprobs.mean()) for logprobs in self.learners[name].logprobs(rows)]

        return mean_logprobs

    def _rows(
        self, name: str, groups: Sequence[Group], peers: Sequence[Sequence[Experience]]
    ) -> tuple[list[list[Sample]], dict[str, float]]:
        """Training rows per problem, and the metrics of what crossed."""
        retokenize = mrl_env.Retokenizer(self.policies[name].text, self.config.max_completion_length)
        algorithm = self.algorithms[name]
        rows = [algorithm.rows(group, seen, retokenize) for group, seen in zip(groups, peers, strict=True)]
        return rows, exchange_metrics(name, rows, retokenize)

    def _evaluate(self) -> None:
        """Evaluate all policies on the held-out problems and record it."""
        config = self.config
        verifier = config.make_verifier()
        summaries: dict[str, dict[str, float]] = {}
        total = len(self.policies) * len(self.eval_problems) * (1 + config.eval_samples)
        with self._progress(f"evaluating at step {self.step}", total, "completion") as bar:
            for name, policy in self.policies.items():
                results: list[ProblemResult] = evaluate(
                    policy,
                    self.eval_problems,
                    config.sampling(),
                    config.eval_samples,
                    config.seed,
                    verifier,
                    config.generation_batch_size,
                    bar.update,
                )
                summaries[name] = summarize(results)
                self.tracker.metrics(self.step, name, "eval", summaries[name])
        self.tracker.metrics(self.step, POOL, "eval", _mean_of(list(summaries.values())))
        self.tracker.flush()

    def _evaluations(self) -> dict[str, list[dict[str, float]]]:
        """For each policy its evaluations, first to last."""
        found: dict[str, list[dict[str, float]]] = {}
        for line in read_jsonl(self.output_dir / "metrics.jsonl"):
            values = {k.removeprefix("eval/"): v for k, v in line.items() if k.startswith("eval/")}
            if values and line["policy"] != POOL:
                found.setdefault(line["policy"], []).append(values)
        return found

    def _log(self, metrics: Mapping[str, Mapping[str, float]], pool: Mapping[str, float]) -> None:
        if self.step % self.config.logging_steps and self.step != self.total_steps:
            return
        for name, values in metrics.items():
            self.tracker.metrics(self.step, name, "train", values)
        shared = {key for key in POOLED if all(key in values for values in metrics.values())}
        averages = _mean_of([{key: values[key] for key in sorted(shared)} for values in metrics.values()])
        self.tracker.metrics(self.step, POOL, "train", {**averages, **pool})

    def _log_completions(self, name: str, groups: Sequence[Group]) -> None:
        self.tracker.completions(
            [
                {
                    "step": self.step,
                    "policy": name,
                    "problem": group.problem.id,
                    "question": group.problem.question,
                    "answer": group.problem.answer,
                    "completion": completion.text,
                    "finish_reason": completion.finish_reason,
                    **asdict(verdict),
                }
                for group in groups[: self.config.log_completions]
                for completion, verdict in zip(group.completions, group.verdicts, strict=True)
            ]
        )

    def _warn(self, name: str, metrics: Mapping[str, float]) -> None:
        """Say loudly what makes a run useless."""
        silent = self._silent[name]
        silent["zero"] = silent["zero"] + 1 if metrics["reward"] == 0 else 0
        if silent["zero"] in (1, 10, 100):
            reasons = {k.removeprefix("verdicts/"): f"{v:.0%}" for k, v in metrics.items() if k.startswith("verdicts/")}
            logger.warning(
                "%s: every reward of step %d is 0 (%d in a row). Verdicts: %s. Look at completions.jsonl: is the answer "
                "asked for in \\boxed{}, is max_completion_length enough, are the problems in reach?",
                name, self.step, silent["zero"], reasons,
            )  # fmt: skip
        if metrics.get("verdicts/error"):
            logger.warning(
                "%s: the verifier failed on %.0f %% of the completions of step %d; they carry no reward. See verdicts "
                "with reason 'error' in exchange.jsonl", name, 100 * metrics["verdicts/error"], self.step,
            )  # fmt: skip
        if "rollouts" in self.algorithms[name].channels and len(self.policies) > 1 and silent["no_peer_rows"] >= 0:
            # Counts up to the first row from a peer; -1 marks that there was one.
            silent["no_peer_rows"] = -1 if metrics["exchange/peer_rows"] else silent["no_peer_rows"] + 1
            if silent["no_peer_rows"] == GATE_PATIENCE:
                logger.warning(
                    "%s: no peer's completion has reached its rows in %d steps. Either its peers solve nothing that it does "
                    "not solve itself, or their text is dropped (drop rate %.0f %% in this step)",
                    name, GATE_PATIENCE, 100 * metrics["exchange/drop_rate"],
                )  # fmt: skip

    def _headline(self, metrics: Mapping[str, Mapping[str, float]]) -> str:
        rewards = " ".join(f"{values['reward']:.2f}" for values in metrics.values())
        rescued = " ".join(f"{values['exchange/rescue_rate']:.0%}" for values in metrics.values())
        return f"reward {rewards}, rescued {rescued}"

    def _progress(self, title: str, total: int, unit: str, initial: int = 0) -> tqdm[Any]:
        return tqdm(total=total, initial=initial, desc=title, unit=unit, dynamic_ncols=True, leave=title == "training")

    @contextmanager
    def _watch_signals(self) -> Iterator[None]:
        """Finish the running step on the first SIGINT or SIGTERM; the second one acts as usual."""

        def handle(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            signal.signal(number, previous[signal.Signals(number)])
            logger.warning("interrupted: finishing and saving this step; interrupt again to stop at once")

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number in previous:
                signal.signal(number, handle)
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


POOLED = ("reward", "reward_std", "frac_reward_zero_std", "success", "entropy", "kl", "exchange/rescue_rate")
"""Metrics whose mean over the policies is recorded for the pool."""


def make_env(
    config: TrainingConfig, algorithms: Mapping[str, Algorithm], exchange: Exchange
) -> ParallelEnv[str, Any, Any]:
    """The configured environment, each agent subscribed to what its algorithm reads."""
    arguments: dict[str, Any] = {
        "agents": list(algorithms),
        "problems": config.problems,
        "problem_options": config.problem_options,
        "split": "train",
        "problems_per_episode": config.problems_per_step,
        "generations": config.num_generations,
        "verifier": config.make_verifier(),
        "channels": {
            name: algorithm.channels if config.exchange_channels is None else config.exchange_channels
            for name, algorithm in algorithms.items()
        },
        "exchange": exchange,
        "seed": config.seed,
    }
    if ":" in config.env:
        made: ParallelEnv[str, Any, Any] = import_dotted(config.env)(**arguments)
        return made
    return mrl_env.make(config.env, **arguments)


def load_eval_problems(config: TrainingConfig) -> list[Problem]:
    """The held-out problems: the first `eval_size` of the evaluation source; none if nothing is evaluated."""
    if not config.eval_steps:
        return []
    if config.eval_problems is None and is_problem_file(config.problems):
        raise ValueError(
            f"eval_problems is not set, and problems={config.problems!r} is a file without a held-out split; name a file of "
            "held-out problems, or evaluate never with eval_steps 0"
        )
    options = config.eval_problem_options or config.problem_options
    source = load_problems(config.eval_problems or config.problems, split="test", seed=config.seed, **options)
    return [source[i] for i in range(min(config.eval_size, len(source)))]


def planned_steps(config: TrainingConfig, env: ParallelEnv[str, Any, Any]) -> int:
    """Steps of the run: `max_steps`, or as many as `num_train_epochs` passes over the environment's problems take.

    Raises:
        ValueError: if epochs are asked of an environment without a problem source to count.
    """
    if config.num_train_epochs is None:
        return config.max_steps
    source = getattr(env.unwrapped, "source", None)
    if source is None:
        raise ValueError(
            f"num_train_epochs={config.num_train_epochs}, but the env has no attribute source; set max_steps"
        )
    return max(1, int(config.num_train_epochs * (len(source) // config.problems_per_step)))


def default_output_dir(config: TrainingConfig) -> str:
    """`runs/ALGORITHM-TIME`."""
    names = "-".join(dict.fromkeys(name.rpartition(":")[2].lower() for name in config.algorithm))
    return f"runs/{names}-{time.strftime('%Y%m%d-%H%M%S')}"


def _prepare_folder(output_dir: Path, config: TrainingConfig) -> Path | None:
    """Make the output folder; returns the checkpoint to resume from."""
    checkpoint = resolve_checkpoint(output_dir, config.resume_from_checkpoint)
    occupied = (output_dir / "metrics.jsonl").exists() or bool(list_checkpoints(output_dir))
    if occupied and config.resume_from_checkpoint is None and not config.overwrite_output_dir:
        raise ValueError(
            f"output_dir={str(output_dir)!r} already holds a run; choose another, go on with --resume_from_checkpoint auto, or "
            "begin anew with --overwrite_output_dir"
        )
    output_dir.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        _clear(output_dir)
    return checkpoint


def _clear(output_dir: Path) -> None:
    """Remove what an earlier run left, but nothing else."""
    for path in (*list_checkpoints(output_dir), output_dir / "tensorboard"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def _mean_of(summaries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over policies of each metric that all of them have."""
    shared = [key for key in summaries[0] if all(key in summary for summary in summaries)]
    return {key: sum(summary[key] for summary in summaries) / len(summaries) for key in shared}
