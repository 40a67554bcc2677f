"""Tables as text: the paper's rows and columns, nothing of the paper's in ours, and LaTeX that compiles."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from goodness.paper.filled import DERIVED, Ours, fill, is_near, tolerance
from goodness.paper.numbers import cell, tables
from goodness.paper.pool import Pool
from goodness.paper.suites import paper_table
from goodness.paper.writing import (
    CSV_COLUMNS,
    as_dict,
    csv_text,
    escaped,
    grid,
    latex,
    markdown,
    records,
    shown,
    write_table,
)

LABELS = [one.label for one in tables()]


@pytest.mark.parametrize("label", LABELS)
def test_without_runs_no_number_stands_in_our_column(label: str, tmp_path: Path) -> None:
    filled = fill(paper_table(label), Pool.at("full", tmp_path))
    assert filled.state == ("no runs" if filled.table.without else "not run")
    assert all(ours.score is None for ours in filled.ours.values())
    assert all(not one["ours"] and not one["ours_n"] for one in records(filled))
    found = grid(filled)
    if found.headings[0] == "row":
        ours = [line[3] for line in found.lines]
    else:
        ours = [text for line in found.lines if line[1] == "ours" for text in line[2:]]
    assert ours
    assert not any(re.search(r"\d", text) for text in ours)
    assert filled.verdict == (0, 0)


@pytest.mark.parametrize("label", LABELS)
def test_every_cell_of_the_paper_is_in_every_format(label: str, trained: Pool) -> None:
    filled = fill(paper_table(label), trained)
    text, tex = markdown(filled), latex(filled)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(grid(filled).headings) + 1}
    read = list(csv.DictReader(io.StringIO(csv_text(filled))))
    assert [(one["row"], one["column"]) for one in read] == [(one.row, one.column) for one in filled.table.cells]
    for one in filled.table.cells:
        assert escaped(one.row) in tex
        assert escaped(one.column) in tex
    rows = [line for line in tex.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(grid(filled).headings) - 1}
    assert tex.count("{") == tex.count("}")
    assert tex.isascii()
    json.dumps(as_dict(filled))


def test_our_numbers_have_their_spread_and_count(trained: Pool) -> None:
    filled = fill(paper_table("gamma0_multiseed"), trained)
    assert filled.state == "complete"
    text = markdown(filled)
    assert re.search(r"\| Mean ± Std \(n=3\) \| paper \| 90.50 ± 0.05 %", text)
    assert re.search(r"\|  \| ours \| \d+\.\d\d ± \d+\.\d\d \(2\) \| no TTA \|", text)
    assert "the paper's numbers are not to be expected" in text
    assert re.search(r"\| 456 \|.*\n\|  \| ours \| not run \|", text)


def test_other_seeds_than_the_papers_can_be_asked_for(trained: Pool) -> None:
    filled = fill(paper_table("freeriding"), trained, [123])
    healthy = filled.ours["gamma=0 (purely local, validation-selected)", "sep_cur_nl (L3)"]
    assert list(healthy.values) == [123]
    assert filled.missing == {("cp-fair", 123): False, ("lcff", 123): False}


def test_a_derived_number_follows_from_ours_and_lacks_what_they_lack(trained: Pool) -> None:
    filled = fill(paper_table("main_dissociation"), trained)
    assert filled.ours["Range", "S1 TTA"].why == "not run"


def test_numbers_are_held_against_the_papers_at_its_own_scale_alone(trained: Pool) -> None:
    filled = fill(paper_table("gamma_sweep"), trained)
    held = {scale: replace(filled, pool=Pool.at(scale)) for scale in ("full", "short", "tiny")}
    assert held["full"].verdict[1] > 0
    assert held["short"].verdict == held["tiny"].verdict == (0, 0)
    assert any(one["is_near"] is not None for one in as_dict(held["full"])["cells"])
    assert all(one["is_near"] is None for one in as_dict(held["short"])["cells"])


def test_a_number_is_near_within_twice_the_deviation_or_a_point() -> None:
    loose = cell("main_dissociation", "Adaptive kappa=0", "S1 TTA")  # 67.35 ± 0.66
    tight = cell("main_dissociation", "gamma=0 (block-local)", "S1 TTA")  # 66.93 ± 0.14
    margin = cell("main_dissociation", "gamma=0 (block-local)", "sep_cur_nl (L3)")  # 4.78
    assert tolerance(loose) == pytest.approx(1.32)
    assert tolerance(tight) == 1
    assert tolerance(margin) == pytest.approx(0.956)
    assert is_near(loose, Ours(values={1: 66.1}, wanted=(1,)))
    assert is_near(tight, Ours(values={1: 65.9}, wanted=(1,))) is False
    assert is_near(margin, Ours(values={DERIVED: 5.7}))
    assert is_near(tight, Ours(values={1: 66.9}, wanted=(1, 2))) is None  # incomplete
    assert is_near(cell("efficiency", "FF-stripped, FF (gamma=0)", "t/epoch"), Ours(values={1: 117.3})) is None


def test_what_no_training_changes_is_not_held_against_the_paper() -> None:
    counted = {
        (rule.split()[0], block, column)
        for rule in ("gamma=0 (block-local)", "gamma=1.0 (LCFF)")
        for block in (0, 1)
        for column in ("m", "P", "gamma P", "R")
        if is_near(cell("assumption_coverage", f"{rule}, block {block}", column), Ours(values={DERIVED: 0.5}))
        is not None
    }
    learned = {(rule, block, "m") for rule in ("gamma=0", "gamma=1.0") for block in (0, 1)}
    history = {("gamma=0", 1, "P"), *(("gamma=1.0", 1, column) for column in ("P", "gamma P", "R"))}
    assert counted == learned | history
    assert is_near(cell("efficiency", "FF-stripped, FF (gamma=0)", "Params"), Ours(values={DERIVED: 6.7})) is None


def test_decimals_are_the_papers() -> None:
    rate = cell("freeriding", "cp-fair (gamma=0.7 + fix)", "sep_nl (L3)")
    ours = Ours(values={1: 0.99449, 2: 0.99551}, wanted=(1, 2))
    assert shown(rate, ours) == "0.995 ± 0.001 (2)"
    small = cell("assumption_coverage", "gamma=0.7 (CP-FAIR-style), block 1", "R")
    assert shown(small, Ours(values={1: 0.0071999}, wanted=(1,))) == "0.0072 (1)"


def test_nothing_is_below_zero_by_nothing() -> None:
    ours = Ours(values={42: -0.001}, wanted=(42,), why="")
    assert shown(cell("gated", "gamma=0 (no collab)", "sep_cur_nl L0"), ours) == "0.00 (1)"


def test_what_can_have_no_number_of_ours_is_blank_and_its_reason_is_in_the_csv(trained: Pool) -> None:
    filled = fill(paper_table("cifar100_comparison"), trained)
    other = "Aghagolzadeh and Ezoji (2025)"
    for column in ("Backbone", "Params", "Top-5"):
        assert shown(cell("cifar100_comparison", other, column), filled.ours[other, column]) == ""
    assert {one["why_not"] for one in records(filled) if one["row"] == other} == {"cited", "in words"}
    text = fill(paper_table("in_text"), trained)
    gain = "Stage 2 over Stage 1, CIFAR-10"
    assert shown(cell("in_text", gain, "gain"), text.ours[gain, "gain"]) == "of several runs"


@pytest.mark.parametrize(("text", "tex"), [("50 %", r"50 \%"), ("a_b & #1", r"a\_b \& \#1"), ("±", r"$\pm$")])
def test_letters_that_mean_something_to_latex_are_escaped(text: str, tex: str) -> None:
    assert escaped(text) == tex
    assert escaped("\\") == r"\textbackslash{}"


def test_a_table_is_three_files(trained: Pool, tmp_path: Path) -> None:
    paths = write_table(fill(paper_table("freeriding"), trained), tmp_path / "tables")
    assert [path.name for path in paths] == ["freeriding.md", "freeriding.tex", "freeriding.csv"]
    assert paths[2].read_text().splitlines()[0] == ",".join(CSV_COLUMNS)
