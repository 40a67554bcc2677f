"""Local backpropagation: every block learns through a classifier of several layers of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Out, Signal, last
from goodness.nn.networks import features, output_shapes
from goodness.parts import ImageFacts, MethodPart, register_method


class LocalBackprop(Method):
    """Cross-entropy of an auxiliary head, trained with its block; the last block's head predicts."""

    def __init__(self, blocks: Iterable[nn.Module], classes: int, heads: list[nn.Module], cells: int) -> None:
        super().__init__(blocks, classes, heads)
        self.cells = cells

    def through(self, depth: int, s: Signal) -> Out:
        x = self.blocks[depth](s["x"])
        return Out({"x": x}, self.parts[depth](pooled(x, self.cells)))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        return F.cross_entropy(out.speaks, s["labels"])

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return last(evidence, labels)


def pooled(x: Tensor, cells: int) -> Tensor:
    """`[batch, width]`: means over at most `cells` x `cells` parts of a map, the mean of tokens, a vector as it is."""
    if x.dim() != 4:
        return features(x)
    kernel = tuple(-(-side // cells) for side in x.shape[2:])
    return F.avg_pool2d(x, kernel, ceil_mode=True).flatten(1)


@register_method("local-backprop")
@dataclass(frozen=True, kw_only=True)
class LocalBackpropPart(MethodPart):
    """A classifier of several layers beside every block, cross-entropy: the upper bound for local learning."""

    layers: int = 2  # hidden layers of each head; 0 makes it linear
    width: int = 256  # units of each of them
    cells: int = 2  # a map enters a head as the means of this many parts along height and width

    def check(self) -> None:
        for name, least in {"layers": 0, "width": 1, "cells": 1}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"method.{name} must be at least {least}, got {getattr(self, name)}")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> LocalBackprop:
        shapes = output_shapes(blocks, self.enters(facts))
        heads = [self.head(pooled(torch.zeros(1, *shape), self.cells).shape[1], facts.classes) for shape in shapes]
        return LocalBackprop(blocks, facts.classes, heads, self.cells)

    def head(self, entering: int, classes: int) -> nn.Module:
        sizes = [entering, *[self.width] * self.layers]
        hidden = [nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(sizes)]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], classes))
