"""The parts of a configuration that are not this package's: a hash of the files that define them.

Another version of a plugin is another method, as much as another version of one of ours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from goodness.config import Config
from goodness.parts import Part


def own_sources(config: Config) -> str | None:
    """The SHA-256 of the files that define a user's own parts in a configuration; None where it has none.

    Only the files themselves count, not what they import. A part that was typed into an interpreter has no file.
    """
    names = {type(part).__module__ for part in _parts_of(config)}
    own = {name for name in names if name.partition(".")[0] != "goodness"}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in own}
    if not files:
        return None
    digest = hashlib.sha256()
    for content in sorted(Path(file).read_bytes() if file and Path(file).is_file() else b"" for file in files.values()):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _parts_of(value: Any) -> Iterator[Part]:
    """Every part in a configuration, at any depth."""
    if isinstance(value, Part):
        yield value
    inner = value.values() if isinstance(value, Mapping) else ()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for one in inner:
        yield from _parts_of(one)
