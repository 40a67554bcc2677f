"""A figure that a user asked for by name: PNG and SVG, which take no place of a file that the user did not name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from goodness.durable import require_place
from goodness.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METADATA = {".png": {"Software": "goodness"}, ".svg": {"Creator": "goodness"}}
_MARKS = {".png": b"Software\0goodness", ".svg": b"<dc:title>goodness</dc:title>"}
"""What the metadata come to in a file."""


def figure_files(path: Path) -> tuple[Path, Path]:
    """The PNG and the SVG; the path may have the ending of one, or none."""
    name = path.stem if path.suffix in _MARKS else path.name
    if name in ("", "..", *_MARKS):
        raise UserError(f"--figure names a file, such as figures/speed.png, and {path} does not; name one")
    return path.with_name(f"{name}.png"), path.with_name(f"{name}.svg")


def refuse_foreign_figures(path: Path | None) -> None:
    """Naming a file is consent to replace it; one beside it that follows from the name must be ours. A folder that has
    the name of one is in the way, and so is whatever else forbids to write there."""
    for file in figure_files(path) if path is not None else ():
        require_place(file)
        if file != path and file.is_file() and _MARKS[file.suffix] not in file.read_bytes():
            raise UserError(
                f"{file} is there and was not drawn by this version of goodness; move it away, or name another --figure"
            )


def write_figure(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write both, marked as ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = figure_files(path)
    for file in written:
        figure.savefig(file, dpi=150, metadata=_METADATA[file.suffix])
    return written
