"""Compare algorithms on the same problems with the same budget: run a grid, then make tables, figures and verdicts of it.

    python -m benchmarks.compare --algorithms grpo prp_s prp_t xgrpo sgt --seeds 5 --pool tiny
    python -m benchmarks.compare --study stress --jobs 4

The same command goes on after an interruption; runs that are done are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from algorithms.config import read_yaml
from benchmarks.compare.collect import broke_off, collect, write_tensorboard
from benchmarks.compare.grid import COMMON, Cell, Study, check_problems, default_jobs, make_cells, run_grid, show_cells
from benchmarks.compare.methods import METHODS
from benchmarks.compare.pools import find_pools
from benchmarks.pictures import empty_figure
from verifiers.lookup import did_you_mean
from verifiers.printing import printable_lines

STUDIES = Path(__file__).parent / "studies"

DEFAULTS: dict[str, Any] = {
    "algorithms": ["grpo", "prp_s", "prp_t", "xgrpo", "sgt"],
    "seeds": 2,
    "first_seed": 0,
    "pool": ["tiny"],
    "domain": "arithmetic",
    "kl_problems": 96,
    "reach_samples": 64,
}
"""What a study is made of beside the settings of its runs."""

INSTEAD = {
    "seed": "give seeds and first_seed",
    "algorithm": "give algorithms",
    "model_name_or_path": "give pool",
    "env": "give domain",
    "output_dir": "give output",
    "resume_from_checkpoint": "runs are always gone on with",
    "overwrite_output_dir": "remove the folder, or give another output",
}
"""Settings of a run that the grid makes itself, and what to give instead."""


def parser() -> argparse.ArgumentParser:
    """The command line; settings of the runs are not among its own options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog="Any setting of a run can be given too, for all methods alike, as `--max_steps 50` or `--learning_rate 3e-4`;\n"
        f"python -m algorithms.grpo --help explains them. Here the defaults are {COMMON}.",
    )
    add = made.add_argument
    add("--study", help=f"a recipe: {', '.join(studies())}, or a YAML file with the options' names as keys")
    add("--algorithms", nargs="+", metavar="METHOD", help=f"some of {', '.join(METHODS)}")
    add("--seeds", type=int, help="number of seeds")
    add("--first_seed", type=int, help="the first of them; others than those reported for choosing settings")
    add(
        "--pool",
        nargs="+",
        metavar="POOL",
        help="warm starts: tiny, small (MRL_MODELS), a folder with a model folder per policy, or MODEL,MODEL; "
        "NAME=... names it",
    )
    add("--domain", help="problems: arithmetic, math or another NAME of an environment NAME-mutual-v0")
    add("--kl_problems", type=int, help="held-out problems on which KL and entropy are measured")
    add("--reach_samples", type=int, help="completions per held-out problem that tell what a start can reach")
    add("--jobs", type=int, help="runs at once; by default as many as GPUs, or else CPU cores")
    add("--output", type=Path, help="folder for everything; by default runs/compare/STUDY")
    add("--report", type=Path, help="folder for tables and figures, named as the study; by default OUTPUT/report/STUDY")
    add("--dry_run", action="store_true", help="list the runs, their hashes and what is done, and do nothing")
    return made


def studies() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def make_study(options: argparse.Namespace, overrides: dict[str, Any]) -> Study:
    """The study that the command line asks for: defaults, then the recipe, then the options.

    Raises:
        ValueError: if the recipe or a pool does not exist, or a value has another type or range.
    """
    recipe: dict[str, Any] = {}
    if options.study is not None:
        path = Path(options.study)
        if path.suffix not in (".yaml", ".yml"):
            path = STUDIES / f"{options.study}.yaml"
        if not path.is_file():
            raise ValueError(f"study={options.study!r} is no recipe{did_you_mean(options.study, studies())}")
        recipe = read_yaml(path)
    given = {key: value for key in DEFAULTS if (value := getattr(options, key)) is not None}
    chosen = {**DEFAULTS, **recipe, **given}
    for key, least in (("seeds", 1), ("first_seed", 0), ("kl_problems", 1), ("reach_samples", 1)):
        if type(chosen[key]) is not int or chosen[key] < least:
            raise ValueError(f"{key}={chosen[key]!r} is invalid; give an integer of at least {least}")
    for key in ("algorithms", "pool"):
        chosen[key] = [chosen[key]] if isinstance(chosen[key], str) else chosen[key]
        if not _are_names(chosen[key]):
            raise ValueError(f"{key}={chosen[key]!r} is invalid; give one name or more, as a list")
    if not _are_names([chosen["domain"]]):
        raise ValueError(f"domain={chosen['domain']!r} is invalid; give the NAME of an environment NAME-mutual-v0")
    settings = {**{key: value for key, value in recipe.items() if key not in DEFAULTS}, **overrides}
    for key, instead in INSTEAD.items():
        if key in settings:
            raise ValueError(f"{key}={settings[key]!r} cannot be one for all runs; {instead}")
    return Study(
        name="compare" if options.study is None else Path(options.study).stem,
        methods=tuple(dict.fromkeys(chosen["algorithms"])),
        pools=tuple(find_pools(chosen["pool"])),
        seeds=tuple(range(chosen["first_seed"], chosen["first_seed"] + chosen["seeds"])),
        domain=chosen["domain"],
        settings=settings,
        kl_problems=chosen["kl_problems"],
        reach_samples=chosen["reach_samples"],
    )


def _are_names(values: Any) -> bool:
    """Whether this is a list of one text or more, none of them empty."""
    listed = isinstance(values, list) and bool(values)
    return listed and all(isinstance(value, str) and value.strip() for value in values)


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Settings from `--key value` and `--key value value`, the values as YAML.

    Raises:
        ValueError: if something else stands there.

    Example:
        >>> parse_overrides(["--max_steps", "6", "--learning_rate", "1e-4", "2e-4", "--stop_at_boxed=true"])
        {'max_steps': 6, 'learning_rate': ['1e-4', '2e-4'], 'stop_at_boxed': True}
    """
    found: dict[str, list[Any]] = {}
    key = None
    for argument in arguments:
        if argument.startswith("--"):
            key, separator, value = argument.removeprefix("--").partition("=")
            found[key] = [yaml.safe_load(value)] if separator else []
        elif key is None:
            raise ValueError(f"{argument!r} belongs to no option; write --key value")
        else:
            found[key].append(yaml.safe_load(argument))
    for key, values in found.items():
        if not values:
            raise ValueError(f"--{key} has no value; write --{key} VALUE")
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def write_results(study: Study, cells: Sequence[Cell], output: Path, command: str) -> dict[str, Any]:
    """Write `results.json` and the TensorBoard folder; returns the results."""
    results = collect(study, cells, command)
    (output / "results.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    write_tensorboard(cells, output / "tensorboard")
    return results


def lost_runs(results: dict[str, Any], stored: Path) -> int:
    """Number of runs in a stored file of results that these lack."""
    if not stored.is_file():
        return 0
    kept = {run["hash"] for run in results["runs"]}
    return sum(run.get("hash") not in kept for run in json.loads(stored.read_text(encoding="utf-8"))["runs"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, collect, report.

    Returns:
        0; 1 if a run failed; 2 on a mistake of the user's; 130 after an interruption.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    options, rest = parser().parse_known_args(arguments)
    try:
        if options.jobs is not None and options.jobs < 1:
            raise ValueError(f"jobs={options.jobs} runs nothing; give at least 1")
        study = make_study(options, parse_overrides(rest))
        output = options.output or Path("runs", "compare", study.name)
        folder = options.report or output / "report" / study.name
        if folder.resolve().name != study.name:
            raise ValueError(
                f"report={str(folder)!r} must be named as the study, {study.name!r}; give {str(folder / study.name)!r}"
            )
        cells = make_cells(study, output)
        check_problems(cells)
        empty_figure()
    except ValueError as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    if options.dry_run:
        print(show_cells(cells))
        return 0
    try:
        failed = run_grid(cells, options.jobs or default_jobs(), sys.stdout)
    except KeyboardInterrupt as interruption:
        print(interruption, file=sys.stderr)
        return 130
    if any(cell.done and not broke_off(cell) for cell in cells):
        # Tables and figures need more packages than the runs.
        from benchmarks.compare.report import write_report

        command = shlex.join(["python", "-m", "benchmarks.compare", *arguments])
        results = write_results(study, cells, output, command)
        if lost := lost_runs(results, folder / "results.json"):
            print(f"warning: {folder} had {lost} run(s) more, which this grid has not", file=sys.stderr)
        write_report(results, folder)
        print(f"results: {output / 'results.json'}; curves: tensorboard --logdir {output / 'tensorboard'}")
    for cell in failed:
        print(f"failed: {cell.label}; see {cell.folder / 'log.txt'}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
