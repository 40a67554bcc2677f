"""The library's front door: train, resume, evaluate and load runs from Python."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goodness.config import Config, from_dict, override, to_dict
from goodness.data import sources
from goodness.data.augment import augment, recipes, uniforms_needed
from goodness.data.images import ImageData
from goodness.errors import ConfigError, RunError, UserError
from goodness.model.network import Network
from goodness.model.stem import fitting_patch, token_grid
from goodness.parts import REGISTRIES
from goodness.predict import goodness_of, scores_of
from goodness.presets import preset
from goodness.training.durable import read_json, read_lines, write_json
from goodness.training.run import (
    RunFolder,
    choose_device,
    choose_dtype,
    default_run_path,
    environment,
)
from goodness.training.signals import StopRequest
from goodness.training.stage1 import Listener, Stage1, assess, build_network

SMALL = 500_000
"""Numbers in a step's tokens below which one thread is faster (demo: 49,152; half the time of two threads)."""


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    path: Path

    @property
    def config(self) -> Config:
        return load_config(self.path)

    @property
    def result(self) -> dict[str, Any]:
        """What result.json says; an error while the run is not finished."""
        if not (self.path / "result.json").is_file():
            raise UserError(f"{self.path} is not finished; go on with: goodness resume {self.path}")
        result = read_json(self.path / "result.json")
        if not isinstance(result, dict) or not {"reported", "weights", "health", "accuracy"} <= result.keys():
            raise RunError(f"{self.path / 'result.json'} is not what a run writes; remove it and resume the run")
        return result

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished epoch."""
        return read_lines(self.path / "metrics.jsonl")

    @property
    def accuracy(self) -> float:
        """The reported test accuracy, as a fraction."""
        return self.result["reported"]["accuracy"]

    def network(self, weights: str | None = None, device: str = "cpu") -> Network:
        """The trained network, ready to predict; the reported weights unless `best` or `last` is asked for."""
        name: str = weights or self.result["reported"]["weights"]
        folder = RunFolder.open(self.path, for_writing=False)
        tensors, meta = folder.checkpoints.load_weights(name)
        network = Network(self.config.model, tuple(meta["shape"]), len(meta["classes"]))
        try:
            network.load_state_dict(tensors)
        except RuntimeError as trouble:
            raise UserError(
                f"the weights in {self.path} do not fit its config.json, which was changed since: {trouble}"
            ) from trouble
        network.class_names = tuple(meta["classes"])
        return network.to(choose_device(device)).requires_grad_(False).eval()

    def predict(
        self, images: torch.Tensor | np.ndarray, *, tta: bool = False, blocks: int | None = None
    ) -> torch.Tensor:
        """Class scores `[n, classes]` of uint8 images `[n, C, H, W]`; the prediction is their argmax."""
        network, images = self.network(), torch.as_tensor(images)
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != network.shape:
            raise UserError(
                f"expected uint8 images of shape [n, {', '.join(map(str, network.shape))}], got {images.dtype} "
                f"{list(images.shape)}"
            )
        if blocks is not None and not 1 <= blocks <= len(network.blocks):
            raise UserError(f"blocks must lie in 1..{len(network.blocks)}, got {blocks}")
        return scores_of(goodness_of(network, images, tta=tta, blocks=blocks))


def make_config(base: str | Config, changes: Mapping[str, Any] | None = None) -> Config:
    """A preset (or a configuration) with dotted fields changed, checked."""
    config = preset(base) if isinstance(base, str) else base
    config = override(config, changes or {}).check()
    config = override(config, {"data": sources.canonical(config.data)})
    recipes[config.augment]  # an unknown name is an error here, not after the data has been read
    sources.find(config.data)
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
    images = load_data(config, data_dir)
    _refuse_what_cannot_be_built(config, images)
    path = Path(out) if out is not None else default_run_path(config.preset, config.data, config.seed)
    with RunFolder.create(path) as folder:
        write_json(folder.config_path, to_dict(config))
        return _go(folder, config, images, chosen, data_dir, listen)


def resume(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
    listen: Listener | None = None,
) -> Run:
    """Go on with a run from its newest checkpoint; a finished one is returned as it is."""
    with RunFolder.open(path) as folder:
        if folder.is_finished:
            return Run(folder.path)
        config = load_config(folder.path)
        data_dir = data_dir or _remembered_data_dir(folder.path)
        return _go(folder, config, load_data(config, data_dir), choose_device(device), data_dir, listen)


def evaluate(
    path: str | os.PathLike[str],
    *,
    split: str = "test",
    weights: str | None = None,
    blocks: int | None = None,
    tta: bool = False,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Score a finished run's weights on a split again, from the images: accuracy, top-5, block health."""
    run = Run(Path(path))
    config = run.config
    weights = weights or run.result["reported"]["weights"]
    known = list(run.result["weights"])
    if weights not in known:
        raise UserError(f"this run has no '{weights}' weights; it has {' and '.join(known)}")
    if split not in ("train", "val", "test"):
        raise UserError(f"unknown split '{split}'; choose train, val or test")
    if blocks is not None and not 1 <= blocks <= config.model.blocks:
        raise UserError(f"--blocks must lie in 1..{config.model.blocks}, got {blocks}")
    chosen = choose_device(device)
    data = load_data(config, data_dir or _remembered_data_dir(run.path))
    if tta and not data.flips:
        raise UserError(f"{data.name} has no flip TTA: a mirrored image would be of another class")
    rows = data.split(split)
    if not len(rows):
        raise UserError(f"{data.name} has no {split} split here")
    network = run.network(weights, str(chosen))
    if (network.shape, network.classes) != (data.shape, len(data.classes)):
        raise UserError(
            f"the run was trained on images {network.shape} of {network.classes} classes, {data.name} has "
            f"{data.shape} and {len(data.classes)}"
        )
    if network.class_names != data.classes:
        differ = [f"{a} is now {b}" for a, b in zip(network.class_names, data.classes) if a != b]
        raise UserError(f"the classes of {data.name} are not those of the training: {', '.join(differ[:3])}")
    with prepared(chosen, config.deterministic):
        goodness = goodness_of(
            network,
            rows.images,
            tta=tta,
            blocks=blocks,
            memory_mb=config.keep.memory_mb,
            dtype=choose_dtype(chosen)[0],
        ).cpu()
    found = assess(goodness, rows.labels, config, split, progress=1.0)
    where = {"run": str(run.path), "split": split, "weights": weights, "stage": "s1", "tta": tta}
    return {**where, "blocks_used": len(goodness), **found}


def load(path: str | os.PathLike[str]) -> Run:
    """A run by its folder."""
    load_config(path)
    return Run(Path(path))


def load_config(path: str | os.PathLike[str]) -> Config:
    """The configuration of the run in this folder."""
    folder = RunFolder.open(path, for_writing=False)
    try:
        return from_dict(read_json(folder.config_path)).check()
    except ConfigError as trouble:
        own = any(str(trouble).startswith(f"unknown {registry.kind} ") for registry in REGISTRIES.values())
        hint = " (a part of your own? import what registers it first; on the command line: --plugin)" if own else ""
        raise ConfigError(f"{folder.config_path}: {trouble}{hint}") from trouble


def load_data(config: Config, data_dir: str | os.PathLike[str] | None = None) -> ImageData:
    return sources.load(config.data, data_dir=data_dir, split_seed=config.split_seed, val=config.val)


@contextlib.contextmanager
def prepared(device: torch.device, deterministic: bool, threads: int | None = None) -> Iterator[None]:
    """Process-wide settings of a run, put back afterwards: deterministic kernels if asked for, attention kernels that
    can be trusted, and the global random state, which a run seeds anew at every block.

    cuDNN's attention is switched off: its backward has given NaN at 64 tokens. Under `deterministic` only the
    plain one is left, since the others' backward adds up in any order.
    """
    is_cuda = device.type == "cuda"
    switches = torch.backends.cuda
    attention = (switches.cudnn_sdp_enabled(), switches.flash_sdp_enabled(), switches.mem_efficient_sdp_enabled())
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    precision, threads_before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    try:
        torch.set_num_threads(threads or threads_before)
        with torch.random.fork_rng(devices=[device] if is_cuda else []):
            if deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.use_deterministic_algorithms(True)
            if is_cuda:
                _allow_attention(cudnn=False, flash=not deterministic, efficient=not deterministic)
                torch.backends.cudnn.benchmark = not deterministic
                torch.set_float32_matmul_precision("highest" if deterministic else "high")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads_before)
        if is_cuda:
            _allow_attention(*attention)


def _allow_attention(cudnn: bool, flash: bool, efficient: bool) -> None:
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    torch.backends.cuda.enable_flash_sdp(flash)
    torch.backends.cuda.enable_mem_efficient_sdp(efficient)


def _refuse_what_cannot_be_built(config: Config, data: ImageData) -> None:
    """Try the network on two blank images, and import what is optional: mistakes come before a folder is made."""
    pixels, recipe = torch.zeros(2, *data.shape, dtype=torch.uint8), recipes[config.augment]
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            network = build_network(config, data)
            views = augment(pixels, torch.zeros(2, uniforms_needed(recipe)), recipe, data.flips)
            network.block(0)(network.tokens(views), torch.zeros(2, dtype=torch.int64))
    except (ValueError, RuntimeError, OverflowError) as trouble:
        size = "x".join(map(str, data.shape))
        raise ConfigError(f"this network cannot take images of {size} ({data.name}): {trouble}") from trouble
    if config.keep.tensorboard:
        from goodness.report.tensorboard import summary_writer

        summary_writer()


def _suitable_threads(config: Config, data: ImageData) -> int:
    """One where tensors are so small that threads wait for each other more than they work; else what torch has."""
    rows = 4 * min(config.batch, len(data.train)) * config.model.width
    tokens = math.prod(token_grid(*data.shape[1:], config.model.stem.patch or fitting_patch(*data.shape[1:])))
    return 1 if rows * tokens < SMALL else torch.get_num_threads()


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
    threads = _suitable_threads(config, data) if device.type == "cpu" else None
    settings = prepared(device, config.deterministic, threads)
    with settings, StopRequest() as stop, contextlib.ExitStack() as sinks:
        facts = environment(device, dtype, reason)
        facts["data"] = {"provenance": data.provenance, "dir": str(sources.cache_dir(data_dir).resolve())}
        if config.keep.tensorboard:
            from goodness.report.tensorboard import tensorboard_sink

            listen = sinks.enter_context(tensorboard_sink(folder.path, listen))
        stage = Stage1(config, data, folder, device=device, dtype=dtype, stop=stop, listen=listen)
        stage.restore()
        # Only now: a refused resume must not move where the data is sought.
        write_json(folder.environment_path, _with_earlier_lives(folder, config, facts, stage.listen))
        stage.run()
    return Run(folder.path)


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
