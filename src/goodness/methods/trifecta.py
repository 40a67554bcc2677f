"""Trifecta: SymBa loss, batch normalisation, overlapping local updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Moment, Out, Plan, Signal, along, last
from goodness.parts import ImageFacts, MethodPart, register_method


class Trifecta(Method):
    """Goodness `g = mean(h^2)`, loss `softplus(-alpha (g+ - g-))`. A label enters as a further channel of the image,
    learned with block 0. Blocks learn in pairs on the loss of the second: (0, 1), (2, 3), ... in even steps, 0 alone,
    (1, 2), (3, 4), ... in odd ones; a last block without a partner rests."""

    asks = True

    def __init__(self, blocks: list[nn.Module], facts: ImageFacts, alpha: float, overlap: bool) -> None:
        pixels = torch.Size(facts.shape[1:]).numel()
        super().__init__(blocks, facts.classes, [nn.Embedding(facts.classes, pixels), *[None] * (len(blocks) - 1)])
        self.alpha, self.overlap = alpha, overlap and len(blocks) > 1

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        return {"x": images.unsqueeze(1).expand(-1, asked.shape[1], *images.shape[1:]), "asked": asked}

    def through(self, depth: int, s: Signal) -> Out:
        x = s["x"]  # [batch, hypotheses, ...]: right and wrong share the statistics of batch normalisation
        if depth == 0:
            label = self.parts[0](s["asked"])
            x = torch.cat([x, label.reshape(*x.shape[:2], 1, *x.shape[3:])], dim=2)
        x = along(self.blocks[depth], x)
        return Out({"x": x}, x.float().square().flatten(2).mean(dim=2))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        right, wrong = out.speaks.unbind(dim=1)
        return F.softplus(-self.alpha * (right - wrong)).mean()

    def plan(self, moment: Moment) -> Plan:
        if not self.overlap:
            return super().plan(moment)
        first = moment.step % 2
        pairs = tuple((depth, depth + 1) for depth in range(first, len(self.blocks) - 1, 2))
        return Plan(((0,), *pairs) if first else pairs)

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return last(evidence, labels)


@register_method("trifecta")
@dataclass(frozen=True, kw_only=True)
class TrifectaPart(MethodPart):
    """SymBa, batch normalisation, overlapping updates of two blocks each. The label is a channel of the image."""

    alpha: float = 4.0
    """Steepness of the loss."""
    overlap: bool = True
    """Whether blocks learn in overlapping pairs; without, each learns alone at every step."""

    def enters(self, facts: ImageFacts) -> tuple[int, ...]:
        return (facts.shape[0] + 1, *facts.shape[1:])

    def check(self) -> None:
        if self.alpha <= 0:
            raise ConfigError(f"method.alpha must be positive, got {self.alpha}")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Trifecta:
        return Trifecta(blocks, facts, self.alpha, self.overlap)
