"""A convolution whose tensors are channels last and stay so: compilers that choose layouts leave it alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op


@custom_op("goodness::convolve", mutates_args=())
def convolve(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """`[batch, rows, columns, in]` and weights `[out, in, k, k]` to `[batch, rows', columns', out]`."""
    weight = weight.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x.permute(0, 3, 1, 2), weight, stride=stride, padding=padding).permute(0, 2, 3, 1).contiguous()


@convolve.register_fake
def _(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    size = [(side + 2 * padding - weight.shape[2]) // stride + 1 for side in x.shape[1:3]]
    return x.new_empty(x.shape[0], *size, weight.shape[0])


@custom_op("goodness::convolve_backward", mutates_args=())
def _convolve_backward(slope: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    to_x, to_weight, _ = torch.ops.aten.convolution_backward(
        slope.permute(0, 3, 1, 2),
        x.permute(0, 3, 1, 2),
        weight.contiguous(memory_format=torch.channels_last),
        None,
        [stride, stride],
        [padding, padding],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, False],
    )
    return to_x.permute(0, 2, 3, 1).contiguous(), to_weight.contiguous()


@_convolve_backward.register_fake
def _(slope: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.stride, ctx.padding = inputs
    ctx.save_for_backward(x, weight)


def _gradient(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None, None]:
    x, weight = ctx.saved_tensors
    return *_convolve_backward(slope.contiguous(), x, weight, ctx.stride, ctx.padding), None, None


convolve.register_autograd(_gradient, setup_context=_remember)
