"""What it brings that policies work at the same time: a step of two policies that take turns on one core, and on one core each.

    python -m benchmarks.concurrency                                      # the embedded pool
    python -m benchmarks.concurrency --models FOLDER_OR_HUB_ID FOLDER_OR_HUB_ID --steps 2

Both run the same steps (same seed, one CPU thread for each policy): with `--backend local` one policy waits for the other, with
`--backend ray` they meet at the exchange. At best the ratio is the slower policy's share of the work. Rewards are a coin, so
that nearly every group has a gradient: as they fall in a first step, one policy may have much to learn and the other nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from algorithms import Trainer, TrainingConfig
from algorithms.tracking import table

BOUND = 0.65
"""What the time of policies that work at once should stay below, as a share of that of taking turns."""


def seconds_per_step(config: TrainingConfig, steps: int) -> list[float]:
    """Wall time of each of some steps, behind one to warm up.

    Args:
        config: of the run; nothing is evaluated or saved.
        steps: that are timed.
    """
    trainer = Trainer(config)
    try:
        trainer.train_step()
        seconds = []
        for _ in range(steps):
            started = time.perf_counter()
            trainer.train_step()
            seconds.append(time.perf_counter() - started)
    finally:
        trainer.close()
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs=2, default=["tiny-llama", "tiny-qwen3"], help="a model for each policy")
    parser.add_argument("--algorithm", default="sgt")
    parser.add_argument("--pairs", type=int, default=3, help="how often both are measured, in turns")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each measurement")
    parser.add_argument("--problems_per_step", type=int, default=16)
    parser.add_argument("--per_device_train_batch_size", type=int, default=32)
    parser.add_argument("--max_completion_length", type=int, default=64)
    parser.add_argument("--output", type=Path, help="a JSON file for all seconds")
    options = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            for backend in ("local", "ray"):
                config = TrainingConfig(
                    model_name_or_path=tuple(options.models),
                    algorithm=options.algorithm,
                    problems_per_step=options.problems_per_step,
                    per_device_train_batch_size=options.per_device_train_batch_size,
                    max_completion_length=options.max_completion_length,
                    num_threads=1,
                    backend=backend,
                    eval_steps=0,
                    verifier="benchmarks.compare.controls:RandomReward",
                    output_dir=os.path.join(folder, f"{backend}-{pair}"),
                )
                seconds[backend] += seconds_per_step(config, options.steps)
    turns, at_once = median(seconds["local"]), median(seconds["ray"])
    kept = "" if at_once / turns < BOUND else " (missed)"
    print(
        table(
            ("two policies, one thread each", "taking turns", "at once", "ratio", "bound"),
            [
                (
                    " + ".join(options.models),
                    f"{turns:.3g} s",
                    f"{at_once:.3g} s",
                    f"{at_once / turns:.2f}",
                    f"< {BOUND}{kept}",
                )
            ],
        )
    )
    if options.output is not None:
        options.output.write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
