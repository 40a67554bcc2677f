"""Every draw follows from its key: no state to save, nothing to lose."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goodness.draws import Draws, epoch_order, generator, key, uniforms

CPU = torch.device("cpu")
part = st.one_of(st.integers(0, 10**6), st.text(max_size=5))
keys = st.lists(part, max_size=4).map(tuple)


@given(one=keys, other=keys)
def test_two_keys_are_the_same_number_only_if_every_part_is_the_same(one: tuple, other: tuple) -> None:
    same = one == other and [type(p) for p in one] == [type(p) for p in other]
    assert (key(*one) == key(*other)) == same
    assert 0 <= key(*one) < 2**63


@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 2), (2, 1)), ((1, 23), (12, 3)), ((1,), ("1",)), ((1,), (1, "")), (("a", "b"), ("ab",)), ((), (0,))],
)
def test_order_kind_and_boundaries_of_the_parts_count(one: tuple, other: tuple) -> None:
    assert key(*one) != key(*other)


def test_the_number_does_not_change_from_process_to_process() -> None:
    """A resumed run is another process: a hash that Python salts would not do."""
    assert key(42, "mine", 3, 7, 1) == 8203934972725209419
    assert key() == 2847183694713211083


def test_draws_neither_read_nor_move_the_global_generator() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = uniforms(CPU, (50,), 1, "augment", 0, 0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(uniforms(CPU, (50,), 1, "augment", 0, 0), first)


def test_modules_are_seeded_as_torch_would() -> None:
    torch.manual_seed(key(3, "block", 0, 1))
    expected = torch.rand(5)
    Draws(CPU, 3).seed_modules("block", 0, 1)
    assert torch.equal(torch.rand(5), expected)


def test_draws_are_uniform_and_neighbouring_keys_are_strangers() -> None:
    steps = torch.stack([uniforms(CPU, (10_000,), 42, "mine", 0, step) for step in range(6)]).double()
    assert 0 <= float(steps.min()) < 0.001
    assert 0.999 < float(steps.max()) < 1
    counts = torch.histc(steps, bins=10, min=0, max=1)
    assert float((counts - 6000).abs().max()) < 5 * 6000**0.5
    correlations = torch.corrcoef(steps) - torch.eye(6)
    assert float(correlations.abs().max()) < 0.05  # five standard deviations


def test_a_generator_is_fresh_each_time() -> None:
    one, other = generator(CPU, 5, "x"), generator(CPU, 5, "x")
    torch.rand(10, generator=one)
    assert torch.equal(torch.rand(3, generator=other), torch.rand(13, generator=generator(CPU, 5, "x"))[:3])
    assert not torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=generator(CPU, 5, "x")))


@given(count=st.integers(0, 300), seed=st.integers(0, 2**31), epoch=st.integers(0, 500))
def test_an_epochs_order_visits_every_image_once(count: int, seed: int, epoch: int) -> None:
    order = epoch_order(count, seed, epoch)
    assert sorted(order.tolist()) == list(range(count))


def test_the_order_differs_between_epochs_and_seeds_and_is_the_same_when_asked_again() -> None:
    orders = {(seed, epoch): tuple(epoch_order(40, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(set(orders.values())) == 25
    # epoch 4 needs nothing of the epochs before it
    assert orders[3, 4] == tuple(epoch_order(40, 3, 4).tolist())
