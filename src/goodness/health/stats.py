"""Statistics for comparing runs: paired bootstrap, the prediction-stability bound, mean and deviation over seeds, and
confidence intervals of a mean, a difference, a share, a ratio, a correlation and a slope; equivalence (TOST)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

from goodness.health.distributions import beta_quantile, t_below, t_quantile

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


class Interval(NamedTuple):
    """An estimate with its confidence interval from n units; the ends are None where n does not give any."""

    estimate: float
    low: float | None
    high: float | None
    n: int

    @property
    def beyond_zero(self) -> float:
        """How far from zero it begins, on either side; below zero where it includes it, and without ends."""
        return -math.inf if self.low is None or self.high is None else max(self.low, -self.high)

    def scaled(self, by: float) -> Interval:
        """In another unit: points for shares, say."""
        ends = [None if end is None else by * end for end in (self.low, self.high)]
        return Interval(by * self.estimate, ends[0], ends[1], self.n)


class Equivalence(NamedTuple):
    """Two one-sided tests (TOST) of whether a mean difference lies within +-margin."""

    difference: Interval  # 95 %, two-sided
    margin: float
    p: float | None  # the larger of the two one-sided p-values; None where n is 1

    @property
    def is_shown(self) -> bool:
        """Whether equivalence is shown at the 5 % level: the 90 % interval lies within the margins."""
        return self.p is not None and self.p < 0.05

    @property
    def is_refuted(self) -> bool:
        """Whether the 95 % interval lies wholly outside the margins."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > self.margin or high < -self.margin)


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


def mean_interval(values: Rows, *, confidence: float = 0.95) -> Interval:
    """Mean with Student's t interval; one value alone has none."""
    mean, std, n = mean_and_std(values)
    if std is None:
        return Interval(mean, None, None, 1)
    reach = t_quantile(0.5 + confidence / 2, n - 1) * std / math.sqrt(n)
    return Interval(mean, mean - reach, mean + reach, n)


def difference_interval(a: Rows, b: Rows, *, confidence: float = 0.95) -> Interval:
    """Mean of a minus mean of b, two independent samples of unequal variance (Welch). n is that of both together."""
    (mean_a, std_a, n_a), (mean_b, std_b, n_b) = mean_and_std(a), mean_and_std(b)
    if std_a is None or std_b is None:
        return Interval(mean_a - mean_b, None, None, n_a + n_b)
    of_a, of_b = std_a**2 / n_a, std_b**2 / n_b
    if of_a + of_b == 0:
        return Interval(mean_a - mean_b, mean_a - mean_b, mean_a - mean_b, n_a + n_b)
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (n_a - 1) + of_b**2 / (n_b - 1))
    reach = t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(of_a + of_b)
    return Interval(mean_a - mean_b, mean_a - mean_b - reach, mean_a - mean_b + reach, n_a + n_b)


def equivalence(differences: Rows, margin: float) -> Equivalence:
    """TOST on paired differences: is their mean shown to lie within +-margin?"""
    if not margin > 0:
        raise ValueError(f"the margin must be positive, got {margin}")
    difference = mean_interval(differences)
    _, std, n = mean_and_std(differences)
    if std is None:
        return Equivalence(difference, margin, None)
    nearest = margin - abs(difference.estimate)  # to the end that is closer, which has the larger p
    if std == 0:
        return Equivalence(difference, margin, 0.0 if nearest > 0 else 1.0)
    return Equivalence(difference, margin, 1 - t_below(nearest / (std / math.sqrt(n)), n - 1))


def share_interval(hits: int, n: int, *, confidence: float = 0.95) -> Interval:
    """A share of n with its exact interval (Clopper and Pearson), which never covers less than it says."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"hits must lie in 0..n and n be at least 1, got {hits} of {n}")
    tail = (1 - confidence) / 2
    low = beta_quantile(tail, hits, n - hits + 1) if hits else 0.0
    high = beta_quantile(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    return Interval(hits / n, low, high, n)


def ratio_of_shares(a: float, b: float, n: int, *, confidence: float = 0.95) -> Interval:
    """a / b of two shares of the same n examples, with Katz's logarithmic interval for independent ones.

    Two classifiers that are right on the same examples more often than chance has it are closer than that: where only
    their accuracies are known, the interval is too wide rather than too narrow.
    """
    if not (0 < a <= 1 and 0 < b <= 1 and n >= 1):
        raise ValueError(f"needs two shares in (0, 1] of at least one example, got {a} and {b} of {n}")
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(((1 - a) / a + (1 - b) / b) / n)
    return Interval(a / b, a / b * math.exp(-reach), a / b * math.exp(reach), n)


def correlation(x: Rows, y: Rows, *, confidence: float = 0.95) -> Interval:
    """Pearson's r with Fisher's interval: atanh r is normal with deviation 1 / sqrt(n - 3). None under four points."""
    a, b = _columns(x, y)
    apart = a.std() * b.std()
    if not apart > 0:
        raise ValueError("one of the two does not vary: they have no correlation")
    r = float(np.clip(((a - a.mean()) * (b - b.mean())).mean() / apart, -1, 1))
    if len(a) < 4:
        return Interval(r, None, None, len(a))
    if abs(r) == 1:
        return Interval(r, r, r, len(a))
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) / math.sqrt(len(a) - 3)
    return Interval(r, math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach), len(a))


def slope_interval(x: Rows, y: Rows, *, confidence: float = 0.95) -> Interval:
    """Slope of the least-squares line of y on x with Student's interval; none under three points."""
    a, b = _columns(x, y)
    spread = float(((a - a.mean()) ** 2).sum())
    if not spread > 0:
        raise ValueError("x does not vary: there is no slope")
    slope = float(((a - a.mean()) * (b - b.mean())).sum() / spread)
    if len(a) < 3:
        return Interval(slope, None, None, len(a))
    left = b - b.mean() - slope * (a - a.mean())
    reach = t_quantile(0.5 + confidence / 2, len(a) - 2) * math.sqrt(float((left**2).sum()) / (len(a) - 2) / spread)
    return Interval(slope, slope - reach, slope + reach, len(a))


def _columns(x: Rows, y: Rows) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(_plain(x), dtype=np.float64), np.asarray(_plain(y), dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ValueError(f"expected two lists of the same length, at least 2, got {list(a.shape)} and {list(b.shape)}")
    return a, b


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
