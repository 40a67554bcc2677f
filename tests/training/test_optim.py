"""The schedule, the decay, the clipping and the teacher, each against the formula written out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goodness.config import Optim
from goodness.nn.network import Network
from goodness.training.optim import (
    MovingAverage,
    average_decay,
    block_optimisers,
    clip,
    gradient_norm,
    learning_rate,
    set_learning_rate,
)
from tiny_runs import shrunk


def network() -> Network:
    config = shrunk("cp-fair-dense", {"model.blocks": 3})
    torch.manual_seed(1)
    return Network(config.model, (1, 8, 8), 4, terms=config.objective)


# The learning rate


def test_the_rate_rises_in_equal_steps_peaks_at_lr_and_falls_to_nothing() -> None:
    config = Optim(lr=0.2, warmup=0.1)
    rates = [learning_rate(step, 200, config.lr, config.warmup) for step in range(200)]
    rises = [later - earlier for earlier, later in itertools.pairwise(rates[:21])]
    assert rises == pytest.approx([0.2 / 21] * 20)
    assert rates[0] == pytest.approx(0.2 / 21)
    assert max(rates) == rates[20] == 0.2
    assert all(earlier > later for earlier, later in itertools.pairwise(rates[20:]))
    assert 0 < rates[-1] < 0.2 * 1e-4
    # cos^2 of half the angle, the same curve written another way
    assert rates[20:] == pytest.approx([0.2 * math.cos(math.pi / 2 * (s - 20) / 180) ** 2 for s in range(20, 200)])


@given(steps=st.integers(1, 400), warmup=st.floats(0, 1), share=st.floats(0, 1))
def test_the_rate_is_positive_and_at_most_lr_at_every_step(steps: int, warmup: float, share: float) -> None:
    step = min(steps - 1, int(share * steps))
    assert 0 < learning_rate(step, steps, 3e-3, warmup) <= 3e-3


def test_a_longer_training_stretches_the_same_curve() -> None:
    config = Optim(lr=1.0, warmup=0.05)
    for step in range(0, 400, 7):
        assert learning_rate(25 * step, 10_000, config.lr, config.warmup) == pytest.approx(
            learning_rate(step, 400, config.lr, config.warmup), abs=0.05
        )


def test_setting_the_rate_reaches_every_group() -> None:
    (first, *_) = block_optimisers(network(), Optim())
    set_learning_rate(first, 0.125)
    assert [group["lr"] for group in first.param_groups] == [0.125, 0.125]


# Weight decay


def test_only_matrices_decay() -> None:
    net = network()
    optimisers = block_optimisers(net, Optim(weight_decay=0.5))
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimiser in optimisers:
        set_learning_rate(optimiser, 0.1)
        optimiser.step()
    decays = set()
    for name, value in net.named_parameters():
        if value.dim() >= 2:
            torch.testing.assert_close(value.detach(), before[name] * 0.95, rtol=1e-6, atol=0)
            decays.add(name)
        else:
            assert torch.equal(value.detach(), before[name]), name
    assert {"stem.conv1.weight", "blocks.2.body.attention.qkv.weight"} <= decays
    assert not decays & {"stem.norm1.weight", "blocks.0.head.alpha_raw", "blocks.1.extras.aspects.theta"}


def test_the_optimisers_take_their_settings_from_the_configuration() -> None:
    for optimiser in block_optimisers(network(), Optim(betas=(0.5, 0.75))):
        assert isinstance(optimiser, torch.optim.AdamW)
        assert {group["betas"] for group in optimiser.param_groups} == {(0.5, 0.75)}


# Clipping


@pytest.mark.parametrize("most", [0.0, 0.2, 1e6])
def test_each_block_is_clipped_by_its_own_norm_alone(most: float) -> None:
    net = network()
    owned = [list(net.owned(depth).values()) for depth in range(3)]
    torch.manual_seed(2)
    for depth, parameters in enumerate(owned):
        for parameter in parameters[1:]:  # the first has no gradient at all
            parameter.grad = torch.randn_like(parameter) * 10.0 ** (depth - 3)
    before = [[None if p.grad is None else p.grad.double() for p in parameters] for parameters in owned]
    for depth, parameters in enumerate(owned):
        naive = math.sqrt(sum(float((g**2).sum()) for g in before[depth] if g is not None))
        norm = gradient_norm(parameters)
        assert float(norm) == pytest.approx(naive, rel=1e-5)
        clip(parameters, norm, most)
        factor = min(1.0, most / naive) if most > 0 else 1.0
        for parameter, old in zip(parameters, before[depth]):
            if old is None:
                assert parameter.grad is None
            else:
                torch.testing.assert_close(parameter.grad.double(), old * factor, rtol=1e-4, atol=0)
        for later in range(depth + 1, 3):
            for parameter, old in zip(owned[later], before[later]):
                assert old is None or torch.equal(parameter.grad.double(), old)
    norms = [float(gradient_norm(parameters)) for parameters in owned]
    assert norms[0] < 0.1 < 0.199 < norms[1] or most != 0.2, "one block below the limit, the others at it"


# The teacher


def test_the_teacher_follows_by_the_smaller_of_two_decays() -> None:
    net = network().double()
    teacher = MovingAverage(net, 0.8)
    naive = {name: value.detach().clone() for name, value in net.named_parameters() if "extras" not in name}
    torch.manual_seed(3)
    for step in range(12):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(torch.randn_like(parameter))
        for depth in range(3):
            teacher.follow(depth, step)
        decay = min(0.8, 1 - 1 / (step + 2))
        for name, value in net.named_parameters():
            if name in naive:
                naive[name] = decay * naive[name] + (1 - decay) * value.detach()
    found = dict(teacher.network.named_parameters())
    assert found.keys() == naive.keys()
    for name in naive:
        torch.testing.assert_close(found[name], naive[name], rtol=1e-12, atol=1e-12)


def test_the_decay_starts_at_a_half_and_ends_at_its_setting() -> None:
    assert [average_decay(step, 0.9) for step in (0, 1, 7, 8, 9, 10**6)] == pytest.approx(
        [1 / 2, 2 / 3, 8 / 9, 0.9, 0.9, 0.9]
    )


def test_following_one_block_leaves_the_others_and_the_online_network_alone() -> None:
    net = network()
    teacher = MovingAverage(net, 0.5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    online = {name: value.clone() for name, value in net.state_dict().items()}
    before = {name: value.clone() for name, value in teacher.network.state_dict().items()}
    teacher.follow(1, 0)
    moved = {name for name, value in teacher.network.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in net.owned(1) if "extras" not in name}
    teacher.follow(0, 0)
    moved = {name for name, value in teacher.network.state_dict().items() if not torch.equal(value, before[name])}
    assert any(name.startswith("stem.") for name in moved)
    assert not any(name.startswith("blocks.2.") for name in moved)
    assert all(torch.equal(value, online[name]) for name, value in net.state_dict().items())


def test_the_teacher_has_no_extras_asks_for_no_gradient_and_shares_no_memory() -> None:
    net = network()
    teacher = MovingAverage(net, 0.9).network
    assert any("extras" in name for name in net.state_dict())
    assert teacher.state_dict().keys() == {name for name in net.state_dict() if "extras" not in name}
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.requires_grad for parameter in net.parameters())
    shared = {p.data_ptr() for p in teacher.parameters()} & {p.data_ptr() for p in net.parameters()}
    assert shared == set()
