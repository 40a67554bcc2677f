"""Statistics for comparing runs: paired bootstrap, mean and deviation over seeds, the prediction-stability bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

Rows: TypeAlias = "Sequence[Any] | np.ndarray | Tensor"

INTERVAL = (2.5, 97.5)
"""Percentiles between which 95 % of the resampled differences lie."""


class _Record:
    """A result whose fields can be had by attribute, by name in brackets, or all as a dict."""

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]


@dataclass(frozen=True)
class PairedBootstrap(_Record):
    """How two classifiers compare on the same examples; all but the counts are fractions of the examples."""

    mean: float  # accuracy of a minus accuracy of b, as measured
    low: float  # 95 % percentile interval of that difference
    high: float
    disagreement: float  # share of the examples that exactly one of them gets right
    a_only: int  # examples that a alone gets right
    b_only: int


@dataclass(frozen=True)
class StabilityBound(_Record):
    """How often two classifiers predict different labels, and what the proposition allows for."""

    disagreement: float
    bound: Any  # a float, or an array as `t` was
    t: Any


class MeanAndStd(NamedTuple):
    """Mean and sample standard deviation (n - 1) of n values; one value alone has no deviation."""

    mean: float
    std: float | None
    n: int


def paired_bootstrap(correct_a: Rows, correct_b: Rows, folds: int = 5000, seed: int = 0) -> PairedBootstrap:
    """Whether a is better than b on the same examples: the mean of (a right) - (b right) with its 95 % interval.

    Examples are resampled with replacement, `folds` times. An example's difference is +1, 0 or -1, so the resample
    is known by how many of each it has, and those numbers are multinomial: they are drawn at once.
    """
    a, b = _correctness("correct_a", correct_a), _correctness("correct_b", correct_b)
    if a.shape != b.shape:
        raise ValueError(f"both must be of the same examples: correct_a has {len(a)}, correct_b has {len(b)}")
    if folds < 1 or int(folds) != folds:
        raise ValueError(f"folds must be a whole number of at least 1, got {folds}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    n, a_only, b_only = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    shares = np.array([a_only, b_only, n - a_only - b_only]) / n
    drawn = np.random.default_rng(seed).multinomial(n, shares, size=int(folds))
    low, high = np.percentile((drawn[:, 0] - drawn[:, 1]) / n, INTERVAL)
    return PairedBootstrap(
        mean=(a_only - b_only) / n,
        low=float(low),
        high=float(high),
        disagreement=(a_only + b_only) / n,
        a_only=a_only,
        b_only=b_only,
    )


def mean_and_std(values: Rows) -> MeanAndStd:
    """Mean and sample standard deviation of a few runs' numbers."""
    numbers = np.asarray(_plain(values), dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"expected a list of numbers with at least one, got shape {list(numbers.shape)}")
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return MeanAndStd(float(numbers.mean()), std, len(numbers))


def stability_bound(scores_a: Rows, scores_b: Rows, t: float | Rows) -> StabilityBound:
    """Pr[A and B predict differently] <= min(1, Pr[Delta_A <= 2t] + Pr[E > t]) (Prop. prediction_stability).

    Delta_A is the margin between A's best and second score, E the largest difference between A's and B's score of any
    class; scores are `[n, classes]`. The bound is a float for a number t, an array for several.
    """
    margins, shifts, disagreement = _margins_and_shifts(scores_a, scores_b)
    thresholds = np.asarray(_plain(t), dtype=np.float64)
    if not bool((thresholds >= 0).all()):
        raise ValueError(f"t must not be negative, got {thresholds.min()}")
    bound = _bound(margins, shifts, thresholds)
    if thresholds.ndim == 0:
        return StabilityBound(disagreement, float(bound), float(thresholds))
    return StabilityBound(disagreement, bound, thresholds)


def best_stability_bound(scores_a: Rows, scores_b: Rows) -> StabilityBound:
    """The tightest of the bounds over all t, and the smallest t that gives it.

    Pr[E > t] falls only where t reaches one of the E, and Pr[Delta_A <= 2t] never falls: one of the E, or 0, is best.
    """
    margins, shifts, disagreement = _margins_and_shifts(scores_a, scores_b)
    thresholds = np.concatenate([[0.0], np.sort(shifts)])
    bounds = _bound(margins, shifts, thresholds)
    place = int(bounds.argmin())
    return StabilityBound(disagreement, float(bounds[place]), float(thresholds[place]))


def _bound(margins: np.ndarray, shifts: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The union bound at every threshold. Counts are added before the division: it cannot round below the measured."""
    within = np.searchsorted(np.sort(margins), 2 * thresholds, side="right")
    beyond = len(shifts) - np.searchsorted(np.sort(shifts), thresholds, side="right")
    return np.minimum(1.0, (within + beyond) / len(margins))


def _margins_and_shifts(scores_a: Rows, scores_b: Rows) -> tuple[np.ndarray, np.ndarray, float]:
    """Delta_A `[n]`, E `[n]` and the share of examples on which the two predictions differ."""
    a, b = _scores("scores_a", scores_a), _scores("scores_b", scores_b)
    if a.shape != b.shape:
        raise ValueError(f"both must be scores of the same examples: {list(a.shape)} is not {list(b.shape)}")
    second, best = np.partition(a, -2, axis=1)[:, -2:].T
    disagreement = int((a.argmax(axis=1) != b.argmax(axis=1)).sum()) / len(a)
    return best - second, np.abs(a - b).max(axis=1), disagreement


def _scores(name: str, value: Rows) -> np.ndarray:
    scores = np.asarray(_plain(value), dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] < 1 or scores.shape[1] < 2:
        raise ValueError(f"{name} must be [n, classes] with an example and two classes, got {list(scores.shape)}")
    if not np.isfinite(scores).all():
        raise ValueError(f"{name} has scores that are not finite")
    return scores


def _correctness(name: str, value: Rows) -> np.ndarray:
    right = np.asarray(_plain(value))
    if right.ndim != 1 or not len(right):
        raise ValueError(f"{name} must say of each example whether it is right, `[n]`; got shape {list(right.shape)}")
    if right.dtype != bool and not np.isin(right, (0, 1)).all():
        raise ValueError(f"{name} must be true and false (or 1 and 0)")
    return right.astype(bool)


def _plain(value: Any) -> Any:
    """A tensor as a numpy array, floating point in float64 (numpy has no bfloat16); anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()
