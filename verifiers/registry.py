"""The verifiers by name. A user's own class joins by `register`, or is used by its dotted path without joining."""

from __future__ import annotations

import functools
from collections.abc import Callable

from verifiers.lookup import look_up
from verifiers.verdict import Verifier

Factory = Callable[[], Verifier]

_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a verifier known under a name.

    Args:
        name: what problems and the command line call it; no colon.
        factory: a class or function without arguments that makes the verifier.
        replace: allow an existing name to be taken over.

    Raises:
        ValueError: if the name is taken or has a colon.
    """
    if ":" in name:
        raise ValueError(f"name={name!r} has a colon, which marks dotted paths; choose another name")
    if name in _registry and not replace:
        raise ValueError(f"name={name!r} is taken; choose another, or pass replace=True")
    _registry[name] = factory
    get.cache_clear()


@functools.cache
def get(name: str) -> Verifier:
    """The verifier called `name`, or made from the class at a dotted path `pkg.module:Class`. One instance per name.

    Raises:
        ValueError: if there is none, naming the nearest known one.
    """
    verifier = look_up(name, _registry, "verifier")()
    if not isinstance(verifier, Verifier):
        raise ValueError(f"verifier={name!r} makes a {type(verifier).__name__}, which has no verify(completion, answer)")
    return verifier


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_registry))
