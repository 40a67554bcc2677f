"""For methods whose input is a flat image with the label in it: how the label enters, and which wrong one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Signal, Step
from goodness.parts import ImageFacts, MethodPart


@dataclass(frozen=True, kw_only=True)
class LabelInputPart(MethodPart):
    """Settings of such a method."""

    label: Literal["first-pixels", "appended"] = "first-pixels"
    """Where the label stands as one-hot: over the first pixels, or as numbers of its own."""
    wrong: Literal["uniform", "hard"] = "uniform"
    """How wrong labels are drawn: all equally likely, or by the softmax of what the teacher's layers
    but the first say."""

    def enters(self, facts: ImageFacts) -> tuple[int, ...]:
        pixels = math.prod(facts.shape)
        if self.label == "appended":
            return (facts.classes + pixels,)
        if pixels < facts.classes:
            raise ConfigError(f"{facts.classes} labels do not fit over {pixels} pixels: take --method.label appended")
        return (pixels,)


class LabelInput(Method):
    """Block 0 gets `[batch, H, width]`: flat images under labels."""

    asks = True

    def __init__(
        self, blocks: Iterable[nn.Module], classes: int, settings: LabelInputPart, parts: list[nn.Module] | None = None
    ) -> None:
        super().__init__(blocks, classes, parts)
        self.over_pixels, self.hard = settings.label == "first-pixels", settings.wrong == "hard"

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        pixels = images.flatten(1)[:, self.classes if self.over_pixels else 0 :].unsqueeze(1)
        label = F.one_hot(asked, self.classes).to(images.dtype)
        return {"x": torch.cat([label, pixels.expand(-1, asked.shape[1], -1)], dim=-1)}

    def streams(self, images: Tensor, labels: Tensor, step: Step) -> Signal:
        if not self.hard:
            return super().streams(images, labels, step)
        evidence = step.teacher.evidence(images)
        scores = evidence[min(1, len(evidence) - 1) :].sum(dim=0)
        wrong = likely_wrong_labels(step.draw("wrong", 1), labels, scores)
        return self.present(images, torch.cat([labels.unsqueeze(1), wrong], dim=1))

    def wants_teacher(self) -> bool:
        return self.hard


def likely_wrong_labels(uniforms: Tensor, labels: Tensor, scores: Tensor) -> Tensor:
    """A wrong label each `[batch, 1]`, by the softmax of `scores [batch, classes]` over the wrong ones."""
    shares = scores.float().scatter(1, labels.unsqueeze(1), -torch.inf).softmax(dim=1).cumsum(dim=1)
    at_most = shares[:, -1:] * (1 - 2**-24)  # a draw may round up to the whole
    return (shares <= torch.minimum(uniforms * shares[:, -1:], at_most)).sum(dim=1, keepdim=True)
