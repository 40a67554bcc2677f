"""Cells that no run gives by itself: ranges and differences within a table, and pairs of runs image by image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goodness.errors import RunError, UserError
from goodness.paper import measured as of
from goodness.paper.numbers import Cell
from goodness.paper.numbers import table as cells_of
from goodness.paper.readers import NO_BLOCKS, NO_TTA, Unreadable
from goodness.paper.verdicts import POINT
from goodness.runs.predictions import read_predicted
from goodness.runs.run import Run

Means = Callable[[str, str], float]
"""Our mean in a row and column of the same table; raises `Unreadable` where there is none."""


@dataclass(frozen=True)
class InTable:
    """Follows from other cells of the same table."""

    value: Callable[[Means], float]


@dataclass(frozen=True)
class OfPair:
    """Follows from two presets' runs of the same seeds, Stage 2 included."""

    presets: tuple[str, str]
    value: Callable[[Sequence[Run], Sequence[Run]], float]


@dataclass(frozen=True)
class BestOf:
    """The largest of the seeds in another column of the same row."""

    column: str


Derived = InTable | OfPair | BestOf

RANGES = ("main_dissociation", "dissociation", "cifar100_dissociation_multiseed")
ABLATIONS = ("component_ablation", "hnm_ksweep", "aspect_ema_ablation")
PAIRS = ("paired_dissociation", "dissociation_ci")
HOW_PAIRED = (
    "on the same test images, after Stage 2 and with TTA (in one view where images are not mirrored); intervals are "
    "over the images of these networks, and know nothing of other seeds"
)
REGIMES: Mapping[str, str] = {
    "gamma=0": "cifar100-gamma0",
    "kappa=0": "cifar100-gated",
    "cumulative": "cifar100-cumulative",
}
"""What the paper's pairs are called, and the presets that they are."""
TEXTS = "text_domain_full"
NUMBERS = ("ratio", "difference", "disagreement", "flips", "within_a_point")
"""Metrics that can be derived."""


def derived(cell: Cell) -> Derived | None:
    """How a cell follows from others; None where it does not."""
    if (cell.table, cell.column) == (TEXTS, "Best"):
        return BestOf("Stage-2")
    if cell.metric not in NUMBERS:
        return None
    if (cell.table, cell.column) == (TEXTS, "Delta"):
        return InTable(lambda means: means(cell.row, "Stage-2") - _cited(cell.row))
    if cell.table in RANGES and cell.row.startswith("Range"):
        return InTable(lambda means: _range(cell, means))
    if cell.table in ABLATIONS and cell.column.startswith("Delta"):
        first = cells_of(cell.table)[0].row
        return None if cell.row == first else InTable(lambda means: _minus(means, (cell.row, S2), (first, S2)))
    if (cell.table, cell.column) == ("accuracy_degradation", "Delta (pp)"):
        return InTable(lambda means: _minus(means, (cell.row, "L8 Acc (%)"), (cell.row, "L4 Acc (%)")))
    if (cell.table, cell.column) == ("depth_comparison", "Change"):
        return InTable(lambda means: _over(means(cell.row, "L8: L7/L0"), means(cell.row, "L4: L3/L0")))
    if cell.metric == "within_a_point":
        return InTable(lambda means: _is_within_a_point(cell, means))
    if cell.table in PAIRS:
        return _pair(cell)
    return None


S2 = "S2 (TTA)"


def _range(cell: Cell, means: Means) -> float:
    """The largest of a column over the smallest, or minus it."""
    rows = dict.fromkeys(one.row for one in cells_of(cell.table) if not one.row.startswith("Range"))
    values = [means(row, cell.column) for row in rows]
    return _over(max(values), min(values)) if cell.metric == "ratio" else max(values) - min(values)


def _minus(means: Means, a: tuple[str, str], b: tuple[str, str]) -> float:
    return means(*a) - means(*b)


def _is_within_a_point(cell: Cell, means: Means) -> float:
    """1 for yes, 0 for no, by the ends of the interval in the same row."""
    low, high = (
        next(one.column for one in cells_of(cell.table) if one.row == cell.row and one.column.endswith(end))
        for end in ("low", "high")
    )
    return float(means(cell.row, low) > -POINT and means(cell.row, high) < POINT)


def _cited(row: str) -> float:
    """The accuracy of somebody else's that the paper holds its texts against."""
    (value,) = (one.value for one in cells_of(TEXTS) if (one.row, one.column) == (row, "Target"))
    assert value is not None
    return value


def _over(a: float, b: float) -> float:
    if b <= 0:
        raise Unreadable("not above zero")
    return a / b


def _pair(cell: Cell) -> OfPair:
    a, b = (REGIMES[name.strip()] for name in cell.row.split("vs."))
    if cell.metric == "ratio":
        return OfPair((a, b), lambda left, right: _over(_deepest(left), _deepest(right)))
    is_count, name = _statistic(cell.column)
    return OfPair((a, b), lambda left, right: (1 if is_count else 100) * float(_paired(left, right)[name]))


def _statistic(column: str) -> tuple[bool, str]:
    """Whether a column counts images, and what `_compared` calls it."""
    shares = {"Mean": "mean", "low": "low", "high": "high", "Disagreement": "predictions_differ"}
    for word, name in shares.items():
        if word in column:
            return False, name
    return True, "a_only" if "a right" in column else "b_only"


def _deepest(runs: Sequence[Run]) -> float:
    """The mean of what the deepest block separates by itself."""
    found = [value for run in runs if (value := of.deepest_separation(run)) is not None]
    if len(found) < len(runs):
        raise Unreadable(NO_BLOCKS)
    return sum(found) / len(found)


def _paired(left: Sequence[Run], right: Sequence[Run]) -> dict[str, float]:
    """Stage 2 with TTA, or in one view of images that are not mirrored, on the test images that both share; the
    bootstrap pools the seeds."""
    known = [one for run in (*left, *right) if (one := run.readout) is not None]
    mirrored = {"accuracy_tta" in one.result["reported"] for one in known}
    if len(known) < len(left) + len(right) or len(mirrored) > 1:
        raise Unreadable(NO_TTA)
    view = "test_tta" if mirrored == {True} else "test"
    key = tuple(f"{one.path} {one.result['weights_sha256']}" for one in known)
    if key not in _seen:
        _seen.clear()  # the cells of a row ask one after the other
        _seen[key] = _compared(known[: len(left)], known[len(left) :], view)
    return _seen[key]


_seen: dict[tuple[str, ...], dict[str, float]] = {}


def _compared(left: Sequence[Run], right: Sequence[Run], view: str) -> dict[str, float]:
    """Two lists of runs with the same seeds, image by image."""
    try:
        sides = [[read_predicted(run, view) for run in sorted(runs, key=_seed)] for runs in (left, right)]
        found = of.image_by_image(*sides).as_dict()
    except (UserError, RunError) as trouble:
        raise Unreadable(str(trouble)) from None
    classes_a, classes_b = (np.concatenate([one.classes for one in side]) for side in sides)
    return {**found, "predictions_differ": float((classes_a != classes_b).mean())}


def _seed(run: Run) -> int:
    return run.config.seed
