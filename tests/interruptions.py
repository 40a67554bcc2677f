"""Listeners that end a run in its middle: by a kill, which saves nothing, or by a request, upon which it saves."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

Listen = Callable[[dict[str, Any]], None]


class Killed(BaseException):
    """Ends a run where it stands, with nothing saved."""


def kill_after(count: int, event: str = "step") -> Listen:
    """Kill the run at its `count`-th event of this name."""

    def strike() -> None:
        raise Killed

    return _at(count, event, strike)


def stop_after(count: int, event: str = "step") -> Listen:
    """Ask the run to stop at its `count`-th event of this name, as a scheduler does."""
    return _at(count, event, lambda: signal.raise_signal(signal.SIGTERM))


def _at(count: int, name: str, strike: Callable[[], None]) -> Listen:
    heard = itertools.count(1)

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == name and next(heard) == count:
            strike()

    return listen
