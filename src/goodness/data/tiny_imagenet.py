"""Tiny ImageNet: 200 kinds, 64x64. Its labelled validation images are the test set (test labels: secret).

110,000 JPEG files take a while to decode, so that is done once: the pixels are kept beside the source as
.npy, with a sidecar that holds their hashes. The zip is read in memory, by the names that must be in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from goodness.data.dataset import Dataset, Raw, as_split, check_class_counts, datasets
from goodness.data.download import RemoteFile
from goodness.data.pictures import opened, pillow
from goodness.durable import write_durably
from goodness.errors import DataError, RunError

_log = logging.getLogger(__name__)

_FILE_CAP = 1 << 20  # bytes of one member; the largest JPEG has a few thousand
_TEXT_CAP = 1 << 24
_FORMAT = 1  # of the decoded cache; raise it when the decoding changes

Reader = Callable[[str], bytes]  # a name below tiny-imagenet-200/ to its content


@datasets.register("tiny-imagenet")
class TinyImageNet(Dataset):
    about = "photographs of two hundred kinds, 64x64"
    class_count = 200
    wnid_count: ClassVar[int] = 200
    per_class: ClassVar[int] = 500
    test_per_class: ClassVar[int] = 50
    side: ClassVar[int] = 64
    inner: ClassVar[str] = "tiny-imagenet-200"
    shape = (3, 64, 64)
    sizes = (100_000, 10_000)
    mean = (0.4802, 0.4481, 0.3975)
    std = (0.2770, 0.2691, 0.2821)
    files = (
        RemoteFile(
            path="tiny-imagenet-200.zip",
            size=248_100_043,
            sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            urls=(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            ),
        ),
    )

    def place(self, folder: Path) -> Path | None:
        places = (folder / self.inner, folder / self.files[0].path, folder / self._sidecar)
        return next((place for place in places if place.exists()), None)

    def missing(self, folder: Path) -> list[RemoteFile]:
        return [] if self.place(folder) is not None else list(self.files)

    def read(self, folder: Path) -> Raw:
        source = self.place(folder)
        if source is None:
            raise DataError(f"{self.absent(folder)}\nAn unpacked folder {folder / self.inner} will do as well")
        kept = self._kept(folder, source)
        if kept is None:
            kept = self._decode(source)
            self._keep(folder, source, *kept)
        images, labels, classes = kept
        train = self.wnid_count * self.per_class
        where = str(source)
        for part, count in ((labels[:train], self.per_class), (labels[train:], self.test_per_class)):
            check_class_counts(part, [count] * self.wnid_count, classes, where)
        return Raw(
            classes=tuple(classes),
            train=as_split(images[:train], labels[:train]),
            test=as_split(images[train:], labels[train:]),
            provenance=f"{source}: names, image sizes and images per class checked",
        )

    # -- the source ------------------------------------------------------------------------------------------

    def _decode(self, source: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Images `[n, 3, side, side]` and labels, training first, then the labelled validation images."""
        if source.name == self._sidecar:
            raise DataError(
                f"the decoded images beside {source} are missing or damaged, and neither the zip nor the "
                f"folder is there to decode them again: delete {source}, then run "
                f"`goodness data get {self.kind}`"
            )
        pillow()
        _log.info("decoding %s, once", source)
        if source.is_dir():
            return self._decode_with(lambda name: _from_folder(source, name), source)
        try:
            with zipfile.ZipFile(source) as archive:
                return self._decode_with(lambda name: _from_zip(archive, f"{self.inner}/{name}", source), source)
        except (zipfile.BadZipFile, zlib.error, EOFError) as trouble:
            file = self.files[0]
            raise DataError(
                f"{source} cannot be read ({trouble}): it is truncated or damaged. It must have "
                f"{file.size:,} bytes and SHA-256 {file.sha256}; delete it and fetch it again"
            ) from None

    def _decode_with(self, read: Reader, source: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
        wnids = sorted(_lines(read("wnids.txt"), f"{source}: wnids.txt"))
        odd = [wnid for wnid in wnids if not re.fullmatch(r"n\d{8}", wnid)]
        if odd or len(set(wnids)) != self.wnid_count or len(wnids) != self.wnid_count:
            raise DataError(
                f"{source}: wnids.txt names {len(set(wnids))} classes{f' (odd: {odd[0]!r})' if odd else ''}, "
                f"expected {self.wnid_count} of the form n01443537"
            )
        # The names are made here, not taken from the archive: nothing else in it is ever looked at.
        names = [f"train/{w}/images/{w}_{i}.JPEG" for w in wnids for i in range(self.per_class)]
        labels = [label for label in range(self.wnid_count) for _ in range(self.per_class)]
        number = {wnid: label for label, wnid in enumerate(wnids)}
        truth = self._annotations(read("val/val_annotations.txt"), number, source)
        for index in range(len(truth)):
            name = f"val_{index}.JPEG"
            if name not in truth:
                raise DataError(f"{source}: val_annotations.txt does not label {name}")
            names.append(f"val/images/{name}")
            labels.append(truth[name])
        images = np.empty((len(names), 3, self.side, self.side), dtype=np.uint8)
        for row, name in enumerate(names):
            images[row] = self._pixels(read(name), f"{source}: {name}")
        return images, np.asarray(labels, dtype=np.int64), wnids

    def _annotations(self, content: bytes, number: dict[str, int], source: Path) -> dict[str, int]:
        truth: dict[str, int] = {}
        for row, line in enumerate(_lines(content, f"{source}: val_annotations.txt"), start=1):
            columns = line.split("\t")
            if len(columns) < 2 or columns[1] not in number:
                raise DataError(f"{source}: val_annotations.txt line {row} names no known class: {line[:60]!r}")
            truth[columns[0]] = number[columns[1]]
        expected = self.wnid_count * self.test_per_class
        if len(truth) != expected:
            raise DataError(f"{source}: val_annotations.txt labels {len(truth):,} images, expected {expected:,}")
        return truth

    def _pixels(self, content: bytes, where: str) -> np.ndarray:
        try:
            with opened(io.BytesIO(content), ["JPEG"]) as image:
                if image.size != (self.side, self.side):
                    raise ValueError(f"{image.width}x{image.height}, expected {self.side}x{self.side}")
                return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        except (OSError, ValueError) as trouble:
            raise DataError(
                f"{where} is not a readable {self.side}x{self.side} JPEG ({trouble}): fetch it again"
            ) from None

    # -- the decoded copy ------------------------------------------------------------------------------------

    @property
    def _sidecar(self) -> str:
        return f"{self.inner}.decoded.json"

    def _keep(self, folder: Path, source: Path, images: np.ndarray, labels: np.ndarray, classes: list[str]) -> None:
        """Write the arrays and, last, the sidecar that vouches for them.

        Where the folder cannot be written to, only time is lost: the next start decodes again.
        """
        facts: dict[str, Any] = {"format": _FORMAT, "source": _fingerprint(source), "classes": classes}
        try:
            for name, array in (("images", images), ("labels", labels)):
                path = folder / f"{self.inner}.{name}.npy"
                write_durably(path, partial(_save, array), needed=array.nbytes)
                facts[name] = {"file": path.name, "sha256": _sha256(path), "shape": list(array.shape)}
            write_durably(folder / self._sidecar, json.dumps(facts, indent=1).encode())
        except RunError as trouble:
            _log.warning("the decoded images are not kept for next time: %s", trouble)

    def _kept(self, folder: Path, source: Path) -> tuple[np.ndarray, np.ndarray, list[str]] | None:
        """The decoded copy, if it is whole and of this source; None when it must be made (again)."""
        sidecar = folder / self._sidecar
        if not sidecar.is_file():
            return None
        try:
            facts = json.loads(sidecar.read_bytes())
            if facts["format"] != _FORMAT or (source != sidecar and facts["source"] != _fingerprint(source)):
                return None
            arrays: list[np.ndarray] = []
            for name in ("images", "labels"):
                # The name is not taken from the sidecar: what is written there could point anywhere.
                path = folder / f"{self.inner}.{name}.npy"
                if _sha256(path) != facts[name]["sha256"]:
                    _log.warning("%s has changed since it was decoded; decoding again", path)
                    return None
                arrays.append(np.load(path, allow_pickle=False))
            classes = [str(one) for one in facts["classes"]]
        except (OSError, ValueError, KeyError, TypeError) as trouble:
            _log.warning("%s cannot be used (%s); decoding again", sidecar, trouble)
            return None
        total = self.wnid_count * (self.per_class + self.test_per_class)
        images, labels = arrays
        if (
            images.shape != (total, 3, self.side, self.side)
            or images.dtype != np.uint8
            or labels.shape != (total,)
            or labels.dtype != np.int64
            or len(classes) != self.wnid_count
            or not ((labels >= 0) & (labels < self.wnid_count)).all()
        ):
            return None
        return images, labels, classes


def _from_folder(source: Path, name: str) -> bytes:
    path = source / name
    try:
        if path.stat().st_size > (_TEXT_CAP if name.endswith(".txt") else _FILE_CAP):
            raise DataError(f"{path} is far larger than such a file can be: fetch the data again")
        return path.read_bytes()
    except OSError as trouble:
        raise DataError(f"{path} cannot be read ({trouble.strerror}): fetch the data again") from None


def _from_zip(archive: zipfile.ZipFile, name: str, source: Path) -> bytes:
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise DataError(f"{source} has no member {name}: this is not the official archive") from None
    if entry.is_dir() or entry.flag_bits & 0x1:
        raise DataError(f"{source}: member {name} is not a plain file: this is not the official archive")
    if entry.file_size > (_TEXT_CAP if name.endswith(".txt") else _FILE_CAP):
        raise DataError(f"{source}: member {name} unzips to {entry.file_size:,} bytes: not the official archive")
    return archive.read(entry)


def _lines(content: bytes, where: str) -> list[str]:
    try:
        return [line for line in content.decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise DataError(f"{where} is not text: fetch the data again") from None


def _fingerprint(source: Path) -> dict[str, Any]:
    """Enough to notice that the source was replaced, without reading all of it at every start."""
    if source.is_dir():
        texts = [source / "wnids.txt", source / "val" / "val_annotations.txt"]
        return {"folder": source.name, "sha256": [_sha256(text) for text in texts if text.is_file()]}
    return {"file": source.name, "bytes": source.stat().st_size}


def _save(array: np.ndarray, out: BinaryIO) -> None:
    np.save(out, array, allow_pickle=False)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
