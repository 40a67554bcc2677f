"""The paper's tables for the terminal: what there is, and one table with ours beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from goodness.paper.filled import Filled
from goodness.paper.writing import Grid, by_cell, grid, title

ROOM = 120
"""Letters of a line that also has room for what a table shows."""


def overview(rows: Sequence[dict[str, Any]], scale: str, machine: str, width: int) -> Table:
    """A row a table or figure: what it needs and where it stands; what it shows, where a line has room for it."""
    table = Table(title=f"The paper's tables and figures at the scale '{scale}'", title_justify="left")
    table.add_column("", justify="right")
    table.add_column("label", no_wrap=True)
    if width >= ROOM:
        table.add_column("what it shows")
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("stands")
    for row in rows:
        done, needed = row["runs"]["done"], row["runs"]["needed"]
        left = _roughly(row["seconds_left"]) if row["seconds_left"] else "-"
        runs = f"{done} of {needed}" if needed else "-"
        number = "fig." if row["kind"] == "figure" else str(row["number"] or "")
        shows = [escape(row["caption"])] if width >= ROOM else []
        table.add_row(number, row["label"], *shows, runs, left, _at_a_glance(row))
    has_near = any(_at_a_glance(row).endswith(" near") for row in rows)
    near = "near: numbers that lie near the paper's, of those learned; " if has_near else ""
    half = any(row["runs"]["without_stage_2"] for row in rows)
    only = "S1: runs that lack the Stage 2 that is needed; " if half else ""
    table.caption = (
        f"runs: those that are whole; {near}{only}left: an estimate of what is missing, on {machine}, one run after "
        "the other."
    )
    table.caption_justify = "left"
    return table


def _at_a_glance(row: dict[str, Any]) -> str:
    """Where a table or figure stands, in few letters; how many runs there are stands beside it."""
    if row["state"] == "complete" and row.get("judged"):
        return f"{row['near']} of {row['judged']} near"
    half = row["runs"]["without_stage_2"]
    word = {"no runs": "none of ours"}.get(row["state"], row["state"])
    return f"{word}{f' ({half} S1)' if half else ''}{'; some refused' if row.get('is_refused') else ''}"


def _roughly(seconds: float) -> str:
    """
    >>> _roughly(42.3), _roughly(200), _roughly(3661), _roughly(400_000)
    ('42 s', '3 min', '1.0 h', '111 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 360_000 else f"{seconds / 3600:.0f} h"


def findings_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The paper's findings, and what decides our runs' verdict on each."""
    table = Table(title="The paper's findings, on our runs", title_justify="left", show_lines=True)
    table.add_column("finding", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in rows:
        stands = f"{row['name']}\n{row['outcome']} ({row['runs']['done']} of {row['runs']['needed']} runs)"
        more = f" ({len(row['beside'])} more: goodness paper finding:{row['name']})" if row["beside"] else ""
        table.add_row(escape(stands), escape(f"{row['sentence']}{more}"))
    if any(row["size"] for row in rows):
        table.caption = "None of these runs learned as long, and on the same data, as the paper's."
        if not all(row["size"] for row in rows if row["estimate"] is not None):
            table.caption = "Not all of these runs learned as long, and on the same data, as the paper's."
        table.caption_justify = "left"
    return table


def filled_table(filled: Filled, width: int) -> Table:
    """One table, ours beside the paper's: as the paper lays it out where a line has room, else a line a number."""
    found = grid(filled)
    if _width(found) > width:
        found = by_cell(filled)
    is_by_cell = found.headings[:2] == ("row", "column")
    table = Table(title=escape(title(filled)), title_justify="left")
    for place, heading in enumerate(found.headings):
        table.add_column(escape(heading), justify="left" if place < 2 else "right", overflow="fold")
    above = ""
    for line in found.lines:
        if is_by_cell:
            if line[0] != above:
                table.add_section()
            row, above = "" if line[0] == above else line[0], line[0]
            table.add_row(escape(row), *map(escape, line[1:3]), f"[bold]{escape(line[3])}[/]")
        else:
            table.add_row(*map(escape, line), style="bold" if line[1] == "ours" else None)
    return table


def _width(found: Grid) -> int:
    """Letters of its longest line, borders and all, where nothing is folded."""
    longest = [max(map(len, column)) for column in zip(found.headings, *found.lines)]
    return sum(longest) + 3 * len(longest) + 1
