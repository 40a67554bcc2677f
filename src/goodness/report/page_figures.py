"""The report's figures of one run: plain data in, a matplotlib Figure out. Titles say what is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from goodness.durable import is_number
from goodness.health.block_health import COLLAPSED
from goodness.report.ink import (
    DEAD,
    RIDES,
    VERDICT_COLOURS,
    WORKS,
    colour_of,
    kept_axis,
    marker_of,
    room_for_accuracies,
    whole_numbers,
)
from goodness.report.inline_svg import MARKERS, about, add_legend, add_series, in_house_style, new_figure
from goodness.report.words import SMALLEST, kept_in_words, named_blocks, number, percent, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED_CLASSES = 12
"""Up to so many classes a confusion matrix has room for names and counts."""
MOST_CELLS = 2000
"""Cells of a confusion matrix with a tooltip, the fullest first."""


@in_house_style
def curves_figure(lines: Sequence[dict[str, Any]]) -> Figure:
    """What every block separates by itself over training, from the lines of metrics.jsonl.

    Validation's `sep_cur`; where less than half of the epochs have it, the mined separation of training beside it. The
    numbers have both.
    """
    val, train = by_epoch(lines, "val", "sep_cur"), by_epoch(lines, "train", "sep_cur_mined")
    shows_training = 2 * len(val) < len(train)
    blocks = max((len(values) for _, values in [*val, *train]), default=0)
    ends = (val or train)[-1][1]
    title = "Each block by itself over training: " + _ends(ends)
    figure, axes = new_figure(
        title,
        "Goodness of the right label minus the strongest wrong one's (sep_cur), on validation images. "
        + ("Dashed: on training images, minus a mined wrong label's. " if shows_training else "")
        + "A block that rides for free stays near zero.",
        ("epoch", *(f"block {d}, {what}" for d in range(blocks) for what in ("validation", "training"))),
    )
    for depth in range(blocks):
        name, colour, marker = f"block {depth}", colour_of(depth), marker_of(depth)
        dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "alpha": 0.8}
        marked: dict[str, Any] = {"marker": marker if len(val) <= 60 else None}
        for points, what, style in (
            (_of_block(train, depth) if shows_training else [], "in training, mined", dashed),
            (_of_block(val, depth), "on validation", marked),
        ):
            if points:
                (line,) = axes.plot(*zip(*points), color=colour, **style)
                told = [(x, y, f"{name}, epoch {x}: {number(y)} {what}") for x, y in points]
                add_series(figure, axes, line, name, name, colour, told, MARKERS[marker])
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.5)
    axes.set_xlabel("epoch")
    axes.set_ylabel("right label minus strongest wrong\nlabel, this block alone")
    if shows_training:
        solid = "solid: validation; " if val else ""
        axes.set_title(f"{solid}dashed: training, minus a mined wrong label", fontsize=9.5, loc="left")
    whole_numbers(axes.xaxis)
    add_legend(figure, axes)
    at_val, at_train = dict(val), dict(train)
    about(figure).rows.extend(
        (epoch, *(_nth(part.get(epoch), depth) for depth in range(blocks) for part in (at_val, at_train)))
        for epoch in sorted({*at_val, *at_train})
    )
    return figure


@in_house_style
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
        title = f"Every block fills up: at the end the weakest has {percent(np.nanmin(shares[:, -1]))} of the largest"
    figure, axes = new_figure(
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
        (place, depth, f"block {depth}, epoch {epoch}: {number(grid[depth, place])}, {percent(shares[depth, place])}")
        for depth in range(blocks)
        for place, (epoch, _) in enumerate(chosen)
        if not math.isnan(grid[depth, place])
    ]
    add_series(figure, axes, image, "cells", "block by epoch", WORKS, cells)
    axes.grid(False)
    axes.set_yticks(range(blocks), [f"block {depth}" for depth in range(blocks)])
    some = range(0, len(chosen), math.ceil(len(chosen) / 8))
    axes.set_xticks(some, [str(chosen[place][0]) for place in some])
    axes.set_xlabel("epoch")
    bar = figure.colorbar(image, ax=axes, ticks=[0, COLLAPSED, 1], pad=0.02)
    bar.ax.set_yticklabels(["0", "⅓", "1"])
    bar.set_label("share of the run's strongest")
    about(figure).rows.extend((epoch, *(_nth(values, depth) for depth in range(blocks))) for epoch, values in chosen)
    return figure


@in_house_style
def own_share_figure(blocks: Sequence[dict[str, Any]], verdicts: Sequence[str]) -> Figure:
    """Of the evidence behind blocks 0..d, how much is block d's own and how much it inherits."""
    own = [(depth, block["own"]) for depth, block in enumerate(blocks) if is_number(block.get("own"))]
    deepest, share = own[-1]
    figure, axes = new_figure(
        f"Of the evidence behind blocks 0 to {deepest}, {percent(share)} is block {deepest}'s own",
        "Filled: the block's own share of the margin for the right label; pale: what it inherits from the blocks "
        "before it. The tick marks an equal share of all blocks so far. Orange blocks ride for free.",
        ("block", "own", "inherited", "an equal share"),
    )
    for depth, share in own:
        colour = VERDICT_COLOURS.get(_nth(verdicts, depth) or "works", WORKS)
        bars = axes.barh(depth, share, color=colour, height=0.62)
        add_series(
            figure, axes, bars[0], "own", "own", colour, [(share / 2, depth, f"block {depth}: {percent(share)} own")]
        )
        rest = axes.barh(depth, 1 - share, left=share, color=colour, alpha=0.22, height=0.62)
        told = f"block {depth}: {percent(1 - share)} inherited"
        add_series(figure, axes, rest[0], "inherited", "inherited", colour, [((1 + share) / 2, depth, told)], "□")
        axes.plot([1 / (depth + 1)] * 2, [depth - 0.4, depth + 0.4], color="black", linewidth=1.5)
    axes.set_yticks([depth for depth, _ in own], [f"block {depth}" for depth, _ in own])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.set_xlim(0, 1.01)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("share of the evidence for the right label")
    about(figure).rows.extend((depth, share, 1 - share, 1 / (depth + 1)) for depth, share in own)
    return figure


@in_house_style
def truncation_figure(accuracies: Sequence[float]) -> Figure:
    """Accuracy of the network cut off after each block."""
    gain = 100 * (accuracies[-1] - accuracies[0])
    first, last = percent(accuracies[0], 1), percent(accuracies[-1], 1)
    if len(accuracies) == 1:
        title = f"One block: {first} right"
    elif abs(gain) < 1:
        title = f"Cut off after block 0 it would be as good: {first}, with all blocks {last}"
    else:
        verb = "add" if gain > 0 else "cost"
        title = f"The later blocks {verb} {abs(gain):.1f} points: {first} with block 0 alone, {last} with all"
    figure, axes = new_figure(
        title, "Accuracy when only blocks 0 to d are used and their goodness is summed.", ("blocks used", "accuracy")
    )
    points = [(used + 1, 100 * accuracy) for used, accuracy in enumerate(accuracies)]
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o")
    told = [(x, y, f"{x} {'block' if x == 1 else 'blocks'}: {y:.2f} %") for x, y in points]
    add_series(figure, axes, line, "accuracy", "accuracy", WORKS, told)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("blocks used")
    axes.set_ylabel("accuracy (%)")
    room_for_accuracies(axes, [y for _, y in points])
    about(figure).rows.extend((used + 1, accuracy) for used, accuracy in enumerate(accuracies))
    return figure


@in_house_style
def early_exit_figure(curve: Sequence[dict[str, float]]) -> Figure:
    """Accuracy against mean blocks used, where an image leaves as soon as the network is sure enough."""
    full = curve[-1]
    enough = min((one for one in curve if one["accuracy"] >= full["accuracy"] - 0.001), key=lambda one: one["blocks"])
    title = (
        f"{enough['blocks']:.1f} of {full['blocks']:.0f} blocks on average are enough for "
        f"{percent(enough['accuracy'], 1)}: {percent(enough['saved'])} of the work saved"
    )
    if enough is full:
        title = (
            f"Leaving early costs accuracy: only all {full['blocks']:.0f} blocks give {percent(full['accuracy'], 1)}"
        )
    figure, axes = new_figure(
        title,
        "An image leaves at the first block whose lead of the best label over the second reaches a threshold; each "
        "point is one threshold.",
        ("threshold", "blocks used", "work saved", "accuracy"),
    )
    points = [(one["blocks"], 100 * one["accuracy"]) for one in curve]
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o", markersize=4)
    told = [
        (x, y, f"threshold {number(one['threshold'])}: {y:.2f} % with {x:.2f} blocks, {percent(one['saved'])} saved")
        for (x, y), one in zip(points, curve)
    ]
    add_series(figure, axes, line, "exit", "early exit", WORKS, told)
    axes.set_xlabel("blocks used, mean over the images")
    axes.set_ylabel("accuracy (%)")
    room_for_accuracies(axes, [y for _, y in points])
    about(figure).rows.extend((one["threshold"], one["blocks"], one["saved"], one["accuracy"]) for one in curve)
    return figure


@in_house_style
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
    figure, axes = new_figure(
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
        add_series(figure, axes, artist, "envelope", "what the theorem allows", DEAD, [])
    for depth, block in shown:
        name, colour = f"block {depth}", colour_of(depth)
        is_inside = [x >= 0 and m >= 0 for x, _, m in block]
        told = [(x, r, f"{name}: w·P {number(x)}, m {number(m)}, {kept_in_words(r)} left") for x, r, m in block]
        for inside, face in ((True, colour), (False, "none")):
            some = [(x, r) for (x, r, _), one in zip(block, is_inside) if one == inside]
            (marks,) = axes.plot(
                [x for x, _ in some],
                [r for _, r in some],
                marker_of(depth),
                color=colour,
                markersize=3.3,
                markerfacecolor=face,
                markeredgewidth=0.7,
            )
            add_series(figure, axes, marks, name, name, colour, told if inside else [], MARKERS[marker_of(depth)])
        if block:
            xs_of, rs = [x for x, _, _ in block], [r for _, r, _ in block]
            about(figure).rows.append((depth, len(block), median(xs_of), median(rs), min(rs), max(rs)))
    axes.set_yscale("log")
    kept_axis(axes, min([0.1, *(r for _, block in shown for _, r, _ in block)]))
    axes.set_xlabel("w·P: evidence that the block inherits")
    axes.set_ylabel("R: learning signal left")
    add_legend(figure, axes)
    return figure


@in_house_style
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
        title = f"The commonest mistake: {short(classes[true])} taken for {short(classes[said])}, {total}"
    figure, axes = new_figure(
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
    add_series(figure, axes, image, "cells", "confusion", WORKS, told)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    if len(classes) <= NAMED_CLASSES:
        slant: dict[str, Any] = {"rotation": 45, "ha": "right"} if max(map(len, classes)) > 3 else {}
        axes.set_xticks(range(len(classes)), [short(name) for name in classes], **slant)
        axes.set_yticks(range(len(classes)), [short(name) for name in classes])
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


@in_house_style
def margins_figure(margins: Sequence[float], has_blocks: bool = True) -> Figure:
    """The distribution of the margin, of the goodness summed over blocks or of class scores, from its quantiles."""
    score, whole = ("summed goodness", ", all blocks") if has_blocks else ("score", "")
    shares = [place / max(1, len(margins) - 1) for place in range(len(margins))]
    right = sum(margin > 0 for margin in margins) / len(margins)
    lead = median([margin for margin in margins if margin > 0] or [0.0])
    figure, axes = new_figure(
        f"About {percent(right)} of the images are on the right side, half of these by more than {number(lead)}",
        f"The share of images whose right label's {score} leads the strongest wrong label's by at most so much. Left "
        "of zero the answer is wrong.",
        ("share of images", "margin at most"),
    )
    axes.axvspan(min(*margins, -0.01), 0, color=RIDES, alpha=0.12, linewidth=0)
    (line,) = axes.plot(margins, [100 * share for share in shares], color=WORKS)
    told = [
        (m, 100 * share, f"{percent(share, 1)} of the images: at most {number(m)}") for m, share in zip(margins, shares)
    ]
    add_series(figure, axes, line, "margins", "margin", WORKS, told)
    axes.axvline(0, color="black", linewidth=0.8, alpha=0.6)
    axes.set_xlabel(f"margin: right label minus the strongest wrong one{whole}")
    axes.set_ylabel("share of images (%)")
    about(figure).rows.extend(zip(shares[:: max(1, len(shares) // 20)], margins[:: max(1, len(margins) // 20)]))
    return figure


@in_house_style
def learning_figure(lines: Sequence[dict[str, Any]]) -> Figure:
    """Validation accuracy over training, for what has no blocks to tell apart."""
    points = [
        (line["epoch"] + 1, 100 * line["val"]["accuracy"])
        for line in lines
        if is_number((line.get("val") or {}).get("accuracy")) and is_number(line.get("epoch"))
    ]
    best = max(points, key=lambda point: point[1])
    figure, axes = new_figure(
        f"Validation accuracy over training: best {best[1]:.1f} %, in epoch {best[0]}",
        "Accuracy on the validation images after each epoch that was judged.",
        ("epoch", "validation accuracy"),
    )
    (line,) = axes.plot(*zip(*points), color=WORKS, marker="o" if len(points) <= 60 else None)
    add_series(figure, axes, line, "val", "validation", WORKS, [(x, y, f"epoch {x}: {y:.2f} %") for x, y in points])
    whole_numbers(axes.xaxis)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation accuracy (%)")
    room_for_accuracies(axes, [y for _, y in points])
    about(figure).rows.extend((epoch, accuracy / 100) for epoch, accuracy in points)
    return figure


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


def _nth(values: Sequence[Any] | None, place: int) -> Any:
    return values[place] if values is not None and place < len(values) else None


def _of_block(series: Sequence[tuple[int, list[float | None]]], depth: int) -> list[tuple[int, float]]:
    return [(epoch, value) for epoch, values in series if (value := _nth(values, depth)) is not None]
