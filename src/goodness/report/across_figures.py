"""Figures that hold several runs beside each other: block by block, and along the dial of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goodness.durable import is_number
from goodness.report.ink import COOL, WARM, WORKS, marker_of, room_for_accuracies, whole_numbers
from goodness.report.inline_svg import MARKERS, PAPER, about, add_legend, add_series, in_house_style, new_figure
from goodness.report.words import listed, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_house_style
def depth_figure(runs: Sequence[dict[str, Any]], measure: str) -> Figure:
    """Runs side by side, block by block: `measure` is "sep_cur" (each block alone) or "accuracy" (blocks 0 to d).

    A run is {"name", "values", "rides"}; `rides` are the blocks to mark.
    """
    is_alone = measure == "sep_cur"
    scale = 1 if is_alone else 100
    lasts = [scale * run["values"][-1] for run in runs]
    if is_alone:
        riding = [run["name"] for run in runs if run["rides"]]
        title = "What each block separates by itself"
        title += f": it falls away under {listed(riding)}" if riding and len(riding) < len(runs) else ""
        unit, says = "", "Right label's goodness minus the strongest wrong one's, in this block alone."
    else:
        title = f"Accuracy with blocks 0 to d: {min(lasts):.1f} to {max(lasts):.1f} % in the end"
        unit, says = " %", "Accuracy when only blocks 0 to d are used."
    figure, axes = new_figure(
        title,
        f"{says} Warm colours: runs with blocks that ride for free, which have hollow markers.",
        ("run", "block", "by itself" if is_alone else measure),
    )
    cool, warm = itertools.cycle(COOL), itertools.cycle(WARM)
    for place, run in enumerate(runs):
        colour, name = next(warm if run["rides"] else cool), run["name"]
        points = [(depth, scale * value) for depth, value in enumerate(run["values"])]
        (line,) = axes.plot(*zip(*points), color=colour, marker=marker_of(place))
        told = [(x, y, f"{name}, block {x}: {number(y)}{unit}") for x, y in points]
        add_series(figure, axes, line, f"run {place}", name, colour, told, MARKERS[marker_of(place)])
        for depth in run["rides"]:
            y = scale * run["values"][depth]
            (mark,) = axes.plot([depth], [y], marker_of(place), color=colour, mfc=PAPER, mew=1.5)
            add_series(figure, axes, mark, f"run {place}", name, colour, [])
        about(figure).rows.extend((name, depth, value) for depth, value in enumerate(run["values"]))
    if is_alone:
        axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
        axes.set_ylabel("right label minus strongest wrong\nlabel, this block alone")
    else:
        axes.set_ylabel("accuracy (%)")
        room_for_accuracies(axes, [100 * value for run in runs for value in run["values"]])
    whole_numbers(axes.xaxis)
    axes.set_xlabel("block d")
    add_legend(figure, axes)
    return figure


@in_house_style
def kappa_figure(points: Sequence[dict[str, Any]]) -> Figure:
    """The dial: the deepest block's own separation and the accuracy against kappa, one point per run of a sweep.

    A point is {"name", "kappa", "sep_cur", "accuracy"}.
    """
    points = sorted(points, key=lambda one: one["kappa"])
    best = max(points, key=lambda one: one["sep_cur"])
    most = f"κ = {number(best['kappa'])} ({number(best['sep_cur'])})"
    figure, axes = new_figure(
        f"Turning κ: the deepest block separates most by itself at {most}",
        "κ is the earlier goodness up to which an example brings its history along. Above: the deepest block's own "
        "separation; below: test accuracy. One point per run.",
        ("run", "κ", "deepest block by itself", "accuracy"),
        size=(5.2, 4.2),
        rows=2,
    )
    panels = figure.axes
    for panel, name, scale, colour in ((panels[0], "sep_cur", 1, WORKS), (panels[1], "accuracy", 100, "#0a9270")):
        found = [(one["kappa"], scale * one[name], one["name"]) for one in points if is_number(one[name])]
        (line,) = panel.plot([x for x, _, _ in found], [y for _, y, _ in found], color=colour, marker="o")
        unit, label = (" %", "accuracy") if scale == 100 else ("", "deepest block by itself")
        told = [(x, y, f"{run}, κ = {number(x)}: {number(y)}{unit}") for x, y, run in found]
        add_series(figure, panel, line, name, label, colour, told)
        panel.set_ylabel(f"{label}{' (%)' if unit else ''}")
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
    room_for_accuracies(panels[1], [100 * one["accuracy"] for one in points if is_number(one["accuracy"])])
    panels[1].set_xlabel("κ: the higher, the more history enters")
    about(figure).rows.extend((one["name"], one["kappa"], one["sep_cur"], one["accuracy"]) for one in points)
    return figure
