"""The network of channel-wise competition: every second convolution keeps the class groups apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import nn

from goodness.errors import ConfigError
from goodness.nn.networks import Standardise
from goodness.parts import ImageFacts, NetworkPart, register_network

if TYPE_CHECKING:
    from goodness.config import Config


@register_network("cfse")
@dataclass(frozen=True, kw_only=True)
class Cfse(NetworkPart):
    """3x3 convolution, ReLU, batch norm, one a block; every second is grouped by class and halves the map."""

    channels: tuple[int, ...] = (20, 80, 240, 480)
    """Channels of each block."""
    groups: tuple[int, ...] = ()
    """Class groups of each block, for those that are grouped. Empty: one for each class."""

    def check(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ConfigError(f"network.channels needs a positive number for every block, got {self.channels}")
        if len(self.groups) not in (0, len(self.channels)):
            raise ConfigError(f"network.groups needs a number for each of {len(self.channels)} blocks")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        if len(shape) != 3:
            raise ConfigError(f"network cfse takes images, and this method enters {list(shape)}: --network mlp")
        blocks: list[nn.Module] = []
        for depth, (before, after) in enumerate(pairwise((shape[0], *self.channels))):
            is_grouped = depth % 2 == 1
            groups = (self.groups or (facts.classes,) * len(self.channels))[depth] if is_grouped else 1
            if groups < 1 or before % groups or after % groups:
                raise ConfigError(f"block {depth} has {before} to {after} network.channels, no multiples of {groups}")
            layers: list[nn.Module] = [Standardise(facts.mean, facts.std)] if shape == facts.shape and not depth else []
            layers += [nn.Conv2d(before, after, 3, padding=1, groups=groups), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if is_grouped else []
            blocks.append(nn.Sequential(*layers, nn.BatchNorm2d(after, eps=1e-4)))
        return blocks
