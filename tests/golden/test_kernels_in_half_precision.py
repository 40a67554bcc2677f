"""The kernels in half precision against their plain twins, forward and backward, in Triton's interpreter on a CPU.

tests/kernels has them in float32, and the feed-forward layer and the tail in float16.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

from goodness.kernels.convolution import convolve
from goodness.kernels.geglu import geglu
from goodness.kernels.group_norm import group_norm_gelu
from goodness.kernels.pool import pool
from goodness.kernels.short_attention import normed_attention, short_attention
from goodness.nn.attention import NORM_EPSILON, AttentionPool, SelfAttention
from goodness.nn.feedforward import gated_plainly

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Largest error as a share of the twin's largest value: twice the spacing of numbers just below one."""

GRID, HEADS, WIDTH = (4, 4), 2, 32
TOKENS = GRID[0] * GRID[1]


def assert_near(fast: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Value and gradients by every input, against the twin in float64 on the same rounded inputs."""
    found, expected = _both_ways(fast, inputs), _both_ways(plain, [one.double() for one in inputs])
    for mine, theirs in zip(found, expected, strict=True):
        error = float((mine.double() - theirs).abs().max() / theirs.abs().max())
        assert error < TOLERANCE[inputs[0].dtype]


def _both_ways(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    inputs = [one.detach().requires_grad_() for one in inputs]
    value = function(*inputs)
    slope = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    return [value.detach(), *torch.autograd.grad(value, inputs, slope.to(torch.bfloat16).to(value.dtype))]


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_attention() -> None:
    """In float16: the interpreter takes no products in bfloat16."""
    layer = SelfAttention(WIDTH, HEADS, GRID)
    qkv = drawn(3, TOKENS, 3 * WIDTH, dtype=torch.float16)
    assert_near(lambda x: short_attention(x, layer.cosine, layer.sine, HEADS), layer.mix_plainly, [qkv])


def test_attention_with_the_norm_behind_the_projection() -> None:
    """In float16, and without gradients, as in scoring."""
    layer = SelfAttention(WIDTH, HEADS, GRID)
    qkv, by = drawn(3, TOKENS, 3 * WIDTH, dtype=torch.float16), 0.5 + drawn(3, TOKENS).sigmoid()
    found = normed_attention(qkv, by, layer.cosine, layer.sine, HEADS)
    expected = layer.mix_plainly(qkv.double() * by.double().unsqueeze(-1))
    assert float((found.double() - expected).abs().max() / expected.abs().max()) < TOLERANCE[torch.float16]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_geglu(dtype: torch.dtype) -> None:
    assert_near(geglu, gated_plainly, [drawn(21, 128, dtype=dtype)])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_group_norm_and_gelu(dtype: torch.dtype) -> None:
    def plain(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return F.gelu(F.group_norm(x.transpose(1, 2), 8, scale, shift)).transpose(1, 2)

    inputs = [drawn(2, 49, 24, dtype=dtype), 0.5 + drawn(24).sigmoid(), drawn(24)]
    assert_near(lambda x, scale, shift: group_norm_gelu(x, scale, shift, 8), plain, inputs)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_pooling_and_energy(dtype: torch.dtype) -> None:
    layer = AttentionPool(WIDTH)

    def fast(x: Tensor, query: Tensor) -> Tensor:
        pooled, energy = pool(x, query, NORM_EPSILON)
        return torch.cat([pooled.float(), energy.unsqueeze(1)], dim=1)

    def plain(x: Tensor, query: Tensor) -> Tensor:
        weights = {"norm.scale": torch.ones_like(query), "query": query}
        pooled = torch.func.functional_call(layer, weights, x)
        return torch.cat([pooled, x.square().mean(dim=(1, 2)).unsqueeze(1)], dim=1)

    assert_near(fast, plain, [drawn(3, TOKENS, WIDTH, dtype=dtype), drawn(WIDTH)])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_convolution(dtype: torch.dtype) -> None:
    def plain(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x.permute(0, 3, 1, 2), weight, stride=2, padding=1).permute(0, 2, 3, 1)

    inputs = [drawn(2, 8, 8, 4, dtype=dtype), drawn(6, 4, 3, 3, dtype=dtype)]
    assert_near(lambda *given: convolve(*given, 2, 1), plain, inputs)
