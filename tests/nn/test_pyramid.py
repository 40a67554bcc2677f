"""The pyramid: a stage against convolutions by hand, its shapes, and where batch statistics are refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.errors import ConfigError
from goodness.nn.network import Network
from goodness.nn.pyramid import Pyramid, PyramidBody
from tiny_runs import shrunk


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def body(part: Pyramid, depth: int, width: int, grid: tuple[int, int]) -> PyramidBody:
    torch.manual_seed(1)
    built = part.at(depth).build(width, grid).double()
    for name, parameter in built.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter)
    assert isinstance(built, PyramidBody)
    return built


def over_the_batch(hidden: Tensor, norm: torch.nn.Module) -> Tensor:
    mean, variance = hidden.mean(dim=(0, 2, 3), keepdim=True), hidden.var(dim=(0, 2, 3), correction=0, keepdim=True)
    scale, shift = (one.reshape(1, -1, 1, 1) for one in (norm.weight, norm.bias))  # type: ignore[union-attr]
    return (hidden - mean) / (variance + 1e-5).sqrt() * scale + shift


@pytest.mark.parametrize("grid", [(4, 6), (5, 3), (1, 2)])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("convolutions", [1, 2, 3])
def test_a_stage_is_its_convolutions_by_hand(grid: tuple[int, int], depth: int, convolutions: int) -> None:
    found = body(Pyramid(channels=(6, 8), entry=4, convolutions=convolutions), depth, 3, grid)
    tokens = randn(5, grid[0] * grid[1], 3)
    hidden = tokens.transpose(1, 2).reshape(5, 3, *grid)
    if depth == 0:
        assert found.entry is not None
        hidden = F.gelu(over_the_batch(F.conv2d(hidden, found.entry.weight, padding=1), found.entry_norm))
    weights = [one.weight for one in found.convolutions]
    hidden = F.conv2d(hidden, weights[0], padding=1)  # type: ignore[arg-type]
    padded = F.pad(hidden, (0, grid[1] % 2, 0, grid[0] % 2), value=-torch.inf)
    hidden = F.gelu(over_the_batch(padded.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5)), found.norms[0]))
    start = hidden
    for number in range(1, convolutions):
        hidden = over_the_batch(F.conv2d(hidden, weights[number], padding=1), found.norms[number])  # type: ignore[arg-type]
        hidden = F.gelu(hidden + start if number == convolutions - 1 else hidden)
    torch.testing.assert_close(found(tokens), hidden.flatten(2).transpose(1, 2), rtol=1e-9, atol=1e-9)
    rows, columns = (grid[0] + 1) // 2, (grid[1] + 1) // 2
    channels = (6, 8)[depth]
    assert found(tokens).shape == (5, rows * columns, channels)
    assert Pyramid(channels=(6, 8)).at(depth).output_shape(3, grid) == (channels, (rows, columns))


def test_once_trained_a_row_does_not_depend_on_the_others() -> None:
    found = body(Pyramid(channels=(6,)), 0, 3, (4, 4)).eval()
    tokens = randn(5, 16, 3)
    torch.testing.assert_close(found(tokens)[2:3], found(tokens[2:3]))


def test_batch_statistics_ask_for_late_labels() -> None:
    with pytest.raises(ConfigError, match=r"--model.label late or --model.block.norm group"):
        shrunk("cnn-ff", {"model.block": "pyramid"}).check()
    shrunk("cnn-ff", {"model.block": Pyramid(channels=(4, 8), norm="group")}).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": ()}, "channels is empty"),
        ({"channels": (4, 0)}, "at least 1 channel"),
        ({"convolutions": 0}, "at least 1 channel and convolution"),
        ({"entry": -1}, "an entry of 0 or more"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pyramid(**changes).check()  # type: ignore[arg-type]


def test_a_block_without_channels_is_told() -> None:
    config = shrunk("sprint", blocks=2)
    with pytest.raises(ConfigError, match="ends at 1"):
        Network(shrunk("sprint", {"model.block.channels": (4,)}).model, (1, 8, 8), 4)
    assert Network(config.model, (1, 8, 8), 4).shapes == [(1, (8, 8)), (4, (4, 4)), (8, (2, 2))]
