"""The attentive readout of Stage 2 (the paper's AttentiveHybridHead): label hypotheses compared with each other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.attention import RMSNorm
from goodness.nn.feedforward import GEGLU


class HypothesisAttention(nn.Module):
    """Multi-head attention over `[batch, classes, width]` without positions: hypotheses are a set, not a row."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, classes, width = x.shape
        qkv = self.qkv(x).reshape(batch, classes, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, classes, head width]
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, classes, width))


class AttentiveReadout(nn.Module):
    """Features of every hypothesis `[batch, classes, features]` to logits `[batch, classes]`.

    No parameter belongs to a class: renumbering the classes renumbers the logits, and any number of them will do.
    So all that tells one class from another must be in the features, that is in what the blocks learned.
    """

    def __init__(self, features: int, width: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ConfigError(
                f"readout.width {width} must be a multiple of readout.heads ({heads}), which is 1 or more"
            )
        self.embed = nn.Sequential(RMSNorm(features), nn.Linear(features, width), nn.GELU())
        self.attention_norm = RMSNorm(width)
        self.attention = HypothesisAttention(width, heads)
        self.feedforward_norm = RMSNorm(width)
        self.feedforward = GEGLU(width, width)
        # No bias: added to all logits of an image alike, it would change no softmax and drift on rounding errors.
        self.logit = nn.Linear(width, 1, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.embed(features)
        hidden = hidden + self.attention(self.attention_norm(hidden))
        hidden = hidden + self.feedforward(self.feedforward_norm(hidden))
        return self.logit(hidden).squeeze(-1)
