"""Problem sources by name, path or dotted path, so that one word on the command line changes the domain."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mrl_env.types import Message, Problem, ProblemSource
from verifiers.lookup import did_you_mean, import_dotted

Factory = Callable[..., ProblemSource]

_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a problem source known under a name.

    Args:
        name: what `problems=` calls it.
        factory: called as `factory(split=..., seed=..., **options)`; returns anything with `__len__` and `__getitem__`.
            If it has a parameter `data`, it reads data of the user's choice: `"name:train.jsonl"` calls it with
            `data="train.jsonl"`. If it has a parameter `instruction`, it writes the instruction itself.
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
    demonstrations: Sequence[Sequence[str]] = (),
    domain: str | None = None,
    **options: Any,
) -> ProblemSource:
    r"""Turn whatever the user wrote for `problems` into a source.

    Args:
        problems: a registered name (`"math"`, `"arithmetic"`); a path to a `.jsonl`, `.json`, `.csv` or `.parquet` file;
            `hub:owner/name` for a dataset through Datasets; either of these behind the name of a domain that reads it
            (`"choice:train.jsonl"`); a dotted path `pkg.module:factory`; or a ready source.
        split: `"train"` or `"test"`.
        seed: for sources that draw.
        instruction: a sentence for a line of its own below each question, such as `"Put the final answer in \boxed{}."`.
        demonstrations: pairs of a question and its reply, such as `("2 + 2?", r"\boxed{4}")`, which come before each problem.
        domain: name of the registered source that reads a file or dataset given without one.
        **options: passed to the factory.

    Raises:
        ValueError: if nothing goes by that name, the source or the instruction is empty, a demonstration is no pair of texts,
            the domain is unknown, or a ready source gets options.
    """
    if isinstance(problems, os.PathLike):
        problems = os.fspath(problems)
    if domain is not None and isinstance(problems, str):
        problems = _in_domain(problems, domain)
    if instruction is not None and isinstance(problems, str) and _takes(problems.partition(":")[0], "instruction"):
        options, instruction = {**options, "instruction": instruction}, None
    source = _resolve(problems, split, seed, options)
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ValueError(f"problems={problems!r} gives a {type(source).__name__}; it needs __len__ and __getitem__")
    if len(source) == 0:
        raise ValueError(f"problems={problems!r} has no problems in split {split!r}; give a source with at least one")
    if instruction is not None:
        source = Instructed(source, instruction)
    return Demonstrated(source, demonstrations) if demonstrations else source


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


class Demonstrated:
    r"""A source whose every problem comes after the same solved ones, as turns of the conversation (few-shot prompting).

    A base model learns from them what form an answer has. They stand behind the system message, if there is one.

    Args:
        source: any source.
        demonstrations: pairs of a question and its reply.

    Raises:
        ValueError: if one of them is no pair of texts.

    Example:
        >>> source = Demonstrated([Problem("p", ({"role": "user", "content": "1 + 5?"},), "6")], [("2 + 2?", r"\boxed{4}")])
        >>> [message["content"] for message in source[0].messages]
        ['2 + 2?', '\\boxed{4}', '1 + 5?']
    """

    def __init__(self, source: ProblemSource, demonstrations: Sequence[Sequence[str]]) -> None:
        turns: list[Message] = []
        for pair in demonstrations if isinstance(demonstrations, Sequence) else [demonstrations]:
            match pair:
                case [str(question), str(reply)] if question.strip() and reply.strip():
                    turns += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
                case _:
                    raise ValueError(
                        f"demonstrations={demonstrations!r} has {pair!r}, which is no question with its reply; give pairs of "
                        r"texts, such as [['2 + 2?', '\boxed{4}']]"
                    )
        self._source, self._turns = source, tuple(turns)
        self.stored = getattr(source, "stored", False)

    def __len__(self) -> int:
        """As many problems as the source."""
        return len(self._source)

    def __getitem__(self, index: int, /) -> Problem:
        """The source's problem behind the demonstrations."""
        problem = self._source[index]
        system = next((i for i, message in enumerate(problem.messages) if message["role"] != "system"), 0)
        return replace(problem, messages=(*problem.messages[:system], *self._turns, *problem.messages[system:]))


def _resolve(problems: str | ProblemSource, split: str, seed: int, options: dict[str, Any]) -> ProblemSource:
    from mrl_env.problems.files import is_problem_file, load_rows

    if not isinstance(problems, str):
        if options:
            raise ValueError(f"problem_options={options!r} do nothing to a ready source; apply them when you make it")
        return problems
    name, colon, data = problems.partition(":")
    if "data" in options and _takes(name, "data"):
        # As an option, one file would pass for both splits.
        raise ValueError(
            f"data={options['data']!r} is no option of {name!r}; write problems='{name}:{options['data']}'"
        )
    if problems in _registry:
        return _construct(_registry[problems], problems, split, seed, options)
    if colon and _takes(name, "data"):
        return _construct(_registry[name], problems, split, seed, {**options, "data": data})
    if problems.startswith("hub:") or is_problem_file(problems):
        return load_rows(problems, split, **options)
    if ":" in problems:
        return _construct(import_dotted(problems, "problems"), problems, split, seed, options)
    raise ValueError(
        f"problems={problems!r} is neither a registered source nor a .jsonl, .json, .csv or .parquet file"
        f"{did_you_mean(problems, names())}"
    )


def _in_domain(problems: str, domain: str) -> str:
    """`problems` behind the domain's name, unless they name a source of their own.

    Raises:
        ValueError: if no source of the domain's name reads data.
    """
    from mrl_env.problems.files import is_problem_file

    if not _takes(domain, "data"):
        readers = [name for name in names() if _takes(name, "data")]
        raise ValueError(f"domain={domain!r} is no source that reads data{did_you_mean(domain, readers)}")
    name, colon, _ = problems.partition(":")
    own = problems in _registry or (colon and _takes(name, "data"))
    dotted = colon and not (problems.startswith("hub:") or is_problem_file(problems))
    return problems if own or dotted else f"{domain}:{problems}"


def _takes(name: str, parameter: str) -> bool:
    """Whether there is a registered source of that name with that parameter."""
    return name in _registry and parameter in inspect.signature(_registry[name]).parameters


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
