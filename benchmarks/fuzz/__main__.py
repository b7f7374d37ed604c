"""Fuzz all that reads foreign text: `python -m benchmarks.fuzz [--inputs N] [--seed S] [--only TARGET]`.

Prints for each target how many inputs it took, at which speed, the slowest one, the peak of memory, and the failures, which
it also writes to a file. `--again INDEX` with `--only` repeats one input and lets its error through.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from algorithms.tracking import table
from benchmarks.fuzz.run import Statistics, run
from benchmarks.fuzz.targets import targets
from mrl_env.seeding import derive_rng


def show(found: Sequence[Statistics]) -> str:
    """A table, one line per target; speed by CPU time, which other processes do not change."""
    header = ("target", "inputs", "CPU s", "inputs/CPU s", "slowest s", "its index", "peak MiB", "failures")
    rows = [
        (
            one.name,
            f"{one.inputs:,}",
            f"{one.cpu_seconds:.0f}",
            f"{one.inputs / max(one.cpu_seconds, 1e-9):,.0f}",
            f"{one.slowest:.3f}",
            str(one.slowest_index),
            "-" if one.peak_mib is None else f"{one.peak_mib:.0f}",
            ", ".join(f"{count} {kind}" for kind, count in sorted(one.kinds.items())) or "0",
        )
        for one in found
    ]
    total = (
        "all", f"{sum(one.inputs for one in found):,}", f"{sum(one.cpu_seconds for one in found):.0f}", "", "", "", "",
        str(sum(one.failures for one in found)),
    )  # fmt: skip
    return table(header, [*rows, total])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, 1 if an input failed."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000, help="in all, shared out among the targets")
    parser.add_argument("--seed", type=int, default=0, help="decides every input")
    parser.add_argument("--only", choices=[target.name for target in targets()], help="one target, with all the inputs")
    parser.add_argument("--again", type=int, metavar="INDEX", help="with --only: this one input, errors let through")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures.jsonl"), help="where failing inputs go")
    options = parser.parse_args(arguments)
    chosen = [target for target in targets() if options.only in (None, target.name)]
    if options.again is not None:
        if options.only is None:
            parser.error("--again needs --only TARGET")
        (target,) = chosen
        case = target.make(derive_rng(options.seed, "fuzz", target.name, options.again))
        print(repr(case)[:10_000])
        target.prepare()(case)
        return 0
    found = []
    with options.failures.open("w", encoding="utf-8") as failures:
        for target in chosen:
            count = options.inputs if options.only else round(options.inputs * target.share)
            with tqdm(total=count, desc=target.name, unit="input", mininterval=5, dynamic_ncols=True) as bar:
                found.append(run(target, count, options.seed, failures, bar.update))
    print(show(found))
    failed = sum(one.failures for one in found)
    if failed:
        print(f"\n{failed} failing inputs: {options.failures}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
