"""Names and dotted paths to objects, with a helpful error: shared by every registry of the suite."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or the list of known names if none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


def import_dotted(path: str, field: str = "path") -> Any:
    """The object at `pkg.module:Name`.

    Args:
        path: the module, a colon, and the name in it.
        field: the user's setting that holds the path, for messages.

    Raises:
        ValueError: if the path is malformed, the module cannot be imported or has no such attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{field}={path!r} is not a dotted path; write 'pkg.module:Name'")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"{field}={path!r}: module {module_name!r} cannot be imported ({error}); start from the folder that it lies in, "
            "or install it"
        ) from error
    except SyntaxError as error:
        raise ValueError(
            f"{field}={path!r}: module {module_name!r} is no Python ({error}); correct that line"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{field}={path!r}: {module_name!r} has no {attribute!r}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    return found


def look_up(name: str, registry: Mapping[str, Any], kind: str) -> Any:
    """What `name` stands for: an entry of the registry, or the object at a dotted path `pkg.module:Name`.

    Raises:
        ValueError: naming the kind, the unknown name and the nearest known one.
    """
    if name in registry:
        return registry[name]
    if ":" in name:
        return import_dotted(name, kind)
    raise ValueError(
        f"{kind}={name!r} is unknown{did_you_mean(name, registry)} (or give a dotted path 'pkg.module:Name')"
    )
