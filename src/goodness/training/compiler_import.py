"""A run's first seconds: what torch.compile needs is imported in a thread of its own while the data is read."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator

import torch

from goodness import kernels
from goodness.config import Config
from goodness.training.modes import compiles


@contextlib.contextmanager
def compiler_loading(config: Config, device: torch.device) -> Iterator[None]:
    """Import the compiler meanwhile, if the run compiles: seconds of Python, which reading and hashing files, and the
    first touch of a GPU, leave to others. It has ended when the block has: no other import may cross it later.
    """
    if not compiles(config, device):
        yield
        return
    # Here: two threads that import it at once, as building experts would, break each other's imports.
    importlib.import_module("torch._dynamo")
    thread = threading.Thread(target=_load_compiler, args=[device], daemon=True)
    thread.start()
    try:
        torch.zeros(1, device=device)  # a GPU takes a moment to begin
        yield
    finally:
        thread.join()


def _load_compiler(device: torch.device) -> None:
    with contextlib.suppress(Exception):  # the first compiled step will say what is wrong
        importlib.import_module("torch._inductor.compile_fx")
        if device.type == "cuda" and kernels.HAS_TRITON:
            kernels.load()
