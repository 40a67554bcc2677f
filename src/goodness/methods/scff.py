"""Self-contrastive Forward-Forward: an image with itself is positive, with another negative; no labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Moment, Out, Plan, Signal, Step, along, whose_turn
from goodness.methods.readout import ByReadout, pooled
from goodness.nn.networks import at, halves, output_shapes
from goodness.parts import ImageFacts, MethodPart, register_method


class Scff(ByReadout):
    """Goodness map `G = mean_c relu(a)^2` of a pair (x, x'), `a = W(x + x')`; W ends with a block's last weights."""

    uses_labels, spans = False, True

    def __init__(self, blocks: list[nn.Module], facts: ImageFacts, part: ScffPart) -> None:
        super().__init__(blocks, facts.classes, output_shapes(blocks, part.enters(facts)), part.features)
        self.part = part

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        return {"x": images.unsqueeze(1)}

    def streams(self, images: Tensor, labels: Tensor, step: Step) -> Signal:
        return {"x": images.unsqueeze(1).expand(-1, 2, *images.shape[1:])}

    def through(self, depth: int, s: Signal) -> Out:
        x = s["x"].unsqueeze(2)  # [batch, positive and negative (in evidence 1), members of a pair, ...]
        if depth == 0 or at(self.part.pairs, depth):
            one = x[:, :1].expand_as(x)
            x = torch.cat([one, torch.cat([one[:, :1], one[:, 1:].roll(1, 0)], dim=1)], dim=2)
        body, rest = halves(self.blocks[depth])
        a = along(body, F.layer_norm(x, x.shape[2:]).sum(dim=2))
        goodness = a.float().relu().square().mean(dim=2 if a.dim() == 5 else -1)
        return Out({"x": along(rest, a)}, None, {"map": goodness.reshape(*a.shape[:2], -1)})

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        (positive, negative), part = out.more["map"].unbind(dim=1), self.part
        low, high = at(part.positive, depth) - positive, negative - at(part.negative, depth)
        norm = at(part.penalty, depth) * positive.norm(dim=1)
        return F.softplus(low).mean() + F.softplus(high).mean() + norm.mean()

    def measures(self, depth: int, s: Signal, out: Out) -> Signal:
        return dict(zip(("g_pos", "g_neg"), out.more["map"].detach().mean(dim=(0, 2))))

    def plan(self, moment: Moment) -> Plan:
        now, share = whose_turn(moment, [at(self.part.turns, depth) for depth in range(len(self.blocks))])
        return Plan(((now,),), (at(self.part.rates, now) * at(self.part.fall, now) ** share,))

    def features(self, depth: int, s: Signal, out: Out) -> Tensor:
        return pooled(F.layer_norm(out.on["x"][:, 0], out.on["x"].shape[2:]), self.most)


@register_method("scff")
@dataclass(frozen=True, kw_only=True)
class ScffPart(MethodPart):
    """Self-contrastive: no labels, one block after another, a ridge readout. A value a block; the last for the rest."""

    positive: tuple[float, ...] = (1.0,)  # threshold to pass
    negative: tuple[float, ...] = (2.0,)  # threshold to stay below
    penalty: tuple[float, ...] = (1e-3,)  # of the norm of a positive goodness map
    pairs: tuple[bool, ...] = (True,)  # whether to pair the input anew (the first does), or take the pairs from below
    turns: tuple[float, ...] = (1.0,)  # how long it learns before the next one does; a share
    rates: tuple[float, ...] = (1.0,)  # factor on the learning rate
    fall: tuple[float, ...] = (1.0,)  # and on top of it at the end of the turn, where it falls to exponentially
    features: int = 1024  # most features of a block for the readout, whose cost grows with the square

    def check(self) -> None:
        for name, values in vars(self).items():
            if not values or (name in ("turns", "rates", "fall") and min(values) <= 0):
                raise ConfigError(f"method.{name} cannot be {values}")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Scff:
        return Scff(blocks, facts, self)
