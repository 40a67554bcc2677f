"""Which class a run gave to each test image: from the scores it keeps, or from what a publication keeps of them.

A publication has no scores. In place of predictions_test.npz and predictions_test_tta.npz it has predicted.npz:

labels   the right classes, in the order of the test images
steps    from each image's place in its split to the next one's, the first from zero
VIEW     of each view, how far the predicted class lies from the right one; mostly zero, so that it packs well
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goodness.errors import RunError, UserError
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder

PREDICTED = "predicted.npz"
"""What a published run has in place of its scores."""
VIEWS = ("test", "test_tta")
"""Single crop, and with its mirror image."""


@dataclass(frozen=True)
class Predicted:
    """What a run said of the test images, `[n]` each: the class it gave, the right one, the image's place."""

    classes: np.ndarray
    labels: np.ndarray
    indices: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        return self.classes == self.labels

    def is_of_same_images(self, other: Predicted) -> bool:
        """In the same order, and with the same right classes."""
        return np.array_equal(self.indices, other.indices) and np.array_equal(self.labels, other.labels)


def read_predicted(run: Run, view: str = "test") -> Predicted:
    """The classes that a run predicted under one view; an error where it has none."""
    kept = run.path / PREDICTED
    if kept.is_file():
        return _unpacked(kept, view)
    folder = RunFolder.open(run.path, for_writing=False)
    if not folder.predictions_path(view).is_file() and folder.block_predictions_path.is_file():
        return _of_all_blocks(folder.block_predictions_path, view)
    saved = folder.read_predictions(view)
    scores, labels, indices = saved["scores"], saved["labels"], saved["indices"]
    if scores.ndim != 2 or not len(scores) == len(labels) == len(indices):
        raise RunError(f"{run.path}: its predictions are of no use: {scores.shape} scores, {labels.shape} labels")
    return Predicted(scores.argmax(axis=1), labels.astype(np.int64), indices.astype(np.int64))


def order_of_tests(run: Run) -> str:
    """A hash of which test images were scored, in which order, under which labels. Each file is read once."""
    return _seen(run, "test")[0]


def accuracy_of_tests(run: Run, view: str = "test") -> float:
    """The share of the test images that it has right, counted anew. Each file is read once."""
    return _seen(run, view)[1]


def _seen(run: Run, view: str) -> tuple[str, float]:
    folder = RunFolder(run.path, None)
    for file in (run.path / PREDICTED, folder.predictions_path(view), folder.block_predictions_path):
        if file.is_file():
            return _read(run.path, view, file.stat().st_mtime_ns, file.stat().st_size)
    return _read(run.path, view, 0, 0)  # which says what is missing


@functools.lru_cache(maxsize=4096)
def _read(path: Path, view: str, written: int, size: int) -> tuple[str, float]:
    seen = read_predicted(Run(path), view)
    order = hashlib.sha256(seen.indices.tobytes() + seen.labels.tobytes()).hexdigest()
    return order, float(seen.correct.mean()) if len(seen.labels) else 0.0


def _of_all_blocks(path: Path, view: str) -> Predicted:
    """From predictions_blocks.npz, which a run keeps beside its scores."""
    split, _, tta = view.partition("_")
    name = f"{split}.first_tta" if tta else f"{split}.first"
    try:
        with np.load(path, allow_pickle=False) as archive:
            classes, labels, indices = (archive[key] for key in (name, f"{split}.labels", f"{split}.indices"))
    except Exception as trouble:  # a damaged archive can fail in any way
        raise RunError(f"{path} cannot be read ({trouble}); restore it from a copy") from trouble
    return Predicted(classes[-1].astype(np.int64), labels.astype(np.int64), indices.astype(np.int64))


def packed(views: Mapping[str, Predicted]) -> bytes:
    """The content of predicted.npz. All views must be of the same images in the same order."""
    first, *others = views.values()
    for other in others:
        if not first.is_of_same_images(other):
            raise RunError("the views of one run are of different test images")
    highest = max(int(one.max(initial=0)) for view in views.values() for one in (view.labels, view.classes))
    kind = np.uint8 if highest < 256 else np.uint16
    labels = first.labels.astype(kind)
    away = {name: one.classes.astype(kind) - labels for name, one in views.items()}  # wraps around, and back again
    content = io.BytesIO()
    steps = np.diff(first.indices, prepend=0).astype(np.int32)
    np.savez_compressed(content, allow_pickle=False, labels=labels, steps=steps, **away)
    return content.getvalue()


def _unpacked(path: Path, view: str) -> Predicted:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if view not in archive:
                raise UserError(f"there are no predictions '{view}' in {path}")
            labels, steps, away = archive["labels"], archive["steps"], archive[view]
    except UserError:
        raise
    except Exception as trouble:  # a damaged archive can fail in any way
        raise RunError(f"{path} cannot be read ({trouble}); restore it from a copy") from trouble
    if labels.ndim != 1 or not labels.shape == steps.shape == away.shape:
        shapes = f"{labels.shape} labels, {steps.shape} steps, {away.shape} predictions"
        raise RunError(f"{path} is of no use: {shapes}; restore it from a copy")
    classes = (labels + away).astype(np.int64)
    return Predicted(classes, labels.astype(np.int64), np.cumsum(steps, dtype=np.int64))
