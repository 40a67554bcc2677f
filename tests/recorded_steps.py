"""What a run learns with its steps recorded, with the same steps never recorded, and with plain steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import goodness
from goodness.runs.checkpoint import Checkpoints
from goodness.training import replay


def three_ways(
    preset: str, given: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[dict[str, Tensor]], int]:
    """Last weights of the three runs, and how many recordings the first of them made."""
    made: list[replay.Recording] = []
    make = replay.Repetition.__init__
    monkeypatch.setattr(replay.Repetition, "__init__", lambda self, *a: (made.append(self), make(self, *a))[1])
    found, count = [], 0
    for name, warm, mode in (("recorded", 2, "on"), ("as they are", 10**9, "on"), ("plain", 2, "off")):
        monkeypatch.setattr(replay, "WARM_STEPS", warm)
        goodness.train(preset, **given, device="cpu", out=folder / name, step=goodness.config.Step(replay=mode))
        found.append(Checkpoints(folder / name / "checkpoints").load_weights("last")[0])
        count = len(made) if name == "recorded" else count
    assert len(made) == count
    return found, count


def require_equal(weights: list[dict[str, Tensor]]) -> None:
    """The first two to the bit; the third is rounded in another way."""
    recorded, as_they_are, plain = weights
    for name, value in recorded.items():
        assert torch.equal(value, as_they_are[name]), name
        torch.testing.assert_close(value, plain[name], rtol=1e-2, atol=1e-3)
