"""Where in the training a step stands, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

Measured = tuple[tuple[str, ...], Tensor]
"""Names and values `[names]` of what one step says of one block; one tensor, so that adding up is one kernel."""


Said = Sequence["Measured | None"]
"""What one step says of each part; None of one that does not learn now."""


@dataclass(frozen=True)
class Moment:
    """Where in the training a step stands."""

    epoch: int
    step: int  # within the epoch
    total_step: int  # since the start
    total_steps: int  # of the whole training
    progress: float  # share of the epochs begun before this one, 0 to 1
