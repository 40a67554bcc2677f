"""A name means a table, a figure, both, or a finding; and what nothing is called is refused."""

from __future__ import annotations

import pytest

from goodness.errors import UserError
from goodness.paper import extras
from goodness.paper.names import named
from goodness.paper.suites import paper_tables


def test_a_name_of_a_table_and_a_figure_means_both_and_a_prefix_one() -> None:
    both = named("freeriding")
    assert both.table is not None
    assert both.figure is not None
    assert both.finding is None
    assert list(named("tab:freeriding")) == [both.table]
    assert list(named("fig:freeriding")) == [both.figure]


def test_a_name_of_a_table_and_a_finding_means_the_table() -> None:
    table, finding = named("dissociation"), named("finding:dissociation")
    assert table.table is not None
    assert table.finding is None
    assert finding.finding is not None
    assert list(finding) == [finding.finding]


@pytest.mark.parametrize("label", ["31", "tab:31", "Table 31", "table 31"])
def test_a_table_is_known_by_its_number_in_the_paper(label: str) -> None:
    assert list(named(label)) == [named("tab:freeriding").table]


def test_every_finding_is_known_by_its_name() -> None:
    taken = {one.label for one in paper_tables()} | set(extras.figures())
    for name in extras.findings():
        found = named(name if name not in taken else f"finding:{name}").finding
        assert found is not None
        assert found.name == name


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("mcg", "no table, figure or finding 'mcg': did you mean 'mgc'"),
        ("al", "'all'"),
        ("finding:disociation", "no finding 'disociation': did you mean 'dissociation'"),
        ("finding:freeriding", "no finding 'freeriding'"),
        ("tab:mgc", "no table 'mgc'"),
        ("99", "no table '99'"),
        ("fig:3", "no figure '3'"),
        ("fog:freeriding", "no table, figure or finding 'fog:freeriding': did you mean 'freeriding'"),
    ],
)
def test_what_nothing_is_called_is_refused_with_the_nearest(label: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        named(label, also=["all"])
