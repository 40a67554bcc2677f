"""The barrier and Theorem 1: what history does to a gradient, measured with autograd and with plain arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from goodness.config import Model, Stem
from goodness.methods.cumulative.barrier import attenuation, barrier, barrier_slope, residual_weights
from goodness.methods.cumulative.terms import Current
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network

margins = st.floats(-8, 8)
gammas = st.floats(0, 1)
betas = st.floats(0.25, 8)
# torch's softplus is the identity above 20, which is 2e-9 off; everything else here is exact to float64.
TOLERANCE = 1e-8


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def scalar(x: float, requires_grad: bool = False) -> Tensor:
    return torch.tensor(x, dtype=torch.float64, requires_grad=requires_grad)


def derivative(of_margin: float, shift: float, beta: float) -> float:
    """d l_beta(m + shift) / dm by autograd."""
    m = scalar(of_margin, requires_grad=True)
    (slope,) = torch.autograd.grad(barrier(m + shift, beta), m)
    return float(slope)


@given(margins, betas)
def test_the_barrier_is_log_one_plus_exp_minus_beta_u(u: float, beta: float) -> None:
    assert float(barrier(scalar(u), beta)) == pytest.approx(math.log(1 + math.exp(-beta * u)), rel=1e-7, abs=1e-12)


@given(margins, betas)
def test_the_slope_is_the_finite_difference_of_the_barrier(u: float, beta: float) -> None:
    step = 1e-5
    rise = softplus(-beta * (u + step)) - softplus(-beta * (u - step))
    assert float(barrier_slope(scalar(u), beta)) == pytest.approx(-rise / (2 * step), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_barrier_slope_and_attenuation_stay_finite_at_a_thousand(dtype: torch.dtype) -> None:
    u = torch.tensor([-1000.0, 1000.0], dtype=dtype)
    assert barrier(u, 4.0).tolist() == [4000.0, 0.0]
    assert barrier_slope(u, 4.0).tolist() == [4.0, 0.0]
    # settled by this block and the past, unsettled by both, and each against the other within float range
    m = torch.tensor([1000.0, -1000.0, 1000.0, -1000.0], dtype=dtype)
    past = torch.tensor([1000.0, -1000.0, -1.0, 1.0], dtype=dtype)
    expected = [0.0, 1.0, math.exp(4.0), 1.0]
    assert attenuation(m, past, 1.0, 4.0).tolist() == pytest.approx(expected, rel=1e-6)


@given(margins, margins, gammas, betas)
def test_attenuation_is_the_ratio_of_autograd_derivatives(m: float, past: float, gamma: float, beta: float) -> None:
    ratio = derivative(m, gamma * past, beta) / derivative(m, 0.0, beta)
    assert float(attenuation(scalar(m), scalar(past), gamma, beta)) == pytest.approx(ratio, rel=TOLERANCE)


@given(margins, margins, gammas, betas)
def test_attenuation_is_the_closed_form_of_theorem_1(m: float, past: float, gamma: float, beta: float) -> None:
    closed = (1 + math.exp(beta * m)) / (1 + math.exp(beta * (m + gamma * past)))
    assert float(attenuation(scalar(m), scalar(past), gamma, beta)) == pytest.approx(closed, rel=TOLERANCE)


@given(st.floats(0, 8), st.floats(0, 8), gammas, betas)
def test_attenuation_lies_in_the_sandwich_of_a_separated_example(
    m: float, past: float, gamma: float, beta: float
) -> None:
    ratio = float(attenuation(scalar(m), scalar(past), gamma, beta))
    floor = math.exp(-beta * gamma * past)
    assert floor * (1 - TOLERANCE) <= ratio <= min(1.0, 2 * floor) * (1 + TOLERANCE)


@given(margins, margins, gammas, betas)
def test_attenuation_is_at_most_one_exactly_when_the_weighted_past_is_not_negative(
    m: float, past: float, gamma: float, beta: float
) -> None:
    inherited = gamma * past
    # a difference below rounding, or a slope already flat at beta, cannot be told from one
    assume(inherited == 0 or (abs(inherited) > 1e-3 and beta * (m + min(inherited, 0)) > -10))
    ratio = float(attenuation(scalar(m), scalar(past), gamma, beta))
    assert (ratio <= 1) == (inherited >= 0)


def test_a_negative_past_amplifies_by_up_to_the_inverse_of_the_local_slope() -> None:
    ratio = float(attenuation(scalar(2.0), scalar(-5.0), 1.0, 4.0))
    assert ratio == pytest.approx((1 + math.exp(8)) / (1 + math.exp(-12)), rel=1e-9)
    assert ratio > 2900


def test_the_papers_table_of_batch_means_follows_from_the_formula() -> None:
    """Table assumption_coverage, beta = 4: gamma 0.7 at block 1, gamma 1 at block 1."""
    assert float(attenuation(scalar(2.36), scalar(1.76), 0.7, 4.0)) == pytest.approx(7.2e-3, rel=0.02)
    assert float(attenuation(scalar(1.08), scalar(1.74), 1.0, 4.0)) == pytest.approx(9.7e-4, rel=0.02)


def test_a_blocks_parameter_gradient_is_scaled_by_the_attenuation_and_keeps_its_direction() -> None:
    """Eq. param_attenuation on every parameter of a real block, example by example."""
    torch.manual_seed(0)
    model = Model(width=16, blocks=1, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16))
    network = Network(model, (1, 8, 8), 4).double()
    tokens = network.tokens(torch.rand(6, 1, 8, 8, dtype=torch.float64)).detach()
    block, beta, gamma = network.block(0), 4.0, 0.7
    right, wrong = torch.arange(6) % 4, (torch.arange(6) + 1) % 4
    past = torch.tensor([1.5, 0.3, 0.0, -0.4, -1.2, 3.0], dtype=torch.float64)
    parameters = list(block.parameters())
    for i in range(6):
        one = tokens[i : i + 1]
        margin = (block(one, right[i : i + 1]).goodness - block(one, wrong[i : i + 1]).goodness).squeeze()

        def gradient(loss: Tensor) -> Tensor:
            grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            return torch.cat([g.flatten() for g in grads if g is not None])

        local, cumulative = gradient(barrier(margin, beta)), gradient(barrier(margin + gamma * past[i], beta))
        ratio = ((1 + torch.exp(beta * margin)) / (1 + torch.exp(beta * (margin + gamma * past[i])))).detach()
        assert float(local.norm()) > 1e-6
        torch.testing.assert_close(cumulative, ratio * local, rtol=TOLERANCE, atol=1e-14)
        assert float(torch.cosine_similarity(local, cumulative, dim=0)) == pytest.approx(1, abs=1e-12)
        code = attenuation(margin.detach(), past[i], gamma, beta)
        assert float(code) == pytest.approx(float(ratio), rel=TOLERANCE)


@given(margins, st.floats(-8, 8), gammas, betas, st.floats(-4, 4), st.integers(0, 3))
def test_the_current_term_gives_a_gradient_floor_whatever_the_past(
    m: float, past: float, gamma: float, beta: float, c: float, depth: int
) -> None:
    """Theorem gradient_floor: |dJ/dm| >= lambda(d) w beta sigmoid(-beta c) for m <= c."""
    assume(m <= c)
    coefficient, w = Current(weight=0.25, rho=3.0).coefficient(depth, 4), 0.02
    margin = scalar(m, requires_grad=True)
    subobjective = barrier(margin + gamma * past, beta) + coefficient * w * barrier(margin, beta)
    (slope,) = torch.autograd.grad(subobjective, margin)
    assert abs(float(slope)) >= coefficient * w * beta * sigmoid(-beta * c) * (1 - TOLERANCE)
    if m <= 0:
        assert abs(float(slope)) >= coefficient * w * beta / 2 * (1 - TOLERANCE)


def plain_weights(past: list[float], beta: float, w_min: float, w_max: float) -> list[float]:
    a = [sigmoid(-beta * p) for p in past]
    mean_a = sum(a) / len(a)
    u = [min(max(one / mean_a, w_min), w_max) for one in a]
    mean_u = sum(u) / len(u)
    return [one / mean_u for one in u]


batches = st.lists(st.floats(-6, 6), min_size=1, max_size=12)


@given(batches, betas)
def test_residual_weights_are_the_clipped_and_twice_normalised_sigmoids(past: list[float], beta: float) -> None:
    weights = residual_weights(torch.tensor(past, dtype=torch.float64), beta, 0.1, 5.0)
    assert weights.tolist() == pytest.approx(plain_weights(past, beta, 0.1, 5.0), rel=1e-9)


@given(batches, betas)
def test_residual_weights_have_mean_one_and_keep_within_their_bounds(past: list[float], beta: float) -> None:
    weights = residual_weights(torch.tensor(past, dtype=torch.float64), beta, 0.1, 5.0)
    assert float(weights.mean()) == pytest.approx(1, abs=1e-12)
    assert float(weights.min()) >= 0.1 / 5.0 * (1 - 1e-12)
    assert float(weights.max()) <= 5.0 / 0.1


@given(batches, betas)
def test_residual_weights_reverse_the_order_of_the_past(past: list[float], beta: float) -> None:
    values = torch.tensor(sorted(past), dtype=torch.float64)
    clipped = residual_weights(values, beta, 0.1, 5.0)
    assert bool((clipped[1:] <= clipped[:-1]).all())
    free = residual_weights(values, beta, 1e-300, 1e300)
    clearly_apart = (values[1:] - values[:-1]) * beta > 1e-3
    tell_apart = clearly_apart & (beta * values[1:] > -20)  # below, sigmoid(-beta P) is one to the last digit
    assert bool((free[1:] < free[:-1])[tell_apart].all())


@given(batches, betas)
def test_unclipped_residual_weights_are_those_of_the_lemma(past: list[float], beta: float) -> None:
    a = [sigmoid(-beta * p) for p in past]
    lemma = [one / (sum(a) / len(a)) for one in a]
    weights = residual_weights(torch.tensor(past, dtype=torch.float64), beta, 1e-300, 1e300)
    assert weights.tolist() == pytest.approx(lemma, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residual_weights_survive_a_past_that_underflows_the_sigmoid(dtype: torch.dtype) -> None:
    same = residual_weights(torch.full((4,), 1000.0, dtype=dtype), 4.0, 0.1, 5.0)
    assert same.tolist() == pytest.approx([1.0] * 4, rel=1e-6)
    apart = residual_weights(torch.tensor([1000.0, 1000.0, 999.9, -1000.0], dtype=dtype), 4.0, 0.1, 5.0)
    # all of the mass lies on the last: raw weights 0, 0, 0, 4, clipped to 0.1 three times, mean 4.3 / 4
    assert apart.tolist() == pytest.approx([0.1 / 1.075] * 3 + [4 / 1.075], rel=1e-5)
    near = residual_weights(torch.tensor([1000.0, 999.9], dtype=torch.float64), 4.0, 0.1, 5.0)
    assert float(near[1] / near[0]) == pytest.approx(math.exp(0.4), rel=1e-6)
