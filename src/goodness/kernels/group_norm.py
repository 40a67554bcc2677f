"""Group normalisation, scale and shift, then GELU, of images laid out channels last: an image's few groups a program.

The whole of a program's share goes through twice, the second time from the cache; mean and variance and, backward, the
sums over channels are taken in float32, and dscale and dshift are left per image for a sum outside. What comes out may
lie patch by patch, as a matrix product over patches wants it: a copy less.
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

from goodness.kernels.normal import normal


@triton.jit
def _of_group(values, column, PER_GROUP: tl.constexpr):
    """For every channel, the sum over the channels of its group."""
    mine = (column // PER_GROUP)[:, None] == (column // PER_GROUP)[None, :]
    return tl.sum(tl.where(mine, values[None, :], 0.0), axis=1)


@triton.jit
def _among_patches(row, ACROSS: tl.constexpr, PATCH: tl.constexpr):
    """Where a pixel stands when patches of PATCH by PATCH pixels follow each other, in images ACROSS pixels wide."""
    if PATCH == 1:
        return row
    down, right = row // ACROSS, row % ACROSS
    patch = (down // PATCH) * (ACROSS // PATCH) + right // PATCH
    return patch * (PATCH * PATCH) + (down % PATCH) * PATCH + right % PATCH


@triton.jit
def group_norm_forward_kernel(
    x, scale, shift, out, means, spreads, EPSILON: tl.constexpr,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, PER_GROUP: tl.constexpr, OWN: tl.constexpr, TILE: tl.constexpr,
    ROWS: tl.constexpr, ACROSS: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    PARTS: tl.constexpr = CHANNELS // OWN
    image, part = (tl.program_id(0) // PARTS).to(tl.int64), tl.program_id(0) % PARTS
    column = tl.arange(0, TILE)
    owned = column < OWN
    place = part * OWN + column
    start = image * PIXELS * CHANNELS
    about = tl.load(x + start + place, mask=owned, other=0.0)  # taken off first, lest digits cancel
    totals = tl.zeros([ROWS, TILE], tl.float32)  # added up over rows once, at the end
    squares = tl.zeros([ROWS, TILE], tl.float32)
    for first in range(0, PIXELS, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < PIXELS)[:, None] & owned[None, :]
        where = row[:, None] * CHANNELS + place[None, :]
        value = tl.load(x + start + where, mask=inside, other=about[None, :]).to(tl.float32) - about[None, :]
        totals += value
        squares += value * value
    count: tl.constexpr = PIXELS * PER_GROUP
    total, square = tl.sum(totals, axis=0), tl.sum(squares, axis=0)
    own = about.to(tl.float32) + total / PIXELS  # the channel's mean
    mean = _of_group(own, column, PER_GROUP) / PER_GROUP
    within = square - total * total / PIXELS + PIXELS * (own - mean) * (own - mean)
    variance = _of_group(within, column, PER_GROUP) / count
    spread = 1 / tl.sqrt(tl.maximum(variance, 0.0) + EPSILON)
    tl.store(means + image * CHANNELS + place, mean, mask=owned)
    tl.store(spreads + image * CHANNELS + place, spread, mask=owned)
    gain = tl.load(scale + place, mask=owned, other=0.0).to(tl.float32) * spread
    offset = tl.load(shift + place, mask=owned, other=0.0).to(tl.float32) - mean * gain
    for first in range(0, PIXELS, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < PIXELS)[:, None] & owned[None, :]
        where = row[:, None] * CHANNELS + place[None, :]
        value = tl.load(x + start + where, mask=inside, other=0.0).to(tl.float32) * gain[None, :] + offset[None, :]
        share, _ = normal(value)
        into = _among_patches(row, ACROSS, PATCH)[:, None] * CHANNELS + place[None, :]
        tl.store(out + start + into, (value * share).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _slope(x, slope, where, above_where, inside, mean, rate, shift):
    """The distance from the mean, and the loss's slope before the GELU: 0 outside, as the slope above is."""
    centred = tl.load(x + where, mask=inside, other=0.0).to(tl.float32) - mean[None, :]
    value = centred * rate[None, :] + shift[None, :]
    above = tl.load(slope + above_where, mask=inside, other=0.0).to(tl.float32)
    share, density = normal(value)
    return centred, above * (share + value * density)


@triton.jit
def group_norm_backward_kernel(
    x, scale, shift, means, spreads, slope, gradient, to_scale, to_shift,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, PER_GROUP: tl.constexpr, OWN: tl.constexpr, TILE: tl.constexpr,
    ROWS: tl.constexpr, ACROSS: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    PARTS: tl.constexpr = CHANNELS // OWN
    image, part = (tl.program_id(0) // PARTS).to(tl.int64), tl.program_id(0) % PARTS
    column = tl.arange(0, TILE)
    owned = column < OWN
    place = part * OWN + column
    start = image * PIXELS * CHANNELS
    mean = tl.load(means + image * CHANNELS + place, mask=owned, other=0.0)
    spread = tl.load(spreads + image * CHANNELS + place, mask=owned, other=0.0)
    gain = tl.load(scale + place, mask=owned, other=0.0).to(tl.float32)
    offset = tl.load(shift + place, mask=owned, other=0.0).to(tl.float32)
    rate = gain * spread
    plains = tl.zeros([ROWS, TILE], tl.float32)
    alongs = tl.zeros([ROWS, TILE], tl.float32)
    for first in range(0, PIXELS, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < PIXELS)[:, None] & owned[None, :]
        where = row[:, None] * CHANNELS + place[None, :]
        above_where = _among_patches(row, ACROSS, PATCH)[:, None] * CHANNELS + place[None, :]
        centred, below = _slope(x + start, slope + start, where, above_where, inside, mean, rate, offset)
        plains += below
        alongs += below * centred
    plain, along = tl.sum(plains, axis=0), tl.sum(alongs, axis=0) * spread
    tl.store(to_shift + image * CHANNELS + place, plain, mask=owned)
    tl.store(to_scale + image * CHANNELS + place, along, mask=owned)
    count: tl.constexpr = PIXELS * PER_GROUP
    level = _of_group(plain * gain, column, PER_GROUP) / count * spread
    tilt = _of_group(along * gain, column, PER_GROUP) / count * spread * spread
    for first in range(0, PIXELS, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < PIXELS)[:, None] & owned[None, :]
        where = row[:, None] * CHANNELS + place[None, :]
        above_where = _among_patches(row, ACROSS, PATCH)[:, None] * CHANNELS + place[None, :]
        centred, below = _slope(x + start, slope + start, where, above_where, inside, mean, rate, offset)
        value = below * rate[None, :] - level[None, :] - centred * tilt[None, :]
        tl.store(gradient + start + where, value.to(gradient.dtype.element_ty), mask=inside)


def _launch(x: Tensor, groups: int, across: int, patch: int, is_forward: bool) -> tuple[tuple[int], dict[str, int]]:
    """A program takes whole groups, as many as 64 channels hold, so that it reads long pieces of a row.

    Its warps grow with its share, at one or two pieces of 16 bytes a thread and step: what was fastest on an H200.
    """
    images, pixels, channels = x.shape
    per_group = channels // groups
    together = max(n for n in range(1, groups + 1) if groups % n == 0 and (n == 1 or n * per_group <= 64))
    own = together * per_group
    tile = triton.next_power_of_2(own)
    warps = max(1, min(16, triton.next_power_of_2(pixels) * tile // (2048 if is_forward else 4096)))
    pieces = 256 if warps == 16 and not is_forward else 512
    rows = max(1, min(triton.next_power_of_2(pixels), warps * pieces // tile))
    sizes = {"PIXELS": pixels, "CHANNELS": channels, "PER_GROUP": per_group, "OWN": own, "TILE": tile, "ROWS": rows}
    return (images * (channels // own),), {**sizes, "ACROSS": across, "PATCH": patch, "num_warps": warps}


@triton_op("goodness::group_norm_gelu", mutates_args={})
def _group_norm_gelu(
    x: Tensor, scale: Tensor, shift: Tensor, groups: int, epsilon: float, across: int, patch: int
) -> tuple[Tensor, Tensor, Tensor]:
    out = torch.empty_like(x)
    means = x.new_empty(x.shape[0], x.shape[2], dtype=torch.float32)
    spreads = torch.empty_like(means)
    grid, sizes = _launch(x, groups, across, patch, is_forward=True)
    wrap_triton(group_norm_forward_kernel)[grid](x, scale, shift, out, means, spreads, EPSILON=epsilon, **sizes)
    return out, means, spreads


@triton_op("goodness::group_norm_gelu_backward", mutates_args={})
def _group_norm_gelu_backward(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    means: Tensor,
    spreads: Tensor,
    slope: Tensor,
    groups: int,
    across: int,
    patch: int,
) -> tuple[Tensor, Tensor, Tensor]:
    gradient, to_scale, to_shift = torch.empty_like(x), torch.empty_like(means), torch.empty_like(means)
    grid, sizes = _launch(x, groups, across, patch, is_forward=False)
    launch = wrap_triton(group_norm_backward_kernel)[grid]
    launch(x, scale, shift, means, spreads, slope, gradient, to_scale, to_shift, **sizes)
    return gradient, to_scale.sum(dim=0), to_shift.sum(dim=0)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, scale, shift, ctx.groups, _, ctx.across, ctx.patch = inputs
    ctx.save_for_backward(x, scale, shift, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _gradient(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, shift, means, spreads = ctx.saved_tensors
    gradient, to_scale, to_shift = _group_norm_gelu_backward(
        x, scale, shift, means, spreads, slope.contiguous(), ctx.groups, ctx.across, ctx.patch
    )
    return gradient, to_scale.to(scale.dtype), to_shift.to(shift.dtype), None, None, None, None


_group_norm_gelu.register_autograd(_gradient, setup_context=_remember)


def group_norm_gelu(
    x: Tensor, scale: Tensor, shift: Tensor, groups: int, epsilon: float = 1e-5, across: int = 1, patch: int = 1
) -> Tensor:
    """`[images, pixels, channels]`, normalised over a group's channels and all pixels of an image, then GELU.

    With a patch above 1, the pixels of images `across` wide, all of whole patches, come out patch by patch.
    """
    return _group_norm_gelu(x, scale, shift, groups, epsilon, across, patch)[0]
