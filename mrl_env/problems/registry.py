"""Problem sources by name, path or dotted path, so that one word on the command line changes the domain."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mrl_env.types import Problem, ProblemSource
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
    problems: str | os.PathLike[str] | ProblemSource,
    split: str = "train",
    seed: int = 0,
    instruction: str | None = None,
    **options: Any,
) -> ProblemSource:
    r"""Turn whatever the user wrote for `problems` into a source.

    Args:
        problems: a registered name (`"math"`, `"arithmetic"`); a path to a `.jsonl`, `.json`, `.csv` or `.parquet` file;
            `hub:owner/name` for a dataset through Datasets; a dotted path `pkg.module:factory`; or a ready source.
        split: `"train"` or `"test"`.
        seed: for sources that draw.
        instruction: a sentence for a line of its own below each question, such as `"Put the final answer in \boxed{}."`.
        **options: passed to the factory.

    Raises:
        ValueError: if nothing goes by that name, the source or the instruction is empty, or a ready source gets options.
    """
    if isinstance(problems, os.PathLike):
        problems = os.fspath(problems)
    source = _resolve(problems, split, seed, options)
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ValueError(f"problems={problems!r} gives a {type(source).__name__}; it needs __len__ and __getitem__")
    if len(source) == 0:
        raise ValueError(f"problems={problems!r} has no problems in split {split!r}; give a source with at least one")
    return source if instruction is None else Instructed(source, instruction)


class Instructed:
    """A source whose every question ends in the same instruction.

    Args:
        source: any source.
        instruction: a sentence.

    Raises:
        ValueError: if the instruction is empty.
    """

    def __init__(self, source: ProblemSource, instruction: str) -> None:
        if not isinstance(instruction, str) or not instruction.strip():
            raise ValueError(f"instruction={instruction!r} is empty; give a sentence, or leave it out")
        self._source, self._instruction = source, instruction
        self.stored = getattr(source, "stored", False)

    def __len__(self) -> int:
        """As many problems as the source."""
        return len(self._source)

    def __getitem__(self, index: int, /) -> Problem:
        """The source's problem with the instruction below its question."""
        problem = self._source[index]
        question = {**problem.messages[-1], "content": f"{problem.question}\n{self._instruction}"}
        return replace(problem, messages=(*problem.messages[:-1], question))


def _resolve(problems: str | ProblemSource, split: str, seed: int, options: dict[str, Any]) -> ProblemSource:
    from mrl_env.problems.files import HubProblems, is_problem_file, load_problem_file

    if not isinstance(problems, str):
        if options:
            raise ValueError(f"problem_options={options!r} do nothing to a ready source; apply them when you make it")
        return problems
    if problems in _registry:
        return _construct(_registry[problems], problems, split, seed, options)
    if problems.startswith("hub:"):
        return HubProblems(problems.removeprefix("hub:"), split=split, **options)
    if is_problem_file(problems):
        return load_problem_file(problems, **options)
    if ":" in problems:
        return _construct(import_dotted(problems), problems, split, seed, options)
    raise ValueError(
        f"problems={problems!r} is neither a registered source nor a .jsonl, .json, .csv or .parquet file"
        f"{did_you_mean(problems, names())}"
    )


def _construct(factory: Factory, name: str, split: str, seed: int, options: dict[str, Any]) -> ProblemSource:
    """Call a factory; options that it does not take are the user's mistake.

    Raises:
        ValueError: naming the option and those that there are.
    """
    try:
        inspect.signature(factory).bind(split=split, seed=seed, **options)
    except TypeError as error:
        parameters = ", ".join(inspect.signature(factory).parameters)
        raise ValueError(
            f"problems={name!r} cannot be made with {options!r}: {error}; it takes {parameters}"
        ) from error
    return factory(split=split, seed=seed, **options)
