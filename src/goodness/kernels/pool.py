"""The goodness head's view of a block's tokens in one reading: attention pooling by one query, and the energy.

s_t = u . x_t / rms(x_t), a = softmax(s), pooled = sum_t a_t x_t, energy = mean x^2. One program per image.
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
def _read(
    x, u, image,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Tokens, query, and per token: one over the root mean square, score, softmax weight."""
    row, column = tl.arange(0, TILE), tl.arange(0, WIDE)
    inside = (row < TOKENS)[:, None] & (column < WIDTH)[None, :]
    where = row[:, None] * WIDTH + column[None, :]
    value = tl.load(x + image * (TOKENS * WIDTH) + where, mask=inside, other=0.0).to(tl.float32)
    query = tl.load(u + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    squares = tl.sum(value * value, axis=1)
    turn = 1 / tl.sqrt(squares / WIDTH + EPSILON)
    score = tl.sum(value * query[None, :], axis=1) * turn
    masked = tl.where(row < TOKENS, score, float("-inf"))
    weight = tl.exp(masked - tl.max(masked, axis=0))
    return where, inside, value, query, squares, turn, score, weight / tl.sum(weight, axis=0)


@triton.jit
def pool_forward_kernel(
    x, u, pooled, energy,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    _, _, value, _, squares, _, _, weight = _read(x, u, image, EPSILON, TOKENS, WIDTH, TILE, WIDE)
    column = tl.arange(0, WIDE)
    mixed = tl.sum(value * weight[:, None], axis=0)
    tl.store(pooled + image * WIDTH + column, mixed.to(pooled.dtype.element_ty), mask=column < WIDTH)
    tl.store(energy + image, tl.sum(squares, axis=0) / (TOKENS * WIDTH))


@triton.jit
def pool_backward_kernel(
    x, u, to_pooled, to_energy, gradient, to_u,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    where, inside, value, query, _, turn, score, weight = _read(x, u, image, EPSILON, TOKENS, WIDTH, TILE, WIDE)
    column = tl.arange(0, WIDE)
    above = tl.load(to_pooled + image * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    energy = tl.load(to_energy + image).to(tl.float32) * 2 / (TOKENS * WIDTH)
    to_weight = tl.sum(value * above[None, :], axis=1)
    to_score = weight * (to_weight - tl.sum(weight * to_weight, axis=0))
    slope = weight[:, None] * above[None, :] + energy * value
    slope += to_score[:, None] * (turn[:, None] * query[None, :] - (turn * turn * score / WIDTH)[:, None] * value)
    tl.store(gradient + image * (TOKENS * WIDTH) + where, slope.to(gradient.dtype.element_ty), mask=inside)
    tl.store(to_u + image * WIDTH + column, tl.sum(value * (to_score * turn)[:, None], axis=0), mask=column < WIDTH)


def serves(tokens: Tensor) -> bool:
    """Whether an image's tokens fit one tile."""
    return triton.next_power_of_2(tokens.shape[1]) * triton.next_power_of_2(tokens.shape[2]) <= 32768


def _sizes(tokens: Tensor) -> dict[str, int]:
    _, count, width = tokens.shape
    tile, wide = triton.next_power_of_2(count), triton.next_power_of_2(width)
    return {"TOKENS": count, "WIDTH": width, "TILE": tile, "WIDE": wide, "num_warps": 8 if tile * wide > 4096 else 4}


@triton_op("goodness::pool", mutates_args={})
def pool(tokens: Tensor, query: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Tokens `[batch, tokens, width]` and a query `[width]` to pooled `[batch, width]` and energy `[batch]`."""
    batch, _, width = tokens.shape
    pooled, energy = tokens.new_empty(batch, width), tokens.new_empty(batch, dtype=torch.float32)
    wrap_triton(pool_forward_kernel)[(batch,)](tokens, query, pooled, energy, EPSILON=epsilon, **_sizes(tokens))
    return pooled, energy


@triton_op("goodness::pool_backward", mutates_args={})
def _pool_backward(
    tokens: Tensor, query: Tensor, to_pooled: Tensor, to_energy: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    batch, _, width = tokens.shape
    gradient, to_query = torch.empty_like(tokens), tokens.new_empty(batch, width, dtype=torch.float32)
    launch = wrap_triton(pool_backward_kernel)[(batch,)]
    launch(tokens, query, to_pooled, to_energy, gradient, to_query, EPSILON=epsilon, **_sizes(tokens))
    return gradient, to_query.sum(dim=0)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tokens, query, ctx.epsilon = inputs
    ctx.save_for_backward(tokens, query)


def _gradient(ctx: Any, to_pooled: Tensor, to_energy: Tensor) -> tuple[Tensor, Tensor, None]:
    tokens, query = ctx.saved_tensors
    gradient, to_query = _pool_backward(tokens, query, to_pooled.contiguous(), to_energy.contiguous(), ctx.epsilon)
    return gradient, to_query.to(query.dtype), None


pool.register_autograd(_gradient, setup_context=_remember)
