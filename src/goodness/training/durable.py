"""The names of `goodness.durable` where they stood before: for imports from outside."""

from __future__ import annotations

from goodness.durable import (
    PARTIAL,
    append_line,
    copy_contents,
    read_json,
    read_lines,
    readable_size,
    sweep_partial,
    sync_file,
    sync_folder,
    truncate_lines,
    write_durably,
    write_json,
)

__all__ = [
    "PARTIAL",
    "append_line",
    "copy_contents",
    "read_json",
    "read_lines",
    "readable_size",
    "sweep_partial",
    "sync_file",
    "sync_folder",
    "truncate_lines",
    "write_durably",
    "write_json",
]
