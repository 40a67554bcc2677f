"""Where no label enters the tokens, streams share a pass; what it gives is what a pass for each of them would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import goodness
from goodness.config import Config
from goodness.errors import ConfigError
from goodness.health.locality import audit_locality
from goodness.methods.cumulative.choice import Choice
from goodness.methods.cumulative.evidence import block_goodness
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import Judged, Stepper
from tiny_runs import BLOBS, blobs_at_hand, shrunk

CLASSES, BATCH, BLOCKS = 5, 6, 3
NOW = Moment(epoch=1, step=2, total_step=6, total_steps=20, progress=0.3)


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def stepper_for(config: Config) -> Stepper:
    torch.manual_seed(3)
    network = Network(config.model, (1, 8, 8), CLASSES, terms=config.objective).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return Stepper(network, config)


def batch(views: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    images = torch.rand(views, BATCH, 1, 8, 8, generator=draws, dtype=torch.float64)
    return images, torch.randperm(BATCH, generator=draws) % CLASSES


def judged(stepper: Stepper) -> list[Judged]:
    """Every block's loss, from one block's tokens to the next."""
    found, situation = [], stepper.first(*batch(stepper.config.views), NOW)
    for depth in range(BLOCKS):
        found.append(stepper.loss(situation))
        if depth + 1 < BLOCKS:
            situation = stepper.next(situation, found[-1], NOW)
    return found


def gradients(stepper: Stepper, losses: list[Judged]) -> list[Tensor | None]:
    parameters = list(stepper.network.parameters())
    return list(torch.autograd.grad(sum(one.loss for one in losses), parameters, allow_unused=True))  # type: ignore[arg-type]


CASES: dict[str, dict[str, Any]] = {
    "three views": {},
    "one view": {"views": 1},
    "no wrong image": {"eta": 0.0},
    "one view, no wrong image": {"views": 1, "eta": 0.0},
    "two wrong labels": {"negatives.count": 2},
    "two wrong labels in one view": {"negatives.count": 2, "views": 1},
    "memory": {"model.block.memory": 3},
    "mining on the positive": {"negatives.mine_on": "pos", "views": 1},
    "energy": {"model.goodness": "energy", "objective.aspects": None},
}


@pytest.mark.parametrize("asks_all", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_shared_pass_gives_the_loss_facts_and_gradients_of_a_pass_per_stream(case: str, asks_all: bool) -> None:
    config = shrunk("cp-fair-dense", {"model.label": "late", "optim.ema": 0.9, **CASES[case]}, blocks=BLOCKS)
    shared, apart = stepper_for(config), stepper_for(config)
    shared.wants_every = asks_all
    apart.is_shared = False
    ours, theirs = judged(shared), judged(apart)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine.loss, other.loss)
        torch.testing.assert_close(mine.facts.goodness, other.facts.goodness)
        torch.testing.assert_close(mine.facts.aspects, other.facts.aspects)
        torch.testing.assert_close(mine.facts.pooled, other.facts.pooled)
        kept = shared.positives * BATCH
        torch.testing.assert_close(mine.facts.tokens_out[:kept], other.facts.tokens_out[:kept])
    for mine, other in zip(gradients(shared, ours), gradients(apart, theirs), strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other)
    assert max(len(one.facts.tokens_out) for one in ours) == config.views * BATCH


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize(("gamma", "history"), [(0.0, "sum"), (0.7, "sum"), (0.7, "decay")])
def test_all_labels_compete_in_every_view(views: int, gamma: float, history: str) -> None:
    term = Choice(smoothing=0.2, rise=2.0)
    changes = {"model.label": "late", "views": views, "objective.choice": term, "history": history, "rule.gamma": gamma}
    config = shrunk("lcff-dense", changes, blocks=BLOCKS)
    stepper = stepper_for(config)
    images, labels = batch(views)
    right = labels.repeat(max(1, views - 1))
    goodness_by_block = block_goodness(stepper.network, images[: max(1, views - 1)].flatten(0, 1))
    carried = torch.zeros_like(goodness_by_block[0])
    for depth, one in enumerate(judged(stepper)):
        total = goodness_by_block[depth] + (gamma * carried if depth else 0)
        wanted = F.cross_entropy(config.beta * total / 2**depth, right, label_smoothing=0.2)
        torch.testing.assert_close(term.loss(one.facts, None), wanted)
        before = carried
        carried = carried + goodness_by_block[depth]
        if history == "decay" and depth:
            carried = goodness_by_block[depth] + gamma * before


def test_choice_asks_for_late_labels() -> None:
    with pytest.raises(ConfigError, match=r"give --model.label late"):
        shrunk("gamma0-dense", {"objective.choice": Choice()}).check()


@pytest.mark.parametrize("changes", [{}, {"rule.gamma": 1.0}, {"views": 3, "eta": 0.5, "optim.kind": "adamw"}])
def test_sprint_learns_and_stays_local(changes: dict[str, Any], tmp_path: Path) -> None:
    settings = {**BLOBS, "data": "easy-blobs", "augment": "none", "epochs": 25, "optim.lr": 0.03, "optim.ema": 0.8}
    config = shrunk("sprint", {**settings, **changes})
    run = goodness.train(config, out=tmp_path / "run", device="cpu")
    assert run.accuracy > 0.7
    network = Network(config.model, (1, 6, 6), 4, terms=config.objective)
    assert audit_locality(network, config, torch.rand(4, 1, 6, 6), torch.arange(4)) == []


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own, at its import
def test_compiled_steps_hand_on_what_plain_ones_do() -> None:
    """A graph that gave tokens and an alias of them once laid the alias out wrongly, and deeper blocks learned that."""
    found = []
    for compiled in ("off", "on"):
        torch._dynamo.reset()
        config = shrunk("sprint", {"step.compile": compiled, "model.block.entry": 0, "model.block.convolutions": 1})
        torch.manual_seed(0)
        network = Network(config.model, (3, 8, 8), CLASSES, terms=config.objective)
        stepper = Stepper(network, config)
        if compiled == "on":  # what is compiled slowly and handed on by none
            for name in ("_judge", "_stem", "_score", "_neutral"):
                setattr(stepper, name, getattr(Stepper.eager(stepper), name))
        draws = torch.Generator().manual_seed(1)
        images, labels = torch.rand(1, 8, 3, 8, 8, generator=draws), torch.arange(8) % CLASSES
        situation = stepper.first(images, labels, NOW)
        judged = stepper.loss(situation)
        found.append((judged.tokens_on, stepper.loss(stepper.next(situation, judged, NOW)).loss))
    torch.testing.assert_close(found[0], found[1])
