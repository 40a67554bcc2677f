"""A user's own files, one folder a class: `<part>/<class>/<file>`, listed in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from goodness.errors import DataError

_NOISE = {"thumbs.db", "desktop.ini"}  # left by file managers, beside all names that begin with a dot
_SHOWN = 3


def listed(
    part: Path, expected: tuple[str, ...] | None, what: str = "image", ending: str = ""
) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """The classes of a part, sorted by name, and its files (all, or those of one ending) with their labels."""
    if not part.is_dir():
        advice = "" if part.name == "train" else f"; move some {what}s of every class there from train"
        raise DataError(f"there is no folder {part}: {what}s are expected as {part}/<class>/<{what}>{ending}{advice}")
    visible = sorted(child for child in part.iterdir() if not _is_noise(child))
    classes = tuple(child.name for child in visible if child.is_dir())
    if expected is None and len(classes) < 2:
        raise DataError(
            f"{part} has {len(classes)} class folder{'s' * (len(classes) != 1)}"
            f"{f' ({classes[0]})' if classes else ''}; telling classes apart needs at least two"
        )
    if expected is not None and classes != expected:
        lacking, extra = sorted(set(expected) - set(classes)), sorted(set(classes) - set(expected))
        raise DataError(
            f"{part} and its neighbour train have different class folders: "
            + "; ".join(
                f"{some(names)} only in {place}" for names, place in ((lacking, "train"), (extra, part.name)) if names
            )
        )
    files: list[tuple[Path, int]] = []
    empty: list[Path] = []
    for label, name in enumerate(classes):
        children = sorted(child for child in (part / name).iterdir() if not _is_noise(child))
        nested = [child for child in children if child.is_dir()]
        if nested:
            raise DataError(f"{some(nested)}: a folder inside a class folder; move its {what}s up, or it away")
        inside = [child for child in children if child.is_file() and child.name.endswith(ending)]
        if not inside:
            empty.append(part / name)
        files += [(file, label) for file in inside]
    if empty:
        lacking = f"a *{ending} file" if ending else f"an {what}"
        raise DataError(f"class folders without {lacking} ({len(empty)}): {some(empty)}")
    return classes, files


def some(names: Sequence[object]) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(str(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


def _is_noise(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in _NOISE
