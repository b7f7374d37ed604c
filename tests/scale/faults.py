"""Algorithms that strike their own process in the middle of a step; workers import them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from algorithms.algorithm import Algorithm
from algorithms.samples import Group, Sample
from algorithms.sgt import SGT
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience


@dataclass(frozen=True)
class Struck(SGT):
    """SGT, whose process gets a signal while it makes the rows of a later step: once, or again and again."""

    struck_flag: str = ""
    """A file that says that it happened."""

    struck_by: int = signal.SIGKILL

    struck_always: bool = False

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        flag = Path(self.struck_flag)
        first = group.completions[0].policy_version == 0
        if not first and (self.struck_always or not flag.exists()):
            flag.touch()
            os.kill(os.getpid(), self.struck_by)
        return super().rows(group, peers, retokenize)


@dataclass(frozen=True)
class Refusing(Algorithm):
    """Raises what a user's mistake raises."""

    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        raise ValueError("this was asked for")
