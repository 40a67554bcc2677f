"""Augmentation against Pillow, colorsys and naive loops, and its promises as a pure function of uniforms."""

from __future__ import annotations

import colorsys
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from goodness.data import pixel_ops
from goodness.data.augment import (
    Recipe,
    apply_operation,
    augment,
    blur_kernel_size,
    colour_jitter,
    compiled_augment,
    crop_box,
    crop_tries,
    normalise,
    operations,
    recipes,
    uniforms_needed,
)
from goodness.errors import ConfigError

shapes = [(3, 32, 32), (1, 32, 32), (3, 28, 24), (1, 8, 8)]
signed = {"shear-x", "shear-y", "translate-x", "translate-y", "rotate"}
enhancements = {"brightness": ImageEnhance.Brightness, "color": ImageEnhance.Color}
enhancements |= {"contrast": ImageEnhance.Contrast, "sharpness": ImageEnhance.Sharpness}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def noisy_and_smooth(shape: tuple[int, int, int], count: int = 4, seed: int = 0) -> Tensor:
    """Half noise, half gentle slopes, one flat image last: whole levels `[count + 1, *shape]`."""
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = shape
    noise = torch.randint(0, 256, (count // 2, *shape), generator=generator).float()
    coarse = 20 + 200 * torch.rand(count // 2, channels, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 255).round()
    return torch.cat([noise, smooth, torch.full((1, *shape), 77.0)])


def to_pillow(image: Tensor) -> Image.Image:
    array = image.permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def from_pillow(image: Image.Image) -> Tensor:
    array = torch.from_numpy(np.array(image)).float()
    return array.unsqueeze(0) if array.ndim == 2 else array.permute(2, 0, 1)


def through_pillow(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    return torch.stack([from_pillow(change(to_pillow(image))) for image in images])


def randaugment_in_pillow(image: Image.Image, name: str, level: int, sign: int) -> Image.Image:
    """The operation as the RandAugment table states it, on one Pillow image."""
    part = level / 30
    if name in enhancements:
        return enhancements[name](image).enhance(1 + sign * 0.9 * part)
    if name in signed:
        if name == "rotate":
            return image.rotate(sign * 30 * part)
        shear, x, y = (
            sign * 0.3 * part,
            int(150 / 331 * image.width * part),
            int(150 / 331 * image.height * part),
        )
        matrix = {
            "shear-x": (1, shear, 0, 0, 1, 0),
            "shear-y": (1, 0, 0, shear, 1, 0),
            "translate-x": (1, 0, sign * x, 0, 1, 0),
            "translate-y": (1, 0, 0, 0, 1, sign * y),
        }[name]
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)
    if name == "posterize":
        return ImageOps.posterize(image, 8 - round(level / 7.5))
    if name == "solarize":
        return ImageOps.solarize(image, 255 - 8.5 * level)
    if name == "identity":
        return image
    return {"autocontrast": ImageOps.autocontrast, "equalize": ImageOps.equalize}[name](image)


def apply_to_all(images: Tensor, name: str, level: float, sign: float) -> Tensor:
    ones = torch.ones(len(images))
    return apply_operation(images, operations.index(name) * ones, level * ones, sign * ones)


def assert_close(found: Tensor, expected: Tensor, levels: int, share: float = 1.0) -> None:
    """At most `share` of the pixels differ, none by more than `levels`."""
    difference = (found - expected).abs()
    assert difference.max() <= levels
    assert (difference > 0).float().mean() <= share


# Every operation of RandAugment against Pillow


@pytest.mark.parametrize("shape", shapes, ids=str)
@pytest.mark.parametrize("name", operations)
def test_operation_equals_pillow(name: str, shape: tuple[int, int, int]) -> None:
    images = noisy_and_smooth(shape)
    changed = 0
    for level in (0, 1, 8, 9, 10, 17, 30):
        for sign in (-1, 1):
            expected = through_pillow(images, lambda image: randaugment_in_pillow(image, name, level, sign))  # noqa: B023
            found = apply_to_all(images, name, level, sign)
            changed += int((expected != images).sum())
            if name in signed:
                # Same fixed-point coordinates; a sine that float32 rounds differently may move a pixel.
                assert (found != expected).float().mean() <= 0.002
            elif name in enhancements:
                # A product that is whole up to rounding is that level here and sometimes one less in Pillow.
                assert_close(found, expected, levels=1, share=0.05)
            elif name == "autocontrast":
                # Pillow's double arithmetic can miss a whole quotient from below; the quotient here is exact.
                assert_close(found, expected, levels=1, share=0.05)
            else:
                assert torch.equal(found, expected)
    idle = name == "identity" or (name == "color" and shape[0] == 1) or (name == "equalize" and shape[1] == 8)
    assert (changed == 0) == idle, "the oracle itself must do something, or the comparison says nothing"


def test_single_operations_equal_the_merged_round() -> None:
    images = noisy_and_smooth((3, 32, 32))
    ones = torch.ones(len(images))
    factor = 1 - 0.9 * 9 / 30 * ones
    alone = {
        "shear-x": pixel_ops.shear_x(images, -0.09 * ones),
        "shear-y": pixel_ops.shear_y(images, -0.09 * ones),
        "translate-x": pixel_ops.translate_x(images, -4 * ones),
        "translate-y": pixel_ops.translate_y(images, -4 * ones),
        "rotate": pixel_ops.rotate(images, -9 * ones),
        "brightness": pixel_ops.brightness(images, factor),
        "color": pixel_ops.saturation(images, factor),
        "contrast": pixel_ops.contrast(images, factor),
        "sharpness": pixel_ops.sharpness(images, factor),
        "posterize": pixel_ops.posterize(images, 7 * ones),
        "solarize": pixel_ops.solarize(images, 178.5 * ones),
        "autocontrast": pixel_ops.autocontrast(images),
        "equalize": pixel_ops.equalize(images),
    }
    assert set(alone) == set(operations) - {"identity"}
    for name, expected in alone.items():
        assert torch.equal(apply_to_all(images, name, 9, -1), expected), name


def test_autocontrast_and_equalize_agree_with_whole_number_arithmetic() -> None:
    images = noisy_and_smooth((3, 20, 20), seed=3)
    stretched, equalized = pixel_ops.autocontrast(images), pixel_ops.equalize(images)
    for sample, channel in np.ndindex(len(images), 3):
        values = images[sample, channel].int().flatten().tolist()
        low, high = min(values), max(values)
        wanted = values if high == low else [255 * (value - low) // (high - low) for value in values]
        assert stretched[sample, channel].flatten().tolist() == wanted
        counts = Counter(values)
        step = (len(values) - counts[high]) // 255
        if step:
            below = [sum(count for level, count in counts.items() if level < value) for value in values]
            wanted = [min(255, (step // 2 + number) // step) for number in below]
        else:
            wanted = values
        assert equalized[sample, channel].flatten().tolist() == wanted


def test_sorting_and_histogram_count_the_same_pixels_below() -> None:
    channels = noisy_and_smooth((3, 28, 28)).flatten(2)
    assert torch.equal(pixel_ops._pixels_below_by_sorting(channels), pixel_ops.pixels_below(channels))


# Jitter, blur, crop


def test_jitter_factors_equal_pillow() -> None:
    images = noisy_and_smooth((3, 32, 32), count=20)
    factors = torch.linspace(0.6, 1.4, len(images))
    for ours, theirs in (
        (pixel_ops.brightness, ImageEnhance.Brightness),
        (pixel_ops.contrast, ImageEnhance.Contrast),
        (pixel_ops.saturation, ImageEnhance.Color),
    ):
        pairs = zip(images, factors.tolist(), strict=True)
        expected = [from_pillow(theirs(to_pillow(image)).enhance(factor)) for image, factor in pairs]
        assert_close(ours(images, factors), torch.stack(expected), levels=1, share=0.05)


def test_jitter_applies_every_order_of_its_three_factors() -> None:
    images = noisy_and_smooth((3, 16, 16), count=2)
    ones = torch.ones(len(images))
    amounts = {
        pixel_ops.brightness: 1.4 * ones,
        pixel_ops.contrast: 0.6 * ones,
        pixel_ops.saturation: 1.3 * ones,
    }
    found = set()
    for order in range(6):
        result = colour_jitter(images, order * ones, *amounts.values(), 0 * ones)
        matches = []
        for first, second, third in torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]):
            chained = images
            for position in (first, second, third):
                operation, factor = list(amounts.items())[position]
                chained = operation(chained, factor)
            if torch.equal(chained, result):
                matches.append((int(first), int(second), int(third)))
        assert len(matches) == 1
        found.update(matches)
    assert len(found) == 6


def test_hue_equals_colorsys() -> None:
    images = noisy_and_smooth((3, 8, 8), count=8)
    turns = torch.tensor([-0.5, -0.1, -0.05, 0.0, 0.03, 0.07, 0.1, 0.5, 0.1])
    found = pixel_ops.hue(images, turns)
    for image, turn, result in zip(images, turns.tolist(), found, strict=True):
        for pixel, turned in zip(image.flatten(1).T.tolist(), result.flatten(1).T.tolist(), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in pixel))
            wanted = [255 * level for level in colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)]
            assert turned == pytest.approx(wanted, abs=0.5 + 1e-3)  # half a level: the result is rounded
    assert torch.equal(found[3], images[3])


@pytest.mark.parametrize(("shape", "kernel_size"), [((3, 9, 7), 3), ((1, 8, 8), 3), ((1, 12, 12), 5)])
def test_blur_equals_a_naive_convolution(shape: tuple[int, int, int], kernel_size: int) -> None:
    images = noisy_and_smooth(shape, count=2)
    sigmas = torch.tensor([0.1, 0.8, 2.0])
    found = pixel_ops.gaussian_blur(images, sigmas, kernel_size)
    channels, height, width = shape
    radius = kernel_size // 2

    def mirrored(place: int, size: int) -> int:
        place = abs(place)
        return place if place < size else 2 * (size - 1) - place

    span = range(-radius, radius + 1)
    for sample, sigma in enumerate(sigmas.tolist()):
        weight = {
            (i, j): math.exp(-(i * i) / (2 * sigma**2)) * math.exp(-(j * j) / (2 * sigma**2))
            for i in span
            for j in span
        }
        total = sum(weight.values())
        image = images[sample].tolist()
        for channel, y, x in np.ndindex(channels, height, width):
            wanted = sum(
                w * image[channel][mirrored(y + i, height)][mirrored(x + j, width)] / total
                for (i, j), w in weight.items()
            )
            assert found[sample, channel, y, x].item() == pytest.approx(wanted, abs=0.5 + 1e-3)


def test_blur_kernel_is_odd_and_fits() -> None:
    assert [blur_kernel_size(size, size) for size in (3, 8, 28, 32, 64, 96, 224)] == [3, 3, 3, 3, 7, 9, 23]


def test_resized_crop_equals_a_naive_bilinear_sampler_and_pillow() -> None:
    images = noisy_and_smooth((3, 16, 12), count=4)
    boxes = [
        (0, 0, 16, 12),
        (3, 2, 9, 10),
        (15, 11, 1, 1),
        (0, 5, 16, 7),
        (7, 0, 4, 3),
    ]  # top left height width
    top, left, tall, wide = torch.tensor(boxes, dtype=torch.float32).T
    found = pixel_ops.resized_crop(images, top, left, tall, wide)
    assert torch.equal(found[0], images[0]), "the whole image is its own crop"
    for sample, (y0, x0, height, width) in enumerate(boxes):
        image = images[sample].double()
        for y, x in np.ndindex(16, 12):
            v = min(max((y + 0.5) * height / 16 - 0.5, 0), height - 1)
            h = min(max((x + 0.5) * width / 12 - 0.5, 0), width - 1)
            v0, h0 = int(v), int(h)
            v1, h1 = min(v0 + 1, height - 1), min(h0 + 1, width - 1)
            upper = image[:, y0 + v0, x0 + h0] * (1 - h + h0) + image[:, y0 + v0, x0 + h1] * (h - h0)
            lower = image[:, y0 + v1, x0 + h0] * (1 - h + h0) + image[:, y0 + v1, x0 + h1] * (h - h0)
            wanted = upper * (1 - v + v0) + lower * (v - v0)
            assert (found[sample, :, y, x] - wanted).abs().max() <= 0.5 + 1e-3
        cut = to_pillow(images[sample]).crop((x0, y0, x0 + width, y0 + height))
        resized = from_pillow(cut.resize((12, 16), Image.Resampling.BILINEAR))
        assert_close(found[sample], resized, levels=1)  # Pillow rounds between rows and columns as well


@pytest.mark.parametrize("scale", [(0.3, 1.0), (0.8, 1.0)])
def test_crop_boxes_keep_to_their_area_ratio_and_image(scale: tuple[float, float]) -> None:
    size = 64
    u = torch.rand(20_000, 2 * crop_tries + 2, generator=torch.Generator().manual_seed(1))
    top, left, height, width = crop_box(u, scale, size, size)
    for side in (top, left, height, width):
        assert torch.equal(side, side.round())
    assert min(top.min(), left.min()) >= 0
    assert max((top + height).max(), (left + width).max()) <= size
    assert (height * width / size**2).min() > scale[0] - 1 / size  # sides are rounded to whole pixels
    assert (height * width / size**2).max() <= 1
    assert (width / height).max() < 4 / 3 + 2 / size * 2
    assert (height / width).max() < 4 / 3 + 2 / size * 2
    # Rejection leaves the area share below the uniform mean: wide boxes of nearly full area do not fit.
    share = (height * width).mean() / size**2
    accepted = torch.rand(200_000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    area = scale[0] + (scale[1] - scale[0]) * accepted[:, 0]
    fits = area * torch.exp(math.log(4 / 3) * (2 * accepted[:, 1] - 1).abs()) <= 1
    assert share == pytest.approx(area[fits].mean().item(), abs=0.01)


def test_weak_recipe_is_a_shifted_image_in_a_zero_border() -> None:
    images = torch.randint(1, 256, (64, 3, 10, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    u = torch.rand(64, uniforms_needed(recipes["weak"]), generator=torch.Generator().manual_seed(1))
    views = augment(images, u, recipes["weak"], flips=False)
    bordered = torch.nn.functional.pad(images.float() / 255, (4, 4, 4, 4))
    for image, numbers, view in zip(bordered, u.tolist(), views, strict=True):
        x, y = int(9 * numbers[0]), int(9 * numbers[1])
        assert torch.equal(view, image[:, y : y + 10, x : x + 10])


# The promises of a pure function


@pytest.mark.parametrize("side", [1, 4, 5])
def test_an_erased_square_is_grey_around_any_pixel_and_cut_off_at_the_edge(side: int) -> None:
    height, width, recipe = 6, 9, Recipe(erase=side)
    assert uniforms_needed(recipe) == 2
    places = [(row, column) for row in range(height) for column in range(width)]
    u = torch.tensor([[(row + 0.5) / height, (column + 0.5) / width] for row, column in places])
    images = torch.randint(0, 100, (len(places), 3, height, width), dtype=torch.uint8)
    views = (augment(images, u, recipe) * 255).round()
    for image, view, (row, column) in zip(images, views, places):
        wanted = image.clone().float()
        top, left = row - side // 2, column - side // 2
        wanted[:, max(0, top) : max(0, top + side), max(0, left) : max(0, left + side)] = 128
        assert torch.equal(view, wanted)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 5, 3)], ids=str)
@pytest.mark.parametrize("name", ["ff", "bp-strong", "weak", "none"])
def test_each_image_depends_on_its_own_numbers_only(name: str, shape: tuple[int, int, int]) -> None:
    recipe = recipes[name]
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 256, (24, *shape), dtype=torch.uint8, generator=generator)
    u = torch.rand(24, uniforms_needed(recipe), generator=generator)
    together = augment(images, u, recipe)
    assert together.dtype == torch.float32
    assert together.shape == images.shape
    assert torch.equal(together, augment(images, u, recipe)), "same numbers, same bits"
    alone = torch.cat([augment(images[i : i + 1], u[i : i + 1], recipe) for i in range(24)])
    assert torch.equal(together, alone)
    levels = together * 255
    assert (levels - levels.round()).abs().max() < 1e-4, "views are whole grey levels"
    assert together.min() >= 0
    assert together.max() <= 1
    if name == "none":
        assert torch.equal(levels.round().byte(), images)


def test_the_largest_uniform_stays_in_range() -> None:
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for _, recipe in recipes.items():
        below_one = torch.full((2, uniforms_needed(recipe)), 1 - 2**-24)
        assert torch.isfinite(augment(images, below_one, recipe)).all()


def test_flips_off_never_mirrors_and_changes_nothing_else() -> None:
    left_half = torch.zeros(400, 1, 8, 8, dtype=torch.uint8)
    left_half[..., :4] = 200
    recipe = Recipe(flip=True)
    u = torch.rand(400, uniforms_needed(recipe), generator=torch.Generator().manual_seed(0))
    assert torch.equal((augment(left_half, u, recipe, flips=False) * 255).round().byte(), left_half)
    mirrored = augment(left_half, u, recipe)[:, 0, 0, 7] > 0
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.1)
    images = noisy_and_smooth((3, 16, 16), count=40).byte()
    strong = recipes["ff"]
    u = torch.rand(len(images), uniforms_needed(strong), generator=torch.Generator().manual_seed(1))
    flip_column = 2 * crop_tries + 2
    u[:, flip_column] = 0.9  # no mirror drawn: then the switch makes no difference
    assert torch.equal(augment(images, u, strong), augment(images, u, strong, flips=False))


def test_flips_off_in_the_strong_recipe_keeps_the_left_side_left() -> None:
    left_half = torch.zeros(500, 1, 32, 32, dtype=torch.uint8)
    left_half[..., :16] = 255
    recipe = Recipe(crop_scale=(0.8, 1.0), flip=True, blur_sigma=(0.1, 2.0))
    u = torch.rand(500, uniforms_needed(recipe), generator=torch.Generator().manual_seed(0))
    views = augment(left_half, u, recipe, flips=False)
    assert (views[..., :8].mean((1, 2, 3)) > views[..., 24:].mean((1, 2, 3))).all()


def test_operations_are_drawn_equally_and_magnitudes_cover_their_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def record(images: Tensor, operation: Tensor, level: Tensor, sign: Tensor) -> Tensor:
        seen.append((operation, level, sign))
        return images

    monkeypatch.setattr("goodness.data.augment.apply_operation", record)
    count = 28_000
    recipe = Recipe(randaugment_ops=2, randaugment_magnitude=(8, 10))
    u = torch.rand(count, uniforms_needed(recipe), generator=torch.Generator().manual_seed(0))
    augment(torch.zeros(count, 1, 3, 3, dtype=torch.uint8), u, recipe)
    assert len(seen) == 2
    for operation, level, sign in seen:
        for values, kinds in ((operation, 14), (level, 3), (sign, 2)):
            counts = values.unique(return_counts=True)[1]
            expected = count / kinds
            assert len(counts) == kinds
            assert ((counts - expected).abs() < 4.5 * expected**0.5).all()
        assert set(level.tolist()) == {8.0, 9.0, 10.0}
    pairs = seen[0][0] * 14 + seen[1][0]
    assert len(pairs.unique()) == 14 * 14, "the rounds draw independently"


def test_jitter_and_blur_are_applied_with_their_probability() -> None:
    images = noisy_and_smooth((3, 8, 8), count=2)[:1].byte().expand(2000, -1, -1, -1)
    for recipe, probability in (
        (Recipe(jitter=0.4, jitter_hue=0.1, jitter_probability=0.8), 0.8),
        (Recipe(blur_sigma=(0.5, 2.0), blur_probability=0.5), 0.5),
    ):
        u = torch.rand(2000, uniforms_needed(recipe), generator=torch.Generator().manual_seed(4))
        changed = ((augment(images, u, recipe) * 255).round() != images).flatten(1).any(1)
        assert changed.float().mean() == pytest.approx(probability, abs=0.04)


@pytest.mark.parametrize(("name", "channels"), [("ff", 3), ("ff", 1), ("bp-strong", 3), ("weak", 3), ("none", 3)])
def test_augment_is_one_graph_and_deterministic(name: str, channels: int) -> None:
    torch._dynamo.reset()
    recipe = recipes[name]
    images = torch.randint(0, 256, (4, channels, 16, 16), dtype=torch.uint8)
    u = torch.rand(4, uniforms_needed(recipe))
    compiled = torch.compile(augment, backend="eager", fullgraph=True, dynamic=False)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(compiled(images, u, recipe), augment(images, u, recipe))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("name", "graphs"), [("ff", 3), ("sprint", 1)])
def test_rounds_of_randaugment_share_a_graph(name: str, graphs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager", fullgraph=True))
    recipe = recipes[name]
    compiled = compiled_augment(recipe)
    images = noisy_and_smooth((3, 16, 16)).to(torch.uint8)
    for seed, flips in ((0, True), (1, True), (2, False)):
        u = torch.rand(len(images), uniforms_needed(recipe), generator=torch.Generator().manual_seed(seed))
        assert torch.equal(compiled(images, u, recipe, flips), augment(images, u, recipe, flips))
    # Another flag is another graph of what it is given to: the first stage, or all of it.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def test_normalise_centres_and_scales_each_channel() -> None:
    images = torch.rand(2, 3, 4, 4)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    found = normalise(images, mean, std)
    for channel in range(3):
        assert torch.allclose(found[:, channel], (images[:, channel] - mean[channel]) / std[channel])
    assert torch.equal(found, normalise(images, torch.tensor(mean), torch.tensor(std)))


# Mistakes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("crop_scale", (0.0, 1.0)),
        ("crop_scale", (0.5, 1.2)),
        ("pad", -1),
        ("erase", -1),
        ("randaugment_ops", -1),
        ("randaugment_magnitude", (8, 31)),
        ("jitter", -0.1),
        ("jitter_hue", 0.6),
        ("jitter_probability", 1.5),
        ("blur_sigma", (0.0, 2.0)),
        ("blur_probability", -0.1),
    ],
)
def test_a_recipe_out_of_range_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        Recipe(**{field: value})  # type: ignore[arg-type]


def test_wrong_inputs_say_what_is_wanted() -> None:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    u = torch.rand(2, uniforms_needed(recipes["weak"]))
    with pytest.raises(ValueError, match="uint8"):
        augment(images.float(), u, recipes["weak"])
    with pytest.raises(ValueError, match="uniforms_needed"):
        augment(images, u[:, :-1], recipes["weak"])
    with pytest.raises(ValueError, match="3 x 3"):
        augment(images[..., :2], u, recipes["weak"])
    with pytest.raises(ConfigError, match="did you mean"):
        recipes["bp-stron"]
