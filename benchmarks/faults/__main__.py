"""Inject faults into tiny runs and count what becomes of them: `python -m benchmarks.faults --times 20`.

Each time another moment, size or byte is drawn; a failure says with which `--seed` and number it comes again. Exits with 1 if
one has failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from algorithms.tracking import table
from benchmarks.faults.faults import FaultError, Outcome, faults
from benchmarks.faults.running import Laboratory
from mrl_env.seeding import derive_seed
from verifiers.printing import log_to_terminal


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    known = faults()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each fault is injected")
    parser.add_argument("--first", type=int, default=0, help="number of the first time, to repeat a failure")
    parser.add_argument("--seed", type=int, default=0, help="of all random draws")
    parser.add_argument("--only", nargs="+", choices=list(known), metavar="FAULT", help="some of: " + "; ".join(known))
    parser.add_argument("--folder", type=Path, help="where the runs are made; by default a temporary folder")
    parser.add_argument("--report", type=Path, help="a JSON file for the counts")
    options = parser.parse_args(arguments)
    log_to_terminal()
    logging.getLogger().setLevel(logging.WARNING)
    counts: dict[str, Counter[Outcome]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        lab = Laboratory(Path(folder))
        logging.getLogger().setLevel(logging.INFO)
        for name in options.only or known:
            counts[name] = Counter()
            started = time.monotonic()
            for number in range(options.first, options.first + options.times):
                try:
                    outcome = known[name](lab, random.Random(derive_seed(options.seed, name, number)))
                except FaultError as error:
                    outcome = Outcome.FAILED
                    print(f"FAILED: {name}, --seed {options.seed} --first {number}: {error}", file=sys.stderr)
                counts[name][outcome] += 1
                lab.discard()
            outcomes = ", ".join(f"{number} {outcome.value}" for outcome, number in counts[name].items())
            print(f"{name}: {outcomes}; {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(report(counts))
    if options.report is not None:
        by_name = {name: {outcome.value: found[outcome] for outcome in Outcome} for name, found in counts.items()}
        options.report.write_text(json.dumps(by_name, indent=1), encoding="utf-8")
    if any(found[Outcome.FAILED] for found in counts.values()):
        sys.exit(1)


def report(counts: dict[str, Counter[Outcome]]) -> str:
    """A table: each fault, how often it was injected, and what became of it."""
    rows = [[name, str(found.total()), *(str(found[outcome]) for outcome in Outcome)] for name, found in counts.items()]
    total = sum(counts.values(), Counter[Outcome]())
    rows.append(["all", str(total.total()), *(str(total[outcome]) for outcome in Outcome)])
    return table(["fault", "injected", *(outcome.value for outcome in Outcome)], rows)


if __name__ == "__main__":
    main()
