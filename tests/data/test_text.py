"""Text data sets: read as published, packed or unpacked, and what is not theirs is refused with advice."""

import gzip
import io
import sys
import tarfile
from pathlib import Path

import pytest

from goodness.data import sources
from goodness.data.dataset import datasets
from goodness.data.text import AgNews, Imdb, Newsgroups
from goodness.errors import DataError
from made_up_texts import ABOUT, encode, write_folder

TEXTS = ("imdb", "newsgroups", "ag-news")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same layouts with two training texts and one test text of every class."""
    for kind in (Imdb, Newsgroups, AgNews):
        count = len(kind.classes)
        monkeypatch.setattr(kind, "counts", ((2,) * count, (1,) * count))
        monkeypatch.setattr(kind, "held_out", 1)


def reviews() -> dict[str, bytes]:
    """As in the archive: with names, ratings, reviews without a label and other files."""
    files = {
        f"aclImdb/{part}/{kind}/{i}_{7 if kind == 'pos' else 2}.txt": f"{kind} {part} {i} café".encode()
        for part, count in (("train", 2), ("test", 1))
        for kind in ("pos", "neg")
        for i in range(count)
    }
    return {"aclImdb/README": b"hello", "aclImdb/train/unsup/0_0.txt": b"no label", **files}


def posts() -> dict[str, bytes]:
    return {
        f"20news-bydate-{part}/{group}/{40 + i}": f"From: me\n\n{group} {i} caf".encode() + b"\xe9"
        for part, count in (("train", 2), ("test", 1))
        for group in reversed(Newsgroups.classes)
        for i in range(count)
    }


def pack(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind
            archive.addfile(info, io.BytesIO(content))


def unpack(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_news(folder: Path, train: int = 2, test: int = 1) -> None:
    (folder / "ag_news_csv").mkdir()
    for part, count in (("train", train), ("test", test)):
        rows = [
            f'"{kind}","Title {kind}, {i}","He said ""no"" in\\{part}"\n' for i in range(count) for kind in (3, 1, 4, 2)
        ]
        (folder / "ag_news_csv" / f"{part}.csv").write_text("".join(rows))


def test_the_real_counts_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for kind, sizes in ((Imdb, (25_000, 25_000)), (Newsgroups, (11_314, 7_532)), (AgNews, (120_000, 7_600))):
        assert kind.sizes == tuple(map(sum, kind.counts)) == sizes
        assert kind.class_count == len(kind.classes) == len(kind.counts[0]) == len(kind.counts[1])
        assert kind.held_out == sizes[0] // 10
        assert not kind.flips
        assert all(len(file.sha256) == 64 and file.urls for file in kind.files)


@pytest.mark.parametrize(
    ("dataset", "files", "archive"),
    [(Imdb(), reviews(), "aclImdb_v1.tar.gz"), (Newsgroups(), posts(), "20news-bydate.tar.gz")],
    ids=["imdb", "newsgroups"],
)
def test_an_archive_and_its_unpacked_folder_give_the_same_texts(tmp_path, dataset, files, archive) -> None:
    packed, unpacked = tmp_path / "packed", tmp_path / "unpacked"
    packed.mkdir()
    pack(packed / archive, files)
    unpack(unpacked, files)
    one, other = dataset.corpus(packed), dataset.corpus(unpacked)
    assert one == other
    assert one.classes == dataset.classes
    assert one.train.labels == sorted(one.train.labels)
    assert dataset.missing(packed) == dataset.missing(unpacked) == []
    assert dataset.missing(tmp_path) == list(dataset.files)
    assert sorted(child.name for child in packed.iterdir()) == [archive], "nothing is extracted"


def test_reviews_are_bad_then_good_and_those_without_a_label_are_left_out(tmp_path: Path) -> None:
    pack(tmp_path / "aclImdb_v1.tar.gz", reviews())
    corpus = Imdb().corpus(tmp_path)
    assert corpus.train.texts == ["neg train 0 café", "neg train 1 café", "pos train 0 café", "pos train 1 café"]
    assert (corpus.train.labels, corpus.test.labels) == ([0, 0, 1, 1], [0, 1])


def test_posts_keep_their_headers_and_every_byte_of_them(tmp_path: Path) -> None:
    unpack(tmp_path, posts())
    corpus = Newsgroups().corpus(tmp_path)
    assert corpus.train.texts[0] == "From: me\n\nalt.atheism 0 café"
    assert len(corpus.train) == 40


def test_news_are_title_and_description_with_their_class_from_one(tmp_path: Path) -> None:
    write_news(tmp_path)
    corpus = AgNews().corpus(tmp_path)
    assert corpus.train.texts[:2] == ['Title 3, 0 He said "no" in\\train', 'Title 1, 0 He said "no" in\\train']
    assert corpus.train.labels[:4] == [2, 0, 3, 1]
    assert len(corpus.test) == 4


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_not_here_are_said_with_where_to_get_them(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"goodness data get {name}.*\n.*SHA-256"):
        sources.embed(name, encode, ABOUT, data_dir=tmp_path)
    with pytest.raises(DataError, match=f"`goodness data get {name}`, then `goodness data embed {name} --encoder"):
        sources.load(name, data_dir=tmp_path)


def test_texts_that_are_here_and_not_embedded_name_the_command(tmp_path: Path) -> None:
    write_news(tmp_path)
    with pytest.raises(DataError, match="Run `goodness data embed ag-news --encoder bert-base-uncased`"):
        sources.load("ag-news", data_dir=tmp_path)


def test_embedded_texts_load_split_and_check_like_images(tmp_path: Path) -> None:
    write_news(tmp_path)
    place = sources.embed("ag-news", encode, ABOUT, data_dir=tmp_path)
    assert place == tmp_path / "ag-news" / "embedded.safetensors"
    data = sources.load("ag-news", data_dir=tmp_path)
    assert data.shape == (1, 1, 24)
    assert [len(data.train), len(data.val), len(data.test)] == [7, 1, 4]
    assert data.classes == AgNews.classes
    assert not data.flips
    assert "made-up" in data.provenance
    row = next(row for row in sources.listing(tmp_path) if row["name"] == "ag-news")
    assert row["present"]
    assert row["stored"] == str(place)
    # what lies beside is not what was published, and the check of the files says so
    with pytest.raises(DataError, match="not what was published"):
        sources.check("ag-news", tmp_path)
    for file in AgNews.files:
        (tmp_path / file.path).unlink()
    facts = sources.check("ag-news", tmp_path)
    assert facts["per_class"]["test"] == dict.fromkeys(AgNews.classes, 1)
    assert AgNews().missing(tmp_path) == list(AgNews.files), "to embed it anew, the texts are needed"


def test_an_embedding_of_other_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_news(tmp_path)
    sources.embed("ag-news", encode, ABOUT, data_dir=tmp_path)
    monkeypatch.setattr(AgNews, "counts", ((3,) * 4, (1,) * 4))
    with pytest.raises(DataError, match=r"2 texts of class 0 \(World\), expected 3"):
        sources.load("ag-news", data_dir=tmp_path)
    monkeypatch.setattr(AgNews, "classes", ("a", "b", "c", "d"))
    with pytest.raises(DataError, match="other classes"):
        sources.load("ag-news", data_dir=tmp_path)


# What is damaged


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda files: files.pop("aclImdb/train/pos/0_7.txt"), r"1 texts of class 1 \(pos\), expected 2"),
        (lambda files: files.update({"aclImdb/test/neg/9_1.txt": b"one more"}), "2 texts of class 0"),
        (lambda files: files.update({"aclImdb/test/neg/0_2.txt": b"caf\xe9"}), "0_2.txt is not utf-8 text"),
    ],
)
def test_reviews_that_are_not_the_published_ones_are_refused(tmp_path: Path, change, told: str) -> None:
    files = reviews()
    change(files)
    pack(tmp_path / "aclImdb_v1.tar.gz", files)
    with pytest.raises(DataError, match=told):
        Imdb().corpus(tmp_path)


def test_a_group_that_is_none_of_the_twenty_is_refused(tmp_path: Path) -> None:
    unpack(tmp_path, {**posts(), "20news-bydate-train/alt.cooking/1": b"soup"})
    with pytest.raises(DataError, match=r"alt.cooking/1 is of no known class"):
        Newsgroups().corpus(tmp_path)


def test_a_cut_archive_a_link_and_a_bomb_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "aclImdb_v1.tar.gz"
    pack(path, reviews())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated or damaged; delete it and fetch it again"):
        Imdb().corpus(tmp_path)
    path.write_bytes(whole[:-8] + b"\0" * 8)  # gzip's own checksum
    with pytest.raises(DataError, match="truncated or damaged"):
        Imdb().corpus(tmp_path)
    pack(path, {"aclImdb/train/pos/0_7.txt": b""}, kind=tarfile.SYMTYPE)
    with pytest.raises(DataError, match="not a plain file"):
        Imdb().corpus(tmp_path)
    monkeypatch.setattr(Imdb, "limit", 10_000)
    with gzip.open(path, "wb", compresslevel=1) as bomb:
        bomb.write(b"\0" * 100_000)
    with pytest.raises(DataError, match="unzips to more than its content needs"):
        Imdb().corpus(tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('"5","t","d"\n', "line 9: expected a class from 1 to 4"),
        ('"1","t"\n', "line 9: expected a class"),
        ('"1","t","d" more"\n', "line 9"),
        ('"1","t","d', "damaged: fetch it again"),
        ('"1","t","d"\n', r"3 texts of class 0 \(World\), expected 2"),
    ],
)
def test_a_row_that_is_no_news_is_named_by_its_line(tmp_path: Path, line: str, told: str) -> None:
    write_news(tmp_path)
    path = tmp_path / "ag_news_csv" / "train.csv"
    path.write_text(path.read_text() + line)
    with pytest.raises(DataError, match=told):
        AgNews().corpus(tmp_path)


# A user's own


def test_own_texts_are_embedded_beside_themselves_and_a_tenth_is_held_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "mine", train=10, test=2)
    (root / "train" / "cat" / "notes.md").write_text("passed over")
    name = f"texts:{root}"
    with pytest.raises(DataError, match=f"goodness data embed {name}"):
        sources.load(name)
    assert sources.embed(name, encode, ABOUT) == root / ".goodness" / "embedded.safetensors"
    data = sources.load(name)
    assert data.classes == ("cat", "dog", "eel")
    assert [len(data.train), len(data.val), len(data.test)] == [27, 3, 6]
    assert sources.get(name) == root / ".goodness" / "embedded.safetensors"
    assert sources.canonical(name) == name


def test_own_texts_that_changed_must_be_embedded_again(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "mine", train=3, test=2)
    sources.embed(f"texts:{root}", encode, ABOUT)
    (root / "test" / "cat" / "0.txt").write_text("another")
    with pytest.raises(DataError, match="have changed since: run `goodness data embed"):
        sources.load(f"texts:{root}")


def test_what_is_wrong_with_own_texts_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere: texts:PATH needs"):
        sources.embed(f"texts:{tmp_path / 'nowhere'}", encode, ABOUT)
    with pytest.raises(DataError, match=r"there is no folder .*nowhere: texts:PATH needs"):
        sources.load(f"texts:{tmp_path / 'nowhere'}")
    (tmp_path / "letter").touch()
    with pytest.raises(DataError, match=r"letter is a file: texts:PATH needs"):
        sources.load(f"texts:{tmp_path / 'letter'}")
    with pytest.raises(DataError, match="there is no folder"):
        sources.get(f"texts:{tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="texts: needs a path"):
        sources.find("texts:")
    root = write_folder(tmp_path / "mine", train=2, test=1)
    (root / "train" / "dog" / "0.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"dog/0.txt is not utf-8 text"):
        sources.embed(f"texts:{root}", encode, ABOUT)
    for path in (root / "train" / "dog").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"without a \*.txt file \(1\): .*dog"):
        sources.embed(f"texts:{root}", encode, ABOUT)


def test_the_listing_names_the_texts_with_their_sizes(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in sources.listing(tmp_path)}
    assert set(TEXTS) <= set(rows) & set(datasets)
    assert [rows[name]["classes"] for name in TEXTS] == [2, 20, 4]
    assert not any(rows[name]["present"] for name in TEXTS)


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from goodness.data.encoder import FrozenEncoder

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DataError, match=r"pip install 'goodness\[text\]'"):
        FrozenEncoder("bert-base-uncased")
