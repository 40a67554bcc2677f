"""A sweep's folder names the plugins it needs, and imports none: where they lie is for the command line to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goodness
from goodness.cli import main
from goodness.cli.terminal import import_plugins
from goodness.config import to_dict
from goodness.errors import RunError, UserError
from goodness.parts import rules
from goodness.sweep import engine, run
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.plan import Plan
from goodness.sweep.plugins import Plugin, described
from in_this_process import InThisProcess

RULE = '''
from dataclasses import dataclass
from pathlib import Path
import torch
import goodness

Path(__file__).with_suffix(".imported").touch()

@goodness.register_rule("a-third")
@dataclass(frozen=True, kw_only=True)
class Third(goodness.Rule):
    """A third of the history."""

    def weight(self, past):
        return torch.full_like(past.total, 1 / 3)
'''
NAME = "rule_of_the_plugin_tests.py"


@pytest.fixture(autouse=True)
def nothing_is_registered() -> Iterator[None]:
    known = dict(rules._parts)
    yield
    rules._parts = known


def forget() -> None:
    """As in a new process, where no plugin was imported."""
    rules._parts.pop("a-third", None)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "here" / NAME
    path.parent.mkdir()
    path.write_text(RULE)
    return path


@pytest.fixture
def swept(tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished sweep of one cell under the plugin's rule."""
    folder = tmp_path / "sweep"
    asked = ["sweep", "demo", "--set", "epochs=1", "data=digits-sample", "rule=a-third", "--seeds", "1", "--jobs", "1"]
    with monkeypatch.context() as here:
        here.setattr(run, "LocalEngine", lambda how, threads: InThisProcess())
        assert main([*asked, "--device", "cpu", "--plugin", str(plugin), "--out", str(folder)]) == 0
    plugin.with_suffix(".imported").unlink()
    forget()
    return folder


def change(folder: Path, **fields: Any) -> None:
    place = folder / "sweep.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **fields}))


def older(plugin: Path) -> dict[str, Any]:
    """As files were before plugins had hashes."""
    return {"how": {"device": "cpu", "data_dir": None, "plugins": [str(plugin)]}}


@pytest.mark.parametrize("kind", ["as written", "an older file", "a path for a name"])
def test_a_folder_is_never_told_what_to_import(
    swept: Path, plugin: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads((swept / "sweep.json").read_text())
    if kind == "an older file":
        del found["plugins"]
        (swept / "sweep.json").write_text(json.dumps({**found, **older(plugin)}))
    elif kind == "a path for a name":
        change(swept, plugins=[{"name": str(plugin), "sha256": None}], **older(plugin))
    capsys.readouterr()
    assert main(["sweep", "--resume", str(swept), "--json"]) == 2
    assert NAME in capsys.readouterr().err
    assert not plugin.with_suffix(".imported").exists()
    assert Plan.read(swept).how.plugins == ()


def test_a_sweep_goes_on_with_its_plugin_wherever_that_lies_now(
    swept: Path, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (swept / "sweep.json").read_text()
    assert str(tmp_path) not in told
    assert json.loads(told)["plugins"] == [{"name": NAME, "sha256": described([str(plugin)])[0].sha256}]
    moved = tmp_path / "there" / NAME
    moved.parent.mkdir()
    plugin.rename(moved)
    (cell,) = Plan.read(swept).cells
    (swept / cell.folder_name / "run" / "result.json").unlink()  # so that the cell has something to do
    commands: list[list[str]] = []
    plain = engine.cell_command

    def watched(folder: Path, how: engine.How) -> list[str]:
        commands.append(plain(folder, how))
        return commands[-1]

    monkeypatch.setattr(engine, "cell_command", watched)
    assert main(["sweep", "--resume", str(swept), "--plugin", str(moved)]) == 0
    assert [command[-2:] for command in commands] == [["--plugin", str(moved)]]
    assert (swept / cell.folder_name / "run" / "result.json").is_file()


def test_another_content_is_refused_or_accepted_with_other_versions(
    swept: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.write_text(RULE.replace("1 / 3", "1 / 4"))
    capsys.readouterr()
    asked = ["sweep", "--resume", str(swept), "--plugin", str(plugin)]
    assert main(asked) == 2
    assert NAME in capsys.readouterr().err
    assert main([*asked, "--mixed-versions"]) == 0
    assert main(asked) == 0, "the sweep remembers that it accepts them, and the newer content"


def test_every_plugin_that_is_missing_is_named(tmp_path: Path) -> None:
    Plan(cells=(), plugins=(Plugin("one.py", "1" * 64), Plugin("two", None))).write(tmp_path)
    with pytest.raises(UserError, match=r"(?s)one\.py.*two"):
        goodness.resume_sweep(tmp_path)
    (tmp_path / "two.py").touch()
    with pytest.raises(UserError, match=r"one\.py"):
        goodness.resume_sweep(tmp_path, plugins=[str(tmp_path / "two.py")])


def test_the_same_content_under_another_name_is_the_same_plugin(swept: Path, plugin: Path) -> None:
    renamed = plugin.rename(plugin.with_name("renamed_rule_of_the_plugin_tests.py"))
    assert main(["sweep", "--resume", str(swept), "--plugin", str(renamed)]) == 0


@pytest.mark.parametrize("damage", [[{"name": 3, "sha256": None}], [{}], [3], {"name": "parts"}, 3])
def test_plugins_of_another_kind_are_damage(tmp_path: Path, damage: Any) -> None:
    Plan(cells=()).write(tmp_path)
    change(tmp_path, plugins=damage)
    with pytest.raises(RunError):
        Plan.read(tmp_path)


def test_a_module_is_known_by_its_source() -> None:
    (found,) = described(["goodness.registry"])
    assert found == Plugin("goodness.registry", described([goodness.registry.__file__])[0].sha256)
    for name in ("no_such_module", "no.such.module", "nowhere.py"):
        with pytest.raises(UserError, match=name):
            described([name])


@pytest.mark.parametrize(
    "command",
    ["eval", "resume", "readout", "health", "report", "watch", "compare", "theory", "audit", "cell"],
)
def test_a_command_without_the_plugin_names_the_part(
    tmp_path: Path, plugin: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import_plugins([str(plugin)])
    cell = Cell(preset="demo", seed=1, overrides={"rule": "a-third"})
    CellFolder(tmp_path / "cell").write(cell)
    place = tmp_path / "cell" / "run"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"stage": "s1", **to_dict(cell.config)}))
    forget()
    plugin.with_suffix(".imported").unlink()
    asked = [command, str(place)] if command != "cell" else [command, str(place.parent)]
    assert main(asked) == 2
    assert "a-third" in capsys.readouterr().err
    assert not plugin.with_suffix(".imported").exists()
