"""Memory cross-attention: tokens look into learned slots, and how sharply they look is an aspect of the goodness."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from goodness.nn.attention import widen


class MemoryAttention(nn.Module):
    """`[batch, tokens, width]` to the same, and the sharpness `[batch]`.

    Sharpness is one minus the normalised entropy of the attention over the slots, averaged over heads and tokens:
    0 when a token looks everywhere alike, 1 when it looks at one slot.
    """

    def __init__(self, width: int, heads: int, slots: int) -> None:
        super().__init__()
        self.heads, self.slots = heads, slots
        self.memory = nn.Parameter(torch.randn(slots, width) * width**-0.5)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, tokens, width = x.shape
        per_head = width // self.heads
        query = self.query(x).reshape(batch, tokens, self.heads, per_head).transpose(1, 2)
        key, value = self.key_value(self.memory).reshape(self.slots, 2, self.heads, per_head).permute(1, 2, 0, 3)
        attention = widen(query @ key.transpose(-1, -2) * per_head**-0.5).softmax(dim=-1)
        entropy = -torch.special.xlogy(attention, attention).sum(dim=-1)
        sharpness = 1 - entropy.mean(dim=(1, 2)) / math.log(self.slots)
        mixed = (attention.to(value.dtype) @ value).transpose(1, 2).reshape(batch, tokens, width)
        return self.out(mixed), sharpness
