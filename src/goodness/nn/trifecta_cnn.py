"""The Trifecta paper's network: batch normalisation in front of every convolution."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import nn

from goodness.errors import ConfigError
from goodness.parts import ImageFacts, NetworkPart, register_network

if TYPE_CHECKING:
    from goodness.config import Config


@register_network("trifecta-cnn")
@dataclass(frozen=True, kw_only=True)
class TrifectaCnn(NetworkPart):
    """Batch normalisation, 3x3 convolution without bias, ReLU, one a block; some halve the map by max pooling."""

    channels: tuple[int, ...] = (64, *[128] * 4, *[256] * 4, *[512] * 3)
    """Channels of each block."""
    pools: tuple[int, ...] = (1, 5, 9)
    """Blocks that end with 2x2 max pooling."""

    def check(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ConfigError(f"network.channels needs a positive number for every block, got {self.channels}")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        if len(shape) != 3:
            raise ConfigError(f"network trifecta-cnn takes images, and this method enters {list(shape)}: --network mlp")
        blocks = []
        for depth, (before, after) in enumerate(pairwise([shape[0], *self.channels])):
            layers = [nn.BatchNorm2d(before), nn.Conv2d(before, after, 3, padding=1, bias=False), nn.ReLU()]
            blocks.append(nn.Sequential(*layers, *([nn.MaxPool2d(2)] if depth in self.pools else [])))
        return blocks
