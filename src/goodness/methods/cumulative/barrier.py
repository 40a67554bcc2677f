"""The softplus barrier, its derivative, and what cumulative history does to it.

l_beta(u) = softplus(-beta u) = log(1 + exp(-beta u))                                  (Eq. barrier)
l_beta'(u) = -beta sigmoid(-beta u)
R_gamma(m, P) = |l'(m + gamma P)| / |l'(m)| = (1 + exp(beta m)) / (1 + exp(beta (m + gamma P)))
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_EXACT = 40.0
"""softplus(x) is taken as x from here on: exact in float64, where torch's own 20 is off by 2e-9."""


def barrier(margin: Tensor, beta: float) -> Tensor:
    """l_beta(u) = softplus(-beta u), element by element, without overflow at any margin."""
    return F.softplus(-beta * margin, threshold=_EXACT)


def barrier_slope(margin: Tensor, beta: float) -> Tensor:
    """|l_beta'(u)| = beta sigmoid(-beta u)."""
    return beta * torch.sigmoid(-beta * margin)


def attenuation(margin: Tensor, past: Tensor, weight: Tensor | float, beta: float) -> Tensor:
    """R_gamma(m, P), the share of the local gradient that survives the history (Theorem 1).

    Written as exp(softplus(beta m) - softplus(beta (m + gamma P))): both exponents of the textbook form overflow
    for margins of a few hundred, their softplus does not. Above one where P < 0: history then amplifies.
    """
    return torch.exp(
        F.softplus(beta * margin, threshold=_EXACT) - F.softplus(beta * (margin + weight * past), threshold=_EXACT)
    )


def envelope(inherited: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Theorem 1's bounds on R where m >= 0 and w P >= 0: exp(-beta w P) and min(1, 2 exp(-beta w P))."""
    lower = torch.exp(-beta * inherited)
    return lower, (2 * lower).clamp(max=1)


def residual_weights(past: Tensor, beta: float, w_min: float, w_max: float) -> Tensor:
    """Weights of mean one that lean on what the earlier blocks left unresolved (Eq. residual_weights).

    a = sigmoid(-beta P), u = clip(a / mean a, w_min, w_max), w = u / mean u; hence w >= w_min / w_max.
    The ratio a / mean a is taken in logarithms, so that a batch of large margins (a = 0 in floating point)
    still gives weights.
    """
    log_a = F.logsigmoid(-beta * past)
    log_mean = torch.logsumexp(log_a, dim=-1, keepdim=True) - torch.log(
        torch.tensor(float(past.shape[-1]), dtype=past.dtype, device=past.device)
    )
    clipped = torch.exp(log_a - log_mean).clamp(w_min, w_max)
    return clipped / clipped.mean(dim=-1, keepdim=True)
