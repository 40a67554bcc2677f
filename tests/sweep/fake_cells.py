"""Cells that finish, fail and stop as told, in no time: their runs are files written by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goodness import api
from goodness.config import to_dict
from goodness.data.images import fingerprint
from goodness.durable import append_line, write_json
from goodness.runs.run_folder import RunFolder
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.plan import make_cells
from goodness.versions import recorded

IMAGES = 1000
BLOBS = {"data": "blobs", "epochs": 4}


def cells(
    *seeds: int, changes: Mapping[str, Any] | None = None, readout: bool = False, name: str = "demo"
) -> list[Cell]:
    made = make_cells(["demo"], seeds=seeds or (1, 2), changes={**BLOBS, **(changes or {})}, readout=readout)
    return [dataclasses.replace(cell, name=name) for cell in made]


def begin(cell: Cell, path: Path, *, readout: bool = False, **facts: Any) -> RunFolder:
    """A run of this cell with its configuration and environment, and an epoch behind it."""
    place = CellFolder(path).readout.path if readout else CellFolder(path).run.path
    place.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(place, None)
    stage = "s2" if readout else "s1"
    write_json(folder.config_path, {"stage": stage, **to_dict(cell.config)})
    made = {**recorded(stage), "torch": torch.__version__, "dtype": "float32", "device_name": "a slide rule"}
    data = {"sha256": fingerprint(api.load_data(cell.config))}
    write_json(folder.environment_path, {**made, "data": data, **facts})
    folder.metrics_path.unlink(missing_ok=True)
    append_line(folder.metrics_path, {"epoch": 0, "val": {"accuracy": 0.25}, "seconds": 2.0})
    return folder


def finish(
    cell: Cell,
    path: Path,
    accuracy: float | None = None,
    *,
    readout: bool = False,
    indices: Any = (0, 1, 2),
    epochs: int | None = None,
    **facts: Any,
) -> None:
    """A finished run of this cell. Unless given, its accuracy is its seed in per cent."""
    folder = begin(cell, path, readout=readout, **facts)
    stage = "s2" if readout else "s1"
    accuracy = cell.seed / 100 if accuracy is None else accuracy
    places = [*indices, *range(3, IMAGES)]
    for view, share in (("test", accuracy), ("test_tta", accuracy + 0.01)):
        right = np.arange(IMAGES) < round(share * IMAGES)
        folder.write_predictions(view, np.stack([right, ~right], axis=1).astype(float), [0] * IMAGES, places)
    own = cell.config.readout.epochs if readout else cell.config.epochs
    result = {
        "reported": {"stage": stage, "weights": "last", "accuracy": accuracy, "accuracy_tta": accuracy + 0.01},
        "weights": {"last": {"epoch": 3}},
        "accuracy": [],
        "health": {},
        "weights_sha256": f"{cell.seed:064d}",
        "epochs": own if epochs is None else epochs,
        "seconds": 8.0,
    }
    write_json(folder.result_path, result)
    if readout:
        write_json(folder.backbone_path, {"run": "..", "weights": "last", "weights_sha256": result["weights_sha256"]})


class FakeHandle:
    """Ends with its code at the given look; a request to stop ends it with 143."""

    def __init__(self, engine: FakeEngine, cell: Cell, folder: Path, code: int, looks: int) -> None:
        self.engine, self.cell, self.folder, self.code, self.looks = engine, cell, folder, code, looks
        self.is_stopped = False

    def poll(self) -> int | None:
        if self.is_stopped:
            return self.end(143)
        self.looks -= 1
        if self.looks > 0:
            return None
        return self.end(self.code)

    def end(self, code: int) -> int:
        self.engine.running.discard(self.cell.folder_name)
        if code == 0:
            finish(self.cell, self.folder)
            if "s2" in self.cell.stages:
                finish(self.cell, self.folder, readout=True)
        return code

    def stop(self) -> None:
        self.is_stopped = True


class FakeEngine:
    """Plays each cell's exit codes in turn; 0 where none are left."""

    def __init__(self, codes: Mapping[str, list[int]] | None = None, looks: int = 2, says: str = "") -> None:
        self.codes = {name: list(played) for name, played in (codes or {}).items()}
        self.looks, self.says = looks, says
        self.started: list[str] = []
        self.running: set[str] = set()
        self.most_at_once = 0

    def start(self, cell: Cell, folder: Path) -> FakeHandle:
        name = cell.folder_name
        self.started.append(name)
        self.running.add(name)
        self.most_at_once = max(self.most_at_once, len(self.running))
        played = self.codes.get(name) or [0]
        code = played.pop(0)
        words = "" if code == 0 else f"{self.says or 'ValueError: it broke'}\n"
        with CellFolder(folder).log_path.open("a") as log:
            log.write(f"$ goodness cell {folder}\n{words}")
        return FakeHandle(self, cell, folder, code, self.looks)
