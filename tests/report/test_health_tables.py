"""Tables of the diagnosing commands: a column stands where it says something."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from goodness.health.block_health import _percent
from goodness.report.health_tables import _percent as in_table
from goodness.report.health_tables import pairs_table


def printed(bounds: list[float]) -> str:
    names = ["one", "two", "three"][: len(bounds) + 1]
    pair: dict[str, Any] = {"mean": 0.01, "low": -0.01, "high": 0.02, "a_only": 6, "b_only": 5}
    pairs = [
        {**pair, "a": "one", "b": name, "predictions_differ": 0.176, "stability_bound": bound}
        for name, bound in zip(names[1:], bounds)
    ]
    console = Console(width=200)
    with console.capture() as text:
        console.print(pairs_table({"groups": [{"name": name} for name in names], "pairs": pairs}))
    return text.get()


@pytest.mark.parametrize(("bounds", "has_column"), [([1.0], False), ([1.0, 0.996], False), ([1.0, 0.867], True)])
def test_a_bound_that_allows_everything_is_not_shown(bounds: list[float], has_column: bool) -> None:
    text = printed(bounds)
    assert text.count("17.6 %") == len(bounds)
    assert "100.0 %" not in text
    assert ("86.7 %" in text) == has_column
    assert ("at most:" in text) == has_column
    assert ("too far apart" in text) != has_column


@pytest.mark.parametrize("left", [0.0094, 0.00991, 0.0104])
def test_a_verdict_says_less_than_1_percent_where_the_table_does(left: float) -> None:
    assert ("less than" in _percent(left)) == (float(in_table(left).removesuffix(" %")) < 1)
