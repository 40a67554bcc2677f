"""The benchmark as a picture: time and memory of a step, and images predicted per second."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goodness.bench import notes
from goodness.report.figure_files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FF, BP, FLOOR, LATE = "#0072b2", "#d55e00", "#222222", "#009e73"
GREYS = ("#c4c4c4", "#8a8a8a")
"""Of the loops."""

TRAINED = {
    "ff": "Forward-Forward",
    "ff-sequential": "Forward-Forward, by block",
    "bp": "backpropagation",
    "bp-checkpoint": "backprop, recomputing",
    "bp-accumulate": "backprop, batch in pieces",
}
LABEL, PANEL = 28, 4.6
"""Letters in a line of a row's label; inches of a panel's width."""


def bench_figure(found: dict[str, Any], path: Path) -> tuple[Path, Path]:
    """Draw what `bench` found. PNG and SVG."""
    return write_figure(drawn(found), path)


def drawn(found: dict[str, Any]) -> Figure:
    """Bars side by side: milliseconds a step with the floor marked, peak memory, images per second."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows, groups, environment = found["rows"], found["prediction"], found["environment"]
    has_memory = any(row["peak_bytes"] for row in rows)
    ratios = [1.0] * (1 + has_memory) + [max(1.0, len(groups) / 3)] * bool(groups)
    figure = Figure(figsize=(PANEL * sum(ratios) + 1.4, 0.52 * len(rows) + 2.6), layout="constrained")
    axes = list(figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0])
    _bars(axes[0], rows, [row["median_ms"] for row in rows], "%.3g")
    axes[0].set_title("Time of a step (ms)")
    axes[0].set_yticks(range(len(rows)), [_label(row) for row in rows])
    for place, row in enumerate(rows):
        axes[0].plot([row["floor_ms"]] * 2, [place - 0.4, place + 0.4], color=FLOOR, linewidth=2)
    if has_memory:
        unit, size = notes.memory_unit(found)
        _bars(axes[1], rows, [(row["peak_bytes"] or 0) / size for row in rows], "%.3g")
        axes[1].set_title(f"Peak memory ({unit})")
        axes[1].set_yticks(range(len(rows)), [""] * len(rows))
    if groups:
        _speeds(axes[-1], groups)
        axes[-1].set_title(f"Images predicted per second ({rows[0]['preset']})")
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[
            Patch(color=FF, label="Forward-Forward"),
            Patch(color=BP, label="backpropagation"),
            Line2D([], [], color=FLOOR, linewidth=2, label="floor: the least time for arithmetic or memory traffic"),
        ],
        loc="outside lower left",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    batches = " or ".join(str(batch) for batch in sorted({row["batch"] for row in rows}))
    figure.suptitle(
        f"Training and prediction on {environment['device_name']}\n"
        f"made-up images, {batches} a step; torch {environment['torch']}, {environment['dtype']}",
        fontsize=12,
    )
    return figure


def _bars(axes: Axes, rows: list[dict[str, Any]], values: list[float], form: str) -> None:
    """A bar for every row, the first on top."""
    colours = [FF if row["name"].startswith("ff") else BP for row in rows]
    axes.bar_label(axes.barh(range(len(rows)), values, color=colours), fmt=form, padding=3, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.18)


def _speeds(axes: Axes, groups: list[dict[str, Any]]) -> None:
    """A bar for every way under every number of classes, upright on a logarithmic axis, the legend above them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    kinds = notes.kinds_of_loops(groups)
    ways = [
        *((notes.LOOPS[kind], grey, [notes.loops(row)[kind] for row in groups]) for kind, grey in zip(kinds, GREYS)),
        ("all labels together", FF, [row["together"] for row in groups]),
        ("late labels, one pass", LATE, [row["late"] for row in groups]),
    ]
    width = 0.86 / len(ways)
    speeds: list[float] = []
    for order, (name, colour, paces) in enumerate(ways):
        heights = [pace["images_per_second"] for pace in paces]
        places = [place + width * (order - (len(ways) - 1) / 2) for place in range(len(groups))]
        bars = axes.bar(places, heights, width, color=colour, label=name)
        axes.bar_label(
            bars, labels=[short(height) for height in heights], padding=2, fontsize=8 if len(ways) < 4 else 7
        )
        speeds += heights
    axes.set_xticks(range(len(groups)), [f"{row['classes']} classes" for row in groups])
    axes.set_yscale("log")
    axes.set_ylabel("logarithmic", fontsize=8)
    least, most = min(speeds), max(speeds)
    axes.set_ylim(least / 2, most * max(4, (most / least) ** 0.3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _label(row: dict[str, Any]) -> str:
    """The preset, and below it the way to train."""
    preset = textwrap.shorten(row["preset"].replace("-", " "), LABEL, placeholder=" ...").replace(" ", "-")
    return f"{preset}\n{TRAINED.get(row['name'], row['name'])}"


def short(value: float) -> str:
    """A number in few letters: 0.5, 466, 1.8 k, 96 k, 2.1 M."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * unit:
            return f"{float(f'{value / unit:.2g}') if value < 99.5 * unit else round(value / unit):g}{name}"
    return f"{value:.3g}"
