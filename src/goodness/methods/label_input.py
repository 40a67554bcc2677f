"""For methods whose input is a flat image with the label in it: how the label enters, and which wrong one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Signal, Step, along
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
    """Block 0's signal is flat images "pixels" `[batch, 1, width]` and their labels "label" `[batch, H, classes]`."""

    asks = True

    def __init__(
        self, blocks: Iterable[nn.Module], classes: int, settings: LabelInputPart, parts: list[nn.Module] | None = None
    ) -> None:
        super().__init__(blocks, classes, parts)
        self.over_pixels, self.hard = settings.label == "first-pixels", settings.wrong == "hard"
        self.later = self.hard  # all blocks of the teacher choose the wrong label

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        pixels = images.flatten(1)[:, self.classes if self.over_pixels else 0 :]
        return {"pixels": pixels.unsqueeze(1), "label": F.one_hot(asked, self.classes).to(images.dtype)}

    def streams(self, images: Tensor, labels: Tensor, step: Step) -> Signal:
        if not self.hard:
            return super().streams(images, labels, step)
        evidence = step.teacher.evidence(images)
        scores = evidence[min(1, len(evidence) - 1) :].sum(dim=0)
        wrong = likely_wrong_labels(step.draw("wrong", 1), labels, scores)
        return self.present(images, torch.cat([labels.unsqueeze(1), wrong], dim=1))

    def wants_teacher(self) -> bool:
        return self.hard


def behind_labels(block: nn.Module, pixels: Tensor, label: Tensor) -> Tensor:
    """A block on labels `[batch, H, classes]` in front of pixels `[batch, 1, width]`: `[batch, H, ...]`.

    On a CPU a linear layer that comes first multiplies an image's pixels once for all its labels.
    """
    layers = [one for one in block if not isinstance(one, nn.Flatten)] if isinstance(block, nn.Sequential) else [block]
    is_plain = pixels.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    if not is_plain or torch.compiler.is_compiling() or not isinstance(layers[0], nn.Linear) or layers[0].bias is None:
        return along(block, torch.cat([label, pixels.expand(-1, label.shape[1], -1)], dim=-1))
    x = _LinearBehindLabels.apply(layers[0].weight, layers[0].bias, pixels.squeeze(1), label)
    return along(nn.Sequential(*layers[1:]), x)  # type: ignore[arg-type]


class _LinearBehindLabels(torch.autograd.Function):
    """A linear layer on [label, pixels]. Its gradient is written in place: slices of a weight would each pad theirs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, pixels: Tensor, label: Tensor) -> Tensor:
        ctx.save_for_backward(weight, pixels, label)
        of_label, of_pixels = weight.split([label.shape[-1], pixels.shape[-1]], dim=1)
        return F.linear(pixels, of_pixels, bias).unsqueeze(1) + F.linear(label, of_label)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (y,), (weight, pixels, label) = gradients, ctx.saved_tensors
        gradient, summed = torch.empty_like(weight), y.sum(dim=1)
        of_label, of_pixels = gradient.split([label.shape[-1], pixels.shape[-1]], dim=1)
        torch.mm(summed.T, pixels, out=of_pixels)
        torch.mm(y.flatten(0, 1).T, label.flatten(0, 1), out=of_label)
        return gradient, summed.sum(dim=0), None, None


def likely_wrong_labels(uniforms: Tensor, labels: Tensor, scores: Tensor) -> Tensor:
    """A wrong label each `[batch, 1]`, by the softmax of `scores [batch, classes]` over the wrong ones."""
    shares = scores.float().scatter(1, labels.unsqueeze(1), -torch.inf).softmax(dim=1)
    shares = shares @ torch.ones_like(shares[:1]).expand(shares.shape[1], -1).triu()  # a cumulative sum, deterministic
    at_most = shares[:, -1:] * (1 - 2**-24)  # a draw may round up to the whole
    return (shares <= torch.minimum(uniforms * shares[:, -1:], at_most)).sum(dim=1, keepdim=True)
