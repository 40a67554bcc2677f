"""The tables say what the runs' own files say, and pandas reads them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import another_run

from goodness.api import make_config
from goodness.config import to_dict
from goodness.paper.scales import SCALES
from goodness.runs.run import Run
from goodness.runs.store import add
from goodness.runs.store.add import detected_scale
from goodness.runs.store.columns import TABLES
from goodness.runs.store.rows import changes, config_sha256, epochs_with_blocks

PUBLISHED = Path(__file__).parents[3] / "results" / "paper-short"


def tables(store: Path) -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(store / f"{name}.csv") for name in TABLES}


def test_a_run_and_its_stage_2(cell: Path, tmp_path: Path) -> None:
    add([cell], tmp_path)
    found = tables(tmp_path)
    one, two = (found["runs"].iloc[place] for place in (0, 1))
    for row, run in ((one, Run(cell / "run")), (two, Run(cell / "run" / "readout"))):
        result = run.result
        assert row["accuracy"] == result["reported"]["accuracy"]
        assert row["accuracy_tta"] == result["reported"]["accuracy_tta"]
        assert row["top5"] == result["reported"]["top5"]
        assert row["run"] == f"cp-fair-ten-blobs-s42-{result['weights_sha256'][:8]}"
        for name in ("parameters", "steps", "seconds", "epochs"):
            assert row[name] == result[name], name
        (val,) = [
            line["top1"]
            for line in result["accuracy"]
            if (line["split"], line["tta"], line["weights"], line["blocks"]) == ("val", False, row["weights"], 2)
        ]
        assert row["val_accuracy"] == val
    assert (one["stage"], two["stage"], two["backbone"]) == ("s1", "s2", one["run"])
    assert pd.isna(one["backbone"])
    assert (one["method"], two["method"]) == ("cumulative", "readout")
    assert (one["test_images"], one["val_images"], one["classes"], one["blocks"]) == (40, 20, 10, 2)


def test_the_epochs_of_network_and_blocks(cell: Path, tmp_path: Path) -> None:
    add([cell / "run"], tmp_path)
    run, found = Run(cell / "run"), tables(tmp_path)
    rows = found["epochs"][found["epochs"]["run"] == found["runs"]["run"][0]].set_index(["epoch", "block"])
    for line in run.metrics:
        network = rows.loc[(line["epoch"] + 1, np.nan)]
        assert network["val_accuracy"] == line["val"]["accuracy"]
        assert network["seconds"] == line["seconds"]
        assert network["loss"] == pytest.approx(sum(block["loss"] for block in line["train"]["blocks"]), rel=1e-4)
        for depth, block in enumerate(line["train"]["blocks"]):
            row = rows.loc[(line["epoch"] + 1, depth)]
            for name in ("loss", "loss_aspects", "loss_router-z", "g_pos", "rule_weight", "grad_norm", "load_variance"):
                assert row[name] == pytest.approx(block[name], rel=1e-4), name
            assert row["val_sep_cur"] == pytest.approx(line["val"]["blocks"][depth]["sep_cur"], rel=1e-4)


def test_the_blocks_accuracies_and_health(cell: Path, tmp_path: Path) -> None:
    add([cell / "run"], tmp_path)
    rows = tables(tmp_path)["blocks"].set_index(["block", "split"])
    health = json.loads((cell / "run" / "health.json").read_text())
    with np.load(cell / "run" / "predictions_blocks.npz") as predicted:
        for split in ("test", "val"):
            for depth in range(2):
                row, labels = rows.loc[(depth, split)], predicted[f"{split}.labels"]
                for column, name in (("first", "first"), ("first_tta", "first_tta"), ("alone", "alone")):
                    share = (predicted[f"{split}.{name}"][depth] == labels).mean()
                    assert row[f"accuracy_{column}"] == pytest.approx(share), (split, depth, name)
                assert row["accuracy_without"] == (predicted[f"{split}.without"][depth] == labels).mean()
    assert rows.loc[(1, "test")]["accuracy_without"] == rows.loc[(0, "test")]["accuracy_first"]
    for depth, block in enumerate(health["blocks"]):
        row = rows.loc[(depth, "test")]
        assert row["sep_cur"] == pytest.approx(block["sep_cur"], rel=1e-4)
        assert row["aspects_align_sep"] == pytest.approx(block["aspects"]["align"]["sep"], rel=1e-4)
        assert row["routing_experts_effective"] == pytest.approx(block["routing"]["experts_effective"], rel=1e-4)
        assert row["verdict"] == health["verdict"][depth]["verdict"]


def test_every_measure_of_today_has_a_column(cell: Path, tmp_path: Path) -> None:
    """Where this fails a measure is new: give it a column, at the end of its list."""
    add([cell], tmp_path)
    found = tables(tmp_path)
    assert found["blocks"]["more"].isna().all()
    assert found["epochs"]["more"].isna().all()
    assert found["blocks"].loc[found["blocks"]["split"] == "test"].drop(columns="more").iloc[1].notna().all()


def test_a_measure_without_a_column_is_kept(cell: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    another_run(cell / "run", run, 5)
    result = json.loads((run / "result.json").read_text())
    result["health"]["val"][1]["sep_new"] = 0.125
    (run / "result.json").write_text(json.dumps(result))
    add([run], tmp_path / "store")
    rows = tables(tmp_path / "store")["blocks"].set_index(["block", "split"])
    assert rows.loc[(1, "val")]["more"] == "sep_new=0.125"


def test_a_run_of_backpropagation_has_no_blocks(backprop: Path, tmp_path: Path) -> None:
    add([backprop], tmp_path)
    found = tables(tmp_path)
    assert list(found["runs"]["stage"]) == ["bp"]
    assert list(found["runs"]["method"]) == ["backprop"]
    assert list(found["epochs"]["epoch"]) == [1, 2, 3]
    assert found["epochs"]["train_accuracy"].notna().all()
    assert found["blocks"].empty


@pytest.mark.parametrize("name", ["cifar100-gated-c75a0e-s42", "gamma0-12dbd5-s42", "bp-weak-f4130e-s42"])
def test_published_runs(name: str, tmp_path: Path) -> None:
    """Version 1, at the scale `short`, without what the blocks predicted."""
    add([PUBLISHED / name], tmp_path)
    found = tables(tmp_path)
    result = Run(PUBLISHED / name / "run").result
    row = found["runs"].iloc[0]
    assert row["accuracy"] == result["reported"]["accuracy"]
    assert (row["scale"], row["method_version"], row["device"]) == ("short", 1, "NVIDIA H200")
    stages = {"cifar100-gated-c75a0e-s42": ["s1", "s2"], "gamma0-12dbd5-s42": ["s1"], "bp-weak-f4130e-s42": ["bp"]}
    assert list(found["runs"]["stage"]) == stages[name]
    assert found["blocks"]["accuracy_alone"].isna().all()


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("preset", ["cp-fair", "bp-strong", "cifar100-gated"])
def test_the_scale_of_a_configuration(scale: str, preset: str, tmp_path: Path) -> None:
    config = make_config(preset, {**SCALES[scale].overrides(preset), "seed": 7})
    assert detected_scale(with_config(tmp_path, {**to_dict(config), "stage": "s1"})) == scale
    assert detected_scale(with_config(tmp_path, {**to_dict(config), "stage": "s1", "beta": 3.0})) == ""
    assert detected_scale(with_config(tmp_path, {**to_dict(config), "stage": "s1", "preset": "mine"})) == ""


def with_config(folder: Path, config: dict[str, Any]) -> Run:
    (folder / "config.json").write_text(json.dumps(config))
    return Run(folder)


def test_changes_are_those_of_the_stage_and_name_no_folder() -> None:
    config = make_config("cp-fair", {"optim.lr": 0.002, "optim.sam": 0.0, "data": "folder:/home/me/cats", "seed": 3})
    assert changes(config, "s1") == "data=folder:cats optim.lr=0.002 optim.sam=0.0"
    other = make_config("cp-fair", {"readout.epochs": 3})
    assert changes(other, "s1") == ""
    assert changes(other, "s2") == "readout.epochs=3"


def test_the_configurations_hash_is_the_same_for_all_seeds_and_folders() -> None:
    def of(**changed: Any) -> str:
        return config_sha256(make_config("cp-fair", changed), "s1")

    assert of(seed=1) == of(seed=2)
    assert of() == of(**{"keep.evaluate_every": 7, "readout.lr": 0.5})
    assert of(data="folder:/home/me/cats") == of(data="folder:/data/cats")
    assert of() != of(beta=3.0)


def test_no_row_names_a_place_of_this_machine(cell: Path, backprop: Path, tmp_path: Path) -> None:
    add([cell, backprop], tmp_path)
    for name in TABLES:
        text = (tmp_path / f"{name}.csv").read_text()
        assert "/" not in text
        assert str(Path.home()) not in text


@pytest.mark.parametrize(("epochs", "every"), [(5, 1), (12, 4), (30, 1), (31, 1), (362, 1), (362, 5), (100, 200)])
def test_blocks_have_rows_of_at_most_thirty_epochs(epochs: int, every: int) -> None:
    lines: list[dict[str, Any]] = [{"epoch": epoch} for epoch in range(epochs)]
    judged = [epoch for epoch in range(epochs) if (epoch + 1) % every == 0 or epoch + 1 == epochs]
    for epoch in judged:
        lines[epoch]["val"] = {}
    chosen = epochs_with_blocks(lines)
    assert len(chosen) == min(30, epochs)
    assert {judged[0], judged[-1]} <= chosen
    assert len(chosen & set(judged)) == min(30, len(judged))


def test_the_code_in_the_readme_runs(cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add([cell / "run"], tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    _, *parts = (PUBLISHED.parent / "README.md").read_text().split("```python\n")
    table, arrays = (part.partition("```")[0] for part in parts)
    exec(table, {})
    named: dict[str, Any] = {}
    exec(arrays, named)
    with np.load(cell / "run" / "predictions_blocks.npz") as held:
        for name in ("first", "alone", "without", "first_tta"):
            np.testing.assert_array_equal(named[name], held[f"test.{name}"])
        np.testing.assert_array_equal(named["places"], held["test.indices"])
