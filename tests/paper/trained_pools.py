"""Pools filled with real runs, trained in this process."""

from __future__ import annotations

from pathlib import Path

from goodness.durable import read_json, write_json
from goodness.paper.pool import Needs, Pool
from goodness.paper.publish import seal
from goodness.sweep.engine import How
from goodness.sweep.published import is_published
from goodness.sweep.run import fill
from in_this_process import InThisProcess


def train(pool: Pool, needs: Needs) -> None:
    """One after the other."""
    fill(pool.cells(needs), pool.path, how=How(device="cpu"), jobs=1, engine=InThisProcess(), pause=0.0)


def make_another_training(run: Path, weights: str) -> None:
    """The same run as if it had been trained once more: all of its files that say of which training they are."""
    for name in ("result.json", "health.json", "theory.json"):
        if (run / name).is_file() and "weights_sha256" in (found := read_json(run / name)):
            write_json(run / name, {**found, "weights_sha256": weights})
    if is_published(run):
        seal(run)
