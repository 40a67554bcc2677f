"""The normal distribution for GELU and its slope, from a single exponential."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportFunctionMemberAccess=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normal(x):
    """P(Z <= x) and the density at x, for float32; the share is right to 1e-7 (Abramowitz and Stegun, 7.1.26)."""
    density = tl.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + 0.23164190 * tl.abs(x))
    series = 1.061405429 * t - 1.453152027
    series = series * t + 1.421413741
    series = series * t - 0.284496736
    series = series * t + 0.254829592
    beyond = 0.5 * series * t * density
    return tl.where(x >= 0, 1.0 - beyond, beyond), 0.3989422804014327 * density
