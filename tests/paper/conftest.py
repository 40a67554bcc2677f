"""A handful of really trained runs, made once: a pool at the scale `tiny`, as `goodness reproduce` would leave it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trained_pools import train

from goodness.config import Config
from goodness.paper.pool import Pool
from goodness.paper.scales import SCALES, Scale
from goodness.paper.suites import paper_table
from tiny_runs import blobs_at_hand

TRAINED = {
    ("gamma0", 42): True,
    ("gamma0", 123): True,
    ("lcff", 42): False,
    ("cp-fair", 42): False,
    ("bp-strong", 42): False,
}
"""Runs, and of each whether Stage 2 is trained."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Not to be written to."""
    pool = Pool.at("tiny", tmp_path_factory.mktemp("pool"))
    train(pool, TRAINED)
    return pool


@pytest.fixture
def copied(trained: Pool, tmp_path: Path) -> Pool:
    """The same runs, to be spoiled."""
    shutil.copytree(trained.path, tmp_path / "pool")
    return Pool.at("tiny", tmp_path / "pool")


def on_blobs(config: Config) -> dict[str, Any]:
    return {**SCALES["tiny"].changes(config), "data": "ten-blobs", "batch": 16, "augment": "weak"}


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Three rules on images that may be mirrored, Stage 2 included, one seed."""
    scale = Scale(
        name="blobs", about="made-up images", changes=on_blobs, seconds=lambda config, readout: 1.0, is_papers=True
    )
    made = Pool(tmp_path_factory.mktemp("blobs"), scale)
    with blobs_at_hand():
        train(made, paper_table("main_dissociation").needs(scale, [42]))
        yield made
