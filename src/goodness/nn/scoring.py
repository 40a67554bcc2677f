"""Scoring under many label hypotheses, where one kernel does all between a block's attention and the next block's.

Tokens are read and written about half as often as by the blocks themselves, which this must equal: a dense block,
a label that scales, the multi-aspect goodness, in bfloat16, without a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness import kernels
from goodness.nn.attention import NORM_EPSILON, AttentionPool, RMSNorm, SelfAttention, widen
from goodness.nn.block import FFBlock, norm_of
from goodness.nn.feedforward import GEGLU
from goodness.nn.head import AspectHead
from goodness.nn.hybrid import HybridBody
from goodness.nn.label import ScaleLabel
from goodness.nn.network import Network


class Readings(NamedTuple):
    """aspects `[batch, A]`, goodness `[batch]`, pooled `[batch, width]`: a block's output without its tokens."""

    aspects: Tensor
    goodness: Tensor
    pooled: Tensor


class Taken(NamedTuple):
    """What a block takes in: tokens `[batch, tokens, width]` with its label in them, and one over the root mean square
    of each, `[batch, tokens]` in float32."""

    tokens: Tensor
    inverse_rms: Tensor


Step = Callable[..., tuple[Any, Any]]

UNDERSTOOD: frozenset[type] = frozenset(
    {FFBlock, ScaleLabel, HybridBody, SelfAttention, GEGLU, AspectHead, AttentionPool, RMSNorm}
    | {nn.Linear, nn.Sequential, nn.GELU}
)
"""All that a block may be made of: a part of any other class, derived ones too, may do something else."""


def steps(network: Network, start: Tensor, hypotheses: int) -> tuple[Step, Step] | None:
    """The first and a later block for this many rows of the stem's tokens; None where the kernels do not serve them."""
    return (first_scored, later_scored) if _serves(network, start, hypotheses) else None


def _serves(network: Network, start: Tensor, hypotheses: int) -> bool:
    if torch.is_grad_enabled() or not kernels.are_used(start) or not _is_understood(network):
        return False
    if start.dtype != torch.bfloat16 or kernels.computed_in(start) != torch.bfloat16:
        return False
    from goodness.kernels import short_attention, tail
    from goodness.kernels.feedforward import shared_memory

    _, tokens, width = start.shape
    projection, room = start.new_empty(0, tokens, 3 * width), shared_memory(start.device.index or 0)
    bodies: list[Any] = [network.block(depth).body for depth in range(len(network.blocks))]
    return all(
        short_attention.serves(projection, body.attention.heads)
        and tail.serves(tokens, width, body.feedforward.down.in_features, hypotheses, room)
        for body in bodies
    )


def _is_understood(network: Network) -> bool:
    """Whether the network and all its blocks are as this module has them, and take and give the same shape."""
    blocks = [network.block(depth) for depth in range(len(network.blocks))]
    return type(network) is Network and len(set(network.shapes)) == 1 and all(map(_is_plain, blocks))


def _is_plain(block: FFBlock) -> bool:
    """Whether a block is made of parts that are understood, and nobody listens to any of them."""
    if type(block) is not FFBlock or block.is_late or type(block.body) is not HybridBody:
        return False
    if type(block.head) is not AspectHead or not (block.label is None or type(block.label) is ScaleLabel):
        return False
    extras = set(block.extras.modules())  # what the objective's terms learn: scoring passes it by
    parts = [part for part in block.modules() if part not in extras]
    return all(type(part) in UNDERSTOOD and not part._forward_hooks and not part._forward_pre_hooks for part in parts)


def first_scored(
    network: Network, block: FFBlock, start: Tensor, hypotheses: Tensor, following: FFBlock | None
) -> tuple[Readings, Taken | None]:
    """A block on every image's tokens under as many hypotheses each as there are rows for."""
    tokens = start.repeat_interleave(len(hypotheses) // max(1, len(start)), dim=0)
    if block.label is not None:
        tokens = block.label(tokens, hypotheses)
    inverse_rms = (widen(tokens).square().mean(dim=-1) + NORM_EPSILON).rsqrt()
    return later_scored(network, block, Taken(tokens, inverse_rms), hypotheses, following)


def later_scored(
    network: Network, block: FFBlock, taken: Taken, hypotheses: Tensor, following: FFBlock | None
) -> tuple[Readings, Taken | None]:
    """A block's readings and, if there is a next one, what it takes in."""
    from goodness.kernels.feedforward import shared_memory
    from goodness.kernels.short_attention import normed_attention
    from goodness.kernels.tail import last_tail, tail, weights

    body: Any = block.body
    head: Any = block.head
    tokens, dtype = taken.tokens.contiguous(), taken.tokens.dtype
    attention, layer, room = body.attention, body.feedforward, shared_memory(tokens.device.index or 0)
    qkv = F.linear(tokens, (attention.qkv.weight * body.attention_norm.scale).to(dtype))
    mix = normed_attention(qkv, taken.inverse_rms, attention.cosine.float(), attention.sine.float(), attention.heads)
    by = weights(
        attention.out.weight,
        body.feedforward_norm.scale,
        layer.gate_up.weight,
        layer.down.weight,
        head.pool.norm.scale * head.pool.query,
        dtype,
    )
    if following is None:
        pooled, energy = last_tail(tokens, mix, *by, NORM_EPSILON, room)
        return Readings(*head.readings(pooled, energy, hypotheses, None)), None
    factors = _factors(following, network.classes, tokens)
    norm = norm_of(network.config.token_norm, tokens.shape[-1]) if network.config.normalise else 0.0
    given = factors, hypotheses, NORM_EPSILON, network.config.activation, norm, room
    pooled, energy, handed, inverse_rms = tail(tokens, mix, *by, *given)
    return Readings(*head.readings(pooled, energy, hypotheses, None)), Taken(handed, inverse_rms)


def _factors(block: FFBlock, classes: int, tokens: Tensor) -> Tensor:
    """What each label multiplies a block's tokens by, `[classes, width]`; ones where it takes no label."""
    if block.label is None:
        return tokens.new_ones(classes, tokens.shape[-1])
    return block.label.factors().to(tokens.dtype)  # type: ignore[operator]
