"""Problem sources by name, path or dotted path, so that one word on the command line changes the domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrl_env.types import ProblemSource
from verifiers.lookup import did_you_mean, import_dotted

Factory = Callable[..., ProblemSource]

_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a problem source known under a name.

    Args:
        name: what `problems=` calls it.
        factory: called as `factory(split=..., seed=..., **options)`; returns anything with `__len__` and `__getitem__`.
        replace: allow an existing name to be taken over.

    Raises:
        ValueError: if the name is taken.
    """
    if name in _registry and not replace:
        raise ValueError(f"name={name!r} is taken; choose another, or pass replace=True")
    _registry[name] = factory


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_registry))


def load_problems(
    problems: str | ProblemSource, split: str = "train", seed: int = 0, **options: Any
) -> ProblemSource:
    """Turn whatever the user wrote for `problems` into a source.

    Args:
        problems: a registered name (`"math"`, `"arithmetic"`); a path to a `.jsonl`, `.json`, `.csv` or `.parquet` file;
            `hub:owner/name` for a dataset through Datasets; a dotted path `pkg.module:factory`; or a ready source.
        split: `"train"` or `"test"`.
        seed: for sources that draw.
        **options: passed to the factory.

    Raises:
        ValueError: if nothing goes by that name, or the source is empty.
    """
    source = _resolve(problems, split, seed, options)
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ValueError(f"problems={problems!r} gives a {type(source).__name__}; it needs __len__ and __getitem__")
    if len(source) == 0:
        raise ValueError(f"problems={problems!r} has no problems in split {split!r}; give a source with at least one")
    return source


def _resolve(problems: str | ProblemSource, split: str, seed: int, options: dict[str, Any]) -> ProblemSource:
    from mrl_env.problems.files import HubProblems, is_problem_file, load_problem_file

    if not isinstance(problems, str):
        return problems
    if problems in _registry:
        return _registry[problems](split=split, seed=seed, **options)
    if problems.startswith("hub:"):
        return HubProblems(problems.removeprefix("hub:"), split=split, **options)
    if is_problem_file(problems):
        return load_problem_file(problems, **options)
    if ":" in problems:
        return import_dotted(problems)(split=split, seed=seed, **options)
    raise ValueError(
        f"problems={problems!r} is neither a registered source nor a .jsonl, .json, .csv or .parquet file"
        f"{did_you_mean(problems, names())}"
    )
