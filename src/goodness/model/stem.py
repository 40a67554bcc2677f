"""The stem: images to tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def token_grid(height: int, width: int, patch: int) -> tuple[int, int]:
    """Rows and columns of tokens: the stem halves the image, patches divide what is left (rounded up)."""
    halve = lambda side: (side + 1) // 2  # noqa: E731
    return -(-halve(height) // patch), -(-halve(width) // patch)


def fitting_patch(height: int, width: int) -> int:
    """The smallest patch that leaves at most eight tokens a side: 2 for 32x32, 4 for 64x64, 1 for 8x8."""
    return max(1, -(-((max(height, width) + 1) // 2) // 8))


class PixelStem(nn.Module):
    """No stem: `[batch, C, H, W]` to `[batch, H * W, C]`, a token per pixel. Nothing to learn."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).transpose(1, 2)


class ConvStem(nn.Module):
    """3x3 convolution, 3x3 convolution of stride 2, patch embedding; `[batch, C, H, W]` to `[batch, tokens, width]`.

    The first convolution has a quarter of the channels: two at full width would cost more than four blocks.
    """

    def __init__(self, channels_in: int, channels: int, width: int, patch: int) -> None:
        super().__init__()
        narrow = max(1, channels // 4)
        self.patch_size = patch
        self.conv1 = nn.Conv2d(channels_in, narrow, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(_groups(narrow), narrow)
        self.conv2 = nn.Conv2d(narrow, channels, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(_groups(channels), channels)
        self.patch = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.gelu(self.norm1(self.conv1(images)))
        hidden = F.gelu(self.norm2(self.conv2(hidden)))
        down, right = -hidden.shape[2] % self.patch_size, -hidden.shape[3] % self.patch_size
        if down or right:
            hidden = F.pad(hidden, (0, right, 0, down))
        return self.patch(hidden).flatten(2).transpose(1, 2)


def _groups(channels: int) -> int:
    """The largest divisor up to 8, for group normalisation."""
    return next(groups for groups in range(min(8, channels), 0, -1) if channels % groups == 0)
