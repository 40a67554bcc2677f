"""Where cells run. An engine starts a cell's command somewhere; the cell itself does not know where that is.

The command is the same for every engine, whether a cell is new, stopped or nearly done: `goodness cell FOLDER`. It
does what is left, saves and stops at SIGTERM, and ends with 0 when the cell is finished.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from goodness.sweep.cell import Cell, CellFolder

STOPPED = frozenset({129, 130, 143, -1, -2, -15})
"""Exit codes of a cell that was asked to stop: SIGHUP, SIGINT, SIGTERM, after saving or before it could."""


class Handle(Protocol):
    """A cell that was started."""

    def poll(self) -> int | None:
        """Its exit code, None while it runs; a signal's number below zero where one killed it."""
        ...

    def stop(self) -> None:
        """Ask it to save and stop; it is still to be polled until it has."""
        ...


class Engine(Protocol):
    """Starts cells; how many at once is for the sweep to say."""

    def start(self, cell: Cell, folder: Path) -> Handle: ...


@dataclass(frozen=True, kw_only=True)
class How:
    """Where and how cells run, never what they learn."""

    device: str = "auto"
    data_dir: str | None = None
    plugins: tuple[str, ...] = ()
    """Python modules or files that each cell imports first: given anew at every start, never read from a file."""


def cell_command(folder: Path, how: How) -> list[str]:
    """What any engine runs for the cell in this folder."""
    command = [sys.executable, "-m", "goodness", "cell", str(folder.resolve()), "--device", how.device]
    command += [] if how.data_dir is None else ["--data-dir", how.data_dir]
    return command + (["--plugin", *how.plugins] if how.plugins else [])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of_cores(jobs: int) -> int:
    """Threads for each of so many cells at once; never more than OMP_NUM_THREADS asks for."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores() // jobs, int(asked) if asked.isdecimal() and int(asked) else cores()))


class LocalEngine:
    """A process per cell on this machine."""

    def __init__(self, how: How, threads: int) -> None:
        self.how, self.threads = how, threads

    def start(self, cell: Cell, folder: Path) -> LocalHandle:
        command = cell_command(folder, self.how)
        threads = str(self.threads)
        variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
        with CellFolder(folder).log_path.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode(errors="replace"))
            log.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **variables},
                start_new_session=True,  # a Ctrl-C is the sweep's, which then asks each cell once
            )
        return LocalHandle(process)


class LocalHandle:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self.process.terminate()
