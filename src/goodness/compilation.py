"""torch.compile for functions that runs of several kinds have in common.

What was compiled belongs to a function's code, in all the process. Kinds of run that shared it would count against one
limit of graphs, and be held against each other's guards, which fails where one has a value that another has not: a
dense block behind one with experts. So each kind has the function to itself; other seeds of the same kind share it.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Any)

KEPT = 64
"""Functions that stay compiled, the last ones that were used: of a few kinds of run, about ten each."""
GRAPHS = 256
"""Of one function at most: every depth, and every size of a batch, may have its own."""


@functools.lru_cache(maxsize=KEPT)
def compiled(function: F, kind: str) -> F:
    """The function compiled for fixed shapes, as this kind of run and no other uses it."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, GRAPHS)
    own = types.FunctionType(
        function.__code__.replace(),  # another object: graphs are kept by it
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    # The graphs hang on the code, and hold it, where no garbage collector looks: they go when the function does.
    from torch._C._dynamo.eval_frame import reset_code  # with what compiles alone

    weakref.finalize(own, reset_code, own.__code__).atexit = False
    return torch.compile(own, dynamic=False)  # type: ignore[return-value]
