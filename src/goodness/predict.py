"""Prediction: the goodness of every block under every label hypothesis; truncations, TTA and scores follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from goodness.model.network import Network


def bytes_per_image(network: Network) -> tuple[int, int]:
    """About what scoring one image takes at its widest, in float32: in the stem, and in a block per hypothesis."""
    config, (_, height, width) = network.config, network.shape
    tokens = network.grid[0] * network.grid[1]
    hidden = getattr(config.block, "hidden", 4 * config.width)
    # Both convolutions hold as much: a quarter of the channels at full size, all of them at a quarter of it.
    stem = 3 * 4 * height * width * 2 * (config.stem.channels // 4)
    return stem, 4 * tokens * (10 * config.width + 4 * hidden)


def chunk_sizes(network: Network, memory_mb: int) -> tuple[int, int]:
    """How many images, and how many label hypotheses of each, may be scored at once under the cap."""
    stem, hypothesis = bytes_per_image(network)
    cap = memory_mb * 2**20
    images = cap // max(1, stem + network.classes * hypothesis)
    if images >= 1:
        return images, network.classes
    return 1, max(1, min(network.classes, (cap - stem) // hypothesis))


@torch.no_grad()
def block_goodness(
    network: Network, images: Tensor, blocks: int | None = None, labels_at_once: int | None = None
) -> Tensor:
    """Goodness `[blocks, batch, classes]` of images in [0, 1]; every hypothesis keeps its label through all blocks."""
    start = network.tokens(images)
    columns = []
    for labels in torch.arange(network.classes, device=images.device).split(labels_at_once or network.classes):
        tokens = start.repeat_interleave(len(labels), dim=0)  # [batch * labels, tokens, width], labels fastest
        hypotheses = labels.repeat(len(images))
        goodness = []
        for depth in range(_used(network, blocks)):
            output = network.block(depth)(tokens, hypotheses)
            goodness.append(output.goodness.reshape(len(images), len(labels)))
            tokens = network.hand_on(output.tokens)
        columns.append(torch.stack(goodness))
    return torch.cat(columns, dim=-1)


@torch.no_grad()
def block_goodness_by_label(network: Network, images: Tensor, blocks: int | None = None) -> Tensor:
    """The readable twin of `block_goodness`: one pass per label."""
    scores = []
    for label in range(network.classes):
        tokens = network.tokens(images)
        labels = torch.full((len(images),), label, device=images.device)
        column = []
        for depth in range(_used(network, blocks)):
            output = network.block(depth)(tokens, labels)
            column.append(output.goodness)
            tokens = network.hand_on(output.tokens)
        scores.append(torch.stack(column))
    return torch.stack(scores, dim=-1)


def goodness_of(
    network: Network,
    images: Tensor,
    *,
    tta: bool = False,
    blocks: int | None = None,
    memory_mb: int = 1024,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
) -> Tensor:
    """Goodness `[blocks, n, classes]` float32 of uint8 images `[n, C, H, W]`, in chunks under the memory cap.

    `tta` averages each image's goodness with its mirror image's. `poll` is called between chunks.
    """
    device = network.mean.device
    rows, labels = chunk_sizes(network, memory_mb)
    views = _views(images, rows, tta)
    chunks = []
    for group in views:
        poll()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            scored = [block_goodness(network, view.to(device).float() / 255, blocks, labels).float() for view in group]
        chunks.append(torch.stack(scored).mean(dim=0))
    if not chunks:
        return torch.zeros(_used(network, blocks), 0, network.classes, device=device)
    return torch.cat(chunks, dim=1)


def _used(network: Network, blocks: int | None) -> int:
    """How many blocks are asked for: all of them unless a number is given."""
    return len(network.blocks) if blocks is None else blocks


def _views(images: Tensor, rows: int, tta: bool) -> Iterator[list[Tensor]]:
    for chunk in images.split(rows):
        yield [chunk, chunk.flip(-1)] if tta else [chunk]


def scores_of(goodness: Tensor, blocks: int | None = None) -> Tensor:
    """Class scores `[n, classes]`: the sum over the first `blocks` blocks (all by default)."""
    return goodness[:blocks].sum(dim=0)
