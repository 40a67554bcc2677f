"""The network: shapes for every kind of image, who owns which parameter, and what a block hands on."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
import torch

from goodness.config import Model, Stem
from goodness.errors import ConfigError
from goodness.methods.cumulative.supcon import SupCon
from goodness.methods.cumulative.terms import Aspects, Block, Current, Reconstruction
from goodness.nn.block import hand_on
from goodness.nn.head import EnergyGoodness
from goodness.nn.hybrid import Hybrid
from goodness.nn.label import Add
from goodness.nn.network import Network
from goodness.nn.stem import VectorStem, fitting_patch, token_grid

TINY = Model(width=16, blocks=3, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16))
TERMS = {"aspects": Aspects(), "block": Block(), "supcon": SupCon(dimensions=4, queue=8), "recon": Reconstruction()}


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((1, 8, 8), (4, 4)),
        ((1, 28, 28), (7, 7)),
        ((3, 32, 32), (8, 8)),
        ((3, 64, 64), (8, 8)),
        ((3, 32, 20), (8, 5)),  # taller than wide
        ((1, 7, 9), (4, 5)),  # odd
        ((2, 33, 17), (6, 3)),  # 17x9 after the halving, patches of 3, padded below
        ((1, 1, 1), (1, 1)),
    ],
)
def test_every_image_shape_gives_tokens_and_goodness(shape: tuple[int, int, int], grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    network = Network(TINY, shape, 5)
    assert network.grid == grid
    tokens = network.tokens(torch.rand(2, *shape))
    assert tokens.shape == (2, grid[0] * grid[1], 16)
    output = network.block(0)(tokens, torch.tensor([4, 0]))
    assert (output.tokens.shape, output.aspects.shape) == (tokens.shape, (2, 4))
    assert (output.goodness.shape, output.pooled.shape) == ((2,), (2, 16))
    assert bool(output.goodness.isfinite().all())
    assert network.hand_on(output.tokens).shape == tokens.shape


def test_the_fitting_patch_is_the_smallest_with_at_most_eight_tokens_a_side() -> None:
    for height in range(1, 150):
        for width in (1, 8, 31, 64, height):
            patch = fitting_patch(height, width)
            assert max(token_grid(height, width, patch)) <= 8
            assert patch == 1 or max(token_grid(height, width, patch - 1)) > 8
    assert [fitting_patch(side, side) for side in (8, 28, 32, 64)] == [1, 2, 2, 4]


def test_a_patch_that_is_asked_for_is_taken() -> None:
    network = Network(dataclasses.replace(TINY, stem=Stem(channels=8, patch=2)), (1, 8, 8), 3)
    assert network.grid == (2, 2)


@pytest.mark.parametrize("shape", [(1, 1, 768), (3, 8, 8), (1, 1, 2)])
@pytest.mark.parametrize("tokens", [1, 8])
def test_a_vector_stem_is_one_linear_map_of_all_numbers_cut_into_tokens(shape, tokens: int) -> None:
    network = Network(dataclasses.replace(TINY, stem=Stem(kind="vector", tokens=tokens)), shape, 5)
    assert network.grid == (1, tokens)
    images = torch.rand(2, *shape)
    found = network.tokens(images)
    assert found.shape == (2, tokens, 16)
    assert isinstance(network.stem, VectorStem)
    weight, bias = network.stem.project.weight, network.stem.project.bias
    for token in range(tokens):
        rows = slice(16 * token, 16 * (token + 1))
        expected = images.reshape(2, -1) @ weight[rows].T + bias[rows]
        torch.testing.assert_close(found[:, token], expected, rtol=1e-5, atol=1e-5)
    assert bool(network.block(0)(found, torch.tensor([4, 0])).goodness.isfinite().all())


def test_images_are_normalised_by_the_data_sets_mean_and_spread() -> None:
    torch.manual_seed(0)
    network = Network(TINY, (3, 8, 8), 3, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0)).double()
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    by_hand = images.clone()
    for c, (mean, std) in enumerate([(0.1, 0.5), (0.2, 1.0), (0.3, 2.0)]):
        by_hand[:, c] = (images[:, c] - mean) / std
    torch.testing.assert_close(network.tokens(images), network.stem(by_hand), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("label_at", ["every", "first"])
def test_the_blocks_own_every_parameter_exactly_once(label_at: str) -> None:
    network = Network(dataclasses.replace(TINY, label_at=label_at), (1, 8, 8), 5, terms=TERMS)
    owned = [name for depth in range(3) for name in network.owned(depth)]
    assert sorted(owned) == sorted(name for name, _ in network.named_parameters())
    assert len(owned) == len(set(owned))
    for depth in range(3):
        for name, value in network.owned(depth).items():
            assert value is dict(network.named_parameters())[name]
    counts = [sum(p.numel() for p in network.owned(depth).values()) for depth in range(3)]
    assert sum(counts) == network.parameter_count()
    stem = sum(p.numel() for p in network.stem.parameters())
    labels = 5 * 16
    assert counts[0] == counts[1] + stem + (0 if label_at == "every" else labels)
    assert counts[1] == counts[2]


def test_the_parameter_count_is_the_sum_of_the_layers() -> None:
    """By hand: width 16, hidden 16, 5 classes, stem 1 -> 2 -> 8 -> 16 with patch 1."""
    network = Network(dataclasses.replace(TINY, blocks=1), (1, 8, 8), 5)
    stem = 1 * 2 * 9 + 2 * 2 + 2 * 8 * 9 + 2 * 8 + 8 * 16 + 16
    body = 16 + 16 * 48 + 16 * 16 + 16 + 16 * 32 + 16 * 16
    head = (16 + 16) + 5 * 16 + 16 + (16 * 16 + 16) + (16 + 1) + 4
    assert network.parameter_count() == stem + 5 * 16 + body + head


def test_terms_bring_their_modules_only_to_blocks_where_they_count() -> None:
    terms = {"recon": Reconstruction(), "supcon": SupCon(weight=0.0), "curr": Current(), "aspects": Aspects()}
    network = Network(TINY, (1, 8, 8), 5, terms=terms)
    for depth in range(3):
        assert set(network.block(depth).extras) == {"recon", "aspects"}


def test_a_rows_output_does_not_depend_on_the_other_rows() -> None:
    torch.manual_seed(0)
    network = Network(TINY, (3, 9, 12), 5).double()
    images, labels = torch.rand(4, 3, 9, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 3])

    def goodness(rows: list[int]) -> list[torch.Tensor]:
        tokens, values = network.tokens(images[rows]), []
        for depth in range(3):
            output = network.block(depth)(tokens, labels[rows])
            values.append(output.goodness)
            tokens = network.hand_on(output.tokens)
        return [*values, tokens.flatten(1)]

    together = goodness([0, 1, 2, 3])
    for row in range(4):
        for all_rows, one_row in zip(together, goodness([row])):
            torch.testing.assert_close(all_rows[row], one_row[0], rtol=1e-10, atol=1e-12)


def test_the_label_changes_the_goodness_of_every_block_it_enters() -> None:
    torch.manual_seed(0)
    network = Network(TINY, (1, 8, 8), 5).double()
    tokens = network.tokens(torch.rand(1, 1, 8, 8, dtype=torch.float64))
    for depth in range(3):
        scores = [network.block(depth)(tokens, torch.tensor([label])).goodness.item() for label in range(5)]
        assert len({round(s, 6) for s in scores}) == 5


def test_label_at_first_leaves_the_later_blocks_tokens_without_a_label() -> None:
    network = Network(dataclasses.replace(TINY, label_at="first", label=Add()), (1, 8, 8), 5)
    tokens = torch.randn(2, 16, 16)
    first, later = (network.block(d)(tokens, torch.tensor([0, 1])).tokens for d in (0, 1))
    other_first, other_later = (network.block(d)(tokens, torch.tensor([3, 4])).tokens for d in (0, 1))
    assert not torch.equal(first, other_first)
    assert torch.equal(later, other_later)


def test_neutral_features_are_those_of_the_body_without_the_label() -> None:
    torch.manual_seed(0)
    block = Network(TINY, (1, 8, 8), 5).block(1)
    tokens = torch.randn(3, 16, 16)
    torch.testing.assert_close(block.neutral(tokens)[1], block.head.pool(block.body(tokens)[0]))
    block.label.vectors.data.zero_()  # one plus nothing
    torch.testing.assert_close(block.neutral(tokens)[1], block(tokens, torch.tensor([0, 1, 2])).pooled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tokens_are_handed_on_detached_rectified_and_at_one_norm(dtype: torch.dtype) -> None:
    tokens = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_(True)
    given = hand_on(tokens, activation="relu", normalise=True)
    assert not given.requires_grad
    assert given.dtype == dtype
    assert bool((given >= 0).all())
    assert torch.equal(given > 0, tokens > 0)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2}[dtype]
    assert given.double().norm(dim=-1).flatten().tolist() == pytest.approx([16**0.25] * 10, rel=tolerance)


def test_handing_on_can_leave_out_the_relu_the_norm_or_both() -> None:
    tokens = torch.randn(2, 5, 16)
    assert torch.equal(hand_on(tokens, activation="none", normalise=False), tokens)
    assert torch.equal(hand_on(tokens, activation="relu", normalise=False), tokens.clamp(min=0))
    signed = hand_on(tokens, activation="none", normalise=True)
    torch.testing.assert_close(signed, tokens / tokens.norm(dim=-1, keepdim=True) * 2)
    dead = hand_on(-torch.ones(1, 1, 16), activation="relu", normalise=True)
    assert not dead.any()  # zero, not NaN


@pytest.mark.parametrize(("token_norm", "norm"), [("quarter", 2.0), ("unit", 1.0)])
def test_a_network_hands_tokens_on_at_its_norm(token_norm: Literal["quarter", "unit"], norm: float) -> None:
    network = Network(dataclasses.replace(TINY, token_norm=token_norm), (1, 8, 8), 5)
    given = network.hand_on(torch.randn(2, 5, 16))
    assert given.norm(dim=-1).flatten().tolist() == pytest.approx([norm] * 10)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_next_block_cannot_see_how_large_a_blocks_tokens_were(factor: float) -> None:
    tokens = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(hand_on(tokens * factor, "relu", True), hand_on(tokens, "relu", True))


def test_an_energy_goodness_has_one_aspect() -> None:
    network = Network(dataclasses.replace(TINY, goodness=EnergyGoodness()), (1, 8, 8), 5)
    assert network.block(0)(torch.randn(2, 16, 16), torch.tensor([0, 1])).aspects.shape == (2, 1)


def test_a_width_the_heads_do_not_divide_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"model\.width 18 .*model\.block\.heads"):
        Network(dataclasses.replace(TINY, width=18), (1, 8, 8), 5)
    with pytest.raises(ConfigError, match=r"model\.block\.heads"):
        Hybrid(heads=0).check()
