"""The benchmark: every subject built, warmed up, timed and counted in one process, one after the other."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from goodness.api import make_config, prepared, suitable_threads
from goodness.bench.clock import as_floor, ceilings, spread
from goodness.bench.counting import counted
from goodness.bench.prediction import prediction
from goodness.bench.subjects import FUSED, SIDE_BY_SIDE, Subject, build, learned_at_once, made_up, stepping
from goodness.config import Config
from goodness.data import sources
from goodness.errors import UserError
from goodness.training.backprop import Backprop
from goodness.training.run import choose_device, choose_dtype, environment

WARM = 8
"""Steps before the clock starts: compiling, the recording, and the allocator's first round."""


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
    found["threads"] = threads
    with prepared(chosen, False, threads), tempfile.TemporaryDirectory() as place:
        say("ceilings of this machine")
        found["ceilings"] = ceilings(chosen, dtype)
        for number, (name, config) in enumerate(zip(names, configs)):
            subjects = SIDE_BY_SIDE if number == 0 and config.trainer == "ff" else (_as_it_is(config),)
            for subject in subjects:
                say(f"{name}: {subject.about}")
                folder = Path(place) / f"{number}-{subject.name}"
                row = _row(subject, config, folder, chosen, dtype, steps, repeats, found["ceilings"])
                found["rows"].append({"preset": name, **row})
                _forget(is_cuda)
        config = configs[0]
        if config.trainer == "ff":
            shape = sources.find(config.data).shape or (3, 32, 32)
            for count in classes:
                say(f"prediction under {count} labels")
                images = 1024 if is_cuda else 16  # on a GPU enough for the loop to fill it, label by label
                found["prediction"].append(prediction(config, shape, count, chosen, dtype, images))
                _forget(is_cuda)
    return found


def _as_it_is(config: Config) -> Subject:
    if config.trainer == "ff":
        return FUSED
    return Subject("bp", "backpropagation", Backprop, {})


def _row(
    subject: Subject,
    config: Config,
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    steps: int,
    repeats: int,
    most: dict[str, float],
) -> dict[str, Any]:
    is_cuda = device.type == "cuda"
    plain = build(subject, config, folder.with_suffix(".plain"), device, dtype, plain=True)
    work = counted(stepping(plain))
    del plain
    _forget(is_cuda)
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    begin = time.perf_counter()
    stage = build(subject, config, folder, device, dtype)
    step = stepping(stage)
    step()
    if is_cuda:
        torch.cuda.synchronize(device)
    first = time.perf_counter() - begin
    for _ in range(WARM - 1 if is_cuda else 1):
        step()
    times = spread(step, device, steps, repeats)
    stage.settle()
    images = stage.batch
    known = sources.find(config.data)
    floor = as_floor(work, most)
    median = times["median_ms"]
    row: dict[str, Any] = {
        "name": subject.name,
        "about": subject.about,
        **times,
        "images_per_second": 1000 * images / median,
        "batch": images,
        "first_step_s": first,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if is_cuda else None,
        "parameters": stage.parameters(),
        "parameters_per_backward": learned_at_once(stage),
        **work,
        **floor,
        "share_of_roofline": floor["floor_ms"] / median,
    }
    if known.sizes is not None:
        row["epoch_images"] = known.sizes[0] - known.held_out
        row["epoch_s"] = (row["epoch_images"] // images) * median / 1000
    return row


def _forget(is_cuda: bool) -> None:
    gc.collect()
    if is_cuda:
        torch.cuda.empty_cache()
