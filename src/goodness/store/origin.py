"""By which method, and which version of it, a run was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHOD = {"s1": "cumulative", "bp": "backprop", "s2": "readout"}


def method_of(environment: Mapping[str, Any], stage: str) -> tuple[str, int | str, int | str]:
    """Method, its version and that of block health; older runs do not say and count as version 1."""
    found = environment.get
    return found("method", METHOD[stage]), found("method_version", 1), found("health_version", 1)
