"""A handful of really trained runs, made once: a pool at the scale `tiny`, as `goodness reproduce` would leave it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from trained_pools import train

from goodness.paper.pool import Pool

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
