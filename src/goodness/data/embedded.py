"""Embedded texts: every text as the vector that a frozen encoder makes of it, 8 bits a number.

A vector is kept as an image of one row, `[1, 1, numbers]` uint8, so that all that works on images works on texts. One
offset and one step serve all numbers; both come from the training texts alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goodness.data.dataset import Raw, as_split
from goodness.errors import DataError
from goodness.tensor_file import Damaged, read_tensors, write_tensors

FILE = "embedded.safetensors"

SPREAD = 4.0
"""Standard deviations from the mean beyond which a number is clipped."""

LEAST_LEVELS = 16
"""Fewer different numbers than that are no embedding."""

Encode = Callable[[Sequence[str]], np.ndarray]
"""Some texts to their vectors, `[texts, numbers]` float32."""
Progress = Callable[[int, int], None]  # texts done, texts in all


@dataclass(frozen=True)
class Texts:
    """Texts with their labels."""

    texts: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A text data set before it is embedded."""

    classes: tuple[str, ...]
    train: Texts
    test: Texts

    def sha256(self) -> str:
        """Of all texts and labels in their order."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for part in (self.train, self.test):
            for text, label in zip(part.texts, part.labels):
                content = text.encode(errors="surrogatepass")
                digest.update(f"\n{label} {len(content)} ".encode() + content)
            digest.update(b"\n")
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class About:
    """What made the vectors."""

    encoder: str
    encoder_sha256: str
    """Of its weights."""
    pool: str
    max_tokens: int
    """Where a longer text is cut off."""


@dataclass(frozen=True)
class Levels:
    """256 evenly spaced values: `offset + step * level`."""

    offset: float
    step: float

    @classmethod
    def of(cls, vectors: np.ndarray) -> Levels:
        """From the smallest number to the largest, or as far as four standard deviations from the mean reach."""
        mean, std = float(vectors.mean(dtype=np.float64)), float(vectors.std(dtype=np.float64))
        low = max(float(vectors.min()), mean - SPREAD * std)
        high = min(float(vectors.max()), mean + SPREAD * std)
        return cls(low, (high - low) / 255 if high > low else 1.0)

    def of_numbers(self, vectors: np.ndarray) -> np.ndarray:
        """The nearest level of every number, uint8."""
        levels = np.empty(vectors.shape, dtype=np.uint8)
        for row in range(0, len(vectors), 4096):  # no second copy of all of them in float64
            some = vectors[row : row + 4096].astype(np.float64)
            levels[row : row + 4096] = np.rint((some - self.offset) / self.step).clip(0, 255)
        return levels

    def numbers(self, levels: np.ndarray) -> np.ndarray:
        """What the levels stand for."""
        return self.offset + self.step * levels.astype(np.float64)


def embed(
    corpus: Corpus, encode: Encode, about: About, folder: Path, *, batch: int = 64, progress: Progress | None = None
) -> Path:
    """Encode all texts and keep them in the folder; what lay there before is replaced only by a whole new file."""
    vectors = _encoded(corpus.train.texts + corpus.test.texts, encode, batch, progress)
    train = len(corpus.train)
    levels = Levels.of(vectors[:train])
    _refuse_too_few_levels(levels.of_numbers(vectors[:train]))
    tensors = {
        "train": torch.from_numpy(levels.of_numbers(vectors[:train])),
        "test": torch.from_numpy(levels.of_numbers(vectors[train:])),
        "train_labels": torch.tensor(corpus.train.labels, dtype=torch.int64),
        "test_labels": torch.tensor(corpus.test.labels, dtype=torch.int64),
        "offset": torch.tensor(levels.offset, dtype=torch.float64),
        "step": torch.tensor(levels.step, dtype=torch.float64),
    }
    facts = {**asdict(about), "classes": list(corpus.classes), "texts_sha256": corpus.sha256()}
    write_tensors(folder / FILE, tensors, facts)
    return folder / FILE


def _refuse_too_few_levels(used: np.ndarray) -> None:
    """Vectors that are all alike, or one number so far off that all others share a level, have nothing to learn."""
    count = len(np.unique(used))
    if count < LEAST_LEVELS:
        raise DataError(
            f"the vectors come to {count} of 256 levels: they hardly differ, or one number lies far off the others; "
            "take another encoder or --pool"
        )


def _encoded(texts: list[str], encode: Encode, batch: int, progress: Progress | None) -> np.ndarray:
    """Longest texts first: a batch of like lengths wastes no padding, and too large a batch fails at once."""
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]), reverse=True)
    vectors = np.empty((0, 0), dtype=np.float32)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        some = np.asarray(encode([texts[row] for row in rows]), dtype=np.float32)
        if start == 0:
            vectors = np.empty((len(texts), some.shape[-1] if some.ndim else 0), dtype=np.float32)
        if some.shape != (len(rows), vectors.shape[1]) or not some.size:
            expected = f"[{len(rows)}, {vectors.shape[1] or 'one or more'}]"
            raise DataError(f"the encoder gave {list(some.shape)} numbers for {len(rows)} texts, expected {expected}")
        if not np.isfinite(some).all():
            raise DataError("the encoder gave numbers that are not finite: its weights are damaged, take another copy")
        vectors[rows] = some
        if progress is not None:
            progress(min(start + batch, len(order)), len(order))
    return vectors


def read(folder: Path, name: str) -> tuple[Raw, dict[str, Any]]:
    """The embedded texts of a folder, verified, and the facts that were kept with them."""
    advice = f"make it again with `goodness data embed {name}`"
    try:
        tensors, facts = read_tensors(folder / FILE)
    except (Damaged, OSError) as trouble:
        raise DataError(f"{folder / FILE} cannot be used ({trouble}): {advice}") from None
    try:
        about = About(**{field: facts[field] for field in About.__dataclass_fields__})
        classes = tuple(str(one) for one in facts["classes"])
        parts = {part: as_split(_rows(tensors[part]), tensors[f"{part}_labels"]) for part in ("train", "test")}
    except (LookupError, TypeError, DataError) as trouble:
        raise DataError(f"{folder / FILE} lacks what an embedding has ({trouble}): {advice}") from None
    numbers = tensors["train"].shape[1]
    provenance = (
        f"{folder / FILE}: {len(parts['train']):,} + {len(parts['test']):,} texts as {numbers} numbers of 8 bits each, "
        f"its hash checked; made by {about.encoder} (trained by backpropagation; its weights' SHA-256 is "
        f"{about.encoder_sha256}), pool {about.pool}, at most {about.max_tokens} tokens a text"
    )
    return Raw(classes=classes, train=parts["train"], test=parts["test"], provenance=provenance), facts


def _rows(vectors: Tensor) -> Tensor:
    """`[texts, numbers]` as images of one row."""
    return vectors[:, None, None, :]
