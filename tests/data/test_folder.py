"""A user's own images: read exactly, and every way in which a folder can be wrong is said plainly."""

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goodness.data import sources
from goodness.data.pictures import formats
from goodness.errors import DataError

torch.set_num_threads(1)


def draw(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def root(tmp_path) -> Path:
    """Two classes, ten training and two test images each, 6 wide and 4 high."""
    for number, kind in enumerate(("cat", "ant")):
        for i in range(10):
            draw(tmp_path / "train" / kind / f"{i}.png", 100 * number + i)
        for i in range(2):
            draw(tmp_path / "test" / kind / f"{i}.png", 1000 + 100 * number + i)
    return tmp_path


def load(root: Path, **options):
    return sources.load(f"folder:{root}", **options)


def test_classes_are_sorted_and_pixels_come_back(root):
    expected = draw(root / "train" / "ant" / "0.png", 7)
    data = load(root, val=0)
    assert data.classes == ("ant", "cat")
    assert data.shape == (3, 4, 6)
    assert data.train.labels.tolist() == [0] * 10 + [1] * 10
    assert np.array_equal(data.train.images[0].permute(1, 2, 0).numpy(), expected)
    assert data.flips
    assert np.allclose(data.mean, data.train.images.double().mean((0, 2, 3)) / 255)


def test_a_tenth_is_held_out_where_there_is_no_val_folder(root):
    data = load(root)
    assert [len(data.train), len(data.val), len(data.test)] == [18, 2, 4]


def test_a_val_folder_is_used_as_given(root):
    draw(root / "val" / "cat" / "0.png", 5)
    draw(root / "val" / "ant" / "0.png", 6)
    data = load(root)
    assert [len(data.train), len(data.val), len(data.test)] == [20, 2, 4]
    with pytest.raises(DataError, match="brings its own validation images"):
        load(root, val=3)


def test_all_greyscale_images_make_one_channel_and_a_mixture_makes_three(root):
    for path in root.rglob("*.png"):
        draw(path, 3, "L")
    assert load(root).shape == (1, 4, 6)
    draw(root / "train" / "cat" / "5.png", 3)
    data = load(root, val=0)
    assert data.shape == (3, 4, 6)
    grey = data.train.images[0]
    assert torch.equal(grey[0], grey[2])


def test_any_format_and_alpha_or_palette_become_rgb(root):
    Image.open(root / "train" / "cat" / "0.png").convert("RGBA").save(root / "train" / "cat" / "a.webp")
    Image.open(root / "train" / "cat" / "1.png").convert("P").save(root / "train" / "cat" / "b.gif")
    Image.open(root / "train" / "cat" / "2.png").save(root / "train" / "cat" / "c.bmp")
    data = load(root, val=0)
    assert len(data.train) == 23
    assert torch.equal(data.train.images[-1], data.train.images[12])


def test_what_file_managers_leave_behind_is_passed_over(root):
    (root / "train" / ".DS_Store").write_bytes(b"x")
    (root / "train" / "cat" / ".hidden").write_bytes(b"x")
    (root / "train" / "cat" / "Thumbs.db").write_bytes(b"x")
    assert len(load(root, val=0).train) == 20


def test_unreadable_files_are_counted_and_the_first_are_named(root):
    for i in range(5):
        (root / "train" / "ant" / f"{i}.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"5 of 24 files cannot be read as images.*and 2 more") as refusal:
        load(root)
    assert str(root / "train" / "ant" / "0.png") in str(refusal.value)


def test_an_image_cut_short_is_unreadable_although_its_header_is_fine(root):
    path = root / "test" / "cat" / "1.png"
    draw(path, 1, size=(6, 4))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 30])
    with pytest.raises(DataError, match=r"1 of 24 files cannot be read as images: .*1.png"):
        load(root)


def test_uneven_sizes_are_said_with_the_common_size_and_the_odd_files(root):
    draw(root / "train" / "cat" / "3.png", 1, size=(7, 4))
    draw(root / "test" / "ant" / "1.png", 1, size=(4, 6))
    with pytest.raises(DataError, match=r"22 are 6x4 and 2 are not: .*3.png \(7x4\), .*1.png \(4x6\)"):
        load(root)


def test_one_class_is_not_enough(root):
    for path in (root / "train" / "cat").iterdir():
        path.unlink()
    (root / "train" / "cat").rmdir()
    with pytest.raises(DataError, match=r"1 class folder \(ant\); .* at least two"):
        load(root)


def test_an_empty_class_is_named(root):
    for path in (root / "test" / "cat").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"without an image \(1\): .*test/cat"):
        load(root)


def test_class_folders_that_differ_between_train_and_test_are_named(root):
    (root / "test" / "cat").rename(root / "test" / "dog")
    with pytest.raises(DataError, match=r"cat only in train; dog only in test"):
        load(root)


def test_a_missing_part_is_named_with_the_expected_layout(root, tmp_path):
    (root / "test").rename(root / "tset")
    with pytest.raises(DataError, match=r"there is no folder .*test: images are expected as .*<class>"):
        load(root)
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"nowhere"):
        sources.get(f"folder:{tmp_path / 'nowhere'}")


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds no pixel: a decompression bomb's face."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [5_000, 12_000, 60_000])
def test_an_image_of_absurd_size_is_refused_before_it_is_decoded(root, side):
    (root / "train" / "cat" / "0.png").write_bytes(png_header(side, side))
    with pytest.raises(DataError, match=r"more than 16,777,216 pixels"):
        load(root)


def test_sixteen_bit_images_are_refused_rather_than_clipped(root):
    deep = np.arange(24, dtype=np.uint16).reshape(4, 6) * 1000
    Image.fromarray(deep).save(root / "train" / "cat" / "0.png")
    with pytest.raises(DataError, match="more than 8 bits"):
        load(root)


def test_postscript_is_not_handed_to_an_interpreter(root):
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\nshowpage\n"
    (root / "train" / "cat" / "0.eps").write_bytes(script)
    assert "EPS" not in formats()
    with pytest.raises(DataError, match=r"0.eps"):
        load(root)


def test_without_pillow_the_error_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'goodness\[images\]'"):
        load(root)


def test_the_check_counts_the_images_of_every_class(root):
    facts = sources.check(f"folder:{root}")
    assert facts["per_class"]["test"] == {"ant": 2, "cat": 2}
    assert facts["files"] == []
    assert sources.get(f"folder:{root}") == root
