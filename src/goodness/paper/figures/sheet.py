"""What the paper's figures share: the registry, the sheet they are drawn on, names and colours of runs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from goodness.errors import MissingRuns, UserError
from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.numbers import of_preset
from goodness.report.ink import DEAD, RIDES, WORKS, whole_numbers
from goodness.report.inline_svg import MARKERS, PAPER, in_house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from goodness.runs.run import Run

INK = "#444444"
FINE = 8.5
"""Size of the small print, in points."""
POINTS = 5
"""Accuracies farther apart than this, and than ours are among themselves, are not drawn beside each other."""
IN_TRAINING = "Blocks are measured over the last epoch's training."
STAND_INS = {
    "gamma0": "gamma0-dense",
    "cp-fair": "cp-fair-dense",
    "lcff": "lcff-dense",
    "gated": "gated-dense",
}
"""Drawn, under its own name, where the paper's own run is not at hand."""
RULES = {
    "gamma0": ("γ = 0 (local)", WORKS),
    "cumulative": ("γ = 0.7", RIDES),
    "lcff": ("γ = 1 (LCFF)", "#a87900"),
    "gated-t1-k0": ("gate, κ = 0", "#0a9270"),
    "gated-t3-k0": ("gate, κ = 0, τ = 3", "#5bbfa5"),
    "gated-t1-k2": ("gate, κ = 2", "#8a63d2"),
    "gated-t1-k4": ("gate, κ = 4", "#c06a9c"),
    "gated-t1-k0-previous": ("gate, κ = 0, block before", "#7f7f7f"),
    "gated-t1-k2-previous": ("gate, κ = 2, block before", "#3d3d3d"),
    "gated": ("gate, κ = 0", "#0a9270"),
    "cp-fair": ("γ = 0.7, repaired (cp-fair)", "#8a63d2"),
    "baseline": ("γ = 0.7 (baseline)", RIDES),
}
"""In words, and the colour that a rule has in every figure."""
VARIANTS = {
    "gamma0": (RULES["gamma0"][1], "-"),
    "cp-fair": (RULES["cp-fair"][1], "-"),
    "cp-fair-lc": ("#8a63d2", "--"),
    "baseline": (RULES["baseline"][1], "-"),
    "gamma-ramp": (RIDES, "--"),
    "fixed-nl": ("#0a9270", "-"),
    "topk-depth": ("#0a9270", "--"),
    "nomem-l2": ("#c06a9c", "-"),
    "block0-label": ("#c06a9c", "--"),
    "multi-tech": ("#a87900", "-"),
    "dp-fair": ("#a87900", "--"),
    "greedy-freeze": (DEAD, "-"),
    "prefix-freeze": (DEAD, "--"),
}
"""The same of the paper's variants on CIFAR-10, and the dash that tells two of one colour apart."""


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """One data figure of the paper, redrawn from our runs."""

    about: str
    """What it shows, in a sentence."""
    presets: tuple[str, ...]
    draw: Callable[[Runs], Figure]
    theory: bool = False
    """Whether it shows gradients, which the check of the theorems has, of one seed."""
    readout: bool = False
    """Whether it shows Stage 2."""
    seeds: int = 1
    """How many it is about."""


figures: dict[str, PaperFigure] = {}
"""By the paper's label, without `fig:`."""


def paper_figure(
    label: str, about: str, presets: Sequence[str], *, theory: bool = False, readout: bool = False, seeds: int = 1
) -> Callable[[Callable[[Sheet], None]], None]:
    """Decorator: the function draws on a sheet that has the finished runs of these presets."""

    def register(draw_on: Callable[[Sheet], None]) -> None:
        @in_house_style
        def draw(runs: Runs) -> Figure:
            sheet = Sheet(label, tuple(presets), runs)
            draw_on(sheet)
            return sheet.done()

        def draw_if_possible(runs: Runs) -> Figure:
            try:
                return draw(runs)
            except ImportError as trouble:
                raise UserError(f"a figure needs {trouble.name}: pip install 'goodness[plots]'") from None

        figures[label] = PaperFigure(
            about=about, presets=tuple(presets), draw=draw_if_possible, theory=theory, readout=readout, seeds=seeds
        )

    return register


class _Marks(NamedTuple):
    """Numbers of the paper as they were drawn."""

    axes: Axes
    drawn: Line2D
    xs: tuple[float, ...]
    ys: tuple[float, ...]


class Sheet:
    """A figure in the making: the runs there are, what is missing, and the paper's own numbers beside ours."""

    def __init__(self, label: str, presets: tuple[str, ...], runs: Runs) -> None:
        self.label, self.wanted = label, presets
        finished = {name: {s: run for s, run in by.items() if of.result(run)} for name, by in runs.items()}
        here = {name: by for name, by in finished.items() if by}
        self.runs: dict[str, dict[int, Run]] = {}
        for name in presets:
            chosen = name if name in here else STAND_INS.get(name, "")
            if chosen in here:
                self.runs[chosen] = here[chosen]
        missing = [name for name in presets if name not in self.runs and STAND_INS.get(name) not in self.runs]
        self.missing = list(missing)
        self.notes: list[str] = []
        self.is_of_one_seed = False
        self.papers: list[_Marks] = []
        self.figure: Any = None
        if not self.runs:
            raise self.lacks(f"has no finished run to draw; its presets are {', '.join(presets)}")

    @property
    def presets(self) -> list[str]:
        """Those with runs, in the figure's order."""
        return list(self.runs)

    def seeds(self, presets: Iterable[str] | None = None) -> str:
        counts = {len(self.runs[name]) for name in presets or self.presets}
        return f"{of.from_to(counts)} seed{'s' if max(counts) > 1 else ''}"

    def data_of(self, preset: str) -> str:
        """The data set that a preset's runs learned on, which need not be the preset's own."""
        found = of.setting(next(iter(self.runs[preset].values())))
        name = found[0] if found else ""
        return {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}.get(name, name)

    def need(self, found: Any, what: str) -> None:
        """Refuse where the runs at hand lack what the figure shows."""
        if not found:
            have = f"{', '.join(self.presets)} have no {what}"
            if self.missing:
                raise self.lacks(f"draws nothing, as {have}; its other presets are {', '.join(self.missing)}")
            raise UserError(f"figure '{self.label}': {have}")

    def lacks(self, what: str) -> MissingRuns:
        """For want of runs it cannot be drawn; what trains them."""
        how = f"goodness reproduce fig:{self.label}, with the --scale and --out of these runs, trains them"
        return MissingRuns(f"figure '{self.label}' {what}; {how}")

    def panels(
        self,
        title: str,
        *,
        columns: int = 1,
        rows: int = 1,
        size: tuple[float, float] | None = None,
        share_y: bool = False,
    ) -> list[Axes]:
        """Empty axes under a title that says the finding or the question."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        width = size[0] if size else (7.8 if columns == 1 else (3.9 if columns == 2 else 3.1) * columns + 1.6)
        self.figure = Figure(figsize=size or (width, 4.3 * rows), dpi=100, layout="constrained")
        FigureCanvasAgg(self.figure)
        self.figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        axes = self.figure.subplots(rows, columns, squeeze=False, sharey=share_y)
        self.title(title)
        return list(axes.flat)

    def title(self, words: str) -> None:
        """What is seen, across the whole width; again, where it is known only once all is drawn."""
        wrapped = textwrap.fill(words, int(self.figure.get_figwidth() * 9.5))
        self.figure.suptitle(wrapped, x=0.01, ha="left", fontsize=12, fontweight="bold")

    def legend(self, axes: Axes, title: str | None = None) -> None:
        """To the right of all panels, so that it hides nothing; one entry a label, and one for the paper's marks."""
        from matplotlib.lines import Line2D

        entries: dict[str, Any] = {}
        for one in self.figure.axes if axes is None else [axes]:
            for handle, label in zip(*one.get_legend_handles_labels()):
                entries.setdefault(label, handle)
        if self.has_paper:
            entries["the paper's"] = Line2D([], [], marker="D", linestyle="", mfc=PAPER, mec=INK, markersize=5)
        if entries:
            self.figure.legend(entries.values(), entries.keys(), loc="outside right center", title=title, fontsize=9)

    def paper(self, axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str = INK) -> None:
        """The paper's numbers: small hollow diamonds."""
        if xs:
            (marks,) = axes.plot(xs, ys, "D", mfc=PAPER, mec=colour, mew=1.3, markersize=5, linestyle="", zorder=6)
            self.papers.append(_Marks(axes, marks, tuple(xs), tuple(ys)))

    @property
    def has_paper(self) -> bool:
        return bool(self.papers)

    def close_up(self, axes: Axes, ours: Sequence[float], room: float, *, along: str = "y") -> None:
        """Leave out the paper's numbers where one lies so far from ours that these could not be told apart: beyond
        their range by more than it, or by more than `room`. The small print has them."""
        here = [one for one in self.papers if one.axes is axes]
        theirs = [value for one in here for value in (one.ys if along == "y" else one.xs)]
        low, high = min(ours), max(ours)
        reach = max(high - low, room)
        if all(low - reach <= value <= high + reach for value in theirs):
            return
        for one in here:
            one.drawn.remove()
            self.papers.remove(one)
        axes.relim()
        axes.autoscale_view()
        some = f"{min(theirs):g} to {max(theirs):g}" if len(theirs) > 1 else f"{theirs[0]:g}"
        self.notes.append(f"The paper's numbers lie too far off to be drawn beside these: {some}.")

    def by_block(
        self,
        axes: Axes,
        presets: Iterable[str],
        values: Callable[[Run], list[float]],
        *,
        metric: str | None = None,
        first: int = 0,
        names: bool = False,
    ) -> dict[str, list[float]]:
        """A line a preset over its blocks: the mean of the seeds, a shade from lowest to highest, the paper's beside.

        The first block stands at `first`. Gives the means that were drawn.
        """
        drawn = {}
        for place, name in enumerate(presets):
            each = [one for run in self.runs.get(name, {}).values() if (one := values(run))]
            means = of.mean_by_block(self.runs, name, values)
            if not means:
                continue
            drawn[name] = means
            colour, x = colour_of(name), [first + d for d in range(len(means))]
            style: dict[str, Any] = {"color": colour, "marker": list(MARKERS)[place % len(MARKERS)], "zorder": 4}
            axes.plot(x, means, dash_of(name), label=self.label_of(name, names), **style)
            same = [one for one in each if len(one) == len(means)]
            if len(same) > 1:
                shade(axes, x, list(zip(*same)), colour)
            if metric:
                printed = printed_by_block(name, metric)
                self.paper(axes, [first + d + 0.09 for d in printed], list(printed.values()), colour)
        whole_numbers(axes.xaxis)
        return drawn

    def label_of(self, preset: str, as_preset: bool = False) -> str:
        """The rule in words, or the preset's own name; and over how many seeds, where not all have as many."""
        counts = {len(by_seed) for by_seed in self.runs.values()}
        n = len(self.runs[preset])
        count = f" ({n} seed{'s' if n > 1 else ''})" if len(counts) > 1 else ""
        return f"{preset if as_preset else name_of(preset)}{count}"

    def done(self) -> Figure:
        """The figure with its small print: seeds, notes, and what is missing."""
        seeds, where = "one seed" if self.is_of_one_seed else self.seeds(), of.settings(self.runs)
        said = [f"Ours: {seeds} each{f', on {where}' if where else ''}.", *self.notes]
        if self.has_paper:
            said.append("Hollow diamonds: the number that the paper prints.")
        if self.missing:
            some = ", ".join(self.missing[:6]) + (f" and {len(self.missing) - 6} more" if len(self.missing) > 6 else "")
            said.append(f"Not here yet: {some}.")
        width = int(self.figure.get_figwidth() * 14.5)
        self.figure.supxlabel(
            textwrap.fill(" ".join(said), width, break_on_hyphens=False), x=0.01, ha="left", fontsize=FINE, color=INK
        )
        return self.figure


def name_of(preset: str) -> str:
    """The rule in words where the preset is one of a sweep, else its own name."""
    end = re.sub(r"^(d128|l8-32e|l8|cifar100|tiny)-", "", preset)
    if end in RULES and (preset != end or end in ("gamma0", "lcff", "gated", "cp-fair", "baseline")):
        return RULES[end][0]
    return preset


def colour_of(preset: str) -> str:
    """The colour of a preset: its rule's, its variant's, else grey. The same in every figure."""
    end = _end(preset)
    return RULES[end][1] if end in RULES else VARIANTS.get(end, (DEAD, "-"))[0]


def dash_of(preset: str) -> str:
    return VARIANTS.get(_end(preset), ("", "-"))[1]


def _end(preset: str) -> str:
    """A preset's name without its size or data set."""
    return re.sub(r"^(d128|l8-32e|l8|cifar100|tiny)-|-dense$", "", preset)


def printed_by_block(preset: str, metric: str) -> dict[int, float]:
    """The paper's numbers of one run by block (from 0), of the first table that has the most of them."""
    tables: dict[str, dict[int, float]] = {}
    for one in of_preset(preset, metric):
        found = re.search(r"\bL(\d)\b|\bd=(\d)|block (\d)", one.column) or re.search(r"block (\d)", one.row)
        if found and one.value is not None and one.seed in (None, 42):
            number = next(int(part) for part in found.groups() if part is not None)
            depth = number - 1 if "d=" in found.group(0) else number
            tables.setdefault(one.table, {}).setdefault(depth, one.value)
    return max(tables.values(), key=len, default={})


def shade(axes: Axes, x: Sequence[float], columns: Sequence[Sequence[float]], colour: str) -> None:
    """From the lowest to the highest value at each x."""
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def depth_colour(depth: int, blocks: int) -> Any:
    """From dark for the first block to light for the last."""
    from matplotlib import colormaps

    return colormaps["viridis"](0.88 * depth / max(1, blocks - 1))


def block_axis(axes: Axes) -> None:
    axes.set_xlabel("block (0 is the first)")


def zero_line(axes: Axes) -> None:
    axes.axhline(0, color="black", linewidth=0.8, alpha=0.4, zorder=1)
