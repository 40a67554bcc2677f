"""In which precision a network is gone through."""

from __future__ import annotations

import torch


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """What computes in this type where torch holds it for safe; float32 is computed as it is."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)
