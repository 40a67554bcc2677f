"""Every named run, shrunk and nothing else changed, works on digits: it trains, predicts, stays local, and resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.api import load_data
from goodness.config import Config, from_dict, to_dict
from goodness.presets import presets
from goodness.training.durable import read_json
from goodness.training.stage1 import build_network
from tiny_runs import blobs_at_hand, shrunk, what_a_run_leaves

TWO_STEPS = {"data": "few-digits", "epochs": 2, "batch": 100, "deterministic": True, "keep.checkpoint_steps": 1}
"""A hundred of scikit-learn's digits, twice: what moves over the epochs is halfway in the second step."""


@pytest.fixture(scope="module", autouse=True)
def _few_digits() -> Iterator[None]:
    with blobs_at_hand():
        yield


class Cut(Exception):
    """What strikes the run after its first step."""


def small(name: str) -> Config:
    return shrunk(name, TWO_STEPS, blocks=2)


@pytest.mark.parametrize("name", list(presets))
def test_a_preset_trains_two_steps_predicts_and_resumes_exactly(name: str, tmp_path: Path) -> None:
    config = small(name)
    whole = goodness.train(config, out=tmp_path / "whole", device="cpu")
    images = load_data(config).test.images[:5]
    scores = whole.predict(images)
    assert scores.shape == (5, 10)
    assert bool(scores.isfinite().all())

    def strike(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint":
            raise Cut

    with pytest.raises(Cut):
        goodness.train(config, out=tmp_path / "cut", device="cpu", listen=strike)
    resumed = goodness.resume(tmp_path / "cut", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole.path)
    assert from_dict(read_json(whole.path / "config.json")) == config == from_dict(to_dict(config))


@pytest.mark.parametrize("name", [name for name in presets if goodness.preset(name).trainer == "ff"])
def test_no_gradient_of_a_preset_crosses_a_block(name: str) -> None:
    config = small(name)
    data = load_data(config)
    images, labels = data.train.images[:12].float() / 255, data.train.labels[:12]
    with torch.random.fork_rng(devices=[]):
        assert goodness.audit_locality(build_network(config, data), config, images, labels) == []
