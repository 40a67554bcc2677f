"""Rows in another order, with a gradient that knows the way back."""

# pyright: reportFunctionMemberAccess=false

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor
from torch.library import triton_op

# torch looks for kernels in every such operator, and warns where there is no Triton to find any with.
logging.getLogger("torch._library.triton").addFilter(
    lambda record: not record.getMessage().startswith("Triton not available")
)


@triton_op("goodness::permuted", mutates_args={})
def permuted(x: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """`x[order]`, where `back` undoes `order`.

    The gradient is read in that order, where torch's would clear a tensor and add to it number by number, as if rows
    could be named twice. There is no kernel in it: a `triton_op` is the kind of operator whose code torch.compile takes
    into the graph around it.
    """
    return x[order]


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _gradient(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
    order, back = ctx.saved_tensors
    return permuted(slope, back, order), None, None


permuted.register_autograd(_gradient, setup_context=_remember)
