"""Diversity and the probe against numpy in float64, their gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up_facts import BATCH, WIDTH, made_up_facts
from torch import Tensor, nn

from goodness.config import Model, Stem
from goodness.methods.cumulative.extra_terms import EPSILON, Diversity, Probe, correlations, off_diagonal_power
from goodness.methods.cumulative.facts import Facts
from goodness.methods.cumulative.terms import Reconstruction
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network

CLASSES = 4


def normal(seed: int, rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def facts_with(*, pooled: Tensor | None = None, neutral: Tensor | None = None) -> Facts:
    facts = made_up_facts()
    facts.pooled = facts.pooled if pooled is None else pooled
    facts.neutral = facts.neutral if neutral is None else neutral
    return facts


def mean_square_off_the_diagonal(matrix: np.ndarray) -> float:
    width = len(matrix)
    return float(np.mean([matrix[a, b] ** 2 for a in range(width) for b in range(width) if a != b]))


@given(st.integers(0, 1000), st.integers(2, 30), st.integers(2, 8), st.floats(0.5, 50))
def test_correlations_are_numpys(seed: int, batch: int, width: int, scale: float) -> None:
    """On features far above epsilon: it takes away one part in variance / epsilon at most."""
    features = scale * normal(seed, batch, width) + 3
    variance = features.numpy().var(axis=0).min()
    expected = np.corrcoef(features.numpy(), rowvar=False)
    np.testing.assert_allclose(correlations(features).numpy(), expected, atol=2 * EPSILON / variance + 1e-9)


@given(st.integers(0, 1000))
def test_diversity_is_the_mean_square_correlation_of_the_first_views_features(seed: int) -> None:
    pooled = 100 * normal(seed, 4 * BATCH, WIDTH)
    expected = mean_square_off_the_diagonal(np.corrcoef(pooled[:BATCH].numpy(), rowvar=False))
    assert Diversity().loss(facts_with(pooled=pooled), None).item() == pytest.approx(expected, rel=1e-6)


def test_diversity_is_one_for_copies_of_one_feature_and_zero_for_orthogonal_ones() -> None:
    copies = normal(0, 16, 1) * torch.tensor([1.0, -2.0, 30.0])
    assert off_diagonal_power(correlations(copies)).item() == pytest.approx(1, abs=1e-5)
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert off_diagonal_power(correlations(signs)).item() == pytest.approx(0, abs=1e-15)


def test_diversity_of_a_single_feature_is_zero() -> None:
    assert off_diagonal_power(correlations(normal(0, 8, 1))).item() == 0


@pytest.mark.parametrize("constant", [0.0, 7.0, 0.1])
def test_a_feature_that_is_the_same_for_all_correlates_with_nothing_and_has_a_finite_gradient(constant: float) -> None:
    features = normal(0, BATCH, 3)
    features[:, 1] = constant
    features.requires_grad_(True)
    matrix = correlations(features)
    off_diagonal_power(matrix).backward()
    assert matrix[1].tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    assert bool(features.grad.isfinite().all())
    assert bool((features.grad[:, 0] != 0).any())


def test_correlations_of_half_precision_features_are_taken_in_float32_under_autocast_too() -> None:
    features = normal(0, 64, 4).to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = correlations(features)
    assert found.dtype == torch.float32
    expected = np.corrcoef(features.double().numpy(), rowvar=False)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_diversitys_gradient_is_the_finite_difference_and_reaches_the_first_view_alone() -> None:
    pooled = normal(1, 4 * BATCH, WIDTH).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: Diversity().loss(facts_with(pooled=x), None), pooled)
    (reached,) = torch.autograd.grad(Diversity().loss(facts_with(pooled=pooled), None), pooled)
    assert bool((reached[:BATCH] != 0).all())
    assert bool((reached[BATCH:] == 0).all())


def linear_probe() -> nn.Module:
    torch.manual_seed(0)
    return Probe().module_for(WIDTH, 4, CLASSES).double()


@given(st.integers(0, 1000))
def test_the_probe_is_the_cross_entropy_of_a_linear_classifier_on_both_neutral_views(seed: int) -> None:
    facts, module = facts_with(neutral=3 * normal(seed, 2 * BATCH, WIDTH)), linear_probe()
    weight, bias = (one.detach().numpy() for one in module.parameters())
    losses = []
    for i, features in enumerate(facts.neutral.numpy()):
        logits = weight @ features + bias
        losses.append(np.log(np.exp(logits).sum()) - logits[facts.labels[i % BATCH].item()])
    assert Probe().loss(facts, module).item() == pytest.approx(float(np.mean(losses)), rel=1e-9)


def test_the_probes_gradient_is_the_finite_difference_at_features_and_classifier() -> None:
    module = linear_probe()
    neutral = normal(1, 2 * BATCH, WIDTH).requires_grad_(True)
    weight, bias = (one.detach().clone().requires_grad_(True) for one in module.parameters())

    def loss(neutral: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return Probe().loss(facts_with(neutral=neutral), lambda x: nn.functional.linear(x, weight, bias))

    assert torch.autograd.gradcheck(loss, (neutral, weight, bias))


def network_with_both() -> Network:
    torch.manual_seed(0)
    model = Model(width=16, blocks=2, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16))
    return Network(model, (1, 8, 8), CLASSES, terms={"probe": Probe(), "diversity": Diversity()})


def test_the_network_gives_every_block_a_probe_of_its_classes_and_diversity_nothing() -> None:
    network = network_with_both()
    for depth in range(2):
        extras = network.block(depth).extras
        assert set(extras) == {"probe"}
        assert extras["probe"].weight.shape == (CLASSES, 16)
        assert f"blocks.{depth}.extras.probe.weight" in network.owned(depth)


def test_the_probe_wants_the_neutral_pass_and_its_gradient_reaches_the_block_and_the_stem() -> None:
    assert Probe().wants_neutral
    assert not Diversity().wants_neutral
    network = network_with_both()
    _, pooled = network.block(0).neutral(network.tokens(torch.rand(2 * BATCH, 1, 8, 8)))
    Probe().loss(facts_with(neutral=pooled), network.block(0).extras["probe"]).backward()
    for part in (network.stem, network.block(0).body, network.block(0).extras):
        assert any(one.grad is not None and bool((one.grad != 0).any()) for one in part.parameters())
    assert all(one.grad is None for one in network.block(1).parameters())


def test_a_term_that_does_not_ask_for_the_classes_is_built_without_them() -> None:
    assert Diversity().module_for(WIDTH, 4, CLASSES) is None
    assert Reconstruction().module_for(WIDTH, 4, CLASSES).weight.shape == (WIDTH, WIDTH)
