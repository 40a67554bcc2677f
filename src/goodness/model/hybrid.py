"""The paper's block, dense: attention and GEGLU, each behind a norm and beside a residual."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.model.attention import RMSNorm, SelfAttention
from goodness.model.feedforward import GEGLU
from goodness.parts import BlockPart, register_block


@register_block("hybrid")
@dataclass(frozen=True, kw_only=True)
class Hybrid(BlockPart):
    """Rotary self-attention, then a GEGLU feed-forward layer."""

    heads: int = 8
    """Attention heads."""
    hidden: int = 704
    """Hidden width of the feed-forward layer."""

    def check(self) -> None:
        if self.heads < 1 or self.hidden < 1:
            raise ConfigError(
                f"model.block.heads and model.block.hidden must be at least 1, got {self.heads}, {self.hidden}"
            )

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        if width % (4 * self.heads):
            raise ConfigError(
                f"model.width {width} must be a multiple of four times model.block.heads ({self.heads}): "
                "rotary positions turn rows and columns in pairs"
            )
        return HybridBody(width, self.heads, self.hidden, grid)


class HybridBody(nn.Module):
    """`[batch, tokens, width]` to the same."""

    def __init__(self, width: int, heads: int, hidden: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = SelfAttention(width, heads, grid)
        self.feedforward_norm = RMSNorm(width)
        self.feedforward = GEGLU(width, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        return tokens + self.feedforward(self.feedforward_norm(tokens))
