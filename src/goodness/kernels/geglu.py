"""gelu(gate) * up on one projection `[rows, 2 * hidden]`: read once forward, read once backward, written once."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportFunctionMemberAccess=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from goodness.kernels.normal import normal

ROWS, COLUMNS = 16, 64


@triton.jit
def _read(gate_up, rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """This program's first row, where its numbers are among the narrow rows and among the wide, and gate and up."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (first + row < rows) & (column < HIDDEN)
    narrow, wide = row * HIDDEN + column, row * (2 * HIDDEN) + column
    base = gate_up + first * (2 * HIDDEN)
    gate = tl.load(base + wide, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(base + HIDDEN + wide, mask=inside, other=0.0).to(tl.float32)
    return first, narrow, wide, inside, gate, up


@triton.jit
def geglu_forward_kernel(gate_up, out, rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    first, narrow, _, inside, gate, up = _read(gate_up, rows, HIDDEN, ROWS, COLUMNS)
    share, _ = normal(gate)
    tl.store(out + first * HIDDEN + narrow, (gate * share * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def geglu_backward_kernel(
    gate_up, slope, gradient, rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    first, narrow, wide, inside, gate, up = _read(gate_up, rows, HIDDEN, ROWS, COLUMNS)
    above = tl.load(slope + first * HIDDEN + narrow, mask=inside, other=0.0).to(tl.float32)
    share, density = normal(gate)
    kind = gradient.dtype.element_ty
    base = gradient + first * (2 * HIDDEN)
    tl.store(base + wide, (above * up * (share + gate * density)).to(kind), mask=inside)
    tl.store(base + HIDDEN + wide, (above * gate * share).to(kind), mask=inside)


def _grid(rows: int, hidden: int) -> tuple[int, int]:
    return triton.cdiv(rows, ROWS), triton.cdiv(hidden, COLUMNS)


@triton_op("goodness::geglu", mutates_args={})
def geglu(gate_up: Tensor) -> Tensor:
    """`[rows, 2 * hidden]` to `[rows, hidden]`."""
    rows, hidden = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, hidden)
    launch = wrap_triton(geglu_forward_kernel)[_grid(rows, hidden)]
    launch(gate_up, out, rows, HIDDEN=hidden, ROWS=ROWS, COLUMNS=COLUMNS)
    return out


@triton_op("goodness::geglu_backward", mutates_args={})
def _geglu_backward(gate_up: Tensor, slope: Tensor) -> Tensor:
    rows, hidden = slope.shape
    gradient = torch.empty_like(gate_up)
    launch = wrap_triton(geglu_backward_kernel)[_grid(rows, hidden)]
    launch(gate_up, slope, gradient, rows, HIDDEN=hidden, ROWS=ROWS, COLUMNS=COLUMNS)
    return gradient


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, slope: Tensor) -> Tensor:
    return _geglu_backward(ctx.saved_tensors[0], slope.contiguous())


geglu.register_autograd(_gradient, setup_context=_remember)
