"""The kernels of prediction against the blocks they stand for, in Triton's interpreter on a CPU."""

import pytest
import torch

pytest.importorskip("triton")

from goodness.kernels.feedforward import TILE
from goodness.kernels.short_attention import normed_attention, short_attention
from goodness.kernels.tail import last_tail, serves, tail, weights
from goodness.nn.attention import NORM_EPSILON, AttentionPool, SelfAttention
from goodness.nn.block import hand_on
from goodness.nn.hybrid import Hybrid, HybridBody

H100, SMALL = 227 * 1024, 99 * 1024
"""Bytes that a program may share."""


def one_over_root_mean_square(x):
    return (x.square().mean(dim=-1) + NORM_EPSILON).rsqrt()


@pytest.mark.parametrize(("grid", "heads", "per_head"), [((8, 8), 2, 32), ((5, 5), 3, 16)])
def test_attention_with_the_norm_behind_the_projection(grid, heads, per_head):
    torch.manual_seed(0)
    tokens, width = grid[0] * grid[1], heads * per_head
    layer = SelfAttention(width, heads, grid)
    x, weight = 3 * torch.randn(3, tokens, width) * torch.rand(3, tokens, 1), torch.randn(3 * width, width) / 8
    inverse_rms = one_over_root_mean_square(x)
    found = normed_attention(x @ weight.T, inverse_rms, layer.cosine, layer.sine, heads)
    expected = short_attention((x * inverse_rms.unsqueeze(-1)) @ weight.T, layer.cosine, layer.sine, heads)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def parts(width, hidden, tokens):
    """A body and a pool whose weights are all of a size that matters."""
    torch.manual_seed(0)
    body, pool = HybridBody(Hybrid(heads=2, hidden=hidden), width, (1, tokens)), AttentionPool(width)
    for scale in (body.feedforward_norm.scale, pool.norm.scale):
        torch.nn.init.uniform_(scale, 0.5, 1.5)
    torch.nn.init.normal_(body.feedforward.gate_up.weight, std=2 * width**-0.5)
    torch.nn.init.normal_(pool.query, std=0.2)
    return body.requires_grad_(False), pool.requires_grad_(False)


def given(body, pool, dtype=torch.float32):
    layer = body.feedforward
    query = pool.norm.scale * pool.query
    scale = body.feedforward_norm.scale
    return weights(body.attention.out.weight, scale, layer.gate_up.weight, layer.down.weight, query, dtype)


def plainly(body, pool, x, mix, factors, labels, activation, normalise):
    """Pooled, energy, what is handed on with its label, and one over its root mean square, in float64."""
    body, pool, x, mix = body.double(), pool.double(), x.double(), mix.double()
    x = x + body.attention.out(mix)
    x = x + body.feedforward(body.feedforward_norm(x))
    handed = hand_on(x, activation, normalise) * factors.double()[labels].unsqueeze(1)
    return pool(x), x.square().mean(dim=(1, 2)), handed, one_over_root_mean_square(handed)


@pytest.mark.parametrize(
    ("images", "tokens", "width", "hidden", "activation", "normalise"),
    [
        (6, 64, 64, 96, "relu", True),
        (2, 64, 128, 32, "triangle", True),
        (16, 16, 64, 64, "relu", False),
        (4, 32, 64, 32, "none", False),
        (1, 128, 64, 32, "none", True),
    ],
)
def test_all_behind_the_attention(images, tokens, width, hidden, activation, normalise):
    body, pool = parts(width, hidden, tokens)
    x, mix = 2 * torch.randn(images, tokens, width), torch.randn(images, tokens, width)
    factors, labels = 1 + torch.randn(7, width), torch.randint(7, (images,))
    norm = width**0.25 if normalise else 0.0
    layers = given(body, pool)
    found = tail(x, mix, *layers, factors, labels, NORM_EPSILON, activation, norm, H100)
    last = last_tail(x, mix, *layers, NORM_EPSILON, H100)
    expected = plainly(body, pool, x, mix, factors, labels, activation, normalise)
    for mine, theirs in zip((*found, *last), (*expected, *expected[:2]), strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=5e-4)  # the layer's GELU is right to 9e-5
    assert float(expected[2].abs().max()) > 1


def test_a_token_that_is_nothing_stays_nothing():
    body, pool = parts(64, 32, 64)
    x, labels = torch.zeros(2, 64, 64), torch.tensor([1, 0])
    factors = 1 + torch.randn(2, 64)
    _, energy, handed, by = tail(x, x, *given(body, pool), factors, labels, NORM_EPSILON, "relu", 2.0, H100)
    assert float(handed.abs().max()) == float(energy.abs().max()) == 0
    torch.testing.assert_close(by, torch.full_like(by, NORM_EPSILON**-0.5))


def test_half_precision_loses_no_more_than_the_layers_one_by_one():
    body, pool = parts(64, 96, 64)
    x, mix = torch.randn(2, 64, 64).half(), torch.randn(2, 64, 64).half()  # the interpreter has no bfloat16 products
    layers, query = given(body, pool, torch.float16), pool.norm.scale * pool.query
    factors, labels = (1 + torch.randn(2, 64)).half(), torch.tensor([1, 0])
    found = tail(x, mix, *layers, factors, labels, NORM_EPSILON, "relu", 64**0.25, H100)
    body, plain = body.half(), x
    plain = plain + body.attention.out(mix)
    plain = plain + body.feedforward(body.feedforward_norm(plain))
    handed = hand_on(plain, "relu", True) * factors[labels].unsqueeze(1)
    one_by_one = {0: pool.half()(plain), 2: handed}
    exact = plainly(body, pool, x, mix, factors, labels, "relu", True)
    assert found[0].dtype == found[2].dtype == torch.float16
    assert query.dtype == layers.query.dtype == found[1].dtype == torch.float32
    for place, theirs in one_by_one.items():
        assert (found[place] - exact[place]).abs().mean() <= 1.05 * (theirs - exact[place]).abs().mean()
    torch.testing.assert_close(found[1].double(), exact[1], rtol=3e-4, atol=0)  # a sum, in which GELU's 9e-5 stays


def test_served_are_whole_images_whose_tiles_fit():
    assert serves(64, 256, 704, 2, H100)
    assert serves(16, 64, 704, 8, SMALL)
    assert not serves(64, 256, 704, 1, H100)  # less than a tile
    assert not serves(64, 256, 704, 3, H100)  # and a half
    assert not serves(64, 256, 704, 0, H100)
    assert not serves(49, 256, 704, 1000, H100)
    assert not serves(2 * TILE, 256, 704, 1000, H100)
    assert not serves(64, 256, 704, 1000, SMALL)
    assert not serves(64, 96, 704, 1000, H100)
    assert not serves(64, 256, 700, 1000, H100)
