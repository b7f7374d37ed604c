"""From a file or a hub dataset to a sequence of problems: read, check every row, filter."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, overload

from mrl_env.problems.files.readers import READERS, Rows, at_rows, import_extra
from mrl_env.problems.files.rows import RowError, parse_row
from mrl_env.types import Problem
from verifiers.lookup import did_you_mean
from verifiers.printing import printable, shown

SHOWN_ERRORS = 5
"""Malformed rows that an error spells out; the others it counts."""


@dataclass(frozen=True)
class ReadOptions:
    r"""What to take from a file or dataset, and how.

    Attributes:
        skip_invalid: leave malformed rows out, count them in `skipped` and warn once, in place of refusing the file.
        subjects: keep these subjects only, upper and lower case being the same; None keeps all.
        levels: keep these levels only; None keeps all.
        limit: keep the first so many of what the filters leave, and read no further.
        verifier: verifies every problem, whatever the rows say.
            None by default: the question is asked as the file has it.

    Raises:
        ValueError: on an invalid value, naming it and the remedy.
    """

    skip_invalid: bool = False
    subjects: Collection[str] | None = None
    levels: Collection[int] | None = None
    limit: int | None = None
    verifier: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.skip_invalid, bool):
            raise ValueError(f"skip_invalid={self.skip_invalid!r} is invalid; give True or False")
        _check_collection("subjects", self.subjects, str, '["Algebra", "Geometry"]')
        _check_collection("levels", self.levels, int, "[1, 2]")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 1):
            raise ValueError(f"limit={self.limit!r} is invalid; give a whole number of at least 1, or None for all")
        if self.verifier is not None and not (isinstance(self.verifier, str) and self.verifier.strip()):
            raise ValueError(f"verifier={self.verifier!r} is invalid; give a verifier's name, or None")

    @classmethod
    def of(cls, options: dict[str, Any]) -> ReadOptions:
        """From keyword arguments.

        Raises:
            ValueError: on an unknown one, naming the nearest known.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise ValueError(
                    f"{name}={options[name]!r}: problem files have no such option{did_you_mean(name, known)}"
                )
        return cls(**options)

    def keeps(self, problem: Problem) -> bool:
        """Whether the problem passes both filters."""
        subject, level = problem.metadata.get("subject"), problem.metadata.get("level")
        if self.subjects is not None and _folded(subject) not in {_folded(wanted) for wanted in self.subjects}:
            return False
        return self.levels is None or level in self.levels


Convert = Callable[[Problem], Problem]
"""What a domain makes of a row's problem; raises `RowError` if the row does not belong in the domain."""


def as_it_is(problem: Problem) -> Problem:
    """The problem, unchanged."""
    return problem


class ParsedProblems(Sequence[Problem]):
    """Problems that were read from somewhere, all checked; a sequence that can be pickled.

    Args:
        origin: where the rows come from, for messages.
        stem: beginning of the id of rows that have none.
        rows: place and cells of each row.
        options: what to take, and how.
        convert: what a domain makes of each problem.

    Attributes:
        stored: True: the problems are at hand, so that all of them can be checked before training.
        origin: as given.
        skipped: how many rows were left out as malformed, by reason; empty unless `skip_invalid`.

    Raises:
        ValueError: on malformed rows, unless `skip_invalid`; if no problem is left; if a subject or level asked for
            does not occur.
    """

    stored = True

    def __init__(self, origin: str, stem: str, rows: Rows, options: ReadOptions, convert: Convert = as_it_is) -> None:
        self.origin = origin
        self.skipped: Counter[str] = Counter()
        self._problems: list[Problem] = []
        errors: list[str] = []
        places: dict[str, str] = {}
        found: set[tuple[Any, Any]] = set()
        for index, (place, cells) in enumerate(rows):
            try:
                if isinstance(cells, RowError):
                    raise cells
                problem = convert(parse_row(cells, f"{stem}-{index}", verifier=options.verifier))
                if problem.id in places:
                    raise RowError(
                        "duplicate id",
                        f"column 'id': {shown(problem.id)} is already at {places[problem.id]}; make ids unique",
                    )
            except RowError as error:
                self.skipped[error.reason] += 1
                errors += [f"{place}, {error}"] * (len(errors) < SHOWN_ERRORS)
                continue
            places[problem.id] = place
            found.add((problem.metadata.get("subject"), problem.metadata.get("level")))
            if options.keeps(problem):
                self._problems.append(problem)
                if len(self._problems) == options.limit:
                    break
        if self.skipped:
            self._refuse_or_warn(errors, options.skip_invalid)
        if not places:
            raise ValueError(f"{origin} has no {'usable ' if errors else ''}rows; give at least one problem")
        if len(self._problems) != options.limit:
            _check_found(origin, "subjects", options.subjects, {subject for subject, _ in found} - {None}, _folded)
            _check_found(origin, "levels", options.levels, {level for _, level in found} - {None}, str)
        if not self._problems:
            raise ValueError(
                f"{origin} has no problem with both subjects={options.subjects!r} and levels={options.levels!r}; "
                "widen one"
            )

    def _refuse_or_warn(self, errors: list[str], skip_invalid: bool) -> None:
        total = self.skipped.total()
        rows = f"{total} malformed row{'s' * (total > 1)}"
        if skip_invalid:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.most_common())
            # To whoever called load_problem_file or HubProblems.
            warnings.warn(printable(f"{self.origin}: left out {rows} ({reasons})"), stacklevel=4)
            return
        more = [f"and {total - len(errors)} more"] * (total > len(errors))
        raise ValueError(
            "\n  ".join([f"{self.origin}: {rows}; repair, or leave them out with skip_invalid=True", *errors, *more])
        )

    def __len__(self) -> int:
        return len(self._problems)

    @overload
    def __getitem__(self, index: int, /) -> Problem: ...

    @overload
    def __getitem__(self, index: slice, /) -> list[Problem]: ...

    def __getitem__(self, index: int | slice, /) -> Problem | list[Problem]:
        return self._problems[index]

    def __repr__(self) -> str:
        return f"<{len(self)} problems from {self.origin}>"


class HubProblems(ParsedProblems):
    """Problems from a dataset on the hub, or from a local dataset folder, through Datasets.

    Columns are those of files (see `rows`).

    Args:
        name: `owner/name`, or a folder.
        split: the dataset's split, with Datasets' slices (`"train[:100]"`).
        config: the dataset's configuration, where it has several.
        revision: a branch, tag or commit of the dataset.
        convert: what a domain makes of each problem.
        **options: see `ReadOptions`.

    Raises:
        ValueError: if Datasets is not installed or cannot load the dataset, or as for files.
    """

    def __init__(
        self,
        name: str,
        split: str = "train",
        config: str | None = None,
        revision: str | None = None,
        convert: Convert = as_it_is,
        **options: Any,
    ) -> None:
        checked = ReadOptions.of(options)
        datasets = import_extra("datasets")
        try:
            dataset = datasets.load_dataset(name, config, split=split, revision=revision)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"problems='hub:{name}' cannot be loaded with split={split!r}, config={config!r}, "
                f"revision={revision!r} ({error}); check the four, and the connection, "
                "or give a file in place of the dataset"
            ) from error
        super().__init__(f"hub:{name}[{split}]", f"{Path(name).name}-{split}", at_rows(dataset), checked, convert)


def is_problem_file(path: str) -> bool:
    """Whether this is meant as a file: by its extension, by a folder in front, or because it exists.

    Example:
        >>> is_problem_file("data/train.jsonl"), is_problem_file("pkg.module:factory"), is_problem_file("gsm8k:hub:me/mine")
        (True, False, False)
    """
    if path.startswith("hub:") or ":hub:" in path:
        return False
    return Path(path).suffix.lower() in READERS or "/" in path or os.sep in path or Path(path).is_file()


def load_rows(name: str, split: str, convert: Convert = as_it_is, **options: Any) -> ParsedProblems:
    """The problems of `hub:owner/name`, or of a file, which is one split whatever `split` says.

    Args:
        name: `hub:` and a dataset's name, or a path.
        split: the dataset's split.
        convert: what a domain makes of each problem.
        **options: see `ReadOptions`; for a dataset also `config` and `revision`.

    Raises:
        ValueError: as `HubProblems` or `load_problem_file`.
    """
    if name.startswith("hub:"):
        return HubProblems(name.removeprefix("hub:"), split=split, convert=convert, **options)
    return load_problem_file(name, convert=convert, **options)


def load_problem_file(path: str | os.PathLike[str], convert: Convert = as_it_is, **options: Any) -> ParsedProblems:
    """The problems of a `.jsonl`, `.json`, `.csv` or `.parquet` file, which is one split.

    `rows` lists the columns, `readers` the formats.

    Args:
        path: the file; `~` is the home folder.
        convert: what a domain makes of each problem.
        **options: see `ReadOptions`.

    Raises:
        ValueError: if there is no such file or its extension is unknown; on an unknown or invalid option; on malformed
            rows, naming the file, the line, the column, the value found and the remedy.
    """
    checked = ReadOptions.of(options)
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(_missing(file))
    if file.suffix.lower() not in READERS:
        raise ValueError(f"{file}: the extension {file.suffix!r} is unknown; use one of {', '.join(READERS)}")
    return ParsedProblems(str(file), file.stem, READERS[file.suffix.lower()](file), checked, convert)


def _missing(file: Path) -> str:
    if file.is_dir():
        return f"{file} is a folder; name one of its files"
    if not file.parent.is_dir():
        return f"{file}: there is no folder {str(file.parent)!r} (a dataset on the hub is called 'hub:owner/name')"
    neighbours = [path.name for path in file.parent.iterdir() if path.suffix.lower() in READERS]
    if not neighbours:
        return f"{file}: there is no such file, nor any problem file in its folder"
    return f"{file}: there is no such file{did_you_mean(file.name, neighbours)}"


def _folded(subject: Any) -> str | None:
    return subject.casefold() if isinstance(subject, str) else None


def _check_collection(name: str, value: Any, item: type, example: str) -> None:
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, Collection) or any(type(entry) is not item for entry in value):
        raise ValueError(f"{name}={value!r} is invalid; give a list such as {example}, or None for all")
    if not value:
        raise ValueError(f"{name}={value!r} keeps nothing; give a list such as {example}, or None for all")


def _check_found(
    origin: str, name: str, wanted: Collection[Any] | None, found: set[Any], key: Callable[[Any], Any]
) -> None:
    """Refuse a filter on what does not occur: it is a slip, and would go unseen beside filters that match."""
    for value in wanted or ():
        if key(value) not in set(map(key, found)):
            remedy = did_you_mean(str(value), map(str, found)) if found else "; its rows name none"
            raise ValueError(f"{name}={wanted!r}: {value!r} does not occur in {origin}{remedy}")
