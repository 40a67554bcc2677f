"""The 1,797 handwritten digits that come with scikit-learn: 8x8 pixels, no download."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from pathlib import Path

import numpy as np

from goodness.data.dataset import Dataset, Raw, as_split, datasets
from goodness.data.images import Split, hold_out
from goodness.errors import DataError

_IMAGES, _TEST_IMAGES = 1797, 597
_SHAPE = (1, 8, 8)
_SAMPLE = (320, 100)
_TEST_SEED = 42  # fixed: another split seed moves the validation images, never the test set


@datasets.register("digits")
class Digits(Dataset):
    about = "handwritten digits from scikit-learn, no download"
    class_count = 10
    shape = _SHAPE
    sizes = (_IMAGES - _TEST_IMAGES, _TEST_IMAGES)
    held_out = 120
    flips = False

    def place(self, folder: Path) -> Path | None:
        found = importlib.util.find_spec("sklearn")
        return None if found is None or found.origin is None else Path(found.origin).parent

    def read(self, folder: Path) -> Raw:
        """The file that `sklearn.datasets.load_digits` reads, without importing scikit-learn, which takes a second."""
        place = self.place(folder)
        if place is None:
            raise DataError("the digits come with scikit-learn, which is not installed: pip install 'goodness[digits]'")
        file, version = place / "datasets" / "data" / "digits.csv.gz", importlib.metadata.version("scikit-learn")
        try:
            table = np.loadtxt(file, delimiter=",", ndmin=2)
        except (OSError, EOFError, ValueError) as trouble:
            raise DataError(
                f"the digits of scikit-learn {version} cannot be read from {file} ({trouble}): install it again, or "
                "another version"
            ) from trouble
        pixels, labels = table[:, :-1], table[:, -1].astype(int)
        expected = (_IMAGES, 64)
        if pixels.shape != expected or pixels.min() < 0 or pixels.max() > 16:
            raise DataError(
                f"scikit-learn {version} gave digits of shape {pixels.shape} with values "
                f"{pixels.min()} to {pixels.max()}, expected {expected} with 0 to 16: install another version"
            )
        images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(_IMAGES, *_SHAPE)
        train, test = hold_out(as_split(images, labels), _TEST_IMAGES, seed=_TEST_SEED)
        return Raw(
            classes=tuple(str(digit) for digit in range(10)),
            train=train,
            test=test,
            provenance=f"scikit-learn {version} load_digits; number, size and range checked",
        )


@datasets.register("digits-sample")
class DigitsSample(Digits):
    """A quarter of them: enough to run a whole path, too few to learn much from."""

    about = "420 of the digits, to try a whole path in a second or two"
    sizes = _SAMPLE
    held_out = 64

    def read(self, folder: Path) -> Raw:
        raw = super().read(folder)
        train, test = (_first(part, count) for part, count in zip((raw.train, raw.test), _SAMPLE))
        return dataclasses.replace(raw, train=train, test=test, provenance=f"{raw.provenance}; the first of them")


def _first(split: Split, count: int) -> Split:
    return Split(images=split.images[:count], labels=split.labels[:count], indices=split.indices[:count])
