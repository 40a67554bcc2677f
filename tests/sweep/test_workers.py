"""Workers that stay: one process for many cells, each as good as a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from goodness.errors import UserError
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.engine import How
from goodness.sweep.state import standing
from goodness.sweep.work import work
from goodness.sweep.workers import WorkerEngine, WorkerHandle

SMALL = {
    "data": "digits-sample",
    "epochs": 1,
    "batch": 128,
    "model.blocks": 2,
    "model.width": 16,
    "deterministic": True,
    "keep.checkpoint_seconds": 0.0,
}


@pytest.fixture
def engine() -> Iterator[WorkerEngine]:
    with WorkerEngine(How(device="cpu")) as made:
        yield made


def asked(folder: Path, seed: int, **changes: object) -> tuple[Cell, Path]:
    cell = Cell(preset="demo", seed=seed, overrides={**SMALL, **changes})
    path = folder / cell.folder_name
    CellFolder(path).write(cell)
    return cell, path


def wait(handle: WorkerHandle, until: Callable[[], bool] | None = None) -> int | None:
    deadline = time.monotonic() + 120
    while (code := handle.poll()) is None and not (until is not None and until()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return code


def test_one_worker_takes_cell_after_cell_and_each_ends_in_its_own_bits(engine: WorkerEngine, tmp_path: Path) -> None:
    cells = [asked(tmp_path / "workers", seed) for seed in (1, 2)]
    for cell, path in cells:
        assert wait(engine.start(cell, path)) == 0
        assert standing(cell, path).state == "done"
        assert CellFolder(path).log_path.read_text().startswith("$ ")
    assert len(engine.workers) == 1
    cell, path = cells[1]
    _, alone = asked(tmp_path / "alone", 2)
    work(alone, device="cpu")
    assert CellFolder(alone).run.result["weights_sha256"] == CellFolder(path).run.result["weights_sha256"]
    # What a cell does wrong is its own: the exit code and the log say so, and the next cell gets another worker.
    first = engine.workers[0].process.pid
    broken, place = asked(tmp_path / "workers", 3)
    CellFolder(place).cell_path.write_text("{}")
    assert wait(engine.start(broken, place)) == 1
    assert "is not what a sweep writes" in CellFolder(place).log_path.read_text()
    assert engine.workers[0].process.pid == first
    # Asked to stop, it saves.
    long, folder = asked(tmp_path / "workers", 4, epochs=2000)
    handle = engine.start(long, folder)
    assert [one.process.pid for one in engine.workers] != [first]
    assert wait(handle, until=lambda: standing(long, folder).epoch > 0) is None
    handle.stop()
    assert wait(handle) == 143
    assert standing(long, folder).state == "stopped"
    assert len(engine.workers) == 1
    # Killed, it takes its cell with it; the next gets another worker.
    handle = engine.start(long, folder)
    assert wait(handle, until=lambda: standing(long, folder).state == "running") is None
    pid = engine.workers[0].process.pid
    os.kill(pid, signal.SIGKILL)
    assert wait(handle) == -signal.SIGKILL
    cell, path = asked(tmp_path / "workers", 5)
    assert wait(engine.start(cell, path)) == 0
    assert [one.process.pid for one in engine.workers] != [pid]
    assert len(engine.workers) == 1


def test_closing_ends_the_workers(tmp_path: Path) -> None:
    with WorkerEngine(How(device="cpu")) as engine:
        cell, path = asked(tmp_path, 6, epochs=2000)
        handle = engine.start(cell, path)
        wait(handle, until=lambda: standing(cell, path).epoch > 0)
        process = engine.workers[0].process
    assert process.returncode is not None
    assert standing(cell, path).state == "stopped"


def test_a_worker_keeps_to_the_group_it_has_compiled(engine: WorkerEngine, tmp_path: Path) -> None:
    first, path = asked(tmp_path, 1)
    other = [asked(tmp_path, seed, batch=64) for seed in (1, 2)]
    again, again_path = asked(tmp_path, 2)
    waiting = [first, again, *(cell for cell, _ in other)]
    assert engine.choose(waiting) == first  # nothing is compiled yet
    running = engine.start(first, path)
    assert engine.choose(waiting[1:]) == other[0][0]  # of a group that nobody is at
    beside = engine.start(*other[0])
    assert engine.choose([again, other[1][0]]) == again  # both groups are in work: the first in line
    assert wait(running) == wait(beside) == 0
    assert engine.choose([other[1][0], again]) == other[1][0]
    pids = [one.process.pid for one in engine.workers]
    handle = engine.start(*other[1])
    assert handle.worker.process.pid == pids[1]
    assert engine.choose([again]) == again
    assert engine.start(again, again_path).worker.process.pid == pids[0]


def test_stage_2_is_what_the_cell_asks_for_now(tmp_path: Path) -> None:
    size = {"readout.width": 16, "readout.heads": 2, "readout.epochs": 1}
    _, path = asked(tmp_path, 1, **size)
    first = work(path, device="cpu").result["weights_sha256"]
    CellFolder(path).write(Cell(preset="demo", seed=1, overrides={**SMALL, **size, "readout.lr": 0.5}, readout=True))
    work(path, device="cpu")
    cell = CellFolder(path)
    assert (cell.run.config.readout.lr, cell.readout.config.readout.lr) == (1e-3, 0.5)
    assert cell.readout.config.readout.width == 16
    assert cell.run.result["weights_sha256"] == first
    CellFolder(path).write(Cell(preset="demo", seed=1, overrides={**SMALL, **size}, readout=True))
    for is_finished in (True, False):
        if not is_finished:
            (cell.readout.path / "result.json").unlink()
        with pytest.raises(UserError, match=r"a Stage 2 with readout\.lr 0\.5, not 0\.001; remove it.*readout\)"):
            work(path, device="cpu")
