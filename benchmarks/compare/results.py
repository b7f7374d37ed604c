"""Reading `results.json`: what the claims, the tables and the figures take from it, always paired and by policy.

A run is one entry of `results["runs"]`. A *measure* makes one number of a run and a policy (or the pool), None where there is
none. A *warm start* is a pool in the file's sense: the models with which runs begin.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.compare.methods import METHODS
from benchmarks.statistics import Array, area_under_curve

Results: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Mapping[str, Any]
Measure: TypeAlias = Callable[[Run, str], float | None]

SCHEMA = 1
POOL = "pool"
"""Stands for the mean of a run's policies wherever a policy may be named; no policy may be called so."""

CURVES = ("reward", "mean", "kl", "entropy")
"""Curves that every policy of every run has: greedy reward@1, mean@k, KL to the start and entropy in nats per token."""

HEAVY = ("exchange/ratio_mean", "exchange/ratio_variance")
"""Training metrics with so heavy a tail (one step can hold a million times the others) that medians are taken over steps."""


def load(path: Path) -> Results:
    """Read and check a file.

    Raises:
        ValueError: if it is no JSON, or `check` objects.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    try:
        check(results)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    found: Results = results
    return found


KEYS = ("study", "baseline", "settings", "pools", "planned", "missing", "runs")
RUN_KEYS = ("method", "pool", "seed", "policies")
MISSING_KEYS = ("method", "pool", "seed", "steps", "reason")
"""What results, each of their runs, and each run that they lack must say."""


def check(results: Results) -> None:
    """See that results are complete and comparable.

    Raises:
        ValueError: for another schema, no runs, something left out, two runs of one cell, a run without its pool, different
            evaluation steps, a curve that is too short or not finite, or another number of runs than planned.
    """
    if not isinstance(results, Mapping) or results.get("schema") != SCHEMA:
        found = results.get("schema") if isinstance(results, Mapping) else type(results).__name__
        raise ValueError(f"schema={found!r}, but {SCHEMA} is read here; collect the runs again")
    _require(results, KEYS, "the results")
    if not results["runs"]:
        raise ValueError("runs is empty: no run of the grid is done")
    for pool, found in results["pools"].items():
        _require(found, ("problems",), f"pools.{pool}")
    for index, lost in enumerate(results["missing"]):
        _require(lost, MISSING_KEYS, f"missing[{index}]")
    for index, run in enumerate(results["runs"]):
        _require(run, RUN_KEYS, f"runs[{index}]")
        for policy, data in run["policies"].items():
            _require(data, ("steps",), f"runs[{index}].policies.{policy}")
    seen = set()
    for run in results["runs"]:
        cell = (run["method"], run["pool"], run["seed"])
        name = f"run {cell[0]} of {cell[1]}, seed {cell[2]}"
        if cell in seen:
            raise ValueError(f"{name} is there twice; keep the one whose settings the study has")
        seen.add(cell)
        if run["pool"] not in results["pools"]:
            raise ValueError(f"{name}: pools has no {run['pool']!r}")
        for policy, data in run["policies"].items():
            if data["steps"] != steps(results):
                raise ValueError(f"{name}, {policy}: evaluated at {data['steps']}, others at {steps(results)}")
            for key in CURVES:
                values = data.get(key, [])
                if len(values) != len(data["steps"]) or not all(_is_finite(value) for value in values):
                    raise ValueError(f"{name}, {policy}: {key}={values} is not one finite number per evaluation")
    there = len(results["runs"]) + len(results["missing"])
    if there != results["planned"]:
        raise ValueError(f"planned={results['planned']}, but {there} runs are done or missing; collect the runs again")


def _require(values: object, keys: Sequence[str], where: str) -> None:
    """See that there is a mapping with these keys.

    Raises:
        ValueError: naming those that are missing.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} is {type(values).__name__}, but should have {', '.join(keys)}")
    if missing := [key for key in keys if key not in values]:
        raise ValueError(f"no {', '.join(missing)} in {where}; collect the runs again")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# What there is ----------------------------------------------------------------------------------------------------------


def steps(results: Results) -> list[int]:
    """Training steps at which every policy of every run was evaluated."""
    found: list[int] = next(iter(results["runs"][0]["policies"].values()))["steps"]
    return found


def methods(results: Results) -> list[str]:
    """Methods with runs, as `in_order`."""
    return in_order(results, {run["method"] for run in results["runs"]})


def in_order(results: Results, present: set[str]) -> list[str]:
    """Methods: the baseline, then in the order of `METHODS`, then others by name."""
    known = [name for name in METHODS if name in present]
    ordered = [results["baseline"], *known, *sorted(present - set(METHODS))]
    return [name for name in dict.fromkeys(ordered) if name in present]


def title(method: str) -> str:
    """A method's name for people."""
    return METHODS[method].title if method in METHODS else method


def policies(results: Results) -> list[str]:
    """All policies' names, in order of first appearance."""
    return list(dict.fromkeys(policy for run in results["runs"] for policy in run["policies"]))


def pools(results: Results) -> list[str]:
    """Warm starts with runs, in the file's order."""
    present = {run["pool"] for run in results["runs"]}
    return [name for name in results["pools"] if name in present]


def runs_of(results: Results, method: str) -> list[Run]:
    """A method's runs."""
    return [run for run in results["runs"] if run["method"] == method]


def broken(results: Results, method: str) -> list[Run]:
    """The entries of a method's runs that broke off; those that are merely not finished have no reason."""
    return [lost for lost in results["missing"] if lost["method"] == method and lost["reason"] is not None]


def held_out(results: Results) -> int:
    """Number of held-out problems, the smallest of all warm starts."""
    return min(int(results["pools"][pool]["problems"]) for pool in pools(results))


def subjects(results: Results) -> list[str]:
    """All subjects by name."""
    data = [data for run in results["runs"] for data in run["policies"].values()]
    return sorted({subject for policy in data for subject in policy.get("subjects", {})})


def weakest(results: Results, pool: str) -> str:
    """The policy of a warm start that begins with the lowest mean@k, the first of equals."""
    run = next(run for run in results["runs"] if run["pool"] == pool)
    names: list[str] = list(run["policies"])
    return min(names, key=lambda policy: float(run["policies"][policy]["mean"][0]))


# Curves and measures ----------------------------------------------------------------------------------------------------


def curve(run: Run, policy: str, key: str) -> Array | None:
    """(evaluations,) values of a policy, or the mean over policies for `POOL`.

    Args:
        run: of which.
        policy: name or `POOL`.
        key: of `CURVES`, or `subjects/NAME`.

    Returns:
        None if the run has no such policy or the policy no such curve.
    """
    names = list(run["policies"]) if policy == POOL else [policy]
    group, _, subject = key.partition("/")
    found = []
    for name in names:
        data = run["policies"].get(name, {}).get(group)
        data = data.get(subject) if subject and data is not None else data
        if data is not None:
            found.append(np.array(data, dtype=np.float64))
    return np.mean(found, axis=0) if found else None


def training(run: Run, policy: str, key: str, ends: Sequence[int]) -> Array | None:
    """A training metric by stretches of training.

    Args:
        run, policy: as for `curve`.
        key: for example `exchange/rescue_rate`.
        ends: steps e_0 < e_1 < ...; stretch i holds the training steps in (e_i, e_{i+1}].

    Returns:
        (len(ends) - 1,): the median within a stretch of metrics in `HEAVY` and the mean of others; NaN
        where a stretch has no value. For `POOL` the mean over the policies that have it. None where nobody has it.
    """
    names = list(run["policies"]) if policy == POOL else [policy]
    middle = np.median if key in HEAVY else np.mean
    rows = []
    for name in names:
        train = run["policies"].get(name, {}).get("train", {})
        if key not in train:
            continue
        pairs = [(step, value) for step, value in zip(train["steps"], train[key], strict=True) if value is not None]
        stretches = [[value for step, value in pairs if low < step <= high] for low, high in pairwise(ends)]
        rows.append([float(middle(stretch)) if stretch else math.nan for stretch in stretches])
    return np.mean(np.array(rows), axis=0) if rows else None


def final(key: str) -> Measure:
    """The last value of a curve."""

    def measure(run: Run, policy: str) -> float | None:
        values = curve(run, policy, key)
        return None if values is None else float(values[-1])

    return measure


def area(key: str) -> Measure:
    """The mean height of a curve over the training steps (trapezoid); the last value if there is but one."""

    def measure(run: Run, policy: str) -> float | None:
        values = curve(run, policy, key)
        if values is None:
            return None
        at = next(iter(run["policies"].values()))["steps"]
        return area_under_curve(at, values) if len(values) > 1 else float(values[-1])

    return measure


def fall(key: str) -> Measure:
    """How far the last value of a curve lies below its best."""

    def measure(run: Run, policy: str) -> float | None:
        values = curve(run, policy, key)
        return None if values is None else float(values.max() - values[-1])

    return measure


def trained(key: str) -> Measure:
    """The mean of a training metric over all steps (the median of those in `HEAVY`); see `training`."""

    def measure(run: Run, policy: str) -> float | None:
        values = training(run, policy, key, (-1, max(steps_trained(run))))
        return None if values is None or math.isnan(values[0]) else float(values[0])

    return measure


def steps_trained(run: Run) -> list[int]:
    """The training steps that a run recorded; [0] if none."""
    return [step for data in run["policies"].values() for step in data.get("train", {}).get("steps", [])] or [0]


def unreachable(run: Run, policy: str) -> float | None:
    """Final mean@k on the problems that the starting policy never solved in its samples and a peer did."""
    names = list(run["policies"]) if policy == POOL else [policy]
    found = [run["policies"].get(name, {}).get("unreachable") for name in names]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if values else None


def of_weakest(results: Results, measure: Measure) -> Measure:
    """A measure of each warm start's weaker policy, whichever is asked for."""
    weak = {pool: weakest(results, pool) for pool in pools(results)}
    return lambda run, policy: measure(run, weak[run["pool"]])


# Grouping and pairing ---------------------------------------------------------------------------------------------------


def values(results: Results, method: str, policy: str, measure: Measure) -> dict[str, dict[int, float]]:
    """A method's values by warm start and seed; warm starts without any are left out."""
    found: dict[str, dict[int, float]] = {}
    for run in runs_of(results, method):
        value = measure(run, policy)
        if value is not None:
            found.setdefault(run["pool"], {})[run["seed"]] = value
    return {pool: dict(sorted(found[pool].items())) for pool in pools(results) if pool in found}


def groups(by_pool: Mapping[str, Mapping[int, float]]) -> list[Array]:
    """The values of each warm start, for `benchmarks.statistics`."""
    return [np.array(list(seeds.values())) for seeds in by_pool.values()]


def paired(
    results: Results,
    method: str,
    against: str,
    policy: str,
    measure: Measure,
    scale: Callable[[float], float] = float,
) -> dict[str, dict[int, float]]:
    """Differences of two methods' values with the same warm start and seed.

    Args:
        results: of a study.
        method, against: X and Y of X - Y.
        policy: name or `POOL`.
        measure: of each run.
        scale: applied before subtracting; `math.log` makes ratios of the differences.

    Returns:
        By warm start and seed; what has no partner is left out.
    """
    x, y = values(results, method, policy, measure), values(results, against, policy, measure)
    pairs = {
        pool: {seed: scale(x[pool][seed]) - scale(y[pool][seed]) for seed in x[pool] if seed in y.get(pool, {})}
        for pool in x
    }
    return {pool: seeds for pool, seeds in pairs.items() if seeds}
