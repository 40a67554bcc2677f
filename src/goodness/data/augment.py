"""Augmentation as a pure function of images and uniform numbers.

`augment(images, u, recipe)` draws nothing itself: row i of `u` decides everything that happens to image i.
The caller keys the numbers (by run, epoch, image and view), so a resumed run, another batch order or another
batch size gives the same views, and all of it compiles into graphs with static shapes (`compiled_augment`).

The stages come in this order, each present only where the recipe asks for it:

1. RandomResizedCrop, pad-and-crop, rotation
2. horizontal flip
3. RandAugment, N operations
4. colour jitter
5. Gaussian blur
6. an erased square

Every operation runs on the whole batch with per-sample parameters, and samples that did not draw it get the
parameters that change nothing. A view consists of whole grey levels divided by 255, as from a uint8 pipeline.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from goodness.compilation import compiled
from goodness.data import pixel_ops
from goodness.data.pixel_ops import per_sample
from goodness.errors import ConfigError
from goodness.registry import Registry

operations = (
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
last_level = 30  # RandAugment's 31 magnitude bins, 0..30
crop_tries = 10  # boxes that do not fit into the image are drawn again, this often
crop_ratio = (3 / 4, 4 / 3)  # width / height


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What augmentation does. The default does nothing.

    `crop_scale` is the range of the crop's share of the image area. `pad` is the width of the zero border of pad-
    and-crop; `rotate` is the largest angle, in degrees, either way about the centre. RandAugment's magnitude is one
    whole number per image and view, drawn from the closed range, for all its operations. `jitter` 0.4 means
    brightness, contrast and saturation factors in [0.6, 1.4]; `jitter_hue` is in turns. The paper gives "jitter
    0.4" and no hue; 0.1 is the usual companion. `erase` is the side of a grey square around any pixel, cut off at
    the image's edge (cutout).
    """

    crop_scale: tuple[float, float] | None = None
    pad: int = 0
    rotate: float = 0.0
    flip: bool = False
    randaugment_ops: int = 0
    randaugment_magnitude: tuple[int, int] = (9, 9)
    jitter: float = 0.0
    jitter_hue: float = 0.0
    jitter_probability: float = 1.0
    blur_sigma: tuple[float, float] | None = None
    blur_probability: float = 1.0
    erase: int = 0

    def __post_init__(self) -> None:
        scale, magnitude, sigma = self.crop_scale, self.randaugment_magnitude, self.blur_sigma
        _require(scale is None or 0 < scale[0] <= scale[1] <= 1, "crop_scale", scale, "0 < low <= high <= 1")
        _require(self.pad >= 0, "pad", self.pad, "0 or more")
        _require(0 <= self.rotate <= 180, "rotate", self.rotate, "between 0 and 180")
        _require(self.erase >= 0, "erase", self.erase, "0 or more")
        _require(self.randaugment_ops >= 0, "randaugment_ops", self.randaugment_ops, "0 or more")
        ordered = 0 <= magnitude[0] <= magnitude[1] <= last_level
        _require(ordered, "randaugment_magnitude", magnitude, f"0 <= low <= high <= {last_level}")
        _require(self.jitter >= 0, "jitter", self.jitter, "0 or more")
        _require(0 <= self.jitter_hue <= 0.5, "jitter_hue", self.jitter_hue, "between 0 and 0.5")
        _require(sigma is None or 0 < sigma[0] <= sigma[1], "blur_sigma", sigma, "0 < low <= high")
        for name in ("jitter_probability", "blur_probability"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"augmentation recipe: {field} = {value!r}, but it must satisfy: {wanted}")


recipes: Registry[Recipe] = Registry("augmentation recipe")
recipes.register("none")(Recipe())
recipes.register("flip")(Recipe(flip=True))
recipes.register("weak")(Recipe(pad=4, flip=True))
recipes.register("crop-rotate")(Recipe(pad=4, rotate=15))
recipes.register("ff")(
    Recipe(
        crop_scale=(0.3, 1.0),
        flip=True,
        randaugment_ops=2,
        randaugment_magnitude=(8, 10),
        jitter=0.4,
        jitter_hue=0.1,
        jitter_probability=0.8,
        blur_sigma=(0.1, 2.0),
        blur_probability=0.5,
    )
)
recipes.register("bp-strong")(
    Recipe(
        crop_scale=(0.8, 1.0),
        flip=True,
        randaugment_ops=2,
        randaugment_magnitude=(9, 9),
        jitter=0.4,
        jitter_hue=0.1,
        blur_sigma=(0.1, 2.0),
    )
)
recipes.register("sprint")(Recipe(pad=4, flip=True, randaugment_ops=1, randaugment_magnitude=(0, 20), erase=8))


def uniforms_needed(recipe: Recipe) -> int:
    """How many uniform numbers one view of one image takes (the width of `u`)."""
    return max(part.stop for part in _columns(recipe).values())


def _columns(recipe: Recipe) -> dict[str, slice]:
    """Which columns of `u` belong to which stage; the one place that fixes their order."""
    widths = {
        "crop": 2 * crop_tries + 2 if recipe.crop_scale else 0,
        "pad": 2 if recipe.pad else 0,
        "rotate": 1 if recipe.rotate else 0,
        "flip": 1 if recipe.flip else 0,
        "randaugment": 1 + 2 * recipe.randaugment_ops if recipe.randaugment_ops else 0,
        "jitter": 6 if recipe.jitter or recipe.jitter_hue else 0,
        "blur": 2 if recipe.blur_sigma else 0,
        "erase": 2 if recipe.erase else 0,
    }
    columns, start = {}, 0
    for stage, width in widths.items():
        columns[stage] = slice(start, start + width)
        start += width
    return columns


def augment(images: Tensor, u: Tensor, recipe: Recipe, flips: bool = True) -> Tensor:
    """One view of every image: uint8 `[n, channels, height, width]` to float32 in [0, 1], same shape.

    `u` is `[n, uniforms_needed(recipe)]` in [0, 1). `flips=False` keeps the mirror off where it would change
    the class (digits); the numbers keep their places, so nothing else changes.
    """
    return _through((_placed, _operated, _coloured), images, u, recipe, flips)


def compiled_augment(recipe: Recipe) -> Callable[[Tensor, Tensor, Recipe, bool], Tensor]:
    """`augment`, compiled. A round of RandAugment is a third of all there is to trace: several share one graph."""
    if recipe.randaugment_ops < 2:
        return compiled(augment, repr(recipe))
    stages = tuple(compiled(stage, repr(recipe)) for stage in (_placed, _operated, _coloured))
    return functools.partial(_through, stages)


def _through(
    stages: tuple[Callable[..., Tensor], ...], images: Tensor, u: Tensor, recipe: Recipe, flips: bool
) -> Tensor:
    placed, operated, coloured = stages
    _check(images, u, recipe)
    views = placed(images, u, recipe, flips)
    drawn = u[:, _columns(recipe)["randaugment"]]
    for draw in range(recipe.randaugment_ops):
        views = operated(views, drawn[:, 0], drawn[:, 1 + 2 * draw], drawn[:, 2 + 2 * draw], recipe)
    return coloured(views, u, recipe)


def _placed(images: Tensor, u: Tensor, recipe: Recipe, flips: bool) -> Tensor:
    """Stages 1 and 2, from bytes to floats."""
    columns = _columns(recipe)
    height, width = images.shape[2:]
    views = images.float()
    if recipe.crop_scale:
        views = pixel_ops.resized_crop(views, *crop_box(u[:, columns["crop"]], recipe.crop_scale, height, width))
    if recipe.pad:
        offset = _pick(u[:, columns["pad"]], 2 * recipe.pad + 1) - recipe.pad
        still = torch.zeros_like(u[:, 0])
        matrix = pixel_ops.affine_matrix(
            height, width, translate_x=offset[:, 0], translate_y=offset[:, 1], degrees=still
        )
        views = pixel_ops.affine_nearest(views, matrix)
    if recipe.rotate:
        degrees = recipe.rotate * (2 * u[:, columns["rotate"]].squeeze(1) - 1)
        views = pixel_ops.affine_nearest(views, pixel_ops.affine_matrix(height, width, degrees=degrees))
    if recipe.flip and flips:
        views = pixel_ops.horizontal_flip(views, u[:, columns["flip"]].squeeze(1) < 0.5)
    return views


def _operated(views: Tensor, magnitude: Tensor, operation: Tensor, direction: Tensor, recipe: Recipe) -> Tensor:
    """One round of stage 3, from its three uniform numbers of every image."""
    low, high = recipe.randaugment_magnitude
    level = low + _pick(magnitude, high - low + 1)
    sign = torch.where(direction < 0.5, -1.0, 1.0)
    return apply_operation(views, _pick(operation, len(operations)), level, sign)


def _coloured(views: Tensor, u: Tensor, recipe: Recipe) -> Tensor:
    """Stages 4 to 6, and the scale of a view."""
    columns = _columns(recipe)
    height, width = views.shape[2:]
    if recipe.jitter or recipe.jitter_hue:
        views = _jitter(views, u[:, columns["jitter"]], recipe)
    if recipe.blur_sigma:
        chance, place = u[:, columns["blur"]].unbind(1)
        low, high = recipe.blur_sigma
        blurred = pixel_ops.gaussian_blur(views, low + (high - low) * place, blur_kernel_size(height, width))
        views = torch.where(per_sample(chance < recipe.blur_probability), blurred, views)
    if recipe.erase:
        down, across = u[:, columns["erase"]].unbind(1)
        views = pixel_ops.erased(views, _pick(down, height), _pick(across, width), recipe.erase)
    return views / 255


def normalise(images: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """`(x - mean) / std` per channel. In a hot loop pass tensors on the images' device; lists are copied."""
    mean = torch.as_tensor(mean, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    std = torch.as_tensor(std, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    return (images - mean) / std


def crop_box(u: Tensor, scale: tuple[float, float], height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """RandomResizedCrop's box (top, left, height, width), each `[n]`, from `u` `[n, 2 * crop_tries + 2]`.

    Area uniform in `scale`, ratio log-uniform in 3/4..4/3, sides rounded to whole pixels. The first of ten
    draws that fits is taken; drawing again instead of cutting off keeps near-full crops from piling up. Where
    none fits (about 1 % of images for scale 0.8..1), the largest centred box of an allowed ratio.
    """
    area = height * width * (scale[0] + (scale[1] - scale[0]) * u[:, :crop_tries])
    log_low, log_high = (math.log(ratio) for ratio in crop_ratio)
    ratio = (log_low + (log_high - log_low) * u[:, crop_tries : 2 * crop_tries]).exp()
    widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()  # [n, tries]
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.int().argmax(1, keepdim=True)  # argmax takes the first of equals
    any_fits = fits.any(1)
    whole_height = min(height, round(width / crop_ratio[0]))
    whole_width = min(width, round(height * crop_ratio[1]))
    box_height = torch.where(any_fits, heights.gather(1, first).squeeze(1), float(whole_height))
    box_width = torch.where(any_fits, widths.gather(1, first).squeeze(1), float(whole_width))
    top, left = _pick(u[:, -2], height - box_height + 1), _pick(u[:, -1], width - box_width + 1)
    top = torch.where(any_fits, top, float((height - whole_height) // 2))
    left = torch.where(any_fits, left, float((width - whole_width) // 2))
    return top, left, box_height, box_width


def apply_operation(images: Tensor, operation: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """One RandAugment round: sample i gets `operations[operation[i]]` at `level[i]` of 0..30; all `[n]`.

    `sign` (+1 or -1) turns the direction of the signed operations. Level 30 means shear 0.3, translation by
    150/331 of the side, rotation by 30 degrees, enhancement factor 1 +- 0.9, posterize to 4 bits, solarize
    from 0. The five geometric operations share one read of the image and the four enhancements one blend.
    """
    height, width = images.shape[2:]
    part = level / last_level

    def is_(name: str) -> Tensor:
        return operation == operations.index(name)

    def where_(name: str, amount: Tensor, neutral: float = 0.0) -> Tensor:
        return torch.where(is_(name), amount, neutral)

    moved = pixel_ops.affine_nearest(
        images,
        pixel_ops.affine_matrix(
            height,
            width,
            shear_x=where_("shear-x", sign * part * 0.3),
            shear_y=where_("shear-y", sign * part * 0.3),
            translate_x=where_("translate-x", sign * (level * (150 / 331 * width / last_level)).floor()),
            translate_y=where_("translate-y", sign * (level * (150 / 331 * height / last_level)).floor()),
            degrees=where_("rotate", sign * part * 30),
        ),
    )
    brightness, color, contrast, sharpness = (
        per_sample(is_(name)) for name in ("brightness", "color", "contrast", "sharpness")
    )
    grey = pixel_ops.luma(moved)
    degenerate = torch.where(color, grey, pixel_ops.smoothed(moved))
    degenerate = torch.where(contrast, pixel_ops.mean_level(grey), degenerate)
    degenerate = torch.where(brightness, 0.0, degenerate)
    enhanced = (brightness | color | contrast | sharpness).view(-1)
    out = pixel_ops.blend(degenerate, moved, torch.where(enhanced, 1 + sign * part * 0.9, 1.0))
    out = pixel_ops.posterize(out, where_("posterize", 8 - (level / (last_level / 4)).round(), 8.0))
    out = pixel_ops.solarize(out, where_("solarize", 255 - level * (255 / last_level), 256.0))
    out = torch.where(per_sample(is_("autocontrast")), pixel_ops.autocontrast(moved), out)
    return torch.where(per_sample(is_("equalize")), pixel_ops.equalize(moved), out)


def colour_jitter(
    images: Tensor, order: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, turns: Tensor
) -> Tensor:
    """Brightness, contrast and saturation by their factors in the sample's own order, then hue; all `[n]`.

    `order` 0..5 numbers the permutations of the three. Hue always comes last: letting it take any place would
    compute it four times for a difference that only clipped pixels show.
    """
    coin = order.remainder(2)
    first = torch.div(order, 2, rounding_mode="floor")
    for chosen in (first, (first + 1 + coin).remainder(3), (first + 2 - coin).remainder(3)):
        factor = torch.where(chosen == 0, brightness, torch.where(chosen == 1, contrast, saturation))
        is_contrast, is_saturation = per_sample(chosen == 1), per_sample(chosen == 2)
        grey = pixel_ops.luma(images)
        degenerate = torch.where(is_contrast, pixel_ops.mean_level(grey), 0.0)
        degenerate = torch.where(is_saturation, grey, degenerate)
        images = pixel_ops.blend(degenerate, images, factor)
    return pixel_ops.hue(images, turns)


def _jitter(images: Tensor, u: Tensor, recipe: Recipe) -> Tensor:
    applied = u[:, 0] < recipe.jitter_probability
    low, high = max(0.0, 1 - recipe.jitter), 1 + recipe.jitter
    factors = torch.where(applied.unsqueeze(1), low + (high - low) * u[:, 2:5], 1.0)
    turns = torch.where(applied, recipe.jitter_hue * (2 * u[:, 5] - 1), 0.0)
    return colour_jitter(images, _pick(u[:, 1], 6), factors[:, 0], factors[:, 1], factors[:, 2], turns)


def blur_kernel_size(height: int, width: int) -> int:
    """An odd tenth of the shorter side as in SimCLR, at least 3: 3 for 8 x 8 and 32 x 32, 9 for 96 x 96."""
    return max(3, int(0.1 * min(height, width)) // 2 * 2 + 1)


def _pick(u: Tensor, count: Tensor | int) -> Tensor:
    """A whole number 0..count - 1 as a float; held below `count`, which rounding can reach for u near 1."""
    return (u * count).floor().clamp(max=count - 1)


def _check(images: Tensor, u: Tensor, recipe: Recipe) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        shape, dtype = list(images.shape), images.dtype
        raise ValueError(f"augment takes uint8 images [n, 1 or 3, height, width], not {dtype} {shape}")
    height, width = images.shape[2:]
    is_row = height == 1 and width > 2 and recipe == Recipe()  # an embedded text: numbers that are left as they are
    if min(height, width) < 3 and not is_row:
        raise ValueError(f"augment takes images of 3 x 3 pixels or more, not {list(images.shape[2:])}: --augment none")
    wanted = (len(images), uniforms_needed(recipe))
    if u.shape != wanted or not u.is_floating_point():
        raise ValueError(
            f"augment takes uniform floats {list(wanted)} for this recipe, not {u.dtype} {list(u.shape)}; "
            "uniforms_needed(recipe) gives the width"
        )
