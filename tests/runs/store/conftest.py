"""Finished tiny runs, trained once for all tests of the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import goodness
from tiny_runs import BLOBS, blobs_at_hand, shrunk

EVERYTHING = {
    **BLOBS,
    "data": "ten-blobs",
    "epochs": 2,
    "readout.epochs": 1,
    **{f"objective.{name}": 0.1 for name in ("curr", "depth", "diversity", "probe", "balance", "router-z")},
}
"""A run that has every measure, top-5 too."""


@pytest.fixture(autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell's folder: a Stage 1 with experts in `run`, and its Stage 2."""
    folder = tmp_path_factory.mktemp("store") / "cell"
    with blobs_at_hand():
        goodness.train(shrunk("cp-fair", EVERYTHING), out=folder / "run", device="cpu")
        goodness.readout(folder / "run", device="cpu")
    return folder


@pytest.fixture(scope="session")
def backprop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "bp"
    with blobs_at_hand():
        goodness.train(shrunk("bp-strong-dense", BLOBS), out=folder, device="cpu")
    return folder
