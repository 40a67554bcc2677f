"""A folder alone says how its cell stands; what is not the cell's own is refused with the first difference."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cells import begin, cells, finish

from goodness.durable import read_json, write_json
from goodness.errors import UserError
from goodness.runs.checkpoint import Checkpoints
from goodness.runs.lock import acquire, release
from goodness.sweep.cell import CellFolder
from goodness.sweep.state import make_ready, record_failure, refuse_another, standing
from goodness.versions import recorded
from tiny_runs import blobs_at_hand


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_waiting_stopped_running_failed_done(tmp_path: Path) -> None:
    (cell,) = cells(7)
    folder = CellFolder(tmp_path / "cell")
    assert standing(cell, folder.path).state == "waiting"
    folder.write(cell)
    assert standing(cell, folder.path).state == "waiting"
    begin(cell, folder.path)
    stopped = standing(cell, folder.path)
    assert (stopped.state, stopped.epoch, stopped.epochs) == ("stopped", 1, 4)
    assert (stopped.accuracy, stopped.seconds) == (0.25, 2.0)
    for path in (folder.lock_path, folder.run.path / "run.lock"):
        lock = acquire(path)
        assert standing(cell, folder.path).state == "running"
        release(lock)
    folder.log_path.write_text("$ first\nValueError: old\n$ second\nstep 3\ngoodness: the disk is full\n\n")
    assert record_failure(folder.path, 1) == "goodness: the disk is full"
    failed = standing(cell, folder.path)
    assert (failed.state, failed.error) == ("failed", "goodness: the disk is full")
    finish(cell, folder.path)
    done = standing(cell, folder.path)
    assert (done.state, done.epoch, done.accuracy, done.seconds, done.error) == ("done", 4, 0.07, 8.0, "")


def test_a_cell_with_a_readout_is_done_when_both_stages_are(tmp_path: Path) -> None:
    (plain,) = cells(7)
    (both,) = cells(7, readout=True)
    finish(plain, tmp_path)
    assert standing(plain, tmp_path).state == "done"
    between = standing(both, tmp_path)
    assert (between.state, between.epoch, between.epochs) == ("stopped", 4, 9)
    finish(both, tmp_path, accuracy=0.5, readout=True)
    done = standing(both, tmp_path)
    assert (done.state, done.epoch, done.accuracy) == ("done", 9, 0.5)


def test_a_damaged_result_is_not_done(tmp_path: Path) -> None:
    (cell,) = cells(7)
    finish(cell, tmp_path)
    (tmp_path / "run" / "result.json").write_text("{}")
    assert standing(cell, tmp_path).state == "stopped"
    write_json(tmp_path / "failed.json", {"error": "x"})
    make_ready(tmp_path)
    assert standing(cell, tmp_path).state == "waiting"
    assert (tmp_path / "failed-1" / "result.json").is_file()


@pytest.mark.parametrize(
    ("code", "log", "error"),
    [
        (-9, "half way\n", "killed by SIGKILL (out of memory?)"),
        (-11, "", "killed by SIGSEGV"),
        (3, "$ goodness cell x\n", "ended with 3 and no word"),
        (1, "KeyError: 'a'\n", "KeyError: 'a'"),
    ],
)
def test_how_a_process_ended(tmp_path: Path, code: int, log: str, error: str) -> None:
    (tmp_path / "log.txt").write_text(log)
    assert record_failure(tmp_path, code) == error


def test_what_can_go_on_stays_and_what_cannot_is_set_aside(tmp_path: Path) -> None:
    (cell,) = cells(7)
    for _ in range(2):  # no checkpoint
        begin(cell, tmp_path)
        write_json(tmp_path / "failed.json", {"error": "x"})
        make_ready(tmp_path)
        assert standing(cell, tmp_path).state == "waiting"
    assert (tmp_path / "failed-1" / "config.json").is_file()
    assert (tmp_path / "failed-2" / "config.json").is_file()
    begin(cell, tmp_path)
    Checkpoints(tmp_path / "run" / "checkpoints").save(1, {}, {})
    write_json(tmp_path / "failed.json", {"error": "x"})
    make_ready(tmp_path)
    assert standing(cell, tmp_path).state == "stopped"
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint.write_bytes(b"damaged")
    write_json(tmp_path / "failed.json", {"error": "x"})
    make_ready(tmp_path)
    assert standing(cell, tmp_path).state == "waiting"


def test_a_broken_readout_leaves_its_stage_1_alone(tmp_path: Path) -> None:
    (cell,) = cells(7, readout=True)
    finish(cell, tmp_path)
    begin(cell, tmp_path, readout=True)
    write_json(tmp_path / "failed.json", {"error": "x"})
    make_ready(tmp_path)
    assert (tmp_path / "run" / "result.json").is_file()
    assert not (tmp_path / "run" / "readout").exists()
    assert (tmp_path / "failed-1" / "config.json").is_file()


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({"torch": "1.0"}, "another version: torch 1.0, not "),
        ({"method_version": 0}, "another version: cumulative 0, not .*--mixed-versions"),
        ({"resumed": [{**recorded("s1"), "torch": "1.0"}]}, "another version: torch .* then 1.0"),
        ({"data": {"sha256": "e" * 64}}, "other data: images, labels, split or order have the hash e{12}…, not d{12}…"),
    ],
)
@pytest.mark.parametrize("is_finished", [True, False])
def test_another_version_or_other_data_is_refused(
    tmp_path: Path, facts: dict[str, Any], answer: str, is_finished: bool
) -> None:
    (cell,) = cells(7)
    data = "d" * 64
    (finish if is_finished else begin)(cell, tmp_path, **{"data": {"sha256": data}, **facts})
    with pytest.raises(UserError, match=answer):
        refuse_another(cell, tmp_path, data)
    if "data" not in facts:
        refuse_another(cell, tmp_path, data, mixed_versions=True)


def test_another_configuration_is_refused_by_its_first_difference(tmp_path: Path) -> None:
    (cell,) = cells(7)
    (other,) = cells(7, changes={"optim.lr": 0.5})
    finish(other, tmp_path)
    with pytest.raises(UserError, match=r"optim\.lr 0\.5, not 0\.006\. It is not taken for the cell 'demo'"):
        refuse_another(cell, tmp_path, None)
    refuse_another(other, tmp_path, None)


def test_stage_1_is_the_same_whatever_stage_2_is_asked_for(tmp_path: Path) -> None:
    (first,) = cells(7, readout=True)
    (other,) = cells(7, changes={"readout.lr": 0.5}, readout=True)
    (alone,) = cells(7, changes={"readout.lr": 0.5})
    finish(first, tmp_path)
    refuse_another(other, tmp_path, None)
    finish(first, tmp_path, readout=True)
    refuse_another(alone, tmp_path, None)
    with pytest.raises(UserError, match=r"readout\.lr 0\.001, not 0\.5.*\(rm -r \S*/run/readout\)"):
        refuse_another(other, tmp_path, None)


def test_a_stage_1_in_the_place_of_stage_2_is_refused(tmp_path: Path) -> None:
    (cell,) = cells(7, readout=True)
    for readout in (False, True):
        finish(cell, tmp_path, readout=readout)
    write_json(tmp_path / "run/readout/config.json", {**read_json(tmp_path / "run/readout/config.json"), "stage": "s1"})
    with pytest.raises(UserError, match="stage s1, not s2"):
        refuse_another(cell, tmp_path, None)


@pytest.mark.parametrize("line", ["{}", "5", '{"epoch": "x", "seconds": 1.0}', '{"epoch": 2}', '{"epoch": 1, "sec'])
def test_a_line_that_is_no_epoch_counts_for_nothing(line: str, tmp_path: Path) -> None:
    (cell,) = cells(7)
    folder = begin(cell, tmp_path)
    with open(folder.metrics_path, "a") as file:
        file.write(line + "\n")
    found = standing(cell, tmp_path)
    assert (found.state, found.epoch, found.accuracy, found.seconds) == ("stopped", 1, 0.25, 2.0)


@pytest.mark.parametrize(
    "damage", [{"seconds": None}, {"epochs": "x"}, {"seconds": float("inf")}, {"seconds": 10**400}]
)
def test_a_result_without_its_length_is_a_result(damage: dict[str, Any], tmp_path: Path) -> None:
    (cell,) = cells(7)
    finish(cell, tmp_path)
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**read_json(path), **damage}))
    found = standing(cell, tmp_path)
    assert found.state == "done"
    assert (found.seconds == 0.0) == ("seconds" in damage)
    assert (found.epoch == 0) == ("epochs" in damage)


@pytest.mark.parametrize("value", ["x", None, float("nan"), True])
def test_a_result_whose_accuracy_is_no_number_is_not_done_and_says_so(value: object, tmp_path: Path) -> None:
    (alone,), (cell,) = cells(7), cells(7, readout=True)
    for readout in (False, True):
        finish(cell, tmp_path, readout=readout)
    path = tmp_path / "run" / "readout" / "result.json"
    result = read_json(path)
    path.write_text(json.dumps({**result, "reported": {**result["reported"], "accuracy": value}}))
    found = standing(cell, tmp_path)
    assert (found.state, "readout/result.json is not what a run writes" in found.error) == ("stopped", True)
    assert standing(alone, tmp_path).error == ""


def test_a_finished_stage_2_that_lost_its_settings_is_set_aside_like_a_broken_link(tmp_path: Path) -> None:
    (cell,) = cells(7, readout=True)
    for readout in (False, True):
        finish(cell, tmp_path, readout=readout)
    (tmp_path / "run" / "readout" / "config.json").unlink()
    assert standing(cell, tmp_path).state == "stopped"
    for _ in range(3):
        write_json(tmp_path / "failed.json", {"error": "x"})
        make_ready(tmp_path)
        assert not os.path.lexists(tmp_path / "run" / "readout")
        (tmp_path / "run" / "readout").symlink_to(tmp_path / "nowhere")
    assert (tmp_path / "failed-1" / "result.json").is_file()
    assert (tmp_path / "failed-2").is_symlink()
    assert (tmp_path / "failed-3").is_symlink()


@pytest.mark.parametrize("damage", [{"resumed": 5}, {"resumed": [5]}, {"data": 5}])
def test_an_environment_that_is_none_is_as_good_as_missing(damage: dict[str, Any], tmp_path: Path) -> None:
    (cell,) = cells(7)
    finish(cell, tmp_path, **damage)
    with pytest.raises(UserError, match=r"no environment\.json"):
        refuse_another(cell, tmp_path, None)


def test_a_finished_run_that_does_not_say_how_it_was_made_is_refused(tmp_path: Path) -> None:
    (cell,) = cells(7)
    finish(cell, tmp_path)
    (tmp_path / "run" / "environment.json").unlink()
    with pytest.raises(UserError, match=r"no environment\.json"):
        refuse_another(cell, tmp_path, None)
