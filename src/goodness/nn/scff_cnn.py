"""The network of self-contrastive Forward-Forward: three convolutions, triangle activation, overlapping pooling."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.networks import at
from goodness.parts import ImageFacts, NetworkPart, register_network

if TYPE_CHECKING:
    from goodness.config import Config


class Triangle(nn.Module):
    """`relu(x - mean over channels)`."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(dim=1, keepdim=True)).relu()


@register_network("scff-cnn")
@dataclass(frozen=True, kw_only=True)
class ScffCnn(NetworkPart):
    """Convolutions with reflected borders, one a block, then the triangle and 4x4 max pooling with stride 2; after the
    last, ReLU and 2x2 average pooling."""

    channels: tuple[int, ...] = (96, 384, 1536)
    """Channels of each block."""
    kernels: tuple[int, ...] = (5, 3)
    """Side of each block's filters; the last one is for all after it too."""

    def check(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ConfigError(f"network.channels needs a positive number for every block, got {self.channels}")
        if not self.kernels or not all(side > 0 and side % 2 for side in self.kernels):
            raise ConfigError(f"network.kernels needs odd sides, got {self.kernels}")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        if len(shape) != 3:
            raise ConfigError(f"network scff-cnn takes images, and this method enters {list(shape)}: --network mlp")
        sizes, blocks = [shape[0], *self.channels], []
        for depth, (before, after) in enumerate(pairwise(sizes)):
            side = at(self.kernels, depth)
            convolution = nn.Conv2d(before, after, side, padding=side // 2, padding_mode="reflect")
            nn.init.xavier_uniform_(convolution.weight)
            is_last = depth + 1 == len(self.channels)
            rest = [nn.ReLU(), nn.AvgPool2d(2)] if is_last else [Triangle(), nn.MaxPool2d(4, stride=2, padding=1)]
            blocks.append(nn.Sequential(convolution, *rest))
        return blocks
