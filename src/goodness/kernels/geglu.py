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
def _place(rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where this program's numbers lie among the narrow rows (one projection) and the wide, and which there are.

    It is given no pointer: torch.compile follows a store back through calls to all that they were given, and copies
    beforehand what it takes to be overwritten.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (first + row < rows) & (column < HIDDEN)
    return first * HIDDEN + (row * HIDDEN + column), first * (2 * HIDDEN) + (row * (2 * HIDDEN) + column), inside


@triton.jit
def geglu_forward_kernel(gate_up, out, rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    narrow, wide, inside = _place(rows, HIDDEN, ROWS, COLUMNS)
    gate = tl.load(gate_up + wide, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + HIDDEN + wide, mask=inside, other=0.0).to(tl.float32)
    share, _ = normal(gate)
    tl.store(out + narrow, (gate * share * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def geglu_backward_kernel(
    gate_up, slope, gradient, rows, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    narrow, wide, inside = _place(rows, HIDDEN, ROWS, COLUMNS)
    gate = tl.load(gate_up + wide, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + HIDDEN + wide, mask=inside, other=0.0).to(tl.float32)
    above = tl.load(slope + narrow, mask=inside, other=0.0).to(tl.float32)
    share, density = normal(gate)
    kind = gradient.dtype.element_ty
    tl.store(gradient + wide, (above * up * (share + gate * density)).to(kind), mask=inside)
    tl.store(gradient + HIDDEN + wide, (above * gate * share).to(kind), mask=inside)


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
