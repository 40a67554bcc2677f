"""The queue for the GPU, run on digits: what is killed goes on, and ends as if left alone."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from goodness.presets import presets

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "dev" / "gpu_queue.py"
DEMO = "--data digits-sample --deterministic --keep.checkpoint-steps 1 --model.width 16 --model.blocks 2"
TIMES = {"seconds", "started", "batch"}
"""What two equal runs differ in."""


def write_queue(path: Path, *lines: dict[str, object]) -> None:
    with (ROOT / "docs" / "dev" / "gpu-queue.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    common = {"order": 0, "preset": "demo", "options": DEMO, "epochs": 6, "share": 0.5, "forecast_s": 5}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({**common, "state": "ready", **line} for line in lines)


def command(folder: Path, *words: object) -> list[str]:
    return [sys.executable, str(SCRIPT), "--queue", str(folder / "queue.csv"), *map(str, words)]


def start(folder: Path, left: float) -> subprocess.Popen[str]:
    words = ["--folder", folder / "runs", "run", "--left", left, "--device", "cpu", "--commit", "abc123"]
    return subprocess.Popen(
        command(folder, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(folder: Path, left: float = 300) -> str:
    process = start(folder, left)
    told, _ = process.communicate(timeout=240)
    assert process.returncode == 0, told
    return told


def wait_for_epochs(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while sum(len(file.read_text().splitlines()) for file in folder.glob("runs/*/metrics.jsonl")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def bring_home(folder: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of the store, without what two equal runs may differ in."""
    subprocess.run(command(folder, "--folder", folder / "runs", "pack", folder / "home.tar.xz"), check=True)
    store = folder / "store"
    words = ["--folder", folder / "home", "collect", folder / "home.tar.xz", "--store", store]
    subprocess.run(command(folder, *words), check=True, cwd=ROOT)
    rows = {}
    for name in ("runs", "epochs", "blocks") if store.is_dir() else ():
        with (store / f"{name}.csv").open(newline="") as file:
            found = [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]
        rows[name] = sorted(found, key=lambda row: sorted(row.items()))
    return rows


def states(folder: Path) -> list[str]:
    with (folder / "queue.csv").open(newline="") as file:
        return [row["state"] for row in csv.DictReader(file)]


def test_killed_and_taken_up_again_it_ends_with_the_same_rows(tmp_path: Path) -> None:
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    for folder in (alone, killed):
        folder.mkdir()
        write_queue(folder / "queue.csv", {"seed": 1}, {"seed": 2})
    run(alone)
    process = start(killed, 300)
    wait_for_epochs(killed, 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list(killed.glob("runs/*/result.json"))
    run(killed)
    rows = bring_home(killed)
    assert rows == bring_home(alone)
    assert {row["seed"] for row in rows["runs"]} == {"1", "2"}
    assert len({row["val_accuracy"] for row in rows["epochs"]} - {""}) > 1
    assert states(killed) == ["done", "done"]


def test_stopped_at_the_end_of_its_time_it_saves_and_goes_on(tmp_path: Path) -> None:
    write_queue(tmp_path / "queue.csv", {"seed": 1, "epochs": 400, "forecast_s": 5})
    told = run(tmp_path, left=20 + 10)  # the script keeps 20 seconds for saving
    assert "cut" in told
    (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
    first = metrics.read_text()
    assert first.count("\n") > 1
    run(tmp_path, left=20 + 12)
    assert metrics.read_text().startswith(first)
    assert metrics.read_text().count("\n") > first.count("\n")
    bring_home(tmp_path)
    assert states(tmp_path) == ["cut"]


def test_only_what_is_ready_and_fits_the_time_starts(tmp_path: Path) -> None:
    lines = [
        {"seed": 1, "state": "waiting: not built"},
        {"seed": 2, "state": "done"},
        {"seed": 3, "forecast_s": 1000},
    ]
    write_queue(tmp_path / "queue.csv", *lines)
    run(tmp_path, left=100)
    assert not list(tmp_path.glob("runs/*/config.json"))


def test_a_run_that_fails_is_marked_and_the_next_one_starts(tmp_path: Path) -> None:
    write_queue(tmp_path / "queue.csv", {"seed": 1, "options": "--data no-such-data"}, {"seed": 2, "epochs": 1})
    run(tmp_path)
    bring_home(tmp_path)
    assert states(tmp_path) == ["failed", "done"]


def test_a_run_that_the_store_refuses_is_not_done(tmp_path: Path) -> None:
    write_queue(tmp_path / "queue.csv", {"seed": 1, "epochs": 1})
    run(tmp_path)
    (result,) = tmp_path.glob("runs/*/result.json")
    result.write_text(result.read_text().replace('"accuracy": 0', '"accuracy": 1'))
    bring_home(tmp_path)
    assert states(tmp_path) != ["done"]


def test_a_run_that_stands_twice_is_refused(tmp_path: Path) -> None:
    write_queue(tmp_path / "queue.csv", {"seed": 1}, {"seed": 1})
    process = start(tmp_path, 30)
    process.communicate()
    assert process.returncode != 0


def test_every_line_of_the_queue_can_be_read() -> None:
    with (ROOT / "docs" / "dev" / "gpu-queue.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        state, colon, reason = row["state"].partition(": ")
        assert state in ("waiting", "ready", "cut", "done", "failed")
        assert (state == "waiting") == bool(colon and reason)
        assert row["preset"] in presets
        assert 0 < float(row["share"]) <= 1
        assert float(row["forecast_s"]) <= 1500
        assert (state == "done") == bool(row["accuracy"])
