"""The stripped backbone: what is left, what is gone, and that backpropagation reaches all of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.config import Model, Stem
from goodness.methods.cumulative.evidence import class_scores
from goodness.methods.cumulative.routing import routing_of
from goodness.nn.head import EnergyGoodness
from goodness.nn.hybrid import Hybrid
from goodness.nn.label import Add
from goodness.nn.network import Network
from goodness.nn.plain_cnn import ConvStages
from goodness.nn.stripped import StrippedNetwork
from goodness.parts import BlockPart

TINY = Model(width=16, blocks=3, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16))
EXPERTS = dataclasses.replace(TINY, block=Hybrid(heads=2, hidden=8, experts=4, top_k=2, memory=3))
PLAIN = Model(blocks=3, stem=Stem(kind="pixels"), block=ConvStages(), goodness=EnergyGoodness(), label=Add())
SMALL = dataclasses.replace(PLAIN, block=ConvStages(channels=(8, 16, 24)))
SHAPES = [(3, 32, 32), (1, 28, 28), (1, 8, 8), (2, 7, 13), (1, 1, 5)]


class Merge(nn.Module):
    """Pairs of neighbouring tokens in a row, side by side: half as many, twice as wide."""

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        return tokens.reshape(batch, count // 2, 2 * width)


@dataclass(frozen=True, kw_only=True)
class Merging(BlockPart):
    """A part from outside this package, with a shape of its own and no notes."""

    def output_shape(self, width: int, grid: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        return 2 * width, (grid[0], grid[1] // 2)

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return Merge()


MERGING = Model(blocks=3, stem=Stem(kind="pixels"), block=Merging(), goodness=EnergyGoodness(), label=Add())


@pytest.mark.parametrize("model", [TINY, EXPERTS, SMALL], ids=["dense", "experts", "plain"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_image_shape_gives_logits_and_the_network_looks_like_the_other(
    model: Model, shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    network, other = StrippedNetwork(model, shape, 5), Network(model, shape, 5)
    logits, notes = network(torch.rand(2, *shape))
    assert logits.shape == (2, 5)
    assert bool(logits.isfinite().all())
    assert len(notes) == model.blocks
    for name in ("config", "shape", "classes", "class_names", "grid", "shapes"):
        assert getattr(network, name) == getattr(other, name)


def test_logits_are_the_bodies_in_a_row_the_norm_the_mean_and_a_linear_layer() -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(EXPERTS, (3, 9, 12), 5, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0)).double()
    nn.init.normal_(network.norm.scale)
    images = torch.rand(4, 3, 9, 12, dtype=torch.float64)
    tokens = network.stem((images - network.mean) / network.std)
    for body in network.blocks:
        tokens = body(tokens)[0]
    tokens = tokens / (tokens.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * network.norm.scale
    by_hand = tokens.sum(dim=1) / tokens.shape[1] @ network.classify.weight.T + network.classify.bias
    torch.testing.assert_close(network(images)[0], by_hand)
    assert network.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("model", [TINY, EXPERTS, SMALL], ids=["dense", "experts", "plain"])
def test_gradients_of_the_cross_entropy_reach_every_parameter(model: Model) -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(model, (3, 12, 12), 5)
    F.cross_entropy(network(torch.rand(8, 3, 12, 12))[0], torch.arange(8) % 5).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


def test_notes_bring_the_routers_logits_with_a_gradient() -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(EXPERTS, (1, 8, 8), 5)
    _, notes = network(torch.rand(2, 1, 8, 8))
    for depth, noted in enumerate(notes):
        routing = routing_of(noted)
        assert routing is not None
        assert routing.logits.shape == (2 * 16, 4)
        (gradient,) = torch.autograd.grad(
            routing.logits.square().sum(), network.blocks[depth].feedforward.router.weight, retain_graph=True
        )
        assert bool(gradient.any())
    assert StrippedNetwork(SMALL, (1, 8, 8), 5)(torch.rand(2, 1, 8, 8))[1] == [{}, {}, {}]


@pytest.mark.parametrize("model", [TINY, EXPERTS, SMALL], ids=["dense", "experts", "plain"])
def test_changing_one_row_leaves_the_others_alone(model: Model) -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(model, (3, 9, 12), 5).double()
    images = torch.rand(4, 3, 9, 12, dtype=torch.float64)
    changed = images.clone()
    changed[1] = 1 - images[1]
    before, after = network(images)[0], network(changed)[0]
    torch.testing.assert_close(before[[0, 2, 3]], after[[0, 2, 3]], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(before[1], after[1])


@pytest.mark.parametrize(
    ("model", "stripped", "whole"),
    [
        (PLAIN, 1_149_130, 1_148_254),  # the paper: 1.15 M; the linear layer weighs about what the labels do
        (Model(block=Hybrid(hidden=704)), 3_944_938, 4_229_876),
        (Model(width=256, block=Hybrid(hidden=48, experts=32, top_k=4)), 6_533_610, 6_818_548),
    ],
    ids=["plain", "dense", "experts"],
)
def test_parameters_at_the_papers_size(model: Model, stripped: int, whole: int) -> None:
    assert StrippedNetwork(model, (3, 32, 32), 10).parameter_count() == stripped
    assert Network(model, (3, 32, 32), 10).parameter_count() == whole


def test_stripping_takes_the_labels_and_heads_and_gives_a_norm_and_a_linear_layer() -> None:
    whole = Network(EXPERTS, (1, 8, 8), 5)
    ff_parts = sum(
        parameter.numel()
        for depth in range(3)
        for part in (whole.block(depth).label, whole.block(depth).head)
        for parameter in part.parameters()
    )
    readout = 16 + 16 * 5 + 5
    assert StrippedNetwork(EXPERTS, (1, 8, 8), 5).parameter_count() == whole.parameter_count() - ff_parts + readout


@pytest.mark.parametrize("tta", [False, True])
def test_class_scores_are_the_logits_in_batches_and_tta_their_mean_over_mirror_images(tta: bool) -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(TINY, (3, 9, 12), 5)
    images = torch.randint(0, 256, (7, 3, 9, 12), dtype=torch.uint8)
    polled: list[None] = []
    scores = class_scores(network, images, tta=tta, batch=3, poll=lambda: polled.append(None))
    with torch.no_grad():
        straight, mirrored = network(images / 255)[0], network(images.flip(-1) / 255)[0]
    torch.testing.assert_close(scores, (straight + mirrored) / 2 if tta else straight, rtol=0, atol=1e-6)
    assert float((straight - mirrored).abs().max()) > 1e-3
    assert (scores.dtype, scores.requires_grad, len(polled)) == (torch.float32, False, 3)


def test_class_scores_of_no_images_and_in_bfloat16() -> None:
    torch.manual_seed(0)
    network = StrippedNetwork(TINY, (1, 8, 8), 5)
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert class_scores(network, images[:0]).shape == (0, 5)
    exact, rough = class_scores(network, images), class_scores(network, images, dtype=torch.bfloat16)
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(exact, rough, rtol=0.1, atol=0.05)


def test_a_part_from_outside_that_changes_the_shape_works_in_both_networks() -> None:
    whole, stripped = Network(MERGING, (1, 4, 8), 3), StrippedNetwork(MERGING, (1, 4, 8), 3)
    assert whole.shapes == stripped.shapes == [(1, (4, 8)), (2, (4, 4)), (4, (4, 2)), (8, (4, 1))]
    images = torch.rand(2, 1, 4, 8)
    tokens = whole.tokens(images)
    for depth, (width, grid) in enumerate(whole.shapes[1:]):
        output = whole.block(depth)(tokens, torch.tensor([0, 2]))
        assert output.tokens.shape == (2, grid[0] * grid[1], width)
        tokens = whole.hand_on(output.tokens)
    logits, notes = stripped(images)
    assert (logits.shape, notes) == ((2, 3), [{}, {}, {}])
    assert stripped.parameter_count() == 8 + 8 * 3 + 3
