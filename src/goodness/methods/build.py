"""A method from its configuration, and the evidence of its blocks for many images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from goodness.draws import key
from goodness.methods.base import Method
from goodness.parts import ImageFacts
from goodness.precision import autocast

if TYPE_CHECKING:
    from goodness.config import Config

AT_ONCE = 512
"""Images that are judged at once, or as many hypotheses."""


def build_method(config: Config, facts: ImageFacts, seed: int) -> Method:
    """The method around its network, with initial weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, "weights"))
        blocks = config.network.build(config.method.enters(facts), facts, config)
        return config.method.build(blocks, facts)


@torch.no_grad()
def largest_signal(config: Config, facts: ImageFacts) -> int:
    """How many numbers a block hands on for one example under one hypothesis, at most."""
    method = build_method(config, facts, seed=0).eval()
    asked = torch.zeros(2, 1, dtype=torch.long)
    outs = (out for _, _, out in method.walk(method.present(torch.zeros(2, *facts.shape), asked)))
    return max(value[0].numel() for out in outs for value in out.on.values())


@torch.no_grad()
def evidence_of(
    method: Method,
    images: Tensor,
    *,
    tta: bool = False,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
) -> Tensor:
    """Evidence `[blocks, n, classes]` float32 on the CPU of uint8 images `[n, C, H, W]`, some at a time."""
    device = method.weights.device
    rows = max(1, AT_ONCE // method.classes) if method.asks else AT_ONCE
    found = []
    for some in images.split(rows):
        poll()
        chunk = some.to(device).float() / 255
        with autocast(device, dtype):
            said = method.evidence(chunk)
            if tta:
                said = (said + method.evidence(chunk.flip(-1))) / 2
        found.append(said.float().cpu())
    return torch.cat(found, dim=1) if found else torch.zeros(len(method.blocks), 0, method.classes)
