"""Student's t and the beta distribution, as far as confidence intervals need them, without scipy."""

from __future__ import annotations

import math
from collections.abc import Callable


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, for a, b > 0 and x in [0, 1].

    Lentz's continued fraction on the side where it converges fast; the other side by I_x(a, b) = 1 - I_{1-x}(b, a).
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"needs a, b > 0 and x in [0, 1], got a = {a}, b = {b}, x = {x}")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d, c = 1 + step * d, 1 + step / c
            d = 1 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * fraction


def t_below(t: float, freedom: float) -> float:
    """P(T <= t) for Student's t with so many degrees of freedom."""
    tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return tail if t < 0 else 1 - tail


def t_quantile(share: float, freedom: float) -> float:
    """The t below which that share of the distribution lies.

    >>> round(t_quantile(0.975, 2), 3)
    4.303
    """
    if not (0 < share < 1 and freedom > 0):
        raise ValueError(f"needs a share within (0, 1) and freedom > 0, got {share} and {freedom}")
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    high = 1.0
    while t_below(high, freedom) < share:
        high *= 2
    return _root(lambda t: t_below(t, freedom) - share, 0.0, high)


def beta_quantile(share: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = share."""
    return _root(lambda x: incomplete_beta(x, a, b) - share, 0.0, 1.0)


def _root(rises: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses zero, by halving until floats end."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if rises(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
