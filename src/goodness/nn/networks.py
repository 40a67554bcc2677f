"""Networks by name for any method: lists of plain blocks, from tensor to tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.block import between_blocks
from goodness.nn.network import build_stem, shapes_by_depth
from goodness.parts import ImageFacts, NetworkPart, register_network

if TYPE_CHECKING:
    from goodness.config import Config, Model


class Standardise(nn.Module):
    """Images in [0, 1] less the data's mean, over its deviation, channel by channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


class Body(nn.Module):
    """A body of the paper's backbone as a plain block: tokens in, tokens out, as they are handed on there."""

    def __init__(self, body: nn.Module, model: Model, stem: nn.Module | None = None) -> None:
        super().__init__()
        self.stem, self.body = stem, body
        self.way = model.activation, model.normalise, model.token_norm

    def forward(self, x: Tensor) -> Tensor:
        tokens = x if self.stem is None else self.stem(x)
        found = self.body(tokens)
        return between_blocks(found[0] if isinstance(found, tuple) else found, *self.way)


@register_network("backbone")
@dataclass(frozen=True, kw_only=True)
class Backbone(NetworkPart):
    """The paper's backbone, as `model.*` describes it: stem and bodies, without labels and goodness."""

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        if len(shape) != 3 or shape != facts.shape:
            raise ConfigError(
                f"network backbone takes images {list(facts.shape)}, and this method enters {list(shape)}: choose "
                "another --network"
            )
        model = config.model
        stem, width, grid = build_stem(model, (shape[0], shape[1], shape[2]))
        first = nn.Sequential(Standardise(facts.mean, facts.std), stem)
        shapes = shapes_by_depth(model, width, grid)
        bodies = [model.block.at(depth).build(*shapes[depth]) for depth in range(model.blocks)]
        return [Body(body, model, None if depth else first) for depth, body in enumerate(bodies)]


@register_network("mlp")
@dataclass(frozen=True, kw_only=True)
class Mlp(NetworkPart):
    """Linear layers with ReLU, one a block."""

    widths: tuple[int, ...] = (500, 500)
    """Units of each layer."""

    def check(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(f"network.widths needs a positive width for every block, got {self.widths}")

    def sizes(self, shape: tuple[int, ...]) -> list[int]:
        """Numbers that enter, and that each layer gives."""
        return [math.prod(shape), *self.widths]

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        sizes = self.sizes(shape)
        layers = [nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(sizes)]
        return [nn.Sequential(nn.Flatten(), *layers[0]), *layers[1:]]


@register_network("cnn")
@dataclass(frozen=True, kw_only=True)
class Cnn(NetworkPart):
    """3x3 convolutions with batch norm and ReLU, one a block; some halve the map by max pooling."""

    channels: tuple[int, ...] = (64, 128, 256)
    """Channels of each block."""
    pools: tuple[int, ...] = (0, 1, 2)
    """Blocks that end with 2x2 max pooling."""
    norm: bool = True
    """Batch normalisation behind each convolution."""

    def check(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ConfigError(f"network.channels needs a positive number for every block, got {self.channels}")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        if len(shape) != 3:
            raise ConfigError(f"network cnn takes images, and this method enters {list(shape)}: --network mlp")
        sizes = [shape[0], *self.channels]
        blocks = []
        for depth, (before, after) in enumerate(pairwise(sizes)):
            layers: list[nn.Module] = (
                [Standardise(facts.mean, facts.std)] if depth == 0 and shape == facts.shape else []
            )
            layers.append(nn.Conv2d(before, after, 3, padding=1, bias=not self.norm))
            layers += [nn.BatchNorm2d(after)] if self.norm else []
            layers.append(nn.ReLU())
            layers += [nn.MaxPool2d(2)] if depth in self.pools else []
            blocks.append(nn.Sequential(*layers))
        return blocks


def output_shapes(blocks: list[nn.Module], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What each block gives for one example of this shape, found by sending two through."""
    found: list[tuple[int, ...]] = []
    modes = [(module, module.training) for block in blocks for module in block.modules()]
    x: Any = torch.zeros(2, *shape)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for depth, block in enumerate(blocks):
            block.eval()
            try:
                x = block(x)
            except RuntimeError as trouble:
                given = list(found[-1] if found else shape)
                raise ConfigError(f"block {depth} cannot take {given}, which it is given: {trouble}") from trouble
            if not isinstance(x, Tensor) or len(x) != 2:
                raise ConfigError(
                    f"block {depth} must turn a tensor [batch, ...] into one, and gave {type(x).__name__}"
                )
            found.append(tuple(x.shape[1:]))
    for module, mode in modes:
        module.training = mode
    return found


def at(values: Sequence[Any], depth: int) -> Any:
    """A setting's value for a block; the last one stands for all blocks after it."""
    return values[min(depth, len(values) - 1)]


def halves(block: nn.Module) -> tuple[nn.Module, nn.Module]:
    """A block up to its last layer with weights, and what follows: its activation, its pooling."""
    if not isinstance(block, nn.Sequential):
        return block, nn.Identity()
    cut = 0
    for place, layer in enumerate(block, 1):
        if list(layer.parameters()):
            cut = place
    return block[:cut], block[cut:]


def features(x: Tensor) -> Tensor:
    """`[batch, width]` of a block's output: the mean of a map `[batch, width, H, W]` or tokens `[batch, n, width]`."""
    if x.dim() == 4:
        return x.mean(dim=(2, 3))
    return x.mean(dim=1) if x.dim() == 3 else x.flatten(1)


def feature_width(shape: tuple[int, ...]) -> int:
    """How many features a block of this output shape has."""
    return shape[0] if len(shape) == 3 else shape[-1]
