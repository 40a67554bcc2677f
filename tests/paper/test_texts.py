"""From texts to a trained run: embedded once, learned block by block, read out, with no gradient across blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from trained_pools import train

import goodness
from goodness.api import load_data
from goodness.cli import listing, main
from goodness.config import Config, differences, override, to_dict
from goodness.data import sources
from goodness.durable import write_json
from goodness.errors import ConfigError, UserError
from goodness.nn.stem import VectorStem
from goodness.paper.filled import fill
from goodness.paper.pool import Pool
from goodness.paper.suites import paper_table
from goodness.presets import preset
from goodness.training.stage1 import build_network
from made_up_texts import ABOUT, encode, write_folder
from tiny_runs import shrunk

PRESETS = ("text-imdb", "text-newsgroups", "text-ag-news")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    name = f"texts:{write_folder(tmp_path_factory.mktemp('texts') / 'mine')}"
    sources.embed(name, encode, ABOUT)
    return name


def small(name: str, data: str) -> Config:
    changes = {"data": data, "batch": 27, "epochs": 8, "optim.lr": 1e-2, "optim.ema": 0.9, "model.stem.patch": None}
    return shrunk(
        name, {**changes, "model.stem.channels": 384, "readout.epochs": 6, "readout.batch": 27, "readout.lr": 1e-2}
    )


def test_made_up_texts_are_learned_and_read_out_well_above_chance(texts: str, tmp_path: Path) -> None:
    run = goodness.train(small("text-imdb", texts), out=tmp_path / "run", device="cpu")
    assert run.accuracy > 0.8  # of three classes
    assert "accuracy_tta" not in run.result["reported"]
    assert goodness.readout(run.path, device="cpu").accuracy > 0.6
    kept = json.loads((run.path / "environment.json").read_text())
    assert "trained by backpropagation" in json.dumps(kept)
    data = load_data(run.config)
    assert run.predict(data.test.images[:4]).shape == (4, 3)


@pytest.mark.parametrize("name", PRESETS)
def test_no_gradient_of_a_text_preset_crosses_a_block(name: str, texts: str) -> None:
    config = small(name, texts)
    data = load_data(config)
    images, labels = data.train.images[:12].float() / 255, data.train.labels[:12]
    with torch.random.fork_rng(devices=[]):
        network = build_network(config, data)
        assert isinstance(network.stem, VectorStem)
        assert goodness.audit_locality(network, config, images, labels) == []


def test_the_text_presets_are_the_papers_setting_and_differ_in_data_and_epochs_alone() -> None:
    first = preset("text-imdb")
    assert (first.model.blocks, first.model.width, first.model.stem.tokens) == (4, 256, 8)
    assert (first.model.block.heads, first.model.block.experts) == (8, 16)  # pyright: ignore[reportAttributeAccessIssue]
    assert (first.optim.lr, first.optim.weight_decay, first.optim.clip, first.optim.sam) == (1e-3, 0.05, 1.0, 0.05)
    assert first.rule == preset("gamma0").rule
    assert (first.augment, first.readout.augment) == ("none", None)
    for name in PRESETS:
        config = preset(name)
        assert set(differences(config, first)) <= {"preset", "data", "epochs"}
        assert 25 <= config.epochs <= 40
        assert 8 <= config.readout.epochs <= 10
        assert not sources.find(config.data).flips


def test_texts_are_embedded_listed_and_checked_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}

    class Fake:
        def __init__(self, name: str, **settings: object) -> None:
            asked.update(settings, name=name)
            self.about = ABOUT

        def __call__(self, texts):
            return encode(texts)

    monkeypatch.setattr(listing, "FrozenEncoder", Fake)
    root = write_folder(tmp_path / "mine", train=4, test=2)
    command = ["data", "embed", f"texts:{root}", "--encoder", "some-bert", "--pool", "pooler", "--max-tokens", "9"]
    assert main([*command, "--device", "cpu"]) == 0
    assert asked == {"name": "some-bert", "pool": "pooler", "max_tokens": 9, "device": torch.device("cpu")}
    assert main(["data", "check", f"texts:{root}", "--json"]) == 0
    assert '"made-up' not in capsys.readouterr().err
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("imdb", "newsgroups", "ag-news", "texts:PATH"))
    assert main(["data", "embed", "digits", "--encoder", "some-bert"]) == 2
    assert "only texts are embedded" in capsys.readouterr().err


def test_after_the_download_the_next_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listing.sources, "get", lambda *_: tmp_path)
    assert main(["data", "get", "imdb", "--data-dir", str(tmp_path)]) == 0
    assert "next: goodness data embed imdb --encoder" in capsys.readouterr().out


def test_recipes_for_pictures_are_refused_on_texts_with_the_one_that_serves(texts: str, tmp_path: Path) -> None:
    config = override(small("text-imdb", texts), {"augment": "ff"})
    with pytest.raises(ConfigError, match="--augment none"):
        goodness.train(config, out=tmp_path / "run", device="cpu")
    config = override(small("text-imdb", texts), {"readout.augment": "weak"})
    with pytest.raises(ConfigError, match=r"only images take readout.augment weak: .* or --readout.augment none"):
        goodness.train(config, out=tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        (["train", "gamma0-dense"], "conv and augment ff", "--model.stem.kind vector --augment none"),
        (["train", "demo"], "take model.stem.kind conv: ", "--model.stem.kind vector"),
        (["train", "cnn-bp"], "model.stem.kind pixels", "--model.stem.kind vector"),
        (["sweep", "text-imdb", "demo", "--seeds", "1"], "take model.stem.kind conv: ", "--set model.stem.kind=vector"),
        (["sweep", "gamma0", "--seeds", "1"], "augment ff", "--set model.stem.kind=vector augment=none"),
    ],
)
def test_a_preset_for_images_is_refused_on_texts_before_anything_is_read(
    command: list[str],
    wrong: str,
    right: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--set", "data=newsgroups"] if command[0] == "sweep" else ["--data", "newsgroups"]
    assert main([*command, *data, "--data-dir", str(tmp_path)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "newsgroups has texts" in told
    assert wrong in told
    assert f"(goodness presets text) with {' '.join(data)}, or {right}" in told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_comes_before_what_it_would_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("text-imdb", "gamma0"):
        assert main(["train", name, "--data", f"texts:{tmp_path / 'nowhere'}", "--out", str(tmp_path / "run")]) == 2
        assert "there is no folder" in capsys.readouterr().err


def test_a_readout_takes_an_older_run_on_texts_as_it_was_trained(texts: str, tmp_path: Path) -> None:
    config = override(small("text-imdb", texts), {"model.stem.kind": "conv", "augment": "weak"})
    write_json(tmp_path / "config.json", {"stage": "s1", **to_dict(config)})
    with pytest.raises(UserError, match="reads a finished Stage 1"):  # no word of its stem
        goodness.readout(tmp_path)
    with pytest.raises(ConfigError, match=r"only images take readout.augment weak: --readout.augment none serves"):
        goodness.readout(tmp_path, changes={"readout.augment": "weak"})


def test_an_image_preset_takes_texts_with_a_vector_stem(texts: str, tmp_path: Path) -> None:
    changes = {"data": texts, "model.stem.kind": "vector", "epochs": 1, "batch": 54}
    assert goodness.train(shrunk("demo", changes), out=tmp_path / "run", device="cpu").is_finished


def test_a_preset_for_texts_on_images_says_that_it_sees_no_neighbours(tmp_path: Path) -> None:
    notes: list[str] = []
    config = shrunk("text-imdb", {"data": "digits-sample", "epochs": 1})
    goodness.train(
        config, out=tmp_path / "run", device="cpu", listen=lambda event: notes.append(str(event.get("text")))
    )
    assert [note for note in notes if "which are neighbours" in note and note.startswith("model.stem.kind (vector)")]


def test_the_papers_table_of_texts_is_filled_from_runs(tmp_path: Path) -> None:
    pool = Pool.at("tiny", tmp_path)
    table = paper_table("text_domain_full")
    train(pool, {need: readout for need, readout in table.needs(pool.scale).items() if need[0] == "text-imdb"})
    filled = fill(table, pool)
    assert filled.state == "partial"
    stage2 = filled.ours["IMDb", "Stage-2"]
    assert sorted(stage2.values) == [42, 43]
    assert stage2.score is not None
    of_row = {column: filled.ours["IMDb", column] for column in ("Stage-1", "Best", "Target", "Delta")}
    assert of_row["Stage-1"].is_complete
    assert list(of_row["Best"].values.values()) == [max(stage2.values.values())]
    assert list(of_row["Delta"].values.values()) == [pytest.approx(stage2.score.mean - 84.86)]
    assert of_row["Target"].why == "cited"
    assert filled.ours["AG News", "Best"].why == "not run"
