"""The cheap normal distribution of the kernels against the exact one, in Triton's interpreter on a CPU."""

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from goodness.kernels.normal import normal


@triton.jit
def normal_kernel(x, share, density, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    found_share, found_density = normal(tl.load(x + place))
    tl.store(share + place, found_share)
    tl.store(density + place, found_density)


def cheaply(x: Tensor) -> tuple[Tensor, Tensor]:
    share, density = torch.empty_like(x), torch.empty_like(x)
    on = "cuda" if torch.cuda.is_available() else "cpu"
    x, share, density = x.to(on), share.to(on), density.to(on)
    normal_kernel[(1,)](x, share, density, COUNT=len(x))
    return share.cpu().double(), density.cpu().double()


def exactly(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.double()
    return torch.special.ndtr(x), torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def dense() -> Tensor:
    return torch.linspace(-12, 12, 2**16)


def test_share_and_density_are_right_to_three_in_ten_million():
    for found, expected in zip(cheaply(dense()), exactly(dense()), strict=True):
        assert float((found - expected).abs().max()) < 3e-7


def test_at_zero():
    share, density = cheaply(torch.tensor([0.0, -0.0]))
    torch.testing.assert_close(share, torch.full((2,), 0.5, dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(density, torch.full((2,), (2 * math.pi) ** -0.5, dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:overflow")  # the interpreter's: squares beyond float32 are meant to be infinite
def test_far_out_the_share_is_none_or_all():
    far = torch.tensor([2.0, 1e1, 1e2, 1e10, 1e19, 1e20, 3e38, math.inf]) * torch.tensor([[1.0], [-1.0]])
    share, density = cheaply(far.flatten())
    above, below = share.view(2, -1)
    assert bool((density >= 0).all())
    assert bool((below >= 0).all())
    assert bool((above <= 1).all())
    assert below[2:].tolist() == [0.0] * 6
    assert above[2:].tolist() == [1.0] * 6
    assert density.view(2, -1)[:, 2:].abs().max() == 0


def test_the_share_is_never_negative_and_both_sides_add_up_to_one():
    share, _ = cheaply(dense())
    assert bool(((share >= 0) & (share <= 1)).all())
    torch.testing.assert_close(share + share.flip(0), torch.ones_like(share), rtol=0, atol=1e-7)


def test_density_is_the_slope_of_the_share():
    """GELU's gradient, share + x * density, against differences of GELU itself as the kernels compute it."""
    x = torch.linspace(-6, 6, 2**12)
    step = 2**-6
    share, density = cheaply(x)
    ahead, behind = cheaply(x + step)[0] * (x.double() + step), cheaply(x - step)[0] * (x.double() - step)
    slope = (ahead - behind) / (2 * step)
    torch.testing.assert_close(share + x.double() * density, slope, rtol=0, atol=2e-4)
