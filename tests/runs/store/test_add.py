"""The store grows by appending, and what a killed `add` leaves does no harm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import another_run

from goodness.errors import RunError, UserError
from goodness.runs.run import Run
from goodness.runs.store import add, files, predictions, rows
from goodness.runs.store.columns import TABLES


def texts(store: Path) -> dict[str, str]:
    return {name: (store / f"{name}.csv").read_text() for name in TABLES}


def pool(cell: Path, folder: Path, seeds: range) -> Path:
    for seed in seeds:
        another_run(cell / "run", folder / f"s{seed}" / "run", seed)
    return folder


def test_rows_that_are_there_stay_as_they_are(cell: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    add([cell], store)
    before, arrays = texts(store), {file: file.read_bytes() for file in (store / "arrays").iterdir()}
    add([pool(cell, tmp_path / "pool", range(3))], store)
    assert all(texts(store)[name].startswith(text) for name, text in before.items())
    assert all(file.read_bytes() == content for file, content in arrays.items())
    assert len(rows(store)) == 5


def test_predictions_are_what_the_runs_file_held(cell: Path, tmp_path: Path) -> None:
    added = add([cell], tmp_path)
    for run, folder in zip(added.runs, (cell / "run", cell / "run" / "readout")):
        found = predictions(tmp_path, run)
        with np.load(folder / "predictions_blocks.npz") as held:
            assert found.keys() == set(held.files)
            for name in held.files:
                assert found[name].dtype == held[name].dtype
                np.testing.assert_array_equal(found[name], held[name])


def test_an_older_run_has_the_networks_predictions(cell: Path, tmp_path: Path) -> None:
    run = another_run(cell / "run", tmp_path / "run", 1)
    with np.load(run / "predictions_blocks.npz") as held:
        first, tta = held["test.first"][-1:], held["test.first_tta"][-1:]
    (run / "predictions_blocks.npz").unlink()
    (name,) = add([run], tmp_path / "store").runs
    found = predictions(tmp_path / "store", name)
    np.testing.assert_array_equal(found["test.first"], first)
    np.testing.assert_array_equal(found["test.first_tta"], tta)


def test_a_run_is_added_once(cell: Path, tmp_path: Path) -> None:
    add([cell / "run"], tmp_path / "store")
    before = texts(tmp_path / "store")
    with pytest.raises(UserError, match="cp-fair-ten-blobs-s42"):
        add([cell / "run"], tmp_path / "store")
    assert texts(tmp_path / "store") == before
    added = add([cell, pool(cell, tmp_path / "pool", range(2))], tmp_path / "store")
    assert len(added.runs) == 2
    assert set(added.skipped) == {str(cell / "run"), str(cell / "run" / "readout")}
    again = add([tmp_path / "pool"], tmp_path / "store")
    assert (again.batch, again.runs, len(again.skipped)) == ("", [], 2)


def test_of_several_runs_unfinished_and_damaged_ones_are_skipped(cell: Path, tmp_path: Path) -> None:
    folder = pool(cell, tmp_path / "pool", range(4))
    (folder / "s0" / "run" / "result.json").unlink()
    (folder / "s1" / "run" / "predictions_blocks.npz").write_bytes(b"torn")
    lines = (folder / "s2" / "run" / "metrics.jsonl").read_text().splitlines()
    (folder / "s2" / "run" / "metrics.jsonl").write_text(lines[0] + "\n")
    added = add([folder], tmp_path / "store")
    assert [row["seed"] for row in rows(tmp_path / "store")] == [3]
    assert set(added.skipped) == {str(folder / f"s{seed}" / "run") for seed in range(3)}
    with pytest.raises(UserError):
        add([folder / "s0"], tmp_path / "store")
    with pytest.raises(RunError, match="predictions_blocks"):
        add([folder / "s1"], tmp_path / "store")


def test_predictions_of_another_run_are_refused(cell: Path, tmp_path: Path) -> None:
    run = another_run(cell / "run", tmp_path / "run", 1)
    with np.load(run / "predictions_blocks.npz") as held:
        arrays = dict(held)
    arrays["test.first"] = (arrays["test.first"] + 1) % 10
    np.savez(run / "predictions_blocks.npz", **arrays)
    with pytest.raises(RunError, match="predictions_blocks"):
        add([run], tmp_path / "store")


@pytest.mark.parametrize("appends", [0, 1, 2])
def test_a_killed_add_is_made_good_by_the_next(
    appends: int, cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, done = tmp_path / "store", []
    add([another_run(cell / "run", tmp_path / "run", 1)], store)
    before, append = {name: rows(store, name) for name in TABLES}, files.Table.append

    def killed(table: files.Table, added: object) -> None:
        if len(done) == appends:
            with open(table.path, "a") as file:
                file.write("cp-fair-ten-blobs-s42-012")  # half a row
            raise KeyboardInterrupt
        done.append(table)
        append(table, added)  # type: ignore[arg-type]

    monkeypatch.setattr(files.Table, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        add([cell], store)
    assert {name: rows(store, name) for name in TABLES} == before
    monkeypatch.undo()
    add([cell], store)
    other = tmp_path / "other"
    add([tmp_path / "run"], other)
    add([cell], other)
    assert texts(store) == texts(other)
    assert {file.name for file in (store / "arrays").iterdir()} == {file.name for file in (other / "arrays").iterdir()}


def test_new_columns_go_to_the_end_and_old_rows_lack_them(
    cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add([cell / "run"], tmp_path)
    before = (tmp_path / "blocks.csv").read_text().splitlines()
    monkeypatch.setitem(TABLES, "blocks", (*TABLES["blocks"], "damping", "veto"))
    add([another_run(cell / "run", tmp_path / "run", 1)], tmp_path)
    after = (tmp_path / "blocks.csv").read_text().splitlines()
    assert after[0] == f"{before[0]},damping,veto"
    assert after[1 : len(before)] == before[1:]
    found = pd.read_csv(tmp_path / "blocks.csv")
    assert list(found.columns[-2:]) == ["damping", "veto"]
    assert len(found) == 8
    assert found["veto"].isna().all()
    assert found["sep_cur"].notna().all()
    assert rows(tmp_path, "blocks")[0]["veto"] is None


def test_both_headers_of_a_merge_are_made_one(cell: Path, tmp_path: Path) -> None:
    """One branch added columns, the other rows: git's union keeps both headers."""
    add([cell], tmp_path)
    before, place = rows(tmp_path, "blocks"), tmp_path / "blocks.csv"
    header, *lines = place.read_text().splitlines()
    place.write_text("\n".join([header, *lines[:2], f"{header},veto", *lines[2:], ""]))
    found = rows(tmp_path, "blocks")
    assert [{**row, "veto": None} for row in before] == found
    add([another_run(cell / "run", tmp_path / "run", 1)], tmp_path)
    assert len(pd.read_csv(place)) == 8
    place.write_text("\n".join([header, f"{header},veto", f"{header},damping", ""]))
    with pytest.raises(RunError, match="blocks"):
        rows(tmp_path, "blocks")


def test_a_batch_is_named_once(cell: Path, tmp_path: Path) -> None:
    assert add([cell / "run"], tmp_path / "store", batch="first").batch == "first"
    run = another_run(cell / "run", tmp_path / "run", 1)
    for name in ("first", "../first", ""):
        with pytest.raises(UserError):
            add([run], tmp_path / "store", batch=name)
    assert [file.name for file in (tmp_path / "store" / "arrays").iterdir()] == ["first.npz"]


def test_a_scale_that_is_given(cell: Path, tmp_path: Path) -> None:
    add([cell], tmp_path, scale="tiny")
    assert [row["scale"] for row in rows(tmp_path)] == ["tiny", "tiny"]


def test_a_readout_that_was_moved_still_names_its_backbone(cell: Path, tmp_path: Path) -> None:
    shutil.copytree(cell / "run" / "readout", tmp_path / "alone" / "readout")
    add([tmp_path / "alone" / "readout"], tmp_path / "store")
    (row,) = rows(tmp_path / "store")
    known = Run(cell / "run").result["weights_sha256"][:8]
    assert row["backbone"] == f"cp-fair-ten-blobs-s42-{known}"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError):
            add([place], tmp_path / "store")
    with pytest.raises(UserError):
        rows(tmp_path / "none")


def test_a_run_of_before_its_weights_had_a_hash_is_refused(cell: Path, tmp_path: Path) -> None:
    run = another_run(cell / "run", tmp_path / "run", 1)
    result = json.loads((run / "result.json").read_text())
    del result["weights_sha256"]
    (run / "result.json").write_text(json.dumps(result))
    (run / "health.json").unlink()
    with pytest.raises(RunError, match="weights_sha256"):
        add([run], tmp_path / "store")
