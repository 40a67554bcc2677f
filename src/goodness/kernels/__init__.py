"""Fast ways on a GPU for what torch.compile leaves slow.

Each has a plain twin where it is used, in `goodness.nn`, and a test that holds it against the twin in Triton's
interpreter, on a CPU. Triton is imported only where a kernel runs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator

import torch
from torch import Tensor

is_on = True
"""Whether the kernels may be used; `switched_off` says no for a while."""

HAS_TRITON = importlib.util.find_spec("triton") is not None


def computed_in(x: Tensor) -> torch.dtype:
    """The type that matrix products of this tensor are taken in: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def are_used(x: Tensor) -> bool:
    """Whether this tensor goes through the kernels: on a CUDA device, in half precision, where there is Triton."""
    return is_on and x.is_cuda and computed_in(x) in (torch.bfloat16, torch.float16) and HAS_TRITON


def load() -> None:
    """Import every kernel now, not where it runs first; Triton must be there."""
    for name in ("convolution", "feedforward", "geglu", "group_norm", "pool", "short_attention", "tail"):
        importlib.import_module(f"goodness.kernels.{name}")


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Within, everything goes the plain way."""
    global is_on
    before, is_on = is_on, False
    try:
        yield
    finally:
        is_on = before
