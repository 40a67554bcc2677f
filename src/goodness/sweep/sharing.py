"""How many cells at once: a number that was given, or on a GPU as many as a measurement says pay.

The measurement costs nothing: the cells' own epochs are the clock. One cell runs alone first, then two, and so on, as
long as one more adds to what all of them get done together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

GAIN = 1.1
"""One cell more must make the cells together this much faster."""
MOST = 8
EPOCHS = 2
"""Over which the pace of each cell is taken, after one in which it and the others have settled."""


@dataclass(frozen=True)
class Seen:
    """A running cell at this moment."""

    group: str
    epoch: int
    seconds: float


class Slots(Protocol):
    """How many cells may run at once."""

    @property
    def limit(self) -> int: ...

    @property
    def note(self) -> str:
        """What was found out, in words."""
        ...

    def observe(self, running: Mapping[str, Seen]) -> None:
        """Look at the cells that run now, by name."""
        ...

    def too_many(self, running: int) -> None:
        """So many at once did not fit in the device's memory."""
        ...


@dataclass
class Fixed:
    """A number that was given."""

    limit: int
    note: str = ""

    def observe(self, running: Mapping[str, Seen]) -> None:
        pass

    def too_many(self, running: int) -> None:
        pass


@dataclass
class Measured:
    """As many as pay. `speeds` has the joint speed of so many cells at once, a cell alone being 1."""

    speeds: dict[int, float] = field(default_factory=dict)
    ceiling: int = MOST
    alone: dict[str, float] = field(default_factory=dict)
    """Seconds an epoch of each group, alone."""
    _names: frozenset[str] = frozenset()
    _first: dict[str, int] = field(default_factory=dict)  # epochs when this set of cells was first seen
    _from: dict[str, Seen] = field(default_factory=dict)  # each cell once all have settled

    @property
    def limit(self) -> int:
        best = 1
        while best in self.speeds and best < self.ceiling:
            if self.speeds.get(best + 1, math.inf) < GAIN * self.speeds[best]:  # not measured yet: try
                break
            best += 1
        return best

    @property
    def note(self) -> str:
        found = ", ".join(f"{count} at once {speed:.2f}" for count, speed in sorted(self.speeds.items()) if count > 1)
        return f"joint speed of cells on one GPU: {found} (one alone 1)" if found else ""

    @classmethod
    def remembered(cls, found: Mapping[str, Mapping[str, float]]) -> Measured:
        """With what `as_dict` gave, from an earlier day of the same sweep."""
        speeds = {int(count): speed for count, speed in found.get("speeds", {}).items()}
        return cls(speeds=speeds, alone=dict(found.get("alone", {})))

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Plain JSON data."""
        return {"speeds": {str(count): speed for count, speed in self.speeds.items()}, "alone": dict(self.alone)}

    def observe(self, running: Mapping[str, Seen]) -> None:
        names = frozenset(running)
        if names != self._names:
            self._names, self._from = names, {}
            self._first = {name: seen.epoch for name, seen in running.items()}
        if not running:
            return
        if not self._from:
            if all(seen.epoch > self._first[name] for name, seen in running.items()):
                self._from = dict(running)
            return
        if any(seen.epoch < self._from[name].epoch + EPOCHS for name, seen in running.items()):
            return
        paces = {
            name: (seen.seconds - self._from[name].seconds) / (seen.epoch - self._from[name].epoch)
            for name, seen in running.items()
        }
        self._from = dict(running)
        if len(running) == 1:
            ((name, seen),) = running.items()
            self.alone.setdefault(seen.group, paces[name])
            self.speeds.setdefault(1, 1.0)
        elif all(seen.group in self.alone for seen in running.values()):
            speed = sum(self.alone[seen.group] / paces[name] for name, seen in running.items())
            self.speeds.setdefault(len(running), round(speed, 3))

    def too_many(self, running: int) -> None:
        self.ceiling = max(1, min(self.ceiling, running - 1))
