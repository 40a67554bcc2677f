"""The terms of a block's loss (Eq. total_loss, App. loss_formulas): each a function of that block's facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.cumulative.barrier import attenuation, barrier, barrier_slope, residual_weights
from goodness.methods.cumulative.facts import Facts
from goodness.nn.attention import widen
from goodness.nn.unbuilt import dead_aspects
from goodness.parts import MULTIPLIES_NOTHING, Fact, Term, register_term

if TYPE_CHECKING:
    from goodness.config import Config


class Threshold(nn.Module):
    """theta of the margin loss: one learned scalar per aspect."""

    def __init__(self, aspects: int, init: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.full((aspects,), init))


@register_term("aspects")
@dataclass(frozen=True, kw_only=True)
class Aspects(Term):
    """Each aspect of the goodness discriminates for itself.

    L = sum_a lambda_a [(1 - eta) l_a(g+_a, g_nl_a) + eta l_a(g+_a, g_ni_a)], with l_a either
    margin: softplus(theta_a - g+) + softplus(g- - theta_a), or rank: softplus(-beta (g+ - g-)).
    With `history` the earlier blocks' aspects stand beside this block's, weighed by the rule as in the block
    loss. Without it, this term is a current-block loss and repairs free-riding all by itself.
    """

    lambdas: tuple[float, ...] = (1.5, 0.2, 0.3, 0.3)
    """One weight per aspect: align, energy, sharpness, learned."""
    losses: tuple[Literal["margin", "rank"], ...] = ("margin", "rank", "rank", "margin")
    """The loss of each aspect."""
    history: bool = True
    """Whether the earlier blocks' aspects enter, weighed by the collaboration rule."""
    theta_init: float = 1.0
    """Where the learned thresholds start."""

    def check(self) -> None:
        if len(self.lambdas) != len(self.losses):
            raise ConfigError(
                f"objective.aspects.lambdas has {len(self.lambdas)} values and objective.aspects.losses "
                f"{len(self.losses)}: give one of each per aspect"
            )

    def idle(self, config: Config) -> list[tuple[str, str] | Fact]:
        found: list[tuple[str, str] | Fact] = []
        dead = dead_aspects(config)
        for a, weight in enumerate(self.lambdas):
            if a in dead and weight != 0:
                found.append(Fact(f"lambdas[{a}]", dead[a], *MULTIPLIES_NOTHING))
            if a in dead or weight == 0:
                found.append((f"losses[{a}]", f"lambdas[{a}] is 0" if weight == 0 else dead[a]))
        live = self._live_losses(config)
        if not live:
            found.append(("weight", "every aspect has a lambda of 0 or is always zero"))
        if "margin" not in live:
            found.append(("theta_init", "no aspect at work has the margin loss, whose threshold it is"))
        if config.model.blocks == 1:
            found.append(("history", "there is one block, and no earlier one"))
        elif config.rule.only_weight(config) == 0:
            found.append(("history", "the rule's weight is always 0"))
        return found

    def looks_at(self, config: Config) -> frozenset[str]:
        live = self._live_losses(config)
        found = {"blend"} if live else set()
        found |= {"history"} if live and self.history else set()
        return frozenset(found | ({"beta"} if "rank" in live else set()))

    def _live_losses(self, config: Config) -> list[str]:
        """The losses of the aspects that have a weight and can differ from zero."""
        dead, pairs = dead_aspects(config), zip(self.lambdas, self.losses)
        return [kind for a, (weight, kind) in enumerate(pairs) if weight != 0 and a not in dead]

    def module(self, width: int, aspects: int) -> nn.Module:
        if aspects != len(self.lambdas):
            raise ConfigError(
                f"objective.aspects.lambdas has {len(self.lambdas)} values, the goodness {aspects} aspects"
            )
        return Threshold(aspects, self.theta_init)

    def loss(self, facts: Facts, module: Threshold) -> Tensor:
        seen = facts.aspects
        if self.history:
            seen = seen.plus(facts.history_aspects, facts.weight)
        total = seen.pos.new_zeros(())
        for a, (weight, kind) in enumerate(zip(self.lambdas, self.losses)):
            if weight == 0 or not facts.active[a]:
                continue
            positive, theta = seen.pos[:, a], module.theta[a]
            values = []
            for negative in seen.negatives:
                if kind == "rank":
                    values.append(barrier(positive - negative[:, a], facts.beta).mean())
                else:
                    values.append(F.softplus(theta - positive).mean() + F.softplus(negative[:, a] - theta).mean())
            total = total + weight * facts.blend(values)
        return total


@register_term("block")
@dataclass(frozen=True, kw_only=True)
class Block(Term):
    """The cumulative discrimination loss (Eq. Lblock): l_beta(M), blended over the two kinds of negatives."""

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset({"history", "beta", "blend"})

    def loss(self, facts: Facts, module: None) -> Tensor:
        return facts.blend([barrier(margin, facts.beta).mean() for margin in facts.cumulative_margins()])


@register_term("curr")
@dataclass(frozen=True, kw_only=True)
class Current(Term):
    """The block on its own, leaning on what earlier blocks left unresolved (Eq. depth_scaled_main).

    L = mean_i w_i l_beta(m_i), lambda(d) = weight * (1 + rho d / (L - 1)), w of mean one.
    """

    weight: float = 0.25
    """lambda_0, the coefficient at the first block."""
    rho: float = 3.0
    """Growth of the coefficient over depth: the deepest block's is (1 + rho) times the first's."""
    residual: bool = True
    """Whether unresolved examples weigh more."""
    w_min: float = 0.1
    """Smallest residual weight before the second normalisation."""
    w_max: float = 5.0
    """Largest residual weight before the second normalisation."""

    def check(self) -> None:
        if not 0 < self.w_min <= 1 <= self.w_max:
            raise ConfigError(
                f"objective.curr needs 0 < w_min <= 1 <= w_max, got w_min={self.w_min}, w_max={self.w_max}"
            )
        if self.rho < -1:
            raise ConfigError(f"objective.curr.rho must be at least -1, got {self.rho}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        if config.model.blocks == 1:
            grows = [("rho", "the coefficient grows over depth, and there is one block")] if self.rho != 0 else []
            past = "there is no earlier block to leave anything unresolved"
            return [*grows, *((name, past) for name in ("residual", "w_min", "w_max"))]
        flat = "every example weighs the same (residual is off)"
        return [] if self.residual else [("w_min", flat), ("w_max", flat)]

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset({"beta", "blend"})

    def coefficient(self, depth: int, blocks: int, progress: float | Tensor = 0.0) -> float:
        return self.weight * (1 + self.rho * depth / max(1, blocks - 1)) if self.rho else self.weight

    def loss(self, facts: Facts, module: None) -> Tensor:
        values = []
        for margin, past in zip(facts.margins(), facts.past_margins()):
            losses = barrier(margin, facts.beta)
            if self.residual and not facts.is_first:
                losses = residual_weights(past, facts.beta, self.w_min, self.w_max) * losses
            values.append(losses.mean())
        return facts.blend(values)


@register_term("depth")
@dataclass(frozen=True, kw_only=True)
class DepthOrder(Term):
    """Each block after the first should raise the positive's goodness and lower the negatives'.

    G is the plain sum, so the increments are this block's own: softplus(delta - g+) + sum softplus(delta + g-).
    """

    weight: float = 0.1
    """lambda_depth."""
    delta_pos: float = 0.1
    """Least rise of the positive's cumulative goodness."""
    delta_neg: float = 0.1
    """Least fall of a negative's."""

    def idle(self, config: Config) -> list[tuple[str, str]]:
        alone = "the first block has no earlier one to stand in order with, and there is one block"
        return [("weight", alone)] if config.model.blocks == 1 else []

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset() if config.model.blocks == 1 else frozenset({"negatives"})

    def loss(self, facts: Facts, module: None) -> Tensor:
        if facts.is_first:
            return facts.goodness.pos.new_zeros(())
        total = F.softplus(self.delta_pos - facts.goodness.pos).mean()
        for negative in facts.goodness.negatives:
            total = total + F.softplus(self.delta_neg + negative).mean()
        return total


@register_term("recon")
@dataclass(frozen=True, kw_only=True)
class Reconstruction(Term):
    """A linear decoder gives the block's input back from its output: mean squared error, both positive views."""

    weight: float = 0.05
    """lambda_recon."""

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset()

    def module(self, width: int, aspects: int) -> nn.Module:
        return nn.Linear(width, width)

    def loss(self, facts: Facts, module: nn.Module) -> Tensor:
        rows = facts.positives * len(facts.labels)
        error = widen(module(facts.tokens_out[:rows])) - widen(facts.tokens_in[:rows])
        return facts.positives * error.square().mean()  # the sum over the views of each view's mean


@register_term("mgc")
@dataclass(frozen=True, kw_only=True)
class MissingGradient(Term):
    """The missing-gradient compensated loss, which the paper proposes and does not run (App. attenuation_compensated).

    L = mean_i [l(M_i) + lambda_i l(m_i)], lambda_i = [c_d - s(M_i) / (s(m_i) + epsilon)]_+ held constant: it adds just
    the gradient that the history took away, so that block d feels c_d times the block-local gradient. It takes the
    place of `block` and `curr`.
    """

    rho: float = 0.0
    """c_d = 1 + rho d / (L - 1): 0 restores the local gradient, more boosts the deeper blocks."""
    epsilon: float = 1e-6
    """Keeps the ratio finite where the block has settled an example."""

    def check(self) -> None:
        if self.epsilon < 0 or self.rho < 0:
            raise ConfigError(f"objective.mgc.rho and .epsilon must be at least 0, got {self.rho}, {self.epsilon}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        grows = self.rho != 0 and config.model.blocks == 1
        return [("rho", "the target grows over depth, and there is one block")] if grows else []

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset({"history", "beta", "blend"})

    def loss(self, facts: Facts, module: None) -> Tensor:
        target = 1 + self.rho * facts.depth / max(1, facts.blocks - 1) if self.rho else 1.0
        values = []
        for margin, total in zip(facts.margins(), facts.cumulative_margins()):
            values.append(missing_gradient_loss(margin, total, facts.beta, target, self.epsilon).mean())
        return facts.blend(values)


def missing_gradient_loss(margin: Tensor, total: Tensor, beta: float, target: float, epsilon: float) -> Tensor:
    """l(M) + [c - s(M) / (s(m) + epsilon)]_+ l(m) per example, no gradient through the bracket."""
    with torch.no_grad():
        if epsilon > 0:  # a quotient of sigmoids: finite even where the plain ratio overflows and its slope is zero
            ratio = barrier_slope(total, beta) / (barrier_slope(margin, beta) + beta * epsilon)
        else:
            ratio = attenuation(margin, total - margin, 1.0, beta)
        missing = (target - ratio).clamp(min=0)
    return barrier(total, beta) + missing * barrier(margin, beta)
