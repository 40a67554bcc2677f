"""The sweep's own logic, on cells that take no time: skipped, retried, stopped, gone on with, refused."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cells import BLOBS, FakeEngine, begin, cells, finish

import goodness
from goodness.cli import main
from goodness.errors import DataError, RunError, UserError
from goodness.runs.lock import acquire, release
from goodness.sweep import engine, run
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.collect import Results
from goodness.sweep.plan import Plan
from goodness.sweep.progress import Snapshot
from goodness.sweep.run import Sweeper
from goodness.sweep.sharing import Fixed, Measured
from goodness.training.loop import Interrupted
from goodness.versions import METHOD_VERSION
from tiny_runs import blobs_at_hand

FILES = ("results.md", "results.csv", "results.json")


@pytest.fixture(autouse=True)
def made_up_data_and_no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(run, "PAUSE", 0.0)
    with blobs_at_hand():
        yield


def sweep(folder: Path, engine: FakeEngine, *seeds: int, **more: Any) -> Results:
    settings = {"jobs": 2, "changes": BLOBS, **more}
    return goodness.sweep("demo", seeds=seeds or (1, 2, 3), out=folder, device="cpu", engine=engine, **settings)


def names(*seeds: int) -> list[str]:
    return [cell.folder_name for cell in cells(*seeds)]


def tables(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


def test_every_cell_is_run_once_so_many_at_a_time(tmp_path: Path) -> None:
    fake = FakeEngine()
    results = sweep(tmp_path / "s", fake)
    assert fake.started == names(1, 2, 3)
    assert fake.most_at_once == 2
    assert results.is_complete
    assert results.rows[0].scores["s1"].mean == pytest.approx(0.02)
    assert all((tmp_path / "s" / name).is_file() for name in FILES)
    assert goodness.sweep_results(tmp_path / "s") == results


def test_finished_cells_are_skipped_and_seeds_can_be_added(tmp_path: Path) -> None:
    first = sweep(tmp_path, FakeEngine(), 1, 2)
    before = tables(tmp_path)
    again = FakeEngine()
    assert sweep(tmp_path, again, 1, 2) == first
    assert again.started == []
    assert tables(tmp_path) == before
    more = FakeEngine()
    sweep(tmp_path, more, 1, 2, 3)
    assert more.started == names(3)
    with_readout = FakeEngine()
    assert sweep(tmp_path, with_readout, 1, 2, 3, readout=True).is_complete
    assert len(with_readout.started) == 3


def test_the_table_of_a_smaller_sweep_does_not_stand_as_that_of_a_larger_one(tmp_path: Path) -> None:
    class Killed(BaseException): ...

    class Kills(FakeEngine):
        def start(self, cell: Cell, folder: Path) -> Any:
            raise Killed

    sweep(tmp_path, FakeEngine(), 1, 2)
    with pytest.raises(Killed):
        sweep(tmp_path, Kills(), 1, 2, 3)
    assert "(2 of 3, incomplete)" in (tmp_path / "results.md").read_text()


def test_a_failure_is_tried_once_more(tmp_path: Path) -> None:
    fake = FakeEngine({names(2)[0]: [1]})
    shown: list[Snapshot] = []
    results = sweep(tmp_path, fake, watch=shown.append)
    assert sorted(fake.started) == sorted([*names(1, 2, 3), *names(2)])
    assert results.is_complete
    states = {place.standing.state for snapshot in shown for place in snapshot.places}
    assert states == {"waiting", "running", "failed", "done"}
    assert any(snapshot.retried == frozenset(names(2)) for snapshot in shown)
    assert all(place.standing.state == "done" for place in shown[-1].places)
    assert not (tmp_path / names(2)[0] / "failed.json").exists()


def test_what_is_finished_and_refused_is_told_from_what_can_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path, FakeEngine())
    monkeypatch.setattr(run, "LocalEngine", lambda how, threads: FakeEngine())
    (tmp_path / names(2)[0] / "run" / "predictions_test.npz").unlink()
    assert main(["sweep", "--resume", str(tmp_path)]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "cells that are missing: 1 (see " in told
    assert told.endswith(", but for 1 that lie there finished and are refused")


def test_a_failure_that_repeats_is_reported_and_costs_no_other_cell(tmp_path: Path) -> None:
    (name,) = names(2)
    fake = FakeEngine({name: [1, 1, 1]})
    results = sweep(tmp_path, fake)
    assert fake.started.count(name) == 2
    ((row, cell),) = results.missing
    assert (row.status, cell.seed, cell.state, cell.trouble) == ("incomplete", 2, "failed", "ValueError: it broke")
    assert "(2 of 3, incomplete)" in (tmp_path / "results.md").read_text()
    later = FakeEngine({name: [1, 1]})
    assert not sweep(tmp_path, later).is_complete
    assert later.started == [name]  # a failed one is tried once more, and the others are done
    healed = FakeEngine()
    assert sweep(tmp_path, healed).is_complete
    assert healed.started == [name]


def test_a_failed_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    (cell,) = cells(2)

    class Breaks(FakeEngine):
        def start(self, cell: Cell, folder: Path) -> Any:
            if not self.started:
                begin(cell, folder)
            return super().start(cell, folder)

    assert sweep(tmp_path, Breaks({cell.folder_name: [1]}), 2).is_complete
    assert (tmp_path / cell.folder_name / "failed-1" / "config.json").is_file()


def test_a_process_that_ends_well_without_a_result_has_failed(tmp_path: Path) -> None:
    class Forgetful(FakeEngine):
        def start(self, cell: Cell, folder: Path) -> Any:
            handle = super().start(cell, folder)
            handle.end = lambda code: code
            return handle

    ((_, cell),) = sweep(tmp_path, Forgetful(), 1).missing
    assert cell.trouble == "ended with 0 and no word"


def test_a_cell_that_another_stopped_is_gone_on_with(tmp_path: Path) -> None:
    (name,) = names(1)
    fake = FakeEngine({name: [143, 0]})
    assert sweep(tmp_path, fake, 1).is_complete
    assert fake.started == [name, name]
    stubborn = FakeEngine({names(5)[0]: [143, -15, 143]})
    ((_, cell),) = sweep(tmp_path / "other", stubborn, 5).missing
    assert len(stubborn.started) == 2
    assert cell.state == "waiting"  # never failed: it was not its own doing


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_sweep_says_how_to_go_on_and_ends_in_the_same_tables(tmp_path: Path, number: int) -> None:
    sweep(tmp_path / "whole", FakeEngine())

    def strike(snapshot: Snapshot) -> None:
        if sum(place.standing.state == "done" for place in snapshot.places) == 1:
            signal.raise_signal(number)

    fake = FakeEngine(looks=3)
    folder = tmp_path / "stopped"
    with pytest.raises(
        Interrupted, match=f"1 of 3 cells are done; go on with: goodness sweep --resume {folder} --jobs 1$"
    ) as end:
        sweep(folder, fake, jobs=1, watch=strike)
    assert end.value.exit_code == 128 + number
    assert not fake.running
    assert "(1 of 3, incomplete)" in (folder / "results.md").read_text()
    assert not goodness.sweep_results(folder).is_complete
    rest = FakeEngine()
    assert goodness.resume_sweep(folder, engine=rest).is_complete
    assert rest.started == names(2, 3)
    assert tables(folder) == tables(tmp_path / "whole")


def test_a_cell_left_running_by_a_killed_sweep_is_waited_for(tmp_path: Path) -> None:
    left, other = cells(1, 2)
    folder = CellFolder(tmp_path / left.folder_name)
    Plan(cells=(left, other)).write(tmp_path)
    folder.write(left)
    lock = acquire(folder.lock_path)
    looks = 0

    def watch(snapshot: Snapshot) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            finish(left, folder.path)
            release(lock)

    fake = FakeEngine()
    assert sweep(tmp_path, fake, 1, 2, watch=watch).is_complete
    assert fake.started == [other.folder_name]


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "sweep.lock")
    try:
        with pytest.raises(UserError, match="is in use by process"):
            sweep(tmp_path, FakeEngine())
    finally:
        release(lock)


def test_what_another_setting_made_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (wanted,), (other,) = cells(1), cells(1, changes={"optim.lr": 0.5})
    finish(other, tmp_path / wanted.folder_name)
    Plan(cells=(wanted,)).write(tmp_path)
    fake = FakeEngine()
    with pytest.raises(UserError, match=r"optim\.lr 0\.5, not 0\.006"):
        sweep(tmp_path, fake, 1, 2)
    assert fake.started == []


def test_what_another_version_made_is_refused_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path, FakeEngine(), 1)
    monkeypatch.setitem(METHOD_VERSION, "cumulative", 99)
    with pytest.raises(UserError, match=r"another version: cumulative 1, not 99.*--mixed-versions"):
        sweep(tmp_path, FakeEngine(), 1, 2)
    fake = FakeEngine()
    assert sweep(tmp_path, fake, 1, 2, mixed_versions=True).is_complete
    assert fake.started == names(2)


def test_other_data_is_refused(tmp_path: Path) -> None:
    sweep(tmp_path / "s", FakeEngine(), 1)
    (tmp_path / "blobs.txt").write_text("3")
    with pytest.raises(UserError, match="other data"):
        sweep(tmp_path / "s", FakeEngine(), 1, 2, data_dir=tmp_path)


@pytest.mark.parametrize(
    ("more", "kind", "answer"),
    [
        ({"changes": {"data": "cifar10"}, "data_dir": "nowhere"}, DataError, "cifar-10"),
        ({"jobs": 0}, UserError, "--jobs must be at least 1"),
        ({"changes": {"epochs": 0}}, UserError, "epochs must be at least 1"),
    ],
)
def test_a_mistake_is_told_before_a_folder_is_made(
    tmp_path: Path, more: dict[str, Any], kind: type[UserError], answer: str
) -> None:
    with pytest.raises(kind, match=answer):
        sweep(tmp_path / "s", FakeEngine(), **more)
    assert not (tmp_path / "s").exists()


def test_an_unknown_device_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no device 'gpu9'"):
        goodness.sweep("demo", out=tmp_path / "s", device="gpu9", changes=BLOBS)
    assert not (tmp_path / "s").exists()


def test_a_sweep_that_breaks_leaves_no_cell_running(tmp_path: Path) -> None:
    class FullDisk(FakeEngine):
        handles: list[Any]

        def start(self, cell: Cell, folder: Path) -> Any:
            if self.started:
                raise RunError("the disk is full")
            self.handles = [super().start(cell, folder)]
            return self.handles[0]

    fake = FullDisk(looks=100)
    with pytest.raises(RunError, match="the disk is full"):
        sweep(tmp_path, fake)
    assert fake.handles[0].is_stopped


def test_cells_that_do_not_fit_beside_each_other_run_one_after_the_other(tmp_path: Path) -> None:
    asked = cells(1, 2, 3)
    fake = FakeEngine({asked[1].folder_name: [1]}, says="goodness: it does not fit in memory: CUDA out of memory")
    slots = Measured(speeds={1: 1.0, 2: 1.5})
    Sweeper(asked, tmp_path, fake, slots).run()
    assert fake.most_at_once == 3
    assert slots.limit <= 2
    assert all(CellFolder(tmp_path / cell.folder_name).run.is_finished for cell in asked)


def test_the_threads_of_a_cell_stay_as_the_sweep_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    sweep(tmp_path, FakeEngine(), jobs=2)
    assert Plan.read(tmp_path).threads == 4
    sweep(tmp_path, FakeEngine(), jobs=8)
    assert Plan.read(tmp_path).threads == 4


def test_the_sweeper_needs_no_more_than_start_poll_and_stop(tmp_path: Path) -> None:
    """An engine of a few lines, as one for a cluster would be."""

    class Job:
        def __init__(self, cell: Cell, folder: Path) -> None:
            self.cell, self.folder = cell, folder

        def poll(self) -> int:
            finish(self.cell, self.folder)
            return 0

        def stop(self) -> None: ...

    class Cluster:
        def start(self, cell: Cell, folder: Path) -> Job:
            return Job(cell, folder)

    Sweeper(cells(1, 2), tmp_path, Cluster(), Fixed(100), pause=0.0).run()
    assert all((tmp_path / name / "run" / "result.json").is_file() for name in names(1, 2))
