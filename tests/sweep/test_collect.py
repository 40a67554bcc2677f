"""Means by hand; and nothing averaged that does not belong together."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cells import begin, cells, finish

from goodness.durable import read_json, write_json
from goodness.errors import UserError
from goodness.runs.predictions import Predicted
from goodness.sweep.cell import CellFolder
from goodness.sweep.collect import collect
from goodness.sweep.tables import as_dict, csv_text, markdown, write_results
from tiny_runs import blobs_at_hand


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_a_row_is_the_mean_over_its_seeds(tmp_path: Path) -> None:
    both = cells(1, 2, 5) + cells(1, 2, changes={"rule": "lcff"}, name="LCFF")
    for cell in both:
        finish(cell, tmp_path / cell.folder_name)
    results = collect(both, tmp_path)
    assert results.is_complete
    assert [row.name for row in results.rows] == ["demo", "LCFF"]
    first, second = results.rows
    assert first.scores["s1"] == (pytest.approx(8 / 300), pytest.approx(statistics.stdev([0.01, 0.02, 0.05])), 3)
    assert second.scores["s1_tta"].mean == pytest.approx(0.025)
    text = markdown(results)
    assert "| demo | 1 2 5 | 2.67 ± 2.08 % (n = 3) | 3.67 ± 2.08 % (n = 3) |" in text
    assert "Stage 2" not in text
    assert "on a slide rule" in text
    assert "- every run with data blobs, epochs 4\n" in text
    assert results.run("demo", 5).accuracy == 0.05
    with pytest.raises(UserError, match="no cell 'LCFF' with seed 5"):
        results.run("LCFF", 5)


def test_stage_2_has_columns_of_its_own(tmp_path: Path) -> None:
    both = cells(1, 2, readout=True)
    for cell in both:
        finish(cell, tmp_path / cell.folder_name)
        finish(cell, tmp_path / cell.folder_name, 0.5, readout=True)
    (row,) = collect(both, tmp_path).rows
    assert row.scores["s1"].mean == pytest.approx(0.015)
    assert row.scores["s2"] == (0.5, 0.0, 2)
    assert "| Stage 2 | Stage 2 with TTA |" in markdown(collect(both, tmp_path))


def test_a_stage_2_of_other_settings_is_not_averaged_and_its_stage_1_is(tmp_path: Path) -> None:
    name = cells(1, readout=True)[0].folder_name
    (other,) = cells(1, changes={"readout.lr": 0.5}, readout=True)
    for readout in (False, True):
        finish(other, tmp_path / name, 0.5, readout=readout)
    (both,) = collect(cells(1, readout=True), tmp_path).rows
    assert both.scores == {}
    assert "readout.lr 0.5, not 0.001" in both.cells[0].trouble
    (alone,) = collect(cells(1), tmp_path).rows
    assert alone.scores["s1"] == (0.5, None, 1)


def test_missing_seeds_are_said_to_be(tmp_path: Path) -> None:
    asked = cells(1, 2, 3, 4)
    finish(asked[0], tmp_path / asked[0].folder_name)
    begin(asked[1], tmp_path / asked[1].folder_name)
    (tmp_path / asked[2].folder_name).mkdir()
    write_json(tmp_path / asked[2].folder_name / "failed.json", {"error": "KeyError: 'a'"})
    results = collect(asked, tmp_path)
    (row,) = results.rows
    assert row.status == "incomplete"
    assert not results.is_complete
    assert [(cell.seed, cell.trouble) for _, cell in results.missing] == [
        (2, "stopped"),
        (3, "KeyError: 'a'"),
        (4, "waiting"),
    ]
    text = markdown(results)
    assert "1.00 % (1 of 4, incomplete)" in text
    assert "seed 3: missing (KeyError: 'a')" in text
    assert collect(cells(8), tmp_path).rows[0].scores == {}


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"torch": "1.0"}, "torch: "),
        ({"method_version": 2}, "cumulative: 1 and 2"),
        ({"resumed": [{"method_version": 2}]}, "cumulative: 1 and 1 then 2"),
        ({"dtype": "bfloat16"}, "dtype: float32 and bfloat16"),
        ({"resumed": [{"torch": "1.0"}]}, "torch: "),
        ({"data": {"sha256": "e" * 64}}, "data: "),
        ({"epochs": 3}, "epochs of s1: 4 and 3"),
        ({"indices": (2, 1, 0)}, "test images and their order: "),
    ],
)
def test_runs_of_two_kinds_have_no_mean(tmp_path: Path, odd: dict[str, Any], words: str) -> None:
    asked = cells(1, 2, 3)
    for cell in asked:
        finish(cell, tmp_path / cell.folder_name, **(odd if cell.seed == 2 else {}))
    results = collect(asked, tmp_path)
    (row,) = results.rows
    assert row.status == "refused"
    assert row.scores == {}
    assert words in "; ".join(row.trouble)
    assert not results.is_complete
    assert "| refused |" in markdown(results)
    assert "not averaged, its runs are not of one kind (" in markdown(results)


def test_one_version_of_a_method_is_averaged_whatever_commit_and_package_it_is_from(tmp_path: Path) -> None:
    asked = cells(1, 3)
    for cell in asked:
        facts = {"commit": f"{cell.seed:040d}", "goodness": f"0.{cell.seed}.0"}
        finish(cell, tmp_path / cell.folder_name, **facts)
    (row,) = collect(asked, tmp_path).rows
    assert (row.status, row.scores["s1"].n, row.notes) == ("complete", 2, ())


def test_other_versions_can_be_accepted_and_are_told(tmp_path: Path) -> None:
    asked = cells(1, 3)
    for cell in asked:
        finish(cell, tmp_path / cell.folder_name, torch=f"1.{cell.seed}")
    (row,) = collect(asked, tmp_path, mixed_versions=True).rows
    assert row.scores["s1"].mean == pytest.approx(0.02)
    assert "its runs are not of one version (torch: 1.1 and 1.3)" in markdown(
        collect(asked, tmp_path, mixed_versions=True)
    )
    finish(asked[0], tmp_path / asked[0].folder_name, torch="1.1", indices=(2, 1, 0))
    assert collect(asked, tmp_path, mixed_versions=True).rows[0].status == "refused"


def test_rows_with_other_test_images_do_not_stand_beside_each_other(tmp_path: Path) -> None:
    one, other = cells(1, 2), cells(1, 2, changes={"rule": "lcff"}, name="LCFF")
    for cell in one + other:
        finish(cell, tmp_path / cell.folder_name, indices=(0, 1, 2) if cell in one else (2, 0, 1))
    first, second = collect(one + other, tmp_path).rows
    assert first.status == "complete"
    assert second.status == "refused"
    assert second.trouble == ("test images and their order: not those of demo",)


def test_a_run_with_other_settings_does_not_count(tmp_path: Path) -> None:
    asked, (other,) = cells(1, 2), cells(2, changes={"optim.lr": 0.5})
    finish(asked[0], tmp_path / asked[0].folder_name)
    finish(other, tmp_path / asked[1].folder_name)
    (row,) = collect(asked, tmp_path).rows
    assert row.status == "incomplete"
    assert "optim.lr 0.5, not 0.006" in row.cells[1].trouble


@pytest.mark.parametrize("name", ["predictions_test.npz", "environment.json"])
def test_a_run_robbed_of_a_file_does_not_count(tmp_path: Path, name: str) -> None:
    asked = cells(1, 2)
    for cell in asked:
        finish(cell, tmp_path / cell.folder_name)
    (tmp_path / asked[1].folder_name / "run" / name).unlink()
    (row,) = collect(asked, tmp_path).rows
    assert row.status == "incomplete"
    assert row.cells[1].trouble


def test_the_files_say_the_same(tmp_path: Path) -> None:
    asked = cells(1, 2)
    for cell in asked:
        finish(cell, tmp_path / cell.folder_name)
    results = collect(asked, tmp_path)
    write_results(results, tmp_path)
    assert (tmp_path / "results.md").read_text() == markdown(results)
    (line,) = csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text()))
    assert float(line["s1_mean"]) == results.rows[0].scores["s1"].mean
    assert (line["n"], line["wanted"], line["status"], line["s2_mean"]) == ("2", "2", "complete", "")
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == json.loads(json.dumps(as_dict(results)))
    assert written["rows"][0]["cells"][1]["weights_sha256"] == f"{2:064d}"
    assert csv_text(results).count("\n") == 2


def test_one_training_under_two_seeds_has_no_mean_whatever_its_stage_2(tmp_path: Path) -> None:
    both = cells(1, 2, readout=True)
    for cell in both:
        finish(cell, tmp_path / cell.folder_name)
        finish(cell, tmp_path / cell.folder_name, readout=True)
    assert collect(both, tmp_path).rows[0].status == "complete"
    path = CellFolder(tmp_path / both[1].folder_name).run.path / "result.json"
    write_json(path, {**read_json(path), "weights_sha256": f"{1:064d}"})
    assert collect(both, tmp_path).rows[0].status == "refused"


def test_images_are_the_same_only_with_the_same_labels_in_the_same_order() -> None:
    one = Predicted(np.array([1, 2]), np.array([1, 1]), np.array([4, 7]))
    assert one.is_of_same_images(Predicted(np.array([0, 0]), np.array([1, 1]), np.array([4, 7])))
    assert not one.is_of_same_images(Predicted(one.classes, np.array([1, 0]), one.indices))
    assert not one.is_of_same_images(Predicted(one.classes, one.labels, np.array([7, 4])))
