"""The command line of `python -m algorithms.<name>`: flat flags, a config file with the same keys, and a dry run.

Values come from the defaults, then from `--config file.yaml`, then from the flags; the last one wins.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin

import tyro
import yaml
from transformers.utils import logging as transformers_logging

from algorithms.algorithm import Algorithm, algorithm_class
from algorithms.backends.sharded import serve
from algorithms.checkpoints import resolve_checkpoint
from algorithms.config import TrainingConfig, read_yaml
from algorithms.devices import make_plan
from algorithms.errors import EngineError, NonFiniteError, WorkerLostError
from algorithms.options import SECTIONS
from algorithms.planning.cluster import Cluster, described
from algorithms.policy import has_tokenizer, load_renderer, load_tokenizer
from algorithms.ranks import join_ranks
from algorithms.setup import make_env, planned_steps
from algorithms.trainer import Trainer
from mrl_env.exchange import MemoryExchange
from verifiers.printing import log_to_terminal, printable_lines

S = TypeVar("S")


@dataclass(frozen=True)
class CommandOptions:
    """What the command does."""

    config: str | None = None
    """YAML file with the keys below; flags win over it."""
    dry_run: bool = False
    """Print the resolved configuration, the plan and one prompt per policy, and train nothing."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """With dry_run, what the plan is made for instead of what there is here: nodes, and of each node gpus, gpu_memory, cpus,
    memory, such as '{nodes: 2, gpus: 8, gpu_memory: 80GiB, cpus: 96, memory: 1TiB}'."""


def main(algorithm: str, arguments: Sequence[str] | None = None) -> None:
    """Run an algorithm from the command line; under `torchrun` the first process does, and the others serve it.

    Args:
        algorithm: its name, or the dotted path of one's own; every policy's unless the configuration says otherwise.
        arguments: the command line; by default that of the process.

    Exits with 2 and one message on a mistake of the user's, with 130 after an interruption, with 1 if training broke off.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    ranks = join_ranks()
    log_to_terminal(logging.INFO if ranks.first else logging.ERROR)
    transformers_logging.disable_progress_bar()
    if not ranks.first:
        sys.exit(serve(ranks))
    try:
        _run(algorithm, arguments)
    finally:
        ranks.close()


def _run(algorithm: str, arguments: Sequence[str]) -> None:
    """See `main`."""
    try:
        command, config = parse(algorithm, arguments)
        if command.dry_run:
            print(printable_lines(dry_run(config, described(command.cluster) if command.cluster else None)))
            return
        if command.cluster:
            raise ValueError(f"cluster={dict(command.cluster)!r} is for a plan alone; add --dry_run, or leave it out")
    except ValueError as error:
        sys.exit(_failure(str(error), 2))
    run(config)


def run(config: TrainingConfig) -> None:
    """Train, and print what came of it; exits as `main` does."""
    mistake = 2
    try:
        trainer = Trainer(config)
        mistake = 1
        trainer.train()
    except KeyboardInterrupt as interruption:
        sys.exit(_failure(str(interruption) or "stopped at once; the last checkpoint is whole", 130))
    except OSError as error:
        # Those without a number are ours, and say what to do.
        remedy = "what was saved is untouched; mend this and go on with --resume_from_checkpoint auto and --output_dir"
        sys.exit(_failure(str(error) if error.errno is None else f"{error}; {remedy}", 1))
    except (NonFiniteError, ValueError) as error:
        sys.exit(_failure(str(error), mistake))
    except (EngineError, WorkerLostError) as error:
        sys.exit(_failure(str(error), 1))
    print(f"\n{trainer.report()}")
    print(f"metrics, completions, exchange, checkpoints: {trainer.output_dir}")
    print(f"curves: tensorboard --logdir {trainer.output_dir}")


def parse(algorithm: str, arguments: Sequence[str]) -> tuple[CommandOptions, TrainingConfig]:
    """The options of the command and the resolved configuration.

    Raises:
        ValueError: on an invalid value or an unknown key of the config file.
        SystemExit: on an unknown flag, or after `--help`.
    """
    values = {"algorithm": algorithm, **base_values(arguments)}
    base = TrainingConfig.from_dict(values)
    option_class = algorithm_class(algorithm)
    known = {f.name for f in fields(option_class)}
    options = option_class(**{key: value for key, value in base.algorithm_options.items() if key in known})
    # One nested struct per section gives the groups of --help; without prefixes the flags are flat.
    layout: list[tuple[str, Any, Any]] = [("command", CommandOptions, field(default_factory=CommandOptions))]
    layout += [(option_class.__name__, option_class, _default(options))]
    layout += [(name, cls, _default(_section(cls, base))) for name, cls in SECTIONS.items()]
    module = sys.modules[option_class.__module__]
    parsed: Any = tyro.cli(
        make_dataclass("Run", layout),
        prog=f"python -m {option_class.__module__}",
        description=(module.__doc__ or "").strip(),
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes,),
        registry=mapping_registry(),
        use_underscores=True,
    )
    chosen: Algorithm = getattr(parsed, option_class.__name__)
    changed = {key: getattr(chosen, key) for key in known if getattr(chosen, key) != getattr(options, key)}
    values = {f.name: getattr(getattr(parsed, name), f.name) for name, cls in SECTIONS.items() for f in fields(cls)}
    values["algorithm_options"] = {**values["algorithm_options"], **changed}
    command: CommandOptions = parsed.command
    config = TrainingConfig(**values)
    if algorithm not in config.algorithm:
        logging.getLogger(__name__).warning(
            "python -m algorithms.%s trains %s, which the configuration names; write --algorithm %s to change it",
            algorithm, ", ".join(config.algorithm), algorithm,
        )  # fmt: skip
    return command, config


def dry_run(config: TrainingConfig, cluster: Cluster | None = None) -> str:
    """What a run would do: the resolved configuration, the plan, and one rendered prompt per policy.

    Args:
        config: the run's.
        cluster: to plan for; by default this machine.

    Raises:
        ValueError: if the run could not begin.
    """
    plan = make_plan(config, cluster)
    names = [policy.name for policy in config.policies()]
    env = make_env(config, dict(zip(names, config.algorithms(), strict=True)), MemoryExchange(names))
    observations, _ = env.reset()
    prompts = []
    for policy in config.policies():
        if not has_tokenizer(policy):
            prompts.append(f"--- no prompt of {policy.name}: {policy.model_name_or_path} has no tokenizer")
            continue
        renderer = load_renderer(policy, load_tokenizer(policy))
        prompts.append(f"--- a prompt of {policy.name}\n{renderer.text(observations[policy.name]['prompts'][0])}")
    steps = planned_steps(config, env)
    seconds = plan.seconds_per_step()
    time = f"{steps} steps, very roughly {seconds:.1f} s each without evaluation: {steps * seconds / 60:.0f} min"
    return "\n\n".join([config.to_yaml(), str(plan), time, *prompts])


def base_values(arguments: Sequence[str]) -> dict[str, Any]:
    """What the flags' defaults are taken from: `--config`, or the configuration of the run that is resumed.

    Raises:
        ValueError: if the file is missing or no mapping.
    """
    file = _flag(arguments, "config")
    if file is not None:
        return read_yaml(file)
    resume, output_dir = _flag(arguments, "resume_from_checkpoint"), _flag(arguments, "output_dir")
    if resume is None or (resume == "auto" and output_dir is None):
        return {}
    checkpoint = resolve_checkpoint(Path(output_dir or "."), resume, names=["config.yaml"])
    # What was a choice of that command alone is not taken over.
    alone = ("resume_from_checkpoint", "overwrite_output_dir")
    saved = {} if checkpoint is None else read_yaml(checkpoint / "config.yaml")
    return {key: value for key, value in saved.items() if key not in alone}


def _flag(arguments: Sequence[str], name: str) -> str | None:
    """The value of a flag that must be known before the others get their defaults."""
    for i, argument in enumerate(arguments):
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
        if argument == f"--{name}" and i + 1 < len(arguments):
            return arguments[i + 1]
    return None


def _section(cls: type[S], config: TrainingConfig) -> S:
    return cls(**{f.name: getattr(config, f.name) for f in fields(cls)})  # type: ignore[arg-type]


def _default(value: Any) -> Any:
    return field(default_factory=lambda: value)


def mapping_registry() -> tyro.constructors.ConstructorRegistry:
    """Mappings are given as JSON or YAML in one argument: `--problem_options '{"levels": [1, 2]}'`."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def _mapping(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        if get_origin(info.type) is not Mapping:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="JSON",
            instance_from_str=lambda texts: _mapping_from(texts[0]),
            is_instance=lambda value: isinstance(value, Mapping),
            str_from_instance=lambda value: [json.dumps(value)],
        )

    return registry


def _mapping_from(text: str) -> dict[str, Any]:
    value = yaml.safe_load(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text!r} is no mapping; write JSON such as '{{\"levels\": [1, 2]}}'")
    return value


def _failure(message: str, code: int) -> int:
    print(printable_lines(f"{'error: ' if code != 130 else ''}{message}"), file=sys.stderr)
    return code
