"""What a check of the theorems found, as data: example by example, block by block, the whole run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-9
"""Relative, for float64: rounding gives about 1e-14, in the trained demo and at the paper's size."""


@dataclass(frozen=True)
class Example:
    """One example at one block, in float64. What could not be measured (a gradient that underflows) is None."""

    index: int  # its place among the images given
    wrong: int  # the wrong label that this block finds hardest
    margin: float  # m
    past: float  # P
    weight: float  # w
    ratio: float  # R, by the formula
    measured: float | None  # |g_cumulative| / |g_local|, over the block's parameters
    cosine: float | None  # of the two gradients
    error: float | None  # |g_cumulative - R g_local| / |g_local|
    is_detached: bool  # whether neither P nor w brings a graph along

    @property
    def inherited(self) -> float:
        """w P."""
        return self.weight * self.past

    @property
    def is_separated(self) -> bool:
        """Whether the theorem's assumptions hold: the block and its past are both on the right side."""
        return self.margin >= 0 and self.past >= 0 and self.weight >= 0

    @property
    def obeys(self) -> bool:
        """Whether the gradient is R times the local one, in direction and length."""
        if self.measured is None or self.cosine is None:
            return self.is_detached
        is_as_long = abs(self.measured - self.ratio) <= TOLERANCE * self.ratio
        return self.is_detached and self.cosine >= 1 - TOLERANCE and is_as_long


@dataclass(frozen=True)
class Identity:
    """The parameter-gradient identity over the gradient examples; extremes are None where nothing was measured."""

    measured: int
    violations: int
    smallest_cosine: float | None
    largest_error: float | None


@dataclass(frozen=True)
class Sandwich:
    """The bounds on R: by its formula on the coverage examples, by the gradients' lengths on the gradient examples."""

    inside: int
    measured_inside: int
    violations: int


@dataclass(frozen=True)
class Floor:
    """The gradient floor on the coverage examples, whose residual weights are those of one batch of them all.

    A slack is how far |dJ/dm| lies above its floor. `unresolved` are the examples with m <= 0, which have a floor of
    lambda (w_min / w_max) beta / 2 whatever the past.
    """

    coefficient: float  # lambda_curr(d)
    examples: int
    unresolved: int
    violations: int
    smallest_slack: float
    smallest_unresolved_slack: float | None


@dataclass(frozen=True)
class Coverage:
    """Shares of examples inside the theorem's assumptions, and means as in Table assumption_coverage."""

    examples: int
    margin_positive: float  # share with m >= 0
    past_positive: float  # share with P >= 0
    both: float
    mean_margin: float
    mean_past: float
    mean_weight: float
    mean_inherited: float  # of w P
    mean_ratio: float  # of R; a few examples with P < 0 can make it large
    mean_clipped_ratio: float  # of min(1, R)
    ratio_at_means: float  # R at the means of m and w P: the paper's column


@dataclass(frozen=True)
class BlockTheory:
    """All that was checked at one block."""

    block: int
    identity: Identity
    sandwich: Sandwich
    floor: Floor | None  # None where the objective has no current-block term
    coverage: Coverage
    examples: tuple[Example, ...]

    @property
    def violations(self) -> int:
        floor = 0 if self.floor is None else self.floor.violations
        return self.identity.violations + self.sandwich.violations + floor


@dataclass(frozen=True)
class TheoryReport:
    """What the theorems say and what was found, for every block that has a past."""

    rule: str
    history: str
    beta: float
    examples: int  # whose gradients were taken
    coverage_examples: int
    blocks: tuple[BlockTheory, ...]
    note: str  # what a reader should know before reading the numbers; often empty
    weights_sha256: str = ""  # of the run, as its result.json has it; empty for a network in memory

    @property
    def holds(self) -> bool:
        return all(block.violations == 0 for block in self.blocks)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, strict JSON too: a number that is not finite becomes None."""
        return {"holds": self.holds, **_plain(dataclasses.asdict(self))}


def theory_table_rows(report: TheoryReport) -> list[dict[str, Any]]:
    """One flat row per block for a table, plain data: `block`, `holds`, and every field of the block's four parts.

    A key is the part's name and the field's: `identity_violations`, `coverage_both`; a floor that is not there is None.
    """
    rows = []
    for one in report.blocks:
        row: dict[str, Any] = {"block": one.block, "holds": one.violations == 0}
        for kind in (Identity, Sandwich, Floor, Coverage):
            part = kind.__name__.lower()
            found = getattr(one, part)
            row |= {f"{part}_{field.name}": getattr(found, field.name, None) for field in dataclasses.fields(kind)}
        rows.append(_plain(row))
    return rows


def _plain(value: Any) -> Any:
    """Dictionaries, lists, and numbers that strict JSON has a word for."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
