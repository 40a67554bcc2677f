"""Texts: IMDb, 20 Newsgroups by date, AG News, and a user's own.

A run reads them embedded, which is a step of its own (`goodness data embed`). The texts go to the encoder as they were
published, nothing stripped; archives are read in memory. The unpacked folders are read as well.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from goodness.data import embedded
from goodness.data.archive import members
from goodness.data.class_folders import listed
from goodness.data.dataset import Dataset, Raw, check_class_counts, datasets, file_facts
from goodness.data.download import RemoteFile
from goodness.data.embedded import Corpus, Texts
from goodness.data.images import Split
from goodness.errors import DataError

ENCODER = "bert-base-uncased"
"""The paper's, for advice."""


class TextData(Dataset):
    """What all text sets share: texts to be embedded, and the embedding that a run reads."""

    flips = False
    shape = (1, 1, 768)  # with the paper's encoder; an embedding knows its own
    classes: ClassVar[tuple[str, ...]]
    counts: ClassVar[tuple[Sequence[int], Sequence[int]]]  # texts of every class: training, test

    @property
    def name(self) -> str:
        return self.kind

    def corpus(self, folder: Path) -> Corpus:
        """The texts themselves, checked."""
        raise NotImplementedError

    def texts_at(self, folder: Path) -> Path | None:
        """Where the texts lie, or None where some are missing."""
        return folder / Path(self.files[0].path).parts[0] if not self.missing(folder) else None

    def home(self, folder: Path) -> Path:
        """Where their embedding is kept."""
        return folder / self.kind

    def is_embedded(self, folder: Path) -> bool:
        return (self.home(folder) / embedded.FILE).is_file()

    def place(self, folder: Path) -> Path | None:
        return self.home(folder) / embedded.FILE if self.is_embedded(folder) else self.texts_at(folder)

    def read(self, folder: Path) -> Raw:
        if not self.is_embedded(folder):
            missing = "" if self.texts_at(folder) else f"`goodness data get {self.name}`, then "
            raise DataError(
                f"{self.name} is not embedded: a run reads texts as vectors. Run {missing}"
                f"`goodness data embed {shlex.quote(self.name)} --encoder {ENCODER}`"
            )
        raw, facts = embedded.read(self.home(folder), self.name)
        self.check_embedded(raw, facts)
        return raw

    def check_embedded(self, raw: Raw, facts: dict[str, Any]) -> None:
        """Refuse an embedding of other texts than these."""
        if raw.classes != self.classes:
            raise DataError(f"the embedding of {self.name} has other classes: embed it again (`goodness data embed`)")
        self._check_counts([raw.train.labels.numpy(), raw.test.labels.numpy()], f"the embedding of {self.name}")

    def hashes(self, folder: Path) -> list[dict[str, Any]]:
        own = [file_facts(self.home(folder) / embedded.FILE, None)] if self.is_embedded(folder) else []
        return super().hashes(folder) + own

    def _checked(self, train: Texts, test: Texts, where: Path) -> Corpus:
        self._check_counts([np.array(part.labels, dtype=np.int64) for part in (train, test)], str(where))
        return Corpus(classes=self.classes, train=train, test=test)

    def _check_counts(self, labels: list[np.ndarray], where: str) -> None:
        for part, found, expected in zip(("training", "test"), labels, self.counts):
            check_class_counts(found, expected, self.classes, f"{where}, {part} texts", "texts")


class Tarred(TextData):
    """A text a file, in a .tar.gz or unpacked beside it."""

    inner: ClassVar[tuple[str, ...]]  # the folders in the archive
    member: ClassVar[re.Pattern[str]]  # of a text: the groups are its part (train or test), class and name
    encoding: ClassVar[str] = "utf-8"
    limit: ClassVar[int]  # bytes of the whole archive, unzipped

    def missing(self, folder: Path) -> list[RemoteFile]:
        return [] if self._is_unpacked(folder) else super().missing(folder)

    def texts_at(self, folder: Path) -> Path | None:
        return folder / self.inner[0] if self._is_unpacked(folder) else super().texts_at(folder)

    def _is_unpacked(self, folder: Path) -> bool:
        return all((folder / inner).is_dir() for inner in self.inner)

    def corpus(self, folder: Path) -> Corpus:
        source = self.texts_at(folder)
        if source is None:
            raise DataError(self.absent(folder))
        found: dict[str, list[tuple[int, str, str]]] = {"train": [], "test": []}
        contents = self._from_folders(folder) if source.is_dir() else members(source, self.member, self.limit)
        for match, content in contents:
            part, kind, name = match.groups()
            if kind not in self.classes:
                raise DataError(f"{source}: {match[0]} is of no known class: this is not the official {self.name}")
            found[part].append((self.classes.index(kind), name, _decoded(content, self.encoding, f"{source}: {name}")))
        train, test = (_sorted(found[part]) for part in ("train", "test"))  # one order, packed or not
        return self._checked(train, test, source)

    def _from_folders(self, folder: Path) -> Iterator[tuple[re.Match[str], bytes]]:
        for inner in self.inner:
            for path in sorted((folder / inner).rglob("*")):
                match = self.member.fullmatch(path.relative_to(folder).as_posix())
                if match is not None and path.is_file():
                    yield match, path.read_bytes()


def _sorted(rows: Iterable[tuple[int, str, str]]) -> Texts:
    ordered = sorted(rows)
    return Texts([text for _, _, text in ordered], [label for label, _, _ in ordered])


def _decoded(content: bytes, encoding: str, where: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as trouble:
        raise DataError(f"{where} is not {encoding} text ({trouble.reason}): save it as {encoding}") from None


@datasets.register("imdb")
class Imdb(Tarred):
    about = "film reviews, bad and good; texts, to be embedded"
    class_count = 2
    sizes = (25_000, 25_000)
    held_out = 2_500
    classes = ("neg", "pos")
    counts = ((12_500,) * 2, (12_500,) * 2)
    inner = ("aclImdb",)
    member = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d+_\d+\.txt)")
    limit = 1 << 30
    files = (
        RemoteFile(
            path="aclImdb_v1.tar.gz",
            size=84_125_825,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            urls=("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
        ),
    )


_GROUPS = """
alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x
misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med sci.space
soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc
"""


@datasets.register("newsgroups")
class Newsgroups(Tarred):
    about = "20 Newsgroups, split by date; texts, to be embedded"
    class_count = 20
    sizes = (11_314, 7_532)
    held_out = 1_131
    classes = tuple(_GROUPS.split())
    counts = (
        (480, 584, 591, 590, 578, 593, 585, 594, 598, 597, 600, 595, 591, 594, 593, 599, 546, 564, 465, 377),
        (319, 389, 394, 392, 385, 395, 390, 396, 398, 397, 399, 396, 393, 396, 394, 398, 364, 376, 310, 251),
    )
    inner = ("20news-bydate-train", "20news-bydate-test")
    member = re.compile(r"20news-bydate-(train|test)/([^/]+)/(\d+)")
    encoding = "latin-1"  # which every byte is text in
    limit = 1 << 28
    files = (
        RemoteFile(
            path="20news-bydate.tar.gz",
            size=14_464_277,
            sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            urls=(
                "https://ndownloader.figshare.com/files/5975967",
                "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
            ),
        ),
    )


def _ag_news(part: str, size: int, sha256: str) -> RemoteFile:
    path = f"ag_news_csv/{part}.csv"
    url = f"https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/{path}"
    return RemoteFile(path=path, size=size, sha256=sha256, urls=(url,))


@datasets.register("ag-news")
class AgNews(TextData):
    """A row is a class from 1 to 4, a title and a description; the text is the last two, with a space between."""

    about = "news of four kinds, title and description; texts, to be embedded"
    class_count = 4
    sizes = (120_000, 7_600)
    held_out = 12_000
    classes = ("World", "Sports", "Business", "Sci/Tech")
    counts = ((30_000,) * 4, (1_900,) * 4)
    files = (
        _ag_news("train", 29_470_338, "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
        _ag_news("test", 1_857_427, "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
    )

    def corpus(self, folder: Path) -> Corpus:
        if self.missing(folder):
            raise DataError(self.absent(folder))
        train, test = (self._rows(folder / file.path) for file in self.files)
        return self._checked(train, test, folder / "ag_news_csv")

    def _rows(self, path: Path) -> Texts:
        texts: list[str] = []
        labels: list[int] = []
        kinds = [str(number) for number in range(1, len(self.classes) + 1)]
        rows = csv.reader(io.StringIO(_decoded(path.read_bytes(), "utf-8", str(path)), newline=""), strict=True)
        try:
            for row in rows:
                if len(row) != 3 or row[0] not in kinds:
                    raise DataError(
                        f"{path}, line {rows.line_num}: expected a class from 1 to {kinds[-1]}, a title and a "
                        "description; the file is damaged: fetch it again"
                    )
                texts.append(f"{row[1]} {row[2]}")
                labels.append(kinds.index(row[0]))
        except csv.Error as trouble:
            raise DataError(f"{path}, line {rows.line_num}: {trouble}; the file is damaged: fetch it again") from None
        return Texts(texts, labels)


@dataclass(frozen=True)
class TextFolder(TextData):
    """The data set `texts:PATH`, of UTF-8 files; a tenth of the training texts is held out."""

    path: Path

    @property
    def name(self) -> str:
        return f"texts:{self.path}"

    def texts_at(self, folder: Path) -> Path | None:
        return self.path if self.path.is_dir() else None

    def home(self, folder: Path) -> Path:
        return self.path / ".goodness"  # apart from what the user keeps there

    def validation_size(self, train: Split) -> int:
        return len(train) // 10

    def read(self, folder: Path) -> Raw:
        self.require()
        return super().read(folder)

    def require(self) -> None:
        """Refuse a path that leads to no folder."""
        if not self.path.is_dir():
            found = f"{self.path} is a file" if self.path.exists() else f"there is no folder {self.path}"
            raise DataError(f"{found}: texts:PATH needs PATH/train/<class>/*.txt and PATH/test/<class>/*.txt")

    def corpus(self, folder: Path) -> Corpus:
        self.require()
        classes, train = listed(self.path / "train", None, "text", ".txt")
        _, test = listed(self.path / "test", classes, "text", ".txt")
        parts = [Texts([_text(path) for path, _ in files], [label for _, label in files]) for files in (train, test)]
        return Corpus(classes=classes, train=parts[0], test=parts[1])

    def check_embedded(self, raw: Raw, facts: dict[str, Any]) -> None:
        """Where the texts still lie beside their embedding, it must be theirs."""
        are_here = any((self.path / part).is_dir() for part in ("train", "test"))
        if are_here and self.corpus(self.path).sha256() != facts.get("texts_sha256"):
            again = f"goodness data embed {shlex.quote(self.name)} --encoder {shlex.quote(str(facts['encoder']))}"
            raise DataError(f"the texts in {self.path} have changed since: run `{again}`")


def _text(path: Path) -> str:
    return _decoded(path.read_bytes(), "utf-8", str(path))
