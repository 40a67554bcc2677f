"""A sweep's results as a table for the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from goodness.sweep.collect import Results
from goodness.sweep.tables import mean, seeds, shown


def results_table(results: Results) -> Table:
    """A row a group: its seeds, and the mean and spread of what they found."""
    table = Table(title="Results", title_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("seeds")
    columns = shown(results)
    for title in columns.values():
        table.add_column(title, justify="right")
    for row in results.rows:
        found = row.scores
        table.add_row(escape(row.name), seeds(row), *(mean(row, found.get(name)) for name in columns))
    return table
