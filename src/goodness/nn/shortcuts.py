"""The networks of DeeperForward: stages of convolutions with shortcuts, and a small one without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from torch import nn

from goodness.errors import ConfigError
from goodness.parts import ImageFacts, NetworkPart, register_network

if TYPE_CHECKING:
    from goodness.config import Config


class Shortcut(NamedTuple):
    """What a block does with the shortcut, which a method passes along beside the chain of blocks."""

    joins: Literal["none", "add", "concat"] = "none"
    """How the shortcut joins the block's output."""
    keeps: bool = False
    """Whether the output, joined, is the shortcut from here on."""
    halves: bool = False
    """Whether the shortcut's map is halved by average pooling, as the next block's is by its stride."""


NO_SHORTCUT = Shortcut()


class Convolution(nn.Sequential):
    """A convolution without bias, Kaiming-initialised by fan-out, and its part in a shortcut."""

    def __init__(
        self, before: int, after: int, kernel: int = 3, stride: int = 1, pool: int = 1, shortcut: Shortcut = NO_SHORTCUT
    ) -> None:
        convolution = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        super().__init__(*([nn.AvgPool2d(pool)] if pool > 1 else []), convolution, nn.ReLU())
        self.shortcut = shortcut


@register_network("shortcut-cnn")
@dataclass(frozen=True, kw_only=True)
class ShortcutCnn(NetworkPart):
    """A convolution, then stages of four; of each stage the second adds the shortcut and the fourth concatenates it.

    The next stage so has twice the channels, and half the map. Method deeperforward passes the shortcut along.
    """

    width: int = 100
    """Channels of the first stage; every stage has twice as many as the one before."""
    stages: int = 4
    """How many stages."""
    shortcuts: bool = True
    """Whether there are shortcuts. Without them it is a plain chain, for any method."""

    def check(self) -> None:
        if self.width < 1 or self.stages < 1:
            raise ConfigError(f"network.width and network.stages must be positive, got {self.width} and {self.stages}")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        _require_images(self.kind, shape)
        blocks: list[nn.Module] = [Convolution(shape[0], self.width, shortcut=self._if(Shortcut(keeps=True)))]
        for stage in range(self.stages):
            width, first, last = self.width * 2**stage, stage == 0, stage == self.stages - 1
            before = width if first or self.shortcuts else width // 2
            end = NO_SHORTCUT if last else Shortcut("concat", keeps=True, halves=True)
            blocks += [
                Convolution(before, width, stride=1 if first else 2),
                Convolution(width, width, shortcut=self._if(Shortcut("add", keeps=True))),
                Convolution(width, width),
                Convolution(width, width, shortcut=self._if(end)),
            ]
        return blocks

    def _if(self, shortcut: Shortcut) -> Shortcut:
        return shortcut if self.shortcuts else NO_SHORTCUT


@register_network("tiny-cnn")
@dataclass(frozen=True, kw_only=True)
class TinyCnn(NetworkPart):
    """Four convolutions, 5x5, 5x5, 3x3 and 3x3; the second and third see a map halved by average pooling."""

    channels: tuple[int, int, int, int] = (100, 200, 400, 400)
    """Channels of each block."""

    def check(self) -> None:
        if min(self.channels) < 1:
            raise ConfigError(f"network.channels must be positive, got {self.channels}")

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        _require_images(self.kind, shape)
        a, b, c, d = self.channels
        return [
            Convolution(shape[0], a, kernel=5),
            Convolution(a, b, kernel=5, pool=2),
            Convolution(b, c, pool=2),
            Convolution(c, d),
        ]


def _require_images(network: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise ConfigError(f"network {network} takes images, and this method enters {list(shape)}: --network mlp")
