"""Whole runs in a second: every size cut down, and a made-up data set that needs no file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from goodness.api import make_config
from goodness.config import Config, override
from goodness.data.dataset import Dataset, Raw, as_split, datasets
from goodness.data.digits import Digits
from goodness.data.images import Split
from goodness.durable import read_json, read_lines
from goodness.nn.hybrid import Hybrid
from goodness.nn.plain_cnn import ConvStages
from goodness.nn.pyramid import Pyramid
from goodness.presets import preset, presets
from goodness.runs.checkpoint import Checkpoints
from goodness.tensor_file import weights_sha256

PAPERS_METHOD = [name for name in presets if preset(name).is_cumulative]
"""Presets whose settings are those of the paper's method."""

SIZES = {"model.width": 8, "model.stem.channels": 4, "model.stem.patch": 2}
BLOCK_SIZES = {"heads": 2, "hidden": 8}


NETWORK_SIZES = {
    "cfse": {
        "network.channels": (10, 20),
        "network.groups": (),
        "method.groups": (),
        "method.begin": (),
        "method.end": (1, 2),
    },
    "shortcut-cnn": {"network.width": 10, "network.stages": 1},
    "tiny-cnn": {"network.channels": (10, 10, 20, 20)},
}
"""Of networks of methods other than the paper's."""


def shrunk(name: str, changes: Mapping[str, Any] | None = None, *, blocks: int = 2) -> Config:
    """A preset with every size cut down and nothing else: widths, blocks, experts, slots, queue. Then the changes."""
    config = preset(name)
    if not config.is_cumulative:
        sizes = NETWORK_SIZES.get(config.network.kind) or smaller_network(config, blocks)
        return make_config(config, {**sizes, **(changes or {})})
    config = override(config, {**SIZES, "model.blocks": blocks})
    if isinstance(config.model.block, ConvStages):
        config = override(config, {"model.block.channels": (4, 8, 8), "model.stem.patch": None})
    elif isinstance(config.model.block, Pyramid):
        sizes = {"channels": (4, 8, 8), "entry": 3, "convolutions": 2}
        config = override(config, {f"model.block.{field}": value for field, value in sizes.items()})
        config = override(config, {"model.stem.patch": None})
    elif isinstance(config.model.block, Hybrid):
        config = override(config, {f"model.block.{field}": value for field, value in BLOCK_SIZES.items()})
        if config.model.block.experts > 4:
            config = override(config, {"model.block.experts": 4, "model.block.top_k": 2})
        if config.model.block.memory:
            config = override(config, {"model.block.memory": 3})
    if "supcon" in config.objective:
        config = override(config, {"objective.supcon.queue": 24, "objective.supcon.dimensions": 4})
    config = override(config, {"readout.width": 16, "readout.heads": 2})
    return make_config(config, changes)


def smaller_network(config: Config, blocks: int) -> dict[str, Any]:
    """The network of a method other than the paper's, cut down."""
    sizes = {"widths": (12,) * blocks, "channels": (4,) * blocks, "pools": (0,)}
    return {f"network.{name}": size for name, size in sizes.items() if hasattr(config.network, name)}


class Blobs(Dataset):
    """Four patterns under noise; a number in `blobs.txt` of the data folder draws others."""

    held_out = 20
    flips = True
    count: ClassVar[int] = 4
    noise: ClassVar[float] = 0.6

    def read(self, folder: Path) -> Raw:
        file = folder / "blobs.txt"
        draws = torch.Generator().manual_seed(int(file.read_text()) if file.is_file() else 0)
        patterns = torch.rand(self.count, 1, 6, 6, generator=draws)

        def some(n: int) -> Split:
            labels = torch.randint(self.count, (n,), generator=draws)
            noise = torch.rand(n, 1, 6, 6, generator=draws)
            return as_split(
                (255 * ((1 - self.noise) * patterns[labels] + self.noise * noise)).to(torch.uint8), labels.numpy()
            )

        train, test = some(70), some(40)
        classes = tuple(f"pattern {number}" for number in range(self.count))
        return Raw(classes=classes, train=train, test=test, provenance="drawn for a test")


class EasyBlobs(Blobs):
    """The same patterns under little noise, not to be mirrored: what learns at all learns these in a few epochs."""

    flips = False
    noise = 0.2


class TenBlobs(Blobs):
    """Ten patterns: enough for a top-5 accuracy."""

    count = 10


class FewDigits(Digits):
    """A hundred and sixty of scikit-learn's digits: 100 to train on, 20 for validation, 40 to test."""

    sizes = (120, 40)
    held_out = 20

    def read(self, folder: Path) -> Raw:
        raw = all_digits()
        return dataclasses.replace(raw, train=_first(raw.train, 120), test=_first(raw.test, 40))


class AHandfulOfDigits(Digits):
    """Thirty to train on, fifteen to test."""

    sizes = (30, 15)
    held_out = 0

    def read(self, folder: Path) -> Raw:
        raw = all_digits()
        return dataclasses.replace(raw, train=_first(raw.train, 30), test=_first(raw.test, 15))


@functools.cache
def all_digits() -> Raw:
    return Digits().read(Path())


def _first(split: Split, count: int) -> Split:
    return Split(images=split.images[:count], labels=split.labels[:count], indices=split.indices[:count])


def register_blobs() -> None:
    datasets.register("few-digits")(FewDigits)
    datasets.register("a-handful-of-digits")(AHandfulOfDigits)
    datasets.register("blobs")(Blobs)
    datasets.register("easy-blobs")(EasyBlobs)
    datasets.register("ten-blobs")(TenBlobs)


@contextmanager
def blobs_at_hand() -> Iterator[None]:
    """The made-up data sets by name; afterwards registry and determinism are as they were."""
    known = dict(datasets._parts)
    register_blobs()
    try:
        yield
    finally:
        datasets._parts = known
        torch.use_deterministic_algorithms(False)


BLOBS = {"data": "blobs", "epochs": 3, "batch": 16, "augment": "weak", "optim.lr": 1e-2}
"""Fifty training images in three steps an epoch, twenty for validation, forty to test."""


def what_a_run_leaves(path: str | Path) -> dict[str, Any]:
    """All that must be the same after kill and resume: everything but the time it took, ready for JSON."""
    path = Path(path)
    result = read_json(path / "result.json")
    lines = read_lines(path / "metrics.jsonl")
    for record in (result, *lines):
        del record["seconds"]
    predictions = {}
    for file in sorted(path.glob("predictions_*.npz")):
        with np.load(file, allow_pickle=False) as arrays:
            predictions[file.name] = {name: hashlib.sha256(arrays[name].tobytes()).hexdigest() for name in arrays.files}
    weights = {}
    for name in result["weights"]:  # the tensors: the order of a safetensors header's entries is not fixed
        tensors, facts = Checkpoints(path / "checkpoints").load_weights(name)
        weights[name] = [weights_sha256(tensors), facts]
    health = path / "health.json"  # which a Stage 1 has
    kept = read_json(health) if health.is_file() else None
    return {"result": result, "metrics": lines, "predictions": predictions, "weights": weights, "health": kept}
