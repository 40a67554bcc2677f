"""Figures that compare whole runs: one part less, health against accuracy, seeds beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goodness.health.stats import Interval, correlation, mean_and_std, mean_interval
from goodness.paper import measured as of
from goodness.paper.figures.depth import L4, L8
from goodness.paper.figures.sheet import IN_TRAINING, INK, POINTS, Sheet, colour_of, dash_of, name_of, paper_figure
from goodness.paper.findings import VARIANTS
from goodness.paper.numbers import Cell, of_preset, table
from goodness.report.ink import COLOURS, RIDES, WORKS, room_for_accuracies
from goodness.report.words import named_seeds, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from goodness.runs.run import Run

COMPONENTS = tuple(dict.fromkeys(one.preset for one in table("component_ablation") if one.preset))
MINING = tuple(dict.fromkeys(one.preset for one in table("hnm_ksweep") if one.preset))
ASPECTS = tuple(dict.fromkeys(one.preset for one in table("aspect_ema_ablation") if one.preset))
WORDS = {
    "no-sam": "no SAM",
    "no-supcon": "no contrastive loss",
    "no-history": "no accumulation (γ = 0)",
    "no-experts": "dense, no experts",
    "no-curr": "no current-block loss",
    "no-depth": "no depth order",
    "one-aspect": "one aspect, not four",
    "no-mining": "random wrong labels",
    "k1": "1 candidate (random)",
    "k4": "hardest of 4",
    "k8": "hardest of 8",
    "k16": "hardest of 16",
    "nl-only": "wrong labels alone",
    "ni-only": "wrong images alone",
    "align-only": "alignment loss alone",
    "energy-only": "energy loss alone",
    "sharpness-only": "sharpness loss alone",
    "learned-only": "learned loss alone",
    "no-ema": "no moving average",
    "online-mining": "mined by the network itself",
}


def _score(run: Run) -> float | None:
    """Stage 1 with flip TTA, as the paper's tables of ablations; without where the data has none."""
    value = of.accuracy(run, tta=True)
    return of.accuracy(run) if value is None else value


def _printed(preset: str, label: str, metric: str) -> float | None:
    found = [one.value for one in of_preset(preset, metric) if one.table == label and one.value is not None]
    return found[0] if found else None


def _ablation(sheet: Sheet, label: str, title: str) -> None:
    """A bar a row: accuracy minus cp-fair's, paired over seeds, worst at the bottom; the paper's beside."""
    if "cp-fair" not in sheet.runs:
        raise sheet.lacks("compares with cp-fair, which has no finished run")
    rows: list[tuple[str, Interval]] = []
    for name in sheet.presets:
        apart = of.differences(sheet.runs, name, "cp-fair", _score)
        if name != "cp-fair" and apart:
            rows.append((name, mean_interval(list(apart.values()))))
    if not rows:
        others = [name for name in sheet.wanted if name != "cp-fair"]
        seeds = named_seeds(list(sheet.runs["cp-fair"]))
        raise sheet.lacks(f"compares {', '.join(others)} with cp-fair's runs, and has none of theirs with {seeds}")
    rows.sort(key=lambda one: -one[1].estimate)
    axes = sheet.panels(title, size=(8.4, 1.9 + 0.42 * len(rows)))[0]
    base = _printed("cp-fair", label, "accuracy_tta")
    for place, (name, found) in enumerate(rows):
        axes.barh(place, found.estimate, height=0.55, color=WORKS if found.estimate >= 0 else RIDES)
        if found.low is not None and found.high is not None:
            axes.plot([found.low, found.high], [place, place], color="black", linewidth=1.2)
        printed = _printed(name, label, "accuracy_tta")
        if printed is not None and base is not None:
            sheet.paper(axes, [printed - base], [place + 0.0])
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [WORDS.get(name.removeprefix("cp-fair-"), name) for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    is_tta = all(of.accuracy(run, tta=True) is not None for run in sheet.runs["cp-fair"].values())
    axes.set_xlabel(f"change of test accuracy against cp-fair (points), Stage 1{', flip TTA' if is_tta else ''}")
    if any(found.low is not None for _, found in rows):
        sheet.notes.append("Black: 95 % interval over seeds; one that reaches the edge goes on.")
        reach = max(abs(found.estimate) for _, found in rows)
        axes.set_xlim(*(sign * max(2.5 * reach, 1.2) for sign in (-1, 1)))
    else:
        sheet.notes.append("One seed has no interval.")
    sheet.legend(axes)


@paper_figure("component_ablation", "What cp-fair loses or gains with one part less.", COMPONENTS)
def component_ablation(sheet: Sheet) -> None:
    _ablation(sheet, "component_ablation", "cp-fair with one part less: what did the part bring?")


@paper_figure("hnm_ksweep", "cp-fair with other negatives.", MINING)
def hnm_ksweep(sheet: Sheet) -> None:
    _ablation(sheet, "hnm_ksweep", "cp-fair with other negatives: how hard, and of which kind?")


@paper_figure("aspect_ema_ablation", "cp-fair with one aspect's loss alone, and without the moving average.", ASPECTS)
def aspect_ema_ablation(sheet: Sheet) -> None:
    _ablation(sheet, "aspect_ema_ablation", "cp-fair with one aspect's loss, or no moving average")


FEWEST = 5
"""Points that a correlation is told of."""
FEWEST_VARIANTS = 4
"""Points that are drawn at all, where the figure is about how they lie."""


def _in_words(found: Interval) -> str:
    ends = "" if found.low is None else f", 95 % interval {found.low:.2f} to {found.high:.2f}"
    return f"r = {found.estimate:.2f}{ends}, n = {found.n}".replace("-", "−")


def _correlation(points: Sequence[tuple[float, float]]) -> Interval | None:
    try:
        return correlation([x for x, _ in points], [y for _, y in points])
    except ValueError:
        return None


@paper_figure(
    "accuracy_vs_ratio",
    "Last block's goodness over the first's against accuracy, over rules and depths.",
    (*L4, *L8),
)
def accuracy_vs_ratio(sheet: Sheet) -> None:
    axes = sheet.panels("Do healthier deep blocks come with a better accuracy?", size=(7.8, 4.6))[0]
    points: list[tuple[float, float]] = []
    for name in sheet.presets:
        ratios = of.over_seeds(sheet.runs, name, lambda run: of.first_to_last(of.goodness(run)))
        accuracies = of.over_seeds(sheet.runs, name, of.accuracy)
        if not ratios or not accuracies:
            continue
        x, y = mean_and_std(list(ratios.values())), mean_and_std(list(accuracies.values()))
        points.append((x.mean, y.mean))
        marker, colour = "s" if name.startswith("l8-") else "o", colour_of(name)
        axes.plot(x.mean, y.mean, marker, color=colour, label=sheet.label_of(name), markersize=7)
        axes.errorbar(x.mean, y.mean, xerr=x.std, yerr=y.std, color=colour, capsize=2, linewidth=1.2)
        ratio = [one.value for one in of_preset(name, "goodness_ratio") if one.value is not None]
        accuracy = [one.value for one in of_preset(name, "s2_accuracy_tta") if one.value is not None]
        if ratio and accuracy:
            sheet.paper(axes, ratio[:1], accuracy[:1], colour)
    sheet.need(points, "positive goodness in the first and last block")
    sheet.close_up(axes, [y for _, y in points], POINTS)
    found = _correlation(points) if len(points) >= FEWEST else None
    printed = next(one.value for one in table("in_text") if one.column.startswith("r of goodness ratio"))
    if found is not None:
        says = f"ours: {_in_words(found)}; the paper: r = {printed:.2f}, n = 15".replace("-", "−")
        axes.set_title(says, fontsize=10, loc="left")
    axes.set_xlabel("goodness of the last block ÷ goodness of the first (below 1: it rides)")
    axes.set_ylabel("test accuracy (%)")
    shapes = {"d128-": "circles: four blocks", "l8-": "squares: eight blocks"}
    shown = [words for start, words in shapes.items() if any(name.startswith(start) for name in sheet.presets)]
    sheet.notes.append(IN_TRAINING)
    sheet.notes.append(f"A point is a rule, lines the standard deviation over seeds; {', '.join(shown)}.")
    sheet.notes += ["Ours: Stage 1; the paper's: Stage 2 with TTA."] if sheet.has_paper else []
    sheet.legend(axes)


@paper_figure(
    "magnitude_vs_sep",
    "Goodness and separation, of all blocks together, against accuracy, over the thirteen variants.",
    VARIANTS,
)
def magnitude_vs_sep(sheet: Sheet) -> None:
    def magnitude(run: Run) -> float | None:
        return sum(of.goodness(run)) or None

    def separation(run: Run) -> float | None:
        return of.deepest(of.in_training(run, "sep_rate"))

    known = [name for name in sheet.presets if of.mean_of(sheet.runs, name, magnitude) is not None]
    sheet.need(len(known) >= FEWEST_VARIANTS, f"goodness by block of {FEWEST_VARIANTS} variants or more")
    _, short = of.long_enough(sheet.runs, known)
    left, right = sheet.panels("What goes along with accuracy: large goodness, or separation?", columns=2, share_y=True)
    for axes, measure, column in ((left, magnitude, "r of g+ L3"), (right, separation, "r of sep_nl L3")):
        points: list[tuple[float, float]] = []
        for name in sheet.presets:
            if (point := of.means_of_both(sheet.runs, name, measure, of.accuracy)) is not None:
                points += [point] if name not in short else []
                marker, fill = "o" if dash_of(name) == "-" else "^", "none" if name in short else "full"
                axes.plot(*point, marker, color=colour_of(name), label=name, markersize=7, fillstyle=fill)
        found = _correlation(points) if len(points) >= FEWEST else None
        printed = next(one.value for one in table("in_text") if one.column.startswith(column))
        ours = _in_words(found) if found is not None else "too few variants for a correlation"
        axes.set_title(f"{ours}\nthe paper: r = {printed:.2f}, n = 13", fontsize=9.5, loc="left")
    left.set_xlabel("goodness under the right label,\nall blocks together")
    right.set_xlabel("share of images whose right label leads\na mined wrong one, all blocks")
    left.set_ylabel("test accuracy (%)")
    sheet.notes += [IN_TRAINING, "A point is a variant."]
    if short:
        sheet.notes.append("Hollow: they learned for less than half as many epochs as most, and do not count in r.")
    sheet.notes.append("The findings' r counts the variants with dense blocks too.")
    sheet.legend(left)


@paper_figure(
    "dissociation_summary",
    "CIFAR-100: the deepest block's separation and the accuracy, under three rules.",
    ("cifar100-gamma0", "cifar100-gated", "cifar100-cumulative"),
)
def dissociation_summary(sheet: Sheet) -> None:
    health = {name: of.over_seeds(sheet.runs, name, of.deepest_separation) for name in sheet.presets}
    with_tta = all(
        of.accuracy(run, tta=True) is not None for by_seed in sheet.runs.values() for run in by_seed.values()
    )
    scores = {
        name: of.over_seeds(sheet.runs, name, lambda run: of.accuracy(run, tta=with_tta)) for name in sheet.presets
    }
    names = [name for name in sheet.presets if health[name] and scores[name]]
    sheet.need(names, "separation by block")
    deep, accuracy = ([sum(found[name].values()) / len(found[name]) for name in names] for found in (health, scores))
    spread = (
        f"{max(deep) / min(deep):.1f} times" if min(deep) > 0 else f"from {number(min(deep))} to {number(max(deep))}"
    )
    title = f"The deepest block's separation spreads {spread}, accuracy by {max(accuracy) - min(accuracy):.2f} points"
    left, right = sheet.panels(title if len(names) > 1 else "Does accuracy follow the blocks' health?", columns=2)
    for axes, found, label in ((left, health, "sep_cur_mined"), (right, scores, "accuracy_tta")):
        for place, name in enumerate(names):
            values, colour = list(found[name].values()), colour_of(name)
            mean, std, _ = mean_and_std(values)
            if axes is left:
                axes.bar(place, mean, width=0.6, color=colour)
            else:
                axes.plot(place, mean, "o", color=colour, markersize=9)
            axes.errorbar(place, mean, yerr=std, color="black", capsize=3, linewidth=1.2)
            printed = _printed(name, "dissociation", label)
            if printed is not None:
                sheet.paper(axes, [place + 0.2], [printed])
        axes.set_xticks(range(len(names)), [name_of(name).replace(" (", "\n(").replace(", ", ",\n") for name in names])
        axes.set_xlim(-0.6, len(names) - 0.4)
    left.set_ylabel("right label's goodness minus that of a\nmined wrong one, deepest block alone")
    left.axhline(0, color="black", linewidth=0.8)
    right.set_ylabel(f"test accuracy (%), Stage 1{', flip TTA' if with_tta else ''}")
    ours = [value for found in scores.values() for value in found.values()]
    sheet.close_up(right, ours, POINTS)
    room_for_accuracies(right, [*ours, *(value for one in sheet.papers if one.axes is right for value in one.ys)])
    views = "Accuracies are with flip TTA." if with_tta else "Our accuracies are without TTA, the paper's with it."
    sheet.notes += [IN_TRAINING, f"Black: standard deviation over seeds. {views}"]
    sheet.legend(left)


@paper_figure(
    "tinyimagenet_perseed",
    "Tiny ImageNet: both stages, with and without TTA, seed by seed.",
    ("tiny-gamma0",),
    readout=True,
    seeds=3,
)
def tinyimagenet_perseed(sheet: Sheet) -> None:
    axes = sheet.panels(f"{sheet.data_of('tiny-gamma0')}: how far apart are the seeds?", size=(7.8, 4.4))[0]
    runs = sorted(sheet.runs["tiny-gamma0"].items())
    columns = (
        ("Stage 1", lambda run: of.accuracy(run), "accuracy"),
        ("Stage 1, TTA", lambda run: of.accuracy(run, tta=True), "accuracy_tta"),
        ("Stage 2", lambda run: of.readout_accuracy(run), "s2_accuracy"),
        ("Stage 2, TTA", lambda run: of.readout_accuracy(run, tta=True), "s2_accuracy_tta"),
    )
    drawn = False
    for place, (_, measure, metric) in enumerate(columns):
        found = [(order, seed, value) for order, (seed, run) in enumerate(runs) if (value := measure(run)) is not None]
        for order, seed, value in found:
            label = f"seed {seed}" if place == 0 else ""
            axes.plot(place - 0.15, value, "o", color=COLOURS[order % len(COLOURS)], label=label)
        if found:
            mean, std, _ = mean_and_std([value for *_, value in found])
            axes.errorbar(place, mean, yerr=std, fmt="_", color=INK, capsize=4, markersize=14, zorder=5)
            drawn = True
        printed: list[Cell] = [
            one for one in of_preset("tiny-gamma0", metric) if one.table == "tiny_imagenet_multiseed"
        ]
        shown = [one.value for one in printed if one.seed is not None and one.value is not None]
        sheet.paper(axes, [place + 0.2] * len(shown), shown)
    sheet.need(drawn, "accuracy")
    axes.set_xticks(range(len(columns)), [name for name, *_ in columns])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylabel("top-1 accuracy (%)")
    sheet.notes.append("Bars: mean and standard deviation.")
    sheet.legend(axes)


CONTROLS = (
    ("cnn-bp", "plain CNN, backprop"),
    ("cnn-ff", "plain CNN, FF"),
    ("bp-weak", "our backbone, backprop,\nweak augmentation"),
    ("bp-strong", "our backbone, backprop,\nstrong augmentation"),
    ("ff-stripped", "our backbone, FF, stripped"),
    ("gamma0", "FF, γ = 0"),
    ("cp-fair", "FF, cp-fair"),
)


@paper_figure(
    "loss_bpff",
    "The current-block loss at the end of training, and FF against backpropagation.",
    ("baseline", *(name for name, _ in CONTROLS)),
)
def loss_bpff(sheet: Sheet) -> None:
    left, right = sheet.panels(
        "What is left to learn in each block, and how far is backpropagation?", columns=2, size=(11.5, 4.6)
    )
    for place, name in enumerate(one for one in ("baseline", "cp-fair", "cp-fair-dense") if one in sheet.runs):
        ends = [
            found[-1][1] for run in sheet.runs[name].values() if (found := of.over_epochs(run, "train", "loss_curr"))
        ]
        if ends:
            means = [sum(column) / len(column) for column in zip(*ends)]
            x = [d + 0.38 * (place - 0.5) for d in range(len(means))]
            left.bar(x, means, width=0.34, color=(RIDES, WORKS)[place % 2], label=name)
            left.set_xticks(range(len(means)))
    if left.patches:
        left.legend(loc="upper left")
    else:
        left.text(
            0.5, 0.5, "no run with a\ncurrent-block loss here", ha="center", va="center", transform=left.transAxes
        )
        left.set_yticks([])
    left.set_xlabel("block")
    left.set_ylabel("current-block loss, before its weight")
    _controls(sheet, right)
    sheet.legend(right)


def _controls(sheet: Sheet, axes: Axes) -> None:
    rows = []
    for name, words in CONTROLS:
        used = name if name in sheet.runs else f"{name}-dense"
        values = of.over_seeds(sheet.runs, used, of.accuracy)
        if values:
            rows.append((name, words, sum(values.values()) / len(values)))
    for place, (name, _, value) in enumerate(rows):
        axes.barh(place, value, height=0.6, color=INK if "bp" in name else WORKS, alpha=0.85)
        printed = _printed(name, "bp_ff_ablation", "accuracy")
        if printed is not None:
            sheet.paper(axes, [printed], [place])
    axes.set_yticks(range(len(rows)), [words for _, words, _ in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("test accuracy (%), one view (grey: backpropagation)")
