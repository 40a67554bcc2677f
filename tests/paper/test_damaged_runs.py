"""Runs whose files hold what no run writes: left out with a reason, never shown as right, never a traceback."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_runs import made_up

from goodness.cli import main
from goodness.durable import read_json, write_json
from goodness.errors import RunError, UserError
from goodness.paper import extras
from goodness.paper.findings import findings
from goodness.paper.judged import judge
from goodness.paper.measured import in_training, margins, mined_anew, separation
from goodness.paper.pool import Pool
from goodness.paper.publish import publish
from goodness.runs.run import Run
from goodness.sweep.work import work

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


def another_runs_predictions(pool: Pool, run: Path) -> None:
    other = pool.path / pool.cell("lcff", 42).folder_name / "run"
    shutil.copy(other / "predictions_test.npz", run)


def fewer_predictions(pool: Pool, run: Path) -> None:
    with np.load(run / "predictions_test.npz") as archive:
        cut = {name: values[:50] for name, values in archive.items()}
    np.savez(run / "predictions_test.npz", **cut)


def impossible(pool: Pool, run: Path) -> None:
    of_file("result.json", lambda found: found["reported"].update(accuracy=7.5))(run)


@pytest.mark.parametrize("damage", [another_runs_predictions, fewer_predictions, impossible])
def test_a_result_that_its_own_predictions_do_not_have_is_refused(
    damage: Callable[[Pool, Path], None], copied: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied.path / copied.cell("gamma0", 42).folder_name / "run"
    damage(copied, run)
    found = Pool.at("tiny", copied.path).look("gamma0", 42)
    assert found.run is None
    assert "its result has an accuracy of" in found.why
    published = publish([copied.path], tmp_path / "published", figures=False)
    assert any("its predictions" in why for why in published.left_out.values())
    where = ["--scale", "tiny", "--out", str(copied.path), "--json"]
    assert main(["paper", "tab:freeriding", *where]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert table["state"] != "complete"
    verdict = judge(extras.findings()["two-blocks-suffice"], Pool.at("tiny", copied.path)).verdict
    assert "Not read: gamma0, seed 42 (" in verdict.in_words
    assert main(["reproduce", "tab:freeriding", *where[:-1], "--seeds", "42", "--jobs", "1"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "but for 1 that lie there finished and are refused" in told
    assert f"remove it to train it anew (rm -r {run})" in told


def test_one_training_under_two_seeds_is_not_averaged(copied: Pool) -> None:
    first, second = (copied.path / copied.cell("gamma0", seed).folder_name / "run" for seed in (42, 123))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    of_file("config.json", lambda found: found.update(seed=123))(second)
    assert "seeds 42 and 123 have the same" in Pool.at("tiny", copied.path).trouble("gamma0", [42, 123])


@pytest.mark.parametrize("is_older", [False, True])
def test_a_run_that_lacks_its_last_epoch_leaves_its_table_incomplete(
    is_older: bool, copied: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--scale", "tiny", "--out", str(copied.path), "--seeds", "42", "--jobs", "1"]
    assert main(["reproduce", "tab:freeriding", *where]) == 0
    run = copied.path / copied.cell("lcff", 42).folder_name / "run"
    metrics = run / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    if is_older:
        of_file("result.json", lambda found: found.pop("epochs_sha256"))(run)
    capsys.readouterr()
    assert main(["reproduce", "tab:freeriding", *where]) == 1
    told = capsys.readouterr()
    assert "not all runs could be used, the tables say why: freeriding" in told.err
    said = "lacks a measure of blocks" if is_older else "its metrics.jsonl is damaged (1 of 2 epochs)"
    assert said in " ".join(told.out.split())


@pytest.mark.parametrize("shape", [lambda labels: labels[:-1], lambda labels: labels[:, None]])
def test_published_predictions_of_another_shape_are_called_damaged_and_made_good(
    shape: Callable[[np.ndarray], np.ndarray], trained: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "published"
    publish([trained.path], out, figures=False)
    file = out / trained.cell("gamma0", 42).folder_name / "run" / "predicted.npz"
    before = file.read_bytes()
    with np.load(file) as archive:
        spoiled = {name: shape(values) if name == "labels" else values for name, values in archive.items()}
    np.savez(file, **spoiled)
    assert main(["paper", "--scale", "tiny", "--out", str(out), "--json"]) == 0
    capsys.readouterr()
    assert "predicted.npz is damaged, or not the file that was" in Pool.at("tiny", out).look("gamma0", 42).why
    unsealed = {name: one for name, one in read_json(file.with_name("published.json")).items() if name != "files"}
    write_json(file.with_name("published.json"), unsealed)  # as older publications have it
    assert "is of no use" in Pool.at("tiny", out).look("gamma0", 42).why
    publish([trained.path], out, figures=False)
    assert file.read_bytes() == before


def test_a_link_that_leads_to_itself_is_no_place_to_publish(trained: Pool, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match="loop"):
        publish([trained.path], tmp_path / "loop", figures=False)


def test_a_file_in_a_folders_place_is_told_with_what_to_do(copied: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    (copied.path / "tables").write_text("")
    asked = ["--scale", "tiny", "--out", str(copied.path), "--seeds", "42", "--jobs", "1"]
    assert main(["reproduce", "tab:freeriding", *asked]) == 2
    assert "tables: File exists; a file stands where a folder belongs" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("content", ["", "[]", '{"preset": "gamma0", "seed": Infinity}'])
def test_a_cell_that_does_not_say_what_it_is_is_left_out_of_a_publication(
    content: str, copied: Pool, tmp_path: Path
) -> None:
    name = copied.cell("gamma0", 123).folder_name
    (copied.path / name / "cell.json").write_text(content)
    made = publish([copied.path], tmp_path / "published", figures=False)
    assert name in made.left_out
    assert ("gamma0", 42) in made.runs


def test_nothing_is_written_into_a_publication_by_reproduce(
    trained: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "published"
    publish([trained.path], out, figures=False)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    asked = ["reproduce", "tab:freeriding", "--scale", "tiny", "--seeds", "42", "--out", str(out)]
    assert main(asked) == 2
    assert "is a publication, which stays as it is" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("stage", ["run", "run/readout"])
def test_a_torn_result_is_written_again_from_the_checkpoint(stage: str, trained: Pool, tmp_path: Path) -> None:
    folder = trained.cell("gamma0", 42).folder_name
    shutil.copytree(trained.path / folder, tmp_path / folder)
    place = tmp_path / folder / stage / "result.json"
    before = read_json(place)
    place.write_text(place.read_text()[:40])
    work(tmp_path / folder, device="cpu")
    assert {**read_json(place), "seconds": before["seconds"]} == before
    assert not list((tmp_path / folder).glob("failed*"))


def test_a_torn_result_without_a_checkpoint_says_so(trained: Pool, tmp_path: Path) -> None:
    folder = trained.cell("gamma0", 42).folder_name
    shutil.copytree(trained.path / folder, tmp_path / folder)
    (tmp_path / folder / "run" / "result.json").write_text("")
    shutil.rmtree(tmp_path / folder / "run" / "checkpoints")
    with pytest.raises(RunError, match=r"result\.json is not what a run writes"):
        work(tmp_path / folder, device="cpu")


def test_epochs_that_are_nested_without_end_are_damage(trained: Pool, tmp_path: Path) -> None:
    shutil.copytree(trained.path, tmp_path / "pool")
    place = tmp_path / "pool" / trained.cell("lcff", 42).folder_name / "run" / "metrics.jsonl"
    place.write_text('{"a":' * 3000 + "\n" + place.read_text())
    assert main(["paper", "--scale", "tiny", "--out", str(tmp_path / "pool"), "--json"]) == 0
