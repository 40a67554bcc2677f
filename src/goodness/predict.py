"""Prediction: the goodness of every block under every label hypothesis; truncations, TTA and scores follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from goodness.model.network import Network

COPIES = 12
"""About how many token-sized tensors a block's forward holds at its widest; sizes the chunks."""


def rows_under_cap(network: Network, memory_mb: int) -> int:
    """How many images may be scored under all labels at once without passing the cap."""
    tokens = network.grid[0] * network.grid[1]
    per_image = network.classes * tokens * network.config.width * 4 * COPIES
    return max(1, memory_mb * 2**20 // per_image)


@torch.no_grad()
def block_goodness(network: Network, images: Tensor, blocks: int | None = None) -> Tensor:
    """Goodness `[blocks, batch, classes]` of images in [0, 1]; every hypothesis keeps its label through all blocks."""
    batch, classes = len(images), network.classes
    tokens = network.tokens(images)
    tokens = tokens.repeat_interleave(classes, dim=0)  # [batch * classes, tokens, width], labels fastest
    labels = torch.arange(classes, device=images.device).repeat(batch)
    goodness = []
    for depth in range(blocks or len(network.blocks)):
        output = network.block(depth)(tokens, labels)
        goodness.append(output.goodness.reshape(batch, classes))
        tokens = network.hand_on(output.tokens)
    return torch.stack(goodness)


@torch.no_grad()
def block_goodness_by_label(network: Network, images: Tensor, blocks: int | None = None) -> Tensor:
    """The readable twin of `block_goodness`: one pass per label."""
    scores = []
    for label in range(network.classes):
        tokens = network.tokens(images)
        labels = torch.full((len(images),), label, device=images.device)
        column = []
        for depth in range(blocks or len(network.blocks)):
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
    rows = rows_under_cap(network, memory_mb)
    views = _views(images, rows, tta)
    chunks = []
    for group in views:
        poll()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            scored = [block_goodness(network, view.to(device).float() / 255, blocks).float() for view in group]
        chunks.append(torch.stack(scored).mean(dim=0))
    if not chunks:
        return torch.zeros(blocks or len(network.blocks), 0, network.classes, device=device)
    return torch.cat(chunks, dim=1)


def _views(images: Tensor, rows: int, tta: bool) -> Iterator[list[Tensor]]:
    for chunk in images.split(rows):
        yield [chunk, chunk.flip(-1)] if tta else [chunk]


def scores_of(goodness: Tensor, blocks: int | None = None) -> Tensor:
    """Class scores `[n, classes]`: the sum over the first `blocks` blocks (all by default)."""
    return goodness[:blocks].sum(dim=0)
