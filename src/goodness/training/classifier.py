"""The loop of what gives class scores at once: a readout, and a network under backpropagation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from goodness.data.images import Split
from goodness.step_context import Measured, Moment
from goodness.training.finite import refuse_non_finite_total
from goodness.training.loop import Loop, accuracy_row
from goodness.training.optim import clip, gradient_norm


class ClassifierLoop(Loop):
    """A stage whose module gives class scores at once, with no blocks to tell apart: these are what is read of images.

    It has one optimiser, over `learning`.
    """

    learning: list[nn.Parameter]

    def learn(self, loss: Tensor, accuracy: Tensor, clip_at: float, moment: Moment) -> list[Measured]:
        """One step down this loss's gradient; what the step says."""
        loss.backward()
        return self.descend(loss, accuracy, clip_at, moment)

    def descend(self, loss: Tensor, accuracy: Tensor, clip_at: float, moment: Moment) -> list[Measured]:
        """One step down the gradient that is there, which is this loss's; what the step says."""
        norm = gradient_norm(self.learning)
        refuse_non_finite_total(loss.detach(), norm, moment, self.guard)
        clip(self.learning, norm, clip_at)
        self.optimisers[0].step()
        values = torch.stack([loss.detach().float(), accuracy.float(), norm.detach().float()])
        return [(("loss", "accuracy", "grad_norm"), values)]

    def train_line(self, means: list[dict[str, float]]) -> dict[str, Any]:
        return dict(means[0])

    def assess(self, split: str) -> dict[str, Any]:
        part = self.data.split(split)
        row = self._row(self.readings(part.images), part)
        return {"accuracy": row["top1"], "n": row["n"]} | ({"top5": row["top5"]} if "top5" in row else {})

    def examine(self, readings: Tensor, part: Split, split: str) -> tuple[Tensor, list[dict[str, Any]], Any]:
        return readings, [self._row(readings, part)], None

    def predictions(self, readings: Tensor) -> dict[str, Tensor]:
        return {"first": readings.argmax(dim=-1).unsqueeze(0)}

    def _row(self, scores: Tensor, part: Split) -> dict[str, Any]:
        self.require_finite(scores, "a class score")
        return accuracy_row(scores, part.labels.cpu(), self.config.model.blocks)
