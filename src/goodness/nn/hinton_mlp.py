"""The network of Hinton's Forward-Forward on MNIST, as loeweX's port has it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from goodness.nn.networks import Mlp
from goodness.parts import ImageFacts, register_network

if TYPE_CHECKING:
    from goodness.config import Config


class _FullGradientRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.relu()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class FullGradientRelu(nn.Module):
    """ReLU whose backward pass lets the whole gradient through.

    A goodness of squares has no gradient at a unit that is off, so for it nothing changes. Peer normalisation can
    switch such a unit on again.
    """

    def forward(self, x: Tensor) -> Tensor:
        return _FullGradientRelu.apply(x)  # type: ignore[return-value]


@register_network("hinton-mlp")
@dataclass(frozen=True, kw_only=True)
class HintonMlp(Mlp):
    """Linear layers with a full-gradient ReLU; weights from N(0, 1 / sqrt(width)), biases 0."""

    widths: tuple[int, ...] = (1000, 1000, 1000)

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        blocks: list[nn.Module] = []
        for before, after in pairwise(self.sizes(shape)):
            layer = nn.Linear(before, after)
            nn.init.normal_(layer.weight, std=after**-0.5)
            nn.init.zeros_(layer.bias)
            blocks.append(nn.Sequential(*([] if blocks else [nn.Flatten()]), layer, FullGradientRelu()))
        return blocks
