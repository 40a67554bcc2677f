"""The locality audit: a block's loss must give no gradient to any parameter but the block's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goodness.config import Config
from goodness.nn.network import Network


@dataclass(frozen=True)
class Leak:
    """A parameter that a foreign block's loss reaches."""

    loss_of_block: int
    parameter: str
    largest_gradient: float


def audit_locality(network: Network, config: Config, images: Tensor, labels: Tensor) -> list[Leak]:
    """Every leak: for each block's loss, the foreign parameters whose gradient is neither None nor exactly zero.

    The whole chain is kept alive, from the stem through all blocks, so that a missing detach anywhere shows.
    `images` are `[batch, C, H, W]` in [0, 1].
    """
    from goodness.step_context import Moment
    from goodness.training.step import Stepper

    batch = len(images)
    if batch < 2 or images.shape[1:] != network.shape or labels.shape != (batch,) or not bool(images.isfinite().all()):
        raise ValueError(
            f"an audit needs at least two finite images of shape {list(network.shape)} and a label each; got images "
            f"{list(images.shape)} and labels {list(labels.shape)}"
        )
    if not all(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("a frozen parameter can take no gradient: network.requires_grad_(True) first")
    _require_extras(network, config)
    stepper = Stepper(network, config)
    moment = Moment(epoch=0, step=0, total_step=0, total_steps=1, progress=0.0)
    everything = dict(network.named_parameters())
    leaks: list[Leak] = []
    situation = stepper.first(images.expand(config.views, *images.shape), labels, moment)
    for depth in range(len(network.blocks)):
        judged = stepper.loss(situation)
        own = network.owned(depth)
        gradients = torch.autograd.grad(judged.loss, list(everything.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(everything, gradients):
            if name not in own and gradient is not None and bool((gradient != 0).any()):
                leaks.append(Leak(depth, name, float(gradient.abs().max())))
        if depth + 1 < len(network.blocks):
            situation = stepper.next(situation, judged, moment)
    return leaks


def _require_extras(network: Network, config: Config) -> None:
    """What the terms learn lies in the network, unless it was built without them."""
    for name, term in config.objective.items():
        for depth in range(len(network.blocks)):
            block, width = network.block(depth), network.shapes[depth + 1][0]
            if name in block.extras or not term.acts_at(depth, len(network.blocks)):
                continue
            if term.module_for(width, len(block.head.names), network.classes) is not None:
                raise ValueError(f"the network lacks what term '{name}' learns: build it with terms=config.objective")
