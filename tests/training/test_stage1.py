"""What a run leaves behind says what happened: every number in it can be computed again from the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import goodness
from goodness.api import load_data
from goodness.data.images import ImageData, fingerprint
from goodness.errors import UserError
from goodness.methods.cumulative.evidence import block_goodness_by_label
from goodness.runs.checkpoint import Checkpoints
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.tensor_file import weights_sha256
from goodness.training.stage1 import Stage1, build_network
from goodness.training.step import Stepper
from tiny_runs import BLOBS, blobs_at_hand, shrunk, what_a_run_leaves


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(scope="module")
def seen() -> list[list[Any]]:
    """The measures of every step of the `flipping` run, as the stepper gave them."""
    return []


@pytest.fixture(scope="module")
def flipping(tmp_path_factory: pytest.TempPathFactory, seen: list[list[Any]]) -> Run:
    """A run on data that may be mirrored, with a rate so high that the best epoch is not the last."""
    plain = Stepper.step

    def recording(self: Stepper, *arguments: Any) -> Any:
        seen.append(plain(self, *arguments))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "step", recording)
        config = shrunk("cp-fair-dense", {**BLOBS, "seed": 2, "optim.lr": 0.05, "optim.ema": 0.5})
        return goodness.train(config, out=tmp_path_factory.mktemp("flipping") / "run", device="cpu")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The demo's preset, shrunk, on data that may not be mirrored and has ten classes."""
    config = shrunk("demo", {"epochs": 5, "batch": 360, "keep.evaluate_every": 2})
    return goodness.train(config, out=tmp_path_factory.mktemp("digits") / "run", device="cpu")


def data_of(run: Run) -> ImageData:
    return load_data(run.config)


def scores_by_hand(run: Run, weights: str, split: str, blocks: int, mirrored: bool) -> torch.Tensor:
    """Class scores from the weight file: one label at a time, the flip average written out."""
    network = run.network(weights)
    images = data_of(run).split(split).images.float() / 255
    goodness = block_goodness_by_label(network, images)
    if mirrored:
        goodness = (goodness + block_goodness_by_label(network, images.flip(-1))) / 2
    return goodness[:blocks].sum(dim=0)


# metrics.jsonl


def test_there_is_a_line_per_epoch_with_every_blocks_numbers(flipping: Run, digits: Run) -> None:
    for run in (flipping, digits):
        config, lines = run.config, run.metrics
        assert [line["epoch"] for line in lines] == list(range(config.epochs))
        for line in lines:
            blocks = line["train"]["blocks"]
            assert len(blocks) == config.model.blocks
            for block in blocks:
                assert {f"loss_{name}" for name in config.objective} <= block.keys()
                assert {"loss", "g_pos", "g_nl", "g_ni", "sep_cur_mined", "sep_rate", "attenuation"} <= block.keys()
                assert {"rule_weight", "grad_norm"} <= block.keys()
                shares = [block[f"aspect_{name}"] for name in ("align", "energy", "sharpness", "learned")]
                assert sum(shares) == pytest.approx(1)
        seconds = [line["seconds"] for line in lines]
        assert seconds == sorted(seconds)


def test_the_noted_numbers_are_the_means_over_the_epochs_steps(flipping: Run, seen: list[list[Any]]) -> None:
    assert len(seen) == 9  # 50 images, 16 at a time, three epochs
    for epoch, line in enumerate(flipping.metrics):
        for depth, block in enumerate(line["train"]["blocks"]):
            steps = [dict(zip(names, values.tolist())) for names, values in (s[depth] for s in seen[3 * epoch :][:3])]
            for name in steps[0]:
                assert block[name] == pytest.approx(sum(step[name] for step in steps) / 3, rel=1e-6, abs=1e-9)


def test_validation_comes_every_so_many_epochs_and_at_the_end(flipping: Run, digits: Run) -> None:
    assert ["val" in line for line in flipping.metrics] == [True] * 3
    assert ["val" in line for line in digits.metrics] == [False, True, False, True, True]
    for line in flipping.metrics:
        assert line["val"]["n"] == 20
        assert len(line["val"]["blocks"]) == 2
        assert {"sep_cur", "sep", "sep_rate", "attenuation", "accuracy"} <= line["val"]["blocks"][0].keys()


# result.json


def test_the_accuracy_rows_cover_weights_splits_depths_and_mirroring_where_the_data_allows_it(
    flipping: Run, digits: Run
) -> None:
    for run, ttas, sizes in (
        (flipping, (False, True), {"val": 20, "test": 40}),
        (digits, (False,), {"val": 120, "test": 597}),
    ):
        rows = run.result["accuracy"]
        found = [(row["weights"], row["split"], row["tta"], row["blocks"]) for row in rows]
        assert sorted(found) == sorted(itertools.product(("best", "last"), ("val", "test"), ttas, (1, 2)))
        assert all(row["n"] == sizes[row["split"]] and row["stage"] == "s1" for row in rows)


def test_every_accuracy_row_can_be_computed_again_from_the_weight_files(flipping: Run) -> None:
    for row in flipping.result["accuracy"]:
        labels = data_of(flipping).split(row["split"]).labels
        scores = scores_by_hand(flipping, row["weights"], row["split"], row["blocks"], row["tta"])
        assert row["top1"] == pytest.approx(float((scores.argmax(dim=1) == labels).double().mean())), row


def test_top5_stands_only_where_there_are_ten_classes(flipping: Run, digits: Run) -> None:
    assert not any("top5" in row for row in flipping.result["accuracy"])
    assert "top5" not in flipping.result["reported"]
    labels = data_of(digits).test.labels
    ranked = scores_by_hand(digits, "last", "test", 2, False).argsort(dim=1, descending=True)[:, :5]
    expected = float((ranked == labels[:, None]).any(dim=1).double().mean())
    assert digits.result["reported"]["top5"] == pytest.approx(expected)
    assert expected > digits.result["reported"]["accuracy"]


def test_the_headline_is_the_row_of_the_reported_weights_on_the_test_split_with_all_blocks(
    flipping: Run, digits: Run
) -> None:
    assert flipping.config.keep.report == flipping.result["reported"]["weights"] == "best"
    assert digits.config.keep.report == digits.result["reported"]["weights"] == "last"
    for run in (flipping, digits):
        reported = run.result["reported"]
        rows = {
            row["tta"]: row["top1"]
            for row in run.result["accuracy"]
            if (row["weights"], row["split"], row["blocks"]) == (reported["weights"], "test", 2)
        }
        assert run.accuracy == reported["accuracy"] == rows[False]
        assert reported.get("accuracy_tta") == rows.get(True)


def test_best_is_the_latest_of_the_epochs_with_the_highest_validation_accuracy(flipping: Run, digits: Run) -> None:
    for run in (flipping, digits):
        accuracies = {line["epoch"]: line["val"]["accuracy"] for line in run.metrics if "val" in line}
        highest = max(accuracies.values())
        best = run.result["weights"]["best"]["epoch"]
        assert best == max(epoch for epoch, accuracy in accuracies.items() if accuracy == highest)
        assert run.result["weights"]["last"]["epoch"] == run.config.epochs - 1
        assert goodness.evaluate(run.path, split="val", weights="best", device="cpu")["accuracy"] == pytest.approx(
            highest
        )
        last = goodness.evaluate(run.path, split="val", weights="last", device="cpu")["accuracy"]
        assert last == pytest.approx(run.metrics[-1]["val"]["accuracy"])
    assert flipping.result["weights"]["best"]["epoch"] < 2, "else best and last would be the same weights"
    best, last = (flipping.network(name).state_dict() for name in ("best", "last"))
    assert any(not torch.equal(best[name], last[name]) for name in best)


def test_of_equally_good_epochs_the_latest_is_best_and_judged_once_with_the_last(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, read = Stage1.readings, []
    monkeypatch.setattr(Stage1, "readings", lambda self, images: read.append(len(images)) or plain(self, images))
    run = goodness.train(
        shrunk("demo", {**BLOBS, "optim.lr": 1e-9, "keep.evaluate_every": 1}), out=tmp_path / "run", device="cpu"
    )
    assert len({line["val"]["accuracy"] for line in run.metrics}) == 1, "a rate this small changes no prediction"
    assert run.result["weights"]["best"]["epoch"] == 2
    data = load_data(run.config)
    views = 2 if data.flips else 1
    assert read == 3 * [len(data.val)] + views * [len(data.val)] + views * [len(data.test)]
    of = {name: [row for row in run.result["accuracy"] if row["weights"] == name] for name in ("best", "last")}
    assert [{**row, "weights": "last"} for row in of["best"]] == of["last"]
    assert len(of["last"]) == 2 * views * len(run.network().blocks)


def test_the_weights_hash_is_of_the_final_network_and_teacher(flipping: Run) -> None:
    found = Checkpoints(flipping.path / "checkpoints").latest()
    assert found is not None
    tensors, state = found
    learned = {name: value for name, value in tensors.items() if name.startswith(("network.", "teacher."))}
    assert flipping.result["weights_sha256"] == weights_sha256(learned)
    assert state["position"]["epoch"] == 3
    last = flipping.network("last").state_dict()
    assert last.keys() == {name.removeprefix("teacher.") for name in learned if name.startswith("teacher.")}
    assert all(torch.equal(value, learned[f"teacher.{name}"]) for name, value in last.items())
    best = flipping.network("best").state_dict()
    assert all(torch.equal(value, tensors[f"best.{name}"]) for name, value in best.items())


def test_the_result_counts_parameters_epochs_and_steps(flipping: Run) -> None:
    result, network = flipping.result, build_network(flipping.config, data_of(flipping))
    assert result["parameters"] == sum(parameter.numel() for parameter in network.parameters())
    assert (result["epochs"], result["steps"]) == (3, 9)
    assert result["seconds"] >= flipping.metrics[-1]["seconds"] > 0
    assert result["health"].keys() == {"val", "test"}
    full = {
        row["blocks"]: row["top1"]
        for row in result["accuracy"]
        if row["weights"] == "best" and row["split"] == "test" and not row["tta"]
    }
    assert [block["accuracy"] for block in result["health"]["test"]] == [full[1], full[2]]


# predictions


def test_the_kept_predictions_reproduce_the_reported_accuracy(flipping: Run, digits: Run) -> None:
    for run, names in ((flipping, {"test": False, "test_tta": True}), (digits, {"test": False})):
        found = {file.name for file in run.path.glob("*.npz")}
        assert found == {f"predictions_{name}.npz" for name in (*names, "blocks")}
        reported, test = run.result["reported"], data_of(run).test
        for name, mirrored in names.items():
            kept = RunFolder.open(run.path, for_writing=False).read_predictions(name)
            assert np.array_equal(kept["labels"], test.labels.numpy())
            assert np.array_equal(kept["indices"], test.indices.numpy())
            assert kept["scores"].shape == (len(test), len(data_of(run).classes))
            accuracy = float((kept["scores"].argmax(axis=1) == kept["labels"]).mean())
            assert accuracy == pytest.approx(reported["accuracy_tta" if mirrored else "accuracy"])
            by_hand = scores_by_hand(run, reported["weights"], "test", 2, mirrored)
            np.testing.assert_allclose(kept["scores"], by_hand.numpy(), rtol=1e-4, atol=1e-5)


# evaluate()


def test_evaluate_finds_what_the_result_says(flipping: Run, digits: Run) -> None:
    for run in (flipping, digits):
        for row in run.result["accuracy"]:
            found = goodness.evaluate(
                run.path,
                split=row["split"],
                weights=row["weights"],
                blocks=row["blocks"],
                tta=row["tta"],
                device="cpu",
            )
            expected = {"accuracy": row["top1"], "n": row["n"], "blocks_used": row["blocks"], "tta": row["tta"]}
            assert {key: found[key] for key in expected} == expected
            assert found.get("top5") == row.get("top5")
    found = goodness.evaluate(flipping.path, device="cpu")
    assert (found["accuracy"], found["split"], found["weights"]) == (flipping.accuracy, "test", "best")
    assert found["blocks"] == flipping.result["health"]["test"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({"split": "tset"}, "unknown split 'tset'; choose train, val or test"),
        ({"weights": "middle"}, "no 'middle' weights; it has last and best"),
        ({"blocks": 3}, r"--blocks must lie in 1\.\.2, got 3"),
        ({"blocks": 0}, r"--blocks must lie in 1\.\.2, got 0"),
        ({"tta": True}, "digits has no flip TTA"),
    ],
)
def test_evaluate_refuses_what_the_run_does_not_have(digits: Run, question: dict[str, Any], answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        goodness.evaluate(digits.path, device="cpu", **question)


# Other shapes of a run


def test_without_a_validation_split_there_is_no_best_and_the_last_weights_are_reported(tmp_path: Any) -> None:
    config = shrunk("demo", {**BLOBS, "epochs": 1, "val": 0, "keep.report": "best"})
    run = goodness.train(config, out=tmp_path / "run", device="cpu")
    assert run.result["reported"]["weights"] == "last"
    assert run.result["weights"].keys() == {"last"}
    assert {row["split"] for row in run.result["accuracy"]} == {"test"}
    assert "val" not in run.metrics[0]
    assert run.result["steps"] == 4, "70 images now, 16 at a time"
    with pytest.raises(UserError, match="blobs has no val split here"):
        goodness.evaluate(run.path, split="val", device="cpu")
    with pytest.raises(UserError, match="no 'best' weights; it has last"):
        goodness.evaluate(run.path, weights="best", device="cpu")


def test_ten_classes_have_a_top5_and_mirrored_ones_too(tmp_path: Any) -> None:
    run = goodness.train(
        shrunk("demo", {**BLOBS, "data": "ten-blobs", "epochs": 1}), out=tmp_path / "run", device="cpu"
    )
    assert {"top5", "top5_tta", "accuracy_tta"} <= run.result["reported"].keys()


def test_a_batch_larger_than_the_training_split_takes_all_of_it(tmp_path: Any) -> None:
    run = goodness.train(shrunk("demo", {**BLOBS, "batch": 1000, "epochs": 2}), out=tmp_path / "run", device="cpu")
    assert run.result["steps"] == 2
    assert len(run.metrics) == 2


def test_the_global_random_state_changes_nothing_and_is_left_alone(tmp_path: Any) -> None:
    config = shrunk("demo", {**BLOBS, "epochs": 1, "augment": "ff"})
    leaves = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        run = goodness.train(config, out=tmp_path / str(seed), device="cpu")
        assert torch.equal(torch.get_rng_state(), before)
        leaves.append(what_a_run_leaves(run.path))
    assert leaves[0] == leaves[1]


def test_a_listener_hears_of_every_step_epoch_and_checkpoint_and_of_the_result(tmp_path: Any) -> None:
    heard: list[dict[str, Any]] = []
    config = shrunk("demo", {**BLOBS, "epochs": 2, "keep.checkpoint_steps": 2, "keep.checkpoint_seconds": 1e6})
    run = goodness.train(config, out=tmp_path / "run", device="cpu", listen=heard.append)
    told = [(event["event"], event.get("epoch"), event.get("step")) for event in heard]
    assert told == [
        *(("step", 0, 1), ("step", 0, 2), ("checkpoint", 0, 2), ("step", 0, 3), ("epoch", 0, None)),
        *(("step", 1, 1), ("checkpoint", 1, 1), ("step", 1, 2), ("step", 1, 3), ("checkpoint", 1, 3)),
        *(("epoch", 1, None), ("checkpoint", 2, 0), ("result", None, None)),
    ]
    assert heard[-1]["result"] == run.result


def test_the_fingerprint_tells_images_labels_and_splits_apart() -> None:
    config = shrunk("demo", BLOBS)
    data = load_data(config)
    prints = {fingerprint(data), fingerprint(load_data(shrunk("demo", {**BLOBS, "split_seed": 1})))}
    images, labels = data.train.images.clone(), data.train.labels.clone()
    images[3, 0, 2, 2] ^= 1
    labels[5] = (labels[5] + 1) % 4
    prints |= {
        fingerprint(replace(data, train=replace(data.train, images=images))),
        fingerprint(replace(data, train=replace(data.train, labels=labels))),
    }
    assert len(prints) == 4
    assert fingerprint(load_data(config)) in prints
