"""Per-block optimisers, the learning-rate schedule, clipping, and the moving average that teaches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from goodness.config import Optim
from goodness.errors import ConfigError
from goodness.nn.network import Network
from goodness.training.muon import Muon


def learning_rate(step: int, steps: int, peak: float, warmup: float, schedule: str = "cosine") -> float:
    """Linear warm-up, then a cosine to zero: lr/2 (1 + cos(pi t)), t the share of the steps after the warm-up. Or a
    line to zero, at once or from t = 1/2 on, or the peak all along."""
    warm = warmup * steps
    if step < warm:
        return peak * (step + 1) / (warm + 1)
    left = 1 - (step - warm) / max(1.0, steps - warm)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))
    return peak * {"linear": left, "late-linear": min(1.0, 2 * left), "constant": 1.0}[schedule]


def learning_window(depth: int, blocks: int, steps: int, freeze: str) -> tuple[int, int]:
    """The steps from which and up to which block `depth` learns: all of them, unless blocks are frozen in turn."""
    share = lambda part: round(part * steps / blocks)  # noqa: E731
    if freeze == "greedy":
        return share(depth), share(depth + 1)
    if freeze == "prefix":
        return 0, share(depth + 1)
    return 0, steps


def adamw(parameters: list[nn.Parameter], lr: float, weight_decay: float, betas: tuple[float, float]) -> AdamW:
    """AdamW that decays matrices only."""
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=lr, betas=betas, fused=True)


def block_optimisers(network: Network, config: Optim) -> list[torch.optim.Optimizer]:
    """One optimiser per block over that block's parameters alone; block 0's also trains the stem."""
    inside = [("stem.", f"blocks.{depth}.body.") for depth in range(len(network.blocks))]
    return [optimiser(network.owned(depth), config, inside[depth]) for depth in range(len(network.blocks))]


def optimiser(named: Mapping[str, nn.Parameter], config: Optim, inside: tuple[str, ...]) -> torch.optim.Optimizer:
    """As configured, for parameters by name; matrices and filters whose name begins like one of `inside` are Muon's."""
    if config.kind == "adamw":
        return adamw(list(named.values()), config.lr, config.weight_decay, config.betas)
    inner = [name for name, one in named.items() if one.dim() >= 2 and name.startswith(inside)]
    others = [one for name, one in named.items() if name not in inner]
    return Muon(
        [named[name] for name in inner],
        others,
        lr=config.lr,
        momentum=config.momentum,
        betas=config.betas,
        weight_decay=config.weight_decay,
    )


def unit_optimiser(groups: list[dict[str, Any]], config: Optim) -> torch.optim.Optimizer:
    """The optimiser of a unit of blocks, from parameter groups whose "rate" scales their learning rate.

    Only matrices and filters decay. Muon takes those of groups that say `"muon": True`.
    """
    if config.kind == "muon":
        if any(group.get("rate", 1.0) != 1.0 or "weight_decay" in group for group in groups):
            raise ConfigError("this method sets rates or weight decay by parameter group, which muon does not have")
        inner = [one for group in groups if group.get("muon") for one in group["params"] if one.dim() >= 2]
        chosen = set(map(id, inner))
        others = [one for group in groups for one in group["params"] if id(one) not in chosen]
        return Muon(
            inner,
            others,
            lr=config.lr,
            momentum=config.momentum,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
    split: dict[tuple[Any, ...], dict[str, Any]] = {}  # by what they have in common: each group is a call of its own
    for group in groups:
        rest = {name: value for name, value in group.items() if name not in ("params", "muon")}
        for one in group["params"]:
            decay = rest.get("weight_decay", config.weight_decay) if one.dim() >= 2 else 0.0
            alike = {**rest, "weight_decay": decay}
            split.setdefault(tuple(sorted(alike.items())), {**alike, "params": []})["params"].append(one)
    if config.kind == "sgd":
        return torch.optim.SGD(split.values(), lr=config.lr, momentum=config.momentum, fused=True)
    kind = torch.optim.Adam if config.kind == "adam" else AdamW
    return kind(split.values(), lr=config.lr, betas=config.betas, fused=True)


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
    """Of every group, times the group's own "rate" where it has one."""
    for group in optimiser.param_groups:
        rate = value * group["rate"] if "rate" in group else value
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def make_recordable(optimiser: torch.optim.Optimizer, device: torch.device, bad: Tensor) -> None:
    """Let the optimiser read its learning rate from a tensor, and take no step where `bad` is 1."""
    for group in optimiser.param_groups:
        group["lr"] = torch.full((), float(group["lr"]), device=device)
        group["capturable"] = device.type == "cuda"
    optimiser.found_inf = bad  # type: ignore[attr-defined]  # what the fused step asks for


def state_of(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state for a checkpoint: moments and steps. Learning rates are set anew at every step."""
    state = optimiser.state_dict()
    groups = [{**group, "lr": 0.0, "capturable": False} for group in state["param_groups"]]
    return {**state, "param_groups": groups}


def restore_state(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take up what `state_of` gave; learning rates stay where they are kept."""
    kept = [(group["lr"], group.get("capturable", False)) for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, (rate, capturable) in zip(optimiser.param_groups, kept):
        group["lr"], group["capturable"] = rate, capturable
    match_layout(optimiser)


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


def average_decay(step: int, decay: float) -> float:
    """min(decay, 1 - 1 / (t + 2)): a plain mean at first, so that the start is forgotten soon."""
    return min(decay, 1 - 1 / (step + 2))


class MovingAverage:
    """The teacher: a copy of stem and blocks (without the terms' extras) that follows each block after its step."""

    def __init__(self, network: Network, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network)
        for block in self.network.blocks:
            block.extras = nn.ModuleDict()
        self.network.requires_grad_(False).eval()
        self._pairs = [_pairs(self.network.owned(depth), network) for depth in range(len(network.blocks))]
        self._buffers = _buffer_pairs(self.network, network)
        self.shares: list[Tensor] | None = None  # how far each block's average moves, where a recorded step reads it

    def make_recordable(self, device: torch.device) -> None:
        self.shares = [torch.zeros((), device=device) for _ in self._pairs]

    def aim(self, depth: int, step: int) -> None:
        """Set how far `follow` will move."""
        if self.shares is not None:
            self.shares[depth].fill_(1 - average_decay(step, self.decay))

    def copy_buffers(self) -> None:
        """Take over what the blocks remember without learning it (a user's running statistics)."""
        _copy(self._buffers)

    def follow(self, depth: int, step: int, bad: Tensor | None = None) -> None:
        """Move block `depth`'s average towards its weights; where recorded, as `aim` set, and not if `bad` is 1."""
        if self.shares is None or bad is None:
            move_towards(self._pairs[depth], 1 - average_decay(step, self.decay))
        else:
            move_towards(self._pairs[depth], self.shares[depth] * (1 - bad))


class WholeAverage:
    """The moving average of a network that is trained as one."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self._pairs = _pairs(dict(self.network.named_parameters()), network)
        self._buffers = _buffer_pairs(self.network, network)
        self.share: Tensor | None = None  # as MovingAverage's shares

    def make_recordable(self, device: torch.device) -> None:
        self.share = torch.zeros((), device=device)

    def aim(self, step: int) -> None:
        if self.share is not None:
            self.share.fill_(1 - average_decay(step, self.decay))

    def follow(self, step: int, bad: Tensor | None = None) -> None:
        """Move the average towards the weights; buffers are taken over as they are."""
        by = 1 - average_decay(step, self.decay) if self.share is None or bad is None else self.share * (1 - bad)
        move_towards(self._pairs, by)
        _copy(self._buffers)


Pairs = tuple[list[Tensor], list[Tensor]]


def _pairs(mine: dict[str, nn.Parameter], network: nn.Module) -> Pairs:
    theirs = dict(network.named_parameters())
    return list(mine.values()), [theirs[name] for name in mine]


def _buffer_pairs(mine: nn.Module, network: nn.Module) -> list[tuple[Tensor, Tensor]]:
    theirs = dict(network.named_buffers())
    return [(buffer, theirs[name]) for name, buffer in mine.named_buffers()]


@torch.no_grad()
def _copy(buffers: list[tuple[Tensor, Tensor]]) -> None:
    for mine, theirs in buffers:
        mine.copy_(theirs)


@torch.no_grad()
def move_towards(pairs: Pairs, share: float | Tensor) -> None:
    """mine += share * (theirs - mine)."""
    mine, theirs = pairs
    if not mine:  # a block may have nothing to learn
        return
    if isinstance(share, float):
        torch._foreach_lerp_(mine, theirs, share)  # pyright: ignore[reportPrivateImportUsage]
        return
    steps = torch._foreach_sub(theirs, mine)  # pyright: ignore[reportPrivateImportUsage]
    torch._foreach_mul_(steps, share)  # pyright: ignore[reportPrivateImportUsage]
    torch._foreach_add_(mine, steps)  # pyright: ignore[reportPrivateImportUsage]
