"""Files from the official places: resumed where they stopped, verified before they get their name.

The unfinished file is `<name>.part` beside the target. It gets its real name only when size and SHA-256 are
the published ones, so a file without `.part` is a good one, whatever happened to connection or machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from goodness.durable import sync_file, sync_folder
from goodness.errors import DataError, RunError

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0  # without a single byte; a slow server may take as long as it likes
_TRIES = 5  # per mirror, as long as each brings the file further


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A published file: where it goes in the cache folder, what it must be, and where to get it."""

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


class _Failure(Exception):
    """One attempt at one address that did not bring the file to its end."""


def fetch(
    file: RemoteFile, folder: Path, progress: Progress | None = None, *, timeout: float = _TIMEOUT_SECONDS
) -> Path:
    """Have `file` in `folder`, verified; resume what an earlier call left. Returns its path."""
    target = folder / file.path
    if target.exists():
        verify(file, target)
        if progress is not None:
            progress(file.size, file.size)
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise DataError(f"cannot create {target.parent} ({trouble}): choose another folder with --data-dir") from None
    with _held_alone(part):
        _check_room(file, part)
        failures = _try_all(file, part, progress, timeout)
        if _size(part) < file.size:
            raise DataError(_not_downloaded(file, folder, part, failures))
        verify(file, part)
        os.replace(part, target)
        sync_folder(target.parent)
    return target


def verify(file: RemoteFile, path: Path) -> None:
    """Refuse `path` unless it has the published size and SHA-256. Deleting it is left to the user."""
    size = path.stat().st_size
    if size != file.size:
        raise DataError(
            f"{path} has {size:,} bytes, expected {file.size:,}: it is truncated or another file. "
            "Delete or move it, then fetch it again"
        )
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        raise DataError(
            f"{path} has SHA-256\n  {found}, expected\n  {file.sha256}: its content is not what was "
            "published. Delete or move it, then fetch it again"
        )


def by_hand(files: list[RemoteFile], folder: Path) -> str:
    """How to bring the files here without this program: from where, to which folder, with which hash."""
    lines = [
        f"  {file.name} ({file.size:,} bytes, SHA-256 {file.sha256})\n"
        f"    from {' or '.join(file.urls)}\n"
        f"    into {(folder / file.path).parent}"
        for file in files
    ]
    return "\n".join(lines)


def _try_all(file: RemoteFile, part: Path, progress: Progress | None, timeout: float) -> list[str]:
    """Go through the mirrors until the part is complete; the reasons of those that failed."""
    failures: list[str] = []
    for url in file.urls:
        for _ in range(_TRIES):
            before = _size(part)
            if before >= file.size:
                return failures
            try:
                _bring_further(url, file, part, progress, timeout)
            except _Failure as failure:
                failures.append(f"{url}: {failure}")
            if _size(part) <= before:
                break  # this mirror gives nothing more
    return failures


def _bring_further(url: str, file: RemoteFile, part: Path, progress: Progress | None, timeout: float) -> None:
    """Append to the part what it still lacks, or start it over when the server cannot resume."""
    with _opened(url, _size(part), timeout) as (answer, start):
        length = answer.headers.get("Content-Length")
        if length is not None and length.isdigit() and start + int(length) != file.size:
            # A login page or a newer version: not worth a single byte on the disk.
            raise _Failure(f"offers {start + int(length):,} bytes, expected {file.size:,}")
        done = start
        with _written(part, start) as out:
            while True:
                try:
                    chunk = answer.read(_CHUNK)
                except (http.client.HTTPException, OSError) as trouble:
                    raise _Failure(f"stopped after {done:,} of {file.size:,} bytes ({trouble})") from None
                if not chunk:
                    break
                if done + len(chunk) > file.size:
                    raise _Failure(f"sends more than the expected {file.size:,} bytes")
                _write(out, chunk, part)
                done += len(chunk)
                if progress is not None:
                    progress(done, file.size)
    if done < file.size:
        raise _Failure(f"stopped after {done:,} of {file.size:,} bytes")


@contextlib.contextmanager
def _opened(url: str, have: int, timeout: float) -> Iterator[tuple[http.client.HTTPResponse, int]]:
    """The server's answer, and the position at which its bytes belong (zero where it ignores the range)."""
    if not url.startswith(("https://", "http://")):
        raise _Failure("not an http or https address")
    # Identity: a transparently compressed answer would have another length and another hash.
    headers = {"User-Agent": "goodness", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as trouble:
        trouble.close()
        if trouble.code == 416 and have:  # the range does not suit the server: ask for the whole
            with _opened(url, 0, timeout) as whole:
                yield whole
            return
        raise _Failure(f"HTTP {trouble.code} {trouble.reason}") from None
    except urllib.error.URLError as trouble:
        raise _Failure(str(trouble.reason)) from None
    except (http.client.HTTPException, OSError) as trouble:
        raise _Failure(str(trouble) or type(trouble).__name__) from None
    with answer:
        if answer.status == 206:
            span = answer.headers.get("Content-Range", "")
            if not span.startswith(f"bytes {have}-"):
                raise _Failure(f"asked for bytes from {have:,} on, was sent '{span}'")
            yield answer, have
        else:
            yield answer, 0


@contextlib.contextmanager
def _written(part: Path, start: int) -> Iterator:
    """The part, open for writing at `start`; however an attempt ends, what it received is on the disk."""
    with part.open("r+b" if part.exists() else "w+b") as out:
        out.truncate(start)
        out.seek(start)
        try:
            yield out
        finally:
            with contextlib.suppress(OSError):
                sync_file(out)


def _write(out, chunk: bytes, part: Path) -> None:
    try:
        out.write(chunk)
    except OSError as trouble:
        raise RunError(f"cannot write {part} ({trouble}): free some space; the download resumes") from trouble


@contextlib.contextmanager
def _held_alone(part: Path) -> Iterator[None]:
    """Keep two processes from writing one part; an untouched part is not left behind."""
    try:
        lock = part.open("ab")
    except OSError as trouble:
        raise DataError(f"cannot write {part} ({trouble}): choose another folder with --data-dir") from None
    with lock:
        try:
            import fcntl
        except ImportError:  # no such locks on Windows; the hash still tells a mixed file
            pass
        else:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DataError(f"another process is downloading {part}: wait for it to end") from None
        try:
            yield
        finally:
            if part.exists() and _size(part) == 0:
                part.unlink()


def _check_room(file: RemoteFile, part: Path) -> None:
    lacking = file.size - _size(part)
    if lacking < 0:
        raise DataError(
            f"{part} has {_size(part):,} bytes, more than the whole {file.size:,}: delete it and fetch again"
        )
    free = shutil.disk_usage(part.parent).free
    if free < lacking:
        raise RunError(f"{part.parent} has room for {free:,} bytes; {file.name} needs {lacking:,} more")


def _not_downloaded(file: RemoteFile, folder: Path, part: Path, failures: list[str]) -> str:
    kept = f"{_size(part):,} bytes are kept in {part}; the same command goes on from there.\n"
    return (
        f"could not download {file.name}:\n"
        + "".join(f"  {failure}\n" for failure in dict.fromkeys(failures))
        + (kept if _size(part) else "")
        + f"Without a network, bring it here by hand:\n{by_hand([file], folder)}"
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
