"""Block health as training has it: each block against a wrong label that it mines anew, on a stream whose tokens carry
the wrong labels of the blocks before.

Prediction keeps one label through all blocks. On the stream a deeper block meets two, that in its tokens and its own,
and can tell a negative by them, whatever the image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config
from goodness.data.images import Split
from goodness.draws import uniforms
from goodness.health.block_health import evenly, require_finite
from goodness.methods.cumulative.evidence import chunk_sizes
from goodness.methods.cumulative.negatives import Mined, Mining, Score, keeps_prefix
from goodness.methods.cumulative.passes import pass_block, score_block
from goodness.nn.network import Network
from goodness.precision import autocast

STREAM_IMAGES = 1024
"""Images that are looked at: as many as in the paper's table of margins."""


def meets_two_labels(network: Network, config: Config) -> bool:
    """Whether a block's own wrong label may be another than that in its tokens."""
    blocks = [network.block(depth) for depth in range(len(network.blocks))]
    is_early = not all(block.is_late for block in blocks)
    return len(blocks) > 1 and network.classes > 2 and is_early and not _keeps_one_label(config)


def _keeps_one_label(config: Config) -> bool:
    return config.negatives.once or keeps_prefix(config.negatives)


@torch.no_grad()
def along_the_stream(
    network: Network,
    rows: Split,
    config: Config,
    *,
    split: str,
    memory_mb: int | None = None,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Of some images, one view each, how many there are (`images`), whether `meets_two_labels`, and for every block

    sep_stream        mean goodness of the right label minus that of the wrong label mined here
    sep_stream_rate   share of images where that is positive
    g_stream          mean goodness of that wrong label

    Draws are those of the blocks in training at its end. Of several wrong-label streams the first is looked at.
    """
    device, some = network.mean.device, evenly(len(rows), STREAM_IMAGES)
    drawn = [
        uniforms(torch.device("cpu"), (len(some), config.negatives.uniforms), config.seed, "stream", split, depth)
        for depth in range(len(network.blocks))
    ]
    images_at_once, labels_at_once = chunk_sizes(network, memory_mb)
    parts = list[Tensor]()
    for places in torch.arange(len(some)).split(images_at_once):
        chosen = some[places].to(rows.labels.device)
        images, labels = rows.images[chosen].to(device).float() / 255, rows.labels[chosen].to(device)
        with autocast(device, dtype):
            here = [one[places].to(device) for one in drawn]
            found = _goodness(network, images, labels, config, here, images_at_once * labels_at_once)
        parts.append(found.double().cpu())
        poll()
    right, wrong = torch.cat(parts, dim=2)
    require_finite(right - wrong)
    blocks = [
        {
            "sep_stream": float(margin.mean()),
            "sep_stream_rate": float((margin > 0).double().mean()),
            "g_stream": float(against.mean()),
        }
        for margin, against in zip(right - wrong, wrong)
    ]
    return {"images": len(some), "meets_two_labels": meets_two_labels(network, config), "blocks": blocks}


def _goodness(
    network: Network, images: Tensor, labels: Tensor, config: Config, drawn: list[Tensor], at_once: int
) -> Tensor:
    """Goodness `[2, blocks, n]` of both streams: under the right label, and under the wrong one of each block."""
    negatives, every = config.negatives, torch.arange(network.classes, device=labels.device)
    right_tokens = wrong_tokens = stem = network.tokens(images)
    is_prefixed = keeps_prefix(negatives)
    wrong, found = labels, list[Tensor]()
    for depth, numbers in enumerate(drawn):
        block = network.block(depth)
        if depth == 0 or not negatives.once:
            mined_on = right_tokens if isinstance(negatives, Mined) and negatives.mine_on == "pos" else wrong_tokens
            score = _scorer(network, depth, stem if is_prefixed else mined_on, every, at_once, is_prefixed)
            mining = Mining(
                labels=labels,
                classes=network.classes,
                uniforms=numbers,
                depth=depth,
                blocks=len(drawn),
                progress=1.0,
                teacher=score,
                online=score,
                fixed_shapes=False,
            )
            wrong = negatives.choose(mining)[: len(labels)]
            if is_prefixed:
                wrong_tokens = _passed(network, depth, stem, wrong)
        for_right, for_wrong = block(right_tokens, labels), block(wrong_tokens, wrong)
        found.append(torch.stack([for_right.goodness, for_wrong.goodness]))
        right_tokens, wrong_tokens = network.hand_on(for_right.tokens), network.hand_on(for_wrong.tokens)
    return torch.stack(found, dim=1)


def _passed(network: Network, depth: int, tokens: Tensor, labels: Tensor) -> Tensor:
    """Stem tokens through the blocks before `depth`."""
    for before in range(depth):
        tokens = pass_block(network, network.block(before), tokens, labels)
    return tokens


def _scorer(network: Network, depth: int, tokens: Tensor, every: Tensor, at_once: int, is_prefixed: bool) -> Score:
    """Candidates under a block, so many in one pass as fit; behind the earlier blocks under them, if prefixed."""
    block = network.block(depth)

    def one_pass(rows: Tensor, labels: Tensor) -> Tensor:
        if is_prefixed:
            return block(_passed(network, depth, tokens[rows], labels), labels).goodness
        return score_block(block, tokens, rows, labels, every)

    def score(rows: Tensor, candidates: Tensor) -> Tensor:
        pieces = zip(rows.split(at_once), candidates.split(at_once))
        return torch.cat([one_pass(some, labels) for some, labels in pieces])

    return score
