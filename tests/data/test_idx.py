"""MNIST's idx files, plain and gzipped: read exactly, and refused when they are not what they should be."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from goodness.data import sources
from goodness.data.idx import FashionMnist, IdxFile, Mnist
from goodness.errors import DataError

torch.set_num_threads(1)

NAMES = [f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


class SmallFashion(FashionMnist):
    """Thirty training and ten test images of the same layout."""

    kind = "fashion-mnist"
    parts = tuple(
        IdxFile(p.name, (30 if p.name.startswith("train") else 10, *p.dims[1:]), p.gz_bytes, p.gz_sha256)
        for p in FashionMnist.parts
    )
    per_class = ((3,) * 10, (1,) * 10)


def write(folder: Path, arrays: list[np.ndarray], zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(NAMES, arrays):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array), 1))
        else:
            (folder / name).write_bytes(idx(array))


@pytest.fixture
def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (30, 28, 28)),
        rng.permutation(np.arange(30) % 10),
        rng.integers(0, 256, (10, 28, 28)),
        rng.permutation(np.arange(10)),
    ]


def test_full_size_mnist_has_its_published_split_and_is_not_flipped(tmp_path):
    rng = np.random.default_rng(1)
    labels = [rng.permutation(np.repeat(np.arange(10), counts)) for counts in Mnist.per_class]
    images = [np.zeros((len(one), 28, 28), dtype=np.uint8) for one in labels]
    images[0][59_999, 27, 3] = 201
    write(tmp_path / "mnist", [images[0], labels[0], images[1], labels[1]], zipped=False)
    data = sources.load("mnist", data_dir=tmp_path)
    assert [len(data.train), len(data.val), len(data.test)] == [55_000, 5_000, 10_000]
    assert data.shape == (1, 28, 28)
    assert not data.flips
    both = torch.cat([data.train.indices, data.val.indices])
    where = torch.cat([data.train.images, data.val.images])[both == 59_999]
    assert where[0, 0, 27, 3] == 201
    assert int(where.sum()) == 201


@pytest.mark.parametrize("zipped", [False, True])
def test_pixels_and_labels_come_back_in_order(tmp_path, arrays, zipped):
    write(tmp_path / "fashion-mnist", arrays, zipped)
    raw = SmallFashion().read(tmp_path)
    assert raw.train.images[:, 0].tolist() == arrays[0].tolist()
    assert raw.train.labels.tolist() == arrays[1].tolist()
    assert raw.test.images[:, 0].tolist() == arrays[2].tolist()
    assert raw.test.labels.tolist() == arrays[3].tolist()


@pytest.mark.parametrize("zipped", [False, True])
def test_a_truncated_file_is_refused(tmp_path, arrays, zipped):
    write(tmp_path / "fashion-mnist", arrays, zipped)
    path = tmp_path / "fashion-mnist" / (NAMES[0] + (".gz" if zipped else ""))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="truncated"):
        SmallFashion().read(tmp_path)


def test_a_gzipped_file_that_unzips_to_more_or_less_is_refused(tmp_path, arrays):
    write(tmp_path / "fashion-mnist", arrays, True)
    path = tmp_path / "fashion-mnist" / f"{NAMES[0]}.gz"
    for content in (idx(arrays[0]) + b"x", idx(arrays[0])[:-1]):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(DataError, match=r"expected 23,536"):
            SmallFashion().read(tmp_path)


def test_images_and_labels_in_each_others_place_are_refused(tmp_path, arrays):
    write(tmp_path / "fashion-mnist", [arrays[1], arrays[0], arrays[2], arrays[3]], False)
    with pytest.raises(DataError, match=r"holds 38 bytes, expected 23,536"):
        SmallFashion().read(tmp_path)


def test_a_wrong_magic_number_is_refused_with_both(tmp_path, arrays):
    write(tmp_path / "fashion-mnist", arrays, False)
    path = tmp_path / "fashion-mnist" / NAMES[0]
    content = bytearray(path.read_bytes())
    content[2] = 0x0D  # floats, the format says
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"magic number 0x0d03 .* expected 0x0803"):
        SmallFashion().read(tmp_path)


def test_dimensions_that_only_multiply_to_the_right_size_are_refused(tmp_path, arrays):
    write(tmp_path / "fashion-mnist", [arrays[0].reshape(30, 14, 56), *arrays[1:]], False)
    with pytest.raises(DataError, match=r"\[30, 14, 56\].*expected .*\[30, 28, 28\]"):
        SmallFashion().read(tmp_path)


@pytest.mark.parametrize(("label", "message"), [(10, "has label 10, expected 0 to 9"), (None, "wrong count")])
def test_damaged_labels_are_refused_within_and_beyond_their_range(tmp_path, arrays, label, message):
    arrays[1][4] = (arrays[1][4] + 1) % 10 if label is None else label
    write(tmp_path / "fashion-mnist", arrays, False)
    with pytest.raises(DataError, match=message):
        SmallFashion().read(tmp_path)


def test_a_published_file_of_the_sister_set_is_called_by_its_name(tmp_path, arrays, monkeypatch):
    write(tmp_path / "fashion-mnist", arrays, True)
    stored = (tmp_path / "fashion-mnist" / f"{NAMES[1]}.gz").read_bytes()
    digest = hashlib.sha256(stored).hexdigest()
    parts = list(Mnist.parts)
    parts[1] = IdxFile(parts[1].name, parts[1].dims, parts[1].gz_bytes, digest)
    monkeypatch.setattr(Mnist, "parts", tuple(parts))
    with pytest.raises(DataError, match=r"published as mnist/train-labels-idx1-ubyte.gz"):
        SmallFashion().read(tmp_path)


def test_only_the_files_that_lack_are_asked_for(tmp_path, arrays):
    write(tmp_path / "fashion-mnist", arrays, False)
    (tmp_path / "fashion-mnist" / NAMES[3]).unlink()
    with pytest.raises(DataError) as refusal:
        SmallFashion().read(tmp_path)
    assert "t10k-labels-idx1-ubyte.gz (5,148 bytes" in str(refusal.value)
    assert "train-images" not in str(refusal.value)
