"""torch.compile takes no kernel to write its inputs: it would copy them beforehand, whole activations at a time."""

import pytest

pytest.importorskip("triton")

from compiled import outcome_of


def test_kernels_are_seen_to_write_their_outputs_alone() -> None:
    outcome = outcome_of("written.py")
    if "1 skipped" in outcome:
        pytest.skip("torch has neither analysis of what a kernel writes")
    assert "1 passed" in outcome, outcome
