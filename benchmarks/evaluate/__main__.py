"""Evaluate any number of models on a set of problems: `python -m benchmarks.evaluate --policies A B --problems FILE`.

Prints and writes reward@1 (greedy), mean@k, pass@k and maj@k with 95 % intervals, by subject and by level, how success goes
with length, and which share of the problems each policy solves that another never does. An interrupted evaluation goes on
where it stopped when the same command is given again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from algorithms.cli import mapping_registry
from algorithms.config import TrainingConfig
from algorithms.devices import available_devices
from algorithms.errors import NonFiniteError
from algorithms.options import Dtype, SamplingOptions
from algorithms.setup import check_answers
from benchmarks.evaluate.collect import Backend, Evaluation, collect, policy_configs, read_stored, settings_hash
from benchmarks.evaluate.scores import agreement, policy_figures
from benchmarks.evaluate.show import draw_rescue, tables
from benchmarks.pictures import empty_figure
from mrl_env.problems import load_problems
from mrl_env.types import Problem
from verifiers.printing import printable, printable_lines


@dataclass(frozen=True)
class EvaluationOptions:
    """What is evaluated on what."""

    policies: tuple[str, ...]
    """Models: hub ids, local folders, .gguf files, embedded ones (tiny-llama, tiny-qwen3), or the checkpoint folder of a run,
    which stands for all of its policies."""
    problems: str
    """Problem source: arithmetic, math, a .jsonl/.json/.csv/.parquet file, hub:owner/name, or a dotted path."""
    problem_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the problem source, such as subjects and levels."""
    split: Literal["test", "train"] = "test"
    """Split of a source that has splits."""
    limit: int | None = None
    """Only the first so many problems."""
    samples: int = 8
    """k: sampled completions per problem, beside the greedy one."""
    seed: int = 0
    """Decides the problems of sources that draw them, every completion, and the bootstrap."""
    verifier: str | None = None
    """Verifier of all problems: a name or a dotted path; by default each problem names its own."""
    verifier_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of that verifier."""
    backend: Backend = "transformers"
    """What generates: transformers, or vllm."""
    dtype: Dtype = "fp32"
    """Precision of weights and computation."""
    device: str = "auto"
    """Where Transformers runs: cpu, cuda:0, ...; auto takes the first GPU, or else the CPU."""
    chat_template: str | None = None
    """Template of all policies: by default the tokenizer's own (or plain, if it has none); plain, or a Jinja file."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the chat templates, such as enable_thinking: false."""
    trust_remote_code: bool = False
    """Run code that comes with a hub model."""
    output_dir: str = "runs/evaluation"
    """Where completions.jsonl, results.json, report.md and rescue.png are written."""
    picture: bool = True
    """Draw the matrix of opportunities for rescue (needs Matplotlib)."""


def evaluate(options: EvaluationOptions, sampling: SamplingOptions) -> dict[str, Any]:
    """Evaluate, and write everything into `output_dir`.

    Returns:
        What results.json holds: `settings`, `problems` (ids), `policies` (for each name its model, its settings hash and
        `scores.policy_figures`), and `agreement` (see `scores.agreement`).

    Raises:
        ValueError: on a mistake of the user's, before any model is loaded wherever it can be seen by then.
        NonFiniteError: if a model's logits are NaN or infinite.
    """
    config = _config(options, sampling)
    if options.picture:
        empty_figure()
    policies = policy_configs(config)
    source = load_problems(options.problems, split=options.split, seed=options.seed, **options.problem_options)
    count = len(source) if options.limit is None else min(options.limit, len(source))
    problems: list[Problem] = [source[i] for i in range(count)]
    check_answers(problems, config.make_verifier())
    device = "vllm" if options.backend == "vllm" else available_devices([options.device])[0]
    evaluation = Evaluation(problems, options.samples, config, options.backend, device)

    output = Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "completions.jsonl"
    stored = read_stored(path)
    keys = {policy.name: settings_hash(evaluation, policy) for policy in policies}
    answered = {}
    with tqdm(total=len(policies) * count * (1 + options.samples), unit="completion", dynamic_ncols=True) as bar:
        for policy in policies:
            bar.set_description(printable(policy.name))
            answered[policy.name] = collect(evaluation, policy, keys[policy.name], stored, path, bar.update)
    results: dict[str, Any] = {
        "settings": {
            **{key: value for key, value in asdict(options).items() if key not in ("output_dir", "picture", "device")},
            **asdict(sampling),
        },
        "problems": [problem.id for problem in problems],
        "policies": {
            policy.name: {
                "model": policy.model_name_or_path,
                "settings": keys[policy.name],
                **policy_figures(answered[policy.name], options.seed),
            }
            for policy in policies
        },
        "agreement": agreement(answered, options.seed),
    }
    (output / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page = "\n\n".join(shown.markdown() for shown in tables(results))
    (output / "report.md").write_text(f"# Evaluation\n\n{page}\n", encoding="utf-8")
    if options.picture and len(policies) > 1:
        draw_rescue(results["agreement"]["rescue"], output / "rescue.png")
    return results


def _config(options: EvaluationOptions, sampling: SamplingOptions) -> TrainingConfig:
    """The same options as a run has them, and checked as there.

    Raises:
        ValueError: naming the field, the value and the remedy.
    """
    if not options.policies:
        raise ValueError("policies is empty; name at least one model")
    for name in ("samples", "limit"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} is too small; give at least 1")
    if options.backend == "vllm" and options.device != "auto":
        raise ValueError(f"device={options.device!r} is not read by vLLM; set CUDA_VISIBLE_DEVICES instead")
    return TrainingConfig(
        model_name_or_path=options.policies,
        dtype=(options.dtype,),
        chat_template=(options.chat_template,),
        chat_template_kwargs=options.chat_template_kwargs,
        trust_remote_code=options.trust_remote_code,
        verifier=options.verifier,
        verifier_options=options.verifier_options,
        seed=options.seed,
        **asdict(sampling),
    )


def parse(arguments: Sequence[str]) -> tuple[EvaluationOptions, SamplingOptions]:
    """The options of the command line.

    Raises:
        SystemExit: on an unknown or missing flag, or after `--help`.
    """
    sections: list[tuple[str, Any, Any]] = [
        ("evaluation", EvaluationOptions, field()),
        ("sampling", SamplingOptions, field(default_factory=SamplingOptions)),
    ]
    parsed: Any = tyro.cli(
        make_dataclass("Run", sections),
        prog="python -m benchmarks.evaluate",
        description=(__doc__ or "").strip(),
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes,),
        registry=mapping_registry(),
        use_underscores=True,
    )
    return parsed.evaluation, parsed.sampling


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, 2 after a mistake of the user's, 1 if a model broke off, 130 after an interruption."""
    options, sampling = parse(sys.argv[1:] if arguments is None else arguments)
    transformers_logging.disable_progress_bar()
    try:
        results = evaluate(options, sampling)
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    except NonFiniteError as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    print("\n\n".join(shown.plain() for shown in tables(results)))
    print(f"\ncompletions, results.json, report.md: {options.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
