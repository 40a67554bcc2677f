"""x + down(gelu(gate(h)) * up(h)) with h = x / rms(x) * scale, where no gradient is asked for, in one reading of x.

A program keeps a tile of tokens and goes through the hidden units chunk by chunk; what is hidden never leaves the
processor. The norm's scale is part of the weights, its root mean square multiplies the products, and gate and up
alternate among the rows of one matrix, so that neighbouring columns of the product belong together.
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

TILE, CHUNK = 128, 32


@triton.jit
def _share(x):
    """P(Z <= x) for float32, a polynomial between -4.2 and 4.2; x times it is GELU, right to 9e-5.

    A twentieth of what bfloat16 rounds a one by, and without the special functions, of which a processor has few.
    """
    within = tl.minimum(tl.maximum(x, -4.2), 4.2)
    square = within * within
    series = -9.01753172e-10 * square + 7.94133896e-08
    series = series * square - 3.03793149e-06
    series = series * square + 6.68906941e-05
    series = series * square - 9.50657472e-04
    series = series * square + 9.29822959e-03
    series = series * square - 6.55281991e-02
    series = series * square + 3.98465872e-01
    return within * series + 0.5


@triton.jit
def added(
    value, mixed, turn, gate_up, down,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """`mixed` and what the layer makes of the tile `value`, times `turn`, one over its root mean square."""
    column, pair, unit = tl.arange(0, WIDTH), tl.arange(0, 2 * CHUNK), tl.arange(0, CHUNK)
    for first in tl.range(0, HIDDEN, CHUNK, num_stages=STAGES):  # pyright: ignore[reportGeneralTypeIssues]
        into = tl.load(gate_up + (2 * first + pair)[:, None] * WIDTH + column[None, :])
        both = tl.dot(value, tl.trans(into), input_precision=PRECISION) * turn[:, None]
        gate, up = tl.split(tl.reshape(both, [TILE, CHUNK, 2]))
        hidden = (gate * _share(gate) * up).to(value.dtype)
        back = tl.load(down + (first + unit)[:, None] * WIDTH + column[None, :])
        mixed = tl.dot(hidden, back, mixed, input_precision=PRECISION)
    return mixed


@triton.jit
def feedforward_kernel(
    x, gate_up, down, out, rows,
    EPSILON: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)
    where = row[:, None] * WIDTH + column[None, :]
    inside = (row < rows)[:, None]
    value = tl.load(x + where, mask=inside, other=0.0)
    mixed = value.to(tl.float32)
    turn = tl.rsqrt(tl.sum(mixed * mixed, axis=1) / WIDTH + EPSILON)
    mixed = added(value, mixed, turn, gate_up, down, WIDTH, HIDDEN, TILE, CHUNK, STAGES, PRECISION)
    tl.store(out + where, mixed.to(kind), mask=inside)


def serves(width: int, hidden: int, shared_memory: int) -> bool:
    """Whether tiles of this width fill a matrix product and fit the memory that a program may share, in bytes."""
    return width in (64, 128, 256) and hidden % CHUNK == 0 and _stages(width, shared_memory) > 1


def _stages(width: int, shared_memory: int) -> int:
    """How many chunks of weights are on their way at once, beside the tile: up to three, as many as there is room for.

    >>> _stages(256, 227 * 1024), _stages(256, 163 * 1024), _stages(256, 99 * 1024)
    (3, 2, 0)
    """
    tile, chunk = TILE * width * 2, 3 * CHUNK * width * 2
    return max(0, min(3, (shared_memory - tile) // chunk))


@torch.compiler.assume_constant_result
def shared_memory(device: int) -> int:
    """Bytes that a program may share on a CUDA device: all that a processor has, less a kilobyte for itself."""
    return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor - 1024


def woven(gate_up: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The norm's scale times `[2 * hidden, width]`, gate first, as rows that alternate between gate and up."""
    hidden, width = len(gate_up) // 2, gate_up.shape[1]
    return (gate_up * scale).reshape(2, hidden, width).transpose(0, 1).reshape(2 * hidden, width).to(dtype).contiguous()


@triton_op("goodness::feedforward", mutates_args={})
def feedforward(tokens: Tensor, gate_up: Tensor, down: Tensor, epsilon: float, stages: int) -> Tensor:
    """Tokens `[..., width]` to the same; `gate_up` as `woven` gives it, `down` `[hidden, width]`."""
    out, rows = torch.empty_like(tokens), tokens.numel() // tokens.shape[-1]
    launch: dict[str, Any] = {
        "EPSILON": epsilon,
        "WIDTH": tokens.shape[-1],
        "HIDDEN": len(down),
        "TILE": TILE,
        "CHUNK": CHUNK,
        "STAGES": stages,
        "PRECISION": "ieee" if tokens.dtype == torch.float32 else "tf32",  # float32 in tests alone: tiles would not fit
        "num_warps": 8,
    }
    wrap_triton(feedforward_kernel)[(triton.cdiv(rows, TILE),)](tokens, gate_up, down, out, rows, **launch)
    return out


def fed_forward(
    tokens: Tensor, scale: Tensor, gate_up: Tensor, down: Tensor, epsilon: float, shared_memory: int
) -> Tensor:
    """The layer on tokens `[..., width]`, from the weights as the layer has them."""
    dtype, stages = tokens.dtype, _stages(tokens.shape[-1], shared_memory)
    into, back = woven(gate_up, scale, dtype), down.t().to(dtype).contiguous()
    return feedforward(tokens.contiguous(), into, back, epsilon, stages)
