"""`goodness sweep` as a user types it: mistakes told before any work, progress in lines or a table, the results."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from goodness.cli import main
from goodness.report.sweep_progress import SweepProgress, duration, live_table
from goodness.sweep import run
from goodness.sweep.cell import Cell
from goodness.sweep.plan import Plan
from goodness.sweep.progress import Place, Snapshot
from goodness.sweep.state import Standing
from in_this_process import InThisProcess
from tiny_runs import BLOBS, BLOCK_SIZES, SIZES, blobs_at_hand

TINY = {**BLOBS, **SIZES, **{f"model.block.{name}": value for name, value in BLOCK_SIZES.items()}, "model.blocks": 2}


@pytest.fixture(autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Cells run in this process, in an empty folder."""
    monkeypatch.setattr(run, "LocalEngine", lambda how, threads: InThisProcess())
    monkeypatch.setattr(run, "PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["sweep", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def setting(**more: Any) -> list[str]:
    return ["--set", *(f"{name}={json.dumps(value)}" for name, value in {**TINY, **more}.items())]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "name what to run: goodness sweep SUITE|PRESET"),
        (["dem"], "unknown suite or preset 'dem': did you mean 'demo'"),
        (["demo", "--seeds", "1,two"], "--seeds takes whole numbers of at most 18 digits, as 42,123,456; got 'two'"),
        (["demo", "--seeds", "1" * 19], "whole numbers of at most 18 digits"),
        (["nope", "--scale", "tiny"], "unknown suite or preset 'nope'"),
        (["demo", "--seeds", "-1"], "--seeds"),
        (["demo", "--seeds", ","], "at least one seed"),
        (["demo", "--set", "epochs"], "--set takes field=value, such as epochs=60; got 'epochs'"),
        (["demo", "--set", "epoch=3"], "did you mean 'epochs'"),
        (["demo", "--set", "seed=3"], "seeds are given by --seeds"),
        (["demo", "--set", "rule=lcf"], "did you mean 'lcff'"),
        (["demo", "--set", "preset=x"], "preset cannot be changed in a sweep"),
        (["demo", "--jobs", "0"], "--jobs must be at least 1"),
        (["demo", "--device", "cuda:99"], "there is no device 'cuda:99'"),
        (["demo", "--scale", "full"], "is for suites"),
        (["demo", "--sed", "1"], "--seeds"),
        (["demo", "--resume", "x"], "--resume goes on with a sweep as it was asked for"),
        (["--resume", "nowhere"], "nowhere is not a sweep's folder"),
        (["demo", "--plugin", "no_such_module"], "no_such_module"),
    ],
)
def test_a_mistake_exits_with_2_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], here: Path, arguments: list[str], expected: str
) -> None:
    code, _, error = call(capsys, *arguments)
    assert code == 2
    assert expected in " ".join(error.split())
    assert not list(here.iterdir())


def test_help_lists_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = call(capsys, "--help")
    assert code == 0
    for option in ("--seeds", "--out", "--resume", "--jobs", "--set", "--readout", "--device", "--mixed-versions"):
        assert option in output


def test_a_sweep_is_run_shown_and_gone_on_with(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    code, output, error = call(capsys, "demo", "--seeds", "1,2", "--readout", *setting(**{"readout.epochs": 1}))
    assert code == 0, error
    folder = Path("runs/sweep-demo")
    assert "(n = 2)" in output
    assert "Stage 2" in output
    assert "results: runs/sweep-demo/results.md" in output
    assert "-s1: done, Stage 2 test accuracy" in error
    assert {cell.seed for cell in Plan.read(folder).cells} == {1, 2}
    before = (folder / "results.json").read_bytes()
    code, output, error = call(capsys, "--resume", str(folder), "--json")
    assert code == 0
    assert error == ""
    found = json.loads(output)
    assert found == json.loads(before)
    assert found["rows"][0]["scores"].keys() == {"s1", "s1_tta", "s2", "s2_tta"}
    code, _, error = call(capsys, "demo", "--seeds", "3", "--out", str(folder), *setting())
    assert code == 2
    assert "which is not asked for now" in " ".join(error.split())


def test_words_numbers_lists_and_null_are_understood(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    options = ["optim.betas=[0.8,0.9]", "rule=gated", "rule.kappa=2", "keep.memory-mb=512", "objective.aspects=null"]
    assert call(capsys, "demo", "--out", "s", *setting(epochs=1), *options)[0] == 0
    (cell,) = Plan.read(Path("s")).cells
    config = cell.config
    assert config.optim.betas == (0.8, 0.9)
    assert config.rule.kappa == 2.0  # type: ignore[attr-defined]
    assert config.keep.memory_mb == 512
    assert list(config.objective) == ["block"]


# Progress


def places(*states: str) -> list[Place]:
    return [
        Place(
            Cell(preset="demo", seed=seed),
            Standing(state=state, epoch=5, epochs=10, accuracy=0.5, seconds=90.0, error="KeyError: 'a'"),  # type: ignore[arg-type]
        )
        for seed, state in enumerate(states)
    ]


def test_without_a_terminal_there_is_a_line_per_change() -> None:
    text = io.StringIO()
    with SweepProgress(Console(file=text, width=200)) as progress:
        for states in (("running", "waiting"), ("running", "waiting"), ("failed", "running")):
            progress.show(Snapshot(places=places(*states), jobs=1))
        progress.show(Snapshot(places=places("running", "done"), jobs=1, retried=frozenset({"demo-s0"})))
        progress.show(Snapshot(places=places("done", "done"), jobs=1, note="two at once pay"))
    lines = text.getvalue().splitlines()
    assert [line.partition("   (")[0] for line in lines] == [
        "demo-s0: running, epoch 5 of 10 done",
        "demo-s0: failed: KeyError: 'a'",
        "demo-s1: running, epoch 5 of 10 done",
        "demo-s0: running again",
        "demo-s1: done, test accuracy 50.00 %, 1 min 30 s",
        "demo-s0: done, test accuracy 50.00 %, 1 min 30 s",
        "two at once pay",
    ]
    assert "0 of 2 cells done, 1 running, about 3 min 0 s left" in lines[0]


def test_on_a_terminal_there_is_a_table_with_a_line_per_cell() -> None:
    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True)
    with SweepProgress(console) as progress:
        progress.show(Snapshot(places=places("running", "done"), jobs=1))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("1 of 2 cells done", "demo-s0", "demo-s1", "5 of 10", "50.00 %", "1 min 30 s"):
        assert words in text


def test_a_small_terminal_shows_what_moves_and_counts_the_rest() -> None:
    table = live_table(Snapshot(places=places("done", "done", "waiting", "running"), jobs=1), most=3)
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "demo-s3" in text
    assert "and 2 more" in text


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written_does_not_cost_the_sweep() -> None:
    with SweepProgress(Console(file=FullDisk(), width=80)) as progress:
        progress.show(Snapshot(places=places("running"), jobs=1))
        assert progress.is_deaf
        progress.show(Snapshot(places=places("done"), jobs=1))


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.7, "1 min 0 s"), (3599, "59 min 59 s")])
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_value_of_brackets_without_end_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "demo", "--out", str(tmp_path / "out"), "--set", f"epochs={'[' * 20_000}"]) == 2
    assert "epochs" in capsys.readouterr().err


def test_a_name_that_is_too_long_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "demo", "--set", "epochs=1", "--out", str(tmp_path / ("x" * 300))]) == 2
    assert "too long" in capsys.readouterr().err
