"""How many cells at once: a number that was given, or on a GPU as many as a measurement says pay.

The measurement costs nothing: the cells' own epochs are the clock. One cell runs alone first, then two, and so on, as
long as one more adds to what all of them get done together. That is their joint speed while they train, and what is
won where one trains while another still compiles: with a share s of a cell's life before its training, n at once whose
joint speed is v get 1 / (s / n + (1 - s) / v) times as much done as one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    epochs: int = 0
    """Of the whole cell; 0 where nobody knows."""


class Slots(Protocol):
    """How many cells may run at once."""

    @property
    def limit(self) -> int: ...

    @property
    def note(self) -> str:
        """What was found out, in words."""
        ...

    @property
    def wanted(self) -> Collection[str]:
        """Groups whose cells should come next, for what they will tell; none where it is all the same."""
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
    wanted: Collection[str] = ()

    def observe(self, running: Mapping[str, Seen]) -> None:
        pass

    def too_many(self, running: int) -> None:
        pass


@dataclass
class Measured:
    """As many as pay. `speeds` has the joint speed of so many cells at once in training, a cell alone being 1."""

    speeds: dict[int, float] = field(default_factory=dict)
    ceiling: int = MOST
    alone: dict[str, float] = field(default_factory=dict)
    """Seconds an epoch of each group, alone."""
    lives: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each cell that was seen from its first epoch on, seconds before its training, and of all its life."""
    _first_epochs: dict[str, Seen] = field(default_factory=dict)  # each cell when its first epochs were done
    _names: frozenset[str] = frozenset()
    _first: dict[str, int] = field(default_factory=dict)  # epochs when this set of cells was first seen
    _from: dict[str, Seen] = field(default_factory=dict)  # each cell once all have settled

    @property
    def limit(self) -> int:
        best = 1
        while best in self.speeds and best < self.ceiling:
            if best + 1 in self.speeds and self.gain(best + 1) < GAIN * self.gain(best):  # not measured yet: try
                break
            best += 1
        return best

    @property
    def wanted(self) -> Collection[str]:
        """While the joint speed of so many is not known: groups whose speed alone is, or it never would be."""
        return () if self.limit in self.speeds else frozenset(self.alone)

    @property
    def share(self) -> float:
        """Of a cell's life that passes before its training, on average."""
        before, whole = self._sums()
        return before / whole if whole else 0.0

    def _sums(self) -> tuple[float, float]:
        return sum(before for before, _ in self.lives.values()), sum(whole for _, whole in self.lives.values())

    def gain(self, count: int) -> float:
        """What so many at once get done against one after the other."""
        return 1 / (self.share / count + (1 - self.share) / self.speeds[count])

    @property
    def note(self) -> str:
        counts = [count for count in sorted(self.speeds) if count > 1]
        found = ", ".join(
            f"{count} at once {self.speeds[count]:.2f}, start-up included {self.gain(count):.2f}" for count in counts
        )
        return f"joint speed of cells on one GPU: {found} (one alone 1)" if found else ""

    @classmethod
    def remembered(cls, found: Mapping[str, Mapping[str, float]]) -> Measured:
        """With what `as_dict` gave, from an earlier day of the same sweep."""
        speeds = {int(count): speed for count, speed in found.get("speeds", {}).items()}
        life = found.get("life", {})
        lives = {"": (life["before"], life["whole"])} if life else {}
        return cls(speeds=speeds, alone=dict(found.get("alone", {})), lives=lives)

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Plain JSON data."""
        speeds = {str(count): speed for count, speed in self.speeds.items()}
        before, whole = self._sums()
        life = {"before": round(before, 3), "whole": round(whole, 3)} if whole else {}
        return {"speeds": speeds, "alone": dict(self.alone), "life": life}

    def observe(self, running: Mapping[str, Seen]) -> None:
        self._time(running)
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

    def _time(self, running: Mapping[str, Seen]) -> None:
        """How long each cell took to begin, once its pace is known: what its first epochs took beyond that pace."""
        for name, seen in running.items():
            first = self._first_epochs.get(name)
            if seen.epoch == 0 or (first is not None and first.epoch == 0):  # not one that goes on from a checkpoint
                self._first_epochs[name] = seen
            elif first is not None and seen.epochs and seen.epoch >= first.epoch + EPOCHS:
                pace = (seen.seconds - first.seconds) / (seen.epoch - first.epoch)
                before = max(0.0, first.seconds - first.epoch * pace)
                self.lives[name] = (before, before + seen.epochs * self.alone.get(seen.group, pace))  # as if alone

    def too_many(self, running: int) -> None:
        self.ceiling = max(1, min(self.ceiling, running - 1))
