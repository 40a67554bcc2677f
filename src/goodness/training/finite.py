"""Losses and gradients that are not finite: no weight takes one in, whether a step can stop to ask or not."""

from __future__ import annotations

import torch
from torch import Tensor

from goodness.errors import RunError
from goodness.step_context import Moment


class Guard:
    """Whether every step so far was finite, kept on the device: a recorded step cannot stop to ask.

    From the first step that was not, `bad` is 1, and updates multiply or skip themselves away.
    """

    def __init__(self, device: torch.device) -> None:
        self.bad = torch.zeros((), device=device)
        self.now = torch.zeros((), dtype=torch.int64, device=device)  # the step under way, set before each replay
        self._first = torch.full((), -1, dtype=torch.int64, device=device)

    def note(self, values: Tensor) -> None:
        """Take in a step's losses and gradient norms."""
        is_bad = ~values.isfinite().all()
        self._first.copy_(torch.where(is_bad & (self.bad == 0), self.now, self._first))
        self.bad.copy_(torch.maximum(self.bad, is_bad.to(self.bad.dtype)))

    def first_bad(self) -> int | None:
        """The number of the first step that was not finite. Waits for the device."""
        first = int(self._first)
        return first if first >= 0 else None

    def undo(self, tensors: list[Tensor], before: list[Tensor]) -> None:
        """Put back what a step that was not finite has changed."""
        for tensor, old in zip(tensors, before):
            tensor.copy_(torch.where(self.bad > 0, old, tensor))


class NonFiniteLoss(RunError):
    """A loss or gradient that is not a number; no weight has taken it in."""

    def __init__(self, depth: int, what: str, moment: Moment) -> None:
        self.depth = depth
        super().__init__(
            f"block {depth}: {what} at epoch {moment.epoch}, step {moment.step}. No weight of this block and no "
            "checkpoint has taken it in. Try a smaller --optim.lr, a longer --optim.warmup or a smaller --optim.clip, "
            "and start again in another folder."
        )


def refuse_non_finite_total(loss: Tensor, norm: Tensor, moment: Moment, guard: Guard | None = None) -> None:
    """The same for a network that is trained as one."""
    if guard is not None:
        guard.note(torch.stack([loss.detach().float(), norm.detach().float()]))
        return
    if not bool(torch.stack([loss.detach().float(), norm.detach().float()]).isfinite().all()):
        raise RunError(
            f"the loss is {float(loss)} with a gradient norm of {float(norm)} at epoch {moment.epoch}, step "
            f"{moment.step}. No weight and no checkpoint has taken it in. Try a smaller learning rate, and start again "
            "in another folder."
        )
