"""The locality audit of any method: whose gradients a loss has, and whose weights an update depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from goodness.methods.base import Method, Moment
from goodness.step_context import Moment as Place

if TYPE_CHECKING:
    from goodness.training.trainer import Trainer, Unit

STEPS = 100
"""So long a training is asked at every step who learns: units may alternate, and phases follow each other."""


@dataclass(frozen=True)
class MethodAudit:
    """What a method's step was found to do, beside what the method declares."""

    units: tuple[Unit, ...]
    """Runs of blocks that learn together, at any time."""
    leaks: tuple[tuple[Unit, str], ...]
    """A unit, and a parameter of another that its loss has a gradient for."""
    later: tuple[Unit, ...]
    """Units whose update depends on the weights of later blocks."""
    uses_labels: bool
    """Whether an update changes with the labels."""
    readout: bool
    """Whether something is fitted to predict."""
    undeclared: tuple[str, ...]
    """Traits that the method declares away and that were found: "later", "labels"."""

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring blocks that gradients cross, since they learn together."""
        return tuple(sorted({pair for unit in self.units for pair in pairwise(unit)}))

    @property
    def tag(self) -> str:
        """strict, overlapping (units of several blocks that share some), joined (units of several), leaking."""
        if self.leaks:
            return "leaking"
        if not self.edges:
            return "strict"
        whose = [depth for unit in self.units for depth in unit]
        return "overlapping" if len(whose) > len(set(whose)) else "joined"

    @property
    def is_as_declared(self) -> bool:
        """Whether no gradient leaves its unit, and nothing enters a loss that the method does not declare."""
        return not self.leaks and not self.undeclared

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "tag": self.tag,
            "is_local": not self.leaks,
            "units": [list(unit) for unit in self.units],
            "edges": [list(edge) for edge in self.edges],
            "leaks": [{"unit": list(unit), "parameter": name} for unit, name in self.leaks],
            "later": [list(unit) for unit in self.later],
            "uses_labels": self.uses_labels,
            "readout": self.readout,
            "undeclared": list(self.undeclared),
        }


def audit_method(make: Callable[[], Trainer], views: Tensor, labels: Tensor) -> MethodAudit:
    """Look at steps of a trainer; `make` gives the same new one at every call.

    Views are `[views, batch, C, H, W]` in [0, 1]. A gradient that crosses units is found as it is computed; what an
    update depends on is found by changing it: an update must then keep every bit.
    """
    method = make().method
    units: list[Unit] = []
    leaks: list[tuple[Unit, str]] = []
    later: set[Unit] = set()
    uses_labels = False
    for step in range(STEPS):
        moment, place = Moment(step, STEPS, step, STEPS), Place(step, 0, step, STEPS, step / STEPS)
        plan = method.plan(moment)
        if set(plan.units) <= set(units):
            continue
        units += [unit for unit in plan.units if unit not in units]
        leaks += [one for one in _foreign_gradients(make(), views, labels, place, moment) if one not in leaks]

        def updated(labels: Tensor, disturb_from: int | None = None, place=place, moment=moment) -> Trainer:
            trainer = make()
            if disturb_from is not None:
                _disturb(trainer, disturb_from)
            trainer.step(views, labels, place, moment)
            return trainer

        plain, others = updated(labels), updated((labels + 1) % method.classes)
        uses_labels |= not all(_equal(plain, others, unit) for unit in plan.units)
        for unit in plan.units:
            has_later = unit[-1] + 1 < len(method.blocks)
            if has_later and unit not in later and not _equal(plain, updated(labels, unit[-1] + 1), unit):
                later.add(unit)
    found = {"later": bool(later) and not method.later, "labels": uses_labels and not method.uses_labels}
    return MethodAudit(
        units=tuple(units),
        leaks=tuple(leaks),
        later=tuple(sorted(later)),
        uses_labels=uses_labels,
        readout=type(method).ready is not Method.ready,
        undeclared=tuple(name for name, is_undeclared in found.items() if is_undeclared),
    )


def _foreign_gradients(
    trainer: Trainer, views: Tensor, labels: Tensor, place: Place, moment: Moment
) -> list[tuple[Unit, str]]:
    """Every parameter outside a unit that the unit's loss gives a gradient to, which is neither None nor zero."""
    found: list[tuple[Unit, str]] = []
    named = dict(trainer.method.named_parameters())

    def look_only(turns: list, *_: object) -> None:
        for turn in turns:
            mine = {id(one) for one in trainer.parameters(turn.unit)}
            turn.loss.backward(retain_graph=True)
            for name, one in named.items():
                if id(one) not in mine and one.grad is not None and bool((one.grad != 0).any()):
                    found.append((turn.unit, name))
                one.grad = None

    trainer.learn = look_only  # type: ignore[method-assign]
    trainer.step(views, labels, place, moment)
    return found


def _disturb(trainer: Trainer, depth: int) -> None:
    """Move all weights of the blocks from this one on, the teacher's too."""
    generator = torch.Generator().manual_seed(1)
    for method in (trainer.method, trainer.teacher):
        later = [*method.blocks[depth:], *method.parts[depth:]]
        with torch.no_grad():
            for one in (parameter for module in later for parameter in module.parameters()):
                one.add_(0.1 * torch.randn(one.shape, generator=generator))


def _equal(a: Trainer, b: Trainer, unit: Unit) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(unit), b.parameters(unit)))
