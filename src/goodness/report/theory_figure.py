"""The attenuation figure: what history leaves of each block's learning signal, beside what Theorem 1 allows."""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from goodness.health.theory_report import BlockTheory, Example, TheoryReport
from goodness.methods.cumulative.barrier import envelope
from goodness.report.figure_files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f")
"""Told apart under the common colour blindnesses; deeper networks begin anew, with another marker."""
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<")
SMALL = 9
"""Size of the print that explains, in points."""


def attenuation_figure(report: TheoryReport, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Draw measured R per example against w P, with the theorem's envelope; writes and returns a PNG and an SVG.

    Measured is the length of the gradient with history over that without, from the block's parameters. A filled
    marker is an example inside the theorem's assumptions, which must lie in the band; a hollow one need not.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 5.8), layout="constrained")
    axes = figure.subplots()
    low, high = _reach(report)
    _draw_envelope(axes, report.beta, high)
    for place, block in enumerate(report.blocks):
        _draw_block(axes, block, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    _draw_frame(axes, report, low, high)
    figure.suptitle(headline(report), x=0.01, ha="left", fontweight="bold", fontsize=12)
    axes.set_title("\n".join(small_print(report)), loc="left", fontsize=SMALL, color="0.3")
    return write_figure(figure, Path(path))


def headline(report: TheoryReport) -> str:
    """The finding in a sentence: what the deepest block keeps on the median example."""
    kept = _kept(report.blocks[-1]) if report.blocks else None
    if kept is None:
        return "No block inherits anything that could be measured"
    deepest = f"block {report.blocks[-1].block}"
    if all(_kept(block) == 1 for block in report.blocks):
        return "Nothing is taken away: every block keeps its whole learning signal"
    if kept < 0.5:
        finding = f"What the earlier blocks have settled, {deepest} hardly learns"
    else:
        finding = f"The later blocks go on learning, {deepest} too"
    return f"{finding}:\na typical example leaves it {in_words(kept)} of its own learning signal"


def small_print(report: TheoryReport) -> list[str]:
    """What a point is, under which rule, and whether the theorem was kept."""
    inside = sum(block.sandwich.measured_inside for block in report.blocks)
    total = sum(block.identity.measured for block in report.blocks)
    broken = sum(block.violations for block in report.blocks)
    verdict = f"The theory is violated {broken} times; see the table."
    if not broken:
        verdict = f"The theory holds: all {total} gradients are as predicted, all {inside} filled points in the band."
    return ["Each point is one example at one block.", f"Rule: {report.rule}; β = {report.beta:g}.", verdict]


def in_words(share: float) -> str:
    """57 %, 1 part in 2,000, 1 part in 10⁸: a share as people say it."""
    if share >= 0.00995:
        return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
    if share >= 0.995e-6:
        rounded = float(f"{1 / share:.1g}")
        return f"1 part in {rounded:,.0f}" if rounded < 1e6 else "1 part in a million"
    exponent = str(round(-math.log10(share)))
    return f"1 part in 10{exponent.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _points(block: BlockTheory) -> list[tuple[Example, float]]:
    """The examples that a logarithmic axis has a place for, each with its measured R."""
    return [(one, one.measured) for one in block.examples if one.measured is not None and one.measured > 0]


def _kept(block: BlockTheory) -> float | None:
    """What the median example leaves the block, at most all; None where nothing was measured."""
    measured = [ratio for _, ratio in _points(block)]
    return min(1.0, median(measured)) if measured else None


def _reach(report: TheoryReport) -> tuple[float, float]:
    """From the smallest to the largest w P, with a little room; zero and a half are always in sight."""
    values = [one.inherited for block in report.blocks for one, _ in _points(block)]
    low, high = min([0.0, *values]), max([0.5, *values])
    room = 0.04 * (high - low)
    return low - room, high + room


def _draw_envelope(axes: Axes, beta: float, high: float) -> None:
    """The band that the theorem leaves to an example with m >= 0 and P >= 0."""
    x = torch.linspace(0, high, 400, dtype=torch.float64)
    lower, upper = (bound.clamp(min=1e-300).numpy() for bound in envelope(x, beta))
    axes.fill_between(x.numpy(), lower, upper, color="0.87", zorder=1, linewidth=0)
    line: dict[str, Any] = {"color": "0.35", "linewidth": 1.3, "zorder": 2}
    axes.plot(x.numpy(), upper, linestyle="--", label="theorem: at most min(1, 2 exp(−βx))", **line)
    axes.plot(x.numpy(), lower, linestyle="-", label="theorem: at least exp(−βx)", **line)


def _draw_block(axes: Axes, block: BlockTheory, colour: str, marker: str) -> None:
    """One colour per block, filled inside the theorem's assumptions; its median stands in the legend."""
    for is_inside in (False, True):
        points = [(one.inherited, ratio) for one, ratio in _points(block) if one.is_separated == is_inside]
        axes.scatter(
            [x for x, _ in points],
            [ratio for _, ratio in points],
            s=26,
            marker=marker,
            facecolors=colour if is_inside else "none",
            edgecolors=colour,
            linewidths=1.0,
            zorder=4 if is_inside else 3,
        )
    kept = _kept(block)
    says = "" if kept is None else f": a typical (median) example leaves {in_words(kept)}"
    axes.scatter([], [], s=26, marker=marker, color=colour, label=f"block {block.block}{says}")


def _draw_frame(axes: Axes, report: TheoryReport, low: float, high: float) -> None:
    """Axes in words, the line of no loss, and the legend."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    measured = [ratio for block in report.blocks for _, ratio in _points(block)]
    bottom, top = min([0.1, *measured]) / 3, 3 * max([1.0, *measured])
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: "all of it" if share == 1 else in_words(share)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if bottom > 1e-3:  # too few powers of ten to read by
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xlabel("x: evidence for the right label that the block inherits (rule's weight × earlier blocks' margin)")
    axes.set_ylabel("what is left of the block's own learning signal\n(length of its gradient with history ÷ without)")
    axes.scatter([], [], s=26, color="0.4", label="filled: block and past both right, the theorem applies")
    axes.scatter([], [], s=26, facecolors="none", edgecolors="0.4", label="hollow: one of them wrong, it does not")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.93", zorder=0)
    axes.legend(frameon=False, fontsize=SMALL, loc="lower left")
