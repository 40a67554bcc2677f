"""The work on one cell: whatever is left of it. What every engine runs, here and elsewhere."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

from goodness import api
from goodness.config import STAGE_2, Config, differences
from goodness.errors import UserError
from goodness.runs.lock import acquire, release
from goodness.runs.run import Run
from goodness.sweep.cell import CellFolder
from goodness.sweep.state import drop_torn_result
from goodness.sweep.theory import has_theory, keep_theory
from goodness.training.loop import Interrupted, Listener
from goodness.training.signals import StopRequest

PATIENCE = 1.0
"""Seconds to wait for a folder in use: whoever looks whether it is in use holds it for a moment."""


def work(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
    listen: Listener | None = None,
) -> Run:
    """Train what is not trained of the cell in this folder, from where it stopped; a finished one is left as it is.

    Where the cell asks for it, the theorems are checked on what was trained, and the result is kept beside it. The run
    of Stage 1 is returned; its readout lies in it.
    """
    folder = CellFolder(Path(path))
    if not folder.cell_path.is_file():
        raise UserError(f"{path} is not a cell of a sweep: it has no {folder.cell_path.name}")
    config, stages = folder.asked()
    lock = _wait_for(folder.lock_path)
    try:
        with StopRequest() as stop:
            run = folder.run
            for one in (run, run.readout):
                if one is not None:
                    drop_torn_result(one)
            if not (run.path / "config.json").is_file():
                run = api.train(config, out=run.path, device=device, data_dir=data_dir, listen=listen)
            elif not run.is_finished:
                run = api.resume(run.path, device=device, data_dir=data_dir, listen=listen)
            if "s2" in stages:
                if stop.requested:  # between two stages, which both save by themselves
                    raise Interrupted(f"stopped; go on with: goodness cell {shlex.quote(str(path))}", stop.exit_code)
                if run.readout is None:
                    asked = {name: wanted for name, (_, wanted) in _of_stage_2(config, run).items()}
                    api.readout(run.path, changes=asked, device=device, data_dir=data_dir, listen=listen)
                elif other := _of_stage_2(config, run.readout):
                    name, (has, wanted) = next(iter(other.items()))
                    raise UserError(
                        f"{run.readout.path} holds a Stage 2 with {name} {has}, not {wanted}; remove it to train the "
                        f"one asked for (rm -r {shlex.quote(str(run.readout.path))})"
                    )
                elif not run.readout.is_finished:
                    api.resume(run.path, device=device, data_dir=data_dir, listen=listen)
            if folder.wants_theory and not has_theory(run) and not stop.requested:
                keep_theory(run, device=device, data_dir=data_dir)
        return run
    finally:
        release(lock)


def _of_stage_2(config: Config, run: Run) -> dict[str, tuple[Any, Any]]:
    """In what Stage 2 is asked for otherwise than when the run began: the run's value and the one asked for."""
    return {name: both for name, both in differences(config, run.config).items() if name.startswith(STAGE_2)}


def _wait_for(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return acquire(path)
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
