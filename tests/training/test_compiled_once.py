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
from tiny_runs import BLOBS, blobs_at_hand, shrunk


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the tracer looks
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("gated-dense", {"objective.supcon.temperature_last": 0.1, "objective.supcon.late": 0.1}),
        ("gamma0-dense", {"rule": "ramp", "rule.last": 0.7}),
        ("gamma0-dense", {"trainer": "backprop"}),
        ("sprint", {"rule": "ramp", "rule.last": 0.7}),
    ],
)
def test_no_graph_is_made_after_the_first_epoch(
    preset: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    predict = importlib.import_module("goodness.predict")
    predict._compiled.cache_clear()
    monkeypatch.setattr(predict, "CHUNK", 4)  # so that evaluation is compiled as well
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    counts = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    settings = {**BLOBS, "epochs": 4, "step.compile": "on", "keep.evaluate_every": 1, **changes}
    torch._dynamo.utils.counters.clear()
    goodness.train(shrunk(preset, settings), out=tmp_path / "run", device="cpu", listen=listen)
    assert counts[0] > 0
    assert counts == [counts[0]] * 4
