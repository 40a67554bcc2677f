"""Collaboration rules: how much of the earlier blocks' evidence enters a block's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Past
from goodness.parts import Rule, register_rule

if TYPE_CHECKING:
    from goodness.config import Config


@register_rule("constant")
@dataclass(frozen=True, kw_only=True)
class Constant(Rule):
    """The same weight everywhere: 0 is block-local, 0.7 the paper's cumulative loss, 1 is LCFF."""

    gamma: float = 0.7
    """Weight of the history, 0 to 1."""

    def check(self) -> None:
        _in_unit("rule.gamma", self.gamma)

    def only_weight(self, config: Config) -> float | None:
        return self.gamma

    def weight(self, past: Past) -> Tensor:
        return torch.full_like(past.total, self.gamma)


@register_rule("ramp")
@dataclass(frozen=True, kw_only=True)
class Ramp(Rule):
    """A weight that moves linearly over the epochs."""

    first: float = 0.0
    """Weight at the start of training."""
    last: float = 0.7
    """Weight from the end of the ramp on."""
    until: float = 1.0
    """Share of the epochs after which the ramp has ended."""

    def check(self) -> None:
        _in_unit("rule.first", self.first)
        _in_unit("rule.last", self.last)
        if not 0 < self.until <= 1:
            raise ConfigError(f"rule.until must lie in (0, 1], got {self.until}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        if config.epochs == 1:
            why = "the one epoch has the weight of the start"
            return [("last", why), ("until", why)]
        return [("until", "the weight ends where it starts")] if self.first == self.last else []

    def only_weight(self, config: Config) -> float | None:
        return self.first if config.epochs == 1 or self.first == self.last else None

    def weight(self, past: Past) -> Tensor:
        share = past.progress / self.until
        share = share.clamp(max=1.0) if isinstance(share, Tensor) else min(1.0, share)
        return torch.zeros_like(past.total) + (self.first + share * (self.last - self.first))


@register_rule("progressive")
@dataclass(frozen=True, kw_only=True)
class Progressive(Rule):
    """A weight that moves linearly over depth, from the second block to the last."""

    first: float = 0.0
    """Weight at the first block that has a history."""
    last: float = 0.7
    """Weight at the deepest block."""

    def check(self) -> None:
        _in_unit("rule.first", self.first)
        _in_unit("rule.last", self.last)

    def idle(self, config: Config) -> list[tuple[str, str]]:
        return [("first", "of two blocks, the one with a history is the deepest")] if config.model.blocks == 2 else []

    def only_weight(self, config: Config) -> float | None:
        return self.last if config.model.blocks == 2 or self.first == self.last else None

    def weight(self, past: Past) -> Tensor:
        share = (past.depth - 1) / (past.blocks - 2) if past.blocks > 2 else 1.0
        return torch.full_like(past.total, self.first + max(0.0, share) * (self.last - self.first))


def gate(support: Tensor, gamma0: float, tau: float, kappa: float) -> Tensor:
    """gamma_i = gamma0 * sigmoid(tau * (kappa - s_i)): an example the past has settled brings no history along."""
    return gamma0 * torch.sigmoid(tau * (kappa - support))


@register_rule("gated")
@dataclass(frozen=True, kw_only=True)
class Gated(Rule):
    """The hardness gate: history only for the examples whose earlier goodness is still below kappa."""

    gamma0: float = 0.7
    """Weight of the history where the gate is fully open."""
    tau: float = 1.0
    """How sharp the gate is."""
    kappa: float = 0.0
    """The goodness at which the gate is half open."""
    source: Literal["cumulative", "previous"] = "cumulative"
    """Whose positive goodness opens the gate: all earlier blocks' sum, or the previous block's."""

    def check(self) -> None:
        _in_unit("rule.gamma0", self.gamma0)
        if self.tau <= 0:
            raise ConfigError(f"rule.tau must be positive, got {self.tau}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        if self.gamma0 == 0:
            return [(name, "the gate has a weight of 0 to open for (gamma0)") for name in ("tau", "kappa", "source")]
        same = "with two blocks, all earlier blocks are the previous one"
        return [("source", same)] if config.model.blocks == 2 else []

    def only_weight(self, config: Config) -> float | None:
        return 0.0 if self.gamma0 == 0 else None

    def weight(self, past: Past) -> Tensor:
        support = past.total if self.source == "cumulative" else past.previous
        return gate(support, self.gamma0, self.tau, self.kappa)


def _in_unit(field: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{field} must lie in [0, 1], got {value}")
