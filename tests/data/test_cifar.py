"""CIFAR's binary files: what is read is what was written, and what is not CIFAR is refused with reasons."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from goodness.data import sources
from goodness.data.cifar import Cifar10, Cifar100, Member
from goodness.data.images import hold_out
from goodness.errors import DataError

torch.set_num_threads(1)


class Small10(Cifar10):
    """The same layout with 20 records per file: two images of every class."""

    kind = "cifar10"
    held_out = 10
    train_members = tuple(Member(m.name, 20, m.sha256) for m in Cifar10.train_members)
    test_members = tuple(Member(m.name, 20, m.sha256) for m in Cifar10.test_members)


class Small100(Cifar100):
    kind = "cifar100"
    train_members = tuple(Member(m.name, 300, m.sha256) for m in Cifar100.train_members)
    test_members = tuple(Member(m.name, 100, m.sha256) for m in Cifar100.test_members)


def records10(rng: np.random.Generator, count: int) -> np.ndarray:
    """`[count, 3073]`: labels in shuffled order, as many of each, then pixels."""
    labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
    return np.concatenate([labels[:, None], rng.integers(0, 256, (count, 3072), dtype=np.uint8)], axis=1)


def records100(rng: np.random.Generator, count: int) -> np.ndarray:
    fine = rng.permutation(np.arange(count) % 100).astype(np.uint8)
    pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
    return np.concatenate([(fine // 5)[:, None], fine[:, None], pixels], axis=1)


def contents(dataset: type[Cifar10] | type[Cifar100], make) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    members = dataset.train_members + dataset.test_members
    return {m.name: make(rng, m.records).tobytes() for m in members}


def unpack(folder: Path, inner: str, files: dict[str, bytes]) -> None:
    (folder / inner).mkdir()
    for name, content in files.items():
        (folder / inner / name).write_bytes(content)


def pack(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def entries(inner: str, files: dict[str, bytes]) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [(tarfile.TarInfo(f"{inner}/{name}"), content) for name, content in files.items()]


@pytest.fixture
def small() -> dict[str, bytes]:
    return contents(Small10, records10)


def test_full_size_cifar10_comes_back_pixel_by_pixel_in_the_papers_split(tmp_path):
    files = contents(Cifar10, records10)
    unpack(tmp_path, "cifar-10-batches-bin", files)
    data = sources.load("cifar10", data_dir=tmp_path)
    assert [len(data.train), len(data.val), len(data.test)] == [45_000, 5_000, 10_000]
    assert data.shape == (3, 32, 32)
    assert data.train.images.dtype == torch.uint8
    assert data.flips
    assert sorted(torch.cat([data.train.indices, data.val.indices]).tolist()) == list(range(50_000))
    for split in (data.train, data.val):
        for row in (0, len(split) // 2, len(split) - 1):
            batch, record = divmod(int(split.indices[row]), 10_000)
            start = record * 3073
            raw = files[f"data_batch_{batch + 1}.bin"][start : start + 3073]
            assert split.labels[row] == raw[0]
            # Green, third row, fifth column: the plane comes first, then the row.
            assert split.images[row, 1, 2, 4] == raw[1 + 1024 + 2 * 32 + 4]
    assert data.test.images[9_999].numpy().tobytes() == files["test_batch.bin"][-3072:]


def test_the_archive_and_the_unpacked_folder_give_the_same_data(tmp_path, small):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pack(tmp_path / "a" / "cifar-10-binary.tar.gz", entries("cifar-10-batches-bin", small))
    unpack(tmp_path / "b", "cifar-10-batches-bin", small)
    one, two = Small10().read(tmp_path / "a"), Small10().read(tmp_path / "b")
    assert torch.equal(one.train.images, two.train.images)
    assert torch.equal(one.test.labels, two.test.labels)
    assert len(one.train) == 100
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["cifar-10-binary.tar.gz"]


def test_cifar100_uses_the_fine_label_which_is_the_second_byte(tmp_path):
    files = contents(Small100, records100)
    unpack(tmp_path, "cifar-100-binary", files)
    raw = Small100().read(tmp_path)
    assert len(raw.classes) == len(set(raw.classes)) == 100
    assert list(raw.classes) == sorted(raw.classes)
    assert raw.train.labels.tolist() == list(files["train.bin"][1::3074])
    assert raw.train.images[7].numpy().tobytes() == files["train.bin"][7 * 3074 + 2 : 8 * 3074]


@pytest.mark.parametrize("change", [-1, +1, -3073])
def test_a_file_of_another_length_is_refused_with_both_lengths(tmp_path, small, change):
    content = small["data_batch_3.bin"]
    small["data_batch_3.bin"] = content[:change] if change < 0 else content + b"x"
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=rf"data_batch_3.bin has {61460 + change:,} bytes, expected 61,460"):
        Small10().read(tmp_path)


def test_the_real_length_of_a_batch_is_required(tmp_path, small):
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=r"expected 30,730,000 \(10,000 records of 3,073\)"):
        sources.load("cifar10", data_dir=tmp_path)


def test_a_label_out_of_range_is_refused_with_its_record(tmp_path, small):
    content = bytearray(small["data_batch_2.bin"])
    content[17 * 3073] = 211
    small["data_batch_2.bin"] = bytes(content)
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=r"data_batch_2.bin: record 17 has label 211, expected 0 to 9"):
        Small10().read(tmp_path)


def test_a_label_changed_within_its_range_is_noticed_by_the_counts(tmp_path, small):
    content = bytearray(small["test_batch.bin"])
    content[0] = (content[0] + 1) % 10
    small["test_batch.bin"] = bytes(content)
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=r"test_batch.bin: [13] images of class \d .*, expected 2; 2 of 10"):
        Small10().read(tmp_path)


def test_a_cifar100_label_that_leaves_its_superclass_is_refused(tmp_path):
    files = contents(Small100, records100)
    content = bytearray(files["train.bin"])
    content[0] = (content[0] + 1) % 20
    files["train.bin"] = bytes(content)
    unpack(tmp_path, "cifar-100-binary", files)
    with pytest.raises(DataError, match="several superclasses"):
        Small100().read(tmp_path)


def test_the_test_batch_in_place_of_a_training_batch_is_refused(tmp_path, small):
    small["data_batch_4.bin"] = small["test_batch.bin"]
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=r"data_batch_4.bin and test_batch.bin hold the same bytes"):
        Small10().read(tmp_path)


def test_published_files_in_each_others_place_are_called_swapped(tmp_path, small):
    digest = {name: hashlib.sha256(content).hexdigest() for name, content in small.items()}

    class Published(Small10):
        train_members = tuple(Member(m.name, 20, digest[m.name]) for m in Small10.train_members)
        test_members = tuple(Member(m.name, 20, digest[m.name]) for m in Small10.test_members)

    unpack(tmp_path, "cifar-10-batches-bin", small)
    assert "every file has the published SHA-256" in Published().read(tmp_path).provenance
    folder = tmp_path / "cifar-10-batches-bin"
    (folder / "data_batch_1.bin").write_bytes(small["data_batch_2.bin"])
    (folder / "data_batch_2.bin").write_bytes(small["data_batch_1.bin"])
    with pytest.raises(DataError, match=r"data_batch_1.bin holds what was published as data_batch_2.bin"):
        Published().read(tmp_path)


def test_bytes_that_nobody_published_load_with_a_warning_but_fail_the_check(tmp_path, small, caplog, monkeypatch):
    unpack(tmp_path, "cifar-10-batches-bin", small)
    raw = Small10().read(tmp_path)
    assert "not the published bytes" in raw.provenance
    assert "not comparable" in caplog.text
    monkeypatch.setattr(sources, "find", lambda name: Small10())
    with pytest.raises(DataError, match=r"(?s)has SHA-256.*expected\s+cee91656"):
        sources.check("cifar10", tmp_path)


def test_a_missing_member_of_the_folder_is_named(tmp_path, small):
    del small["data_batch_5.bin"]
    unpack(tmp_path, "cifar-10-batches-bin", small)
    with pytest.raises(DataError, match=r"data_batch_5.bin is missing"):
        Small10().read(tmp_path)


def test_an_absent_data_set_is_refused_with_file_folder_address_size_and_hash(tmp_path):
    with pytest.raises(DataError) as refusal:
        sources.load("cifar10", data_dir=tmp_path)
    for fact in (
        "cifar-10-binary.tar.gz",
        str(tmp_path),
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "170,052,171 bytes",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "goodness data get cifar10",
    ):
        assert fact in str(refusal.value)


def test_hostile_names_in_the_archive_are_passed_over_and_nothing_is_extracted(tmp_path, small):
    home = tmp_path / "cache"
    home.mkdir()
    extra = [
        (tarfile.TarInfo("../escaped.txt"), b"out"),
        (tarfile.TarInfo(str(tmp_path / "absolute.txt")), b"out"),
        (tarfile.TarInfo("cifar-10-batches-bin/../../data_batch_1.bin"), b"out"),
    ]
    link = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    pack(home / "cifar-10-binary.tar.gz", [*extra, (link, b""), *entries("cifar-10-batches-bin", small)])
    assert len(Small10().read(home).train) == 100
    assert [path.name for path in tmp_path.rglob("*")] == ["cache", "cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_plain_file_is_refused(tmp_path, small, kind):
    stored = entries("cifar-10-batches-bin", small)
    bad = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    bad.type, bad.linkname = kind, "/etc/passwd"
    pack(tmp_path / "cifar-10-binary.tar.gz", [(bad, b""), *stored[1:]])
    with pytest.raises(DataError, match="not a plain file"):
        Small10().read(tmp_path)


def test_a_member_that_stands_twice_or_not_at_all_is_refused(tmp_path, small):
    stored = entries("cifar-10-batches-bin", small)
    pack(tmp_path / "cifar-10-binary.tar.gz", [*stored, stored[2]])
    with pytest.raises(DataError, match=r"data_batch_3.bin stands in it twice"):
        Small10().read(tmp_path)
    pack(tmp_path / "cifar-10-binary.tar.gz", stored[:-1])
    with pytest.raises(DataError, match=r"has no member cifar-10-batches-bin/test_batch.bin"):
        Small10().read(tmp_path)


def test_an_archive_that_unzips_without_end_is_refused(tmp_path, small):
    bomb = tarfile.TarInfo("zeros")
    pack(tmp_path / "cifar-10-binary.tar.gz", [(bomb, bytes(1 << 25)), *entries("cifar-10-batches-bin", small)])
    with pytest.raises(DataError, match="unzips to more"):
        Small10().read(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip", "empty"])
def test_a_damaged_archive_is_refused_with_the_hash_it_must_have(tmp_path, small, damage):
    path = tmp_path / "cifar-10-binary.tar.gz"
    pack(path, entries("cifar-10-batches-bin", small))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[-6] ^= 1  # in gzip's checksum, which stands at the very end
    elif damage == "not gzip":
        content = bytearray(b"<html>sign in first</html>")
    else:
        content = bytearray()
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"c4a38c50a1bc5f3a|has no member"):
        Small10().read(tmp_path)


def test_a_gzip_file_that_holds_no_tar_is_refused(tmp_path):
    with gzip.open(tmp_path / "cifar-10-binary.tar.gz", "wb") as file:
        file.write(b"not a tar" * 1000)
    with pytest.raises(DataError, match="truncated or damaged"):
        Small10().read(tmp_path)


def test_the_split_seed_alone_decides_the_hold_out(tmp_path, small, monkeypatch):
    unpack(tmp_path, "cifar-10-batches-bin", small)
    monkeypatch.setattr(sources, "find", lambda name: Small10())
    one = sources.load("cifar10", data_dir=tmp_path, val=10)
    torch.manual_seed(7)
    two = sources.load("cifar10", data_dir=tmp_path, val=10)
    other = sources.load("cifar10", data_dir=tmp_path, val=10, split_seed=1)
    assert torch.equal(one.val.indices, two.val.indices)
    assert not torch.equal(one.val.indices, other.val.indices)
    _, expected = hold_out(Small10().read(tmp_path).train, 10, seed=42)
    assert torch.equal(one.val.indices, expected.indices)
