"""The command: what it lists and adds, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up import another_run

from goodness.cli import main
from goodness.cli.terminal import out
from goodness.runs.store import rows


@pytest.fixture(scope="module")
def store(cell: Path, backprop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the command itself has filled: a cell with its Stage 2, a backpropagation run, two seeds more."""
    folder = tmp_path_factory.mktemp("results")
    another = [another_run(cell / "run", folder / f"s{seed}", seed) for seed in (1, 2)]
    runs = [str(path) for path in (cell, backprop, *another)]
    assert main(["results", "add", *runs, "--store", str(folder / "store"), "--batch", "one"]) == 0
    return folder / "store"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["results", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("width", [80, 140])
def test_the_list_fits_the_terminal(
    width: int, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "width", width)
    code, text, _ = run(capsys, "--store", str(store))
    assert code == 0
    assert max(map(len, text.splitlines())) <= width
    for row in rows(store):
        assert row["run"] in text
        assert f"{100 * row['accuracy']:.2f}" in text
    assert ("cumulative 1" in text) == (width == 140)


def test_filters_and_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def chosen(*arguments: str) -> set[tuple[str, int, str]]:
        code, text, _ = run(capsys, "--store", str(store), "--json", *arguments)
        assert code == 0
        return {(row["preset"], row["seed"], row["stage"]) for row in json.loads(text)}

    ours = {("cp-fair", 42, "s1"), ("cp-fair", 42, "s2"), ("cp-fair", 1, "s1"), ("cp-fair", 2, "s1")}
    assert chosen() == ours | {("bp-strong-dense", 42, "bp")}
    assert chosen("--preset", "cp-fair") == chosen("--data", "ten-blobs") == ours
    assert chosen("--seed", "2") == {("cp-fair", 2, "s1")}
    assert chosen("--preset", "cp-fair", "--seed", "42") == {("cp-fair", 42, "s1"), ("cp-fair", 42, "s2")}


def test_mistakes_end_with_2(store: Path, cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--store", str(tmp_path / "none")],
        ["--store", str(store), "--preset", "cp-fare"],
        ["--store", str(store), "--scale", "full"],
        ["--store", str(store), "--seed", "7"],
        ["add"],
        ["add", str(tmp_path / "none"), "--store", str(store)],
        ["add", str(cell), "--store", str(store)],
        ["add", str(cell), "--store", str(tmp_path / "new"), "--scale", "small"],
        ["add", str(cell), "--store", str(store), "--batch", "one"],
    ):
        code, _, error = run(capsys, *arguments)
        assert code == 2, arguments
        assert error
    assert not (tmp_path / "new").exists()


def test_a_damaged_store_ends_with_1(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "store"
    shutil.copytree(store, broken)
    (broken / "runs.csv").write_text("nothing\n")
    assert run(capsys, "--store", str(broken))[0] == 1


def test_adding_says_what_was_added_and_what_was_skipped(
    store: Path, cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown = tmp_path / "store"
    shutil.copytree(store, grown)
    another = another_run(cell / "run", tmp_path / "s9", 9)
    code, text, _ = run(capsys, "add", str(cell), str(another), "--store", str(grown), "--json")
    found = json.loads(text)
    assert code == 0
    assert [name.rpartition("-")[0] for name in found["runs"]] == ["cp-fair-ten-blobs-s9"]
    assert set(found["skipped"]) == {str(cell / "run"), str(cell / "run" / "readout")}
    with np.load(grown / "arrays" / f"{found['batch']}.npz", allow_pickle=False) as arrays:
        assert f"{found['runs'][0]}.test.network" in arrays


def test_the_committed_store_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "--store", str(Path(__file__).parents[3] / "results"))
    assert (code, error) == (0, "")
