"""Mixup and CutMix of a batch, as a pure function of the batch and six uniform numbers.

Like `augment`, `mix` draws nothing itself and takes no branch on the data: the caller keys the numbers, and a
resumed run mixes alike. One lambda serves the whole batch, as in the usual recipe.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

draws_needed = 6  # which of the two, two for lambda, the partner, the row and the column of the box's centre


def mix(
    images: Tensor, targets: Tensor, draws: Tensor, *, mixup: float = 0.0, cutmix: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Images `[batch, C, H, W]` and target distributions `[batch, classes]`, each mixed with a partner's.

    `mixup` and `cutmix` are the alphas of lambda ~ Beta(alpha, alpha); 0 switches a kind off, and where both are
    on either comes up half of the time. `draws` are `[6]` uniforms in [0, 1) on the images' device. The targets are
    mixed in the share of the pixels: m = share of the own image, own * m + partner's * (1 - m).
    """
    if draws.shape != (draws_needed,) or not draws.is_floating_point():
        raise ValueError(f"mix takes {draws_needed} uniform floats, not {draws.dtype} {list(draws.shape)}")
    if not mixup and not cutmix:
        return images, targets
    blends = draws[0] < (0.5 if mixup and cutmix else float(mixup > 0))
    height, width = images.shape[2:]
    # An alpha of 0 is never the one in use; 1 stands in for it, so that it divides nothing.
    blend = symmetric_beta(draws[1], draws[2], mixup or 1.0)
    outside = outside_box(symmetric_beta(draws[1], draws[2], cutmix or 1.0), draws[4], draws[5], height, width)
    own = torch.where(blends, blend, outside)  # [height, width], the own image's part of each pixel
    partner = turned_batch(len(images), draws[3])
    return _blend(images, partner, own), _blend(targets, partner, own.mean())


def symmetric_beta(u: Tensor, v: Tensor, alpha: float) -> Tensor:
    """Beta(alpha, alpha) from two uniforms, exactly and for every alpha > 0, without rejecting any.

    Bailey's polar formula gives Student's t with 2 alpha degrees of freedom, t^2 = 2 alpha (u^(-1/alpha) - 1) c^2
    with c = cos(2 pi v), and (1 + t / sqrt(2 alpha + t^2)) / 2 is Beta(alpha, alpha). With w = u^(1/alpha) that is

        (1 + c sqrt((1 - w) / (w + c^2 (1 - w)))) / 2
    """
    w = u ** (1 / alpha)
    c = (2 * math.pi * v).cos()
    cosine = c * ((1 - w) / (w + c.square() * (1 - w))).sqrt()
    return (1 + cosine.clamp(-1, 1)) / 2  # rounding can pass 1


def outside_box(kept: Tensor, row: Tensor, column: Tensor, height: int, width: int) -> Tensor:
    """CutMix's mask `[height, width]`: 0 in a box of the image's proportions and about 1 - `kept` of its area, else 1.

    The box's centre is anywhere (`row` and `column` are uniforms), so the border may cut off up to three quarters.
    """
    side = (1 - kept).sqrt()
    rows = _inside(row, side, height)
    columns = _inside(column, side, width)
    return 1 - rows[:, None] * columns


def _inside(centre: Tensor, share: Tensor, length: int) -> Tensor:
    """`[length]`: 1 on a stretch of about `share * length` pixels around `centre * length`, cut off at both ends."""
    pixels = torch.arange(length, device=centre.device)
    stretch = (share * length).round()
    start = (centre * length).floor() - (stretch / 2).floor()
    return ((pixels >= start) & (pixels < start + stretch)).to(centre.dtype)


def turned_batch(count: int, u: Tensor) -> Tensor:
    """Everyone's partner: the batch turned by 1 to `count` - 1 places, so that nobody is its own.

    A batch comes in random order already; to turn it is as good as to shuffle it.
    """
    turn = 1 + (u * (count - 1)).floor().clamp(max=max(count - 2, 0)).long()
    return (torch.arange(count, device=u.device) + turn) % count


def _blend(values: Tensor, partner: Tensor, own: Tensor) -> Tensor:
    own = own.to(values.dtype)
    return own * values + (1 - own) * values[partner]
