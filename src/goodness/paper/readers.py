"""How our number is read from a run: one reader for each metric of numbers.csv, for whichever table asks.

A reader takes the run (its Stage 2 lies in it) and the paper's cell, whose row and column say which block, depth or
class is meant. It gives the number in the cell's own unit, or raises `Unreadable` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from goodness.durable import read_json
from goodness.errors import RunError
from goodness.health.measures import attenuation_ratio
from goodness.methods.cumulative.collaboration import Constant
from goodness.paper import measured as of
from goodness.paper.numbers import Cell
from goodness.presets import preset
from goodness.runs.predictions import read_predicted
from goodness.runs.run import Run, environment_of
from goodness.runs.run_folder import RunFolder
from goodness.sweep.cell import CellFolder


class Unreadable(Exception):
    """The run is there and does not have this number; the message is short enough for a table's cell."""


@dataclass(frozen=True)
class Reader:
    """Which stage a metric needs, and how it is read."""

    read: Callable[[Run, Cell], float]
    needs_readout: Callable[[Cell], bool] = lambda cell: False


NO_TTA = "no TTA"
NO_BLOCKS = "no blocks"
NOT_OURS: Mapping[str, str] = {
    "cited_accuracy": "cited",
    "cited_top5": "cited",
    "setting": "a setting",
    "verdict": "the paper's word",
    "description": "in words",
    "seeds": "how many",
    "memory": "theory, in words",
    "correlation": "over many runs, no cell of one",
}
"""Metrics that no run of ours can have, and why."""


def read(run: Run, cell: Cell, margins: of.ByBlock = of.mined_anew) -> float:
    """Our number for a cell of the paper that names a run; `margins` is how those of Theorem 1 are read."""
    if cell.metric in MARGINS:
        return MARGINS[cell.metric](run, cell, _found(margins(run)))
    return READERS[cell.metric].read(run, cell)


def is_readable(cell: Cell) -> bool:
    """Whether a run alone can give this number."""
    return bool(cell.preset) and (cell.metric in READERS or cell.metric in MARGINS)


def measured_where(cells: Iterable[Cell], margins: of.ByBlock) -> list[str]:
    """Where a table's numbers of blocks were measured, for its reader."""
    metrics = {cell.metric for cell in cells}
    told = []
    if metrics & OF_BLOCKS:
        told.append("Separation and goodness of blocks: over the last epoch's training, as the paper's most likely")
    if metrics & MARGINS.keys():
        anew = "on test images, each block against a wrong label that it mines itself"
        where = anew if margins is of.mined_anew else "over the last epoch's training, as some of these runs are older"
        told.append(f"Margins: ours {where}; the paper's on 1,024 test images")
    return told


def needs_readout(cell: Cell) -> bool:
    """Whether that run must have a Stage 2."""
    return cell.metric in READERS and READERS[cell.metric].needs_readout(cell)


def is_given(cell: Cell) -> bool:
    """Whether a number is the same however a network is trained: its parameters, and what comes of a history that there
    is none of (block 0) or that counts nothing (gamma = 0)."""
    if cell.metric not in ("margin_sum", "attenuation"):
        return cell.metric == "parameters"
    rule = preset(cell.preset).rule
    counts_nothing = cell.column != "P" and isinstance(rule, Constant) and rule.gamma == 0
    return counts_nothing or int(_part(BLOCK, cell)) == 0


# Accuracies.


def _reported(name: str, stage: str = "s1") -> Callable[[Run, Cell], float]:
    def from_result(run: Run, cell: Cell) -> float:
        found = (_readout(run) if stage == "s2" else run).result["reported"]
        if name not in found:
            raise Unreadable(NO_TTA if name.endswith("_tta") else f"no {name}")
        if (value := of.number(found[name])) is None:
            raise Unreadable("not a number")
        return 100 * value

    return from_result


def _readout(run: Run) -> Run:
    if run.readout is None or not run.readout.is_finished:
        raise Unreadable("no Stage 2")
    return run.readout


def _rows(run: Run, *, split: str, blocks: int | None = None, tta: bool = False) -> list[dict[str, Any]]:
    result = run.result
    kept = {"split": split, "tta": tta, "weights": result["reported"]["weights"]}
    rows = [row for row in result["accuracy"] if all(row.get(name) == value for name, value in kept.items())]
    deepest = max((row["blocks"] for row in rows), default=0)
    return [row for row in rows if row["blocks"] == (deepest if blocks is None else blocks)]


def _validation(run: Run, cell: Cell) -> float:
    """Of the reported weights: those that were best on validation."""
    rows = _rows(run, split="val")
    if not rows:
        raise Unreadable("no validation images")
    return 100 * float(rows[0]["top1"])


def _truncated(run: Run, cell: Cell) -> float:
    depth = int(_part(r"d\s*=\s*(\d+)", cell))
    rows = _rows(run, split="test", blocks=depth)
    if not rows:
        raise Unreadable(f"no {depth} blocks")
    return 100 * float(rows[0]["top1"])


def _of_a_class(run: Run, cell: Cell) -> float:
    classes = _health(run)["classes"]
    if cell.row not in classes:
        raise Unreadable(f"no class {cell.row}")
    if "accuracy_tta" not in run.result["reported"]:
        raise Unreadable(NO_TTA)
    seen = read_predicted(run, "test_tta")
    return 100 * float(seen.correct[seen.labels == classes.index(cell.row)].mean())


def _gain(run: Run, cell: Cell) -> float:
    """Stage 2 over Stage 1, with TTA."""
    return _reported("accuracy_tta", "s2")(run, cell) - _reported("accuracy_tta")(run, cell)


# Blocks: over the last epoch's training, where the paper's tables have them from, most likely.


def _health(run: Run) -> dict[str, Any]:
    try:
        return read_json(RunFolder(run.path, None).health_path)
    except RunError:
        raise Unreadable("no health.json") from None


def _trained(run: Run, name: str) -> list[float]:
    return _found(of.in_training(run, name))


def _found(by_block: list[float]) -> list[float]:
    if not by_block:
        raise Unreadable(NO_BLOCKS)
    return by_block


BLOCK = r"\bL(\d+)\b|\bblock (\d+)\b"


def depth_of(cell: Cell, blocks: int) -> int:
    """The block that a cell is of: `L3`, `block 2`, `(deep)` for the last."""
    if "(deep)" in cell.column:
        return blocks - 1
    return int(_part(BLOCK, cell))


def _at(values: Sequence[float], cell: Cell) -> float:
    depth = depth_of(cell, len(values))
    if depth >= len(values):
        raise Unreadable(f"no block {depth}")
    return values[depth]


def _of_a_block(name: str) -> Callable[[Run, Cell], float]:
    return lambda run, cell: _at(_trained(run, name), cell)


def _rate(run: Run, cell: Cell) -> float:
    """A share, or in per cent where the cell has it so."""
    return _of_a_block("sep_rate")(run, cell) * (100 if cell.unit == "%" else 1)


def _last_over_first(name: str) -> Callable[[Run, Cell], float]:
    def ratio(run: Run, cell: Cell) -> float:
        values = _trained(run, name)
        if values[0] <= 0:
            raise Unreadable("block 0: not above zero")
        return values[-1] / values[0]

    return ratio


def _gamma(run: Run) -> float:
    rule = run.config.rule
    if not isinstance(rule, Constant):
        raise Unreadable("no constant gamma")
    return rule.gamma


def _earlier(values: Sequence[float], cell: Cell) -> float:
    return sum(values[: depth_of(cell, len(values))])


def _margin_sum(run: Run, cell: Cell, margins: list[float]) -> float:
    """P, the earlier blocks' mean margins added up; under `gamma P` times the rule's gamma."""
    weight = _gamma(run) if "gamma" in cell.column else 1.0
    return weight * _earlier(margins, cell)


def _attenuation(run: Run, cell: Cell, margins: list[float]) -> float:
    """R at the mean margins, as the paper has it (the mean of R over the images is another number)."""
    return float(attenuation_ratio(_at(margins, cell), _earlier(margins, cell), _gamma(run), run.config.beta))


def _goodness_sum(run: Run, cell: Cell) -> float:
    """A block's own positive goodness and what it inherits, under a constant gamma."""
    return _of_a_block("g_pos")(run, cell) + _gamma(run) * _earlier(_trained(run, "g_pos"), cell)


def _own_share(run: Run, cell: Cell) -> float:
    whole = _goodness_sum(run, cell)
    if whole <= 0:
        raise Unreadable("not above zero")
    return 100 * _of_a_block("g_pos")(run, cell) / whole


# What it took.


def _parameters(run: Run, cell: Cell) -> float:
    """In millions; of one backward pass those of a block, on average, where no gradient crosses blocks."""
    if "S2" in cell.row:
        return _readout(run).result["parameters"] / 1e6
    local = "backward" in cell.column and run.config.trainer == "ff"
    return run.result["parameters"] / 1e6 / (run.config.model.blocks if local else 1)


def _seconds(run: Run, cell: Cell) -> float:
    """The median epoch's, evaluation included where it was evaluated; compilation falls into the first."""
    _require_alone(run)
    times = [float(line["seconds"]) for line in run.metrics]
    if len(times) < 2:
        raise Unreadable("one epoch")
    return median(after - before for before, after in pairwise(times))


def _hours(run: Run, cell: Cell) -> float:
    _require_alone(run)
    return (float(run.result["seconds"]) + float(_readout(run).result["seconds"])) / 3600


def _require_alone(run: Run) -> None:
    """A GPU that several runs share gives each a part of its time."""
    if CellFolder(run.path.parent).shared_path.exists() and environment_of(run).get("device") != "cpu":
        raise Unreadable("shared a GPU")


def _epochs_to_the_end(run: Run, cell: Cell) -> float:
    """Epochs until validation first reached the share of its best that the column names; only as fine as it was
    evaluated."""
    share = int(_part(r"(\d+)\s*%", cell)) / 100
    judged = [(line["epoch"] + 1, line["val"]["accuracy"]) for line in run.metrics if "val" in line]
    if not judged:
        raise Unreadable("no validation images")
    best = max(accuracy for _, accuracy in judged)
    return float(next(epoch for epoch, accuracy in judged if accuracy >= share * best))


def _experts(run: Run, cell: Cell) -> float:
    """In use over the last epoch's training, the mean of the blocks."""
    found = of.in_training(run, "experts_effective")
    if not found:
        raise Unreadable("no experts")
    return sum(found) / len(found)


def _part(pattern: str, cell: Cell) -> str:
    """What a pattern finds in the cell's column, else in its row."""
    for text in (cell.column, cell.row):
        found = re.search(pattern, text)
        if found:
            return next(one for one in found.groups() if one)
    raise Unreadable(f"which one '{cell.column}' means")


def _always(cell: Cell) -> bool:
    return True


READERS: Mapping[str, Reader] = {
    "accuracy": Reader(_reported("accuracy")),
    "accuracy_tta": Reader(_reported("accuracy_tta")),
    "top5_tta": Reader(_reported("top5_tta")),
    "s2_accuracy": Reader(_reported("accuracy", "s2"), _always),
    "s2_accuracy_tta": Reader(_reported("accuracy_tta", "s2"), _always),
    "s2_top5_tta": Reader(_reported("top5_tta", "s2"), _always),
    "val_accuracy": Reader(_validation),
    "class_accuracy_tta": Reader(_of_a_class),
    "truncated_accuracy": Reader(_truncated),
    "sep_cur_mined": Reader(_of_a_block("sep_cur_mined")),
    "sep_rate": Reader(_rate),
    "goodness_pos": Reader(_of_a_block("g_pos")),
    "goodness_neg": Reader(_of_a_block("g_neg")),
    "goodness_sum": Reader(_goodness_sum),
    "goodness_ratio": Reader(_last_over_first("g_pos")),
    "ratio": Reader(_last_over_first("sep_cur_mined")),
    "share": Reader(_own_share),
    "difference": Reader(_gain, _always),
    "parameters": Reader(_parameters, lambda cell: "S2" in cell.row),
    "seconds": Reader(_seconds),
    "hours": Reader(_hours, _always),
    "epochs": Reader(_epochs_to_the_end),
    "experts": Reader(_experts),
}
OF_BLOCKS = {
    "sep_cur_mined",
    "sep_rate",
    "ratio",
    *(name for name in READERS if name.startswith("goodness")),
    "share",
}
MARGINS: Mapping[str, Callable[[Run, Cell, list[float]], float]] = {
    "margin": lambda run, cell, margins: _at(margins, cell),
    "margin_sum": _margin_sum,
    "attenuation": _attenuation,
}
"""What is read from the margins of Theorem 1, which a table has of all its runs in one way."""
HEALTH = OF_BLOCKS | MARGINS.keys() | {"experts"}
"""Metrics of block health, which a table has of one version alone."""
