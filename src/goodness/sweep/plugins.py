"""The plugins of a sweep: sweep.json names each with its hash, for a check.

Nothing that a folder names is imported: the command line or the caller says where a plugin lies.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodness.errors import UserError
from goodness.paths import from_home


@dataclass(frozen=True)
class Plugin:
    """What a sweep remembers of a plugin."""

    name: str
    """Of its file, without the folder, or of its module."""
    sha256: str | None = None
    """Of its source; None where it has no single file, or an older version wrote it down."""


def described(plugins: Iterable[str]) -> tuple[Plugin, ...]:
    """What to remember of these modules and files, as they are now."""
    return tuple(_described(name) for name in plugins)


def read_back(written: Any) -> tuple[Plugin, ...]:
    """What `described` found, as JSON holds it: objects. Older files hold the modules and paths themselves."""
    if not isinstance(written, list):
        raise TypeError("plugins are not a list")
    found = [
        Plugin(re.split(r"[/\\]", one)[-1]) if isinstance(one, str) else Plugin(one["name"], one["sha256"])
        for one in written
    ]
    for one in found:
        if not isinstance(one.name, str) or not isinstance(one.sha256, (str, type(None))):
            raise TypeError(f"{one} is no plugin")
    return tuple(found)


def refuse_other_plugins(
    needed: Sequence[Plugin], given: Sequence[Plugin], folder: Path, *, mixed_versions: bool
) -> None:
    """Refuse to go on with a sweep unless every plugin it needs is given, with the content that it had.

    A plugin is known by its content, under whatever name, else by its name. `mixed_versions` accepts another content.
    """
    contents, names = {one.sha256 for one in given}, {one.name for one in given}
    others = [one for one in needed if one.sha256 is None or one.sha256 not in contents]
    missing = [one for one in others if one.name not in names]
    if missing:
        words = [one.name if one.sha256 is None else f"{one.name} (SHA-256 {one.sha256[:12]}…)" for one in missing]
        raise UserError(
            f"{folder} needs plugins that were not given: {', '.join(words)}. Say where each lies: "
            f"{resume_command(folder, [one.name for one in needed])}"
        )
    changed = [one.name for one in others if one.sha256 is not None]
    if changed and not mixed_versions:
        raise UserError(
            f"{', '.join(changed)}: not the content that the sweep in {folder} began with (by SHA-256); give the "
            "earlier version, or accept this one with --mixed-versions"
        )


def resume_command(folder: Path, plugins: Sequence[str] = (), jobs: int | None = None) -> str:
    """The command that goes on with a sweep."""
    words = ["goodness", "sweep", "--resume", str(folder)]
    words += ["--jobs", str(jobs)] if jobs else []
    return shlex.join(words + (["--plugin", *plugins] if plugins else []))


def _described(name: str) -> Plugin:
    if name.endswith(".py"):
        path = from_home(name)
        if not path.is_file():
            raise UserError(f"the plugin {name} is not there; give the place of the file")
        return Plugin(path.name, _sha256(path))
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UserError(f"there is no module '{name}' to import as a plugin")
    return Plugin(name, _sha256(Path(found.origin)) if found.origin and Path(found.origin).is_file() else None)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
