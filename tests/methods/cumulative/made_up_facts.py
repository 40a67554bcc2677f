"""Facts of a made-up block, in float64: what the tests of terms and objective feed them."""

from __future__ import annotations

import torch
from torch import Tensor

from goodness.methods.cumulative.facts import Facts, PerStream

BATCH, ASPECTS, TOKENS, WIDTH = 5, 4, 3, 6


def trio(generator: torch.Generator, shape: tuple[int, ...], with_ni: bool, scale: float = 1.0) -> PerStream:
    def one() -> Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    return PerStream(one(), one(), one() if with_ni else None)


def made_up_facts(
    *, seed: int = 0, depth: int = 2, blocks: int = 4, eta: float = 0.3, beta: float = 4.0, decay: bool = False
) -> Facts:
    """Random facts; the rule's weight differs from example to example. Under `decay` the history is not the sum."""
    generator = torch.Generator().manual_seed(seed)
    with_ni = eta > 0
    goodness = trio(generator, (BATCH,), with_ni)
    aspects = trio(generator, (BATCH, ASPECTS), with_ni)
    earlier = trio(generator, (BATCH,), with_ni)
    history_aspects = trio(generator, (BATCH, ASPECTS), with_ni)
    history = trio(generator, (BATCH,), with_ni) if decay else earlier
    if depth == 0:
        earlier, history, history_aspects = earlier.zeros(), history.zeros(), history_aspects.zeros()
    for one in (*goodness, *aspects):
        if one is not None:
            one.requires_grad_(True)
    streams = 4 if with_ni else 3
    tokens = torch.randn(2, streams * BATCH, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    pooled = torch.randn(streams * BATCH, WIDTH, generator=generator, dtype=torch.float64)
    return Facts(
        depth=depth,
        blocks=blocks,
        labels=torch.tensor([0, 1, 2, 1, 0]),
        beta=beta,
        eta=eta,
        goodness=goodness,
        aspects=aspects,
        active=(True, True, False, True),
        earlier=earlier,
        weight=torch.rand(BATCH, generator=generator, dtype=torch.float64),
        history=history,
        history_aspects=history_aspects,
        tokens_in=tokens[0],
        tokens_out=tokens[1].requires_grad_(True),
        pooled=pooled,
        notes={},
        neutral=-pooled[: 2 * BATCH],
    )
