"""Mixup and CutMix: targets follow the pixels exactly, lambda is a Beta variable, and the draws decide everything."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from goodness.data.mix import draws_needed, mix, outside_box, symmetric_beta, turned_batch


def uniforms(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(count: int = 6, height: int = 7, width: int = 5) -> tuple[Tensor, Tensor]:
    """Image i is i all over, and of class i."""
    images = torch.arange(count, dtype=torch.float64).reshape(-1, 1, 1, 1).expand(count, 2, height, width)
    return images, torch.eye(count, dtype=torch.float64)


kinds = pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.2, 1.0)])


@kinds
def test_targets_stay_distributions_of_two_classes_and_images_stay_in_range(mixup: float, cutmix: float) -> None:
    images, targets = batch()
    for draws in uniforms(50, draws_needed):
        mixed, shares = mix(images / 6, targets, draws, mixup=mixup, cutmix=cutmix)
        assert mixed.shape == images.shape
        assert shares.shape == targets.shape
        torch.testing.assert_close(shares.sum(dim=1), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-12)
        assert bool(((shares >= 0) & (shares <= 1)).all())
        assert int((shares > 0).sum(dim=1).max()) <= 2
        assert bool(((mixed >= 0) & (mixed <= 1)).all())


def test_cutmix_targets_are_the_shares_of_the_pixels() -> None:
    images, targets = batch()
    seen = set()
    for draws in uniforms(100, draws_needed):
        mixed, shares = mix(images, targets, draws, cutmix=1.0)
        for i in range(6):
            counted = [int((mixed[i] == j).sum()) / mixed[i].numel() for j in range(6)]
            assert shares[i].tolist() == pytest.approx(counted, abs=1e-15)
            seen.add(round(shares[i, i].item(), 6))
    assert len(seen) > 10


def test_cutmix_pastes_one_box_at_its_place_and_the_border_cuts_it_off() -> None:
    height, width = 6, 9
    for kept, row, column in uniforms(100, 3):
        side = math.sqrt(1 - kept)
        tall, wide = round(side * height), round(side * width)
        top, left = math.floor(row * height) - tall // 2, math.floor(column * width) - wide // 2
        expected = [
            [0.0 if top <= y < top + tall and left <= x < left + wide else 1.0 for x in range(width)]
            for y in range(height)
        ]
        assert outside_box(kept, row, column, height, width).tolist() == expected


def test_a_box_that_the_border_does_not_cut_has_the_share_that_was_drawn() -> None:
    kept = torch.tensor(0.75, dtype=torch.float64)
    middle, corner = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    assert outside_box(kept, middle, middle, 8, 12).mean().item() == 0.75
    assert outside_box(kept, corner, corner, 8, 12).mean().item() == 1 - 0.25 / 4


def test_mixup_blends_every_pixel_and_the_targets_with_one_lambda() -> None:
    images, targets = batch()
    for draws in uniforms(20, draws_needed):
        mixed, shares = mix(images, targets, draws, mixup=0.4)
        share = symmetric_beta(draws[1], draws[2], 0.4).item()
        partner = turned_batch(6, draws[3]).tolist()
        for i in range(6):
            value = share * i + (1 - share) * partner[i]
            torch.testing.assert_close(mixed[i], torch.full_like(mixed[i], value), rtol=0, atol=1e-12)
            expected = share * targets[i] + (1 - share) * targets[partner[i]]
            torch.testing.assert_close(shares[i], expected, rtol=0, atol=1e-12)


def test_with_both_on_each_comes_up_half_of_the_time() -> None:
    images, targets = batch(2)
    blended, count = 0, 200
    for draws in uniforms(count, draws_needed):
        both = mix(images, targets, draws, mixup=0.7, cutmix=1.3)
        matches = [
            torch.equal(both[0], alone[0]) and torch.equal(both[1], alone[1])
            for alone in (mix(images, targets, draws, mixup=0.7), mix(images, targets, draws, cutmix=1.3))
        ]
        assert any(matches)
        blended += matches == [True, False]
    assert blended == pytest.approx(count / 2, abs=3 * math.sqrt(count / 4))


@kinds
def test_the_same_draws_give_the_same_mixture_and_others_another(mixup: float, cutmix: float) -> None:
    images, targets = batch()
    first, again, other = (mix(images, targets, uniforms(6, seed=s), mixup=mixup, cutmix=cutmix) for s in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_without_either_nothing_changes() -> None:
    images, targets = batch()
    mixed, shares = mix(images, targets, uniforms(6))
    assert mixed is images
    assert shares is targets


def test_partners_are_a_permutation_that_leaves_nobody_alone_and_every_turn_comes_up() -> None:
    turns = set()
    for u in [*uniforms(100), torch.tensor(0.0), torch.tensor(1 - 2**-24)]:
        partner = turned_batch(5, u).tolist()
        assert sorted(partner) == list(range(5))
        assert all(i != j for i, j in enumerate(partner))
        turns.add(partner[0])
    assert turns == {1, 2, 3, 4}
    assert turned_batch(1, torch.tensor(0.9)).tolist() == [0]


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lambda_has_the_mean_and_variance_of_a_symmetric_beta(alpha: float, dtype: torch.dtype) -> None:
    count = 200_000
    u, v = uniforms(2, count, seed=5).to(dtype)
    share = symmetric_beta(u, v, alpha).double()
    assert bool(((share >= 0) & (share <= 1)).all())
    variance = 1 / (4 * (2 * alpha + 1))
    assert share.mean().item() == pytest.approx(0.5, abs=4 * math.sqrt(variance / count))
    assert share.var().item() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 2.0])
def test_lambda_has_the_distribution_of_a_ratio_of_gammas(alpha: float) -> None:
    """Beta is g / (g + h) of two Gamma variables, an independent way to it; Kolmogorov's distance of two samples."""
    count = 100_000
    torch.manual_seed(0)
    expected = torch.distributions.Beta(alpha, alpha).sample((count,)).double().sort().values
    u, v = uniforms(2, count)
    share = symmetric_beta(u, v, alpha).sort().values
    places = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    below = [torch.searchsorted(sample.contiguous(), places).double() / count for sample in (expected, share)]
    assert float((below[0] - below[1]).abs().max()) < 1.95 * math.sqrt(2 / count)  # 1 in 1000 is further by chance


def test_the_ends_of_the_uniforms_give_finite_lambdas() -> None:
    ends = torch.tensor([0.0, 2**-24, 0.25, 0.5, 0.75, 1 - 2**-24])
    for alpha in (0.01, 0.2, 1.0, 100.0):
        share = symmetric_beta(ends[:, None], ends[None, :], alpha)
        assert bool(((share >= 0) & (share <= 1)).all())


def test_draws_of_another_shape_are_refused() -> None:
    images, targets = batch()
    for draws in (uniforms(5), uniforms(6, 6), torch.zeros(6, dtype=torch.int64)):
        with pytest.raises(ValueError, match="6 uniform floats"):
            mix(images, targets, draws, mixup=1.0)
