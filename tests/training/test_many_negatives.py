"""Several wrong labels a step: the loss is the mean over them, and everything that holds for one holds for many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from goodness.config import Config, override
from goodness.health.locality import audit_locality
from goodness.methods.cumulative.barrier import residual_weights
from goodness.methods.cumulative.facts import PerStream
from goodness.methods.cumulative.ledger import Ledger
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import BlockInput, Judged, Stepper
from tiny_runs import shrunk

CLASSES, BATCH, BLOCKS = 5, 8, 3
CHANGES = {"model.blocks": BLOCKS, "negatives.k_first": 4, "negatives.k_last": 6, "optim.lr": 1e-2, "optim.ema": 0.8}


DRAWS: dict[str, dict[str, Any]] = {
    "teacher": {"negatives.k_first": 4, "negatives.k_last": 4},
    "online": {"negatives.k_first": 4, "negatives.k_last": 4},
    "random": {},
}
"""Four draws for two or three labels, where labels are mined."""


def network_for(config: Config) -> Network:
    torch.manual_seed(7)
    return Network(config.model, (1, 8, 8), CLASSES, mean=(0.4,), std=(0.3,), terms=config.objective).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(step)
    views = torch.rand(3, BATCH, 1, 8, 8, generator=draws, dtype=torch.float64)
    return views, torch.randperm(BATCH, generator=draws) % CLASSES


def moment(step: int) -> Moment:
    return Moment(epoch=0, step=step, total_step=step, total_steps=8, progress=0.0)


def trained(config: Config, steps: int) -> Stepper:
    stepper = Stepper(network_for(config), config)
    for step in range(steps):
        stepper(*batch(step), moment(step))
    return stepper


def everything(stepper: Stepper) -> dict[str, Tensor]:
    found = {f"network.{name}": value for name, value in stepper.network.state_dict().items()}
    return found | {f"teacher.{name}": value for name, value in stepper.teacher.network.state_dict().items()}


def chain(stepper: Stepper) -> Iterator[tuple[BlockInput, Judged]]:
    """Every block's input and loss in one step, no weight changed."""
    situation = stepper.first(*batch(3), moment(3))
    for depth in range(BLOCKS):
        judged = stepper.loss(situation)
        yield situation, judged
        if depth + 1 < BLOCKS:
            situation = stepper.next(situation, judged, moment(3))


# The layout


@pytest.mark.parametrize("with_image", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_trio_pairs_every_example_with_each_of_its_wrong_labels(count: int, with_image: bool) -> None:
    streams = 2 + count + with_image
    rows = torch.randn(streams, BATCH, 4)
    trio = PerStream.of_streams(rows.reshape(streams * BATCH, 4), streams, count)
    assert trio.pos.shape == trio.nl.shape == (count * BATCH, 4)
    assert (trio.ni is not None) == with_image
    for j in range(count):
        part = slice(j * BATCH, (j + 1) * BATCH)
        assert torch.equal(trio.pos[part], (rows[0] + rows[1]) / 2)
        assert torch.equal(trio.nl[part], rows[2 + j])
        if trio.ni is not None:
            assert torch.equal(trio.ni[part], rows[-1])


@pytest.mark.parametrize("kind", ["teacher", "online", "random"])
def test_the_wrong_labels_of_a_step_are_wrong_and_distinct_and_the_first_is_the_one_without_more(kind: str) -> None:
    found = {}
    for count in (1, 2, 3):
        config = shrunk("demo", {"negatives": kind, "negatives.count": count, **DRAWS[kind]})
        stepper = Stepper(network_for(config), config)
        found[count] = stepper.first(*batch(0), moment(0)).wrong.reshape(count, BATCH)
    labels = batch(0)[1]
    assert bool((found[3] != labels).all())
    # four draws may bring one label three times; where they do, the hardest stands again
    distinct = [len(set(column)) for column in found[3].T.tolist()]
    assert max(distinct) == 3
    assert distinct == [3] * BATCH or kind != "random"
    if kind != "random":
        assert torch.equal(found[1][0], found[2][0])
        assert torch.equal(found[2], found[3][:2])


# The loss

OBJECTIVES: dict[str, tuple[str, dict[str, Any]]] = {
    "all terms": ("cp-fair-dense", {"objective.curr.residual": False}),
    "all terms, wrong labels alone": ("cp-fair-dense", {"objective.curr.residual": False, "eta": 0.0}),
    "a gate, fading history": ("gated-dense", {"history": "decay"}),
    "compensated, one label for all blocks": ("mgc-dense", {"negatives.once": True}),
    "label-free contrast, mining on the positive": (
        "lcff-dense",
        {"objective.supcon.label_free": True, "negatives.mine_on": "pos"},
    ),
}


def with_one_of(two: BlockInput, number: int, depth: int, before: tuple[Judged, Ledger] | None) -> BlockInput:
    """The input a step with the `number`-th wrong label alone would have had: its streams, its tokens, its ledger."""
    wrong = two.wrong.reshape(2, BATCH)[number]
    if before is not None:
        judged, ledger = before
        return replace(two, tokens=judged.tokens_on, neutral=judged.neutral_on, wrong=wrong, ledger=ledger)
    assert depth == 0
    streams = list(two.tokens.reshape(-1, BATCH, *two.tokens.shape[1:]))
    del streams[3 - number]  # pos1, pos2, nl 0, nl 1, ni or none
    return replace(two, tokens=torch.cat(streams), wrong=wrong)


@pytest.mark.parametrize("case", OBJECTIVES)
def test_the_loss_is_the_mean_over_the_losses_with_each_wrong_label_alone(case: str) -> None:
    """Two steps of one wrong label each, given the labels that the step of two has mined, run beside it."""
    name, changes = OBJECTIVES[case]
    config = shrunk(name, {**CHANGES, **changes, "negatives.count": 2})
    both = trained(config, 1)  # so that queues are filled and thresholds moved
    alone = Stepper(both.network, override(config, {"negatives.count": 1}))
    before: list[tuple[Judged, Ledger] | None] = [None, None]
    for depth, (situation, judged) in enumerate(chain(both)):
        own = list(both.network.owned(depth).values())
        losses = []
        for number in range(2):
            one = with_one_of(situation, number, depth, before[number])
            found = alone.loss(one)
            ledger = one.ledger.copy()
            ledger.add(found.facts.goodness, found.facts.aspects, found.facts.weight)
            before[number] = (found, ledger)
            losses.append(found.loss)
        assert abs(float((losses[0] - losses[1]).detach())) > 1e-6, "the two labels are not equally hard"
        mean = (losses[0] + losses[1]) / 2
        torch.testing.assert_close(judged.loss, mean, rtol=1e-10, atol=1e-12)
        expected = torch.autograd.grad(mean, own, allow_unused=True, retain_graph=True)
        gradients = torch.autograd.grad(judged.loss, own, allow_unused=True, retain_graph=True)
        for gradient, wanted in zip(gradients, expected):
            torch.testing.assert_close(gradient, wanted, rtol=1e-8, atol=1e-10)


def test_residual_weights_have_mean_one_over_all_pairs() -> None:
    """The one thing that is no mean over the labels: an unresolved pair weighs more, whichever label it is of."""
    config = shrunk("cp-fair-dense", {**CHANGES, "negatives.count": 2, "eta": 0.0})
    assert config.objective["curr"].residual  # type: ignore[attr-defined]
    *_, (_, judged) = chain(trained(config, 1))
    facts = judged.facts
    weights = residual_weights(facts.past_margins()[0], config.beta, 0.1, 5.0)
    assert weights.shape == (2 * BATCH,)
    assert float(weights.mean()) == pytest.approx(1)
    by_hand = (weights * torch.log1p(torch.exp(-config.beta * facts.margins()[0]))).mean()
    names, values = judged.measured
    assert float(dict(zip(names, values))["loss_curr"]) == pytest.approx(float(by_hand.detach()), rel=1e-6)


# Steps


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cp-fair-dense", {"negatives.count": 2}),
        ("cp-fair-dense", {"negatives.among": 3}),
        ("gated-dense", {"negatives.count": 2, "eta": 0.0, "optim.sam": 0.05}),
        ("demo", {"negatives": "random", "negatives.count": 3}),
    ],
    ids=["two labels", "one of the three hardest", "two labels, no wrong image, SAM", "three random labels"],
)
def test_fused_equals_sequential(name: str, changes: dict[str, Any]) -> None:
    settings = {key: value for key, value in CHANGES.items() if not (name == "demo" and "negatives" in key)}
    ends = [
        everything(trained(shrunk(name, {**settings, **changes, "step.mode": m}), 2)) for m in ("fused", "sequential")
    ]
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)
    start = network_for(shrunk(name, settings)).state_dict()
    assert any(not torch.allclose(value, ends[0][f"network.{key}"], atol=1e-2) for key, value in start.items())


@pytest.mark.parametrize(
    "changes", [{"negatives.count": 2}, {"negatives.count": 3, "eta": 0.0}, {"negatives.among": 3}]
)
def test_no_gradient_leaks_across_blocks(changes: dict[str, Any]) -> None:
    config = shrunk("cp-fair-dense", {**CHANGES, **changes})
    stepper = trained(config, 1)
    views, labels = batch(1)
    assert audit_locality(stepper.network, config, views[0], labels) == []


@pytest.mark.parametrize(("eta", "streams"), [(0.5, 5), (0.0, 4)])
def test_a_step_with_two_wrong_labels_has_one_stream_more_and_reaches_every_parameter(eta: float, streams: int) -> None:
    config = shrunk("cp-fair-dense", {**CHANGES, "negatives.count": 2, "eta": eta})
    stepper = trained(config, 1)
    for situation, judged in chain(stepper):
        assert len(situation.tokens) == streams * BATCH
        assert situation.wrong.shape == (2 * BATCH,)
        assert (judged.facts.goodness.ni is None) == (eta == 0)
        assert judged.facts.weight.shape == (2 * BATCH,)
        assert ("g_ni" in judged.measured[0]) == (eta > 0)
    untouched = {name for name, p in stepper.network.named_parameters() if p.grad is None or not bool(p.grad.any())}
    assert untouched == set()


def test_without_a_wrong_image_its_share_plays_no_part_in_two_labels_loss() -> None:
    """eta 0 with two labels is the plain mean of the barrier over all pairs, from the goodness by hand."""
    changes = {**CHANGES, "eta": 0.0, "negatives.count": 2, "rule": "lcff", "objective.aspects": None}
    config = shrunk("demo", changes)
    stepper = Stepper(network_for(config), config)
    past = torch.zeros(2, BATCH, dtype=torch.float64)
    for depth, (situation, judged) in enumerate(chain(stepper)):
        labels = situation.labels
        block = stepper.network.block(depth)
        tokens = situation.tokens.reshape(4, BATCH, *situation.tokens.shape[1:])
        hypotheses = [labels, labels, *situation.wrong.reshape(2, BATCH)]
        goodness = [block(rows, names).goodness.detach() for rows, names in zip(tokens, hypotheses)]
        margins = torch.stack([(goodness[0] + goodness[1]) / 2 - negative for negative in goodness[2:]])
        by_hand = torch.log1p(torch.exp(-config.beta * (margins + past))).mean()
        assert float(judged.loss.detach()) == pytest.approx(float(by_hand), rel=1e-9)
        past = past + margins
