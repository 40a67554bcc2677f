"""One folder of runs for all of the paper's tables: the same run stands once, however many tables need it.

A run is known by preset and seed; what the scale changes is part of the cell. What lies in the folder is taken for the
run only if it is finished and of the very configuration (of Stage 1 whatever Stage 2 was to follow, of Stage 2 all of
it), and runs are held together only if one version made them, on the same data and the same test images in the same
order (`goodness.sweep.collect`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goodness.durable import read_json
from goodness.errors import RunError, UserError
from goodness.paper.scales import SCALES, Scale, scale_of
from goodness.presets import presets
from goodness.report.words import named_seeds
from goodness.runs.run import Run
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.collect import Row, collect
from goodness.sweep.published import about_publication, is_published
from goodness.sweep.state import Standing, standing

Need = tuple[str, int]
"""A run: preset and seed."""
Needs = Mapping[Need, bool]
"""Runs, and of each whether Stage 2 is needed too."""


SEED = re.compile("0|[1-9][0-9]{0,17}")
"""At the end of a folder's name."""


def default_pool(scale: str) -> Path:
    return Path("runs") / "paper" / scale


NO_STAGE_2 = "no Stage 2 yet"
"""Why a run is not used whose Stage 1 alone is finished."""


class Stage1Alone(Run):
    """A run beside which a Stage 2 lies that is not the one asked for, or not finished: as if there were none."""

    @property
    def readout(self) -> None:
        return None


@dataclass(frozen=True)
class Found:
    """What is known of a run: the run itself, or why there is none to be used."""

    run: Run | None
    why: str = ""


@dataclass(frozen=True)
class Pool:
    """The runs in a folder at one scale. What it has read it remembers: make another one to look again."""

    path: Path
    scale: Scale
    mixed_versions: bool = False
    """Whether runs of different versions of a method or torch may be averaged."""
    _rows: dict[tuple[frozenset[int], str, bool], Row] = field(default_factory=dict, repr=False, compare=False)
    _cells: dict[tuple[str, int, bool], Cell] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, scale: str, path: Path | None = None, *, mixed_versions: bool = False) -> Pool:
        """The pool of a scale, by name; in runs/paper/SCALE unless a path is given. A publication made with
        `mixed_versions` is read so."""
        path = path or default_pool(scale)
        return cls(path, scale_of(scale), mixed_versions or bool(about_publication(path).get("mixed_versions")))

    def cell(self, preset: str, seed: int, readout: bool = False) -> Cell:
        """The cell of a run, as a sweep knows it. Each is made once: its configuration takes a while to check."""
        key = preset, seed, readout
        if key not in self._cells:
            changes = self.scale.overrides(preset)
            self._cells[key] = Cell(preset=preset, seed=seed, overrides=changes, name=preset, readout=readout)
        return self._cells[key]

    def cells(self, needs: Needs) -> list[Cell]:
        return [self.cell(preset, seed, readout) for (preset, seed), readout in needs.items()]

    def standing(self, preset: str, seed: int, readout: bool = False) -> Standing:
        """How far a run has come, by its folder alone."""
        cell = self.cell(preset, seed, readout)
        return standing(cell, self.path / cell.folder_name)

    def look(self, preset: str, seed: int, readout: bool = False) -> Found:
        """A run by itself: finished (with its Stage 2, if asked for) and of the configuration asked for, or why not."""
        cell = self.cell(preset, seed, readout)
        (result,) = self._row(preset, [seed], readout).cells
        if result.scores:
            folder = CellFolder(self.path / cell.folder_name)
            is_refused = not readout and folder.readout.path.exists() and stage_2(self, (preset, seed)) is None
            return Found(Stage1Alone(folder.run.path) if is_refused else folder.run)
        words = {"waiting": "not run", "stopped": "stopped, not finished"}
        if readout and result.trouble == "stopped" and self._row(preset, [seed], False).cells[0].scores:
            return Found(None, NO_STAGE_2)
        return Found(None, words.get(result.trouble, result.trouble))

    def run(self, preset: str, seed: int, readout: bool = False) -> Run | None:
        """The same without the reason."""
        return self.look(preset, seed, readout).run

    def runs(self, preset: str, seeds: Iterable[int] | None = None, readout: bool = False) -> dict[int, Run]:
        """The finished runs of a preset by seed, all that lie here unless seeds are named; empty where they do not
        belong together (`trouble` says why)."""
        wanted = self.seeds(preset) if seeds is None else list(seeds)
        if not wanted or self.trouble(preset, wanted, readout):
            return {}
        found = {seed: self.run(preset, seed, readout) for seed in wanted}
        runs = {seed: run for seed, run in found.items() if run is not None}
        if self.trouble(preset, wanted, readout=True):  # each is right, and they do not belong together
            return {seed: Stage1Alone(run.path) for seed, run in runs.items()}
        return runs

    def trouble(self, preset: str, seeds: Iterable[int], readout: bool = False) -> str:
        """Why the runs of these seeds cannot be averaged; empty where they can."""
        return "; ".join(self._row(preset, seeds, readout).trouble)

    def notes(self, preset: str, seeds: Iterable[int], readout: bool = False) -> tuple[str, ...]:
        """What a reader of their mean must know: that different versions made them, where that is accepted."""
        return tuple(self._row(preset, seeds, readout).notes)

    def facts(self, preset: str, seed: int) -> Mapping[str, Any]:
        """How a run was made and on what, as a sweep compares it; empty without a run."""
        (result,) = self._row(preset, [seed], False).cells
        return result.facts

    def seeds(self, preset: str) -> list[int]:
        """Seeds with which this preset has a folder here."""
        wanted = self.cell(preset, 0).folder_name.removesuffix("0")
        if not self.path.is_dir():
            return []
        names = (child.name for child in self.path.iterdir() if child.name.startswith(wanted))
        seeds = (name[len(wanted) :] for name in names)
        return sorted(int(seed) for seed in seeds if SEED.fullmatch(seed))

    def missing(self, needs: Needs) -> dict[Need, bool]:
        """What is not there of what is needed."""
        return {need: readout for need, readout in needs.items() if self.run(*need, readout) is None}

    def counted(self, needs: Needs) -> str:
        """`1 of 4 runs, 2 more without Stage 2`: how many are there whole, and how many only in part."""
        whole, half = len(needs) - len(self.missing(needs)), self.without_stage_2(needs)
        lacking = f", {half} more without Stage 2" if half else ""
        return f"{whole} of {len(needs)} runs{lacking}"

    def standings(self, needs: Needs) -> list[str]:
        """A line a preset: `gamma0: done (seed 42), not run (seeds 123, 456)`."""
        found: dict[str, dict[str, list[int]]] = {}
        for (preset, seed), readout in needs.items():
            stands = self.look(preset, seed, readout).why or "done"
            found.setdefault(preset, {}).setdefault(stands, []).append(seed)
        return [
            f"{preset}: " + ", ".join(f"{stands} ({named_seeds(seeds)})" for stands, seeds in by_standing.items())
            for preset, by_standing in found.items()
        ]

    def without_stage_2(self, needs: Needs) -> int:
        """How many have all that is needed but a second stage."""
        return sum(self.run(*need) is not None for need in self.missing(needs))

    def seconds(self, needs: Needs) -> float:
        """An estimate of what these runs take one after the other on the scale's machine."""
        return sum(self.scale.estimate(preset, readout) for (preset, _), readout in needs.items())

    def options(self, seeds: Iterable[int] | None = None) -> str:
        """What names the same runs to `goodness reproduce`, which takes those of a publication and trains nothing in
        it: they were nearly always made by other versions than today's."""
        words = ["--scale", self.scale.name]
        words += ["--seeds", ",".join(map(str, seeds))] if seeds else []
        is_taken = is_published(self.path)
        if is_taken or self.path != default_pool(self.scale.name):
            words += ["--published" if is_taken else "--out", str(self.path)]
        return shlex.join([*words, *(["--mixed-versions"] if is_taken or self.mixed_versions else [])])

    def _row(self, preset: str, seeds: Iterable[int], readout: bool) -> Row:
        wanted = list(dict.fromkeys(seeds))
        key = frozenset(wanted), preset, readout
        if key not in self._rows:
            cells = [self.cell(preset, seed, readout) for seed in wanted]
            (self._rows[key],) = collect(cells, self.path, mixed_versions=self.mixed_versions).rows
        return self._rows[key]


def what_lies_in(folder: Path, scale: Scale | None) -> tuple[Scale, Need] | None:
    """The scale, preset and seed of a cell's folder; None for a cell that is no run of the paper's."""
    try:
        asked = read_json(folder / "cell.json")
        preset, seed = str(asked["preset"]), int(asked["seed"])
    except (RunError, TypeError, KeyError, ValueError, OverflowError):
        return None
    for one in (scale,) if scale else SCALES.values():
        if preset in presets and Pool(folder.parent, one).cell(preset, seed).folder_name == folder.name:
            return one, (preset, seed)
    return None


def refuse_another_scale(pool: Pool) -> None:
    """A folder whose runs are all of another scale was meant at that one; one of its own, or an empty one, is let
    through."""
    if not pool.path.is_dir():
        return
    other = None
    for cell in sorted(pool.path.glob("*/cell.json")):
        if what_lies_in(cell.parent, pool.scale) is not None:
            return
        other = other or what_lies_in(cell.parent, None)
    if other is not None:
        raise UserError(f"{pool.path} holds runs at the scale '{other[0].name}': add --scale {other[0].name}")


def refuse_two_trainings(pool: Pool, other: Pool, need: Need, instead: str = "publish one of them") -> None:
    """Two folders that have different trainings of one run: which is meant cannot be guessed."""
    preset, seed = need
    stages = {
        "": [one.run(*need) for one in (pool, other)],
        " of Stage 2": [stage_2(one, need) for one in (pool, other)],
    }
    for words, runs in stages.items():
        if len({weights(run) for run in runs if run is not None}) > 1:
            raise UserError(
                f"{preset}, seed {seed}, lies in {pool.path} and in {other.path}, and they are two different "
                f"trainings{words}; {instead}"
            )


def weights(run: Run) -> str:
    """The hash of its weights: the same for one training alone."""
    return str(run.result["weights_sha256"])


def stage_2(pool: Pool, need: Need) -> Run | None:
    """The finished Stage 2 of a run; None where there is none or the preset has none."""
    cell = pool.cell(*need, readout=True)
    is_there = "s2" in cell.stages and pool.run(*need, readout=True) is not None
    return CellFolder(pool.path / cell.folder_name).readout if is_there else None
