"""Counting what a step must do: floating-point operations, and the bytes that its large products read and write.

Counted on the plain way through the network, operation by operation: matrix products, convolutions and attention.
Everything in between (norms, activations, sums) could in principle ride along with them, so the bytes are a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from goodness import kernels

LARGE = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "_grouped_mm")


class ByteCounter(TorchDispatchMode):
    """Adds up the sizes of what the large operations take and give."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.grouped_flop = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in LARGE or "scaled_dot_product" in name:
            self.bytes += sum(one.numel() * one.element_size() for one in (*_tensors(args), *_tensors(result)))
        if name == "_grouped_mm":  # which torch's own counter does not know
            self.grouped_flop += _grouped_flop(args[0], args[1])
        return result


def _grouped_flop(a: Tensor, b: Tensor) -> int:
    """Rows of one side against one expert's matrix, or, for the weights' gradient, columns against columns."""
    if a.dim() == 2 and b.dim() == 3:
        return 2 * a.shape[0] * a.shape[1] * b.shape[2]
    return 2 * a.shape[0] * a.shape[1] * b.shape[-1]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def counted(step: Callable[[], object]) -> dict[str, int]:
    """What one call does: `flop` and `bytes`."""
    flops, sizes = FlopCounterMode(display=False), ByteCounter()
    with kernels.switched_off(), flops, sizes:
        step()
    return {"flop": flops.get_total_flops() + sizes.grouped_flop, "bytes": sizes.bytes}
