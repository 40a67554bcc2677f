"""Scoring through the kernels equals the blocks, in Triton's interpreter on a CPU, and is left alone where it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from goodness import kernels
from goodness.config import Model, Stem
from goodness.kernels import feedforward
from goodness.methods.cumulative.evidence import (
    block_goodness,
    block_goodness_by_label,
    hypothesis_features,
    hypothesis_features_by_label,
)
from goodness.nn import scoring
from goodness.nn.attention import SelfAttention
from goodness.nn.head import AspectGoodness, EnergyGoodness
from goodness.nn.hybrid import Hybrid, HybridBody
from goodness.nn.label import Add, Late
from goodness.nn.network import Network

CLASSES, BLOCKS = 5, 3
SMALL_BLOCK = Hybrid(heads=2, hidden=32)


def network_of(**changes: object) -> Network:
    torch.manual_seed(0)
    given = {"width": 64, "blocks": BLOCKS, "stem": Stem(channels=8), "block": SMALL_BLOCK, **changes}
    network = Network(Model(**given), (3, 16, 16), CLASSES).requires_grad_(False)  # type: ignore[arg-type]
    for name, value in network.named_parameters():  # a scale that is left out, or in the wrong place, shows
        if name.endswith("norm.scale"):
            torch.nn.init.uniform_(value, 0.5, 1.5)
    return network


@pytest.fixture
def images() -> Tensor:
    return torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "are_used", lambda x: True)
    monkeypatch.setattr(feedforward, "shared_memory", lambda device: 227 * 1024)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every pass that took the kernels' way; float32 is let through, which the interpreter can multiply."""
    rows: list[int] = []
    monkeypatch.setattr(feedforward, "shared_memory", lambda device: 227 * 1024)
    monkeypatch.setattr(scoring, "_serves", lambda network, start, count: rows.append(count) or True)
    return rows


CHANGES = [{}, {"label_at": "first"}, {"activation": "triangle"}, {"activation": "none", "normalise": False}]
CHANGES += [{"token_norm": "unit", "goodness": AspectGoodness(mask_dead=True)}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_goodness_equals_that_of_the_blocks(changes: dict[str, object], images: Tensor, taken: list[int]) -> None:
    network = network_of(**changes)
    found = block_goodness(network, images)
    assert taken == [8 * CLASSES]
    expected = block_goodness_by_label(network, images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
    assert float(expected.std(dim=2).min()) > 0.02  # labels matter, so a mixed-up order would show


def test_of_the_first_blocks_alone(images: Tensor, taken: list[int]) -> None:
    network = network_of()
    for blocks in (1, 2):
        found = block_goodness(network, images, blocks, labels_at_once=3)
        expected = block_goodness_by_label(network, images, blocks)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
    assert sorted(taken) == sorted(2 * [8 * 3, 8 * 2])


def test_features_equal_those_of_the_blocks(images: Tensor, taken: list[int]) -> None:
    network = network_of()
    found = hypothesis_features(network, images)
    assert taken == [8 * CLASSES]
    torch.testing.assert_close(found, hypothesis_features_by_label(network, images), rtol=1e-3, atol=2e-3)


def is_served(network: Network, rows: int = 104, dtype: torch.dtype = torch.bfloat16) -> bool:
    start = torch.zeros(2, 16, 64, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return scoring.steps(network, start, rows) is not None


@pytest.mark.usefixtures("_a_gpu")
def test_dense_blocks_under_labels_that_scale_are_served() -> None:
    assert is_served(network_of())
    assert is_served(network_of(label_at="first"))


@pytest.mark.usefixtures("_a_gpu")
@pytest.mark.parametrize(
    "changes",
    [
        {"block": Hybrid(heads=2, hidden=32, experts=2)},
        {"block": Hybrid(heads=2, hidden=32, memory=4)},
        {"block": Hybrid(heads=2, hidden=40)},
        {"label": Late()},
        {"label": Add()},
        {"goodness": EnergyGoodness()},
    ],
    ids=str,
)
def test_others_go_through_their_blocks(changes: dict[str, object]) -> None:
    assert not is_served(network_of(**changes))


def own_hand_on() -> Network:
    class Own(Network):
        def hand_on(self, tokens: Tensor) -> Tensor:
            return tokens

    network = network_of()
    network.__class__ = Own
    return network


def own_attention() -> Network:
    class Own(SelfAttention):
        def mix(self, qkv: Tensor) -> Tensor:
            return qkv[..., : qkv.shape[-1] // 3]

    network = network_of()
    network.block(1).body.attention.__class__ = Own  # type: ignore[union-attr]
    return network


def listened_to() -> Network:
    network = network_of()
    network.block(2).body.register_forward_hook(lambda *_: None)
    return network


def another_last_block(**changes: int) -> Network:
    network = network_of()
    network.block(2).body = HybridBody(replace(SMALL_BLOCK, **changes), 64, (4, 4))
    return network


@pytest.mark.usefixtures("_a_gpu")
@pytest.mark.parametrize(
    "make",
    [
        own_hand_on,
        own_attention,
        listened_to,
        partial(another_last_block, hidden=40),
        partial(another_last_block, heads=8),
        partial(another_last_block, experts=2),
    ],
    ids=["hand_on", "attention", "hook", "hidden", "heads", "experts"],
)
def test_networks_of_other_parts_go_through_their_blocks(make: Callable[[], Network]) -> None:
    assert not is_served(make())


@pytest.mark.usefixtures("_a_gpu")
def test_what_the_terms_learn_does_not_matter() -> None:
    network = network_of()
    network.block(0).extras["of a term"] = torch.nn.Conv2d(1, 1, 1)
    assert is_served(network)


@pytest.mark.usefixtures("_a_gpu")
def test_labels_are_scored_in_one_way_whatever_their_portions(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(scoring, "_serves", lambda network, start, count: asked.append(count) or count > 20)
    monkeypatch.setattr(scoring, "first_scored", None)  # calling it would fail
    block_goodness(network_of(), images, labels_at_once=3)
    assert sorted(asked) == [16, 24], "the last portion is too small, so none goes that way"


@pytest.mark.usefixtures("_a_gpu")
def test_float32_a_gradient_and_few_rows_go_through_the_blocks() -> None:
    network = network_of()
    assert not is_served(network, dtype=torch.float32)
    assert not is_served(network, rows=7)
    assert not is_served(network, rows=101), "a tile is not full"
    with torch.autocast("cpu", torch.bfloat16):
        assert scoring.steps(network, torch.zeros(2, 16, 64, dtype=torch.bfloat16), 104) is None


def test_without_a_gpu_nothing_is_served() -> None:
    assert not is_served(network_of())
