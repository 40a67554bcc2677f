"""Two terms that the paper's exploratory variants name without a formula, and what we took them to mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.methods.cumulative.facts import Facts
from goodness.nn.attention import widen
from goodness.parts import Term, register_term

if TYPE_CHECKING:
    from goodness.config import Config

EPSILON = 1e-6
"""Added to a feature's variance, so that one that is the same for every example correlates with nothing."""


def correlations(features: Tensor) -> Tensor:
    """Pearson correlations `[width, width]` of the columns of `[batch, width]`, at least in float32."""
    features = widen(features)
    centred = features - features.mean(dim=0)
    standard = centred * (centred.square().mean(dim=0) + EPSILON).rsqrt()
    with torch.autocast(features.device.type, enabled=False):  # a sum over the batch needs the digits
        return standard.T @ standard / len(features)


def off_diagonal_power(matrix: Tensor) -> Tensor:
    """Mean of the squares of a square matrix's entries off the diagonal; zero where there are none."""
    width = len(matrix)
    itself = torch.eye(width, dtype=torch.bool, device=matrix.device)
    return matrix.masked_fill(itself, 0).square().sum() / max(1, width * (width - 1))


@register_term("diversity")
@dataclass(frozen=True, kw_only=True)
class Diversity(Term):
    """Features should say different things: decorrelates the block's pooled features over the batch.

    L = mean_{a != b} C_ab^2, C the correlation matrix of the first positive view's pooled features.
    """

    weight: float = 0.05
    """lambda_div."""

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset()

    def loss(self, facts: Facts, module: None) -> Tensor:
        return off_diagonal_power(correlations(facts.pooled[: len(facts.labels)]))


@register_term("probe")
@dataclass(frozen=True, kw_only=True)
class Probe(Term):
    """A linear classifier of the block's own, learning with it: a current-block loss that asks for the class.

    Cross-entropy on the pooled features of both positive views, from a pass that no label ever entered (under the
    right label there would be nothing left to find out). Its gradient reaches the block, and goes no further.
    """

    weight: float = 0.1
    """lambda_probe."""

    @property
    def wants_neutral(self) -> bool:
        return True

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset()

    def module_for(self, width: int, aspects: int, classes: int) -> nn.Module:
        return nn.Linear(width, classes)

    def loss(self, facts: Facts, module: nn.Module) -> Tensor:
        assert facts.neutral is not None  # the step sees to it where `wants_neutral`
        return F.cross_entropy(widen(module(facts.neutral)), facts.labels.repeat(facts.positives))
