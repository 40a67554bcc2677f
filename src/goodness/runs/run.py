"""A run on disk, from its folder: what it was, what it found, and its network."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goodness.config import Config, from_dict
from goodness.durable import is_number, read_json, read_lines
from goodness.errors import ConfigError, RunError, UnknownName, UserError
from goodness.methods.base import Method, combined
from goodness.methods.build import build_method, evidence_of
from goodness.methods.cumulative.evidence import class_scores, goodness_of, readout_scores, scores_of
from goodness.nn.attentive_readout import AttentiveReadout
from goodness.nn.network import Network
from goodness.nn.stripped import StrippedNetwork
from goodness.parts import ImageFacts
from goodness.runs.run_folder import RunFolder, choose_device
from goodness.tensor_file import weights_sha256
from goodness.versions import Made, method_of

_HASH = re.compile(r"\b[0-9a-f]{64}\b")
READOUT = "readout"
"""Where a run's Stage 2 lies, in its folder."""


@dataclass(frozen=True)
class Run:
    """A run on disk: Stage 1, a backpropagation control, or a readout (Stage 2) on one of the former."""

    path: Path

    @property
    def config(self) -> Config:
        return load_config(self.path)

    @property
    def stage(self) -> str:
        """s1, s2 for a readout, bp for a backpropagation control."""
        if is_readout(self.path):
            return "s2"
        return "bp" if self.config.trainer == "backprop" else "s1"

    @property
    def is_finished(self) -> bool:
        return (self.path / "result.json").is_file()

    @property
    def result(self) -> dict[str, Any]:
        """What result.json says; an error while the run is not finished."""
        if not self.is_finished:
            raise UserError(f"{self.path} is not finished; go on with: goodness resume {self.path}")
        path = self.path / "result.json"
        try:
            result = read_json(path)
        except RunError as trouble:
            raise _not_a_result(path) from trouble
        if not isinstance(result, dict) or not {"reported", "weights", "health", "accuracy"} <= result.keys():
            raise _not_a_result(path)
        reported, kinds = result["reported"], {"reported": dict, "weights": dict, "health": dict, "accuracy": list}
        if not all(isinstance(result[name], kind) for name, kind in kinds.items()):
            raise _not_a_result(path)
        if "accuracy" not in reported or reported.get("weights") not in list(result["weights"]):
            raise _not_a_result(path)
        if not all(is_number(reported[name]) for name in ("accuracy", "accuracy_tta") if name in reported):
            raise _not_a_result(path)
        return result

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished epoch."""
        return read_lines(self.path / "metrics.jsonl")

    @property
    def accuracy(self) -> float:
        """The reported test accuracy, as a fraction."""
        return self.result["reported"]["accuracy"]

    @property
    def readout(self) -> Run | None:
        """Its Stage 2, where one was trained in the usual place."""
        folder = RunFolder(self.path / READOUT, None)
        is_run = folder.config_path.is_file()  # a readout killed at birth has none, and begins anew
        return Run(folder.path) if is_run and is_readout(folder.path) else None

    @property
    def backbone(self) -> Run:
        """The run whose weights a readout reads."""
        place = self.path / about_backbone(self.path)["run"]
        # The folder above a link: where the link leads to first, and else where it lies.
        sought = list(dict.fromkeys([place.resolve(), Path(os.path.abspath(place))]))
        for path in sought:
            if (path / "config.json").is_file():
                return Run(path)
        here = shlex.quote(str(self.path))
        raise UserError(
            f"the readout {self.path} reads the run {' or '.join(map(str, sought))}, which is not there. If the run "
            f'was moved, write its new place under "run" in {RunFolder(self.path, None).backbone_path}; if it is gone, '
            f"the readout is of no use any more: rm -r {here}"
        )

    def method(self, weights: str | None = None, device: str = "cpu") -> Method:
        """What a method other than the paper's trained: a module from images in [0, 1] to class scores."""
        if self.stage != "s1" or self.config.is_cumulative:
            raise UserError(f"{self.path} is no run of a method of its own; use `network()`")
        tensors, meta = self._weights(weights)
        shape, config = tuple(meta["shape"]), self.config
        facts = ImageFacts(shape, len(meta["classes"]), tuple(meta["mean"]), tuple(meta["std"]))
        return self._fill(build_method(config, facts, config.seed), tensors, meta, device)  # type: ignore[return-value]

    def network(self, weights: str | None = None, device: str = "cpu") -> Network:
        """The trained network, ready to predict; the reported weights unless `best` or `last` is asked for.

        A readout gives the network that it reads.
        """
        if self.stage == "s2":
            return frozen_backbone(self, choose_device(device))
        if self.stage == "bp":
            raise UserError(
                f"{self.path} was trained by backpropagation: it has no blocks to judge (in Python, `stripped()` is "
                "its network)"
            )
        if not self.config.is_cumulative:
            raise UserError(
                f"{self.path} was trained by {self.config.method.kind}; in Python, `method()` is its network"
            )
        tensors, meta = self._weights(weights)
        network = Network(self.config.model, tuple(meta["shape"]), len(meta["classes"]))
        return self._fill(network, tensors, meta, device)  # type: ignore[return-value]

    def stripped(self, weights: str | None = None, device: str = "cpu") -> StrippedNetwork:
        """The network of a backpropagation control."""
        if self.stage != "bp":
            raise UserError(f"{self.path} was not trained by backpropagation; use `network()`")
        tensors, meta = self._weights(weights)
        network = StrippedNetwork(self.config.model, tuple(meta["shape"]), len(meta["classes"]))
        return self._fill(network, tensors, meta, device)  # type: ignore[return-value]

    def head(self, weights: str | None = None, device: str = "cpu") -> AttentiveReadout:
        """The trained readout of a Stage 2."""
        if self.stage != "s2":
            raise UserError(f"{self.path} is no readout; train one with: goodness readout {self.path}")
        tensors, meta = self._weights(weights)
        wanted = self.config.readout
        head = AttentiveReadout(meta["features"], wanted.width, wanted.heads)
        return self._fill(head, tensors, meta, device)  # type: ignore[return-value]

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(self._weights(None)[1]["classes"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return tuple(self._weights(None)[1]["shape"])

    @property
    def is_of_a_method(self) -> bool:
        """Whether a method other than the paper's trained it."""
        return not self.config.is_cumulative

    def _predict_by_method(self, images: Tensor, *, tta: bool, blocks: int | None) -> Tensor:
        method = self._method_on_cpu
        _require_images(images, method.shape)  # type: ignore[arg-type]
        if blocks is not None and not 1 <= blocks <= len(method.blocks):
            raise UserError(f"blocks must lie in 1..{len(method.blocks)}, got {blocks}")
        weights, evidence = method.weights.cpu(), evidence_of(method, images, tta=tta)
        return combined(evidence, weights if blocks is None else method.prefixes[blocks - 1].cpu())

    def _weights(self, weights: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        name: str = weights or self.result["reported"]["weights"]
        tensors, meta = RunFolder.open(self.path, for_writing=False).checkpoints.load_weights(name)
        if meta.get("stage", self.stage) != self.stage:  # older runs do not say
            raise RunError(
                f"the '{name}' weights in {self.path} are of stage {meta['stage']} and its config.json is of stage "
                f"{self.stage}: files of two runs are mixed there; restore them from a copy"
            )
        return tensors, meta

    def _fill(self, module: nn.Module, tensors: dict[str, Tensor], meta: dict[str, Any], device: str) -> nn.Module:
        try:
            module.load_state_dict(tensors)
        except RuntimeError as trouble:
            raise UserError(
                f"the weights in {self.path} do not fit its config.json, which was changed since: {trouble}"
            ) from trouble
        module.class_names, module.shape = tuple(meta["classes"]), tuple(meta["shape"])  # type: ignore[assignment]
        return module.to(choose_device(device)).requires_grad_(False).eval()

    @functools.cached_property
    def _method_on_cpu(self) -> Method:
        return self.method()

    @functools.cached_property
    def _predictor(self) -> tuple[Network | StrippedNetwork, AttentiveReadout | None]:
        """The network on the CPU, and the head of a readout; nobody else gets to change these."""
        if self.stage == "bp":
            return self.stripped(), None
        return self.network(), self.head() if self.stage == "s2" else None

    def predict(self, images: Tensor | np.ndarray, *, tta: bool = False, blocks: int | None = None) -> Tensor:
        """Class scores `[n, classes]` of uint8 images `[n, C, H, W]`; the prediction is their argmax.

        The first call reads the weights, later ones use them again.
        """
        images = torch.as_tensor(images)
        if self.is_of_a_method:
            return self._predict_by_method(images, tta=tta, blocks=blocks)
        network, head = self._predictor
        _require_images(images, network.shape)
        if blocks is not None and (head is not None or isinstance(network, StrippedNetwork)):
            raise UserError("only a Stage 1 can be cut short: a readout and a backpropagation control use all blocks")
        if blocks is not None and not 1 <= blocks <= len(network.blocks):
            raise UserError(f"blocks must lie in 1..{len(network.blocks)}, got {blocks}")
        if isinstance(network, StrippedNetwork):
            return class_scores(network, images, tta=tta)
        if head is not None:
            return readout_scores(network, head, images, tta=tta)
        return scores_of(goodness_of(network, images, tta=tta, blocks=blocks))


def _require_images(images: Tensor, shape: tuple[int, ...]) -> None:
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != shape:
        raise UserError(
            f"expected uint8 images of shape [n, {', '.join(map(str, shape))}], got {images.dtype} {list(images.shape)}"
        )


def environment_of(run: Run) -> dict[str, Any]:
    """What the run's environment.json says; nothing where it has none that can be read."""
    with contextlib.suppress(RunError, TypeError):  # of lives that are no list
        facts = read_json(run.path / "environment.json")
        lives = [facts, *facts.get("resumed", [])] if isinstance(facts, dict) else [None]
        is_whole = all(isinstance(life, dict) and isinstance(life.get("data", {}), dict) for life in lives)
        return facts if is_whole else {}
    return {}


def lives_of(run: Run) -> list[dict[str, Any]]:
    """How it was made: what its environment.json says of its beginning, and of each time that it was gone on with."""
    facts = environment_of(run)
    return [facts, *facts.get("resumed", [])] if facts else []


def made_by(run: Run) -> Made:
    """Its method, and the versions of that and of block health."""
    return method_of(environment_of(run), run.stage)


def health_versions(runs: Iterable[Run]) -> list[str]:
    """Of block health, where these runs have several: its columns then differ in meaning."""
    found = sorted({str(made_by(run).health_version) for run in runs if run.stage == "s1"})
    return found if len(found) > 1 else []


def software_of(run: Run) -> dict[str, str]:
    """What decides a run's numbers beside its configuration and data: its method's version under the method's name,
    torch's, the precision, and the hash of the user's own parts; `a then b` where it was resumed under another."""
    lives, made = lives_of(run) or [{}], made_by(run)
    others = {name: dict.fromkeys(str(life.get(name)) for life in lives) for name in ("torch", "dtype", "parts")}
    return {made.method: str(made.method_version), **{name: " then ".join(each) for name, each in others.items()}}


def unlike(facts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The facts that have several values, by name: `2.11 and 2.13`, a hash by its first digits."""
    values: dict[str, dict[str, None]] = {}
    for name, value in (fact for each in facts for fact in each.items()):
        values.setdefault(name, {})[str(value)] = None
    several = {name: " and ".join(each) for name, each in values.items() if len(each) > 1}
    return {name: _HASH.sub(lambda found: found[0][:12], words) for name, words in several.items()}


def frozen_backbone(readout: Run, device: torch.device) -> Network:
    """The network that a readout reads, the very one it was trained on."""
    known = about_backbone(readout.path)
    network = readout.backbone.network(known["weights"], str(device))
    if weights_sha256(network.state_dict()) != known["weights_sha256"]:
        raise UserError(
            f"the '{known['weights']}' weights of {readout.backbone.path} are not those that {readout.path} was "
            "trained on; train the readout again"
        )
    return network


def place_of_run(path: str | os.PathLike[str]) -> Path:
    """The run's folder, where that of a sweep's cell was named, in which a run lies."""
    inner = Path(path) / "run"
    is_cell = not (Path(path) / "config.json").exists() and (inner / "config.json").is_file()
    return inner if is_cell else Path(path)


def is_readout(path: Path) -> bool:
    """Whether the run in this folder is a Stage 2. Its config.json says so; older ones have a backbone.json at least,
    or a result that says it."""
    folder = RunFolder.open(path, for_writing=False)
    written = None
    with contextlib.suppress(RunError):  # a damaged one is told by whoever needs what it says
        written = read_json(folder.config_path)
    if isinstance(written, dict) and "stage" in written:
        return written["stage"] == "s2"
    if folder.backbone_path.is_file() or not folder.is_finished:
        return folder.backbone_path.is_file()
    return Run(path).result["reported"].get("stage") == "s2"


def about_backbone(path: Path) -> dict[str, str]:
    """What a readout's backbone.json says: the `run` it reads, which of its `weights`, and their `weights_sha256`."""
    file = RunFolder(path, None).backbone_path
    again = f"restore it from a copy, or remove the readout (rm -r {shlex.quote(str(path))}) and train it again"
    if not file.is_file():
        raise RunError(f"{path} is a readout that has lost its {file.name}, which names the run it reads; {again}")
    try:
        known = read_json(file)
    except RunError as trouble:
        raise RunError(f"{file} cannot be read as JSON; {again}") from trouble
    keys = ("run", "weights", "weights_sha256")
    if not isinstance(known, dict) or not all(isinstance(known.get(key), str) for key in keys):
        raise RunError(f"{file} is not what a readout writes (an object with {', '.join(keys)}); {again}")
    return known


def _not_a_result(path: Path) -> RunError:
    return RunError(
        f"{path} is not what a run writes; remove it and resume the run: rm {shlex.quote(str(path))} && goodness "
        f"resume {shlex.quote(str(path.parent))}"
    )


def load_config(path: str | os.PathLike[str]) -> Config:
    """The configuration of the run in this folder."""
    folder = RunFolder.open(path, for_writing=False)
    return checked_config(read_json(folder.config_path), folder.config_path)


def checked_config(written: Any, path: Path) -> Config:
    """The configuration that was written to this file."""
    try:
        return from_dict(written).check()
    except UnknownName as trouble:
        hint = "a part of your own? import what registers it first; on the command line: --plugin"
        raise UnknownName(f"{path}: {trouble} ({hint})") from trouble
    except ConfigError as trouble:
        raise ConfigError(f"{path}: {trouble}") from trouble
