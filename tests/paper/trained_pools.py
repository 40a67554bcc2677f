"""Pools filled with real runs, trained in this process."""

from __future__ import annotations

from goodness.paper.pool import Needs, Pool
from goodness.sweep.engine import How
from goodness.sweep.run import fill
from in_this_process import InThisProcess


def train(pool: Pool, needs: Needs) -> None:
    """One after the other."""
    fill(pool.cells(needs), pool.path, how=How(device="cpu"), jobs=1, engine=InThisProcess(), pause=0.0)
