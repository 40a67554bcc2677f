"""The benchmark: every subject built, warmed up, counted and timed in one process, the ways of a preset in turn."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from goodness.api import make_config, prepared, suitable_threads
from goodness.bench.clock import as_floor, ceilings, in_turn
from goodness.bench.counting import counted
from goodness.bench.memory import forget, peak_from_here
from goodness.bench.prediction import prediction
from goodness.bench.subjects import FUSED, SIDE_BY_SIDE, Subject, build, learned_at_once, made_up, stepping
from goodness.config import Config
from goodness.data import sources
from goodness.errors import UserError
from goodness.runs.run_folder import choose_device, choose_dtype, environment
from goodness.training.backprop import Backprop

WARM = 8
"""Steps before the clock starts on a GPU: compiling, the recording, and the allocator's first round."""
IMAGES, IMAGES_ON_A_GPU = 16, 4096
"""Images to predict. On a GPU so many that a label of the loop takes longer than its launches: on an H200 a label of
1,024 images took 4.3 ms and one of 2,048 no more than 5.6, and with this package's kernels there is less to do."""


@dataclass(frozen=True)
class Setting:
    """Where and how often is measured."""

    device: torch.device
    dtype: torch.dtype
    place: Path
    steps: int
    repeats: int
    ceilings: dict[str, float]
    say: Callable[[str], None]


def bench(
    presets: Sequence[str] = (),
    *,
    device: str = "auto",
    batch: int | None = None,
    steps: int | None = None,
    repeats: int = 5,
    classes: Sequence[int] = (10, 100, 200),
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Time the first preset in every way to train it, the others as they are, and prediction with the first.

    Returns rows ready for JSON. Images are made up; no file is read or left.
    """
    chosen = choose_device(device)
    dtype, why = choose_dtype(chosen)
    is_cuda = chosen.type == "cuda"
    names = list(presets) or ["gamma0-dense" if is_cuda else "demo"]
    configs = [make_config(name, None if batch is None else {"batch": batch}) for name in names]
    steps = (20 if is_cuda else 3) if steps is None else steps
    if steps < 1 or repeats < 1:
        raise UserError(f"--steps and --repeats must be at least 1, got {steps} and {repeats}")
    found: dict[str, Any] = {"environment": environment(chosen, dtype, why), "rows": [], "prediction": []}
    threads = None if is_cuda else suitable_threads(configs[0], made_up(configs[0], configs[0].batch))
    found |= {"threads": threads, "steps": steps, "repeats": repeats}
    with prepared(chosen, False, threads), tempfile.TemporaryDirectory() as place:
        say("ceilings of this machine")
        found["ceilings"] = ceilings(chosen, dtype)
        for number, (name, config) in enumerate(zip(names, configs)):
            subjects = SIDE_BY_SIDE if number == 0 and config.trainer == "ff" else (_as_it_is(config),)
            folder = Path(place) / str(number)
            setting = Setting(chosen, dtype, folder, steps, repeats, found["ceilings"], say)
            found["rows"] += [{"preset": name, **row} for row in _rows(name, config, subjects, setting)]
        config = configs[0]
        if config.trainer == "ff":
            shape = sources.find(config.data).shape or (3, 32, 32)
            images = IMAGES_ON_A_GPU if is_cuda else IMAGES
            for count in classes:
                say(f"prediction under {count} labels")
                found["prediction"].append(prediction(config, shape, count, chosen, dtype, images))
                forget(chosen)
    return found


def _as_it_is(config: Config) -> Subject:
    if config.trainer == "ff":
        return FUSED
    return Subject("bp", "backpropagation", Backprop, {})


def _rows(preset: str, config: Config, subjects: Sequence[Subject], setting: Setting) -> list[dict[str, Any]]:
    """Memory and work of every subject by itself, then the time of all of them in turn."""
    alone = {}
    for subject in subjects:
        setting.say(f"{preset}: {subject.about}")
        alone[subject.name] = _alone(subject, config, setting)
        forget(setting.device)
    is_in_turn = _fit_together([row["peak_bytes"] for row in alone.values()], setting.device)
    setting.say(f"{preset}: {setting.repeats} times {setting.steps} steps, {'in turn' if is_in_turn else 'way by way'}")
    times = {}
    for group in [subjects] if is_in_turn else [[subject] for subject in subjects]:
        times |= _timed(group, config, setting)
        forget(setting.device)
    rows = []
    for subject in subjects:
        row = {"name": subject.name, "about": subject.about, "timed_in_turn": is_in_turn}
        row |= times[subject.name] | alone[subject.name]
        rows.append(row | _paces(row, config, setting.ceilings))
    return rows


def _alone(subject: Subject, config: Config, setting: Setting) -> dict[str, Any]:
    """What a subject does and holds, and how long its first step takes: all that needs no other subject beside it.

    A peak is measured here and not while the clock runs: there the others' weights and recordings lie beside it.
    """
    plain = build(subject, config, setting.place / f"{subject.name}-plain", setting.device, setting.dtype, plain=True)
    work = counted(stepping(plain))
    del plain
    peak = peak_from_here(setting.device)
    begin = time.perf_counter()
    stage = build(subject, config, setting.place / f"{subject.name}-alone", setting.device, setting.dtype)
    step = stepping(stage)
    step()
    _wait(setting.device)
    first = time.perf_counter() - begin
    _warm(step, setting.device)
    return {
        "batch": stage.batch,
        "first_step_s": first,
        "peak_bytes": peak(),
        "parameters": stage.parameters(),
        "parameters_per_backward": learned_at_once(stage),
        **work,
    }


def _timed(subjects: Sequence[Subject], config: Config, setting: Setting) -> dict[str, dict[str, float]]:
    """Times of every subject's step, all of them built and warm before the first is measured."""
    stages, steps = [], {}
    for subject in subjects:
        stage = build(subject, config, setting.place / subject.name, setting.device, setting.dtype)
        steps[subject.name] = stepping(stage)
        steps[subject.name]()
        _warm(steps[subject.name], setting.device)
        stages.append(stage)
        if setting.device.type == "cuda":  # what its first steps held; its recording has memory of its own
            forget(setting.device)
    for step in steps.values():  # takes back what was given away above, before the clock starts
        step()
    times = in_turn(steps, setting.device, setting.steps, setting.repeats)
    for stage in stages:
        stage.settle()
    return times


def _paces(row: dict[str, Any], config: Config, most: dict[str, float]) -> dict[str, Any]:
    """What follows from a row's work and time."""
    median, floor, known = row["median_ms"], as_floor(row, most), sources.find(config.data)
    found = {
        "images_per_second": 1000 * row["batch"] / median,
        **floor,
        "share_of_roofline": floor["floor_ms"] / median,
    }
    if known.sizes is not None:
        found["epoch_images"] = known.sizes[0] - known.held_out
        found["epoch_s"] = (found["epoch_images"] // row["batch"]) * median / 1000
    return found


def _fit_together(peaks: Sequence[int | None], device: torch.device) -> bool:
    """Whether all subjects can be alive at once. On a GPU each keeps about its peak, in its recording, and the last one
    to come needs twice that for a while: for its first steps and for the recording of one.
    """
    if device.type != "cuda" or len(peaks) == 1:
        return True
    sizes = [peak or 0 for peak in peaks]
    return sum(sizes) + max(sizes) < torch.cuda.mem_get_info(device)[0]


def _warm(step: Callable[[], object], device: torch.device) -> None:
    """What is left of the warm-up behind the first step."""
    for _ in range(WARM - 1 if device.type == "cuda" else 1):
        step()
    _wait(device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
