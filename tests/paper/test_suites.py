"""Every table of the paper has its runs or a stated reason, and every number in it a way to be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from goodness.errors import UserError
from goodness.paper import readers
from goodness.paper.derived import derived
from goodness.paper.extras import everything, to_check
from goodness.paper.numbers import cell, cells, table, tables
from goodness.paper.pool import Need, Pool
from goodness.paper.scales import SCALES, Scale, scale_of, seconds_an_epoch
from goodness.paper.suites import (
    SEEDS,
    SUITE,
    WITHOUT_RUNS,
    all_seeds,
    is_left_out,
    paper_table,
    paper_tables,
    seeds_of,
    union,
)
from goodness.presets import preset, presets
from goodness.sweep.plan import make_cells
from goodness.sweep.suites import suites
from tiny_runs import PAPERS_METHOD

FULL, SHORT, TINY = (SCALES[name] for name in ("full", "short", "tiny"))


@pytest.mark.parametrize("label", [one.label for one in tables()])
def test_a_table_has_runs_or_a_reason_and_not_both(label: str) -> None:
    one = paper_table(label)
    assert bool(one.without) != bool(one.needs(FULL))
    assert set(one.presets) <= set(presets)
    assert (f"{SUITE}{label}" in suites) != bool(one.without)


def test_a_table_is_a_suite_of_a_sweep_too_and_hides_no_preset() -> None:
    cells = make_cells(["paper-freeriding", "gated"], scale="short")
    assert [(one.preset, one.seed) for one in cells] == [("gamma0", 42), ("cp-fair", 42), ("lcff", 42), ("gated", 42)]
    assert not set(suites) & set(presets)


def test_a_suite_asks_for_the_check_of_the_theorems_where_reproduce_does() -> None:
    wanted = 0
    for one in paper_tables():
        if not one.without:
            needs = one.needs(TINY)
            cells = make_cells([f"{SUITE}{one.label}"], scale="tiny")
            assert {(cell.preset, cell.seed) for cell in cells if cell.theory} == to_check(needs)
            wanted += len(to_check(needs))
    assert wanted > 0


def test_other_seeds_of_a_suite_keep_its_wishes_and_check_the_lowest() -> None:
    cells = make_cells(["paper-gated_full"], scale="tiny", seeds=[9, 5])
    assert [cell.seed for cell in cells if cell.theory and cell.preset == "d128-cumulative"] == [5]
    assert {cell.seed: cell.readout for cell in make_cells(["paper-gamma0_multiseed"], seeds=[1, 2])} == {
        1: True,
        2: True,
    }


def test_reasons_are_given_for_tables_that_exist() -> None:
    assert set(WITHOUT_RUNS) < {one.label for one in tables()}


def test_no_number_of_a_table_with_runs_is_passed_over_without_a_reason() -> None:
    text_alone = {"in_text"}  # numbers of the text that name no run
    for one in cells():
        if one.table in WITHOUT_RUNS or one.value is None or one.metric in readers.NOT_OURS or is_left_out(one):
            continue
        known = readers.is_readable(one) or derived(one) is not None
        assert known or one.table in text_alone or "et al." in one.row or "Hinton" in one.row, one.key


def test_stage_2_is_needed_only_where_a_table_prints_it() -> None:
    needs = paper_table("gamma0_multiseed").needs(FULL)
    assert needs == {("gamma0", 42): False, ("gamma0", 123): True, ("gamma0", 456): True}
    assert not any(paper_table("freeriding").needs(FULL).values())
    assert all(paper_table("paired_dissociation").needs(FULL).values())


def test_seeds_are_the_papers_unless_others_are_given() -> None:
    mean = cell("multiseed", "Mean ± Std", "S1 (TTA)")
    first, last = cell("multiseed", "42", "S1 (TTA)"), cell("multiseed", "789", "S1 (TTA)")
    assert seeds_of(mean, FULL) == SEEDS
    assert seeds_of(mean, TINY) == SEEDS[:2]
    assert seeds_of(mean, FULL, [7, 7, 8]) == (7, 8)
    assert seeds_of(first, FULL) == seeds_of(first, TINY) == (42,)
    assert seeds_of(last, FULL) == (789,)
    assert seeds_of(last, TINY) == seeds_of(last, FULL, [42]) == ()
    some = cell("gamma0_multiseed", "Mean ± Std (n=3)", "S2 (TTA)")
    assert seeds_of(some, FULL) == (123, 456)
    unsaid = cell("freeriding", "cp-fair (gamma=0.7 + fix)", "Val")
    assert seeds_of(unsaid, FULL) == (42,)


def test_other_seeds_stand_in_for_the_one_that_a_table_of_one_seed_has() -> None:
    alone = cell("bp_ff_ablation", "FF backbone (stripped, ~6–8 M), BP, weak", "Test no-TTA")
    assert alone.seed == 42
    assert seeds_of(alone, FULL) == (42,)
    assert seeds_of(alone, FULL, [42, 123]) == (42, 123)
    assert seeds_of(alone, FULL, [7]) == (7,)


@dataclass
class Full:
    """A pool that has these seeds of every run."""

    seeds_there: tuple[int, ...]
    scale: Scale = FULL

    def seeds(self, preset: str) -> list[int]:
        return list(self.seeds_there)

    def missing(self, needs: Mapping[Need, bool]) -> dict[Need, bool]:
        return {need: readout for need, readout in needs.items() if need[1] not in self.seeds_there}

    def trouble(self, preset: str, seeds: list[int], readout: bool) -> str:
        return ""


@pytest.mark.parametrize(
    ("label", "there", "seeds"),
    [
        ("freeriding", (42,), None),
        ("freeriding", (42, 123, 7), (42, 123, 7)),
        ("freeriding", (123, 456), None),  # the paper's own is missing
        ("dissociation_full", (42, 123, 456), (42, 123, 456)),  # in the paper some rows have one seed, some three
        ("multiseed", (42, 123, 456, 789), None),  # tells seeds apart, and has them
    ],
)
def test_a_table_is_over_all_seeds_that_every_row_has(
    label: str, there: tuple[int, ...], seeds: tuple[int, ...] | None
) -> None:
    pool: Any = Full(there)
    assert all_seeds(paper_table(label), pool) == (seeds, [])


def test_the_texts_have_seeds_of_their_own() -> None:
    one = paper_table("text_domain_full")
    assert set(one.presets) == {"text-imdb", "text-newsgroups", "text-ag-news"}
    for scale, seeds in ((FULL, {42, 43, 44}), (SHORT, {42, 43, 44}), (TINY, {42, 43})):
        needs = one.needs(scale)
        assert all(needs.values())  # Stage 2
        assert set(needs) == {(name, seed) for name in one.presets for seed in seeds}
    assert {seed for _, seed in one.needs(FULL, [1, 2])} == {1, 2}


def test_the_same_run_stands_once_for_all_tables() -> None:
    each = [one.needs(FULL) for one in paper_tables()]
    together = union(each)
    assert len(together) < sum(map(len, each)) / 2
    folders = [one.folder_name for one in Pool.at("full").cells(together)]
    assert len(set(folders)) == len(folders) == len(together)


@pytest.mark.parametrize("name", [name for name in PAPERS_METHOD if name != "demo"])
def test_scales_change_the_schedule_and_then_the_size_and_never_the_rule(name: str) -> None:
    own = preset(name)
    assert FULL.overrides(name) == {}
    for scale in (SHORT, TINY):
        config = Pool.at(scale.name).cell(name, 42).config
        same = ("rule", "objective" if scale is SHORT else "rule", "negatives", "trainer", "eta", "augment")
        assert all(getattr(config, field) == getattr(own, field) for field in same)
        assert config.model.blocks == own.model.blocks
        assert (config.optim.ema == 0) == (own.optim.ema == 0)
        assert set(config.objective) == set(own.objective)
    short, tiny = (Pool.at(one).cell(name, 42).config for one in ("short", "tiny"))
    assert short.model == own.model
    assert short.epochs < own.epochs
    assert tiny.data == "digits-sample"
    assert tiny.model.width <= 24 or tiny.model.width == own.model.width  # which a CNN does not use


@pytest.mark.parametrize("name", list(union(one.needs(FULL) for one in everything())))
def test_a_short_run_takes_about_two_minutes_by_the_estimate(name: tuple[str, int]) -> None:
    most = 125
    short, full = (scale.estimate(name[0], readout=True) for scale in (SHORT, FULL))
    assert 20 < short < min(most, full)
    assert full > most or name[0].startswith("text-")  # a vector a text is little work


def test_runs_of_one_table_have_as_many_epochs_at_short() -> None:
    for label in ("component_ablation", "L8_sep", "gated_full", "depth_comparison", "main_dissociation", "freeriding"):
        epochs = {Pool.at("short").cell(name, 42).config.epochs for name in paper_table(label).presets}
        assert len(epochs) == 1, (label, epochs)


def test_estimates_are_the_measured_seconds_and_a_little_more() -> None:
    rows = json.loads((Path(__file__).parents[2] / "benchmarks" / "bench-h200.json").read_text())["rows"]
    measured = {(row["preset"], row["name"]): row["epoch_s"] for row in rows}
    for name, way in (("gamma0-dense", "ff"), ("cp-fair", "ff"), ("bp-strong-dense", "bp")):
        assert measured[name, way] <= seconds_an_epoch(preset(name)) <= 1.1 * measured[name, way], name


def test_an_unknown_scale_or_table_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'short'"):
        scale_of("shrot")
    with pytest.raises(UserError, match="did you mean 'freeriding'"):
        paper_table("freeridng")


def test_a_cell_that_prints_no_number_asks_for_no_run() -> None:
    unprinted = [one for one in table("gated_k0_multiseed") if one.value is None]
    assert unprinted
    assert ("gamma0", 42) not in {need for need, s2 in paper_table("gamma0_multiseed").needs(FULL).items() if s2}


def test_readme_counts_the_runs_and_hours_that_all_of_it_needs() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    needs = union(one.needs(FULL) for one in everything())
    hours = {scale.name: Pool.at(scale.name).seconds(needs) / 3600 for scale in (FULL, SHORT)}
    assert f"{len(needs)} runs at `full`" in readme
    assert f"({hours['full']:.0f} hours on one H200" in readme
    assert f"({hours['short']:.1f} hours in all" in readme
