"""A file that one process at a time may hold: it keeps a second run out of a folder, and shows that one works there.

The kernel drops the lock when the process dies, by SIGKILL too, so the dead never block the living. The file itself
stays: removing it would let two processes each lock a file of that name.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from datetime import datetime
from pathlib import Path

from goodness.errors import UserError

LOCK = "run.lock"
"""Of a run's folder."""

_LOCKED_BYTE = 1 << 30  # Windows locks bytes, and a locked byte cannot be read: take one far behind the text
_held: set[int] = set()  # file descriptors, not file objects: nothing closes them behind a run's back


def acquire(path: Path, folder: Path | None = None) -> int:
    """Hold this file until `release` or the end of the process; refused while another holds it. A refusal names the
    folder that is kept: the file's own unless another is given."""
    kept = folder or path.parent
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as trouble:
        raise UserError(f"cannot write to {path.parent}: {trouble.strerror}; use a writable folder") from trouble
    try:
        _lock_or_raise(lock)
    except OSError as trouble:
        holder = os.read(lock, 1000).decode(errors="replace").strip()
        os.close(lock)
        if isinstance(trouble, (BlockingIOError, PermissionError)):  # "taken", on POSIX and on Windows
            raise UserError(
                f"{kept} is in use by {holder or 'another process'}; wait for it, stop it, or choose another folder"
            ) from None
        raise UserError(
            f"cannot lock {path}: {trouble.strerror}; that file system may have no locks: use a local folder"
        ) from trouble
    _held.add(lock)
    with contextlib.suppress(OSError):  # a full disk: the lock holds, only its message is missing
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {platform.node()}, started {now()}\n".encode())
    return lock


def release(lock: int) -> None:
    if lock in _held:  # in a forked child it is closed already, and the number may mean another file
        _held.discard(lock)
        os.close(lock)  # closing drops the lock


def is_held(path: Path) -> bool | None:
    """Whether a process holds this file; None where one cannot know.

    A shared lock is asked for and dropped at once; it is refused while a process holds its own.
    """
    try:
        import fcntl

        with open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    return False


def now() -> str:
    """The time of day, as files tell it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _close_in_child() -> None:
    """A forked child shares its parent's lock, and could keep the folder locked after the parent's death."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _lock_or_raise(lock: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(lock, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(lock, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
