"""The command results: the store of results, listed and added to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from goodness.cli.terminal import err, import_plugins, out, parsed, print_json
from goodness.errors import UserError, nearest
from goodness.paper.scales import scale_of
from goodness.report import tables
from goodness.runs.store import add, rows

WIDE = 110
"""Columns of a terminal that has room for how each run was made."""


@dataclass(kw_only=True)
class ResultsArgs:
    """List the runs in the store of results. Add some: goodness results add RUN..."""

    preset: str | None = None
    """Only runs of this preset."""
    data: str | None = None
    """Only runs on this data set."""
    scale: str | None = None
    """Only runs at this scale: full, short or tiny."""
    seed: int | None = None
    """Only runs with this seed."""
    store: Path = Path("results")
    """The store's folder."""
    json: bool = False
    """Print one JSON array with every column of runs.csv."""


@dataclass(kw_only=True)
class AddArgs:
    """Add finished runs to the store of results, their Stage 2 included. Runs that are there already are skipped."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, of a sweep's cells, or of many of these."""
    store: Path = Path("results")
    """The store's folder; made if it is not there."""
    scale: str | None = None
    """full, short or tiny; else found out from each run's configuration."""
    batch: str | None = None
    """Name of the file of arrays; else the date and a hash of the runs' names."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object."""


def results_command(arguments: list[str]) -> int:
    if arguments and arguments[0] == "add":
        return _add(arguments[1:])
    args = parsed(ResultsArgs, arguments, "goodness results")
    found = rows(args.store)
    for name in ("preset", "data", "scale", "seed"):
        found = _only(found, name, getattr(args, name))
    found.sort(key=lambda row: (row["preset"], row["data"], row["scale"] or "", row["seed"], row["stage"]))
    if args.json:
        print_json(found)
    elif not found:
        out.print(f"{args.store} has no runs yet; add some: goodness results add RUN...", markup=False, soft_wrap=True)
    else:
        out.print(tables.results_table(found, wide=out.width >= WIDE))
    return 0


def _only(found: list[dict[str, Any]], name: str, wanted: Any) -> list[dict[str, Any]]:
    """The rows with this value; an error where runs are left and none has it."""
    if wanted is None or not found:
        return found
    chosen = [row for row in found if row[name] == wanted]
    if not chosen:
        values = {str(row[name]) for row in found if row[name] is not None}
        raise UserError(f"no run with --{name} {wanted}; {nearest(str(wanted), values)}")
    return chosen


def _add(arguments: list[str]) -> int:
    args = parsed(AddArgs, arguments, "goodness results add")
    if not args.runs:
        raise UserError("name the runs to add: goodness results add RUN...")
    if args.scale is not None:
        scale_of(args.scale)
    import_plugins(args.plugin)
    added = add(args.runs, args.store, scale=args.scale, batch=args.batch)
    if args.json:
        print_json({"batch": added.batch or None, "runs": list(added.runs), "skipped": added.skipped})
        return 0
    for why in added.skipped.values():
        err.print(f"skipped: {why}", markup=False, soft_wrap=True)
    where = f", arrays in {args.store / 'arrays' / added.batch}.npz" if added.batch else ""
    out.print(f"{len(added.runs)} runs added to {args.store}{where}", markup=False, soft_wrap=True)
    return 0
