"""Channel-wise competition: every class owns a group of each block's channels, and the groups compete for an image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.base import Method, Moment, Out, Plan, Signal, last
from goodness.nn import cfse as cfse  # registers the authors' network
from goodness.nn.class_groups import class_groups, require_class_groups
from goodness.nn.networks import output_shapes
from goodness.parts import ImageFacts, MethodPart, register_method


class CwC(Method):
    """Goodness `g_c`: the mean square of channel group c; loss `-log(exp g_y / sum_c exp g_c)`. The last predicts.

    A block with fewer groups than classes tells superclasses apart: runs of neighbouring classes share a group.
    """

    def __init__(
        self, blocks: Iterable[nn.Module], classes: int, groups: tuple[int, ...] = (), spans: tuple[range, ...] = ()
    ) -> None:
        """Block d has `groups[d]` groups and learns in the epochs `spans[d]` of a run that ends with the last span;
        another run stretches the spans to its length."""
        super().__init__(blocks, classes)
        self.groups = groups or (classes,) * len(self.blocks)
        self.learning = spans or (range(1),) * len(self.blocks)

    def through(self, depth: int, s: Signal) -> Out:
        x, groups = self.blocks[depth](s["x"]), self.groups[depth]
        goodness = class_groups(x, groups).float().square().mean(dim=-1)
        return Out({"x": x}, goodness.repeat_interleave(self.classes // groups, dim=1))

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        shared = self.classes // self.groups[depth]
        return F.cross_entropy(out.speaks[:, ::shared], s["labels"] // shared)

    def plan(self, moment: Moment) -> Plan:
        now, steps = moment.step * max(span.stop for span in self.learning), moment.steps
        spans = enumerate(self.learning)
        return Plan(tuple((depth,) for depth, span in spans if span.start * steps <= now < span.stop * steps))

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        return last(evidence, labels)


@register_method("cwc")
@dataclass(frozen=True, kw_only=True)
class CwCPart(MethodPart):
    """Class groups of channels compete by their mean square. No negatives, no labels in the input."""

    groups: tuple[int, ...] = ()
    """Groups of each block: fewer than classes make superclasses of neighbouring classes. Empty: one for each class."""
    begin: tuple[int, ...] = ()
    """Epoch at which each block begins to learn. Empty: all at once."""
    end: tuple[int, ...] = ()
    """Epoch at which each block is frozen; a run of another length stretches the plan. Empty: all learn to the end."""

    def check(self) -> None:
        begin = self.begin or (0,) * len(self.end)
        if len(begin) != len(self.end) or not all(0 <= a < b for a, b in zip(begin, self.end)):
            raise ConfigError(f"method.end {self.end} must give every block an epoch after method.begin {self.begin}")

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> CwC:
        groups = self.groups or (facts.classes,) * len(blocks)
        for name, given in {"groups": groups, "end": self.end or groups}.items():
            if len(given) != len(blocks):
                raise ConfigError(f"method.{name} needs a number for each of {len(blocks)} blocks, got {given}")
        for depth, shape in enumerate(output_shapes(blocks, self.enters(facts))):
            require_class_groups(depth, shape, groups[depth], facts.classes)
        spans = tuple(map(range, self.begin or (0,) * len(self.end), self.end))
        return CwC(blocks, facts.classes, groups, spans)
