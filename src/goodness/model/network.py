"""The network: a stem and a row of Forward-Forward blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from goodness.model.block import FFBlock, hand_on
from goodness.model.stem import ConvStem, fitting_patch, token_grid
from goodness.parts import Term

if TYPE_CHECKING:
    from goodness.config import Model


class Network(nn.Module):
    """Stem and blocks for images of one shape and a number of classes.

    Parameters are grouped by who trains them: `owned(d)` is block d's, the stem belongs to block 0.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: Model,
        shape: tuple[int, int, int],
        classes: int,
        *,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        terms: Mapping[str, Term] | None = None,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        self.config, self.shape, self.classes = config, shape, classes
        self.class_names = tuple(str(label) for label in range(classes))
        patch = config.stem.patch or fitting_patch(height, width)
        self.grid = token_grid(height, width, patch)
        self.register_buffer("mean", torch.tensor(mean or (0.0,) * channels).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std or (1.0,) * channels).reshape(1, -1, 1, 1))
        self.stem = ConvStem(channels, config.stem.channels, config.width, patch)
        blocks = []
        for depth in range(config.blocks):
            injects = config.label_at == "every" or depth == 0
            block = FFBlock(
                label=config.label.build(config.width, classes) if injects else None,
                body=config.block.build(config.width, self.grid),
                head=config.goodness.build(config.width, classes),
            )
            for name, term in (terms or {}).items():
                if term.coefficient(depth, config.blocks) == 0:
                    continue
                extra = term.module(config.width, len(block.head.names))
                if extra is not None:
                    block.extras[name] = extra
            blocks.append(block)
        self.blocks = nn.ModuleList(blocks)

    def block(self, depth: int) -> FFBlock:
        return self.blocks[depth]  # type: ignore[return-value]

    def tokens(self, images: Tensor) -> Tensor:
        """Images in [0, 1] to the stem's tokens."""
        return self.stem((images - self.mean) / self.std)

    def hand_on(self, tokens: Tensor) -> Tensor:
        return hand_on(tokens, self.config.activation, self.config.normalise)

    def owned(self, depth: int) -> dict[str, nn.Parameter]:
        """The parameters that block `depth`'s own optimiser trains, by name."""
        own = {f"blocks.{depth}.{name}": value for name, value in self.blocks[depth].named_parameters()}
        if depth == 0:
            own |= {f"stem.{name}": value for name, value in self.stem.named_parameters()}
        return own

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
