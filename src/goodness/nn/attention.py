"""Self-attention with axial rotary positions, and pooling by one learned query."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness import kernels

NORM_EPSILON = 1e-6


class RMSNorm(nn.Module):
    """x / rms(x) * scale, over the last dimension, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.scale.to(x.dtype), NORM_EPSILON)


def widen(x: Tensor) -> Tensor:
    """At least float32, for sums that bfloat16 would blur; float64 stays as it is, so that tests in it mean it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def axial_angles(grid: tuple[int, int], head_width: int, base: float = 100.0) -> Tensor:
    """Angles `[tokens, head_width / 2]`: half of the frequencies turn with the row, half with the column."""
    rows, columns = grid
    count = head_width // 4
    frequencies = base ** (-torch.arange(count, dtype=torch.float64) / count)
    down = torch.arange(rows, dtype=torch.float64).repeat_interleave(columns)
    right = torch.arange(columns, dtype=torch.float64).repeat(rows)
    return torch.cat([down[:, None] * frequencies, right[:, None] * frequencies], dim=1)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs (x_i, x_{i + half}) by their angles; norms and relative positions are what stays."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class SelfAttention(nn.Module):
    """Multi-head attention without a mask (the fused kernels need none, and some break with one)."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, width: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        angles = axial_angles(grid, width // heads)
        self.register_buffer("cosine", angles.cos().float(), persistent=False)
        self.register_buffer("sine", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(self.qkv(x)))

    def mix(self, qkv: Tensor) -> Tensor:
        """`[batch, tokens, 3 * width]`, query, key and value side by side, to `[batch, tokens, width]`."""
        if kernels.are_used(qkv):
            from goodness.kernels.short_attention import serves, short_attention

            if serves(qkv, self.heads):
                return short_attention(qkv.contiguous(), self.cosine.float(), self.sine.float(), self.heads)
        return self.mix_plainly(qkv)

    def mix_plainly(self, qkv: Tensor) -> Tensor:
        batch, tokens, wide = qkv.shape
        qkv = qkv.reshape(batch, tokens, 3, self.heads, wide // (3 * self.heads))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, tokens, head width]
        cosine, sine = self.cosine.to(query.dtype), self.sine.to(query.dtype)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return mixed.transpose(1, 2).reshape(batch, tokens, wide // 3)


class AttentionPool(nn.Module):
    """One learned query weighs the tokens: `[batch, tokens, width]` to `[batch, width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.query = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = (self.norm(tokens) * self.query.to(tokens.dtype)).sum(dim=-1, keepdim=True)
        return (widen(scores).softmax(dim=1).to(tokens.dtype) * tokens).sum(dim=1)

    def with_energy(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the mean square of the tokens, `[batch]`, from one reading of them where that can be had."""
        if kernels.are_used(tokens):
            from goodness.kernels.pool import pool, serves

            if serves(tokens):
                return pool(tokens.contiguous(), self.norm.scale * self.query, NORM_EPSILON)
        return self(tokens), widen(tokens).square().mean(dim=(1, 2))
