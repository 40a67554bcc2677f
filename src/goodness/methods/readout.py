"""Evidence for methods whose blocks give features only: one linear readout on all blocks, split by block."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.methods.base import Method, Out, Signal


class ByReadout(Method):
    """Ridge regression on the one-hot classes, in closed form, on the features of all blocks together.

    The scores are linear in the features, so each block's part of them is its evidence, and the parts sum to the
    readout's own prediction. The feature statistics are buffers, so they are saved with the weights.
    """

    ridge: float = 1.0
    readout_mean: Tensor
    readout_scale: Tensor
    readout: Tensor

    def __init__(
        self, blocks: Iterable[nn.Module], classes: int, sizes: list[int], parts: list[nn.Module | None] | None = None
    ) -> None:
        """`sizes[d]` is how many features block d gives."""
        super().__init__(blocks, classes, parts)
        self.sizes = sizes
        self.register_buffer("readout_mean", torch.zeros(sum(sizes)))
        self.register_buffer("readout_scale", torch.ones(sum(sizes)))
        self.register_buffer("readout", torch.zeros(sum(sizes), classes))

    def features(self, depth: int, s: Signal, out: Out) -> Tensor:
        """What block d gives to the readout, `[batch, sizes[d]]`."""
        return out.on["x"].flatten(1)

    def _features(self, images: Tensor) -> Tensor:
        nothing = torch.zeros(len(images), 1, dtype=torch.long, device=images.device)
        return torch.cat([self.features(*one).float() for one in self.walk(self.present(images, nothing))], dim=1)

    @torch.no_grad()
    def ready(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sums over the images are enough for a solution in closed form: nothing is kept of an image."""
        wide = {"dtype": torch.float64, "device": self.readout.device}
        width, count = sum(self.sizes), 0
        products, sums = torch.zeros(width, width, **wide), torch.zeros(width, **wide)
        targets, of_classes = torch.zeros(width, self.classes, **wide), torch.zeros(self.classes, **wide)
        for images, labels in batches:
            features, classes = self._features(images).double(), F.one_hot(labels, self.classes).double()
            products += features.T @ features
            targets += features.T @ classes
            sums, of_classes, count = sums + features.sum(dim=0), of_classes + classes.sum(dim=0), count + len(labels)
        mean = sums / count
        spread = (products.diagonal() / count - mean.square()).clamp(min=0).sqrt() + 1e-3
        covariance = (products - count * torch.outer(mean, mean)) / torch.outer(spread, spread)
        covariance.diagonal().add_(self.ridge)
        cross = (targets - torch.outer(mean, of_classes)) / spread.unsqueeze(1)
        self.readout_mean.copy_(mean)
        self.readout_scale.copy_(spread)
        self.readout.copy_(torch.linalg.solve(covariance, cross))

    def evidence(self, images: Tensor, labels_at_once: int | None = None) -> Tensor:
        features = (self._features(images) - self.readout_mean) / self.readout_scale
        parts = zip(features.split(self.sizes, dim=1), self.readout.split(self.sizes))
        return torch.stack([one @ weights for one, weights in parts])
