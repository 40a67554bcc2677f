"""Label injection: how a label hypothesis enters the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from goodness.parts import LabelPart, register_label


@register_label("scale")
@dataclass(frozen=True, kw_only=True)
class Scale(LabelPart):
    """Every token is multiplied by one plus a learned vector of the label.

    The goodness needs the product of image and label; addition has to learn it first (docs/decisions.md).
    """

    std: float = 1.0
    """Spread of the label vectors at the start."""

    def build(self, width: int, classes: int) -> nn.Module:
        return ScaleLabel(width, classes, self.std)


class ScaleLabel(nn.Module):
    def __init__(self, width: int, classes: int, std: float) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(classes, width) * std)

    def factors(self) -> Tensor:
        """What each label multiplies the features by, `[classes, width]`."""
        return 1 + self.vectors

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return tokens * self.factors()[labels].unsqueeze(1).to(tokens.dtype)


@register_label("late")
@dataclass(frozen=True, kw_only=True)
class Late(Scale):
    """As `scale`, behind the block's body: tokens never see a label, and prediction needs one pass for all of them."""

    is_late: ClassVar[bool] = True


@register_label("add")
@dataclass(frozen=True, kw_only=True)
class Add(LabelPart):
    """A learned embedding of the label is added to every token."""

    std: float = 0.5
    """Spread of the label embeddings at the start."""

    def build(self, width: int, classes: int) -> nn.Module:
        return AddLabel(width, classes, self.std)


class AddLabel(nn.Module):
    def __init__(self, width: int, classes: int, std: float) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(classes, width) * std)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return tokens + self.vectors[labels].unsqueeze(1).to(tokens.dtype)
