"""Runs whose files hold what no run writes: left out with a reason, never shown as right, never a traceback."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import made_up

from goodness.cli import main
from goodness.paper.findings import findings
from goodness.paper.measured import in_training, margins, mined_anew, separation
from goodness.paper.pool import Pool
from goodness.paper.publish import publish
from goodness.runs import Run

Damage = Callable[[dict[str, Any]], None]


def of_last_line(change: Damage) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        path = run / "metrics.jsonl"
        *lines, last = path.read_text().splitlines()
        line = json.loads(last)
        change(line)
        path.write_text("\n".join([*lines, json.dumps(line)]) + "\n")

    return damage


def of_file(name: str, change: Damage) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        found = json.loads((run / name).read_text())
        change(found)
        (run / name).write_text(json.dumps(found))

    return damage


def set_in_training(value: object) -> Damage:
    return lambda line: line["train"]["blocks"][-1].update(sep_cur_mined=value)


METRICS = {
    "a word": of_last_line(set_in_training("much")),
    "not finite": of_last_line(set_in_training(math.nan)),
    "true": of_last_line(set_in_training(True)),
    "no blocks but numbers": of_last_line(lambda line: line["train"].update(blocks=[1, 2, 3, 4])),
    "fewer blocks": of_last_line(lambda line: line["train"].update(blocks=line["train"]["blocks"][:2])),
    "more blocks": of_last_line(lambda line: line["train"].update(blocks=2 * line["train"]["blocks"])),
    "no epoch": of_last_line(lambda line: line.pop("epoch")),
    "an epoch in words": of_last_line(lambda line: line.update(epoch="the last")),
}
OTHERS = {
    "accuracy in words": of_file("result.json", lambda found: found["reported"].update(accuracy="x")),
    "accuracy not finite": of_file("result.json", lambda found: found["reported"].update(accuracy=math.nan)),
    "no epochs": of_file("result.json", lambda found: found.pop("epochs")),
    "blocks that are numbers": of_file("result.json", lambda found: found["health"].update(test=[1, 2, 3, 4])),
    "points of two": of_file("health.json", lambda found: found.update(attenuation_points=[[[1, 2]]] * 4)),
    "early exit in words": of_file("health.json", lambda found: found.update(early_exit=["a"])),
}


@pytest.mark.parametrize("damage", METRICS)
def test_no_number_is_made_of_a_damaged_line(damage: str, tmp_path: Path) -> None:
    run = made_up(tmp_path, "lcff", 42, separation=[1.0, 2.0, 3.0, 4.0])
    assert separation(run) == [1.0, 2.0, 3.0, 4.0]
    METRICS[damage](run.path)
    assert separation(Run(run.path)) == in_training(Run(run.path), "g_neg") == []


@pytest.mark.parametrize("damage", {**METRICS, **OTHERS})
def test_one_damaged_run_takes_nothing_else_down(
    damage: str, trained: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained.path, tmp_path / "pool")
    where = ["--scale", "tiny", "--out", str(tmp_path / "pool")]
    {**METRICS, **OTHERS}[damage](tmp_path / "pool" / trained.cell("lcff", 42).folder_name / "run")
    assert main(["paper", *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in told["findings"]} == set(findings)
    for name in ("freeriding", "gamma_sweep"):
        assert main(["paper", f"tab:{name}", *where]) == 0
        assert "nan" not in capsys.readouterr().out


def no_blocks(found: dict[str, Any]) -> None:
    del found["blocks"]


def fewer_blocks(found: dict[str, Any]) -> None:
    found["blocks"] = found["blocks"][:2]


def empty(found: dict[str, Any]) -> None:
    found["blocks"] = []


def words(found: dict[str, Any]) -> None:
    found["blocks"][1]["sep_cur"] = "much"


@pytest.mark.parametrize("damage", [no_blocks, fewer_blocks, words, None])
def test_a_damaged_report_of_health_is_called_that(
    damage: Damage | None, trained: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish([trained.path], tmp_path / "published", figures=False)
    run = tmp_path / "published" / trained.cell("gamma0", 42).folder_name / "run"
    if damage is None:
        (run / "health.json").write_text("{")
    else:
        of_file("health.json", damage)(run)
    assert main(["health", str(run)]) == 1
    told = capsys.readouterr()
    assert "damaged" in told.err
    assert not told.out


NOT_FINITE: dict[str, Damage] = {
    "result.json": lambda found: found.update(seconds=math.nan),
    "health.json": lambda found: found["blocks"][1].update(sep_stream=math.nan),
    "environment.json": lambda found: found.update(cores=math.inf),
}


@pytest.mark.parametrize("name", [*NOT_FINITE, "metrics.jsonl"])
def test_a_run_with_a_number_that_is_not_finite_is_left_out_and_the_others_are_published(
    name: str, copied: Pool, tmp_path: Path
) -> None:
    run = copied.path / copied.cell("lcff", 42).folder_name / "run"
    if name == "metrics.jsonl":
        METRICS["not finite"](run)
    else:
        of_file(name, NOT_FINITE[name])(run)
    made = publish([copied.path], tmp_path / "published", figures=False)
    assert ("lcff", 42) not in made.runs
    (why,) = made.left_out.values()
    assert f"{name} is damaged" in why
    assert len(made.runs) == 4


@pytest.mark.parametrize("damage", [fewer_blocks, lambda found: found["blocks"][1].pop("sep_stream"), no_blocks, empty])
def test_margins_of_a_damaged_report_are_none(damage: Damage, copied: Pool) -> None:
    run = copied.run("lcff", 42)
    assert run is not None
    assert len(mined_anew(run)) == 4
    of_file("health.json", damage)(run.path)
    assert mined_anew(run) == []
    assert margins([run]) is mined_anew
