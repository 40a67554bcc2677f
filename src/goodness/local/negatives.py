"""Where the wrong label of the NL stream comes from (Algorithm hnm).

A candidate is drawn with replacement from the wrong labels; the hardest, the one with the highest goodness, is
kept. Drawing the same label twice changes nothing, so each distinct label is scored once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from goodness.errors import ConfigError
from goodness.parts import NegativesPart, register_negatives

Score = Callable[[Tensor, Tensor], Tensor]
"""Goodness `[n]` of example rows `[n]` under labels `[n]`, at the block that mines; no gradient."""


@dataclass(frozen=True)
class Mining:
    """What a choice of negatives may look at, at one block of one step."""

    labels: Tensor  # [batch], the right ones
    classes: int
    uniforms: Tensor  # [batch, at least k], in [0, 1), keyed by seed, step and block
    depth: int
    blocks: int
    progress: float
    teacher: Score  # the moving average's block
    online: Score  # the block itself
    fixed_shapes: bool  # True where a compiled graph wants the same shapes at every step

    def wrong(self, offsets: Tensor) -> Tensor:
        """Labels from offsets 0 .. classes - 2: the true label is the one value no offset gives."""
        labels = self.labels.unsqueeze(-1) if offsets.dim() == 2 else self.labels
        return (labels + 1 + offsets) % self.classes


def draw(uniforms: Tensor, classes: int) -> Tensor:
    """Offsets of wrong labels, uniform over 0 .. classes - 2, with replacement."""
    return (uniforms * (classes - 1)).long().clamp_(max=classes - 2)


def hardest(mining: Mining, score: Score, k: int) -> Tensor:
    """The hardest of k draws, `[batch]`.

    Three ways to the same label: all wrong labels scored and masked to those drawn (k at least their number),
    each distinct draw scored once (any shape), or the k draws scored as they come (fixed shapes).
    """
    batch, wrongs = len(mining.labels), mining.classes - 1
    offsets = draw(mining.uniforms[:, :k], mining.classes)
    rows = torch.arange(batch, device=offsets.device)
    if mining.fixed_shapes and k < wrongs:
        scores = score(rows.repeat_interleave(k), mining.wrong(offsets).reshape(-1)).reshape(batch, k)
        best = offsets.gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)
        return mining.wrong(best)
    drawn = torch.zeros(batch, wrongs, dtype=torch.bool, device=offsets.device).scatter_(1, offsets, True)
    every = mining.wrong(torch.arange(wrongs, device=offsets.device).expand(batch, wrongs))
    if mining.fixed_shapes:
        scores = score(rows.repeat_interleave(wrongs), every.reshape(-1)).reshape(batch, wrongs)
        scores = scores.masked_fill(~drawn, -torch.inf)
    else:
        pair_rows, pair_columns = drawn.nonzero(as_tuple=True)
        some = score(pair_rows, every[pair_rows, pair_columns])
        scores = some.new_full((batch, wrongs), -torch.inf).index_put_((pair_rows, pair_columns), some)
    return mining.wrong(scores.argmax(dim=1))


def hardest_plainly(mining: Mining, score: Score, k: int) -> Tensor:
    """The readable twin of `hardest`: score every draw, duplicates too, one draw at a time."""
    offsets = draw(mining.uniforms[:, :k], mining.classes)
    rows = torch.arange(len(mining.labels), device=offsets.device)
    scores = torch.stack([score(rows, mining.wrong(offsets[:, j])) for j in range(k)], dim=1)
    best = offsets.gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)
    return mining.wrong(best)


@dataclass(frozen=True, kw_only=True)
class Mined(NegativesPart):
    """The hardest of k candidates; k moves from k_first to k_last."""

    k_first: int = 8
    """Candidate draws at the start of the ramp."""
    k_last: int = 16
    """Candidate draws at its end."""
    ramp: Literal["depth", "epochs"] = "depth"
    """What the number of draws ramps over."""
    mine_on: Literal["nl", "pos"] = "nl"
    """Whose tokens the candidates are scored on: the stream's own (they carry the earlier blocks' wrong
    labels) or the first positive view's."""

    def check(self) -> None:
        if self.k_first < 1 or self.k_last < 1:
            raise ConfigError(
                f"negatives.k_first and negatives.k_last must be at least 1, got {self.k_first}, {self.k_last}"
            )

    def candidates(self, mining: Mining) -> int:
        share = mining.progress if self.ramp == "epochs" else mining.depth / max(1, mining.blocks - 1)
        return round(self.k_first + share * (self.k_last - self.k_first))

    def choose(self, mining: Mining) -> Tensor:
        return hardest(mining, self.scorer(mining), self.candidates(mining))

    def scorer(self, mining: Mining) -> Score:
        raise NotImplementedError


@register_negatives("teacher")
@dataclass(frozen=True, kw_only=True)
class Teacher(Mined):
    """Scored by the moving average of the block (the paper's default)."""

    def scorer(self, mining: Mining) -> Score:
        return mining.teacher


@register_negatives("online")
@dataclass(frozen=True, kw_only=True)
class Online(Mined):
    """Scored by the block as it is now."""

    def scorer(self, mining: Mining) -> Score:
        return mining.online


@register_negatives("random")
@dataclass(frozen=True, kw_only=True)
class Random(NegativesPart):
    """Any wrong label, with equal chance; no scoring."""

    def choose(self, mining: Mining) -> Tensor:
        return mining.wrong(draw(mining.uniforms[:, 0], mining.classes))
