"""Archives that are read in memory, member by member; nothing of them is ever extracted to the disk."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from goodness.errors import DataError


class Capped(io.RawIOBase):
    """A stream that refuses to unzip beyond a limit, so that a small file cannot fill the memory."""

    def __init__(self, stream: gzip.GzipFile, limit: int, source: Path) -> None:
        self._stream = stream
        self._left = limit
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise DataError(f"{self._source} unzips to more than its content needs: not the official archive")
        return content


def members(
    source: Path,
    wanted: re.Pattern[str],
    limit: int,
    *,
    check: Callable[[re.Match[str], int], None] = lambda match, size: None,
    expected: str = "",
) -> Iterator[tuple[re.Match[str], bytes]]:
    """The files of a .tar.gz whose whole name matches, with their content, in the archive's order.

    `check` may refuse one by its size before it is read; `expected` says what a whole archive is like.
    """
    seen: set[str] = set()
    try:
        with gzip.open(source) as unzipped:
            capped = Capped(unzipped, limit, source)
            # As a stream: going back in a gzip file would unzip it again from the start.
            with tarfile.open(fileobj=capped, mode="r|", bufsize=1 << 20) as archive:
                for entry in archive:
                    match = wanted.fullmatch(entry.name)
                    if match is None:
                        continue
                    if not 0 <= entry.size <= limit:
                        raise DataError(f"{source}: member {entry.name} has no possible size: not the official archive")
                    if not entry.isreg() or entry.issparse() or entry.name in seen:
                        how = "stands in it twice" if entry.name in seen else "is not a plain file"
                        raise DataError(f"{source}: member {entry.name} {how}: this is not the official archive")
                    check(match, entry.size)
                    seen.add(entry.name)
                    opened = archive.extractfile(entry)
                    yield match, b"" if opened is None else opened.read(entry.size)
            while capped.read(1 << 20):  # to the end, where gzip compares its checksum
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError, MemoryError) as trouble:
        raise DataError(
            f"{source} cannot be read ({trouble}): it is truncated or damaged{expected}; delete it and fetch it again"
        ) from None
