"""The paper's measures as plain functions of numbers: attenuation and its bounds, free-riding, loss collapse, depth
saturation, residual weights, the gate.

They take numpy arrays, torch tensors, lists or numbers, and broadcast. A tensor among the arguments gives a tensor (its
dtype, its device, its gradient); numbers alone give a float; anything else gives a numpy array in float64. The work is
done in float64 and in a form that neither overflows nor cancels, so margins of +-1000 are as good as margins of one.

Symbols: m = g+ - g- of one block; P = sum of the earlier blocks' m; gamma weight of P; beta sharpness of the barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from goodness.methods.cumulative import barrier, collaboration

Numbers: TypeAlias = "float | Sequence[Any] | np.ndarray | Tensor"
"""A number, a list of them (nested where it has several axes), a numpy array or a torch tensor."""

COMPLEX = (np.complex64, np.complex128, torch.complex64, torch.complex128)


def attenuation_ratio(m: Numbers, P: Numbers, gamma: Numbers, beta: float) -> Any:
    """R_gamma(m, P) = (1 + exp(beta m)) / (1 + exp(beta (m + gamma P))), element by element (Theorem 1).

    The share of block d's local gradient that is left once the earlier blocks' evidence P has entered its loss. For
    m >= 0 and P >= 0 it lies between exp(-beta gamma P) and min(1, 2 exp(-beta gamma P)); for P < 0 it is above one
    (and infinite where no float64 can hold it).

    >>> round(attenuation_ratio(0.0, 2.0, 1.0, 4.0), 6)
    0.000671
    """
    values = _Values(m=m, P=P, gamma=gamma)
    margin, past, weight = values.tensors
    return values.back(barrier.attenuation(margin, past, weight, _positive("beta", beta)))


def free_riding_index(m: Numbers, P: Numbers, gamma: Numbers, beta: float) -> float:
    """F_d = mean over examples of 1 - min(1, R_gamma(m, P)) (App., "Free-riding index").

    0 where the whole local gradient reaches the block, towards 1 where none does. The clip keeps examples that the
    earlier blocks got wrong (P < 0, R > 1) from making up for the others. gamma may differ from example to example.
    """
    margin, past, weight = _Values(m=m, P=P, gamma=gamma).tensors
    ratio = barrier.attenuation(margin, past, weight, _positive("beta", beta))
    if ratio.numel() == 0:
        raise ValueError("the free-riding index is a mean over examples, and there are none")
    return float((1 - ratio.clamp(max=1)).mean())


def attenuation_bounds(P: Numbers, gamma: Numbers, beta: float) -> tuple[Any, Any]:
    """exp(-beta gamma P) and min(1, 2 exp(-beta gamma P)), between which R lies where m >= 0 and P >= 0 (Theorem 1).

    NaN where P is negative: the theorem says nothing there.
    """
    values = _Values(P=P, gamma=gamma)
    past, weight = values.tensors
    lower, upper = barrier.envelope(weight * past, _positive("beta", beta))
    return values.back(lower.masked_fill(past < 0, torch.nan)), values.back(upper.masked_fill(past < 0, torch.nan))


def loss_collapse(M: Numbers, beta: float) -> float:
    """LC(d) = mean over examples of l_beta(M), M = m^(0) + .. + m^(d) the inference margin (Eq. diagnostics).

    Small together with a small separation of block d alone: the block rides for free.
    """
    (margin,) = _Values(M=M).tensors
    if margin.numel() == 0:
        raise ValueError("the loss collapse is a mean over examples, and there are none")
    return float(barrier.barrier(margin, _positive("beta", beta)).mean())


def depth_saturation(accuracies: Sequence[float]) -> list[float]:
    """DS(d) = accuracy of blocks 0..d over the accuracy of all blocks (Eq. diagnostics); all one where that is zero.

    >>> depth_saturation([0.4, 0.6, 0.8])[0]
    0.5
    """
    given = [float(accuracy) for accuracy in accuracies]
    return [accuracy / given[-1] if given[-1] > 0 else 1.0 for accuracy in given]


def residual_weights(P: Numbers, beta: float, w_min: float, w_max: float) -> Any:
    """Weights of mean one over the last axis that lean on what the earlier blocks left unresolved (Eq.
    residual_weights): a = sigmoid(-beta P), u = clip(a / mean a, w_min, w_max), w = u / mean u. A number alone is a
    batch of one, whose weight is one.
    """
    if not 0 < w_min <= w_max:
        raise ValueError(f"the bounds must keep 0 < w_min <= w_max, got {w_min} and {w_max}")
    values = _Values(P=P)
    (past,) = values.tensors
    if past.numel() == 0:
        raise ValueError("residual weights have mean one over a batch, and there are no examples")
    if not bool(past.isfinite().all()):
        raise ValueError("residual weights have mean one over a batch, and P has values that are not finite")
    weights = barrier.residual_weights(torch.atleast_1d(past), _positive("beta", beta), w_min, w_max)
    return values.back(weights.reshape(past.shape))


def gate(s: Numbers, gamma0: Numbers, tau: Numbers, kappa: Numbers) -> Any:
    """gamma_i = gamma0 sigmoid(tau (kappa - s_i)): the weight of the history for an example of earlier goodness s_i.

    All four broadcast, so a sweep of the dial is `gate(s[:, None], 0.7, 1.0, kappas)`.
    """
    values = _Values(s=s, gamma0=gamma0, tau=tau, kappa=kappa)
    slope = values.tensors[2]
    if not bool(((slope > 0) & slope.isfinite()).all()):
        raise ValueError(f"tau must be positive and finite, got {tau}")
    return values.back(collaboration.gate(*values.tensors))


class _Values:
    """Named arguments as float64 tensors that broadcast, and the way back to the kind they came as."""

    def __init__(self, **given: Numbers) -> None:
        self.like = _result_like([one for one in given.values() if isinstance(one, Tensor)])
        self.is_plain = all(isinstance(one, (int, float)) for one in given.values())
        self.tensors: list[Any] = [self._wide(name, one) for name, one in given.items()]
        try:
            torch.broadcast_shapes(*(one.shape for one in self.tensors))
        except RuntimeError:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in zip(given, self.tensors))
            raise ValueError(f"these shapes do not broadcast: {shapes}") from None

    def _wide(self, name: str, value: Numbers) -> Tensor:
        device = torch.device("cpu") if self.like is None else self.like.device
        dtype = torch.float32 if device.type == "mps" else torch.float64  # which an Apple GPU does not have
        if isinstance(value, (Tensor, np.ndarray)) and value.dtype in COMPLEX:
            raise ValueError(f"{name} must be real numbers")
        if isinstance(value, Tensor):
            return value.to(dtype)
        try:
            array = np.array(value, dtype=np.float64)  # a copy: torch shares memory, and warns of what is read-only
        except (TypeError, ValueError) as trouble:
            raise ValueError(f"{name} must be numbers in a regular shape: {trouble}") from trouble
        return torch.from_numpy(array).to(dtype).to(device)

    def back(self, result: Tensor) -> Any:
        """The result as a tensor like those given, a float, or a numpy array."""
        if self.like is not None:
            return result.to(self.like.dtype)
        return float(result) if self.is_plain else result.numpy()[()]


def _result_like(tensors: list[Tensor]) -> Tensor | None:
    """An empty tensor of the dtype and on the device that the result is to have; None where no tensor was given."""
    if not tensors:
        return None
    dtype = tensors[0].dtype
    for one in tensors[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    return torch.empty(0, dtype=dtype if dtype.is_floating_point else None, device=tensors[0].device)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return float(value)
