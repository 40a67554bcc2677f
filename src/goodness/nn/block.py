"""A Forward-Forward block: label in, tokens through, goodness out. Whatever learns in it is its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.nn.attention import widen

Notes = dict[str, Tensor]
"""What a body tells the goodness and the terms beside its tokens, by name."""


class GoodnessHead(nn.Module):
    """Tokens and labels to a goodness; the base of every goodness, a user's own too.

    `forward(tokens [batch, tokens, width], labels [batch], notes)` returns aspects `[batch, A]`, goodness `[batch]` and
    pooled features `[batch, width]`. `names` has one name per aspect, `active` says which of them can differ from
    zero, `weights()` how they enter the goodness.
    """

    names: tuple[str, ...] = ("goodness",)
    active: tuple[bool, ...] = (True,)

    def weights(self) -> Tensor:
        return torch.ones(len(self.names))

    def expect(self, notes: tuple[str, ...]) -> None:
        """Hear which notes the block's body will bring; called once, when the block is built."""

    def forward(self, tokens: Tensor, labels: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def under(self, tokens: Tensor, labels: Tensor, factors: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        """`forward` of every row's tokens, times each label's factors `[labels, width]`, under that label.

        Gives `[batch * labels, ...]`, labels fastest. A head that knows a shorter way may take it.
        """
        each = len(labels)
        tokens = (tokens.unsqueeze(1) * factors.to(tokens.dtype)[:, None]).flatten(0, 1)
        notes = {name: note.repeat_interleave(each, dim=0) for name, note in notes.items()}
        return self(tokens, labels.repeat(len(tokens) // max(1, each)), notes)


class BlockOutput(NamedTuple):
    """tokens `[batch, tokens, width]`, aspects `[batch, A]`, goodness `[batch]`, pooled `[batch, width]`, notes."""

    tokens: Tensor
    aspects: Tensor
    goodness: Tensor
    pooled: Tensor
    notes: Notes


class FFBlock(nn.Module):
    """label injection (if it has one) -> body -> goodness head. `extras` holds what the objective's terms learn.

    A late label is injected between body and head, for the head alone.
    """

    def __init__(self, label: nn.Module | None, body: nn.Module, head: GoodnessHead, is_late: bool = False) -> None:
        super().__init__()
        self.is_late = is_late
        self.label = label
        self.body = body
        self.head = head
        head.expect(getattr(body, "gives", ()))
        self.extras = nn.ModuleDict()

    def forward(self, tokens: Tensor, labels: Tensor) -> BlockOutput:
        if self.label is not None and not self.is_late:
            tokens = self.label(tokens, labels)
        tokens, notes = self._through(tokens)
        seen = tokens if self.label is None or not self.is_late else self.label(tokens, labels)
        aspects, goodness, pooled = self.head(seen, labels, notes)
        return BlockOutput(tokens, aspects, goodness, pooled, notes)

    def read(self, tokens: Tensor, rows: Tensor, labels: Tensor) -> BlockOutput:
        """Rows `[n]` of what the body makes of the tokens, each under its label `[n]`; for late labels alone.

        The tokens are the body's, one for each row it was given; all else is `[n, ...]`.
        """
        assert self.label is not None
        assert self.is_late
        tokens, notes = self._through(tokens)
        read = {name: note[rows] for name, note in notes.items() if len(note) == len(tokens)}
        aspects, goodness, pooled = self.head(self.label(tokens[rows], labels), labels, read)
        return BlockOutput(tokens, aspects, goodness, pooled, notes)

    def under(self, tokens: Tensor, labels: Tensor) -> BlockOutput:
        """Every row under each of these labels, from one pass of the body; for late labels alone.

        Aspects, goodness and pooled features are `[batch * labels, ...]`, labels fastest; the tokens are the rows'.
        """
        assert self.label is not None
        assert self.is_late
        tokens, notes = self._through(tokens)
        read = {name: note for name, note in notes.items() if len(note) == len(tokens)}
        aspects, goodness, pooled = self.head.under(tokens, labels, self.label.factors()[labels], read)  # type: ignore[operator]
        return BlockOutput(tokens, aspects, goodness, pooled, notes)

    def neutral(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and pooled features of a pass that no label entered."""
        tokens, notes = self._through(tokens)
        nothing = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
        return tokens, self.head(tokens, nothing, notes)[2]

    def _through(self, tokens: Tensor) -> tuple[Tensor, Notes]:
        result = self.body(tokens)
        return result if isinstance(result, tuple) else (result, {})


def hand_on(tokens: Tensor, activation: str, normalise: bool, token_norm: str = "quarter") -> Tensor:
    """What the next block receives: detached, through the activation, each token scaled to norm width^(1/4) or 1.

    The norm is taken away so that a block cannot read the earlier blocks' energy off its input. Where nothing changes,
    it is a copy: a compiled graph that gives the tokens and an alias of them may lay one of the two out wrongly.
    """
    tokens = tokens.detach()
    if activation == "none" and not normalise:
        return tokens.clone()
    return between_blocks(tokens, activation, normalise, token_norm)


def between_blocks(tokens: Tensor, activation: str, normalise: bool, token_norm: str = "quarter") -> Tensor:
    """The activation and normalisation on the way from one block to the next."""
    if activation == "relu":
        tokens = F.relu(tokens)
    elif activation == "triangle":  # only what stands out among a token's own features
        tokens = F.relu(tokens - tokens.mean(dim=-1, keepdim=True))
    if normalise:
        tokens = F.normalize(widen(tokens), dim=-1, eps=1e-6).to(tokens.dtype) * norm_of(token_norm, tokens.shape[-1])
    return tokens


def norm_of(token_norm: str, width: int) -> float:
    """The L2 norm of a token that is handed on: 1 or width^(1/4)."""
    return 1.0 if token_norm == "unit" else width**0.25
