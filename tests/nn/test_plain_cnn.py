"""The plain CNN: a stage against convolutions by hand, and its three stages as Forward-Forward blocks."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.config import Config, Model, Stem, from_dict, override, to_dict
from goodness.errors import ConfigError
from goodness.nn.head import EnergyGoodness
from goodness.nn.label import Add
from goodness.nn.network import Network
from goodness.nn.plain_cnn import ConvStage, ConvStageBody, ConvStages, norm_groups

PLAIN = Model(blocks=3, stem=Stem(kind="pixels"), block=ConvStages(), goodness=EnergyGoodness(), label=Add())
SMALL = dataclasses.replace(PLAIN, block=ConvStages(channels=(8, 16, 24)))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stage(channels_in: int, channels: int, grid: tuple[int, int]) -> ConvStageBody:
    """In float64, with norms that scale and shift every channel differently."""
    torch.manual_seed(0)
    body = ConvStageBody(channels_in, channels, grid).double()
    for norm in (body.norm1, body.norm2):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    return body


def normalised_by_hand(hidden: Tensor, norm: torch.nn.GroupNorm) -> Tensor:
    rows = []
    for row in hidden:
        groups = [
            (group - group.mean()) / (group.var(correction=0) + 1e-5).sqrt() for group in row.chunk(norm.num_groups)
        ]
        rows.append(torch.cat(groups) * norm.weight[:, None, None] + norm.bias[:, None, None])
    return torch.stack(rows)


@pytest.mark.parametrize("grid", [(4, 6), (5, 3), (1, 7), (1, 1)])
def test_a_stage_is_two_normalised_convolutions_and_the_largest_of_four(grid: tuple[int, int]) -> None:
    body, tokens = stage(3, 16, grid), randn(2, grid[0] * grid[1], 3)
    image = torch.stack([tokens[:, :, c].reshape(2, *grid) for c in range(3)], dim=1)
    for conv, norm in ((body.conv1, body.norm1), (body.conv2, body.norm2)):
        image = normalised_by_hand(F.conv2d(image, conv.weight, padding=1), norm).clamp(min=0)
    found = body(tokens)
    rows, columns = -(-grid[0] // 2), -(-grid[1] // 2)
    assert found.shape == (2, rows * columns, 16)
    for i in range(rows):
        for j in range(columns):
            window = image[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            torch.testing.assert_close(found[:, i * columns + j], window.amax(dim=(2, 3)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "grids"),
    [
        ((3, 32, 32), [(32, 32), (16, 16), (8, 8), (4, 4)]),
        ((1, 28, 28), [(28, 28), (14, 14), (7, 7), (4, 4)]),
        ((1, 8, 8), [(8, 8), (4, 4), (2, 2), (1, 1)]),
        ((2, 7, 13), [(7, 13), (4, 7), (2, 4), (1, 2)]),
        ((1, 1, 5), [(1, 5), (1, 3), (1, 2), (1, 1)]),
    ],
)
def test_every_stage_is_a_block_that_scores_and_hands_on(
    shape: tuple[int, int, int], grids: list[tuple[int, int]]
) -> None:
    torch.manual_seed(0)
    network = Network(SMALL, shape, 5)
    assert network.shapes == list(zip((shape[0], 8, 16, 24), grids))
    tokens, labels = network.tokens(torch.rand(2, *shape)), torch.tensor([4, 0])
    for depth, (width, grid) in enumerate(network.shapes[1:]):
        output = network.block(depth)(tokens, labels)
        assert output.tokens.shape == (2, grid[0] * grid[1], width)
        assert bool((output.tokens >= 0).all())
        assert (output.aspects.shape, output.pooled.shape) == ((2, 1), (2, width))
        torch.testing.assert_close(output.goodness, output.tokens.square().mean(dim=(1, 2)))
        tokens = network.hand_on(output.tokens)
        norms = tokens.norm(dim=-1)
        alive = norms > 0  # a token that no channel answers to stays zero
        torch.testing.assert_close(norms[alive], torch.full_like(norms[alive], width**0.25))
        assert not tokens.requires_grad


def test_the_label_is_added_to_every_channel_that_enters_a_stage() -> None:
    network = Network(PLAIN, (3, 32, 32), 10)
    assert [network.block(depth).label.vectors.shape for depth in range(3)] == [(10, 3), (10, 64), (10, 128)]
    assert network.parameter_count() == 1_148_254


@pytest.mark.parametrize("channels", [2, 7, 8, 16, 64])
def test_the_norms_of_narrow_stages_keep_what_is_the_same_all_over_the_map(channels: int) -> None:
    """That is what an added label is; with one channel to a group, the norm would take it away again."""
    norm, image, label = stage(3, channels, (4, 4)).norm1, randn(1, channels, 4, 4), randn(1, channels, 1, 1, seed=1)
    assert not torch.allclose(norm(image + label), norm(image), atol=0.1)
    alone = torch.nn.GroupNorm(channels, channels).double()
    torch.testing.assert_close(alone(image + label), alone(image))


def test_groups_divide_the_channels_and_have_eight_of_them_where_they_can() -> None:
    assert [norm_groups(channels) for channels in (1, 4, 8, 17, 24, 64, 128, 256)] == [1, 1, 1, 1, 3, 8, 8, 8]
    for channels in range(1, 300):
        groups = norm_groups(channels)
        assert channels % groups == 0
        assert groups == 1 or (groups <= 8 and channels // groups >= 8)


def test_changing_one_row_leaves_the_others_bit_for_bit() -> None:
    torch.manual_seed(0)
    network = Network(SMALL, (3, 9, 12), 5)
    images, labels = torch.rand(4, 3, 9, 12), torch.tensor([0, 1, 2, 3])
    changed = images.clone()
    changed[1] = 100 * torch.rand(3, 9, 12)
    before, after = network.tokens(images), network.tokens(changed)
    for depth in range(3):
        first, second = (network.block(depth)(tokens, labels).tokens for tokens in (before, after))
        assert torch.equal(first[[0, 2, 3]], second[[0, 2, 3]])
        assert not torch.equal(first[1], second[1])
        before, after = network.hand_on(first), network.hand_on(second)


def test_tokens_become_a_map_and_a_map_tokens_without_a_copy() -> None:
    body = ConvStageBody(8, 8, (4, 6))
    tokens = torch.randn(2, 24, 8)
    seen: list[Tensor] = []
    body.conv1.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    assert body(tokens).is_contiguous()
    assert seen[0].data_ptr() == tokens.data_ptr()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_gradients_stay_in_their_stage_and_reach_all_of_it() -> None:
    torch.manual_seed(0)
    network = Network(SMALL, (3, 9, 12), 5)
    tokens, labels = network.tokens(torch.rand(4, 3, 9, 12)), torch.tensor([0, 1, 2, 3])
    for depth in range(3):
        output = network.block(depth)(tokens, labels)
        network.zero_grad()
        output.goodness.sum().backward()
        reached = {name for name, value in network.named_parameters() if value.grad is not None}
        assert reached == set(network.owned(depth))
        assert all(bool(value.grad.any()) for value in network.owned(depth).values())
        tokens = network.hand_on(output.tokens)


def test_a_part_for_every_depth_and_an_error_beyond_the_last() -> None:
    part = ConvStages(channels=(4, 6))
    assert [part.at(depth) for depth in range(2)] == [ConvStage(channels=4), ConvStage(channels=6)]
    with pytest.raises(ConfigError, match=r"model\.blocks .*model\.block\.channels"):
        part.at(2)
    with pytest.raises(ConfigError, match=r"model\.blocks .*model\.block\.channels"):
        Network(dataclasses.replace(PLAIN, blocks=4), (3, 32, 32), 10)


@pytest.mark.parametrize("channels", [(), (8, 0), (-1,)])
def test_channels_out_of_range_are_refused_by_name(channels: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"model\.block\.channels"):
        ConvStages(channels=channels).check()


def test_a_configuration_names_it_and_reads_it_back() -> None:
    config = override(Config(), {"model.block": "conv-stages", "model.block.channels": (8, 16), "model.blocks": 2})
    assert config.model.block == ConvStages(channels=(8, 16))
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
