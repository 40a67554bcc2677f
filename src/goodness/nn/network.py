"""The network: a stem and a row of Forward-Forward blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from goodness.nn.block import FFBlock, hand_on
from goodness.nn.stem import ConvStem, PixelStem, VectorStem, fitting_patch, token_grid
from goodness.parts import Term

if TYPE_CHECKING:
    from goodness.config import Model


def build_stem(config: Model, shape: tuple[int, int, int]) -> tuple[nn.Module, int, tuple[int, int]]:
    """The stem for images of this shape, and the width and grid of the tokens it gives."""
    channels, height, width = shape
    if config.stem.kind == "pixels":
        return PixelStem(), channels, (height, width)
    if config.stem.kind == "vector":
        stem = VectorStem(channels * height * width, config.stem.tokens, config.width)
        return stem, config.width, (1, config.stem.tokens)
    patch = config.stem.patch or fitting_patch(height, width)
    stem = ConvStem(channels, config.stem.channels, config.width, patch)
    return stem, config.width, token_grid(height, width, patch)


def shapes_by_depth(config: Model, width: int, grid: tuple[int, int]) -> list[tuple[int, tuple[int, int]]]:
    """Width and grid of what every block takes in, and last of what the deepest gives."""
    shapes = [(width, grid)]
    for depth in range(config.blocks):
        shapes.append(config.block.at(depth).output_shape(*shapes[-1]))
    return shapes


class Stemmed(nn.Module):
    """Images of one shape and a number of classes, standardised and turned into tokens; what follows is built on it."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: Model,
        shape: tuple[int, int, int],
        classes: int,
        mean: tuple[float, ...] | None,
        std: tuple[float, ...] | None,
    ) -> None:
        super().__init__()
        channels = shape[0]
        self.config, self.shape, self.classes = config, shape, classes
        self.class_names = tuple(str(label) for label in range(classes))
        self.register_buffer("mean", torch.tensor(mean or (0.0,) * channels).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std or (1.0,) * channels).reshape(1, -1, 1, 1))
        self.stem, width, self.grid = build_stem(config, shape)
        self.shapes = shapes_by_depth(config, width, self.grid)

    def tokens(self, images: Tensor) -> Tensor:
        """Images in [0, 1] to the stem's tokens."""
        return self.stem((images - self.mean) / self.std)

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


class Network(Stemmed):
    """Stem and blocks for images of one shape and a number of classes.

    Parameters are grouped by who trains them: `owned(d)` is block d's, the stem belongs to block 0.
    """

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
        super().__init__(config, shape, classes, mean, std)
        blocks = []
        for depth in range(config.blocks):
            injects = config.label_at == "every" or depth == 0
            (width, grid), (width_out, _) = self.shapes[depth], self.shapes[depth + 1]
            block = FFBlock(
                label=config.label.build(width_out if config.label.is_late else width, classes) if injects else None,
                body=config.block.at(depth).build(width, grid),
                head=config.goodness.build(width_out, classes),
                is_late=config.label.is_late,
            )
            for name, term in (terms or {}).items():
                if not term.acts_at(depth, config.blocks):
                    continue
                extra = term.module_for(width_out, len(block.head.names), classes)
                if extra is not None:
                    block.extras[name] = extra
            blocks.append(block)
        self.blocks = nn.ModuleList(blocks)
        if config.warm_start:
            self._start_alike()

    def _start_alike(self) -> None:
        """Give every block the first one's initial weights, wherever they fit."""
        first = self.blocks[0].state_dict()
        for block in self.blocks:
            mine = block.state_dict()
            fitting = {name: value for name, value in first.items() if name in mine and mine[name].shape == value.shape}
            block.load_state_dict(fitting, strict=False)

    def block(self, depth: int) -> FFBlock:
        return self.blocks[depth]  # type: ignore[return-value]

    def hand_on(self, tokens: Tensor) -> Tensor:
        return hand_on(tokens, self.config.activation, self.config.normalise, self.config.token_norm)

    def owned(self, depth: int) -> dict[str, nn.Parameter]:
        """The parameters that block `depth`'s own optimiser trains, by name."""
        own = {f"blocks.{depth}.{name}": value for name, value in self.blocks[depth].named_parameters()}
        if depth == 0:
            own |= {f"stem.{name}": value for name, value in self.stem.named_parameters()}
        return own
