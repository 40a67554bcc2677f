"""The right label against all others at once, for goodness that is known under every label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts
from goodness.methods.cumulative.ledger import per_view
from goodness.nn.attention import widen
from goodness.parts import Term, register_term

if TYPE_CHECKING:
    from goodness.config import Config


@register_term("choice")
@dataclass(frozen=True, kw_only=True)
class Choice(Term):
    """Cross-entropy of the right label under softmax(beta G_y / rise^d) over all labels y, in every view.

    G = g + w * history, as in the block loss. Where a mined negative meets one wrong label, this meets them all, at
    the price of late labels (`model.label late`): a pass of the body gives the goodness of every label.
    """

    smoothing: float = 0.0
    """Share of the target spread evenly over all labels."""
    rise: float = 1.0
    """How much larger a block's goodness has to become than the one's before it. Prediction sums the blocks, so that
    above 1 the deeper ones, which know better, have the larger say."""

    def check(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"objective.choice.smoothing must be at least 0 and below 1, got {self.smoothing}")
        if self.rise <= 0:
            raise ConfigError(f"objective.choice.rise must be positive, got {self.rise}")

    def check_model(self, model: Any) -> None:
        if not model.label.is_late:
            raise ConfigError(
                f"objective.choice compares all labels, and under model.label '{model.label.kind}' every one of them "
                "would take a pass of its own: give --model.label late"
            )

    def idle(self, config: Config) -> list[tuple[str, str]]:
        return [("rise", "there is one block")] if config.model.blocks == 1 else []

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset({"history", "beta"})

    @property
    def wants_every(self) -> bool:
        return True

    def loss(self, facts: Facts, module: None) -> Tensor:
        assert facts.every is not None  # the step sees to it where `wants_every`
        assert facts.history_every is not None
        total = widen(facts.every) + per_view(facts.weight, facts.every) * facts.history_every
        scale = facts.beta if self.rise == 1 else facts.beta / self.rise**facts.depth  # who asks gets a graph a depth
        scores = scale * total
        return F.cross_entropy(scores, facts.labels.repeat(facts.positives), label_smoothing=self.smoothing)
