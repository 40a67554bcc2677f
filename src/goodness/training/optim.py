"""Per-block AdamW, the learning-rate schedule, clipping, and the moving average that teaches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from goodness.config import Optim
from goodness.model.network import Network


def learning_rate(step: int, steps: int, config: Optim) -> float:
    """Linear warm-up, then a cosine to zero: lr/2 (1 + cos(pi t)), t the share of the steps after the warm-up."""
    warm = config.warmup * steps
    if step < warm:
        return config.lr * (step + 1) / (warm + 1)
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))


def block_optimisers(network: Network, config: Optim) -> list[torch.optim.AdamW]:
    """One AdamW per block over that block's parameters alone; block 0's also trains the stem."""
    optimisers = []
    for depth in range(len(network.blocks)):
        own = list(network.owned(depth).values())
        groups = [
            {"params": [p for p in own if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in own if p.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        optimisers.append(torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True))
    return optimisers


def match_layout(optimiser: torch.optim.Optimizer) -> None:
    """Give restored moments their parameter's memory layout.

    A checkpoint holds plain contiguous tensors; on a GPU the stem's weights are channels-last, and the fused step
    refuses moments laid out in another way.
    """
    for parameter, state in optimiser.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = value


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)


@torch.no_grad()
def perturb(parameters: list[nn.Parameter], norm: Tensor, radius: float) -> Callable[[], None]:
    """Move the weights by radius * g / |g| (SAM's first half); the returned function puts back the very same bits."""
    moved = [p for p in parameters if p.grad is not None]
    kept = [p.clone() for p in moved]
    scale = radius / (norm + 1e-12)
    for parameter in moved:
        parameter.add_(parameter.grad * scale)  # type: ignore[operator]

    @torch.no_grad()
    def put_back() -> None:
        for parameter, value in zip(moved, kept):
            parameter.copy_(value)

    return put_back


def clip(parameters: list[nn.Parameter], norm: Tensor, most: float) -> None:
    """Scale the block's gradient to at most `most`; 0 leaves it."""
    if most > 0:
        torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


class MovingAverage:
    """The teacher: a copy of stem and blocks (without the terms' extras) that follows each block after its step."""

    def __init__(self, network: Network, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network)
        for block in self.network.blocks:
            block.extras = nn.ModuleDict()
        self.network.requires_grad_(False).eval()
        own = dict(network.named_parameters())
        self._pairs: list[tuple[list[Tensor], list[Tensor]]] = []
        for depth in range(len(network.blocks)):
            mine = self.network.owned(depth)
            self._pairs.append(([*mine.values()], [own[name] for name in mine]))
        buffers = dict(network.named_buffers())
        self._buffers = [(mine, buffers[name]) for name, mine in self.network.named_buffers()]

    def decay_at(self, step: int) -> float:
        return min(self.decay, 1 - 1 / (step + 2))

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """Take over what the blocks remember without learning it (a user's running statistics)."""
        for mine, theirs in self._buffers:
            mine.copy_(theirs)

    @torch.no_grad()
    def follow(self, depth: int, step: int) -> None:
        """Move block `depth`'s average towards its weights."""
        mine, theirs = self._pairs[depth]
        torch._foreach_lerp_(mine, theirs, 1 - self.decay_at(step))  # pyright: ignore[reportPrivateImportUsage]
