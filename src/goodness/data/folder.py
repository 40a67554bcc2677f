"""A user's own images: `PATH/train/<class>/*`, `PATH/test/<class>/*` and, if wanted, `PATH/val/<class>/*`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from goodness.data.class_folders import listed, some
from goodness.data.dataset import Dataset, Raw, as_split
from goodness.data.images import Split
from goodness.data.pictures import formats, opened, pillow
from goodness.errors import DataError

_GREY = {"1", "L", "LA", "La"}
_DEEP = {
    "I",
    "F",
    "I;16",
    "I;16L",
    "I;16B",
    "I;16N",
}  # more than 8 bits: Pillow would clip them, not scale them
_MEMORY_CAP = 32 << 30  # bytes of pixels; the whole set is kept in memory

Decoded = tuple[Path, int, tuple[int, int], str]  # file, label, (width, height), mode


@dataclass(frozen=True)
class ImageFolder(Dataset):
    """The data set `folder:PATH`. Without a `val` folder, a tenth of the training images is held out."""

    path: Path

    def place(self, folder: Path) -> Path | None:
        return self.path if self.path.is_dir() else None

    def validation_size(self, train: Split) -> int:
        return len(train) // 10

    def hashes(self, folder: Path) -> list[dict[str, Any]]:
        """None: nothing was published about these files."""
        return []

    def read(self, folder: Path) -> Raw:
        if not self.path.is_dir():
            raise DataError(f"there is no folder {self.path}: folder:PATH needs PATH/train/<class>/ with images")
        pillow()
        classes, train = listed(self.path / "train", None)
        _, test = listed(self.path / "test", classes)
        own_val = (self.path / "val").is_dir()
        val = listed(self.path / "val", classes)[1] if own_val else []
        found = _headers(train + test + val)
        (width, height), grey = _common(found)
        needed = len(found) * width * height * (1 if grey else 3)
        if needed > _MEMORY_CAP:
            raise DataError(
                f"{self.path}: {len(found):,} images of {width}x{height} take {needed / 2**30:.0f} GiB of "
                f"memory, more than {_MEMORY_CAP / 2**30:.0f}: make the images smaller"
            )
        images = _pixels(found, width, height, grey)
        labels = [label for _, label, _, _ in found]
        first, second = len(train), len(train) + len(test)
        return Raw(
            classes=classes,
            train=as_split(images[:first], labels[:first]),
            test=as_split(images[first:second], labels[first:second]),
            val=as_split(images[second:], labels[second:]) if own_val else None,
            provenance=f"{self.path}: {len(found):,} images decoded, all {width}x{height} "
            f"{'greyscale' if grey else 'RGB'}",
        )


def _headers(files: list[tuple[Path, int]]) -> list[Decoded]:
    """Size and mode of every image, from its header alone."""
    allowed = formats()
    found: list[Decoded] = []
    unreadable: list[str] = []
    for path, label in files:
        try:
            with opened(path, allowed) as image:
                if image.mode in _DEEP:
                    raise ValueError(f"mode {image.mode} has more than 8 bits per pixel")
                found.append((path, label, image.size, image.mode))
        except (OSError, ValueError) as trouble:
            unreadable.append(_why(path, trouble))
    _refuse(unreadable, len(files))
    return found


def _common(found: list[Decoded]) -> tuple[tuple[int, int], bool]:
    """The one size that all images have, and whether all are greyscale."""
    sizes = Counter(size for _, _, size, _ in found)
    (width, height), most = sizes.most_common(1)[0]
    if len(sizes) > 1:
        odd = [f"{path} ({w}x{h})" for path, _, (w, h), _ in found if (w, h) != (width, height)]
        raise DataError(
            f"all images must have one size; {most:,} are {width}x{height} and {len(odd):,} are not: "
            f"{some(odd)}. Resize or crop them"
        )
    return (width, height), all(mode in _GREY for _, _, _, mode in found)


def _pixels(found: list[Decoded], width: int, height: int, grey: bool) -> np.ndarray:
    images = np.empty((len(found), 1 if grey else 3, height, width), dtype=np.uint8)
    allowed = formats()
    unreadable: list[str] = []
    for row, (path, _, _, _) in enumerate(found):
        try:
            with opened(path, allowed) as image:
                pixels = np.asarray(image.convert("L" if grey else "RGB"))
            images[row] = pixels[None] if grey else pixels.transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError) as trouble:
            unreadable.append(_why(path, trouble))
    _refuse(unreadable, len(found))
    return images


def _refuse(unreadable: list[str], total: int) -> None:
    if unreadable:
        raise DataError(
            f"{len(unreadable):,} of {total:,} files cannot be read as images: {some(unreadable)}. "
            "Repair or remove them"
        )


def _why(path: Path, trouble: Exception) -> str:
    reason = str(trouble).replace(str(path), "").replace("''", "").strip() or type(trouble).__name__
    return f"{path} ({reason})"
