"""Position-wise feed-forward layers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class GEGLU(nn.Module):
    """down(gelu(gate(x)) * up(x)); gate and up are one matrix product."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate) * up)
