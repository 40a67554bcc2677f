"""What is timed: training stages on made-up images of a preset's size, ready to make steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config, override
from goodness.data import sources
from goodness.data.images import ImageData, Split
from goodness.precision import autocast
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Measured, Moment, Said
from goodness.training.backprop import Backprop
from goodness.training.loop import Loop
from goodness.training.stage1 import Stage1

ENDLESS = 100_000
"""Epochs of a subject, so that no measurement reaches its end. Of blocks that learn in turn, the first is timed."""
PARTS = 4
"""Into how many pieces gradient accumulation cuts a batch."""


class Accumulated(Backprop):
    """Backpropagation in pieces of a batch whose gradients add up: less memory, one step."""

    def carry_out(self, rows: Tensor, moment: Moment) -> list[Measured]:
        self.optimisers[0].zero_grad(set_to_none=True)
        self.draws.seed_modules("step", moment.epoch, moment.step)
        images, labels = self.views(rows, moment, 1)[0], self.data.train.labels[rows]
        losses, accuracies = [], []
        for some, theirs in zip(images.chunk(PARTS), labels.chunk(PARTS)):
            with autocast(self.device, self.dtype):
                loss, accuracy = self._loss(some, theirs)
            (loss * (len(some) / len(images))).backward()
            losses.append(loss.detach())
            accuracies.append(accuracy)
        loss, accuracy = torch.stack(losses).mean(), torch.stack(accuracies).mean()
        measured = self.descend(loss, accuracy, self.config.optim.clip, moment)
        self.average.follow(moment.total_step, None if self.guard is None else self.guard.bad)
        return measured


class Recomputed(Backprop):
    """Backpropagation that keeps each block's input alone and computes the rest again: activation checkpointing."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.network.recomputes = True


@dataclass(frozen=True)
class Subject:
    """A way to train: its name, the stage it is, and what it changes in the preset."""

    name: str
    about: str
    stage: Callable[..., Loop]
    changes: dict[str, Any]


FUSED = Subject("ff", "Forward-Forward, one backward for all blocks", Stage1, {"step.mode": "fused"})
SIDE_BY_SIDE = (
    FUSED,
    Subject("ff-sequential", "Forward-Forward, block after block", Stage1, {"step.mode": "sequential"}),
    Subject("bp", "backpropagation, the same backbone", Backprop, {"trainer": "backprop"}),
    Subject("bp-checkpoint", "backpropagation, activations computed again", Recomputed, {"trainer": "backprop"}),
    Subject("bp-accumulate", f"backpropagation, {PARTS} pieces of a batch", Accumulated, {"trainer": "backprop"}),
)


def made_up(config: Config, count: int) -> ImageData:
    """Images and labels of the shape and number of classes of the preset's data set; nothing is downloaded."""
    known = sources.find(config.data)
    shape, classes = known.shape or (3, 32, 32), known.class_count or 10
    draws = torch.Generator().manual_seed(0)

    def some(n: int) -> Split:
        return Split(
            images=torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=draws),
            labels=torch.randint(classes, (n,), generator=draws),
            indices=torch.arange(n),
        )

    return ImageData(
        name=f"made-up images like {config.data}",
        classes=tuple(str(label) for label in range(classes)),
        train=some(count),
        val=some(2),
        test=some(2),
        mean=(0.5,) * shape[0],
        std=(0.25,) * shape[0],
        flips=known.flips,
        provenance="random numbers",
    )


def build(
    subject: Subject, config: Config, folder: Path, device: torch.device, dtype: torch.dtype, plain: bool = False
) -> Loop:
    """The subject on a batch or two of made-up images; `plain` leaves out compiling and replaying."""
    config = override(config, {**subject.changes, "epochs": ENDLESS})
    if plain:
        config = override(config, {"step.compile": "off", "step.replay": "off"})
    data = made_up(config, 2 * config.batch)
    return subject.stage(config, data, RunFolder.create(folder), device=device, dtype=dtype)


def stepping(stage: Loop) -> Callable[[], Said]:
    """A function that makes one step after the other, as training would."""
    rows = torch.arange(stage.batch, device=stage.device)

    def step() -> Said:
        moment = stage.moment()
        stage.position.step += 1
        return stage.step(rows, moment)

    return step


def learned_at_once(stage: Loop) -> int:
    """Parameters whose gradients one backward computes together, at most."""
    if isinstance(stage, Stage1):
        sizes = [sum(one.numel() for one in owned) for owned in stage.stepper.owned]
        return sum(sizes) if stage.config.step.mode == "fused" else max(sizes)
    return stage.parameters()
