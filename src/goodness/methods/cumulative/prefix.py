"""Wrong-label streams whose label enters at the first block, as `negatives prefix` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from goodness.methods.cumulative.facts import PerStream
from goodness.methods.cumulative.ledger import History, Ledger
from goodness.nn.block import BlockOutput, FFBlock
from goodness.nn.network import Network

Forward = Callable[[Network, FFBlock, Tensor, Tensor], tuple[BlockOutput, Tensor]]


class Entry(NamedTuple):
    """What one block enters into the ledger."""

    goodness: PerStream
    aspects: PerStream
    weight: Tensor


class WrongStream(NamedTuple):
    """The wrong-label streams as one block meets them, without a graph."""

    labels: Tensor  # [wrong_labels * batch]
    tokens: Tensor  # [wrong_labels * batch, tokens, width], what the block takes in
    earlier: list[tuple[Tensor, Tensor]]  # goodness and aspects of every earlier block under these labels

    def replaced_in(self, tokens: Tensor, first: int) -> Tensor:
        """Tokens of all streams with these in place of the wrong-label streams, which begin at row `first`."""
        return torch.cat([tokens[:first], self.tokens, tokens[first + len(self.tokens) :]])


def wrong_stream(forward: Forward, network: Network, depth: int, tokens: Tensor, labels: Tensor) -> WrongStream:
    """Stem tokens under these labels through the blocks before `depth`."""
    earlier = list[tuple[Tensor, Tensor]]()
    with torch.no_grad():
        for before in range(depth):
            output, tokens = forward(network, network.block(before), tokens, labels)
            earlier.append((output.goodness, output.aspects))
    return WrongStream(labels, tokens, earlier)


def ledger_of(entries: tuple[Entry, ...], stream: WrongStream, history: History) -> Ledger:
    """The earlier blocks' entries, with what they give under the stream's label in place of their own wrong labels'."""
    ledger = Ledger(history)
    for entry, (goodness, aspects) in zip(entries, stream.earlier, strict=True):
        ledger.add(entry.goodness._replace(nl=goodness), entry.aspects._replace(nl=aspects), entry.weight)
    return ledger
