"""A cell has one folder, whatever the order of its changes, and is read back as it was written."""

from __future__ import annotations

import json

import pytest

from goodness.config import override
from goodness.errors import ConfigError
from goodness.methods.cumulative.collaboration import Constant, Gated
from goodness.methods.cumulative.terms import Current
from goodness.presets import preset
from goodness.sweep.cell import Cell, CellFolder


def cell(seed: int = 1, **more: object) -> Cell:
    return Cell(preset="demo", seed=seed, **more)  # type: ignore[arg-type]


def test_the_folder_says_what_the_cell_is() -> None:
    assert cell().folder_name == "demo-s1"
    name = cell(overrides={"rule": "lcff", "optim.lr": 0.01}).folder_name
    assert name.startswith("demo-rule-lcff-optim.lr-0.01-")
    assert name.endswith("-s1")
    assert cell(name="LCFF (γ = 1)").folder_name.startswith("LCFF-1-")


def test_the_folder_is_the_same_for_the_same_settings_and_another_for_others() -> None:
    one = cell(overrides={"rule": "lcff", "epochs": 3}).folder_name.rsplit("-", 2)[1]
    assert one == cell(overrides={"epochs": 3, "rule": "lcff"}).folder_name.rsplit("-", 2)[1]
    long = [cell(overrides={**{f"objective.aspects.{'x' * 80}": 1}, "epochs": n}).folder_name for n in (2, 3)]
    assert long[0] != long[1]
    names = [cell(overrides=some).folder_name for some in ({}, {"epochs": 3}, {"epochs": 4}, {"batch": 3})]
    assert len(set(names)) == 4
    assert cell(seed=2).folder_name != cell(seed=1).folder_name
    assert cell(readout=True).folder_name == cell().folder_name  # Stage 2 is added to what is there


def test_a_part_is_kept_as_its_name_and_settings() -> None:
    made = cell(overrides={"rule": Gated(kappa=2.0), "objective.curr": Current(rho=3.0), "optim.betas": (0.8, 0.9)})
    assert json.loads(json.dumps(made.as_dict())) == made.as_dict()
    assert made.overrides["rule"] == "gated"
    assert made.overrides["rule.kappa"] == 2.0
    wanted = {"rule": Gated(kappa=2.0), "objective.curr": Current(rho=3.0), "optim.betas": (0.8, 0.9), "seed": 1}
    assert made.config == override(preset("demo"), wanted)
    again = Cell(**json.loads(json.dumps(made.as_dict())))
    assert (again, again.config, again.folder_name) == (made, made.config, made.folder_name)


def test_a_term_can_be_taken_away() -> None:
    made = Cell(**json.loads(json.dumps(cell(overrides={"objective.aspects": None}).as_dict())))
    assert list(made.config.objective) == ["block"]
    assert made.group == "demo, objective.aspects off"


def test_the_stages_are_those_that_the_preset_has() -> None:
    assert cell().stages == ("s1",)
    assert cell(readout=True).stages == ("s1", "s2")
    assert cell(readout=True).epochs == 25
    assert cell(readout=True, overrides={"readout.epochs": 0}).stages == ("s1",)
    assert Cell(preset="bp-strong", seed=1, readout=True).stages == ("bp",)


def test_seed_and_preset_are_no_changes_and_a_mistake_is_told() -> None:
    for taken in ("seed", "preset"):
        with pytest.raises(ConfigError, match=f"{taken} cannot be changed in a sweep"):
            cell(overrides={taken: 3})
    with pytest.raises(ConfigError, match="cannot be written down"):
        cell(overrides={"rule": object()})
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        cell(overrides={"epoch": 3}).config  # noqa: B018


def test_a_folder_remembers_what_is_asked_for(tmp_path) -> None:
    made = cell(overrides={"rule": Constant(gamma=0.3)}, readout=True)
    CellFolder(tmp_path / "new").write(made)
    assert CellFolder(tmp_path / "new").asked() == (made.config, ("s1", "s2"))
