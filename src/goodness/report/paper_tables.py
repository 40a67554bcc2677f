"""The paper's tables for the terminal: what there is, and one table with ours beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from goodness.paper.filled import Filled
from goodness.paper.writing import grid, title
from goodness.report.sweep_progress import duration

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
        left = duration(row["seconds_left"]) if row["seconds_left"] else "-"
        runs = f"{done} of {needed}" if needed else "-"
        number = str(row["number"] or "")
        shows = [escape(row["caption"])] if width >= ROOM else []
        table.add_row(number, row["label"], *shows, runs, left, escape(row["stands"]))
    table.caption = f"left: an estimate of what is missing, on {machine}, one run after the other."
    table.caption_justify = "left"
    return table


def findings_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The paper's findings, and what our runs say of them."""
    table = Table(title="The paper's findings, on our runs", title_justify="left")
    table.add_column("finding", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in rows:
        stands = f"{row['name']}\n{row['outcome']} ({row['runs']['done']} of {row['runs']['needed']} runs)"
        table.add_row(escape(stands), escape(row["sentence"]))
    return table


def filled_table(filled: Filled) -> Table:
    """One table, ours beside the paper's."""
    found = grid(filled)
    table = Table(title=escape(title(filled)), title_justify="left")
    for place, heading in enumerate(found.headings):
        table.add_column(escape(heading), justify="left" if place < 2 else "right", overflow="fold")
    for line in found.lines:
        table.add_row(*map(escape, line), style="bold" if line[1] == "ours" else None)
    return table
