"""Environment ids, kept in PettingZoo's own registry: `mrl_env.make(id)` is `pettingzoo.make("parallel", id)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pettingzoo
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.env_registry.exceptions import PettingZooRegistryError
from pettingzoo.env_registry.spec import EnvSpec

from mrl_env.env import MutualEnv, SoloEnv, aec_env
from verifiers.lookup import did_you_mean

_ours: list[str] = []


def register(
    id: str,
    entry_point: Callable[..., ParallelEnv] | str = MutualEnv,
    aec_entry_point: Callable[..., AECEnv] | str | None = None,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """Register an environment, so that `make(id)` and `pettingzoo.make("parallel", id)` know it.

    Args:
        id: a name with a version, such as `"chemistry-mutual-v0"`.
        entry_point: what makes the parallel environment: a callable, or `"module:attribute"`. The default is `MutualEnv`,
            so that a new domain needs no class of its own: give its problems and verifier in `kwargs`.
        aec_entry_point: the same for the AEC form; `MutualEnv` brings its own.
        kwargs: default keyword arguments; `make` can override them.

    Example:
        >>> register("easy-algebra-v0", kwargs={"problem_options": {"subjects": ["algebra"], "levels": [1]}})
        >>> make("easy-algebra-v0", problems_per_episode=2).reset(seed=0)[1]["policy_0"]["problems"][0].metadata["level"]
        1
    """
    pettingzoo.register("parallel", id, entry_point, kwargs=kwargs)
    if aec_entry_point is None and entry_point is MutualEnv:
        aec_entry_point = aec_env
    if aec_entry_point is not None:
        pettingzoo.register("aec", id, aec_entry_point, kwargs=kwargs)
    if id not in _ours:
        _ours.append(id)


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
        raise ValueError(f"id={id!r} is not a registered environment{did_you_mean(id, _ours)}") from error


def make(id: str, **kwargs: Any) -> ParallelEnv:
    """Make a parallel environment by its id.

    Args:
        id: a registered id, such as `"math-mutual-v0"`.
        **kwargs: arguments of the environment; for ours see `MutualEnv`.

    Raises:
        ValueError: if there is no such id (naming the nearest), or an argument is invalid.
    """
    return pettingzoo.make("parallel", spec(id), **kwargs)


register("math-mutual-v0")
register("arithmetic-mutual-v0", kwargs={"problems": "arithmetic"})
gymnasium.register("math-solo-v0", entry_point=SoloEnv)
