"""The ledger: what the earlier blocks of this step gave, detached. Beside the tokens, the only channel
between blocks, and it carries no gradient."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor

from goodness.methods.cumulative.facts import Past, PerStream

History = Literal["sum", "decay"]


class Ledger:
    """Running sums over the blocks done so far.

    `history="sum"` is Eq. cum_margin: the weight multiplies the flat sum of the earlier blocks. `"decay"` is the
    recursion of App. loss_formulas, G^(d) = g^(d) + w G^(d-1), in which older blocks fade by a power of the weight.
    """

    def __init__(self, history: History = "sum") -> None:
        self.mode: History = history
        self.depth = 0
        self._goodness: PerStream | None = None
        self._aspects: PerStream | None = None
        self._carry: PerStream | None = None
        self._carry_aspects: PerStream | None = None
        self._previous: Tensor | None = None
        self._every: Tensor | None = None
        self._carry_every: Tensor | None = None

    def copy(self) -> Ledger:
        """The ledger as it stands; later entries do not reach the copy."""
        return copy.copy(self)

    def past(self, like: Tensor, blocks: int, progress: float | Tensor) -> Past:
        """The rule's view; `like` gives batch size, type and device for the first block, which has no past."""
        zero = torch.zeros_like(like)
        total = zero if self._goodness is None else self._goodness.pos
        previous = zero if self._previous is None else self._previous
        return Past(total=total, previous=previous, depth=self.depth, blocks=blocks, progress=progress)

    def earlier(self, like: PerStream) -> PerStream:
        """Flat sums of the earlier blocks' goodness."""
        return like.detach().zeros() if self._goodness is None else self._goodness

    def history(self, goodness: PerStream, aspects: PerStream) -> tuple[PerStream, PerStream]:
        """What the rule's weight multiplies, for the goodness and for each aspect."""
        if self._carry is None or self._carry_aspects is None:
            return goodness.detach().zeros(), aspects.detach().zeros()
        return self._carry, self._carry_aspects

    def history_every(self, every: Tensor) -> Tensor:
        """The same for the goodness under every label, `[rows, classes]`."""
        return torch.zeros_like(every) if self._carry_every is None else self._carry_every

    def add(self, goodness: PerStream, aspects: PerStream, weight: Tensor, every: Tensor | None = None) -> None:
        """Enter one block's goodness; only values enter, never a graph."""
        if every is not None:
            self._add_every(every.detach(), weight.detach())
        goodness, aspects, weight = goodness.detach(), aspects.detach(), weight.detach()
        self._previous = goodness.pos
        self._goodness = goodness if self._goodness is None else self._goodness.plus(goodness)
        self._aspects = aspects if self._aspects is None else self._aspects.plus(aspects)
        if self.mode == "sum" or self._carry is None or self._carry_aspects is None:
            self._carry, self._carry_aspects = self._goodness, self._aspects
        else:
            self._carry = goodness.plus(self._carry, weight)
            self._carry_aspects = aspects.plus(self._carry_aspects, weight)
        self.depth += 1

    def _add_every(self, every: Tensor, weight: Tensor) -> None:
        self._every = every if self._every is None else self._every + every
        if self.mode == "sum" or self._carry_every is None:
            self._carry_every = self._every
        else:
            self._carry_every = every + per_view(weight, every) * self._carry_every


def per_view(weight: Tensor, every: Tensor) -> Tensor:
    """The rule's weight of every row `[views * batch, 1]`, from one for each example (or pair; the first are taken)."""
    views = -(-len(every) // len(weight))
    return weight.repeat(views)[: len(every)].unsqueeze(-1)
