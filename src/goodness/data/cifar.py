"""CIFAR-10 and CIFAR-100 in their binary form: fixed-length records, nothing to unpickle.

A record is the label bytes (CIFAR-10: class; CIFAR-100: superclass, class) and 3,072 pixels, one channel
after the other. The archive is read in memory, member by member, by exact name; it is never extracted, so no
name or link in it can reach the disk. An unpacked folder of the same files is read as well.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from goodness.data import archive
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
from goodness.data.download import RemoteFile
from goodness.data.images import Split
from goodness.errors import DataError

_log = logging.getLogger(__name__)

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_SLACK = 1 << 24  # what an archive may hold beside its images: readme, class names, tar padding


@dataclass(frozen=True)
class Member:
    """One file of records, with the published SHA-256 of its content."""

    name: str
    records: int
    sha256: str


class Cifar(Dataset):
    """What both sets share; the facts that differ are below."""

    inner: ClassVar[str]  # the folder inside the archive, and its name when unpacked
    train_members: ClassVar[tuple[Member, ...]]
    test_members: ClassVar[tuple[Member, ...]]
    label_limits: ClassVar[tuple[int, ...]]  # how many values each label byte may take; the last is the class
    classes: ClassVar[tuple[str, ...]]
    shape = _SHAPE
    sizes = (50_000, 10_000)
    held_out = 5_000

    def missing(self, folder: Path) -> list[RemoteFile]:
        return [] if (folder / self.inner).is_dir() else super().missing(folder)

    def place(self, folder: Path) -> Path | None:
        unpacked, archive = folder / self.inner, folder / self.files[0].path
        return unpacked if unpacked.is_dir() else archive if archive.exists() else None

    def read(self, folder: Path) -> Raw:
        source = self.place(folder)
        if source is None:
            raise DataError(f"{self.absent(folder)}\nAn unpacked folder {folder / self.inner} will do as well")
        contents = self._from_folder(source) if source.is_dir() else self._from_archive(source)
        known = self._check_identity(source, contents)
        return Raw(
            classes=self.classes,
            train=self._split(source, self.train_members, contents),
            test=self._split(source, self.test_members, contents),
            provenance=f"{source}: lengths, label ranges and images per class checked; {known}",
        )

    def hashes(self, folder: Path) -> list[dict[str, Any]]:
        source = self.place(folder)
        if source is None or not source.is_dir():
            return super().hashes(folder)
        return [file_facts(source / m.name, m.sha256) for m in self.train_members + self.test_members]

    def _bytes(self, member: Member) -> int:
        return member.records * (len(self.label_limits) + _PIXELS)

    def _from_folder(self, source: Path) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for member in self.train_members + self.test_members:
            path = source / member.name
            if not path.is_file():
                raise DataError(f"{path} is missing: complete the folder, or remove it to use {self.files[0].name}")
            self._check_size(member, path.stat().st_size, str(path))
            contents[member.name] = path.read_bytes()
        return contents

    def _from_archive(self, source: Path) -> dict[str, bytes]:
        wanted = {f"{self.inner}/{m.name}": m for m in self.train_members + self.test_members}
        contents: dict[str, bytes] = {}
        limit = sum(self._bytes(member) for member in wanted.values()) + _SLACK
        found = archive.members(
            source,
            re.compile("|".join(map(re.escape, wanted))),
            limit,
            check=lambda match, size: self._check_size(wanted[match[0]], size, f"{source}: member {match[0]}"),
            expected=f". It must have {self.files[0].size:,} bytes and SHA-256 {self.files[0].sha256}",
        )
        for match, content in found:
            self._check_size(wanted[match[0]], len(content), f"{source}: member {match[0]}")
            contents[wanted[match[0]].name] = content
        lost = [name for name, member in wanted.items() if member.name not in contents]
        if lost:
            raise DataError(f"{source} has no member {', '.join(lost)}: this is not the official archive")
        return contents

    def _check_size(self, member: Member, size: int, where: str) -> None:
        expected = self._bytes(member)
        if size != expected:
            raise DataError(
                f"{where} has {size:,} bytes, expected {expected:,} ({member.records:,} records of "
                f"{len(self.label_limits) + _PIXELS:,}): it is truncated or another file; fetch it again"
            )

    def _check_identity(self, source: Path, contents: dict[str, bytes]) -> str:
        """Refuse files in each other's place; say whether all of them are the published ones."""
        members = {m.name: m for m in self.train_members + self.test_members}
        published = {member.sha256: name for name, member in members.items()}
        seen: dict[str, str] = {}
        unknown: list[str] = []
        for name, content in contents.items():
            digest = hashlib.sha256(content).hexdigest()
            if digest in seen:
                raise DataError(
                    f"{source}: {seen[digest]} and {name} hold the same bytes, expected {len(members)} "
                    "different files. One was copied over the other: fetch them again"
                )
            seen[digest] = name
            if published.get(digest, name) != name:
                raise DataError(
                    f"{source}: {name} holds what was published as {published[digest]} (SHA-256 {digest}), "
                    f"expected {members[name].sha256}. The files are swapped: fetch them again"
                )
            if digest not in published:
                unknown.append(name)
        if not unknown:
            return "every file has the published SHA-256"
        _log.warning(
            f"%s: %s {OTHER_BYTES} (see `goodness data check %s`); results are not comparable",
            source,
            f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'}",
            self.kind,
        )
        return f"{OTHER_BYTES}: {', '.join(unknown)}"

    def _split(self, source: Path, members: tuple[Member, ...], contents: dict[str, bytes]) -> Split:
        total = sum(member.records for member in members)
        images = np.empty((total, *_SHAPE), dtype=np.uint8)
        labels = np.empty((total, len(self.label_limits)), dtype=np.uint8)
        start = 0
        for member in members:
            records = np.frombuffer(contents[member.name], dtype=np.uint8).reshape(member.records, -1)
            for column, limit in enumerate(self.label_limits):
                what = "label" if column == len(self.label_limits) - 1 else "superclass label"
                check_label_range(records[:, column], limit, f"{source}: {member.name}", what)
            rows = slice(start, start + member.records)
            labels[rows] = records[:, : len(self.label_limits)]
            images[rows] = records[:, len(self.label_limits) :].reshape(-1, *_SHAPE)
            start += member.records
        fine = labels[:, -1]
        where = f"{source}: {', '.join(member.name for member in members)}"
        each = total // len(self.classes)
        check_class_counts(fine, [each] * len(self.classes), self.classes, where)
        if len(self.label_limits) == 2:
            _check_superclasses(labels[:, 0], fine, self.classes, where)
        return as_split(images, fine)


def _check_superclasses(coarse: np.ndarray, fine: np.ndarray, classes: tuple[str, ...], where: str) -> None:
    """Every class lies in one superclass; a label damaged within its range breaks that."""
    pairs = np.unique(np.stack([fine, coarse], axis=1), axis=0)
    twice = pairs[1:, 0][pairs[1:, 0] == pairs[:-1, 0]]
    if len(twice):
        raise DataError(
            f"{where}: class {twice[0]} ({classes[twice[0]]}) stands under several superclasses, expected "
            "one. The labels are damaged: fetch the file again"
        )


def _toronto(name: str, size: int, sha256: str) -> tuple[RemoteFile]:
    url = f"https://www.cs.toronto.edu/~kriz/{name}"
    return (RemoteFile(path=name, size=size, sha256=sha256, urls=(url,)),)


_BATCH = 10_000  # records in each file of CIFAR-10


@datasets.register("cifar10")
class Cifar10(Cifar):
    about = "small colour photographs of ten kinds"
    class_count = 10
    mean = (0.49140, 0.48216, 0.44653)
    std = (0.24703, 0.24349, 0.26159)
    inner = "cifar-10-batches-bin"
    label_limits = (10,)
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    train_members = (
        Member("data_batch_1.bin", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        Member("data_batch_2.bin", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        Member("data_batch_3.bin", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        Member("data_batch_4.bin", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        Member("data_batch_5.bin", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    )
    test_members = (
        Member("test_batch.bin", _BATCH, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
    files = _toronto(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )


_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


@datasets.register("cifar100")
class Cifar100(Cifar):
    about = "small colour photographs of a hundred kinds"
    class_count = 100
    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)
    inner = "cifar-100-binary"
    label_limits = (20, 100)
    classes = tuple(_FINE.split())
    train_members = (Member("train.bin", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),)
    test_members = (Member("test.bin", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),)
    files = _toronto(
        "cifar-100-binary.tar.gz",
        168_513_733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    )
