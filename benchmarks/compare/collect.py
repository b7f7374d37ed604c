"""From runs to results: one `results.json` from which all tables and figures are made, and one TensorBoard folder.

{"schema": 1, "study": "tiny", "command": ..., "commit": at collecting, "versions": {...}, "machine": {...},
 "settings": {...},                                    what all methods share
 "baseline": "grpo",
 "planned": number of runs of the grid,
 "missing": [{"method": "sgt", "pool": "tiny", "seed": 1, "steps": done so far,
              "reason": why it broke off, or null if it has only not got there}],
 "pools": {"tiny": {"policies": ["policy_0", ...], "models": {"policy_0": {"model": ..., "sha256": ...}},
                    "problems": number of held-out ones, "same_tokenizer": whether all policies have one,
                    "start": {"policy_0": {"unreachable": [ids of problems only a peer ever solves at the start],
                                           "reward": ..., "reach": share of problems it ever solves}}}},
 "runs": [{"method": "sgt", "pool": "tiny", "seed": 0, "hash": ..., "seconds": in training steps,
           "commits": [of the code, whenever the run was begun or gone on with], null if it kept no record of that,
           "policies": {"policy_0": {
               "steps": [0, 20, ...], and for each of them, on held-out problems:
               "reward": [...] greedy, "mean": [...] mean@k, "pass": [...] pass@k, "kl": [...] to the start and
               "entropy": [...] in nats per token, "subjects": {"poly": [...] mean@k},
               "unreachable": final mean@k on those problems, or null if there are none,
               "train": {"steps": [2, 4, ...], "reward": [...], ...}}}}]}

Training curves have at most 50 points of four digits, each the mean of as many steps (the median of those in `HEAVY`), of which
the last is named; null where none of them has such a number.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from algorithms.config import PolicyConfig
from algorithms.policy import load_tokenizer
from algorithms.tracking import POOL, read_jsonl
from benchmarks.compare.grid import Cell, Study
from benchmarks.compare.measure import Measurement
from benchmarks.compare.pools import content_hash, short_name
from benchmarks.compare.results import HEAVY, SCHEMA
from benchmarks.compare.run import commit

TRAIN_KEYS = (
    "reward",
    "frac_reward_zero_std",
    "entropy",
    "completions/mean_length",
    "exchange/peer_rows",
    "exchange/rescue_rate",
    "exchange/drop_rate",
    "exchange/ratio_mean",
    "exchange/ratio_variance",
    "exchange/effective_sample_size",
    "clip_ratio/region_mean",
    "grad_norm",
)
"""Training metrics that are kept; a policy lacks those that it never had."""

MOST_POINTS = 50
"""Points of a training curve, at most."""

_APART = (
    "model_name_or_path", "algorithm", "seed", "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "device",
    "placement", "save_steps", "save_total_limit", "exchange_log",
)  # fmt: skip
"""Settings that differ between runs, or say only where something is kept."""


def collect(study: Study, cells: Sequence[Cell], command: str) -> dict[str, Any]:
    """The results of all runs that are done; see above for the format.

    Args:
        study: what was compared.
        cells: its runs.
        command: that made them.
    """
    reasons = [(cell, broke_off(cell)) for cell in cells]
    done = [cell for cell, reason in reasons if cell.done and reason is None]
    first = cells[0].job.measurement
    settings = {key: value for key, value in first.config.to_dict().items() if key not in _APART}
    pools = {cell.pool.name: cell for cell in done}
    return {
        "schema": SCHEMA,
        "study": study.name,
        "command": command,
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "settings": {**settings, "kl_problems": first.kl_problems, "reach_samples": first.reach_samples},
        "baseline": "grpo",
        "planned": len(cells),
        "missing": [
            {"method": cell.method, "pool": cell.pool.name, "seed": cell.seed, "steps": cell.steps(), "reason": reason}
            for cell, reason in reasons
            if not cell.done or reason is not None
        ],
        "pools": {name: _pool(cell) for name, cell in pools.items()},
        "runs": [_run(cell) for cell in done],
    }


def write_tensorboard(cells: Sequence[Cell], output: Path) -> None:
    """Copy the runs' event files to `output/POOL/METHOD-seedK/POLICY`, where methods and policies overlay.

    What another grid left there is removed.
    """
    shutil.rmtree(output, ignore_errors=True)
    for cell in cells:
        if cell.done:
            shutil.copytree(cell.folder / "tensorboard", output / cell.pool.name / f"{cell.method}-seed{cell.seed}")


def broke_off(cell: Cell) -> str | None:
    """Why a run has no result, ever; None if it has one, or is only not finished."""
    if not cell.done:
        return cell.failed
    for line in read_jsonl(cell.folder / "metrics.jsonl"):
        # What is not finite is there as text.
        if wrong := [key for key, value in line.items() if key.startswith("eval/") and isinstance(value, str)]:
            return f"at step {line['step']} {line['policy']} has no finite {', '.join(wrong)}"
    return None


def same_tokenizer(policies: Sequence[PolicyConfig]) -> bool:
    """Whether all policies have one tokenizer: vocabulary, rules and special tokens, however their files are written."""

    def content(policy: PolicyConfig) -> Any:
        tokenizer = load_tokenizer(policy)
        pipeline = json.loads(tokenizer.backend_tokenizer.to_str())
        # How batches are cut and filled is no matter of how text becomes tokens.
        return {**pipeline, "truncation": None, "padding": None}, tokenizer.eos_token_id

    first, *others = map(content, policies)
    return all(other == first for other in others)


def _pool(cell: Cell) -> dict[str, Any]:
    """A pool's models, and what its policies can reach at the start."""
    start = json.loads((cell.job.start / "start.json").read_text(encoding="utf-8"))
    policies = cell.job.config.policies()
    return {
        "problems": len(next(iter(start["reach"].values()))),
        "same_tokenizer": same_tokenizer(policies),
        "policies": [policy.name for policy in policies],
        "models": {
            policy.name: {
                "model": short_name(policy.model_name_or_path),
                "sha256": content_hash(policy.model_name_or_path),
            }
            for policy in policies
        },
        "start": {
            name: {
                "unreachable": problems,
                "reward": start["evaluation"][name]["reward"],
                "reach": sum(number > 0 for number in start["reach"][name].values()) / len(start["reach"][name]),
            }
            for name, problems in start["unreachable"].items()
        },
    }


def _run(cell: Cell) -> dict[str, Any]:
    """One run's curves."""
    lines = read_jsonl(cell.folder / "metrics.jsonl")
    final = json.loads((cell.folder / "final.json").read_text(encoding="utf-8"))
    start = json.loads((cell.job.start / "start.json").read_text(encoding="utf-8"))
    commits = cell.folder / "commit.txt"
    return {
        "method": cell.method,
        "pool": cell.pool.name,
        "seed": cell.seed,
        "hash": cell.hash,
        "commits": list(dict.fromkeys(commits.read_text(encoding="utf-8").split())) if commits.is_file() else None,
        "seconds": sum(
            line["train/step_time"] for line in lines if line["policy"] == POOL and "train/step_time" in line
        ),
        "policies": {
            policy.name: policy_curves(
                [line for line in lines if line["policy"] == policy.name],
                cell.job.measurement,
                final[policy.name],
                start["unreachable"][policy.name],
            )
            for policy in cell.job.config.policies()
        },
    }


def policy_curves(
    lines: Sequence[Mapping[str, Any]], how: Measurement, final: Mapping[str, float], beyond: Sequence[str]
) -> dict[str, Any]:
    """One policy's curves, as `results.json` has them.

    Args:
        lines: the policy's records in `metrics.jsonl`.
        how: it was measured.
        final: final score of each held-out problem.
        beyond: ids of the problems that only a peer could reach at the start.
    """
    k = how.config.eval_samples
    evaluated = [line for line in lines if "eval/reward" in line]
    trained = [line for line in lines if "train/reward" in line]

    def curve(key: str) -> list[float]:
        return [line[f"eval/{key}"] for line in evaluated]

    subjects = [key for key in evaluated[0] if key.startswith("eval/subject/")]
    series = {
        key: thinned([_number(line.get(f"train/{key}")) for line in trained], median if key in HEAVY else fmean)
        for key in TRAIN_KEYS
    }
    return {
        "steps": [line["step"] for line in evaluated],
        "reward": curve("reward"),
        "mean": curve(f"mean@{k}" if k else "reward"),
        "pass": curve(f"pass@{k}" if k else "reward"),
        "kl": curve("kl"),
        "entropy": curve("entropy"),
        "subjects": {key.removeprefix("eval/subject/"): [line[key] for line in evaluated] for key in subjects},
        "unreachable": sum(final[problem] for problem in beyond) / len(beyond) if beyond else None,
        "train": {
            "steps": [window[-1]["step"] for window in windows(trained)],
            **{key: values for key, values in series.items() if any(value is not None for value in values)},
        },
    }


def windows(steps: Sequence[Any]) -> list[Sequence[Any]]:
    """Steps in at most `MOST_POINTS` stretches of one length; the last may be shorter."""
    size = max(1, math.ceil(len(steps) / MOST_POINTS))
    return [steps[i : i + size] for i in range(0, len(steps), size)]


def thinned(values: Sequence[float | None], middle: Callable[[Sequence[float]], float]) -> list[float | None]:
    """A curve by `windows`, in four digits.

    Args:
        values: one per step, or None.
        middle: of the values in a window.
    """
    known = [[value for value in window if value is not None] for window in windows(values)]
    return [float(f"{middle(window):.4g}") if window else None for window in known]


def _number(value: float | str | None) -> float | None:
    """A finite number, or None: JSON has no others, and the records hold them as text."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def versions() -> dict[str, str]:
    """Of the packages that decide numbers."""
    packages = ("torch", "transformers", "tokenizers", "numpy")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def machine() -> dict[str, Any]:
    """What the grid ran on."""
    return {
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
