"""Made-up predictions, and copies of a finished run that pass for other runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np


def made_up_predictions(
    classes: int, accuracy: float, *, blocks: int = 4, sizes: tuple[int, int] = (5000, 10000), flips: bool = True
) -> dict[str, np.ndarray]:
    """What predictions_blocks.npz holds, of blocks whose errors are correlated and whose sum is right so often."""
    draws = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for split, n in zip(("val", "test"), sizes):
        labels = draws.permutation(np.arange(n) % classes)
        right = np.eye(classes)[labels]
        noise = draws.normal(size=(n, classes)) + 0.8 * draws.normal(size=(blocks, n, classes))
        low, high = 0.0, 12.0
        for _ in range(30):
            signal = (low + high) / 2
            is_too_weak = ((noise + signal * right).sum(axis=0).argmax(axis=1) == labels).mean() < accuracy
            low, high = (signal, high) if is_too_weak else (low, signal)
        scores = noise + high * right
        mirrored = 0.85 * scores + 0.3 * draws.normal(size=(n, classes))
        arrays = {
            "labels": labels,
            "indices": np.sort(draws.permutation(50_000)[:n]) if split == "val" else np.arange(n),
        }
        arrays |= {"alone": scores.argmax(axis=2), "first": scores.cumsum(axis=0).argmax(axis=2)}
        arrays |= {"without": (scores.sum(axis=0) - scores).argmax(axis=2)} if blocks > 1 else {}
        arrays |= {"first_tta": mirrored.cumsum(axis=0).argmax(axis=2)} if flips else {}
        found |= {f"{split}.{name}": values.astype(np.int16) for name, values in arrays.items()}
        found[f"{split}.indices"] = arrays["indices"].astype(np.int32)
    return found


def another_run(run: Path, place: Path, seed: int) -> Path:
    """A copy of a finished run without its Stage 2 and its weights, under another seed and other weights' hash."""
    shutil.copytree(run, place, ignore=shutil.ignore_patterns("readout", "checkpoints", "run.lock"))
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "seed": seed}))
    for name in ("result.json", "health.json"):
        found = json.loads((place / name).read_text())
        (place / name).write_text(json.dumps({**found, "weights_sha256": f"{seed:064x}"[::-1]}))
    return place
