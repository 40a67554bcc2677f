"""Colours, markers and axes that the figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goodness.report.inline_svg import MARKERS
from goodness.report.words import SMALLEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WORKS, RIDES, DEAD = "#2079b8", "#d55e00", "#7f7f7f"
VERDICT_COLOURS = {"works": WORKS, "rides": RIDES, "dead": DEAD}
COOL, WARM = (WORKS, "#0a9270", "#8a63d2", DEAD), (RIDES, "#a87900", "#c06a9c")
"""For what works and for what rides. Each stands out three to one against the light page and the dark one."""
COLOURS = (WORKS, "#0a9270", "#8a63d2", "#c06a9c", "#a87900", RIDES, DEAD)
"""For blocks; markers tell them apart where colour does not."""


def colour_of(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker_of(place: int) -> str:
    return list(MARKERS)[place % len(MARKERS)]


def whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def room_for_accuracies(axes: Axes, values: Sequence[float]) -> None:
    """At least five points of accuracy in sight, so that noise does not look like a mountain."""
    low, high = min(values), max(values)
    room = max(5 - (high - low), 0.1 * (high - low)) / 2
    axes.set_ylim(max(0, low - room), min(100.4, high + room))


def kept_axis(axes: Axes, least: float) -> None:
    """A logarithmic axis in per cent throughout: 100 %, 1 %, 0.01 %."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def words(share: float, _: int | None) -> str:
        digits = max(0, -round(math.log10(100 * share)))
        return f"{100 * share:.{digits}f} %"

    axes.set_ylim(max(least / 3, SMALLEST / 3), None)
    axes.yaxis.set_major_formatter(FuncFormatter(words))
    axes.yaxis.set_minor_formatter(NullFormatter())
