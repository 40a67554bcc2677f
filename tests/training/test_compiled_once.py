"""Everything that is compiled is compiled in the first epoch; what moves later moves in tensors."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.compilation import compiled
from tiny_runs import BLOBS, blobs_at_hand, shrunk

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the tracer looks


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("gated-dense", {"objective.supcon.temperature_last": 0.1, "objective.supcon.late": 0.1}),
        ("gamma0-dense", {"rule": "ramp", "rule.last": 0.7}),
        ("gamma0-dense", {"trainer": "backprop"}),
        ("sprint", {"rule": "ramp", "rule.last": 0.7}),
        ("cp-fair", {"data": "ten-blobs"}),  # experts and SAM
        ("dp-fair", {"data": "ten-blobs"}),  # more draws from epoch to epoch
    ],
)
def test_no_graph_is_made_after_the_first_epoch(
    preset: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = graphs_by_epoch(preset, changes, tmp_path, monkeypatch)
    assert counts[0] > 0
    assert counts == [counts[0]] * 4


def test_graphs_are_made_later_only_where_a_block_begins_or_ends_to_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception, as in prefix-freeze: a block that does not learn has a graph without gradients. Of two blocks the
    second begins halfway."""
    first, second, third, last = graphs_by_epoch("greedy-freeze", {}, tmp_path, monkeypatch)
    assert 0 < first == second < third == last


def graphs_by_epoch(preset: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs had been traced at the end of each of four epochs."""
    torch._dynamo.reset()
    predict = importlib.import_module("goodness.methods.cumulative.evidence")
    compiled.cache_clear()
    monkeypatch.setattr(predict, "CHUNK", 4)  # so that evaluation is compiled as well
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    counts = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    settings = {**BLOBS, "epochs": 4, "step.compile": "on", "keep.evaluate_every": 1, **changes}
    torch._dynamo.utils.counters.clear()
    goodness.train(shrunk(preset, settings), out=tmp_path / "run", device="cpu", listen=listen)
    return counts


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, changes: dict[str, Any]) -> tuple[int, Any]:
    """How many graphs a run of one epoch traces, and what the epoch's line says of training."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    settings = {**BLOBS, "epochs": 1, "negatives.k_first": 3, "negatives.k_last": 3, **changes}
    with monkeypatch.context() as patched:
        patched.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
        run = goodness.train(shrunk("gamma0-dense", settings, blocks=blocks), out=folder, device="cpu")
    (line,) = run.metrics
    return torch._dynamo.utils.counters["stats"]["unique_graphs"], line["train"]


def test_one_graph_judges_every_block_behind_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = trained(tmp_path / "two", monkeypatch, 2, {"step.compile": "on"})
    more, _ = trained(tmp_path / "four", monkeypatch, 4, {"step.compile": "on"})
    assert 0 < few == more


def test_a_term_that_looks_at_the_depth_has_a_graph_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = trained(tmp_path / "compiled", monkeypatch, 4, {"step.compile": "on", "objective.curr.rho": 2.0})
    flat = trained(tmp_path / "flat", monkeypatch, 4, {"step.compile": "on", "objective.curr.rho": 0.0})
    plain = trained(tmp_path / "plain", monkeypatch, 4, {"step.compile": "off", "objective.curr.rho": 2.0})
    assert compiled[0] == flat[0] + 2
    assert compiled[1] == plain[1]
    assert compiled[1] != flat[1]
