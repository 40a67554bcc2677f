"""The objective of a block: the weighted sum of its terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts
from goodness.parts import Term

Modules = Mapping[str, Any] | nn.ModuleDict


class Objective:
    """Sums the terms, each with its coefficient at the block's depth and at this point of the training; terms whose
    coefficient is zero from the start are skipped."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self.terms = dict(terms)

    def __call__(self, facts: Facts, modules: Modules) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and each term's own value before its coefficient."""
        return weighed_sum(self.active(facts.depth, facts.blocks), facts, modules)

    def after_step(self, facts: Facts, modules: Modules) -> None:
        for name, term in self.active(facts.depth, facts.blocks):
            term.after_step(facts, _extra(modules, name))

    def active(self, depth: int, blocks: int) -> list[tuple[str, Term]]:
        return [(name, term) for name, term in self.terms.items() if term.acts_at(depth, blocks)]


def weighed_sum(terms: Iterable[tuple[str, Term]], facts: Facts, modules: Modules) -> tuple[Tensor, dict[str, Tensor]]:
    """The terms' values times their coefficients, summed, and the values. The depth itself is not looked at here: where
    no term does either, one compiled graph serves every block behind the first."""
    total = facts.goodness.pos.new_zeros(())
    values: dict[str, Tensor] = {}
    for name, term in terms:
        value = term.loss(facts, _extra(modules, name))
        if not isinstance(value, Tensor) or value.dim() != 0:
            found = list(value.shape) if isinstance(value, Tensor) else value
            raise ConfigError(f"term '{name}' must give a scalar tensor, and gave {found}")
        values[name] = value
        total = total + term.coefficient(facts.depth, facts.blocks, facts.progress) * value
    return total, values


def _extra(modules: Modules, name: str) -> Any:
    """What the term learns in this block, if anything (a ModuleDict has no `get`)."""
    return modules[name] if name in modules else None  # noqa: SIM401
