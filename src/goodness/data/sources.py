"""Data sets by name: load one, list them all, download one, check one.

Importing this module registers the data sets that come with the package; a user's own joins them with
`@datasets.register("name")` on a subclass of `Dataset`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from goodness.data import cifar, digits, embedded, idx, text, tiny_imagenet  # noqa: F401  (importing registers them)
from goodness.data.dataset import Dataset, Raw, as_split, channel_moments, datasets
from goodness.data.download import Progress, fetch
from goodness.data.embedded import About, Encode
from goodness.data.folder import ImageFolder
from goodness.data.images import ImageData, Split, hold_out
from goodness.data.text import TextData, TextFolder
from goodness.errors import DataError, UnknownName
from goodness.paths import from_home

__all__ = [
    "Dataset",
    "Raw",
    "as_split",
    "cache_dir",
    "canonical",
    "check",
    "datasets",
    "embed",
    "find",
    "get",
    "listing",
    "load",
]

_OWN: dict[str, type[ImageFolder] | type[TextFolder]] = {"folder": ImageFolder, "texts": TextFolder}
"""What stands before the colon where a user's own files are meant."""


def cache_dir(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are kept: the argument, else $GOODNESS_DATA, else the user's cache folder."""
    chosen = data_dir or os.environ.get("GOODNESS_DATA")
    if chosen:
        return from_home(chosen)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path does not count.
    base = Path(xdg) if os.path.isabs(xdg) else from_home("~/.cache")
    return base / "goodness"


def canonical(name: str) -> str:
    """The name under which a run finds its data again from any working folder: a folder's path is made absolute."""
    kind, _, path = name.partition(":")
    return f"{kind}:{from_home(path).resolve()}" if kind in _OWN and path else name


def find(name: str) -> Dataset:
    """The data set of that name, or the folder that `folder:PATH` or `texts:PATH` points to."""
    kind, colon, path = name.partition(":")
    if colon and kind in _OWN:
        if not path:
            raise DataError(f"{kind}: needs a path, as in {kind}:my-own")
        return _OWN[kind](from_home(path))
    try:
        return datasets[name]()
    except UnknownName as unknown:
        raise DataError(
            f"{unknown} (folder:PATH reads images of your own, texts:PATH texts; --plugin imports what registers one)"
        ) from None


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    split_seed: int = 42,
    val: int | None = None,
) -> ImageData:
    """Read, verify and split a data set. `val` is the number of training images to hold out for validation.

    The split depends on `split_seed` alone, not on a run's seed: all runs see the same images.
    """
    dataset = find(name)
    raw = dataset.read(cache_dir(data_dir))
    _check(name, raw)
    train, held = _split(name, dataset, raw, split_seed, val)
    if dataset.mean is not None and dataset.std is not None:
        mean, std = dataset.mean, dataset.std
    else:
        mean, std = channel_moments(raw.train.images)
    return ImageData(
        name=name,
        classes=raw.classes,
        train=train,
        val=held,
        test=raw.test,
        mean=mean,
        std=std,
        flips=dataset.flips,
        provenance=raw.provenance,
    )


def listing(data_dir: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """One row per data set, the smallest download first: what it is, its sizes, where it is kept."""
    folder = cache_dir(data_dir)
    rows: list[dict[str, Any]] = []
    for name, kind in datasets.items():
        dataset = kind()
        place = dataset.place(folder)
        train, test = dataset.sizes or (None, None)
        rows.append(
            {
                "name": name,
                "about": dataset.about,
                "classes": dataset.class_count,
                "shape": None if dataset.shape is None else list(dataset.shape),
                "train": None if train is None else train - dataset.held_out,
                "val": None if train is None else dataset.held_out,
                "test": test,
                "stored": str(place or folder / (dataset.files[0].path if dataset.files else "")),
                "present": place is not None,
                "download_bytes": sum(file.size for file in dataset.files),
            }
        )
    return sorted(rows, key=lambda row: row["download_bytes"])


def get(name: str, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Download what is missing of a data set, verify what is there, and say where it lies.

    `progress` is called with the bytes done and the bytes in all, over all files of the data set.
    """
    dataset, folder = find(name), cache_dir(data_dir)
    missing = dataset.missing(folder)
    wanted = [file for file in dataset.files if file in missing or (folder / file.path).exists()]
    total, before = sum(file.size for file in wanted), 0
    for file in wanted:

        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        fetch(file, folder, report)
        before += file.size
    place = dataset.place(folder)
    if place is None:
        raise DataError(f"{name} cannot be downloaded: {_how_to_have(name, dataset)}")
    return place


def find_texts(name: str) -> TextData:
    """A text data set by name."""
    dataset = find(name)
    if not isinstance(dataset, TextData):
        raise DataError(f"{name} has images, which are read as they are: only texts are embedded")
    return dataset


def embed(
    name: str,
    encode: Encode,
    about: About,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    batch: int = 64,
    progress: Progress | None = None,
) -> Path:
    """Encode the texts of a data set, once, so that runs can read them; says where the vectors lie.

    `encode` takes some texts to vectors, `about` says what it is; `goodness.data.encoder` has those of transformers.
    """
    dataset, folder = find_texts(name), cache_dir(data_dir)
    if batch < 1:
        raise DataError(f"a batch has at least one text, not {batch}")
    return embedded.embed(dataset.corpus(folder), encode, about, dataset.home(folder), batch=batch, progress=progress)


def check(name: str, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Verify a stored data set as far as possible and return the facts; DataError at the first fault."""
    dataset, folder = find(name), cache_dir(data_dir)
    data = load(name, data_dir=data_dir)
    files = dataset.hashes(folder)
    for file in files:
        if file["published"] not in (None, file["sha256"]):
            raise DataError(
                f"{file['file']} ({file['bytes']:,} bytes) has SHA-256\n  {file['sha256']}, expected\n"
                f"  {file['published']}: its content is not what was published. "
                "Delete or move it, then fetch it again"
            )
    return {
        "name": name,
        "place": str(dataset.place(folder)),
        "classes": len(data.classes),
        "shape": list(data.shape),
        "splits": {split: len(data.split(split)) for split in ("train", "val", "test")},
        "per_class": {split: _per_class(data, split) for split in ("train", "val", "test")},
        "mean": list(data.mean),
        "std": list(data.std),
        "flips": data.flips,
        "files": files,
        "provenance": data.provenance,
    }


def _split(name: str, dataset: Dataset, raw: Raw, split_seed: int, val: int | None) -> tuple[Split, Split]:
    if raw.val is not None:
        if val is not None:
            raise DataError(f"{name} brings its own validation images: leave val={val} out, or remove them")
        return raw.train, raw.val
    count = dataset.validation_size(raw.train) if val is None else val
    if not 0 <= count < len(raw.train):
        raise DataError(
            f"val={count}: {name} has {len(raw.train):,} training images, so 0 to {len(raw.train) - 1:,} "
            "of them can be held out for validation"
        )
    if count == 0:  # no permutation, no copy of a large set
        none = slice(0, 0)
        train = raw.train
        return train, Split(images=train.images[none], labels=train.labels[none], indices=train.indices[none])
    return hold_out(raw.train, count, seed=split_seed)


def _check(name: str, raw: Raw) -> None:
    """What must hold for any data set, a user's own included."""
    if len(raw.classes) < 2:
        raise DataError(f"{name} has {len(raw.classes)} class; telling classes apart needs at least two")
    splits = {"train": raw.train, "test": raw.test} | ({} if raw.val is None else {"val": raw.val})
    shape = raw.train.images.shape[1:]
    for part, split in splits.items():
        if len(split) == 0:
            raise DataError(f"{name}: the {part} split has no image")
        if split.images.shape[1:] != shape:
            raise DataError(
                f"{name}: {part} images are {list(split.images.shape[1:])}, training images {list(shape)}; "
                "they must be alike"
            )
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= len(raw.classes):
            raise DataError(f"{name}: {part} labels run from {low} to {high}, expected 0 to {len(raw.classes) - 1}")


def _per_class(data: ImageData, split: str) -> dict[str, int]:
    counts = torch.bincount(data.split(split).labels, minlength=len(data.classes)).tolist()
    return dict(zip(data.classes, counts))


def _how_to_have(name: str, dataset: Dataset) -> str:
    if isinstance(dataset, (ImageFolder, TextFolder)):
        return f"there is no folder {dataset.path}"
    if name == "digits":
        return "it comes with scikit-learn: pip install 'goodness[digits]'"
    return "it has no files to fetch"
