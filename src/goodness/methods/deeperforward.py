"""DeeperForward: mean goodness of class groups, normalised away before the next block, and shortcuts between blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Out, Signal, Step, best_range
from goodness.nn.class_groups import class_groups, require_class_groups
from goodness.nn.shortcuts import NO_SHORTCUT
from goodness.parts import ImageFacts, MethodPart, register_method


class DeeperForward(Method):
    """Goodness `g_c`: the mean of `ReLU(block(x))` over channel group c; cross-entropy on g. A range predicts.

    A block hands on its group-normalised output, so no goodness is left in it. The entry "side" is the shortcut,
    detached like all entries; a block's `Shortcut` says whether it keeps, adds or concatenates it.
    """

    def __init__(self, blocks: list[nn.Module], classes: int, shape: tuple[int, ...], dropout: float = 0.0) -> None:
        """`shape` is an image's. Two blank ones go through, so blocks that do not fit are refused here."""
        super().__init__(blocks, classes)
        self.dropout, self.shapes = dropout, []
        self.shortcuts = [getattr(block, "shortcut", NO_SHORTCUT) for block in blocks]
        with torch.no_grad():
            s = self.eval().present(torch.zeros(2, *shape), torch.zeros(2, 1))
            for depth, block in enumerate(blocks):
                self.shapes.append(tuple(block(s["x"]).shape[1:]))
                require_class_groups(depth, self.shapes[depth], classes, classes)
                s = {**s, **self.through(depth, s).on}
        self.train()

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        return {"x": F.layer_norm(images, images.shape[1:])}

    def prepare(self, depth: int, s: Signal, step: Step) -> Signal:
        """Which values dropout keeps."""
        shape = self.shapes[depth]
        return {"kept": step.draw(f"dropout {depth}", *shape) >= self.dropout} if self.dropout else {}

    def through(self, depth: int, s: Signal) -> Out:
        joins, keeps, halves = self.shortcuts[depth]
        h = F.relu(self.blocks[depth](s["x"]))
        if "kept" in s:  # in training alone
            h = h * s["kept"] / (1 - self.dropout)
        x = F.group_norm(h.mT, self.classes).mT if h.dim() == 3 else F.group_norm(h, self.classes)
        if joins == "add":
            x = x + s["side"]
        elif joins == "concat":  # group by group, so that they stay those of the classes
            x = torch.cat([one.unflatten(1, (self.classes, -1)) for one in (x, s["side"])], dim=2).flatten(1, 2)
        side = {"side": F.avg_pool2d(x, 2, ceil_mode=True) if halves else x} if keeps else {}
        return Out({"x": x, **side}, class_groups(h, self.classes).float().mean(dim=-1))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        return F.cross_entropy(out.speaks, s["labels"])

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return best_range(evidence, labels)


@register_method("deeperforward")
@dataclass(frozen=True, kw_only=True)
class DeeperForwardPart(MethodPart):
    """Mean goodness of class groups, group normalisation, shortcuts; the best range of blocks predicts."""

    dropout: float = 0.0
    """Share of a block's values that are dropped in training."""

    def check(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"method.dropout must lie in [0, 1), got {self.dropout}")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> DeeperForward:
        return DeeperForward(blocks, facts.classes, self.enters(facts), self.dropout)
