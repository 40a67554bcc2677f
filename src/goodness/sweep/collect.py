"""Results of a sweep: a row a group, mean and spread over its seeds.

Only what belongs together is averaged. A group that lacks seeds is shown as incomplete; one whose runs were made by
different versions, on different data or test order, or over different numbers of epochs has no mean at all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goodness.errors import RunError, UserError
from goodness.health.stats import MeanAndStd, mean_and_std
from goodness.runs.consistency import VERSIONS, refuse_mixed_files, test_order
from goodness.runs.run import Run, environment_of, software_of, unlike
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.state import difference, standing

SCORES = {
    "s1": "test accuracy",
    "s1_tta": "with flip TTA",
    "s2": "Stage 2",
    "s2_tta": "Stage 2 with TTA",
}
"""What is averaged, and how tables call it. A backpropagation control's own accuracy stands under s1."""
DATA, TEST_ORDER = "data", "test images and their order"
"""Names of two of the facts that must be the same: hashes of all data and its split, and of what was scored."""
REFUSED = "refused"
"""State of a cell that is finished and whose files cannot be used."""


def are_versions(trouble: str) -> bool:
    """Whether all of what is wrong with a row, joined by semicolons, is what --mixed-versions accepts."""
    return all(part.partition(":")[0] in VERSIONS for part in trouble.split("; "))


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell: what it found, or why that is missing."""

    folder: str
    seed: int
    state: str
    scores: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What must be the same within a group, by name."""
    device: str = ""
    weights_sha256: str = ""
    """Of its last stage."""
    trainings: tuple[str, ...] = ()
    """The same of every stage: no two runs have one in common."""
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A group of cells."""

    name: str
    preset: str
    overrides: Mapping[str, Any]
    data: str
    epochs: int
    cells: Sequence[CellResult]
    trouble: Sequence[str] = ()
    """Why its cells cannot be averaged."""
    notes: Sequence[str] = ()
    """What a reader must know of the mean."""

    @property
    def found(self) -> list[CellResult]:
        return [cell for cell in self.cells if cell.scores]

    @property
    def status(self) -> str:
        """complete; incomplete where seeds are missing; refused where the cells do not belong together."""
        if self.trouble:
            return "refused"
        return "complete" if len(self.found) == len(self.cells) else "incomplete"

    @property
    def scores(self) -> dict[str, MeanAndStd]:
        """Mean and sample deviation of what every finished cell has; empty where they do not belong together."""
        if self.trouble or not self.found:
            return {}
        shared = [name for name in SCORES if all(name in cell.scores for cell in self.found)]
        return {name: mean_and_std([cell.scores[name] for cell in self.found]) for name in shared}


@dataclass(frozen=True)
class Results:
    """All groups of a sweep."""

    rows: Sequence[Row]
    folder: Path

    @property
    def is_complete(self) -> bool:
        return all(row.status == "complete" for row in self.rows)

    @property
    def missing(self) -> list[tuple[Row, CellResult]]:
        """Every cell that is not there, with its group."""
        return [(row, cell) for row in self.rows for cell in row.cells if not cell.scores]

    def run(self, name: str, seed: int) -> Run:
        """A cell's run, by its group's name and its seed."""
        for row in self.rows:
            for cell in row.cells:
                if (row.name, cell.seed) == (name, seed):
                    return CellFolder(self.folder / cell.folder).run
        raise UserError(f"this sweep has no cell '{name}' with seed {seed}")


def collect(cells: Iterable[Cell], folder: Path, *, mixed_versions: bool = False) -> Results:
    """What the cells in a sweep's folder found. With `mixed_versions` other versions are a note, not a refusal."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        alike = {**cell.as_dict(), "seed": None, "theory": None}
        groups.setdefault(json.dumps(alike, sort_keys=True), []).append(cell)
    rows = [_row(members, folder, mixed_versions) for members in groups.values()]
    return Results(_refuse_other_test_images(rows), folder)


def _row(members: list[Cell], folder: Path, mixed_versions: bool) -> Row:
    first = members[0]
    found = [_result(cell, folder) for cell in members]
    trouble, notes = [], []
    for key, words in unlike(one.facts for one in found if one.scores).items():
        (notes if mixed_versions and key in VERSIONS else trouble).append(f"{key}: {words}")
    trained = {weights: one.seed for one in found for weights in one.trainings}
    twins = [{one.seed, trained[weights]} for one in found for weights in one.trainings if trained[weights] != one.seed]
    for pair in {tuple(sorted(pair)) for pair in twins}:
        trouble.append(f"weights: seeds {pair[0]} and {pair[1]} have the same, so they are one training")
    return Row(
        name=first.group,
        preset=first.preset,
        overrides=first.overrides,
        data=first.config.data,
        epochs=first.config.epochs,
        cells=found,
        trouble=tuple(trouble),
        notes=tuple(notes),
    )


def _result(cell: Cell, folder: Path) -> CellResult:
    where = {"folder": cell.folder_name, "seed": cell.seed}
    place = CellFolder(folder / cell.folder_name)
    now = standing(cell, place.path)
    if now.state != "done":
        return CellResult(**where, state=now.state, trouble=now.error or now.state)
    try:
        return _finished(cell, place, where)
    except (UserError, RunError) as trouble:
        return CellResult(**where, state=REFUSED, trouble=str(trouble))
    except (KeyError, TypeError, ValueError, AttributeError) as trouble:
        return CellResult(**where, state=REFUSED, trouble=f"its files are not what a run writes ({trouble!r})")


def _finished(cell: Cell, place: CellFolder, where: dict[str, Any]) -> CellResult:
    runs = {"s2": place.readout} if "s2" in cell.stages else {}
    scores: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for stage, run in {"s1": place.run, **runs}.items():
        wrong = difference(cell.config, run, None, stage, mixed_versions=True)
        if wrong:
            raise UserError(f"{run.path} holds a run with {wrong}")
        result = run.result
        for name, score in refuse_mixed_files(run, place.run if stage == "s2" else None).items():
            scores[name.replace("accuracy", stage)] = score
        for name, value in software_of(run).items():
            facts[name] = " then ".join(dict.fromkeys([*_parts(facts.get(name)), *_parts(value)]))
        facts[DATA] = environment_of(run).get("data", {}).get("sha256")
        facts[f"epochs of {stage}"] = result["epochs"]
        facts[TEST_ORDER] = test_order(run)
    run = place.readout if runs else place.run
    device = str(environment_of(run).get("device_name"))
    trainings = tuple(str(one.result["weights_sha256"]) for one in (place.run, *runs.values()))
    return CellResult(
        **where,
        state="done",
        scores=scores,
        facts=facts,
        device=device,
        weights_sha256=trainings[-1],
        trainings=trainings,
    )


def _parts(joined: str | None) -> list[str]:
    return joined.split(" then ") if joined else []


def _refuse_other_test_images(rows: list[Row]) -> list[Row]:
    """Rows of one data set stand beside each other: those with other test images than the first are refused."""
    first: dict[str, Row] = {}
    checked = []
    for row in rows:
        known = first.setdefault(row.data, row) if row.found else row
        if known is not row and any(cell.facts[TEST_ORDER] != known.found[0].facts[TEST_ORDER] for cell in row.found):
            words = f"{TEST_ORDER}: not those of {known.name}"
            row = dataclasses.replace(row, trouble=(*row.trouble, words))
        checked.append(row)
    return checked
