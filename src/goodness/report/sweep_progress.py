"""A sweep while it goes on: a live table on a terminal, a line per change elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.table import Table

from goodness.sweep.progress import Place, Snapshot

STYLES = {"running": "bold", "failed": "red", "done": "green", "stopped": "yellow", "waiting": "dim"}
ROOM = 8
"""Lines of the terminal that are not for cells."""


class SweepProgress:
    """Shows one snapshot after the other."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.live: Live | None = None
        self.told: dict[str, str] = {}
        self.note = ""
        self.is_deaf = False

    def __enter__(self) -> SweepProgress:
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, auto_refresh=False)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Output that cannot be written (a closed pipe, a full log disk) must not cost the sweep."""
        if self.quiet or self.is_deaf:
            return
        try:
            if self.live is not None:
                self.live.update(live_table(snapshot, self.console.size.height - ROOM), refresh=True)
            else:
                self._say_changes(snapshot)
        except (OSError, ValueError):
            self.is_deaf = True

    def _say_changes(self, snapshot: Snapshot) -> None:
        for place in snapshot.places:
            name, standing = place.cell.folder_name, place.standing
            if self.told.get(name, "waiting") == standing.state:
                continue
            self.told[name] = standing.state
            self.console.print(_change(place, snapshot), markup=False, soft_wrap=True)
        if snapshot.note and snapshot.note != self.note:
            self.note = snapshot.note
            self.console.print(snapshot.note, markup=False, soft_wrap=True)


def live_table(snapshot: Snapshot, most: int = 1000) -> Table:
    """A row a cell; where they do not all fit, those that move first, and a count of the others."""
    table = Table(title=_summary(snapshot), title_justify="left")
    table.add_column("cell", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("epoch", "accuracy", "time", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    order = ("running", "failed", "stopped", "waiting", "done")
    places = list(snapshot.places)
    if len(places) > most:
        places = sorted(places, key=lambda place: order.index(place.standing.state))[: max(1, most - 1)]
    for place in places:
        standing = place.standing
        again = " (again)" if place.cell.folder_name in snapshot.retried and standing.state == "running" else ""
        left = snapshot.left_of(place) if standing.state in ("running", "stopped") else None
        table.add_row(
            place.cell.folder_name,
            f"[{STYLES[standing.state]}]{standing.state}{again}[/]",
            f"{standing.epoch} of {standing.epochs}" if standing.epoch else "-",
            "-" if standing.accuracy is None else f"{100 * standing.accuracy:.2f} %",
            duration(standing.seconds) if standing.seconds else "-",
            "-" if left is None else duration(left),
        )
    if len(places) < len(snapshot.places):
        table.add_row(f"and {len(snapshot.places) - len(places)} more", *[""] * 5)
    if snapshot.note:
        table.caption, table.caption_justify = snapshot.note, "left"
    return table


def duration(seconds: float) -> str:
    """
    >>> duration(42.3), duration(3661), duration(200)
    ('42 s', '1 h 1 min', '3 min 20 s')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _summary(snapshot: Snapshot) -> str:
    states = [place.standing.state for place in snapshot.places]
    left = snapshot.left
    words = [f"{states.count('done')} of {len(states)} cells done", f"{states.count('running')} running"]
    words += [f"{states.count('failed')} failed"] if "failed" in states else []
    unfinished = len(states) - states.count("done") - states.count("failed")
    return ", ".join(words) + (f", about {duration(left)} left" if left is not None and unfinished else "")


def _change(place: Place, snapshot: Snapshot) -> str:
    standing, name = place.standing, place.cell.folder_name
    about = standing.state
    if standing.state == "done":
        stage = "Stage 2 test accuracy" if "s2" in place.cell.stages else "test accuracy"
        accuracy = "" if standing.accuracy is None else f", {stage} {100 * standing.accuracy:.2f} %"
        about = f"done{accuracy}, {duration(standing.seconds)}"
    elif standing.state == "failed":
        about = f"failed: {standing.error}"
    elif standing.state == "running" and name in snapshot.retried:
        about = "running again"
    elif standing.state in ("running", "stopped") and standing.epoch:
        both = " of both stages" if "s2" in place.cell.stages else ""
        about = f"{standing.state}, epoch {standing.epoch} of {standing.epochs}{both} done"
    return f"{name}: {about}   ({_summary(snapshot)})"
