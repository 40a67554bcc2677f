"""The stem: images to tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness import kernels


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


class VectorStem(nn.Module):
    """One linear map of all numbers, `[batch, C, H, W]` to `[batch, tokens, width]`: for embedded texts, without a
    grid."""

    def __init__(self, numbers: int, tokens: int, width: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = nn.Linear(numbers, tokens * width)

    def forward(self, images: Tensor) -> Tensor:
        return self.project(images.flatten(1)).unflatten(1, (self.tokens, -1))


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
        if kernels.are_used(images):
            return self.channels_last(images.to(kernels.computed_in(images)))
        hidden = F.gelu(self.norm1(self.conv1(images)))
        hidden = F.gelu(self.norm2(self.conv2(hidden)))
        down, right = -hidden.shape[2] % self.patch_size, -hidden.shape[3] % self.patch_size
        if down or right:
            hidden = F.pad(hidden, (0, right, 0, down))
        return self.patch(hidden).flatten(2).transpose(1, 2)

    def channels_last(self, images: Tensor) -> Tensor:
        """The same with channels last throughout, the way the GPU likes it: the first convolution, of few channels,
        and the patches, which do not overlap, are plain matrix products; normalisation and GELU are one kernel.
        """
        from goodness.kernels.convolution import convolve
        from goodness.kernels.group_norm import group_norm_gelu

        batch, _, height, width = images.shape
        kind, size = images.dtype, self.patch_size
        weight = self.conv1.weight.flatten(1).to(kind)
        spare = -weight.shape[1] % 8  # rows of whole 16 bytes
        hidden = F.linear(F.pad(neighbourhoods(images), (0, spare)), F.pad(weight, (0, spare)))
        hidden = group_norm_gelu(hidden, self.norm1.weight, self.norm1.bias, self.norm1.num_groups, self.norm1.eps)
        hidden = convolve(hidden.reshape(batch, height, width, -1), self.conv2.weight.to(kind), 2, 1)
        (rows, columns), channels = hidden.shape[1:3], hidden.shape[3]
        hidden = hidden.reshape(batch, rows * columns, channels)
        of_norm = self.norm2.weight, self.norm2.bias, self.norm2.num_groups, self.norm2.eps
        if rows % size == 0 and columns % size == 0:
            patches = group_norm_gelu(hidden, *of_norm, across=columns, patch=size)
            rows, columns = rows // size, columns // size
        else:
            hidden = group_norm_gelu(hidden, *of_norm).reshape(batch, rows, columns, channels)
            hidden = F.pad(hidden, (0, 0, 0, -columns % size, 0, -rows % size))
            rows, columns = hidden.shape[1] // size, hidden.shape[2] // size
            patches = hidden.reshape(batch, rows, size, columns, size, channels).transpose(2, 3)
        weight = self.patch.weight.permute(0, 2, 3, 1).flatten(1).to(kind)
        bias = None if self.patch.bias is None else self.patch.bias.to(kind)
        return F.linear(patches.reshape(batch, rows * columns, size * size * channels), weight, bias)


def neighbourhoods(images: Tensor) -> Tensor:
    """`[batch, C, H, W]` to `[batch, H * W, C * 9]`: every pixel's 3x3 neighbourhood, zeros beyond the edge."""
    height, width = images.shape[2:]
    padded = F.pad(images, (1, 1, 1, 1))
    shifted = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return torch.stack(shifted, dim=2).flatten(1, 2).flatten(2).transpose(1, 2)


def _groups(channels: int) -> int:
    """The largest divisor up to 8, for group normalisation."""
    return next(groups for groups in range(min(8, channels), 0, -1) if channels % groups == 0)
