"""Single image operations on a batch, each sample with its own parameters.

Images are float32 `[n, channels, height, width]` whose values are whole grey levels 0..255, and every
operation returns such images again: rounding happens where Pillow rounds, so a chain of operations gives what
the usual uint8 pipeline gives. Parameters are `[n]`. Nothing here draws random numbers, loops over samples,
or makes a shape or a branch depend on the data, so a chain of them compiles into one graph.

Where a quotient of whole numbers is rounded down, half a unit is added to the numerator first. That moves it
away from the integers without crossing one, and a GPU's approximate division then rounds like an exact one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

fixed_point = 65536  # Pillow's 16.16 coordinates; int32 holds them for images up to 16,000 pixels wide


def per_sample(values: Tensor) -> Tensor:
    """`[n]` to `[n, 1, 1, 1]`, to meet `[n, channels, height, width]`."""
    return values.view(-1, 1, 1, 1)


def whole(images: Tensor) -> Tensor:
    """The nearest grey level, halves up."""
    return (images + 0.5).floor()


# Geometry


def affine_matrix(
    height: int,
    width: int,
    *,
    shear_x: Tensor | float = 0.0,
    shear_y: Tensor | float = 0.0,
    translate_x: Tensor | float = 0.0,
    translate_y: Tensor | float = 0.0,
    degrees: Tensor,
) -> Tensor:
    """Rows (a, b, c, d, e, f) `[n, 6]`: output (x, y) reads input (a x + b y + c, d x + e y + f).

    Shear and translation act from the top left corner, rotation counter-clockwise about the centre. The parts
    are added, not composed, so at most one of them may differ from zero in a sample; that is all RandAugment
    needs, and it serves five operations with one read of the image.
    """
    radians = degrees * (math.pi / 180)
    cosine, sine = radians.cos(), radians.sin()
    centre_x, centre_y = width / 2, height / 2
    return torch.stack(
        [
            cosine,
            -sine + shear_x,
            centre_x - cosine * centre_x + sine * centre_y + translate_x,
            sine + shear_y,
            cosine,
            centre_y - sine * centre_x - cosine * centre_y + translate_y,
        ],
        dim=1,
    )


def affine_nearest(images: Tensor, matrix: Tensor) -> Tensor:
    """Read every output pixel at its affine place in the input; nearest pixel, zero outside.

    Pixel (i, j) has its centre at (i + 1/2, j + 1/2). Coordinates are rounded to 16.16 fixed point as in
    Pillow: integers choose the same pixel whether or not a compiler fused the multiplications before them.
    """
    channels, height, width = images.shape[1:]
    a, b, c, d, e, f = matrix.unbind(1)
    parts = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2])
    a, b, c, d, e, f = (parts * fixed_point + 0.5).floor().int().view(6, -1, 1, 1).unbind(0)
    x = torch.arange(width, device=images.device, dtype=torch.int32)
    y = torch.arange(height, device=images.device, dtype=torch.int32).view(-1, 1)
    source_x = (a * x + b * y + c) >> 16  # [n, height, width]; the shift rounds down, also below zero
    source_y = (d * x + e * y + f) >> 16
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    place = source_y.clamp(0, height - 1) * width + source_x.clamp(0, width - 1)
    index = place.long().view(-1, 1, height * width).expand(-1, channels, -1)
    read = images.flatten(2).gather(2, index).view_as(images)
    return torch.where(inside.unsqueeze(1), read, 0.0)


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Row y moves left by `amount * y`."""
    return _geometric(images, shear_x=amount)


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Column x moves up by `amount * x`."""
    return _geometric(images, shear_y=amount)


def translate_x(images: Tensor, pixels: Tensor) -> Tensor:
    """Move the content left by whole `pixels` (right where negative)."""
    return _geometric(images, translate_x=pixels)


def translate_y(images: Tensor, pixels: Tensor) -> Tensor:
    """Move the content up by whole `pixels` (down where negative)."""
    return _geometric(images, translate_y=pixels)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn counter-clockwise about the centre, size kept."""
    return affine_nearest(images, affine_matrix(*images.shape[2:], degrees=degrees))


def _geometric(images: Tensor, **amount: Tensor) -> Tensor:
    (values,) = amount.values()
    return affine_nearest(images, affine_matrix(*images.shape[2:], degrees=torch.zeros_like(values), **amount))


def erased(images: Tensor, row: Tensor, column: Tensor, side: int) -> Tensor:
    """A square of this side in grey (128), its centre (of an even side, the pixel after it) at row and column `[n]`."""

    def covered(size: int, centre: Tensor) -> Tensor:
        offset = torch.arange(size, device=images.device) - centre.unsqueeze(1)
        return (offset >= -(side // 2)) & (offset < side - side // 2)

    down, across = covered(images.shape[2], row), covered(images.shape[3], column)
    return torch.where((down.unsqueeze(2) & across.unsqueeze(1)).unsqueeze(1), 128.0, images)


def horizontal_flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror left and right where `mirrored` `[n]` is true."""
    return torch.where(per_sample(mirrored), images.flip(-1), images)


def resized_crop(images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Cut a box of whole pixels out of each image and stretch it back to the image's size, bilinear.

    Output pixel i reads the box at `(i + 1/2) * length / size - 1/2`, held inside the box. A box is never
    larger than the image, so nothing shrinks and no antialiasing is called for.
    """
    rows = _stretch(images, top, height, 2)
    return whole(_stretch(rows, left, width, 3))


def _stretch(images: Tensor, start: Tensor, length: Tensor, dim: int) -> Tensor:
    size = images.shape[dim]
    shape = [len(images), 1, 1, 1]
    shape[dim] = size
    steps = torch.arange(size, device=images.device, dtype=images.dtype) + 0.5
    last = (length - 1).unsqueeze(1)
    place = steps * (length / size).unsqueeze(1) - 0.5  # [n, size], relative to the box
    place = place.clamp(min=0.0).minimum(last)
    before = place.floor()
    after = (before + 1).minimum(last)
    weight = (place - before).view(shape)
    origin = start.unsqueeze(1)
    low = images.gather(dim, (before + origin).long().view(shape).expand_as(images))
    high = images.gather(dim, (after + origin).long().view(shape).expand_as(images))
    return low + weight * (high - low)


# Colour


def luma(images: Tensor) -> Tensor:
    """Grey value `[n, 1, height, width]`: ITU-R 601 weights in 65536ths as in Pillow, exact in float32."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) / 65536).floor()


def mean_luma(images: Tensor) -> Tensor:
    """The mean grey value of each image as a whole grey level, `[n, 1, 1, 1]`."""
    return mean_level(luma(images))


def mean_level(grey: Tensor) -> Tensor:
    """The mean of grey images `[n, 1, height, width]` as a whole grey level, `[n, 1, 1, 1]`; summed in integers."""
    pixels = grey.shape[2] * grey.shape[3]
    total = grey.sum((1, 2, 3), keepdim=True, dtype=torch.int64)
    return torch.div(2 * total + pixels, 2 * pixels, rounding_mode="floor").to(grey.dtype)


def smoothed(images: Tensor) -> Tensor:
    """Every pixel with its eight neighbours, weights (1 1 1, 1 5 1, 1 1 1) / 13; the border is kept."""
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    centre = images[:, :, 1:-1, 1:-1]
    mean = ((around + 4 * centre + 6.5) / 13).floor()
    return images + functional.pad(mean - centre, (1, 1, 1, 1))


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """`degenerate + factor * (images - degenerate)`, clipped and rounded down; factor 1 changes nothing.

    Factors such as 0.97 often hit a whole level up to rounding. The margin gives that level on every device,
    compiled or not; Pillow, without it, may be one level lower there.
    """
    mixed = degenerate + per_sample(factor) * (images - degenerate)
    return (mixed + 1 / 1024).clamp(0, 255).floor()


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Away from black (factor above 1) or towards it."""
    return blend(torch.zeros_like(images), images, factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Away from each pixel's own grey or towards it (RandAugment's Color); identity for one channel."""
    return blend(luma(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from the image's mean grey or towards it."""
    return blend(mean_luma(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Away from the smoothed image or towards it."""
    return blend(smoothed(images), images, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the upper `bits` of the eight bits of every level."""
    step = torch.ones_like(bits, dtype=torch.int32) << (8 - bits).int()
    return (images.int() & per_sample(-step)).to(images.dtype)  # -step is the mask of the bits from step upwards


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels at or above the threshold."""
    return torch.where(images < per_sample(threshold), images, 255 - images)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to 0..255: `floor(255 (x - low) / (high - low))`; a flat channel stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    span = high - low
    stretched = (((images - low) * 255 + 0.5) / span.clamp(min=1)).floor()
    return torch.where(span > 0, stretched, images)


def equalize(images: Tensor) -> Tensor:
    """Flatten each channel's histogram, as Pillow does in whole numbers.

    With `below(x)` the number of pixels darker than x and `step = below(brightest) // 255`, a level becomes
    `min(255, (step // 2 + below(x)) // step)`. Where step is 0 (a flat channel, or fewer than 256 pixels as
    in 8 x 8 digits) the channel stays.
    """
    channels = images.flatten(2)
    below = pixels_below(channels)
    levels = channels.long()
    step = below.gather(2, levels.amax(2, keepdim=True)) // 255
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    flat = table.gather(2, levels).to(images.dtype)
    return torch.where(step > 0, flat, channels).view_as(images)


def pixels_below(channels: Tensor) -> Tensor:
    """For `[n, channels, pixels]` of whole levels: how many pixels lie below each of the 256 levels.

    A histogram on a CPU, where it is much the faster way. Elsewhere a sort and a binary search, for a GPU
    adds into a histogram with atomics, which deterministic mode refuses. Both count in integers and agree.
    """
    if channels.device.type == "cpu":
        one = torch.ones((), dtype=torch.int64)
        counts = torch.zeros((*channels.shape[:2], 256), dtype=torch.int64)
        counts = counts.scatter_add(2, channels.long(), one.expand(channels.shape))
        return counts.cumsum(2) - counts
    return _pixels_below_by_sorting(channels)


def _pixels_below_by_sorting(channels: Tensor) -> Tensor:
    ordered = channels.to(torch.uint8).sort(dim=2).values.contiguous()
    levels = torch.arange(256, device=channels.device, dtype=torch.int16).to(torch.uint8)
    return torch.searchsorted(ordered, levels.expand(*channels.shape[:2], 256).contiguous())


def hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn every pixel's hue by `turns` (1 is full circle); identity for one channel.

    With M the largest and C the spread of (r, g, b), and h the turned hue in sixths of a circle, the channels
    come back as `M - C * clamp(min(k, 4 - k), 0, 1)` for `k = (h + 5) mod 6, (h + 3) mod 6, (h + 1) mod 6`.
    The hue stays a float in between, where Pillow's HSV images would cut it to eight bits.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    largest = images.amax(1, keepdim=True)
    spread = largest - images.amin(1, keepdim=True)
    sixth = torch.where(
        largest == red,
        green - blue,
        torch.where(largest == green, blue - red + 2 * spread, red - green + 4 * spread),
    )
    angle = sixth / spread.clamp(min=1) + per_sample(6 * turns)
    channels = []
    for offset in (5, 3, 1):
        place = (angle + offset).remainder(6)
        channels.append(largest - spread * torch.minimum(place, 4 - place).clamp(0, 1))
    return whole(torch.cat(channels, dim=1))


def gaussian_blur(images: Tensor, sigma: Tensor, kernel_size: int) -> Tensor:
    """Convolve rows and columns with `exp(-t^2 / (2 sigma^2))`, t = -r..r, with sum 1; edges mirrored."""
    radius = kernel_size // 2
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    weights = torch.exp(-0.5 * (offsets / sigma.unsqueeze(1)) ** 2)
    weights = weights / weights.sum(1, keepdim=True)
    padded = functional.pad(images, (radius, radius, radius, radius), mode="reflect")
    return whole(_weighted_slices(_weighted_slices(padded, weights, 2), weights, 3))


def _weighted_slices(images: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Slices and sums, not a convolution: each sample has its own kernel, and TF32 would cost grey levels."""
    taps = weights.shape[1]
    size = images.shape[dim] - taps + 1
    total = per_sample(weights[:, 0]) * images.narrow(dim, 0, size)
    for tap in range(1, taps):
        total = total + per_sample(weights[:, tap]) * images.narrow(dim, tap, size)
    return total
