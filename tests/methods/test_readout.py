"""The readout: a ridge regression in closed form, whose parts are the blocks' evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from goodness.config import Optim, Step
from goodness.draws import Draws
from goodness.methods.base import Out, Signal
from goodness.methods.readout import RIDGES, ByReadout, Sums, choose_ridge, pooled, solve
from goodness.training.trainer import Trainer

CLASSES, SHAPES = 3, [(4, 5, 5), (6,)]


class Features(ByReadout):
    def through(self, depth: int, s: Signal) -> Out:
        return Out({"x": self.blocks[depth](s["x"])})

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        return out.on["x"].square().mean()


def small(most: int = 16) -> Features:
    torch.manual_seed(0)
    blocks = [nn.Conv2d(1, 4, 2), nn.Sequential(nn.Flatten(), nn.Linear(100, 6), nn.ReLU())]
    return Features(blocks, CLASSES, SHAPES, most).eval()


def images_of(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    labels[: n // 4] = 0  # classes of unequal size
    return torch.rand(n, 1, 6, 6, generator=draws) + 0.2 * labels.reshape(-1, 1, 1, 1), labels


def by_hand(x: np.ndarray, y: np.ndarray, strength: float) -> Any:
    """A function to scores: ridge regression on standardised features, with an intercept."""
    mean, scale, prior = x.mean(0), x.std(0) + 1e-3, y.mean(0)
    z = (x - mean) / scale
    weights = np.linalg.solve(z.T @ z + strength * len(z) * np.eye(z.shape[1]), z.T @ (y - prior))
    return lambda new: (new - mean) / scale @ weights + prior


def test_the_scores_are_those_of_a_ridge_regression_solved_directly() -> None:
    method, (images, labels) = small(), images_of(100)
    with torch.no_grad():
        x, new = (method.all_features(some).double().numpy() for some in (images, images_of(20, seed=1)[0]))
    y = np.eye(CLASSES)[labels.numpy()]
    held = np.concatenate([np.arange(len(part)) % 5 == 4 for part in (x[:37], x[37:])])
    errors = [((by_hand(x[~held], y[~held], one)(x[held]) - y[held]) ** 2).sum() for one in RIDGES]
    best = RIDGES[int(np.argmin(errors))]
    method.ready([(images[:37], labels[:37]), (images[37:], labels[37:])])
    with torch.no_grad():
        scores = method(images_of(20, seed=1)[0])
    np.testing.assert_allclose(scores.numpy(), by_hand(x, y, best)(new), atol=1e-5)


def test_blocks_evidence_sums_to_the_prediction_and_is_linear_in_their_own_features() -> None:
    method, (images, labels) = small(), images_of(60)
    method.ready([(images, labels)])
    with torch.no_grad():
        evidence = method.evidence(images)
        assert evidence.shape == (2, 60, CLASSES)
        torch.testing.assert_close(evidence.sum(0), method(images))
        own = method.all_features(images).split(method.sizes, dim=1)
        for said, mine in zip(evidence, own):
            design = torch.cat([mine, torch.ones(60, 1)], dim=1).double()
            left = said.double() - design @ torch.linalg.lstsq(design, said.double(), driver="gelsd").solution
            assert float(left.abs().max()) < 1e-5


def test_sums_do_not_depend_on_the_batches() -> None:
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(30, 5, generator=draws), torch.rand(30, 2, generator=draws)
    whole, parts = Sums(5, 2, x.device), Sums(5, 2, x.device)
    whole.add(x, y)
    for rows in torch.arange(30).split(7):
        more = Sums(5, 2, x.device)
        more.add(x[rows], y[rows])
        parts += more
    for a, b in zip(whole.about(*whole.moments()), parts.about(*parts.moments())):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_noise_asks_for_a_stronger_ridge_than_a_clear_answer_does() -> None:
    draws = torch.Generator().manual_seed(0)

    def chosen(noise: float) -> float:
        x = torch.randn(300, 60, generator=draws)
        y = x[:, :2] + noise * torch.randn(300, 2, generator=draws)
        kept, held = Sums(60, 2, x.device), Sums(60, 2, x.device)
        kept.add(x[:200], y[:200])
        held.add(x[200:], y[200:])
        return choose_ridge(kept, held)

    assert chosen(0.0) == min(RIDGES)
    assert chosen(10.0) == max(RIDGES)


def test_features_that_are_not_finite_reach_the_evidence() -> None:
    products = torch.full((3, 3), float("nan"), dtype=torch.float64)
    assert not bool(solve(products, torch.ones(3, 2, dtype=torch.float64), 0.1).isfinite().any())


@pytest.mark.parametrize(
    ("shape", "most", "wanted"),
    [((96, 16, 16), 6144, 6144), ((1536, 4, 4), 6144, 6144), ((8, 5, 3), 100, 72), ((50, 4, 4), 10, 50), ((7,), 3, 7)],
)
def test_maps_are_averaged_to_the_largest_square_of_cells_that_fits(
    shape: tuple[int, ...], most: int, wanted: int
) -> None:
    x = torch.rand(2, *shape)
    found = pooled(x, most)
    assert found.shape == (2, wanted)
    torch.testing.assert_close(found.reshape(2, shape[0], -1).mean(2)[0, 0], x[0, 0].mean(), rtol=0.2, atol=0.1)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_training_leaves_a_fitted_readout_as_it_is(ema: float) -> None:
    """The teacher's own: neither what it takes over after a step nor being asked for twice empties it."""
    from goodness.methods.base import Moment
    from goodness.step_context import Moment as Place

    images, labels = images_of(40)
    trainer = Trainer(small().train(), Optim(ema=ema), Step(), draws=Draws(torch.device("cpu"), 1))
    trainer.evaluated().ready([(images, labels)])
    fitted = trainer.evaluated().readout.clone()
    assert bool(fitted.any())
    trainer.step(images[None], labels, Place(0, 0, 0, 1, 0.0), Moment(0, 1, 0, 1))
    assert torch.equal(trainer.evaluated().readout, fitted)
