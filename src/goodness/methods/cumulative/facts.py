"""What is known of one block in one step: the only thing a term, a rule or a measure may look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class PerStream(NamedTuple):
    """One quantity on the positive, the wrong-label and the wrong-image stream (None where there is none)."""

    pos: Tensor
    nl: Tensor
    ni: Tensor | None

    @property
    def negatives(self) -> list[Tensor]:
        return [self.nl] if self.ni is None else [self.nl, self.ni]

    def detach(self) -> PerStream:
        return PerStream(self.pos.detach(), self.nl.detach(), None if self.ni is None else self.ni.detach())

    def plus(self, other: PerStream, weight: Tensor | float = 1.0) -> PerStream:
        """self + weight * other, stream by stream."""

        def add(mine: Tensor, theirs: Tensor) -> Tensor:
            if isinstance(weight, Tensor) and mine.dim() > weight.dim():
                return mine + weight.unsqueeze(-1) * theirs
            return mine + weight * theirs

        ni = None if self.ni is None or other.ni is None else add(self.ni, other.ni)
        return PerStream(add(self.pos, other.pos), add(self.nl, other.nl), ni)

    def zeros(self) -> PerStream:
        return PerStream(*(None if one is None else torch.zeros_like(one) for one in self))  # type: ignore[arg-type]

    @staticmethod
    def of_streams(value: Tensor, streams: int, wrong_labels: int = 1, positives: int = 2) -> PerStream:
        """Split `[streams * batch, ...]` in the order pos1, pos2 (or one alone), nl (one or several), ni (or none).

        The two positive views are averaged. With several wrong labels an example stands once for each of them: the
        positive's and the wrong image's values are repeated, so that losses are means over all pairs.
        """
        rows = value.reshape(streams, -1, *value.shape[1:])
        positive = (rows[0] + rows[1]) / 2 if positives == 2 else rows[0]
        wrong_image = rows[-1] if streams == positives + wrong_labels + 1 else None
        if wrong_labels == 1:
            return PerStream(positive, rows[positives], wrong_image)
        again = (wrong_labels, *[1] * (positive.dim() - 1))
        wrong = rows[positives : positives + wrong_labels].flatten(0, 1)
        return PerStream(positive.repeat(again), wrong, None if wrong_image is None else wrong_image.repeat(again))


@dataclass(frozen=True)
class Past:
    """What a collaboration rule sees: what the earlier blocks gave, where we are in depth and in training."""

    total: Tensor  # [batch], sum over earlier blocks of the positive goodness, detached
    previous: Tensor  # [batch], the block before this one alone
    depth: int
    blocks: int
    progress: float | Tensor  # share of the epochs done, 0 to 1; one number, in a tensor where steps are recorded


@dataclass
class Facts:
    """One block's step. Shapes: goodness `[batch]`, aspects `[batch, A]`, tokens `[streams * batch, tokens, width]`.

    With several wrong labels per image (`negatives.count`) goodness, aspects and weight have a row for each pair,
    `[count * batch]`, image after image within each; labels stay `[batch]`.
    """

    depth: int
    blocks: int
    labels: Tensor  # [batch], the right ones
    beta: float  # the barrier's sharpness
    eta: float  # share of the wrong-image negatives in a blend; 0 without that stream
    goodness: PerStream  # this block's own, with gradient
    aspects: PerStream
    active: tuple[bool, ...]  # which aspects can differ from zero
    earlier: PerStream  # flat sums over the earlier blocks, detached: goodness
    weight: Tensor  # [batch], the collaboration rule's weight on the history
    history: PerStream  # what the weight multiplies: the flat sums, or the decaying recursion
    history_aspects: PerStream
    tokens_in: Tensor  # before the label entered, detached
    tokens_out: Tensor
    pooled: Tensor  # [streams * batch, width]
    notes: dict[str, Tensor]  # what the block's body told beside its tokens
    neutral: Tensor | None  # the positive views' pooled features of a pass no label ever entered
    positives: int = 2  # views under the right label: so many times the batch are the first rows of tokens and pooled
    every: Tensor | None = None  # [positives * batch, classes], this block's goodness of those under every label
    history_every: Tensor | None = None  # what the rule's weight multiplies beside it, detached
    progress: Tensor = field(default_factory=lambda: torch.zeros(()))  # share of the epochs done; a tensor, so that
    # a compiled graph need not be made anew as it moves
    scratch: dict[str, Tensor] = field(default_factory=dict)  # a term's own notes between loss and after_step
    is_first: bool = field(init=False)  # whether this is block 0; a graph that asks no more serves all the others

    def __post_init__(self) -> None:
        self.is_first = self.depth == 0

    @property
    def cumulative(self) -> PerStream:
        """G = g + w * history: the goodness the cumulative loss sees."""
        return self.goodness.plus(self.history, self.weight)

    def margins(self) -> list[Tensor]:
        """m = g+ - g-, for the wrong label and, where there is one, the wrong image."""
        return [self.goodness.pos - negative for negative in self.goodness.negatives]

    def past_margins(self) -> list[Tensor]:
        """P = sum over earlier blocks of m, detached, in the same order."""
        return [self.earlier.pos - negative for negative in self.earlier.negatives]

    def cumulative_margins(self) -> list[Tensor]:
        """M = m + w * P (Eq. cum_margin), in the same order."""
        total = self.cumulative
        return [total.pos - negative for negative in total.negatives]

    def blend(self, values: list[Tensor]) -> Tensor:
        """(1 - eta) * the wrong label's + eta * the wrong image's."""
        if len(values) == 1:
            return values[0]
        return (1 - self.eta) * values[0] + self.eta * values[1]
