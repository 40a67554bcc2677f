"""A mixture of GEGLU experts: every token goes through the k experts its router likes best.

No capacity limit, no token dropped. A chosen expert weighs with its share of the softmax over all experts, scaled
so that the k weights sum to one.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness import kernels
from goodness.nn.attention import widen
from goodness.nn.feedforward import gated, gated_plainly

GROUPED = (torch.float32, torch.bfloat16, torch.float16)
"""What torch's grouped matrix product takes, if rows are whole multiples of 16 bytes; else we go the plain way."""


class Routing(NamedTuple):
    """Router logits `[tokens, experts]`, the chosen experts and their weights `[tokens, k]`."""

    logits: Tensor
    chosen: Tensor
    weights: Tensor


def route(logits: Tensor, k: int, in_rounds: bool = False) -> Routing:
    """The k best experts of every token, ordered by share; `in_rounds` is the way that compiles well."""
    best = best_in_rounds if in_rounds else torch.topk
    share, chosen = best(logits.softmax(dim=-1), k)
    return Routing(logits, chosen, share / share.sum(dim=-1, keepdim=True))


def best_in_rounds(shares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk` of shares, none of which is below zero, one winner after the other.

    Among few experts this is one compiled kernel each way, where topk takes a kernel that selects, one that sorts and
    one that scatters gradients.
    """
    columns = torch.arange(shares.shape[-1], device=shares.device)
    left = shares.detach()
    values: list[Tensor] = []
    chosen: list[Tensor] = []
    for _ in range(k):
        winner = left.argmax(dim=-1, keepdim=True)
        is_winner = columns == winner
        values.append(shares.where(is_winner, 0).sum(dim=-1, keepdim=True))
        chosen.append(winner)
        left = left.masked_fill(is_winner, -1)
    return torch.cat(values, dim=-1), torch.cat(chosen, dim=-1)


class MixtureOfExperts(nn.Module):
    """`[..., width]` to the same, and where the tokens went."""

    def __init__(self, width: int, hidden: int, experts: int, k: int) -> None:
        super().__init__()
        _keep_outside_graphs()
        self.experts, self.k = experts, k
        self.is_aligned = width % 8 == 0 and hidden % 8 == 0
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter((2 * torch.rand(experts, width, 2 * hidden) - 1) * width**-0.5)
        self.down = nn.Parameter((2 * torch.rand(experts, hidden, width) - 1) * hidden**-0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Routing]:
        flat, in_rounds = x.reshape(-1, x.shape[-1]), kernels.are_used(x)
        with torch.autocast(x.device.type, enabled=False):  # a router in bfloat16 would flip its choices
            logits = F.linear(widen(flat), self.router.weight.to(widen(flat).dtype))
            routing = route(logits, self.k, in_rounds)
        if self.is_aligned and kernels.computed_in(flat) == torch.bfloat16:
            return self.mix(flat, routing).reshape(x.shape), routing
        return self._mix_outside_graphs(flat, routing).reshape(x.shape), routing

    def _mix_outside_graphs(self, flat: Tensor, routing: Routing) -> Tensor:
        """Where a compiled graph could not take the grouped product in (it knows bfloat16 alone) or the plain way."""
        mix = self.mix if self.is_aligned and kernels.computed_in(flat) in GROUPED else self.mix_plainly
        return mix(flat, routing)

    def mix(self, flat: Tensor, routing: Routing) -> Tensor:
        """Sort the (token, choice) pairs by expert, one grouped product per layer, sort back, weigh, add."""
        from goodness.nn.permuted import permuted  # imports torch's compiler, as building a mixture does

        dtype = kernels.computed_in(flat)
        tokens, k = routing.chosen.shape
        keys = routing.chosen.reshape(-1).to(torch.uint8 if self.experts <= 256 else torch.int32)
        order = keys.argsort(stable=True)  # digit by digit on a GPU: short keys have few
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        ends = load(routing).cumsum(dim=0).to(torch.int32)
        copies = flat.to(dtype).unsqueeze(1).expand(-1, k, -1).reshape(tokens * k, flat.shape[-1])
        hidden = gated(F.grouped_mm(permuted(copies, order, back), self.gate_up.to(dtype), offs=ends))
        outputs = permuted(F.grouped_mm(hidden, self.down.to(dtype), offs=ends), back, order)
        return (outputs.reshape(tokens, k, flat.shape[-1]) * routing.weights.unsqueeze(-1).to(dtype)).sum(dim=1)

    def mix_plainly(self, flat: Tensor, routing: Routing) -> Tensor:
        """The readable twin of `mix`: one expert after the other, each on the tokens that chose it."""
        total = torch.zeros_like(flat)
        for expert in range(self.experts):
            tokens, choice = (routing.chosen == expert).nonzero(as_tuple=True)
            output = gated_plainly(flat[tokens] @ self.gate_up[expert]) @ self.down[expert]
            total = total.index_add(0, tokens, output * routing.weights[tokens, choice].unsqueeze(-1).to(output.dtype))
        return total


@functools.cache
def _keep_outside_graphs() -> None:
    """Done once, when a mixture is built: it imports torch's compiler, a second or more that others need not wait."""
    disabled: Any = torch.compiler.disable(MixtureOfExperts._mix_outside_graphs)
    MixtureOfExperts._mix_outside_graphs = disabled


def load(routing: Routing) -> Tensor:
    """How many choices went to each expert, `[experts]`."""
    experts = torch.arange(routing.logits.shape[-1], device=routing.chosen.device)
    return (routing.chosen.reshape(-1, 1) == experts).sum(dim=0)
