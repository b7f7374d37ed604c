"""The bandit analysis: a table of propositions, and training curves: `python -m benchmarks.bandit --output FOLDER`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from algorithms.tracking import table
from benchmarks.bandit.propositions import Check, all_checks
from benchmarks.bandit.trajectories import SHOWN, first_above, plot, train_all
from verifiers.printing import printable_lines


def show_checks(checks: Sequence[Check]) -> str:
    """The propositions as text; the last column is the deviation in standard errors."""
    rows = [
        (
            f"{found.proposition:3} {found.quantity}",
            f"{found.exact:.5f}",
            f"{found.estimate:.5f}",
            f"{found.error:.5f}",
            f"{found.deviation:+.1f}",
        )
        for found in checks
    ]
    return table(("proposition", "exact", "simulated", "std. error", "deviation"), rows)


def show_curves(curves: Mapping[str, np.ndarray]) -> str:
    """Where each method ends for policy 0, and when it finds the answer that only the peer had."""
    rows = []
    for name, success in curves.items():
        reached = first_above(success[:, 0, 0], 0.5)
        rows.append(
            (
                SHOWN[name],
                f"{success[0, 0, 0]:.2g}",
                f"{success[-1, 0, 0]:.3g}",
                "never" if reached is None else str(reached),
                f"{success[-1, 0, 1]:.3f}",
            )
        )
    return table(("method", "peer's answer, start", "end", "step of 1/2", "own answer, end"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, compute, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bandit", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="folder for bandit.json and the plots")
    parser.add_argument("--draws", type=int, default=20_000, help="simulated gradients of each kind (20000)")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation (0)")
    parser.add_argument("--steps", type=int, default=400, help="of training (400)")
    parser.add_argument("--learning-rate", type=float, default=1.0, help="of a prompt's logits (1)")
    parser.add_argument("--rare", type=float, default=1e-4, help="success where only the peer succeeds (1e-4)")
    parser.add_argument("--common", type=float, default=0.5, help="success of the peer there (0.5)")
    parser.add_argument("--no-plot", action="store_true", help="write no figure; Matplotlib is not needed then")
    options = parser.parse_args(arguments)
    try:
        if options.draws < 2 or options.steps < 1:
            raise ValueError(f"draws={options.draws}, steps={options.steps}: give at least 2 draws and 1 step")
        checks = all_checks(options.draws, options.seed)
        curves = train_all(options.rare, options.common, options.steps, options.learning_rate)
        print(show_checks(checks), show_curves(curves), sep="\n\n")
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            written = {
                "options": {**vars(options), "output": str(options.output)},
                "checks": [asdict(found) for found in checks],
                "success": {name: success.tolist() for name, success in curves.items()},
            }
            (options.output / "bandit.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
            if not options.no_plot:
                plot(curves, options.output)
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
