"""Ctrl-C and going on: a run is interrupted, resumed, and ends with the metrics of a run that was left alone."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "algorithms.sgt", "--max_steps", "4", "--problems_per_step", "8", "--eval_size", "16"]
INTERRUPTED, UNDISTURBED = Path("runs/interrupted"), Path("runs/undisturbed")


def metrics(run):
    """The lines of metrics.jsonl without those that hold seconds, the only ones in which two runs of a seed differ."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "time" not in k} for line in lines]


def main():
    for run in (INTERRUPTED, UNDISTURBED):
        if run.exists():
            sys.exit(f"{run} exists already; remove it, or run this in another folder")
    running = subprocess.Popen([*COMMAND, "--output_dir", INTERRUPTED])
    while running.poll() is None and not (INTERRUPTED / "exchange.jsonl").exists():
        time.sleep(0.02)  # the first step has begun when something was shared
    running.send_signal(signal.SIGINT)  # what Ctrl-C sends
    print("exit code after Ctrl-C:", running.wait())  # 130: the step was finished and saved
    print("saved:", *sorted(path.name for path in INTERRUPTED.glob("checkpoint-*")))

    # The resumed run takes every setting from its checkpoint.
    resume = ["--resume_from_checkpoint", "auto", "--output_dir", INTERRUPTED]
    subprocess.run([sys.executable, "-m", "algorithms.sgt", *resume], check=True)
    subprocess.run([*COMMAND, "--output_dir", UNDISTURBED], check=True)
    print("the same metrics:", metrics(INTERRUPTED) == metrics(UNDISTURBED))


if __name__ == "__main__":
    main()
