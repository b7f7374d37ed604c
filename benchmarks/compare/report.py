"""A study's page from its results alone: `python -m benchmarks.compare.report RESULTS.json [...] --output docs/results`.

    OUTPUT/STUDY/results.json   what was measured, rounded to six digits: all else is made from it
    OUTPUT/STUDY/README.md      tables, verdicts, pictures
    OUTPUT/STUDY/*.svg, *.png   the pictures
    OUTPUT/claims.md            the verdicts of all the given studies side by side, C6 among them

With `--check` nothing is written: pages and SVG pictures are made anew in memory and compared with those in OUTPUT.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.claims import judge, pays_where_policies_differ
from benchmarks.compare.figures import draw_all, save_png, svg
from benchmarks.compare.findings import Finding, bracket, number
from benchmarks.compare.results import (
    POOL,
    Measure,
    Results,
    area,
    broken,
    check,
    final,
    groups,
    held_out,
    in_order,
    load,
    methods,
    paired,
    policies,
    pools,
    runs_of,
    steps,
    title,
    trained,
    values,
)
from benchmarks.statistics import (
    cluster_interval,
    cluster_p,
    hierarchical_interval,
    holm,
    probability_of_improvement,
    share_of_wins,
    sign_flip_p,
    stratified_interval,
)
from verifiers.printing import printable_lines

CAPTIONS = {
    "curves": "Held-out greedy reward over training.",
    "differences": "Paired differences from the baseline, and probability of improvement (hollow: no interval).",
    "dynamics": "Entropy, KL, gate and importance ratios over training.",
    "subjects": "By subject, before and after.",
}

COLUMNS: tuple[tuple[str, Measure, float, int], ...] = (
    ("reward@1", final("reward"), 100, 1),
    ("mean@k", final("mean"), 100, 1),
    ("area", area("reward"), 100, 1),
    ("KL", final("kl"), 1, 3),
    ("entropy", final("entropy"), 1, 3),
    ("gate", trained("exchange/rescue_rate"), 100, 1),
)
"""Columns of the tables of results: heading, measure, factor and digits; the interquartile mean comes after the third."""

NOTES = """\
*Verdicts*: each at 5 % by itself, not adjusted for how many there are; Holm's p, beside them, is adjusted for all of this page.
No interval here contains the luck of the {problems} held-out problems, which are the same in all runs; C2 stays undecided where
its 1.5 points are fewer than four of them. Where a run of a method broke off, no claim about it is confirmed (nor C3 refuted):
what is left may be the lucky part.

*Results*: at the last evaluation, on held-out problems. reward@1: greedy, in %; mean@k: sampled, in %; area: normalised area
under the curve of reward@1; IQM: interquartile mean of reward@1 with the stratified bootstrap; KL (to the start) and entropy in
nats per token; gate: share of training prompts rescued by a peer, in %. Brackets: 95 % percentile bootstrap, warm starts
resampled, then runs within them. From few warm starts such an interval is too narrow (from three it covered the truth in 79 %
of simulated studies), so verdicts rest on *t*: Student's t over the warm starts' means, or over the runs if there is one warm
start. Where there is no bracket, one value or values without any spread allow none. runs: those that are complete, and of how
many.

*Differences*: reward@1 in percentage points, paired by warm start and seed. wins: share of pairs won, ties half. P: chance that
a run beats a run of the baseline from the same warm start. sign flips: p over the pairs (exact up to 40, else of 20,000
draws), as if warm starts did not matter. Holm: the p of t, adjusted for all methods of that table."""


# Numbers and tables -----------------------------------------------------------------------------------------------------


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first columns are on the left, the others on the right."""
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (header, rule, *rows)
    )


def results_table(results: Results, policy: str) -> str:
    """One line per method: what a policy, or the pool, has become."""
    lines = []
    for method in methods(results):
        cells = []
        for name, measure, factor, digits in COLUMNS:
            found = groups(values(results, method, policy, measure))
            interval = hierarchical_interval(found, name, policy, method) if found else None
            cells.append(bracket(interval, factor, digits) if interval else "")
        rewards = groups(values(results, method, policy, final("reward")))
        cells.insert(3, bracket(stratified_interval(rewards, policy, method), 100, 1))
        lines.append([title(method), complete(results, method), *cells])
    for method in in_order(results, {lost["method"] for lost in results["missing"]} - set(methods(results))):
        lines.append([title(method), complete(results, method), *[""] * (len(COLUMNS) + 1)])
    names = [name for name, *_ in COLUMNS]
    return markdown_table(["method", "runs", *names[:3], "IQM", *names[3:]], lines)


def complete(results: Results, method: str) -> str:
    """How many of a method's runs there are, and what became of the others: `5 of 6; 1 broke off`."""
    lost = [entry for entry in results["missing"] if entry["method"] == method]
    done, broke = len(runs_of(results, method)), len(broken(results, method))
    if not lost:
        return str(done)
    others = [(broke, "broke off"), (len(lost) - broke, "unfinished")]
    return "; ".join([f"{done} of {done + len(lost)}", *(f"{number} {what}" for number, what in others if number)])


def gaps(results: Results) -> list[str]:
    """For each method without all of its runs, which are missing and why; the unfinished ones are only counted."""
    lines = []
    for method in in_order(results, {lost["method"] for lost in results["missing"]}):
        broke = [
            f"{lost['pool']} seed {lost['seed']} broke off at step {lost['steps']} ({lost['reason']})"
            for lost in broken(results, method)
        ]
        lines.append("; ".join([f"- **{title(method)}: {complete(results, method)}**", *broke]))
    return lines


def differences_table(results: Results, policy: str) -> str | None:
    """One line per method but the baseline: the paired difference of the final reward; None if there is no pair."""
    baseline = results["baseline"]
    measure = final("reward")
    reference = values(results, baseline, policy, measure)
    found: dict[str, list[np.ndarray]] = {}
    for method in methods(results):
        pairs = groups(paired(results, method, baseline, policy, measure))
        if method != baseline and pairs:
            found[method] = pairs
    if not found:
        return None
    adjusted = holm([cluster_p(pairs) for pairs in found.values()])
    lines = []
    for (method, pairs), p in zip(found.items(), adjusted, strict=True):
        mine = values(results, method, policy, measure)
        common = [pool for pool in mine if pool in reference]
        x, y = (groups({pool: by_pool[pool] for pool in common}) for by_pool in (mine, reference))
        differences = np.concatenate(pairs)
        area_pairs = groups(paired(results, method, baseline, policy, area("reward")))
        lines.append(
            [
                title(method),
                str(len(differences)),
                bracket(hierarchical_interval(pairs, "difference", policy, method), 100, 1, "+"),
                bracket(cluster_interval(pairs), 100, 1, "+"),
                p_value(p),
                number(sign_flip_p(differences), 3),
                number(share_of_wins(differences), 2),
                bracket(probability_of_improvement(x, y, policy, method), 1, 2),
                bracket(hierarchical_interval(area_pairs, "area", policy, method), 100, 1, "+"),
            ]
        )
    header = ["method", "pairs", "bootstrap", "t", "Holm", "sign flips", "wins", "P", "area"]
    return markdown_table(header, lines)


def warm_starts_table(results: Results) -> str:
    """The pool average's mean difference in each warm start."""
    baseline = results["baseline"]
    lines = []
    for method in methods(results):
        pairs = paired(results, method, baseline, POOL, final("reward"))
        if method != baseline and pairs:
            cells = [
                bracket(cluster_interval([list(pairs[pool].values())]), 100, 1, "+") if pool in pairs else ""
                for pool in pools(results)
            ]
            lines.append([title(method), *cells])
    return markdown_table(["method", *pools(results)], lines)


def verdicts_table(findings: Sequence[Finding]) -> str:
    """One line per finding, with p adjusted for all of them."""
    lines = [
        [f.claim, f.statement, f"**{f.verdict}**", f.test, p_value(f.p), p_value(adjusted)]
        for f, adjusted in zip(findings, holm([f.p for f in findings]), strict=True)
    ]
    return markdown_table(["", "claim", "verdict", "test", "p", "Holm"], lines, left=4)


def p_value(p: float) -> str:
    """Three digits, or that it is smaller than they show."""
    return "< 0.001" if p < 0.001 else number(p, 3)


# The page ---------------------------------------------------------------------------------------------------------------


def page(results: Results, pictures: Sequence[str]) -> str:
    """A study as Markdown.

    Args:
        results: checked.
        pictures: names of the figures beside the page, without suffix.
    """
    study = results["study"]
    findings = judge(results)
    parts = [f"# {study}", facts(results)]
    tested = [f for f in findings if f.verdict != "not tested"]
    if tested:
        parts += ["## Verdicts", verdicts_table(tested)]
    left: dict[str, list[str]] = {}
    for f in findings:
        if f.verdict == "not tested" and f.claim not in left.setdefault(f.test, []):
            left[f.test].append(f.claim)
    if left:
        parts.append(
            "Not tested here: " + "; ".join(f"{', '.join(claims)} ({why})" for why, claims in left.items()) + "."
        )
    parts += [f"![{CAPTIONS[name]}]({name}.svg)\n*{CAPTIONS[name]}* ([PNG]({name}.png))" for name in pictures]
    parts.append("## Results")
    for policy in (POOL, *policies(results)):
        parts += [f"### {heading(policy)}", results_table(results, policy)]
    differences = [(policy, differences_table(results, policy)) for policy in (POOL, *policies(results))]
    if any(table for _, table in differences):
        parts.append(f"## Differences from {title(results['baseline'])}")
        for policy, table in differences:
            if table:
                parts += [f"### {heading(policy)}", table]
        if len(pools(results)) > 1:
            parts += ["### Pool average by warm start (t over its runs)", warm_starts_table(results)]
    parts += ["## How to read this", NOTES.format(problems=held_out(results))]
    parts.append(
        "Made from `results.json` in this folder, which holds all curves; to make it again (FOLDER: the one above this):\n\n"
        f"    python -m benchmarks.compare.report FOLDER/{shlex.quote(study)}/results.json --output FOLDER"
    )
    return "\n\n".join(parts) + "\n"


def heading(policy: str) -> str:
    """A policy's name in a heading."""
    return "Pool average" if policy == POOL else f"`{policy}`"


def facts(results: Results) -> str:
    """How the study was made."""
    machine = results.get("machine", {})
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.get("versions", {}).items()))
    seconds = [run["seconds"] for run in results["runs"] if run.get("seconds") is not None]
    where = f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores, GPU: {machine.get('gpu') or 'none'}"
    settings = results["settings"]
    models = {
        pool: ", ".join(str(entry.get("model", entry)) if isinstance(entry, Mapping) else str(entry) for entry in found)
        for pool, found in ((pool, results["pools"][pool].get("models", {}).values()) for pool in pools(results))
    }
    at = sorted({commit for run in results["runs"] for commit in run.get("commits") or ("not recorded",)})
    where_made = f"`{results.get('commit') or '?'}`"
    if at != [results.get("commit")]:
        where_made = f"of the runs {', '.join(f'`{commit}`' for commit in at)}; of this page's numbers {where_made}"
    done, planned = len(results["runs"]), results["planned"]
    lines = [
        f"    {results.get('command', '?')}",
        "",
        f"- {done if done == planned else f'{done} of {planned}'} runs: "
        f"{len(methods(results))} methods, {len(pools(results))} warm start(s), "
        f"{len({run['seed'] for run in results['runs']})} seed(s); {steps(results)[-1]} training steps, evaluated at "
        f"{', '.join(map(str, steps(results)))}; environment `{settings.get('env', '?')}`, "
        f"learning rate {plain(settings.get('learning_rate', '?'))}",
        *gaps(results),
        *(f"- warm start `{pool}`: {names}" for pool, names in models.items()),
        f"- commit {where_made}; {versions}; {where}"
        + (f"; {np.mean(seconds):.0f} s of training per run on average" if seconds else ""),
    ]
    return "\n".join(lines)


def plain(value: Any) -> str:
    """A setting, or several of one per policy."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def claims_page(studies: Sequence[Results]) -> str:
    """The verdicts of several studies side by side, by name of the study."""
    studies = sorted(studies, key=lambda results: str(results["study"]))
    judged = {results["study"]: judge(results) for results in studies}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for study, findings in judged.items():
        for f in findings:
            rows.setdefault((f.claim, f.statement), {})[study] = "–" if f.verdict == "not tested" else f.verdict
    table = markdown_table(
        ["", "claim", *judged],
        [[claim, statement, *(found[study] for study in judged)] for (claim, statement), found in rows.items()],
        left=2,
    )
    return (
        "\n\n".join(
            [
                "# Claims by study",
                "Rules: `benchmarks/compare/claims.py`. Tests and numbers: each study's page. "
                "–: not tested there. C7: `python -m benchmarks.bandit`.",
                table,
                "## C6, over all of them",
                verdicts_table(pays_where_policies_differ(studies)),
            ]
        )
        + "\n"
    )


# Files ------------------------------------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    """A JSON value with floats of six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return value


def to_json(results: Results) -> str:
    """Results as JSON text with sorted keys, one line per run and top-level key.

    Raises:
        ValueError: if a number is NaN or infinite.
    """

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"), ensure_ascii=False)

    runs = ",\n".join(map(text, results["runs"]))
    lines = [f'"runs":[\n{runs}\n]']
    lines += [f"{json.dumps(key)}:{text(results[key])}" for key in sorted(results) if key != "runs"]
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"


def render(results: Results) -> tuple[dict[str, str], dict[str, Any]]:
    """A study's files as text, by name, and its figures.

    All is computed from what the file will hold, rounded numbers in sorted order, so that it gives the same page.

    Raises:
        ValueError: if the results are incomplete (see `benchmarks.compare.results.check`), or Matplotlib is missing.
    """
    kept = json.loads(to_json(rounded(results)))
    check(kept)
    figures = draw_all(kept)
    texts = {f"{name}.svg": svg(figure) for name, figure in figures.items()}
    return {"results.json": to_json(kept), "README.md": page(kept, list(figures)), **texts}, figures


def write_report(results: Results, output: Path) -> None:
    """Write a study's `results.json`, page and pictures.

    Args:
        results: as `benchmarks.compare.collect` makes them.
        output: the study's own folder; it is made.

    Raises:
        ValueError: as `render`.
    """
    texts, figures = render(results)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (output / name).write_text(text, encoding="utf-8")
    for name, figure in figures.items():
        save_png(figure, output / f"{name}.png")


def write_all(studies: Sequence[Results], output: Path) -> None:
    """Write each study to `output/STUDY`, and the page of all claims.

    Raises:
        ValueError: if two studies have one name, or as `render`.
    """
    distinct(studies)
    for results in studies:
        write_report(results, output / results["study"])
    (output / "claims.md").write_text(claims_page(studies), encoding="utf-8")


def distinct(studies: Sequence[Results]) -> None:
    """See that no two studies share a folder.

    Raises:
        ValueError: if two have one name.
    """
    names = [results["study"] for results in studies]
    if len(set(names)) != len(names):
        raise ValueError(f"studies {names}: two have one name and would share a folder; rename one")


def stale(studies: Sequence[Results], output: Path) -> list[str]:
    """What in a folder differs from what `write_all` would write, pixels aside.

    Args:
        studies: their results.
        output: as for `write_all`.

    Returns:
        One line per file that is missing, differs or is not made any more. SVG may differ in ids and by two hundredths of a
        point, and is not compared with that of another version of Matplotlib.

    Raises:
        ValueError: as `write_all`.
    """
    distinct(studies)
    fresh = {Path("claims.md"): claims_page(studies)}
    for results in studies:
        texts, _ = render(results)
        fresh |= {Path(results["study"]) / name: text for name, text in texts.items()}
    found = []
    for name, new in fresh.items():
        stored = output / name
        if not stored.exists():
            found.append(f"{name} is missing")
            continue
        old = stored.read_text(encoding="utf-8")
        if not (same_drawing(new, old) if name.suffix == ".svg" else new == old):
            found.append(f"{name} differs")
    there = {path.relative_to(output) for results in studies for path in (output / results["study"]).glob("*.svg")}
    return found + [f"{name} is not made any more" for name in sorted(there - set(fresh))]


def same_drawing(new: str, old: str) -> bool:
    """Whether two SVG texts draw the same: alike but for ids made by hash and coordinates within two hundredths of a point.

    Another processor may round a sum differently in its last bit; the ids are hashes of such numbers. What another version
    of Matplotlib drew cannot be compared and passes.
    """
    makers = [set(re.findall(r"Matplotlib v[\d.]+", text)) for text in (new, old)]
    if all(makers) and makers[0] != makers[1]:
        return True
    pattern = re.compile(r"(?<![\w.#])-?\d+(?:\.\d+)?")
    texts = [re.sub(r"\b[mpch][0-9a-f]{10}\b", "id", text) for text in (new, old)]
    if pattern.sub("0", texts[0]) != pattern.sub("0", texts[1]):
        return False
    numbers = [[float(found) for found in pattern.findall(text)] for text in texts]
    return all(abs(a - b) <= 0.021 for a, b in zip(*numbers, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 if all is well, 1 if `--check` found a difference, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare.report", description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="results.json of each study")
    parser.add_argument("--output", type=Path, required=True, help="folder with one folder per study")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if what is there would change")
    options = parser.parse_args(arguments)
    try:
        studies = [load(path) for path in options.results]
        if options.check:
            differences = stale(studies, options.output)
            print("\n".join(differences) or f"{options.output} is up to date")
            return 1 if differences else 0
        write_all(studies, options.output)
        print(f"{len(studies)} page(s) in {options.output}")
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
