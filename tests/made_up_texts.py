"""Texts that need no encoder of weight: a word of their class among words of none, and vectors that know the words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from goodness.data.embedded import About

ABOUT = About(encoder="made-up", encoder_sha256="0" * 64, pool="mean", max_tokens=256)
FILLERS = ("the", "of", "a", "and", "to", "in")


def sentence(word: str, seed: int) -> str:
    draws = np.random.default_rng(seed)
    words = [*draws.choice(FILLERS, 4 + seed % 5), word]
    return " ".join(draws.permutation(words))


def encode(texts: Sequence[str]) -> np.ndarray:
    """The mean of fixed vectors, one a word: `[texts, 24]`."""
    return np.stack([np.mean([_vector(word) for word in text.split()], axis=0) for text in texts]).astype(np.float32)


def _vector(word: str) -> np.ndarray:
    return np.random.default_rng(list(word.encode())).normal(size=24)


def write_folder(root: Path, train: int = 40, test: int = 15, classes: Sequence[str] = ("cat", "dog", "eel")) -> Path:
    """`root/train/<class>/*.txt` and `root/test/<class>/*.txt`."""
    for part, count, first in (("train", train, 0), ("test", test, 10_000)):
        for number, kind in enumerate(classes):
            folder = root / part / kind
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}.txt").write_text(sentence(kind, first + 1000 * number + i))
    return root
