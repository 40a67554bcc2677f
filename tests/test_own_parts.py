"""A user's own parts count among the versions of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodness.cli import main
from goodness.durable import read_json
from goodness.own_parts import own_sources
from goodness.presets import preset, presets
from goodness.sweep.run import sweep_results

RULE = '''
from dataclasses import dataclass
import torch
import goodness

@goodness.register_rule("a-share")
@dataclass(frozen=True, kw_only=True)
class Share(goodness.Rule):
    """Some of the history."""

    def weight(self, past):
        return torch.full_like(past.total, SHARE)
'''


@pytest.mark.parametrize("name", list(presets))
def test_a_preset_has_no_parts_of_others(name: str) -> None:
    assert own_sources(preset(name)) is None


def test_a_run_under_another_version_of_a_plugin_is_not_taken_for_todays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "own_rule_of_this_test.py"
    asked = ["sweep", "demo", "--set", "epochs=1", "data=digits-sample", "rule=a-share", "--seeds", "1"]
    asked += ["--plugin", str(plugin), "--out", str(tmp_path / "out")]
    plugin.write_text(RULE.replace("SHARE", "0.5"))
    assert main(asked) == 0
    assert main(asked) == 0, "nothing has changed"
    plugin.write_text(RULE.replace("SHARE", "0.25"))
    capsys.readouterr()
    assert main(asked) == 2
    assert "another version: parts " in (told := capsys.readouterr().err)
    assert "(the files of your own parts), not " in told
    assert "or accept it with --mixed-versions" in told
    assert main([*asked, "--mixed-versions"]) == 0


def test_seeds_of_two_versions_of_a_plugin_are_not_averaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "own_rule_of_this_test.py"
    asked = ["sweep", "demo", "--set", "epochs=1", "data=digits-sample", "rule=a-share"]
    asked += ["--plugin", str(plugin), "--out", str(tmp_path / "out"), "--mixed-versions"]
    for seeds, share in (("1", 0.5), ("1,2", 0.25)):
        plugin.write_text(RULE.replace("SHARE", str(share)))
        assert main([*asked, "--seeds", seeds]) == 0
    told = capsys.readouterr()
    assert "parts: " in told.out + told.err, "a note, as other versions are accepted"
    known = [read_json(place)["parts"] for place in sorted((tmp_path / "out").glob("*/run/environment.json"))]
    assert len(set(known)) == 2
    place = next((tmp_path / "out").glob("sweep.json"))
    place.write_text(place.read_text().replace('"mixed_versions": true', '"mixed_versions": false'))
    (row,) = sweep_results(tmp_path / "out").rows
    assert (row.status, row.scores) == ("refused", {})
