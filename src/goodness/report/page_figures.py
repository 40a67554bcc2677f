"""The report's figures: plain data in, a matplotlib Figure out, which can be saved or put into a page as living SVG.

Titles say what is seen. `about(figure)` has that title, a sentence on how to read it, the numbers as a table, and the
data series with their points, from which the page makes its tooltips and its legend.
"""

from __future__ import annotations

import functools
import html
import io
import itertools
import json
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard
from weakref import WeakKeyDictionary

from goodness.diagnostics.health import COLLAPSED
from goodness.report.theory_figure import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORKS, RIDES, DEAD = "#2079b8", "#d55e00", "#7f7f7f"
VERDICT_COLOURS = {"works": WORKS, "rides": RIDES, "dead": DEAD}
COOL, WARM = (WORKS, "#0a9270", "#8a63d2", DEAD), (RIDES, "#a87900", "#c06a9c")
"""For what works and for what rides. Each stands out three to one against the light page and the dark one."""
COLOURS = (WORKS, "#0a9270", "#8a63d2", "#c06a9c", "#a87900", RIDES, DEAD)
"""For blocks; markers tell them apart where colour does not."""
MARKERS = {"o": "●", "^": "▲", "s": "■", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "<": "◀", ">": "▶", "*": "★"}
"""matplotlib's, and as the page's legend writes them."""
FAINT = (0.5, 0.5, 0.5, 0.25)
"""Grid lines: seen on white and on black."""
SIZE = (5.2, 3.3)
"""Inches. At 72 points each a phone's width, so that the print keeps its size there."""
SMALLEST = 1e-12
"""Where the attenuation axis ends: whatever is below is drawn on its edge."""
NAMED_CLASSES = 12
"""Up to so many classes a confusion matrix has room for names and counts."""
MOST_CELLS = 2000
"""Cells of a confusion matrix with a tooltip, the fullest first."""
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "text.parse_math": False,  # a class may be called $5$
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT[:3],
    "grid.alpha": FAINT[3],
    "axes.unicode_minus": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2,
    "lines.markersize": 5,
}

P = ParamSpec("P")
Point = tuple[float, float, str]
"""A place in an axes' own coordinates, and what the tooltip says there."""


@dataclass
class Series:
    """What a legend entry stands for; several artists may belong to it, all of which it shows and hides."""

    key: str
    label: str
    colour: str
    mark: str = "■"
    points: list[tuple[Axes, Point]] = field(default_factory=list)
    artists: int = 0


@dataclass
class About:
    """What the page says of a figure in words and numbers."""

    title: str
    description: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    series: dict[str, Series] = field(default_factory=dict)


_ABOUT: WeakKeyDictionary[Figure, About] = WeakKeyDictionary()
_COUNT = itertools.count()


def about(figure: Figure) -> About:
    """Title, description, table and series of a figure made here."""
    return _ABOUT[figure]


# Figures of one run


def _in_house_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """matplotlib reads its settings while artists are made: have them in force meanwhile, and only then."""

    @functools.wraps(draw)
    def drawn(*arguments: P.args, **settings: P.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **settings)

    return drawn


@_in_house_style
def curves_figure(lines: Sequence[dict[str, Any]]) -> Figure:
    """What every block separates by itself over training, from the lines of metrics.jsonl."""
    val, train = by_epoch(lines, "val", "sep_cur"), by_epoch(lines, "train", "sep_cur_mined")
    blocks = max((len(values) for _, values in [*val, *train]), default=0)
    ends = (val or train)[-1][1]
    title = "Each block by itself over training: " + _ends(ends)
    figure, axes = _figure(
        title,
        "Lines with markers: validation images, right label minus the strongest wrong one (sep_cur). Dashed: training "
        "images, right label minus a mined wrong one. A block that rides for free stays near zero.",
        ("epoch", *(f"block {d}, {what}" for d in range(blocks) for what in ("validation", "training"))),
    )
    for depth in range(blocks):
        name, colour, marker = f"block {depth}", _colour(depth), _marker(depth)
        dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "alpha": 0.8}
        marked: dict[str, Any] = {"marker": marker if len(val) <= 60 else None}
        for points, what, style in (
            (_of_block(train, depth), "in training, mined", dashed),
            (_of_block(val, depth), "on validation", marked),
        ):
            if points:
                (line,) = axes.plot(*zip(*points), color=colour, **style)
                told = [(x, y, f"{name}, epoch {x}: {number(y)} {what}") for x, y in points]
                _add(figure, axes, line, name, name, colour, told, MARKERS[marker])
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
    axes.set_xlabel("epoch")
    axes.set_ylabel("right label minus wrong label,\nthis block alone")
    _whole_numbers(axes.xaxis)
    _legend(figure, axes)
    at_val, at_train = dict(val), dict(train)
    about(figure).rows.extend(
        (epoch, *(_nth(part.get(epoch), depth) for depth in range(blocks) for part in (at_val, at_train)))
        for epoch in sorted({*at_val, *at_train})
    )
    return figure


@_in_house_style
def heatmap_figure(lines: Sequence[dict[str, Any]]) -> Figure:
    """Block by epoch, coloured by the block's own separation relative to the run's largest.

    Validation's `sep_cur` where most epochs have it, else the mined separation of training.
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

    val, train = by_epoch(lines, "val", "sep_cur"), by_epoch(lines, "train", "sep_cur_mined")
    use_val = bool(val) and 2 * len(val) >= len(train)
    chosen = val if use_val else train
    blocks = max((len(values) for _, values in chosen), default=0)
    grid = np.array([[_nth(values, depth) for _, values in chosen] for depth in range(blocks)], dtype=float)
    largest = max(float(np.nanmax(grid)), 1e-9)
    shares = np.clip(grid / largest, 0, 1)
    weak = [depth for depth in range(blocks) if shares[depth, -1] < COLLAPSED]
    if weak:
        stay = "stays" if len(weak) == 1 else "stay"
        title = f"{named_blocks(weak).capitalize()} {stay} orange: under a third of the run's strongest to the end"
    else:
        title = f"Every block fills up: at the end the weakest has {_percent(np.nanmin(shares[:, -1]))} of the largest"
    figure, axes = _figure(
        title,
        "A row is a block, a column an epoch. Blue: the block separates right from wrong by itself about as well as "
        "any block of this run ever did; orange: less than a third of that. From "
        f"{'validation' if use_val else 'training'} images.",
        ("epoch", *(f"block {depth}" for depth in range(blocks))),
    )
    colours = LinearSegmentedColormap.from_list("rides to works", [RIDES, "#efe9e2", WORKS])
    image = axes.imshow(
        shares,
        cmap=colours,
        norm=TwoSlopeNorm(COLLAPSED, 0, 1),
        aspect="auto",
        interpolation="none",
        extent=(-0.5, len(chosen) - 0.5, blocks - 0.5, -0.5),
    )
    cells = [
        (place, depth, f"block {depth}, epoch {epoch}: {number(grid[depth, place])}, {_percent(shares[depth, place])}")
        for depth in range(blocks)
        for place, (epoch, _) in enumerate(chosen)
        if not math.isnan(grid[depth, place])
    ]
    _add(figure, axes, image, "cells", "block by epoch", WORKS, cells)
    axes.grid(False)
    axes.set_yticks(range(blocks), [f"block {depth}" for depth in range(blocks)])
    some = range(0, len(chosen), math.ceil(len(chosen) / 8))
    axes.set_xticks(some, [str(chosen[place][0]) for place in some])
    axes.set_xlabel("epoch")
    bar = figure.colorbar(image, ax=axes, ticks=[0, COLLAPSED, 1], pad=0.02)
    bar.ax.set_yticklabels(["0", "⅓", "1"])
    about(figure).rows.extend((epoch, *(_nth(values, depth) for depth in range(blocks))) for epoch, values in chosen)
    return figure


@_in_house_style
def own_share_figure(blocks: Sequence[dict[str, Any]], verdicts: Sequence[str]) -> Figure:
    """Of the evidence behind blocks 0..d, how much is block d's own and how much it inherits."""
    own = [(depth, block["own"]) for depth, block in enumerate(blocks) if is_number(block.get("own"))]
    deepest, share = own[-1]
    figure, axes = _figure(
        f"Of the evidence behind blocks 0 to {deepest}, {_percent(share)} is block {deepest}'s own",
        "Filled: the block's own share of the margin for the right label; pale: what it inherits from the blocks "
        "before it. The tick marks an equal share of all blocks so far. Orange blocks ride for free.",
        ("block", "own", "inherited", "an equal share"),
    )
    for depth, share in own:
        colour = VERDICT_COLOURS.get(_nth(verdicts, depth) or "works", WORKS)
        bars = axes.barh(depth, share, color=colour, height=0.62)
        _add(figure, axes, bars[0], "own", "own", colour, [(share / 2, depth, f"block {depth}: {_percent(share)} own")])
        rest = axes.barh(depth, 1 - share, left=share, color=colour, alpha=0.22, height=0.62)
        told = f"block {depth}: {_percent(1 - share)} inherited"
        _add(figure, axes, rest[0], "inherited", "inherited", colour, [((1 + share) / 2, depth, told)], "□")
        axes.plot([1 / (depth + 1)] * 2, [depth - 0.4, depth + 0.4], color="black", linewidth=1.5)
    axes.set_yticks([depth for depth, _ in own], [f"block {depth}" for depth, _ in own])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.set_xlim(0, 1.01)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("share of the evidence for the right label")
    about(figure).rows.extend((depth, share, 1 - share, 1 / (depth + 1)) for depth, share in own)
    return figure


@_in_house_style
def truncation_figure(accuracies: Sequence[float]) -> Figure:
    """Accuracy of the network cut off after each block."""
    gain = 100 * (accuracies[-1] - accuracies[0])
    first, last = _percent(accuracies[0], 1), _percent(accuracies[-1], 1)
    if len(accuracies) == 1:
        title = f"One block: {first} right"
    elif abs(gain) < 1:
        title = f"Cut off after block 0 it would be as good: {first}, with all blocks {last}"
    else:
        verb = "add" if gain > 0 else "cost"
        title = f"The later blocks {verb} {abs(gain):.1f} points: {first} with block 0 alone, {last} with all"
    figure, axes = _figure(
        title, "Accuracy when only blocks 0 to d are used and their goodness is summed.", ("blocks used", "accuracy")
    )
    points = [(used + 1, 100 * accuracy) for used, accuracy in enumerate(accuracies)]
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o")
    told = [(x, y, f"{x} {'block' if x == 1 else 'blocks'}: {y:.2f} %") for x, y in points]
    _add(figure, axes, line, "accuracy", "accuracy", WORKS, told)
    _whole_numbers(axes.xaxis)
    axes.set_xlabel("blocks used")
    axes.set_ylabel("accuracy (%)")
    _room_for_accuracies(axes, [y for _, y in points])
    about(figure).rows.extend((used + 1, accuracy) for used, accuracy in enumerate(accuracies))
    return figure


@_in_house_style
def early_exit_figure(curve: Sequence[dict[str, float]]) -> Figure:
    """Accuracy against mean blocks used, where an image leaves as soon as the network is sure enough."""
    full = curve[-1]
    enough = min((one for one in curve if one["accuracy"] >= full["accuracy"] - 0.001), key=lambda one: one["blocks"])
    title = (
        f"{enough['blocks']:.1f} of {full['blocks']:.0f} blocks on average are enough for "
        f"{_percent(enough['accuracy'], 1)}: {_percent(enough['saved'])} of the work saved"
    )
    if enough is full:
        title = (
            f"Leaving early costs accuracy: only all {full['blocks']:.0f} blocks give {_percent(full['accuracy'], 1)}"
        )
    figure, axes = _figure(
        title,
        "An image leaves at the first block whose lead of the best label over the second reaches a threshold; each "
        "point is one threshold.",
        ("threshold", "blocks used", "work saved", "accuracy"),
    )
    points = [(one["blocks"], 100 * one["accuracy"]) for one in curve]
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o", markersize=4)
    told = [
        (x, y, f"threshold {number(one['threshold'])}: {y:.2f} % with {x:.2f} blocks, {_percent(one['saved'])} saved")
        for (x, y), one in zip(points, curve)
    ]
    _add(figure, axes, line, "exit", "early exit", WORKS, told)
    axes.set_xlabel("blocks used, mean over the images")
    axes.set_ylabel("accuracy (%)")
    _room_for_accuracies(axes, [y for _, y in points])
    about(figure).rows.extend((one["threshold"], one["blocks"], one["saved"], one["accuracy"]) for one in curve)
    return figure


@_in_house_style
def attenuation_figure(
    points: Sequence[Sequence[Sequence[float]]], weights: Sequence[Sequence[float]] | None, beta: float
) -> Figure:
    """R against w P, example by example, [m, P, R] per block, with Theorem 1's envelope.

    Without the rule's weights they are taken as one.
    """
    weights = weights or [[1.0] * len(block) for block in points]
    shown: list[tuple[int, list[tuple[float, float, float]]]] = []
    for depth, (block, weight) in enumerate(zip(points, weights)):
        if depth:  # block 0 has no past
            shown.append((depth, [(w * past, min(max(r, SMALLEST), 1e3), m) for (m, past, r), w in zip(block, weight)]))
    left = [(depth, min(1.0, median(r for _, r, _ in block))) for depth, block in shown if block]
    figure, axes = _figure(
        _attenuation_title(left),
        "Each point is one image at one block: how much of the block's own learning signal is left once the evidence "
        "of the blocks before it has entered its loss. Band: what Theorem 1 allows where block and past are both "
        "right, e^(−βwP) to min(1, 2e^(−βwP)). Filled: such examples; hollow: others.",
        ("block", "examples", "median w·P", "median of the signal left", "least", "most"),
    )
    reach = max([0.5, *(x for _, block in shown for x, _, _ in block)])
    xs = [reach * step / 200 for step in range(201)]
    lower = [max(math.exp(-beta * x), SMALLEST / 10) for x in xs]
    upper = [min(1.0, 2 * one) for one in lower]
    band = axes.fill_between(xs, lower, upper, color=(0.5, 0.5, 0.5), alpha=0.3, linewidth=0)
    edges = [*axes.plot(xs, lower, color=DEAD, linewidth=1), *axes.plot(xs, upper, color=DEAD, linewidth=1)]
    for artist in (band, *edges):
        _add(figure, axes, artist, "envelope", "what the theorem allows", DEAD, [])
    for depth, block in shown:
        name, colour = f"block {depth}", _colour(depth)
        is_inside = [x >= 0 and m >= 0 for x, _, m in block]
        marks = axes.scatter(
            [x for x, _, _ in block],
            [r for _, r, _ in block],
            s=11,
            marker=_marker(depth),
            facecolors=[colour if inside else "none" for inside in is_inside],
            edgecolors=colour,
            linewidths=0.7,
        )
        told = [(x, r, f"{name}: w·P {number(x)}, m {number(m)}, {kept_in_words(r)} left") for x, r, m in block]
        _add(figure, axes, marks, name, name, colour, told, MARKERS[_marker(depth)])
        if block:
            xs_of, rs = [x for x, _, _ in block], [r for _, r, _ in block]
            about(figure).rows.append((depth, len(block), median(xs_of), median(rs), min(rs), max(rs)))
    axes.set_yscale("log")
    _kept_axis(axes, min([0.1, *(r for _, block in shown for _, r, _ in block)]))
    axes.set_xlabel("w·P: evidence that the block inherits")
    axes.set_ylabel("R: learning signal left")
    _legend(figure, axes)
    return figure


@_in_house_style
def confusion_figure(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> Figure:
    """Who is taken for whom; rows are the true classes."""
    import numpy as np
    from matplotlib.colors import to_rgb

    counts = np.array(confusion, dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    wrong = counts - np.diag(np.diag(counts))
    true, said = divmod(int(wrong.argmax()), len(wrong))
    title = "No image is mistaken for another class"
    if wrong.max() > 0:
        total = f"{int(wrong[true, said])} of {int(counts[true].sum())}"
        title = f"The commonest mistake: {_short(classes[true])} taken for {_short(classes[said])}, {total}"
    figure, axes = _figure(
        title,
        "Rows are the true classes, columns the answers. Blue: right; orange: mistaken. The stronger the colour, the "
        "larger the share of the row.",
        ("true class", "taken for", "images", "share of the class"),
        size=(5.2, 4.4),
    )
    ink = np.zeros((*counts.shape, 4))
    ink[..., :3] = to_rgb(RIDES)
    ink[np.diag_indices(len(counts))] = (*to_rgb(WORKS), 1)
    ink[..., 3] = np.sqrt(shares)  # a share of one per cent is to be seen
    image = axes.imshow(ink, interpolation="none", aspect="auto")
    places = [(row, column) for row in range(len(counts)) for column in range(len(counts)) if counts[row, column]]
    pointed = sorted(places, key=lambda one: -counts[one])[:MOST_CELLS]
    told = [(float(column), float(row), _mistaken(counts, classes, row, column)) for row, column in pointed]
    _add(figure, axes, image, "cells", "confusion", WORKS, told)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    if len(classes) <= NAMED_CLASSES:
        slant: dict[str, Any] = {"rotation": 45, "ha": "right"} if max(map(len, classes)) > 3 else {}
        axes.set_xticks(range(len(classes)), [_short(name) for name in classes], **slant)
        axes.set_yticks(range(len(classes)), [_short(name) for name in classes])
        for row, column in places:
            colour = "#fefefe" if ink[row, column, 3] > 0.6 else "black"
            axes.text(column, row, f"{int(counts[row, column])}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xlabel("answer")
    axes.set_ylabel("true class")
    ordered = sorted(places, key=lambda one: -wrong[one])
    about(figure).rows.extend(
        (classes[row], classes[column], int(counts[row, column]), float(shares[row, column]))
        for row, column in ordered
        if row != column
    )
    return figure


@_in_house_style
def margins_figure(margins: Sequence[float]) -> Figure:
    """The distribution of the summed margin, from its quantiles in order."""
    shares = [place / max(1, len(margins) - 1) for place in range(len(margins))]
    right = sum(margin > 0 for margin in margins) / len(margins)
    lead = median([margin for margin in margins if margin > 0] or [0.0])
    figure, axes = _figure(
        f"About {_percent(right)} of the images are on the right side, half of these by more than {number(lead)}",
        "The cumulative share of images whose summed goodness leads the strongest wrong label by at most so much. Left "
        "of zero the answer is wrong.",
        ("share of images", "margin at most"),
    )
    axes.axvspan(min(*margins, -0.01), 0, color=RIDES, alpha=0.12, linewidth=0)
    (line,) = axes.plot(margins, [100 * share for share in shares], color=WORKS)
    told = [
        (m, 100 * share, f"{_percent(share, 1)} of the images: at most {number(m)}")
        for m, share in zip(margins, shares)
    ]
    _add(figure, axes, line, "margins", "margin", WORKS, told)
    axes.axvline(0, color="black", linewidth=0.8, alpha=0.6)
    axes.set_xlabel("margin: right label minus the strongest wrong one, all blocks")
    axes.set_ylabel("share of images (%)")
    about(figure).rows.extend(zip(shares[:: max(1, len(shares) // 20)], margins[:: max(1, len(margins) // 20)]))
    return figure


@_in_house_style
def learning_figure(lines: Sequence[dict[str, Any]]) -> Figure:
    """Validation accuracy over training, for what has no blocks to tell apart."""
    points = [
        (line["epoch"] + 1, 100 * line["val"]["accuracy"])
        for line in lines
        if is_number((line.get("val") or {}).get("accuracy")) and is_number(line.get("epoch"))
    ]
    best = max(points, key=lambda point: point[1])
    figure, axes = _figure(
        f"Validation accuracy over training: best {best[1]:.1f} %, in epoch {best[0]}",
        "Accuracy on the validation images after each epoch that was judged.",
        ("epoch", "validation accuracy"),
    )
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o" if len(points) <= 60 else None)
    _add(figure, axes, line, "val", "validation", WORKS, [(x, y, f"epoch {x}: {y:.2f} %") for x, y in points])
    _whole_numbers(axes.xaxis)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation accuracy (%)")
    about(figure).rows.extend((epoch, accuracy / 100) for epoch, accuracy in points)
    return figure


# Figures across runs


@_in_house_style
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
        title += f": it falls away under {_listed(riding)}" if riding and len(riding) < len(runs) else ""
        unit, says = "", "Right label's goodness minus the strongest wrong one's, in this block alone."
    else:
        title = f"Accuracy with blocks 0 to d: {min(lasts):.1f} to {max(lasts):.1f} % in the end"
        unit, says = " %", "Accuracy when only blocks 0 to d are used."
    figure, axes = _figure(
        title,
        f"{says} Warm colours: runs with blocks that ride for free, which have hollow markers.",
        ("run", "block", "by itself" if is_alone else measure),
    )
    cool, warm = itertools.cycle(COOL), itertools.cycle(WARM)
    for place, run in enumerate(runs):
        colour, name = next(warm if run["rides"] else cool), run["name"]
        points = [(depth, scale * value) for depth, value in enumerate(run["values"])]
        (line,) = axes.plot(*zip(*points), color=colour, marker=_marker(place))
        told = [(x, y, f"{name}, block {x}: {number(y)}{unit}") for x, y in points]
        _add(figure, axes, line, f"run {place}", name, colour, told, MARKERS[_marker(place)])
        for depth in run["rides"]:
            y = scale * run["values"][depth]
            (mark,) = axes.plot([depth], [y], _marker(place), color=colour, mfc="#fefefe", mew=1.5)
            _add(figure, axes, mark, f"run {place}", name, colour, [])
        about(figure).rows.extend((name, depth, value) for depth, value in enumerate(run["values"]))
    if is_alone:
        axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
        axes.set_ylabel("right label minus strongest wrong\nlabel, this block alone")
    else:
        axes.set_ylabel("accuracy (%)")
        _room_for_accuracies(axes, [100 * value for run in runs for value in run["values"]])
    _whole_numbers(axes.xaxis)
    axes.set_xlabel("block d")
    _legend(figure, axes)
    return figure


@_in_house_style
def kappa_figure(points: Sequence[dict[str, Any]]) -> Figure:
    """The dial: the deepest block's own separation and the accuracy against kappa, one point per run of a sweep.

    A point is {"name", "kappa", "sep_cur", "accuracy"}.
    """
    points = sorted(points, key=lambda one: one["kappa"])
    best = max(points, key=lambda one: one["sep_cur"])
    most = f"κ = {number(best['kappa'])} ({number(best['sep_cur'])})"
    figure, axes = _figure(
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
        _add(figure, panel, line, name, label, colour, told)
        panel.set_ylabel(f"{label}{' (%)' if unit else ''}")
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
    _room_for_accuracies(panels[1], [100 * one["accuracy"] for one in points if is_number(one["accuracy"])])
    panels[1].set_xlabel("κ")
    about(figure).rows.extend((one["name"], one["kappa"], one["sep_cur"], one["accuracy"]) for one in points)
    return figure


# Out of the house: files, and SVG for a page


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write the figure as PNG and SVG, the path's ending exchanged; both have title and legend in them."""
    import matplotlib

    written = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": path.name}), _patient():
        for file in written:
            figure.savefig(file, dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)
    return written


def as_inline_svg(figure: Figure, prefix: str | None = None) -> str:
    """The figure as an SVG element for a page: text as text, the page's own ink, no background, unique ids.

    Title and legend are left to the page. Every series is a group with `data-series` and a <title>; `data-points` holds
    [x, y, series, text] of every point in the SVG's coordinates, as JSON.
    """
    import matplotlib

    told, prefix = about(figure), prefix or f"figure-{next(_COUNT)}"
    written = io.StringIO()
    settings: dict[Any, Any] = {**STYLE, "svg.fonttype": "none", "svg.hashsalt": prefix}
    with matplotlib.rc_context(settings), _patient(), _without_title_and_legend(figure):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
        points = _points_on_paper(figure)
    return _adopt(written.getvalue(), prefix, told, points)


def _adopt(svg: str, prefix: str, told: About, points: list[list[Any]]) -> str:
    """matplotlib's SVG without what only a file needs, with its ids made unique and its series named."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", svg).replace("xlink:href", "href")
    svg = re.sub(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = svg.replace("#000000", "currentColor")
    for series in told.series.values():
        name = html.escape(series.label)
        marked = (
            rf'<g data-series="{slug(series.key)}" id="{prefix}-series-{slug(series.key)}-\1"><title>{name}</title>'
        )
        svg = re.sub(rf'<g id="{prefix}-series-{slug(series.key)}-(\d+)">', marked, svg)
    box = re.search(r'viewBox="([^"]+)"', svg)
    head = (
        f'<svg class="plot" viewBox="{box.group(1) if box else "0 0 374 238"}" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc" '
        f'data-points="{html.escape(json.dumps(points, allow_nan=False, ensure_ascii=False))}">'
        f'<title id="{prefix}-title">{html.escape(told.title)}</title>'
        f'<desc id="{prefix}-desc">{html.escape(told.description)}</desc>'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: head, svg, count=1).strip()


def _points_on_paper(figure: Figure) -> list[list[Any]]:
    """Every point as [x, y, series, text], from the top left in the 72nds of an inch that the SVG counts in."""
    height = figure.get_figheight() * 72
    found: list[list[Any]] = []
    for series in about(figure).series.values():
        for axes, (x, y, text) in series.points:
            across, up = axes.transData.transform((x, y))
            if math.isfinite(across) and math.isfinite(up):
                found.append([round(float(across), 1), round(height - float(up), 1), slug(series.key), text])
    return found


@contextmanager
def _without_title_and_legend(figure: Figure) -> Iterator[None]:
    """The page has a caption and buttons instead."""
    legends = [axes.get_legend() for axes in figure.axes]
    hidden = [*(legend for legend in legends if legend), *figure.texts]
    for artist in hidden:
        artist.set_visible(False)
        artist.set_in_layout(False)
    try:
        yield
    finally:
        for artist in hidden:
            artist.set_visible(True)
            artist.set_in_layout(True)


@contextmanager
def _patient() -> Iterator[None]:
    """A glyph that the font lacks, in the name of a class, is no reason to bother anybody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Reading and wording


def by_epoch(lines: Sequence[dict[str, Any]], part: str, name: str) -> list[tuple[int, list[float | None]]]:
    """(epoch, one value per block) of the lines that have any; a run of another version may lack what it likes.

    Epochs are counted from 1 here, as people do, and as the progress of a training does.
    """
    found: list[tuple[int, list[float | None]]] = []
    for line in lines:
        blocks = (line.get(part) or {}).get("blocks") if isinstance(line.get(part) or {}, dict) else None
        if not isinstance(blocks, list) or not isinstance(line.get("epoch"), int):
            continue
        values = [block.get(name) if isinstance(block, dict) else None for block in blocks]
        values = [float(value) if is_number(value) else None for value in values]
        if any(value is not None for value in values):
            found.append((line["epoch"] + 1, values))
    return found


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def number(value: float) -> str:
    """
    >>> number(-0.12812), number(2.0), number(98.15745)
    ('−0.13', '2', '98.16')
    """
    text = f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
    text = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    return ("0" if text in ("-0", "") else text).replace("-", "−")


def named_blocks(depths: Sequence[int]) -> str:
    """
    >>> named_blocks([3]), named_blocks([1, 2, 3]), named_blocks([0, 2])
    ('block 3', 'blocks 1, 2 and 3', 'blocks 0 and 2')
    """
    return f"block{'s' * (len(depths) > 1)} {_listed([str(depth) for depth in depths])}"


def kept_in_words(share: float) -> str:
    """
    >>> kept_in_words(1.0), kept_in_words(0.57), kept_in_words(0.0005), kept_in_words(0.0)
    ('all', '57 %', '1 part in 2,000', 'next to nothing')
    """
    if share <= SMALLEST:
        return "next to nothing"
    if share < 0.995:
        return in_words(share)
    return "all" if share < 1.005 else f"{number(share)} times as much"


def _attenuation_title(left: Sequence[tuple[int, float]]) -> str:
    if not left:
        return "One block alone has no past that could take its learning signal away"
    depth, kept = left[-1]
    if all(share > 0.995 for _, share in left):
        return "Nothing is taken away: for a typical image every block keeps its whole learning signal"
    if kept >= 0.5:
        return f"The deepest block goes on learning: a typical image leaves it {kept_in_words(kept)} of its signal"
    left_to_it = f"a typical image leaves {kept_in_words(kept)} of its signal"
    return f"What earlier blocks settled, block {depth} hardly learns: {left_to_it}"


def _ends(values: Sequence[float | None]) -> str:
    known = [(depth, value) for depth, value in enumerate(values) if value is not None]
    (first, begin), (last, end) = known[0], known[-1]
    if first == last:
        return f"block {first} ends at {number(begin)}"
    return f"block {first} ends at {number(begin)}, the deepest, block {last}, at {number(end)}"


def _mistaken(counts: Any, classes: Sequence[str], row: int, column: int) -> str:
    of = f"{int(counts[row, column])} of {int(counts[row].sum())}"
    return f"{classes[row]} {'right' if row == column else f'taken for {classes[column]}'}: {of}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _percent(share: float, digits: int = 0) -> str:
    return "under 1 %" if not digits and 0 < share < 0.01 else f"{100 * share:.{digits}f} %"


def _short(name: str, most: int = 14) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def _nth(values: Sequence[Any] | None, place: int) -> Any:
    return values[place] if values is not None and place < len(values) else None


def _of_block(series: Sequence[tuple[int, list[float | None]]], depth: int) -> list[tuple[int, float]]:
    return [(epoch, value) for epoch, values in series if (value := _nth(values, depth)) is not None]


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _marker(place: int) -> str:
    return list(MARKERS)[place % len(MARKERS)]


# Drawing


def _figure(
    title: str, description: str, columns: tuple[str, ...], *, size: tuple[float, float] = SIZE, rows: int = 1
) -> tuple[Figure, Axes]:
    """An empty figure with what is said of it; the first of its panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)
    figure.suptitle(textwrap.fill(title, 62), fontsize=10, fontweight="bold")
    _ABOUT[figure] = About(title, description, columns, [])
    return figure, panels[0, 0]


def _add(
    figure: Figure,
    axes: Axes,
    artist: Any,
    key: str,
    label: str,
    colour: str,
    points: Sequence[Point],
    mark: str = "■",
) -> None:
    """Make the artist part of a series."""
    series = about(figure).series.setdefault(key, Series(key, label, colour, mark))
    artist.set_gid(f"series-{slug(key)}-{series.artists}")
    series.artists += 1
    series.points.extend((axes, point) for point in points)


def _legend(figure: Figure, axes: Axes) -> None:
    """For the files; the page has its own."""
    from matplotlib.lines import Line2D

    markers = {glyph: marker for marker, glyph in MARKERS.items()}
    entries = [
        Line2D([], [], color=one.colour, marker=markers[one.mark], linestyle="", label=_short(one.label, 28))
        for one in about(figure).series.values()
    ]
    if len(entries) > 1:
        axes.legend(handles=entries)


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _room_for_accuracies(axes: Axes, values: Sequence[float]) -> None:
    """At least five points of accuracy in sight, so that noise does not look like a mountain."""
    low, high = min(values), max(values)
    room = max(5 - (high - low), 0.1 * (high - low)) / 2
    axes.set_ylim(max(0, low - room), min(100.5, high + room))


def _kept_axis(axes: Axes, least: float) -> None:
    """A logarithmic axis in words that need no mathematics: 100 %, 1 %, 10⁻⁴."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def words(share: float, _: int | None) -> str:
        if share >= 0.00099:
            return f"{100 * share:g} %"
        return f"10{str(round(math.log10(share))).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"

    axes.set_ylim(max(least / 3, SMALLEST / 3), None)
    axes.yaxis.set_major_formatter(FuncFormatter(words))
    axes.yaxis.set_minor_formatter(NullFormatter())
