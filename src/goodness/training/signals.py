"""Stopping on request: SIGTERM and Ctrl-C become a flag that loops poll, so that a run can still save."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Windows has none."""


class StopRequest:
    """SIGTERM, SIGHUP (a closed terminal) and the first Ctrl-C set `requested`; a second Ctrl-C raises at once.

        with StopRequest() as stop:
            for batch in batches:
                ...
                if stop.requested:
                    save()
                    sys.exit(stop.exit_code)

    Every loop has to poll (training, evaluation, mining): a flag that only the training step reads is seen
    too late by a scheduler that kills thirty seconds after asking. Outside the main thread Python allows no
    handlers, and this does nothing. One inside another (a run inside a demo of several) passes its request on
    to the outer one.

    A SIGHUP that is ignored stays ignored: that is how `nohup` keeps a run going without its terminal.

    `on_request` is called once, with the exit code, from the signal handler: keep it short, for example a
    message that the run is saving and that a second Ctrl-C stops it at once.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, *(() if _HANGUP is None else (_HANGUP,)))

    def __init__(self, on_request: Callable[[int], object] | None = None) -> None:
        self._on_request = on_request
        self._received: int | None = None
        self._interrupts = 0
        self._outer: StopRequest | None = None
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def requested(self) -> bool:
        return self._received is not None

    @property
    def exit_code(self) -> int:
        """What shells expect of a program that a signal ended: 130 for Ctrl-C, 143 for SIGTERM; else 0."""
        return 0 if self._received is None else 128 + self._received

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
            if isinstance(owner, StopRequest):
                self._outer = owner
                self._received, self._interrupts = owner._received, owner._interrupts
            for number in self._SIGNALS:
                if number == _HANGUP and signal.getsignal(number) == signal.SIG_IGN:  # nohup's stays
                    continue
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            # None stands for a handler that was not installed from Python and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._outer = None

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._note(number)
        if number == signal.SIGINT and self._interrupts > 1:
            raise KeyboardInterrupt

    def _note(self, number: int) -> None:
        if self._outer is not None:
            self._outer._note(number)
        self._interrupts += number == signal.SIGINT
        if self._received is None:
            self._received = number
            if self._on_request is not None:
                with contextlib.suppress(Exception):  # a message that fails must not cost the checkpoint
                    self._on_request(self.exit_code)


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP as Ctrl-C: for work that has nothing to save and only has to tidy up behind itself."""

    def interrupt(number: int, _: FrameType | None) -> None:
        for one in before:  # a second one would stop the tidying up
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, *([] if _HANGUP is None else [_HANGUP])]
    before = {one: handler for one in numbers if (handler := signal.getsignal(one)) != signal.SIG_IGN}  # nohup's stays
    for one in before:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
