"""The paper's figures and findings, where their modules are there: what each needs of the pool, and what it then says.

`goodness.paper.figures.figures` maps a label to a function of runs (by preset, then seed) that draws a matplotlib
figure, `goodness.paper.findings.findings` a name to something with `verdict(runs)`; both say in `presets` what they
read. `seeds`, a number, is how many seeds that takes; `readout` whether Stage 2 is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goodness.errors import DAMAGE, RunError
from goodness.paper.measured import WithoutHealth
from goodness.paper.pool import Need, Needs, Pool
from goodness.paper.same_data import SameData
from goodness.paper.scales import Scale
from goodness.paper.suites import SEEDS, PaperTable, paper_tables
from goodness.runs.run import Run, health_versions
from goodness.sweep.cell import Cell
from goodness.sweep.collect import are_versions

Runs = Mapping[str, Mapping[int, Run]]
FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True, kw_only=True)
class Extra:
    """A figure or a finding: what it reads, and what makes it of runs."""

    name: str
    about: str
    presets: tuple[str, ...]
    seeds: int
    readout: bool
    make: Callable[[Runs], Any]
    theory: bool = False
    """Whether it reads the check of the theorems, which is made of the lowest seed."""
    rule: str = ""
    """Of a finding: which verdict follows from what."""
    where: str = ""
    """Of a finding: where the paper has it."""

    def needs(self, scale: Scale, seeds: Sequence[int] | None = None) -> dict[Need, bool]:
        wanted = tuple(seeds) if seeds is not None else SEEDS[: scale.most_seeds][: self.seeds]
        return {(preset, seed): self.readout for preset in self.presets for seed in wanted}

    def read(self, pool: Pool, seeds: Sequence[int] | None = None) -> tuple[dict[str, dict[int, Run]], list[str]]:
        """The runs that it compares, all that the pool has for it or those of these seeds, and what was left out, each
        with the reason: runs that do not belong together, those on other data than the first, and block health of
        several versions."""
        found: dict[str, dict[int, Run]] = {}
        left_out: list[str] = []
        same = SameData(pool)
        for preset in self.presets:
            runs, unfit = self._of_preset(pool, preset, seeds)
            left_out += unfit
            for seed in list(runs):
                if why := same.difference(preset, seed):
                    del runs[seed]
                    left_out.append(f"{preset}, seed {seed} ({why})")
            if runs:
                found[preset] = runs
        if versions := health_versions(run for runs in found.values() for run in runs.values()):
            left_out.append(f"block health, which is of different versions ({' and '.join(versions)})")
            found = {
                name: {seed: WithoutHealth(run.path, run) for seed, run in by.items()} for name, by in found.items()
            }
        return found, left_out

    def shown(self, pool: Pool, seeds: Sequence[int] | None = None) -> dict[Need, bool]:
        """What it needs, and what it reads beyond."""
        runs, _ = self.read(pool, seeds)
        needs = self.needs(pool.scale, seeds)
        read = {(preset, seed): self.readout for preset, by_seed in runs.items() for seed in by_seed}
        order = {preset: place for place, preset in enumerate(self.presets)}
        return dict(sorted({**read, **needs}.items(), key=lambda one: (order[one[0][0]], one[0] not in needs)))

    def _of_preset(self, pool: Pool, preset: str, seeds: Sequence[int] | None) -> tuple[dict[int, Run], list[str]]:
        wanted = pool.seeds(preset) if seeds is None else list(seeds)
        left_out = []
        for seed in wanted:
            if pool.standing(preset, seed).state == "done" and (why := pool.look(preset, seed).why):
                left_out.append(f"{preset}, seed {seed} ({why})")
        trouble = pool.trouble(preset, wanted, self.readout) if wanted else ""
        if not trouble:
            return pool.runs(preset, wanted), left_out
        own = [seed for name, seed in self.needs(pool.scale) if name == preset and seed in wanted]
        if seeds is not None or not own or pool.trouble(preset, own, self.readout):
            why = f"{preset}, whose runs are not of one kind ({_accepting(trouble)})"
            return pool.runs(preset, wanted), [*left_out, why]
        for seed in (seed for seed in wanted if seed not in own):  # one that does not go with them takes none away
            if trouble := pool.trouble(preset, [*own, seed], self.readout):
                left_out.append(f"{preset}, seed {seed}, which does not go with the others ({_accepting(trouble)})")
            else:
                own.append(seed)
        return pool.runs(preset, own), left_out

    def of(self, pool: Pool, seeds: Sequence[int] | None = None) -> Any:
        """Made of the runs that it reads."""
        return self.made_of(self.read(pool, seeds)[0], pool)

    def made_of(self, runs: Runs, pool: Pool) -> Any:
        try:
            return self.make(runs)
        except DAMAGE as trouble:
            what = f"{type(trouble).__name__}: {trouble}"
            raise RunError(f"{self.name}: a file of its runs in {pool.path} is damaged ({what})") from trouble


def _accepting(trouble: str) -> str:
    """What is wrong with runs, and the option that accepts it where there is one."""
    return f"{trouble}; --mixed-versions accepts it" if are_versions(trouble) else trouble


def figures() -> dict[str, Extra]:
    """The paper's figures by label; none where nothing draws them."""
    return {
        name.removeprefix("fig:"): _extra(name.removeprefix("fig:"), one, getattr(one, "draw", one))
        for name, one in _items("goodness.paper.figures", "figures")
    }


def findings() -> dict[str, Extra]:
    """The paper's findings by name; none where nothing judges them."""
    return {name: _extra(name, one, one.verdict) for name, one in _items("goodness.paper.findings", "findings")}


def to_check(needs: Iterable[Need]) -> set[Need]:
    """Those of the runs on which the theorems are to be checked: of each preset that a figure or finding wants it of,
    the lowest seed."""
    named = {preset for one in (*figures().values(), *findings().values()) if one.theory for preset in one.presets}
    lowest: dict[str, int] = {}
    for preset, seed in needs:
        if preset in named:
            lowest[preset] = min(seed, lowest.get(preset, seed))
    return set(lowest.items())


def everything() -> list[PaperTable | Extra]:
    """All tables, figures and findings: what the paper needs runs for."""
    return [*paper_tables(), *figures().values(), *findings().values()]


def cells(pool: Pool, needs: Needs) -> list[Cell]:
    """The cells of these runs, with the check of the theorems where it is wanted."""
    checked = to_check(needs)
    return [replace(cell, theory=(cell.preset, cell.seed) in checked) for cell in pool.cells(needs)]


def draw(figure: Extra, pool: Pool, folder: Path, seeds: Sequence[int] | None = None) -> list[Path]:
    """Write a figure as PNG, SVG and PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figure.of(pool, seeds)
    paths = [folder / f"{figure.name}.{end}" for end in FORMATS]
    for path in paths:
        drawn.savefig(path)
    return paths


def _items(module: str, name: str) -> list[tuple[str, Any]]:
    if importlib.util.find_spec(module) is None:
        return []
    return list(getattr(importlib.import_module(module), name).items())


def _extra(name: str, one: Any, make: Callable[[Runs], Any]) -> Extra:
    about = getattr(one, "says", "") or getattr(one, "about", "") or getattr(one, "__doc__", "") or ""
    return Extra(
        name=name,
        about=" ".join(about.split()),
        presets=tuple(getattr(one, "presets", ())),
        seeds=int(getattr(one, "seeds", 1)),
        readout=bool(getattr(one, "readout", False)),
        make=make,
        theory=bool(getattr(one, "theory", False)),
        rule=str(getattr(one, "rule", "")),
        where=str(getattr(one, "where", "")),
    )
