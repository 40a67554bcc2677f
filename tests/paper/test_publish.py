"""A publication holds small files alone, names no machine, and gives the tables, figures and verdicts of its runs."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained_pools import make_another_training, train

from goodness.cli import main
from goodness.durable import read_json, write_json
from goodness.errors import RunError, UserError
from goodness.paper import extras, reduced
from goodness.paper.filled import fill
from goodness.paper.pool import Pool
from goodness.paper.publish import publish, seal
from goodness.paper.readers import READERS
from goodness.paper.suites import paper_table, paper_tables
from goodness.paper.writing import as_dict, records
from goodness.report.run_data import run_data
from goodness.runs.predictions import Predicted, packed, read_predicted
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.sweep.collect import TEST_ORDER
from goodness.sweep.published import is_published
from goodness.sweep.theory import THEORY


@pytest.fixture(scope="module")
def published(trained: Pool, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Not to be written to."""
    out = tmp_path_factory.mktemp("publication") / "paper-tiny"
    publish([trained.path], out)
    return Pool.at("tiny", out)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def place(pool: Pool, preset: str, seed: int) -> Path:
    return pool.path / pool.cell(preset, seed).folder_name / "run"


def spoil(path: Path, **changes: Any) -> None:
    """Change a file; one of a publication as if it had been published so."""
    write_json(path, {**read_json(path), **changes})
    if is_published(path.parent):
        seal(path.parent)


def as_near(value: Any) -> Any:
    """The same up to the rounding: numbers approximately, all else exactly."""
    if isinstance(value, dict):
        return {name: as_near(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_near(one) for one in value]
    return pytest.approx(value, rel=1e-3, abs=1e-6) if isinstance(value, float) else value


def same_numbers(pool: Pool, other: Pool) -> None:
    """Every cell of every table, every verdict."""
    for table in paper_tables():
        ours, theirs = as_dict(fill(table, pool)), as_dict(fill(table, other))
        assert as_near(ours["cells"]) == theirs["cells"], table.label
        assert [ours[name] for name in ("state", "remarks", "near")] == [
            theirs[name] for name in ("state", "remarks", "near")
        ]
    for finding in extras.findings().values():
        ours, theirs = finding.of(pool).as_dict(), finding.of(other).as_dict()
        assert as_near(ours) == json.loads(json.dumps(theirs)), finding.name


def drawn(figure: extras.Extra, pool: Pool) -> Any:
    """Every line, bar and point of a figure; or why it is not drawn."""
    try:
        made = figure.of(pool)
    except (UserError, RunError) as trouble:
        return str(trouble)
    return [
        [
            [line.get_xydata().tolist() for line in axes.get_lines()],
            [[bar.get_y(), bar.get_height()] for bar in axes.patches if hasattr(bar, "get_height")],
            [np.asarray(points.get_offsets()).tolist() for points in axes.collections],
        ]
        for axes in made.axes
    ]


def test_the_pool_reads_a_publication_as_it_reads_the_runs(trained: Pool, published: Pool) -> None:
    assert sorted(published.runs("gamma0", readout=True)) == [42, 123]
    assert published.run("lcff", 42) is not None
    assert published.look("lcff", 42, readout=True).why == "no Stage 2 yet"
    assert published.facts("gamma0", 42)[TEST_ORDER] == trained.facts("gamma0", 42)[TEST_ORDER] != ""
    same_numbers(trained, published)


def test_every_figure_is_drawn_from_the_same_numbers(trained: Pool, published: Pool) -> None:
    made = {name: drawn(figure, trained) for name, figure in extras.figures().items()}
    assert sum(not isinstance(one, str) for one in made.values()) > 3
    for name, figure in extras.figures().items():
        assert as_near(made[name]) == drawn(figure, published), name


def test_pairs_and_classes_with_tta_are_those_of_the_runs(blobs: Pool, tmp_path: Path) -> None:
    publish([blobs.path], tmp_path / "out", scale=blobs.scale, figures=False)
    other = Pool(tmp_path / "out", blobs.scale)
    same_numbers(blobs, other)
    pairs = [
        [one["ours"] for one in records(fill(paper_table("paired_dissociation"), pool, [42]))]
        for pool in (blobs, other)
    ]
    assert pairs[0] == pairs[1]
    assert sum(value is not None for value in pairs[0]) > 6
    run, copy = blobs.run("cifar100-gamma0", 42), other.run("cifar100-gamma0", 42)
    assert run is not None
    assert copy is not None
    classes = read_json(run.path / "health.json")["classes"]
    asked = paper_table("per_class").cells[0]
    for name in classes:
        cell = type(asked)(**{**vars(asked), "row": name})
        read = READERS["class_accuracy_tta"].read
        assert read(copy, cell) == pytest.approx(read(run, cell), nan_ok=True)


def test_only_small_files_are_published_and_no_weights(published: Pool) -> None:
    found = files(published.path)
    assert not [name for name in found if name.endswith((".safetensors", ".lock", "log.txt", ".svg", ".pdf", ".tex"))]
    assert not [name for name in found if "predictions" in name]
    runs = [path for path in published.path.iterdir() if (path / "cell.json").is_file()]
    assert len(runs) == 5
    assert all(sum(len(content) for content in files(run).values()) < 60_000 for run in runs)


def test_nothing_names_a_machine_a_person_or_a_path(copied: Pool, tmp_path: Path) -> None:
    environment = place(copied, "gamma0", 42) / "environment.json"
    facts = read_json(environment)
    facts |= {
        "command": "/home/somebody/bin/goodness cell /bigdisk/somebody",
        "host": "somebody-laptop",
        "user": "somebody",
    }
    facts["platform"] = "Linux-6.1-somebody-laptop-x86_64"
    facts["data"] |= {
        "dir": "/bigdisk/somebody",
        "provenance": "/bigdisk/somebody/digits.bin: checked; ~/somebody/more",
    }
    write_json(environment, {**facts, "resumed": [{**facts}]})
    publish([copied.path], tmp_path / "out", figures=False)
    for name, content in files(tmp_path / "out").items():
        text = content.decode(errors="replace")
        for secret in ("somebody", "bigdisk", str(tmp_path), str(copied.path), "/root", "/home", str(Path.home())):
            assert secret not in text, (name, secret)
    kept = read_json(tmp_path / "out" / environment.relative_to(copied.path))
    assert kept["data"] == {"provenance": "digits.bin: checked; more", "sha256": facts["data"]["sha256"]}
    assert kept["resumed"][0]["torch"] == facts["torch"]


def test_the_full_predictions_are_known_by_their_hash(trained: Pool, published: Pool) -> None:
    import hashlib

    for stage in ("", "readout"):
        full = place(trained, "gamma0", 42) / stage / "predictions_test.npz"
        about = read_json(place(published, "gamma0", 42) / stage / "published.json")
        assert about["sha256"] == {full.name: hashlib.sha256(full.read_bytes()).hexdigest()}
        assert "weights" in about["not_published"]


def test_publishing_twice_gives_the_same_bytes(trained: Pool, published: Pool, tmp_path: Path) -> None:
    again, first = tmp_path / "paper-tiny", files(published.path)
    publish([trained.path], again, figures=False)
    publish([trained.path], again)  # over the older one
    assert files(again) == first
    other = tmp_path / "of-a-publication" / "paper-tiny"
    publish([published.path], other)
    assert files(other) == first
    assert {path.name for path in tmp_path.iterdir()} == {"paper-tiny", "of-a-publication"}


def test_a_new_pool_replaces_its_own_cells_and_leaves_the_others(copied: Pool, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, preset in ((first, "gamma0"), (second, "lcff")):
        folder.mkdir()
        for path in copied.path.glob(f"{preset}-*"):
            shutil.copytree(path, folder / path.name)
    out = tmp_path / "out"
    assert publish([first], out, figures=False).kept == ()
    before = files(out)
    made = publish([second], out, figures=False)
    assert made.runs == (("lcff", 42),)
    assert sorted(made.kept) == [("gamma0", 42), ("gamma0", 123)]
    pool = Pool.at("tiny", out)
    assert (sorted(pool.runs("gamma0")), sorted(pool.runs("lcff"))) == ([42, 123], [42])
    after = files(out)
    assert {name: after[name] for name in before if name.startswith("gamma0-")} == {
        name: content for name, content in before.items() if name.startswith("gamma0-")
    }
    together = tmp_path / "together" / "out"
    publish([first, second], together, figures=False)
    assert files(together) == after
    spoil(place(Pool.at("tiny", second), "lcff", 42) / "result.json", seconds=77.0)
    publish([second], out, figures=False)
    assert read_json(place(pool, "lcff", 42) / "result.json")["seconds"] == 77.0


def test_files_and_links_that_publish_did_not_write_stay(copied: Pool, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    publish([copied.path], out)
    clean = files(out)
    run = place(Pool.at("tiny", out), "gamma0", 42)
    mine = [out, out / "tables", out / "figures", run.parent, run, run / "readout", run / "drawn"]
    elsewhere.mkdir()
    for folder in mine:
        folder.mkdir(exist_ok=True)
        (folder / "my-notes.txt").write_text(folder.name)
        (folder / "mine.json").write_text("{}")
        (folder / "file").symlink_to(os.path.relpath(elsewhere / "page.md", folder))
        (folder / "lost").symlink_to("nowhere")
        (folder / "folder").symlink_to(elsewhere)
    for ours in (out / "README.md", run / "result.json"):
        ours.rename(elsewhere / "page.md")
        ours.symlink_to(elsewhere / "page.md")
    before = files(elsewhere)
    for stale in (out / "tables" / "freeriding.tex", out / "figures" / "freeriding.svg"):
        stale.write_text("of an earlier goodness reproduce")
    publish([copied.path], out)
    for folder in mine:
        assert (folder / "my-notes.txt").read_text() == folder.name
        assert (folder / "file").resolve() == elsewhere / "page.md"
        assert os.readlink(folder / "lost") == "nowhere"
        assert os.readlink(folder / "folder") == str(elsewhere)
    after = files(out)
    assert {name: after.get(name) for name in clean} == clean
    ours = {name for name in after if Path(name).name not in ("my-notes.txt", "mine.json", "file")}
    assert ours == set(clean)
    assert files(elsewhere) == before
    assert not (out / "README.md").is_symlink()


def test_what_another_training_lacks_goes_and_notes_on_it_stay(copied: Pool, tmp_path: Path) -> None:
    bare, out = without_extras(copied, tmp_path / "bare"), tmp_path / "out"
    publish([copied.path], out, figures=False)
    make_another_training(place(bare, "gamma0", 42), "0" * 64)
    make_another_training(place(bare, "gamma0", 123), "1" * 64)
    readout, other = (place(Pool.at("tiny", out), "gamma0", seed) / "readout" for seed in (42, 123))
    (readout / "my-notes.txt").touch()
    publish([bare.path], out, figures=False)
    assert [path.name for path in readout.iterdir()] == ["my-notes.txt"]
    assert not other.exists()
    assert not Pool.at("tiny", out).runs("gamma0", readout=True)


@pytest.mark.parametrize("where", ["tables", "figures", "run", "cell"])
def test_nothing_is_written_where_a_link_to_a_folder_leads(where: str, copied: Pool, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    publish([copied.path], out, figures=False)
    run = place(Pool.at("tiny", out), "gamma0", 42)
    folder = {"run": run, "cell": run.parent}.get(where, out / where)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = files(elsewhere)
    with pytest.raises(UserError, match=f"{folder.name} of the publication is a link to .*elsewhere"):
        publish([copied.path], out, figures=False)
    assert files(elsewhere) == before
    assert folder.is_symlink()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_runs_of_two_versions_are_refused_and_nothing_is_changed(copied: Pool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish([copied.path], out, figures=False)
    before = files(out)
    spoil(place(copied, "gamma0", 123) / "environment.json", method_version=2)
    with pytest.raises(UserError, match=r"gamma0 are not of one kind \(cumulative: 1 and 2\).*--mixed-versions"):
        publish([copied.path], out, figures=False)
    assert files(out) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    publish([copied.path], out, mixed_versions=True, figures=False)
    assert sorted(Pool.at("tiny", out).runs("gamma0")) == [42, 123]  # it says itself that they are mixed
    publish([copied.path], out, figures=False)
    assert "--mixed-versions" in (out / "README.md").read_text()


def test_another_test_order_than_that_of_older_runs_is_refused(copied: Pool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish([copied.path], out, figures=False)
    folder = RunFolder(place(copied, "lcff", 42), None)
    saved = folder.read_predictions("test")
    folder.write_predictions("test", saved["scores"][::-1], saved["labels"][::-1], saved["indices"][::-1])
    with pytest.raises(UserError, match="in another order"):
        publish([copied.path], out, figures=False)


def test_two_trainings_of_one_run_are_not_mixed(copied: Pool, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(copied.path, other)
    publish([copied.path, other], tmp_path / "out", figures=False)  # the same training twice is one
    make_another_training(place(Pool.at("tiny", other), "lcff", 42), "0" * 64)
    with pytest.raises(UserError, match="two different trainings"):
        publish([copied.path, other], tmp_path / "out", figures=False)


def without_extras(pool: Pool, folder: Path) -> Pool:
    """The same trainings, without Stage 2 and without a check of the theorems."""
    shutil.copytree(pool.path, folder)
    for extra in [*folder.glob("*/run/readout"), *folder.glob(f"*/run/{THEORY}")]:
        shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
    return Pool.at("tiny", folder)


def test_what_one_source_lacks_of_the_same_training_another_gives(copied: Pool, tmp_path: Path) -> None:
    write_json(place(copied, "gamma0", 42) / THEORY, {"examples": 32, "blocks": []})
    bare = without_extras(copied, tmp_path / "bare")
    whole = tmp_path / "whole" / "out"
    publish([copied.path], whole, figures=False)
    wanted = files(whole)
    assert [name for name in wanted if name.endswith(f"run/{THEORY}")]
    for name, pools in (("first", [bare.path, copied.path]), ("last", [copied.path, bare.path])):
        publish(pools, tmp_path / name / "out", figures=False)
        assert files(tmp_path / name / "out") == wanted
    publish([bare.path], whole, figures=False)  # over the publication that has them
    assert files(whole) == wanted


def test_another_training_takes_nothing_from_the_older_one(copied: Pool, tmp_path: Path) -> None:
    bare, out = without_extras(copied, tmp_path / "bare"), tmp_path / "out"
    publish([copied.path], out, figures=False)
    make_another_training(place(bare, "gamma0", 42), "0" * 64)
    publish([bare.path], out, figures=False)
    assert sorted(Pool.at("tiny", out).runs("gamma0", readout=True)) == [123]


def test_two_trainings_of_one_readout_are_not_mixed(copied: Pool, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(copied.path, other)
    make_another_training(place(Pool.at("tiny", other), "gamma0", 42) / "readout", "0" * 64)
    with pytest.raises(UserError, match=r"gamma0, seed 42, .* two different trainings of Stage 2"):
        publish([copied.path, other], tmp_path / "out", figures=False)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_publication_that_was_set_aside_when_all_ended_is_brought_back(
    is_made: bool, copied: Pool, tmp_path: Path
) -> None:
    first, out, aside = tmp_path / "first", tmp_path / "out", tmp_path / ".out.01234567.old"
    first.mkdir()
    for path in copied.path.glob("lcff-*"):
        path.rename(first / path.name)
    publish([copied.path], out, figures=False)
    out.rename(aside)
    if is_made:
        out.mkdir()
    made = publish([first], out, figures=False)
    assert len(made.kept) == 4
    assert sorted(Pool.at("tiny", out).runs("gamma0")) == [42, 123]
    assert not aside.exists()


def test_a_stop_before_the_new_publication_is_in_place_leaves_the_older_one(
    copied: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    publish([copied.path], out, figures=False)
    before = files(out)

    def rename(self: Path, target: Path) -> Path:
        if self.name.endswith(".building"):
            raise KeyboardInterrupt
        return self.replace(target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            publish([copied.path], out, figures=False)
    assert files(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"out", "pool"}


def test_runs_of_earlier_settings_stay_and_are_named(
    copied: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    publish([copied.path], out, figures=False)
    other_scale, other_preset = "gamma0-abcdef-s42", copied.cell("lcff", 42).folder_name
    (out / copied.cell("gamma0", 42).folder_name).rename(out / other_scale)
    spoil(out / other_preset / "run" / "config.json", epochs=77)
    for name in ("gamma0", "lcff"):
        for path in copied.path.glob(f"{name}-*-s42"):
            shutil.rmtree(path)
    assert main(["publish", str(copied.path), "--out", str(out), "--no-figures", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["earlier"], told["kept"]) == ([other_scale, other_preset], [])
    page = (out / "README.md").read_text()
    named = page.partition("## Of earlier settings")[2].partition("##")[0]
    assert re.findall("^- (.*)$", named, re.MULTILINE) == [other_scale, other_preset]
    assert main(["publish", str(copied.path), "--out", str(out), "--no-figures"]) == 0
    assert other_scale in capsys.readouterr().err


def test_a_second_stage_of_earlier_settings_is_named_and_its_first_is_read(copied: Pool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish([copied.path], out, figures=False)
    name = copied.cell("gamma0", 42).folder_name
    earlier = {**read_json(out / name / "run" / "config.json")["readout"], "lr": 0.5}
    for folder in (out, copied.path):
        for stage in ("run", "run/readout"):
            spoil(folder / name / stage / "config.json", readout=earlier)
    assert Pool.at("tiny", out).run("gamma0", 42) is not None
    assert Pool.at("tiny", out).run("gamma0", 42, readout=True) is None
    for path in copied.path.glob("gamma0-*-s42"):
        shutil.copytree(path, tmp_path / "new" / path.name)
        shutil.rmtree(path)
    made = publish([copied.path], out, figures=False)
    assert made.earlier == (f"{name}/run/readout",)
    assert f"- {name}/run/readout\n" in (out / "README.md").read_text()
    page = (out / "README.md").read_text()
    (row,) = re.findall(r"^\| gamma0 \|.*$", page, re.MULTILINE)
    other = Run(out / copied.cell("gamma0", 123).folder_name / "run" / "readout")
    assert row.split(" | ")[6] == f"{100 * other.accuracy:.2f} (1)"  # of seed 123 alone
    made = publish([tmp_path / "new"], out, figures=False)
    assert (made.earlier, list(made.removed)) == ((), [f"{name}/run/readout"])
    assert "readout.lr 0.5, not 0.001" in made.removed[f"{name}/run/readout"]
    assert "readout.lr 0.5, not 0.001" in made.left_out[f"{name}, Stage 2"]
    assert not (out / name / "run" / "readout").exists()


def test_a_difference_that_no_option_accepts_is_not_said_to_be_accepted(copied: Pool, tmp_path: Path) -> None:
    spoil(place(copied, "gamma0", 42) / "environment.json", dtype="bfloat16")
    with pytest.raises(UserError, match=r"dtype: bfloat16.*\); publish them in another folder"):
        publish([copied.path], tmp_path / "out", figures=False)


def test_a_second_stage_of_earlier_settings_is_not_taken_with_its_first(copied: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    out, name = tmp_path / "out", copied.cell("gamma0", 42).folder_name
    publish([copied.path], out, figures=False)
    earlier = {**read_json(out / name / "run" / "config.json")["readout"], "lr": 0.5}
    for stage in ("run", "run/readout"):
        spoil(out / name / stage / "config.json", readout=earlier)
    pool = Pool.at("tiny", tmp_path / "new")
    reproduce(["tab:gamma_sweep"], pool, seeds=[42], device="cpu", published=[out])
    assert (pool.path / name / "run" / "published.json").is_file()
    assert not (pool.path / name / "run" / "readout").exists()
    made = reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu", published=[out])
    assert made.failed == {}
    assert Run(pool.path / name / "run" / "readout").config.readout.lr == 1e-3


def test_what_is_not_finished_is_left_out_and_named(copied: Pool, tmp_path: Path) -> None:
    (place(copied, "cp-fair", 42) / "result.json").unlink()
    made = publish([copied.path], tmp_path / "out", figures=False)
    assert made.left_out == {copied.cell("cp-fair", 42).folder_name: "stopped, not finished"}
    page = (tmp_path / "out" / "README.md").read_text()
    assert re.search(r"^- cp-fair: seed 42; 123", page, re.MULTILINE)


@pytest.mark.parametrize("command", ["resume", "eval", "readout", "health --tta", "theory", "audit", "cell"])
def test_what_needs_weights_says_that_they_were_not_published(
    command: str, published: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(published.path)
    for path in (place(published, "gamma0", 42), place(published, "gamma0", 42).parent):
        name, *options = command.split()
        assert main([name, str(path), *options]) == 2
        assert "its weights were not published" in " ".join(capsys.readouterr().err.split())
    assert files(published.path) == before


def test_compare_and_report_say_what_was_not_published(
    published: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(place(published, preset, 42)) for preset in ("gamma0", "lcff")]
    assert main(["compare", *runs, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == [f"{run}: its class scores were not published" for run in runs]
    assert [group["accuracy"]["n"] for group in told["groups"]] == [1, 1]
    found = run_data(Run(Path(runs[0]) / "readout"), "a", "a")
    assert "the margins of the predictions: class scores were not published" in found["missing"]
    seen = read_predicted(Run(Path(runs[0]) / "readout"))
    assert sum(row[place] for place, row in enumerate(found["classes"]["confusion"])) == seen.correct.sum()
    assert found["classes"]["n"] == len(seen.labels)


def test_nothing_is_trained_in_a_publication(published: Pool) -> None:
    from goodness.paper.reproduce import reproduce

    with pytest.raises(UserError, match="lacks 4 runs, and nothing is trained there"):
        reproduce(["tab:multiseed", "tab:main_dissociation"], published, seeds=[42], device="cpu")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (folder / "out").mkdir() or (folder / "out" / "letter").write_text("dear"), "other things"),
        (lambda folder: shutil.rmtree(folder / "pool"), "there is no folder of runs"),
        (
            lambda folder: [path.unlink() for path in (folder / "pool").glob("*/cell.json")],
            "hold no run of the paper's",
        ),
    ],
)
def test_a_mistake_is_told(make: Any, words: str, copied: Pool, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(UserError, match=words):
        publish([copied.path], tmp_path / "out", figures=False)


def test_a_single_published_run_is_no_place_for_a_publication(
    published: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (place(published, "gamma0", 42), place(published, "gamma0", 42) / "readout"):
        assert main(["publish", str(published.path), "--out", str(folder)]) == 2
        assert "is a single published run" in " ".join(capsys.readouterr().err.split())


def test_the_page_names_the_folder_as_it_was_given(
    copied: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, named in (("kept/here", "kept/here"), (tmp_path / "kept" / "there", "there")):
        publish([copied.path], given, figures=False)
        page = (tmp_path / given / "README.md").read_text()
        assert f"goodness publish runs/paper/tiny --out {named}\n" in page
        assert f"goodness paper --scale tiny --out {named}\n" in page


def test_without_a_pool_the_command_says_what_to_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--out", str(tmp_path / "out")]) == 2
    assert "name the folder of runs" in capsys.readouterr().err


def test_the_command_line_publishes_and_reads(
    trained: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "paper-tiny"
    assert main(["publish", str(trained.path), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["scale"], len(told["runs"])) == ("tiny", 5)
    assert told["bytes"] == sum(len(content) for content in files(out).values())
    assert main(["paper", "freeriding", "--scale", "tiny", "--out", str(out), "--json"]) == 0
    table, figure = json.loads(capsys.readouterr().out)
    assert table["state"] == "complete"
    assert figure["files"] == [str(out / "figures" / "freeriding.png")]
    assert main(["paper", "freeriding", "--out", str(out)]) == 2
    assert "add --scale tiny" in capsys.readouterr().err
    assert main(["paper", "--scale", "tiny", "--out", str(tmp_path / "nosuch")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_page_has_every_run_and_links_to_files_that_are_there(trained: Pool, published: Pool) -> None:
    page = (published.path / "README.md").read_text()
    values = [100 * run.accuracy for run in trained.runs("gamma0").values()]
    assert (
        f"| gamma0 | digits-sample | 2 | 42 123 | {np.mean(values):.2f} ± {np.std(values, ddof=1):.2f} (2) | -" in page
    )
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert all((published.path / link).is_file() for link in links)
    assert {"tables/freeriding.md", "tables/freeriding.csv", "figures/freeriding.png"} <= set(links)
    assert {f"tables/{path.name}" for path in (published.path / "tables").iterdir()} <= set(links)
    assert "goodness reproduce all --scale tiny" in page
    assert "mean nothing" in page
    assert "| mgc | cannot be told yet |" in page
    assert {"findings.md", "findings.csv"} <= set(links)


def test_a_publication_has_every_verdict_with_its_numbers(trained: Pool, published: Pool) -> None:
    rows = list(csv.DictReader((published.path / "findings.csv").read_text().splitlines()))
    assert [row["finding"] for row in rows] == list(extras.findings())
    for row in rows:
        verdict = extras.findings()[row["finding"]].of(trained)
        assert (row["outcome"], int(row["n"])) == (verdict.outcome, verdict.n)
        for name in ("estimate", "low", "high"):
            value = getattr(verdict, name)
            assert row[name] == "" if value is None else float(row[name]) == pytest.approx(value, rel=1e-3, abs=1e-6)
    assert any(row["estimate"] for row in rows)


# The parts


@pytest.mark.parametrize(
    ("provenance", "kept"),
    [
        (
            "/home/user/cifar-10-batches-bin: lengths checked; all known",
            "cifar-10-batches-bin: lengths checked; all known",
        ),
        ("data/cifar-10-batches-bin: lengths checked", "cifar-10-batches-bin: lengths checked"),
        ("~ada/data/x.bin: checked", "x.bin: checked"),
        ("~ada/data/x.bin", "x.bin"),
        ("/home/user b, c/my data/x y.bin: 1,000 images, all 8x8 RGB", "x y.bin: 1,000 images, all 8x8 RGB"),
        ("/home/ada: private/data/x.bin: checked", "x.bin: checked"),
        ("/home/ada: my: own/a: b/x.bin: checked; unknown: y.bin", "x.bin: checked; unknown: y.bin"),
        ("data: ada/x.bin: 5 images, train/val apart", "x.bin: 5 images, train/val apart"),
        ("/home/ada/my: own: 5 images", "my: own: 5 images"),
        (r"C:\Users\ada: x\mnist: headers checked", "mnist: headers checked"),
        ("mnist: from https://x.org/a/b.tgz: checked", "mnist: from https://x.org/a/b.tgz: checked"),
        (r"C:\Users\ada\mnist: headers checked", "mnist: headers checked"),
        ("file:///home/user/x.bin: checked", "x.bin: checked"),
        ("file:///home/user/x.bin", "x.bin"),
        ("https://x.org/a/b.tgz", "https://x.org/a/b.tgz"),
        ("https://x.org/a/b.tgz: checked", "https://x.org/a/b.tgz: checked"),
        ("https://x.org/a.tgz: kept at /home/ada/x.bin: checked", "https://x.org/a.tgz: kept at x.bin: checked"),
        ("mnist: from https://x.org/a/b.tgz, train/val images", "mnist: from https://x.org/a/b.tgz, train/val images"),
        ("train/val images", "train/val images"),
        ("scikit-learn 1.5 load_digits; the first of them", "scikit-learn 1.5 load_digits; the first of them"),
        ("mnist: checked; ~/ada/more", "mnist: checked; more"),
    ],
)
def test_where_data_came_from_is_kept_without_its_folders(provenance: str, kept: str) -> None:
    assert reduced.without_place(provenance) == kept


def test_predicted_classes_are_packed_and_unpacked(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    for count in (10, 200, 1000):
        labels, indices = draws.integers(0, count, 500), draws.permutation(5000)[:500]
        views = {
            view: Predicted(draws.integers(0, count, 500), labels.astype(np.int64), indices.astype(np.int64))
            for view in ("test", "test_tta")
        }
        (tmp_path / "predicted.npz").write_bytes(packed(views))
        for view, one in views.items():
            read = read_predicted(Run(tmp_path), view)
            for name in ("classes", "labels", "indices"):
                assert np.array_equal(getattr(read, name), getattr(one, name))
                assert getattr(read, name).dtype == np.int64
    (tmp_path / "predicted.npz").write_bytes(b"torn")
    with pytest.raises(RunError, match="cannot be read"):
        read_predicted(Run(tmp_path))


def test_a_long_run_keeps_its_accuracies_its_times_and_some_of_its_blocks() -> None:
    block = {"loss": 1 / 3, "loss_curr": 0.1, "g_pos": math.pi, "aspect_energy": 2.0}
    lines: list[dict[str, Any]] = [
        {"epoch": epoch, "train": {"blocks": [block] * 2}, "seconds": 1000.123 + epoch} for epoch in range(400)
    ]
    for line in lines[4::5]:
        line["val"] = {"accuracy": 0.123456789, "n": 5000, "blocks": [block]}
    kept = reduced.metrics(lines)
    assert [line["epoch"] for line in kept] == list(range(400))
    assert [line["seconds"] for line in kept] == [line["seconds"] for line in lines]
    assert [line["epoch"] for line in kept if "val" in line] == list(range(4, 400, 5))
    whole = [line for line in kept if "train" in line]
    assert len(whole) == reduced.MOST_EPOCHS
    assert {whole[0]["epoch"], whole[-1]["epoch"]} == {4, 399}
    assert whole[0]["train"]["blocks"][1] == {"loss": 0.33333, "loss_curr": 0.1, "g_pos": 3.1416}
    assert whole[0]["val"] == {"accuracy": 0.12346, "n": 5000}
    short = reduced.metrics(lines[:20])
    assert all("train" in line for line in short)


def test_margins_keep_their_sign() -> None:
    points = [[[-1e-9, 0.123456, 1.0]], [[0.0, -0.123456, 2.34567]]]
    exits = [{"accuracy": 1 / 3, "saved": 0.1}]
    full = {"attenuation_points": points, "attenuation_weights": [[0.7]], "beta": 4 / 3, "early_exit": exits}
    assert reduced.health(full) == {
        "beta": 1.3333,
        "early_exit": exits,
        "attenuation_points": [[[-1e-9, 0.12, 1.0]], [[0.0, -0.123, 2.35]]],
    }


def test_published_runs_are_taken_and_not_trained_again(published: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    pool = Pool.at("tiny", tmp_path / "pool")

    class Refusing:
        def start(self, cell: Any, folder: Path) -> Any:
            raise AssertionError(f"{cell.preset} is trained again")

    asked = ["tab:gamma0_multiseed"]
    made = reproduce(asked, pool, seeds=[42, 123], device="cpu", engine=Refusing(), published=[published.path])
    assert made.failed == {}
    assert (
        as_dict(made.tables[0])["cells"]
        == as_dict(fill(paper_table("gamma0_multiseed"), published, [42, 123]))["cells"]
    )
    # What a publication lacks is trained beside the runs that came from it, and all are published together.
    made = reproduce(asked, pool, seeds=[42, 456], device="cpu", published=[published.path])
    assert made.failed == {}
    assert len(list(pool.path.glob("*/run/published.json"))) == 2
    publish([pool.path], tmp_path / "again", figures=False)
    assert sorted(Pool.at("tiny", tmp_path / "again").runs("gamma0", readout=True)) == [42, 123, 456]


def test_a_run_that_was_taken_without_its_second_stage_is_trained_when_that_is_asked_for(
    copied: Pool, tmp_path: Path
) -> None:
    from goodness.paper.reproduce import reproduce

    whole, bare = tmp_path / "whole", tmp_path / "bare"
    publish([copied.path], whole, figures=False)
    shutil.rmtree(copied.path / copied.cell("gamma0", 42).folder_name / "run" / "readout")
    publish([copied.path], bare, figures=False)
    pool = Pool.at("tiny", tmp_path / "new")
    place = pool.path / pool.cell("gamma0", 42).folder_name / "run"
    for publication, is_copy in ((bare, False), (whole, True)):
        reproduce(["tab:gamma_sweep"], pool, seeds=[42], device="cpu", published=[bare])
        assert (place / "published.json").is_file()
        assert not (place / "readout").exists()
        (place.parent / "my-notes.txt").touch()
        made = reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu", published=[publication])
        assert made.failed == {}
        assert (place / "readout" / "published.json").is_file() == is_copy
        assert (place.parent / "failed-1" / "published.json").is_file()  # set aside, as nothing is ever deleted
        assert (place.parent / "my-notes.txt").exists()
        shutil.rmtree(pool.path)


def test_a_copy_of_another_version_is_refused_before_anything_moves(copied: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    shutil.rmtree(copied.path / copied.cell("gamma0", 42).folder_name / "run" / "readout")
    publish([copied.path], tmp_path / "bare", figures=False)
    pool = Pool.at("tiny", tmp_path / "new")
    reproduce(["tab:gamma_sweep"], pool, seeds=[42], device="cpu", published=[tmp_path / "bare"])
    folder = pool.path / pool.cell("gamma0", 42).folder_name
    spoil(folder / "run" / "environment.json", method_version=2)
    before = files(folder)
    with pytest.raises(UserError, match="another version"):
        reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu")
    assert files(folder) == before


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("run/result.json", "{", "is not taken from"),
        ("run/published.json", None, "it is no published run: files are missing"),
        ("cell.json", None, "it is no published run: files are missing"),
    ],
)
def test_a_damaged_run_is_named_and_trained(
    name: str, text: str | None, words: str, published: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(published.path, damaged)
    file = damaged / published.cell("gamma0", 42).folder_name / name
    file.unlink() if text is None else file.write_text(text)
    asked = ["reproduce", "gamma0_multiseed", "--scale", "tiny", "--seeds", "42", "--out", str(tmp_path / "pool")]
    assert main([*asked, "--device", "cpu", "--published", str(damaged)]) == 0
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "pool").glob("*/run/published.json"))


def test_a_publication_whose_page_is_damaged_is_told(published: Pool, tmp_path: Path) -> None:
    shutil.copytree(published.path, tmp_path / "q")
    (tmp_path / "q" / "published.json").write_text("[]")
    with pytest.raises(UserError, match="is not what goodness publish writes"):
        Pool.at("tiny", tmp_path / "q")


def test_a_read_only_publication_gives_runs_that_can_be_changed(published: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    shutil.copytree(published.path, tmp_path / "locked")
    for path in (tmp_path / "locked").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    pool = Pool.at("tiny", tmp_path / "pool")
    reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu", published=[tmp_path / "locked"])
    assert all(path.stat().st_mode & 0o200 for path in pool.path.rglob("*"))


def test_another_training_that_takes_a_place_is_told(copied: Pool, tmp_path: Path) -> None:
    publish([copied.path], tmp_path / "out", figures=False)
    folder = copied.path / copied.cell("gamma0", 42).folder_name / "run"
    shutil.rmtree(folder / "readout")
    make_another_training(folder, "e" * 64)
    made = publish([copied.path], tmp_path / "out", figures=False)
    assert made.replaced == {folder.parent.name: "its Stage 2"}


def test_a_publication_of_another_scale_is_refused(published: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    with pytest.raises(UserError, match="has runs at the scale 'tiny', not 'short'"):
        reproduce(["mgc"], Pool.at("short", tmp_path / "new"), device="cpu", published=[published.path])


def test_seconds_of_runs_that_shared_a_gpu_are_not_shown(copied: Pool, tmp_path: Path) -> None:
    folder = copied.path / copied.cell("bp-strong", 42).folder_name
    for device, shown in (("cpu", True), ("cuda", False)):
        spoil(folder / "run" / "environment.json", device=device)
        (folder / "shared").touch()
        publish([copied.path], tmp_path / device, figures=False)
        for pool in (Pool.at("tiny", copied.path), Pool.at("tiny", tmp_path / device)):
            cells = as_dict(fill(paper_table("efficiency"), pool))["cells"]
            assert ("shared a GPU" in str(cells)) != shown


def test_a_publication_of_another_version_is_not_taken(copied: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    for path in copied.path.glob("gamma0-*/run/**/environment.json"):
        spoil(path, method_version=2)
    publish([copied.path], tmp_path / "old", figures=False)
    pool = Pool.at("tiny", tmp_path / "new")
    with pytest.raises(UserError, match="another version"):
        reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu", published=[tmp_path / "old"])
    assert not list(pool.path.glob("*/cell.json"))
    with pytest.raises(UserError, match="no publication"):
        reproduce(["tab:gamma0_multiseed"], pool, seeds=[42], device="cpu", published=[copied.path])


def test_two_publications_with_different_trainings_of_a_run_are_refused(copied: Pool, tmp_path: Path) -> None:
    from goodness.paper.reproduce import reproduce

    one, same, other = tmp_path / "one", tmp_path / "same", tmp_path / "other"
    publish([copied.path], one, figures=False)
    shutil.copytree(one, same)
    shutil.copytree(one, other)
    make_another_training(other / copied.cell("gamma0", 42).folder_name / "run", "e" * 64)
    asked, pool = ["tab:gamma_sweep"], Pool.at("tiny", tmp_path / "new")
    with pytest.raises(UserError, match="two different trainings; name one of them"):
        reproduce(asked, pool, seeds=[42], device="cpu", published=[one, other])
    assert reproduce(asked, pool, seeds=[42], device="cpu", published=[one, same]).failed == {}


def test_the_page_says_which_runs_lack_a_second_stage_and_which_shared_their_device(
    copied: Pool, tmp_path: Path
) -> None:
    needed = r"all tables, figures and findings: (\d+) of \d+ runs(?:, (\d+) more without Stage 2)?"
    publish([copied.path], tmp_path / "before", figures=False)
    before = (tmp_path / "before" / "README.md").read_text()
    assert "shared their device" not in before
    folder = copied.path / copied.cell("gamma0", 42).folder_name
    (folder / "shared").touch()
    shutil.rmtree(folder / "run" / "readout")
    publish([copied.path], tmp_path / "after", figures=False)
    after = (tmp_path / "after" / "README.md").read_text()
    counts = [re.search(needed, page) for page in (before, after)]
    assert all(counts)
    (there, lacking), (still, more) = ([int(one or 0) for one in found.groups()] for found in counts if found)
    assert (still, more) == (there - 1, lacking + 1)
    assert "1 shared their device with others" in after


def test_the_page_accounts_for_every_run(copied: Pool, tmp_path: Path) -> None:
    pattern = r"- runs: (\d+),.*findings: (\d+) of \d+ runs(?:, (\d+) more without Stage 2)?(?:, and (\d+) of seeds)?"
    for beyond in (0, 1):
        if beyond:
            train(copied, {("bp-strong", 123): False})
        publish([copied.path], tmp_path / "out", figures=False)
        found = re.search(pattern, (tmp_path / "out" / "README.md").read_text(), flags=re.DOTALL)
        assert found is not None
        runs, whole, half, others = (int(one or 0) for one in found.groups())
        assert (runs, others) == (5 + beyond, beyond)
        assert runs == whole + half + others


def test_the_command_line_says_which_runs_are_published(published: Pool, tmp_path: Path, capsys: Any) -> None:
    asked = ["gamma0_multiseed", "--scale", "tiny", "--seeds", "42,456", "--out", str(tmp_path / "pool"), "--dry-run"]
    assert main(["reproduce", *asked, "--published", str(published.path)]) == 0
    said = capsys.readouterr().out
    assert [line.endswith(", published") for line in said.splitlines() if "seed 42:" in line] == [True]
    assert "1 of 2 runs to do" in said


def test_a_run_that_lost_files_takes_no_place_of_a_whole_one(copied: Pool, tmp_path: Path) -> None:
    out = tmp_path / "publication"
    publish([copied.path], out, figures=False)
    spoilt, before = place(copied, "gamma0", 42), files(out / copied.cell("gamma0", 42).folder_name)
    assert {"run/metrics.jsonl", "run/health.json"} <= before.keys()
    for name in ("metrics.jsonl", "health.json"):
        (spoilt / name).unlink()
    made = publish([copied.path], out, figures=False)
    assert made.left_out[copied.cell("gamma0", 42).folder_name] == "its metrics.jsonl has 0 of 2 epochs"
    assert ("gamma0", 42) in made.kept
    assert files(out / copied.cell("gamma0", 42).folder_name) == before


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("metrics.jsonl", "{}\n{}\n", "is damaged"),
        ("metrics.jsonl", '{"epoch":0}\n{"epo', "1 of 2 epochs"),
        ("health.json", "[]", "is damaged"),
        ("health.json", '{"blo', "is not valid JSON"),
        ("predictions_test.npz", "", "predictions_test.npz"),
    ],
)
def test_a_damaged_run_is_left_out_with_the_reason(copied: Pool, name: str, content: str, why: str) -> None:
    (place(copied, "gamma0", 42) / name).write_text(content)
    made = publish([copied.path], copied.path.parent / "publication", figures=False)
    assert why in made.left_out[copied.cell("gamma0", 42).folder_name]
    assert ("gamma0", 42) not in made.runs
    assert ("gamma0", 123) in made.runs


@pytest.mark.parametrize("name", ["health.json", "metrics.jsonl", "result.json", "environment.json"])
def test_a_file_of_another_published_run_is_found_out(name: str, published: Pool, tmp_path: Path) -> None:
    """Also where nothing in it contradicts the others."""
    shutil.copytree(published.path, tmp_path / "copy")
    copy = Pool.at("tiny", tmp_path / "copy")
    shutil.copy(place(copy, "lcff", 42) / name, place(copy, "gamma0", 42))
    assert f"{name} is damaged, or not the file that was published with the others" in copy.look("gamma0", 42).why
    assert copy.run("lcff", 42) is not None


def test_line_ends_of_another_system_break_no_seal(published: Pool, tmp_path: Path) -> None:
    """As git writes them on Windows."""
    shutil.copytree(published.path, tmp_path / "copy")
    for file in (path for end in ("json", "jsonl") for path in (tmp_path / "copy").rglob(f"*.{end}")):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    copy = Pool.at("tiny", tmp_path / "copy")
    assert copy.run("gamma0", 42, readout=True) is not None
    made = publish([copy.path], tmp_path / "again", figures=False)
    assert not made.left_out
    assert Pool.at("tiny", tmp_path / "again").run("gamma0", 42, readout=True) is not None


def test_damage_of_a_publication_is_not_copied(published: Pool, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(published.path, source)
    folder = published.cell("gamma0", 42).folder_name
    (source / folder / "run" / "health.json").write_text('{"blo')
    second = source / published.cell("gamma0", 123).folder_name / "run" / "readout" / "metrics.jsonl"
    second.write_text("")
    made = publish([source], tmp_path / "again", figures=False)
    assert "health.json" in made.left_out[folder]
    assert (
        "metrics.jsonl is damaged, or not the file that was published"
        in made.left_out[f"{published.cell('gamma0', 123).folder_name}, Stage 2"]
    )
    assert not (tmp_path / "again" / folder).exists()
    again = Pool.at("tiny", tmp_path / "again")
    assert again.run("gamma0", 123) is not None
    assert again.run("gamma0", 123, readout=True) is None


def test_the_page_says_first_how_short_its_runs_are_and_what_they_say_before_what_is_missing(published: Pool) -> None:
    page = (published.path / "README.md").read_text()
    assert page.splitlines()[2].startswith("**2 epochs where the presets have ")
    assert page.index("## Findings") < page.index("## Tables") < page.index("## Not run")
    assert "ours-and-the-paper.md" not in page  # which this publication has not beside it


def test_the_page_links_to_the_comparison_in_words_where_it_lies(trained: Pool, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ours-and-the-paper.md").touch()
    publish([trained.path], tmp_path / "results" / "paper-tiny", figures=False)
    assert "(../../docs/ours-and-the-paper.md)" in (tmp_path / "results" / "paper-tiny" / "README.md").read_text()


def test_health_of_a_published_run_is_what_was_measured_when_it_ended(
    published: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place(published, "gamma0", 42)
    kept = read_json(run / "health.json")
    for path in (run, run.parent):
        assert main(["health", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {**kept, "convergence": told["convergence"]} == told
    assert main(["health", str(run)]) == 0
    assert "verdict" in capsys.readouterr().out


def test_a_report_is_never_written_into_a_publication(
    published: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, run = files(published.path), place(published, "gamma0", 42)
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run), "--no-figures"]) == 0
    assert capsys.readouterr().out.strip() == f"runs/report-{run.parent.name}/report.html"
    assert main(["report", str(run), "--out", str(published.path / "page")]) == 2
    assert "lies in a publication" in " ".join(capsys.readouterr().err.split())
    assert files(published.path) == before


def test_a_publication_that_is_told_to_stop_leaves_nothing_beside_it(
    trained: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # the signal comes first

    monkeypatch.setattr("goodness.paper.publish.write_page", told)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        publish([trained.path], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_publication_is_utf8_whatever_the_locale_and_stands_names_that_are_no_text(
    trained: Pool, tmp_path: Path
) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "OMP_NUM_THREADS": "1"}
    out = os.fsencode(tmp_path) + b"/\xff pub"
    asked = [sys.executable, "-m", "goodness", "publish", str(trained.path), "--out", out, "--no-figures"]
    done = subprocess.run(asked, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (Path(os.fsdecode(out)) / "README.md").read_text("utf-8")
    assert "mean ± standard deviation" in page
    assert "\\udcff pub" in page


def test_a_readout_that_lost_its_backbone_is_left_out_and_takes_nothing_else_down(copied: Pool, tmp_path: Path) -> None:
    (place(copied, "gamma0", 123) / "readout" / "backbone.json").write_text("{}")
    made = publish([copied.path], tmp_path / "out", figures=False)
    assert any("backbone.json" in why for why in made.left_out.values()), made.left_out
    there = Pool.at("tiny", tmp_path / "out")
    assert there.run("gamma0", 123) is not None
    assert there.run("gamma0", 42, readout=True) is not None
    assert there.run("gamma0", 123, readout=True) is None
