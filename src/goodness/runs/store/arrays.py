"""What runs predicted, image by image: read from a run's folder, coded, and packed into a batch's file.

Coding. A batch's file is a zip of .npy files, so `np.load` opens it. Images and labels are stored once per distinct
order of images; ORDER is a run's `test_order` or `val_order`:

ORDER.labels    the right classes
ORDER.steps     from each image's place in its split to the next one's, the first from zero
ORDER.classes   C, the number of classes

Predictions of RUN on SPLIT (test or val) are differences modulo C, mostly zero, so that they pack well:

RUN.SPLIT.network     [n], all blocks together; against the labels
RUN.SPLIT.first       [blocks, n], the sum of blocks 0..d; against the network
RUN.SPLIT.first_tta   the same with the mirrored image; against `first`
RUN.SPLIT.alone       block d by itself; against `first`
RUN.SPLIT.without     all blocks but d; against the network

`first` and `first_tta` have one row, the whole network, where blocks are not told apart. To decode:

    C = z["ORDER.classes"]
    network = (z["ORDER.labels"].astype(int) + z["RUN.test.network"]) % C
    first = (network + z["RUN.test.first"]) % C
    alone = (first + z["RUN.test.alone"]) % C
    without = (network + z["RUN.test.without"]) % C
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from goodness.errors import RunError
from goodness.runs.predictions import read_predicted
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder

Arrays = Mapping[str, np.ndarray]

SPLITS = ("test", "val")
AGAINST = {"first": "network", "first_tta": "first", "alone": "first", "without": "network"}
"""What each array is coded against."""
_SAME_TIME = (1980, 1, 1, 0, 0, 0)  # the same runs make the same bytes
_ROUNDING = 1e-6


def predicted_by(run: Run) -> dict[str, np.ndarray]:
    """What predictions_blocks.npz of a finished run holds. An older run has no such file: then what its network
    predicted on the test images, as `test.first` and `test.first_tta` of one row."""
    place = RunFolder(run.path, None).block_predictions_path
    if place.is_file():
        try:
            with np.load(place, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
            counted = float((found["test.first"][-1] == found["test.labels"]).mean())
        except Exception as trouble:  # a damaged archive can fail in any way
            raise RunError(f"{place} cannot be read ({trouble}); restore it from a copy") from trouble
        told = run.result["reported"]["accuracy"]
        if abs(counted - told) > _ROUNDING:
            raise RunError(f"{place} has an accuracy of {counted:.6g} and result.json of {told}: files of two runs")
        return found
    plain = read_predicted(run)
    found = {"labels": plain.labels, "indices": plain.indices.astype(np.int32), "first": plain.classes[None]}
    if "accuracy_tta" in run.result["reported"]:
        found["first_tta"] = read_predicted(run, "test_tta").classes[None]
    return {f"test.{name}": one if name == "indices" else one.astype(np.int16) for name, one in found.items()}


def order_of(predicted: Arrays, split: str) -> str | None:
    """A name for these images in this order under these labels; None where the run has none of the split."""
    if f"{split}.labels" not in predicted:
        return None
    parts = (predicted[f"{split}.{name}"].astype(np.int64).tobytes() for name in ("indices", "labels"))
    return f"order-{hashlib.sha256(b''.join(parts)).hexdigest()[:8]}"  # a letter first: no table takes it for a number


def packed(runs: Mapping[str, Arrays]) -> bytes:
    """The content of a batch's file, from what each run predicted."""
    classes: dict[str, int] = {}
    for predicted in runs.values():
        for split in SPLITS:
            if (order := order_of(predicted, split)) is not None:
                named = (values for name, values in predicted.items() if _is_classes(name, split))
                highest = max(int(values.max(initial=0)) for values in named)
                classes[order] = max(classes.get(order, 1), highest + 1)
    members: dict[str, np.ndarray] = {}
    for run, predicted in runs.items():
        for split in SPLITS:
            if (order := order_of(predicted, split)) is not None:
                members |= _coded(f"{run}.{split}", predicted, split, order, classes[order])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, values in members.items():
            array = io.BytesIO()
            np.save(array, values, allow_pickle=False)
            about = zipfile.ZipInfo(f"{name}.npy", _SAME_TIME)
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, array.getvalue(), compresslevel=9)
    return content.getvalue()


def _is_classes(name: str, split: str) -> bool:
    return name.startswith(f"{split}.") and not name.endswith(".indices")


def _coded(run: str, predicted: Arrays, split: str, order: str, classes: int) -> dict[str, np.ndarray]:
    kind = np.uint8 if classes <= 256 else np.uint16
    labels, first = predicted[f"{split}.labels"], predicted[f"{split}.first"]
    bases = {"network": first[-1], "first": first}
    found = {
        f"{order}.labels": labels.astype(kind),
        f"{order}.steps": np.diff(predicted[f"{split}.indices"], prepend=0).astype(np.int32),
        f"{order}.classes": np.array(classes),
        f"{run}.network": ((first[-1] - labels) % classes).astype(kind),
    }
    for name, base in AGAINST.items():
        if f"{split}.{name}" in predicted:
            found[f"{run}.{name}"] = ((predicted[f"{split}.{name}"] - bases[base]) % classes).astype(kind)
    return found


def unpacked(archive: Any, run: str, orders: Mapping[str, str]) -> dict[str, np.ndarray]:
    """What a run predicted, as `predicted_by` gave it; `orders` names the order of each split."""
    found: dict[str, np.ndarray] = {}
    for split, order in orders.items():
        classes, labels = int(archive[f"{order}.classes"]), archive[f"{order}.labels"].astype(np.int64)
        plain: dict[str, np.ndarray] = {}
        plain["network"] = (labels + archive[f"{run}.{split}.network"]) % classes
        for name, base in AGAINST.items():
            if f"{run}.{split}.{name}" in archive:
                plain[name] = (plain[base] + archive[f"{run}.{split}.{name}"]) % classes
        del plain["network"]
        found |= {f"{split}.{name}": values.astype(np.int16) for name, values in {"labels": labels, **plain}.items()}
        found[f"{split}.indices"] = np.cumsum(archive[f"{order}.steps"], dtype=np.int32)
    return found
