"""Whether anything grows over a long time: `python -m benchmarks.soak [--steps N] [--training MINUTES]`.

The environment's part takes N steps with four agents and canned completions of many kinds, without a model; the training's
part trains the embedded pool for so many minutes. Every few seconds resident memory, open file descriptors, threads, child
processes and the steps done are written as a JSON line; at the end a picture is drawn and each curve is judged.

The rule: over the second half of the samples the slope by Theil and Sen (the median over all pairs), times that half's
length, must stay below 5 % of the half's median for memory and for speed (which may rise freely), and below 1 for counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fuzz import generators as g
from benchmarks.pictures import empty_figure
from verifiers.printing import printable_lines

AGENTS = 4
SHARE = 0.05
"""How much memory may grow, and speed fall, over the second half."""

MOST_SAMPLES = 400
"""Samples of a half that the slope looks at, evenly spread: it takes all pairs."""


@dataclass(frozen=True)
class Sample:
    """One look at the process.

    Attributes:
        seconds: since the beginning.
        steps: done so far.
        rate: steps a second of CPU time since the last sample.
        rss_mib: resident memory of this process.
        descriptors: open files, pipes and sockets.
        threads: of this process.
        children: processes begun by it that have not ended, dead ones that nobody waited for among them.
    """

    seconds: float
    steps: int
    rate: float
    rss_mib: float
    descriptors: int
    threads: int
    children: int


CURVES = ("rss_mib", "rate", "descriptors", "threads", "children")


def look(begun: float, steps: int, rate: float) -> Sample:
    """What the system says about this process (Linux)."""
    tasks = list(Path("/proc/self/task").iterdir())
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    children = sum(len((task / "children").read_text(encoding="ascii").split()) for task in tasks)
    return Sample(
        seconds=time.monotonic() - begun,
        steps=steps,
        rate=rate,
        rss_mib=pages * os.sysconf("SC_PAGESIZE") / 2**20,
        descriptors=len(os.listdir("/proc/self/fd")) - 1,  # one is this look's own
        threads=len(tasks),
        children=children,
    )


def slope(values: Sequence[float]) -> float:
    """The median over all pairs of their slope, per place (Theil 1950, Sen 1968); 0 of fewer than two values."""
    pairs = [(b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values[i + 1 :], i + 1)]
    return median(pairs) if pairs else 0.0


def growth(values: Sequence[float]) -> float:
    """What the second half of the values rises by over its length, by its slope."""
    half = values[len(values) // 2 :]
    thinned = half[:: max(1, len(half) // MOST_SAMPLES)]
    return slope(thinned) * (len(thinned) - 1)


def is_flat(curve: str, values: Sequence[float]) -> bool:
    """The rule of the module's docstring."""
    level, rise = median(values[len(values) // 2 :]), growth(values)
    if curve == "rate":
        return rise > -SHARE * level
    return rise < SHARE * level if curve == "rss_mib" else abs(rise) < 1


def judged(samples: Sequence[Sample]) -> tuple[str, bool]:
    """A line per curve, and whether all are flat.

    Raises:
        ValueError: if there are too few samples to tell.
    """
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples are too few to tell what grows; take more steps, or look more often")
    lines, flat = [], True
    for curve in CURVES:
        values = [float(getattr(sample, curve)) for sample in samples]
        holds = is_flat(curve, values)
        flat = flat and holds
        lines.append(
            f"{curve:12} {'flat' if holds else 'NOT FLAT'}: second half's median {median(values[len(values) // 2 :]):.1f}, "
            f"rises by {growth(values):+.2f}; least {min(values):.1f}, most {max(values):.1f}"
        )
    return "\n".join(lines), flat


def draw(samples: Sequence[Sample], title: str, path: Path) -> None:
    """The curves over time, one below the other."""
    figure = empty_figure(8, 9)
    axes = figure.subplots(len(CURVES), 1, sharex=True)
    for axis, curve in zip(axes, CURVES, strict=True):
        axis.plot([s.seconds / 60 for s in samples], [getattr(s, curve) for s in samples], linewidth=1)
        axis.set_ylabel({"rss_mib": "memory, MiB", "rate": "steps / CPU s"}.get(curve, curve))
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


class Recorder:
    """Collects samples and writes each as a JSON line.

    Args:
        path: the file; begun anew.
        every: seconds between samples.
    """

    def __init__(self, path: Path, every: float) -> None:
        self.samples: list[Sample] = []
        self._file = path.open("w", encoding="utf-8")
        self._every = every
        self._begun = self._last = time.monotonic()
        self._steps, self._cpu = 0, time.process_time()

    def __call__(self, steps: int) -> None:
        """Take a sample if the time has come.

        Args:
            steps: done so far.
        """
        if time.monotonic() - self._last < self._every:
            return
        cpu = time.process_time()
        sample = look(self._begun, steps, (steps - self._steps) / max(cpu - self._cpu, 1e-9))
        self._last, self._steps, self._cpu = time.monotonic(), steps, cpu
        self.samples.append(sample)
        self._file.write(json.dumps(asdict(sample)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def canned(rng: random.Random, answer: str) -> Any:
    """A completion: right, wrong, hedged, hostile, long, empty, or a record with a trace."""
    from mrl_env import Completion, Trace

    kind = rng.randrange(8)
    if kind == 0:
        return ""
    if kind == 1:
        return rf"So it is \boxed{{{answer}}}."
    if kind == 2:
        return rf"\boxed{{{rng.randint(-99, 99)}}}"
    if kind == 3:
        return rf"\boxed{{{answer} \text{{ or }} {rng.randint(0, 9)}}}"
    if kind == 4:
        return "a long way to go, " * rng.randint(10, 2000) + answer
    if kind == 5:
        text = f"{rng.random()} #### {answer}"
        return Completion(text, (1, 2), (-0.1, -0.2), "stop", trace=Trace(((0, len(text)),), (-0.1,), -0.2))
    return g.completion(rng, answer)


def soak_environment(steps: int, recorder: Recorder) -> None:
    """So many steps of four agents on generated problems, with all channels."""
    from mrl_env import CHANNELS, MutualEnv
    from mrl_env.seeding import derive_rng

    env = MutualEnv(agents=AGENTS, problems="math", problems_per_episode=4, generations=4, channels=CHANNELS)
    for step in range(steps):
        _, infos = env.reset(seed=0 if step == 0 else None)
        actions = {
            agent: [
                [canned(derive_rng(0, "soak", agent, step, p, n), problem.answer) for n in range(4)]
                for p, problem in enumerate(infos[agent]["problems"])
            ]
            for agent in env.agents
        }
        env.step(actions)
        if step % 100 == 0:
            env.render()
        recorder(step + 1)


def soak_training(minutes: float, folder: Path, recorder: Recorder) -> None:
    """Train the embedded pool with SGT for so long, evaluating and saving as a run does; looks at it from a thread."""
    from algorithms.config import TrainingConfig
    from algorithms.trainer import Trainer

    config = TrainingConfig(
        algorithm=("sgt",),
        max_steps=1_000_000,
        eval_steps=50,
        save_steps=50,
        save_total_limit=2,
        output_dir=str(folder / "run"),
        overwrite_output_dir=True,
    )
    trainer = Trainer(config)
    done = threading.Event()

    def watch() -> None:
        end = time.monotonic() + 60 * minutes
        while not done.wait(1.0):
            recorder(trainer.step)
            if time.monotonic() > end:
                os.kill(os.getpid(), signal.SIGINT)  # finishes its step and saves, as after Ctrl-C
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        trainer.train()
    except KeyboardInterrupt:
        pass
    finally:
        done.set()
        watcher.join()


def run(name: str, folder: Path, every: float, soak: Callable[[Recorder], None]) -> bool:
    """Soak, write, draw, judge; whether all curves are flat."""
    recorder = Recorder(folder / f"{name}.jsonl", every)
    try:
        soak(recorder)
    finally:
        recorder.close()
    text, flat = judged(recorder.samples)
    last = recorder.samples[-1]
    print(f"{name}: {last.steps:,} steps in {last.seconds / 60:.1f} minutes, {len(recorder.samples)} samples\n{text}\n")
    draw(recorder.samples, f"{name}: {last.steps:,} steps", folder / f"{name}.png")
    return flat


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, 1 if something is not flat, 2 after a mistake of the user's."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of the environment; 0 leaves it out")
    parser.add_argument("--training", type=float, default=0.0, metavar="MINUTES", help="of training the embedded pool")
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="between samples")
    parser.add_argument("--output", type=Path, default=Path("runs/soak"), help="folder for samples and pictures")
    options = parser.parse_args(arguments)
    flat = True
    try:
        empty_figure()
        options.output.mkdir(parents=True, exist_ok=True)
        if options.steps:
            flat &= run("environment", options.output, options.every, lambda r: soak_environment(options.steps, r))
        if options.training:
            flat &= run(
                "training", options.output, options.every, lambda r: soak_training(options.training, options.output, r)
            )
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
