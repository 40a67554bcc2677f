"""Self-attention over a short row of tokens, rotary positions included: one program per (image, head).

All tokens of a head fit into one tile, so scores and softmax never leave the registers, the backward computes them
again, and query, key and value are read from the one projection and their gradients written to one, without copies.
The heads of an image come one after the other, since their vectors share lines of memory.
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
def _rotated(base, rows, half, token_stride, offset, cosine, sine, mask, HALF: tl.constexpr):
    """Both halves of a head's vectors, turned by their angles, in float32."""
    first = tl.load(base + offset + rows * token_stride + half, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(base + offset + rows * token_stride + half + HALF, mask=mask, other=0.0).to(tl.float32)
    return first * cosine - second * sine, first * sine + second * cosine


@triton.jit
def _place(TOKENS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Where this program's head begins among the wide rows (three projections) and the narrow, the rows of its tile,
    the columns of half a vector and of a whole one, which rows there are, and which numbers of the halves.

    A half fills at least the 16 columns that a matrix product takes; zeros beside narrow ones change nothing. It is
    given no pointer: torch.compile follows a store back through calls to all that they were given, and copies
    beforehand what it takes to be overwritten.
    """
    image, head = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    wide = image * TOKENS * (3 * HEADS * WIDTH) + head * WIDTH
    narrow = image * TOKENS * HEADS * WIDTH + head * WIDTH
    rows, columns = tl.arange(0, TILE)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = rows < TOKENS
    if WIDTH < 32:
        half = tl.arange(0, 16)[None, :]
        halves_inside = inside & (half < WIDTH // 2)
    else:
        half = tl.arange(0, WIDTH // 2)[None, :]
        halves_inside = inside
    return wide, narrow, rows, half, columns, inside, halves_inside


@triton.jit
def _read(
    base, cosine_table, sine_table, inverse_rms, rows, half, columns, inside, halves_inside,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """A head's angles, turned queries and keys in halves, and values; all times `inverse_rms` where NORMED."""
    HALF: tl.constexpr = WIDTH // 2
    stride: tl.constexpr = 3 * HEADS * WIDTH
    cosine = tl.load(cosine_table + rows * HALF + half, mask=halves_inside, other=0.0)
    sine = tl.load(sine_table + rows * HALF + half, mask=halves_inside, other=0.0)
    query1, query2 = _rotated(base, rows, half, stride, 0, cosine, sine, halves_inside, HALF)
    key1, key2 = _rotated(base, rows, half, stride, HEADS * WIDTH, cosine, sine, halves_inside, HALF)
    value = tl.load(base + 2 * HEADS * WIDTH + rows * stride + columns, mask=inside, other=0.0)
    kind = base.dtype.element_ty
    if NORMED:
        by = tl.load(inverse_rms + rows, mask=inside, other=0.0)
        query1, query2, key1, key2 = query1 * by, query2 * by, key1 * by, key2 * by
        value = (value.to(tl.float32) * by).to(kind)
    return cosine, sine, query1.to(kind), query2.to(kind), key1.to(kind), key2.to(kind), value


@triton.jit
def _attention(
    query1, query2, key1, key2,
    SCALE: tl.constexpr, TOKENS: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The softmax weights of every token's query over all keys, in float32.

    exp(SCALE * s) as a power of two, and one division a row: exp and a division are four and eight instructions.
    """
    scores = tl.dot(query1, tl.trans(key1), input_precision=PRECISION)
    scores = tl.dot(query2, tl.trans(key2), scores, input_precision=PRECISION)
    scores = tl.where(tl.arange(0, TILE)[None, :] < TOKENS, scores, float("-inf"))
    weights = tl.exp2((scores - tl.max(scores, axis=1)[:, None]) * (SCALE * 1.4426950408889634))
    return weights * (1 / tl.sum(weights, axis=1))[:, None]


@triton.jit
def attention_forward_kernel(
    qkv, cosine_table, sine_table, inverse_rms, out,
    SCALE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    NORMED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    wide, narrow, rows, half, columns, inside, halves_inside = _place(TOKENS, HEADS, WIDTH, TILE)
    first_token = (tl.program_id(0) // HEADS).to(tl.int64) * TOKENS
    _, _, query1, query2, key1, key2, value = _read(
        qkv + wide, cosine_table, sine_table, inverse_rms + first_token, rows, half, columns, inside, halves_inside,
        HEADS, WIDTH, NORMED,
    )  # fmt: skip
    weights = _attention(query1, query2, key1, key2, SCALE, TOKENS, TILE, PRECISION)
    mixed = tl.dot(weights.to(kind), value, input_precision=PRECISION)
    tl.store(out + narrow + rows * (HEADS * WIDTH) + columns, mixed.to(kind), mask=inside)


@triton.jit
def _store_unrotated(base, rows, half, token_stride, offset, first, second, cosine, sine, mask, HALF: tl.constexpr):
    kind = base.dtype.element_ty
    tl.store(base + offset + rows * token_stride + half, (first * cosine + second * sine).to(kind), mask=mask)
    place = base + offset + rows * token_stride + half + HALF
    tl.store(place, (second * cosine - first * sine).to(kind), mask=mask)


@triton.jit
def attention_backward_kernel(
    qkv, cosine_table, sine_table, slope, gradient,
    SCALE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    kind = gradient.dtype.element_ty
    wide, narrow, rows, half, columns, inside, halves_inside = _place(TOKENS, HEADS, WIDTH, TILE)
    nothing = sine_table  # not read: what is learned from was normed before
    cosine, sine, query1, query2, key1, key2, value = _read(
        qkv + wide, cosine_table, sine_table, nothing, rows, half, columns, inside, halves_inside, HEADS, WIDTH, False
    )
    stride: tl.constexpr = 3 * HEADS * WIDTH
    into = gradient + wide
    above = tl.load(slope + narrow + rows * (HEADS * WIDTH) + columns, mask=inside, other=0.0)
    weights = _attention(query1, query2, key1, key2, SCALE, TOKENS, TILE, PRECISION)
    to_value = tl.dot(tl.trans(weights.to(kind)), above, input_precision=PRECISION)
    tl.store(into + 2 * HEADS * WIDTH + rows * stride + columns, to_value.to(kind), mask=inside)
    to_weights = tl.dot(above, tl.trans(value), input_precision=PRECISION)
    to_scores = weights * (to_weights - tl.sum(to_weights * weights, axis=1)[:, None]) * SCALE
    to_scores = to_scores.to(kind)
    first = tl.dot(to_scores, key1, input_precision=PRECISION)
    second = tl.dot(to_scores, key2, input_precision=PRECISION)
    _store_unrotated(into, rows, half, stride, 0, first, second, cosine, sine, halves_inside, WIDTH // 2)
    across = tl.trans(to_scores)
    first = tl.dot(across, query1, input_precision=PRECISION)
    second = tl.dot(across, query2, input_precision=PRECISION)
    _store_unrotated(into, rows, half, stride, HEADS * WIDTH, first, second, cosine, sine, halves_inside, WIDTH // 2)


def serves(qkv: Tensor, heads: int) -> bool:
    """Whether these shapes fit one tile, and a head's vectors fill one side of a matrix product."""
    width = qkv.shape[-1] // (3 * heads)
    return qkv.shape[1] <= 64 and width in (16, 32, 64)  # the backward's tiles fit the shared memory of smaller GPUs


def _launch(qkv: Tensor, heads: int) -> dict[str, Any]:
    tokens, width = qkv.shape[1], qkv.shape[-1] // (3 * heads)
    precision = "ieee" if qkv.dtype == torch.float32 else "tf32"
    tile = max(16, triton.next_power_of_2(tokens))
    return {
        "SCALE": width**-0.5,  # known when compiled: given at the call it comes in float64, and slows what follows
        "TOKENS": tokens,
        "HEADS": heads,
        "WIDTH": width,
        "TILE": tile,
        "PRECISION": precision,
        "num_warps": 4,
    }


@triton_op("goodness::short_attention", mutates_args={})
def short_attention(qkv: Tensor, cosine: Tensor, sine: Tensor, heads: int) -> Tensor:
    """`[batch, tokens, 3 * width]` to `[batch, tokens, width]`; cosine and sine are `[tokens, head width / 2]`."""
    batch, tokens, wide = qkv.shape
    out = qkv.new_empty(batch, tokens, wide // 3)
    launch = wrap_triton(attention_forward_kernel)[(batch * heads,)]
    nothing = sine  # not read
    launch(qkv, cosine, sine, nothing, out, NORMED=False, **_launch(qkv, heads))
    return out


@triton_op("goodness::normed_attention", mutates_args={})
def normed_attention(qkv: Tensor, inverse_rms: Tensor, cosine: Tensor, sine: Tensor, heads: int) -> Tensor:
    """`short_attention` of a projection of tokens that are not normed yet, times one over the root mean square of each,
    `[batch, tokens]` in float32; without a gradient."""
    batch, tokens, wide = qkv.shape
    out = qkv.new_empty(batch, tokens, wide // 3)
    launch = wrap_triton(attention_forward_kernel)[(batch * heads,)]
    launch(qkv, cosine, sine, inverse_rms, out, NORMED=True, **_launch(qkv, heads))
    return out


@triton_op("goodness::short_attention_backward", mutates_args={})
def _short_attention_backward(qkv: Tensor, cosine: Tensor, sine: Tensor, slope: Tensor, heads: int) -> Tensor:
    gradient = torch.empty_like(qkv)
    launch = wrap_triton(attention_backward_kernel)[(len(qkv) * heads,)]
    launch(qkv, cosine, sine, slope, gradient, **_launch(qkv, heads))
    return gradient


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, cosine, sine, ctx.heads = inputs
    ctx.save_for_backward(qkv, cosine, sine)


def _gradient(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
    qkv, cosine, sine = ctx.saved_tensors
    return _short_attention_backward(qkv, cosine, sine, slope.contiguous(), ctx.heads), None, None, None


short_attention.register_autograd(_gradient, setup_context=_remember)
