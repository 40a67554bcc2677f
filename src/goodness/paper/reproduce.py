"""Run what a table, figure or finding of the paper lacks, then write it: ours beside the paper's."""

from __future__ import annotations

import contextlib
import fnmatch
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from goodness.errors import MissingRuns, RunError, UserError, nearest
from goodness.paper import extras
from goodness.paper.extras import Extra, draw, to_check
from goodness.paper.filled import Filled, fill
from goodness.paper.judged import Judged, judge_all, write_findings
from goodness.paper.names import named
from goodness.paper.pool import NO_STAGE_2, Need, Needs, Pool, refuse_two_trainings
from goodness.paper.suites import PaperTable, paper_tables, union
from goodness.paper.writing import write_table
from goodness.paths import from_home
from goodness.runs.run_folder import choose_device
from goodness.sweep.cell import CellFolder
from goodness.sweep.engine import Engine, How, cores, share_of_cores
from goodness.sweep.published import about_publication, is_published
from goodness.sweep.run import Watcher
from goodness.sweep.run import fill as run_cells
from goodness.sweep.state import refuse_another
from goodness.sweep.theory import has_theory, keep_theory
from goodness.sweep.workers import WorkerEngine

TABLES, FIGURES = "tables", "figures"
"""Folders of the pool that hold what was made of its runs."""
QUICK_PAUSE = 0.05
"""Seconds between two looks at cells of a second."""


@dataclass(frozen=True)
class Plan:
    """What was asked for, and the runs behind it."""

    tables: tuple[PaperTable, ...]
    figures: tuple[Extra, ...]
    findings: tuple[Extra, ...]
    needs: dict[Need, bool]
    """All of them; publications may have them."""
    trained: dict[Need, bool]
    """Those of them that are to be trained where they are missing."""


@dataclass
class Taken:
    """What publications had of the runs that were needed."""

    folders: dict[str, Path] = field(default_factory=dict)
    """Of those that were taken, by the names they have in the pool too."""
    notes: list[str] = field(default_factory=list)
    """Of those that lie there and could not be, and why."""


@dataclass(frozen=True)
class Reproduced:
    """What was written."""

    tables: tuple[Filled, ...]
    findings: tuple[Judged, ...]
    """Those that were asked for; the files have all of them."""
    files: tuple[Path, ...]
    failed: dict[Need, str]
    """Runs that are still not there, and why."""
    undrawn: dict[str, str]
    """Figures that could not be drawn, and why."""
    unready: tuple[str, ...]
    """Those that lack runs."""
    taken: Taken = field(default_factory=Taken)


def plan(labels: Sequence[str], pool: Pool, seeds: Sequence[int] | None = None, only: Sequence[str] = ()) -> Plan:
    """The tables, figures and findings of these labels, and every run that they need, once.

    `all` is everything. `goodness.paper.names` says what a label means. `only` has names or wildcards of the presets
    that are to be trained.
    """
    tables: dict[str, PaperTable] = {}
    drawn: dict[str, Extra] = {}
    judged: dict[str, Extra] = {}
    for label in labels:
        if label == "all":
            tables |= {one.label: one for one in paper_tables() if not one.without}
            drawn |= extras.figures()
            judged |= extras.findings()
            continue
        found = named(label, also=["all"])
        if found.table and not found.figure and found.table.without:
            raise UserError(f"no run of ours can fill '{found.table.label}': {found.table.without}")
        if found.table:
            tables[found.table.label] = found.table
        if found.figure:
            drawn[found.figure.name] = found.figure
        if found.finding:
            judged[found.finding.name] = found.finding
    everything = (*tables.values(), *drawn.values(), *judged.values())
    needs = union(one.needs(pool.scale, seeds) for one in everything)
    return Plan(tuple(tables.values()), tuple(drawn.values()), tuple(judged.values()), needs, _only(needs, only))


def _only(needs: dict[Need, bool], patterns: Sequence[str]) -> dict[Need, bool]:
    """The runs whose preset one of the patterns fits; all of them where there is none."""
    presets = list(dict.fromkeys(preset for preset, _ in needs))
    for pattern in patterns:
        if not fnmatch.filter(presets, pattern):
            raise UserError(f"nothing that was named needs a preset '{pattern}': {nearest(pattern, presets)}")
    kept = {preset for pattern in patterns for preset in fnmatch.filter(presets, pattern)}
    return {need: readout for need, readout in needs.items() if not patterns or need[0] in kept}


def reproduce(
    labels: Sequence[str],
    pool: Pool,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    jobs: int | None = None,
    device: str = "auto",
    data_dir: Path | None = None,
    watch: Watcher | None = None,
    engine: Engine | None = None,
    again: str = "",
    published: Sequence[Path] = (),
) -> Reproduced:
    """Train what is missing (it can be stopped and gone on with at any moment), then write what was asked for.

    Runs that lie in one of the publications are copied from there instead. Where a figure or finding reads the check of
    the theorems, it is made too, of runs that have their weights. A run that fails twice is left out, and what needs it
    is written as incomplete.
    """
    asked = plan(labels, pool, seeds, only)
    missing, known = pool.missing(asked.trained), found_in(published, pool, asked.needs)
    if is_published(pool.path):
        lacks = (
            f" that lacks {len(missing)} runs, and nothing is trained there" if missing else ", which stays as it is"
        )
        raise UserError(
            f"{pool.path} is a publication{lacks}; choose another --out with --published {shlex.quote(str(pool.path))}"
            + (", then publish that" if missing else ", or read it with goodness paper")
        )
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}")
    again = again or f"goodness reproduce {shlex.join(labels)} --scale {pool.scale.name}"
    how = How(device=device, data_dir=None if data_dir is None else str(from_home(data_dir).resolve()))
    with contextlib.ExitStack() as stack:
        is_quick = pool.scale.is_quick and choose_device(device).type == "cpu"
        if engine is None and is_quick:
            threads = share_of_cores(min(jobs or cores(), len(missing) or 1))
            engine = stack.enter_context(WorkerEngine(how, threads))
        cells = extras.cells(pool, asked.needs)
        wanted = [one for one in cells if (one.preset, one.seed) in missing or one.folder_name in known.folders]
        if wanted:
            run_cells(
                wanted,
                pool.path,
                jobs=jobs,
                how=how,
                mixed_versions=pool.mixed_versions,
                engine=engine,
                pause=QUICK_PAUSE if is_quick else None,
                again=again,
                watch=watch,
                finished=known.folders,
            )
    fresh = Pool(pool.path, pool.scale, pool.mixed_versions)
    for need in sorted(to_check(asked.needs)):
        run = fresh.run(*need)
        if run is not None and not has_theory(run):
            try:
                keep_theory(run, device=device, data_dir=how.data_dir)
            except (UserError, RunError) as trouble:
                if not is_published(run.path):  # one that was trained elsewhere has no weights: its readers say so
                    known.notes.append(f"{need[0]}, seed {need[1]}: the theorems are not checked: {trouble}")
    return replace(write(asked, fresh, seeds), taken=known)


def found_in(publications: Sequence[Path], pool: Pool, needs: Needs) -> Taken:
    """The runs that publications have and the pool has not begun.

    A published run cannot be gone on with: one that lacks the Stage 2 or the check of the theorems that is needed is
    not taken, and one that was taken before is exchanged for one that has them. Refused are runs of another version,
    and two publications with different trainings of one run.
    """
    found = Taken()
    takers: dict[str, Pool] = {}
    checked = to_check(needs)
    for path in publications:
        scale = about_publication(path).get("scale")
        if scale is None:
            raise UserError(f"{path} is no publication; goodness publish makes one")
        if scale != pool.scale.name:
            raise UserError(f"{path} has runs at the scale '{scale}', not '{pool.scale.name}'")
        other = Pool.at(pool.scale.name, path, mixed_versions=pool.mixed_versions)
        for need, readout in needs.items():
            cell = pool.cell(*need, readout)
            here, there = pool.path / cell.folder_name, path / cell.folder_name
            if not there.exists() or ((here / "run").exists() and not _lies_here_lacking(pool, need, readout, checked)):
                continue
            if cell.folder_name in takers:
                refuse_two_trainings(takers[cell.folder_name], other, need, "name one of them")
                continue
            lacks = _what_it_lacks(other, need, readout, checked)
            if lacks:
                found.notes.append(f"{need[0]}, seed {need[1]}, is not taken from {path}: {lacks}")
                continue
            refuse_another(cell, there, None, mixed_versions=pool.mixed_versions, instead=f"leave {path} out")
            found.folders[cell.folder_name] = there
            takers[cell.folder_name] = other
    return found


def _lies_here_lacking(pool: Pool, need: Need, readout: bool, checked: Collection[Need]) -> bool:
    """Whether a published run lies in the pool that lacks what is needed now."""
    run = CellFolder(pool.path / pool.cell(*need).folder_name).run
    if not is_published(run.path):
        return False
    return pool.run(*need, readout) is None or (need in checked and not has_theory(run))


def _what_it_lacks(publication: Pool, need: Need, readout: bool, checked: Collection[Need]) -> str:
    """Why a run that lies in a publication is not enough; empty where it is."""
    folder = publication.path / publication.cell(*need).folder_name
    if not (folder / "cell.json").is_file() or not is_published(folder / "run"):
        return "it is no published run: files are missing"
    seen = publication.look(*need, readout)
    if seen.run is None:
        return "it has no Stage 2" if seen.why == NO_STAGE_2 else seen.why
    return "it has no check of the theorems" if need in checked and not has_theory(seen.run) else ""


def write(asked: Plan, pool: Pool, seeds: Sequence[int] | None = None) -> Reproduced:
    """Tables, figures and verdicts from the runs that are there. The file of verdicts has all findings, asked for or
    not."""
    filled = tuple(fill(one, pool, seeds) for one in asked.tables)
    files: list[Path] = []
    for one in filled:
        files += write_table(one, pool.path / TABLES)
    undrawn: dict[str, str] = {}
    unready: list[str] = []
    for figure in asked.figures:
        try:
            files += draw(figure, pool, pool.path / FIGURES, seeds)
        except MissingRuns:
            unready.append(figure.name)
        except (UserError, RunError) as trouble:
            undrawn[figure.name] = str(trouble)
    judged = judge_all(pool, seeds) if asked.findings else []
    files += write_findings(judged, pool.path) if judged else []
    of_those = tuple(one for one in judged if one.finding in asked.findings)
    missing = {need: pool.look(*need, readout).why for need, readout in pool.missing(asked.trained).items()}
    return Reproduced(filled, of_those, tuple(files), missing, undrawn, tuple(unready))
