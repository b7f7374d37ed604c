"""Completions and their verdicts: from the models, or from the file where an earlier run left them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import verifiers
from algorithms.config import PolicyConfig, TrainingConfig
from algorithms.evaluation import Answerer, Answers, answer
from algorithms.policy import (
    is_model_folder,
    load_model_config,
    load_policy,
    load_renderer,
    load_tokenizer,
    model_folders,
    model_source,
    read_template,
)
from algorithms.tracking import append_jsonl, truncate
from benchmarks.evaluate.scores import Answered, Spoken
from benchmarks.evaluate.vllm import VllmPolicy
from benchmarks.report import short_names
from mrl_env.types import Problem

Backend = Literal["transformers", "vllm"]

_HASHED_SUFFIXES = {".json", ".safetensors", ".bin", ".jinja", ".model"}
"""Files of a model's folder that decide what it says."""


@dataclass(frozen=True)
class Evaluation:
    """What is asked of every policy, and how.

    Attributes:
        problems: M problems.
        samples: k sampled completions of each, beside the greedy one.
        config: sampling, seed, verifier and batch size; the models are not taken from it.
        backend: what generates.
        device: where Transformers runs.
    """

    problems: Sequence[Problem]
    samples: int
    config: TrainingConfig
    backend: Backend
    device: str

    @property
    def batches(self) -> list[range]:
        """Problems that are answered, judged and stored together: as many as fill one batch of rows."""
        size = max(1, self.config.generation_batch_size // self.samples)
        return [range(i, min(i + size, len(self.problems))) for i in range(0, len(self.problems), size)]


def policy_configs(config: TrainingConfig) -> list[PolicyConfig]:
    """The policies to evaluate under short names; a checkpoint of a run stands for all of its policies.

    Raises:
        ValueError: if a policy is named twice, or model, tokenizer or template of one cannot be loaded.
    """
    template = config.policies()[0]
    models = [model for name in config.model_name_or_path for model in _models_in(name)]
    if len(set(models)) < len(models):
        twice = next(model for model in models if models.count(model) > 1)
        raise ValueError(f"policies names {twice!r} twice; name each model once")
    names = short_names([Path(model) for model in models])
    policies = [
        replace(template, name=name, model_name_or_path=model) for name, model in zip(names, models, strict=True)
    ]
    for policy in policies:
        load_model_config(policy)
        load_renderer(policy, load_tokenizer(policy))
    return policies


def _models_in(name: str) -> list[str]:
    """The folders of models and adapters in a checkpoint of a run; else the name itself."""
    folder = Path(name)
    if not folder.is_dir() or is_model_folder(folder):
        return [name]
    return model_folders(folder) or [name]


def settings_hash(evaluation: Evaluation, policy: PolicyConfig) -> str:
    """Twelve hexadecimal digits that depend on all that decides a policy's completions and verdicts.

    Model folders count by content. A hub id counts by name, since its files are not at hand before they are loaded.
    """
    config = evaluation.config
    decisive = {
        "model": _fingerprint(model_source(policy.model_name_or_path)),
        "dtype": policy.dtype,
        "template": read_template(policy.chat_template),
        "template_kwargs": dict(policy.chat_template_kwargs),
        "problems": [asdict(problem) for problem in evaluation.problems],
        "samples": evaluation.samples,
        "sampling": asdict(config.sampling()),
        "generation_batch_size": config.generation_batch_size,
        "seed": config.seed,
        "verifier": config.verifier,
        "verifier_options": dict(config.verifier_options),
        "backend": evaluation.backend,
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _fingerprint(source: str) -> str:
    folder = Path(source)
    if not folder.is_dir():
        return source
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in _HASHED_SUFFIXES):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def load_answerer(evaluation: Evaluation, policy: PolicyConfig) -> Answerer:
    """The model, ready to answer.

    Raises:
        ValueError: if it cannot be loaded, or a prompt does not fit its context.
    """
    if evaluation.backend == "vllm":
        return VllmPolicy(policy)
    loaded = load_policy(policy, evaluation.device)
    for problem in evaluation.problems:
        prompt = loaded.renderer.token_ids(problem.messages)
        loaded.check_prompt(prompt, evaluation.config.max_completion_length)
    return loaded


Line = dict[str, Any]
"""One completion in completions.jsonl."""

Stored = dict[tuple[str, int], list[Line]]
"""Lines without texts and tokens, by settings hash and number of the batch."""


def read_stored(path: Path) -> Stored:
    """What is in completions.jsonl. A last batch that was not written to its end is cut off.

    Raises:
        ValueError: if the file holds anything else, naming the line.
    """
    stored: Stored = {}
    if not path.exists():
        return stored
    whole = position = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                line = json.loads(raw)
                batch = stored.setdefault((line["settings"], line["batch"]), [])
                batch.append(_light(line))
                if len(batch) > line["batch_size"]:
                    raise ValueError("two evaluations wrote its batch")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}, line {number}, is no completion of an evaluation ({error!r}); move the file away, or choose "
                    "another output_dir"
                ) from error
            position += len(raw)
            if len(batch) == line["batch_size"]:
                whole = position
    truncate(path, whole)
    return {key: lines for key, lines in stored.items() if len(lines) == lines[0]["batch_size"]}


def _light(line: Line) -> Line:
    return {key: value for key, value in line.items() if key not in ("text", "token_ids")}


def collect(
    evaluation: Evaluation,
    policy: PolicyConfig,
    key: str,
    stored: Stored,
    path: Path,
    progress: Callable[[int], None],
) -> list[Answered]:
    """A policy's completions of all problems; those that are not stored are generated and appended batch by batch.

    Args:
        evaluation: what is asked.
        policy: who answers; loaded only if something is missing.
        key: the policy's settings hash.
        stored: what is at hand; what is generated comes to it.
        path: completions.jsonl.
        progress: called with the number of completions just obtained.

    Raises:
        ValueError: if the model cannot be loaded or a prompt does not fit.
        NonFiniteError: if its logits are NaN or infinite.
    """
    config, verifier = evaluation.config, evaluation.config.make_verifier()
    answerer: Answerer | None = None
    answered: list[Answered] = []
    for b, indices in enumerate(evaluation.batches):
        problems = [evaluation.problems[i] for i in indices]
        if (key, b) in stored:
            progress(len(stored[key, b]))
        else:
            answerer = answerer or load_answerer(evaluation, policy)
            said = answer(
                answerer, problems, config.sampling(), evaluation.samples, config.seed, verifier,
                config.generation_batch_size, progress,
            )  # fmt: skip
            lines = [line for one in said for line in _lines(one)]
            head = {"settings": key, "policy": policy.name, "batch": b, "batch_size": len(lines)}
            append_jsonl(path, [{**head, **line} for line in lines])
            stored[key, b] = [_light(line) for line in lines]
        answered += _answered(problems, stored[key, b])
    return answered


def _lines(answers: Answers) -> list[Line]:
    """One line per completion; `sample` is 0 for the greedy one, then 1 to k."""
    metadata = answers.problem.metadata
    return [
        {
            "problem": answers.problem.id,
            **{key: metadata[key] for key in ("subject", "level") if key in metadata},
            "sample": sample,
            "text": completion.text,
            "token_ids": completion.token_ids,
            "tokens": len(completion.token_ids),
            "finish_reason": completion.finish_reason,
            "score": verdict.score,
            "extracted": verdict.extracted,
            "reason": verdict.reason,
        }
        for sample, (completion, verdict) in enumerate(zip(answers.completions, answers.verdicts, strict=True))
    ]


def _answered(problems: Sequence[Problem], lines: Sequence[Line]) -> list[Answered]:
    """The lines of a batch, which stand problem by problem, the greedy completion first."""
    spoken = [
        Spoken(
            verifiers.Verdict(line["score"], line["extracted"], line["reason"]), line["tokens"], line["finish_reason"]
        )
        for line in lines
    ]
    each = len(lines) // len(problems)
    groups = [spoken[i : i + each] for i in range(0, len(spoken), each)]
    return [Answered(problem, group[0], tuple(group[1:])) for problem, group in zip(problems, groups, strict=True)]
