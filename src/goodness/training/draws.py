"""Randomness by key: every draw follows from (seed, epoch, step, purpose), so there is no state to lose."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def key(*parts: int | str) -> int:
    """A 63-bit number that depends on every part and on their order."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(device: torch.device, *parts: int | str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(key(*parts))


def uniforms(device: torch.device, shape: tuple[int, ...], *parts: int | str) -> Tensor:
    """Uniform numbers in [0, 1), drawn on the device that uses them."""
    return torch.rand(shape, generator=generator(device, *parts), device=device)


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits the training images; drawn on the CPU, the same for every device."""
    return torch.randperm(count, generator=generator(torch.device("cpu"), seed, "order", epoch))
