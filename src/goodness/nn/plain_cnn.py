"""The plain convolutional control: every block is a stage of two convolutions.

With the pixels as its stem and 64/128/256 channels it has 1.15 M parameters on colour images and ten classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.parts import BlockPart, register_block

if TYPE_CHECKING:
    from goodness.config import Config


@dataclass(frozen=True, kw_only=True)
class Stages(BlockPart):
    """A row of stages, one per block, each on half the map of the one before."""

    channels: tuple[int, ...]

    def idle(self, config: Config) -> list[tuple[str, str]]:
        beyond = range(config.model.blocks, len(self.channels))
        return [(f"channels[{stage}]", f"model.blocks is {config.model.blocks}") for stage in beyond]

    def channels_at(self, depth: int) -> int:
        if depth >= len(self.channels):
            raise ConfigError(
                f"model.blocks asks for block {depth + 1} and model.block.channels ends at {len(self.channels)}: "
                "give a number of channels for every block, or fewer blocks"
            )
        return self.channels[depth]


@dataclass(frozen=True, kw_only=True)
class Stage(BlockPart):
    """One of them. It has no name of its own: configurations hold the whole row."""

    channels: int

    def output_shape(self, width: int, grid: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        """The stage's channels, and half the grid, rounded up."""
        return self.channels, ((grid[0] + 1) // 2, (grid[1] + 1) // 2)


@register_block("conv-stages")
@dataclass(frozen=True, kw_only=True)
class ConvStages(Stages):
    """A plain CNN: two 3x3 convolutions and a halving of the map per block. Goes with `model.stem.kind pixels`."""

    ends_in_relu = True

    channels: tuple[int, ...] = (64, 128, 256)
    """Channels of every stage, one number per block."""

    def check(self) -> None:
        if not self.channels:
            raise ConfigError("model.block.channels is empty: give a number of channels for every block")
        if min(self.channels) < 1:
            raise ConfigError(f"model.block.channels must be at least 1 each, got {self.channels}")

    def at(self, depth: int) -> ConvStage:
        return ConvStage(channels=self.channels_at(depth))


@dataclass(frozen=True, kw_only=True)
class ConvStage(Stage):
    """One stage of `ConvStages`."""

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return ConvStageBody(width, self.channels, grid)


class ConvStageBody(nn.Module):
    """Twice (3x3 convolution, group norm, ReLU), then 2x2 max pooling: `[batch, H * W, C_in]` to fewer, wider tokens.

    Group norm, not batch norm: the streams of a step share a batch, so statistics across it would make a positive
    row's goodness depend on the negatives beside it. The tokens leave behind the ReLU, so that their mean square is
    Hinton's goodness.
    """

    def __init__(self, channels_in: int, channels: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)  # the norms bring the bias
        self.norm1 = nn.GroupNorm(norm_groups(channels), channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(norm_groups(channels), channels)

    def forward(self, tokens: Tensor) -> Tensor:
        # Both changes of layout are views: contiguous tokens are a map in channels-last order.
        hidden = tokens.transpose(1, 2).unflatten(2, self.grid)  # [batch, C_in, H, W]
        hidden = F.relu(self.norm1(self.conv1(hidden)))
        hidden = F.relu(self.norm2(self.conv2(hidden)))
        hidden = F.max_pool2d(hidden, 2, ceil_mode=True)  # an odd last row or column is pooled alone
        return hidden.flatten(2).transpose(1, 2)


def norm_groups(channels: int) -> int:
    """At most eight groups, of at least eight channels each where there are so many.

    A label added per channel is the same all over the map: a channel normalised alone would lose it again.
    """
    most = min(8, max(1, channels // 8))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)
