"""The paper's contradictions: each cites cells that are as it says, and statements that differ."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from goodness.paper.contradictions import CONTRADICTIONS, as_page, of_table
from goodness.paper.numbers import about, cell, table
from goodness.paper.statements import Contradiction

BY_NAME = {one.name: one for one in CONTRADICTIONS}


def test_each_has_a_name_of_its_own_and_says_what_we_take() -> None:
    assert len(BY_NAME) == len(CONTRADICTIONS) > 50
    for one in CONTRADICTIONS:
        assert one.what, one.name
        assert one.ours.endswith("."), one.name


@pytest.mark.parametrize("one", CONTRADICTIONS, ids=lambda one: one.name)
def test_the_cells_cited_are_as_it_says(one: Contradiction) -> None:
    for statement in one.statements:
        if statement.cell is None:
            continue
        printed = cell(*statement.cell)
        assert statement.where == about(statement.cell[0]).where
        assert statement.says == (printed.printed if isinstance(statement.says, str) else printed.value)


@pytest.mark.parametrize("one", CONTRADICTIONS, ids=lambda one: one.name)
def test_at_least_two_things_are_said_and_none_twice_in_one_place(one: Contradiction) -> None:
    assert len({statement.says for statement in one.statements}) > 1
    places = [(statement.where, statement.cell, statement.says) for statement in one.statements]
    assert len(set(places)) == len(places)
    assert all(statement.where for statement in one.statements)


def numbers(name: str) -> list[float]:
    return [float(one.says) for one in BY_NAME[name].statements if isinstance(one.says, float | int)]


def test_what_we_say_of_them_follows_from_the_cells() -> None:
    flips = numbers("balanced-flips")
    excess = [more / less - 1 for more, less in zip(flips[::2], flips[1::2])]
    assert 0.10 < min(excess) <= max(excess) < 0.15
    first, second, seventh, eighth = numbers("gain-per-block")
    assert (round(second - first, 1), round(eighth - seventh, 1)) == (3.7, 0.1)
    high, cat, low, worst = numbers("cat-below-average")
    assert (round(high - cat, 2), round(low - worst, 2)) == (10.75, 16.65)
    s1, s2 = numbers("stage-2-on-text")
    assert round(s2 - s1, 2) == -0.02
    gain, s1_tta, s2_tta, s1, s2 = numbers("stage-2-gain")
    assert round(s2 - s1, 2) == gain < 2 < round(s2_tta - s1_tta, 2)
    ours = cell("related_work_3ds", "Ours (gamma=0, S1, single-crop)", "CIFAR-10").value
    assert ours is not None
    assert round(90.62 - ours, 2) == 0.12


def test_the_goodness_printed_for_a_block_is_its_own_and_the_plain_sum_of_the_earlier() -> None:
    row = [cell("gated_full", "Constant gamma=0.7", f"g+_cur L{block}").value or 0 for block in range(4)]
    total = cell("in_text", "L4, D128, Constant gamma=0.7", "g+_total L3").value
    assert row[3] + 0.7 * sum(row[:3]) == pytest.approx(total, abs=0.005)
    fading = row[3] + 0.7 * (row[2] + 0.7 * (row[1] + 0.7 * row[0]))
    assert fading != pytest.approx(total, abs=0.5)


def test_the_gates_accuracies_are_shares_of_five_thousand() -> None:
    gates = [one for one in table("depth_truncation_L8") + table("accuracy_degradation") if one.unit == "%"]
    gates += [one for one in table("L8_sep") if one.unit == "%" and "gated" in one.preset]
    assert len(gates) == 48 + 12 + 6
    assert all(one.value is not None and round(one.value * 100) % 2 == 0 for one in gates)
    others = [one for one in table("L8_sep") if one.unit == "%" and "gated" not in one.preset]
    assert any(one.value is not None and round(one.value * 100) % 2 for one in others)


def test_the_correlation_printed_is_not_that_of_the_fifteen_rows() -> None:
    ratio = {one.preset: one.value for one in table("depth_comparison") if one.column == "L4: L3/L0"}
    accuracy = {one.preset: one.value for one in table("accuracy_degradation") if one.column == "L4 Acc (%)"}
    ratio |= {one.preset: one.value for one in table("L8_sep") if one.column == "L7/L0"}
    accuracy |= {one.preset: one.value for one in table("L8_sep") if one.column == "Acc (TTA)"}
    pairs = [(ratio[name], accuracy[name]) for name in ratio]
    xs, ys = ([float(pair[axis] or 0) for pair in pairs] for axis in (0, 1))
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys))
    r = covariance / math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))
    assert (len(pairs), round(r, 2)) == (15, -0.31)
    assert cell("in_text", "all L4 and L8 conditions", "r of goodness ratio and S2 accuracy").value == -0.49


def test_the_page_in_docs_has_all_of_them() -> None:
    page = Path(__file__).parents[2] / "docs" / "contradictions.md"
    assert page.read_text("utf-8") == as_page(), "write as_page() to docs/contradictions.md again"
    assert all(f"(*{one.name}*)" in as_page() for one in CONTRADICTIONS)


def test_a_table_names_those_of_its_own_numbers() -> None:
    assert {"cp-fair-s1-tta", "cp-fair-s2-tta"} <= {one.name for one in of_table("multiseed")}
    assert [one.name for one in of_table("assumption_coverage")] == ["margins-of-the-figure"]
