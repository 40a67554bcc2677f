"""The scripts that measure and summarise still run, and say what the runs say."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import goodness
from goodness.runs.run import Run
from tiny_runs import BLOBS, blobs_at_hand, shrunk

SCRIPTS = Path(__file__).parents[1] / "benchmarks"


def main_of(script: str) -> Callable[[], None]:
    spec = importlib.util.spec_from_file_location(script, SCRIPTS / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """A run of each stage, by the name that its summary should have."""
    folder = tmp_path_factory.mktemp("runs")
    with blobs_at_hand():
        short = {**BLOBS, "epochs": 1}
        first = goodness.train(shrunk("demo", short), out=folder / "first", device="cpu")
        readout = goodness.readout(first.path, device="cpu", changes={"readout.epochs": 1})
        control = goodness.train(
            shrunk("bp-strong", {**short, "data": "easy-blobs"}), out=folder / "control", device="cpu"
        )
        yield {"first": first, "first-readout": readout, "control": control}


def test_the_summary_has_a_file_and_a_row_for_a_run_of_every_stage(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["summarise_runs.py", str(tmp_path), *(str(run.path) for run in runs.values())])
    main_of("summarise_runs")()
    assert {file.stem for file in tmp_path.glob("*.json")} == runs.keys()
    table = (tmp_path / "README.md").read_text()
    for (name, run), stage in zip(runs.items(), ("s1", "s2", "bp")):
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert (found["stage"], found["result"]) == (stage, run.result)
        evaluated = [line for line in run.metrics if "val" in line]
        assert [line["epoch"] for line in found["epochs"]] == [line["epoch"] for line in evaluated]
        assert evaluated
        for mine, theirs in zip(found["epochs"], evaluated):
            assert mine["val"]["accuracy"] == pytest.approx(theirs["val"]["accuracy"], rel=1e-4)
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
        assert f"{100 * run.accuracy:.2f} %" in row
        assert f"- {name}: preset `{run.config.preset}`" in table
    blocks = runs["first"].result["health"]["test"]
    assert " ".join(f"{block['sep_cur']:.2f}" for block in blocks) in table
    assert "nan" not in table, "data that may not be mirrored has no TTA"


def test_the_profile_times_every_piece_of_a_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["step_profile.py", "demo", "--batch", "2", "--repeats", "1"])
    main_of("step_profile")()
    times = dict(re.findall(r"^(.+?) +(\d+\.\d+) ms$", capsys.readouterr().out, flags=re.MULTILINE))
    assert len(times) == 6
    assert all(float(one) > 0 for one in times.values())
    assert float(times["whole step"]) > float(times["stem forward"])
