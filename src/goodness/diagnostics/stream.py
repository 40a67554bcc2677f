"""Block health as training sees it: each block against a wrong label that it mines anew, on a stream that carries the
wrong labels of the blocks before.

Prediction keeps one label through all blocks. In training a deeper block meets two, that in its tokens and its own, and
may tell a negative by them, without the image: what it separates here and not there is of that kind.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from goodness.config import Config
from goodness.data.images import Split
from goodness.diagnostics.block_health import evenly
from goodness.local.negatives import Mined, Mining, Score
from goodness.model.block import FFBlock
from goodness.model.network import Network
from goodness.precision import autocast
from goodness.predict import chunk_sizes
from goodness.training.draws import uniforms

STREAM_IMAGES = 1024
"""Images that are looked at: as many as in the paper's table of margins."""


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
) -> list[dict[str, float]]:
    """Of every block, on some images of a split: `sep_stream`, the mean goodness of the right label minus that of the
    wrong label mined here; `sep_stream_rate`, the share of images where it is positive; and `g_stream`, the mean
    goodness of that wrong label."""
    device, parts = network.mean.device, list[Tensor]()
    some = evenly(len(rows), STREAM_IMAGES).to(rows.labels.device)
    at_once = max(1, chunk_sizes(network, memory_mb)[0])
    for number, chosen in enumerate(some.split(at_once)):
        images, labels = rows.images[chosen].to(device).float() / 255, rows.labels[chosen].to(device)
        with autocast(device, dtype):
            parts.append(_goodness(network, images, labels, config, split, number).double().cpu())
        poll()
    right, wrong = torch.cat(parts, dim=2)
    margins = right - wrong
    return [
        {
            "sep_stream": float(margin.mean()),
            "sep_stream_rate": float((margin > 0).double().mean()),
            "g_stream": float(against.mean()),
        }
        for margin, against in zip(margins, wrong)
    ]


def _goodness(network: Network, images: Tensor, labels: Tensor, config: Config, split: str, number: int) -> Tensor:
    """Goodness `[2, blocks, n]` of both streams: under the right label, and under the wrong one of each block."""
    negatives, blocks = config.negatives, len(network.blocks)
    draws = negatives.count
    if isinstance(negatives, Mined):
        draws = max(negatives.k_first, negatives.k_last, negatives.count) + (1 if negatives.among > 1 else 0)
    right_tokens = wrong_tokens = network.tokens(images)
    wrong, found = labels, list[Tensor]()
    for depth in range(blocks):
        block = network.block(depth)
        if depth == 0 or not negatives.once:
            mined_on = right_tokens if isinstance(negatives, Mined) and negatives.mine_on == "pos" else wrong_tokens
            score = _scorer(block, mined_on)
            mining = Mining(
                labels=labels,
                classes=network.classes,
                uniforms=uniforms(labels.device, (len(labels), draws), config.seed, "stream", split, number, depth),
                depth=depth,
                blocks=blocks,
                progress=1.0,
                teacher=score,
                online=score,
                fixed_shapes=False,
            )
            wrong = negatives.choose(mining)[: len(labels)]  # of several streams the one of the hardest labels
        for_right, for_wrong = block(right_tokens, labels), block(wrong_tokens, wrong)
        found.append(torch.stack([for_right.goodness, for_wrong.goodness]))
        right_tokens, wrong_tokens = network.hand_on(for_right.tokens), network.hand_on(for_wrong.tokens)
    return torch.stack(found, dim=1)


def _scorer(block: FFBlock, tokens: Tensor) -> Score:
    def score(rows: Tensor, candidates: Tensor) -> Tensor:
        return block(tokens[rows], candidates).goodness

    return score
