"""Stage 1: block-local Forward-Forward steps, judged with the teacher's weights under every label hypothesis."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config
from goodness.data.images import ImageData, Split
from goodness.draws import epoch_order, key
from goodness.health.block_health import assess
from goodness.health.gradients import term_gradient_norms
from goodness.health.of_runs import health_of_rows
from goodness.methods.cumulative.evidence import block_predictions, goodness_of, scores_of
from goodness.nn.network import Network
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Measured, Moment
from goodness.training.loop import (
    Listener,
    Loop,
    Plan,
    accuracy_row,
    on_device,
    require_learnable,
    under,
)
from goodness.training.signals import StopRequest
from goodness.training.step import Stepper

GRADIENT_IMAGES = 64
"""Images on which the terms' gradients are compared after an epoch."""


class Stage1(Loop):
    """One run of Stage 1 in its folder."""

    stage = "s1"
    records = True

    def __init__(
        self,
        config: Config,
        data: ImageData,
        folder: RunFolder,
        *,
        device: torch.device,
        dtype: torch.dtype,
        stop: StopRequest | None = None,
        listen: Listener | None = None,
    ) -> None:
        plan = Plan(epochs=config.epochs, batch=config.batch, augment=config.augment, report=config.keep.report)
        super().__init__(config, data, folder, plan=plan, device=device, dtype=dtype, stop=stop, listen=listen)
        self.network = on_device(build_network(config, data), device)
        self.stepper = Stepper(self.network, config, dtype, self.draws, self.guard)
        self.optimisers = self.stepper.optimisers

    def set(self, moment: Moment) -> None:
        self.stepper.set(moment)

    def carry_out(self, rows: Tensor, moment: Moment) -> list[Measured]:
        return self.stepper.step(self.views(rows, moment, self.config.views), self.data.train.labels[rows], moment)

    def signature(self, moment: Moment) -> Hashable:
        return self.stepper.signature(moment)

    def unguard(self) -> None:
        self.guard = self.stepper.guard = None

    def evaluated(self) -> Network:
        return self.stepper.teacher.network

    def learned(self) -> dict[str, Tensor]:
        """The blocks as they are, and their moving average."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return tensors | {f"teacher.{name}": value for name, value in self.evaluated().state_dict().items()}

    def load_learned(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(under("network.", tensors))
        self.evaluated().load_state_dict(under("teacher.", tensors))

    def parameters(self) -> int:
        return self.network.parameter_count()

    def train_line(self, means: list[dict[str, float]]) -> dict[str, Any]:
        """Each block's means, how its aspects enter its goodness, and where it is judged each term's gradient norm."""
        for depth, block_means in enumerate(means):
            head = self.network.block(depth).head
            for name, weight in zip(head.names, head.weights().tolist()):
                block_means[f"aspect_{name}"] = float(weight)
        if self.is_judged_epoch():
            for block_means, norms in zip(means, self.term_gradient_norms()):
                block_means |= {f"grad_norm_{name}": norm for name, norm in norms.items()}
        return {"blocks": means}

    def term_gradient_norms(self) -> list[dict[str, float]]:
        """How strongly each term pulls at each block now, on a few training images in views that no step has seen."""
        moment = self.moment()
        rows = epoch_order(len(self.data.train), self.config.seed, moment.epoch)[: self.batch].to(self.device)
        views, labels = self.views(rows, moment, self.config.views), self.data.train.labels[rows]
        return term_gradient_norms(self.stepper, views[:, :GRADIENT_IMAGES], labels[:GRADIENT_IMAGES], moment)

    def assess(self, split: str) -> dict[str, Any]:
        """Accuracy and block health on a split."""
        part = self.data.split(split)
        return assess(self.readings(part.images), part.labels, self.config, split, progress=self.progress())

    def examine(self, readings: Tensor, part: Split, split: str) -> tuple[Tensor, list[dict[str, Any]], Any]:
        labels = part.labels.cpu()
        rows = [accuracy_row(scores_of(readings, used), labels, used) for used in range(1, len(readings) + 1)]
        health = assess(readings, part.labels, self.config, split, progress=1.0)["blocks"]
        return scores_of(readings), rows, health

    def predictions(self, readings: Tensor) -> dict[str, Tensor]:
        return block_predictions(readings)

    def full_health(self, part: Split, split: str) -> dict[str, Any]:
        names = self.data.classes
        return health_of_rows(
            self.evaluated(),
            part,
            names,
            self.config,
            split=split,
            dtype=self.dtype,
            poll=self.poll,
            compiled=self.is_compiled,
        )

    def readings(self, images: Tensor) -> Tensor:
        """Of every block, image and hypothesis, `[blocks, n, classes]`, under the teacher."""
        found = goodness_of(
            self.evaluated(),
            images,
            memory_mb=self.config.keep.memory_mb,
            dtype=self.dtype,
            poll=self.poll,
            compiled=self.is_compiled,
        ).cpu()
        for depth, scores in enumerate(found):
            self.require_finite(scores, f"block {depth}: goodness")
        return found


def build_network(config: Config, data: ImageData) -> Network:
    """The network for this data with its initial weights, which depend on the seed alone."""
    require_learnable(data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(config.seed, "weights"))
        return Network(
            config.model,
            data.shape,
            len(data.classes),
            mean=data.mean,
            std=data.std,
            terms=config.objective,
        )
