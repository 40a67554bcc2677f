"""Tiny ImageNet from its zip or its folder: decoded once, kept with a hash, refused when it is not itself."""

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goodness.data import sources
from goodness.data.tiny_imagenet import TinyImageNet
from goodness.errors import DataError

torch.set_num_threads(1)

WNIDS = ["n02000000", "n01000000"]  # not in order: labels follow the sorted names


class Small(TinyImageNet):
    """Two classes of three training and two test images."""

    kind = "tiny-imagenet"
    wnid_count = 2
    per_class = 3
    test_per_class = 2


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def jpeg(level: int, mode: str = "RGB", size: tuple[int, int] = (64, 64)) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, level if mode == "L" else (level, level // 2, 0)).save(out, "JPEG", quality=95)
    return out.getvalue()


@pytest.fixture
def files() -> dict[str, bytes]:
    made = {"wnids.txt": "\n".join(WNIDS).encode() + b"\n"}
    for place, wnid in enumerate(WNIDS):
        for i in range(3):
            made[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(100 * place + 10 * i)
    rows = []
    for i, wnid in enumerate([WNIDS[1], WNIDS[0], WNIDS[0], WNIDS[1]]):
        made[f"val/images/val_{i}.JPEG"] = jpeg(200 + i, "L")
        rows.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63")
    made["val/val_annotations.txt"] = "\n".join(rows[::-1]).encode()
    return made


def zipped(folder: Path, files: dict[str, bytes], extra: dict[str, bytes] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
        for name, content in (extra or {}).items():
            archive.writestr(name, content)
    return path


def unpacked(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "tiny-imagenet-200"


def test_the_labelled_validation_images_are_the_test_set_and_grey_becomes_rgb(tmp_path, files):
    zipped(tmp_path, files)
    raw = Small().read(tmp_path)
    assert raw.classes == ("n01000000", "n02000000")
    assert raw.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert raw.test.labels.tolist() == [0, 1, 1, 0]
    assert raw.test.images.shape == (4, 3, 64, 64)
    # The first sorted class was made second, with levels 100, 110, 120 in red.
    red = raw.train.images[:, 0].float().mean((1, 2))
    assert torch.allclose(red, torch.tensor([100.0, 110, 120, 0, 10, 20]), atol=3)
    assert torch.allclose(raw.test.images.float().mean((2, 3)), torch.arange(200.0, 204)[:, None], atol=2)


def test_there_is_no_hold_out_unless_asked_for(tmp_path, files, monkeypatch):
    zipped(tmp_path, files)
    monkeypatch.setattr(sources, "find", lambda name: Small())
    data = sources.load("tiny-imagenet", data_dir=tmp_path)
    assert [len(data.train), len(data.val), len(data.test)] == [6, 0, 4]
    data = sources.load("tiny-imagenet", data_dir=tmp_path, val=2)
    assert [len(data.train), len(data.val), len(data.test)] == [4, 2, 4]


def test_folder_zip_and_decoded_copy_give_the_same_pixels(tmp_path, files):
    unpacked(tmp_path / "a", files)
    path = zipped(tmp_path / "b", files)
    one, two = Small().read(tmp_path / "a"), Small().read(tmp_path / "b")
    path.unlink()  # the decoded copy is enough from here on
    three = Small().read(tmp_path / "b")
    for other in (two, three):
        assert torch.equal(one.train.images, other.train.images)
        assert torch.equal(one.test.labels, other.test.labels)
    left = {"tiny-imagenet-200.decoded.json", "tiny-imagenet-200.images.npy", "tiny-imagenet-200.labels.npy"}
    assert {path.name for path in (tmp_path / "b").iterdir()} == left


def test_the_images_are_decoded_only_once(tmp_path, files, monkeypatch):
    zipped(tmp_path, files)
    Small().read(tmp_path)
    monkeypatch.setattr(Small, "_decode", lambda self, source: pytest.fail("decoded again"))
    Small().read(tmp_path)


def test_a_decoded_copy_that_was_changed_is_made_again(tmp_path, files, caplog):
    zipped(tmp_path, files)
    before = Small().read(tmp_path)
    path = tmp_path / "tiny-imagenet-200.images.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    after = Small().read(tmp_path)
    assert torch.equal(before.test.images, after.test.images)
    assert "has changed since" in caplog.text


def test_a_changed_decoded_copy_without_its_source_is_refused(tmp_path, files):
    path = zipped(tmp_path, files)
    Small().read(tmp_path)
    path.unlink()
    (tmp_path / "tiny-imagenet-200.labels.npy").write_bytes(b"")
    with pytest.raises(DataError, match="missing or damaged"):
        Small().read(tmp_path)


def test_a_pickle_in_the_decoded_copy_is_not_loaded(tmp_path, files):
    """Even when the sidecar vouches for it."""
    zipped(tmp_path, files)
    expected = Small().read(tmp_path)
    path = tmp_path / "tiny-imagenet-200.labels.npy"
    np.save(path, np.array([Trap(tmp_path / "sprung")]), allow_pickle=True)
    sidecar = tmp_path / "tiny-imagenet-200.decoded.json"
    facts = json.loads(sidecar.read_text())
    facts["labels"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(facts))
    assert torch.equal(Small().read(tmp_path).test.labels, expected.test.labels)
    assert not (tmp_path / "sprung").exists()


def test_another_zip_in_its_place_is_decoded_anew(tmp_path, files):
    zipped(tmp_path, files)
    Small().read(tmp_path)
    files[f"train/{WNIDS[1]}/images/{WNIDS[1]}_0.JPEG"] = jpeg(255)
    zipped(tmp_path, files, {"padding": b"so that the size differs"})
    assert Small().read(tmp_path).train.images[0, 0].float().mean() > 250


def test_hostile_and_superfluous_members_are_never_looked_at(tmp_path, files):
    home = tmp_path / "cache"
    zipped(home, files, {"../escaped.txt": b"x", "/absolute.txt": b"x", "tiny-imagenet-200/train/evil.py": b"x"})
    assert len(Small().read(home).train) == 6
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (jpeg(9, size=(65, 64)), "65x64, expected 64x64"),
        (b"not an image", "not a readable 64x64 JPEG"),
        (jpeg(9)[:300], "not a readable 64x64 JPEG"),
        (b"\0" * (2 << 20), "unzips to 2,097,152 bytes"),
        (None, "has no member"),
    ],
)
def test_a_bad_image_is_refused_by_name(tmp_path, files, content, message):
    name = f"train/{WNIDS[0]}/images/{WNIDS[0]}_1.JPEG"
    if content is None:
        del files[name]
    else:
        files[name] = content
    zipped(tmp_path, files)
    with pytest.raises(DataError, match=message) as refusal:
        Small().read(tmp_path)
    assert name in str(refusal.value)


def test_a_png_under_a_jpeg_name_is_refused(tmp_path, files):
    out = io.BytesIO()
    Image.new("RGB", (64, 64)).save(out, "PNG")
    files["val/images/val_2.JPEG"] = out.getvalue()
    unpacked(tmp_path, files)
    with pytest.raises(DataError, match=r"val_2.JPEG is not a readable 64x64 JPEG"):
        Small().read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("wnids.txt", b"n01000000\n", "names 1 classes, expected 2"),
        ("wnids.txt", b"n01000000\n../../etc\n", "odd: '../../etc'"),
        ("wnids.txt", b"\xff\xfe\x00", "is not text"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01000000\n", "labels 1 images, expected 4"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn09999999\n", "line 1 names no known class"),
    ],
)
def test_bad_lists_are_refused(tmp_path, files, name, content, message):
    files[name] = content
    zipped(tmp_path, files)
    with pytest.raises(DataError, match=message):
        Small().read(tmp_path)


def test_uneven_test_classes_are_refused(tmp_path, files):
    text = files["val/val_annotations.txt"].decode()
    files["val/val_annotations.txt"] = text.replace(WNIDS[0], WNIDS[1], 1).encode()
    zipped(tmp_path, files)
    with pytest.raises(DataError, match="expected 2"):
        Small().read(tmp_path)


def test_a_truncated_zip_is_refused_with_the_hash_it_must_have(tmp_path, files):
    path = zipped(tmp_path, files)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match="6198c8ae015e2b3e"):
        Small().read(tmp_path)
