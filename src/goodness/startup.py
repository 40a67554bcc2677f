"""While the command line imports torch, for a second or more: Ctrl-C ends it quietly, and garbage is not collected."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def is_command() -> bool:
    """Whether this process is `goodness` or `python -m goodness`; a program that imports the library keeps its own."""
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    modules = (
        after if word == "-m" else word[2:]
        for word, after in itertools.pairwise([*sys.orig_argv, ""])
        if word.startswith("-m")
    )
    is_module = name in ("-m", "__main__.py") and next(modules, None) == "goodness"  # "-m" while Python looks for it
    return is_module or name.split(".")[0] == "goodness"


def hold() -> None:
    """From here on Ctrl-C ends the process at once, unless something else was to happen. There is nothing to save.

    Garbage collection waits: every pass would go through all that torch has imported.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGINT, _end)


def release() -> None:
    """Python's own way again: KeyboardInterrupt, and garbage collection, but not of what was imported."""
    if is_command():
        gc.freeze()
        gc.enable()
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)  # an exception in the middle of an import may be caught there, and told as another
