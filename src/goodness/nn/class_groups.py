"""Channels in groups, one for each class."""

from __future__ import annotations

from torch import Tensor

from goodness.errors import ConfigError
from goodness.nn.networks import feature_width


def class_groups(x: Tensor, groups: int) -> Tensor:
    """`[batch, groups, values]` float32: a block's channels in consecutive groups, at all positions."""
    channels_first = x.mT if x.dim() == 3 else x  # of tokens [batch, n, width]
    return channels_first.float().reshape(len(x), groups, -1)


def require_class_groups(depth: int, shape: tuple[int, ...], groups: int, classes: int) -> None:
    """Refuse a block whose channels do not divide into its groups, and groups that do not divide the classes."""
    if groups < 1 or classes % groups:
        raise ConfigError(f"block {depth}: {classes} classes do not divide into {groups} groups of equal size")
    if feature_width(shape) % groups:
        raise ConfigError(
            f"block {depth} has {feature_width(shape)} channels, which do not divide into {groups} groups of classes: "
            "give a multiple (--network.channels, --network.width, --network.widths or --model.width)"
        )
