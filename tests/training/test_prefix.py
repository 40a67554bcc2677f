"""Negatives that keep their prefix: a block's wrong label is mined, and trained on, from the first block on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.draws import uniforms
from goodness.errors import ConfigError
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import BlockInput, Stepper
from tiny_runs import shrunk

CLASSES, BATCH, BLOCKS, K = 6, 12, 3, 4
CHANGES = {
    **{"model.blocks": BLOCKS, "optim.lr": 0.1, "optim.warmup": 0.0, "optim.ema": 0.99},
    **{"negatives": "prefix", "negatives.k_first": K, "negatives.k_last": K},
}
Give = Callable[[Tensor, int], Tensor]


def network_for(config: Any) -> Network:
    torch.manual_seed(7)
    return Network(config.model, (1, 8, 8), CLASSES, mean=(0.4,), std=(0.3,), terms=config.objective).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(step)
    views = torch.rand(3, BATCH, 1, 8, 8, generator=draws, dtype=torch.float64)
    return views, torch.randperm(BATCH, generator=draws) % CLASSES


def moment(step: int) -> Moment:
    return Moment(epoch=0, step=step, total_step=step, total_steps=8, progress=0.0)


def after_three_steps(changes: dict[str, Any]) -> Stepper:
    """With weights that the moving average has not followed yet."""
    config = shrunk("lcff-dense", {**CHANGES, **changes})
    stepper = Stepper(network_for(config), config)
    for step in range(3):
        stepper(*batch(step), moment(step))
    with torch.no_grad():
        for parameter in stepper.network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return stepper


def inputs(stepper: Stepper) -> list[BlockInput]:
    """What every block of a further step is given."""
    found = [stepper.first(*batch(3), moment(3))]
    while len(found) < BLOCKS:
        found.append(stepper.next(found[-1], stepper.loss(found[-1]), moment(3)))
    return found


@torch.no_grad()
def one_image(network: Network, stem: Tensor, label: int, depth: int) -> tuple[Tensor, list[float]]:
    """An image's tokens in front of block `depth` under a label from block 0 on, and every block's goodness so far."""
    tokens, goodness = stem, list[float]()
    for block in copy.deepcopy(network.blocks)[: depth + 1]:
        before = tokens
        output = block(tokens, torch.tensor([label]))
        goodness.append(float(output.goodness))
        tokens = F.normalize(F.relu(output.tokens), dim=-1) * stem.shape[-1] ** 0.25
    return before, goodness


def mined_by_loop(stepper: Stepper, network: Network, depth: int, view: int, count: int) -> list[list[int]]:
    """The `count` hardest labels of every image, candidate by candidate through the network's own blocks."""
    views, labels = batch(3)
    with torch.no_grad():
        stem = stepper.network.tokens(views[view])
    draws = uniforms(torch.device("cpu"), (BATCH, K), stepper.config.seed, "mine", 0, 3, depth)
    found = []
    for i, label in enumerate(labels.tolist()):
        candidates = {(label + 1 + int(u * (CLASSES - 1))) % CLASSES for u in draws[i].tolist()}
        scores = {y: one_image(network, stem[i : i + 1], y, depth)[1][-1] for y in candidates}
        ranked = sorted(scores, key=lambda y, scores=scores: -scores[y])
        found.append((ranked + ranked[:1] * count)[:count])
    return [list(one) for one in zip(*found)]


@pytest.mark.parametrize(
    "changes", [{}, {"negatives.count": 2, "history": "decay"}, {"negatives.mine_on": "pos", "eta": 0.0}], ids=str
)
def test_a_step_meets_the_labels_tokens_and_history_of_a_loop_over_candidates(changes: dict[str, Any]) -> None:
    stepper = after_three_steps(changes)
    count, view = changes.get("negatives.count", 1), 0 if "negatives.mine_on" in changes else 2
    views, labels = batch(3)
    stem = stepper.network.tokens(views[2]).detach()
    right = [stepper.network.tokens(one).detach() for one in views[:2]]
    chosen, by_the_network = [], []
    for depth, given in enumerate(inputs(stepper)):
        expected = mined_by_loop(stepper, stepper.teacher.network, depth, view, count)
        chosen.append(expected)
        by_the_network.append(mined_by_loop(stepper, stepper.network, depth, view, count))
        assert given.wrong.reshape(count, BATCH).tolist() == expected

        tokens = given.tokens.detach().reshape(-1, BATCH, *given.tokens.shape[1:])
        passed = [one_image(stepper.network, stem[i : i + 1], y, depth) for one in expected for i, y in enumerate(one)]
        torch.testing.assert_close(tokens[2 : 2 + count].flatten(0, 1), torch.cat([one for one, _ in passed]))
        for positive, view_tokens in zip(tokens[:2], right):
            ones = [one_image(stepper.network, view_tokens[i : i + 1], int(labels[i]), depth) for i in range(BATCH)]
            torch.testing.assert_close(positive, torch.cat([one for one, _ in ones]))

        earlier = stepper.loss(given).facts.earlier.nl
        torch.testing.assert_close(earlier, torch.tensor([sum(g[:-1]) for _, g in passed], dtype=torch.float64))
    assert chosen[0] != chosen[1] != chosen[2], "or any label would do"
    assert chosen != by_the_network, "or the weights would not matter"


def test_block_0_mines_as_the_teacher_does_and_later_blocks_do_not() -> None:
    alike = {}
    for kind in ("teacher", "prefix"):
        stepper = after_three_steps({"negatives": kind, "optim.lr": 0.0001})
        alike[kind] = [one.wrong.tolist() for one in inputs(stepper)]
    assert alike["prefix"][0] == alike["teacher"][0]
    assert alike["prefix"][1:] != alike["teacher"][1:]


def test_a_kept_label_is_the_same_with_either() -> None:
    found = {}
    for kind in ("teacher", "prefix"):
        stepper = after_three_steps({"negatives": kind, "negatives.once": True})
        found[kind] = stepper.network.state_dict()
    assert all(torch.equal(value, found["teacher"][name]) for name, value in found["prefix"].items())


def test_fixed_shapes_change_nothing() -> None:
    stepper = after_three_steps({})
    ragged = [one.wrong.tolist() for one in inputs(stepper)]
    stepper.fixed_shapes = True
    assert [one.wrong.tolist() for one in inputs(stepper)] == ragged


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"model.label": "late"}, "late"),
        ({"step.mode": "sequential", "step.handoff": "after_update"}, "handoff"),
    ],
)
def test_what_has_no_prefix_under_a_label_is_refused(changes: dict[str, Any], culprit: str) -> None:
    with pytest.raises(ConfigError, match=culprit):
        shrunk("demo", {"negatives": "prefix", **changes})
    shrunk("demo", {"negatives": "prefix", "negatives.once": True, **changes})
