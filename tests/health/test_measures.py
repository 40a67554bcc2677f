"""The public measures: against the textbook formulas in exact arithmetic, and in every kind of number they take."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import goodness
from goodness.methods.cumulative import barrier, collaboration

margins = st.floats(-1000, 1000)
betas = st.floats(0.1, 8)


def exp(value: Decimal) -> Decimal:
    return value.exp()


def ratio_by_hand(m: float, past: float, gamma: float, beta: float) -> float:
    """(1 + e^(beta m)) / (1 + e^(beta (m + gamma P))) with fifty digits and exponents to a million."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**6, -(10**6)
        top = 1 + exp(Decimal(beta) * Decimal(m))
        bottom = 1 + exp(Decimal(beta) * (Decimal(m) + Decimal(gamma) * Decimal(past)))
        return float(top / bottom)


@given(margins, margins, st.floats(0, 1), betas)
def test_the_attenuation_ratio_is_exact_to_a_thousand(m: float, past: float, gamma: float, beta: float) -> None:
    found = goodness.attenuation_ratio(m, past, gamma, beta)
    expected = ratio_by_hand(m, past, gamma, beta)
    if expected == math.inf or found == math.inf:  # beyond what float64 holds
        assert found > 1e307
        assert expected > 1e307
    else:
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-300)


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1), betas)
def test_where_both_margins_are_positive_the_ratio_keeps_the_sandwich(
    m: float, past: float, gamma: float, beta: float
) -> None:
    found, exponent = goodness.attenuation_ratio(m, past, gamma, beta), math.exp(-beta * gamma * past)
    assert exponent * (1 - 1e-9) <= found <= min(1.0, 2 * exponent) * (1 + 1e-9)


@given(st.floats(0, 50), st.floats(0, 1), betas)
def test_the_bounds_are_those_of_the_theorem(past: float, gamma: float, beta: float) -> None:
    exponent = math.exp(-beta * gamma * past)
    assert goodness.attenuation_bounds(past, gamma, beta) == pytest.approx((exponent, min(1.0, 2 * exponent)))
    lower, upper = goodness.attenuation_bounds(np.array([past, 0.0]), gamma, beta)
    assert (lower[1], upper[1]) == (1, 1)


@given(st.lists(margins, min_size=1, max_size=8), betas)
def test_the_loss_collapse_is_the_mean_barrier(summed: list[float], beta: float) -> None:
    expected = sum(max(0.0, -beta * m) + math.log1p(math.exp(-abs(beta * m))) for m in summed) / len(summed)
    assert goodness.loss_collapse(summed, beta) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    with pytest.raises(ValueError, match="there are none"):
        goodness.loss_collapse([], beta)


def test_depth_saturation_is_relative_to_all_blocks() -> None:
    assert goodness.depth_saturation([0.45, 0.99, 0.9]) == pytest.approx([0.5, 1.1, 1.0])
    assert goodness.depth_saturation([0.5, 0.0]) == [1.0, 1.0]


@given(st.lists(st.tuples(margins, margins, st.floats(0, 1)), min_size=1, max_size=8), betas)
def test_the_free_riding_index_is_the_mean_of_what_is_lost(rows: list[tuple[float, float, float]], beta: float) -> None:
    m, past, gamma = (np.array(column) for column in zip(*rows))
    expected = sum(1 - min(1.0, ratio_by_hand(*row, beta)) for row in rows) / len(rows)
    found = goodness.free_riding_index(m, past, gamma, beta)
    assert type(found) is float
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert 0 <= found <= 1


def test_the_free_riding_index_at_known_places() -> None:
    assert goodness.free_riding_index([1.0, 2.0], 0.0, 1.0, 4.0) == 0  # nothing inherited
    assert goodness.free_riding_index([1.0, 2.0], 3.0, 0.0, 4.0) == 0  # nothing let in
    assert goodness.free_riding_index(0.0, -5.0, 1.0, 4.0) == 0  # amplified, and clipped
    assert goodness.free_riding_index([0.0, 0.0], [0.0, 1000.0], 1.0, 4.0) == 0.5
    assert goodness.free_riding_index(torch.zeros(2, 3), torch.full((3,), 1000.0), 1.0, 4.0) == 1


def weights_by_hand(past: list[float], beta: float, w_min: float, w_max: float) -> list[float]:
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**6, -(10**6)
        a = [1 / (1 + exp(Decimal(beta) * Decimal(one))) for one in past]
        mean_a = sum(a) / len(a)
        u = [min(max(one / mean_a, Decimal(w_min)), Decimal(w_max)) for one in a]
        mean_u = sum(u) / len(u)
        return [float(one / mean_u) for one in u]


@given(st.lists(margins, min_size=1, max_size=8), betas)
def test_residual_weights_equal_the_formula_to_a_thousand(past: list[float], beta: float) -> None:
    found = goodness.residual_weights(past, beta, 0.1, 5.0)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == pytest.approx(weights_by_hand(past, beta, 0.1, 5.0), rel=1e-9)
    assert found.mean() == pytest.approx(1)


def test_residual_weights_of_each_row_are_of_that_row_alone() -> None:
    past = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, -5.0]])
    both = goodness.residual_weights(past, 4.0, 0.1, 5.0)
    for row, weights in zip(past, both):
        np.testing.assert_array_equal(goodness.residual_weights(row, 4.0, 0.1, 5.0), weights)
    assert goodness.residual_weights(3.0, 4.0, 0.1, 5.0) == 1.0


@given(margins, st.floats(0, 1), st.floats(0.1, 8), st.floats(-10, 10))
def test_the_gate_is_the_scaled_sigmoid(s: float, gamma0: float, tau: float, kappa: float) -> None:
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 50, 10**6, -(10**6)
        expected = float(Decimal(gamma0) / (1 + exp(-Decimal(tau) * (Decimal(kappa) - Decimal(s)))))
    found = goodness.gate(s, gamma0, tau, kappa)
    assert type(found) is float
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_a_sweep_of_the_dial_is_one_call() -> None:
    support, kappas = np.array([0.0, 1.0, 4.0]), np.array([0.0, 4.0])
    swept = goodness.gate(support[:, None], 0.7, 1.0, kappas)
    assert swept.shape == (3, 2)
    assert swept[0, 0] == pytest.approx(0.35)
    assert swept[2, 1] == pytest.approx(0.35)


# Kinds of numbers

CALLS = {
    "ratio": lambda x: goodness.attenuation_ratio(x, 1.0, 0.7, 4.0),
    "weights": lambda x: goodness.residual_weights(x, 4.0, 0.1, 5.0),
    "gate": lambda x: goodness.gate(x, 0.7, 1.0, 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_comes_back_is_of_the_kind_that_went_in(name: str) -> None:
    call = CALLS[name]
    array = np.array([[-1.0, 0.0, 2.0]])
    from_numpy = call(array)
    assert isinstance(from_numpy, np.ndarray)
    assert (from_numpy.dtype, from_numpy.shape) == (np.float64, (1, 3))
    assert isinstance(call(array.tolist()), np.ndarray)
    np.testing.assert_array_equal(call(array.tolist()), from_numpy)
    assert type(call(1)) is float
    assert type(call(1.0)) is float
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.tensor(array, dtype=dtype)
        found = call(tensor)
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.shape) == (dtype, (1, 3))
        np.testing.assert_allclose(found.double().numpy(), from_numpy, rtol=1e-2)
    assert call(torch.tensor([1, 2])).dtype == torch.float32
    assert call(np.array([1, 2])).dtype == np.float64
    array.flags.writeable = False
    np.testing.assert_array_equal(call(array), from_numpy)


def test_one_tensor_makes_the_result_a_tensor_of_the_widest_type() -> None:
    mixed = goodness.attenuation_ratio(np.ones(3), torch.ones(3), 0.7, 4.0)
    assert mixed.dtype == torch.float32
    wide = goodness.attenuation_ratio(torch.ones(3), torch.ones(3, dtype=torch.float64), [0.0, 0.5, 1.0], 4.0)
    assert wide.dtype == torch.float64
    assert wide[0] == 1


def test_single_precision_tensors_are_as_exact_as_they_can_be() -> None:
    m, past = torch.tensor([1000.0, -1000.0, 999.5]), torch.tensor([0.25, 1000.0, -0.25])
    found = goodness.attenuation_ratio(m, past, 1.0, 4.0)
    assert found.tolist() == pytest.approx([math.exp(-1), 0.5, math.exp(1)], rel=1e-7)


def test_gradients_pass_through() -> None:
    m = torch.tensor([0.3, -0.2], requires_grad=True)
    goodness.attenuation_ratio(m, 1.0, 0.7, 4.0).sum().backward()
    assert m.grad is not None
    assert bool((m.grad != 0).all())


def test_they_are_the_functions_that_training_uses() -> None:
    generator = torch.Generator().manual_seed(0)
    m, past = torch.randn(2, 50, generator=generator, dtype=torch.float64)
    assert torch.equal(goodness.attenuation_ratio(m, past, 0.7, 4.0), barrier.attenuation(m, past, 0.7, 4.0))
    assert torch.equal(goodness.residual_weights(past, 4.0, 0.1, 5.0), barrier.residual_weights(past, 4.0, 0.1, 5.0))
    assert torch.equal(goodness.gate(past, 0.7, 1.0, 2.0), collaboration.gate(past, 0.7, 1.0, 2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: goodness.attenuation_ratio(np.ones(3), np.ones(4), 1.0, 4.0), r"m \[3\], P \[4\], gamma \[\]"),
        (lambda: goodness.gate(torch.ones(2), 0.7, 1.0, [1.0, 2.0, 3.0]), r"s \[2\], .* kappa \[3\]"),
        (lambda: goodness.attenuation_ratio("high", 1.0, 1.0, 4.0), "m must be numbers in a regular shape"),
        (lambda: goodness.attenuation_ratio(1.0, [[1.0], [1.0, 2.0]], 1.0, 4.0), "P must be numbers"),
        (lambda: goodness.attenuation_ratio(1.0, 1.0, 1.0, 0.0), r"beta must be positive, got 0\.0"),
        (lambda: goodness.free_riding_index([], [], 1.0, 4.0), "there are none"),
        (lambda: goodness.residual_weights([], 4.0, 0.1, 5.0), "there are no examples"),
        (lambda: goodness.residual_weights([1.0], 4.0, 5.0, 0.1), "0 < w_min <= w_max"),
    ],
)
def test_what_makes_no_sense_is_a_value_error_that_says_why(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_what_has_no_meaning_is_refused_or_not_a_number() -> None:
    with pytest.raises(ValueError, match="real numbers"):
        goodness.attenuation_ratio(np.array([1 + 2j]), 0.0, 1.0, 4.0)
    with pytest.raises(ValueError, match="real numbers"):
        goodness.free_riding_index(torch.tensor([1 + 2j]), 0.0, 1.0, 4.0)
    with pytest.raises(ValueError, match="not finite"):
        goodness.residual_weights([1.0, math.nan, 2.0], 4.0, 0.1, 5.0)
    for tau in (-1.0, 0.0, math.inf):
        with pytest.raises(ValueError, match="tau must be positive and finite"):
            goodness.gate([0.0], 0.7, tau, 0.0)
    lower, upper = goodness.attenuation_bounds([-1000.0, 2.0], 1.0, 4.0)
    assert np.isnan(lower).tolist() == np.isnan(upper).tolist() == [True, False]
    assert goodness.depth_saturation(np.array([0.25, 0.5])) == [0.5, 1.0]
