"""The backpropagation control: the same backbone without its Forward-Forward parts, and a linear layer on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goodness.nn.attention import RMSNorm
from goodness.nn.block import Notes
from goodness.nn.network import Stemmed

if TYPE_CHECKING:
    from goodness.config import Model


class StrippedNetwork(Stemmed):
    """Stem, the blocks' bodies one after the other, norm, mean over tokens, class logits.

    No label enters, no goodness is read, and nothing stands between two bodies: no detaching, activation or
    normalisation. `model.label`, `goodness`, `activation`, `normalise` and `warm_start` play no part.
    """

    def __init__(
        self,
        config: Model,
        shape: tuple[int, int, int],
        classes: int,
        *,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__(config, shape, classes, mean, std)
        self.blocks = nn.ModuleList(config.block.at(depth).build(*self.shapes[depth]) for depth in range(config.blocks))
        width_out = self.shapes[-1][0]
        self.norm = RMSNorm(width_out)
        self.classify = nn.Linear(width_out, classes)
        self.recomputes = False  # whether the backward computes each body again instead of keeping what is in it

    def forward(self, images: Tensor) -> tuple[Tensor, list[Notes]]:
        """Images in [0, 1] to logits `[batch, classes]` and every block's notes (a router's logits, for its losses)."""
        tokens, notes = self.tokens(images), []
        for body in self.blocks:
            if self.recomputes:
                tokens, noted = checkpoint(_through, body, tokens, use_reentrant=False)
            else:
                tokens, noted = _through(body, tokens)
            notes.append(noted)
        return self.classify(self.norm(tokens).mean(dim=1)), notes


def _through(body: nn.Module, tokens: Tensor) -> tuple[Tensor, Notes]:
    result = body(tokens)
    return result if isinstance(result, tuple) else (result, {})
