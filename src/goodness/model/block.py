"""A Forward-Forward block: label in, tokens through, goodness out. Whatever learns in it is its own."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from goodness.model.attention import widen


class BlockOutput(NamedTuple):
    """tokens `[batch, tokens, width]`, aspects `[batch, A]`, goodness `[batch]`, pooled `[batch, width]`."""

    tokens: Tensor
    aspects: Tensor
    goodness: Tensor
    pooled: Tensor


class FFBlock(nn.Module):
    """label injection (if it has one) -> body -> goodness head. `extras` holds what the objective's terms learn."""

    def __init__(self, label: nn.Module | None, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.label = label
        self.body = body
        self.head = head
        self.extras = nn.ModuleDict()

    def forward(self, tokens: Tensor, labels: Tensor) -> BlockOutput:
        if self.label is not None:
            tokens = self.label(tokens, labels)
        tokens = self.body(tokens)
        aspects, goodness, pooled = self.head(tokens, labels)
        return BlockOutput(tokens, aspects, goodness, pooled)

    def score(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The goodness alone."""
        return self(tokens, labels).goodness

    def neutral_features(self, tokens: Tensor) -> Tensor:
        """Pooled features of a pass that no label entered."""
        tokens = self.body(tokens)
        return self.head(tokens, tokens.new_zeros(len(tokens)).long())[2]


def hand_on(tokens: Tensor, relu: bool, normalise: bool) -> Tensor:
    """What the next block receives: detached, ReLU, each token scaled to norm width^(1/4).

    The norm is taken away so that a block cannot read the earlier blocks' energy off its input.
    """
    tokens = tokens.detach()
    if relu:
        tokens = F.relu(tokens)
    if normalise:
        tokens = F.normalize(widen(tokens), dim=-1, eps=1e-6).to(tokens.dtype) * tokens.shape[-1] ** 0.25
    return tokens
