"""A step is what the equations say, block by block, and the same in both modes; no block feels a later one."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.config import Config, override
from goodness.draws import uniforms
from goodness.errors import ConfigError
from goodness.methods.cumulative.choice import Choice
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import Stepper
from tiny_runs import shrunk

CLASSES, BATCH = 5, 10


def network_for(config: Config) -> Network:
    torch.manual_seed(7)
    return Network(config.model, (1, 8, 8), CLASSES, mean=(0.4,), std=(0.3,), terms=config.objective)


def batch(step: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Three views that differ, and labels of which no class fills half."""
    draws = torch.Generator().manual_seed(step)
    views = torch.rand(3, BATCH, 1, 8, 8, generator=draws, dtype=torch.float64)
    return views.to(dtype), torch.randperm(BATCH, generator=draws) % CLASSES


def moment(step: int, steps: int) -> Moment:
    epoch, within = divmod(step, 4)
    return Moment(epoch=epoch, step=within, total_step=step, total_steps=steps, progress=4 * epoch / max(4, steps))


def trained(config: Config, steps: int, dtype: torch.dtype = torch.float64) -> tuple[Stepper, list[dict[str, Tensor]]]:
    """A stepper after some steps, and the measures of every step: `{"loss": [blocks that have it], ...}`."""
    stepper = Stepper(network_for(config).to(dtype), config)
    history = []
    for step in range(steps):
        views, labels = batch(step, dtype)
        measured = stepper(views[: config.views], labels, moment(step, steps))
        blocks = [dict(zip(names, values)) for names, values in measured]
        every = {name: None for block in blocks for name in block}
        history.append({name: torch.stack([block[name] for block in blocks if name in block]) for name in every})
    return stepper, history


def everything(stepper: Stepper) -> dict[str, Tensor]:
    """Weights, queues, the teacher's weights and the optimisers' memories, by name."""
    found = {f"network.{name}": value for name, value in stepper.network.state_dict().items()}
    found |= {f"teacher.{name}": value for name, value in stepper.teacher.network.state_dict().items()}
    for depth, optimiser in enumerate(stepper.optimisers):
        for number, memory in optimiser.state_dict()["state"].items():
            found |= {f"optimiser.{depth}.{number}.{name}": value for name, value in memory.items()}
    return found


# The two modes

OF_EACH_KIND = [
    *("gamma0-dense", "lcff-dense", "cp-fair-dense", "gated-dense", "mgc-dense", "gamma0", "cp-fair", "demo"),
    *("baseline", "topk-depth", "fixed-nl", "block0-label", "gamma-ramp", "dp-fair", "multi-tech"),
    *("cp-fair-one-aspect", "cp-fair-ni-only", "cnn-ff", "sprint"),
]
"""Presets that ask something of the step that no other does."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in OF_EACH_KIND} | {
    "fading history": ("cp-fair-dense", {"history": "decay"}),
    "three streams, random labels": ("cp-fair-dense", {"eta": 0.0, "negatives": "random"}),
    "gate on the previous block, online mining": ("gated-dense", {"rule.source": "previous", "negatives": "online"}),
    "fading history under a gate": ("gated-dense", {"history": "decay", "objective.supcon": None}),
    "one wrong label for all blocks": ("lcff-dense", {"negatives.once": True, "objective.recon": None}),
    "mining on the positive": ("lcff-dense", {"negatives.mine_on": "pos", "objective.supcon.label_free": True}),
    "prefix mining": ("lcff-dense", {"negatives": "prefix", "model.token_norm": "unit"}),
    "prefix mining, SAM, a gate, dead aspects masked": (
        "gated-dense",
        {"negatives": "prefix", "negatives.count": 2, "optim.sam": 0.05, "model.goodness.mask_dead": True},
    ),
    "label at the first block, tokens as they are": (
        "mgc-dense",
        {"model.label_at": "first", "model.label": "add", "model.activation": "none", "model.normalise": False},
    ),
    "memory and SAM": ("cp-fair-dense", {"model.block.memory": 3, "optim.sam": 0.05}),
    "triangle tokens, SAM on the stem too": ("demo", {"model.activation": "triangle", "optim.sam": 0.1}),
    "one view": ("gamma0-dense", {"views": 1}),
    "late labels": ("gated-dense", {"model.label": "late"}),
    "late labels and all of them, one view, SAM": (
        "cp-fair-dense",
        {"model.label": "late", "views": 1, "objective.choice": Choice(smoothing=0.1, rise=2.0), "optim.sam": 0.05},
    ),
    "Muon": ("lcff-dense", {"optim.kind": "muon"}),
    "one energy, a ramp over the epochs, no clipping": (
        "demo",
        {"model.goodness": "energy", "objective.aspects": None, "rule": "ramp", "optim.clip": 0.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_fused_equals_sequential_over_twenty_steps(case: str) -> None:
    name, changes = CASES[case]
    # 1e-2, so that twenty steps go a long way and a small difference would grow
    changes = {"model.blocks": 3, "optim.lr": 1e-2, "optim.ema": 0.9, **changes}
    runs = {mode: trained(shrunk(name, {**changes, "step.mode": mode}), 20) for mode in ("fused", "sequential")}
    fused, sequential = (everything(runs[mode][0]) for mode in ("fused", "sequential"))
    assert fused.keys() == sequential.keys()
    for key in sequential:
        torch.testing.assert_close(fused[key], sequential[key], rtol=1e-9, atol=1e-9, msg=lambda m, k=key: f"{k}: {m}")
    for one, other in zip(runs["fused"][1], runs["sequential"][1]):
        assert one.keys() == other.keys()
        for key in one:  # measures are kept in float32
            torch.testing.assert_close(one[key], other[key], rtol=1e-6, atol=1e-6)

    start = network_for(shrunk(name, changes)).double()
    for depth in range(3):
        moved = [
            float((fused[f"network.{own}"] - value).detach().abs().max()) for own, value in start.owned(depth).items()
        ]
        assert max(moved) > 0.03, "the sameness would mean little if nothing moved"
    queues = [key for key in fused if key.endswith("queue_labels")]
    supcon = shrunk(name, changes).objective.get("supcon")
    assert len(queues) == sum(supcon is not None and supcon.coefficient(depth, 3) != 0 for depth in range(3))
    assert all(bool((fused[key] >= 0).all()) for key in queues), "twenty steps fill the queue"


def test_after_update_is_refused_in_fused_mode() -> None:
    with pytest.raises(ConfigError, match=r"step\.handoff after_update needs step\.mode sequential"):
        shrunk("demo", {"step.mode": "fused", "step.handoff": "after_update"})


def test_after_update_hands_on_the_tokens_of_the_updated_block() -> None:
    changes = {"eta": 0.0, "negatives": "random", "step.mode": "sequential", "optim.lr": 0.1}
    found = {}
    for handoff in ("before_update", "after_update"):
        stepper, history = trained(shrunk("demo", {**changes, "step.handoff": handoff}), 1)
        found[handoff] = history[0]
    before, after = found["before_update"], found["after_update"]
    assert torch.equal(before["loss"][0], after["loss"][0])
    assert not torch.allclose(before["loss"][1], after["loss"][1], rtol=1e-3)

    # block 1's goodness of the positive views, when block 0 is the one this step left behind
    start, (views, labels) = network_for(stepper.config).double(), batch(0)
    stem, updated = stepper.network, stepper.network.block(0)
    with torch.no_grad():
        goodness = []
        for view in views[:2]:
            tokens = start.hand_on(updated(stem.tokens(view), labels).tokens)
            goodness.append(start.block(1)(tokens, labels).goodness)
    assert float(after["g_pos"][1]) == pytest.approx(float(torch.stack(goodness).mean()), rel=1e-6)


# One step by hand


def hand_made_step(network: Network, config: Config, views: Tensor, labels: Tensor, at: Moment) -> dict[str, Tensor]:
    """The weights after one step under `block` alone with random wrong labels: plain autograd, AdamW written out.

    Three streams, history as the flat sum, rule constant.
    """
    network = copy.deepcopy(network)
    gamma, beta, optim = config.rule.gamma, config.beta, config.optim  # type: ignore[attr-defined]
    warm = optim.warmup * at.total_steps
    assert at.total_step < warm
    rate = optim.lr * (at.total_step + 1) / (warm + 1)
    streams = [network.tokens(view) for view in views]
    past = torch.zeros(BATCH, dtype=torch.float64)
    after: dict[str, Tensor] = {}
    for depth in range(len(network.blocks)):
        draws = uniforms(torch.device("cpu"), (BATCH, 1), config.seed, "mine", at.epoch, at.step, depth)
        wrong = torch.tensor(
            [
                (*range(label + 1, CLASSES), *range(label))[int(draw * (CLASSES - 1))]
                for label, draw in zip(labels.tolist(), draws[:, 0].tolist())
            ]
        )
        outputs = [network.block(depth)(tokens, y) for tokens, y in zip(streams, (labels, labels, wrong))]
        margin = (outputs[0].goodness + outputs[1].goodness) / 2 - outputs[2].goodness
        loss = torch.log1p(torch.exp(-beta * (margin + gamma * past))).mean()
        own = network.owned(depth)
        gradients = dict(zip(own, torch.autograd.grad(loss, list(own.values()), allow_unused=True)))
        norm = sum(float((g**2).sum()) for g in gradients.values() if g is not None) ** 0.5
        for name, gradient in gradients.items():
            if gradient is None:
                after[name] = own[name].detach()
                continue
            gradient = gradient * min(1.0, optim.clip / (norm + 1e-6))
            decayed = own[name].detach() * (1 - rate * (optim.weight_decay if own[name].dim() > 1 else 0))
            after[name] = decayed - rate * gradient / (gradient.abs() + 1e-8)  # Adam's first step
        past = past + margin.detach()
        streams = [F.normalize(F.relu(output.tokens.detach()), dim=-1) * config.model.width**0.25 for output in outputs]
    return after


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize("clip", [1e-3, 1.0])
def test_one_step_is_the_step_made_by_hand(mode: str, clip: float) -> None:
    changes = {"rule": "lcff", "negatives": "random", "eta": 0.0, "objective.aspects": None, "optim.warmup": 0.5}
    config = shrunk("demo", {**changes, "model.blocks": 3, "step.mode": mode, "optim.clip": clip})
    network = network_for(config).double()
    at = Moment(epoch=2, step=3, total_step=1, total_steps=10, progress=0.5)
    expected = hand_made_step(network, config, *batch(0), at)
    Stepper(network, config)(*batch(0), at)
    assert expected.keys() == dict(network.named_parameters()).keys()
    for name, value in network.named_parameters():
        torch.testing.assert_close(
            value.detach(), expected[name], rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n} {m}"
        )


def test_the_same_step_again_gives_the_same_bits_whatever_was_drawn_in_between() -> None:
    first, _ = trained(shrunk("cp-fair-dense"), 3, torch.float32)
    torch.rand(100)
    second, _ = trained(shrunk("cp-fair-dense"), 3, torch.float32)
    one, other = everything(first), everything(second)
    assert all(torch.equal(one[name], other[name]) for name in one)
    third, _ = trained(shrunk("cp-fair-dense", {"seed": 43}), 3, torch.float32)
    third_state = everything(third)
    assert any(not torch.equal(one[name], third_state[name]) for name in one), "the seed draws the wrong labels"


@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_the_teacher_is_the_running_mean_of_the_weights_after_each_step(mode: str) -> None:
    config = shrunk("demo", {"step.mode": mode, "optim.ema": 0.7})
    stepper = Stepper(network_for(config).double(), config)
    naive = {name: value.clone() for name, value in stepper.teacher.network.state_dict().items()}
    for step in range(6):  # in two epochs: the decay follows the steps since the start
        stepper(*batch(step), moment(step, 6))
        decay = min(0.7, 1 - 1 / (step + 2))
        online = stepper.network.state_dict()
        naive = {name: decay * value + (1 - decay) * online[name] for name, value in naive.items()}
    for name, value in stepper.teacher.network.state_dict().items():
        torch.testing.assert_close(value, naive[name], rtol=1e-9, atol=1e-12)


# Locality over time


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize("name", ["lcff-dense", "gated-dense"])
def test_taking_the_last_block_away_changes_no_bit_of_the_others_training(name: str, mode: str) -> None:
    changes = {"step.mode": mode, "negatives.k_first": 3, "negatives.k_last": 3, "optim.lr": 1e-2}
    states = {}
    for blocks in (3, 4):
        stepper, _ = trained(shrunk(name, {**changes, "model.blocks": blocks}), 5, torch.float32)
        states[blocks] = everything(stepper)
    shared = [key for key in states[3] if key in states[4]]
    assert len(shared) == len(states[3]) < len(states[4])
    assert {key for key in shared if not torch.equal(states[3][key], states[4][key])} == set()
    start = network_for(shrunk(name, {**changes, "model.blocks": 3})).state_dict()
    still = {key for key, value in start.items() if torch.equal(value, states[3][f"network.{key}"])}
    assert still <= {"mean", "std"}


def test_a_later_block_does_feel_the_earlier_ones() -> None:
    """The other direction: a first block that starts elsewhere changes the second one's training."""
    config = shrunk("demo")
    ends = []
    for shift in (0.0, 0.1):
        network = network_for(config)
        with torch.no_grad():
            network.block(0).label.vectors.add_(shift)  # type: ignore[union-attr]
        stepper = Stepper(network, config)
        stepper(*batch(0, torch.float32), moment(0, 2))
        ends.append(network.block(1).label.vectors.detach())  # type: ignore[union-attr]
    assert not torch.equal(*ends)


def test_every_parameter_has_exactly_one_optimiser_and_the_stem_is_block_0s() -> None:
    config = shrunk("cp-fair-dense", {"model.blocks": 3})
    stepper = Stepper(network_for(config), config)
    trains = [{id(p) for group in one.param_groups for p in group["params"]} for one in stepper.optimisers]
    assert sum(map(len, trains)) == len(set().union(*trains)) == len(list(stepper.network.parameters()))
    assert {id(p) for p in stepper.network.stem.parameters()} < trains[0]
    for depth in range(3):
        assert {id(p) for p in stepper.network.block(depth).parameters()} <= trains[depth]


def test_every_step_sets_the_scheduled_rate_in_every_optimiser() -> None:
    config = override(shrunk("demo"), {"optim.warmup": 0.25})
    stepper = Stepper(network_for(config), config)
    seen = []
    for step in range(8):
        stepper(*batch(step, torch.float32), moment(step, 8))
        (rate,) = {group["lr"] for one in stepper.optimisers for group in one.param_groups}
        seen.append(rate / config.optim.lr)
    cosine = [0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * t / 6, dtype=torch.float64)))) for t in range(6)]
    assert seen == pytest.approx([1 / 3, 2 / 3, *cosine])


# Sharpness-aware minimisation


@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_sam_steps_with_the_gradient_at_the_weights_moved_uphill(mode: str) -> None:
    """Against two steps written out: g at w, g' at w + rho g / |g|, AdamW's first step with g' at w."""
    rho, rate = 0.3, 1e-2
    changes = {"eta": 0.0, "negatives": "random", "optim.clip": 0.0, "optim.lr": rate, "optim.weight_decay": 0.0}
    config = shrunk("demo", {**changes, "optim.warmup": 0.0, "optim.sam": rho, "step.mode": mode})
    stepper = Stepper(network_for(config).double(), config)
    views, labels = batch(0)
    at = moment(0, 1)
    expected = {}
    reference = Stepper(network_for(config).double(), config)
    situation = reference.first(views, labels, at)
    for depth in range(config.model.blocks):
        own = reference.network.owned(depth)
        judged = reference.loss(situation.again(reference))
        first = torch.autograd.grad(judged.loss, list(own.values()))
        length = math.sqrt(sum(float(g.square().sum()) for g in first))
        start = {name: p.detach().clone() for name, p in own.items()}
        with torch.no_grad():
            for p, g in zip(own.values(), first):
                p += rho * g / length
        second = torch.autograd.grad(reference.loss(situation.again(reference)).loss, list(own.values()))
        with torch.no_grad():
            for (name, p), g in zip(own.items(), second):
                expected[name] = start[name] - rate * g / (g.abs() + 1e-8)
                p.copy_(start[name])
        if depth + 1 < config.model.blocks:
            situation = reference.next(situation, judged, at)
    stepper(views, labels, at)
    for name, p in stepper.network.named_parameters():
        torch.testing.assert_close(p.detach(), expected[name], rtol=1e-6, atol=1e-9)
