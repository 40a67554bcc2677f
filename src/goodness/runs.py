"""A run on disk, from its folder: what it was, what it found, and its network."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goodness.config import Config, from_dict
from goodness.errors import ConfigError, RunError, UserError
from goodness.model.network import Network
from goodness.model.readout import AttentiveReadout
from goodness.model.stripped import StrippedNetwork, class_scores
from goodness.parts import REGISTRIES
from goodness.predict import goodness_of, readout_scores, scores_of
from goodness.training.checkpoint import weights_sha256
from goodness.training.durable import read_json, read_lines
from goodness.training.run import RunFolder, choose_device

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
        if RunFolder(self.path, None).backbone_path.is_file():
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

    @property
    def readout(self) -> Run | None:
        """Its Stage 2, where one was trained in the usual place."""
        folder = RunFolder(self.path / READOUT, None)
        is_run = folder.config_path.is_file()  # a readout killed at birth has none, and begins anew
        return Run(folder.path) if is_run and folder.backbone_path.is_file() else None

    @property
    def backbone(self) -> Run:
        """The run whose weights a readout reads."""
        place = read_json(RunFolder(self.path, None).backbone_path)["run"]
        found = Run((self.path / place).resolve())
        if not (found.path / "config.json").is_file():
            raise UserError(f"the readout {self.path} reads the run {found.path}, which is not there")
        return found

    def network(self, weights: str | None = None, device: str = "cpu") -> Network:
        """The trained network, ready to predict; the reported weights unless `best` or `last` is asked for.

        A readout gives the network that it reads.
        """
        if self.stage == "s2":
            return frozen_backbone(self, choose_device(device))
        if self.stage == "bp":
            raise UserError(f"{self.path} was trained by backpropagation: it has no blocks; use `stripped()`")
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

    def _weights(self, weights: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        name: str = weights or self.result["reported"]["weights"]
        return RunFolder.open(self.path, for_writing=False).checkpoints.load_weights(name)

    def _fill(self, module: nn.Module, tensors: dict[str, Tensor], meta: dict[str, Any], device: str) -> nn.Module:
        try:
            module.load_state_dict(tensors)
        except RuntimeError as trouble:
            raise UserError(
                f"the weights in {self.path} do not fit its config.json, which was changed since: {trouble}"
            ) from trouble
        module.class_names = tuple(meta["classes"])  # type: ignore[assignment]
        return module.to(choose_device(device)).requires_grad_(False).eval()

    def predict(self, images: Tensor | np.ndarray, *, tta: bool = False, blocks: int | None = None) -> Tensor:
        """Class scores `[n, classes]` of uint8 images `[n, C, H, W]`; the prediction is their argmax."""
        images = torch.as_tensor(images)
        network = self.stripped() if self.stage == "bp" else self.network()
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != network.shape:
            raise UserError(
                f"expected uint8 images of shape [n, {', '.join(map(str, network.shape))}], got {images.dtype} "
                f"{list(images.shape)}"
            )
        if blocks is not None and self.stage != "s1":
            raise UserError("only a Stage 1 can be cut short: a readout and a backpropagation control use all blocks")
        if blocks is not None and not 1 <= blocks <= len(network.blocks):
            raise UserError(f"blocks must lie in 1..{len(network.blocks)}, got {blocks}")
        if isinstance(network, StrippedNetwork):
            return class_scores(network, images, tta=tta)
        if self.stage == "s2":
            return readout_scores(network, self.head(), images, tta=tta)
        return scores_of(goodness_of(network, images, tta=tta, blocks=blocks))


def frozen_backbone(readout: Run, device: torch.device) -> Network:
    """The network that a readout reads, the very one it was trained on."""
    known = read_json(RunFolder(readout.path, None).backbone_path)
    network = readout.backbone.network(known["weights"], str(device))
    if weights_sha256(network.state_dict()) != known["weights_sha256"]:
        raise UserError(
            f"the '{known['weights']}' weights of {readout.backbone.path} are not those that {readout.path} was "
            "trained on; train the readout again"
        )
    return network


def load_config(path: str | os.PathLike[str]) -> Config:
    """The configuration of the run in this folder."""
    folder = RunFolder.open(path, for_writing=False)
    try:
        return from_dict(read_json(folder.config_path)).check()
    except ConfigError as trouble:
        own = any(str(trouble).startswith(f"unknown {registry.kind} ") for registry in REGISTRIES.values())
        hint = " (a part of your own? import what registers it first; on the command line: --plugin)" if own else ""
        raise ConfigError(f"{folder.config_path}: {trouble}{hint}") from trouble
