"""Which runs count as one version: by a number that is raised by hand, whatever became of the source code."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from goodness.durable import read_json
from goodness.runs.run import Run, made_by
from goodness.versions import HEALTH_VERSION, METHOD, METHOD_VERSION, method_of, recorded

RESULTS = Path(__file__).parents[1] / "results"
PUBLISHED = sorted(path.parent for path in RESULTS.rglob("environment.json"))


def test_every_published_run_counts_as_version_1() -> None:
    found = Counter(made_by(Run(place)) for place in PUBLISHED)
    assert {(one.method_version, one.health_version) for one in found} == {(1, 1)}
    assert {one.method for one in found} == set(METHOD.values())
    assert found.total() == len(PUBLISHED) > 100
    sources = {read_json(place / "environment.json")["source"] for place in PUBLISHED}
    assert len(sources) > 1, "they were made by several states of the source"


def test_an_unknown_source_mixes_with_nothing() -> None:
    environments = [{"source": "e" * 64}, {"source": "f" * 64}, {}, recorded("s1")]
    for one, other in itertools.combinations([method_of(each, "s1") for each in environments], 2):
        assert one.method_version != other.method_version
        assert one.health_version != other.health_version


@pytest.mark.parametrize("stage", METHOD)
def test_what_is_recorded_is_read_back_for_every_stage(stage: str) -> None:
    made = method_of(recorded(stage), stage)
    assert made == (METHOD[stage], METHOD_VERSION[METHOD[stage]], HEALTH_VERSION)
    assert made == method_of({**recorded(stage), "source": "f" * 64}, stage), "a version stands above a hash"


def test_a_run_resumed_under_another_version_is_of_neither() -> None:
    first, second = ({**recorded("s1"), "method_version": version} for version in (1, 2))
    both = method_of({**first, "resumed": [first, second]}, "s1")
    assert both.method_version not in (1, 2)
    assert method_of({**first, "resumed": [first]}, "s1") == method_of(first, "s1")
