"""Pools filled with real runs, trained in this process."""

from __future__ import annotations

from pathlib import Path

from goodness.paper.pool import Needs, Pool
from goodness.sweep.cell import Cell
from goodness.sweep.engine import How
from goodness.sweep.run import fill
from goodness.sweep.work import work


def train(pool: Pool, needs: Needs) -> None:
    """One after the other."""
    fill(pool.cells(needs), pool.path, how=How(device="cpu"), jobs=1, engine=InThisProcess(), pause=0.0)


class InThisProcess:
    """An engine that does the work itself, at once."""

    def start(self, cell: Cell, folder: Path) -> Ended:
        work(folder, device="cpu")
        return Ended()


class Ended:
    def poll(self) -> int:
        return 0

    def stop(self) -> None:
        raise AssertionError("nothing runs")
