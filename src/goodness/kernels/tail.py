"""All of a block behind its attention's mixing, where no gradient is asked for, and what the next block takes in.

y = x + out(mix), z = y + down(gelu(gate(h)) * up(h)) with h = y / rms(y) * scale; then the pooled features and the
energy of z, as `pool` has them, and z handed on: through the activation, normalised, times the next label's factors.
A program keeps a tile of whole images, and y and z never leave the processor. Beside what it hands on it writes one
over the root mean square of every token: the next block's norm is that, and its scale a part of the weights.
"""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportFunctionMemberAccess=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from goodness.kernels.feedforward import CHUNK, TILE, added, woven

PART = 64
"""Columns of the attention's mix that enter the projection at once."""


@triton.jit
def tail_kernel(
    x, mix, project, gate_up, down, query, factors, labels, pooled, energy, handed, inverse_rms, images,
    EPSILON: tl.constexpr, NORM: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
    TILE: tl.constexpr, PART: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr, ACTIVATION: tl.constexpr,
    GOES_ON: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """NORM is what a token's is made before its label enters, 0 where it stays as it is.

    Tiles are full: `images` fill them. The loop around the feed-forward layer has one round: a loop's own variable is
    what the compiler puts into shared memory for a matrix product, where the registers would not hold it.
    """
    kind = x.dtype.element_ty
    IMAGES: tl.constexpr = TILE // TOKENS
    image = tl.program_id(0).to(tl.int64) * IMAGES
    row, column, part = tl.arange(0, TILE), tl.arange(0, WIDTH), tl.arange(0, PART)
    begin = image * (TOKENS * WIDTH)
    mixed = tl.load(x + begin + row[:, None] * WIDTH + column[None, :]).to(tl.float32)
    for first in tl.range(0, WIDTH, PART, num_stages=STAGES):  # pyright: ignore[reportGeneralTypeIssues]
        given = tl.load(mix + begin + row[:, None] * WIDTH + (first + part)[None, :])
        into = tl.load(project + column[:, None] * WIDTH + (first + part)[None, :])
        mixed = tl.dot(given, tl.trans(into), mixed, input_precision=PRECISION)
    turn = tl.rsqrt(tl.sum(mixed * mixed, axis=1) / WIDTH + EPSILON)
    value = mixed.to(kind)
    for _ in range(tl.minimum(images, 1)):
        mixed = added(value, mixed, turn, gate_up, down, WIDTH, HIDDEN, TILE, CHUNK, STAGES, PRECISION)
        value = tl.zeros([TILE, WIDTH], kind)

    whole = mixed.to(kind).to(tl.float32)
    each = tl.arange(0, IMAGES)
    squares = tl.sum(whole * whole, axis=1)
    score = tl.sum(whole * tl.load(query + column)[None, :], axis=1) * tl.rsqrt(squares / WIDTH + EPSILON)
    tl.store(energy + image + each, tl.sum(tl.reshape(squares, [IMAGES, TOKENS]), axis=1) / (TOKENS * WIDTH))
    score = tl.reshape(score, [IMAGES, TOKENS])
    weight = tl.exp(score - tl.max(score, axis=1)[:, None])
    weight = tl.reshape(weight / tl.sum(weight, axis=1)[:, None], [TILE])
    sums = tl.sum(tl.reshape(whole * weight[:, None], [IMAGES, TOKENS, WIDTH]), axis=1)
    tl.store(pooled + image * WIDTH + each[:, None] * WIDTH + column[None, :], sums.to(kind))

    if GOES_ON:
        if ACTIVATION == "triangle":
            whole = whole - (tl.sum(whole, axis=1) / WIDTH)[:, None]
        if ACTIVATION != "none":
            whole = tl.maximum(whole, 0.0)
        if NORM > 0:
            whole = whole * (NORM / tl.maximum(tl.sqrt(tl.sum(whole * whole, axis=1)), 1e-6))[:, None]
        label = tl.load(labels + image + each)
        factor = tl.load(factors + label[:, None] * WIDTH + column[None, :]).to(tl.float32)
        whole = tl.reshape(whole.to(kind).to(tl.float32), [IMAGES, TOKENS, WIDTH]) * factor[:, None, :]
        value = tl.reshape(whole, [TILE, WIDTH]).to(kind)
        whole = value.to(tl.float32)
        tl.store(inverse_rms + image * TOKENS + row, tl.rsqrt(tl.sum(whole * whole, axis=1) / WIDTH + EPSILON))
        tl.store(handed + begin + row[:, None] * WIDTH + column[None, :], value)


def serves(tokens: int, width: int, hidden: int, images: int, shared_memory: int) -> bool:
    """Whether tiles of whole images, all of them full, fill a matrix product and fit the memory that a program may
    share, in bytes."""
    is_whole = tokens > 0 and images > 0 and TILE % tokens == 0 and images * tokens % TILE == 0
    return is_whole and width in (64, 128, 256) and hidden % CHUNK == 0 and _stages(width, shared_memory) > 1


def _stages(width: int, shared_memory: int) -> int:
    """How many chunks are on their way at once, up to three: of the layer's weights, beside the tile, and before that
    of the projection's and what it takes.

    >>> _stages(256, 227 * 1024), _stages(256, 163 * 1024), _stages(256, 99 * 1024)
    (3, 2, 0)
    """
    layer = (shared_memory - TILE * width * 2) // (3 * CHUNK * width * 2)
    projection = shared_memory // ((TILE + width) * PART * 2)
    return max(0, min(3, layer, projection))


class Weights(NamedTuple):
    """What a tail multiplies by: `project` `[width, width]`, `gate_up` as `woven` gives it, `down` `[hidden, width]`,
    and the pool's query with its norm's scale, `[width]` in float32."""

    project: Tensor
    gate_up: Tensor
    down: Tensor
    query: Tensor


def weights(
    project: Tensor, scale: Tensor, gate_up: Tensor, down: Tensor, query: Tensor, dtype: torch.dtype
) -> Weights:
    """From the weights as the layers have them, and the scale of the feed-forward layer's norm."""
    into, back = woven(gate_up, scale, dtype), down.t().to(dtype).contiguous()
    return Weights(project.to(dtype).contiguous(), into, back, query.float().contiguous())


def _launch(tokens: Tensor, down: Tensor, epsilon: float, shared_memory: int) -> dict[str, Any]:
    _, count, width = tokens.shape
    return {
        "EPSILON": epsilon,
        "TOKENS": count,
        "WIDTH": width,
        "HIDDEN": len(down),
        "TILE": TILE,
        "PART": min(PART, width),
        "CHUNK": CHUNK,
        "STAGES": _stages(width, shared_memory),
        "PRECISION": "ieee" if tokens.dtype == torch.float32 else "tf32",  # float32 in tests alone: tiles would not fit
        "num_warps": 8,
    }


@triton_op("goodness::tail", mutates_args={})
def tail(
    tokens: Tensor, mix: Tensor, project: Tensor, gate_up: Tensor, down: Tensor, query: Tensor, factors: Tensor,
    labels: Tensor, epsilon: float, activation: str, norm: float, shared_memory: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """What a block takes in and its attention's mix, `[batch, tokens, width]`, to pooled `[batch, width]`, energy
    `[batch]`, what the next block takes in, and one over the root mean square of that, `[batch, tokens]`.

    The next block's factors are `[classes, width]`, its labels `[batch]`; `norm` is 0 where nothing is normalised.
    """
    batch, count, width = tokens.shape
    pooled, energy = tokens.new_empty(batch, width), tokens.new_empty(batch, dtype=torch.float32)
    handed, inverse_rms = torch.empty_like(tokens), tokens.new_empty(batch, count, dtype=torch.float32)
    wrap_triton(tail_kernel)[(batch * count // TILE,)](
        tokens, mix, project, gate_up, down, query, factors, labels, pooled, energy, handed, inverse_rms, batch,
        NORM=norm, ACTIVATION=activation, GOES_ON=True, **_launch(tokens, down, epsilon, shared_memory),
    )  # fmt: skip
    return pooled, energy, handed, inverse_rms


@triton_op("goodness::last_tail", mutates_args={})
def last_tail(
    tokens: Tensor, mix: Tensor, project: Tensor, gate_up: Tensor, down: Tensor, query: Tensor,
    epsilon: float, shared_memory: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `tail`, where no block follows: pooled and energy alone."""
    batch, count, width = tokens.shape
    pooled, energy = tokens.new_empty(batch, width), tokens.new_empty(batch, dtype=torch.float32)
    nothing = query  # neither read nor written
    wrap_triton(tail_kernel)[(batch * count // TILE,)](
        tokens, mix, project, gate_up, down, query, nothing, nothing, pooled, energy, nothing, nothing, batch,
        NORM=0.0, ACTIVATION="none", GOES_ON=False, **_launch(tokens, down, epsilon, shared_memory),
    )  # fmt: skip
    return pooled, energy
