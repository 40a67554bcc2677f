"""The kernels against their plain twins, forward and backward, in Triton's interpreter on a CPU."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from goodness.kernels.convolution import convolve
from goodness.kernels.feedforward import TILE, fed_forward
from goodness.kernels.feedforward import serves as serves_layer
from goodness.kernels.geglu import geglu
from goodness.kernels.group_norm import group_norm_gelu
from goodness.kernels.pool import pool
from goodness.kernels.short_attention import serves, short_attention
from goodness.nn.attention import NORM_EPSILON, AttentionPool, RMSNorm, SelfAttention
from goodness.nn.feedforward import GEGLU, gated_plainly
from goodness.nn.stem import ConvStem


def both_ways(function, inputs, slope):
    """Value, and gradients by every input."""
    inputs = [one.detach().clone().requires_grad_() for one in inputs]
    value = function(*inputs)
    return [value, *torch.autograd.grad(value, inputs, slope.to(value.dtype))]


def assert_equal(fast, plain, inputs, shape, tolerance=2e-5):
    """Against the twin in float64, so that every digit missing is the kernel's."""
    slope = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = both_ways(fast, inputs, slope)
    expected = both_ways(plain, [one.double() for one in inputs], slope.double())
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("grid", "heads", "per_head"), [((8, 8), 2, 32), ((5, 5), 3, 32), ((2, 3), 1, 64), ((8, 8), 8, 16)]
)
def test_attention(grid, heads, per_head):
    torch.manual_seed(0)
    tokens, width = grid[0] * grid[1], heads * per_head
    layer = SelfAttention(width, heads, grid)
    qkv = 2 * torch.randn(3, tokens, 3 * width)
    assert serves(qkv, heads)
    assert_equal(
        lambda x: short_attention(x, layer.cosine, layer.sine, heads),
        layer.mix_plainly,
        [qkv],
        (3, tokens, width),
    )


def test_attention_with_scores_far_apart():
    torch.manual_seed(0)
    layer = SelfAttention(32, 1, (4, 4))
    qkv = 100 * torch.randn(2, 16, 96)
    out = short_attention(qkv, layer.cosine, layer.sine, 1)
    torch.testing.assert_close(out, layer.mix_plainly(qkv), rtol=1e-4, atol=1e-3)


def test_attention_serves_no_head_it_cannot_halve():
    assert not serves(torch.zeros(1, 16, 3 * 24), 1)
    assert not serves(torch.zeros(1, 65, 96), 1)
    assert not serves(torch.zeros(1, 16, 3 * 128), 1)


@pytest.mark.parametrize(("rows", "hidden"), [(16, 64), (21, 88), (1, 3)])
def test_geglu(rows, hidden):
    torch.manual_seed(0)
    gate_up = 3 * torch.randn(rows, 2 * hidden)
    assert_equal(geglu, gated_plainly, [gate_up], (rows, hidden))


@pytest.mark.parametrize(
    ("pixels", "channels", "groups"), [(64, 96, 8), (49, 24, 8), (100, 7, 1), (9, 384, 8), (300, 16, 2), (600, 48, 8)]
)
def test_group_norm_and_gelu(pixels, channels, groups):
    torch.manual_seed(0)
    x = 0.5 + 2 * torch.randn(3, pixels, channels)

    def plain(x, scale, shift):
        return F.gelu(F.group_norm(x.transpose(1, 2), groups, scale, shift)).transpose(1, 2)

    inputs = [x, torch.rand(channels) + 0.5, torch.randn(channels)]
    assert_equal(lambda *a: group_norm_gelu(*a, groups), plain, inputs, x.shape, tolerance=5e-5)


@pytest.mark.parametrize(("down", "across", "patch"), [(4, 6, 2), (3, 9, 3), (16, 16, 2)])
def test_group_norm_patch_by_patch(down, across, patch):
    torch.manual_seed(0)
    x, channels = torch.randn(2, down * across, 16), 16

    def plain(x, scale, shift):
        out = F.gelu(F.group_norm(x.transpose(1, 2), 4, scale, shift)).transpose(1, 2)
        out = out.reshape(2, down // patch, patch, across // patch, patch, channels).transpose(2, 3)
        return out.reshape(2, down * across, channels)

    inputs = [x, torch.rand(channels) + 0.5, torch.randn(channels)]
    assert_equal(lambda *a: group_norm_gelu(*a, 4, across=across, patch=patch), plain, inputs, x.shape, tolerance=5e-5)


def test_group_norm_keeps_its_digits_far_from_zero():
    torch.manual_seed(0)
    x = 100 + torch.randn(2, 64, 24)
    scale, shift = torch.ones(24), torch.zeros(24)
    expected = F.gelu(F.group_norm(x.double().transpose(1, 2), 8, scale.double(), shift.double())).transpose(1, 2)
    torch.testing.assert_close(group_norm_gelu(x, scale, shift, 8).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("side", "stride"), [(8, 2), (7, 2), (6, 1)])
def test_convolution(side, stride):
    torch.manual_seed(0)
    x, weight = torch.randn(2, side, side, 4), torch.randn(6, 4, 3, 3)

    def plain(x, weight):
        return F.conv2d(x.permute(0, 3, 1, 2), weight, stride=stride, padding=1).permute(0, 2, 3, 1)

    assert_equal(lambda *a: convolve(*a, stride, 1), plain, [x, weight], plain(x, weight).shape)


@pytest.mark.parametrize(("side", "channels", "patch"), [(16, 16, 2), (13, 8, 2), (9, 12, 3), (8, 8, 1)])
def test_stem(side, channels, patch):
    torch.manual_seed(0)
    stem = ConvStem(3, channels, 8, patch)
    for parameter in stem.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    images = torch.rand(2, 3, side, side)
    slope = torch.randn_like(stem(images))
    parameters = list(stem.parameters())
    fast = stem.channels_last(images)
    torch.testing.assert_close(fast, stem(images), rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(
        torch.autograd.grad(fast, parameters, slope), torch.autograd.grad(stem(images), parameters, slope), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.parametrize(("tokens", "width"), [(64, 32), (9, 24), (1, 8), (64, 160), (70, 40)])
def test_pooling_and_energy(tokens, width):
    torch.manual_seed(0)
    layer = AttentionPool(width)
    x, scale, query = 2 * torch.randn(3, tokens, width), torch.rand(width) + 0.5, torch.randn(width)

    def fast(x, scale, query):
        return side_by_side(pool(x, scale * query, 1e-6))

    def plain(x, scale, query):
        given = {"norm.scale": scale, "query": query}
        pooled = torch.func.functional_call(layer, given, x)
        return side_by_side((pooled, x.square().mean(dim=(1, 2))))

    assert_equal(fast, plain, [x, scale, query], (3, width + 1))


def side_by_side(both):
    pooled, energy = both
    return torch.cat([pooled, energy.unsqueeze(1).to(pooled.dtype)], dim=1)


H100, A100, SMALL = 227 * 1024, 163 * 1024, 99 * 1024
"""Bytes that a program may share."""


def layer_and_norm(width, hidden):
    torch.manual_seed(0)
    layer, norm = GEGLU(width, hidden), RMSNorm(width)
    torch.nn.init.uniform_(norm.scale, 0.5, 1.5)
    torch.nn.init.normal_(layer.gate_up.weight, std=2 * width**-0.5)
    return layer, norm


def fed_fast(layer, norm, tokens):
    with torch.no_grad():
        return fed_forward(tokens, norm.scale, layer.gate_up.weight, layer.down.weight, NORM_EPSILON, H100)


@pytest.mark.parametrize(
    ("rows", "width", "hidden"), [((2, 64), 64, 96), ((TILE + 3,), 128, 32), ((1, 1), 64, 704)], ids=str
)
def test_the_whole_feedforward_layer(rows, width, hidden):
    layer, norm = layer_and_norm(width, hidden)
    tokens = 3 * torch.randn(*rows, width)
    found = fed_fast(layer, norm, tokens)
    with torch.no_grad():
        expected = tokens.double() + layer.double()(norm.double()(tokens.double()))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=5e-4)  # its GELU is right to 9e-5


def test_the_whole_feedforward_layer_in_half_precision_loses_no_more_than_its_twin():
    layer, norm = layer_and_norm(64, 96)
    tokens = torch.randn(200, 64).half()  # the interpreter takes no products in bfloat16
    with torch.no_grad():
        exact = tokens.float() + layer(norm(tokens.float()))
        found = fed_fast(layer, norm, tokens)
        plain = tokens + layer.half()(norm.half()(tokens))
    assert found.dtype == torch.float16
    assert (found - exact).abs().mean() <= 1.05 * (plain - exact).abs().mean()


def test_gelu_far_out_is_zero_or_the_number_itself():
    layer, norm = GEGLU(64, 32), RMSNorm(64)
    with torch.no_grad():
        layer.gate_up.weight.zero_()
        layer.gate_up.weight[:32, 0] = 10.0  # gate: ten times the first feature
        layer.gate_up.weight[32:, 1] = 1.0  # up: the second
        layer.down.weight.copy_(torch.eye(64, 32))
    tokens = torch.zeros(2, 64)
    tokens[:, 1] = 1.0
    tokens[0, 0], tokens[1, 0] = 1.0, -1.0
    added = fed_fast(layer, norm, tokens) - tokens
    root = (2 / 64) ** -0.5  # both have two ones
    torch.testing.assert_close(added[0, 0].item(), 10 * root * root, rtol=1e-4, atol=0)
    assert added[1].abs().max() < 1e-4


def test_the_layer_is_served_where_its_tiles_fit():
    assert serves_layer(256, 704, H100)
    assert serves_layer(256, 704, A100)
    assert not serves_layer(256, 704, SMALL)
    assert serves_layer(64, 704, SMALL)
    assert not serves_layer(256, 700, H100)
    assert not serves_layer(96, 704, H100)
