"""The goodness head's view of a block's tokens in one reading: attention pooling by one query, and the energy.

s_t = u . x_t / rms(x_t), a = softmax(s), pooled = sum_t a_t x_t, energy = mean x^2. One program per image, which goes
through the columns of its tokens twice, the second time from the cache: held in registers, the tokens would leave
room for one or two programs a processor, and nothing to do while those wait.
"""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportFunctionMemberAccess=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def _place(first, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr):
    """A chunk's columns, which of them there are, where its numbers lie in an image's tokens, and which there are.

    It is given no pointer: torch.compile follows a store back through calls to all that they were given, and copies
    beforehand what it takes to be overwritten.
    """
    row, column = tl.arange(0, TILE), first + tl.arange(0, CHUNK)
    inside = (row < TOKENS)[:, None] & (column < WIDTH)[None, :]
    return column, column < WIDTH, row[:, None] * WIDTH + column[None, :], inside


@triton.jit
def _sums(x, u, v, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr):
    """Per token x . x, u . x and v . x."""
    squares = tl.zeros([TILE, CHUNK], tl.float32)
    along_u = tl.zeros([TILE, CHUNK], tl.float32)
    along_v = tl.zeros([TILE, CHUNK], tl.float32)
    for first in range(0, WIDTH, CHUNK):
        column, present, where, inside = _place(first, TOKENS, WIDTH, TILE, CHUNK)
        value = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        squares += value * value
        along_u += value * tl.load(u + column, mask=present, other=0.0).to(tl.float32)[None, :]
        along_v += value * tl.load(v + column, mask=present, other=0.0).to(tl.float32)[None, :]
    return tl.sum(squares, axis=1), tl.sum(along_u, axis=1), tl.sum(along_v, axis=1)


@triton.jit
def _weights(squares, along, EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Per token: one over the root mean square, score, softmax weight."""
    turn = tl.rsqrt(squares / WIDTH + EPSILON)
    score = along * turn
    masked = tl.where(tl.arange(0, TILE) < TOKENS, score, float("-inf"))
    weight = tl.exp(masked - tl.max(masked, axis=0))
    return turn, score, weight / tl.sum(weight, axis=0)


@triton.jit
def pool_forward_kernel(
    x, u, pooled, energy,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    tokens = x + image * (TOKENS * WIDTH)
    squares, along, _ = _sums(tokens, u, u, TOKENS, WIDTH, TILE, CHUNK)
    tl.store(energy + image, tl.sum(squares, axis=0) / (TOKENS * WIDTH))
    _, _, weight = _weights(squares, along, EPSILON, TOKENS, WIDTH, TILE)
    column, present, where, inside = _place(0, TOKENS, WIDTH, TILE, WIDE)
    value = tl.load(tokens + where, mask=inside, other=0.0).to(tl.float32)
    mixed = tl.sum(value * weight[:, None], axis=0)
    tl.store(pooled + image * WIDTH + column, mixed.to(pooled.dtype.element_ty), mask=present)


@triton.jit
def pool_backward_kernel(
    x, u, to_pooled, to_energy, gradient, to_u,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    tokens = x + image * (TOKENS * WIDTH)
    squares, along, to_weight = _sums(tokens, u, to_pooled + image * WIDTH, TOKENS, WIDTH, TILE, CHUNK)
    turn, score, weight = _weights(squares, along, EPSILON, TOKENS, WIDTH, TILE)
    to_score = weight * (to_weight - tl.sum(weight * to_weight, axis=0))
    of_query = to_score * turn
    of_value = tl.load(to_energy + image).to(tl.float32) * 2 / (TOKENS * WIDTH) - of_query * turn * score / WIDTH
    column, present, where, inside = _place(0, TOKENS, WIDTH, TILE, WIDE)
    value = tl.load(tokens + where, mask=inside, other=0.0).to(tl.float32)
    query = tl.load(u + column, mask=present, other=0.0).to(tl.float32)
    above = tl.load(to_pooled + image * WIDTH + column, mask=present, other=0.0).to(tl.float32)
    slope = value * of_value[:, None] + above[None, :] * weight[:, None] + query[None, :] * of_query[:, None]
    tl.store(gradient + image * (TOKENS * WIDTH) + where, slope.to(gradient.dtype.element_ty), mask=inside)
    tl.store(to_u + image * WIDTH + column, tl.sum(value * of_query[:, None], axis=0), mask=present)


def serves(tokens: Tensor) -> bool:
    """Whether an image's tokens fit one tile."""
    return triton.next_power_of_2(tokens.shape[1]) * triton.next_power_of_2(tokens.shape[2]) <= 32768


def _sizes(tokens: Tensor, most_warps: int) -> dict[str, int]:
    """Few warps a program, and so many programs a processor, was fastest on an H200."""
    _, count, width = tokens.shape
    tile, wide = triton.next_power_of_2(count), triton.next_power_of_2(width)
    chunk = min(wide, max(8, 4096 // tile))
    warps = max(1, min(most_warps, tile * wide // 4096))
    return {"TOKENS": count, "WIDTH": width, "TILE": tile, "WIDE": wide, "CHUNK": chunk, "num_warps": warps}


@triton_op("goodness::pool", mutates_args={})
def pool(tokens: Tensor, query: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Tokens `[batch, tokens, width]` and a query `[width]` to pooled `[batch, width]` and energy `[batch]`."""
    batch, _, width = tokens.shape
    pooled, energy = tokens.new_empty(batch, width), tokens.new_empty(batch, dtype=torch.float32)
    wrap_triton(pool_forward_kernel)[(batch,)](tokens, query, pooled, energy, EPSILON=epsilon, **_sizes(tokens, 2))
    return pooled, energy


@triton_op("goodness::pool_backward", mutates_args={})
def _pool_backward(
    tokens: Tensor, query: Tensor, to_pooled: Tensor, to_energy: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    batch, _, width = tokens.shape
    gradient, to_query = torch.empty_like(tokens), tokens.new_empty(batch, width, dtype=torch.float32)
    launch = wrap_triton(pool_backward_kernel)[(batch,)]
    launch(tokens, query, to_pooled, to_energy, gradient, to_query, EPSILON=epsilon, **_sizes(tokens, 4))
    return gradient, to_query.sum(dim=0)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tokens, query, ctx.epsilon = inputs
    ctx.save_for_backward(tokens, query)


def _gradient(ctx: Any, to_pooled: Tensor, to_energy: Tensor) -> tuple[Tensor, Tensor, None]:
    tokens, query = ctx.saved_tensors
    gradient, to_query = _pool_backward(tokens, query, to_pooled.contiguous(), to_energy.contiguous(), ctx.epsilon)
    return gradient, to_query.to(query.dtype), None


pool.register_autograd(_gradient, setup_context=_remember)
