"""Figures over training: how blocks, losses, experts and accuracy move from epoch to epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goodness.health.of_runs import convergence
from goodness.paper import measured as of
from goodness.paper.figures.depth import SEPARATION
from goodness.paper.figures.sheet import INK, Sheet, colour_of, depth_colour, name_of, paper_figure, shade, zero_line
from goodness.paper.numbers import of_preset
from goodness.report.ink import COLOURS, WORKS, whole_numbers
from goodness.report.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from goodness.runs.run import Run

MARKED = 30
"""Up to so many epochs a curve has markers."""
FEW = 10
"""Validations of a run; with fewer it is told when they were, since between them nothing is seen."""


def _first(sheet: Sheet, name: str) -> Run:
    """The run of the lowest seed, where one curve a preset is drawn."""
    return min(sheet.runs[name].items())[1]


def _blocks_over_epochs(axes: Axes, run: Run, measure: str) -> bool:
    """A line a block, from the first epoch on."""
    found = of.over_epochs(run, "train", measure)
    for d in range(len(found[-1][1]) if found else 0):
        points = [(epoch, values[d]) for epoch, values in found if d < len(values)]
        marker = "o" if len(points) <= MARKED else None
        axes.plot(
            *zip(*points), color=depth_colour(d, len(found[-1][1])), label=f"block {d}", marker=marker, markersize=3
        )
    whole_numbers(axes.xaxis)
    axes.set_xlabel("epoch")
    return bool(found)


def _panel_a_preset(sheet: Sheet, title: str, measure: str, words: str) -> None:
    names = [name for name in sheet.presets if of.over_epochs(_first(sheet, name), "train", measure)]
    sheet.need(names, "measures over the epochs (metrics.jsonl)")
    panels = sheet.panels(title, columns=len(names), share_y=True)
    deepest = max(names, key=lambda name: len(of.over_epochs(_first(sheet, name), "train", measure)[-1][1]))
    for axes, name in zip(panels, names):
        _blocks_over_epochs(axes, _first(sheet, name), measure)
        axes.set_title(name_of(name), fontsize=10)
        zero_line(axes)
        _at_the_end(axes, _first(sheet, name), measure)
    panels[0].set_ylabel(words)
    sheet.is_of_one_seed = True
    sheet.notes.append(
        "Lines: training images as they come; every block mines a wrong label of its own there, so a deeper block may "
        "tell it by the labels of the blocks before, whatever the image. Squares: test images at the end."
    )
    sheet.legend(panels[names.index(deepest)])


def _at_the_end(axes: Axes, run: Run, measure: str) -> None:
    """The same measure on test images, of the weights that are reported, behind the last epoch."""
    values, epochs = of.by_block(run, measure), [epoch for epoch, _ in of.over_epochs(run, "train", measure)]
    for d, value in enumerate(values):
        colour = depth_colour(d, len(values))
        axes.plot(epochs[-1] * 1.06, value, "s", markersize=7, markeredgecolor=INK, color=colour, clip_on=False)


@paper_figure(
    "training_dynamics_L8",
    "Eight blocks: each block's goodness over training, rule by rule.",
    ("l8-gamma0", "l8-gated-t1-k0", "l8-cumulative", "l8-lcff"),
)
def training_dynamics_l8(sheet: Sheet) -> None:
    title = "Do deep blocks keep growing? Each block's goodness over training, eight blocks"
    _panel_a_preset(sheet, title, "g_pos", "goodness under the right label,\nthis block alone")


@paper_figure(
    "freeriding_onset",
    "Each block's own separation over training, under three rules.",
    ("cp-fair", "gamma0", "lcff"),
)
def freeriding_onset(sheet: Sheet) -> None:
    title = "Each block's own separation: in training (lines), and then on test images (squares), where riding shows"
    _panel_a_preset(sheet, title, "sep_cur_mined", SEPARATION)


@paper_figure(
    "training_dynamics",
    "Separation of blocks 0 to d over training, three variants, a panel a block.",
    ("cp-fair", "nomem-l2", "fixed-nl"),
)
def training_dynamics(sheet: Sheet) -> None:
    found = {name: of.over_epochs(_first(sheet, name), "train", "sep_rate") for name in sheet.presets}
    depth = max((len(values[-1][1]) for values in found.values() if values), default=0)
    sheet.need(depth, "separation over the epochs")
    panels = sheet.panels(
        "How often does the right label lead, with the first block, two, three, all?",
        columns=depth,
        share_y=True,
        size=(3.0 * depth + 2.2, 4.2),
    )
    for d, axes in enumerate(panels):
        for name, lines in found.items():
            points = [(epoch, values[d]) for epoch, values in lines if d < len(values)]
            if points:
                axes.plot(*zip(*points), color=colour_of(name), label=name)
        axes.set_title("block 0" if not d else f"blocks 0 to {d}", fontsize=10)
        axes.set_xlabel("epoch")
        whole_numbers(axes.xaxis)
    panels[0].set_ylabel("share of training images whose right label\nleads the mined wrong one")
    sheet.is_of_one_seed = True
    sheet.legend(panels[0])


@paper_figure(
    "moe_routing",
    "How many experts are used, and how evenly, over training.",
    ("cp-fair", "multi-tech"),
)
def moe_routing(sheet: Sheet) -> None:
    names = [name for name in sheet.presets if of.over_epochs(_first(sheet, name), "train", "experts_effective")]
    sheet.need(names, "experts: their blocks are dense")
    used, uneven = sheet.panels("Are the experts used, and evenly?", columns=2)
    for name in names:
        run, colour = _first(sheet, name), colour_of(name)
        experts = getattr(run.config.model.block, "experts", None)
        for axes, measure in ((used, "experts_effective"), (uneven, "load_variance")):
            lines = of.over_epochs(run, "train", measure)
            x = [epoch for epoch, _ in lines]
            middle = [sum(values) / len(values) for _, values in lines]
            axes.plot(x, middle, color=colour, label=f"{name} ({experts} experts)")
            shade(axes, x, [values for _, values in lines], colour)
            axes.set_xlabel("epoch")
            whole_numbers(axes.xaxis)
        if experts:
            used.axhline(experts, color=colour, linewidth=1, linestyle=":")
    used.set_ylabel("experts in use\n(exp of the load's entropy)")
    used.set_ylim(0, None)
    uneven.set_ylabel("variance of the load\n(0: every expert has its share)")
    uneven.set_ylim(0, None)
    sheet.is_of_one_seed = True
    sheet.notes.append("Line: mean of the blocks, shade: from lowest to highest; dots: all experts.")
    sheet.legend(used)


@paper_figure(
    "convergence_speed",
    "Epochs until validation accuracy has reached 95 and 99 % of its best.",
    ("gamma0", "cp-fair", "lcff"),
)
def convergence_speed(sheet: Sheet) -> None:
    axes = sheet.panels("How long until most of the accuracy is there?", size=(7.8, 3.8))[0]
    drawn: list[float] = []
    for place, name in enumerate(sheet.presets):
        for offset, share, colour in ((-0.17, 95, "#9cc7e3"), (0.17, 99, WORKS)):
            found = [convergence(of.lines(run), share / 100) for run in sheet.runs[name].values()]
            epochs = [one + 1 for one in found if one is not None]
            if not epochs:
                continue
            y = place + offset
            axes.barh(y, sum(epochs) / len(epochs), height=0.3, color=colour, label=f"{share} % of the best")
            axes.plot(epochs, [y] * len(epochs), "|", color="black", markersize=8)
            drawn += epochs
            printed = [c.value for c in of_preset(name, "epochs") if c.column.startswith(f"epochs to {share}")]
            sheet.paper(axes, [value for value in printed if value], [y for value in printed if value])
    sheet.need(drawn, "validation accuracy over the epochs")
    sheet.close_up(axes, [0, *drawn], 0, along="x")
    axes.set_yticks(range(len(sheet.presets)), [name_of(name) for name in sheet.presets])
    axes.set_ylim(len(sheet.presets) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("epochs until validation accuracy reaches that share of its best")
    sheet.notes.append("Ticks: single seeds.")
    judged = [[epoch for epoch, _ in of.validation(run)] for by in sheet.runs.values() for run in by.values()]
    if few := sorted({epoch for epochs in judged if len(epochs) < FEW for epoch in epochs}):
        sheet.notes.append(f"Validated after epochs {listed([str(epoch) for epoch in few])} alone.")
    sheet.legend(axes)


@paper_figure(
    "training_stability",
    "Validation accuracy and the blocks' mean loss over training, rule by rule.",
    ("gamma0", "cp-fair", "lcff", "gated"),
)
def training_stability(sheet: Sheet) -> None:
    judged, losses = sheet.panels("Is training steady under every rule?", columns=2)
    drawn = False
    for name in sheet.presets:
        run, colour = _first(sheet, name), colour_of(name)
        points = of.validation(run)
        if points:
            judged.plot(*zip(*points), color=colour, label=name_of(name))
        lines = of.over_epochs(run, "train", "loss")
        if lines:
            x = [epoch for epoch, _ in lines]
            losses.plot(x, [sum(values) / len(values) for _, values in lines], color=colour, label=name_of(name))
            shade(losses, x, [values for _, values in lines], colour)
            drawn = True
    sheet.need(drawn, "losses over the epochs")
    judged.set_ylabel("validation accuracy (%)")
    losses.set_ylabel("training loss of a block")
    for axes in (judged, losses):
        axes.set_xlabel("epoch")
        whole_numbers(axes.xaxis)
    sheet.is_of_one_seed = True
    sheet.notes.append("Right: mean of the blocks, shade from lowest to highest.")
    sheet.legend(losses)


@paper_figure(
    "tinyimagenet_dynamics", "Tiny ImageNet: accuracy so far over training, seed by seed.", ("tiny-gamma0",), seeds=3
)
def tinyimagenet_dynamics(sheet: Sheet) -> None:
    axes = sheet.panels(f"{sheet.data_of('tiny-gamma0')}: do seeds take the same way?")[0]
    curves: list[dict[int, float]] = []
    by_seed = sorted(sheet.runs["tiny-gamma0"].items())
    has_validation = any(of.validation(run) for _, run in by_seed)
    for place, (seed, run) in enumerate(by_seed):
        points = of.validation(run)
        if not has_validation:
            points = [(epoch, 100 * values[-1]) for epoch, values in of.over_epochs(run, "train", "sep_rate")]
        best, curve = 0.0, dict[int, float]()
        for epoch, value in points:
            best = max(best, value) if has_validation else value
            curve[epoch] = best
        if curve:
            curves.append(curve)
            axes.plot(
                list(curve),
                list(curve.values()),
                color=COLOURS[place],
                linewidth=1.2,
                label=f"seed {seed}",
                marker="o" if len(curve) == 1 else "",
            )
    sheet.need(curves, "epochs on record")
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    if len(curves) > 1:
        mean = [sum(curve[epoch] for curve in curves) / len(curves) for epoch in shared]
        axes.plot(shared, mean, color=INK, linewidth=2.4, label="mean")
    axes.set_xlabel("epoch")
    whole_numbers(axes.xaxis)
    if has_validation:
        axes.set_ylabel("best validation accuracy so far (%)")
    else:
        axes.set_ylabel("training images whose right label\nleads the mined wrong one (%)")
        sheet.notes.append("These runs hold out no validation images: the separation on training images stands here.")
    sheet.legend(axes)
