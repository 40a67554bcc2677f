"""Prediction: the goodness of every block under every label hypothesis; truncations, TTA and scores follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from goodness import compilation
from goodness.nn import scoring
from goodness.nn.block import BlockOutput, FFBlock
from goodness.nn.network import Network
from goodness.nn.scoring import Readings
from goodness.nn.stripped import StrippedNetwork
from goodness.precision import autocast

F = TypeVar("F", bound=Callable[..., Any])

CHUNK = 512
"""Images at once, at most, where the blocks are compiled for one size; a power of two."""


def bytes_per_image(network: Network) -> tuple[int, int]:
    """About what scoring one image takes at its widest, in float32: in the stem, and in a block per hypothesis."""
    config, (_, height, width) = network.config, network.shape
    hidden = getattr(config.block, "hidden", 4 * config.width)
    # Both convolutions hold as much: a quarter of the channels at full size, all of them at a quarter of it.
    stem = 0 if config.stem.kind == "pixels" else 3 * 4 * height * width * 2 * (config.stem.channels // 4)
    widest = [
        4 * tokens[0] * tokens[1] * (10 * max(before, after) + 4 * hidden)
        for (before, tokens), (after, _) in pairwise(network.shapes)
    ]
    if config.label.is_late:  # the body once an image; per hypothesis scores of its tokens, and a few pooled features
        (width, tokens) = max((shape[0], shape[1][0] * shape[1][1]) for shape in network.shapes)
        return stem + max(widest), 4 * (4 * tokens + 8 * width)
    return stem, max(widest)


def memory_cap(memory_mb: int | None, device: torch.device) -> int:
    """The cap in bytes: as given, or else an eighth of a GPU's memory, 128 MiB on a CPU, and 1 GiB elsewhere."""
    if memory_mb is None and device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // 8
    # Less than 128 MiB is slower for convolutional blocks, more is slower for all others (docs/dev/cpu-costs.md).
    return (memory_mb or (128 if device.type == "cpu" else 1024)) * 2**20


def chunk_sizes(network: Network, memory_mb: int | None, kept: int = 0) -> tuple[int, int]:
    """How many images, and how many label hypotheses of each, may be scored at once under the cap.

    `kept` are the bytes per image that stay while its hypotheses are gone through.
    """
    stem, hypothesis = bytes_per_image(network)
    cap = memory_cap(memory_mb, network.mean.device)
    images = cap // max(1, stem + kept + network.classes * hypothesis)
    if images >= 1:
        return images, network.classes
    return 1, max(1, min(network.classes, (cap - stem - kept) // hypothesis))


def readout_chunk_sizes(network: Network, memory_mb: int | None) -> tuple[int, int]:
    """As `chunk_sizes`, with room for the features: the readout compares all hypotheses of an image, so all are kept.

    What the readout itself holds is not counted: at the paper's sizes far less than the blocks, which are done by then.
    """
    return chunk_sizes(network, memory_mb, kept=4 * network.classes * feature_count(network))


def feature_count(network: Network) -> int:
    """How many features a hypothesis has: every block's aspects, and its pooled width."""
    return sum(len(network.block(d).head.names) + network.shapes[d + 1][0] for d in range(len(network.blocks)))


def compiled_rows(network: Network, rows: int, labels: int) -> int:
    """How many of these `rows` images to score at once with compiled blocks; 0 where that would take several graphs.

    A power of two, so that batches, validation and test images share one graph as long as memory does not change.

    >>> from types import SimpleNamespace as Sized
    >>> compiled_rows(Sized(classes=100), 134, 100), compiled_rows(Sized(classes=10), 2000, 10)
    (128, 512)
    """
    return 0 if network.classes % labels else min(CHUNK, 2 ** (rows.bit_length() - 1))


@torch.no_grad()
def block_goodness(
    network: Network,
    images: Tensor,
    blocks: int | None = None,
    labels_at_once: int | None = None,
    compiled: bool = False,
) -> Tensor:
    """Goodness `[blocks, batch, classes]` of images in [0, 1]; every hypothesis keeps its label through all blocks."""
    start, portions = _tokens(network, images, compiled), _portions(network, labels_at_once)
    ways, columns = _ways(network, start, portions, compiled), []
    for labels in portions:
        goodness = [output.goodness for output in _outputs(network, start, labels, ways, blocks, compiled)]
        columns.append(torch.stack(goodness).reshape(len(goodness), len(images), len(labels)))
    return torch.cat(columns, dim=-1)


def _portions(network: Network, labels_at_once: int | None) -> tuple[Tensor, ...]:
    """All labels, so many at once."""
    return torch.arange(network.classes, device=network.mean.device).split(labels_at_once or network.classes)


def _ways(
    network: Network, start: Tensor, portions: tuple[Tensor, ...], compiled: bool
) -> tuple[scoring.Step, scoring.Step]:
    """How the first and a later block are gone through; the same way for all labels, which are held against each other
    and are to be rounded alike."""
    found = [scoring.steps(network, start, len(start) * size) for size in {len(labels) for labels in portions}]
    first, later = found[0] if found[0] is not None and all(found) else (first_block, later_block)
    return (_for(network, first), _for(network, later)) if compiled else (first, later)


def _tokens(network: Network, images: Tensor, compiled: bool) -> Tensor:
    return (_for(network, Network.tokens) if compiled else Network.tokens)(network, images)


def _outputs(
    network: Network,
    start: Tensor,
    labels: Tensor,
    ways: tuple[scoring.Step, scoring.Step],
    blocks: int | None = None,
    compiled: bool = False,
) -> Iterator[BlockOutput | Readings]:
    """What the blocks give, one after the other, for every image's tokens under each of these labels.

    Rows are `[batch * labels]`, labels fastest; a hypothesis keeps its label through all blocks. Its tokens are its
    image's until the first block takes them in; compiled, that makes no copy of them.
    """
    hypotheses, used = labels.repeat(len(start)), _used(network, blocks)
    tokens = start
    if network.config.label.is_late:  # no label is in the tokens: one pass for all hypotheses
        shared = _for(network, shared_block) if compiled else shared_block
        for depth in range(used):
            output, tokens = shared(network, network.block(depth), tokens, labels, depth + 1 < used)
            yield output
        return
    first, later = ways
    for depth in range(used):
        step, following = first if depth == 0 else later, network.block(depth + 1) if depth + 1 < used else None
        output, tokens = step(network, network.block(depth), tokens, hypotheses, following)
        yield output


def first_block(
    network: Network, block: FFBlock, start: Tensor, hypotheses: Tensor, following: FFBlock | None
) -> tuple[BlockOutput, Tensor]:
    """A block on every image's tokens under as many hypotheses each as there are rows for."""
    tokens = start.repeat_interleave(len(hypotheses) // max(1, len(start)), dim=0)
    return later_block(network, block, tokens, hypotheses, following)


def later_block(
    network: Network, block: FFBlock, tokens: Tensor, hypotheses: Tensor, following: FFBlock | None
) -> tuple[BlockOutput, Tensor]:
    """A block's output and, if there is a next one, what it receives."""
    output = block(tokens, hypotheses)
    return output, output.tokens if following is None else network.hand_on(output.tokens)


def shared_block(
    network: Network, block: FFBlock, tokens: Tensor, labels: Tensor, goes_on: bool
) -> tuple[BlockOutput, Tensor]:
    """A block on every image's tokens, read under each of these labels."""
    output = block.under(tokens, labels)
    return output, network.hand_on(output.tokens) if goes_on else output.tokens


def _for(network: Network, function: F) -> F:
    """The function as compiled for networks like this one."""
    return compilation.compiled(function, f"{network.config} {network.shape} {network.classes}")


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


@torch.no_grad()
def hypothesis_features(
    network: Network, images: Tensor, labels_at_once: int | None = None, compiled: bool = False
) -> Tensor:
    """Features `[batch, classes, feature_count]` of images in [0, 1]: what the readout sees of every hypothesis.

    First the aspects of every block, then the pooled features of every block, both from the shallowest on.
    """
    return _readings(network, images, labels_at_once, lambda output: (output.aspects, output.pooled), compiled)


def _readings(
    network: Network,
    images: Tensor,
    labels_at_once: int | None,
    read: Callable[[BlockOutput | Readings], tuple[Tensor, Tensor]],
    compiled: bool = False,
) -> Tensor:
    """Two readings of every block's output, `[batch, classes, all of the first, all of the second]`, block by block."""
    start, portions = _tokens(network, images, compiled), _portions(network, labels_at_once)
    ways, columns = _ways(network, start, portions, compiled), []
    for labels in portions:
        first, second = zip(*(read(output) for output in _outputs(network, start, labels, ways, compiled=compiled)))
        found = torch.cat([*first, *second], dim=-1)
        columns.append(found.reshape(len(images), len(labels), found.shape[-1]))
    return torch.cat(columns, dim=1)


@torch.no_grad()
def hypothesis_features_by_label(network: Network, images: Tensor) -> Tensor:
    """The readable twin of `hypothesis_features`: one pass per label."""
    features = []
    for label in range(network.classes):
        tokens = network.tokens(images)
        labels = torch.full((len(images),), label, device=images.device)
        aspects, pooled = [], []
        for depth in range(len(network.blocks)):
            output = network.block(depth)(tokens, labels)
            aspects.append(output.aspects)
            pooled.append(output.pooled)
            tokens = network.hand_on(output.tokens)
        features.append(torch.cat(aspects + pooled, dim=-1))
    return torch.stack(features, dim=1)


def goodness_of(
    network: Network,
    images: Tensor,
    *,
    tta: bool = False,
    blocks: int | None = None,
    memory_mb: int | None = None,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
    compiled: bool = False,
) -> Tensor:
    """Goodness `[blocks, n, classes]` float32 of uint8 images `[n, C, H, W]`, in chunks under the memory cap.

    `tta` averages each image's goodness with its mirror image's. `poll` is called between chunks. `compiled` pays
    where many images are scored, or the same number again and again: the blocks are compiled for one size of chunk.
    """

    def score(view: Tensor, labels: int, compiled: bool) -> Tensor:
        return block_goodness(network, view, blocks, labels, compiled)

    sizes = chunk_sizes(network, memory_mb)
    return _over_chunks(score, network, images, sizes, tta=tta, dtype=dtype, poll=poll, compiled=compiled, dim=1)


def _over_chunks(
    score: Callable[[Tensor, int, bool], Tensor],
    network: Network,
    images: Tensor,
    sizes: tuple[int, int],
    *,
    tta: bool,
    dtype: torch.dtype,
    poll: Callable[[], None],
    compiled: bool,
    dim: int = 0,
) -> Tensor:
    """What `score` says of views in [0, 1], so many labels at once, with compiled blocks or not: of all images, in
    chunks of so many, `sizes` being images and labels. `dim` counts the images in it."""
    rows, labels = sizes
    padded, rows, compiled = _portioned(network, images, rows, labels, compiled)
    chunks = _views(padded, rows, tta)
    found = _scored(lambda view: score(view, labels, compiled), chunks, network.mean.device, dtype, poll)
    return torch.cat(list(found), dim=dim).narrow(dim, 0, len(images))


def _portioned(network: Network, images: Tensor, rows: int, labels: int, compiled: bool) -> tuple[Tensor, int, bool]:
    """The images, how many of them at once, and whether compiled blocks pay: their last portion is filled up."""
    at_once = compiled_rows(network, rows, labels) if compiled else 0
    if not 0 < at_once <= len(images):
        return images, rows, False
    few = -(-len(images) // -(-len(images) // at_once))  # as many portions, all of one size
    if few * 1.1 < at_once:  # a graph of their own, rather than many images scored for nothing
        at_once = few
    return torch.cat([images, images[-1:].expand(-len(images) % at_once, *images.shape[1:])]), at_once, True


@torch.no_grad()
def block_readings(
    network: Network, images: Tensor, labels_at_once: int | None = None, compiled: bool = False
) -> Tensor:
    """Goodness and aspects `[batch, classes, blocks + aspects]` of images in [0, 1], under every label hypothesis.

    First the goodness of every block, then the aspects of every block, both from the shallowest on.
    """

    def read(output: BlockOutput | Readings) -> tuple[Tensor, Tensor]:
        return output.goodness.unsqueeze(-1), output.aspects

    return _readings(network, images, labels_at_once, read, compiled)


def goodness_and_aspects_of(
    network: Network,
    images: Tensor,
    *,
    tta: bool = False,
    memory_mb: int | None = None,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
    compiled: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """`goodness_of`, and of every block its aspects `[n, classes, A]`, from one pass in the same chunks."""

    def score(view: Tensor, labels: int, compiled: bool) -> Tensor:
        return block_readings(network, view, labels, compiled)

    sizes = chunk_sizes(network, memory_mb)
    readings = _over_chunks(score, network, images, sizes, tta=tta, dtype=dtype, poll=poll, compiled=compiled)
    blocks = len(network.blocks)
    widths = [len(network.block(depth).head.names) for depth in range(blocks)]
    goodness, *aspects = readings.split([blocks, *widths], dim=-1)
    return goodness.permute(2, 0, 1), aspects


@torch.no_grad()
def readout_scores(
    network: Network,
    readout: nn.Module,
    images: Tensor,
    *,
    tta: bool = False,
    memory_mb: int | None = None,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
    compiled: bool = False,
) -> Tensor:
    """Logits `[n, classes]` float32 of uint8 images `[n, C, H, W]`, in chunks under the memory cap.

    `tta` averages each image's logits with its mirror image's. `poll` is called between chunks; `compiled` as in
    `goodness_of`.
    """

    def score(view: Tensor, labels: int, compiled: bool) -> Tensor:
        return readout(hypothesis_features(network, view, labels, compiled))

    sizes = readout_chunk_sizes(network, memory_mb)
    return _over_chunks(score, network, images, sizes, tta=tta, dtype=dtype, poll=poll, compiled=compiled)


@torch.no_grad()
def class_scores(
    network: StrippedNetwork,
    images: Tensor,
    *,
    tta: bool = False,
    batch: int = 512,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
) -> Tensor:
    """Logits `[n, classes]` float32 of uint8 images `[n, C, H, W]` from the backpropagation control, on its device.

    `tta` averages each image's logits with its mirror image's. `poll` is called between batches.
    """

    def score(view: Tensor) -> Tensor:
        return network(view)[0]

    return torch.cat(list(_scored(score, _views(images, batch, tta), network.mean.device, dtype, poll)))


def _scored(
    score: Callable[[Tensor], Tensor],
    chunks: Iterator[list[Tensor]],
    device: torch.device,
    dtype: torch.dtype,
    poll: Callable[[], None],
) -> Iterator[Tensor]:
    """Of every chunk of uint8 images, the scores that `score` gives its views in [0, 1], averaged over the views."""
    for views in chunks:
        poll()
        with autocast(device, dtype):
            scores = [score(view.to(device).float() / 255).float() for view in views]
        yield torch.stack(scores).mean(dim=0)


def _used(network: Network, blocks: int | None) -> int:
    """How many blocks are asked for: all of them unless a number is given."""
    return len(network.blocks) if blocks is None else blocks


def _views(images: Tensor, rows: int, tta: bool) -> Iterator[list[Tensor]]:
    """Chunks of `rows` images, each as a list of its views; no images are one chunk of none."""
    for chunk in images.split(rows):
        yield [chunk, chunk.flip(-1)] if tta else [chunk]


def scores_of(goodness: Tensor, blocks: int | None = None) -> Tensor:
    """Class scores `[n, classes]`: the sum over the first `blocks` blocks (all by default)."""
    return goodness[:blocks].sum(dim=0)


def block_predictions(goodness: Tensor) -> dict[str, Tensor]:
    """Predicted classes `[blocks, n]` of goodness `[blocks, n, classes]`, for every way to use the blocks.

    `alone` uses block d by itself, `first` sums blocks 0..d, `without` sums all blocks but d (given two or more).
    """
    blocks = range(len(goodness))
    found = {
        "alone": goodness.argmax(dim=-1),
        "first": torch.stack([scores_of(goodness, depth + 1).argmax(dim=-1) for depth in blocks]),
    }
    if len(goodness) > 1:
        others = [torch.cat([goodness[:depth], goodness[depth + 1 :]]) for depth in blocks]
        found["without"] = torch.stack([scores_of(rest).argmax(dim=-1) for rest in others])
    return found
