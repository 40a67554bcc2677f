"""Progress of runs and downloads: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

PLAIN_EVERY = 5.0
"""Seconds between lines where there is no terminal to draw a bar on."""


class Progress:
    """Hears a run's events and shows them; several runs at once, told apart by the event's `run`."""

    def __init__(
        self,
        console: Console | None,
        *,
        total_runs: int = 1,
        quiet: bool = False,
        lines: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.console, self.quiet, self.lines = console, quiet, lines
        self.total_runs = total_runs
        self.bars: Bars | None = None
        self.tasks: dict[str, TaskID] = {}
        self.done: dict[str, float] = {}
        self.begun: dict[str, float] = {}  # where each run stood when it was first heard of
        self.started = time.monotonic()
        self.last_line = 0.0
        self.is_deaf = False

    def __enter__(self) -> Progress:
        if self.console is not None and self.console.is_terminal and not self.quiet:
            self.bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
            )
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def listen(self, event: dict[str, Any]) -> None:
        """Show an event. Output that cannot be written (a closed pipe, a full log disk) must not cost the run."""
        if self.is_deaf:
            return
        try:
            self._show(event)
        except (OSError, ValueError):
            self.is_deaf = True

    def _show(self, event: dict[str, Any]) -> None:
        if self.lines is not None:
            self.lines(event)
        if self.console is None or self.quiet:
            return
        name = event.get("run", "training")
        if event["event"] == "step":
            self._step(name, event)
        elif event["event"] == "epoch" and "val" in event:
            self._note(name, f"val {100 * event['val']['accuracy']:.1f} %")
            if self.bars is None and self.total_runs == 1:
                self._say(f"epoch {event['epoch'] + 1} of {event['epochs']}: " + _summary(event))
        elif event["event"] == "result":
            self.done[name] = 1.0
        elif event["event"] == "note":
            self._say(f"note: {event['text']}")

    def _step(self, name: str, event: dict[str, Any]) -> None:
        if not self.done:
            self.started = time.monotonic()  # start-up is no measure of the steps
        steps, epochs = event["steps"], event["epochs"]
        done = event["epoch"] * steps + event["step"]
        self.begun.setdefault(name, done / (steps * epochs))
        self.done[name] = done / (steps * epochs)
        if self.bars is not None:
            if name not in self.tasks:
                self.tasks[name] = self.bars.add_task(name, total=steps * epochs, note="")
            self.bars.update(self.tasks[name], completed=done)
        elif time.monotonic() - self.last_line > PLAIN_EVERY:
            share = sum(self.done.values()) / self.total_runs
            elapsed = time.monotonic() - self.started
            work = share - sum(self.begun.values()) / self.total_runs
            left = f", about {elapsed * (1 - share) / work:.0f} s left" if work > 0 and elapsed > 1 else ""
            self._say(f"{100 * share:3.0f} % done, {elapsed:.0f} s passed{left}")

    def bytes_listener(self, name: str) -> Callable[[int, int], None]:
        """A callback (bytes done, bytes in all) for a download."""
        return self._counter(name, "bytes", lambda done, all: f"{done / 2**20:.1f} of {all / 2**20:.1f} MiB")

    def texts_listener(self, name: str) -> Callable[[int, int], None]:
        """A callback (texts done, texts in all) for an embedding."""
        return self._counter(name, "texts", lambda done, all: f"{done:,} of {all:,} texts")

    def _counter(self, name: str, note: str, told: Callable[[int, int], str]) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            if self.bars is not None:
                if name not in self.tasks:
                    self.tasks[name] = self.bars.add_task(name, total=total, note=note)
                self.bars.update(self.tasks[name], completed=done, total=total)
            elif self.console is not None and time.monotonic() - self.last_line > PLAIN_EVERY:
                self._say(f"{name}: {told(done, total)}")

        return report

    def _note(self, name: str, note: str) -> None:
        if self.bars is not None and name in self.tasks:
            self.bars.update(self.tasks[name], note=note)

    def _say(self, text: str) -> None:
        if self.console is not None:
            (self.bars.console if self.bars else self.console).print(text, markup=False, soft_wrap=True)
            self.last_line = time.monotonic()


def _summary(event: dict[str, Any]) -> str:
    text = f"validation {100 * event['val']['accuracy']:.1f} %"
    if "blocks" in event["val"]:  # a readout and a backpropagation control have none
        text += ", sep_cur by block " + " ".join(f"{block['sep_cur']:z.2f}" for block in event["val"]["blocks"])
    return text
