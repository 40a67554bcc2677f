"""Comparing runs: scipy's bootstrap, counts by hand, and a bound that must hold whatever the scores."""

from __future__ import annotations

import math
import statistics
import time
import tracemalloc

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import goodness
from goodness.health.stats import best_stability_bound, mean_and_std, paired_bootstrap, stability_bound

# The paired bootstrap


def two_classifiers(n: int, right_a: float, right_b: float, shared: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each is right on n examples; on a share of them both have the same luck."""
    draws = np.random.default_rng(seed)
    luck_a, luck_b = draws.random((2, n))
    luck_b = np.where(draws.random(n) < shared, luck_a, luck_b)
    return luck_a < right_a, luck_b < right_b


@pytest.mark.parametrize(
    ("n", "right_a", "right_b", "shared"), [(200, 0.9, 0.8, 0.5), (1000, 0.6, 0.6, 0.9), (3000, 0.3, 0.35, 0.0)]
)
def test_the_interval_is_scipys(n: int, right_a: float, right_b: float, shared: float) -> None:
    folds = 5000
    a, b = two_classifiers(n, right_a, right_b, shared, seed=n)
    mine = paired_bootstrap(a, b, folds=folds, seed=1)
    difference = a.astype(float) - b.astype(float)
    theirs = scipy.stats.bootstrap(
        (difference,), np.mean, n_resamples=folds, method="percentile", batch=500, rng=np.random.default_rng(2)
    )
    # the error of a 2.5 % quantile from `folds` draws of a normal; both have one, and means come in steps of 1 / n
    spread = difference.std() / math.sqrt(n)
    density = scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.025)) / spread
    error = math.sqrt(2 * 0.025 * 0.975 / folds) / density
    assert mine.mean == pytest.approx(difference.mean(), abs=1e-12)
    assert mine.low == pytest.approx(theirs.confidence_interval.low, abs=3 * error + 1 / n)
    assert mine.high == pytest.approx(theirs.confidence_interval.high, abs=3 * error + 1 / n)
    assert mine.high - mine.low == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_flips_are_counted() -> None:
    a = [True, True, True, False, False, True, False, True]
    b = [True, False, False, True, False, True, False, False]
    found = goodness.paired_bootstrap(a, b)
    assert (found.a_only, found.b_only) == (3, 1)
    assert found.disagreement == 4 / 8
    assert found.mean == 2 / 8
    turned = goodness.paired_bootstrap(b, a)
    assert (turned.a_only, turned.b_only, turned.mean) == (1, 3, -2 / 8)
    assert found.low < found.mean < found.high
    assert found["mean"] == found.mean
    assert set(found.as_dict()) == {"mean", "low", "high", "disagreement", "a_only", "b_only"}
    with pytest.raises(KeyError):
        found["median"]


def test_the_same_seed_gives_the_same_interval_in_every_kind_of_array() -> None:
    a, b = two_classifiers(300, 0.8, 0.7, 0.5, seed=0)
    found = paired_bootstrap(a, b, seed=3)
    assert found == paired_bootstrap(torch.tensor(a), torch.tensor(b), seed=3)
    assert found == paired_bootstrap(a.astype(int).tolist(), b.astype(float), seed=3)
    few = [paired_bootstrap(a, b, folds=20, seed=seed) for seed in (3, 4)]
    assert few[0] != few[1]


def test_two_equal_classifiers_differ_by_exactly_nothing() -> None:
    found = paired_bootstrap([True, False, True], [True, False, True])
    assert found.as_dict() == {"mean": 0, "low": 0, "high": 0, "disagreement": 0, "a_only": 0, "b_only": 0}


def test_ten_thousand_examples_take_little_time_and_memory() -> None:
    a, b = two_classifiers(10_000, 0.9, 0.85, 0.8, seed=1)
    started = time.perf_counter()
    tracemalloc.start()
    paired_bootstrap(a, b, folds=5000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.perf_counter() - started < 2
    assert most < 20e6


def test_a_bootstrap_of_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="correct_a has 2, correct_b has 3"):
        paired_bootstrap([True, False], [True, False, True])
    with pytest.raises(ValueError, match=r"correct_a must say of each example .* got shape \[0\]"):
        paired_bootstrap([], [])
    with pytest.raises(ValueError, match=r"got shape \[1, 2\]"):
        paired_bootstrap([[True, False]], [[True, False]])
    with pytest.raises(ValueError, match="correct_b must be true and false"):
        paired_bootstrap([0, 1], [0, 2])
    with pytest.raises(ValueError, match="folds must be a whole number of at least 1, got 0"):
        paired_bootstrap([True], [False], folds=0)


# Mean and deviation


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6))
def test_mean_and_std_are_those_of_a_sample(values: list[float]) -> None:
    found = mean_and_std(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert found.std == pytest.approx(statistics.stdev(values), abs=1e-9)
    assert found.n == len(values)
    assert mean_and_std(torch.tensor(values, dtype=torch.float64)) == found


def test_one_run_has_no_deviation() -> None:
    assert mean_and_std([0.5]) == (0.5, None, 1)
    with pytest.raises(ValueError, match="at least one"):
        mean_and_std([])


# The stability bound


def bound_by_hand(a: np.ndarray, b: np.ndarray, t: float) -> tuple[float, float]:
    differ = near = far = 0
    for one, other in zip(a.tolist(), b.tolist()):
        falling = sorted(one, reverse=True)
        differ += one.index(max(one)) != other.index(max(other))
        near += falling[0] - falling[1] <= 2 * t
        far += max(abs(x - y) for x, y in zip(one, other)) > t
    return differ / len(a), min(1.0, (near + far) / len(a))


pairs = st.tuples(st.integers(1, 12), st.integers(2, 4)).flatmap(
    lambda shape: st.tuples(
        *[arrays(np.float64, shape, elements=st.floats(-5, 5) | st.integers(-2, 2).map(float))] * 2,
        st.floats(0, 6),
    )
)


@given(pairs, st.sampled_from([1.0, 0.1, 1e-9, 0.0]))
def test_the_bound_equals_the_count_and_never_lies_below_the_disagreement(
    pair: tuple[np.ndarray, np.ndarray, float], closeness: float
) -> None:
    a, noise, t = pair
    b = a + closeness * noise
    found = stability_bound(a, b, t * closeness)
    assert (found.disagreement, found.bound) == bound_by_hand(a, b, t * closeness)
    assert found.bound >= found.disagreement
    best = best_stability_bound(a, b)
    assert best.disagreement == found.disagreement
    assert found.disagreement <= best.bound <= found.bound
    assert best.bound == stability_bound(a, b, best.t).bound


def test_the_bound_at_known_scores() -> None:
    a = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 0.5], [2.0, 0.0]])
    b = np.array([[3.0, 0.0], [0.0, 0.6], [0.0, 0.5], [2.0, 0.3]])
    # margins 3, 1, 0.5, 2; shifts 0, 1, 0, 0.3; only the second changes its label
    found = goodness.stability_bound(a, b, [0.0, 0.2, 0.3, 0.5, 1.0])
    assert found["disagreement"] == 0.25
    assert isinstance(found.bound, np.ndarray)
    assert found.bound.tolist() == [0.5, 0.5, 0.5, 0.75, 0.75]
    assert best_stability_bound(a, b).as_dict() == {"disagreement": 0.25, "bound": 0.5, "t": 0.0}
    single = goodness.stability_bound(torch.tensor(a, dtype=torch.bfloat16), torch.tensor(a), 0.2)
    assert (type(single.bound), single.bound, single.disagreement) == (float, 0.0, 0.0)


def test_a_bound_of_nonsense_is_refused() -> None:
    scores = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"\[3, 2\] is not \[4, 2\]"):
        stability_bound(scores, np.zeros((4, 2)), 1.0)
    with pytest.raises(ValueError, match=r"scores_b must be \[n, classes\]"):
        stability_bound(scores, np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="two classes"):
        best_stability_bound(np.zeros((3, 1)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="t must not be negative"):
        stability_bound(scores, scores, [0.1, -0.1])
    with pytest.raises(ValueError, match="t must not be negative"):
        stability_bound(scores, scores, math.nan)
    with pytest.raises(ValueError, match="scores_a has scores that are not finite"):
        stability_bound(np.full((3, 2), np.nan), scores, 0.1)


@pytest.mark.parametrize(("folds", "seed"), [(2.5, 0), (0, 0), (100, -1)])
def test_folds_and_seeds_are_whole_numbers(folds: float, seed: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        paired_bootstrap([True, False], [True, True], folds=folds, seed=seed)  # type: ignore[arg-type]
