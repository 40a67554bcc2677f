"""Experts: the fast mixture against a loop, the losses against their formulas, routing health by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.routing import router_z, routing_measures, switch_balance
from goodness.nn.hybrid import Hybrid
from goodness.nn.moe import MixtureOfExperts, Routing, best_in_rounds, load, route
from goodness.nn.permuted import permuted


def mixture(width: int = 8, hidden: int = 8, experts: int = 6, k: int = 2) -> MixtureOfExperts:
    torch.manual_seed(3)
    return MixtureOfExperts(width, hidden, experts, k)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("k", [1, 2, 6])
def test_the_mixture_is_the_sum_over_chosen_experts_token_by_token(k: int) -> None:
    layer, x = mixture(k=k).double(), randn(2, 7, 8).double()
    mixed, routing = layer(x)
    for i, token in enumerate(x.reshape(-1, 8)):
        logits = layer.router.weight @ token
        share = logits.softmax(0)
        best = sorted(range(6), key=lambda e: -share[e].item())[:k]
        expected = torch.zeros(8, dtype=torch.float64)
        for expert in best:
            gate, up = (token @ layer.gate_up[expert]).chunk(2)
            expected += share[expert] / sum(share[e] for e in best) * ((F.gelu(gate) * up) @ layer.down[expert])
        torch.testing.assert_close(mixed.reshape(-1, 8)[i], expected)
        assert set(routing.chosen[i].tolist()) == set(best)


def test_no_tokens_are_no_trouble() -> None:
    layer = mixture()
    for x in (randn(0, 8), randn(0, 4, 8)):
        assert layer(x)[0].shape == x.shape
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x)[0].shape == x.shape


@pytest.mark.parametrize("k", [1, 3])
def test_the_grouped_way_equals_the_plain_way_in_value_and_gradient(k: int) -> None:
    layer = mixture(k=k)
    x = randn(40, 8)
    found = []
    for way in (layer.mix, layer.mix_plainly):
        layer.zero_grad()
        tokens = x.clone().requires_grad_()
        routing = route(F.linear(tokens, layer.router.weight), k)
        way(tokens, routing).square().sum().backward()
        found.append([tokens.grad, *(p.grad.clone() for p in layer.parameters())])
    for fast, plain in zip(*found):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 4, 7])
def test_winners_one_after_the_other_are_the_k_best(k: int) -> None:
    logits = torch.randn(64, 7, generator=torch.Generator().manual_seed(1))
    logits[0, 2] = -200.0  # a share of exactly zero is still chosen once, and last
    first, second = (logits.clone().requires_grad_() for _ in range(2))
    value, chosen = best_in_rounds(first.softmax(dim=-1), k)
    their_value, their_chosen = second.softmax(dim=-1).topk(k, dim=-1)
    assert torch.equal(chosen, their_chosen)
    assert torch.equal(value, their_value)
    weights = torch.arange(1.0, k + 1)
    (value * weights).sum().backward()
    (their_value * weights).sum().backward()
    assert torch.equal(first.grad, second.grad)


def test_rows_in_another_order_and_back_have_the_gradients_that_torch_finds() -> None:
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    x = randn(9, 3).double().requires_grad_()
    assert torch.equal(permuted(x, order, order.argsort()), x[order])
    assert torch.autograd.gradcheck(lambda x: permuted(x.square(), order, order.argsort()), x)
    assert torch.autograd.gradgradcheck(lambda x: permuted(x.square(), order, order.argsort()), x)


def test_an_expert_nobody_chooses_changes_nothing_and_learns_nothing() -> None:
    layer = mixture(k=1)
    with torch.no_grad():
        layer.router.weight[4] = -100 * layer.router.weight[:4].abs().sum(0)
    x = randn(30, 8).abs()
    mixed, routing = layer(x)
    assert not bool((routing.chosen == 4).any())
    mixed.sum().backward()
    assert float(layer.gate_up.grad[4].abs().max()) == 0


@given(st.integers(0, 1000), st.integers(2, 7), st.data())
def test_balance_and_z_are_their_formulas_on_random_routing(seed: int, experts: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, experts))
    routing = route(3 * randn(9, experts, seed=seed).double(), k)
    z, chosen = routing.logits.tolist(), routing.chosen.tolist()
    share = [sum(e in row for row in chosen) / (9 * k) for e in range(experts)]
    sums = [sum(math.exp(value) for value in row) for row in z]
    mean = [sum(math.exp(row[e]) / total for row, total in zip(z, sums)) / 9 for e in range(experts)]
    balance = experts * sum(f * p for f, p in zip(share, mean))
    assert float(switch_balance(routing)) == pytest.approx(balance, rel=1e-9)
    assert float(router_z(routing)) == pytest.approx(sum(math.log(total) ** 2 for total in sums) / 9, rel=1e-9)
    assert load(routing).tolist() == [sum(e in row for row in chosen) for e in range(experts)]


def test_balance_is_one_when_even_and_the_number_of_experts_when_one_takes_all() -> None:
    even = Routing(torch.zeros(4, 4), torch.arange(4).reshape(4, 1), torch.ones(4, 1))
    assert float(switch_balance(even)) == pytest.approx(1)
    greedy = torch.tensor([[50.0, 0.0, 0.0, 0.0]]).expand(4, 4)
    assert float(switch_balance(route(greedy, 1))) == pytest.approx(4)


def test_routing_health_says_how_many_experts_work() -> None:
    def health(chosen: list[int], experts: int) -> dict[str, float]:
        rows = torch.tensor(chosen).reshape(-1, 1)
        notes = {"router_logits": torch.zeros(len(chosen), experts), "router_chosen": rows}
        notes["router_weights"] = torch.ones_like(rows, dtype=torch.float32)
        return {name: float(value) for name, value in routing_measures(notes).items()}

    assert health([0, 1, 2, 3], 4) == pytest.approx({"experts_effective": 4, "load_variance": 0, "experts_dead": 0})
    one = health([2, 2, 2, 2], 4)
    assert one == pytest.approx({"experts_effective": 1, "load_variance": 3, "experts_dead": 0.75})
    assert routing_measures({}) == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"experts": 4, "top_k": 5}, "top_k 5 is more than model.block.experts 4"),
        ({"experts": 0}, "experts must be at least 1"),
        ({"memory": -1}, "memory must be 0 or at least 2"),
        ({"memory": 1}, "memory must be 0 or at least 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Hybrid(**settings).check()
