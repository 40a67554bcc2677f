"""Runs beside each other: every number against a loop, and nothing averaged that does not belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goodness
from goodness.durable import read_json, write_json
from goodness.report.compare_runs import compare
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from tiny_runs import BLOBS, blobs_at_hand, shrunk


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    folder = tmp_path_factory.mktemp("runs")
    with blobs_at_hand():
        yield {
            f"{preset} {seed}": goodness.train(
                shrunk(preset, {**BLOBS, "seed": seed}), out=folder / f"{preset}-{seed}", device="cpu"
            )
            for preset in ("gamma0-dense", "lcff-dense")
            for seed in (1, 2)
        }


def scores(run: Run, name: str = "test") -> np.ndarray:
    return RunFolder.open(run.path, for_writing=False).read_predictions(name)["scores"].astype(float)


def labels(run: Run) -> np.ndarray:
    return RunFolder.open(run.path, for_writing=False).read_predictions("test")["labels"]


def test_seeds_form_a_group_with_mean_and_sample_spread(runs: dict[str, Run]) -> None:
    found = compare(list(runs.values()))
    assert [group["seeds"] for group in found["groups"]] == [[1, 2], [1, 2]]
    for group, preset in zip(found["groups"], ("gamma0-dense", "lcff-dense")):
        values = [runs[f"{preset} {seed}"].accuracy for seed in (1, 2)]
        expected = {"mean": np.mean(values), "std": np.std(values, ddof=1), "n": 2}
        assert group["accuracy"] == pytest.approx(expected)
        separations = [[block["sep_cur"] for block in runs[f"{preset} {s}"].result["health"]["test"]] for s in (1, 2)]
        assert [one["mean"] for one in group["sep_cur"]] == pytest.approx(np.mean(separations, axis=0).tolist())
    assert found["missing"] == []
    json.dumps(found)


def test_a_pair_is_compared_image_by_image_over_the_seeds_they_share(runs: dict[str, Run]) -> None:
    (pair,) = compare(list(runs.values()))["pairs"]
    a_only = b_only = differ = n = 0
    for seed in (1, 2):
        one, other = runs[f"gamma0-dense {seed}"], runs[f"lcff-dense {seed}"]
        for row_a, row_b, label in zip(scores(one), scores(other), labels(one)):
            right_a, right_b = row_a.argmax() == label, row_b.argmax() == label
            a_only += bool(right_a and not right_b)
            b_only += bool(right_b and not right_a)
            differ += bool(row_a.argmax() != row_b.argmax())
            n += 1
    assert (pair["a_only"], pair["b_only"], pair["n"]) == (a_only, b_only, n)
    assert pair["mean"] == pytest.approx((a_only - b_only) / n)
    assert pair["predictions_differ"] == pytest.approx(differ / n)
    assert pair["low"] <= pair["mean"] <= pair["high"]
    assert pair["stability_bound"] >= pair["predictions_differ"]
    assert pair["seeds"] == [1, 2]


def test_bands_count_the_close_calls(runs: dict[str, Run]) -> None:
    run = runs["lcff-dense 1"]
    (group,) = compare([run])["groups"]
    best = np.sort(scores(run), axis=1)
    margins = best[:, -1] - best[:, -2]
    for width, share in group["bands"].items():
        assert share == pytest.approx(float((margins <= float(width)).mean()))
    assert group["accuracy"]["std"] is None  # one seed has no spread


def test_tta_is_compared_with_tta(runs: dict[str, Run]) -> None:
    found = compare([runs["gamma0-dense 1"], runs["lcff-dense 1"]], tta=True)
    assert found["groups"][0]["accuracy"]["mean"] == runs["gamma0-dense 1"].result["reported"]["accuracy_tta"]
    one, other = (scores(runs[f"{name} 1"], "test_tta") for name in ("gamma0-dense", "lcff-dense"))
    assert found["pairs"][0]["predictions_differ"] == pytest.approx((one.argmax(1) != other.argmax(1)).mean())


def copied(run: Run, place: Path) -> Run:
    import shutil

    shutil.copytree(run.path, place)
    return Run(place)


def test_what_cannot_be_paired_is_said_and_the_rest_is_shown(runs: dict[str, Run], tmp_path: Path) -> None:
    one = runs["gamma0-dense 1"]
    without = copied(runs["lcff-dense 1"], tmp_path / "without")
    (without.path / "predictions_test.npz").unlink()
    found = compare([one, without])
    assert found["pairs"] == []
    assert any("no predictions 'test'" in line for line in found["missing"])
    assert found["groups"][1]["accuracy"] is not None  # result.json still has it

    unfinished = copied(runs["lcff-dense 1"], tmp_path / "unfinished")
    (unfinished.path / "result.json").unlink()
    found = compare([one, unfinished])
    assert any("goodness resume" in line for line in found["missing"])

    found = compare([one, runs["lcff-dense 2"]])
    assert found["pairs"] == []
    assert any("share no seed" in line and "the same --seed" in line for line in found["missing"])


def test_runs_on_other_images_or_in_another_order_are_never_paired(runs: dict[str, Run], tmp_path: Path) -> None:
    one, turned = runs["gamma0-dense 1"], copied(runs["lcff-dense 1"], tmp_path / "turned")
    file = turned.path / "predictions_test.npz"
    with np.load(file) as arrays:
        swapped: dict[str, Any] = {name: arrays[name][::-1] for name in arrays.files}
    np.savez(file, **swapped)
    found = compare([one, turned])
    assert found["pairs"] == []
    assert any("another order" in line for line in found["missing"])


def change(run: Run, name: str, **values: Any) -> None:
    file = run.path / name
    write_json(file, {**read_json(file), **values})


def test_runs_that_do_not_belong_together_are_left_out_and_named(runs: dict[str, Run], tmp_path: Path) -> None:
    first, second = runs["lcff-dense 1"], runs["lcff-dense 2"]

    def left_with(spoiled: Run, words: str) -> None:
        found = compare([first, spoiled])
        (group,) = found["groups"]
        assert group["accuracy"] == {"mean": first.accuracy, "std": None, "n": 1}
        assert any(f"{spoiled.path} is left out" in line and words in line for line in found["missing"]), found

    wrong = copied(second, tmp_path / "wrong")
    change(wrong, "result.json", reported={**second.result["reported"], "accuracy": 5.0})
    left_with(wrong, "its result has an accuracy of 5.0")

    swapped = copied(second, tmp_path / "swapped")
    (swapped.path / "predictions_test.npz").write_bytes((first.path / "predictions_test.npz").read_bytes())
    left_with(swapped, "its predictions")

    twin = copied(first, tmp_path / "twin")
    change(twin, "config.json", seed=2)
    left_with(twin, "so they are one training")

    other = copied(second, tmp_path / "other")
    change(other, "environment.json", data={"sha256": "f" * 64})
    left_with(other, f"its data are not those of {first.path}")

    found = compare([wrong, second, first])
    assert found["groups"][0]["accuracy"]["n"] == 2, "a sound run of the same seed stands in for one that is not"


def test_what_is_not_asked_for_may_be_missing(runs: dict[str, Run], tmp_path: Path) -> None:
    without = copied(runs["lcff-dense 1"], tmp_path / "without")
    (without.path / "predictions_test_tta.npz").unlink()
    found = compare([without, runs["gamma0-dense 1"]])
    assert found["missing"] == []
    assert len(found["pairs"]) == 1


def test_runs_of_other_versions_are_compared_and_said_to_be(runs: dict[str, Run], tmp_path: Path) -> None:
    older = copied(runs["lcff-dense 2"], tmp_path / "older")
    change(older, "environment.json", torch="2.0.0")
    found = compare([runs["lcff-dense 1"], older])
    assert found["groups"][0]["accuracy"]["n"] == 2
    assert any("different versions (torch: " in line and "2.0.0" in line for line in found["missing"])


def test_block_health_of_two_versions_is_not_averaged_and_the_accuracy_is(runs: dict[str, Run], tmp_path: Path) -> None:
    other = copied(runs["lcff-dense 2"], tmp_path / "other")
    change(other, "environment.json", health_version=2)
    (group,) = compare([runs["lcff-dense 1"], other])["groups"]
    assert (group["sep_cur"], group["accuracy"]["n"]) == (None, 2)
    assert compare([other])["groups"][0]["sep_cur"] is not None


def test_the_same_seed_twice_counts_once(runs: dict[str, Run], tmp_path: Path) -> None:
    twin = copied(runs["gamma0-dense 1"], tmp_path / "twin")
    found = compare([runs["gamma0-dense 1"], twin, runs["lcff-dense 1"]])
    assert any("is there already" in line for line in found["missing"])
    assert found["pairs"][0]["n"] == len(labels(twin))


def test_what_stage_2_was_to_follow_does_not_tell_runs_of_stage_1_apart(runs: dict[str, Run], tmp_path: Path) -> None:
    other = copied(runs["gamma0-dense 2"], tmp_path / "other")
    path = other.path / "config.json"
    config = read_json(path)
    write_json(path, {**config, "readout": {**config["readout"], "lr": 0.5}})
    found = compare([runs["gamma0-dense 1"], other])
    assert [group["seeds"] for group in found["groups"]] == [[1, 2]]
