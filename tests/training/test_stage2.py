"""Stage 2 reads a finished network and changes none of it; what it leaves can be computed again, and it resumes."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import goodness
from goodness.api import load_data
from goodness.cli import main
from goodness.data.dataset import Raw, as_split, datasets
from goodness.data.mix import draws_needed, mix
from goodness.draws import uniforms
from goodness.durable import read_json, write_json
from goodness.errors import ConfigError, RunError, UserError
from goodness.methods.cumulative.evidence import hypothesis_features_by_label, readout_chunk_sizes
from goodness.runs.checkpoint import Checkpoints
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Measured, Moment
from goodness.tensor_file import weights_sha256
from goodness.training import stage2 as stage2_module
from goodness.training.loop import Interrupted
from goodness.training.stage2 import Stage2
from interruptions import Killed, kill_after, stop_after
from tiny_runs import BLOBS, Blobs, blobs_at_hand, shrunk, what_a_run_leaves

# Rates so high that validation falls before the end, in both stages: best and last weights differ.
ROUGH = {**BLOBS, "seed": 2, "optim.lr": 0.05, "optim.ema": 0.5, "deterministic": True}
READOUT = {
    "readout.width": 8,
    "readout.heads": 2,
    "readout.batch": 16,
    "readout.epochs": 3,
    "readout.lr": 0.3,
    "keep.checkpoint_steps": 2,
    "keep.checkpoint_seconds": 1e6,
}


class ManyBlobs(Blobs):
    """As many classes as Tiny ImageNet has, and a few images."""

    count = 200
    held_out = 0
    flips = False

    def read(self, folder: Path) -> Raw:
        raw = super().read(folder)
        train, test = (as_split(part.images[:8], part.labels[:8]) for part in (raw.train, raw.test))
        return replace(raw, train=train, test=test)


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        datasets.register("many-blobs")(ManyBlobs)
        yield


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished Stage 1; no test trains a readout inside its folder."""
    return goodness.train(shrunk("cp-fair-dense", ROUGH), out=tmp_path_factory.mktemp("stage1") / "run", device="cpu")


@pytest.fixture(scope="module")
def stage2(backbone: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A readout in the usual place, inside a copy of the run."""
    run = copy_of(backbone, tmp_path_factory.mktemp("stage2"))
    return goodness.readout(run.path, device="cpu", changes=READOUT)


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A Stage 1 that has learned its data, which may not be mirrored."""
    changes = {**BLOBS, "data": "easy-blobs", "augment": "none", "epochs": 8, "optim.ema": 0.8}
    return goodness.train(shrunk("demo", changes), out=tmp_path_factory.mktemp("easy") / "run", device="cpu")


@pytest.fixture(scope="module")
def easy_readout(easy: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    changes = {**READOUT, "readout.lr": 1e-2, "readout.augment": "none", "readout.epochs": 6}
    return goodness.readout(easy.path, out=tmp_path_factory.mktemp("far") / "away", device="cpu", changes=changes)


def copy_of(run: Run, folder: Path) -> Run:
    shutil.copytree(run.path, folder / "copy")
    return Run(folder / "copy")


def files_of(run: Run) -> dict[str, bytes]:
    """Every file of Stage 1 that says something, by name; a readout in its folder is left out."""
    return {
        str(file.relative_to(run.path)): file.read_bytes()
        for file in sorted(run.path.rglob("*"))
        if file.is_file() and file.name != "run.lock" and "readout" not in file.relative_to(run.path).parts
    }


def scores_by_hand(run: Run, weights: str, split: str, mirrored: bool) -> Tensor:
    """Logits from the two weight files: one label at a time, the flip average written out."""
    network, head = run.network(), run.head(weights)
    images = load_data(run.config).split(split).images.float() / 255
    scores = head(hypothesis_features_by_label(network, images))
    if mirrored:
        scores = (scores + head(hypothesis_features_by_label(network, images.flip(-1)))) / 2
    return scores


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Stage2]:
    """Every Stage 2 that runs in the test."""
    seen: list[Stage2] = []
    plain = Stage2.run

    def run(self: Stage2) -> dict[str, Any]:
        seen.append(self)
        return plain(self)

    monkeypatch.setattr(Stage2, "run", run)
    return seen


# What it leaves


def test_the_rows_cover_weights_and_splits_and_mirroring_where_the_data_allows_it(
    stage2: Run, easy_readout: Run
) -> None:
    for run, ttas in ((stage2, (False, True)), (easy_readout, (False,))):
        rows = run.result["accuracy"]
        found = [(row["weights"], row["split"], row["tta"]) for row in rows]
        assert sorted(found) == sorted(itertools.product(("best", "last"), ("val", "test"), ttas))
        sizes = {"val": 20, "test": 40}
        assert all((row["stage"], row["blocks"], row["n"]) == ("s2", 2, sizes[row["split"]]) for row in rows)
        assert {file.name for file in run.path.glob("*.npz")} == {
            "predictions_blocks.npz",
            *(f"predictions_{'test_tta' if tta else 'test'}.npz" for tta in ttas),
        }


def test_every_accuracy_row_can_be_computed_again_from_the_weight_files(stage2: Run) -> None:
    assert stage2.result["weights"]["best"]["epoch"] < 2, "else best and last would be the same weights"
    for row in stage2.result["accuracy"]:
        scores = scores_by_hand(stage2, row["weights"], row["split"], row["tta"])
        labels = load_data(stage2.config).split(row["split"]).labels
        assert row["top1"] == pytest.approx(float((scores.argmax(dim=1) == labels).double().mean())), row


def test_evaluate_finds_what_the_result_says_from_the_run_and_from_the_readouts_folder(stage2: Run) -> None:
    for row in stage2.result["accuracy"]:
        question = {"split": row["split"], "weights": row["weights"], "tta": row["tta"], "device": "cpu"}
        found = goodness.evaluate(stage2.backbone.path, stage="s2", **question)
        assert (found["accuracy"], found["n"], found["stage"], found["blocks_used"]) == (row["top1"], row["n"], "s2", 2)
    reported = stage2.result["reported"]
    assert goodness.evaluate(stage2.path, device="cpu")["accuracy"] == reported["accuracy"] == stage2.accuracy
    assert (reported["stage"], reported["weights"]) == ("s2", "best")


def test_the_run_itself_is_still_scored_as_stage_1(stage2: Run, backbone: Run) -> None:
    assert goodness.evaluate(stage2.backbone.path, device="cpu")["accuracy"] == backbone.accuracy
    assert goodness.evaluate(stage2.backbone.path, stage="s1", device="cpu")["stage"] == "s1"
    with pytest.raises(UserError, match="is of stage s2, not s1"):
        goodness.evaluate(stage2.path, stage="s1", device="cpu")
    with pytest.raises(UserError, match="--blocks is for Stage 1"):
        goodness.evaluate(stage2.path, blocks=1, device="cpu")


def test_the_kept_predictions_are_what_predict_gives(stage2: Run) -> None:
    test = load_data(stage2.config).test
    for name, mirrored in (("test", False), ("test_tta", True)):
        kept = RunFolder.open(stage2.path, for_writing=False).read_predictions(name)
        assert np.array_equal(kept["scores"], stage2.predict(test.images, tta=mirrored).numpy())
        assert np.array_equal(kept["labels"], test.labels.numpy())
        assert np.array_equal(kept["indices"], test.indices.numpy())
        by_hand = scores_by_hand(stage2, "best", "test", mirrored).numpy()
        np.testing.assert_allclose(kept["scores"], by_hand, rtol=1e-4, atol=1e-5)


def test_the_lines_say_loss_accuracy_and_norm_and_there_is_no_health_of_blocks(stage2: Run) -> None:
    assert [line["epoch"] for line in stage2.metrics] == [0, 1, 2]
    for line in stage2.metrics:
        assert line["train"].keys() == {"loss", "accuracy", "grad_norm"}
        assert line["val"].keys() == {"accuracy", "n"}
    result = stage2.result
    assert result["health"] == {}
    assert (result["epochs"], result["steps"]) == (3, 9)
    assert result["parameters"] == sum(parameter.numel() for parameter in stage2.head().parameters())
    learned = {f"readout.{name}": value for name, value in stage2.head("last").state_dict().items()}
    assert result["weights_sha256"] == weights_sha256(learned)


def test_a_run_knows_its_readout_and_the_readout_its_run(
    stage2: Run, backbone: Run, easy: Run, easy_readout: Run
) -> None:
    assert (stage2.stage, stage2.backbone.stage) == ("s2", "s1")
    assert stage2.path == stage2.backbone.path / "readout"
    found = stage2.backbone.readout
    assert found is not None
    assert found.path == stage2.path
    assert backbone.readout is None
    with pytest.raises(UserError, match="is no readout; train one with: goodness readout"):
        backbone.head()
    assert easy_readout.backbone.path == easy.path.resolve()
    assert easy.readout is None, "it lies elsewhere"


def test_a_run_with_its_readout_can_be_moved(stage2: Run, tmp_path: Path) -> None:
    moved = copy_of(stage2.backbone, tmp_path)
    assert goodness.evaluate(moved.path, stage="s2", device="cpu")["accuracy"] == stage2.accuracy


# The frozen network


def test_stage_1_is_untouched_on_disk_and_in_memory_and_no_gradient_reaches_it(
    backbone: Run, tmp_path: Path, stages: list[Stage2]
) -> None:
    run = copy_of(backbone, tmp_path)
    before = files_of(run)
    goodness.readout(run.path, device="cpu", changes=READOUT)
    assert files_of(run) == before
    (stage,) = stages
    assert weights_sha256(stage.network.state_dict()) == weights_sha256(run.network("best").state_dict())
    assert all(p.grad is None and not p.requires_grad for p in stage.network.parameters())
    assert all(p.grad is not None and bool(p.grad.any()) for p in stage.readout.parameters()), "it is the readout's"
    trained = {id(p) for group in stage.optimisers[0].param_groups for p in group["params"]}
    assert trained == {id(p) for p in stage.readout.parameters()}
    assert not stage.network.training


def test_the_frozen_weights_are_the_best_unless_the_last_are_asked_for(
    stage2: Run, backbone: Run, tmp_path: Path
) -> None:
    changes = {**READOUT, "readout.epochs": 1, "readout.weights": "last"}
    last = goodness.readout(backbone.path, out=tmp_path / "readout", device="cpu", changes=changes)
    expected = {name: weights_sha256(backbone.network(name).state_dict()) for name in ("best", "last")}
    assert expected["best"] != expected["last"]
    for name, made in (("best", stage2), ("last", last)):
        assert weights_sha256(made.network().state_dict()) == expected[name]
        about = read_json(made.path / "backbone.json")
        assert (about["weights"], about["weights_sha256"]) == (name, expected[name])


def test_without_a_validation_split_the_last_weights_are_frozen_and_reported(tmp_path: Path) -> None:
    run = goodness.train(shrunk("demo", {**BLOBS, "epochs": 1, "val": 0}), out=tmp_path / "run", device="cpu")
    heard: list[dict[str, Any]] = []
    changes = {**READOUT, "readout.epochs": 1, "keep.report": "best"}
    made = goodness.readout(run.path, device="cpu", changes=changes, listen=heard.append)
    notes = [event["text"] for event in heard if event["event"] == "note"]
    assert [note.split(":")[0] for note in notes] == ["readout.weights (best) has no effect"]
    assert read_json(made.path / "backbone.json")["weights"] == "last"
    assert made.result["reported"]["weights"] == "last"
    assert made.result["weights"].keys() == {"last"}
    assert {row["split"] for row in made.result["accuracy"]} == {"test"}


# Training


def test_training_lowers_the_loss_and_reads_the_network_at_least_as_well_as_the_goodness_does(
    easy: Run, easy_readout: Run
) -> None:
    assert easy.accuracy > 0.9, "what Stage 1 has not learned, no readout can read"
    losses = [line["train"]["loss"] for line in easy_readout.metrics]
    assert losses[0] > 1
    assert losses[-1] < 0.1 * losses[0]
    assert easy_readout.accuracy >= easy.accuracy - 0.05


@pytest.mark.parametrize(("before", "is_told"), [(0.99, False), (1.01, False), (1.03, True)])
def test_a_readout_that_reads_worse_than_the_goodness_did_says_so(
    before: float, is_told: bool, easy: Run, tmp_path: Path
) -> None:
    run, told = copy_of(easy, tmp_path), list[str]()
    result = read_json(run.path / "result.json")
    result["reported"]["accuracy"] = before  # Stage 2 has all of them right, whatever its learning rate
    write_json(run.path / "result.json", result)
    found = goodness.readout(
        run.path,
        device="cpu",
        changes={**READOUT, "readout.lr": 0.01, "readout.augment": "none"},
        listen=lambda event: told.append(event["text"]) if event["event"] == "note" else None,
    )
    assert found.accuracy == 1
    assert len(told) == is_told
    if told:
        assert told[0].startswith("Stage 2 has 100.0 % of the test images right, Stage 1 had 103.0 %")
        assert told[0].endswith("--readout.lr 0.001")


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.0, 0.0), (0.4, 1.0)])
def test_a_step_is_adamws_on_the_cross_entropy_of_the_mixed_batch(
    mixup: float, cutmix: float, backbone: Run, tmp_path: Path, stages: list[Stage2], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All training images in one step, an epoch each; the first step is written out, from the loss to the weights.

    Adam's first step looks at a gradient's length only where it comes near epsilon: hence the tiny limit.
    """
    weights: list[dict[str, Tensor]] = []
    batches: list[tuple[Tensor, Tensor]] = []
    plain = Stage2.step

    def step(self: Stage2, rows: Tensor, moment: Moment) -> list[Measured]:
        weights.append({name: value.clone() for name, value in self.readout.state_dict().items()})
        batches.append((self.views(rows, moment, 1)[0], self.data.train.labels[rows]))
        return plain(self, rows, moment)

    monkeypatch.setattr(Stage2, "step", step)
    changes = {**READOUT, "readout.batch": 50, "readout.epochs": 2, "readout.clip": 1e-6}
    changes |= {"readout.mixup": mixup, "readout.cutmix": cutmix}
    made = goodness.readout(backbone.path, out=tmp_path / "readout", device="cpu", changes=changes)
    readout, network = stages[0].readout, backbone.network()
    for epoch, line in enumerate(made.metrics):
        views, labels = batches[epoch]
        draws = uniforms(torch.device("cpu"), (draws_needed,), backbone.config.seed, "mix", epoch, 0)
        images, targets = mix(views, F.one_hot(labels, 4).float(), draws, mixup=mixup, cutmix=cutmix)
        assert torch.equal(images, views) == (not mixup and not cutmix)
        readout.load_state_dict(weights[epoch])
        readout.zero_grad()
        shares = readout(hypothesis_features_by_label(network, images)).log_softmax(dim=1)
        loss = -(targets * shares).sum(dim=1).mean()
        loss.backward()
        norm = sum(float(p.grad.double().square().sum()) for p in readout.parameters() if p.grad is not None) ** 0.5
        right = float((shares.argmax(dim=1) == targets.argmax(dim=1)).double().mean())
        expected = {"loss": float(loss.detach()), "accuracy": right, "grad_norm": norm}
        assert line["train"] == pytest.approx(expected, rel=1e-4)
        if epoch == 0:
            rate = 0.3 / (1 + 0.05 * 2)  # the first of two steps, of which a twentieth is warm-up
            for name, p in readout.named_parameters():
                assert p.grad is not None
                gradient = p.grad * 1e-6 / norm
                decayed = p.detach() * (1 - rate * (0.05 if p.dim() > 1 else 0.0))
                after = decayed - rate * gradient / (gradient.abs() + 1e-8)
                torch.testing.assert_close(weights[1][name], after, rtol=1e-3, atol=1e-4)


def test_two_hundred_classes_under_a_tiny_cap_give_the_numbers_of_a_large_one(tmp_path: Path) -> None:
    changes = {**BLOBS, "data": "many-blobs", "epochs": 1, "model.block.hidden": 64}
    run = goodness.train(shrunk("demo", changes), out=tmp_path / "run", device="cpu")
    rows, labels = readout_chunk_sizes(run.network(), 1)
    assert rows == 1
    assert 1 < labels < 200
    made = {}
    for cap in (1, 1024):
        changes = {**READOUT, "readout.batch": 4, "readout.epochs": 1, "readout.lr": 1e-3, "keep.memory_mb": cap}
        made[cap] = goodness.readout(run.path, out=tmp_path / str(cap), device="cpu", changes=changes)
    tight, roomy = made[1], made[1024]
    for name, value in tight.head("last").state_dict().items():
        torch.testing.assert_close(value, roomy.head("last").state_dict()[name], rtol=1e-3, atol=1e-4)
    for key in ("loss", "grad_norm"):
        assert tight.metrics[0]["train"][key] == pytest.approx(roomy.metrics[0]["train"][key], rel=1e-4)
    scores = [RunFolder(one.path, None).read_predictions("test")["scores"] for one in (tight, roomy)]
    assert scores[0].shape == (8, 200)
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-4)
    assert "top5" in tight.result["reported"]


# Interruption


@pytest.mark.parametrize(
    ("strike", "end", "steps"),
    [(kill_after, Killed, 1), (kill_after, Killed, 6), (stop_after, Interrupted, 5)],
)
def test_a_readout_killed_or_stopped_and_resumed_ends_in_the_same_bits(
    strike: Callable[..., Any], end: type[BaseException], steps: int, stage2: Run, backbone: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "readout"
    with pytest.raises(end) as caught:
        goodness.readout(backbone.path, out=folder, device="cpu", changes=READOUT, listen=strike(steps))
    assert not (folder / "result.json").exists()
    if end is Interrupted:
        assert f"go on with: goodness resume {folder}" in str(caught.value)
    torch.rand(steps)  # the caller's own draws do not matter
    assert goodness.resume(folder, device="cpu").stage == "s2"
    assert what_a_run_leaves(folder) == what_a_run_leaves(stage2.path)


def test_a_readout_stopped_in_its_last_evaluation_ends_in_the_same_bits(
    stage2: Run, backbone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = Stage2.readings, itertools.count(1)

    def readings(self: Stage2, *arguments: Any, **named: Any) -> Tensor:
        if next(asked) == 9:  # three epochs, and four of the last weights, come before the best weights' second
            signal.raise_signal(signal.SIGINT)
        return plain(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Stage2, "readings", readings)
        with pytest.raises(Interrupted, match="stopped at the last evaluation") as caught:
            goodness.readout(backbone.path, out=tmp_path / "readout", device="cpu", changes=READOUT)
    assert caught.value.exit_code == 130
    goodness.resume(tmp_path / "readout", device="cpu")
    assert what_a_run_leaves(tmp_path / "readout") == what_a_run_leaves(stage2.path)


def test_a_readout_asked_to_stop_amid_a_steps_features_stops_there_and_ends_in_the_same_bits(
    backbone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = itertools.count(1)
    plain = stage2_module.hypothesis_features

    def features(*arguments: Any) -> Tensor:
        if next(chunks) == 7:  # the second of the four chunks of the second step
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments)

    monkeypatch.setattr(stage2_module, "readout_chunk_sizes", lambda network, _: (4, network.classes))
    with monkeypatch.context() as patch:
        patch.setattr(stage2_module, "hypothesis_features", features)
        with pytest.raises(Interrupted, match="step 1 of 3"):
            goodness.readout(backbone.path, out=tmp_path / "readout", device="cpu", changes=READOUT)
    assert next(chunks) == 8, "the chunk that was begun is the last"
    goodness.resume(tmp_path / "readout", device="cpu")
    whole = goodness.readout(backbone.path, out=tmp_path / "whole", device="cpu", changes=READOUT)
    assert what_a_run_leaves(tmp_path / "readout") == what_a_run_leaves(whole.path)


def test_resuming_a_finished_run_goes_on_with_its_unfinished_readout(
    stage2: Run, backbone: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(backbone, tmp_path)
    with pytest.raises(Interrupted):
        goodness.readout(run.path, device="cpu", changes=READOUT, listen=stop_after(4))
    with pytest.raises(UserError, match=r"is not finished; go on with: goodness resume .*readout"):
        goodness.evaluate(run.path, stage="s2", device="cpu")
    assert main(["resume", str(run.path), "--json"]) == 0
    assert "finished already" not in capsys.readouterr().err
    assert what_a_run_leaves(run.path / "readout") == what_a_run_leaves(stage2.path)
    assert goodness.resume(run.path, device="cpu").path == run.path, "both are finished now"
    assert main(["resume", str(run.path), "--json"]) == 0
    assert "finished already" in capsys.readouterr().err


def test_a_readout_killed_at_birth_begins_anew_in_the_same_place(
    stage2: Run, backbone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between backbone.json and config.json: the folder is no run yet, and Stage 1 is what it was."""
    run = copy_of(backbone, tmp_path)

    def killed(config: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("goodness.api.to_dict", killed)
        with pytest.raises(Killed):
            goodness.readout(run.path, device="cpu", changes=READOUT)
    assert (run.path / "readout" / "backbone.json").is_file()
    assert run.readout is None
    assert goodness.resume(run.path, device="cpu").path == run.path
    with pytest.raises(UserError, match="has no Stage 2; train one with: goodness readout"):
        goodness.evaluate(run.path, stage="s2", device="cpu")
    goodness.readout(run.path, device="cpu", changes=READOUT)
    assert what_a_run_leaves(run.path / "readout") == what_a_run_leaves(stage2.path)


# What is refused, before a folder is made


@pytest.mark.parametrize(
    ("changes", "kind", "answer"),
    [
        ({"readout.epochs": 0}, ConfigError, r"readout\.epochs must be at least 1 to train a readout, got 0"),
        ({"readout.width": 10**7}, ConfigError, r"readout\.width 10000000 makes [\d,]+ parameters.* smaller --readout"),
        ({"readout.width": 10**12}, ConfigError, r"readout\.width 1000000000000 .*take a smaller --readout\.width"),
        ({"readout.heads": 3}, ConfigError, r"readout\.width 8 must be a multiple of readout\.heads \(3\)"),
        ({"readout.augment": "weka"}, ConfigError, "'weka': did you mean 'weak'"),
        ({"readout.weight": "last"}, ConfigError, r"unknown field 'readout\.weight': did you mean 'weights'"),
        ({"readout.weights": "first"}, ConfigError, r"readout\.weights must be one of best, last"),
        ({"readout.lr": 0.0}, ConfigError, r"readout\.lr must be positive"),
        ({"epochs": 9}, UserError, r"only readout\.\* and keep\.\* can be set, not epochs"),
        ({"model.width": 16}, UserError, r"only readout\.\* and keep\.\* can be set, not model\.width"),
        ({"trainer": "backprop"}, UserError, r"only readout\.\* and keep\.\* can be set, not trainer"),
        ({"val": 10}, UserError, r"only readout\.\* and keep\.\* can be set, not val"),
    ],
)
def test_a_mistaken_setting_is_answered_before_a_folder_is_made(
    changes: dict[str, Any], kind: type[UserError], answer: str, backbone: Run
) -> None:
    with pytest.raises(kind, match=answer) as caught:
        goodness.readout(backbone.path, device="cpu", changes={**READOUT, **changes})
    assert caught.value.exit_code == 2
    assert not (backbone.path / "readout").exists()


def test_a_run_that_is_not_finished_has_no_readout_yet(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        goodness.train(shrunk("demo", BLOBS), out=tmp_path / "run", device="cpu", listen=kill_after(1))
    with pytest.raises(UserError, match=r"is not: go on with goodness resume .*run"):
        goodness.readout(tmp_path / "run", device="cpu", changes=READOUT)
    assert not (tmp_path / "run" / "readout").exists()


def test_a_backpropagation_control_has_no_hypotheses_to_read(tmp_path: Path) -> None:
    changes = {**BLOBS, "epochs": 1, "trainer": "backprop"}
    run = goodness.train(shrunk("demo", changes), out=tmp_path / "run", device="cpu")
    with pytest.raises(UserError, match="trained by backpropagation: there are no hypotheses to read"):
        goodness.readout(run.path, device="cpu", changes=READOUT)
    assert not (run.path / "readout").exists()
    with pytest.raises(UserError, match="is of stage bp, not s2"):
        goodness.evaluate(run.path, stage="s2", device="cpu")


def test_a_readout_is_not_read_out_again(stage2: Run) -> None:
    with pytest.raises(UserError, match="is a readout itself; Stage 2 needs a run of Stage 1"):
        goodness.readout(stage2.path, device="cpu")
    assert not (stage2.path / "readout").exists()


def test_a_second_readout_needs_another_folder(stage2: Run) -> None:
    before = what_a_run_leaves(stage2.path)
    with pytest.raises(UserError, match=r"holds a finished run; .* or choose another --out"):
        goodness.readout(stage2.backbone.path, device="cpu", changes=READOUT)
    assert what_a_run_leaves(stage2.path) == before


def test_a_readout_that_failed_is_resumed_or_removed_by_the_very_commands(backbone: Run, tmp_path: Path) -> None:
    run = copy_of(backbone, tmp_path)
    torch.set_warn_always(True)  # else a warning of an earlier test would hide one here
    try:
        with pytest.raises(RunError, match="No weight and no checkpoint has taken it in"):
            goodness.readout(run.path, device="cpu", changes={**READOUT, "readout.lr": 1e30, "readout.clip": 0.0})
    finally:
        torch.set_warn_always(False)
    readout = run.path / "readout"
    with pytest.raises(UserError) as caught:
        goodness.readout(run.path, device="cpu", changes=READOUT)
    assert f"`goodness resume {readout}` goes on with it, `rm -r {readout}` removes it" in str(caught.value)


def test_a_run_without_a_readout_says_how_to_train_one(backbone: Run) -> None:
    with pytest.raises(UserError, match=f"has no Stage 2; train one with: goodness readout {backbone.path}"):
        goodness.evaluate(backbone.path, stage="s2", device="cpu")


# A network that is no longer the one that was read


@pytest.fixture(scope="module")
def ten_classes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = shrunk("cp-fair-dense", {**ROUGH, "data": "ten-blobs", "epochs": 1})
    return goodness.train(config, out=tmp_path_factory.mktemp("ten") / "run", device="cpu")


def test_a_readout_refuses_other_weights_than_those_it_was_trained_on(
    stage2: Run, backbone: Run, ten_classes: Run, tmp_path: Path
) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    (tmp_path / "part").mkdir()
    part = copy_of(backbone, tmp_path / "part")
    with pytest.raises(Interrupted):
        goodness.readout(part.path, device="cpu", changes=READOUT, listen=stop_after(4))
    good = (backbone.path / "checkpoints" / "best.safetensors").read_bytes()
    for other in (
        backbone.path / "checkpoints" / "last.safetensors",
        ten_classes.path / "checkpoints/best.safetensors",
    ):
        for place in (run, part):
            shutil.copy(other, place.path / "checkpoints" / "best.safetensors")
        answer = "the 'best' weights of .* are not those that .*readout was trained on; train the readout again"
        for question in (
            lambda: goodness.evaluate(run.path, stage="s2", device="cpu"),
            lambda: goodness.evaluate(run.path / "readout", device="cpu"),
            lambda: Run(run.path / "readout").predict(torch.zeros(1, 1, 6, 6, dtype=torch.uint8)),
            lambda: goodness.resume(part.path, device="cpu"),
            lambda: goodness.resume(part.path / "readout", device="cpu"),
        ):
            with pytest.raises(UserError, match=answer):
                question()
    (part.path / "checkpoints" / "best.safetensors").write_bytes(good)
    goodness.resume(part.path, device="cpu")
    assert what_a_run_leaves(part.path / "readout") == what_a_run_leaves(stage2.path), "put back, it goes on"


def test_a_readout_for_other_classes_says_which_it_was_trained_for(stage2: Run, tmp_path: Path) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    weights = Checkpoints(run.path / "readout" / "checkpoints")
    tensors, about = weights.load_weights("best")
    weights.save_weights("best", tensors, {**about, "classes": ["ape", "bee", "cat", "dog", "elk"]})
    with pytest.raises(UserError, match=r"trained for 5 classes \(ape, bee, cat, \.\.\.\), and its network has 4"):
        goodness.evaluate(run.path, stage="s2", device="cpu")


def test_a_readout_whose_run_is_gone_says_where_it_looked_and_how_to_tell_it(
    stage2: Run, backbone: Run, tmp_path: Path
) -> None:
    alone = Run(Path(shutil.copytree(stage2.path, tmp_path / "alone")))
    with pytest.raises(UserError, match=f"reads the run {tmp_path}, which is not there") as caught:
        goodness.evaluate(alone.path, device="cpu")
    assert f'write its new place under "run" in {alone.path}/backbone.json' in str(caught.value)
    about = read_json(alone.path / "backbone.json")
    write_json(alone.path / "backbone.json", {**about, "run": str(backbone.path)})
    assert goodness.evaluate(alone.path, device="cpu")["accuracy"] == stage2.accuracy


def test_a_readout_is_found_through_a_link_to_it_and_where_a_link_stands_for_it(
    stage2: Run, backbone: Run, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(stage2.path)
    assert goodness.evaluate(tmp_path / "link", device="cpu")["accuracy"] == stage2.accuracy
    run, disk = copy_of(backbone, tmp_path), tmp_path / "large" / "disk"
    shutil.copytree(stage2.path, disk)
    (run.path / "readout").symlink_to(disk)
    assert goodness.evaluate(run.path, stage="s2", device="cpu")["accuracy"] == stage2.accuracy
    assert goodness.evaluate(run.path / "readout", device="cpu")["accuracy"] == stage2.accuracy


# A folder that has lost or spoilt a file


def test_a_readout_without_its_backbone_file_is_still_a_readout_and_says_what_to_do(
    stage2: Run, backbone: Run, tmp_path: Path
) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    (tmp_path / "part").mkdir()
    part = copy_of(backbone, tmp_path / "part")
    with pytest.raises(Killed):
        goodness.readout(part.path, device="cpu", changes=READOUT, listen=kill_after(1))
    for place in (run, part):
        (place.path / "readout" / "backbone.json").unlink()
        assert Run(place.path / "readout").stage == "s2"
        assert place.readout is not None
    readout = run.path / "readout"
    for question in (
        lambda: goodness.evaluate(readout, device="cpu"),
        lambda: goodness.evaluate(run.path, stage="s2", device="cpu"),
        lambda: Run(readout).network(),
        lambda: goodness.resume(part.path, device="cpu"),
        lambda: goodness.resume(part.path / "readout", device="cpu"),
    ):
        with pytest.raises(RunError, match=r"has lost its backbone\.json.*rm -r .*readout\) and train it again"):
            question()
    with pytest.raises(UserError, match="is a readout itself"):
        goodness.readout(readout, device="cpu")
    assert not list((part.path / "readout" / "checkpoints").glob("*")), "nothing was trained under another name"


def test_a_readout_of_before_the_stage_was_written_is_known_by_its_other_files(stage2: Run, tmp_path: Path) -> None:
    readout = copy_of(stage2.backbone, tmp_path).path / "readout"
    config = read_json(readout / "config.json")
    assert config.pop("stage") == "s2"
    write_json(readout / "config.json", config)
    assert Run(readout).stage == "s2"
    (readout / "backbone.json").unlink()
    assert Run(readout).stage == "s2", "its result says so"
    (readout / "result.json").unlink()
    assert Run(readout).stage == "s1", "nothing is left that tells"


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b"{}", b'{"run": 3, "weights": "best", "weights_sha256": ""}', b"\xff"]
)
def test_a_spoilt_backbone_file_is_named(content: bytes, stage2: Run, tmp_path: Path) -> None:
    readout = copy_of(stage2.backbone, tmp_path).path / "readout"
    (readout / "backbone.json").write_bytes(content)
    for question in (lambda: goodness.evaluate(readout, device="cpu"), lambda: Run(readout).backbone):
        with pytest.raises(
            RunError, match=rf"{readout}/backbone\.json .*restore it from a copy, or remove the readout"
        ):
            question()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"reported": [], "weights": {}, "health": {}, "accuracy": []}',
        b'{"reported": {"weights": "best"}, "weights": {"best": {}}, "health": {}, "accuracy": []}',
        b'{"reported": {"weights": ["a"], "accuracy": 1}, "weights": {}, "health": {}, "accuracy": []}',
        100_000 * b"[",
    ],
)
def test_a_spoilt_result_is_named_and_the_advice_mends_it(content: bytes, stage2: Run, tmp_path: Path) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    for place in (run.path, run.path / "readout"):
        good = (place / "result.json").read_bytes()
        (place / "result.json").write_bytes(content)
        with pytest.raises(RunError, match=rf"{place}/result\.json is not what .* && goodness resume {place}"):
            goodness.evaluate(place, device="cpu")
        (place / "result.json").write_bytes(good)
    if content == b"{":
        (run.path / "result.json").unlink()
        assert goodness.resume(run.path, device="cpu").accuracy == stage2.backbone.accuracy


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"format": 0}'])
def test_a_spoilt_configuration_is_named_and_leaves_the_other_stage_alone(
    content: bytes, stage2: Run, tmp_path: Path
) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    (run.path / "readout" / "config.json").write_bytes(content)
    assert run.readout is not None
    with pytest.raises((RunError, ConfigError), match=r"readout/config\.json"):
        goodness.evaluate(run.path, stage="s2", device="cpu")
    assert goodness.evaluate(run.path, device="cpu")["accuracy"] == run.accuracy


def test_weights_of_another_stage_in_a_folder_are_told(stage2: Run, tmp_path: Path) -> None:
    run = copy_of(stage2.backbone, tmp_path)
    shutil.copy(run.path / "checkpoints" / "best.safetensors", run.path / "readout" / "checkpoints")
    with pytest.raises(RunError, match=r"are of stage s1 and its config\.json is of stage s2"):
        Run(run.path / "readout").head("best")
