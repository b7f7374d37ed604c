"""From a configuration to the parts of a run: environment, exchange, held-out problems, learners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingzoo import ParallelEnv

import mrl_env
import verifiers
from algorithms.algorithm import Algorithm
from algorithms.config import TrainingConfig
from algorithms.learner import Learner, LearnerConfig
from algorithms.optimization import MasterOptimizer
from algorithms.policy import Policy
from algorithms.ranks import ALONE, Ranks
from algorithms.sharding import sharded_learner
from mrl_env.exchange import Channel, Exchange, JsonlExchange, MemoryExchange, ReplayExchange, checked_channels
from mrl_env.problems import load_problems
from mrl_env.problems.files import is_problem_file
from mrl_env.types import Problem
from verifiers import BadGoldError, Verifier
from verifiers.lookup import import_dotted

DEFAULT_OPTIM_ARGS: dict[str, dict[str, Any]] = {
    "torch.optim:AdamW": {"betas": (0.9, 0.99), "weight_decay": 0.0, "fused": True},
}
"""Arguments that an optimizer gets unless the user says otherwise."""


def make_env(
    config: TrainingConfig, algorithms: Mapping[str, Algorithm], exchange: Exchange, alone: str | None = None
) -> ParallelEnv[str, Any, Any]:
    """The configured environment, each agent subscribed to what its algorithm reads.

    Args:
        config: the run's.
        algorithms: of all policies, by name.
        exchange: where records meet.
        alone: the only agent of an environment of its own, which asks it the same problems, and publishes all that any policy
            reads.
    """
    channels = channels_of(config, algorithms)
    if alone is not None:
        channels = {alone: tuple({channel for subscribed in channels.values() for channel in subscribed})}
    arguments: dict[str, Any] = {
        "agents": list(channels),
        **problem_arguments(config),
        "split": "train",
        "problems_per_episode": config.problems_per_step,
        "generations": config.num_generations,
        "channels": channels,
        "exchange": exchange,
        "seed": config.seed,
    }
    if ":" in config.env:
        made: ParallelEnv[str, Any, Any] = import_dotted(config.env, "env")(**arguments)
        return made
    return mrl_env.make(config.env, **arguments)


def channels_of(config: TrainingConfig, algorithms: Mapping[str, Algorithm]) -> dict[str, tuple[Channel, ...]]:
    """What each policy reads of its peers: the configured channels, or else those of its algorithm."""
    return {
        name: algorithm.channels if config.exchange_channels is None else checked_channels(config.exchange_channels)
        for name, algorithm in algorithms.items()
    }


def problem_arguments(config: TrainingConfig) -> dict[str, Any]:
    """What the environment is told of problems and verifier: what the user set, else what the domain was registered with."""
    registered = {} if ":" in config.env else dict(mrl_env.spec(config.env).kwargs)
    arguments = {key: registered[key] for key in ("problems", "problem_options", "verifier") if key in registered}
    if config.problems is not None:
        arguments = {**arguments, "problems": config.problems, "problem_options": {}}
    if options := config.source_options():
        arguments["problem_options"] = options
    if (verifier := config.make_verifier()) is not None:
        arguments["verifier"] = verifier
    return arguments


def load_eval_problems(config: TrainingConfig) -> list[Problem]:
    """The held-out problems: the first `eval_size` of the evaluation source; none if nothing is evaluated."""
    if not config.eval_steps:
        return []
    training = problem_arguments(config)
    problems = config.eval_problems or training.get("problems", "math")
    if config.eval_problems is None and isinstance(problems, str) and is_problem_file(problems):
        raise ValueError(
            f"eval_problems is not set, and problems={problems!r} is a file without a held-out split; name a file of "
            "held-out problems, or evaluate never with eval_steps 0"
        )
    options = config.source_options(held_out=True) or training.get("problem_options", {})
    domain = None if ":" in config.env else mrl_env.spec(config.env).kwargs.get("domain")
    source = load_problems(problems, split="test", seed=config.seed, domain=domain, **options)
    found = [source[i] for i in range(min(config.eval_size, len(source)))]
    for i, problem in enumerate(found):
        if not isinstance(problem, Problem):
            raise ValueError(
                f"eval_problems[{i}] is a {type(problem).__name__}; a source gives mrl_env.Problem records"
            )
    return found


def check_answers(problems: Iterable[Problem], verifier: Verifier | None) -> None:
    """Refuse answers that cannot be verified against, before anything is trained.

    Args:
        problems: held-out problems, or the rows of a file.
        verifier: judges all of them; by default each names its own.

    Raises:
        BadGoldError: naming the first such problem.
    """
    for problem in problems:
        try:
            verifiers.check_answer(verifier or problem.verifier, problem.answer, **problem.evidence)
        except BadGoldError as error:
            raise BadGoldError(f"problem {problem.id}: {error}") from error


def also_trained(training: Iterable[Problem], held_out: Iterable[Problem]) -> list[Problem]:
    """The held-out problems that are trained on as well; case, blanks and the order of options make no difference."""
    asked = {_wording(problem) for problem in training}
    return [problem for problem in held_out if _wording(problem) in asked]


def _wording(problem: Problem) -> tuple[str, ...]:
    words = problem.question.casefold().split()
    return tuple(sorted(words) if problem.metadata.get("options") else words)


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


def make_exchange(config: TrainingConfig, agents: Sequence[str], output_dir: Path) -> Exchange:
    """An exchange that writes `exchange.jsonl`, with the replayed peers, if any.

    Raises:
        ValueError: if topology or replay file do not fit.
    """
    exchange: Exchange = MemoryExchange(agents, config.exchange_topology)
    if config.exchange_log:
        exchange = JsonlExchange(agents, config.exchange_topology, path=output_dir / "exchange.jsonl")
    if config.exchange_replay is not None:
        exchange = ReplayExchange(exchange, config.exchange_replay)
    return exchange


def make_learner(
    config: TrainingConfig, policy: Policy, total_steps: int, output_dir: Path, ranks: Ranks = ALONE
) -> Learner:
    """The learner of a policy.

    Args:
        config: the run's.
        policy: whose model is trained in place.
        total_steps: of the run, for the learning rate's schedule.
        output_dir: the run's folder, where the optimizer's state may be kept.
        ranks: the processes over which it is sharded.
    """
    settings = next(p for p in config.policies() if p.name == policy.name)
    if config.gradient_checkpointing:
        policy.model.activation_checkpointing_enable()
    rows = settings.per_device_train_batch_size * config.gradient_accumulation_steps
    problems = rows // config.num_generations
    learner_config = LearnerConfig(
        loss=config.loss(),
        temperature=config.temperature,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=config.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        total_updates=total_steps * config.num_iterations * config.problems_per_step // problems,
        micro_batch_size=settings.per_device_train_batch_size,
        problems_per_minibatch=problems,
        num_iterations=config.num_iterations,
        max_grad_norm=config.max_grad_norm,
        max_skipped_updates=config.max_skipped_updates,
        has_engine=policy.engine is not None,
    )
    optimizer_class = import_dotted(settings.optim, "optim")
    arguments = {**DEFAULT_OPTIM_ARGS.get(settings.optim, {}), **config.optim_args}
    try:
        if ranks.size > 1:
            return sharded_learner(
                policy.name,
                policy.model,
                learner_config,
                ranks,
                optimizer_class,
                lr=settings.learning_rate,
                **arguments,
            )
        optimizer = MasterOptimizer(
            policy.model.parameters(),
            optimizer_class,
            offload=output_dir if config.offload_optimizer else None,
            lr=settings.learning_rate,
            **arguments,
        )
    except TypeError as error:
        raise ValueError(f"optim={settings.optim!r} cannot be made with optim_args={arguments!r}: {error}") from error
    return Learner(policy.name, policy.model, optimizer, learner_config)
