"""The plan against what a run takes: `python -m benchmarks.plan --models MODEL MODEL`.

Each model trains by itself, in a process of its own; its peak memory and the time of a step are compared with what the plan of
the same run says. Times are compared between models, since the plan's seconds are no more than an order of magnitude.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from algorithms.devices import make_plan
from algorithms.tracking import table
from benchmarks.throughput.__main__ import machine, run
from benchmarks.throughput.contenders import our_config
from benchmarks.throughput.workload import Workload

MEMORY, TIME = 0.25, 0.3
"""Bounds: how far an estimate may be from the measurement, as a share of it."""


@dataclass(frozen=True)
class Comparison:
    """One process.

    Attributes:
        name: of the model and the setting.
        expected_bytes, measured_bytes: at the peak.
        expected_seconds, measured_seconds: of rollout and update.
    """

    name: str
    expected_bytes: int
    measured_bytes: int
    expected_seconds: tuple[float, float]
    measured_seconds: tuple[float, float]


def compare(name: str, workload: Workload, steps: int) -> Comparison:
    """Plan a workload of one model, and run it."""
    plan = make_plan(our_config(workload, steps, Path()))
    [placement] = plan.placements
    [placement] = plan.placements
    room = placement.learner.devices[0].node, placement.device
    measured = run("ours", workload, steps)
    return Comparison(
        name,
        plan.load(room),
        measured.peak_bytes,
        (placement.rollout.seconds, placement.learner.seconds),
        (measured.parts["generate"], measured.parts["update"]),
    )


def deviation(expected: float, measured: float) -> float:
    """How far the estimate is from the measurement, as a share of the measurement.

    Example:
        >>> deviation(3.0, 4.0)
        -0.25
    """
    return expected / measured - 1


def memory_table(found: Sequence[Comparison]) -> str:
    """Peak memory of every process."""
    rows = []
    for c in found:
        off = deviation(c.expected_bytes, c.measured_bytes)
        rows.append(
            (c.name, f"{c.expected_bytes / 1e9:.2f} GB", f"{c.measured_bytes / 1e9:.2f} GB", _judged(off, MEMORY))
        )
    return table(("peak memory", "plan", "measured", f"off, within {MEMORY:.0%}"), rows)


def time_table(found: Sequence[Comparison]) -> str:
    """Ratios of the times of two models' steps, which are to be within the bound, and of their parts, which are not."""
    rows = []
    for first, second in combinations(found, 2):
        for part, places in (("step", (0, 1)), ("rollout", (0,)), ("update", (1,))):
            expected = sum(second.expected_seconds[i] for i in places) / sum(first.expected_seconds[i] for i in places)
            measured = sum(second.measured_seconds[i] for i in places) / sum(first.measured_seconds[i] for i in places)
            # Twice as much and half as much are equally wrong.
            off = max(deviation(expected, measured), deviation(measured, expected))
            judged = _judged(off, TIME) if part == "step" else f"{off:+.0%}"
            rows.append((f"{part}: {second.name} / {first.name}", f"{expected:.3g}", f"{measured:.3g}", judged))
    return table(("relative time", "plan", "measured", f"off, within {TIME:.0%}"), rows)


def _judged(off: float, bound: float) -> str:
    return f"{off:+.0%}{'' if abs(off) <= bound else ' (missed)'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", nargs="+", default=["tiny-llama", "tiny-qwen3"], help="hub ids, folders, .gguf files"
    )
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--problems", type=int, default=4, help="prompts of a step (default: 4)")
    parser.add_argument("--tokens", type=int, default=48, help="of a completion, at most (default: 48)")
    parser.add_argument(
        "--steps", type=int, default=1, help="measured steps of a process, after one to warm up (default: 1)"
    )
    parser.add_argument("--offload", action="store_true", help="also with offload_optimizer")
    options = parser.parse_args(arguments)
    shape = Workload(model=(), problems=options.problems, tokens=options.tokens, dtype=options.dtype)
    plain, offloaded = [], []
    for model in options.models:
        workload = replace(shape, model=(model,))
        plain.append(compare(Path(model).stem, workload, options.steps))
        if options.offload:
            offloaded.append(compare(f"{Path(model).stem}, offloaded", replace(workload, offload=True), options.steps))
    print(f"{machine()}\n{options.problems} prompts, 8 completions of {options.tokens} tokens, {options.dtype}\n")
    print(memory_table([*plain, *offloaded]))
    if len(plain) > 1:
        seconds = ", ".join(
            f"{c.name} {sum(c.expected_seconds):.3g} s and {sum(c.measured_seconds):.3g} s" for c in plain
        )
        print(f"\n{time_table(plain)}\n\na step, plan and measured: {seconds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
