"""Whole tables from real runs on images that may be mirrored, so that no cell lacks its TTA."""

from __future__ import annotations

from pathlib import Path

import pytest
from trained_pools import train

from goodness.data.dataset import OTHER_BYTES
from goodness.durable import read_json, write_json
from goodness.paper.filled import Filled, Ours, fill, is_near
from goodness.paper.numbers import cell
from goodness.paper.pool import Pool
from goodness.paper.suites import paper_table
from goodness.paper.writing import remarks

SEED = 42


def filled(label: str, pool: Pool) -> Filled:
    return fill(paper_table(label), pool, [SEED])


def number(table: Filled, row: str, column: str) -> float:
    score = table.ours[row, column].score
    assert score is not None, table.ours[row, column].why
    return score.mean


def test_a_table_is_complete_with_its_runs_and_its_range_is_theirs(blobs: Pool) -> None:
    table = filled("main_dissociation", blobs)
    assert table.state == "complete"
    rows = list(dict.fromkeys(one.row for one in table.table.cells))[:3]
    accuracies = [number(table, row, "S2 TTA") for row in rows]
    for preset, found in zip(("cifar100-gamma0", "cifar100-gated", "cifar100-cumulative"), accuracies):
        run = blobs.run(preset, SEED, readout=True)
        assert run is not None
        assert run.readout is not None
        assert found == pytest.approx(100 * run.readout.result["reported"]["accuracy_tta"])
    assert number(table, "Range", "S2 TTA") == pytest.approx(max(accuracies) - min(accuracies))


def test_pairs_agree_with_the_accuracies_of_the_same_runs(blobs: Pool) -> None:
    pairs, means = filled("paired_dissociation", blobs), filled("main_dissociation", blobs)
    row = "gamma=0 vs. kappa=0"
    gap = number(means, "gamma=0 (block-local)", "S2 TTA") - number(means, "Adaptive kappa=0", "S2 TTA")
    assert number(pairs, row, "Mean Delta acc") == pytest.approx(gap)
    flips = [number(pairs, row, f"Flips, a {one}, seed 42") for one in ("right, b wrong", "wrong, b right")]
    assert (flips[0] - flips[1]) / 40 * 100 == pytest.approx(gap)  # of forty test images
    low, high = (number(pairs, row, f"95% paired-bootstrap CI, {end}") for end in ("low", "high"))
    assert low <= gap <= high
    assert number(pairs, row, "Disagreement (mean)") >= 100 * sum(flips) / 40
    assert pairs.ours[row, "Flips, a right, b wrong, seed 123"].why == "not run"  # of a seed that was not asked for


def test_a_verdict_counts_what_lies_near_the_paper(blobs: Pool) -> None:
    table = filled("main_dissociation", blobs)
    near, judged = table.verdict
    counted = [one for one in table.table.cells if one.unit != "points"]
    assert 0 < judged == sum(table.ours[one.row, one.column].score is not None for one in counted)
    by_hand = 0
    for one in counted:
        score, paper = table.ours[one.row, one.column].score, cell(one.table, one.row, one.column)
        if score is not None and paper.value is not None:
            least = 1.0 if paper.unit == "%" else abs(paper.value) / 5
            by_hand += abs(score.mean - paper.value) <= max(2 * (paper.spread or 0), least)
    assert near == by_hand


def test_pairs_on_images_that_are_not_mirrored_are_compared_in_one_view(tmp_path: Path) -> None:
    pool = Pool.at("tiny", tmp_path / "pool")
    train(pool, {("cifar100-gamma0", SEED): True, ("cifar100-gated", SEED): True})
    table = filled("paired_dissociation", pool)
    row = "gamma=0 vs. kappa=0"
    runs = [pool.run(preset, SEED, readout=True) for preset in ("cifar100-gamma0", "cifar100-gated")]
    local, gated = (run.readout.accuracy for run in runs if run is not None and run.readout is not None)
    assert number(table, row, "Mean Delta acc") == pytest.approx(100 * (local - gated))
    assert table.ours["gamma=0 vs. cumulative", "Mean Delta acc"].why == "not run"
    assert any("in one view where images are not mirrored" in line for line in remarks(table))
    assert any(line.startswith("no TTA: ") for line in remarks(filled("main_dissociation", pool)))


def test_a_table_says_where_its_data_came_from_and_names_no_folder(copied: Pool) -> None:
    place = copied.path / copied.cell("gamma0", SEED).folder_name / "run" / "environment.json"
    facts = read_json(place)
    write_json(place, {**facts, "data": {"provenance": "/home/her/sets/digits.bin: lengths checked"}})
    (line,) = [one for one in remarks(filled("gamma0_multiseed", copied)) if one.startswith("Runs on ")]
    assert line.endswith("; data: digits.bin: lengths checked.")


def test_a_table_says_what_it_means_that_files_are_not_the_published_ones(copied: Pool) -> None:
    said = "Not the published bytes: files that differ from those of the official archive"
    assert not any(line.startswith(said) for line in remarks(filled("gamma0_multiseed", copied)))
    place = copied.path / copied.cell("gamma0", SEED).folder_name / "run" / "environment.json"
    write_json(place, {**read_json(place), "data": {"provenance": f"bin: lengths checked; {OTHER_BYTES}: train.bin"}})
    assert any(line.startswith(said) for line in remarks(filled("gamma0_multiseed", copied)))


def test_a_share_of_images_is_near_within_a_hundredth_and_a_difference_is_never_counted() -> None:
    share = cell("freeriding", "gamma=0 (purely local, validation-selected)", "sep_nl (L3)")
    assert share.value == 0.995
    assert is_near(share, Ours(values={42: 0.99}, wanted=(42,))) is True
    assert is_near(share, Ours(values={42: 0.85}, wanted=(42,))) is False
    effect = cell("component_ablation", "Hard negative mining → random neg.", "Delta (pp)")
    assert is_near(effect, Ours(values={42: effect.value or 0.0}, wanted=(42,))) is None
