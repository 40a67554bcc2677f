"""Evidence for methods whose blocks give features only: one linear readout on all blocks, split by block."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.methods.base import Method, Out, Signal
from goodness.nn.networks import features

RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Strengths of the ridge to choose from, as shares of a feature's own sum of squares."""
HELD_OUT = 5
"""One training image in so many is held out to choose the strength."""


class ByReadout(Method):
    """Ridge regression on the one-hot classes, in closed form, on the features of all blocks together.

    `scores = mean(y) + sum_d (f_d - mean(f_d)) / scale_d @ W_d`, and summand d is block d's evidence, with an equal
    share of `mean(y)`. The readout is in buffers, so it is saved with the weights. Its cost: two matrices
    `[features, features]` of float64, and a few Cholesky factors at every evaluation.
    """

    fitted: ClassVar[tuple[str, ...]] = ("readout", "readout_mean", "readout_scale", "readout_prior")

    readout: Tensor
    readout_mean: Tensor
    readout_scale: Tensor
    readout_prior: Tensor

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        classes: int,
        shapes: list[tuple[int, ...]],
        most: int = 1024,
        parts: list[nn.Module | None] | None = None,
    ) -> None:
        """`shapes[d]` is what block d gives for one example, of which the readout gets at most `most` features."""
        super().__init__(blocks, classes, parts)
        self.most = most
        self.sizes = sizes = [pooled(torch.zeros(1, *shape), most).shape[1] for shape in shapes]
        self.register_buffer("readout", torch.zeros(sum(sizes), classes))
        self.register_buffer("readout_mean", torch.zeros(sum(sizes)))
        self.register_buffer("readout_scale", torch.ones(sum(sizes)))
        self.register_buffer("readout_prior", torch.zeros(classes))

    def features(self, depth: int, s: Signal, out: Out) -> Tensor:
        """What block d gives to the readout, `[batch, sizes[d]]`."""
        return pooled(out.on["x"], self.most)

    def all_features(self, images: Tensor) -> Tensor:
        """What all blocks give, `[batch, sum(sizes)]` float32."""
        nothing = torch.zeros(len(images), 1, dtype=torch.long, device=images.device)
        return torch.cat([self.features(*one).float() for one in self.walk(self.present(images, nothing))], dim=1)

    @torch.no_grad()
    def ready(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sums over the images are enough for a solution in closed form: nothing is kept of an image."""
        kept, held = (Sums(sum(self.sizes), self.classes, self.readout.device) for _ in range(2))
        for images, labels in batches:
            given, asked = self.all_features(images), F.one_hot(labels, self.classes)
            is_held = torch.arange(len(labels), device=labels.device) % HELD_OUT == HELD_OUT - 1
            kept.add(given[~is_held], asked[~is_held])
            held.add(given[is_held], asked[is_held])
        strength = choose_ridge(kept, held)
        kept += held
        mean, scale, prior = kept.moments()
        for name, value in zip(self.fitted, (solve(*kept.about(mean, scale, prior), strength), mean, scale, prior)):
            getattr(self, name).copy_(value)

    def evidence(self, images: Tensor, labels_at_once: int | None = None) -> Tensor:
        given = (self.all_features(images) - self.readout_mean) / self.readout_scale
        parts = zip(given.split(self.sizes, dim=1), self.readout.split(self.sizes))
        with torch.autocast(given.device.type, enabled=False):
            return torch.stack([one @ weights + self.readout_prior / len(self.sizes) for one, weights in parts])


class Sums:
    """Sums over examples of features `[n, width]` and targets `[n, classes]`, and of their products, in float64."""

    def __init__(self, width: int, classes: int, device: torch.device) -> None:
        wide = {"dtype": torch.float64, "device": "cpu" if device.type == "mps" else device}
        self.count = 0
        self.products, self.features = torch.zeros(width, width, **wide), torch.zeros(width, **wide)
        self.cross, self.targets = torch.zeros(width, classes, **wide), torch.zeros(classes, **wide)

    def add(self, given: Tensor, asked: Tensor) -> None:
        x, y = given.to(self.products.device).double(), asked.to(self.products.device).double()
        self.count += len(x)
        self.products.addmm_(x.T, x)
        self.cross.addmm_(x.T, y)
        self.features += x.sum(dim=0)
        self.targets += y.sum(dim=0)

    def __iadd__(self, other: Sums) -> Sums:
        self.count += other.count
        for name in ("products", "cross", "features", "targets"):
            getattr(self, name).add_(getattr(other, name))
        return self

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and deviation of every feature (a little more, for those that are constant), mean of the targets."""
        mean = self.features / self.count
        spread = (self.products.diagonal() / self.count - mean.square()).clamp(min=0).sqrt()
        return mean, spread + 1e-3, self.targets / self.count

    def about(self, mean: Tensor, scale: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """`A = X'X / n` and `B = X'(y - prior) / n` of `X = (features - mean) / scale`."""
        products, cross, n = self.products.clone(), self.cross.clone(), self.count
        products.addr_(mean, self.features, alpha=-1).addr_(self.features, mean, alpha=-1).addr_(mean, mean, alpha=n)
        cross.addr_(mean, self.targets, alpha=-1).addr_(self.features, prior, alpha=-1).addr_(mean, prior, alpha=n)
        column = scale.unsqueeze(1)
        return products.div_(column).div_(scale).div_(max(n, 1)), cross.div_(column).div_(max(n, 1))


def solve(products: Tensor, cross: Tensor, strength: float) -> Tensor:
    """`(A + strength I)^-1 B`. What is not finite stays so, for whoever looks at the evidence."""
    ridged = products.clone()
    ridged.diagonal().add_(strength)
    return torch.cholesky_solve(cross, torch.linalg.cholesky_ex(ridged).L)


def choose_ridge(kept: Sums, held: Sums) -> float:
    """The strength whose solution on `kept` has the least squared error on `held`."""
    around = kept.moments()
    products, cross = kept.about(*around)
    theirs, their_cross = held.about(*around)

    def error(strength: float) -> float:  # less the sum of y^2, which all have
        weights = solve(products, cross, strength)
        return float((weights * (theirs @ weights - 2 * their_cross)).sum())

    return min(RIDGES, key=error)


def pooled(x: Tensor, most: int) -> Tensor:
    """At most so many features of a block's output `[batch, ...]`, unless it has more channels: a map is averaged to
    the largest square of cells that fits, tokens are averaged."""
    if x.dim() != 4:
        return features(x)
    side = max(1, min(*x.shape[2:], math.isqrt(most // x.shape[1])))
    return F.adaptive_avg_pool2d(x, side).flatten(1)
