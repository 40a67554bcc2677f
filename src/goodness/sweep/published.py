"""What marks a published run: it has every number and no weights, so that it can be read and not gone on with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from goodness.durable import read_json
from goodness.errors import UserError

PUBLISHED = "published.json"
"""In the folder of a published run: hashes of the full predictions, and what was left out. In that of a whole
publication: its scale, and whether versions may differ."""
SEALED = "files"
"""There, of a published run: the SHA-256 of each of its files. Older publications do not have it."""


def is_published(path: str | os.PathLike[str]) -> bool:
    """Whether the run, or the pool, in this folder is a published one."""
    return (Path(path) / PUBLISHED).is_file()


def is_in_publication(path: str | os.PathLike[str]) -> bool:
    """Whether a file or folder of this name would lie in a published run, or in a publication."""
    place = Path(path).resolve()
    return any(map(is_published, (place, *place.parents)))


def published_run(path: str | os.PathLike[str]) -> Path | None:
    """The published run in this folder, which may be its cell's; None where there is none."""
    return next((place for place in (Path(path), Path(path) / "run") if is_published(place)), None)


def about_publication(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the publication in this folder says of itself, `scale` and `mixed_versions`; nothing where there is none."""
    if not is_published(path):
        return {}
    place = Path(path) / PUBLISHED
    found = read_json(place, otherwise="publish the runs in another folder")
    if not isinstance(found, dict) or not ("sha256" in found or isinstance(found.get("scale"), str)):
        raise UserError(f"{place} is not what goodness publish writes; restore it from a copy")
    return found


def exchanged_file(path: str | os.PathLike[str]) -> str:
    """The first file of a published run that is not the one that was published with the others; empty where all are,
    but for those that are gone."""
    hashes = about_publication(path).get(SEALED)
    for name, known in hashes.items() if isinstance(hashes, dict) else ():
        file = Path(path) / name
        if file.is_file() and seal_of(file) != known:
            return name
    return ""


def seal_of(file: Path) -> str:
    """The SHA-256 of a published file; of text with line ends as they are here, which git may write otherwise."""
    found = file.read_bytes()
    text = found if file.suffix == ".npz" else found.replace(b"\r\n", b"\n")
    return hashlib.sha256(text).hexdigest()


def refuse_published(path: str | os.PathLike[str]) -> None:
    """Refuse what needs the weights of a run that was published without; a cell's folder counts as its run's."""
    if published_run(path) is not None:
        raise UserError(f"{path} is a published run: its weights were not published, train it again to have them")
