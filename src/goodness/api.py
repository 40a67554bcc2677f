"""The library's front door: train, resume, evaluate and load runs from Python."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from goodness.config import STAGE_2, Config, differences, override, to_dict
from goodness.data import sources
from goodness.data.augment import recipes
from goodness.data.images import ImageData, Split
from goodness.data.text import TextData
from goodness.durable import read_json, write_json
from goodness.errors import ConfigError, RunError, UserError
from goodness.methods.base import combined
from goodness.methods.build import evidence_of, largest_signal
from goodness.methods.cumulative.evidence import class_scores, goodness_of, readout_scores
from goodness.nn.network import build_stem, shapes_by_depth
from goodness.own_parts import own_sources
from goodness.preflight import (
    refuse_a_readout_too_large,
    refuse_other_classes,
    refuse_other_data,
    refuse_other_images,
    refuse_pictures_recipe,
    refuse_texts_as_images,
    refuse_what_cannot_be_built,
    require_optional_packages,
)
from goodness.presets import preset
from goodness.runs.run import READOUT, Run, frozen_backbone, is_readout, load_config, place_of_run
from goodness.runs.run_folder import RunFolder, choose_device, choose_dtype, default_run_path, environment
from goodness.tensor_file import weights_sha256
from goodness.training.backprop import Backprop
from goodness.training.compiler_import import compiler_loading
from goodness.training.local import LocalLearning, facts_of, health_by_evidence
from goodness.training.loop import Listener, Loop, accuracy_row
from goodness.training.signals import StopRequest
from goodness.training.stage1 import Stage1, assess
from goodness.training.stage2 import Stage2
from goodness.unused_settings import idle_settings
from goodness.versions import recorded

SMALL = 500_000
"""Numbers in a step's tokens below which one thread is faster (demo: 49,152; half the time of two threads)."""

NO_GRID = "takes an image's pixels as one row of numbers and does not know which are neighbours; conv does"
"""Of a vector stem on images: a fair thing to ask for, and seldom what is meant."""


def as_options(fields: Mapping[str, str]) -> str:
    """Fields as options of `goodness train`."""
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in fields.items())


def make_config(
    base: str | Config,
    changes: Mapping[str, Any] | None = None,
    *,
    as_typed: Callable[[Mapping[str, str]], str] = as_options,
) -> Config:
    """A preset (or a configuration) with dotted fields changed, checked. `as_typed` is how an error's advice writes
    fields."""
    config = _changed(preset(base) if isinstance(base, str) else base, changes)
    if isinstance(sources.find(config.data), TextData):
        refuse_texts_as_images(config, as_typed)
    return config


def _changed(config: Config, changes: Mapping[str, Any] | None) -> Config:
    config = override(config, changes or {}).check()
    config = override(config, {"data": sources.canonical(config.data)})
    for recipe in (config.augment, config.readout.augment or config.augment):
        recipes[recipe]  # an unknown name is an error here, not after the data has been read
    return config


def train(
    base: str | Config,
    *,
    data: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    deterministic: bool | None = None,
    listen: Listener | None = None,
    changes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Train a preset to the end and return the run.

        run = goodness.train("demo", data="digits", seed=1)
        run = goodness.train("demo", rule="lcff", changes={"objective.curr.rho": 3})

    Any configuration field can be changed, top-level ones by keyword, deeper ones by dotted name in `changes`.
    """
    named = {"data": data, "seed": seed, "epochs": epochs, "deterministic": deterministic}
    given = {**{name: value for name, value in named.items() if value is not None}, **more}
    # Order counts, and a key keeps its first place: parts by name come before the dotted settings of the part chosen.
    config = make_config(base, {**given, **(changes or {}), **given})
    chosen = choose_device(device)
    with compiler_loading(config, chosen):
        images = load_data(config, data_dir)
    with _one_thread():
        refuse_what_cannot_be_built(config, images)
    path = Path(out) if out is not None else default_run_path(config.preset, config.data, config.seed)
    stage = Backprop.stage if config.trainer == "backprop" else Stage1.stage
    with RunFolder.create(path) as folder:
        folder.backbone_path.unlink(missing_ok=True)  # of a readout that died before it was one
        write_json(folder.config_path, {"stage": stage, **to_dict(config)})
        if listen is not None:
            for idle in idle_settings(config, len(images.classes)):
                listen({"event": "note", "text": str(idle)})
            if config.model.stem.kind == "vector" and min(images.shape[1:]) > 1:
                listen({"event": "note", "text": f"model.stem.kind (vector) {NO_GRID}"})
        return _go(folder, config, images, chosen, data_dir, listen)


def resume(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
    listen: Listener | None = None,
) -> Run:
    """Go on with a run from its newest checkpoint; a finished one is returned as it is.

    Where Stage 1 is finished and its readout is not, the readout goes on.
    """
    path = place_of_run(path)
    begun = Run(path).readout
    if begun is not None and not begun.is_finished and Run(path).is_finished:
        path = begun.path
    with RunFolder.open(path) as folder:
        if folder.is_finished:
            return Run(folder.path)
        config = load_config(folder.path)
        data_dir, chosen = data_dir or _remembered_data_dir(folder.path), choose_device(device)
        with compiler_loading(config, chosen):
            images = load_data(config, data_dir)
        return _go(folder, config, images, chosen, data_dir, listen)


def readout(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    listen: Listener | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Run:
    """Train Stage 2, an attentive readout on a finished run's frozen network, and return it.

        stage2 = goodness.readout("runs/gamma0-dense-cifar10-s42-1", changes={"readout.epochs": 5})

    It lies in the run's own folder, under `readout`, unless `out` says other. The run itself is left as it is.
    """
    run = Run(place_of_run(path))
    config = _changed(load_config(run.path), changes)
    foreign = [name for name in differences(config, run.config) if not name.startswith((STAGE_2, "keep."))]
    if foreign:
        raise UserError(f"a readout takes its run as it is; only readout.* and keep.* can be set, not {foreign[0]}")
    if "readout.augment" in (changes or {}) and isinstance(sources.find(config.data), TextData):
        refuse_pictures_recipe(config)  # all else is the run's own, and it was trained with it
    if run.is_of_a_method:
        raise UserError(f"{run.path} was trained by {run.config.method.kind}; Stage 2 is for method cumulative")
    if run.stage != "s1":
        what = (
            "a readout itself" if run.stage == "s2" else "trained by backpropagation: there are no hypotheses to read"
        )
        raise UserError(f"{run.path} is {what}; Stage 2 needs a run of Stage 1")
    if not run.is_finished:
        raise UserError(
            f"Stage 2 reads a finished Stage 1, and {run.path} is not: go on with goodness resume {run.path}"
        )
    if config.readout.epochs < 1:
        if run.config.readout.epochs >= 1 or "readout.epochs" in (changes or {}):
            raise ConfigError("readout.epochs must be at least 1 to train a readout, got 0")
        raise ConfigError("readout.epochs is 0 in this run's own settings; give a number: --readout.epochs 20")
    has_wanted = config.readout.weights in run.result["weights"]
    weights = config.readout.weights if has_wanted else "last"
    chosen = choose_device(device)
    network = run.network(weights, str(chosen))
    refuse_a_readout_too_large(config, network, chosen)
    require_optional_packages(config)
    with compiler_loading(config, chosen):
        images = load_data(config, data_dir or _remembered_data_dir(run.path))
    refuse_other_data(network, images, run)
    place = Path(out) if out is not None else run.path / READOUT
    with RunFolder.create(place) as folder:
        inside = out is None
        about = {"run": ".." if inside else str(run.path.resolve()), "weights": weights}
        about |= {"weights_sha256": weights_sha256(network.state_dict()), "trained": run.result["weights_sha256"]}
        write_json(folder.backbone_path, about)
        write_json(folder.config_path, {"stage": Stage2.stage, **to_dict(config)})
        if listen is not None and not has_wanted:
            why = "the run had no validation split to choose them on, so the last are frozen"
            listen({"event": "note", "text": f"readout.weights ({config.readout.weights}) has no effect: {why}"})
        return _go(folder, config, images, chosen, data_dir or _remembered_data_dir(run.path), listen)


def evaluate(
    path: str | os.PathLike[str],
    *,
    split: str = "test",
    stage: str | None = None,
    weights: str | None = None,
    blocks: int | None = None,
    tta: bool = False,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Score a finished run's weights on a split again, from the images: accuracy, top-5, block health.

    `stage` "s2" scores the run's readout instead; a readout's own folder does so by itself.
    """
    run = Run(place_of_run(path))
    if stage == "s2" and run.stage == "s1":
        if run.readout is None:
            raise UserError(f"{run.path} has no Stage 2; train one with: goodness readout {run.path}")
        run = run.readout
    elif stage is not None and stage != run.stage:
        raise UserError(f"{run.path} is of stage {run.stage}, not {stage}")
    config = run.config
    weights = weights or run.result["reported"]["weights"]
    known = list(run.result["weights"])
    if weights not in known:
        raise UserError(f"this run has no '{weights}' weights; it has {' and '.join(known)}")
    if split not in ("train", "val", "test"):
        raise UserError(f"unknown split '{split}'; choose train, val or test")
    if blocks is not None and run.stage != "s1":
        raise UserError("--blocks is for Stage 1: a readout and a backpropagation control use all blocks")
    most = blocks_of(run)
    if blocks is not None and not 1 <= blocks <= most:
        raise UserError(f"--blocks must lie in 1..{most}, got {blocks}")
    chosen = choose_device(device)
    data = load_data(config, data_dir or _remembered_data_dir(run.path))
    if tta and not data.flips:
        raise UserError(f"{data.name} has no flip TTA: a mirrored image would be of another class")
    rows = data.split(split)
    if not len(rows):
        raise UserError(f"{data.name} has no {split} split here")
    where = {"run": str(run.path), "split": split, "weights": weights, "stage": run.stage, "tta": tta}
    dtype, memory = choose_dtype(chosen)[0], config.keep.memory_mb
    with prepared(chosen, config.deterministic):
        if run.stage == "bp":
            stripped = run.stripped(weights, str(chosen))
            refuse_other_data(stripped, data, run)
            scores = class_scores(stripped, rows.images, tta=tta, dtype=dtype)
            return {**where, **_accuracies(scores, rows.labels, config)}
        if run.is_of_a_method:
            method = run.method(weights, str(chosen))
            refuse_other_images(run, data)
            evidence = evidence_of(method, rows.images, tta=tta, dtype=dtype)
            some = evidence if blocks is None else evidence[:blocks]
            given = method.weights.cpu() if blocks is None else method.prefixes[blocks - 1, :blocks].cpu()
            row = accuracy_row(combined(some, given), rows.labels.cpu(), len(some))
            return {**where, **_named(row)}
        network = run.network(weights, str(chosen))
        refuse_other_data(network, data, run)
        if run.stage == "s2":
            head = run.head(weights, str(chosen))
            refuse_other_classes(head, network, run)
            scores = readout_scores(network, head, rows.images, tta=tta, memory_mb=memory, dtype=dtype)
            return {**where, **_accuracies(scores, rows.labels, config)}
        goodness = goodness_of(network, rows.images, tta=tta, blocks=blocks, memory_mb=memory, dtype=dtype).cpu()
    found = assess(goodness, rows.labels, config, split, progress=1.0)
    return {**where, "blocks_used": len(goodness), **found}


def _accuracies(scores: torch.Tensor, labels: torch.Tensor, config: Config) -> dict[str, Any]:
    return _named(accuracy_row(scores.cpu(), labels.cpu(), config.model.blocks))


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {"blocks_used": row["blocks"], "accuracy": row["top1"], "n": row["n"]}
    return found | ({"top5": row["top5"]} if "top5" in row else {})


def health_of_method(
    run: Run, data: ImageData | Split | None = None, *, split: str = "test", tta: bool = False, device: str = "cpu"
) -> dict[str, Any]:
    """Block health of a run of a method other than the paper's; see `health`."""
    chosen = choose_device(device)
    method = run.method(device=str(chosen))
    if data is None:
        data = load_data(run.config, _remembered_data_dir(run.path))
        refuse_other_images(run, data)
    names = data.classes if isinstance(data, ImageData) else run.class_names
    rows = data.split(split) if isinstance(data, ImageData) else data
    if not len(rows):
        raise UserError(f"the {split} split is empty")
    with prepared(chosen, run.config.deterministic):
        evidence = evidence_of(method, rows.images, tta=tta, dtype=choose_dtype(chosen)[0])
    return health_by_evidence(evidence, rows.labels.cpu(), method.prefixes.cpu(), run.config, split, names, tta)


def blocks_of(run: Run) -> int:
    """How many blocks a run's network has."""
    return len(run.method().blocks) if run.is_of_a_method else run.config.model.blocks


def load(path: str | os.PathLike[str]) -> Run:
    """A run by its folder, or by that of a sweep's cell around it."""
    place = place_of_run(path)
    load_config(place)
    return Run(place)


def load_data(config: Config, data_dir: str | os.PathLike[str] | None = None) -> ImageData:
    return sources.load(config.data, data_dir=data_dir, split_seed=config.split_seed, val=config.val)


@contextlib.contextmanager
def prepared(device: torch.device, deterministic: bool, threads: int | None = None) -> Iterator[None]:
    """Process-wide settings of a run, put back afterwards: deterministic kernels if asked for, attention kernels that
    can be trusted, and the global random state, which a run seeds anew at every block.

    cuDNN's attention is switched off: its backward has given NaN at 64 tokens under a mask, which none of ours has.
    Under `deterministic` only the plain one is left, since the others' backward adds up in any order.

    Numbers below 1e-38 count as zero where one thread computes: a loss that has vanished leaves such moments, on which
    a CPU is five times slower. With more threads the switch reaches the calling one alone, and bits would depend on
    when the others began.
    """
    is_cuda = device.type == "cuda"
    switches = torch.backends.cuda
    attention = (switches.cudnn_sdp_enabled(), switches.flash_sdp_enabled(), switches.mem_efficient_sdp_enabled())
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    precision, threads_before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    flushed = float(torch.tensor([1e-38]) * 0.25) == 0  # torch has no other way to ask
    try:
        torch.set_num_threads(threads or threads_before)
        torch.set_flush_denormal(flushed or (device.type == "cpu" and torch.get_num_threads() == 1))
        here = torch.cuda.device(device) if is_cuda else contextlib.nullcontext()  # streams and kernels follow it
        with here, torch.random.fork_rng(devices=[device] if is_cuda else []):
            if deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.use_deterministic_algorithms(True)
            switches.enable_cudnn_sdp(False)
            if is_cuda:
                switches.enable_flash_sdp(not deterministic)
                switches.enable_mem_efficient_sdp(not deterministic)
                torch.backends.cudnn.benchmark = not deterministic
                torch.set_float32_matmul_precision("highest" if deterministic else "high")
            yield
    finally:
        if torch.are_deterministic_algorithms_enabled() != before[0]:  # setting it imports torch's compiler: a second
            torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads_before)
        torch.set_flush_denormal(flushed)
        switches.enable_cudnn_sdp(attention[0])
        if is_cuda:
            switches.enable_flash_sdp(attention[1])
            switches.enable_mem_efficient_sdp(attention[2])


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """For two images: more threads would wait for each other, for seconds on a machine that has other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def suitable_threads(config: Config, data: ImageData) -> int:
    """One where tensors are so small that threads wait for each other more than they work; else what torch has."""
    if not config.is_cumulative:
        largest = largest_signal(config, facts_of(data))
        return 1 if min(config.batch, len(data.train)) * largest < SMALL else torch.get_num_threads()
    with torch.device("meta"):
        _, width, grid = build_stem(config.model, data.shape)
    largest = max(width * math.prod(grid) for width, grid in shapes_by_depth(config.model, width, grid))
    return 1 if 4 * min(config.batch, len(data.train)) * largest < SMALL else torch.get_num_threads()


def _go(
    folder: RunFolder,
    config: Config,
    data: ImageData,
    device: torch.device,
    data_dir: str | os.PathLike[str] | None,
    listen: Listener | None,
) -> Run:
    dtype, reason = choose_dtype(device)
    if config.deterministic and device.type == "cuda":
        reason += "; deterministic kernels"
    is_small = device.type == "cpu" and not is_readout(folder.path)  # a readout has all hypotheses at once
    threads = suitable_threads(config, data) if is_small else None
    settings = prepared(device, config.deterministic, threads)
    with settings, StopRequest() as stop, contextlib.ExitStack() as sinks:
        facts = environment(device, dtype, reason)
        if (own := own_sources(config)) is not None:
            facts["parts"] = own
        facts["data"] = {"provenance": data.provenance, "dir": str(sources.cache_dir(data_dir).resolve())}
        if config.keep.tensorboard:
            from goodness.report.tensorboard import tensorboard_sink

            listen = sinks.enter_context(tensorboard_sink(folder.path, listen))
        stage = _stage(folder, config, data, device=device, dtype=dtype, stop=stop, listen=listen)
        facts |= _recorded(config, stage.stage)
        facts["data"]["sha256"] = stage.fingerprint
        stage.restore()
        # Only now: a refused resume must not move where the data is sought.
        write_json(folder.environment_path, _with_earlier_lives(folder, config, facts, stage.listen))
        stage.run()
    return Run(folder.path)


def _recorded(config: Config, stage: str) -> dict[str, Any]:
    return recorded(stage) if config.is_cumulative else recorded(stage, config.method.kind, config.method.version)


def _stage(folder: RunFolder, config: Config, data: ImageData, **how: Any) -> Loop:
    """What a run's folder and configuration ask for."""
    if is_readout(folder.path):
        network = frozen_backbone(Run(folder.path), how["device"])
        refuse_other_data(network, data)
        return Stage2(config, data, folder, network=network, **how)
    kind = Backprop if config.trainer == "backprop" else Stage1 if config.is_cumulative else LocalLearning
    return kind(config, data, folder, **how)


def _with_earlier_lives(folder: RunFolder, config: Config, facts: dict[str, Any], listen: Listener) -> dict[str, Any]:
    """The first start's facts with those of every resumption behind them; a change that costs the same bits is told."""
    if not folder.environment_path.is_file():
        return facts
    first = read_json(folder.environment_path)
    if not isinstance(first, dict):
        return facts
    changed = [name for name in ("torch", "device_name", "threads", "dtype") if first.get(name) != facts[name]]
    if changed and config.deterministic:
        words = ", ".join(f"{name} was {first.get(name)}, is {facts[name]}" for name in changed)
        listen({"event": "note", "text": f"not the same machine as at the start, so not the same bits: {words}"})
    return {**first, "data": facts["data"], "resumed": [*first.get("resumed", []), facts]}


def _remembered_data_dir(path: str | os.PathLike[str]) -> str | None:
    with contextlib.suppress(RunError, KeyError, TypeError):  # a run killed at birth has no such file yet
        place = read_json(Path(path) / "environment.json")["data"]["dir"]
        return place if isinstance(place, str) else None
    return None
