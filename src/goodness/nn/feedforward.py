"""Position-wise feed-forward layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness import kernels
from goodness.nn.attention import NORM_EPSILON, RMSNorm


class GEGLU(nn.Module):
    """down(gelu(gate(x)) * up(x)); gate and up are one matrix product."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(gated(self.gate_up(x)))

    def beside(self, tokens: Tensor, norm: RMSNorm) -> Tensor:
        """tokens + self(norm(tokens)), in one kernel where no gradient is asked for and there is one."""
        is_read_alone = not torch.is_grad_enabled() and tokens.dtype == kernels.computed_in(tokens)
        if is_read_alone and kernels.are_used(tokens):
            from goodness.kernels.feedforward import fed_forward, serves, shared_memory

            room = shared_memory(tokens.device.index or 0)
            if serves(tokens.shape[-1], self.down.in_features, room):
                return fed_forward(tokens, norm.scale, self.gate_up.weight, self.down.weight, NORM_EPSILON, room)
        return tokens + self(norm(tokens))


def gated(gate_up: Tensor) -> Tensor:
    """gelu(gate) * up of `[..., 2 * hidden]`, gate first."""
    if kernels.are_used(gate_up):
        from goodness.kernels.geglu import geglu

        flat = gate_up.reshape(-1, gate_up.shape[-1]).contiguous()
        return geglu(flat).reshape(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
    return gated_plainly(gate_up)


def gated_plainly(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate) * up
