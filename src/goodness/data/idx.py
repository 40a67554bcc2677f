"""MNIST and Fashion-MNIST: the idx format, four files, plain or gzipped.

An idx file is a magic number (0x0800 plus the number of dimensions, for bytes), one big-endian 32-bit length
per dimension, and the bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from goodness.data.dataset import (
    OTHER_BYTES,
    Dataset,
    Raw,
    as_split,
    check_class_counts,
    check_label_range,
    datasets,
    file_facts,
)
from goodness.data.download import RemoteFile, by_hand
from goodness.data.images import Split
from goodness.errors import DataError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IdxFile:
    """One idx file: the length of each dimension, and the published hashes (gzipped; plain where known)."""

    name: str
    dims: tuple[int, ...]
    gz_bytes: int
    gz_sha256: str
    plain_sha256: str | None = None

    @property
    def plain_bytes(self) -> int:
        return 4 + 4 * len(self.dims) + int(np.prod(self.dims))


class IdxDataset(Dataset):
    """What both sets share: images and labels of a training and a test part, in a folder of their own."""

    inner: ClassVar[str]
    parts: ClassVar[tuple[IdxFile, IdxFile, IdxFile, IdxFile]]  # train images, labels, test images, labels
    classes: ClassVar[tuple[str, ...]]
    per_class: ClassVar[tuple[tuple[int, ...], tuple[int, ...]]]  # images of each class, training and test
    class_count = 10
    shape = (1, 28, 28)
    sizes = (60_000, 10_000)
    held_out = 5_000

    def missing(self, folder: Path) -> list[RemoteFile]:
        return [remote for part, remote in zip(self.parts, self.files) if self._stored(folder, part) is None]

    def place(self, folder: Path) -> Path | None:
        return None if self.missing(folder) else folder / self.inner

    def read(self, folder: Path) -> Raw:
        lacking = self.missing(folder)
        if lacking:
            raise DataError(
                f"{self.kind} is not complete in {folder / self.inner}: run `goodness data get {self.kind}`, "
                f"or bring by hand (gzipped or not):\n{by_hand(lacking, folder)}"
            )
        unknown: list[str] = []
        arrays = [self._array(folder, part, unknown) for part in self.parts]
        if unknown:
            _log.warning(
                f"%s: %s {OTHER_BYTES} (see `goodness data check %s`); results are not comparable",
                folder / self.inner,
                f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'}",
                self.kind,
            )
        known = f"{OTHER_BYTES}: {', '.join(unknown)}" if unknown else "published SHA-256 where known"
        return Raw(
            classes=self.classes,
            train=self._split(folder, 0, arrays),
            test=self._split(folder, 1, arrays),
            provenance=f"{folder / self.inner}: headers, lengths and images per class checked; {known}",
        )

    def hashes(self, folder: Path) -> list[dict[str, Any]]:
        facts: list[dict[str, Any]] = []
        for part in self.parts:
            path = self._stored(folder, part)
            if path is not None:
                facts.append(file_facts(path, part.gz_sha256 if path.suffix == ".gz" else part.plain_sha256))
        return facts

    def _stored(self, folder: Path, part: IdxFile) -> Path | None:
        plain = folder / self.inner / part.name
        zipped = plain.with_name(part.name + ".gz")
        return plain if plain.is_file() else zipped if zipped.is_file() else None

    def _array(self, folder: Path, part: IdxFile, unknown: list[str]) -> np.ndarray:
        path = self._stored(folder, part)
        assert path is not None  # `missing` was asked
        plain = path.suffix != ".gz"
        size = path.stat().st_size
        if plain and size != part.plain_bytes:
            raise DataError(_wrong_size(path, size, part))
        stored = path.read_bytes()
        published = part.plain_sha256 if plain else part.gz_sha256
        digest = hashlib.sha256(stored).hexdigest()
        if published is not None and digest != published:
            owner = _published_names().get(digest)
            if owner is not None:
                raise DataError(
                    f"{path} holds what was published as {owner} (SHA-256 {digest}), expected {published}. "
                    "The files are swapped: fetch them again"
                )
            unknown.append(path.name)
        content = stored if plain else _unzipped(path, part)
        header = struct.unpack(f">{1 + len(part.dims)}I", content[: 4 + 4 * len(part.dims)])
        expected = (0x0800 + len(part.dims), *part.dims)
        if header != expected:
            raise DataError(
                f"{path} begins with magic number {header[0]:#06x} and dimensions {list(header[1:])}, "
                f"expected {expected[0]:#06x} and {list(part.dims)}: it is another file; fetch it again"
            )
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * len(part.dims)).reshape(part.dims)

    def _split(self, folder: Path, which: int, arrays: list[np.ndarray]) -> Split:
        images, labels = arrays[2 * which], arrays[2 * which + 1]
        where = f"{folder / self.inner / self.parts[2 * which + 1].name}"
        check_label_range(labels, len(self.classes), where)
        check_class_counts(labels, self.per_class[which], self.classes, where)
        return as_split(images[:, None], labels)


def _unzipped(path: Path, part: IdxFile) -> bytes:
    try:
        with gzip.open(path) as file:
            content = file.read(part.plain_bytes + 1)  # one more than allowed: no bomb, and excess is seen
            if len(content) == part.plain_bytes:
                file.read(1)  # to the end, where gzip compares its checksum
    except (OSError, EOFError, zlib.error) as trouble:
        raise DataError(
            f"{path} cannot be unzipped ({trouble}): it is truncated or damaged. It must have "
            f"{part.gz_bytes:,} bytes and SHA-256 {part.gz_sha256}; delete it and fetch it again"
        ) from None
    if len(content) != part.plain_bytes:
        found = len(content) if len(content) < part.plain_bytes else f"more than {part.plain_bytes:,}"
        raise DataError(_wrong_size(path, found, part))
    return content


def _wrong_size(path: Path, found: int | str, part: IdxFile) -> str:
    size = f"{found:,}" if isinstance(found, int) else found
    return (
        f"{path} holds {size} bytes, expected {part.plain_bytes:,} (dimensions {list(part.dims)}): it is "
        "truncated or another file; fetch it again"
    )


def _published_names() -> dict[str, str]:
    """Every published hash of this format, so that a file in another's place is called by its name."""
    names: dict[str, str] = {}
    for dataset in (Mnist, FashionMnist):
        for part in dataset.parts:
            names[part.gz_sha256] = f"{dataset.inner}/{part.name}.gz"
            if part.plain_sha256 is not None:
                names[part.plain_sha256] = f"{dataset.inner}/{part.name}"
    return names


def _remote(inner: str, parts: tuple[IdxFile, ...], places: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            path=f"{inner}/{part.name}.gz",
            size=part.gz_bytes,
            sha256=part.gz_sha256,
            urls=tuple(f"{place}/{part.name}.gz" for place in places),
        )
        for part in parts
    )


@datasets.register("mnist")
class Mnist(IdxDataset):
    about = "handwritten digits"
    flips = False
    mean = (0.13066,)
    std = (0.30811,)
    inner = "mnist"
    classes = tuple(str(digit) for digit in range(10))
    per_class = (
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    )
    parts = (
        IdxFile(
            "train-images-idx3-ubyte",
            (60_000, 28, 28),
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        IdxFile(
            "train-labels-idx1-ubyte",
            (60_000,),
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        IdxFile(
            "t10k-images-idx3-ubyte",
            (10_000, 28, 28),
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        IdxFile(
            "t10k-labels-idx1-ubyte",
            (10_000,),
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    )
    files = _remote(
        inner,
        parts,
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
    )


@datasets.register("fashion-mnist")
class FashionMnist(IdxDataset):
    about = "photographs of clothes, made to replace the digits"
    mean = (0.2860,)
    std = (0.3530,)
    inner = "fashion-mnist"
    classes = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    per_class = ((6_000,) * 10, (1_000,) * 10)
    parts = (
        IdxFile(
            "train-images-idx3-ubyte",
            (60_000, 28, 28),
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        IdxFile(
            "train-labels-idx1-ubyte",
            (60_000,),
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        IdxFile(
            "t10k-images-idx3-ubyte",
            (10_000, 28, 28),
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        IdxFile(
            "t10k-labels-idx1-ubyte",
            (10_000,),
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    )
    files = _remote(
        inner,
        parts,
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
    )
