"""What a step computes of one block: the functions that are compiled, each as a whole, where a run compiles.

The block is an argument, so one graph serves every block of the same shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from goodness.health.margins import training_measures
from goodness.methods.cumulative.facts import Facts
from goodness.methods.cumulative.objective import weighed_sum
from goodness.nn.block import BlockOutput, FFBlock
from goodness.nn.network import Network
from goodness.parts import Term
from goodness.step_context import Measured


def forward_block(network: Network, block: FFBlock, tokens: Tensor, labels: Tensor) -> tuple[BlockOutput, Tensor]:
    """A block's output and what it hands on."""
    output = block(tokens, labels)
    return output, network.hand_on(output.tokens)


def forward_shared(
    network: Network, block: FFBlock, tokens: Tensor, rows: Tensor, labels: Tensor, every: Tensor | None, positives: int
) -> tuple[BlockOutput, Tensor, Tensor | None]:
    """The same where no label enters the tokens: one pass for all streams that share a view, `rows` says which.

    With `every` label also the goodness `[positives, labels]` of the first so many rows under each of them; then the
    streams' own values are among these.
    """
    if every is None:
        output = block.read(tokens, rows, labels)
        return output, network.hand_on(output.tokens), None
    output = block.under(tokens, every)
    pairs = rows * len(every) + labels
    goodness = output.goodness.reshape(len(tokens), len(every))
    of_streams = BlockOutput(
        output.tokens, output.aspects[pairs], output.goodness[pairs], output.pooled[pairs], output.notes
    )
    return of_streams, network.hand_on(output.tokens), goodness[:positives]


def score_block(block: FFBlock, tokens: Tensor, rows: Tensor, labels: Tensor, every: Tensor) -> Tensor:
    """Goodness of rows of the tokens under labels."""
    if block.is_late:
        return block.under(tokens, every).goodness.reshape(len(tokens), len(every))[rows, labels]
    return block(tokens[rows], labels).goodness


def pass_block(network: Network, block: FFBlock, tokens: Tensor, labels: Tensor) -> Tensor:
    """What a block hands on, alone."""
    return network.hand_on(block(tokens, labels).tokens)


def neutral_block(network: Network, block: FFBlock, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Pooled features and what is handed on, of a pass without a label."""
    tokens, pooled = block.neutral(tokens)
    return pooled, network.hand_on(tokens)


def judge_block(terms: list[tuple[str, Term]], facts: Facts, extras: Any) -> tuple[Tensor, Measured]:
    """The total of the objective's terms, and the measures of this step."""
    total, values = weighed_sum(terms, facts, extras)
    measured = training_measures(facts, values, total)
    return total, (tuple(measured), torch.stack([value.float() for value in measured.values()]))
