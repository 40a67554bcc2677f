"""One of the paper's tables with our numbers beside it: every cell filled from the pool, or with the reason why not.

Nothing of the paper's enters ours. A mean is over the seeds that the paper's is over, and over more where every row has
them; it says how many there are. Runs that do not belong together (another version, other data, other test images) give
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from goodness.errors import DAMAGE, RunError, UserError
from goodness.health.stats import MeanAndStd, mean_and_std
from goodness.paper import measured as of
from goodness.paper import readers
from goodness.paper.derived import BestOf, InTable, OfPair, derived
from goodness.paper.numbers import Cell
from goodness.paper.pool import Need, Pool
from goodness.paper.readers import Unreadable
from goodness.paper.reduced import without_place
from goodness.paper.same_data import SameData
from goodness.paper.suites import PaperTable, all_seeds, is_left_out, runs_of, seeds_of
from goodness.runs.run import Run, environment_of, health_versions, software_of, unlike

State = Literal["no runs", "not run", "running", "partial", "complete"]
POINTS = 1.0
"""Per cent: how far a mean may lie from the paper's, unless twice the paper's deviation is more."""
SHARE = 0.2
"""The same of a number that is no percentage, as a share of the paper's."""
OF_THE_MACHINE = ("seconds", "hours")
"""Metrics that are no match or miss: they depend on the hardware."""
RATES = ("sep_rate",)
"""Shares of images, whose point is a hundredth."""


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Our number for a cell, or why there is none."""

    values: Mapping[int, float] = field(default_factory=dict)
    """By seed; a number that is derived from several runs stands under `DERIVED`."""
    wanted: tuple[int, ...] = ()
    """Seeds; none for what follows from other cells."""
    why: str = ""

    @property
    def score(self) -> MeanAndStd | None:
        return mean_and_std(list(self.values.values())) if self.values else None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing that was wanted."""
        return bool(self.values) and (DERIVED in self.values or set(self.wanted) <= set(self.values))


DERIVED = -1
NO_MEASURE = "the last epoch in its metrics.jsonl lacks a measure of blocks"
REFUSED, UNREADABLE = "refused", "unreadable"
OF_NO_USE = (REFUSED, UNREADABLE, readers.NO_BLOCKS)
"""Why a cell is empty though its runs are finished: a table with such a cell is not complete."""
CITED = readers.NOT_OURS["cited_accuracy"]
NO_SINGLE_RUN = "of several runs"


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A table, ours and the paper's."""

    table: PaperTable
    pool: Pool
    needs: Mapping[Need, bool]
    missing: Mapping[Need, bool]
    ours: Mapping[tuple[str, str], Ours]
    """By row and column."""
    state: State
    trouble: Sequence[str] = ()
    """Runs that are there and cannot be used."""
    notes: Sequence[str] = ()
    """What a reader must know of runs that are used: that other versions made some of them."""
    made_by: Sequence[str] = ()
    """Data, versions and devices of the runs, and where the data came from."""
    unlike: Mapping[str, str] = field(default_factory=dict)
    """Versions and precisions that differ between the runs."""
    margins: of.ByBlock = of.mined_anew
    """How the margins of Theorem 1 were read, of all runs in the same way."""

    @property
    def is_refused(self) -> bool:
        """Whether runs that are there are missing in it."""
        return bool(self.trouble) and self.state != "complete"

    @property
    def verdict(self) -> tuple[int, int]:
        """How many of our numbers lie near the paper's, of how many that can be held against it."""
        if not self.pool.scale.is_papers:
            return 0, 0
        judged = [is_near(cell, self.ours[cell.row, cell.column]) for cell in self.table.cells]
        return sum(one is True for one in judged), sum(one is not None for one in judged)


def tolerance(cell: Cell) -> float:
    """How far from the paper's number still counts as near: twice its deviation, at least a point or a fifth."""
    assert cell.value is not None
    least = POINTS if cell.unit == "%" else POINTS / 100 if cell.metric in RATES else SHARE * abs(cell.value)
    return max(2 * (cell.spread or 0.0), least)


def is_near(cell: Cell, ours: Ours) -> bool | None:
    """Whether our mean lies near the paper's; None where there is no number to hold against another, and where none
    was learned. Nor is a difference of accuracies held against another: most of the paper's are smaller than what a
    seed brings, so that near would say nothing of them."""
    if cell.value is None or ours.score is None or not ours.is_complete or cell.metric in OF_THE_MACHINE:
        return None
    if cell.unit == "points" or readers.is_given(cell):
        return None
    return abs(ours.score.mean - cell.value) <= tolerance(cell) + 1e-9


def fill(one: PaperTable, pool: Pool, seeds: Iterable[int] | None = None) -> Filled:
    """A table from the runs that lie in the pool: of these seeds, or the paper's and all more that every row has."""
    found, refused = all_seeds(one, pool) if seeds is None else (tuple(seeds), [])
    filler = _Filler(one, pool, found)
    filler.trouble += refused
    needs = one.needs(pool.scale, filler.seeds)
    missing = pool.missing(needs)
    ours = {(cell.row, cell.column): filler.ours(cell) for cell in one.cells}
    state = state_of(one, pool, needs, missing)
    if state == "complete" and any(cell.why in OF_NO_USE for cell in ours.values()):
        state = "partial"
    return Filled(
        table=one,
        pool=pool,
        needs=needs,
        missing=missing,
        ours=ours,
        state=state,
        trouble=tuple(dict.fromkeys(filler.trouble)),
        notes=tuple(dict.fromkeys(filler.notes)),
        made_by=tuple(dict.fromkeys(filler.made_by)),
        unlike=unlike(filler.software),
        margins=filler.margins,
    )


def state_of(one: PaperTable, pool: Pool, needs: Mapping[Need, bool], missing: Mapping[Need, bool]) -> State:
    """Where a table stands."""
    if one.without:
        return "no runs"
    if not missing:
        return "complete"
    if any(pool.standing(*need, readout).state == "running" for need, readout in missing.items()):
        return "running"
    is_begun = len(missing) < len(needs) or any(pool.run(*need) is not None for need in missing)
    return "partial" if is_begun else "not run"


class _Filler:
    def __init__(self, one: PaperTable, pool: Pool, seeds: tuple[int, ...] | None) -> None:
        self.one, self.pool, self.seeds = one, pool, seeds
        self.trouble: list[str] = []
        self.notes: list[str] = []
        self.made_by: list[str] = []
        self.software: list[dict[str, str]] = []
        self.noted: set[Path] = set()
        self.known: dict[tuple[str, str], Ours] = {}
        self.same = SameData(pool)
        presets = {cell.preset for cell in one.cells if cell.metric in readers.MARGINS}
        runs = [(need[0], run) for need in one.needs(pool.scale, seeds) if (run := pool.run(*need)) is not None]
        self.margins = of.margins(run for preset, run in runs if preset in presets)
        self.health = " and ".join(health_versions(run for _, run in runs))  # empty where it is one

    def ours(self, cell: Cell) -> Ours:
        key = cell.row, cell.column
        if key not in self.known:
            self.known[key] = self._ours(cell)
        return self.known[key]

    def _ours(self, cell: Cell) -> Ours:
        if self.one.without or cell.metric in readers.NOT_OURS:
            return Ours(why=self.one.without or readers.NOT_OURS[cell.metric])
        wanted = seeds_of(cell, self.pool.scale, self.seeds)
        rule = derived(cell)
        if not wanted:  # of a seed that was not asked for
            return Ours(why="not run")
        if self.health and cell.metric in readers.HEALTH:
            self.trouble.append(f"Block health is of different versions ({self.health})")
            return Ours(wanted=wanted, why=REFUSED)
        try:
            if isinstance(rule, InTable):
                return Ours(values={DERIVED: rule.value(self._mean)})
            if isinstance(rule, BestOf):
                return Ours(values={DERIVED: max(self._whole(cell.row, rule.column).values.values())})
            if isinstance(rule, OfPair):
                return self._of_pair(rule, wanted)
        except Unreadable as why:
            if str(why) == readers.NO_BLOCKS and isinstance(rule, OfPair):
                self.trouble.append(f"{' or '.join(rule.presets)}: {NO_MEASURE}")
            return Ours(wanted=wanted, why=str(why))
        if is_left_out(cell) or not readers.is_readable(cell):
            return Ours(why=CITED if self._is_cited(cell.row) else NO_SINGLE_RUN)
        return self._of_runs(cell, wanted)

    def _is_cited(self, row: str) -> bool:
        return any(one.row == row and one.metric.startswith("cited") for one in self.one.cells)

    def _mean(self, row: str, column: str) -> float:
        """Of another cell of the table."""
        score = self._whole(row, column).score
        assert score is not None
        return score.mean

    def _whole(self, row: str, column: str) -> Ours:
        """Ours in another cell of the table; one that lacks seeds gives none."""
        cell = next(one for one in self.one.cells if (one.row, one.column) == (row, column))
        ours = self.ours(cell)
        if not ours.is_complete:
            raise Unreadable(ours.why or "incomplete")
        return ours

    def _of_pair(self, rule: OfPair, wanted: tuple[int, ...]) -> Ours:
        sides = [self.runs(preset, wanted, readout=True) for preset in rule.presets]
        for runs, why in sides:
            if why or not runs:
                return Ours(wanted=wanted, why=why or "not run")
        left, right = ([runs[seed] for seed in wanted] for runs, _ in sides)
        return Ours(values={DERIVED: rule.value(left, right)}, wanted=wanted)

    def _of_runs(self, cell: Cell, wanted: tuple[int, ...]) -> Ours:
        (preset,), readout = runs_of(cell)
        runs, why = self.runs(preset, wanted, readout)
        values: dict[int, float] = {}
        for seed, run in runs.items():
            try:
                values[seed] = readers.read(run, cell, self.margins)
            except Unreadable as reason:
                why = str(reason)
                if why == readers.NO_BLOCKS:
                    self.trouble.append(f"{run.path}: {NO_MEASURE}")
            except (UserError, RunError, OSError, *DAMAGE) as reason:
                why = UNREADABLE
                self.trouble.append(f"{run.path}: {reason}")
        return Ours(values=values, wanted=wanted, why=why)

    def runs(self, preset: str, wanted: tuple[int, ...], readout: bool) -> tuple[dict[int, Run], str]:
        """The runs of these seeds, and why some or all are not there."""
        trouble = self.pool.trouble(preset, wanted, readout)
        if trouble:
            self.trouble.append(f"{preset}: not averaged, its runs are not of one kind ({trouble})")
            return {}, REFUSED
        notes = self.pool.notes(preset, wanted, readout)
        self.notes += [f"{preset}: its runs are not of one version ({note})" for note in notes]
        found: dict[int, Run] = {}
        why = ""
        for seed in wanted:
            here = self.pool.look(preset, seed, readout)
            if here.run is None:
                why = here.why if len(here.why) <= 24 else REFUSED
                if why == REFUSED:
                    self.trouble.append(f"{preset}, seed {seed}: {here.why}")
            elif other := self.same.difference(preset, seed):
                self.trouble.append(f"{preset}, seed {seed}: {other}")
                return {}, REFUSED
            else:
                found[seed] = here.run
                self._note_maker(here.run, self.pool.cell(preset, seed).config.data)
        return found, why

    def _note_maker(self, run: Run, data: str) -> None:
        if run.path in self.noted:
            return
        self.noted.add(run.path)
        facts = environment_of(run)
        origin = facts.get("data")
        where = without_place(str(origin.get("provenance", ""))) if isinstance(origin, Mapping) else ""
        read = f"; data: {where}" if where else ""
        software = f"goodness {facts.get('goodness')}, torch {facts.get('torch')}, {facts.get('dtype')}"
        self.made_by.append(f"{data} were made by {software}, on {facts.get('device_name')}{read}")
        self.software.append(software_of(run))
