"""Every number that the paper's tables print, as data: one cell of a table is one row of numbers.csv.

Names of rows and columns are the paper's, in plain letters (gamma=0, sep_cur_nl). A cell that prints more or other than
a number keeps it in `text`; one that prints several is split into columns. Where a row is a run that has a preset, the
cell names it, and the seed if it is of one seed, so that our number can stand beside it.
"""

from __future__ import annotations

import csv
import functools
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from goodness.errors import UserError, nearest
from goodness.paper.tables import TABLES, Table

METRICS: Mapping[str, str] = {
    "accuracy": "test, Stage 1 (under backpropagation the classifier), one view; Tiny ImageNet: its validation set",
    "accuracy_tta": "the same with flip TTA",
    "val_accuracy": "best on the validation images, Stage 1",
    "s2_accuracy": "test, Stage 2, one view",
    "s2_accuracy_tta": "the same with flip TTA",
    "top5_tta": "right label among the first five, Stage 1, flip TTA",
    "s2_top5_tta": "the same for Stage 2",
    "class_accuracy_tta": "of one class, Stage 1, flip TTA",
    "truncated_accuracy": "Stage 1 from the first blocks alone",
    "cited_accuracy": "somebody else's, as the paper quotes it",
    "cited_top5": "the same for the first five",
    "difference": "of two accuracies",
    "ratio": "of two numbers of the same kind",
    "sep_cur_mined": "sep_cur_nl: this block's positive goodness minus that of the mined wrong label",
    "sep_rate": "sep_nl: share of examples whose summed goodness is above the negative's",
    "goodness_pos": "g+_cur: this block's goodness under the right label",
    "goodness_neg": "g-_cur: this block's goodness under the mined wrong label",
    "goodness_sum": "goodness under the right label with what is inherited from earlier blocks",
    "goodness_ratio": "g+_cur of the deepest block over that of the first",
    "margin": "m: mean margin of this block",
    "margin_sum": "P: mean margins of the earlier blocks added up, or gamma times that",
    "attenuation": "R at the mean margins",
    "share": "part of a whole",
    "disagreement": "share of test images on which two runs predict different labels",
    "flips": "test images that one run has right and the other wrong",
    "within_a_point": "whether the interval of a difference, over images, lies within one point on either side",
    "correlation": "Pearson's r",
    "seconds": "per epoch",
    "hours": "of a whole run",
    "epochs": "of training",
    "experts": "in use, on average over the blocks: exp of the entropy of their load",
    "parameters": "of a network, or of what one backward pass reaches",
    "memory": "of activations, in words",
    "seeds": "how many, and which",
    "setting": "of a run",
    "verdict": "what the paper calls the row",
    "description": "of a run or a method, in words",
}
"""What a cell measures, and what we take it to mean."""

UNITS: Mapping[str, str] = {
    "": "none",
    "%": "per cent",
    "points": "percentage points",
    "×": "times",
    "M": "millions",
    "s/epoch": "seconds per epoch",
    "h": "hours",
}

COLUMNS: tuple[str, ...] = (
    "table",
    "row",
    "column",
    "value",
    "spread",
    "n",
    "metric",
    "unit",
    "text",
    "note",
    "preset",
    "seed",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One printed number, or what is printed in its place."""

    table: str
    row: str
    column: str
    metric: str
    printed: str
    """As in the paper, without its unit: '90.50 ± 0.05', '~70%', '—'."""
    value: float | None = None
    spread: float | None = None
    """Standard deviation over seeds, where printed."""
    n: int | None = None
    """Over how many seeds; None where it is not said."""
    unit: str = ""
    text: str = ""
    note: str = ""
    preset: str = ""
    seed: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.table, self.row, self.column


@functools.cache
def cells() -> tuple[Cell, ...]:
    """All of them, in the paper's order."""
    return parse(resources.files("goodness.paper").joinpath("numbers.csv").read_text("utf-8"))


def tables() -> tuple[Table, ...]:
    """What there is, in the paper's order: label, number, section and a caption of ours."""
    return TABLES


def table(label: str) -> tuple[Cell, ...]:
    """The cells of one table, row by row; the label with or without its `tab:`."""
    return _by_table()[_known(label)]


def about(label: str) -> Table:
    """Number, section and caption of one table."""
    known = _known(label)
    return next(one for one in TABLES if one.label == known)


def cell(label: str, row: str, column: str) -> Cell:
    """One cell.

    >>> cell("gamma0_multiseed", "42", "S1 (TTA)").value
    91.45
    """
    there = table(label)
    for one in there:
        if (one.row, one.column) == (row, column):
            return one
    rows = dict.fromkeys(one.row for one in there)
    if row not in rows:
        raise UserError(f"table '{label}' has no row '{row}': {nearest(row, rows)}")
    columns = [one.column for one in there if one.row == row]
    raise UserError(f"row '{row}' of table '{label}' has no column '{column}': {nearest(column, columns)}")


def of_preset(preset: str, metric: str | None = None) -> tuple[Cell, ...]:
    """All that the paper prints of the run that a preset rebuilds; of one metric, if it is named."""
    if metric is not None and metric not in METRICS:
        raise UserError(f"unknown metric '{metric}': {nearest(metric, METRICS)}")
    return tuple(one for one in cells() if one.preset == preset and metric in (None, one.metric))


@functools.cache
def _by_table() -> dict[str, tuple[Cell, ...]]:
    return {one.label: tuple(each for each in cells() if each.table == one.label) for one in TABLES}


def _known(label: str) -> str:
    name = label.removeprefix("tab:")
    if name not in _by_table():
        raise UserError(f"the paper has no table '{label}': {nearest(name, _by_table())}")
    return name


def parse(text: str) -> tuple[Cell, ...]:
    """The cells of a file like numbers.csv; ValueError, with the line, for what cannot be right."""
    rows = csv.reader(io.StringIO(text, newline=""))
    head = next(rows, [])
    if tuple(head) != COLUMNS:
        raise ValueError(f"numbers.csv must begin with the columns {','.join(COLUMNS)}, not {','.join(head)}")
    found: dict[tuple[str, str, str], Cell] = {}
    for row in rows:
        try:
            one = _cell(row)
            if one.key in found:
                raise ValueError(f"{' / '.join(one.key)} stands there twice")
        except ValueError as error:
            raise ValueError(f"numbers.csv, line {rows.line_num}: {error}") from None
        found[one.key] = one
    return tuple(found.values())


def _cell(row: list[str]) -> Cell:
    if len(row) != len(COLUMNS):
        raise ValueError(f"{len(row)} fields where there should be {len(COLUMNS)}")
    given = dict(zip(COLUMNS, row))
    for name, known in (("table", [one.label for one in TABLES]), ("metric", METRICS), ("unit", UNITS)):
        if given[name] not in known:
            raise ValueError(f"unknown {name} '{given[name]}': {nearest(given[name], known)}")
    if not (given["row"] and given["column"]):
        raise ValueError("a cell needs a row and a column")
    value, spread = _number(given, "value"), _number(given, "spread")
    if value is None and not given["text"]:
        raise ValueError("neither a value nor a text")
    if value is None and (spread is not None or given["unit"]):
        raise ValueError("a spread or a unit without a value")
    if spread is not None and spread < 0:
        raise ValueError(f"spread {spread} is negative")
    if given["unit"] == "%" and value is not None and not 0 <= value <= 100:
        raise ValueError(f"{value} is no percentage")
    n, seed = _whole(given, "n"), _whole(given, "seed")
    if n == 0 or (seed is not None and n not in (None, 1)):
        raise ValueError(f"n is {n}" + (f", yet the cell is of seed {seed}" if seed is not None else ""))
    if spread is not None and n is None and given["preset"]:
        raise ValueError("a spread over seeds, and not over how many")
    return Cell(
        table=given["table"],
        row=given["row"],
        column=given["column"],
        metric=given["metric"],
        printed=given["text"] or " ± ".join(filter(None, (given["value"], given["spread"]))),
        value=value,
        spread=spread,
        n=n,
        unit=given["unit"],
        text=given["text"],
        note=given["note"],
        preset=given["preset"],
        seed=seed,
    )


def _number(given: Mapping[str, str], name: str) -> float | None:
    if not given[name]:
        return None
    try:
        number = float(given[name])
    except ValueError:
        raise ValueError(f"{name} '{given[name]}' is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} '{given[name]}' is not finite")
    return number


def _whole(given: Mapping[str, str], name: str) -> int | None:
    if given[name] and not re.fullmatch(r"\d+", given[name]):
        raise ValueError(f"{name} '{given[name]}' is not a whole number")
    return int(given[name]) if given[name] else None
