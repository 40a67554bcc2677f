"""Collaboration rules against their formulas, their limits, and settings they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goodness.errors import ConfigError
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive, Ramp, gate
from goodness.methods.cumulative.facts import Past
from goodness.parts import Rule

TOTAL, PREVIOUS = [-2.0, -0.1, 0.0, 0.3, 4.0], [1.0, 0.5, -1.0, -0.2, 0.0]


def past(depth: int = 2, blocks: int = 4, progress: float = 0.5) -> Past:
    return Past(
        total=torch.tensor(TOTAL, dtype=torch.float64),
        previous=torch.tensor(PREVIOUS, dtype=torch.float64),
        depth=depth,
        blocks=blocks,
        progress=progress,
    )


def test_constant_weighs_every_example_alike() -> None:
    assert Constant(gamma=0.7).weight(past()).tolist() == [0.7] * 5


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.1), (0.2, 0.3), (0.4, 0.5), (0.7, 0.5), (1.0, 0.5)])
def test_ramp_moves_linearly_over_the_epochs_and_then_stays(progress: float, expected: float) -> None:
    weight = Ramp(first=0.1, last=0.5, until=0.4).weight(past(progress=progress))
    assert weight.tolist() == pytest.approx([expected] * 5)


@pytest.mark.parametrize(("depth", "expected"), [(1, 0.2), (2, 0.5), (3, 0.8)])
def test_progressive_moves_linearly_from_the_second_block_to_the_last(depth: int, expected: float) -> None:
    weight = Progressive(first=0.2, last=0.8).weight(past(depth=depth, blocks=4))
    assert weight.tolist() == pytest.approx([expected] * 5)


def test_progressive_gives_the_last_weight_to_the_only_block_with_a_past() -> None:
    assert Progressive(first=0.2, last=0.8).weight(past(depth=1, blocks=2)).tolist() == pytest.approx([0.8] * 5)


@given(st.floats(0, 1), st.floats(0.1, 20), st.floats(-3, 3), st.sampled_from(["cumulative", "previous"]))
def test_gated_is_gamma0_times_a_falling_sigmoid_of_the_earlier_goodness(
    gamma0: float, tau: float, kappa: float, source: str
) -> None:
    weight = Gated(gamma0=gamma0, tau=tau, kappa=kappa, source=source).weight(past())
    support = TOTAL if source == "cumulative" else PREVIOUS
    expected = [gamma0 / (1 + math.exp(-tau * (kappa - s))) for s in support]
    assert weight.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_gate_is_half_open_at_kappa_and_sharpens_to_a_step() -> None:
    s = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    assert gate(s, 0.7, 4.0, 0.5)[1].item() == pytest.approx(0.35)
    assert gate(s, 0.7, 1e4, 0.5).tolist() == [0.7, 0.35, 0.0]
    assert gate(s, 0.7, 4.0, 1e4).tolist() == [0.7] * 3  # kappa far above: always open
    assert gate(s, 0.7, 4.0, -1e4).tolist() == [0.0] * 3  # far below: block-local


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Constant(gamma=-0.1), "rule.gamma"),
        (Constant(gamma=1.1), "rule.gamma"),
        (Constant(gamma=float("nan")), "rule.gamma"),
        (Ramp(first=-0.1), "rule.first"),
        (Ramp(last=1.5), "rule.last"),
        (Ramp(until=0.0), "rule.until"),
        (Ramp(until=1.2), "rule.until"),
        (Progressive(first=2.0), "rule.first"),
        (Progressive(last=-1.0), "rule.last"),
        (Gated(gamma0=1.01), "rule.gamma0"),
        (Gated(tau=0.0), "rule.tau"),
    ],
)
def test_a_rules_setting_out_of_range_is_refused_by_name(rule: Rule, field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} must"):
        rule.check()


@pytest.mark.parametrize("rule", [Constant(gamma=0.0), Constant(gamma=1.0), Ramp(until=1.0), Progressive(), Gated()])
def test_settings_at_the_edge_of_their_range_are_taken(rule: Rule) -> None:
    rule.check()
    weight = rule.weight(past())
    assert weight.shape == (5,)
    assert bool(((weight >= 0) & (weight <= 1)).all())
