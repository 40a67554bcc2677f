"""Muon: orthogonal updates for matrices, AdamW for the rest, and nothing moves where a gradient is not finite."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from goodness.config import Optim
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.muon import Muon, orthogonalised
from goodness.training.optim import make_recordable, optimiser, restore_state, set_learning_rate, state_of
from goodness.training.step import Stepper
from tiny_runs import shrunk


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 40)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    matrices = torch.stack([randn(*shape, seed=seed) * 10.0**seed for seed in range(3)])
    found = orthogonalised(matrices)
    assert found.shape == matrices.shape
    for before, after in zip(matrices, found):
        left, values, right = torch.linalg.svd(before, full_matrices=False)
        between = left.T @ after @ right.T
        assert float((between - between.diagonal().diag()).abs().max()) < 1e-9, "the vectors are the same"
        large = values > 0.05 * values[0]
        assert bool((between.diagonal()[large] > 0.6).all())
        assert bool((between.diagonal() < 1.3).all())


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(3, 4))
        self.label = nn.Parameter(torch.randn(5, 4))

    def forward(self, images: Tensor) -> Tensor:
        return (self.body(images) @ self.label.T).square().mean()


def made(kind: str = "muon") -> tuple[Small, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = Small().double()
    config = Optim(kind=kind, lr=0.01, weight_decay=0.1, momentum=0.9, betas=(0.8, 0.9))  # type: ignore[arg-type]
    return network, optimiser(dict(network.named_parameters()), config, ("body.",))


def slopes(network: Small, step: int) -> None:
    network.zero_grad(set_to_none=True)
    network(randn(7, 2, 5, 5, seed=step)).backward()


def test_matrices_and_filters_follow_their_orthogonal_momentum() -> None:
    network, found = made()
    matrices = {name: one for name, one in network.named_parameters() if one.dim() > 1 and name.startswith("body")}
    assert len(matrices) == 3
    wanted = {name: one.detach().clone() for name, one in matrices.items()}
    momentum = {name: torch.zeros_like(one) for name, one in wanted.items()}
    for step in range(4):
        slopes(network, step)
        for name, one in matrices.items():
            assert one.grad is not None
            momentum[name] = 0.9 * momentum[name] + one.grad
            ahead = (one.grad + 0.9 * momentum[name]).reshape(len(one), -1)
            update = orthogonalised(ahead.unsqueeze(0))[0] * 0.2 * math.sqrt(max(ahead.shape))
            wanted[name] = wanted[name] * (1 - 0.01 * 0.1) - 0.01 * update.reshape(one.shape)
        found.step()
        for name, one in matrices.items():
            torch.testing.assert_close(one.detach(), wanted[name], rtol=1e-9, atol=1e-9)


def test_the_rest_is_adamws() -> None:
    (network, muon), (twin, _) = made(), made()
    others = [name for name, one in network.named_parameters() if one.dim() < 2 or not name.startswith("body")]
    named = dict(twin.named_parameters())
    groups = [
        {"params": [named[name] for name in others if named[name].dim() >= 2], "weight_decay": 0.1},
        {"params": [named[name] for name in others if named[name].dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9))
    for step in range(5):
        slopes(network, step)
        for name, one in twin.named_parameters():
            one.grad = dict(network.named_parameters())[name].grad
        muon.step()
        adamw.step()
        for name in others:
            torch.testing.assert_close(dict(network.named_parameters())[name], named[name], rtol=1e-6, atol=1e-8)


def test_nothing_moves_from_a_bad_step_on() -> None:
    network, found = made()
    bad = torch.zeros(())
    make_recordable(found, torch.device("cpu"), bad)
    set_learning_rate(found, 0.01)
    slopes(network, 0)
    found.step()
    before = {name: one.detach().clone() for name, one in network.named_parameters()}
    slopes(network, 1)
    for one in network.parameters():
        assert one.grad is not None
        one.grad.fill_(torch.nan)
    bad.fill_(1)
    found.step()
    for name, one in network.named_parameters():
        assert torch.equal(one, before[name])


def test_its_state_goes_on_where_it_was() -> None:
    (network, found), (twin, other) = made(), made()
    for step in range(6):
        slopes(network, step)
        found.step()
        if step == 2:
            twin.load_state_dict(network.state_dict())
            restore_state(other, copy.deepcopy(state_of(found)))
            set_learning_rate(other, 0.01)
        elif step > 2:
            slopes(twin, step)
            other.step()
    for mine, theirs in zip(network.parameters(), twin.parameters()):
        assert torch.equal(mine, theirs)


def test_a_block_gives_its_body_to_muon_and_the_rest_to_adamw() -> None:
    config = shrunk("gamma0-dense", {"optim.kind": "muon"})
    torch.manual_seed(0)
    network = Network(config.model, (1, 8, 8), 4, terms=config.objective)
    stepper = Stepper(network, config)
    names = {id(one): name for name, one in network.named_parameters()}
    for depth, one in enumerate(stepper.optimisers):
        assert isinstance(one, Muon)
        groups = {group["is_matrix"]: set() for group in one.param_groups}
        for group in one.param_groups:
            groups[group["is_matrix"]] |= {names[id(parameter)] for parameter in group["params"]}
        assert groups[True] | groups[False] == set(network.owned(depth))
        assert groups[True]
        assert all(".body." in name or name.startswith("stem.") for name in groups[True])
        assert not any(".body." in name and network.get_parameter(name).dim() > 1 for name in groups[False])
    stepper(torch.rand(3, 8, 1, 8, 8), torch.arange(8) % 4, Moment(0, 0, 0, 10, 0.0))
