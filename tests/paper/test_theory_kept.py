"""The check of the theorems is made with the run, kept in its folder, and read there by findings and figures."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from trained_pools import train

from goodness.cli import main
from goodness.durable import read_json, write_json
from goodness.paper import extras
from goodness.paper.pool import Pool
from goodness.paper.publish import publish
from goodness.paper.reproduce import reproduce
from goodness.runs.run import Run
from goodness.runs.run_folder import WEIGHTS_SHA256
from goodness.sweep.run import sweep_results
from goodness.sweep.theory import GRADIENTS, THEORY, examples_kept, has_theory
from goodness.sweep.work import work
from in_this_process import InThisProcess

PRESETS = ("d128-cumulative", "d128-gamma0", "d128-lcff")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """What the figure of the gradients needs, and one more seed. Not to be written to."""
    path = tmp_path_factory.mktemp("checked")
    reproduce(["fig:grad_attenuation"], Pool.at("tiny", path), seeds=[42], device="cpu", engine=InThisProcess())
    train(Pool.at("tiny", path), {("d128-lcff", 123): False})
    return Pool.at("tiny", path)


@pytest.fixture
def copied(pool: Pool, tmp_path: Path) -> Pool:
    shutil.copytree(pool.path, tmp_path / "pool")
    return Pool.at("tiny", tmp_path / "pool")


def kept(pool: Pool) -> list[str]:
    return sorted(path.parts[-3] for path in pool.path.glob(f"*/run/{THEORY}"))


def names(pool: Pool, seed: int) -> list[str]:
    return sorted(pool.cell(preset, seed).folder_name for preset in PRESETS)


def test_the_lowest_seed_of_the_runs_that_are_read_is_checked(pool: Pool) -> None:
    assert len(list(pool.path.glob("*/run/result.json"))) == 4
    assert kept(pool) == names(pool, 42)
    asked = {("lcff-dense", 123): False, ("lcff-dense", 42): False, ("gamma0", 42): True}
    assert extras.to_check(asked) == {("lcff-dense", 42)}


def test_a_run_that_is_checked_is_averaged_with_those_that_are_not(pool: Pool) -> None:
    rows = {row.name: row for row in sweep_results(pool.path).rows}
    assert sorted(cell.seed for cell in rows["d128-lcff"].found) == [42, 123]
    assert rows["d128-lcff"].status == "complete"


def test_the_finding_counts_the_gradients_that_were_kept(pool: Pool) -> None:
    found = extras.findings()["theorem-1"].of(pool)
    assert (found.outcome, found.unit) == ("holds", "gradients")
    assert found.n == 2 * 3 * GRADIENTS  # two rules with a history, three blocks with a past
    assert extras.findings()["theorem-1-applies"].of(pool).estimate is not None


def test_without_the_check_nothing_is_computed_to_judge_by(copied: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in copied.path.glob(f"*/run/{THEORY}"):
        path.unlink()
    for module in ("goodness.health.theory", "goodness.sweep.theory"):
        monkeypatch.setattr(sys.modules[module], "theory_of_run", lambda *_, **__: pytest.fail("computed"))
    found = extras.findings()["theorem-1"].of(copied)
    assert found.outcome == "cannot be told yet"
    assert "d128-cumulative, seed 42: the theorems were not checked on it" in found.sentence


def test_whichever_seed_was_checked_is_judged(copied: Pool) -> None:
    place = {seed: copied.path / copied.cell("d128-lcff", seed).folder_name / "run" / THEORY for seed in (42, 123)}
    before, figure = extras.findings()["theorem-1"].of(copied), extras.figures()["grad_attenuation"]
    weights = read_json(place[123].parent / "result.json")[WEIGHTS_SHA256]
    write_json(place[123], {**read_json(place[42]), WEIGHTS_SHA256: weights})
    place[42].unlink()
    after = extras.findings()["theorem-1"].of(copied)
    assert (after.outcome, after.n) == (before.outcome, before.n)
    assert "measured from its gradients" in figure.of(copied).axes[1].get_title()
    for path in copied.path.glob("d128-[gc]*/run/" + THEORY):
        path.unlink()
    assert "measured from its gradients" in figure.of(copied).axes[1].get_title()


def test_a_check_of_another_run_is_told_and_made_anew(copied: Pool, tmp_path: Path) -> None:
    place = {seed: copied.path / copied.cell("d128-lcff", seed).folder_name / "run" / THEORY for seed in (42, 123)}
    before = read_json(place[42])
    write_json(place[123], before)
    assert not has_theory(Run(place[123].parent))
    write_json(place[42], {**before, WEIGHTS_SHA256: "0" * 64})
    found = extras.findings()["theorem-1"].of(copied)
    assert found.n == 3 * GRADIENTS, "of the other rule alone"
    assert f"d128-lcff, seed 42: {place[42]} was made on other weights" in found.in_words
    assert f"{place[42]} was made on other weights" in " ".join(
        publish([copied.path], tmp_path / "out").left_out.values()
    )
    reproduce(["fig:grad_attenuation"], copied, seeds=[42], device="cpu")
    assert read_json(place[42]) == before


def test_a_torn_result_leaves_the_check_unread_and_stops_nothing(pool: Pool, copied: Pool, tmp_path: Path) -> None:
    publish([pool.path], tmp_path / "published", figures=False)
    own, taken = copied, Pool.at("tiny", tmp_path / "taken")
    reproduce(["fig:grad_attenuation"], taken, seeds=[42], device="cpu", published=[tmp_path / "published"])
    for each in (own, taken):
        run = each.path / each.cell("d128-lcff", 42).folder_name / "run"
        (run / "result.json").write_text('{"repor')
        assert not has_theory(Run(run))
        assert examples_kept(Run(run)) == 0
        fresh = Pool.at("tiny", each.path)
        made = reproduce(["fig:grad_attenuation"], fresh, seeds=[42], device="cpu", published=[tmp_path / "published"])
        assert not made.failed
        assert has_theory(Run(run))


def test_reproduce_checks_finished_runs_that_were_not(copied: Pool) -> None:
    for path in copied.path.glob(f"*/run/{THEORY}"):
        path.unlink()
    lost = copied.path / copied.cell("d128-lcff", 42).folder_name / "run"
    shutil.rmtree(lost / "checkpoints")  # its weights stayed where it was trained
    reproduce(["fig:grad_attenuation"], copied, seeds=[42], device="cpu")
    assert kept(copied) == [name for name in names(copied, 42) if not name.startswith("d128-lcff")]


def test_a_cell_is_checked_where_it_is_trained(copied: Pool) -> None:
    folder = copied.path / copied.cell("d128-lcff", 42).folder_name
    first = read_json(folder / "run" / THEORY)
    assert read_json(folder / "cell.json")["theory"] is True
    (folder / "run" / THEORY).unlink()
    work(folder, device="cpu")
    assert read_json(folder / "run" / THEORY) == first
    other = copied.path / copied.cell("d128-lcff", 123).folder_name
    work(other, device="cpu")
    assert not (other / "run" / THEORY).exists()


def test_a_publication_has_the_check(pool: Pool, tmp_path: Path) -> None:
    publish([pool.path], tmp_path / "out", figures=False)
    other = Pool.at("tiny", tmp_path / "out")
    assert kept(other) == names(pool, 42)
    ours, theirs = (extras.findings()["theorem-1"].of(one).as_dict() for one in (pool, other))
    assert ours.pop("details") != ()
    theirs.pop("details")
    assert ours == theirs
    drawn = [extras.figures()["grad_attenuation"].of(one).axes[1] for one in (pool, other)]
    assert drawn[0].get_title() == drawn[1].get_title() == "a point is a test image, measured from its gradients"
    points = [[line.get_xydata().tolist() for line in axes.get_lines()] for axes in drawn]
    assert [len(line) for line in points[0]] == [len(line) for line in points[1]]
    for a, b in zip(*points):
        assert np.array(a) == pytest.approx(np.array(b), rel=1e-3)


def test_the_command_keeps_what_it_found_on_the_test_images(copied: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied.path / copied.cell("d128-lcff", 123).folder_name / "run"
    small = ["--examples", "2", "--coverage", "20", "--json"]
    assert main(["theory", str(run), "--split", "val", *small]) == 0
    assert not (run / THEORY).exists()
    capsys.readouterr()
    assert main(["theory", str(run), *small]) == 0
    assert read_json(run / THEORY) == json.loads(capsys.readouterr().out)


def test_a_check_of_fewer_images_does_not_take_the_place_of_one_of_more(
    copied: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied.path / copied.cell("d128-lcff", 42).folder_name / "run"
    first = (run / THEORY).read_bytes()
    asked = ["theory", str(run), "--coverage", "20", "--json", "--examples"]
    assert main([*asked, "2"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["examples"] == 2
    assert f"has a check of {GRADIENTS} images, this one is of 2" in " ".join(told.err.split())
    assert (run / THEORY).read_bytes() == first
    assert main([*asked, str(GRADIENTS)]) == 0
    assert read_json(run / THEORY)["coverage_examples"] == GRADIENTS  # as many took its place


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        ('{"examples": 5, "blocks": []}', 5),
        ("{}", None),
        ('{"examples": null, "blocks": []}', 0),
        ('{"examples": 5}', None),
        ('{"examples": ', None),
        ("[]", None),
        (None, None),
    ],
)
def test_a_check_that_cannot_be_read_is_none(text: str | None, examples: int | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / THEORY).write_text(text)
    assert has_theory(Run(tmp_path)) == (examples is not None)
    assert examples_kept(Run(tmp_path)) == (examples or 0)


def test_a_copy_without_the_check_of_the_theorems_is_exchanged_for_one_that_has_it(
    copied: Pool, tmp_path: Path
) -> None:
    publish([copied.path], tmp_path / "whole", figures=False)
    pool = Pool.at("tiny", tmp_path / "new")
    asked = {"labels": ["fig:grad_attenuation"], "pool": pool, "seeds": [42], "device": "cpu"}
    reproduce(**asked, published=[tmp_path / "whole"], engine=InThisProcess())
    place = pool.path / pool.cell("d128-lcff", 42).folder_name / "run" / THEORY
    place.unlink()
    reproduce(**asked, engine=InThisProcess())  # it has no weights to be checked on
    assert not place.exists()
    reproduce(**asked, published=[tmp_path / "whole"], engine=InThisProcess())
    assert place.is_file()
