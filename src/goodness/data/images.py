"""Labelled images in memory: one uint8 tensor per split, on the device where they are used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Split:
    """Images `[n, channels, height, width]` uint8 with labels `[n]` int64, and their place in the source."""

    images: Tensor
    labels: Tensor
    indices: Tensor  # position in the source's own order, so that predictions of two runs can be joined

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """Sizes in place of the pixels."""
        return f"Split({len(self)} images, {'x'.join(map(str, self.images.shape[1:]))}, on {self.images.device})"

    def to(self, device: torch.device | str) -> Split:
        return Split(images=self.images.to(device), labels=self.labels.to(device), indices=self.indices.to(device))


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """A data set with its three splits. `val` is empty where the protocol has no hold-out."""

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    mean: tuple[float, ...]  # per channel, of images scaled to [0, 1], over the training split's source
    std: tuple[float, ...]
    flips: bool  # whether a mirrored image keeps its class (not for digits)
    provenance: str  # where the bytes came from and what was verified, for environment.json

    def __repr__(self) -> str:
        """Sizes in place of the pixels.

        >>> from goodness.api import load_data, make_config
        >>> load_data(make_config("demo"))
        ImageData('digits', 10 classes, 1x8x8, train 1080, val 120, test 597)
        """
        sizes = ", ".join(f"{name} {len(self.split(name))}" for name in ("train", "val", "test"))
        return f"ImageData('{self.name}', {len(self.classes)} classes, {'x'.join(map(str, self.shape))}, {sizes})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def split(self, name: str) -> Split:
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def to(self, device: torch.device | str) -> ImageData:
        return replace(self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))


def hold_out(split: Split, count: int, seed: int = 42) -> tuple[Split, Split]:
    """Take `count` images out of a split, by a permutation that depends on `seed` alone: (kept, held out)."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    return _take(split, order[count:].sort().values), _take(split, order[:count].sort().values)


def _take(split: Split, rows: Tensor) -> Split:
    return Split(images=split.images[rows], labels=split.labels[rows], indices=split.indices[rows])


def fingerprint(data: ImageData) -> str:
    """A hash of all images and labels in their order and splits."""
    digest = hashlib.sha256()
    every = [(part.images, part.labels, part.indices) for part in (data.train, data.val, data.test)]
    for tensor in (tensor for part in every for tensor in part):
        digest.update(tensor.cpu().contiguous().numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
