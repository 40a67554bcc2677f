"""Cells in processes of their own: killed, stopped and broken, they end in the tables of a sweep left in peace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goodness
from goodness.cli import main
from goodness.errors import UserError
from goodness.sweep import engine, run
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.engine import How, LocalEngine, LocalHandle, cell_command, share_of_cores
from goodness.sweep.plan import make_cells
from goodness.sweep.state import standing
from goodness.sweep.work import work
from in_this_process import InThisProcess
from tiny_runs import BLOBS, BLOCK_SIZES, SIZES, blobs_at_hand

SMALL = {
    **SIZES,
    **{f"model.block.{name}": value for name, value in BLOCK_SIZES.items()},
    **BLOBS,
    "model.blocks": 2,
    "batch": 50,
    "epochs": 40,
    "deterministic": True,
    "keep.evaluate_every": 1000,
    "keep.checkpoint_seconds": 0.3,
    "readout.width": 16,
    "readout.heads": 2,
    "readout.batch": 50,
    "readout.epochs": 1,
}
TESTS = str(Path(__file__).parents[1])
FILES = ("results.md", "results.csv", "results.json")


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_the_command_is_the_same_for_every_engine(tmp_path: Path) -> None:
    how = How(device="cpu", data_dir="/data", plugins=("mine", "/parts.py"))
    assert cell_command(tmp_path / "cell", how) == [
        *(sys.executable, "-m", "goodness", "cell", str(tmp_path / "cell")),
        *("--device", "cpu", "--data-dir", "/data", "--plugin", "mine", "/parts.py"),
    ]


def test_jobs_share_the_cores_and_ask_for_no_more_than_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [share_of_cores(jobs) for jobs in (1, 3, 8, 20)] == [8, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [share_of_cores(jobs) for jobs in (1, 8)] == [2, 1]


def test_a_folder_without_a_cell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no cell\.json"):
        work(tmp_path)


class Striking:
    """Local processes, of which the first is killed once it has trained for an epoch."""

    def __init__(self, how: How) -> None:
        self.local = LocalEngine(how, threads=1)
        self.codes: list[int] = []
        self.count = 0

    def start(self, cell: Cell, folder: Path) -> Any:
        self.count += 1
        if self.count > 2:  # the second try
            return InThisProcess().start(cell, folder)
        handle = self.local.start(cell, folder)
        return handle if self.count > 1 else Struck(handle, cell, folder, self.codes)


class Struck:
    def __init__(self, handle: LocalHandle, cell: Cell, folder: Path, codes: list[int]) -> None:
        self.handle, self.cell, self.folder, self.codes = handle, cell, folder, codes
        self.begun = standing(cell, folder).epoch

    def poll(self) -> int | None:
        if standing(self.cell, self.folder).epoch > self.begun:
            self.handle.process.kill()
        code = self.handle.poll()
        self.codes += [] if code is None else [code]
        return code

    def stop(self) -> None:
        self.handle.stop()


def test_killed_and_stopped_a_sweep_ends_in_the_tables_of_one_left_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PAUSE", 0.02)
    whole, broken, plugin = tmp_path / "whole", tmp_path / "broken", tmp_path / "made_up_data.py"
    plugin.write_text(f"import sys; sys.path.append({TESTS!r}); import tiny_runs; tiny_runs.register_blobs()\n")
    settings: dict[str, Any] = {"seeds": [1, 2], "changes": SMALL, "readout": True, "device": "cpu", "jobs": 2}
    goodness.sweep("demo", out=whole, engine=InThisProcess(), **settings)

    # The command itself, asked to stop while its cells train.
    changes = [f"{name}={json.dumps(value)}" for name, value in SMALL.items()]
    command = [sys.executable, "-m", "goodness", "sweep", "demo", "--seeds", "1,2", "--out", str(broken)]
    command += ["--jobs", "2", "--device", "cpu", "--readout", "--plugin", str(plugin), "--set", *changes]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    cells = make_cells(["demo"], seeds=[1, 2], changes=SMALL, readout=True)
    deadline = time.monotonic() + 120
    while not any(standing(cell, broken / cell.folder_name).epoch for cell in cells):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, error = first.communicate(timeout=60)
    assert first.returncode == 143
    assert f"go on with: goodness sweep --resume {broken}" in " ".join(error.split())
    assert f"{cells[0].folder_name}: running" in error
    states = {cell.folder_name: standing(cell, broken / cell.folder_name).state for cell in cells}
    assert "stopped" in states.values()
    for name in (name for name, state in states.items() if state == "stopped"):
        assert list((CellFolder(broken / name).run.path / "checkpoints").glob("step-*"))

    # The same sweep, and a cell that is killed in its middle, and then goes on by itself.
    striking = Striking(How(device="cpu", plugins=(str(plugin),)))
    results = goodness.resume_sweep(broken, jobs=2, plugins=[str(plugin)], engine=striking)
    assert (striking.codes, striking.count) == ([-9], 3)
    assert results.is_complete
    assert results.rows[0].scores.keys() == {"s1", "s1_tta", "s2", "s2_tta"}
    for name in FILES:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_under_nohup_a_sweep_and_its_cells_outlive_their_terminal(tmp_path: Path) -> None:
    changes = ["data=digits-sample", "epochs=20", "model.blocks=2", "model.width=16", "batch=128"]
    command = [sys.executable, "-m", "goodness", "sweep", "demo", "--out", str(tmp_path), "--device", "cpu"]
    process = subprocess.Popen(
        [*command, "--jobs", "1", "--json", "--set", *changes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 120
    while not (begun := list(tmp_path.glob("demo-*/run/metrics.jsonl"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    folder = begun[0].parents[1]
    holder = int(re.findall(r"process (\d+) on", (folder / "cell.lock").read_text())[0])
    for one in (holder, process.pid):
        os.kill(one, signal.SIGHUP)
    assert not (folder / "run" / "result.json").exists(), "the signal came while it trained"
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert (folder / "log.txt").read_text().count("$ ") == 1, "the cell was started once"


def test_a_process_that_breaks_is_tried_twice_and_reported_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = "import sys; print('step 1'); sys.exit('goodness: block 0: a loss is not finite')"
    monkeypatch.setattr(engine, "cell_command", lambda folder, how: [sys.executable, "-c", breaks])
    monkeypatch.setattr(run, "PAUSE", 0.02)
    code = main(["sweep", "demo", "--out", str(tmp_path), "--jobs", "1", "--device", "cpu", "--set", "data=blobs"])
    output, error = capsys.readouterr()
    assert code == 1
    words = " ".join(output.split())
    assert "demo, seed 1: missing (goodness: block 0: a loss is not finite)" in words
    assert "running again" in error
    assert f"try them again with: goodness sweep --resume {tmp_path}" in " ".join(error.split())
    (cell,) = make_cells(["demo"], changes={"data": "blobs"})
    log = (tmp_path / cell.folder_name / "log.txt").read_text()
    assert log.count("$ ") == log.count("step 1\n") == 2
    failed = json.loads((tmp_path / cell.folder_name / "failed.json").read_text())
    assert failed == {"exit_code": 1, "error": "goodness: block 0: a loss is not finite"}
