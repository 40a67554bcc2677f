"""The paper's tables as data: all there, nothing twice, nothing that cannot be, and sums that come out."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from goodness.errors import UserError
from goodness.paper.numbers import COLUMNS, METRICS, UNITS, about, cell, cells, of_preset, parse, table, tables
from goodness.presets import presets
from tiny_runs import PAPERS_METHOD

CELLS_OF = {
    "main_results": 25,
    "bp_ff_ablation": 21,
    "main_dissociation": 12,
    "assumption_coverage": 48,
    "full_config": 112,
    "aug_recipes": 14,
    "code_paper_map": 13,
    "full_main_results": 65,
    "related_work": 84,
    "related_work_3ds": 40,
    "multiseed": 20,
    "gamma0_multiseed": 16,
    "gated_k0_multiseed": 40,
    "gamma_sweep": 24,
    "gated_full": 117,
    "L8_sep": 90,
    "L8_gpos": 60,
    "depth_comparison": 24,
    "accuracy_degradation": 18,
    "depth_truncation_L8": 48,
    "cifar100_metrics": 17,
    "cifar100_multiseed": 24,
    "cifar100_dissociation_multiseed": 20,
    "cifar100_comparison": 30,
    "tiny_imagenet_multiseed": 20,
    "tiny_imagenet_config": 34,
    "per_class": 77,
    "hnm_ksweep": 28,
    "aspect_ema_ablation": 28,
    "dissociation": 20,
    "freeriding": 18,
    "dissociation_full": 42,
    "gated": 36,
    "paired_dissociation": 30,
    "dissociation_ci": 15,
    "component_ablation": 36,
    "text_domain_full": 18,
    "efficiency": 12,
    "loss_decomposition": 16,
    "in_text": 52,
}


def value(label: str, row: str, column: str) -> float:
    number = cell(label, row, column).value
    assert number is not None
    return number


def values(label: str, row: str, *columns: str) -> list[float]:
    return [value(label, row, column) for column in columns]


def test_every_table_is_there_with_all_its_cells() -> None:
    assert Counter(one.table for one in cells()) == CELLS_OF
    assert [one.label for one in tables()] == list(CELLS_OF)
    assert list(dict.fromkeys(one.table for one in cells())) == list(CELLS_OF), "the paper's order"


def test_tables_are_numbered_through_and_say_what_they_show() -> None:
    assert [one.number for one in tables() if one.number is not None] == list(range(1, 39))
    assert all(one.caption.endswith(".") and len(one.caption) < 100 for one in tables())
    assert len({one.caption for one in tables()}) == len({one.where for one in tables()}) == len(tables())
    sections = [one.section for one in tables() if one.number is not None]
    assert sections == sorted(sections)


def test_no_cell_stands_twice() -> None:
    assert len({one.key for one in cells()}) == len(cells())


def test_the_vocabulary_is_closed_and_all_of_it_used() -> None:
    assert {one.metric for one in cells()} == METRICS.keys()
    assert {one.unit for one in cells()} == UNITS.keys()


def test_numbers_can_be_what_they_say() -> None:
    for one in cells():
        assert one.value is not None or one.text, one.key
        assert one.spread is None or one.spread >= 0, one.key
        assert one.unit != "%" or (one.value is not None and 0 <= one.value <= 100), one.key
        assert one.n is None or 1 <= one.n <= 4, one.key
        assert one.seed in (None, 42, 123, 456, 789), one.key
        if "accuracy" in one.metric and one.value is not None:
            assert one.unit == "%", one.key


def test_presets_named_exist_and_every_run_of_the_paper_has_cells() -> None:
    named = {one.preset for one in cells()} - {""}
    assert named <= set(presets)
    ours = {
        "lean",
        "gated",
        "sprint",
        "demo",
        *(f"{name}-dense" for name in ("gamma0", "lcff", "cp-fair", "gated", "mgc", "mgc-twin", "bp-strong")),
    }
    assert set(PAPERS_METHOD) - named == ours


def test_a_mean_is_of_all_seeds_and_one_seeds_cell_of_one() -> None:
    for one in cells():
        assert one.seed is None or one.n in (None, 1), one.key
        if one.row.startswith("Mean"):
            assert one.seed is None, one.key
            assert (one.n or 0) > 1, one.key


def test_a_cell_is_found_by_its_names_with_or_without_the_prefix() -> None:
    found = cell("tab:multiseed", "Mean ± Std", "S1 (TTA)")
    assert (found.value, found.spread, found.n, found.unit) == (91.33, 0.07, 4, "%")
    assert (found.printed, found.preset, found.seed) == ("91.33 ± 0.07", "cp-fair", None)
    assert cell("related_work", "Hinton (2022)", "C10 acc.").printed == "~70%"
    assert cell("gamma0_multiseed", "42", "S2 (TTA)").printed == "—"
    assert found in table("multiseed")
    assert about("multiseed").number == 11
    assert found in of_preset("cp-fair")
    assert found in of_preset("cp-fair", "accuracy_tta")
    assert found not in of_preset("cp-fair", "accuracy")


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: table("multised"), "did you mean 'multiseed'"),
        (lambda: about("nothing"), "no table 'nothing'"),
        (lambda: cell("multiseed", "43", "S1 (TTA)"), "no row '43'"),
        (lambda: cell("multiseed", "42", "S1 TTA"), r"did you mean 'S1 \(TTA\)"),
        (lambda: of_preset("cp-fair", "acuracy"), "did you mean 'accuracy'"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_nearest(ask, told: str) -> None:
    with pytest.raises(UserError, match=told):
        ask()


GOOD = "multiseed,42,S1 (TTA),91.36,,1,accuracy_tta,%,,,cp-fair,42"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (GOOD.replace("multiseed", "multised"), "unknown table 'multised': did you mean 'multiseed'"),
        (GOOD.replace("accuracy_tta", "acc"), "unknown metric 'acc'"),
        (GOOD.replace("%", "percent"), "unknown unit"),
        (GOOD.replace("91.36", "91,36"), "13 fields where there should be 12"),
        (GOOD.replace("91.36", "nan"), "'nan' is not finite"),
        (GOOD.replace("91.36", "about 91"), "'about 91' is not a number"),
        (GOOD.replace("91.36", "191.36"), "191.36 is no percentage"),
        (GOOD.replace("91.36,", "91.36,-0.1"), "spread -0.1 is negative"),
        (GOOD.replace("91.36", ""), "neither a value nor a text"),
        (GOOD.replace("91.36", "").replace("%,,", "%,gone,"), "a unit without a value"),
        (GOOD.replace(",1,", ",3,"), "n is 3, yet the cell is of seed 42"),
        (GOOD.replace(",1,", ",one,"), "n 'one' is not a whole number"),
        (GOOD.replace(",42,", ",,"), "a row and a column"),
        (f"{GOOD}\n{GOOD}", "line 3: multiseed / 42 / S1 \\(TTA\\) stands there twice"),
    ],
)
def test_a_slip_in_the_file_is_told_with_its_line(line: str, told: str) -> None:
    assert len(parse(f"{','.join(COLUMNS)}\n{GOOD}\n")) == 1
    with pytest.raises(ValueError, match=told) as error:
        parse(f"{','.join(COLUMNS)}\n{line}\n")
    assert "numbers.csv, line" in str(error.value)


def test_a_file_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with the columns table,row,"):
        parse("table,row\n")


# Sums that come out: a digit typed wrong would break one of these

FOUR = ("L0", "L1", "L2", "L3")
NINE = list(dict.fromkeys(one.row for one in table("gated_full")))


@pytest.mark.parametrize("row", NINE)
def test_separation_is_positive_minus_negative_goodness(row: str) -> None:
    for block in FOUR:
        sep, positive, negative = values(
            "gated_full", row, *(f"{what} {block}" for what in ("sep_cur_nl", "g+_cur", "g-_cur"))
        )
        assert sep == pytest.approx(positive - negative, abs=0.0101), block


def test_tables_that_repeat_rows_repeat_their_numbers() -> None:
    """gated is part of gated_full, main_results of full_main_results, main_dissociation of dissociation."""
    for small, large in (("gated", "gated_full"), ("main_results", "full_main_results")):
        there = {(one.preset, one.column): one.printed for one in table(large)}
        assert all(there[one.preset, one.column] == one.printed for one in table(small))
    large = {(one.preset, one.column): one.printed for one in table("dissociation")}
    assert all(large[one.preset, one.column] == one.printed for one in table("main_dissociation"))


@pytest.mark.parametrize("variant", [one.column for one in table("per_class") if one.row == "Overall"])
def test_the_classes_accuracies_have_the_overall_as_their_mean(variant: str) -> None:
    classes = [one.value for one in table("per_class") if one.column == variant and one.metric == "class_accuracy_tta"]
    assert len(classes) == 10
    assert statistics.mean(number for number in classes if number is not None) == pytest.approx(
        value("per_class", "Overall", variant), abs=0.001
    )


def test_earlier_margins_add_up_and_attenuate_as_the_theorem_says() -> None:
    variants = {"gamma=0 (block-local)": 0.0, "gamma=0.7 (CP-FAIR-style)": 0.7, "gamma=1.0 (LCFF)": 1.0}
    for variant, gamma in variants.items():
        total = 0.0
        for block in range(4):
            row = f"{variant}, block {block}"
            margin, earlier, weighed = values("assumption_coverage", row, "m", "P", "gamma P")
            assert earlier == pytest.approx(total, abs=0.0151)
            assert weighed == pytest.approx(gamma * earlier, abs=0.0086)
            ratio = (1 + math.exp(4 * margin)) / (1 + math.exp(4 * (margin + weighed)))
            printed = cell("assumption_coverage", row, "R")
            if printed.value is None:
                assert ratio <= float(printed.printed.removeprefix("<= "))
            else:
                assert printed.value == pytest.approx(ratio, rel=0.03)
            total += margin


def test_ratios_of_goodness_are_those_of_the_blocks() -> None:
    for row in dict.fromkeys(one.row for one in table("L8_gpos")):
        first, last, ratio = values("L8_gpos", row, "g+_cur L0", "g+_cur L7", "L7/L0")
        assert ratio == pytest.approx(last / first, abs=0.011), row
        assert ratio == value("L8_sep", row, "L7/L0") == value("depth_comparison", row, "L8: L7/L0")
        first, last = values("gated_full", row, "g+_cur L0", "g+_cur L3")
        assert value("depth_comparison", row, "L4: L3/L0") == pytest.approx(last / first, abs=0.011), row
        shallow, deep, change = values("depth_comparison", row, "L4: L3/L0", "L8: L7/L0", "Change")
        assert change == pytest.approx(deep / shallow, abs=0.06), row
    first, last = values("cifar100_metrics", "g+_cur", "L0", "L3")
    assert value("cifar100_metrics", "L3/L0 ratio (g+_cur)", "all") == pytest.approx(last / first, abs=0.0006)


def test_differences_are_of_the_columns_beside_them() -> None:
    for label in ("component_ablation", "hnm_ksweep", "aspect_ema_ablation"):
        rows = list(dict.fromkeys(one.row for one in table(label)))
        full = value(label, rows[0], "S2 (TTA)")
        for row in rows[1:]:
            assert value(label, row, "Delta (pp)") == pytest.approx(value(label, row, "S2 (TTA)") - full, abs=1e-6), row
    for row in dict.fromkeys(one.row for one in table("accuracy_degradation")):
        four, eight, difference = values("accuracy_degradation", row, "L4 Acc (%)", "L8 Acc (%)", "Delta (pp)")
        assert difference == pytest.approx(eight - four, abs=1e-6), row
    for row in dict.fromkeys(one.row for one in table("text_domain_full")):
        ours, target, difference = values("text_domain_full", row, "Stage-2", "Target", "Delta")
        assert difference == pytest.approx(ours - target, abs=1e-6), row


def test_flips_over_three_seeds_make_the_mean_difference() -> None:
    for row in dict.fromkeys(one.row for one in table("paired_dissociation")):
        flips = {
            name: [one.value or 0 for one in table("paired_dissociation") if one.row == row and name in one.column]
            for name in ("a right", "a wrong")
        }
        gained = sum(flips["a right"]) - sum(flips["a wrong"])
        assert value("paired_dissociation", row, "Mean Delta acc") == pytest.approx(100 * gained / 30_000, abs=0.0006)
        for fine, coarse in (
            ("Mean Delta acc", "Mean Delta acc."),
            ("95% paired-bootstrap CI, low", "95% paired CI, low"),
            ("95% paired-bootstrap CI, high", "95% paired CI, high"),
        ):
            assert value("dissociation_ci", row, coarse) == pytest.approx(
                value("paired_dissociation", row, fine), abs=0.0051
            )


@pytest.mark.parametrize("label", ["multiseed", "gamma0_multiseed", "cifar100_multiseed", "tiny_imagenet_multiseed"])
def test_means_and_spreads_are_those_of_the_seeds_rows(label: str) -> None:
    means = [one for one in table(label) if one.row.startswith("Mean")]
    assert len(means) == 4
    for mean in means:
        seeds = [one.value for one in table(label) if one.column == mean.column and one.seed is not None and one.value]
        assert len(seeds) == mean.n
        assert mean.value == pytest.approx(statistics.mean(seeds), abs=0.0051), mean.column
        assert mean.spread == pytest.approx(statistics.stdev(seeds), abs=0.0071), mean.column


def test_the_gates_spreads_are_those_of_their_seeds() -> None:
    for scale in ("L4, D128", "L8, D128"):
        for mean in table("gated_k0_multiseed"):
            if not mean.row.startswith(f"{scale}, Mean") or mean.value is None:
                continue
            rows = [f"{scale}, {seed}" for seed in (42, 123, 456)]
            seeds = [value("gated_k0_multiseed", row, mean.column) for row in rows]
            assert mean.value == pytest.approx(statistics.mean(seeds), abs=0.0051)
            assert mean.spread == pytest.approx(statistics.stdev(seeds), abs=0.0071)


def test_more_blocks_never_predict_worse_at_eight_blocks() -> None:
    for row in dict.fromkeys(one.row for one in table("depth_truncation_L8")):
        by_depth = values("depth_truncation_L8", row, *(f"d={depth}" for depth in range(1, 9)))
        assert all(after > before for before, after in pairwise(by_depth)), row


def test_the_tables_speed_and_size_follow() -> None:
    bp, ff = "FF-stripped, BP (strong aug)", "FF-stripped, FF (gamma=0)"
    assert value("efficiency", ff, "t/epoch") / value("efficiency", bp, "t/epoch") == pytest.approx(2.2, abs=0.05)
    assert value("efficiency", ff, "Params/backward") == pytest.approx(value("efficiency", ff, "Params") / 4, abs=0.006)
