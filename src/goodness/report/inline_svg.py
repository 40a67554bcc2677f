"""A matplotlib figure that knows what it shows, saved as a file or put into a page as living SVG.

`about(figure)` has its title, a sentence on how to read it, the numbers as a table, and the data series with their
points, from which the page makes its tooltips and its legend.
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
from typing import TYPE_CHECKING, Any, ParamSpec
from weakref import WeakKeyDictionary

from goodness.report.words import short, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FAINT = (0.5, 0.5, 0.5, 0.25)
"""Grid lines: seen on white and on black."""
PAPER = "#fefefd"
"""The inside of a hollow marker: white in a file, the page's own paper on the page."""
SIZE = (5.2, 3.3)
"""Inches. At 72 points each a phone's width, so that the print keeps its size there."""
MARKERS = {"o": "●", "^": "▲", "s": "■", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "<": "◀", ">": "▶", "*": "★"}
"""matplotlib's, and as the page's legend writes them."""
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


def in_house_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """matplotlib reads its settings while artists are made: have them in force meanwhile, and only then."""

    @functools.wraps(draw)
    def drawn(*arguments: P.args, **settings: P.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **settings)

    return drawn


def new_figure(
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


def add_series(
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


def add_legend(figure: Figure, axes: Axes) -> None:
    """For the files; the page has its own."""
    from matplotlib.lines import Line2D

    markers = {glyph: marker for marker, glyph in MARKERS.items()}
    entries = [
        Line2D([], [], color=one.colour, marker=markers[one.mark], linestyle="", label=short(one.label, 28))
        for one in about(figure).series.values()
    ]
    if len(entries) > 1:
        axes.legend(handles=entries)


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
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)  # the page has its own
    svg = svg.replace("#000000", "currentColor").replace(PAPER, "var(--card)")
    for series in told.series.values():
        name = html.escape(series.label)
        marked = (
            rf'<g data-series="{slug(series.key)}" id="{prefix}-series-{slug(series.key)}-\1"><title>{name}</title>'
        )
        svg = re.sub(rf'<g id="{prefix}-series-{slug(series.key)}-(\d+)">', marked, svg)
    svg, box = _slim(svg, prefix), re.search(r'viewBox="([^"]+)"', svg)
    head = (
        f'<svg class="plot" viewBox="{box.group(1) if box else "0 0 374 238"}" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc" '
        f"data-points='{_quoted(json.dumps(points, allow_nan=False, ensure_ascii=False, separators=(',', ':')))}'>"
        f'<title id="{prefix}-title">{html.escape(told.title)}</title>'
        f'<desc id="{prefix}-desc">{html.escape(told.description)}</desc>'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: head, svg, count=1).strip()


def _slim(svg: str, prefix: str) -> str:
    """The same drawing in fewer letters: no comments, hundredths of a point, short ids, a style said once."""

    def rounded(attribute: re.Match[str]) -> str:
        return re.sub(r"-?\d+\.\d{3,}", lambda one: f"{float(one.group()):.2f}", " ".join(attribute.group().split()))

    def once(group: re.Match[str]) -> str:
        styles = set(re.findall(r' style="([^"]*)"', group.group(2)))
        if len(styles) != 1 or group.group(2).count("<use") != group.group(2).count("style="):
            return group.group()
        marks = re.sub(r' style="[^"]*"', "", group.group(2))
        return f'{group.group(1)} style="{styles.pop()}">{marks}</g>'

    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(?<= )(?:d|x|y|transform|width|height)="[^"]*"', rounded, svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r"(<g[^>]*)>((?:<use [^>]*/>)+)</g>", once, svg)
    used = dict.fromkeys(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    names = {name: f"{prefix}-{place}" for place, name in enumerate(used)}
    svg = re.sub(r' id="([^"]+)"', lambda one: f' id="{names[one.group(1)]}"' if one.group(1) in used else "", svg)
    return re.sub(r'((?:url\(|href=")#)([^")]+)', lambda one: one.group(1) + names[one.group(2)], svg)


def _quoted(text: str) -> str:
    """For an attribute in single quotes, which JSON has few of."""
    return html.escape(text, quote=False).replace("'", "&#39;")


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
