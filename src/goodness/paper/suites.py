"""The paper's tables as suites: which runs each needs, or why there are none.

What a table needs follows from its cells: each names the preset, the seed or how many, and the metric, and the metric
says whether Stage 2 is needed. A cell where the paper prints no number asks for no run, but is filled if there is one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goodness.paper import readers
from goodness.paper.derived import OfPair, derived
from goodness.paper.numbers import Cell, Table, about, table, tables
from goodness.paper.pool import Need, Pool
from goodness.paper.scales import SCALES, Scale
from goodness.sweep.cell import Cell as SweepCell
from goodness.sweep.suites import Suite, suites

SEEDS = (42, 123, 456, 789)
"""The paper's, in its order."""

SUITE = "paper-"
"""Before a table's label in the name of its suite: some labels are presets too."""

WITHOUT_RUNS: Mapping[str, str] = {
    "full_config": "settings of the runs, no results",
    "aug_recipes": "settings of the augmentation, no results",
    "code_paper_map": "names in code and text, no results",
    "loss_decomposition": "settings of the losses, no results",
}
"""Tables that no run of ours can fill, and why."""


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables and what fills it."""

    label: str

    @property
    def about(self) -> Table:
        return about(self.label)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return table(self.label)

    @property
    def without(self) -> str:
        """Why no run of ours can fill it; empty where one can."""
        return WITHOUT_RUNS.get(self.label, "")

    def needs(self, scale: Scale, seeds: Iterable[int] | None = None) -> dict[Need, bool]:
        """The runs behind its numbers, and of each whether Stage 2 is needed."""
        found: dict[Need, bool] = {}
        if self.without:
            return found
        for cell in self.cells:
            if cell.value is None:
                continue
            presets, readout = runs_of(cell)
            for need in ((preset, seed) for preset in presets for seed in seeds_of(cell, scale, seeds)):
                found[need] = found.get(need, False) or readout
        return found

    @property
    def presets(self) -> list[str]:
        return list(dict.fromkeys(preset for cell in self.cells for preset in runs_of(cell)[0]))


def paper_table(label: str) -> PaperTable:
    """A table by its label, with or without `tab:`."""
    return PaperTable(about(label).label)


def paper_tables() -> list[PaperTable]:
    """All of them, in the paper's order."""
    return [PaperTable(one.label) for one in tables()]


def runs_of(cell: Cell) -> tuple[tuple[str, ...], bool]:
    """The presets whose runs give a cell its number, and whether they need a Stage 2."""
    if cell.table in WITHOUT_RUNS or is_left_out(cell):
        return (), False
    rule = derived(cell)
    if isinstance(rule, OfPair):
        return rule.presets, True
    if rule is not None or not readers.is_readable(cell):
        return (), False
    return (cell.preset,), readers.needs_readout(cell)


def is_left_out(cell: Cell) -> bool:
    """A number of the text that is no measure of one run: a spread over seeds, or a Delta of the baseline to itself."""
    return "spread" in cell.column or (cell.metric == "difference" and cell.column.startswith("Delta"))


def seeds_of(cell: Cell, scale: Scale, seeds: Iterable[int] | None = None) -> tuple[int, ...]:
    """The seeds of a cell: its own, in a table that tells seeds apart; else those given; else as many of the paper's as
    it averages over (one, where it does not say). A cell of one seed that was not asked for has none."""
    asked = None if seeds is None else tuple(dict.fromkeys(seeds))
    allowed = asked or SEEDS[: scale.most_seeds]
    if cell.seed is not None and (asked is None or _tells_seeds_apart(cell.table)):
        return (cell.seed,) if cell.seed in allowed else ()
    if asked is not None:
        return asked
    named = re.search(r"^seeds (\d+(?:(?:, | and )\d+)*)", cell.note)  # where the paper averages over some alone
    wanted = tuple(map(int, re.findall(r"\d+", named[1]))) if named else SEEDS[: cell.n or 1]
    own = tuple(seed for seed in wanted if seed in allowed or seed not in SEEDS)  # the texts have seeds of their own
    return own[: scale.most_seeds] or allowed[:1]


@functools.cache
def _tells_seeds_apart(label: str) -> bool:
    """Whether a table has numbers of several single seeds. Where one seed is all that the paper ran, others may stand
    in its place."""
    return len({cell.seed for cell in table(label) if cell.seed is not None}) > 1


def all_seeds(one: PaperTable, pool: Pool) -> tuple[tuple[int, ...] | None, list[str]]:
    """The paper's seeds and all further ones that every row of the table has, so that rows stay comparable; None where
    that adds no run to the paper's. And why seeds that are there are left out: they do not go with the others."""
    needs = one.needs(pool.scale)
    presets = dict.fromkeys(preset for preset, _ in needs)
    everywhere = set[int].intersection(*(set(pool.seeds(preset)) for preset in presets)) if presets else set[int]()
    own = {seed for _, seed in needs}
    whole = [seed for seed in everywhere if not pool.missing(one.needs(pool.scale, [seed]))]
    if not own <= set(whole):
        return None, []
    kept, refused = list[int](), list[str]()
    for seed in sorted(whole, key=lambda seed: (seed not in own, SEEDS.index(seed) if seed in SEEDS else seed)):
        wanted = {preset: readout for (preset, _), readout in one.needs(pool.scale, [seed]).items()}
        trouble = [why for preset, readout in wanted.items() if (why := pool.trouble(preset, [*kept, seed], readout))]
        if trouble and seed not in own:
            refused.append(f"seed {seed} is left out: {trouble[0]}")
        else:
            kept.append(seed)
    adds = len(one.needs(pool.scale, kept)) > len(needs)
    return (tuple(kept) if adds else None), refused


def union(all_needs: Iterable[Mapping[Need, bool]]) -> dict[Need, bool]:
    """Several tables' runs, each once."""
    found: dict[Need, bool] = {}
    for needs in all_needs:
        for need, readout in needs.items():
            found[need] = found.get(need, False) or readout
    return found


def _suite(one: PaperTable) -> Suite:
    def cells(scale: str) -> list[SweepCell]:
        from goodness.paper import extras  # which reads this module

        return extras.cells(Pool.at(scale), one.needs(SCALES[scale]))

    return Suite(about=one.about.caption, make=cells, scales=tuple(SCALES))


for _one in paper_tables():
    if not _one.without:
        suites.register(f"{SUITE}{_one.label}")(_suite(_one))
