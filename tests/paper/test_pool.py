"""A pool gives a run only if it is finished and the one asked for, and a mean only of runs that belong together."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trained_pools import make_another_training

from goodness.durable import read_json, write_json
from goodness.errors import UserError
from goodness.paper import extras
from goodness.paper import measured as of
from goodness.paper.filled import fill
from goodness.paper.judged import judge_all
from goodness.paper.numbers import Cell as PaperCell
from goodness.paper.numbers import cell
from goodness.paper.pool import Pool, default_pool
from goodness.paper.reproduce import reproduce
from goodness.paper.suites import PaperTable, all_seeds, paper_table
from goodness.paper.writing import remarks, shown
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.sweep.cell import Cell

MEAN = ("Mean ± Std (n=3)", "S1 (no-TTA)")


def place(pool: Pool, preset: str, seed: int) -> Path:
    return pool.path / pool.cell(preset, seed).folder_name / "run"


def spoil(path: Path, **changes: Any) -> None:
    write_json(path, {**read_json(path), **changes})


def again(pool: Pool, *, mixed_versions: bool = False) -> Pool:
    """The same folder, looked at anew."""
    return Pool.at(pool.scale.name, pool.path, mixed_versions=mixed_versions)


def test_a_finished_run_is_found_by_preset_and_seed(trained: Pool) -> None:
    run = trained.run("gamma0", 42)
    assert run is not None
    assert run.config.preset == "gamma0"
    assert run.config.seed == 42
    assert sorted(trained.runs("gamma0")) == [42, 123]
    assert trained.runs("gamma0", readout=True).keys() == {42, 123}
    assert sorted(trained.runs("lcff")) == [42]
    assert trained.runs("multi-tech") == {}


def test_a_table_takes_further_seeds_once_all_of_its_rows_have_them(copied: Pool) -> None:
    """freeriding has one seed in the paper; the pool has a second of gamma0 alone."""
    label = "freeriding"
    presets = ("gamma0", "cp-fair", "lcff")
    assert paper_table(label).needs(copied.scale).keys() == {(preset, 42) for preset in presets}
    table = paper_table(label)
    assert all_seeds(table, copied) == (None, [])
    for preset in presets:
        for seed in (123, 456):
            if copied.run(preset, seed) is None:
                copy_as_seed(copied, preset, seed)
    assert all_seeds(table, again(copied)) == ((42, 123, 456), [])
    filled = fill(table, again(copied))
    assert len(filled.needs) == 9
    assert filled.state == "complete"
    assert {len(ours.values) for ours in filled.ours.values() if ours.wanted and ours.values} == {3}
    spoil(place(copied, "lcff", 123) / "environment.json", method_version=2)
    seeds, refused = all_seeds(table, again(copied))
    assert seeds == (42, 456)
    assert refused[0].startswith("seed 123 is left out: ")
    assert refused[0] in " ".join(remarks(fill(table, again(copied)))).replace("Seed", "seed")


def copy_as_seed(pool: Pool, preset: str, seed: int) -> None:
    """A run of another seed, made of one that is there."""
    there, new = (pool.path / pool.cell(preset, one).folder_name for one in (42, seed))
    shutil.copytree(there, new)
    spoil(new / "run" / "config.json", seed=seed)
    make_another_training(new / "run", f"{seed:064x}")
    if (new / "cell.json").is_file():
        spoil(new / "cell.json", seed=seed)


def test_a_run_without_its_stage_2_is_found_for_stage_1_alone(trained: Pool) -> None:
    assert trained.run("lcff", 42) is not None
    found = trained.look("lcff", 42, readout=True)
    assert found.run is None
    assert found.why == "no Stage 2 yet"
    assert trained.missing({("lcff", 42): True, ("gamma0", 42): True, ("lcff", 7): False}) == {
        ("lcff", 42): True,
        ("lcff", 7): False,
    }


def test_a_scale_has_its_own_folder_and_cells(trained: Pool) -> None:
    assert default_pool("short") != default_pool("full")
    other = Pool.at("short", trained.path)
    assert other.run("gamma0", 42) is None
    assert other.look("gamma0", 42).why == "not run"


def test_an_unfinished_run_is_none(copied: Pool) -> None:
    (place(copied, "gamma0", 42) / "result.json").unlink()
    assert again(copied).look("gamma0", 42).why == "stopped, not finished"


def test_a_run_with_another_setting_is_refused_and_never_trained_over(copied: Pool) -> None:
    spoil(place(copied, "lcff", 42) / "config.json", beta=3.0)
    found = again(copied).look("lcff", 42)
    assert found.run is None
    assert "beta 3.0, not 4.0" in found.why
    filled = fill(paper_table("freeriding"), again(copied))
    assert filled.state == "partial"
    assert any("beta 3.0" in line for line in filled.trouble)
    with pytest.raises(UserError, match="beta"):
        reproduce(["freeriding"], again(copied), device="cpu")


def test_runs_of_two_versions_are_not_averaged_unless_that_is_accepted(copied: Pool) -> None:
    spoil(place(copied, "gamma0", 123) / "environment.json", method_version=2)
    table, column = paper_table("gamma0_multiseed"), cell("gamma0_multiseed", *MEAN)
    filled = fill(table, again(copied))
    assert shown(column, filled.ours[MEAN]) == "refused"
    assert "cumulative: 1 and 2" in " ".join(remarks(filled))
    assert filled.ours["42", "S1 (no-TTA)"].score is not None  # alone it may stand
    assert again(copied).runs("gamma0") == {}
    accepted = fill(table, again(copied, mixed_versions=True))
    assert shown(column, accepted.ours[MEAN]).endswith("(2)")
    assert "not of one version" in " ".join(remarks(accepted))
    assert not accepted.trouble, "nothing is refused"


def test_rows_of_different_versions_are_said_to_be(copied: Pool) -> None:
    table = paper_table("freeriding")
    assert not fill(table, copied).unlike
    spoil(place(copied, "lcff", 42) / "environment.json", method_version=2)
    filled = fill(table, again(copied))
    assert filled.unlike == {"cumulative": "1 and 2"}
    assert "cumulative 1 and 2" in " ".join(remarks(filled))


def test_block_health_of_two_versions_has_no_mean_and_the_accuracy_has_one(copied: Pool) -> None:
    row, seeds = "gamma=0 (purely local, validation-selected)", [42, 123]
    found = fill(paper_table("freeriding"), copied, seeds).ours
    assert found[row, "sep_cur_nl (L3)"].score.n == found[row, "Val"].score.n == 2
    spoil(place(copied, "gamma0", 123) / "environment.json", health_version=2)
    mixed = fill(paper_table("freeriding"), again(copied), seeds)
    assert (mixed.ours[row, "sep_cur_nl (L3)"].score, mixed.ours[row, "sep_cur_nl (L3)"].why) == (None, "refused")
    assert mixed.ours[row, "Val"].score == found[row, "Val"].score
    assert any("1 and 2" in line for line in mixed.trouble)


def test_findings_and_figures_hold_no_block_health_of_two_versions_beside_each_other(copied: Pool) -> None:
    riding = extras.findings()["accumulation-makes-blocks-ride"]
    before, _ = riding.read(copied)
    spoil(place(copied, "lcff", 42) / "environment.json", health_version=2)
    runs, left_out = riding.read(again(copied))
    assert any("block health" in line for line in left_out)
    for preset, seed in (("gamma0", 42), ("gamma0", 123), ("lcff", 42)):
        run = runs[preset][seed]
        assert of.deepest_separation(before[preset][seed]) is not None
        assert (of.deepest_separation(run), of.blocks(run), of.health(run)) == (None, [], {})
        assert of.accuracy(run) == of.accuracy(before[preset][seed])
        assert of.readout_accuracy(run) == of.readout_accuracy(before[preset][seed])
    outcomes = {one.finding.name: one.verdict.outcome for one in judge_all(again(copied))}
    assert outcomes["accumulation-makes-blocks-ride"] == "cannot be told yet"


def test_another_test_order_is_refused_within_a_mean_and_between_rows(copied: Pool) -> None:
    for preset, seed in (("gamma0", 123), ("lcff", 42)):
        folder = RunFolder(place(copied, preset, seed), None)
        with np.load(folder.path / "predictions_test.npz", allow_pickle=False) as saved:
            scores, labels, indices = saved["scores"], saved["labels"], saved["indices"]
        folder.write_predictions("test", scores[::-1].copy(), labels[::-1].copy(), indices[::-1].copy())
    mean = fill(paper_table("gamma0_multiseed"), again(copied))
    assert mean.ours[MEAN].score is None
    assert mean.ours[MEAN].why == "refused"
    rows = fill(paper_table("freeriding"), again(copied))
    healthy, riding = (
        rows.ours[row, "sep_cur_nl (L3)"] for row in dict.fromkeys(c.row for c in rows.table.cells) if "cp" not in row
    )
    assert healthy.score is not None
    assert riding.why == "refused"
    assert any("in another order" in line for line in rows.trouble)


def test_other_data_is_refused_between_rows_and_left_out_of_findings(copied: Pool) -> None:
    environment = place(copied, "lcff", 42) / "environment.json"
    spoil(environment, data={**read_json(environment)["data"], "sha256": "f" * 64})
    rows = fill(paper_table("freeriding"), again(copied))
    whys = {row: rows.ours[row, "sep_cur_nl (L3)"].why for row in dict.fromkeys(one.row for one in rows.table.cells)}
    assert sorted(whys.values()).count("refused") == 1
    assert any("lcff, seed 42: other data or another split than gamma0, seed 42" in line for line in rows.trouble)
    runs, left_out = extras.findings()["accumulation-makes-blocks-ride"].read(again(copied))
    assert "lcff" not in runs
    assert "lcff, seed 42 (other data or another split than gamma0, seed 42)" in left_out


@pytest.mark.parametrize("end", ["9" * 20, "042", "-1", "1a", "٣"])
def test_a_folder_that_is_named_like_a_run_of_no_seed_is_left_alone(end: str, copied: Pool) -> None:
    (copied.path / f"{copied.cell('gamma0', 0).folder_name.removesuffix('0')}{end}").mkdir()
    assert again(copied).seeds("gamma0") == copied.seeds("gamma0")
    assert fill(paper_table("gamma0_multiseed"), again(copied)).ours[MEAN].score is not None


def test_what_was_scored_is_read_once_however_many_tables_ask(copied: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    whole = RunFolder.read_predictions

    def counting(folder: RunFolder, name: str) -> dict[str, np.ndarray]:
        read.append(folder.path)
        return whole(folder, name)

    monkeypatch.setattr(RunFolder, "read_predictions", counting)
    for label in ("freeriding", "gamma0_multiseed", "main_results"):
        fill(paper_table(label), again(copied))
    assert len(read) > 3
    assert len(read) == len(set(read))
    assert copied.cell("gamma0", 42) is copied.cell("gamma0", 42)


def test_missing_seeds_are_counted_in_the_number_and_the_state(copied: Pool) -> None:
    shutil.rmtree(place(copied, "gamma0", 123).parent)
    filled = fill(paper_table("gamma0_multiseed"), again(copied))
    assert filled.state == "partial"
    assert shown(cell("gamma0_multiseed", *MEAN), filled.ours[MEAN]).endswith("(1 of 2)")
    assert "Incomplete: 1 of 2 runs." in remarks(filled)


class Failing:
    """An engine whose cells end badly."""

    def start(self, cell: Cell, folder: Path) -> Failing:
        (folder / "log.txt").write_text("the wheels came off\n")
        return self

    def poll(self) -> int:
        return 1

    def stop(self) -> None:
        pass


def test_a_run_that_fails_twice_leaves_the_table_incomplete(copied: Pool) -> None:
    shutil.rmtree(place(copied, "cp-fair", 42).parent)
    made = reproduce(["tab:freeriding"], again(copied), device="cpu", engine=Failing())
    assert made.failed == {("cp-fair", 42): "the wheels came off"}
    (table,) = made.tables
    assert table.state == "partial"
    text = (copied.path / "tables" / "freeriding.md").read_text()
    assert "Incomplete: 2 of 3 runs." in text
    assert "the wheels came off" in text


def test_a_stage_2_of_other_settings_is_read_by_nothing_and_its_stage_1_is_the_same(copied: Pool) -> None:
    run = place(copied, "gamma0", 42)
    earlier = {**read_json(run / "config.json")["readout"], "lr": 0.5}
    for stage in (run, run / "readout"):
        spoil(stage / "config.json", readout=earlier)
    pool = again(copied)
    found = pool.runs("gamma0")
    assert sorted(found) == [42, 123]
    assert found[42].result == Run(run).result
    assert (found[42].readout, Run(run).readout is None) == (None, False)
    assert [of.readout_accuracy(found[seed]) is None for seed in (42, 123)] == [True, False]
    assert pool.runs("gamma0", readout=True).keys() == {123}
    assert "readout.lr 0.5, not 0.001" in pool.look("gamma0", 42, readout=True).why
    assert pool.counted({("gamma0", 42): True, ("gamma0", 123): True}) == "1 of 2 runs, 1 more without Stage 2"


def test_stages_2_of_two_versions_are_not_read_together(copied: Pool) -> None:
    spoil(place(copied, "gamma0", 42) / "readout" / "environment.json", torch="1.0")
    pool = again(copied)
    assert [run.readout for run in pool.runs("gamma0").values()] == [None, None]
    assert pool.runs("gamma0", [123])[123].readout is not None
    assert f"torch: {torch.__version__} then 1.0 and" in pool.trouble("gamma0", [42, 123], readout=True)
    accepted = again(copied, mixed_versions=True)
    assert all(run.readout is not None for run in accepted.runs("gamma0").values())


class OfWider(PaperTable):
    """A table of the networks of width 128, filled by those of 256 with the same rules."""

    @property
    def cells(self) -> tuple[PaperCell, ...]:
        others = {"d128-gamma0": "gamma0", "d128-cumulative": "cp-fair", "d128-lcff": "lcff"}
        return tuple(dataclasses.replace(one, preset=others.get(one.preset, one.preset)) for one in super().cells)


def test_margins_of_one_table_are_all_of_test_images_or_all_of_training(copied: Pool) -> None:
    table = OfWider("assumption_coverage")
    row = "gamma=1.0 (LCFF), block 3"
    anew = fill(table, copied, [42])
    assert any("ours on test images" in line for line in remarks(anew))
    lcff = copied.run("lcff", 42)
    assert lcff is not None
    assert anew.ours[row, "m"].score == (of.mined_anew(lcff)[3], None, 1)
    health = place(copied, "gamma0", 42) / "health.json"
    blocks = read_json(health)["blocks"]
    spoil(health, blocks=[{name: block[name] for name in block if name != "sep_stream"} for block in blocks])
    older = fill(table, again(copied), [42])
    assert any("ours over the last epoch's training" in line for line in remarks(older))
    assert older.ours[row, "m"].score == (of.separation(lcff)[3], None, 1)


def test_a_damaged_result_is_missing_and_said_so(copied: Pool) -> None:
    (place(copied, "gamma0", 42) / "result.json").write_text("{")
    assert again(copied).run("gamma0", 42) is None
