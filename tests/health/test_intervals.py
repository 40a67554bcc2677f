"""Confidence intervals, equivalence and the distributions under them, against scipy and against what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from goodness.health.distributions import beta_quantile, incomplete_beta, t_below, t_quantile
from goodness.health.stats import (
    correlation,
    difference_interval,
    equivalence,
    mean_interval,
    ratio_of_shares,
    share_interval,
    slope_interval,
)

shapes = st.floats(0.05, 5000)


@given(st.floats(0, 1), shapes, shapes)
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-10)


@given(st.floats(0.001, 0.999), st.floats(1, 500))
def test_students_t_is_scipys_both_ways(share: float, freedom: float) -> None:
    t = t_quantile(share, freedom)
    assert t == pytest.approx(float(stats.t.ppf(share, freedom)), rel=1e-7, abs=1e-9)
    assert t_below(t, freedom) == pytest.approx(share, abs=1e-12)


@given(st.floats(0.01, 0.99), st.floats(0.5, 1000), st.floats(0.5, 1000))
def test_the_beta_quantile_is_scipys(share: float, a: float, b: float) -> None:
    assert beta_quantile(share, a, b) == pytest.approx(float(stats.beta.ppf(share, a, b)), rel=1e-6, abs=1e-9)


def test_senseless_shares_are_refused() -> None:
    for bad in (lambda: t_quantile(1.0, 3), lambda: t_quantile(0.5, 0), lambda: incomplete_beta(2.0, 1, 1)):
        with pytest.raises(ValueError, match="needs"):
            bad()


def test_the_interval_of_a_mean_is_scipys_and_one_value_has_none() -> None:
    values = [90.4, 90.9, 90.1, 90.6]
    found, sem = mean_interval(values), stats.sem(values)
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=sem)
    assert (found.low, found.high, found.n) == (pytest.approx(expected[0]), pytest.approx(expected[1]), 4)
    assert mean_interval([90.4]) == (90.4, None, None, 1)


def test_the_interval_of_a_difference_is_welchs() -> None:
    a, b = [90.4, 90.9, 90.1], [88.0, 89.9, 88.4, 88.8, 91.0]
    found = difference_interval(a, b, confidence=0.9)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)  # type: ignore[attr-defined]
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert difference_interval([1.0], b).low is None
    assert difference_interval([1.0, 1.0], [2.0, 2.0]) == (-1, -1, -1, 4)


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (7, 7), (3, 7), (97, 100), (9050, 10_000)])
def test_the_interval_of_a_share_is_exact(hits: int, n: int) -> None:
    found = share_interval(hits, n)
    expected = stats.binomtest(hits, n).proportion_ci(method="exact")
    assert (found.low, found.high) == (pytest.approx(expected.low, abs=1e-9), pytest.approx(expected.high, abs=1e-9))
    with pytest.raises(ValueError, match="hits"):
        share_interval(n + 1, n)


def test_a_correlation_is_scipys_with_fishers_interval() -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=13)
    y = 0.6 * x + draws.normal(size=13)
    found, oracle = correlation(x, y), stats.pearsonr(x, y)
    expected = oracle.confidence_interval(0.95)
    assert found.estimate == pytest.approx(oracle.statistic)
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert correlation([1, 2, 3], [1, 3, 2]).low is None
    assert correlation([1, 2, 3, 4], [2, 4, 6, 8])[:3] == pytest.approx((1, 1, 1))
    with pytest.raises(ValueError, match="does not vary"):
        correlation([1, 1, 1], [1, 2, 3])


def test_the_papers_own_correlations_of_13_have_these_intervals() -> None:
    reach = stats.norm.ppf(0.975) / math.sqrt(10)
    low, high = (math.tanh(math.atanh(0.06) + sign * reach) for sign in (-1, 1))
    assert (round(low, 2), round(high, 2)) == (-0.51, 0.59), "as the finding's rule says"


def test_a_slope_is_scipys() -> None:
    x, y = [1.0, 1.0, 2.0, 2.0, 2.3], [0.1, 0.0, 0.3, 0.4, 3.2]
    found, oracle = slope_interval(x, y), stats.linregress(x, y)
    reach = stats.t.ppf(0.975, 3) * oracle.stderr
    assert found.estimate == pytest.approx(oracle.slope)
    assert (found.low, found.high) == (pytest.approx(oracle.slope - reach), pytest.approx(oracle.slope + reach))
    assert slope_interval([1, 2], [3, 4]).low is None
    with pytest.raises(ValueError, match="no slope"):
        slope_interval([1, 1], [3, 4])


def test_equivalence_is_two_one_sided_tests() -> None:
    values = [0.3, -0.1, 0.4, 0.2]
    found = equivalence(values, 1.0)
    above = stats.ttest_1samp(values, -1.0, alternative="greater").pvalue
    below = stats.ttest_1samp(values, 1.0, alternative="less").pvalue
    assert found.p == pytest.approx(max(above, below))
    assert found.is_shown
    assert not equivalence(values, 0.25).is_shown
    assert not found.is_refuted
    assert equivalence([3.0, 3.1, 3.2], 1.0).is_refuted
    assert equivalence([-3.0, -3.1, -3.2], 1.0).is_refuted


def test_one_pair_shows_and_refutes_nothing() -> None:
    found = equivalence([0.0], 1.0)
    assert (found.p, found.is_shown, found.is_refuted) == (None, False, False)
    assert equivalence([0.5, 0.5], 1.0).is_shown
    assert not equivalence([1.5, 1.5], 1.0).is_shown
    with pytest.raises(ValueError, match="margin"):
        equivalence([0.0, 0.1], 0)


def test_what_lies_on_the_margin_is_called_equivalent_in_one_of_twenty() -> None:
    draws = np.random.default_rng(1).normal(1.0, 0.5, size=(2000, 5))
    share = np.mean([equivalence(row, 1.0).is_shown for row in draws])
    assert 0.035 < share < 0.065


def test_the_interval_of_a_ratio_covers_it_and_more_where_both_are_right_on_the_same_images() -> None:
    draws = np.random.default_rng(2)
    n, independent, together = 800, 0, 0
    for _ in range(600):
        a, b = draws.random(n) < 0.8, draws.random(n) < 0.9
        low, high = ratio_of_shares(a.mean(), b.mean(), n)[1:3]
        independent += low <= 8 / 9 <= high
        u = draws.random(n)  # the worse one is right only where the better one is
        low, high = ratio_of_shares((u < 0.8).mean(), (u < 0.9).mean(), n)[1:3]
        together += low <= 8 / 9 <= high
    assert 0.93 < independent / 600 < 0.97
    assert together / 600 > 0.98
    with pytest.raises(ValueError, match="two shares"):
        ratio_of_shares(0.0, 0.5, 10)


def test_scaling_an_interval_scales_its_ends() -> None:
    assert mean_interval([0.1, 0.3]).scaled(100).estimate == pytest.approx(20)
    assert mean_interval([0.1]).scaled(100).low is None
