"""What runs predicted is coded small and read back exactly."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from made_up import made_up_predictions

from goodness.runs.store.arrays import order_of, packed, unpacked

Arrays = dict[str, np.ndarray]


def opened(runs: dict[str, Arrays]) -> np.lib.npyio.NpzFile:
    return np.load(io.BytesIO(packed(runs)), allow_pickle=False)


def orders(predicted: Arrays) -> dict[str, str]:
    return {split: order for split in ("test", "val") if (order := order_of(predicted, split)) is not None}


def assert_same(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys()
    for name, values in left.items():
        assert values.dtype == right[name].dtype, name
        np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize(
    "predicted",
    [
        made_up_predictions(10, 0.85, sizes=(50, 100)),
        made_up_predictions(300, 0.5, sizes=(300, 700)),
        made_up_predictions(2, 0.9, blocks=1, sizes=(30, 60), flips=False),
        {name: one for name, one in made_up_predictions(7, 0.6, sizes=(20, 50)).items() if name.startswith("test.")},
    ],
    ids=["ten classes", "more classes than a byte holds", "one block, no flips", "no validation images"],
)
def test_round_trip(predicted: Arrays) -> None:
    assert_same(unpacked(opened({"a": predicted}), "a", orders(predicted)), predicted)


def test_predictions_of_the_network_alone() -> None:
    whole = made_up_predictions(10, 0.8, sizes=(50, 100))
    predicted = {name: whole[name] for name in ("test.labels", "test.indices")}
    predicted |= {name: whole[name][-1:] for name in ("test.first", "test.first_tta")}
    assert_same(unpacked(opened({"a": predicted}), "a", orders(predicted)), predicted)


def test_images_in_any_order_with_classes_that_no_label_has() -> None:
    predicted = made_up_predictions(5, 0.7, sizes=(20, 40))
    predicted["test.indices"] = predicted["test.indices"][::-1].copy()
    predicted["test.first"][1, 3] = 9
    assert_same(unpacked(opened({"a": predicted}), "a", orders(predicted)), predicted)


def test_the_lines_of_numpy_that_are_documented() -> None:
    predicted = made_up_predictions(10, 0.8, sizes=(50, 100))
    order = orders(predicted)["test"]
    z = opened({"RUN": predicted})
    classes = z[f"{order}.classes"]
    network = (z[f"{order}.labels"].astype(int) + z["RUN.test.network"]) % classes
    first = (network + z["RUN.test.first"]) % classes
    np.testing.assert_array_equal(network, predicted["test.first"][-1])
    np.testing.assert_array_equal(first, predicted["test.first"])
    np.testing.assert_array_equal((first + z["RUN.test.first_tta"]) % classes, predicted["test.first_tta"])
    np.testing.assert_array_equal((first + z["RUN.test.alone"]) % classes, predicted["test.alone"])
    np.testing.assert_array_equal((network + z["RUN.test.without"]) % classes, predicted["test.without"])
    np.testing.assert_array_equal(z[f"{order}.steps"].cumsum(), predicted["test.indices"])


def test_runs_on_the_same_images_share_labels() -> None:
    one, other = made_up_predictions(10, 0.8, sizes=(50, 100)), made_up_predictions(10, 0.6, sizes=(50, 100))
    for name in ("test.labels", "test.indices", "val.labels", "val.indices"):
        other[name] = one[name]
    elsewhere = made_up_predictions(10, 0.8, sizes=(50, 100))
    elsewhere["test.labels"] = (elsewhere["test.labels"] + 1) % 10
    archive = opened({"a": one, "b": other, "c": elsewhere})
    assert len([name for name in archive.files if name.endswith(".labels")]) == 3
    for run, predicted in {"a": one, "b": other, "c": elsewhere}.items():
        assert_same(unpacked(archive, run, orders(predicted)), predicted)


def test_the_same_runs_make_the_same_bytes() -> None:
    predicted = made_up_predictions(10, 0.8, sizes=(50, 100))
    assert packed({"a": predicted}) == packed({"a": predicted})


@pytest.mark.parametrize(("classes", "accuracy", "most"), [(10, 0.85, 60_000), (100, 0.65, 150_000)])
def test_a_run_of_four_blocks_is_small(classes: int, accuracy: float, most: int) -> None:
    """10,000 test and 5,000 validation images, with labels and order, as the only run of its file."""
    content = packed({f"gated-cifar{classes}-s42-0123abcd": made_up_predictions(classes, accuracy)})
    assert len(content) <= most
    methods = {entry.compress_type for entry in zipfile.ZipFile(io.BytesIO(content)).infolist()}
    assert methods == {zipfile.ZIP_DEFLATED}  # which readers of .npz other than numpy open too
