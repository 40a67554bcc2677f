"""Time on a device: events on a GPU, the clock elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def milliseconds(function: Callable[[], object], device: torch.device, times: int) -> float:
    """Mean time of a call over `times` of them, with nothing else waiting on the device before or after."""
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(times):
            function()
        return 1000 * (time.perf_counter() - begin) / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(times):
        function()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / times


def in_turn(
    functions: Mapping[str, Callable[[], object]], device: torch.device, times: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Of every function the median, least and most of `repeats` means, in milliseconds.

    A round measures each of them once before the next round begins, so that a machine which grows slower or faster
    meanwhile does so for all of them.
    """
    rounds = [{name: milliseconds(one, device, times) for name, one in functions.items()} for _ in range(repeats)]
    return {name: _spread([found[name] for found in rounds]) for name in functions}


def _spread(found: list[float]) -> dict[str, float]:
    return {"median_ms": statistics.median(found), "least_ms": min(found), "most_ms": max(found)}


def ceilings(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """What this device reaches at its best: a large matrix product, and a large copy (bytes read and written)."""
    side, size = (8192, 2**30) if device.type == "cuda" else (1024, 2**26)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def best(function: Callable[[], object]) -> float:
        milliseconds(function, device, 3)
        return min(milliseconds(function, device, 5) for _ in range(5)) / 1000

    return {
        "flop_per_second": 2 * side**3 / best(lambda: a @ b),
        "bytes_per_second": 2 * size / best(lambda: target.copy_(source)),
    }


def as_floor(counted: dict[str, int], most: dict[str, float]) -> dict[str, Any]:
    """The least time in which the counted work can be done under the ceilings, in milliseconds, and what sets it."""
    by_flop = 1000 * counted["flop"] / most["flop_per_second"]
    by_bytes = 1000 * counted["bytes"] / most["bytes_per_second"]
    bound = "arithmetic" if by_flop >= by_bytes else "memory"
    return {"flop_ms": by_flop, "bytes_ms": by_bytes, "floor_ms": max(by_flop, by_bytes), "bound": bound}
