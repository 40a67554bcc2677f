"""What was asked for: suites before presets, every cell once, and a folder that remembers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodness.errors import ConfigError, RunError, UserError
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.engine import How
from goodness.sweep.plan import Plan, default_folder, make_cells, refuse_another_sweep, refuse_other_things
from goodness.sweep.plugins import Plugin
from goodness.sweep.suites import Suite, suites


def two_rules(scale: str) -> list[Cell]:
    epochs = {"full": 20, "small": 2}[scale]
    return [
        Cell(preset="demo", seed=seed, overrides={"rule": rule, "epochs": epochs}, name=rule)
        for rule in ("local", "lcff")
        for seed in (1, 2)
    ]


@pytest.fixture(autouse=True)
def a_suite() -> Iterator[None]:
    known = dict(suites._parts)
    suites.register("two-rules")(Suite(about="Two rules.", make=two_rules, scales=("full", "small")))
    yield
    suites._parts = known


def test_presets_by_seeds_group_by_group() -> None:
    found = make_cells(["demo", "gamma0-dense"], seeds=[3, 1, 3], changes={"epochs": 2})
    assert [(cell.preset, cell.seed) for cell in found] == [
        ("demo", 3),
        ("demo", 1),
        ("gamma0-dense", 3),
        ("gamma0-dense", 1),
    ]
    assert all(cell.config.epochs == 2 for cell in found)
    (own,) = make_cells(["demo"])
    assert own.seed == 1


def test_a_suite_brings_its_cells_and_takes_other_seeds_changes_and_a_scale() -> None:
    assert [(cell.group, cell.seed) for cell in make_cells(["two-rules"])] == [
        ("local", 1),
        ("local", 2),
        ("lcff", 1),
        ("lcff", 2),
    ]
    small = make_cells(["two-rules"], scale="small", seeds=[5], changes={"batch": 32}, readout=True)
    assert [(cell.group, cell.seed, cell.config.epochs, cell.config.batch) for cell in small] == [
        ("local", 5, 2, 32),
        ("lcff", 5, 2, 32),
    ]
    assert all(cell.stages == ("s1", "s2") for cell in small)


def test_a_suite_comes_before_a_preset_of_its_name() -> None:
    suites.register("demo")(Suite(about="", make=lambda scale: [Cell(preset="gamma0-dense", seed=9)]))
    assert [cell.preset for cell in make_cells(["demo"])] == ["gamma0-dense"]


def test_a_cell_asked_for_twice_is_one_cell() -> None:
    assert len(make_cells(["demo", "demo"], seeds=[1, 2])) == 2
    suites.register("again")(Suite(about="", make=lambda scale: [Cell(preset="demo", seed=1, readout=True)]))
    (both,) = make_cells(["demo", "again"])
    assert both.readout


def test_two_settings_under_one_name_are_refused() -> None:
    cells = [Cell(preset="demo", seed=1, overrides={"epochs": n}, name="same") for n in (1, 2)]
    suites.register("clash")(Suite(about="", make=lambda scale: cells))
    with pytest.raises(UserError, match="two different settings are both called 'same'"):
        make_cells(["clash"])


@pytest.mark.parametrize(
    ("names", "more", "answer"),
    [
        ([], {}, "name what to run"),
        (["dem"], {}, "unknown suite or preset 'dem': did you mean 'demo'"),
        (["two-rule"], {}, "did you mean 'two-rules'"),
        (["demo"], {"scale": "small"}, "a scale .* is for suites"),
        (["two-rules"], {"scale": "smal"}, "did you mean 'small'"),
        (["demo"], {"seeds": []}, "at least one seed"),
        (["demo"], {"seeds": [-1]}, "seed must be at least 0"),
        (["demo"], {"changes": {"epoch": 3}}, "did you mean 'epochs'"),
        (["demo"], {"changes": {"epochs": "many"}}, "epochs must be int, got 'many'"),
        (["demo"], {"changes": {"seed": 3}}, "seed cannot be changed"),
    ],
)
def test_a_mistake_is_told_before_any_work(names: list[str], more: dict, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        make_cells(names, **more)


def test_the_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = Plan(
        cells=tuple(make_cells(["two-rules"], readout=True)),
        how=How(device="cpu", data_dir="/data"),
        plugins=(Plugin("mine"), Plugin("parts.py", "0" * 64)),
        threads=3,
        sharing={"speeds": {"1": 1.0, "2": 1.4}, "alone": {"demo": 3.5}},
    )
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan
    written = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps({**written, "format": 9}))
    with pytest.raises(RunError, match="not what this version writes"):
        Plan.read(tmp_path)
    del written["threads"]
    (tmp_path / "sweep.json").write_text(json.dumps(written))
    with pytest.raises(RunError, match="is damaged"):
        Plan.read(tmp_path)
    with pytest.raises(UserError, match=r"has no sweep\.json"):
        Plan.read(tmp_path / "nowhere")


def test_a_sweep_may_grow_but_not_change(tmp_path: Path) -> None:
    assert refuse_another_sweep(tmp_path, make_cells(["demo"])) is None
    plan = Plan(cells=tuple(make_cells(["demo"], seeds=[1, 2])))
    plan.write(tmp_path)
    assert refuse_another_sweep(tmp_path, make_cells(["demo"], seeds=[2, 1, 3])) == plan
    with pytest.raises(UserError, match=r"with the cell 'demo', seed 2, which is not asked for now.*--resume"):
        refuse_another_sweep(tmp_path, make_cells(["demo"], seeds=[1]))
    other = make_cells(["demo"], seeds=[1, 2], changes={"epochs": 5})
    with pytest.raises(
        UserError, match=r"is a sweep of 'demo' with epochs = \d+, where 5 is asked for now: .*--resume"
    ):
        refuse_another_sweep(tmp_path, other)


def test_a_sweep_that_lost_its_plan_keeps_its_cells(tmp_path: Path) -> None:
    plan = Plan(cells=tuple(make_cells(["demo"], seeds=[1, 2])))
    plan.write(tmp_path)
    for cell in plan.cells:
        CellFolder(tmp_path / cell.folder_name).write(cell)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(RunError, match=r"remove it and name the whole sweep again .* keeps the finished cells"):
        Plan.read(tmp_path)
    (tmp_path / "sweep.json").unlink()
    refuse_other_things(tmp_path)
    (tmp_path / "letter.txt").touch()
    with pytest.raises(UserError, match="holds other things"):
        refuse_other_things(tmp_path)


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    refuse_other_things(tmp_path / "new")
    refuse_other_things(tmp_path)
    (tmp_path / "sweep.lock").touch()  # of a sweep that died at birth
    refuse_other_things(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"holds other things \(thesis\.tex\)"):
        refuse_other_things(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        refuse_other_things(tmp_path / "thesis.tex")


def test_the_same_names_have_the_same_folder() -> None:
    assert default_folder(["demo", "two/rules"]) == Path("runs/sweep-demo-two-rules")


def test_a_misspelt_suite_scale_names_what_there_is() -> None:
    with pytest.raises(UserError, match="known: full"):
        Suite(about="", make=two_rules).cells("huge")
    with pytest.raises(ConfigError, match="unknown suite"):
        suites["nothing"]
