"""A finding by its name: its runs are trained, its verdict is written and shown."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from goodness.cli import main
from goodness.durable import read_json, write_json
from goodness.paper import extras
from goodness.paper.judged import judge, lines, markdown
from goodness.paper.pool import Pool
from goodness.paper.reproduce import plan, reproduce
from goodness.paper.suites import SEEDS, union
from goodness.runs.run_folder import RunFolder
from in_this_process import InThisProcess

MINING = "mining-is-load-bearing"
PAPERS_LOSS = 0.45
"""Points, in the paper's table of components."""


def again(pool: Pool) -> Pool:
    return Pool.at(pool.scale.name, pool.path)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """What one finding reads, one seed. Not to be written to."""
    pool = Pool.at("tiny", tmp_path_factory.mktemp("judged"))
    made = reproduce([MINING], pool, seeds=[42], device="cpu", engine=InThisProcess())
    assert [one.finding.name for one in made.findings] == [MINING]
    assert not made.failed
    assert {file.name for file in made.files} == {"findings.md", "findings.csv"}
    return again(pool)


def lost(pool: Pool) -> float:
    with_it, without = (pool.run(preset, 42) for preset in ("cp-fair", "cp-fair-no-mining"))
    assert with_it is not None
    assert without is not None
    return 100 * (with_it.accuracy - without.accuracy)


def test_reproduce_trains_what_a_finding_reads_and_writes_the_verdict(judged: Pool) -> None:
    assert len(list(judged.path.glob("*/run/result.json"))) == 2
    rows = {row["finding"]: row for row in csv.DictReader((judged.path / "findings.csv").read_text().splitlines())}
    assert list(rows) == list(extras.findings())
    row = rows[MINING]
    assert float(row["estimate"]) == pytest.approx(lost(judged))
    assert float(row["paper"]) == pytest.approx(PAPERS_LOSS)
    assert (row["outcome"], row["n"], row["unit"], row["low"]) == ("cannot be told yet", "1", "seeds", "")
    assert (row["runs_done"], row["runs_needed"]) == ("2", "2")
    assert rows["mgc"]["estimate"] == ""
    page = (judged.path / "findings.md").read_text()
    assert f"| {MINING} | cannot be told yet | {0 if not lost(judged) else lost(judged):.3g} | 1 seed | 0.45 |" in page
    assert row["sentence"] in page


def test_the_same_command_again_trains_nothing_and_prints_the_verdict(
    judged: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in judged.path.glob("*/run/result.json")}
    asked = ["reproduce", MINING, "--scale", "tiny", "--seeds", "42", "--out", str(judged.path)]
    assert main(asked) == 0
    assert "Verdict: cannot be told yet" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["estimate"] == pytest.approx(lost(judged))
    assert {path: path.stat().st_mtime_ns for path in judged.path.glob("*/run/result.json")} == before


def test_paper_shows_one_finding(judged: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--scale", "tiny", "--out", str(judged.path)]
    assert main(["paper", MINING, *where]) == 0
    told = capsys.readouterr().out
    finding = extras.findings()[MINING]
    assert finding.about in told
    assert finding.rule in told
    assert "  cp-fair: done (seed 42), not run (seed 123)" in told
    assert f"Runs: 2 of 4 done; the rest: goodness reproduce finding:{MINING} --scale tiny" in told
    assert "Verdict: cannot be told yet" in told
    assert ", n = 1 seed; the paper: 0.45" in told
    assert main(["paper", "finding:dissociation", "dissociation", *where, "--json"]) == 0
    finding, table = json.loads(capsys.readouterr().out)
    assert (finding["name"], table["label"]) == ("dissociation", "dissociation")
    assert finding["runs"] == {"needed": len(finding["needs"]), "done": 1}
    assert any(one["paper"] is not None for one in finding["details"])


def test_a_verdict_is_of_the_seeds_that_were_asked_for(trained: Pool) -> None:
    gain = extras.findings()["two-blocks-suffice"]
    everything, one = judge(gain, trained).verdict, judge(gain, trained, [123]).verdict
    assert {detail.what.rpartition(" ")[2] for detail in everything.details} == {"42", "123"}
    assert {detail.what.rpartition(" ")[2] for detail in one.details} == {"123"}


def test_a_page_keeps_a_sentence_in_its_cell(trained: Pool) -> None:
    lines = markdown([judge(one, trained) for one in extras.findings().values()]).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(extras.findings())
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


@pytest.mark.parametrize(("scale", "seeds"), [("full", 3), ("short", 3), ("tiny", 2)])
def test_a_finding_needs_its_presets_with_as_many_seeds_as_the_scale_allows(scale: str, seeds: int) -> None:
    pool = Pool.at(scale)
    presets = ("mgc-dense", "gamma0-dense", "lcff-dense", "mgc-twin-dense")
    assert set(plan(["mgc"], pool).needs) == {(preset, seed) for preset in presets for seed in SEEDS[:seeds]}
    assert set(plan(["mgc"], pool, [7]).needs) == {(preset, 7) for preset in presets}
    assert all(plan(["stage-2-grows-with-classes"], pool).needs.values())  # Stage 2 is what it is about
    everything = union(one.needs(pool.scale) for one in extras.everything())
    assert plan(["all"], pool).needs == everything
    assert ("mgc-dense", 42) in everything


def test_a_dry_run_lists_what_a_finding_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "mgc", "finding:dissociation", "--dry-run", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    named = {*extras.findings()["dissociation"].presets, "mgc-dense", "mgc-twin-dense"}
    assert {(one["preset"], one["seed"]) for one in cells} == {(name, seed) for name in named for seed in SEEDS[:3]}
    assert not list(tmp_path.iterdir())


def test_a_verdict_says_which_runs_it_did_not_read(copied: Pool) -> None:
    truncation = extras.findings()["two-blocks-suffice"]
    first = judge(truncation, copied).verdict
    assert "Not read" not in first.in_words
    spoiled = copied.path / copied.cell("gamma0", 123).folder_name / "run" / "environment.json"
    write_json(spoiled, {**read_json(spoiled), "method_version": 2})
    found = judge(truncation, again(copied)).verdict
    said = "gamma0, seed 123, which does not go with the others (cumulative: 1 and 2; --mixed-versions accepts it)"
    assert f"Not read: {said}." in found.beside
    names = [f"accuracy of 2 blocks over that of all, {name}" for name in ("gamma0, seed 42", "gamma0, seed 123")]
    assert set(names) <= {one.what for one in first.details}
    assert set(names) & {one.what for one in found.details} == {names[0]}, "a further seed takes the first none away"
    asked = judge(truncation, again(copied), [42, 123]).verdict.in_words
    assert "Not read: gamma0, whose runs are not of one kind (cumulative: 1 and 2; --mixed-versions" in asked


def test_a_verdict_compares_no_runs_of_different_test_images(copied: Pool) -> None:
    folder = RunFolder(copied.path / copied.cell("cp-fair", 42).folder_name / "run", None)
    with np.load(folder.path / "predictions_test.npz", allow_pickle=False) as saved:
        scores, labels, indices = saved["scores"], saved["labels"], saved["indices"]
    truncation = extras.findings()["two-blocks-suffice"]
    assert any("cp-fair" in one.what for one in judge(truncation, copied).verdict.details)
    folder.write_predictions("test", scores[::-1].copy(), labels[::-1].copy(), indices[::-1].copy())
    found = judge(truncation, again(copied)).verdict
    said = "Not read: cp-fair, seed 42 (other test images, or in another order, than gamma0, seed 42)."
    assert said in found.beside
    assert not any("cp-fair" in one.what for one in found.details)


def test_a_verdict_names_the_versions_that_it_compares(copied: Pool) -> None:
    truncation = extras.findings()["two-blocks-suffice"]
    assert not judge(truncation, copied).verdict.software
    other = copied.path / copied.cell("cp-fair", 42).folder_name / "run" / "environment.json"
    write_json(other, {**read_json(other), "method_version": 2})
    found = judge(truncation, again(copied))
    assert found.verdict.software == ("cumulative 1 and 2",)
    assert any("cumulative 1 and 2" in line for line in lines(found))
