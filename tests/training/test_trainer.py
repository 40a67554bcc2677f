"""The trainer refuses what a method must not say."""

from __future__ import annotations

import pytest
import torch

from goodness.config import Optim, Step
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.methods.base import Plan
from goodness.methods.mono_forward import MonoForward
from goodness.training.local import Uses
from goodness.training.trainer import Trainer

PLANS = [
    Plan(()),
    Plan(((0, 1), (1, 2))),
    Plan(((0, 2), (1,))),
    Plan(((1,), (0,))),
    Plan(((-1,),)),
    Plan(((3,),)),
    Plan(((0,), (1,)), (1.0,)),
]


def three_blocks() -> MonoForward:
    return MonoForward([torch.nn.Linear(4, 4) for _ in range(3)], 2, [4, 4, 4])


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_plan_that_makes_no_sense_is_refused(plan: Plan) -> None:
    trainer = Trainer(three_blocks(), Optim(), Step(), draws=Draws(torch.device("cpu"), 1))
    with pytest.raises(ConfigError):
        trainer.checked(plan)
    assert trainer.checked(Plan(((0,), (1, 2)))).units == ((0,), (1, 2))


@pytest.mark.parametrize("decided", [torch.ones(2), torch.tensor([1.0, float("nan"), 0.0]), [1.0, 1.0, 1.0], None])
def test_weights_that_make_no_sense_are_refused(decided: object, monkeypatch: pytest.MonkeyPatch) -> None:
    method = three_blocks()
    monkeypatch.setattr(method, "decide", lambda *_: decided)
    with pytest.raises(ConfigError):
        Uses(method, torch.zeros(3, 5, 2), torch.zeros(5, dtype=torch.long))
