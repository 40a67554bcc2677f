"""Files of two runs that were mixed in one folder are found out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import goodness
from goodness.durable import read_json, write_json
from goodness.errors import RunError
from goodness.runs.consistency import refuse_mixed_files
from goodness.runs.run import Run
from tiny_runs import BLOBS, blobs_at_hand, shrunk


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Run]]:
    """Two rules, the first with a readout."""
    folder = tmp_path_factory.mktemp("runs")
    with blobs_at_hand():
        both = [
            goodness.train(shrunk(preset, {**BLOBS, "readout.epochs": 1}), out=folder / preset, device="cpu")
            for preset in ("gamma0-dense", "lcff-dense")
        ]
        goodness.readout(both[0].path, device="cpu")
        yield both[0], both[1]


@pytest.fixture
def copy(runs: tuple[Run, Run], tmp_path: Path) -> Run:
    return Run(shutil.copytree(runs[0].path, tmp_path / "copy"))


def test_the_files_of_one_run_hold_together(runs: tuple[Run, Run]) -> None:
    for run in runs:
        assert refuse_mixed_files(run)["accuracy"] == run.accuracy
    readout = runs[0].readout
    assert readout is not None
    assert refuse_mixed_files(readout, runs[0])["accuracy"] == readout.accuracy


def test_epochs_of_another_run_are_found_out(runs: tuple[Run, Run], copy: Run) -> None:
    lines = [json.loads(line) for line in (copy.path / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["val"]["accuracy"] += 0.05
    (copy.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(
        RunError, match=r"metrics\.jsonl is damaged, or of another training than its result\.json; .*rm -r"
    ):
        refuse_mixed_files(copy)
    write_json(copy.path / "result.json", {key: value for key, value in copy.result.items() if key != "epochs_sha256"})
    with pytest.raises(RunError, match=r"metrics\.jsonl and of .* in result\.json, so they are of two runs; .*rm -r"):
        refuse_mixed_files(copy)
    lines[-1]["val"]["accuracy"] -= 0.05 - 1e-7  # as a publication rounds it
    (copy.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    refuse_mixed_files(copy)
    (copy.path / "metrics.jsonl").write_text("")
    refuse_mixed_files(copy)  # whoever needs what is missing says so


def test_epochs_that_are_gone_are_found_out(copy: Run) -> None:
    place = copy.path / "metrics.jsonl"
    first, *others = place.read_text().splitlines(keepends=True)
    for kept in ([first], others, [first, first, *others]):
        place.write_text("".join(kept))
        with pytest.raises(RunError, match=rf"metrics\.jsonl is damaged \({len(kept)} of {len(others) + 1} epochs\)"):
            refuse_mixed_files(copy)


def test_epochs_are_held_against_the_result_whatever_their_accuracy(runs: tuple[Run, Run], copy: Run) -> None:
    """One number of the first epoch differs; how long it took is no matter."""
    place = copy.path / "metrics.jsonl"
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    lines[0]["seconds"] += 100
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refuse_mixed_files(copy)
    lines[0]["train"]["blocks"][0]["sep_cur_mined"] += 1e-6
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged, or of another training"):
        refuse_mixed_files(copy)


def test_more_epochs_than_the_result_has_are_found_out(copy: Run) -> None:
    lines = (copy.path / "metrics.jsonl").read_text().splitlines()
    later = {**json.loads(lines[-1]), "epoch": len(lines)}
    (copy.path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in [*lines, json.dumps(later)]))
    write_json(copy.path / "result.json", {key: value for key, value in copy.result.items() if key != "epochs_sha256"})
    with pytest.raises(RunError, match=rf"it has {len(lines) + 1} epochs in metrics\.jsonl and {len(lines)} in result"):
        refuse_mixed_files(copy)


def test_block_health_of_another_run_is_found_out(runs: tuple[Run, Run], copy: Run) -> None:
    shutil.copy(runs[1].path / "health.json", copy.path)
    with pytest.raises(RunError, match=r"its health\.json is of another training than its result\.json; .*rm -r"):
        refuse_mixed_files(copy)
    older = read_json(copy.path / "health.json")
    write_json(copy.path / "health.json", {key: value for key, value in older.items() if key != "weights_sha256"})
    refuse_mixed_files(copy)  # an older one does not say
    (copy.path / "health.json").unlink()
    refuse_mixed_files(copy)  # whoever needs what is missing says so


def test_a_readout_of_another_training_is_found_out(copy: Run) -> None:
    readout = copy.readout
    assert readout is not None
    write_json(copy.path / "result.json", {**copy.result, "weights_sha256": "0" * 64})
    with pytest.raises(RunError, match="was trained on another run than"):
        refuse_mixed_files(readout, copy)
    older = readout.path / "backbone.json"
    write_json(older, {key: value for key, value in read_json(older).items() if key != "trained"})
    refuse_mixed_files(readout, copy)  # an older one does not say


def test_a_finished_run_without_predictions_says_how_it_is_made_good(copy: Run) -> None:
    for file in copy.path.glob("predictions_*.npz"):
        file.unlink()
    with pytest.raises(RunError, match=r"is finished and its predictions are of no use.*remove it to train it anew"):
        refuse_mixed_files(copy)
