"""A path as a user writes it: `~` is a home folder."""

from __future__ import annotations

import os
from pathlib import Path

from goodness.errors import UserError


def from_home(path: str | os.PathLike[str]) -> Path:
    """The path with `~` or `~user` at its beginning replaced; a home that nobody has is the user's mistake."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        first = Path(path).parts[0]
        raise UserError(f"{path}: there is no home folder {first}; write the path in full") from None
