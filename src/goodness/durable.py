"""Files that are either whole or absent: written beside the target, synced, renamed.

The unfinished copy lies in the target's own folder, since a rename is atomic only within one file system and
since the folder that a user chose is the one that was meant to have the room ($TMPDIR often has none).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from goodness.errors import RunError, UserError

PARTIAL = ".partial"  # the ending of unfinished files; after a kill they may stay behind and mean nothing

_ADVICE = {
    errno.ENOSPC: "free some space on that disk or write to another one, then start again",
    errno.EDQUOT: "your quota on that disk is used up: free some of your space, then start again",
    errno.EFBIG: "the file is larger than this process may write: raise `ulimit -f`, then start again",
    errno.EACCES: "make the folder writable for this user or choose another one",
    errno.EPERM: "make the folder writable for this user or choose another one",
    errno.EROFS: "that disk is mounted read-only: choose another folder",
    errno.ENOENT: "the folder does not exist: create it or choose another one",
    errno.EIO: "the disk itself failed: look at the system log and write to another disk",
}


def write_durably(
    path: str | os.PathLike[str],
    content: bytes | Callable[[BinaryIO], object],
    *,
    needed: int | None = None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Make `path` hold `content`, or leave it as it was and say why.

    `content` is the bytes, or a function that writes them to an open file (then `needed`, its size in bytes,
    lets a disk that is too small be noticed beforehand). `check` reads the unfinished file from the disk and
    raises if it is not good; it runs before the rename, so even a file of the same name survives a bad write.
    """
    path = Path(path)
    if isinstance(content, bytes):
        needed = len(content)
    free = _free_bytes(path.parent)
    if needed is not None and free is not None and free < needed:
        raise _cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), needed)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with open(unfinished, "xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            sync_file(file)
        if check is not None:
            _forget_cached(unfinished)
            check(unfinished)
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as trouble:
        raise _cannot_write(path, trouble, needed) from trouble
    finally:  # after the rename there is nothing under this name
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def sync_file(file: BinaryIO | FileIO) -> None:
    """Return once the bytes are on the disk, not merely with the operating system."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename, a new name or a removal in `folder` last through a power cut, where the system can."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as trouble:
        if trouble.errno not in (errno.EINVAL, errno.ENOTSUP):  # network file systems that have no such call
            raise
    finally:
        os.close(handle)


def sweep_partial(folder: Path) -> None:
    """Remove what killed writers left. Only for a folder that no other process writes to."""
    for leftover in folder.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def copy_contents(source: Path, target: Path, *, as_they_are: bool = False) -> None:
    """A folder's files under another name, without their permissions: what is read-only there is to be changed here.
    What cannot be copied whole is not left there. With `as_they_are` times and permissions are kept (this user may
    write to every folder of the copy) and links are copied as links; relative ones stay right only if the copy lies as
    deep."""
    folders: list[tuple[Path, Path]] = []
    try:
        for path in (source, *sorted(source.rglob("*"))):
            place = target / path.relative_to(source)
            if as_they_are and path.is_symlink() and path != source:
                place.symlink_to(os.readlink(path), target_is_directory=path.is_dir())
            elif path.is_dir():
                place.mkdir(parents=path == source)
                folders.append((path, place))
            elif as_they_are:
                shutil.copy2(path, place)
            else:
                shutil.copyfile(path, place)
        for path, place in reversed(folders if as_they_are else []):  # after all that is in them
            shutil.copystat(path, place)
            place.chmod(place.stat().st_mode | stat.S_IRWXU)
    except OSError as trouble:
        shutil.rmtree(target, ignore_errors=True)
        raise RunError(f"could not copy {source}: {trouble.strerror or trouble}") from trouble


def require_place(place: Path | None) -> None:
    """Before minutes of work: the file that is to be written at its end can be, as far as can be told."""
    if place is None:
        return
    try:
        if place.is_dir():
            raise UserError(f"{place} is a folder; name a file")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.exists()  # a name that is too long says so
    except OSError as trouble:
        raise UserError(f"cannot write to {place}: {trouble.strerror}; choose another place") from None
    if not os.access(place.parent, os.W_OK) or (place.is_symlink() and not place.exists()):
        raise UserError(f"cannot write to {place}; choose another place")


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only folders too; what cannot be removed stays. Links are not
    followed."""

    def make_ours(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.chmod(path.stat().st_mode | stat.S_IRWXU)

    if folder.is_dir() and not folder.is_symlink():
        make_ours(folder)
    for place, names, _ in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if not path.is_symlink():
                make_ours(path)
    shutil.rmtree(folder, ignore_errors=True)


def read_json(path: str | os.PathLike[str], *, otherwise: str = "start a new run") -> Any:
    """The object in a JSON file; a missing or damaged file is a RunError, which says what to do if there is no copy."""
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as trouble:
        raise RunError(f"could not read {path}: {trouble.strerror}") from trouble
    except (ValueError, RecursionError) as trouble:
        raise RunError(f"{path} is not valid JSON ({trouble}); restore it from a copy or {otherwise}") from None


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write `value` as indented JSON, keys in the order given. JSON has no NaN or infinity: refused."""
    write_durably(path, _to_json(path, value, indent=2) + b"\n")


def append_line(path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Add one JSON line and sync it. NaN and infinity are refused, as in `write_json`.

    A torn line from an earlier kill is cut off first, so that it never joins this one. To find it, each call
    reads the file: meant for a line per epoch, not per step.
    """
    path = Path(path)
    line = _to_json(path, record) + b"\n"
    try:
        is_new = not path.exists()
        # Unbuffered: a buffer that could not be flushed would be written again when the file closes.
        with open(path, "a+b", buffering=0) as file:
            file.seek(0)
            lines = _intact_lines(path, file.readall())
            end = sum(len(raw) for raw, _ in lines)
            file.truncate(end)
            if lines and not lines[-1][0].endswith(b"\n"):
                line = b"\n" + line
            try:
                written = 0
                while written < len(line):  # a nearly full disk takes a part and refuses the rest
                    written += file.write(line[written:])
                sync_file(file)
            except OSError:
                file.truncate(end)
                raise
        if is_new:
            sync_folder(path.parent)
    except OSError as trouble:
        raise _cannot_write(path, trouble, len(line)) from trouble


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every record of a JSON-lines file; none if there is no file.

    A torn last line (a kill while writing) is left out. Damage anywhere else is an error: no kill does that.
    """
    return [record for _, record in _intact_lines(Path(path), _bytes_if_any(Path(path)))]


def truncate_lines(path: str | os.PathLike[str], keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the records that `keep` refuses (on resume, those after the checkpoint) and a torn last line."""
    path = Path(path)
    old = _bytes_if_any(path)
    kept = [raw.rstrip(b"\n") + b"\n" for raw, record in _intact_lines(path, old) if keep(record)]
    new = b"".join(kept)
    if new != old:
        write_durably(path, new)


def readable_size(count: int) -> str:
    """
    >>> readable_size(532_000_000)
    '532.0 MB'
    """
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _intact_lines(path: Path, data: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Pairs of a line's raw bytes and its record. A line that lacks only its newline is whole: no proper
    prefix of a JSON object is a JSON object."""
    *ended, rest = data.split(b"\n")
    raw_lines = [line + b"\n" for line in ended] + ([rest] if rest else [])
    lines: list[tuple[bytes, dict[str, Any]]] = []
    for number, raw in enumerate(raw_lines, start=1):
        try:
            record = json.loads(raw)
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
        except (ValueError, RecursionError) as trouble:
            if number == len(raw_lines):
                break
            raise RunError(
                f"{path}, line {number} is damaged ({trouble}); remove it, or restore the file from a copy"
            ) from None
        lines.append((raw, record))
    return lines


def _bytes_if_any(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as trouble:
        raise RunError(f"could not read {path}: {trouble.strerror}") from trouble


def _to_json(path: str | os.PathLike[str], value: object, indent: int | None = None) -> bytes:
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
        # A file name that is not UTF-8 has lone surrogates in Python; as \udcff they are JSON and read back the same.
        return text.encode(errors="backslashreplace")
    except ValueError:
        place = _first_non_finite(value, "")
        if place is None:  # a circular object
            raise
        raise RunError(
            f"{path} was not written: {place} is not a finite number, and JSON has none other; "
            "write None where there is no number"
        ) from None


def _first_non_finite(value: object, place: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else f"'{place.lstrip('.')}' ({value})"
    if isinstance(value, dict):
        parts = ((f"{place}.{key}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        parts = ((f"{place}[{number}]", part) for number, part in enumerate(value))
    else:
        return None
    return next((found for where, part in parts if (found := _first_non_finite(part, where))), None)


def _forget_cached(path: Path) -> None:
    """Ask the system to drop its cached copy of a synced file, so that a read-back comes from the disk."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _cannot_write(path: Path, trouble: OSError, needed: int | None) -> RunError:
    free = _free_bytes(path.parent)
    sizes = [
        f"{readable_size(needed)} needed" if needed is not None else "",
        f"{readable_size(free)} free on that disk" if free is not None else "",
    ]
    reason = trouble.strerror or str(trouble)
    advice = _ADVICE.get(trouble.errno or 0, "see to that, then start again")
    return RunError(
        f"could not write {path}: {reason} ({', '.join(size for size in sizes if size) or 'sizes unknown'}). "
        f"What was there before is untouched; {advice}."
    )


def is_number(value: Any) -> TypeGuard[float]:
    """Whether what a file holds is a number, and a finite one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 10**300
