"""The multi-aspect goodness (Figure goodness_aspects): several readings of a block's tokens, one learned blend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.nn.attention import NORM_EPSILON, AttentionPool, RMSNorm, widen
from goodness.nn.block import GoodnessHead, Notes
from goodness.parts import Fact, GoodnessPart, register_goodness

if TYPE_CHECKING:
    from goodness.config import Config


@register_goodness("aspects")
@dataclass(frozen=True, kw_only=True)
class AspectGoodness(GoodnessPart):
    """align (to the label's prototype), energy (mean square), sharpness (of memory attention), learned (an MLP)."""

    temperature: float = 0.1
    """Divides the cosine between the pooled tokens and the label's prototype."""
    mask_dead: bool = False
    """Whether the softmax over the aspects leaves out those that are always zero."""

    def check(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"model.goodness.temperature must be positive, got {self.temperature}")

    def build(self, width: int, classes: int) -> GoodnessHead:
        return AspectHead(width, classes, self.temperature, self.mask_dead)

    def idle(self, config: Config) -> list[tuple[str, str] | Fact]:
        is_alive = getattr(config.model.block, "memory", 0) > 0
        return [("mask_dead", "with memory (model.block.memory) no aspect is dead")] if is_alive else []

    def why_zero(self, aspect: str, config: Config) -> str:
        if aspect != "sharpness":
            return super().why_zero(aspect, config)
        has_setting = hasattr(config.model.block, "memory")
        remedy = " (--model.block.memory 64 would give it one)" if has_setting else ", and no block here has one"
        return f"sharpness is always zero without memory{remedy}"


class AspectHead(GoodnessHead):
    """g = sum_a softmax(alpha_raw)_a g_a. Without memory the sharpness is zero but keeps its place in the softmax,
    unless `mask_dead`."""

    names = ("align", "energy", "sharpness", "learned")
    dead: Tensor

    def __init__(self, width: int, classes: int, temperature: float, mask_dead: bool = False) -> None:
        super().__init__()
        self.temperature = temperature
        self.mask_dead = mask_dead
        self.pool = AttentionPool(width)
        self.prototypes = nn.Parameter(torch.randn(classes, width) * width**-0.5)
        self.learned = nn.Sequential(RMSNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self.alpha_raw = nn.Parameter(torch.zeros(4))
        self.expect(())

    def expect(self, notes: tuple[str, ...]) -> None:
        self.active = (True, True, "sharpness" in notes, True)
        if self.mask_dead:  # a buffer: a recorded step may not copy a mask to the device
            self.register_buffer("dead", ~torch.tensor(self.active), persistent=False)

    def weights(self) -> Tensor:
        """w = softmax(alpha_raw), `[4]`; over the active aspects alone if `mask_dead`."""
        logits = self.alpha_raw.masked_fill(self.dead, -torch.inf) if self.mask_dead else self.alpha_raw
        return logits.softmax(dim=0)

    def forward(self, tokens: Tensor, labels: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        pooled, energy = self.pool.with_energy(tokens)
        return self.readings(pooled, energy, labels, notes.get("sharpness"))

    def under(self, tokens: Tensor, labels: Tensor, factors: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        """As the base's, without a copy of the tokens for each label.

        With f_y a label's factors, |x_t f_y|^2 and u . (x_t f_y) are matrix products of x^2 with f^2 and of x with
        f u, and the pooled features are f_y sum_t a_ty x_t.
        """
        width, each = tokens.shape[-1], len(labels)
        factors = factors.to(tokens.dtype)
        squares = widen(F.linear(tokens.square(), factors.square())) / width  # [batch, tokens, labels]
        query = (self.pool.norm.scale * self.pool.query).to(tokens.dtype)
        scores = widen(F.linear(tokens, factors * query)) * (squares + NORM_EPSILON).rsqrt()
        pooled = (scores.softmax(dim=1).to(tokens.dtype).transpose(1, 2) @ tokens * factors).flatten(0, 1)
        sharpness = notes["sharpness"].repeat_interleave(each) if "sharpness" in notes else None
        return self.readings(pooled, squares.mean(dim=1).flatten(), labels.repeat(len(tokens)), sharpness)

    def readings(
        self, pooled: Tensor, energy: Tensor, labels: Tensor, sharpness: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All aspects and their blend, from the pooled features and the energy of every row."""
        align = F.cosine_similarity(widen(pooled), widen(self.prototypes[labels]), dim=-1) / self.temperature
        learned = F.softplus(widen(self.learned(pooled)).squeeze(-1))
        sharpness = torch.zeros_like(align) if sharpness is None else sharpness.to(align.dtype)
        aspects = torch.stack([align, energy, sharpness, learned], dim=-1)
        return aspects, (aspects * self.weights()).sum(dim=-1), pooled


@register_goodness("energy")
@dataclass(frozen=True, kw_only=True)
class EnergyGoodness(GoodnessPart):
    """Hinton's goodness alone: the mean square of the tokens. One aspect, nothing learned in the head."""

    def build(self, width: int, classes: int) -> GoodnessHead:
        return EnergyHead()


class EnergyHead(GoodnessHead):
    """Mean square over tokens and width; the pooled features are the tokens' mean."""

    names = ("energy",)

    def forward(self, tokens: Tensor, labels: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        energy = widen(tokens).square().mean(dim=(1, 2))
        return energy.unsqueeze(-1), energy, tokens.mean(dim=1)

    def under(self, tokens: Tensor, labels: Tensor, factors: Tensor, notes: Notes) -> tuple[Tensor, Tensor, Tensor]:
        """As the base's, without a copy of the tokens for each label: mean_c f_yc^2 mean_t x_tc^2."""
        squares, factors = widen(tokens).square().mean(dim=1), widen(factors)  # [batch, width], [labels, width]
        with torch.autocast(tokens.device.type, enabled=False):  # a sum over the width needs the digits
            energy = (squares @ factors.square().T / tokens.shape[-1]).flatten()
        pooled = (tokens.mean(dim=1).unsqueeze(1) * factors.to(tokens.dtype)).flatten(0, 1)
        return energy.unsqueeze(-1), energy, pooled
