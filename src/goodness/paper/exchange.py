"""A publication is built beside its place and put there whole, by one process at a time; a stop at any moment leaves
the older or the newer one. What lies beside it meanwhile has names of its own, and only such names are removed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from goodness.errors import RunError, UserError
from goodness.sweep.published import is_published
from goodness.training.lock import acquire, release

BUILDING, OLD = "building", "old"


@contextlib.contextmanager
def alone_with(out: Path) -> Iterator[None]:
    """Keep other processes from publishing here, and put right what one that was killed left behind."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise UserError(f"cannot use {out}: {trouble.strerror}; choose another --out") from trouble
    place = out.with_name(f".{out.name}.publish.lock")
    lock = acquire(place, folder=out)
    while not _is_at(lock, place):  # its holder removed it after we had opened it
        release(lock)
        lock = acquire(place, folder=out)
    try:
        _put_right(out)
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes no open file; one that stays hinders nobody
            place.unlink()
        release(lock)


def beside(out: Path, what: str) -> Path:
    """A new name beside the publication that nothing has."""
    return out.with_name(f".{out.name}.{secrets.token_hex(4)}.{what}")


def put_in_place(building: Path, out: Path) -> None:
    """The new folder under the old one's name. The old one goes when the new one is there."""
    old = beside(out, OLD)
    try:
        if out.exists():
            out.rename(old)
        building.rename(out)
    except BaseException as trouble:  # Ctrl-C too
        if old.exists() and not out.exists():
            old.rename(out)
        if isinstance(trouble, OSError):
            raise RunError(f"could not write {out}: {trouble.strerror}") from trouble
        raise
    shutil.rmtree(old, ignore_errors=True)


def is_free(out: Path) -> bool:
    return not out.exists() or (out.is_dir() and not any(out.iterdir()))


def _put_right(out: Path) -> None:
    """Undo the first half of a change of places that was cut short, and remove what no one builds on any more."""
    for old in _left_beside(out, OLD):
        if is_published(old) and is_free(out):
            if out.exists():
                out.rmdir()
            old.rename(out)
        elif is_published(out):
            shutil.rmtree(old, ignore_errors=True)
    for building in _left_beside(out, BUILDING):
        shutil.rmtree(building, ignore_errors=True)


def _left_beside(out: Path, what: str) -> list[Path]:
    ours = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.{what}")
    return sorted(path for path in out.parent.iterdir() if ours.fullmatch(path.name))


def _is_at(lock: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except FileNotFoundError:
        return False
