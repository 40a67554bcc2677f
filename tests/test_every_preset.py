"""Every named run, shrunk and nothing else changed, works on digits: it trains, predicts, stays local, and resumes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.api import load_data
from goodness.config import Config, from_dict, to_dict
from goodness.durable import read_json, write_json
from goodness.presets import presets
from goodness.training.stage1 import build_network
from tiny_runs import blobs_at_hand, shrunk, what_a_run_leaves

TWO_STEPS = {
    "data": "a-handful-of-digits",
    "epochs": 2,
    "batch": 30,
    "deterministic": True,
    "keep.checkpoint_seconds": 0.0,
}
"""Thirty of scikit-learn's digits, twice: what moves over the epochs is halfway in the second step. None are held out
for validation, which no preset has a say in."""


@pytest.fixture(scope="module", autouse=True)
def _few_digits() -> Iterator[None]:
    with blobs_at_hand():
        yield


def small(name: str) -> Config:
    return shrunk(name, TWO_STEPS, blocks=2)


def distinct() -> list[str]:
    """The presets, one for each configuration: cut down alike, some differ in their name alone."""
    by_content = {json.dumps({**to_dict(small(name)), "preset": ""}): name for name in presets}
    return list(by_content.values())


with blobs_at_hand():
    DISTINCT = distinct()


@pytest.mark.parametrize("name", DISTINCT)
def test_a_preset_trains_two_steps_predicts_and_resumes_exactly(name: str, tmp_path: Path) -> None:
    config = small(name)

    def copy_the_first_checkpoint(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and not (tmp_path / "cut").exists():
            assert event["epoch"] == 1
            shutil.copytree(tmp_path / "whole", tmp_path / "cut")

    whole = goodness.train(config, out=tmp_path / "whole", device="cpu", listen=copy_the_first_checkpoint)
    images = load_data(config).test.images[:5]
    scores = whole.predict(images)
    assert scores.shape == (5, 10)
    assert bool(scores.isfinite().all())
    assert not (tmp_path / "cut" / "result.json").exists()
    resumed = goodness.resume(tmp_path / "cut", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole.path)


@pytest.mark.parametrize("name", list(presets))
def test_a_preset_reads_back_from_its_file_as_it_was(name: str, tmp_path: Path) -> None:
    for config in (small(name), goodness.preset(name)):
        write_json(tmp_path / "config.json", to_dict(config))
        assert from_dict(read_json(tmp_path / "config.json")) == config


FF = [name for name in DISTINCT if goodness.preset(name).is_cumulative and goodness.preset(name).trainer == "ff"]


@pytest.mark.parametrize("name", FF)
def test_no_gradient_of_a_preset_crosses_a_block(name: str) -> None:
    config = small(name)
    data = load_data(config)
    images, labels = data.train.images[:12].float() / 255, data.train.labels[:12]
    with torch.random.fork_rng(devices=[]):
        assert goodness.audit_locality(build_network(config, data), config, images, labels) == []
