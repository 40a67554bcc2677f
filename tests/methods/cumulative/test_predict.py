"""Prediction: batched hypotheses equal the loop over labels; truncation, TTA and the two propositions on scores."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.config import Model, Stem
from goodness.methods.cumulative.evidence import (
    block_goodness,
    block_goodness_by_label,
    chunk_sizes,
    goodness_of,
    scores_of,
)
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network

CLASSES, BLOCKS = 4, 3
predict = importlib.import_module("goodness.methods.cumulative.evidence")


def tiny(label_at: str = "every") -> Network:
    torch.manual_seed(0)
    model = Model(width=16, blocks=BLOCKS, label_at=label_at, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16))
    return Network(model, (3, 8, 8), CLASSES, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2))


@pytest.fixture
def network() -> Network:
    return tiny()


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (11, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize("label_at", ["every", "first"])
@pytest.mark.parametrize("blocks", [None, 1, 2])
def test_all_hypotheses_at_once_equal_one_pass_per_label(label_at: str, blocks: int | None) -> None:
    network = tiny(label_at).double()
    inputs = torch.rand(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together, one_by_one = (f(network, inputs, blocks) for f in (block_goodness, block_goodness_by_label))
    assert together.shape == (blocks or BLOCKS, 5, CLASSES)
    assert together.dtype == torch.float64
    torch.testing.assert_close(together, one_by_one, rtol=1e-10, atol=1e-12)
    assert float(together.std(dim=2).min()) > 1e-6  # labels matter, so a mixed-up order would show


def test_each_hypothesis_keeps_its_label_and_each_image_its_row(network: Network) -> None:
    network.double()
    inputs = torch.rand(3, 3, 8, 8, dtype=torch.float64)
    goodness = block_goodness(network, inputs)
    tokens = network.tokens(inputs[1:2])
    for depth in range(BLOCKS):
        output = network.block(depth)(tokens, torch.tensor([2]))
        assert goodness[depth, 1, 2].item() == pytest.approx(output.goodness.item(), rel=1e-10)
        tokens = network.hand_on(output.tokens)


def test_chunks_under_a_tiny_cap_give_the_same_goodness(
    network: Network, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, polls = goodness_of(network, images), []
    monkeypatch.setattr(predict, "bytes_per_image", lambda _: (2**18, 2**17 // CLASSES))
    assert chunk_sizes(network, 1) == (2, CLASSES)
    largest = []
    scored = predict.block_goodness
    monkeypatch.setattr(predict, "block_goodness", lambda n, x, *more: largest.append(len(x)) or scored(n, x, *more))
    pieces = goodness_of(network, images, memory_mb=1, poll=lambda: polls.append(1))
    assert largest == [2, 2, 2, 2, 2, 1]
    assert len(polls) == 6
    torch.testing.assert_close(pieces, whole, rtol=1e-5, atol=1e-5)


def test_labels_are_split_too_where_one_image_under_all_of_them_is_too_much(
    network: Network, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = goodness_of(network, images)
    monkeypatch.setattr(predict, "bytes_per_image", lambda _: (0, 2**19))
    assert chunk_sizes(network, 1) == (1, 2)
    torch.testing.assert_close(goodness_of(network, images, memory_mb=1), whole, rtol=1e-5, atol=1e-5)


def test_at_least_one_image_under_one_label_is_scored_however_small_the_cap(network: Network) -> None:
    network.classes = 10**6
    assert chunk_sizes(network, 1)[0] == 1
    network.shape = (3, 10**4, 10**4)
    assert chunk_sizes(network, 1) == (1, 1)


def test_the_cap_counts_the_stem_and_the_hidden_width(network: Network) -> None:
    stem, hypothesis = predict.bytes_per_image(network)
    network.shape = (network.shape[0], 2 * network.shape[1], network.shape[2])
    assert predict.bytes_per_image(network) == (2 * stem, hypothesis)


def test_truncation_is_a_prefix(network: Network, images: Tensor) -> None:
    whole = goodness_of(network, images)
    for blocks in (1, 2, 3):
        prefix = goodness_of(network, images, blocks=blocks)
        assert torch.equal(prefix, whole[:blocks])
        torch.testing.assert_close(scores_of(whole, blocks), scores_of(prefix))
    by_hand = [[sum(whole[d, i, y].item() for d in range(2)) for y in range(CLASSES)] for i in range(11)]
    torch.testing.assert_close(scores_of(whole, 2), torch.tensor(by_hand))


def test_tta_is_the_mean_of_the_image_and_its_mirror(network: Network, images: Tensor) -> None:
    mirrored = images[:, :, :, torch.arange(7, -1, -1)]
    plain, mirror = goodness_of(network, images), goodness_of(network, mirrored)
    assert not torch.allclose(plain, mirror)
    torch.testing.assert_close(goodness_of(network, images, tta=True), (plain + mirror) / 2)


def test_images_are_read_as_bytes_over_255(network: Network, images: Tensor) -> None:
    torch.testing.assert_close(goodness_of(network, images), block_goodness(network, images.float() / 255))


def test_no_images_give_no_goodness(network: Network, images: Tensor) -> None:
    assert goodness_of(network, images[:0]).shape == (BLOCKS, 0, CLASSES)
    assert goodness_of(network, images[:0], blocks=2, tta=True).shape == (2, 0, CLASSES)


def test_prediction_leaves_no_graph(network: Network, images: Tensor) -> None:
    assert not goodness_of(network, images).requires_grad


# Whole numbers, so that sums are exact and a tie is a tie.
whole_numbers = st.integers(-20, 20)


def tensor_of(shape: tuple[int, ...]) -> st.SearchStrategy[Tensor]:
    size = torch.Size(shape).numel()
    values = st.lists(whole_numbers, min_size=size, max_size=size)
    return values.map(lambda v: torch.tensor(v, dtype=torch.float64).reshape(shape))


@given(tensor_of((4, 3, 3)), tensor_of((3, 3)), st.permutations(range(4)))
def test_compensating_redistribution_leaves_predictions_and_moves_margins(
    goodness: Tensor, q: Tensor, depths: list[int]
) -> None:
    """Prop. redistribution: +q in block a and -q in block b."""
    a, b, *rest = depths
    moved = goodness.clone()
    moved[a] += q
    moved[b] -= q
    assert torch.equal(scores_of(moved), scores_of(goodness))
    assert torch.equal(scores_of(moved).argmax(dim=1), scores_of(goodness).argmax(dim=1))
    for i, y, other in itertools.product(range(3), repeat=3):
        shift = (q[i, y] - q[i, other]).item()

        def margin(of: Tensor, depth: int, i: int = i, y: int = y, other: int = other) -> float:
            return (of[depth, i, y] - of[depth, i, other]).item()

        assert margin(moved, a) - margin(goodness, a) == shift
        assert margin(moved, b) - margin(goodness, b) == -shift
        assert all(margin(moved, d) == margin(goodness, d) for d in rest)


def stability(first: Tensor, second: Tensor, t: float) -> tuple[float, float]:
    """Rate of disagreement, and its bound Pr[Delta_A <= 2t] + Pr[E > t] (Prop. prediction_stability), by loops."""
    disagree, thin, far = 0, 0, 0
    for mine, theirs in zip(first.tolist(), second.tolist()):
        top = mine.index(max(mine))
        disagree += top != theirs.index(max(theirs))
        thin += mine[top] - max(v for y, v in enumerate(mine) if y != top) <= 2 * t
        far += max(abs(x - z) for x, z in zip(mine, theirs)) > t
    return disagree / len(first), (thin + far) / len(first)


@given(tensor_of((3, 5, 3)), tensor_of((3, 5, 3)), st.integers(0, 30), st.sampled_from([1, 2, 4, 8, 16]))
def test_two_classifiers_disagree_no_more_than_the_stability_bound(
    goodness: Tensor, change: Tensor, t: int, smallness: int
) -> None:
    first, second = scores_of(goodness), scores_of(goodness + change / smallness)
    disagreement, bound = stability(first, second, t / 2)
    assert disagreement <= bound
    labels = torch.tensor([0, 1, 2, 0, 1])
    accuracies = [(s.argmax(dim=1) == labels).double().mean().item() for s in (first, second)]
    assert abs(accuracies[0] - accuracies[1]) <= disagreement + 1e-12


def test_the_stability_bound_holds_on_a_networks_own_predictions(network: Network, images: Tensor) -> None:
    first = scores_of(goodness_of(network, images))
    with torch.no_grad():
        for parameter in network.owned(1).values():
            parameter.mul_(1.5)
    second = scores_of(goodness_of(network, images))
    assert not torch.equal(first, second)
    for t in (0.0, 0.01, 0.1, 1.0):
        disagreement, bound = stability(first, second, t)
        assert disagreement <= bound


def test_compiled_chunks_are_all_of_one_size_and_give_the_same_goodness(
    network: Network, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled for real elsewhere; here the functions as they are, to see what they are called with."""
    whole, sizes = goodness_of(network, images), []
    scored = predict.block_goodness

    def noted(n: Network, x: Tensor, *more: Any) -> Tensor:
        sizes.append((len(x), more[-1]))
        return scored(n, x, *more)

    monkeypatch.setattr(predict, "block_goodness", noted)
    monkeypatch.setattr(predict.compilation, "compiled", lambda function, kind: function)
    monkeypatch.setattr(predict, "CHUNK", 4)
    torch.testing.assert_close(goodness_of(network, images, compiled=True), whole, rtol=1e-5, atol=1e-5)
    assert sizes == [(4, True)] * 3  # eleven images, and one again
    sizes.clear()
    monkeypatch.setattr(predict, "CHUNK", 9)
    torch.testing.assert_close(goodness_of(network, images, compiled=True), whole, rtol=1e-5, atol=1e-5)
    assert sizes == [(6, True)] * 2  # not nine, and seven for nothing
    sizes.clear()
    torch.testing.assert_close(goodness_of(network, images[:3], compiled=True), whole[:, :3], rtol=1e-5, atol=1e-5)
    assert sizes == [(3, False)]
