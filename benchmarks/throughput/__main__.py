"""Run the contenders in turn and print the table: `python -m benchmarks.throughput --against trl`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from algorithms.precision import warn_if_slow
from algorithms.tracking import table
from benchmarks.files import replace_file
from benchmarks.throughput.contenders import Measurement, default_device, default_dtype
from benchmarks.throughput.workload import Workload


@dataclass(frozen=True)
class Contest:
    """Contenders that take turns.

    Attributes:
        name: what is compared.
        entries: for each contender its label, its kind (see `contenders`) and its workload.
        steps: measured steps of each process.
    """

    name: str
    entries: Sequence[tuple[str, str, Workload]]
    steps: int


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure, the values that it is made of, and the bound that it should keep."""

    figure: str
    first: float
    second: float
    unit: str
    bound: str
    kept: Callable[[float], bool]
    inverse: bool = False

    @property
    def ratio(self) -> float:
        """First over second, or second over first."""
        return self.second / self.first if self.inverse else self.first / self.second

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (
            self.figure,
            f"{self.first:.3g} {self.unit}",
            f"{self.second:.3g} {self.unit}",
            f"{self.ratio:.2f}",
            f"{self.bound}{'' if self.kept(self.ratio) else ' (missed)'}",
        )


Results = dict[str, list[Measurement]]


def run(kind: str, workload: Workload, steps: int) -> Measurement:
    """One process.

    Raises:
        RuntimeError: with its output, if it fails.
    """
    command = [sys.executable, "-m", "benchmarks.throughput.contenders", kind, json.dumps(asdict(workload)), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def contests(models: Sequence[str], shape: Workload, steps: int, *, against_trl: bool) -> list[Contest]:
    """What is run.

    Args:
        models: the first for the single-policy figures, both for those of two policies.
        shape: prompts, generations and tokens of a step; its model is not read.
        steps: measured steps of a process.
        against_trl: also run TRL.
    """
    found = []
    for model in models:
        single = replace(shape, model=(model,))
        entries = [
            ("as they fall", "ours", replace(single, live=4)),
            ("random", "ours", single),
            ("offloaded", "ours", replace(single, offload=True)),
        ]
        if against_trl:
            entries.append(("TRL", "trl", single))
        found.append(Contest(f"step {model}", entries, steps))
    found.append(
        Contest("generation", [("generation", "generation", replace(shape, model=(models[0],)))], max(5, steps))
    )
    if len(models) > 1:
        rescued = replace(shape, planned=True)
        pair = tuple(models[:2])
        found.append(
            Contest(
                "pool",
                [
                    ("SGT", "ours", replace(rescued, model=pair, algorithm="sgt")),
                    ("GRPO", "ours", replace(rescued, model=pair)),
                    *((name, "ours", replace(rescued, model=(name,))) for name in pair),
                ],
                steps,
            )
        )
    return found


def seconds(measurements: Sequence[Measurement]) -> float:
    """Median over processes of the median step."""
    return median(median(measurement.seconds) for measurement in measurements)


def gigabytes(measurements: Sequence[Measurement]) -> float:
    """Median over processes of the peak memory, in 10^9 bytes."""
    return median(measurement.peak_bytes for measurement in measurements) / 1e9


def rows(results: Mapping[str, Results], models: Sequence[str]) -> list[Row]:
    """The table's lines, from what was run."""
    found: list[Row] = []

    def at_least(bound: float) -> tuple[str, Callable[[float], bool]]:
        return f">= {bound}", lambda ratio: ratio >= bound

    def at_most(bound: float) -> tuple[str, Callable[[float], bool]]:
        return f"<= {bound}", lambda ratio: ratio <= bound

    for i, model in enumerate(models):
        step = results[f"step {model}"]
        name = Path(model).name
        if "TRL" in step:
            for label, rewards, bound in (
                ("as they fall", "as they fall", 4 if i else 5),
                ("random", "random", 2.5),
                ("offloaded", "random, with offload_optimizer", 2.5),
            ):
                found.append(
                    Row(
                        f"{name}: step, rewards {rewards}; TRL / ours",
                        seconds(step[label]),
                        seconds(step["TRL"]),
                        "s",
                        *at_least(bound),
                        inverse=True,
                    )
                )
            for label, figure in (("random", "peak memory"), ("offloaded", "peak memory with offload_optimizer")):
                ours, theirs = gigabytes(step[label]), gigabytes(step["TRL"])
                found.append(Row(f"{name}: {figure}; ours / TRL", ours, theirs, "GB", *at_most(0.5)))
        calm = step["as they fall"]
        overhead = median(m.parts["environment"] + m.parts["rows"] for m in calm)
        found.append(
            Row(f"{name}: environment, exchange, THL; share of a step", overhead, seconds(calm), "s", *at_most(0.01))
        )
    generated = results["generation"]["generation"]
    transformers = median(m.extra["transformers"] for m in generated)
    found.append(
        Row("generation; Transformers / ours", seconds(generated), transformers, "s", *at_least(2.5), inverse=True)
    )
    if "pool" in results:
        pool = results["pool"]
        singles = [pool[model] for model in models[:2]]
        total = sum(seconds(single) for single in singles)
        found += [
            Row("two policies, SGT / sum of GRPO steps", seconds(pool["SGT"]), total, "s", *at_most(1.1)),
            Row("two policies, GRPO / sum of GRPO steps", seconds(pool["GRPO"]), total, "s", *at_most(1.05)),
            Row("SGT / GRPO, two policies", seconds(pool["SGT"]), seconds(pool["GRPO"]), "s", *at_most(1.1)),
            Row(
                "two policies, memory / sum", gigabytes(pool["SGT"]), sum(map(gigabytes, singles)), "GB", *at_most(1.0)
            ),
        ]
    return found


def machine() -> str:
    """What this was run on."""

    def installed(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"no {package}"

    import torch

    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    cpu = torch.backends.cpu.get_cpu_capability()
    packages = ", ".join([f"Python {platform.python_version()}", *map(installed, ("torch", "transformers", "trl"))])
    return f"{os.cpu_count()} CPU cores ({platform.machine()}, {cpu}), {accelerator}; {packages}"


def show(results: Mapping[str, Results], models: Sequence[str], workload: Mapping[str, Any]) -> str:
    """The table and what it was measured on."""
    lines = [machine(), f"a step: {json.dumps(workload)}", ""]
    lines.append(table(("figure", "first", "second", "ratio", "bound"), [row.cells() for row in rows(results, models)]))
    for name, entries in results.items():
        for label, measured in entries.items():
            parts = ", ".join(f"{k} {median(m.parts[k] for m in measured):.2f} s" for k in measured[0].parts)
            extra = ", ".join(f"{k} {median(m.extra[k] for m in measured):.3g}" for k in measured[0].extra)
            every = " ".join(f"{median(m.seconds):.2f}" for m in measured)
            details = "; ".join(filter(None, [f"{median(m.tokens for m in measured):.1f} tokens", parts, extra]))
            lines.append(f"{name}, {label}: {every} s; {gigabytes(measured):.2f} GB; {details}")
    return "\n".join(lines)


def as_json(results: Mapping[str, Results]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Measurements by contest and contender, as plain data."""
    return {
        name: {label: [asdict(measurement) for measurement in measured] for label, measured in found.items()}
        for name, found in results.items()
    }


def stored_results(path: Path | None, about: Mapping[str, Any]) -> dict[str, Results]:
    """The measurements that a file holds already; none without a file.

    Args:
        path: of the file.
        about: machine, models, workload and steps, which must be those of the file.

    Raises:
        ValueError: if they are not, or the file holds something else.
    """
    if path is None or not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    for key, value in json.loads(json.dumps(about)).items():
        if stored.get(key) != value:
            raise ValueError(
                f"output={str(path)!r} holds measurements with {key} {stored.get(key)!r}, but now it is {value!r}; "
                "give another file"
            )
    return {
        name: {label: [Measurement(**m) for m in measured] for label, measured in found.items()}
        for name, found in stored["results"].items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", nargs="+", default=["tiny-llama", "tiny-qwen3"], help="hub ids, folders, .gguf files"
    )
    parser.add_argument(
        "--dtype",
        choices=["fp32", "bf16"],
        default=default_dtype(),
        help="default: bf16, unless this CPU is slow in it",
    )
    parser.add_argument("--against", choices=["trl"], help="another trainer to run in turn")
    parser.add_argument("--pairs", type=int, default=5, help="processes of each contender, in turn (default: 5)")
    parser.add_argument("--steps", type=int, default=2, help="measured steps of each process, after one to warm up (2)")
    parser.add_argument("--quick", action="store_true", help="one pair, one step, 4 x 4 completions of 16 tokens")
    parser.add_argument("--only", help="only contests whose name begins with this")
    parser.add_argument(
        "--output",
        type=Path,
        help="keep all measurements in this JSON file; those that it has already are not made again",
    )
    options = parser.parse_args(arguments)
    warn_if_slow(options.dtype, default_device())
    shape = Workload(model=(), dtype=options.dtype)
    pairs, steps = options.pairs, options.steps
    if options.quick:
        shape, pairs, steps = replace(shape, problems=4, generations=4, tokens=16), 1, 1
        print("a quick look: the bounds are for five pairs of real models at full size", file=sys.stderr)
    about = {"machine": machine(), "models": options.models, "workload": asdict(shape), "steps": steps}
    try:
        results = stored_results(options.output, about)
    except ValueError as error:
        parser.error(str(error))
    for contest in contests(options.models, shape, steps, against_trl=options.against == "trl"):
        if options.only and not contest.name.startswith(options.only):
            continue
        found = results.setdefault(contest.name, {})
        for pair in range(1 if contest.name == "generation" else pairs):
            for label, kind, workload in contest.entries:
                measured = found.setdefault(label, [])
                if len(measured) > pair:
                    continue
                measured.append(run(kind, workload, contest.steps))
                print(f"{contest.name}, {label}, {pair + 1}: {seconds(measured[-1:]):.2f} s a step", file=sys.stderr)
                if options.output:
                    replace_file(options.output, {**about, "results": as_json(results)})
    if options.only:
        print(json.dumps({name: {label: seconds(ms) for label, ms in r.items()} for name, r in results.items()}))
    else:
        print(show(results, options.models, asdict(shape)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
