"""Environment ids, kept in PettingZoo's own registry: `mrl_env.make(id)` is `pettingzoo.make("parallel", id)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import pettingzoo
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.env_registry.exceptions import PettingZooRegistryError
from pettingzoo.env_registry.spec import EnvSpec
from pettingzoo.utils import parallel_to_aec

from mrl_env.env import MutualEnv, SoloEnv
from verifiers.lookup import did_you_mean

_ours: list[str] = []


def register(
    id: str,
    entry_point: Callable[..., ParallelEnv] | str = MutualEnv,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """Register an environment, so that `make(id)` and `pettingzoo.make("parallel", id)` know it.

    `pettingzoo.make("aec", id)` knows it too, through PettingZoo's own conversion.

    Args:
        id: a name with a version, such as `"chemistry-mutual-v0"`.
        entry_point: what makes the parallel environment: a callable, or `"module:attribute"`. The default is
            `MutualEnv`, so that a new domain needs no class of its own: give its problems and verifier in `kwargs`.
        kwargs: default keyword arguments; `make` can override them.

    Raises:
        ValueError: if the id is malformed.

    Example:
        >>> register("easy-algebra-v0", kwargs={"problem_options": {"subjects": ["algebra"], "levels": [1]}})
        >>> observations, infos = make("easy-algebra-v0").reset(seed=0)
        >>> infos["policy_0"]["problems"][0].metadata["level"]
        1
    """
    try:
        pettingzoo.register("parallel", id, entry_point, kwargs=kwargs)
    except PettingZooRegistryError as error:
        raise ValueError(f"id={id!r} is malformed; write a name and a version, as in 'chemistry-mutual-v0'") from error
    pettingzoo.register("aec", id, partial(_make_aec, id))
    known = spec(id).id  # PettingZoo writes a version of "_v0" as "-v0"
    if known not in _ours:
        _ours.append(known)


def registered() -> tuple[str, ...]:
    """The ids registered through this module."""
    return tuple(_ours)


def spec(id: str) -> EnvSpec:
    """The registry's entry of a parallel environment.

    Raises:
        ValueError: if there is no such id, naming the nearest.
    """
    try:
        return pettingzoo.spec("parallel", id)
    except PettingZooRegistryError as error:
        raise ValueError(f"env id={id!r} is not registered{did_you_mean(id, _ours)}") from error


def make(id: str, **kwargs: Any) -> ParallelEnv:
    """Make a parallel environment by its id.

    Args:
        id: a registered id, such as `"math-mutual-v0"`.
        **kwargs: arguments of the environment; for ours see `MutualEnv`.

    Raises:
        ValueError: if there is no such id (naming the nearest), or an argument is invalid.
    """
    return pettingzoo.make("parallel", spec(id), **kwargs)


def _make_aec(id: str, **kwargs: Any) -> AECEnv:
    return parallel_to_aec(make(id, **kwargs))


register("math-mutual-v0")
register("arithmetic-mutual-v0", kwargs={"problems": "arithmetic"})
register("gsm8k-mutual-v0", kwargs={"problems": "gsm8k", "domain": "gsm8k"})
register("choice-mutual-v0", kwargs={"problems": "choice", "domain": "choice"})
register("reasoning-gym-mutual-v0", kwargs={"problems": "reasoning_gym"})
gymnasium.register("math-solo-v0", entry_point=SoloEnv)
