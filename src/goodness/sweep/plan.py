"""What a sweep was asked for: its cells, and the sweep.json that remembers them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodness.config import differences
from goodness.durable import read_json, write_json
from goodness.errors import RunError, UserError, nearest
from goodness.presets import preset, presets
from goodness.sweep.cell import Cell
from goodness.sweep.engine import How
from goodness.sweep.plugins import Plugin, read_back, resume_command
from goodness.sweep.suites import suites

SWEEP = "sweep.json"
LOCK = "sweep.lock"
"""Held by the process that sweeps."""
FORMAT = 1


def make_cells(
    names: Sequence[str],
    *,
    seeds: Iterable[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    scale: str | None = None,
    readout: bool = False,
) -> list[Cell]:
    """The cells of these suites and presets, group by group; each configuration is checked.

    A suite brings its own seeds and a preset its own one, unless `seeds` are given. `changes` go on top of every cell,
    and into no name: they tell no two of them apart.
    """
    if not names:
        raise UserError("name what to run: goodness sweep SUITE|PRESET ... --seeds 42,123,456")
    for name in names:
        if name not in suites and name not in presets:
            raise UserError(f"unknown suite or preset '{name}': {nearest(name, [*suites, *presets])}")
    if scale is not None and not any(name in suites for name in names):
        raise UserError(f"a scale ('{scale}') is for suites, and {' and '.join(names)} are presets")
    found: list[Cell] = []
    for name in names:
        if name in suites:
            found += suites[name].cells(scale)
        else:
            found.append(Cell(preset=name, seed=preset(name).seed))
    if seeds is not None:
        wanted = list(dict.fromkeys(seeds))
        if not wanted:
            raise UserError("name at least one seed: --seeds 42,123,456")
        found = [
            dataclasses.replace(cell, seed=seed, theory=cell.theory and seed == min(wanted))  # one network is enough
            for cell in _one_of_each_group(found)
            for seed in wanted
        ]
    cells = [
        dataclasses.replace(
            cell,
            overrides={**cell.overrides, **(changes or {})},
            name=cell.group,
            readout=cell.readout or readout,
        )
        for cell in found
    ]
    cells = each_once(cells)
    for cell in cells:
        cell.config  # noqa: B018  (a mistake is told before any work)
    return cells


def default_folder(names: Sequence[str], root: Path = Path("runs")) -> Path:
    """The same for the same names: the same command again goes on where it was."""
    words = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") for name in names)
    return root / f"sweep-{words[:80]}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What sweep.json holds."""

    cells: tuple[Cell, ...]
    how: How = dataclasses.field(default_factory=How)
    plugins: tuple[Plugin, ...] = ()
    """What the cells need, by name and hash; where they lie is never written down."""
    threads: int = 1
    """Of each cell, for as long as the sweep lasts: deterministic bits depend on it."""
    mixed_versions: bool = False
    """Whether cells that other versions made are accepted, and said to be."""
    sharing: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """What was measured of cells that share a GPU (`sharing.Measured`)."""

    def write(self, folder: Path) -> None:
        about = {
            "format": FORMAT,
            "cells": [cell.as_dict() for cell in self.cells],
            "how": {"device": self.how.device, "data_dir": self.how.data_dir},
            "plugins": [dataclasses.asdict(one) for one in self.plugins],
            "threads": self.threads,
            "mixed_versions": self.mixed_versions,
            "sharing": {name: dict(found) for name, found in self.sharing.items()},
        }
        write_json(folder / SWEEP, about)

    @classmethod
    def read(cls, folder: Path) -> Plan:
        path = folder / SWEEP
        if not path.is_file():
            raise UserError(f"{folder} is not a sweep's folder: it has no {SWEEP}; `goodness sweep` makes one")
        again = "remove it and name the whole sweep again with this --out, which keeps the finished cells"
        found = read_json(path, otherwise=again)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise RunError(f"{path} is not what this version writes; restore it from a copy, or take another --out")
        try:
            how = dict(found["how"])
            older = how.pop("plugins", [])
            cells = tuple(Cell(**cell) for cell in found["cells"])
            return cls(
                cells=cells,
                how=How(**how),
                plugins=read_back(found.get("plugins", older)),
                threads=int(found["threads"]),
                mixed_versions=bool(found["mixed_versions"]),
                sharing={name: dict(measured) for name, measured in found["sharing"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as trouble:
            raise RunError(f"{path} is damaged ({trouble}); restore it from a copy, or take another --out") from trouble


def refuse_other_things(folder: Path) -> None:
    """A sweep's folder is a new one, an empty one, or its own."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder; choose another --out")
    if folder.is_dir() and not (folder / SWEEP).is_file():
        mine = {LOCK, *(child.parent.name for child in folder.glob("*/cell.json"))}  # of a sweep that lost its plan
        strange = sorted(child.name for child in folder.iterdir() if child.name not in mine)
        if strange:
            raise UserError(f"{folder} holds other things ({', '.join(strange[:3])}); choose another --out")


def refuse_another_sweep(folder: Path, cells: Sequence[Cell]) -> Plan | None:
    """The plan that lies there, which these cells go on with or add to; None in a new folder. Any other is refused."""
    if not (folder / SWEEP).is_file():
        return None
    plan = Plan.read(folder)
    wanted = {cell.folder_name for cell in cells}
    left_out = [cell for cell in plan.cells if cell.folder_name not in wanted]
    if left_out:
        first = left_out[0]
        again = f"or go on as it was: {resume_command(folder, [one.name for one in plan.plugins])}"
        if why := _other_settings(first, cells):
            raise UserError(f"{folder} is a sweep of '{first.group}' with {why}: choose another --out, {again}")
        raise UserError(
            f"{folder} is a sweep with the cell '{first.group}', seed {first.seed}, which is not asked for now: choose "
            f"another --out, ask for it too, {again}"
        )
    return plan


def _other_settings(known: Cell, cells: Sequence[Cell]) -> str:
    """`epochs = 2, where 3 is asked for now`: the first difference to a cell of the same preset and seed."""
    same = [cell for cell in cells if (cell.preset, cell.seed) == (known.preset, known.seed)]
    if not same:
        return ""
    apart = differences(same[0].config, known.config)
    names = [name for name in apart if name not in ("preset", "seed")]
    if not names:
        return ""
    before, now = apart[names[0]]
    return f"{names[0]} = {before}, where {now} is asked for now"


def _one_of_each_group(cells: Iterable[Cell]) -> list[Cell]:
    """With all that is wanted of any of its seeds."""
    groups: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        known = groups.setdefault((cell.group, cell.preset), cell)
        groups[cell.group, cell.preset] = _with_wishes_of(cell, known)
    return list(groups.values())


def _with_wishes_of(cell: Cell, other: Cell) -> Cell:
    return dataclasses.replace(cell, readout=cell.readout or other.readout, theory=cell.theory or other.theory)


def each_once(cells: Iterable[Cell]) -> list[Cell]:
    """Two names may ask for the same cell; two settings under one name are a mistake."""
    once: dict[str, Cell] = {}
    settings: dict[str, Cell] = {}
    for cell in cells:
        known = once.get(cell.folder_name, cell)
        once[cell.folder_name] = _with_wishes_of(cell, known)
        other = settings.setdefault(cell.group, cell)
        if (other.preset, other.overrides) != (cell.preset, cell.overrides):
            raise UserError(f"two different settings are both called '{cell.group}'; give them names of their own")
    return list(once.values())
