"""What follows from other cells, by the paper's own arithmetic: from its means, its ranges and differences."""

from __future__ import annotations

import pytest

from goodness.paper.derived import REGIMES, InTable, OfPair, derived
from goodness.paper.numbers import Cell, cell, cells
from goodness.paper.readers import Unreadable
from goodness.presets import presets

IN_TABLES = [(one, rule) for one in cells() if isinstance(rule := derived(one), InTable) and one.value is not None]


@pytest.mark.parametrize(("one", "rule"), IN_TABLES, ids=[" / ".join(one.key) for one, _ in IN_TABLES])
def test_the_papers_means_give_the_papers_own_derived_numbers(one: Cell, rule: InTable) -> None:
    def of_the_paper(row: str, column: str) -> float:
        value = cell(one.table, row, column).value
        assert value is not None
        return value

    assert one.value is not None
    # Ratios and differences of rounded numbers: the last printed digit may be off by one or two.
    assert rule.value(of_the_paper) == pytest.approx(one.value, abs=0.021 if one.metric == "difference" else 0.15)


def test_there_are_as_many_as_the_tables_print() -> None:
    # Ranges, then Deltas, then four blocks against eight, then texts against what is cited.
    assert len(IN_TABLES) == 3 + 5 + 5 + 8 + 6 + 6 + 6 + 6 + 3


def test_a_ratio_to_nothing_is_none() -> None:
    rule = derived(cell("main_dissociation", "Range", "sep_cur_nl (L3)"))
    assert isinstance(rule, InTable)
    with pytest.raises(Unreadable, match="not above zero"):
        rule.value(lambda row, column: -1.0)


def test_pairs_are_of_the_three_rules_on_cifar100() -> None:
    assert set(REGIMES.values()) <= set(presets)
    for table in ("paired_dissociation", "dissociation_ci"):
        rules = [derived(one) for one in cells() if one.table == table and one.metric != "within_a_point"]
        assert all(isinstance(rule, OfPair) for rule in rules)
    rule = derived(cell("dissociation_ci", "kappa=0 vs. cumulative", "Diag. ratio"))
    assert isinstance(rule, OfPair)
    assert rule.presets == ("cifar100-gated", "cifar100-cumulative")


@pytest.mark.parametrize(("low", "high", "is_within"), [(-0.4, 0.9, 1.0), (-1.2, 0.3, 0.0), (0.2, 1.0, 0.0)])
def test_a_pair_is_within_a_point_where_its_whole_interval_is(low: float, high: float, is_within: float) -> None:
    rule = derived(cell("dissociation_ci", "gamma=0 vs. cumulative", "± 1 pp?"))
    assert isinstance(rule, InTable)
    assert rule.value(lambda row, column: low if column.endswith("low") else high) == is_within
