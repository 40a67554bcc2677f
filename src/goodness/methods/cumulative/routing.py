"""The router's regularisers (App. loss_formulas) and its health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts
from goodness.nn.hybrid import Hybrid
from goodness.nn.moe import Routing, load
from goodness.nn.plain_cnn import ConvStages
from goodness.parts import Term, register_term

if TYPE_CHECKING:
    from goodness.config import Config


def switch_balance(routing: Routing) -> Tensor:
    """E sum_i f_i P_i: f the share of choices that went to expert i, P its mean probability. One when even."""
    share = load(routing).to(routing.logits.dtype) / routing.chosen.numel()
    return routing.logits.shape[-1] * (share * routing.logits.softmax(dim=-1).mean(dim=0)).sum()


def router_z(routing: Routing) -> Tensor:
    """Mean over tokens of (log sum_i exp z_i)^2, which keeps the logits small."""
    return torch.logsumexp(routing.logits, dim=-1).square().mean()


def routing_of(notes: dict[str, Tensor]) -> Routing | None:
    """What a mixture of experts noted of its choices, if the block has one."""
    if "router_logits" not in notes:
        return None
    return Routing(notes["router_logits"], notes["router_chosen"], notes["router_weights"])


def routing_measures(notes: dict[str, Tensor]) -> dict[str, Tensor]:
    """Effective experts exp(entropy of the load), load variance (relative), share of experts without a token."""
    routing = routing_of(notes)
    if routing is None:
        return {}
    share = load(routing).to(routing.logits.dtype) / routing.chosen.numel()
    entropy = -torch.special.xlogy(share, share).sum()
    return {
        "experts_effective": entropy.exp(),
        "load_variance": (share * len(share)).var(correction=0),
        "experts_dead": (share == 0).to(share.dtype).mean(),
    }


@dataclass(frozen=True, kw_only=True)
class RouterTerm(Term):
    """A regulariser that needs a block with experts."""

    joins_backprop = True

    def check_model(self, model: Any) -> None:
        if isinstance(model.block, Hybrid) and model.block.experts < 2:
            raise ConfigError(
                f"objective.{self.kind} weighs a router and model.block has none: give it a weight of 0, or the block "
                "experts (--model.block.experts 32 --model.block.top_k 4)"
            )

    def idle(self, config: Config) -> list[tuple[str, str]]:
        no_router = isinstance(config.model.block, ConvStages)
        return [("weight", "a block of convolutions has no router")] if no_router else []

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset({"negatives"})  # the router sends the negatives' tokens too

    def of_routing(self, routing: Routing) -> Tensor:
        """The value for one block's choices."""
        raise NotImplementedError

    def loss(self, facts: Facts, module: None) -> Tensor:
        routing = routing_of(facts.notes)
        if routing is None:
            raise ConfigError(f"objective.{self.kind} weighs a router, and this block notes none")
        return self.of_routing(routing)


@register_term("balance")
@dataclass(frozen=True, kw_only=True)
class Balance(RouterTerm):
    """Switch load balancing: experts should share the tokens."""

    weight: float = 0.01
    """lambda_bal."""

    def of_routing(self, routing: Routing) -> Tensor:
        return switch_balance(routing)


@register_term("router-z")
@dataclass(frozen=True, kw_only=True)
class RouterZ(RouterTerm):
    """The ST-MoE z-loss: router logits should stay small."""

    weight: float = 0.001
    """lambda_z."""

    def of_routing(self, routing: Routing) -> Tensor:
        return router_z(routing)
