"""An engine without processes: real cells, trained where the test runs."""

from __future__ import annotations

import os
from pathlib import Path

from goodness.sweep.cell import Cell
from goodness.sweep.work import work


class InThisProcess:
    """Does the work itself, at once: a real cell without a process of its own."""

    def start(self, cell: Cell, folder: Path) -> Ended:
        work(folder, device="cpu")
        return Ended()


class Ended:
    def poll(self) -> int:
        return 0

    def stop(self) -> None:
        os.abort()  # nothing runs
