"""Figures over depth: separation, goodness and accuracy block by block."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from goodness.paper import measured as of
from goodness.paper.figures.sheet import (
    IN_TRAINING,
    POINTS,
    Sheet,
    block_axis,
    colour_of,
    name_of,
    paper_figure,
    printed_by_block,
    shade,
    zero_line,
)
from goodness.paper.findings import VARIANTS
from goodness.paper.numbers import of_preset
from goodness.presets import RULES
from goodness.report.ink import RIDES, WORKS, room_for_accuracies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from goodness.runs.run import Run

L4 = ("d128-gamma0", *(f"d128-{end}" for end in RULES))
L8 = ("l8-gamma0", *(f"l8-{end}" for end in RULES))
FOUR_RULES = ("gamma0", "gated-t1-k0", "cumulative", "lcff")
GATES = tuple(end for end in RULES if end.startswith("gated"))
SEPARATION = "right label's goodness minus that of\na mined wrong one, this block alone"


def _collapsed(drawn: dict[str, list[float]]) -> str:
    """Those whose deepest block has less than a third of what the best rule's has."""
    best = max(values[-1] for values in drawn.values())
    low = [name_of(name) for name, values in drawn.items() if values[-1] < best / 3]
    if best <= 0:
        return "no deep block separates"
    if not low:
        return "no rule falls far behind"
    return f"it falls away under {', '.join(low)}"


@paper_figure(
    "scaling_L8",
    "Eight blocks: what each separates by itself under four rules.",
    [f"l8-{end}" for end in FOUR_RULES],
)
def scaling_l8(sheet: Sheet) -> None:
    axes = sheet.panels("Eight blocks, each by itself")[0]
    drawn = sheet.by_block(axes, sheet.presets, of.separation, metric="sep_cur_mined")
    sheet.need(drawn, "separation by block")
    sheet.notes.append(IN_TRAINING)
    sheet.title(f"Eight blocks, each by itself: {_collapsed(drawn)}")
    block_axis(axes)
    axes.set_ylabel(SEPARATION)
    zero_line(axes)
    sheet.legend(axes)


@paper_figure(
    "freeriding",
    "Separation of all blocks so far, and of each block alone, in four variants.",
    ("baseline", "fixed-nl", "cp-fair", "gamma0"),
)
def freeriding(sheet: Sheet) -> None:
    together, alone = sheet.panels("All blocks together hide what each one does by itself", columns=2)
    sheet.by_block(together, sheet.presets, lambda run: of.in_training(run, "sep_rate"), metric="sep_rate")
    drawn = sheet.by_block(alone, sheet.presets, of.separation, metric="sep_cur_mined")
    sheet.need(drawn, "separation by block")
    together.set_title("blocks 0 to d together", fontsize=10)
    together.set_ylabel("share of images whose right label\nleads a mined wrong one")
    alone.set_title("block d alone", fontsize=10)
    alone.set_ylabel(SEPARATION)
    for axes in (together, alone):
        block_axis(axes)
    sheet.notes.append(IN_TRAINING)
    zero_line(alone)
    sheet.legend(alone)


def _own_and_inherited(run: Run) -> list[tuple[float, float]]:
    """Of every block its own goodness, and the rule's weight times that of the blocks before it.

    Publications of older runs have a gate's mean weight on test images alone, which stands in for that in training.
    """
    own, weights = of.goodness(run), of.in_training(run, "rule_weight") or of.by_block(run, "rule_weight")
    return [(g, weight * sum(own[:d])) for d, (g, weight) in enumerate(zip(own, weights))]


def _decomposition(sheet: Sheet, blocks: str) -> None:
    found = {}
    for name in sheet.presets:
        pairs = [one for run in sheet.runs[name].values() if (one := _own_and_inherited(run))]
        if pairs:
            found[name] = [[sum(part) / len(part) for part in zip(*column)] for column in zip(*pairs)]
    sheet.need(found, "goodness by block")
    title = f"Whose goodness is it? What a block adds, and what it inherits ({blocks})"
    panels = sheet.panels(title, columns=len(found), share_y=True)
    for axes, (name, columns) in zip(panels, found.items()):
        x = range(len(columns))
        own, inherited = [one[0] for one in columns], [one[1] for one in columns]
        axes.bar(x, own, color=WORKS, label="its own")
        axes.bar(x, inherited, bottom=own, color=RIDES, alpha=0.55, label="inherited: weight × blocks before")
        share = own[-1] / (own[-1] + inherited[-1]) if own[-1] + inherited[-1] > 0 else 0.0
        axes.set_title(f"{name_of(name)}:\nthe last block's own is {100 * share:.0f} %", fontsize=9.5)
        printed = printed_by_block(name, "goodness_pos")
        sheet.paper(axes, list(printed), list(printed.values()))
        axes.set_xlabel("block")
        axes.set_xticks(list(x))
    panels[0].set_ylabel("goodness under the right label")
    if sheet.has_paper:
        sheet.notes.append("The paper's numbers are a block's own goodness.")
    sheet.notes.append(IN_TRAINING)
    sheet.legend(panels[0])


@paper_figure(
    "goodness_decomposition",
    "Four blocks: own and inherited goodness.",
    ("d128-gamma0", "d128-gated-t1-k0", "d128-gated-t1-k4", "d128-cumulative"),
)
def goodness_decomposition(sheet: Sheet) -> None:
    _decomposition(sheet, "four blocks")


@paper_figure(
    "goodness_decomposition_L8",
    "Eight blocks: own and inherited goodness.",
    ("l8-gamma0", "l8-gated-t1-k0", "l8-gated-t1-k4", "l8-cumulative"),
)
def goodness_decomposition_l8(sheet: Sheet) -> None:
    _decomposition(sheet, "eight blocks")


def _spectrum(sheet: Sheet) -> None:
    """Left the ratio of goodness over kappa, right each block's separation."""
    sheet.need(any("-k" in name for name in sheet.presets), "gate, whose κ this figure is about")
    depths = [len(of.goodness(run)) for by_seed in sheet.runs.values() for run in by_seed.values()]
    sheet.need(any(depths), "goodness by block")
    last = max(depths) - 1
    left, right = sheet.panels(f"Turning κ: from which value on does the last of {last + 1} blocks ride?", columns=2)
    points: list[tuple[float, str, list[float]]] = []
    for name in sheet.presets:
        kappa = float(name.rsplit("-k", 1)[1]) if "-k" in name else 6.0
        ratios = [
            value for run in sheet.runs[name].values() if (value := of.first_to_last(of.goodness(run))) is not None
        ]
        if ratios:
            points.append((kappa, name, ratios))
    sheet.need(points, "positive goodness in the first and last block")
    means = [(kappa, sum(ratios) / len(ratios)) for kappa, _, ratios in points]
    left.plot(*zip(*[one for one in means if one[0] < 5]), color="0.6", zorder=2)
    for kappa, name, ratios in points:
        left.plot([kappa] * len(ratios), ratios, "o", color=colour_of(name), zorder=4)
        printed = [one.value for one in of_preset(name, "goodness_ratio") if one.value is not None]
        sheet.paper(left, [kappa + 0.15] * len(printed[:1]), printed[:1], colour_of(name))
    left.axhline(1, color="black", linewidth=0.8, alpha=0.5)
    left.set_xticks([0, 2, 4, 6], ["0", "2", "4", "constant\nγ = 0.7"])
    left.set_xlim(-0.5, 6.6)
    left.set_ylim(0, None)
    left.set_xlabel("κ: the higher, the more history enters")
    left.set_ylabel(f"goodness of block {last} ÷ that of block 0\n(above one: works, below: rides)", fontsize=9)
    sheet.by_block(right, sheet.presets, of.separation, metric="sep_cur_mined")
    sheet.notes.append(IN_TRAINING)
    block_axis(right)
    right.set_ylabel(SEPARATION)
    zero_line(right)
    sheet.legend(right)


@paper_figure(
    "kappa_spectrum",
    "Four blocks: the gate's threshold from 0 to 4, and a constant gamma.",
    ("d128-gated-t1-k0", "d128-gated-t1-k2", "d128-gated-t1-k4", "d128-cumulative"),
)
def kappa_spectrum(sheet: Sheet) -> None:
    _spectrum(sheet)


@paper_figure(
    "kappa_spectrum_L8",
    "Eight blocks: the gate's threshold from 0 to 4, and a constant gamma.",
    ("l8-gated-t1-k0", "l8-gated-t1-k2", "l8-gated-t1-k4", "l8-cumulative"),
)
def kappa_spectrum_l8(sheet: Sheet) -> None:
    _spectrum(sheet)


@paper_figure(
    "depth_effect_comparison",
    "The last block's goodness over the first's: four blocks against eight, gate by gate.",
    [f"{scale}-{end}" for end in GATES for scale in ("d128", "l8")],
)
def depth_effect_comparison(sheet: Sheet) -> None:
    axes = sheet.panels("Does the last block work or ride? Four blocks against eight", size=(8.2, 4.6))[0]
    there = [end for end in GATES if {f"d128-{end}", f"l8-{end}"} & set(sheet.presets)]
    drawn = False
    for place, end in enumerate(there):
        for offset, scale, colour, label in (
            (0.16, "d128", RIDES, "four blocks"),
            (-0.16, "l8", WORKS, "eight blocks"),
        ):
            name = f"{scale}-{end}"
            ratios = of.over_seeds(sheet.runs, name, lambda run: of.first_to_last(of.goodness(run)))
            if not ratios:
                continue
            mean, y = of.mean(ratios.values()) or 0.0, place + offset
            axes.barh(y, mean, height=0.28, color=colour, label=label)
            axes.plot(list(ratios.values()), [y] * len(ratios), "|", color="black", markersize=8)
            printed = [one.value for one in of_preset(name, "goodness_ratio") if one.value is not None]
            sheet.paper(axes, printed[:1], [y] * len(printed[:1]))
            drawn = True
    sheet.need(drawn, "positive goodness in the first and last block")
    axes.axvline(1, color="black", linewidth=1)
    axes.text(1, -0.62, " one: as much as the first block", fontsize=8.5, va="center")
    axes.set_yticks(range(len(there)), [name_of(f"d128-{end}") for end in there])
    axes.set_ylim(len(there) - 0.4, -0.9)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("goodness of the last block ÷ goodness of the first")
    sheet.notes += [IN_TRAINING, "Ticks in the bars: single seeds."]
    sheet.legend(axes)


def _truncated(sheet: Sheet, axes: Axes, *, names: bool = False) -> dict[str, list[float]]:
    drawn = sheet.by_block(axes, sheet.presets, of.truncation, metric="truncated_accuracy", first=1, names=names)
    sheet.need(drawn, "accuracy by depth")
    axes.set_xlabel("blocks used, from the first")
    axes.set_ylabel("test accuracy (%)")
    ours = [value for means in drawn.values() for value in means]
    sheet.close_up(axes, ours, POINTS)
    if not sheet.has_paper:
        room_for_accuracies(axes, ours)
    return drawn


@paper_figure("depth_truncation", "Four blocks of D128: accuracy of the first one, two, three, all.", L4)
def depth_truncation(sheet: Sheet) -> None:
    axes = sheet.panels("How many of four blocks does a prediction need?")[0]
    _truncated(sheet, axes)
    sheet.legend(axes)


@paper_figure("depth_truncation_L8", "Eight blocks: accuracy of the first d, gate by gate.", L8)
def depth_truncation_l8(sheet: Sheet) -> None:
    axes = sheet.panels("How many of eight blocks does a prediction need?")[0]
    _truncated(sheet, axes)
    sheet.legend(axes)


@paper_figure("depth_gap", "The thirteen variants: share of the accuracy that the first blocks keep.", VARIANTS)
def depth_gap(sheet: Sheet) -> None:
    axes = sheet.panels("How much of the accuracy do the first blocks keep?", size=(9.2, 4.8))[0]

    def kept(run: Run) -> list[float]:
        curve = of.truncation(run)
        return [100 * value / curve[-1] for value in curve] if curve and curve[-1] > 0 else []

    drawn = sheet.by_block(axes, sheet.presets, kept, first=1, names=True)
    sheet.need(drawn, "accuracy by depth")
    least = min(values[1] for values in drawn.values() if len(values) > 1)
    sheet.notes.append(f"With two blocks the lowest line has {least:.1f} %.")
    axes.axhline(98, color="black", linewidth=1, linestyle="--", label="98 %: the paper's claim for two")
    axes.set_xlabel("blocks used, from the first")
    axes.set_ylabel("share of the whole network's accuracy (%)")
    sheet.legend(axes)


@paper_figure(
    "early_exit_L8",
    "Eight blocks: accuracy against the blocks that an image uses on average, leaving once it is sure.",
    L8,
)
def early_exit_l8(sheet: Sheet) -> None:
    exits, gains = sheet.panels("Images that are sure may leave early: what does that cost?", columns=2)
    drawn = []
    for name in sheet.presets:
        run = min(sheet.runs[name].items())[1]
        curve = of.health(run).get("early_exit") or []
        if curve:
            points = [(point["blocks"], 100 * point["accuracy"]) for point in curve]
            exits.plot(*zip(*points), color=colour_of(name), label=name_of(name))
            drawn += [y for _, y in points]
    sheet.need(drawn, "early-exit curves (health.json)")
    room_for_accuracies(exits, drawn)
    exits.set_xlabel("blocks an image uses, on average")
    exits.set_ylabel("test accuracy (%)")
    exits.set_title("leaving where the lead is large enough", fontsize=10)

    def gain(run: Run) -> list[float]:
        curve = of.truncation(run)
        return [b - a for a, b in itertools.pairwise(curve)]

    sheet.by_block(gains, sheet.presets, gain, first=2)
    zero_line(gains)
    gains.set_xlabel("block added (2 is the second)")
    gains.set_ylabel("what it adds to the accuracy (points)")
    gains.set_title("all images, one block more", fontsize=10)
    sheet.notes.append("Left: the lowest seed.")
    sheet.legend(exits)


@paper_figure(
    "tinyimagenet_crossdata",
    "gamma = 0 on CIFAR-10 and on Tiny ImageNet: separation and goodness by block.",
    ("gamma0", "tiny-gamma0"),
)
def tinyimagenet_crossdata(sheet: Sheet) -> None:
    left, right = sheet.panels("The same local rule on two data sets: does every block keep its share?", columns=2)
    drawn = {}
    for name in sheet.presets:
        is_tiny = name == "tiny-gamma0"
        colour, label = RIDES if is_tiny else WORKS, f"{sheet.data_of(name)} ({name})"
        for axes, values, metric in ((left, of.separation, "sep_cur_mined"), (right, of.goodness, "goodness_pos")):
            means = of.mean_by_block(sheet.runs, name, values)
            each = [one for run in sheet.runs[name].values() if len(one := values(run)) == len(means)]
            if not means:
                continue
            drawn[name] = means
            x = list(range(len(means)))
            axes.plot(x, means, color=colour, marker="o", label=label, zorder=4)
            shade(axes, x, list(zip(*each)), colour)
            printed = printed_by_block(name, metric)
            sheet.paper(axes, [d + 0.06 for d in printed], list(printed.values()), colour)
            axes.set_xticks(x)
    sheet.need("tiny-gamma0" in drawn, "separation by block on Tiny ImageNet")
    sheet.notes.append(IN_TRAINING)
    left.set_ylabel(SEPARATION)
    right.set_ylabel("goodness under the right label,\nthis block alone")
    for axes in (left, right):
        block_axis(axes)
        zero_line(axes)
    sheet.legend(left)
