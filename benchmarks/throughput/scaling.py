"""How a step grows with completions, their length and policies: `python -m benchmarks.throughput.scaling --model MODEL`.

One prompt a step, rewards that leave no group without a gradient. Prints a table and, with `--picture`, draws it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from algorithms.precision import warn_if_slow
from algorithms.tracking import table
from benchmarks.pictures import empty_figure
from benchmarks.throughput.__main__ import machine, run
from benchmarks.throughput.contenders import default_device, default_dtype
from benchmarks.throughput.workload import Workload

AXES: dict[str, tuple[int, ...]] = {
    "completions of a prompt": (4, 8, 16, 32, 64),
    "tokens of a completion": (32, 64, 128, 256, 512),
    "policies": (1, 2, 3, 4),
}


def workload(axis: str, value: int, model: str, dtype: str) -> Workload:
    """The workload at one point of an axis; elsewhere eight completions of 64 tokens by one policy."""
    base = Workload(model=(model,), problems=1, dtype=dtype)
    if axis == "policies":
        return replace(base, model=(model,) * value)
    return replace(base, generations=value) if axis == "completions of a prompt" else replace(base, tokens=value)


def measure(model: str, dtype: str, steps: int) -> dict[str, dict[int, tuple[float, float]]]:
    """For each axis and value the seconds of a step and the gigabytes of the process."""
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for axis, values in AXES.items():
        found[axis] = {}
        for value in values:
            measured = run("ours", workload(axis, value, model, dtype), steps)
            found[axis][value] = median(measured.seconds), measured.peak_bytes / 1e9
            print(f"{axis}, {value}: {found[axis][value][0]:.2f} s", file=sys.stderr)
    return found


def show(found: Mapping[str, Mapping[int, tuple[float, float]]]) -> str:
    """A table per axis: seconds, seconds for each unit, gigabytes."""
    return "\n\n".join(
        table((axis, "s a step", "ms for each", "GB"), [
            (str(value), f"{seconds:.2f}", f"{1000 * seconds / value:.1f}", f"{memory:.2f}")
            for value, (seconds, memory) in points.items()
        ])
        for axis, points in found.items()
    )  # fmt: skip


def draw(found: Mapping[str, Mapping[int, tuple[float, float]]], title: str, path: Path) -> None:
    """One panel per axis, with the line of proportional growth from its first point."""
    figure = empty_figure(4 * len(found), 3.4)
    from matplotlib.ticker import LogLocator

    panels = figure.subplots(1, len(found))
    for panel, (axis, points) in zip(panels, found.items(), strict=True):
        values, seconds = list(points), [second for second, _ in points.values()]
        panel.plot(values, seconds, "o-", label="measured")
        panel.plot(
            values, [seconds[0] * value / values[0] for value in values], ":", color="gray", label="proportional"
        )
        panel.set(xlabel=axis, ylabel="seconds a step", xscale="log", yscale="log", xticks=values)
        panel.set_xticklabels(map(str, values))
        # By default a panel that spans less than a power of ten would have no number at all.
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(title)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput.scaling", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--model", default="tiny-llama", help="hub id, folder, .gguf file or embedded model")
    parser.add_argument(
        "--dtype",
        choices=["fp32", "bf16"],
        default=default_dtype(),
        help="default: bf16, unless this CPU is slow in it",
    )
    parser.add_argument("--steps", type=int, default=2, help="measured steps, after one to warm up (default: 2)")
    parser.add_argument("--picture", type=Path, help="also draw it into this file (.svg, .png); needs matplotlib")
    options = parser.parse_args(arguments)
    if options.picture:
        empty_figure()  # before the work
    warn_if_slow(options.dtype, default_device())
    found = measure(options.model, options.dtype, options.steps)
    print(f"{machine()}\n\n{show(found)}")
    if options.picture:
        draw(found, f"{Path(options.model).stem}, {options.dtype}, one prompt a step", options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
