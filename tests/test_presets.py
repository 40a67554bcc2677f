"""Every named run trains, predicts, keeps its blocks apart and comes back from its file as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import goodness
from goodness.api import load_data
from goodness.config import differences, from_dict, to_dict
from goodness.local.collaboration import Constant, Gated
from goodness.predict import goodness_of
from goodness.presets import presets
from goodness.training.durable import read_json
from goodness.training.stage1 import build_network
from tiny_runs import blobs_at_hand, shrunk

NAMES = list(presets)


@pytest.fixture(scope="module", autouse=True)
def registries() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_the_presets_are_the_promised_ones() -> None:
    assert {"gamma0-dense", "cp-fair-dense", "lcff-dense", "gated-dense", "mgc-dense", "demo"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_valid_knows_its_name_and_says_what_it_is(name: str) -> None:
    config = goodness.preset(name)
    assert config.check() is config
    assert config.preset == name
    assert len((presets[name].__doc__ or "").split()) > 5
    assert from_dict(to_dict(config)) == config


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_trains_two_steps_on_digits_and_predicts(name: str, tmp_path: Path) -> None:
    config = shrunk(name, {"data": "digits", "epochs": 1, "batch": 32, "val": 1130})
    run = goodness.train(config, out=tmp_path / "run", device="cpu")
    assert run.result["steps"] == 2
    assert run.config == config
    assert from_dict(read_json(run.path / "config.json")) == config
    start = build_network(config, load_data(config))
    images = load_data(config).test.images[:20]
    scores = run.predict(images)
    assert scores.shape == (20, 10)
    assert bool(scores.isfinite().all())
    before = goodness_of(start, images).sum(dim=0)
    assert not torch.allclose(scores, before, rtol=1e-3, atol=1e-3), "two steps change the scores"


@pytest.mark.parametrize("name", NAMES)
def test_no_presets_loss_reaches_another_block(name: str) -> None:
    config = shrunk(name, {"data": "digits", "model.blocks": 4})
    data = load_data(config)
    network = build_network(config, data)
    images, labels = data.train.images[:12].float() / 255, data.train.labels[:12]
    assert goodness.audit_locality(network, config, images, labels) == []


def test_the_presets_differ_in_what_their_names_say() -> None:
    local, cumulative, fair, gated, compensated = (
        goodness.preset(f"{name}-dense") for name in ("gamma0", "lcff", "cp-fair", "gated", "mgc")
    )
    assert [config.rule for config in (local, cumulative, fair, compensated)] == [
        Constant(gamma=gamma) for gamma in (0.0, 1.0, 0.7, 0.7)
    ]
    assert isinstance(gated.rule, Gated)
    assert gated.rule.kappa == 0
    for config in (cumulative, gated):  # no repair stands beside the rule
        assert not {"curr", "depth", "mgc"} & config.objective.keys()
    assert {"curr", "depth"} <= fair.objective.keys()
    assert "mgc" in compensated.objective
    assert not {"block", "curr"} & compensated.objective.keys()
    sizes = {field for config in (cumulative, fair, gated, compensated) for field in differences(config, local)}
    assert not {field for field in sizes if field.startswith(("model.", "optim.", "step.", "batch", "epochs"))}


def test_the_demo_has_no_repair_that_would_hide_free_riding() -> None:
    demo = goodness.preset("demo")
    assert demo.objective.keys() == {"aspects", "block"}
    assert demo.rule == Constant(gamma=0.0)
    assert demo.data == "digits"
