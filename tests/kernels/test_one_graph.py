"""With kernels in it, a compiled block is still one graph: a break would cost fusion and pace the GPU by Python."""

import pytest

pytest.importorskip("triton")

from compiled import outcome_of


def test_stem_block_and_scoring_are_one_graph_each() -> None:
    outcome = outcome_of("one_graph.py")
    assert "5 passed" in outcome, outcome
