"""The diagnosing commands, as a user gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import goodness
from goodness.cli import main
from goodness.nn.network import Network
from tiny_runs import BLOBS, blobs_at_hand, shrunk


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("runs")
    with blobs_at_hand():
        for preset in ("gamma0-dense", "lcff-dense"):
            goodness.train(shrunk(preset, {**BLOBS, "model.blocks": 3}), out=folder / preset, device="cpu")
        backprop = shrunk("gamma0-dense", {**BLOBS, "trainer": "backprop"})
        goodness.train(backprop, out=folder / "bp", device="cpu")
        yield {name: folder / name for name in ("gamma0-dense", "lcff-dense", "bp")}


def say(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main([str(one) for one in arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_health_says_a_word_on_every_block(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = say(capsys, "health", runs["lcff-dense"], "--device", "cpu")
    assert code == 0
    assert "verdict" in output
    assert sum(output.count(word) for word in ("works", "rides", "dead")) >= 3
    code, output, _ = say(capsys, "health", runs["lcff-dense"], "--json", "--split", "val", "--device", "cpu")
    found = json.loads(output)
    assert (code, found["split"], len(found["blocks"]), len(found["verdict"])) == (0, "val", 3, 3)
    judged = {line["epoch"]: line["val"]["accuracy"] for line in goodness.load(runs["lcff-dense"]).metrics}
    first = min(epoch for epoch, accuracy in judged.items() if accuracy >= 0.95 * max(judged.values()))
    assert found["convergence"]["95"] == first


def test_health_of_a_backpropagation_control_is_refused(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = say(capsys, "health", runs["bp"], "--device", "cpu")
    assert code == 2
    assert "backprop" in error


def test_compare_shows_groups_and_pairs_and_draws(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, output, _ = say(
        capsys, "compare", runs["gamma0-dense"], runs["lcff-dense"], "--figure", tmp_path / "margins", "--folds", "200"
    )
    assert code == 0
    assert "A - B" in output
    assert (tmp_path / "margins.png").stat().st_size > 1000
    assert (tmp_path / "margins.svg").read_text().startswith("<?xml")
    code, output, _ = say(capsys, "compare", runs["gamma0-dense"], runs["bp"], "--json", "--folds", "200")
    assert json.loads(output)["pairs"][0]["n"] == 40
    assert say(capsys, "compare")[0] == 2
    assert say(capsys, "compare", runs["bp"], "--folds", "3")[0] == 2


def test_theory_holds_on_a_run_and_writes_its_figure(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ("--figure", tmp_path / "att", "--examples", "4", "--coverage", "40")
    code, output, _ = say(capsys, "theory", runs["lcff-dense"], *where)
    assert (code, "holds: no example contradicts" in output) == (0, True)
    assert (tmp_path / "att.png").is_file()
    code, output, _ = say(capsys, "theory", runs["lcff-dense"], *where, "--json")
    assert json.loads(output)["holds"] is True
    assert say(capsys, "theory", runs["bp"], *where)[0] == 2


def test_audit_proves_presets_and_runs_local(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = say(capsys, "audit", "demo")
    assert (code, "every foreign gradient is zero" in output) == (0, True)
    code, output, _ = say(capsys, "audit", runs["gamma0-dense"], "--json")
    found = json.loads(output)
    assert (code, found["is_local"], [row["leaks"] for row in found["blocks"]]) == (0, True, [[], [], []])
    assert all(
        row["own"] + row["foreign"] == found["blocks"][0]["own"] + found["blocks"][0]["foreign"]
        for row in found["blocks"]
    )


def test_audit_catches_a_leaky_network_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leaky(self: Network, tokens: torch.Tensor) -> torch.Tensor:
        return torch.relu(tokens)  # not detached

    monkeypatch.setattr(Network, "hand_on", leaky)
    code, output, _ = say(capsys, "audit", "demo", "--json")
    found = json.loads(output)
    assert (code, found["is_local"]) == (1, False)
    assert found["blocks"][0]["leaks"] == []
    assert any(leak["parameter"].startswith("blocks.0.") for leak in found["blocks"][1]["leaks"])
    assert say(capsys, "audit", "demo")[0] == 1


@pytest.mark.parametrize("what", ["bp-strong", "no-such-preset", "demoo"])
def test_audit_of_what_cannot_be_local_is_a_users_mistake(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = say(capsys, "audit", what)
    assert code == 2
    assert "goodness:" in error


@pytest.mark.parametrize("command", ["health", "report", "watch", "compare", "theory", "audit"])
def test_each_command_has_help_and_refuses_a_folder_that_is_no_run(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out) > 200
    assert say(capsys, command, tmp_path / "nothing")[0] == 2
