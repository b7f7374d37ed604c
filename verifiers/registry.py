"""The verifiers by name. A user's own class joins by `register`, or is used by its dotted path without joining."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from verifiers.lookup import look_up
from verifiers.verdict import Verifier

Factory = Callable[..., Verifier]

_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a verifier known under a name.

    Args:
        name: what problems and the command line call it; no colon.
        factory: a class or function that makes the verifier; its options, if any, are keyword arguments with defaults.
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


def make(name: str, **options: Any) -> Verifier:
    """A new verifier with options of its own.

    Args:
        name: a registered name, or a dotted path `pkg.module:Class`.
        **options: what its factory takes, for example `fallback=True` for `math`.

    Raises:
        ValueError: if there is no such verifier (naming the nearest known one), it has no such option, or what its
            factory makes is no verifier.
    """
    if not isinstance(name, str):
        raise ValueError(
            f"verifier={name!r} is no name; give a registered name or a dotted path such as 'pkg.module:Class'"
        )
    factory = look_up(name, _registry, "verifier")
    try:
        verifier = factory(**options)
    except TypeError as error:
        raise ValueError(f"verifier={name!r} cannot be made with options {options!r}: {error}") from error
    if not isinstance(verifier, Verifier):
        raise ValueError(
            f"verifier={name!r} makes a {type(verifier).__name__}, which has no verify(completion, answer); add that method"
        )
    return resolve(verifier)


@functools.cache
def get(name: str) -> Verifier:
    """The verifier of that name with its default options; one instance per name.

    Raises:
        ValueError: if there is none, naming the nearest known one.
    """
    return make(name)


def resolve(verifier: str | Verifier) -> Verifier:
    """The verifier that a name, a dotted path, or a verifier itself stands for.

    Raises:
        ValueError: if the name is unknown, or the object is a class or has no `verify`.
    """
    if isinstance(verifier, str):
        return get(verifier)
    if isinstance(verifier, type):
        name = verifier.__name__
        raise ValueError(f"verifier={name} is a class; give an instance, {name}()")
    if not isinstance(verifier, Verifier):
        raise ValueError(
            f"verifier={verifier!r} is a {type(verifier).__name__}, which has no verify(completion, answer); "
            "give a name, a dotted path or an object with that method"
        )
    return verifier


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_registry))
