"""Runs torch's analysis of what a Triton kernel writes on every kernel, with the arguments that its operator gives it.

A program of its own: the analysis wants kernels that are compiled, and the other tests interpret them.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from torch._higher_order_ops import triton_kernel_wrap
from triton.backends.compiler import GPUTarget

from goodness import kernels
from goodness.kernels import feedforward, geglu, group_norm, pool, short_attention, tail

WRITTEN = {
    "attention_forward_kernel": {"out"},
    "attention_backward_kernel": {"gradient"},
    "feedforward_kernel": {"out"},
    "geglu_forward_kernel": {"out"},
    "geglu_backward_kernel": {"gradient"},
    "group_norm_forward_kernel": {"out", "means", "spreads"},
    "group_norm_backward_kernel": {"gradient", "to_scale", "to_shift"},
    "pool_forward_kernel": {"pooled", "energy"},
    "pool_backward_kernel": {"gradient", "to_u"},
    "tail_kernel": {"pooled", "energy", "handed", "inverse_rms"},
}

written_by = getattr(triton_kernel_wrap, "identify_accessed_tensors", None)  # torch 2.13
written_before = getattr(triton_kernel_wrap, "identify_mutated_tensors", None)  # torch 2.11


class StandIn:
    """A driver for a GPU that is not there: enough to compile for, not to run on."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def is_active(self) -> bool:
        return True


@pytest.fixture
def _stand_in() -> Iterator[None]:
    driver = triton.runtime.driver
    before = dict(vars(driver))
    driver.set_active(StandIn())
    yield
    vars(driver).update(before)


def names_written(kernel: Any, arguments: dict[str, Any]) -> set[str]:
    if written_by is not None:
        return {access.name for access in written_by(kernel, arguments, {}).read_writes.writes}
    return set(written_before(kernel, arguments, {}))


def kernels_of_the_package() -> set[str]:
    modules = [
        importlib.import_module(f"goodness.kernels.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)
    ]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


def launches(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every kernel that the operators start, with its arguments by name; nothing runs."""
    started = {}

    class Recorder:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def record(*args: Any, **kwargs: Any) -> None:
                for option in ("num_warps", "num_stages"):
                    kwargs.pop(option, None)
                arguments = inspect.signature(self.kernel.fn).bind(*args, **kwargs).arguments
                started[self.kernel.fn.__name__] = self.kernel, dict(arguments)

            return record

    for module in (feedforward, geglu, group_norm, pool, short_attention, tail):
        monkeypatch.setattr(module, "wrap_triton", Recorder)
    half = {"dtype": torch.bfloat16}
    gate_up, tokens = torch.zeros(64, 1408, **half), torch.zeros(2, 64, 256, **half)
    feedforward.feedforward(tokens, torch.zeros(1408, 256, **half), torch.zeros(704, 256, **half), 1e-6, 3)
    geglu.geglu(gate_up)
    geglu._geglu_backward(gate_up, torch.zeros(64, 704, **half))
    qkv, angles = torch.zeros(2, 64, 768, **half), torch.zeros(64, 16)
    short_attention.short_attention(qkv, angles, angles, 8)
    short_attention._short_attention_backward(qkv, angles, angles, tokens, 8)
    pool.pool(tokens, torch.zeros(256), 1e-6)
    pool._pool_backward(tokens, torch.zeros(256), torch.zeros(2, 256, **half), torch.zeros(2), 1e-6)
    x, scale = torch.zeros(2, 256, 96, **half), torch.zeros(96)
    _, means, spreads = group_norm._group_norm_gelu(x, scale, scale, 8, 1e-5, 16, 2)
    weights = torch.zeros(256, 256, **half), torch.zeros(1408, 256, **half), torch.zeros(704, 256, **half)
    factors, labels = torch.zeros(10, 256, **half), torch.zeros(2, dtype=torch.int64)
    taken = tokens, tokens, *weights, torch.zeros(256)
    tail.tail(*taken, factors, labels, 1e-6, "relu", 4.0, 227 * 1024)
    group_norm._group_norm_gelu_backward(x, scale, scale, means, spreads, x, 8, 16, 2)
    return started


@pytest.mark.skipif(written_by is None and written_before is None, reason="torch has neither analysis")
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")  # Triton's own, about its next version
@pytest.mark.usefixtures("_stand_in")
def test_kernels_are_seen_to_write_their_outputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    started = launches(monkeypatch)
    assert started.keys() == WRITTEN.keys() == kernels_of_the_package()
    assert {name: names_written(*launch) for name, launch in started.items()} == WRITTEN
