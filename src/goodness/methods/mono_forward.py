"""Mono-Forward: every block learns to tell the classes through a linear projection of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.methods.base import Method, Out, Signal
from goodness.nn.networks import feature_width, features, output_shapes
from goodness.parts import ImageFacts, MethodPart, register_method


class MonoForward(Method):
    """Goodness `G = M x` of block d's features x, with a learned matrix M of a row per class; cross-entropy on G."""

    def __init__(self, blocks: Iterable[nn.Module], classes: int, widths: list[int]) -> None:
        super().__init__(blocks, classes, [nn.Linear(width, classes, bias=False) for width in widths])

    def through(self, depth: int, s: Signal) -> Out:
        x = self.blocks[depth](s["x"])
        return Out({"x": x}, self.parts[depth](features(x)))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        return F.cross_entropy(out.speaks, s["labels"])


@register_method("mono-forward")
@dataclass(frozen=True, kw_only=True)
class MonoForwardPart(MethodPart):
    """A projection to the classes per block, cross-entropy. Fits any shape; no labels in the input, no negatives."""

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> MonoForward:
        widths = [feature_width(shape) for shape in output_shapes(blocks, self.enters(facts))]
        return MonoForward(blocks, facts.classes, widths)
