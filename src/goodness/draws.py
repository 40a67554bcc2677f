"""Randomness by key: every draw follows from (seed, epoch, step, purpose), so there is no state to lose."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

Kept = tuple[Tensor, str, tuple[int, ...]]
"""A place for random numbers, what they are for, and whatever beside epoch and step they depend on."""


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


def _seed_global(device: torch.device, seed: int) -> None:
    """`torch.manual_seed` for the CPU and this kind of device alone.

    torch's own also turns to devices that are absent, and formats a stack trace for each.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    elif device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


class Draws:
    """A run's random numbers: drawn when they are asked for, or, for a recorded step, filled in before each replay."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device, self.seed = device, seed
        self.watches = False  # for what draws from the global random state by itself, which a recording would freeze
        self.has_drawn = False  # whether anything did
        self._generator = torch.Generator(device=device)
        self._kept: list[Kept] | None = None
        self._asked: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        self._cpu_state: Tensor | None = None

    def __call__(self, shape: tuple[int, ...], purpose: str, epoch: int, step: int, *more: int) -> Tensor:
        """Uniform numbers in [0, 1) that depend on the seed and on everything said here."""
        if self._kept is None:
            self._asked[purpose, more] = shape
            return self._fill(torch.empty(shape, device=self.device), purpose, epoch, step, *more)
        for place, its_purpose, its_more in self._kept:
            if (its_purpose, its_more) == (purpose, more) and place.shape == shape:
                return place
        raise RuntimeError(f"the step draws numbers for '{purpose}' that it has not drawn before")

    def _fill(self, target: Tensor, *parts: int | str) -> Tensor:
        self._generator.manual_seed(key(self.seed, *parts))
        return torch.rand(target.shape, generator=self._generator, device=self.device, out=target)

    def seed_modules(self, *parts: int | str) -> None:
        """Set the global random state, for whatever a module draws by itself (dropout, say)."""
        if self._kept is not None:
            return
        self.look()
        _seed_global(self.device, key(self.seed, *parts))
        self._cpu_state = torch.get_rng_state() if self.watches else None

    def look(self) -> None:
        """Notice whether anything was drawn from the global random state since it was set; then let go of it."""
        if self._cpu_state is None:
            return
        self.has_drawn |= not torch.equal(torch.get_rng_state(), self._cpu_state)
        self._cpu_state = None
        if self.device.type == "cuda":
            index = self.device.index if self.device.index is not None else torch.cuda.current_device()
            self.has_drawn |= torch.cuda.default_generators[index].get_offset() != 0

    def places(self) -> list[Kept]:
        """Room for everything that was asked for so far. A recording must not make it: what it makes may lie where an
        earlier part of it writes, and would not last from the refill to its use.
        """
        asked = self._asked.items()
        return [(torch.empty(shape, device=self.device), purpose, more) for (purpose, more), shape in asked]

    @contextlib.contextmanager
    def kept_in(self, places: list[Kept]) -> Iterator[None]:
        """Within, what is asked for is what these places hold, whatever step it is asked for."""
        self._kept = places
        try:
            yield
        finally:
            self._kept = None

    def refill(self, places: list[Kept], epoch: int, step: int) -> None:
        for place, purpose, more in places:
            self._fill(place, purpose, epoch, step, *more)
