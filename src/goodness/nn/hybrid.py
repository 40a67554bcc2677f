"""The paper's block: attention, an optional look into a memory, and a feed-forward layer, dense or of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.attention import RMSNorm, SelfAttention
from goodness.nn.feedforward import GEGLU
from goodness.nn.memory import MemoryAttention
from goodness.nn.moe import MixtureOfExperts
from goodness.parts import BlockPart, register_block

if TYPE_CHECKING:
    from goodness.config import Config


@register_block("hybrid")
@dataclass(frozen=True, kw_only=True)
class Hybrid(BlockPart):
    """Rotary self-attention, then GEGLU; each behind a norm and beside a residual."""

    heads: int = 8
    """Attention heads."""
    hidden: int = 704
    """Hidden width of the feed-forward layer, or of each expert."""
    experts: int = 1
    """Experts of the feed-forward layer; 1 is the dense layer."""
    top_k: int = 1
    """Experts that a token goes through."""
    memory: int = 0
    """Learned memory slots that tokens attend to after each other; 0 switches memory and sharpness off."""

    def check(self) -> None:
        for name in ("heads", "hidden", "experts", "top_k"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.block.{name} must be at least 1, got {getattr(self, name)}")
        if self.top_k > self.experts:
            raise ConfigError(f"model.block.top_k {self.top_k} is more than model.block.experts {self.experts}")
        if self.memory < 0 or self.memory == 1:
            raise ConfigError(f"model.block.memory must be 0 or at least 2 slots, got {self.memory}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        return [("top_k", "the layer is dense (experts is 1)")] if self.experts == 1 else []

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        if width % (4 * self.heads):
            raise ConfigError(
                f"model.width {width} must be a multiple of four times model.block.heads ({self.heads}): "
                "rotary positions turn rows and columns in pairs"
            )
        return HybridBody(self, width, grid)


class HybridBody(nn.Module):
    """`[batch, tokens, width]` to the same, with notes of the router's choices and the memory's sharpness."""

    def __init__(self, part: Hybrid, width: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = SelfAttention(width, part.heads, grid)
        self.memory_norm = RMSNorm(width) if part.memory else None
        self.memory = MemoryAttention(width, part.heads, part.memory) if part.memory else None
        self.feedforward_norm = RMSNorm(width)
        if part.experts > 1:
            self.feedforward = MixtureOfExperts(width, part.hidden, part.experts, part.top_k)
        else:
            self.feedforward = GEGLU(width, part.hidden)
        self.gives = ("sharpness",) if part.memory else ()

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        notes: dict[str, Tensor] = {}
        tokens = tokens + self.attention(self.attention_norm(tokens))
        if self.memory is not None and self.memory_norm is not None:
            remembered, notes["sharpness"] = self.memory(self.memory_norm(tokens))
            tokens = tokens + remembered
        if isinstance(self.feedforward, MixtureOfExperts):
            mixed, routing = self.feedforward(self.feedforward_norm(tokens))
            notes |= {f"router_{name}": value for name, value in routing._asdict().items()}
            return tokens + mixed, notes
        return self.feedforward.beside(tokens, self.feedforward_norm), notes
