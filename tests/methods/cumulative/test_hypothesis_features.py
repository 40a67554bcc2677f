"""What Stage 2 sees: features of all hypotheses equal the loop over labels, and logits do not depend on the chunks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from goodness.config import Model, Stem
from goodness.methods.cumulative.evidence import (
    chunk_sizes,
    feature_count,
    hypothesis_features,
    hypothesis_features_by_label,
    readout_chunk_sizes,
    readout_scores,
)
from goodness.nn.attentive_readout import AttentiveReadout
from goodness.nn.head import EnergyGoodness
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network
from goodness.parts import BlockPart

CLASSES, BLOCKS, WIDTH, ASPECTS = 4, 3, 16, 4
predict = importlib.import_module("goodness.methods.cumulative.evidence")


def tiny(label_at: Literal["every", "first"] = "every", classes: int = CLASSES) -> Network:
    torch.manual_seed(0)
    block = Hybrid(heads=2, hidden=16)
    model = Model(width=WIDTH, blocks=BLOCKS, label_at=label_at, stem=Stem(channels=8), block=block)
    return Network(model, (3, 8, 8), classes, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2))


@dataclass(frozen=True, kw_only=True)
class Halving(BlockPart):
    """A block whose tokens have half the width."""

    def output_shape(self, width: int, grid: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        return width // 2, grid

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return nn.Linear(width, width // 2)


def halving() -> Network:
    torch.manual_seed(0)
    model = Model(width=WIDTH, blocks=3, stem=Stem(channels=8), block=Halving(), goodness=EnergyGoodness())
    return Network(model, (3, 8, 8), CLASSES)


def readout_for(network: Network) -> AttentiveReadout:
    torch.manual_seed(1)
    return AttentiveReadout(feature_count(network), width=8, heads=2)


def pixels(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def network() -> Network:
    return tiny()


@pytest.mark.parametrize("make", [tiny, lambda: tiny("first"), halving], ids=["every", "first", "halving"])
def test_features_of_all_hypotheses_at_once_equal_one_pass_per_label(make: Callable[[], Network]) -> None:
    network = make().double()
    inputs = pixels(5).double() / 255
    together = hypothesis_features(network, inputs)
    assert together.shape == (5, CLASSES, feature_count(network))
    assert together.dtype == torch.float64
    assert not together.requires_grad
    torch.testing.assert_close(together, hypothesis_features_by_label(network, inputs), rtol=1e-10, atol=1e-12)
    assert float(together.std(dim=1).amax(dim=-1).min()) > 1e-6  # labels matter, so a mixed-up order would show
    for labels_at_once in (1, 3, CLASSES, 100):
        chunked = hypothesis_features(network, inputs, labels_at_once)
        torch.testing.assert_close(chunked, together, rtol=1e-10, atol=1e-12)


def test_a_hypothesis_has_every_blocks_aspects_and_then_every_blocks_pooled_features(network: Network) -> None:
    network.double()
    inputs = pixels(3).double() / 255
    features = hypothesis_features(network, inputs)[1, 2]
    aspects, pooled = features[: BLOCKS * ASPECTS].split(ASPECTS), features[BLOCKS * ASPECTS :].split(WIDTH)
    assert (len(aspects), len(pooled)) == (BLOCKS, BLOCKS)
    tokens = network.tokens(inputs[1:2])
    for depth in range(BLOCKS):
        output = network.block(depth)(tokens, torch.tensor([2]))
        torch.testing.assert_close(aspects[depth], output.aspects[0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(pooled[depth], output.pooled[0], rtol=1e-10, atol=1e-12)
        tokens = network.hand_on(output.tokens)


def test_features_are_counted_block_by_block(network: Network) -> None:
    assert feature_count(network) == BLOCKS * (ASPECTS + WIDTH)
    assert feature_count(halving()) == 3 + 8 + 4 + 2  # an energy each, and half the width from block to block


def test_the_cap_counts_the_features_that_are_kept(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "bytes_per_image", lambda _: (2**18, 2**16))
    monkeypatch.setattr(predict, "feature_count", lambda _: 2**14)  # 2**16 bytes for each of four hypotheses
    assert chunk_sizes(network, 3) == (6, CLASSES)
    assert readout_chunk_sizes(network, 3) == (4, CLASSES)  # 3/4 MiB an image instead of 1/2
    monkeypatch.setattr(predict, "feature_count", lambda _: 5 * 2**13)  # 5/8 MiB for all, and 1/8 is left of one
    assert readout_chunk_sizes(network, 1) == (1, 2)
    monkeypatch.setattr(predict, "feature_count", lambda _: 2**20)
    assert readout_chunk_sizes(network, 1) == (1, 1)


@pytest.mark.parametrize(("bytes_each", "sizes"), [((0, 2**16), (3, CLASSES)), ((0, 2**19), (1, 1))])
def test_logits_under_a_tiny_cap_equal_those_without(
    network: Network, monkeypatch: pytest.MonkeyPatch, bytes_each: tuple[int, int], sizes: tuple[int, int]
) -> None:
    readout, images = readout_for(network), pixels(11)
    whole, polls = readout_scores(network, readout, images), []
    assert whole.shape == (11, CLASSES)
    assert whole.dtype == torch.float32
    assert not whole.requires_grad
    monkeypatch.setattr(predict, "bytes_per_image", lambda _: bytes_each)
    assert readout_chunk_sizes(network, 1) == sizes  # the features leave no room for a fourth image, a second label
    pieces = readout_scores(network, readout, images, memory_mb=1, poll=lambda: polls.append(1))
    assert len(polls) == -(-11 // sizes[0])
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-6)


def test_logits_are_the_readout_of_the_features_of_bytes_over_255(network: Network) -> None:
    readout, images = readout_for(network), pixels(5)
    expected = readout(hypothesis_features_by_label(network, images.float() / 255))
    torch.testing.assert_close(readout_scores(network, readout, images), expected, rtol=1e-5, atol=1e-6)


def test_tta_is_the_mean_of_the_logits_of_the_image_and_its_mirror(network: Network) -> None:
    readout, images = readout_for(network), pixels(5)
    plain, mirror = (readout_scores(network, readout, view) for view in (images, images.flip(-1)))
    assert not torch.allclose(plain, mirror)
    tta = readout_scores(network, readout, images, tta=True)
    torch.testing.assert_close(tta, (plain + mirror) / 2, rtol=0, atol=1e-6)


def test_two_hundred_classes_fit_under_a_cap_of_one_megabyte() -> None:
    network = tiny(classes=200)
    readout, images = readout_for(network), pixels(2)
    rows, labels = readout_chunk_sizes(network, 1)
    assert rows == 1
    assert 1 < labels < 200
    widest = []
    network.block(0).register_forward_pre_hook(lambda _, inputs: widest.append(len(inputs[0])))
    capped = readout_scores(network, readout, images, memory_mb=1)
    assert max(widest) == labels
    torch.testing.assert_close(capped, readout_scores(network, readout, images), rtol=0, atol=1e-6)


def test_half_precision_stays_near_full_precision_and_comes_back_as_float32(network: Network) -> None:
    readout, images = readout_for(network), pixels(5)
    half = readout_scores(network, readout, images, dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, readout_scores(network, readout, images), rtol=0, atol=0.05)


def test_no_images_give_no_logits(network: Network) -> None:
    assert readout_scores(network, readout_for(network), pixels(0), tta=True).shape == (0, CLASSES)
    assert hypothesis_features(network, pixels(0) / 255).shape == (0, CLASSES, feature_count(network))
