"""Hinton's Forward-Forward: layers learn a high goodness under the right label, a low one under a wrong one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Moment, Out, Plan, Signal, all_but_first, along, sum_all
from goodness.methods.label_input import LabelInput, LabelInputPart, behind_labels
from goodness.nn.hinton_mlp import HintonMlp
from goodness.nn.networks import output_shapes
from goodness.parts import ImageFacts, register_method


@register_method("hinton")
@dataclass(frozen=True, kw_only=True)
class HintonPart(LabelInputPart):
    """Goodness of squares, right label against wrong, the label in the input. For networks of linear layers."""

    default_network: ClassVar[str] = HintonMlp.kind
    goodness: Literal["sum", "mean"] = "sum"  # of the squares of a layer's outputs
    threshold: float = 1.0  # mean square at which a label is as likely right as wrong
    peer: float = 0.03  # weight of peer normalisation, which wants all units of a layer equally active
    peer_momentum: float = 0.9  # of the running mean activity
    eps: float = 1e-8  # beside the root mean square by which a layer divides its input
    order: Literal["together", "one-by-one"] = "together"  # which layers learn: all, or each in its share of the steps
    predict: Literal["all-but-first", "all"] = "all-but-first"  # layers whose goodness is summed

    def check(self) -> None:
        if self.peer < 0 or not 0 <= self.peer_momentum < 1 or self.eps <= 0:
            raise ConfigError("method hinton needs peer >= 0, 0 <= peer_momentum < 1 and eps > 0")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Hinton:
        return Hinton(blocks, facts, self)


class Hinton(LabelInput):
    """Cross-entropy of sigmoid(g - threshold) on a layer's goodness g, the sum or mean of its squared outputs."""

    def __init__(self, blocks: list[nn.Module], facts: ImageFacts, settings: HintonPart) -> None:
        super().__init__(blocks, facts.classes, settings)
        self.settings = settings
        for depth, shape in enumerate(output_shapes(blocks, settings.enters(facts))):
            self.register_buffer(f"activity{depth}", torch.full(shape, 0.5))

    def through(self, depth: int, s: Signal) -> Out:
        if depth == 0:  # a one-hot label adds 1 to the sum of squares, whichever it is
            squares, width = s["pixels"].square().sum(-1, keepdim=True) + 1, s["pixels"].shape[-1] + self.classes
            size = (squares / width).sqrt() + self.settings.eps
            h = behind_labels(self.blocks[0], s["pixels"] / size, s["label"] / size)
        else:
            size = s["x"].square().mean(-1, keepdim=True).sqrt() + self.settings.eps
            h = along(self.blocks[depth], s["x"] / size)
        squares = h.float().square()
        goodness = squares.sum(-1) if self.settings.goodness == "sum" else squares.mean(-1)
        return Out({"x": h}, goodness, {"right": h[:, 0].float()})

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        units = out.on["x"].shape[-1] if self.settings.goodness == "sum" else 1
        right, wrong = (out.speaks - self.settings.threshold * units).unbind(1)  # type: ignore[operator]
        peer = self.activity(depth, out.more).var(correction=0)
        return (F.softplus(-right) + F.softplus(wrong)).mean() / 2 + self.settings.peer * peer

    def activity(self, depth: int, more: Signal) -> Tensor:
        """Running mean of every unit's output under the right label, this batch included."""
        return torch.lerp(more["right"].mean(0), getattr(self, f"activity{depth}"), self.settings.peer_momentum)

    def after_step(self, depth: int, more: Signal) -> None:
        getattr(self, f"activity{depth}").copy_(self.activity(depth, more))

    def plan(self, moment: Moment) -> Plan:
        now = moment.step * len(self.blocks) // moment.steps
        return Plan(((now,),)) if self.settings.order == "one-by-one" else super().plan(moment)

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return (sum_all if self.settings.predict == "all" else all_but_first)(evidence, labels)
