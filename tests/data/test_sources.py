"""Data sets by name: where they are kept, how they are split, and how a user's own joins them."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from goodness.data import sources
from goodness.data.dataset import Dataset, Raw, as_split, channel_moments, datasets
from goodness.data.digits import Digits
from goodness.errors import DataError, UserError

torch.set_num_threads(1)


def test_the_cache_folder_is_the_argument_then_the_variable_then_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GOODNESS_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert sources.cache_dir() == tmp_path / ".cache" / "goodness"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/does/not/count")
    assert sources.cache_dir() == tmp_path / ".cache" / "goodness"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert sources.cache_dir() == tmp_path / "xdg" / "goodness"
    monkeypatch.setenv("GOODNESS_DATA", "~/mine")
    assert sources.cache_dir() == tmp_path / "mine"
    assert sources.cache_dir(tmp_path / "here") == tmp_path / "here"


def test_digits_are_1080_120_and_597_images_and_no_image_stands_in_two_splits(tmp_path):
    data = sources.load("digits", data_dir=tmp_path)
    assert [len(data.train), len(data.val), len(data.test)] == [1080, 120, 597]
    assert data.shape == (1, 8, 8)
    assert not data.flips
    fixed = torch.randperm(1797, generator=torch.Generator().manual_seed(42))[:597]
    assert data.test.indices.tolist() == sorted(fixed.tolist())
    every = torch.cat([data.train.indices, data.val.indices, data.test.indices])
    assert sorted(every.tolist()) == list(range(1797))


def test_digits_are_scikit_learns_pixels_scaled_to_bytes():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    data = sources.load("digits")
    for split in (data.train, data.val, data.test):
        rows = split.indices.numpy()
        assert np.abs(split.images.reshape(len(split), 64).numpy() / 255 - pixels[rows] / 16).max() < 1 / 255
        assert split.labels.tolist() == labels[rows].tolist()
    assert int(data.train.images.max()) == 255


def test_another_split_seed_moves_the_validation_images_of_digits_but_not_the_test_set():
    one, two = sources.load("digits"), sources.load("digits", split_seed=3)
    assert torch.equal(one.test.indices, two.test.indices)
    assert not torch.equal(one.val.indices, two.val.indices)


@pytest.mark.parametrize("val", [0, 1, 500, 1199])
def test_val_sets_the_number_held_out(val):
    data = sources.load("digits", val=val)
    assert (len(data.val), len(data.train)) == (val, 1200 - val)
    assert data.val.images.shape[1:] == data.train.images.shape[1:]


@pytest.mark.parametrize("val", [-1, 1200, 10**9])
def test_a_hold_out_that_leaves_nothing_to_train_on_is_refused(val):
    with pytest.raises(DataError, match=r"val=.* 1,200 training images, so 0 to 1,199"):
        sources.load("digits", val=val)


def test_mean_and_deviation_are_those_of_the_training_images_in_float64():
    images = torch.randint(0, 256, (9000, 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[:, 1] //= 7
    mean, std = channel_moments(images)
    scaled = images.numpy().astype(np.float64) / 255
    assert np.allclose(mean, scaled.mean((0, 2, 3)), atol=1e-12)
    assert np.allclose(std, scaled.std((0, 2, 3)), atol=1e-12)


def test_a_channel_that_never_varies_is_not_divided_by_zero():
    assert channel_moments(torch.full((4, 1, 2, 2), 51, dtype=torch.uint8)) == ((0.2,), (1.0,))


def test_an_unknown_name_offers_the_nearest_and_is_the_users_mistake():
    with pytest.raises(UserError, match=r"did you mean 'cifar10'") as refusal:
        sources.load("cifr10")
    assert refusal.value.exit_code == 2
    with pytest.raises(DataError, match="needs a path"):
        sources.load("folder:")


def test_the_listing_names_all_data_sets_with_the_papers_sizes(tmp_path):
    rows = {row["name"]: row for row in sources.listing(tmp_path)}
    sizes = {name: (rows[name]["train"], rows[name]["val"], rows[name]["test"]) for name in rows}
    assert sizes["digits"] == (1_080, 120, 597)
    assert sizes["mnist"] == sizes["fashion-mnist"] == (55_000, 5_000, 10_000)
    assert sizes["cifar10"] == sizes["cifar100"] == (45_000, 5_000, 10_000)
    assert sizes["tiny-imagenet"] == (100_000, 0, 10_000)
    assert rows["tiny-imagenet"]["classes"] == 200
    assert rows["digits"]["present"]
    assert not rows["cifar10"]["present"]
    assert rows["cifar10"]["stored"] == str(tmp_path / "cifar-10-binary.tar.gz")
    json.dumps(list(rows.values()))


def test_the_check_counts_every_class_and_is_printable():
    facts = sources.check("digits")
    assert facts["splits"] == {"train": 1080, "val": 120, "test": 597}
    assert sum(sum(counts.values()) for counts in facts["per_class"].values()) == 1797
    assert set(facts["per_class"]["test"]) == set("0123456789")
    json.dumps(facts)


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=r"pip install 'goodness\[digits\]'"):
        sources.load("digits")


def test_digits_are_read_without_importing_scikit_learn():
    program = "import sys; from goodness.data import sources; sources.load('digits'); print('sklearn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_damaged_digits_name_the_file(monkeypatch, tmp_path):
    file = tmp_path / "datasets" / "data" / "digits.csv.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not gzip")
    monkeypatch.setattr(Digits, "place", lambda self, folder: tmp_path)
    with pytest.raises(DataError, match=r"digits\.csv\.gz"):
        sources.load("digits")


@pytest.fixture
def stripes(monkeypatch):
    """A data set that a user registers from outside; taken out again after the test."""
    monkeypatch.setattr(datasets, "_parts", dict(datasets._parts))

    @datasets.register("stripes")
    class Stripes(Dataset):
        flips = False
        labels = np.arange(40) % 2

        def read(self, folder):
            images = np.zeros((40, 1, 4, 4), dtype=np.uint8)
            images[:, :, ::2] = 255
            images[self.labels == 1] = images[self.labels == 1].transpose(0, 1, 3, 2)
            return Raw(
                classes=("lying", "standing"),
                train=as_split(images, self.labels),
                test=as_split(images[:10], self.labels[:10]),
                provenance="drawn",
            )

    return Stripes


def test_a_users_data_set_is_one_class_and_one_line(stripes, tmp_path):
    data = sources.load("stripes", data_dir=tmp_path, val=4)
    assert [len(data.train), len(data.val), len(data.test)] == [36, 4, 10]
    assert data.mean == (0.5,)
    assert data.classes == ("lying", "standing")
    assert data.provenance == "drawn"
    assert "stripes" in [row["name"] for row in sources.listing(tmp_path)]
    assert sources.check("stripes", tmp_path)["per_class"]["test"] == {"lying": 5, "standing": 5}


def test_a_users_label_beyond_the_classes_is_refused(stripes):
    stripes.labels = np.arange(40) % 3
    with pytest.raises(DataError, match="labels run from 0 to 2, expected 0 to 1"):
        sources.load("stripes")


def test_images_that_are_not_bytes_are_refused():
    with pytest.raises(DataError, match=r"uint8 .*not torch.float64"):
        as_split(np.zeros((2, 1, 4, 4)), [0, 1])
    with pytest.raises(DataError, match="as many labels"):
        as_split(np.zeros((2, 1, 4, 4), dtype=np.uint8), [0])
