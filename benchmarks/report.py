"""Finished runs side by side: `python -m benchmarks.report runs/demo/grpo runs/demo/sgt`.

For each policy the held-out reward before training and after each run, in all and by subject, and the share of problems
on which it was rescued by a peer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from algorithms.tracking import POOL, evaluations, read_jsonl, table
from verifiers.printing import printable_lines

LEGEND = (
    "reward: greedy completions; mean@k, pass@k, maj@k: k completions sampled at the training temperature; subjects: mean over "
    "the\nsamples; pool: mean of the policies; rescued in training: share of problems on which a peer's success was learnt. "
    "One seed\nis no evidence: repeat with others."
)


def rescue_rates(run: Path) -> dict[str, float]:
    """For each policy the mean share of rescued problems over the run's steps."""
    rates: dict[str, list[float]] = {}
    for line in read_jsonl(run / "metrics.jsonl"):
        if "train/exchange/rescue_rate" in line and line["policy"] != POOL:
            rates.setdefault(line["policy"], []).append(line["train/exchange/rescue_rate"])
    return {policy: sum(values) / len(values) for policy, values in rates.items()}


def short_names(runs: Sequence[Path]) -> list[str]:
    """The folders' last names, or their whole paths where two would be called alike."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def report(runs: Sequence[Path]) -> str:
    """A table per policy and one for the pool.

    Raises:
        ValueError: if there is no run, or one has no evaluations.
    """
    if not runs:
        raise ValueError("no runs given; usage: python -m benchmarks.report RUN [RUN ...]")
    names = short_names(runs)
    evaluated = {name: evaluations(run) for name, run in zip(names, runs, strict=True)}
    for name, found in evaluated.items():
        if not found:
            raise ValueError(f"{name} was never evaluated; set eval_steps")
    rescued = {name: rescue_rates(run) for name, run in zip(names, runs, strict=True)}
    tables = []
    for policy in next(iter(evaluated.values())):
        with_policy = {name: found[policy] for name, found in evaluated.items() if policy in found}
        last = [found[-1] for found in with_policy.values()]
        # Runs may have been evaluated in different ways: `-` where a run does not have a figure.
        before: dict[str, float] = {}
        for evaluations_of in with_policy.values():
            before = {**evaluations_of[0], **before}
        rows = [
            (
                key.removeprefix("subject/"),
                f"{value:.3f}",
                *(f"{after[key]:.3f}" if key in after else "-" for after in last),
            )
            for key, value in sorted(before.items(), key=lambda item: item[0].startswith("subject/"))
        ]
        if policy != POOL:
            rows.append(("rescued in training", "", *(f"{rescued[name].get(policy, 0):.1%}" for name in with_policy)))
        tables.append(table((policy, "before", *with_policy), rows))
    return "\n\n".join([*tables, LEGEND])


def main() -> None:
    """The command line."""
    try:
        print(report([Path(argument) for argument in sys.argv[1:]]))
    except ValueError as error:
        sys.exit(printable_lines(f"error: {error}"))


if __name__ == "__main__":
    main()
