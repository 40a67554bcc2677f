"""The tables as files of lines: a header, then a line a row. Lines are appended, and none that counts is changed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodness.durable import sync_file, write_durably
from goodness.errors import RunError, UserError
from goodness.runs.store.columns import EXACT, NUMBERS, TABLES


@dataclass(frozen=True)
class Table:
    """One table's file: its columns and its rows' lines, which may be shorter than the header."""

    path: Path
    header: tuple[str, ...]
    lines: tuple[str, ...]

    @classmethod
    def read(cls, store: Path, name: str) -> Table:
        """A last line without its end counts if it has all fields; else whoever wrote it was killed."""
        path = store / f"{name}.csv"
        try:
            text = path.read_bytes().decode()
        except FileNotFoundError:
            raise UserError(
                f"{store} is no store of results: it has no {path.name}; `goodness results add` makes it"
            ) from None
        except (OSError, UnicodeDecodeError) as trouble:
            raise RunError(f"could not read {path}: {trouble}") from trouble
        *whole, torn = text.split("\n")
        is_complete = bool(whole) and len(_fields(torn)) == len(_fields(whole[0]))
        lines = [line.rstrip("\r") for line in (*whole, *([torn] if is_complete else []))]
        # Merging branches of which one has added columns can leave both headers.
        headers = [tuple(_fields(line)) for line in lines if _run(line) == "run"]
        header = max(headers, key=len, default=())
        if any(other != header[: len(other)] for other in headers) or not set(TABLES[name][:1]) <= set(header):
            raise RunError(f"{path} has no header, or several that differ; restore it from a copy")
        return cls(path, header, tuple(line for line in lines if line and _run(line) != "run"))

    def rows(self) -> list[dict[str, Any]]:
        """Every row, by column, in one order however branches were merged; None where a field is empty or missing."""
        found = []
        for line in sorted(self.lines):
            fields = _fields(line)
            if len(fields) > len(self.header):
                raise RunError(f"{self.path}: this row has more fields than the header: {line[:80]}")
            row: dict[str, Any] = dict.fromkeys(self.header)
            found.append(row | {name: _value(name, text) for name, text in zip(self.header, fields)})
        return found

    def tidied(self, columns: Sequence[str], keep: Callable[[str], bool]) -> Table:
        """The same with the columns that are new, and without rows of runs that `keep` refuses; the file too."""
        header = (*self.header, *(name for name in columns if name not in self.header))
        lines = tuple(line for line in self.lines if keep(_run(line)))
        text = "".join(f"{line}\n" for line in (_line(header), *lines)).encode()
        if text != self.path.read_bytes():
            write_durably(self.path, text)
        return Table(self.path, header, lines)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows at the end, in one write."""
        text = "".join(f"{_line([_text(name, row.get(name)) for name in self.header])}\n" for row in rows).encode()
        with open(self.path, "ab", buffering=0) as file:
            start = os.fstat(file.fileno()).st_size
            try:
                written = 0
                while written < len(text):  # a nearly full disk takes a part and refuses the rest
                    written += file.write(text[written:])
                sync_file(file)
            except OSError as trouble:
                file.truncate(start)
                raise RunError(f"could not write {self.path}: {trouble.strerror}; nothing was added to it") from trouble


def create(store: Path) -> None:
    """Make the tables that are not there yet, with their headers alone."""
    (store / "arrays").mkdir(parents=True, exist_ok=True)
    for name, columns in TABLES.items():
        path = store / f"{name}.csv"
        if not path.exists():
            write_durably(path, f"{_line(columns)}\n".encode())


def _run(line: str) -> str:
    return line.split(",", 1)[0]


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}" if name in EXACT else f"{value:.5g}"
    return " ".join(str(value).split())  # a row is a line


def _value(name: str, text: str) -> Any:
    if not text or name not in NUMBERS:
        return text or None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
