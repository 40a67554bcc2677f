"""The streams of a step: one or two views under the right label, one under a wrong label, another image under it."""

from __future__ import annotations

import torch
from torch import Tensor


def wrong_images(labels: Tensor, uniforms: Tensor, class_uniforms: Tensor) -> Tensor:
    """For every example the row of an image of another class, as far as the batch allows: a permutation `[batch]`.

    The batch is laid out class by class, classes (`class_uniforms [classes]`) and their members (`uniforms [batch]`)
    in random order, and turned by the size of the largest class. Turning by that much leaves no image within its
    own class, unless one class fills more than half of the batch; then as few as possible stay.
    """
    batch, classes = len(labels), len(class_uniforms)
    largest = (labels.unsqueeze(1) == torch.arange(classes, device=labels.device)).sum(dim=0).max()
    order = uniforms.argsort()
    order = order[class_uniforms.argsort().argsort()[labels[order]].argsort(stable=True)]
    places = torch.arange(batch, device=labels.device)
    partner = torch.empty_like(order)
    partner[order] = order[(places + largest) % batch]
    return partner


def concatenate(views: Tensor, partner: Tensor | None, wrong_labels: int = 1) -> Tensor:
    """Stem tokens of three views `[3, batch, ...]` to streams `[streams * batch, ...]`: pos1, pos2, nl, ni.

    The wrong image is another row of the third view, so that the stem runs on three views, not four. With several
    wrong labels the third view stands as often. One view `[1, batch, ...]` is all streams': pos, nl, ni.
    """
    streams = [*views[: positives_of(len(views))], *[views[-1]] * wrong_labels]
    if partner is not None:
        streams.append(views[-1][partner])
    return torch.cat(streams)


def rows_of(views: int, batch: int, partner: Tensor | None, wrong_labels: int, device: torch.device) -> Tensor:
    """Which row of `[views * batch, ...]` each row of the streams is: `tokens[rows]` is what `concatenate` gives."""
    rows = torch.arange(views * batch, device=device).reshape(views, batch)
    return concatenate(rows, partner, wrong_labels)


def positives_of(views: int) -> int:
    """How many of the views stand under the right label."""
    return max(1, views - 1)
