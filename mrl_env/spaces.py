"""Gymnasium spaces for text: what an observation and an action may be.

A few small spaces are ours, because Gymnasium's `Text` enumerates its characters (model output is any Unicode), and it
has no space for a value that may be missing, nor for plain Python numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.space import MaskNDArray

from mrl_env.exchange import Channel
from mrl_env.types import Completion

_SAMPLE_ALPHABET = "0123456789 abcxyz+-*/=^\\{}()$.,é∞√"


class UnicodeText(Space[str]):
    """Any Python string."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random string of at most 24 characters from a small alphabet."""
        length = int(self.np_random.integers(0, 25))
        return "".join(_SAMPLE_ALPHABET[i] for i in self.np_random.integers(0, len(_SAMPLE_ALPHABET), size=length))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string."""
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no flat array form."""
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CompletionText(UnicodeText):
    """A completion: a plain string, or a `Completion` record."""

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string or a `Completion`."""
        return isinstance(x, str | Completion)


class Optional(Space[Any]):
    """A value of another space, or None."""

    def __init__(self, space: Space[Any], seed: int | np.random.Generator | None = None) -> None:
        self.space = space
        super().__init__(shape=None, dtype=None, seed=seed)

    def seed(self, seed: int | None = None) -> int | list[int] | dict[str, int]:
        """Seed the inner space too."""
        self.space.seed(seed)
        return super().seed(seed)

    def sample(self, mask: MaskNDArray | None = None, probability: Any = None) -> Any:
        """None one time in eight, otherwise a value."""
        return None if self.np_random.integers(8) == 0 else self.space.sample()

    def contains(self, x: Any) -> bool:
        """Whether `x` is None or in the inner space."""
        return x is None or self.space.contains(x)

    @property
    def is_np_flattenable(self) -> bool:
        """A value that may be missing has no flat array form."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optional) and other.space == self.space

    def __repr__(self) -> str:
        return f"Optional({self.space!r})"


class Real(Space[float]):
    """A Python float in `[low, high]`."""

    def __init__(self, low: float, high: float, seed: int | np.random.Generator | None = None) -> None:
        self.low, self.high = low, high
        super().__init__(shape=None, dtype=float, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> float:
        """Uniform over the interval, cut to [-1000, 1000]."""
        return float(self.np_random.uniform(max(self.low, -1e3), min(self.high, 1e3)))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a number in the interval."""
        return isinstance(x, int | float) and self.low <= x <= self.high

    @property
    def is_np_flattenable(self) -> bool:
        """Kept as a Python number."""
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Real) or type(other) is not type(self):
            return False
        return (other.low, other.high) == (self.low, self.high)

    def __repr__(self) -> str:
        return f"Real({self.low}, {self.high})"


class Count(Real):
    """A non-negative Python integer."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(0, float("inf"), seed)

    def sample(self, mask: Any = None, probability: Any = None) -> int:
        """A small integer."""
        return int(self.np_random.integers(0, 1000))

    def contains(self, x: Any) -> bool:
        """Whether `x` is an integer of at least 0."""
        return isinstance(x, int) and x >= 0

    def __repr__(self) -> str:
        return "Count()"


TEXT = UnicodeText()
_ANY = Real(float("-inf"), float("inf"))

MESSAGES = spaces.Sequence(spaces.Dict({"role": TEXT, "content": TEXT}))
"""One prompt: chat messages."""

_WHO = {"problem_id": TEXT, "agent": TEXT, "index": Count(), "finish_reason": TEXT, "policy_version": Count()}

RECORDS: dict[Channel, spaces.Sequence] = {
    "rollouts": spaces.Sequence(spaces.Dict({**_WHO, "text": TEXT})),
    "rewards": spaces.Sequence(
        spaces.Dict(
            {**_WHO, "score": Optional(Real(0.0, 1.0)), "extracted": Optional(TEXT), "reason": TEXT, "detail": TEXT}
        )
    ),
    "advantages": spaces.Sequence(spaces.Dict({**_WHO, "advantage": _ANY})),
    "traces": spaces.Sequence(
        spaces.Dict(
            {
                **_WHO,
                "trace": Optional(
                    spaces.Dict(
                        {
                            "spans": spaces.Sequence(spaces.Tuple((Count(), Count()))),
                            "logprobs": spaces.Sequence(_ANY),
                            "eos_logprob": Optional(_ANY),
                        }
                    )
                ),
            }
        )
    ),
}
"""For each channel the records about one problem; a record says who wrote it, and carries the channel's own part."""


def observation_space(problems: int, channels: tuple[Channel, ...]) -> spaces.Dict:
    """`prompts`, and one entry per subscribed channel; each holds one element per problem of the episode.

    Args:
        problems: P, problems per episode.
        channels: what the agent subscribes to.
    """
    return spaces.Dict(
        {
            "prompts": spaces.Tuple([MESSAGES] * problems),
            **{channel: spaces.Tuple([RECORDS[channel]] * problems) for channel in channels},
        }
    )


def action_space(problems: int, generations: int) -> spaces.Tuple[Any]:
    """For each of P problems, G completions.

    Args:
        problems: P, problems per episode.
        generations: G, completions per problem.
    """
    return spaces.Tuple([spaces.Tuple([CompletionText() for _ in range(generations)]) for _ in range(problems)])
