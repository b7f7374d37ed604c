"""The figures of an evaluation as tables and as a picture."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithms.tracking import table
from benchmarks.evaluate.scores import Figure
from benchmarks.pictures import empty_figure
from verifiers.printing import printable


@dataclass(frozen=True)
class Table:
    """A title, a header, and rows of as many cells."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def plain(self) -> str:
        """For a terminal."""
        return f"{printable(self.title)}\n\n{table(self.header, self.rows)}"

    def markdown(self) -> str:
        """For a Markdown page; names from models and data are text there, and no markup."""
        rule = tuple("---" if i == 0 else "---:" for i in range(len(self.header)))
        cells = [
            [_escaped(cell) for cell in self.header],
            rule,
            *([_escaped(cell) for cell in row] for row in self.rows),
        ]
        return "\n".join([f"## {_escaped(self.title)}", "", *(f"| {' | '.join(row)} |" for row in cells)])


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is: no HTML, no link, no cell of its own."""
    return re.sub(r"([`|]|(?<=\])\()", r"\\\1", html.escape(printable(text), quote=False))


def tables(results: Mapping[str, Any]) -> list[Table]:
    """The tables of a results.json."""
    policies = results["policies"]
    mean = f"mean@{results['settings']['samples']}"
    found = [
        Table(
            f"{results['settings']['problems']}: {len(results['problems'])} problem{'s' * (len(results['problems']) > 1)}",
            ("", *policies),
            [
                (name, *(_shown(figures["all"][name]) for figures in policies.values()))
                for name in _first(policies)["all"]
            ],
        )
    ]
    for key in ("subject", "level"):
        groups = _first(policies)[key]
        rows = [
            (
                group,
                str(groups[group]["problems"]),
                *(_shown(figures[key][group][mean]) for figures in policies.values()),
            )
            for group in groups
        ]
        if rows:
            found.append(Table(f"{mean} by {key}", (key, "problems", *policies), rows))
    found += [_length_table(policies), _reason_table(policies)]
    if len(policies) > 1:
        found += [_rescue_table(results["agreement"]), _pair_table(results["agreement"])]
    return found


def _length_table(policies: Mapping[str, Any]) -> Table:
    lengths = [figures["length"] for figures in policies.values()]
    rows = [
        (title, *(_number(length[key], ".1f") for length in lengths))
        for title, key in (("mean tokens", "mean"), ("of right ones", "right"), ("of wrong ones", "wrong"))
    ]
    rows.append(("cut at the limit", *(f"{length['cut']:.1%}" for length in lengths)))
    for i in range(max(len(length["quantiles"]) for length in lengths)):
        cells = []
        for length in lengths:
            quantiles = length["quantiles"]
            cells.append(
                f"{quantiles[i]['accuracy']:.3f} ({quantiles[i]['shortest']} to {quantiles[i]['longest']})"
                if i < len(quantiles)
                else ""
            )
        rows.append((f"right in group {i + 1} by length", *cells))
    return Table("Length of the samples", ("", *policies), rows)


def _reason_table(policies: Mapping[str, Any]) -> Table:
    reasons = list(dict.fromkeys(reason for figures in policies.values() for reason in figures["reasons"]))
    rows = [(reason, *(f"{f['reasons'].get(reason, 0):.1%}" for f in policies.values())) for reason in reasons]
    return Table("Verdicts on the samples", ("reason", *policies), rows)


def _rescue_table(agreement: Mapping[str, Any]) -> Table:
    rescue = agreement["rescue"]
    rows = [
        (learner, *(_shown(rescue[learner][peer]) if peer != learner else "" for peer in rescue)) for learner in rescue
    ]
    return Table(
        "Opportunity for rescue: share of problems that the peer solves and the learner never does",
        ("learner \\ peer", *rescue),
        rows,
    )


def _pair_table(agreement: Mapping[str, Any]) -> Table:
    rows = [
        (" and ".join(pair["policies"]), _shown(pair["both"]), _shown(pair["neither"]), _number(pair["jaccard"], ".3f"))
        for pair in agreement["pairs"]
    ]
    return Table("Agreement of pairs", ("pair", "both solve", "neither solves", "Jaccard"), rows)


def _first(policies: Mapping[str, Any]) -> Mapping[str, Any]:
    first: Mapping[str, Any] = next(iter(policies.values()))
    return first


def _shown(figure: Figure) -> str:
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def draw_rescue(rescue: Mapping[str, Mapping[str, Figure]], path: Path) -> None:
    """Draw the matrix of opportunities for rescue: a row per learner, a column per peer."""
    names: Sequence[str] = list(rescue)
    shares = [
        [float("nan") if peer == learner else 100 * (rescue[learner][peer]["value"] or 0.0) for peer in names]
        for learner in names
    ]
    side = 2.4 + 0.9 * len(names)
    canvas = empty_figure(side + 1.2, side)
    axes = canvas.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0)
    top = image.get_clim()[1]
    for row, values in enumerate(shares):
        for column, share in enumerate(values):
            if row != column:
                color = "white" if share > 0.6 * top else "black"
                axes.text(column, row, f"{share:.1f} %", ha="center", va="center", color=color)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="peer solves", ylabel="learner never does", title="opportunity for rescue")
    canvas.colorbar(image, label="% of problems")
    canvas.savefig(path, dpi=150)
