"""The front door: one call trains, errors name what was meant, and a run on disk answers for itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.api import prepared
from goodness.errors import ConfigError, DataError, RunError, UserError
from goodness.methods.cumulative.collaboration import Constant
from goodness.methods.cumulative.evidence import block_goodness_by_label
from goodness.methods.cumulative.terms import Current
from tiny_runs import BLOBS, BLOCK_SIZES, SIZES, blobs_at_hand, shrunk

BLOCK = {f"model.block.{field}": value for field, value in BLOCK_SIZES.items()}


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> goodness.Run:
    return goodness.train(
        "demo",
        data="digits",
        seed=7,
        epochs=1,
        device="cpu",
        out=tmp_path_factory.mktemp("api") / "run",
        deterministic=True,
        rule="lcff",
        batch=540,
        changes={**SIZES, "model.blocks": 2, **BLOCK, "objective.curr.rho": 2, "optim.lr": 1e-3},
    )


# prepared()


@pytest.mark.parametrize(("threads", "is_flushed"), [(1, True), (2, False)])
@pytest.mark.parametrize("before", [True, False])
def test_vanishing_numbers_are_zero_on_one_thread_and_all_is_put_back(
    threads: int, is_flushed: bool, before: bool
) -> None:
    def flushes() -> bool:
        return float(torch.tensor([1e-38]) * 0.25) == 0

    torch.set_flush_denormal(before)
    try:
        with prepared(torch.device("cpu"), False, threads):
            assert torch.get_num_threads() == threads
            assert flushes() == (is_flushed or before)
        assert flushes() == before
        assert torch.get_num_threads() == 1
    finally:
        torch.set_flush_denormal(False)


def test_attention_has_no_mask_and_never_is_cudnns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward of cuDNN's attention under a mask has given NaN: in both stages and the control, neither is met."""
    plain, seen = torch.nn.functional.scaled_dot_product_attention, list[bool]()

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # takes no mask
        if query.requires_grad:  # it is the backward that cannot be trusted
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return plain(query, key, value)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    monkeypatch.setattr("goodness.api.refuse_what_cannot_be_built", lambda *_: None)  # tried on two images, no backward
    torch.backends.cuda.enable_cudnn_sdp(True)
    one = {**BLOBS, "epochs": 1, "readout.epochs": 1}
    stage1 = goodness.train(shrunk("demo", one), out=tmp_path / "run", device="cpu")
    counts = [len(seen)]
    goodness.readout(stage1.path, device="cpu")
    counts.append(len(seen))
    goodness.train(shrunk("bp-strong", one), out=tmp_path / "control", device="cpu")
    assert 0 < counts[0] < counts[1] < len(seen)
    assert not any(seen)
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_data_that_changed_since_is_refused_wherever_a_run_is_judged(tmp_path: Path) -> None:
    run = goodness.train(shrunk("demo", {**BLOBS, "epochs": 1}), out=tmp_path / "run", data_dir=tmp_path, device="cpu")
    assert goodness.evaluate(run.path, device="cpu")["n"] == 40
    (tmp_path / "blobs.txt").write_text("7")  # other patterns of the same shape and classes
    for asked in (goodness.evaluate, goodness.readout):
        with pytest.raises(UserError, match=r"is not what .* was trained with"):
            asked(run.path, device="cpu")


# train()


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"negatives.count": 4}, r"negatives\.count 4 asks for more .*: 4 classes have 3; .*--negatives\.count 3"),
        ({"negatives.among": 5}, r"negatives\.among 5 asks for more .*: 4 classes have 3; .*--negatives\.among 3"),
        ({"negatives": "random", "negatives.count": 4}, r"negatives\.count 4 asks for more"),
        (
            {"optim.freeze": "greedy", "model.blocks": 4, "epochs": 1},
            r"optim\.freeze greedy divides 3 steps among 4 blocks, and block 2 would never learn: .*--epochs",
        ),
        (
            {"optim.freeze": "prefix", "model.blocks": 8, "epochs": 1},
            r"optim\.freeze prefix divides 3 steps among 8 blocks, and block 0 would never learn",
        ),
        (
            {"objective.block": None, "objective.aspects": None, "objective.depth.weight": 1.0},
            "no term of the objective gives block 0 anything to learn from",
        ),
        (
            {"objective.block": None, "objective.aspects.lambdas": (0.0, 0.0, 1.0, 0.0)},
            "no term of the objective gives block 0 anything to learn from",
        ),
        (
            {"model.stem.kind": "pixels"},
            r"stem\.kind pixels makes a token of 1 numbers of every pixel of blobs, whatever model\.width is, and .*"
            r"multiple of 8 .*--model\.stem\.kind conv, or --model\.block conv-stages",
        ),
    ],
)
def test_what_cannot_learn_is_refused_before_a_folder_is_made(
    changes: dict[str, Any], answer: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=answer):
        goodness.train(shrunk("demo", {**BLOBS, **changes}), out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"negatives.count": 3},
        {"negatives.among": 3},
        {"optim.freeze": "greedy", "model.blocks": 3},
        {"optim.freeze": "prefix", "model.blocks": 3},
        {"trainer": "backprop", "negatives.count": 9, "optim.freeze": "greedy", "model.blocks": 4},
    ],
)
def test_what_just_suffices_is_trained(changes: dict[str, Any], tmp_path: Path) -> None:
    config = shrunk("demo", {**BLOBS, "epochs": 1, **changes})
    assert goodness.train(config, out=tmp_path / "run", device="cpu").is_finished


def test_train_takes_names_keywords_and_dotted_changes(run: goodness.Run) -> None:
    config = run.config
    assert (config.preset, config.data, config.seed, config.epochs, config.batch) == ("demo", "digits", 7, 1, 540)
    assert config.deterministic is True
    assert config.rule == Constant(gamma=1.0)
    assert config.objective["curr"] == Current(rho=2.0)
    assert (config.model.width, config.optim.lr) == (8, 1e-3)
    assert config.keep == goodness.preset("demo").keep
    assert 0 <= run.accuracy <= 1


def test_a_named_argument_wins_over_the_same_field_in_changes(tmp_path: Path) -> None:
    config = shrunk("demo", BLOBS)
    made = goodness.train(config, epochs=1, out=tmp_path / "run", device="cpu", changes={"epochs": 2, "seed": 3})
    assert (made.config.epochs, made.config.seed) == (1, 3)


def test_a_run_has_the_files_that_readers_expect(run: goodness.Run) -> None:
    names = {file.name for file in run.path.iterdir()}
    assert {"config.json", "environment.json", "metrics.jsonl", "result.json", "checkpoints"} <= names
    assert {file.stem for file in (run.path / "checkpoints").iterdir()} == {"best", "last", "step-000000002"}
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["device"] == "cpu"
    assert environment["dtype"] == "float32"
    assert environment["torch"] == torch.__version__
    assert "load_digits" in environment["data"]["provenance"]


def test_without_out_runs_are_numbered_below_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = shrunk("demo", {**BLOBS, "epochs": 1, "batch": 50})
    made = [goodness.train(config, device="cpu").path for _ in range(2)]
    assert made == [Path("runs/demo-blobs-s1-1"), Path("runs/demo-blobs-s1-2")]


@pytest.mark.parametrize(
    ("base", "changes", "kind", "answer"),
    [
        ("dem", {}, ConfigError, "unknown preset 'dem': did you mean 'demo'"),
        ("gated-dens", {}, ConfigError, "unknown preset 'gated-dens': did you mean 'gated-dense'"),
        ("demo", {"epoch": 3}, ConfigError, "unknown field 'epoch': did you mean 'epochs'"),
        ("demo", {"model.widht": 3}, ConfigError, r"unknown field 'model\.widht': did you mean 'width'"),
        ("demo", {"objective.blok.weight": 3}, ConfigError, "unknown term 'blok': did you mean 'block'"),
        ("demo", {"rule": "lcf"}, ConfigError, "unknown collaboration rule 'lcf': did you mean 'lcff'"),
        ("demo", {"augment": "weka"}, ConfigError, "'weka': did you mean 'weak'"),
        ("demo", {"data": "digit"}, DataError, "unknown data set 'digit': did you mean 'digits'"),
        ("demo", {"epochs": 0}, ConfigError, "epochs must be at least 1, got 0"),
        ("demo", {"optim.lr": "fast"}, ConfigError, r"optim\.lr must be float, got 'fast'"),
    ],
)
def test_a_mistake_is_answered_before_any_work_with_the_nearest_name(
    base: str, changes: dict[str, Any], kind: type[UserError], answer: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=answer) as caught:
        goodness.train(base, out=tmp_path / "run", device="cpu", changes=changes)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_an_unknown_device_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no device 'gpu9' here"):
        goodness.train("demo", out=tmp_path / "run", device="gpu9")
    assert not (tmp_path / "run").exists()


# A run on disk


def test_a_run_is_loaded_by_its_folder(run: goodness.Run, tmp_path: Path) -> None:
    loaded = goodness.load(str(run.path))
    assert (loaded.config, loaded.result, loaded.metrics) == (run.config, run.result, run.metrics)
    shutil.copytree(run.path, tmp_path / "cell" / "run")
    assert goodness.load(tmp_path / "cell").path == tmp_path / "cell" / "run", "as sweeps lay it"
    assert goodness.resume(tmp_path / "cell").path == tmp_path / "cell" / "run", "a finished one as it is"
    with pytest.raises(UserError, match="there is no run folder"):
        goodness.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"is not a run folder: it has no config\.json"):
        goodness.load(tmp_path)


def test_the_network_of_a_run_is_ready_to_predict(run: goodness.Run) -> None:
    network = run.network()
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert not network.training
    assert (network.shape, network.classes) == ((1, 8, 8), 10)
    last = run.network("last").state_dict()
    assert run.result["reported"]["weights"] == "last"
    assert all(torch.equal(value, last[name]) for name, value in network.state_dict().items())
    with pytest.raises(RunError, match=r"there is no lst\.safetensors in .*; did you mean 'last'"):
        run.network("lst")


def test_predict_sums_the_blocks_goodness_of_every_label(run: goodness.Run) -> None:
    images = goodness.api.load_data(run.config).test.images[:30]
    by_block = block_goodness_by_label(run.network(), images.float() / 255)
    mirrored = block_goodness_by_label(run.network(), images.flip(-1).float() / 255)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(run.predict(images), by_block.sum(dim=0), **close)
    torch.testing.assert_close(run.predict(images, blocks=1), by_block[0], **close)
    torch.testing.assert_close(run.predict(images, tta=True), (by_block + mirrored).sum(dim=0) / 2, **close)
    assert not torch.allclose(by_block[0], by_block.sum(dim=0), rtol=1e-2)
    assert run.predict(images[:0]).shape == (0, 10)


def test_predict_reads_the_weights_once_and_keeps_them_from_others(
    run: goodness.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    again = goodness.load(run.path)
    scores = again.predict(images)
    for parameter in again.network().parameters():
        parameter.zero_()
    monkeypatch.setattr(goodness.Run, "_weights", lambda *_: pytest.fail("the weights were read again"))
    assert torch.equal(again.predict(images), scores)


@pytest.mark.parametrize(
    ("images", "got"),
    [
        (torch.zeros(2, 1, 8, 8), r"torch\.float32 \[2, 1, 8, 8\]"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"torch\.uint8 \[2, 3, 8, 8\]"),
        (torch.zeros(1, 8, 8, dtype=torch.uint8), r"torch\.uint8 \[1, 8, 8\]"),
        (torch.zeros(2, 1, 8, 9, dtype=torch.uint8), r"torch\.uint8 \[2, 1, 8, 9\]"),
    ],
)
def test_predict_says_which_images_it_wants(run: goodness.Run, images: torch.Tensor, got: str) -> None:
    with pytest.raises(UserError, match=rf"expected uint8 images of shape \[n, 1, 8, 8\], got {got}"):
        run.predict(images)


@pytest.mark.parametrize("blocks", [0, 3, -1])
def test_predict_refuses_a_depth_the_network_does_not_have(run: goodness.Run, blocks: int) -> None:
    with pytest.raises(UserError, match=rf"blocks must lie in 1\.\.2, got {blocks}"):
        run.predict(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), blocks=blocks)


def test_a_run_puts_determinism_back_as_it_was(tmp_path: Path) -> None:
    config = shrunk("demo", {**BLOBS, "epochs": 1, "batch": 50})
    goodness.train(config, deterministic=True, out=tmp_path / "strict", device="cpu")
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        goodness.train(config, out=tmp_path / "plain", device="cpu")
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
