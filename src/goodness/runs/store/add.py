"""Adding runs to a store.

A batch's arrays are written first and runs.csv last: whatever a killed `add` leaves belongs to a run that is not in
runs.csv, means nothing to readers, and is removed by the next `add`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from goodness.config import STAGE_2, differences
from goodness.durable import write_durably
from goodness.errors import DAMAGE, RunError, UserError
from goodness.runs.consistency import refuse_mixed_files
from goodness.runs.lock import acquire, release
from goodness.runs.run import Run, place_of_run
from goodness.runs.store.arrays import order_of, packed, predicted_by
from goodness.runs.store.columns import TABLES
from goodness.runs.store.files import Table, create
from goodness.runs.store.rows import Row, block_rows, epoch_rows, run_row

LOCK = ".lock"
"""In the store: held while runs are added."""


@dataclass(frozen=True)
class Added:
    """What was added, and what not."""

    batch: str
    """Empty where nothing was added."""
    runs: Sequence[str]
    skipped: dict[str, str] = field(default_factory=dict)
    """Folders, and why."""


@dataclass(frozen=True)
class _Entry:
    """All that the store keeps of a run."""

    row: Row
    epochs: list[Row]
    blocks: list[Row]
    predicted: dict[str, np.ndarray]

    @property
    def run(self) -> str:
        return self.row["run"]


def add(
    paths: Iterable[str | os.PathLike[str]],
    store: str | os.PathLike[str] = "results",
    *,
    scale: str | None = None,
    batch: str | None = None,
) -> Added:
    """Add finished runs, their Stage 2 included. A path is a run's folder, a cell's, or a folder of these.

    Of several runs those that cannot be added are skipped; a single one is an error. Without `scale` each run's is
    found out from its configuration.
    """
    store, paths = Path(store), [Path(path) for path in paths]
    if batch is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", batch):
        raise UserError(f"'{batch}' cannot name a file of arrays: letters, digits, '.', '_' and '-' only")
    folders = [folder for path in paths for folder in _runs_in(path)]
    create(store)
    lock = acquire(store / LOCK)
    try:
        known = {row["run"]: row["batch"] for row in Table.read(store, "runs").rows()}
        if batch in known.values():
            raise UserError(f"{store} has a batch '{batch}' already; choose another --batch")
        entries: dict[str, _Entry] = {}
        troubles: dict[str, UserError | RunError] = {}
        for run in _with_readouts(folders):
            try:
                entry = _entry(run, scale)
                if entry.run in known or entry.run in entries:
                    raise UserError(f"{run.path}: {entry.run} is in {store} already")
                entries[entry.run] = entry
            except (UserError, RunError) as trouble:
                troubles[str(run.path)] = trouble
        if not entries and len(paths) == 1 and folders == [place_of_run(paths[0])]:
            raise next(iter(troubles.values()))
        name = _write(store, entries, known, batch) if entries else ""
    finally:
        release(lock)
    return Added(name, list(entries), {path: str(trouble) for path, trouble in troubles.items()})


def _write(store: Path, entries: dict[str, _Entry], known: dict[str, str], batch: str | None) -> str:
    digest = hashlib.sha256(" ".join(sorted(entries)).encode()).hexdigest()[:8]
    batch = batch or f"{date.today().isoformat()}-{digest}"
    arrays = packed({name: entry.predicted for name, entry in entries.items()})
    write_durably(store / "arrays" / f"{batch}.npz", arrays, check=_require_readable)
    for table, columns in TABLES.items():
        Table.read(store, table).tidied(columns, known.__contains__)
    added: dict[str, Iterable[Row]] = {
        "epochs": (row for entry in entries.values() for row in entry.epochs),
        "blocks": (row for entry in entries.values() for row in entry.blocks),
        "runs": ({**entry.row, "batch": batch} for entry in entries.values()),
    }
    for table, rows in added.items():
        Table.read(store, table).append(rows)
    return batch


def _require_readable(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            archive[name]


def _runs_in(path: Path) -> list[Path]:
    """The folder of the run that was named, or those in the folder that was named."""
    if (place_of_run(path) / "config.json").is_file():
        return [place_of_run(path)]
    inner = [place_of_run(child) for child in sorted(path.iterdir()) if child.is_dir()] if path.is_dir() else []
    found = [place for place in inner if (place / "config.json").is_file()]
    if not found:
        raise UserError(f"{path} is no run, no cell, and no folder of these")
    return found


def _with_readouts(folders: Iterable[Path]) -> Iterator[Run]:
    for folder in folders:
        run = Run(folder)
        yield run
        if (readout := run.readout) is not None:
            yield readout


def _entry(run: Run, scale: str | None) -> _Entry:
    try:
        run.result  # noqa: B018  (an error where the run is not finished)
        refuse_mixed_files(run)
        predicted = predicted_by(run)
        row = run_row(run, predicted, detected_scale(run) if scale is None else scale)
        orders: dict[str, Any] = {f"{split}_order": order_of(predicted, split) for split in ("val", "test")}
        return _Entry({**row, **orders}, list(epoch_rows(run)), list(block_rows(run, predicted)), predicted)
    except DAMAGE as trouble:
        raise RunError(f"{run.path} cannot be read ({type(trouble).__name__}: {trouble}); restore it") from trouble


def detected_scale(run: Run) -> str:
    """The scale under whose changes the run's preset is the run's configuration; empty where there is none.

    Whatever Stage 2 was to follow, Stage 1 is the same.
    """
    from goodness.paper.scales import SCALES
    from goodness.sweep.cell import Cell

    config = run.config
    for scale in SCALES.values():
        try:
            asked = Cell(preset=config.preset, seed=config.seed, overrides=scale.overrides(config.preset)).config
        except UserError:  # a preset of the user's own
            return ""
        found = differences(config, asked)
        if all(run.stage != "s2" and name.startswith(STAGE_2) for name in found):
            return scale.name
    return ""
