"""The figures of a study, from its results alone: the same file gives the same bytes with the same Matplotlib.

One colour and marker per method in all figures (the palette of Okabe and Ito, which colour-blind readers can tell apart);
members of a family differ by their dashes. Matplotlib is loaded only when something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.results import (
    POOL,
    Results,
    curve,
    final,
    groups,
    methods,
    paired,
    policies,
    pools,
    runs_of,
    steps,
    subjects,
    title,
    training,
    values,
)
from benchmarks.pictures import empty_figure
from benchmarks.statistics import (
    Array,
    cluster_interval,
    hierarchical_band,
    hierarchical_interval,
    probability_of_improvement,
)

STYLES: dict[str, tuple[str, str, str]] = {
    "grpo": ("#000000", "-", "o"),
    "prp_s": ("#CC79A7", "-", "v"),
    "prp_t": ("#E69F00", "-", "^"),
    "xgrpo": ("#0072B2", "-", "s"),
    "sgt": ("#D55E00", "-", "D"),
    "grpo_budget": ("#000000", "--", "o"),
    "random_reward": ("#999999", ":", "x"),
    "format_reward": ("#999999", "-.", "+"),
    "xgrpo_05": ("#0072B2", "--", "s"),
    "xgrpo_0": ("#0072B2", ":", "s"),
    "sgt_0": ("#D55E00", ":", "D"),
    "sgt_003": ("#D55E00", "-.", "D"),
    "sgt_03": ("#D55E00", "--", "D"),
    "sgt_1": ("#D55E00", (0, (6, 2, 1, 2, 1, 2)), "D"),  # type: ignore[dict-item]
    "sft_ungated": ("#009E73", "-", "P"),
    "sft_rescued": ("#009E73", "--", "P"),
    "sgt_0_to_1": ("#56B4E9", "-", "<"),
    "sgt_1_to_0": ("#56B4E9", "--", ">"),
}
"""Colour, dashes and marker of each method."""

OTHER = ("#7F7F7F", "-", ".")
"""Of methods that are not in `STYLES`."""

MOST_BANDS = 6
"""With more methods than this, bands would hide the curves and are left out."""

RC = {
    "svg.hashsalt": "mutual-rl",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
}

DYNAMICS: tuple[tuple[str, str], ...] = (
    ("entropy", "entropy\n[nats/token]"),
    ("kl", "KL to the start\n[nats/token]"),
    ("exchange/rescue_rate", "gate rate\n[share of prompts]"),
    ("exchange/ratio_variance", "ratio variance\n(median)"),
    ("exchange/effective_sample_size", "effective\nsample size [share]"),
    ("clip_ratio/region_mean", "clip share\n[of tokens]"),
)
"""Rows of the figure of dynamics: held-out curves, and training metrics by `stretches`."""

FEWEST_STRETCHES = 8
"""By which training metrics are drawn, as far as there are so many steps."""


def draw_all(results: Results) -> dict[str, Any]:
    """Every figure of `FIGURES` that the results allow, by name.

    Raises:
        ValueError: if Matplotlib is missing.
    """
    empty_figure()  # complains if Matplotlib is missing
    from matplotlib import rc_context

    with rc_context(RC):
        drawn = {name: draw(results) for name, draw in FIGURES.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def svg(figure: Any) -> str:
    """A figure as SVG without date, its coordinates rounded to hundredths of a point: small, and stable to rounding errors."""
    from matplotlib import rc_context

    text = StringIO()
    with rc_context(RC):
        figure.savefig(text, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # what has been laid out stays
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text.getvalue())


def save_png(figure: Any, path: Path) -> None:
    """Write a figure as PNG with a palette of 128 colours, a quarter of the size of one without."""
    from matplotlib import rc_context
    from PIL import Image  # Matplotlib needs it, too

    pixels = BytesIO()
    with rc_context(RC):
        figure.savefig(pixels, format="png", dpi=100)
    drawn = Image.open(pixels).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    drawn.save(path, optimize=True)


def style(method: str) -> dict[str, Any]:
    """Keywords of a line."""
    colour, dashes, marker = STYLES.get(method, OTHER)
    return {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.5, "linewidth": 1.4}


def rows(results: Results) -> list[str]:
    """The pool and its policies."""
    return [POOL, *policies(results)]


def panel_title(policy: str) -> str:
    """What a panel shows."""
    return "pool average" if policy == POOL else policy


def size(results: Results) -> str:
    """How many runs stand behind a figure."""
    counts = sorted({len(runs_of(results, method)) for method in methods(results)})
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    starts = len(pools(results))
    many = "run" if counts == [1] else "runs"
    return f"{results['study']}: {n} {many} per method from {starts} warm start{'s' if starts != 1 else ''}"


def draw_band(axes: Any, x: Sequence[float], by_pool: Sequence[Array], method: str, band: bool, seed: str) -> None:
    """A mean curve over the runs of each warm start, its end marked, with its 95 % band if there is more than one run."""
    mean, low, high = hierarchical_band(by_pool, seed, method)
    axes.plot(x, mean, label=title(method), markevery=[len(x) - 1], **style(method))
    if band and sum(map(len, by_pool)) > 1:
        axes.fill_between(x, low, high, color=STYLES.get(method, OTHER)[0], alpha=0.15, linewidth=0)


def curves_by_pool(results: Results, method: str, make: Callable[[Any], Array | None]) -> list[Array]:
    """(runs, points) of each warm start; runs without the curve, or with a gap in it, are left out."""
    found: dict[str, list[Array]] = {}
    for run in runs_of(results, method):
        made = make(run)
        if made is not None and np.isfinite(made).all():
            found.setdefault(run["pool"], []).append(made)
    return [np.stack(found[pool]) for pool in pools(results) if pool in found]


def legend(figure: Any, axes: Iterable[Any], columns: int = 6) -> None:
    """One legend below all panels, each method once."""
    entries: dict[str, Any] = {}
    for panel in axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in entries}
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=min(columns, len(entries)),
        frameon=False,
    )


# The figures ------------------------------------------------------------------------------------------------------------


def draw_curves(results: Results) -> Any:
    """Held-out greedy reward over training."""
    names = rows(results)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = empty_figure(3.6 * columns, 2.9 * lines + 0.9)
    panels = np.atleast_1d(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)).ravel()
    bands = len(methods(results)) <= MOST_BANDS
    for panel, policy in zip(panels, names, strict=False):
        for method in methods(results):
            found = curves_by_pool(results, method, lambda run, policy=policy: curve(run, policy, "reward"))  # type: ignore[misc]
            if found:
                draw_band(panel, steps(results), found, method, bands, policy)
        panel.set(title=panel_title(policy), ylabel="greedy reward@1")
        panel.label_outer()
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for panel in panels[: len(names)][-columns:]:  # nothing is below these
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("training step")
    shown = "mean and 95 % bootstrap band" if bands else "means"
    figure.suptitle(f"Held-out reward. {size(results)}; {shown}")
    legend(figure, panels)
    return figure


def stretches(evaluated: Sequence[int]) -> list[int]:
    """Ends of the stretches of training by which its metrics are drawn: the evaluations, or equal ones where these are few.

    Args:
        evaluated: steps e_0 < e_1 < ...
    """
    if len(evaluated) > FEWEST_STRETCHES:
        return list(evaluated)
    first, last = evaluated[0], evaluated[-1]
    return sorted({first + round((last - first) * part / FEWEST_STRETCHES) for part in range(FEWEST_STRETCHES + 1)})


def draw_dynamics(results: Results) -> Any:
    """Entropy, KL, gate rate and importance ratios over training; rows without data are left out."""
    names, at = rows(results), steps(results)
    ends = stretches(at)
    middle = [(low + high) / 2 for low, high in pairwise(ends)]
    drawn: list[tuple[str, list[tuple[str, str, Sequence[float], list[Array]]]]] = []
    for key, label in DYNAMICS:
        held_out = "/" not in key
        found: list[tuple[str, str, Sequence[float], list[Array]]] = []
        for policy in names:
            for method in methods(results):

                def make(run: Any, key: str = key, policy: str = policy, held_out: bool = held_out) -> Array | None:
                    return curve(run, policy, key) if held_out else training(run, policy, key, ends)

                by_pool = curves_by_pool(results, method, make)
                if by_pool:
                    found.append((policy, method, at if held_out else middle, by_pool))
        if found and len(at) > 1:
            drawn.append((label, found))
    if not drawn:
        return None
    figure = empty_figure(3.1 * len(names) + 0.6, 1.75 * len(drawn) + 0.9)
    panels = figure.subplots(len(drawn), len(names), sharex=True, sharey="row", squeeze=False)
    bands = len(methods(results)) <= MOST_BANDS
    for line, (label, found) in zip(panels, drawn, strict=True):
        for policy, method, x, by_pool in found:
            draw_band(line[names.index(policy)], x, by_pool, method, bands, label + policy)
        line[0].set_ylabel(label)
        if "variance" in label and all((group > 0).all() for _, _, _, by_pool in found for group in by_pool):
            line[0].set_yscale("log")
    for panel, policy in zip(panels[0], names, strict=True):
        panel.set_title(panel_title(policy))
    for panel in panels[-1]:
        panel.set_xlabel("training step")
    figure.suptitle(f"Training dynamics. {size(results)}")
    legend(figure, panels.ravel())
    return figure


def draw_differences(results: Results) -> Any:
    """Paired differences from the baseline, and the probability of improvement, at the last evaluation."""
    baseline = results["baseline"]
    names = rows(results)
    compared = [method for method in methods(results) if method != baseline]
    if baseline not in methods(results) or not compared:
        return None
    figure = empty_figure(2.9 * len(names) + 1.2, 0.5 * len(compared) + 2.6)
    panels = figure.subplots(2, len(names), sharey=True, sharex="row", squeeze=False)
    heights = {method: -index for index, method in enumerate(compared)}
    for column, policy in enumerate(names):
        above, below = panels[0][column], panels[1][column]
        above.axvline(0, color="0.4", linewidth=0.8)
        below.axvline(0.5, color="0.4", linewidth=0.8)
        for method, height in heights.items():
            colour, _, marker = STYLES.get(method, OTHER)
            draw_difference(above, results, method, policy, height, colour, marker)
            draw_improvement(below, results, method, policy, height, colour, marker)
        above.set(title=panel_title(policy), xlabel="difference of reward [points]")
        below.set(xlabel=f"P(better than {title(baseline)})", xlim=(-0.05, 1.05))
    for line in panels:
        line[0].set_yticks(list(heights.values()), [title(method) for method in heights])
        line[0].set_ylim(min(heights.values()) - 0.6, 0.6)
    figure.suptitle(
        f"Final greedy reward against {title(baseline)}. {size(results)}\n"
        "thin: 95 %, Student's t over warm starts; thick: 95 %, bootstrap; dots: warm starts (or runs, of one warm start)",
        fontsize=9,
    )
    return figure


def draw_difference(
    axes: Any, results: Results, method: str, policy: str, height: float, colour: str, marker: str
) -> None:
    """One method's paired difference in points with both intervals."""
    found = groups(paired(results, method, results["baseline"], policy, final("reward")))
    if not found:
        return
    exact, bootstrap = cluster_interval(found), hierarchical_interval(found, "forest", policy, method)
    for interval, width in ((exact, 1.0), (bootstrap, 4.0)):
        if interval.known:
            ends = [100 * interval.low, 100 * interval.high]
            axes.plot(ends, [height, height], color=colour, linewidth=width, alpha=1 if width == 1 else 0.45)
    dots = found[0] if len(found) == 1 else np.array([group.mean() for group in found])
    axes.plot(100 * dots, np.full(len(dots), height - 0.25), ".", color=colour, markersize=4, alpha=0.7)
    axes.plot([100 * exact.estimate], [height], marker, color=colour, markersize=6)


def draw_improvement(
    axes: Any, results: Results, method: str, policy: str, height: float, colour: str, marker: str
) -> None:
    """One method's probability of improvement; hollow where the bootstrap gives no interval."""
    baseline = values(results, results["baseline"], policy, final("reward"))
    found = values(results, method, policy, final("reward"))
    common = [pool for pool in found if pool in baseline]
    if not common:
        return
    x, y = (groups({pool: by_pool[pool] for pool in common}) for by_pool in (found, baseline))
    chance = probability_of_improvement(x, y, policy, method)
    if chance.known:
        axes.plot([chance.low, chance.high], [height, height], color=colour, linewidth=1)
    face = colour if chance.known else "none"
    axes.plot([chance.estimate], [height], marker, color=colour, markersize=6, markerfacecolor=face)


def draw_subjects(results: Results) -> Any:
    """mean@k by subject: at the start and at the end of each method, as a table of colours."""
    names, kinds = rows(results), subjects(results)
    if not kinds:
        return None
    labels = ["start", *(title(method) for method in methods(results))]
    figure = empty_figure(max(1.2 + 0.5 * len(kinds) * len(names), 3.2 * len(names)) + 1.4, 0.3 * len(labels) + 1.7)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, policy in zip(panels, names, strict=True):
        table = 100 * subject_table(results, policy, kinds)
        panel.pcolormesh(table, vmin=0, vmax=100, cmap="cividis")
        for row, column in np.ndindex(*table.shape):
            if np.isfinite(table[row, column]):
                colour = "white" if table[row, column] < 45 else "black"
                text = f"{table[row, column]:.0f}"
                panel.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=8)
        panel.set_xticks(np.arange(len(kinds)) + 0.5, kinds, rotation=45, ha="right")
        panel.set_yticks(np.arange(len(labels)) + 0.5, labels)
        panel.set_title(panel_title(policy))
        panel.grid(visible=False)
    panels[0].invert_yaxis()
    figure.suptitle(f"mean@k in % by subject, before and after training. {size(results)}")
    return figure


def subject_table(results: Results, policy: str, kinds: Sequence[str]) -> Array:
    """(1 + methods, subjects): the start, then each method's end; the mean over warm starts of the runs' means."""

    def first(key: str) -> Callable[[Any, str], float | None]:
        def measure(run: Any, name: str) -> float | None:
            found = curve(run, name, key)
            return None if found is None else float(found[0])

        return measure

    def mean(method: str, measure: Any) -> float:
        found = groups(values(results, method, policy, measure))
        return float(np.mean([group.mean() for group in found])) if found else float("nan")

    keys = [f"subjects/{kind}" for kind in kinds]
    start = [mean(methods(results)[0], first(key)) for key in keys]
    return np.array([start, *([mean(method, final(key)) for key in keys] for method in methods(results))])


FIGURES: dict[str, Callable[[Results], Any]] = {
    "curves": draw_curves,
    "differences": draw_differences,
    "dynamics": draw_dynamics,
    "subjects": draw_subjects,
}
"""All figures by name."""
