"""Residual convolutional stages: every block halves the map and widens it. Made for late labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.plain_cnn import Stage, Stages, norm_groups
from goodness.parts import register_block

Norm = Literal["batch", "group"]


@register_block("pyramid")
@dataclass(frozen=True, kw_only=True)
class Pyramid(Stages):
    """3x3 convolutions with a residual, each block on half the map of the one before. Goes with `model.stem.kind
    pixels` and `model.label late`.
    """

    channels: tuple[int, ...] = (256, 512, 768)
    """Channels of every block, one number each."""
    convolutions: int = 3
    """Convolutions of a block; the first widens, the others stand beside a residual."""
    entry: int = 64
    """Channels of one more convolution in front of the first block's, on the whole image; 0 has none."""
    norm: Norm = "batch"
    """Normalisation: over the batch, which asks for late labels (no label enters what it averages), or in groups."""

    def check(self) -> None:
        if not self.channels:
            raise ConfigError("model.block.channels is empty: give a number of channels for every block")
        if min(self.channels) < 1 or self.convolutions < 1 or self.entry < 0:
            raise ConfigError(
                "model.block needs at least 1 channel and convolution each and an entry of 0 or more; got "
                f"channels={self.channels}, convolutions={self.convolutions}, entry={self.entry}"
            )

    def check_model(self, model: Any) -> None:
        if self.norm == "batch" and not model.label.is_late:
            raise ConfigError(
                f"model.block.norm batch averages over the streams of a step, which model.label '{model.label.kind}' "
                "tells apart, so that a positive's goodness would depend on the negatives beside it: give "
                "--model.label late or --model.block.norm group"
            )

    def at(self, depth: int) -> PyramidStage:
        entry = self.entry if depth == 0 else 0
        return PyramidStage(
            channels=self.channels_at(depth), convolutions=self.convolutions, entry=entry, norm=self.norm
        )


@dataclass(frozen=True, kw_only=True)
class PyramidStage(Stage):
    """One block of a `Pyramid`."""

    convolutions: int
    entry: int
    norm: Norm

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return PyramidBody(self, width, grid)


class PyramidBody(nn.Module):
    """`[batch, H * W, C_in]` to a quarter of the tokens, `channels` wide, behind a GELU.

    The first convolution's map is pooled before its norm and activation: a quarter of the numbers go through them.
    """

    def __init__(self, stage: PyramidStage, width: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.entry: nn.Conv2d | None = None
        if stage.entry:
            self.entry, self.entry_norm = _convolution(width, stage.entry), _norm(stage.norm, stage.entry)
        widths = [stage.entry or width, *[stage.channels] * stage.convolutions]
        self.convolutions = nn.ModuleList(_convolution(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(_norm(stage.norm, stage.channels) for _ in self.convolutions)

    def forward(self, tokens: Tensor) -> Tensor:
        # Both changes of layout are views: contiguous tokens are a map in channels-last order.
        hidden = tokens.transpose(1, 2).unflatten(2, self.grid)  # [batch, C_in, H, W]
        if self.entry is not None:
            hidden = F.gelu(self.entry_norm(self.entry(hidden)))
        first, *others = zip(self.convolutions, self.norms)
        hidden = F.max_pool2d(first[0](hidden), 2, ceil_mode=True)  # an odd last row or column is pooled alone
        hidden = beside = F.gelu(first[1](hidden))
        for number, (convolution, norm) in enumerate(others, 1):
            hidden = norm(convolution(hidden))
            hidden = F.gelu(hidden + beside if number == len(others) else hidden)
        return hidden.flatten(2).transpose(1, 2)


def _convolution(channels_in: int, channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)  # the norms bring the bias


def _norm(kind: Norm, channels: int) -> nn.Module:
    """Batch statistics follow over some twenty steps."""
    if kind == "group":
        return nn.GroupNorm(norm_groups(channels), channels)
    return nn.BatchNorm2d(channels, momentum=0.05)
