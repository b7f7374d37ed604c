"""Two runs of one seed in TensorBoard: GRPO and SGT, the same problems in the same order, curves over one another.

python compare_runs.py && tensorboard --logdir runs/compare
"""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from algorithms import Trainer, TrainingConfig
from benchmarks.report import report

FOLDER = Path("runs/compare")


def curve(algorithm, policy, tag):
    """The values that TensorBoard draws for one policy of one run."""
    events = EventAccumulator(str(FOLDER / algorithm / "tensorboard" / policy))
    events.Reload()
    return [(event.step, round(event.value, 3)) for event in events.Scalars(tag)]


def main(steps=4):
    for algorithm in ("grpo", "sgt"):
        config = TrainingConfig(
            algorithm=algorithm,
            max_steps=steps,
            problems_per_step=8,
            learning_rate=5e-4,  # far too high for a real run, so that a few steps show a difference
            warmup_steps=0,
            eval_size=48,
            eval_samples=1,
            output_dir=str(FOLDER / algorithm),
            overwrite_output_dir=True,
        )
        Trainer(config).train()
    print(report([FOLDER / "grpo", FOLDER / "sgt"]))
    for algorithm in ("grpo", "sgt"):
        for policy in ("policy_0", "policy_1", "pool"):
            print(f"train/reward of {policy} with {algorithm}: {curve(algorithm, policy, 'train/reward')}")
    print(f"The same as pictures: tensorboard --logdir {FOLDER}")


if __name__ == "__main__":
    main()
