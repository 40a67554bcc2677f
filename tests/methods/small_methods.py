"""Small networks, batches and trainers for the tests of methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config, override
from goodness.draws import Draws
from goodness.methods.base import Method, Signal, Step
from goodness.methods.build import build_method
from goodness.parts import ImageFacts
from goodness.training.trainer import Trainer

DIGITS = ImageFacts((1, 8, 8), 10, (0.3,), (0.35,))


def small(method: str, changes: Mapping[str, Any]) -> Config:
    """A method on scikit-learn's digits, trained by plain Adam."""
    plain = {
        "data": "digits",
        "augment": "none",
        "batch": 50,
        "optim.kind": "adam",
        "optim.lr": 3e-3,
        "optim.weight_decay": 0.0,
        "optim.clip": 0.0,
        "optim.ema": 0.0,
        "keep.evaluate_every": 100,
        "deterministic": True,
    }
    return override(Config(), {"method": method, **plain, **changes}).check()


def made(config: Config, facts: ImageFacts = DIGITS) -> Method:
    return build_method(config, facts, config.seed)


def trainer(config: Config, facts: ImageFacts = DIGITS) -> Trainer:
    draws = Draws(torch.device("cpu"), config.seed)
    return Trainer(made(config, facts), config.optim, config.step, draws=draws)


def batch(count: int = 12, facts: ImageFacts = DIGITS) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels; every class is there where there is room."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(count) % facts.classes
    return torch.rand(count, *facts.shape, generator=generator), labels


def given(method: Method, draw: float = 0.3) -> Step:
    """A step in which every draw is this number."""
    return Step(lambda purpose, *shape: torch.full((12, *shape), draw), method, None)


def entering(method: Method, depth: int, images: Tensor, labels: Tensor) -> Signal:
    """What enters a block in training."""
    with torch.no_grad():
        signal = {"labels": labels, **method.streams(images, labels, given(method))}
        for before in range(depth):
            signal = {**signal, **method.through(before, signal).on}
    return signal
