"""Runs of different kinds in one process: each compiles for itself, and seeds of one kind compile once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import goodness
from goodness.graphs import compiled
from tiny_runs import BLOBS, blobs_at_hand, shrunk

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the tracer looks
COMPILED = {**BLOBS, "epochs": 1, "step.compile": "on"}


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    compiled.cache_clear()


def graphs_traced(preset: str, seed: int, folder: Path) -> int:
    torch._dynamo.utils.counters.clear()
    goodness.train(shrunk(preset, COMPILED), seed=seed, out=folder, device="cpu")
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_a_dense_run_behind_one_with_experts(tmp_path: Path) -> None:
    for place, preset in enumerate(["gamma0", "gamma0-dense", "bp-strong", "bp-strong-dense", "lcff-dense", "gamma0"]):
        graphs_traced(preset, 1, tmp_path / str(place))


@pytest.mark.parametrize("preset", ["gamma0-dense", "bp-strong-dense"])
def test_a_second_seed_traces_nothing(preset: str, tmp_path: Path) -> None:
    assert graphs_traced(preset, 1, tmp_path / "one") > 0
    assert graphs_traced(preset, 2, tmp_path / "two") == 0
