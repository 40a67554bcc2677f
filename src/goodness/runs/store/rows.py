"""The rows of a run, from its folder. Values are plain; None is an empty field."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from goodness.config import STAGE_2, Config, differences
from goodness.durable import read_json
from goodness.errors import RunError, UserError
from goodness.presets import preset, presets
from goodness.runs.run import Run, about_backbone, environment_of, lives_of
from goodness.runs.run_folder import WEIGHTS_SHA256, RunFolder
from goodness.runs.store.columns import HEALTH, TRAINING, VALIDATION
from goodness.sweep.cell import CellFolder
from goodness.versions import method_of

Row = dict[str, Any]

MOST_EPOCHS = 30
"""Epochs of which the blocks have rows."""


def run_id(run: Run) -> str:
    """`<preset>-<data>-s<seed>-<first 8 of weights_sha256>`."""
    known = run.result.get(WEIGHTS_SHA256)
    if not isinstance(known, str):
        raise RunError(f"{run.path}: its result.json has no {WEIGHTS_SHA256}; a later version made those that have one")
    return _id(run.config, known)


def _id(config: Config, weights: str) -> str:
    words = (re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") for name in (config.preset, _named(config.data)))
    return f"{'-'.join(words)}-s{config.seed}-{weights[:8]}"


def run_row(run: Run, predicted: Mapping[str, np.ndarray], scale: str) -> Row:
    """The row of runs.csv, but for `batch`. `predicted` is what `goodness.runs.store.arrays.predicted_by` reads."""
    config, result, stage = run.config, run.result, run.stage
    facts, lives, reported = environment_of(run), lives_of(run), result["reported"]
    method, method_version, health_version = method_of(facts, stage)
    accuracies = _accuracies(result)
    deepest = max(blocks for _, _, blocks in accuracies)
    cell = run.path.parent.parent if stage == "s2" else run.path.parent
    told = {name: reported.get(name) for name in ("accuracy", "accuracy_tta", "top5", "top5_tta", "weights")}
    counted = {name: result.get(name) for name in ("epochs", "parameters", "steps", "seconds", WEIGHTS_SHA256)}
    made_with = {name: _distinct(lives, name) for name in ("torch", "dtype", "goodness", "commit", "source")}
    return {
        "run": run_id(run),
        "stage": stage,
        "scale": scale,
        "preset": config.preset,
        "data": _named(config.data),
        "seed": config.seed,
        "method": method,
        "method_version": method_version,
        "health_version": health_version,
        "changes": changes(config, stage),
        **told,
        "val_accuracy": accuracies.get(("val", False, deepest), {}).get("top1"),
        "val_accuracy_tta": accuracies.get(("val", True, deepest), {}).get("top1"),
        "weights_epoch": result["weights"][reported["weights"]]["epoch"] + 1,
        "blocks": config.model.blocks if stage == "bp" else deepest,
        "classes": int(predicted["test.labels"].max()) + 1,
        "val_images": accuracies.get(("val", False, deepest), {}).get("n", 0),
        "test_images": len(predicted["test.labels"]),
        **counted,
        "shared": any(CellFolder(place).shared_path.exists() for place in (cell, run.path)),
        "device": _distinct(lives, "device_name"),
        **made_with,
        "commit_is_dirty": any(life.get("commit_is_dirty") for life in lives),
        "config_sha256": config_sha256(config, stage),
        "data_sha256": facts.get("data", {}).get("sha256"),
        "backbone": _backbone_id(run) if stage == "s2" else None,
        "started": str(facts.get("started", ""))[:10],
    }


def changes(config: Config, stage: str) -> str:
    """What differs from the preset, seed aside: `optim.lr=0.002 optim.sam=0`."""
    base = preset(config.preset) if config.preset in presets else Config()
    found = differences(config, base)
    words = []
    for name, (_, value) in found.items():
        if name in ("seed", "preset") or (stage != "s2" and name.startswith(STAGE_2)):
            continue
        value = _named(value) if name == "data" else value
        words.append(f"{name}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}")
    return " ".join(words)


def config_sha256(config: Config, stage: str) -> str:
    """A hash of all settings of this stage that are not at their default; of neither seed, name nor what is kept."""
    found = {name: value for name, (_, value) in differences(config, Config()).items()}
    left_out = ("seed", "preset", "data", "keep.", *(() if stage == "s2" else (STAGE_2,)))
    kept = {name: value for name, value in found.items() if not name.startswith(left_out)}
    return hashlib.sha256(json.dumps({**kept, "data": _named(config.data)}, sort_keys=True).encode()).hexdigest()


def epoch_rows(run: Run) -> Iterator[Row]:
    """Rows of epochs.csv: the network's of all epochs, the blocks' of some."""
    name, lines = run_id(run), run.metrics
    chosen = epochs_with_blocks(lines)
    for line in lines:
        epoch, train, val = line["epoch"] + 1, line.get("train", {}), line.get("val", {})
        blocks, val_blocks = train.get("blocks", []), val.get("blocks", [])
        losses = [block["loss"] for block in blocks if "loss" in block]
        yield {
            "run": name,
            "epoch": epoch,
            "seconds": line.get("seconds"),
            "train_accuracy": train.get("accuracy"),
            "val_accuracy": val.get("accuracy"),
            "val_top5": val.get("top5"),
            "loss": sum(losses) if losses else train.get("loss"),
            "grad_norm": train.get("grad_norm"),
        }
        if line["epoch"] not in chosen:
            continue
        for depth, block in enumerate(blocks):
            seen = val_blocks[depth] if depth < len(val_blocks) else {}
            others = {name: value for name, value in block.items() if name.startswith("loss_") and name not in TRAINING}
            yield {
                "run": name,
                "epoch": epoch,
                "block": depth,
                **{f"val_{measure}": seen.get(measure) for measure in VALIDATION},
                **{measure: block.get(measure) for measure in TRAINING},
                "more": _words(others),
            }


def epochs_with_blocks(lines: Sequence[Mapping[str, Any]]) -> set[int]:
    """Of which epochs the blocks are kept: at most `MOST_EPOCHS`, evaluated ones first, evenly spread."""
    judged = [line["epoch"] for line in lines if "val" in line]
    others = [line["epoch"] for line in lines if "val" not in line]
    chosen = _spread(judged, MOST_EPOCHS)
    return {*chosen, *_spread(others, MOST_EPOCHS - len(chosen))}


def _spread(epochs: Sequence[int], most: int) -> list[int]:
    """At most so many of them, the first and the last included."""
    if len(epochs) <= most:
        return list(epochs)
    if most < 2:
        return list(epochs[len(epochs) - most :])
    return [epochs[round(k * (len(epochs) - 1) / (most - 1))] for k in range(most)]


def block_rows(run: Run, predicted: Mapping[str, np.ndarray]) -> Iterator[Row]:
    """Rows of blocks.csv; none where a run has no blocks to tell apart."""
    result, name = run.result, run_id(run)
    accuracies = _accuracies(result)
    for split, blocks in result["health"].items():
        full = _full_health(run) if split == "test" else {}
        verdicts = full.get("verdict", [])
        for depth, block in enumerate(blocks):
            if split == full.get("split"):
                block = {**full["blocks"][depth], **block}
            measures = dict(_flat(block))
            measures.pop("accuracy", None)  # of blocks 0..d, taken from the accuracies
            plain, tta = (accuracies.get((split, mirrored, depth + 1), {}) for mirrored in (False, True))
            yield {
                "run": name,
                "block": depth,
                "split": split,
                "images": plain.get("n"),
                "accuracy_alone": _accuracy(predicted, split, "alone", depth),
                "accuracy_first": plain.get("top1"),
                "accuracy_first_tta": tta.get("top1"),
                "accuracy_without": _accuracy(predicted, split, "without", depth),
                "top5_first": plain.get("top5"),
                "top5_first_tta": tta.get("top5"),
                "verdict": verdicts[depth]["verdict"] if depth < len(verdicts) else None,
                **{measure: measures.pop(measure, None) for measure in HEALTH},
                "more": _words(measures),
            }


def _full_health(run: Run) -> dict[str, Any]:
    place = RunFolder(run.path, None).health_path
    return read_json(place) if place.is_file() else {}


def _flat(measures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number, nested ones under joined names; lists are left out."""
    for name, value in measures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}_")
        elif isinstance(value, (int, float)):
            yield prefix + name, value


def _words(measures: Mapping[str, Any]) -> str:
    """What has no column of its own: `loss_mine=0.25 other=3`."""
    return " ".join(f"{name}={value:.5g}" for name, value in measures.items() if isinstance(value, (int, float)))


def _accuracies(result: Mapping[str, Any]) -> dict[tuple[str, bool, int], dict[str, Any]]:
    """The reported weights' accuracies, by split, TTA and how many blocks were used."""
    rows = [row for row in result["accuracy"] if row["weights"] == result["reported"]["weights"]]
    return {(row["split"], bool(row["tta"]), row["blocks"]): row for row in rows}


def _accuracy(predicted: Mapping[str, np.ndarray], split: str, way: str, depth: int) -> float | None:
    found = predicted.get(f"{split}.{way}")
    return None if found is None else float((found[depth] == predicted[f"{split}.labels"]).mean())


def _distinct(lives: Sequence[Mapping[str, Any]], name: str) -> str:
    """One value where all of a run's lives have the same."""
    return " then ".join(dict.fromkeys(str(life[name]) for life in lives if life.get(name) is not None))


def _named(data: str) -> str:
    """A data set without the folder that it lies in on this machine: folder:/home/me/cats is folder:cats."""
    kind, colon, place = data.partition(":")
    return kind + colon + PurePath(place.replace("\\", "/")).name


def _backbone_id(run: Run) -> str:
    try:
        return run_id(run.backbone)
    except UserError:  # it lies elsewhere now
        trained = about_backbone(run.path).get("trained")
        if trained is None:
            raise
        return _id(run.config, trained)
