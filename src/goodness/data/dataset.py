"""What a data set is to the rest of the package: a class that reads its images and says what they should be.

A new data set is one class and one line, here or in a user's own file:

    @datasets.register("stripes")
    class Stripes(Dataset):
        flips = False

        def read(self, folder):
            return Raw(classes=("up", "down"), train=as_split(x, y), test=as_split(u, v), provenance="drawn")
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from goodness.data.download import RemoteFile, by_hand
from goodness.data.images import Split
from goodness.errors import DataError
from goodness.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Raw:
    """What a data set hands over, before anything is held out for validation."""

    classes: tuple[str, ...]
    train: Split
    test: Split
    provenance: str  # where the bytes came from and what was verified
    val: Split | None = None  # only where the data set brings its own validation split


class Dataset:
    """One named data set. Only `read` must be written; the facts are for listings and defaults."""

    kind: ClassVar[str] = ""  # the registered name, set by the registry
    about: ClassVar[str] = ""
    class_count: ClassVar[int | None] = None
    shape: ClassVar[tuple[int, int, int] | None] = None  # channels, height, width
    sizes: ClassVar[tuple[int, int] | None] = None  # images before the hold-out, test images
    held_out: ClassVar[int] = 0  # validation images, unless `val=` asks for another number
    flips: ClassVar[bool] = True
    mean: ClassVar[tuple[float, ...] | None] = None  # None: computed from the training images
    std: ClassVar[tuple[float, ...] | None] = None
    files: ClassVar[tuple[RemoteFile, ...]] = ()  # what `get` downloads, relative to the cache folder

    def read(self, folder: Path) -> Raw:
        """Read and verify the images; `folder` is the cache folder."""
        raise NotImplementedError

    def validation_size(self, train: Split) -> int:
        """How many training images to hold out when nobody says."""
        return self.held_out

    def place(self, folder: Path) -> Path | None:
        """Where the data lies now, or None when some of it is missing."""
        return folder if not self.missing(folder) else None

    def missing(self, folder: Path) -> list[RemoteFile]:
        """The files that must still be downloaded before `read` can work."""
        return [file for file in self.files if not (folder / file.path).exists()]

    def hashes(self, folder: Path) -> list[dict[str, Any]]:
        """Every stored file with its SHA-256 and the published one (None where none is known)."""
        return [file_facts(folder / f.path, f.sha256) for f in self.files if (folder / f.path).exists()]

    def absent(self, folder: Path) -> str:
        """That the data set is not there, and both ways to get it."""
        return (
            f"{self.kind} is not in {folder}: run `goodness data get {self.kind}`, or bring it by hand:\n"
            f"{by_hand(list(self.files), folder)}"
        )


datasets: Registry[type[Dataset]] = Registry("data set")


def as_split(images: np.ndarray | Tensor, labels: np.ndarray | Tensor | Sequence[int]) -> Split:
    """A split in the source's order, of images `[n, channels, height, width]` uint8 and labels `[n]`."""
    if isinstance(images, np.ndarray) and not images.flags.writeable:
        images = images.copy()  # a tensor may be written to, so it needs memory of its own
    pixels = torch.as_tensor(images)
    targets = labels.clone() if isinstance(labels, Tensor) else torch.as_tensor(np.array(labels))
    targets = targets.to(torch.int64)
    if pixels.dtype != torch.uint8 or pixels.ndim != 4:
        raise DataError(f"images must be uint8 [n, channels, height, width], not {pixels.dtype} {list(pixels.shape)}")
    if targets.shape != pixels.shape[:1]:
        raise DataError(f"{len(pixels):,} images need as many labels; these have shape {list(targets.shape)}")
    return Split(images=pixels, labels=targets, indices=torch.arange(len(targets)))


def channel_moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of images scaled to [0, 1].

    From the histogram of the 256 values, so the result is exact in float64 and no float copy of the images is
    made. A channel that never varies gets a deviation of 1: it is shifted to zero instead of divided by zero.
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means: list[float] = []
    stds: list[float] = []
    for channel in range(images.shape[1]):
        histogram = torch.zeros(256, dtype=torch.float64)
        for chunk in images[:, channel].split(8192):
            histogram += torch.bincount(chunk.reshape(-1), minlength=256)
        share = histogram / histogram.sum()
        mean = float((share * values).sum())
        variance = float((share * (values - mean) ** 2).sum())
        means.append(mean)
        stds.append(variance**0.5 if variance > 1e-12 else 1.0)
    return tuple(means), tuple(stds)


def check_class_counts(
    labels: np.ndarray, expected: Sequence[int], classes: Sequence[str], where: str, what: str = "images"
) -> None:
    """Refuse labels whose number per class is not the published one: the mark of a swapped or edited file."""
    found = np.bincount(labels, minlength=len(expected))
    wrong = [c for c in range(len(expected)) if found[c] != expected[c]]
    if wrong:
        first = wrong[0]
        raise DataError(
            f"{where}: {found[first]:,} {what} of class {first} ({classes[first]}), expected "
            f"{expected[first]:,}; {len(wrong)} of {len(expected)} classes have a wrong count. "
            "A file is swapped or its labels are damaged: fetch it again"
        )


def check_label_range(labels: np.ndarray, classes: int, where: str, what: str = "label") -> None:
    """Refuse a label that no class has, naming the first record."""
    bad = np.flatnonzero(labels >= classes)
    if len(bad):
        raise DataError(
            f"{where}: record {bad[0]} has {what} {labels[bad[0]]}, expected 0 to {classes - 1} "
            f"({len(bad):,} such records). The file is damaged: fetch it again"
        )


OTHER_BYTES = "not the published bytes"
"""Of files whose hash is not that of the official ones: in a run's provenance, and so in tables."""


def file_facts(path: Path, published: str | None) -> dict[str, Any]:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": str(path), "bytes": path.stat().st_size, "sha256": found, "published": published}
