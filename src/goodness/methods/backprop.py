"""Backpropagation, behind the same seam: all blocks are one unit, so gradients cross every border between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.methods.base import Method, Moment, Out, Plan, Signal, last
from goodness.nn.networks import feature_width, features, output_shapes
from goodness.parts import ImageFacts, MethodPart, register_method


class Backprop(Method):
    """Cross-entropy of a linear classifier on the last block's features. Earlier blocks say nothing: zeros."""

    def __init__(self, blocks: Iterable[nn.Module], classes: int, width: int) -> None:
        super().__init__(blocks, classes)
        self.parts[-1] = nn.Linear(width, classes)

    def through(self, depth: int, s: Signal) -> Out:
        x = self.blocks[depth](s["x"])
        is_last = depth == len(self.blocks) - 1
        return Out({"x": x}, self.parts[depth](features(x)) if is_last else x.new_zeros(len(x), self.classes))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        return F.cross_entropy(out.speaks, s["labels"])

    def plan(self, moment: Moment) -> Plan:
        return Plan((tuple(range(len(self.blocks))),))

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return last(evidence, labels)


@register_method("backprop")
@dataclass(frozen=True, kw_only=True)
class BackpropPart(MethodPart):
    """End-to-end backpropagation of a linear classifier on the last block: the control. Not local."""

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Backprop:
        width = feature_width(output_shapes(blocks, self.enters(facts))[-1])
        return Backprop(blocks, facts.classes, width)
