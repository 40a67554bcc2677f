"""An engine whose processes stay, and are handed one cell after the other.

For cells of a second or two importing torch takes longer than the cell; on a GPU compiling does: a process that has
compiled a preset's step compiles nothing for its other seeds. A worker (`python -m goodness.sweep.workers`) reads a
cell's command from its input, a line of JSON, runs it as `goodness` itself would, with the cell's own log as its
output, and answers with the exit code. It ends when its input does, or a cell ends badly: it outlives a sweep that was
killed by the cell in its hands, no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.engine import How, cell_command

PATIENCE = 60.0
"""Seconds for a worker to save and end."""


class WorkerEngine:
    """As many workers as there are cells at once; close it, or use it in a `with`."""

    def __init__(self, how: How, threads: int = 1) -> None:
        self.how, self.threads = how, threads
        self.workers: list[_Worker] = []

    def choose(self, waiting: Sequence[Cell]) -> Cell:
        """Which of these to start next: one of a group that a free worker has compiled, else of one that no worker is
        at, else the first."""
        warm = {group for one in self.workers if one.is_free for group in one.groups}
        busy = {one.group for one in self.workers if not one.is_free and not one.is_over}
        compiled = (cell for cell in waiting if cell.group in warm)
        untouched = (cell for cell in waiting if cell.group not in busy)
        return next(compiled, None) or next(untouched, waiting[0])

    def start(self, cell: Cell, folder: Path) -> WorkerHandle:
        log = CellFolder(folder).log_path
        free = [one for one in self.workers if one.is_free]
        worker = next((one for one in free if cell.group in one.groups), free[0] if free else None)
        if worker is None:
            for over in [one for one in self.workers if one.is_over]:
                over.dismiss()
                self.workers.remove(over)
            worker = _Worker(self.threads, log)
            self.workers.append(worker)
        return worker.take(cell_command(folder, self.how), log, cell.group)

    def close(self) -> None:
        """Let the idle ones end, and ask one that works to save and stop."""
        for worker in self.workers:
            worker.dismiss()
        self.workers = []

    def __enter__(self) -> WorkerEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    def __init__(self, threads: int, log: Path) -> None:
        few = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with log.open("ab") as words:  # of one that cannot even start; later each cell's log takes its own
            self.process = subprocess.Popen(
                [sys.executable, "-m", "goodness.sweep.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**os.environ, **few},
                start_new_session=True,  # a Ctrl-C is the sweep's, which then asks each cell once
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asks, self.answers = self.process.stdin, self.process.stdout
        os.set_blocking(self.answers.fileno(), False)
        self.handle: WorkerHandle | None = None
        self.group = ""  # of the cell in hand, or the last one
        self.groups: set[str] = set()  # of all its cells: their graphs are compiled here

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to: it does after a cell that ended badly."""
        return self.process.poll() is not None or (self.handle is not None and self.handle.code not in (None, 0))

    @property
    def is_free(self) -> bool:
        return not self.is_over and (self.handle is None or self.handle.code == 0)

    def take(self, command: list[str], log: Path, group: str) -> WorkerHandle:
        self.handle, self.group = WorkerHandle(self), group
        self.groups.add(group)
        with contextlib.suppress(OSError):  # it has died: poll tells
            self.asks.write(json.dumps({"command": command, "log": str(log)}).encode() + b"\n")
            self.asks.flush()
        return self.handle

    def answer(self) -> int | None:
        """The exit code of the cell in hand, None while there is none."""
        line = self.answers.readline()
        if line:
            return int(line)
        return self.process.poll()  # it died with the cell: its own end is the cell's

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self.asks.close()
        if self.handle is not None and self.handle.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()


class WorkerHandle:
    """A cell in a worker's hands."""

    def __init__(self, worker: _Worker) -> None:
        self.worker = worker
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self.worker.answer()
        return self.code

    def stop(self) -> None:
        if self.code is None:
            self.worker.process.terminate()


def main() -> None:
    """A worker's life."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    for line in sys.stdin:
        asked = json.loads(line)
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(log, f"$ {shlex.join(asked['command'])}\n".encode(errors="replace"))
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        code = _run(asked["command"][3:])  # behind `python -m goodness`
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            answers.write(f"{code}\n".encode())
        except OSError:  # the sweep is gone
            return
        if code != 0:  # a device, or a state, that one cell has spoilt is not the next one's
            return


def _run(arguments: list[str]) -> int:
    from goodness.cli import main as goodness

    try:
        return goodness(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:  # as Python would at the end of a process
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main()
