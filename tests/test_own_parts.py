"""A user's own parts count among the versions of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodness.cli import main
from goodness.durable import read_json
from goodness.own_parts import own_sources
from goodness.presets import preset, presets

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


def test_seeds_of_two_versions_of_a_plugin_are_not_averaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "own_rule_of_this_test.py"
    asked = ["sweep", "demo", "--set", "epochs=1", "data=digits-sample", "rule=a-share"]
    asked += ["--plugin", str(plugin), "--out", str(tmp_path / "out")]
    for seeds, share in (("1", 0.5), ("1,2", 0.25)):
        plugin.write_text(RULE.replace("SHARE", str(share)))
        code = main([*asked, "--seeds", seeds])
        assert code == (0 if seeds == "1" else 1)
    told = capsys.readouterr()
    assert "parts: " in told.out + told.err
    known = [read_json(place)["parts"] for place in sorted((tmp_path / "out").glob("*/run/environment.json"))]
    assert len(set(known)) == 2
