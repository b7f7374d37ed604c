"""Algorithms that train several language models together: four baselines on one learner.

python -m algorithms.sgt                                  # a complete run; also .grpo .prp .xgrpo
Trainer(TrainingConfig(algorithm="sgt")).train()          # the same in Python
"""

from algorithms.algorithm import ALGORITHMS, Algorithm
from algorithms.config import TrainingConfig
from algorithms.samples import Group, Sample, make_sample, own_samples
from algorithms.trainer import Trainer

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Group",
    "Sample",
    "Trainer",
    "TrainingConfig",
    "make_sample",
    "own_samples",
]
