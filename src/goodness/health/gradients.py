"""How strongly each term of the objective pulls at a block: the norm of its gradient in the block's parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from goodness.step_context import Moment
    from goodness.training.step import Stepper


def term_gradient_norms(stepper: Stepper, views: Tensor, labels: Tensor, moment: Moment) -> list[dict[str, float]]:
    """Of every block d and term x the norm of lambda_x(d) dL_x / dtheta_d, theta_d all that block d owns.

    `views` are `[views, batch, C, H, W]`. The gradients of a block's terms add up to the one it steps along; their
    norms do not. A norm that is not finite is left out. Weights, gradients and buffers are afterwards as they were.
    """
    stepper, network = stepper.eager(), stepper.network
    found: list[dict[str, float]] = []
    with _buffers_kept(network), torch.enable_grad():
        situation = stepper.first(views, labels, moment)
        for depth, own in enumerate(stepper.owned):
            judged = stepper.loss(situation)
            with stepper.autocast():
                _, values = stepper.objective(judged.facts, network.block(depth).extras)
            norms = {}
            for name, value in values.items():
                coefficient = stepper.objective.terms[name].coefficient(depth, stepper.blocks, moment.progress)
                norm = abs(float(coefficient)) * _gradient_norm(value, own)
                if math.isfinite(norm):
                    norms[name] = norm
            found.append(norms)
            if depth + 1 < stepper.blocks:
                situation = stepper.next(situation, judged, moment)
    return found


def _gradient_norm(value: Tensor, parameters: list[nn.Parameter]) -> float:
    if not value.requires_grad:  # a term that is constant at this block
        return 0.0
    gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    lengths = [torch.linalg.vector_norm(one) for one in gradients if one is not None]
    return float(torch.linalg.vector_norm(torch.stack(lengths))) if lengths else 0.0


@contextmanager
def _buffers_kept(network: nn.Module) -> Iterator[None]:
    """A block of one's own may keep running statistics, which looking must not move."""
    kept = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
