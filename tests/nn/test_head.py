"""The goodness heads and label injections, spelled out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from goodness.config import Config
from goodness.errors import ConfigError
from goodness.nn.head import AspectGoodness, AspectHead, EnergyGoodness
from goodness.nn.label import Add, Scale

WIDTH, CLASSES = 6, 4


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def head() -> AspectHead:
    torch.manual_seed(0)
    made = AspectGoodness(temperature=0.3).build(WIDTH, CLASSES).double()
    made.alpha_raw.data = torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    return made


def test_each_aspect_is_its_formula(head: AspectHead) -> None:
    tokens, labels = randn(3, 5, WIDTH), torch.tensor([2, 0, 3])
    aspects, _, pooled = head(tokens, labels, {})
    torch.testing.assert_close(pooled, head.pool(tokens))
    norm, first, _, second = head.learned
    for i in range(3):
        p, prototype = pooled[i].tolist(), head.prototypes[labels[i]].tolist()
        dot = sum(a * b for a, b in zip(p, prototype))
        length = math.sqrt(sum(a * a for a in p)) * math.sqrt(sum(b * b for b in prototype))
        energy = sum(v * v for v in tokens[i].flatten().tolist()) / (5 * WIDTH)
        hidden = first.weight @ (pooled[i] / (pooled[i].square().mean() + 1e-6).sqrt() * norm.scale) + first.bias
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
        learned = math.log1p(math.exp((second.weight[0] @ hidden + second.bias[0]).item()))
        assert aspects[i].tolist() == pytest.approx([dot / length / 0.3, energy, 0.0, learned], rel=1e-9)


def test_goodness_is_the_softmax_weighted_sum_of_the_aspects(head: AspectHead) -> None:
    aspects, goodness, _ = head(randn(3, 5, WIDTH), torch.tensor([2, 0, 3]), {})
    raw = [math.exp(v) for v in (0.5, -1.0, 2.0, 0.1)]
    weights = [v / sum(raw) for v in raw]
    assert head.weights().tolist() == pytest.approx(weights)
    for row, value in zip(aspects.tolist(), goodness.tolist()):
        assert value == pytest.approx(sum(w * a for w, a in zip(weights, row)))


def test_the_sharpness_is_zero_but_keeps_its_place_in_the_softmax(head: AspectHead) -> None:
    aspects, _, _ = head(randn(3, 5, WIDTH), torch.tensor([2, 0, 3]), {})
    assert head.names[2] == "sharpness"
    assert not head.active[2]
    assert not aspects[:, 2].any()
    fresh = AspectGoodness().build(WIDTH, CLASSES)
    assert fresh.weights().tolist() == [0.25] * 4


def test_a_masked_dead_aspect_leaves_the_softmax_to_the_others(head: AspectHead) -> None:
    masked = AspectGoodness(temperature=0.3, mask_dead=True).build(WIDTH, CLASSES).double()
    masked.load_state_dict(head.state_dict())
    tokens, labels = randn(3, 5, WIDTH), torch.tensor([2, 0, 3])
    raw = [math.exp(v) for v in (0.5, -1.0, 0.1)]
    align, energy, learned = (v / sum(raw) for v in raw)
    assert masked.weights().tolist() == pytest.approx([align, energy, 0.0, learned])
    aspects, goodness, _ = masked(tokens, labels, {})
    torch.testing.assert_close(aspects, head(tokens, labels, {})[0])
    torch.testing.assert_close(goodness, align * aspects[:, 0] + energy * aspects[:, 1] + learned * aspects[:, 3])
    goodness.sum().backward()
    assert float(masked.alpha_raw.grad[2]) == 0
    assert bool(masked.alpha_raw.grad.isfinite().all())
    masked.expect(("sharpness",))  # alive with memory
    torch.testing.assert_close(masked.weights(), head.weights())


def test_the_head_keeps_float64(head: AspectHead) -> None:
    """A float64 test of a block is one: nothing on the way rounds to float32."""
    aspects, goodness, pooled = head(randn(3, 5, WIDTH), torch.tensor([2, 0, 3]), {})
    assert {aspects.dtype, goodness.dtype, pooled.dtype} == {torch.float64}
    nudged = randn(3, 5, WIDTH) * (1 + 1e-10)
    change = (head(nudged, torch.tensor([2, 0, 3]), {})[0] - aspects)[:, 1] / aspects[:, 1]
    assert change.tolist() == pytest.approx([2e-10] * 3, rel=1e-3)


def test_energy_goodness_is_the_mean_square_and_learns_nothing() -> None:
    head = EnergyGoodness().build(WIDTH, CLASSES)
    tokens = randn(2, 3, WIDTH)
    aspects, goodness, pooled = head(tokens, torch.tensor([0, 1]), {})
    expected = [sum(v * v for v in tokens[i].flatten().tolist()) / (3 * WIDTH) for i in range(2)]
    assert goodness.tolist() == pytest.approx(expected)
    assert aspects.tolist() == [[one] for one in goodness.tolist()]
    assert pooled[1, 2].item() == pytest.approx(sum(tokens[1, t, 2].item() for t in range(3)) / 3)
    assert not list(head.parameters())


@pytest.mark.parametrize("part", [Scale(), Add()])
def test_a_label_enters_every_token_by_its_own_vector(part: Scale | Add) -> None:
    torch.manual_seed(0)
    inject = part.build(WIDTH, CLASSES).double()
    tokens, labels = randn(2, 3, WIDTH), torch.tensor([3, 1])
    result, vectors = inject(tokens, labels).tolist(), inject.vectors.tolist()
    for i, label in enumerate(labels.tolist()):
        for t in range(3):
            for j in range(WIDTH):
                x, v = tokens[i, t, j].item(), vectors[label][j]
                assert result[i][t][j] == pytest.approx(x * (1 + v) if part.kind == "scale" else x + v)


@pytest.mark.parametrize("part", [Scale(std=2.0), Add(std=0.25)])
def test_label_vectors_start_with_the_spread_asked_for(part: Scale | Add) -> None:
    torch.manual_seed(0)
    vectors = part.build(200, 100).vectors
    assert vectors.std().item() == pytest.approx(part.std, rel=0.02)


def test_the_alignment_is_ten_times_the_cosine_by_default() -> None:
    torch.manual_seed(0)
    made = Config().model.goodness.build(WIDTH, CLASSES).double()
    assert isinstance(made, AspectHead)
    labels = torch.tensor([2, 0, 3])
    with torch.no_grad():
        aspects, _, pooled = made(randn(3, 5, WIDTH), labels, {})
        for align, p, prototype in zip(aspects[:, 0], pooled, made.prototypes[labels]):
            assert float(align) == pytest.approx(float(10 * p @ prototype / (p.norm() * prototype.norm())), rel=1e-9)
    assert Config().model.goodness == AspectGoodness() == AspectGoodness(temperature=0.1)


def test_a_temperature_that_is_not_positive_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"model\.goodness\.temperature"):
        AspectGoodness(temperature=0.0).check()
