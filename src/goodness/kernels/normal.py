"""The normal distribution for GELU and its slope, from a single exponential."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportFunctionMemberAccess=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normal(x):
    """P(Z <= x) and the density at x, for float32; the share is right to 3e-7 (Abramowitz and Stegun, 26.2.17).

    exp2 and rsqrt are one instruction each; exp and a division, which mind numbers below 1e-38, are four and eight.
    """
    density = tl.exp2(-0.7213475204444817 * (x * x) - 1.3257480647361593)  # exp(-x^2 / 2) / sqrt(2 pi)
    from_zero = 1.0 + 0.2316419 * tl.abs(x)
    t = tl.rsqrt(from_zero * from_zero)  # 1 / from_zero
    series = 1.330274429 * t - 1.821255978
    series = series * t + 1.781477937
    series = series * t - 0.356563782
    series = series * t + 0.319381530
    beyond = series * t * density
    return tl.where(x >= 0, 1.0 - beyond, beyond), density
