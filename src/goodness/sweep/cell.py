"""A cell of a sweep: one run, by what it asks for, and the folder it lies in.

SWEEP/NAME/cell.json     what is asked for
SWEEP/NAME/run/          the run itself, an ordinary one; its Stage 2 in run/readout
SWEEP/NAME/log.txt       what its processes printed
SWEEP/NAME/failed.json   how the last one ended, if badly
SWEEP/NAME/failed-1/     a run that could not go on, set aside
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goodness.api import make_config
from goodness.config import Config, to_dict
from goodness.durable import read_json, write_json
from goodness.errors import ConfigError, RunError
from goodness.parts import Part, Term
from goodness.runs.run import READOUT, Run, checked_config

NAME_LENGTH = 60
"""Letters of a folder's name that say what the cell is; a hash tells longer ones apart."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A preset with some fields changed, and a seed. Cells that differ in their seed alone form a group."""

    preset: str
    seed: int
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Dotted fields, as `goodness.config.override` takes them; a part becomes its name and settings."""
    name: str = ""
    """What tables call the group; by default the preset and what is changed."""
    readout: bool = False
    """Whether Stage 2 is trained too, where the preset has one."""
    theory: bool = False
    """Whether the theorems are checked on the trained network, where its weights are."""

    def __post_init__(self) -> None:
        for taken, instead in {"seed": "the cell's own seed", "preset": "the cell's own preset"}.items():
            if taken in self.overrides:
                raise ConfigError(f"{taken} cannot be changed in a sweep: it is {instead}")
        object.__setattr__(self, "overrides", _plain(self.overrides))

    @functools.cached_property
    def config(self) -> Config:
        """The whole configuration, checked."""
        return make_config(self.preset, {**self.overrides, "seed": self.seed}, as_typed=_as_typed)

    @property
    def group(self) -> str:
        """
        >>> Cell(preset="demo", seed=1, overrides={"rule": "lcff", "optim.lr": 0.01}).group
        'demo, rule lcff, optim.lr 0.01'
        """
        changed = [f"{path} {_word(value)}" for path, value in self.overrides.items()]
        return self.name or ", ".join([self.preset, *changed])

    @property
    def folder_name(self) -> str:
        """Readable, and the same for the same cell whatever the order of its changes.

        >>> Cell(preset="demo", seed=1).folder_name
        'demo-s1'
        """
        words = re.sub(r"[^A-Za-z0-9._]+", "-", self.group).strip("-.")[:NAME_LENGTH].strip("-.")
        if words == self.preset and not self.overrides:
            return f"{words}-s{self.seed}"
        asked = json.dumps([self.preset, sorted(self.overrides.items())])
        return f"{words}-{hashlib.sha256(asked.encode()).hexdigest()[:6]}-s{self.seed}"

    @property
    def stages(self) -> tuple[str, ...]:
        """What is trained: s1 or bp, and s2 where it is asked for and there is one."""
        if self.config.trainer == "backprop":
            return ("bp",)
        return ("s1", "s2") if self.readout and self.config.readout.epochs else ("s1",)

    @property
    def epochs(self) -> int:
        """Of all its stages."""
        return self.config.epochs + (self.config.readout.epochs if "s2" in self.stages else 0)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, read back by `Cell(**data)`."""
        return {
            "preset": self.preset,
            "seed": self.seed,
            "overrides": dict(self.overrides),
            "name": self.name,
            "readout": self.readout,
            "theory": self.theory,
        }


@dataclass(frozen=True)
class CellFolder:
    """A cell's files."""

    path: Path

    @property
    def cell_path(self) -> Path:
        return self.path / "cell.json"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def failed_path(self) -> Path:
        return self.path / "failed.json"

    @property
    def lock_path(self) -> Path:
        """Held by the process that works on the cell."""
        return self.path / "cell.lock"

    @property
    def run(self) -> Run:
        return Run(self.path / "run")

    @property
    def readout(self) -> Run:
        return Run(self.path / "run" / READOUT)

    @property
    def shared_path(self) -> Path:
        """There where the cell has run beside others: its seconds are not its own."""
        return self.path / "shared"

    def mark_shared(self) -> None:
        if self.path.is_dir() and not self.shared_path.exists():
            self.shared_path.touch()

    def write(self, cell: Cell) -> None:
        """Say what is asked for, the whole configuration included: whoever works on the cell needs no more."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.cell_path, {**cell.as_dict(), "stages": cell.stages, "config": to_dict(cell.config)})

    def asked(self) -> tuple[Config, tuple[str, ...]]:
        """The configuration and stages that `write` left."""
        written = read_json(self.cell_path)
        try:
            return checked_config(written["config"], self.cell_path), tuple(written["stages"])
        except (TypeError, KeyError) as trouble:
            raise RunError(f"{self.cell_path} is not what a sweep writes; start the sweep again") from trouble

    @property
    def wants_theory(self) -> bool:
        """Whether `write` left word that the theorems are to be checked."""
        return bool(read_json(self.cell_path).get("theory"))


def _plain(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The same in JSON's values: a part by its name and all of its settings."""
    plain: dict[str, Any] = {}
    for path, value in overrides.items():
        if isinstance(value, Part):
            written = to_dict(value)
            kind = written.pop("kind")
            plain |= {} if isinstance(value, Term) else {path: kind}
            plain |= {f"{path}.{name}": setting for name, setting in written.items()}
        else:
            plain[path] = list(value) if isinstance(value, tuple) else value
    for path, value in plain.items():
        if not isinstance(value, (str, int, float, bool, list, type(None))):
            raise ConfigError(f"{path} cannot be written down and read back: {value!r}")
    return plain


def _as_typed(fields: Mapping[str, str]) -> str:
    """Fields as `goodness sweep` takes them."""
    return "--set " + " ".join(shlex.quote(f"{name}={value}") for name, value in fields.items())


def _word(value: Any) -> str:
    if value is None:
        return "off"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
