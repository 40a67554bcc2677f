"""Suites: named lists of cells, such as all runs behind one table of a paper.

suites.register("rules")(Suite(about="The four rules, three seeds.", make=cells_of_rules, scales=("full", "small")))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goodness.errors import UserError, nearest
from goodness.registry import Registry
from goodness.sweep.cell import Cell


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What a suite is, and its cells at each of its scales."""

    about: str
    make: Callable[[str], Sequence[Cell]]
    """The cells at a scale."""
    scales: tuple[str, ...] = ("full",)
    """The first is taken unless another is asked for."""

    def cells(self, scale: str | None = None) -> list[Cell]:
        if scale is not None and scale not in self.scales:
            raise UserError(f"this suite has no scale '{scale}': {nearest(scale, self.scales)}")
        return list(self.make(scale or self.scales[0]))


suites: Registry[Suite] = Registry("suite")
