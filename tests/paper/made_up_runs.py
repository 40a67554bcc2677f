"""Run folders with numbers of one's choice, as a finished run writes them: what findings and figures read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goodness.config import override, to_dict
from goodness.presets import preset
from goodness.runs.run import Run

EPOCHS = (1, 5, 9)
"""Those on record, counted from zero; all have validation."""


def made_up(
    root: Path,
    name: str,
    seed: int,
    *,
    accuracy: float = 90.0,
    separation: Sequence[float] | None = None,
    goodness: Sequence[float] | None = None,
    truncation: Sequence[float] | None = None,
    rate: float = 0.99,
    wrong_image_rate: float = 0.99,
    stage2: float | None = None,
    right: np.ndarray | None = None,
    early_exit: Sequence[tuple[float, float]] | None = None,
    covered: float = 0.8,
    n: int = 10_000,
    theory: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Run:
    """A run of this preset and seed. Accuracies are in per cent, lists go block by block.

    `early_exit` are (accuracy in per cent, share of the work saved), the last one the whole network; `right` says which
    test images it has right.
    """
    config = override(preset(name), {"seed": seed, **(changes or {})})
    depth = len(separation or goodness or truncation or range(config.model.blocks))
    separation = list(separation or [1.0] * depth)
    goodness = list(goodness or [1.0] * depth)
    truncation = list(truncation or [accuracy - 0.5 * (depth - 1 - d) for d in range(depth)])
    path = root / f"{name}-s{seed}"
    path.mkdir(parents=True)
    is_bp = config.trainer == "backprop"
    blocks = [
        {
            "sep_cur": 0.7 * separation[d],
            "sep": sum(separation[: d + 1]),
            "sep_cur_mined": 0.5 * separation[depth - 1 - d],  # on test images another number, and another shape
            "sep_rate": 0.5,
            "attenuation": 1.0 if not d else 0.5,
            "loss_collapse": 0.1 / (d + 1),
            "g_pos": 0.5 * goodness[depth - 1 - d],
            "g_neg": 0.0,
            "rule_weight": 0.0 if not d else 0.7,
            "accuracy": truncation[d] / 100,
            "saturation": truncation[d] / truncation[-1],
            "sep_ni_rate": wrong_image_rate,
        }
        for d in range(0 if is_bp else depth)
    ]
    trained = [
        {
            "g_pos": goodness[d],
            "sep_cur_mined": separation[d],
            "sep_rate": rate - 0.01 * (depth - 1 - d),
            "rule_weight": 0.0 if not d else 0.7,
        }
        for d in range(len(blocks))
    ]
    _write(path / "config.json", {"stage": "s1", **to_dict(config)})
    _write(path / "result.json", _result("s1", accuracy, n, blocks))
    _write(path / "health.json", _health(accuracy, depth, blocks, early_exit, covered, n))
    draws = np.random.default_rng(zlib.crc32(f"{name} {seed}".encode()))
    with open(path / "metrics.jsonl", "w") as file:
        for place, epoch in enumerate(EPOCHS):
            share = (place + 1) / len(EPOCHS)
            file.write(json.dumps(_line(epoch, share, accuracy, blocks, trained, draws)) + "\n")
    if right is not None:
        scores = np.zeros((len(right), 2))
        scores[:, 0] = np.where(right, 1.0, -1.0)
        np.savez(
            path / "predictions_test.npz",
            scores=scores,
            labels=np.zeros(len(right), int),
            indices=np.arange(len(right)),
        )
    if stage2 is not None:
        (path / "readout").mkdir()
        _write(path / "readout" / "config.json", {"stage": "s2", **to_dict(config)})
        _write(path / "readout" / "result.json", _result("s2", stage2, n, []))
    if theory is not None:
        _write(path / "theory.json", theory)
    return Run(path)


def checked(ratios: Sequence[float], violations: int = 0, measured: int = 32) -> dict[str, Any]:
    """What a check of the theorems leaves: R at the means of each block that has a past."""
    example = {"margin": 0.4, "past": 1.0, "weight": 0.7, "ratio": 0.1, "measured": 0.1}
    return {
        "holds": violations == 0,
        "beta": 4.0,
        "blocks": [
            {
                "block": place + 1,
                "identity": {"measured": measured, "violations": violations},
                "sandwich": {"inside": 20, "measured_inside": 20, "violations": violations},
                "coverage": {"examples": 1000, "both": 0.8, "ratio_at_means": ratio, "mean_margin": 1.0},
                "examples": [{**example, "past": 0.1 * k, "measured": 2 ** (-0.5 * k)} for k in range(12)],
            }
            for place, ratio in enumerate(ratios)
        ],
    }


def _result(stage: str, accuracy: float, n: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        {
            "stage": stage,
            "weights": "best",
            "split": "test",
            "tta": False,
            "blocks": d + 1,
            "top1": b["accuracy"],
            "n": n,
        }
        for d, b in enumerate(blocks or [{"accuracy": accuracy / 100}])
    ]
    return {
        "reported": {
            "weights": "best",
            "stage": stage,
            "split": "test",
            "accuracy": accuracy / 100,
            "accuracy_tta": accuracy / 100 + 0.005,
        },
        "weights": {"best": {"epoch": 5}, "last": {"epoch": 9}},
        "accuracy": rows,
        "health": {"test": blocks},
        "parameters": 1000,
        "epochs": 10,
        "seconds": 1.0,
    }


def _health(
    accuracy: float,
    depth: int,
    blocks: list[dict[str, Any]],
    early_exit: Sequence[tuple[float, float]] | None,
    covered: float,
    n: int,
) -> dict[str, Any]:
    curve = early_exit or [(accuracy - 3, 0.75), (accuracy - 0.3, 0.4), (accuracy, 0.0)]
    points = [
        [[1.0 if i < covered * 100 else -0.5, float(d) * i / 100, 0.5**d] for i in range(100)] for d in range(depth)
    ]
    return {
        "split": "test",
        "n": n,
        "beta": 4.0,
        "blocks": blocks,
        "early_exit": [
            {"threshold": float(i), "accuracy": a / 100, "blocks": depth * (1 - s), "saved": s, "left": s**0.5}
            for i, (a, s) in enumerate(curve)
        ],
        "attenuation_points": points,
        "attenuation_weights": [[0.7] * 100] * depth,
    }


def _line(
    epoch: int,
    share: float,
    accuracy: float,
    blocks: list[dict[str, Any]],
    trained: list[dict[str, float]],
    draws: np.random.Generator,
) -> dict[str, Any]:
    train = [
        {
            "loss": 3 - 2 * share + 0.1 * d,
            "loss_curr": 0.1 * (d + 1) * (1.2 - share),
            "grad_norm": 4 - 2 * share,
            "g_pos": share * block["g_pos"],
            "sep_cur_mined": share * block["sep_cur_mined"],
            "sep_rate": 0.9 + share * (block["sep_rate"] - 0.9),
            "rule_weight": block["rule_weight"],
            "experts_effective": 20 + 5 * share + d,
            "load_variance": 0.5 - 0.3 * share,
        }
        for d, block in enumerate(trained)
    ]
    noise = float(draws.normal(0, 0.2))
    val = {"accuracy": (0.8 + 0.2 * share) * (accuracy + noise) / 100, "n": 5000, "blocks": blocks}
    return {
        "epoch": epoch,
        "train": {"blocks": train} if blocks else {"loss": 1 - 0.5 * share},
        "val": val,
        "seconds": 1,
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content))
