"""The most memory that was held at once: what torch allocates on a GPU, the process's resident memory elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""Written to clear_refs, it makes Linux count the peak of resident memory (VmHWM) anew; see proc_pid_clear_refs(5)."""


def forget(device: torch.device) -> None:
    """Give back what nobody holds any more, so that what comes next is not served from it unseen."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    with contextlib.suppress(OSError, AttributeError):  # of glibc alone; another allocator keeps what it keeps
        ctypes.CDLL(None).malloc_trim(0)


def peak_from_here(device: torch.device) -> Callable[[], int | None]:
    """Begin to watch; the function that comes back says the most bytes held at once since, above those held here.

    On a GPU the tensors of torch's allocator. On a CPU the process's resident memory, where Linux lets it be watched;
    elsewhere None: another peak, of the whole process since its start, would be of whatever ran before.
    """
    forget(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        return lambda: torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu" or not _reset():
        return lambda: None
    resident = _bytes("VmRSS")

    def since() -> int | None:
        most = _bytes("VmHWM")
        return None if most is None or resident is None else max(0, most - resident)

    return since


def _reset() -> bool:
    try:
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    except OSError:  # another system, or not allowed
        return False
    return True


def _bytes(name: str) -> int | None:
    """A size that Linux tells of this process."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text(), flags=re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024 * int(found[1])
