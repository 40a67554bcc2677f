"""How a sweep stands: every cell, and the time that is left."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from goodness.sweep.cell import Cell
from goodness.sweep.state import Standing


@dataclass(frozen=True)
class Place:
    """A cell and how it stands."""

    cell: Cell
    standing: Standing


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A sweep at one moment."""

    places: Sequence[Place]
    jobs: int
    """Cells at once."""
    retried: frozenset[str] = frozenset()
    """Folder names of the cells that are in their second try."""
    note: str = ""
    """What was measured of cells that share a GPU."""

    def left_of(self, place: Place) -> float | None:
        """Seconds that this cell still needs by itself; None where nothing is known yet."""
        standing = place.standing
        if standing.state == "done":
            return 0.0
        if standing.epoch and standing.seconds:
            return (standing.epochs - standing.epoch) * standing.seconds / standing.epoch
        return self._expected(place.cell)

    @property
    def left(self) -> float | None:
        """Seconds until all cells are done, so many at a time; failed ones are not waited for."""
        begun = [one for one in self.places if one.standing.state == "running"]
        waiting = [one for one in self.places if one.standing.state in ("waiting", "stopped")]
        times = [self.left_of(one) for one in (*begun, *waiting)]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            return None
        ends = [0.0] * max(1, self.jobs)  # when each place becomes free
        for time in known:
            heapq.heapreplace(ends, ends[0] + time)
        return max(ends)

    def _expected(self, cell: Cell) -> float | None:
        """From the pace of its own group; else from that of all, an epoch being like any other."""
        paces = [(one.cell.group, one.standing) for one in self.places if one.standing.epoch and one.standing.seconds]
        alike = [standing for group, standing in paces if group == cell.group]
        known = alike or [standing for _, standing in paces]
        if not known:
            return None
        return cell.epochs * sum(one.seconds for one in known) / sum(one.epoch for one in known)
