"""The paper's method by name. It has settings of its own: `rule`, `negatives`, `objective`, `model`."""

from __future__ import annotations

from dataclasses import dataclass

from goodness.parts import MethodPart, register_method


@register_method("cumulative")
@dataclass(frozen=True, kw_only=True)
class CumulativePart(MethodPart):
    """The paper's: label-conditioned blocks, mined wrong labels, history by a collaboration rule."""
