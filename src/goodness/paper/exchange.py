"""A publication is built beside its place and put there whole, by one process at a time; a stop at any moment leaves
the older or the newer one. What lies beside it meanwhile has names of its own, and only such names are removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from goodness.durable import remove_tree
from goodness.errors import RunError, UserError
from goodness.runs.lock import acquire, release
from goodness.sweep.published import is_published

BUILDING, OLD = "building", "old"


@contextlib.contextmanager
def alone_with(out: Path) -> Iterator[None]:
    """Keep other processes from publishing here, and put right what one that was killed left behind."""
    if not out.name:
        raise UserError(f"{out} has no name of its own, and --out names a folder; choose another --out")
    with _parents_of(out), _locked(out):
        _put_right(out)
        yield


@contextlib.contextmanager
def _parents_of(out: Path) -> Iterator[None]:
    """The folders above, made where they are missing; those that are empty after all are removed again."""
    missing = list(itertools.takewhile(lambda folder: not os.path.lexists(folder), out.parents))  # the lowest first
    try:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as trouble:
            raise UserError(f"cannot use {out}: {trouble.strerror}; choose another --out") from trouble
        yield
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # something lies in it, or it could not be made
                folder.rmdir()


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    place = out.with_name(f".{out.name}.publish.lock")
    lock = acquire(place, folder=out)
    while not _is_at(lock, place):  # its holder removed it after we had opened it
        release(lock)
        lock = acquire(place, folder=out)
    try:
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
    _remove(old, out)


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
            _remove(old, out)
    for building in _left_beside(out, BUILDING):
        remove_tree(building)


def _remove(old: Path, out: Path) -> None:
    """Remove an older publication, under a name from which nothing is restored: a stop may leave half of it."""
    going = beside(out, BUILDING)
    with contextlib.suppress(OSError):  # there is none; or it stays whole, and goes the next time
        old.rename(going)
    remove_tree(going)


def _left_beside(out: Path, what: str) -> list[Path]:
    ours = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.{what}")
    return sorted(path for path in out.parent.iterdir() if ours.fullmatch(path.name))


def _is_at(lock: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except FileNotFoundError:
        return False
