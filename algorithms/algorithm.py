"""What an algorithm is: a small frozen dataclass of options with one method, from a scored group to training rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from algorithms.samples import Group, Sample
from mrl_env.exchange import Channel
from mrl_env.tokenization import Retokenizer
from mrl_env.types import Experience
from verifiers.lookup import did_you_mean, import_dotted, look_up


@dataclass(frozen=True)
class Algorithm(ABC):
    """Options common to all algorithms, and the one method that distinguishes them.

    A new algorithm is a subclass in a file of its own; its dataclass fields become command-line options and config keys.
    """

    channels: ClassVar[tuple[Channel, ...]] = ()
    """What it reads of its peers. Without `rollouts` it cannot have rows from them."""

    scale_rewards: bool = True
    """Divide advantages by the standard deviation of the rewards (TRL's `scale_rewards`); otherwise only centre them."""

    @abstractmethod
    def rows(self, group: Group, peers: Sequence[Experience], retokenize: Retokenizer) -> list[Sample]:
        """Training rows for one problem.

        Pure: the same arguments give the same rows; random draws come from `group.rng(...)`.

        Args:
            group: the policy's own completions with their verdicts.
            peers: the peers' records of the same problem, as far as `channels` shows them.
            retokenize: turns a peer's record into the learner's tokens, or None if it had to be dropped.
        """


ALGORITHMS: dict[str, str] = {
    "grpo": "algorithms.grpo:GRPO",
    "prp": "algorithms.prp:PRP",
    "xgrpo": "algorithms.xgrpo:XGRPO",
    "sgt": "algorithms.sgt:SGT",
}
"""Algorithms by name. One's own needs no entry here: give its dotted path `pkg.module:Class`."""


def algorithm_class(name: str) -> type[Algorithm]:
    """The class that a name or a dotted path stands for.

    Raises:
        ValueError: if there is none, or it is no `Algorithm`.
    """
    found = import_dotted(ALGORITHMS[name]) if name in ALGORITHMS else look_up(name, ALGORITHMS, "algorithm")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"algorithm={name!r} is {found!r}; give a subclass of algorithms.Algorithm")
    return found


def make_algorithms(names: Sequence[str], options: Mapping[str, Any]) -> list[Algorithm]:
    """One algorithm per name, each with those of the options that it has.

    Args:
        names: names or dotted paths, one per policy.
        options: field name to value, for all of them together.

    Raises:
        ValueError: on an unknown algorithm, or an option that none of them has.
    """
    classes = [algorithm_class(name) for name in names]
    known = {field.name for cls in classes for field in fields(cls)}
    for option in options:
        if option not in known:
            raise ValueError(f"option {option!r} belongs to none of {', '.join(names)}{did_you_mean(option, known)}")
    return [
        cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options}) for cls in classes
    ]


def refuse_delay(algorithms: Sequence[Algorithm], staleness: int) -> None:
    """Refuse algorithms whose peers' records cannot come late: those that read something of peers, but have no rows from them.

    Args:
        algorithms: of all policies.
        staleness: steps by which they come late.

    Raises:
        ValueError: if one of them does not allow it.
    """
    for algorithm in algorithms:
        if staleness and algorithm.channels and "rollouts" not in algorithm.channels:
            raise ValueError(
                f"exchange_staleness={staleness}, but {type(algorithm).__name__} puts what its peers say into the rows of its "
                "own completions, which are learnt before that is there; set exchange_staleness=0, or choose another algorithm"
            )
