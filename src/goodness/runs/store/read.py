"""Reading a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from goodness.errors import RunError, UserError, nearest
from goodness.runs.store.arrays import unpacked
from goodness.runs.store.columns import KEYS
from goodness.runs.store.files import Table


def rows(store: str | os.PathLike[str] = "results", table: str = "runs") -> list[dict[str, Any]]:
    """The rows of `runs`, `epochs` or `blocks`, sorted; each once, and none of a run that is not in runs.csv."""
    known = {row["run"] for row in Table.read(Path(store), "runs").rows()}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in Table.read(Path(store), table).rows():
        if row["run"] in known:
            found.setdefault(tuple(row[name] for name in KEYS[table]), row)
    return sorted(found.values(), key=lambda row: [_rank(row[name]) for name in KEYS[table]])


def predictions(store: str | os.PathLike[str], run: str) -> dict[str, np.ndarray]:
    """What predictions_blocks.npz of this run held (`goodness.runs.store.arrays` says how it is coded)."""
    known = {row["run"]: row for row in rows(store)}
    if run not in known:
        raise UserError(f"there is no run '{run}' in {store}; {nearest(run, known)}")
    row = known[run]
    orders = {split: row[f"{split}_order"] for split in ("test", "val") if row[f"{split}_order"]}
    place = Path(store) / "arrays" / f"{row['batch']}.npz"
    try:
        with np.load(place, allow_pickle=False) as archive:
            return unpacked(archive, run, orders)
    except Exception as trouble:  # a damaged archive can fail in any way
        raise RunError(f"{place} cannot be read ({trouble}); restore it from a copy") from trouble


def _rank(value: Any) -> tuple[bool, Any]:
    """An order among numbers or words in which nothing comes first."""
    return value is not None, value
