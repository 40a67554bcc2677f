"""All functions that produce golden values. When code moves, re-point them here; the values must stay.

Rewrite golden.json with `PYTHONPATH=tests python -m golden.compute --write`. README.md says when that is right.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import goodness
from goodness.api import load_data
from goodness.config import Config, to_dict
from goodness.data.augment import augment, recipes, uniforms_needed
from goodness.data.images import fingerprint
from goodness.data.mix import draws_needed, mix
from goodness.draws import Draws, epoch_order, key, uniforms
from goodness.methods.cumulative.evidence import class_scores, goodness_of, readout_scores
from goodness.presets import preset, presets
from goodness.runs.run import Run
from goodness.training.optim import average_decay, learning_rate, learning_window
from tiny_runs import blobs_at_hand, shrunk

FILE = Path(__file__).with_name("golden.json")
DIGITS = 12
"""Significant digits in golden.json; tests compare to 1e-9."""

FOUR_STEPS = {
    "data": "a-handful-of-digits",
    "epochs": 2,
    "batch": 15,
    "keep.evaluate_every": 2,
    "keep.checkpoint_seconds": 1e9,
}
"""Two epochs of two steps each. Progress is 0 in the first epoch and 1/2 in the second, both exact in float32."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "after-update": ("gamma0-dense", {"step.mode": "sequential", "step.handoff": "after_update"}),
    "classes-compared-by-hybrid": (
        "gamma0-dense",
        {"model.label": "late", "objective.choice": 1.0, "objective.choice.rise": 2.0, "rule": "constant"},
    ),
    "decaying-history": ("cp-fair-dense", {"history": "decay"}),
    "label-added": ("gamma0-dense", {"model.label": "add"}),
    "label-free-contrast": ("gamma0-dense", {"objective.supcon.label_free": True}),
    "mining-on-the-positive": ("gamma0-dense", {"negatives.mine_on": "pos", "augment": "ff"}),
    "muon-on-hybrid": ("gamma0-dense", {"optim.kind": "muon"}),
    "one-view": ("cp-fair-dense", {"views": 1}),
    "pyramid-in-groups": ("sprint", {"model.block.norm": "group"}),
}
"""What no preset sets: name to a preset and its changes."""

STEPS = 1000
"""Of the training whose schedule is recorded."""

run_folders: list[Path] = []
"""Where runs go: the folder of the `in_float64` at hand."""


@contextmanager
def in_float64() -> Iterator[None]:
    """Within, new tensors are float64, `Tensor.float()` gives float64, and the made-up data sets are registered.

    Float32 results differ between CPUs in the seventh digit, float64 results in the sixteenth.
    """
    dtype, to_float = torch.get_default_dtype(), torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        with blobs_at_hand(), tempfile.TemporaryDirectory() as folder:
            run_folders.append(Path(folder))
            yield
    finally:
        run_folders.clear()
        torch.set_default_dtype(dtype)
        torch.Tensor.float = to_float  # type: ignore[method-assign]


def train(config: Config) -> Run:
    return goodness.train(config, out=tempfile.mkdtemp(dir=run_folders[-1]) + "/run", device="cpu")


# Training


def distinct_presets() -> list[str]:
    """One preset for each configuration that is left when all are shrunk; some then differ in their name alone.

    Without the rules of L8: those of d128 under plain AdamW.
    """
    with blobs_at_hand():
        found: dict[str, str] = {}
        for name in presets:
            found.setdefault(json.dumps({**to_dict(small(name)), "preset": ""}), name)
        return [name for name in found.values() if not name.startswith(("l8-cumulative", "l8-gated"))]


def small(name: str, changes: Mapping[str, Any] | None = None) -> Config:
    """A preset with three small blocks, four steps and nothing else changed."""
    return shrunk(name, {**FOUR_STEPS, **(changes or {})}, blocks=3)


def training(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Losses and gradient norms, one number an epoch, and the final weights of a preset or one of `VARIANTS`."""
    base, more = VARIANTS.get(name, (name, {}))
    run = train(small(base, {**more, **(changes or {})}))
    ways = {"bp": run.stripped, "s1": run.method if run.is_of_a_method else run.network}
    return {**losses(run), "weights": weights(ways[run.stage]("last").state_dict())}


def losses(run: Run) -> dict[str, Any]:
    lines = [line["train"] for line in run.metrics]
    if "blocks" not in lines[0]:
        return _over_epochs(lines)
    blocks = len(lines[0]["blocks"])
    return {f"block {depth}": _over_epochs([line["blocks"][depth] for line in lines]) for depth in range(blocks)}


def _over_epochs(lines: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """None of an epoch in which the block did not learn."""
    told = dict.fromkeys(name for line in lines for name in line)
    names = [name for name in told if name.startswith("loss") or name == "grad_norm"]
    return {name: [line.get(name) for line in lines] for name in names}


def weights(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Of the stem, each block and the rest: sum, sum of absolute values, and three entries."""
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and name not in ("mean", "std"):
            first, *others = name.split(".")
            parts.setdefault(f"{first} {others[0]}" if first == "blocks" else first, []).append(tensor.flatten())
    return {name: _summary(torch.cat(found)) for name, found in parts.items()}


def _summary(values: Tensor) -> list[float]:
    places = [len(values) // 7, len(values) // 2, len(values) - 1]
    return [float(values.sum()), float(values.abs().sum()), *values[places].tolist()]


# Augmentation and draws, in float32 as in a run


def augmentation(name: str, **changes: Any) -> dict[str, Any]:
    """Views of noise under a recipe, as grey levels: the sum of each image, and one row of the first eight."""
    recipe = replace(recipes[name], **changes)
    found = {}
    for what, channels, side, flips in (("colour", 3, 16, True), ("digits", 1, 8, False)):
        draws = torch.Generator().manual_seed(key("golden", name, what))
        coarse = torch.randint(256, (48, channels, side // 4, side // 4), generator=draws, dtype=torch.uint8)
        noise = torch.randint(32, (48, channels, side, side), generator=draws, dtype=torch.uint8)
        images = (coarse.repeat_interleave(4, 2).repeat_interleave(4, 3) // 8 * 7) + noise
        numbers = uniforms(torch.device("cpu"), (48, uniforms_needed(recipe)), "golden", name, what).double()
        levels = (augment(images, numbers, recipe, flips) * 255).round().long()
        found[what] = {"sums": levels.sum(dim=(1, 2, 3)).tolist(), "rows": levels[:8, -1, side // 2].tolist()}
    return found


def mixing() -> dict[str, Any]:
    """Mixup, CutMix, and both, of the same four images."""
    images = uniforms(torch.device("cpu"), (4, 1, 6, 6), "golden", "mixed images")
    found = {}
    for name, alphas in {"mixup": (0.4, 0.0), "cutmix": (0.0, 1.0), "both": (0.4, 1.0)}.items():
        draws = uniforms(torch.device("cpu"), (draws_needed,), "golden", "mix", name)
        mixed, targets = mix(images.double(), torch.eye(4).double(), draws.double(), mixup=alphas[0], cutmix=alphas[1])
        found[name] = {"pixels": mixed[0, 0, 3].tolist(), "sum": float(mixed.sum()), "targets": targets[0].tolist()}
    return found


def random_draws() -> dict[str, Any]:
    """Keys and uniform numbers of a run with seed 1, the order of an epoch, and the digits' split."""
    draws = Draws(torch.device("cpu"), 1)
    return {
        "key": str(key(1, "weights")),
        "mining": draws((3,), "mine", 2, 5, 1).tolist(),
        "order": epoch_order(12, 1, 3).tolist(),
        "digits": fingerprint(load_data(preset("demo"))),
    }


# Schedules


def schedules() -> dict[str, Any]:
    """Every preset's schedule; presets that share one are listed under the first."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for name in presets:
        values = schedule(preset(name))
        found.setdefault(json.dumps(values), ([], values))[0].append(name)
    return {names[0]: {"presets": names, **values} for names, values in found.values()}


def schedule(config: Config) -> dict[str, Any]:
    """At progress 0, 1/2 and 1: learning rates, the average's decay, draws and coefficients, block by block.

    What is the same for all blocks, or at all times, is written once.
    """
    blocks, optim, wanted = config.model.blocks, config.optim, config.readout
    depths, shares = range(blocks), (0.0, 0.5, 1.0)
    moments = [min(STEPS - 1, round(share * STEPS)) for share in shares]
    found: dict[str, Any] = {"average": [average_decay(step, optim.ema) for step in moments]}
    if wanted.epochs:
        found["readout rate"] = [learning_rate(step, STEPS, wanted.lr, wanted.warmup) for step in moments]
    if config.trainer == "backprop":
        return found | {"rate": [learning_rate(step, STEPS, optim.lr, optim.warmup) for step in moments]}

    def rate(step: int, begin: int, end: int) -> float:
        return learning_rate(step - begin, end - begin, optim.lr, optim.warmup) if begin <= step < end else 0.0

    windows = [learning_window(depth, blocks, STEPS, optim.freeze) for depth in depths]
    found["rate"] = [_once([rate(step, *window) for window in windows]) for step in moments]
    for name, term in config.objective.items():
        found[f"{name} coefficient"] = _once(
            [_once([float(term.coefficient(depth, blocks, share)) for depth in depths]) for share in shares]
        )
    negatives: Any = config.negatives
    if hasattr(negatives, "candidates"):
        found["draws"] = _once(
            [_once([negatives.candidates(_mining(depth, blocks, share)) for depth in depths]) for share in shares]
        )
    return found


def _once(values: list[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else values


def _mining(depth: int, blocks: int, progress: float) -> Any:
    return SimpleNamespace(depth=depth, blocks=blocks, progress=progress)


# Stage 2 and scores


MIXED = {"plain": {}, "mixed": {"readout.mixup": 0.4, "readout.cutmix": 1.0}}


def readout(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One step of Stage 2 on a trained network: loss, gradient norm, the readout's weights and its scores."""
    backbone = train(small("demo"))
    one_step = {"readout.epochs": 1, "readout.batch": 30, **MIXED[name], **(changes or {})}
    run = goodness.readout(backbone.path, device="cpu", changes=one_step)
    images, head = load_data(backbone.config).test.images[:3], run.head()
    scores = {tta: readout_scores(run.network(), head, images, tta=tta) for tta in (False, True)}
    return {
        **losses(run),
        "weights": {part: _summary(value.flatten()) for part, value in head.state_dict().items()},
        "scores": scores[False].tolist(),
        "scores with TTA": scores[True].tolist(),
    }


def scores(name: str) -> dict[str, Any]:
    """Of a preset trained on images that may be mirrored: what it predicts, with and without TTA, block by block."""
    run = train(small(name, {"data": "blobs", "batch": 25, "augment": "weak"}))
    images = load_data(run.config).test.images[:2]
    found: dict[str, Any] = {}
    for end, tta in (("", False), (" with TTA", True)):
        if run.stage == "bp":
            found[f"classes{end}"] = class_scores(run.stripped(), images, tta=tta).tolist()
        else:
            for depth, values in enumerate(goodness_of(run.network(), images, tta=tta)):
                found[f"block {depth}{end}"] = values.tolist()
        found[f"predicted{end}"] = run.predict(images, tta=tta).tolist()
        kept = _kept(run, "test_tta" if tta else "test")
        found[f"kept{end}"] = [*kept[:2].tolist(), float(kept.sum())]
    return found


def _kept(run: Run, label: str) -> Tensor:
    """The scores that a run leaves of its test images."""
    with np.load(run.path / f"predictions_{label}.npz", allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["scores"])


# The file

Maker = Callable[[], Any]


def makers() -> dict[str, dict[str, Maker]]:
    """Every golden value by section and name, as a function that computes it."""
    trained = [*distinct_presets(), *VARIANTS]
    return {
        "augmentation": {name: _wide(augmentation, name) for name in recipes},
        "draws": {"mix": mixing, "seed 1": random_draws},
        "readout": {name: _wide(readout, name) for name in ("mixed", "plain")},
        "schedules": {"presets": schedules},
        "scores": {name: _wide(scores, name) for name in ("bp-weak", "demo", "sprint")},
        "training": {name: _wide(training, name) for name in trained},
    }


def _wide(function: Callable[[str], Any], name: str) -> Maker:
    def computed() -> Any:
        with in_float64():
            return function(name)

    return computed


def as_text(value: Any, indent: int = 0) -> str:
    """JSON in which every list is one line, keys are sorted, and numbers have `DIGITS` digits."""
    if isinstance(value, dict):
        inner = " " * (indent + 1)
        parts = [f"{inner}{json.dumps(name)}: {as_text(value[name], indent + 1)}" for name in sorted(value)]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_text(one) for one in value) + "]"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else json.dumps(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compute the golden values and print which of them changed.")
    parser.add_argument("--write", action="store_true", help="write them to golden.json")
    asked = parser.parse_args()
    before = json.loads(FILE.read_text()) if FILE.is_file() else {}
    found = {section: {name: make() for name, make in made.items()} for section, made in makers().items()}
    for section, values in found.items():
        for name in sorted(values.keys() | before.get(section, {}).keys()):
            old, new = before.get(section, {}).get(name), values.get(name)
            if old is None or new is None:
                print(f"{'new' if old is None else 'gone'}: {section}, {name}")
            elif changes := differences(old, new):
                print(f"changed: {section}, {name}: {len(changes)} values, first {changes[0]}")
    if asked.write:
        FILE.write_text(as_text(found) + "\n")


def differences(recorded: Any, found: Any, tolerance: float = 1e-9, place: str = "") -> list[str]:
    """Where two values differ; numbers may by `tolerance`, absolute and relative."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        parts = [(f"{place} / {name}".lstrip(" /"), recorded.get(name), found.get(name)) for name in recorded | found]
        return [one for name, old, new in parts for one in differences(old, new, tolerance, name)]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = enumerate(zip(recorded, found))
        return [one for i, (old, new) in pairs for one in differences(old, new, tolerance, f"{place}[{i}]")]
    if isinstance(recorded, int | float) and isinstance(found, int | float):
        same = abs(recorded - found) <= tolerance * (1 + abs(recorded))
    else:
        same = recorded == found
    return [] if same else [f"{place}: {recorded} became {found}"]


if __name__ == "__main__":
    main()
