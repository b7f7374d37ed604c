"""Peers' records that come K steps late (`exchange_staleness`): what is kept of the last steps, and how it is saved."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from algorithms.worker import Lesson, Rollouts
from mrl_env.exchange import from_json, to_json
from mrl_env.types import Completion, Problem, Trace
from verifiers import Verdict

_FILE = "delayed.json"


class Delay:
    """For each policy the lessons of its last K steps, whose peers' records it has not learnt from.

    Args:
        names: of the policies.
        steps: K; with 0 nothing is kept, and every lesson stays as it is.

    Attributes:
        lessons: for each policy at most K, the oldest first.
    """

    def __init__(self, names: Iterable[str], steps: int) -> None:
        self.steps = steps
        self.lessons: dict[str, deque[Lesson]] = {name: deque() for name in names}

    def swap(self, name: str, lesson: Lesson) -> Lesson:
        """Keep a step's lesson; what the policy learns in this step: its own completions, and what was said K steps ago.

        Args:
            name: of the policy.
            lesson: of the step.
        """
        if not self.steps:
            return lesson
        kept = self.lessons[name]
        kept.append(lesson)
        due = kept.popleft() if len(kept) > self.steps else None
        return replace(lesson, peers=[()] * len(lesson.problems), delayed=due)

    def save(self, folder: Path) -> None:
        """Write `folder/delayed.json`, if anything is delayed.

        Raises:
            OSError: if it cannot be written.
            ValueError: if the metadata of a problem is nothing that JSON holds.
        """
        if self.steps:
            lessons = {name: [_plain(lesson) for lesson in kept] for name, kept in self.lessons.items()}
            try:
                state = json.dumps({"steps": self.steps, "lessons": lessons})
            except TypeError as error:
                raise ValueError(
                    f"exchange_staleness={self.steps} keeps problems in checkpoints, but their metadata cannot be saved "
                    f"({error}); keep strings, numbers, lists and mappings there, or set exchange_staleness=0"
                ) from error
            (folder / _FILE).write_text(state, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take what `save` wrote.

        Raises:
            ValueError: if the run had another delay.
        """
        path = folder / _FILE
        state: dict[str, Any] = {"steps": 0, "lessons": {}}
        if path.is_file():
            state = json.loads(path.read_text(encoding="utf-8"))
        if state["steps"] != self.steps:
            raise ValueError(
                f"exchange_staleness={self.steps}, but the run in {folder.parent} has {state['steps']}; go on with that"
            )
        self.lessons |= {name: deque(map(_lesson, kept)) for name, kept in state["lessons"].items()}


def _plain(lesson: Lesson) -> dict[str, Any]:
    """A lesson as JSON values."""
    return {
        "problems": [asdict(problem) for problem in lesson.problems],
        "prompts": lesson.rollouts.prompts,
        "completions": [[asdict(completion) for completion in group] for group in lesson.rollouts.completions],
        "seconds": lesson.rollouts.seconds,
        "verdicts": [[asdict(verdict) for verdict in group] for group in lesson.verdicts],
        "peers": [[to_json(record) for record in records] for records in lesson.peers],
    }


def _lesson(plain: Mapping[str, Any]) -> Lesson:
    """The lesson that `_plain` wrote."""
    return Lesson(
        [Problem(**{**problem, "messages": tuple(problem["messages"])}) for problem in plain["problems"]],
        Rollouts(
            [tuple(prompt) for prompt in plain["prompts"]],
            [[_completion(completion) for completion in group] for group in plain["completions"]],
            plain["seconds"],
        ),
        [[Verdict(**verdict) for verdict in group] for group in plain["verdicts"]],
        [tuple(map(from_json, records)) for records in plain["peers"]],
    )


def _completion(plain: Mapping[str, Any]) -> Completion:
    trace = plain["trace"]
    return Completion(
        **{
            **plain,
            "token_ids": tuple(plain["token_ids"]),
            "logprobs": tuple(plain["logprobs"]),
            "trace": None if trace is None else _trace(**trace),
        }
    )


def _trace(spans: Sequence[Sequence[int]], logprobs: Sequence[float], eos_logprob: float | None) -> Trace:
    return Trace(tuple((start, end) for start, end in spans), tuple(logprobs), eos_logprob)
