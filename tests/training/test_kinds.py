"""Runs of different kinds in one process: each compiles for itself, and seeds of one kind compile once."""

from __future__ import annotations

import functools
import gc
import importlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.compilation import compiled
from tiny_runs import BLOBS, blobs_at_hand, shrunk

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the tracer looks
COMPILED = {**BLOBS, "epochs": 1, "step.compile": "on"}


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = importlib.import_module("goodness.methods.cumulative.evidence")
    monkeypatch.setattr(evidence, "CHUNK", 4)  # so that evaluation is compiled too
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    compiled.cache_clear()


def graphs_traced(preset: str, seed: int, folder: Path, **changes: Any) -> int:
    torch._dynamo.utils.counters.clear()
    goodness.train(shrunk(preset, COMPILED), seed=seed, out=folder, device="cpu", changes=changes)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_a_dense_run_behind_one_with_experts(tmp_path: Path) -> None:
    for place, preset in enumerate(["gamma0", "gamma0-dense", "bp-strong", "bp-strong-dense", "lcff-dense", "gamma0"]):
        graphs_traced(preset, 1, tmp_path / str(place))


@pytest.mark.parametrize("preset", ["gamma0-dense", "bp-strong-dense"])
def test_a_second_seed_traces_nothing(preset: str, tmp_path: Path) -> None:
    assert graphs_traced(preset, 1, tmp_path / "one") > 0
    assert graphs_traced(preset, 2, tmp_path / "two") == 0
    assert graphs_traced(preset, 1, tmp_path / "three", **{"optim.lr": 1e-3, "epochs": 2}) == 0
    assert graphs_traced(preset, 1, tmp_path / "four", **{"model.block.hidden": 12}) > 0


def test_graphs_go_with_the_function_that_is_no_longer_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[weakref.ref[torch.fx.GraphModule]] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(weakref.ref(graph))
        return graph.forward

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile.func, backend=backend))
    for kind in ("a", "b"):
        assert compiled(doubled, kind)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert [one() is None for one in graphs] == [False, False]
    compiled.cache_clear()
    gc.collect()
    assert [one() is None for one in graphs] == [True, True]
