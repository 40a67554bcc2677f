"""The ledger against sums done by hand, and the promise that only values enter it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.methods.cumulative.facts import PerStream
from goodness.methods.cumulative.ledger import Ledger

BATCH, ASPECTS = 3, 2


def blocks_of(seed: int, count: int, with_ni: bool) -> list[tuple[PerStream, PerStream, Tensor]]:
    generator = torch.Generator().manual_seed(seed)

    def trio(shape: tuple[int, ...]) -> PerStream:
        made = [
            torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(True) * 1.0 for _ in range(3)
        ]
        return PerStream(made[0], made[1], made[2] if with_ni else None)

    return [
        (trio((BATCH,)), trio((BATCH, ASPECTS)), torch.rand(BATCH, generator=generator, dtype=torch.float64))
        for _ in range(count)
    ]


def by_hand(values: list[list[float]], weights: list[list[float]], mode: str) -> list[float]:
    """What block len(values) inherits: the flat sum, or G^(d) = g^(d) + w^(d) G^(d-1) unrolled."""
    carried = [0.0] * BATCH
    for value, weight in zip(values, weights):
        for i in range(BATCH):
            carried[i] = value[i] + (carried[i] if mode == "sum" else weight[i] * carried[i])
    return carried


@given(st.integers(0, 100), st.integers(1, 5), st.booleans(), st.sampled_from(["sum", "decay"]))
def test_history_is_the_flat_sum_or_the_recursion(seed: int, count: int, with_ni: bool, mode: str) -> None:
    entries = blocks_of(seed, count, with_ni)
    ledger = Ledger(mode)
    for goodness, aspects, weight in entries:
        ledger.add(goodness, aspects, weight)
    goodness, aspects = ledger.history(*entries[0][:2])
    weights = [w.tolist() for _, _, w in entries]
    for stream in range(3 if with_ni else 2):
        expected = by_hand([g[stream].tolist() for g, _, _ in entries], weights, mode)
        assert goodness[stream].tolist() == pytest.approx(expected, abs=1e-12)
        for a in range(ASPECTS):
            column = by_hand([one[stream][:, a].tolist() for _, one, _ in entries], weights, mode)
            assert aspects[stream][:, a].tolist() == pytest.approx(column, abs=1e-12)
        flat = by_hand([g[stream].tolist() for g, _, _ in entries], weights, "sum")
        assert ledger.earlier(entries[0][0])[stream].tolist() == pytest.approx(flat, abs=1e-12)
    if not with_ni:
        assert goodness.ni is None
        assert aspects.ni is None
    past = ledger.past(torch.zeros(BATCH), blocks=7, progress=0.25)
    flat = by_hand([g.pos.tolist() for g, _, _ in entries], weights, "sum")
    assert past.total.tolist() == pytest.approx(flat, abs=1e-12)
    assert past.previous.tolist() == entries[-1][0].pos.tolist()
    assert (past.depth, past.blocks, past.progress) == (count, 7, 0.25)


def test_under_a_constant_weight_the_recursion_fades_by_its_powers() -> None:
    ledger = Ledger("decay")
    zeros = PerStream(torch.zeros(1, 1), torch.zeros(1, 1), None)
    for value in (1.0, 10.0, 100.0):
        ledger.add(PerStream(torch.tensor([value]), torch.tensor([0.0]), None), zeros, torch.tensor([0.5]))
    carried, _ = ledger.history(PerStream(torch.zeros(1), torch.zeros(1), None), zeros)
    assert carried.pos.item() == pytest.approx(100 + 0.5 * 10 + 0.25 * 1)


@pytest.mark.parametrize("mode", ["sum", "decay"])
def test_the_first_block_has_no_past(mode: str) -> None:
    goodness, aspects, _ = blocks_of(0, 1, True)[0]
    ledger = Ledger(mode)
    for trio in (*ledger.history(goodness, aspects), ledger.earlier(goodness)):
        assert all(not one.any() and not one.requires_grad for one in trio)
    past = ledger.past(goodness.pos.detach(), 4, 0.0)
    assert past.depth == 0
    assert not past.total.any()
    assert not past.previous.any()


@pytest.mark.parametrize("mode", ["sum", "decay"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_in_the_ledger_carries_a_graph(mode: str, count: int) -> None:
    entries = blocks_of(0, count, True)
    ledger = Ledger(mode)
    for goodness, aspects, weight in entries:
        assert goodness.pos.grad_fn is not None
        ledger.add(goodness, aspects, weight.requires_grad_(True))
    goodness, aspects, _ = entries[0]
    past = ledger.past(goodness.pos, 4, 0.0)
    everything = [*ledger.earlier(goodness), past.total, past.previous]
    for trio in ledger.history(goodness, aspects):
        everything += list(trio)
    assert len(everything) == 11
    assert not any(one.requires_grad for one in everything)


@pytest.mark.parametrize("mode", ["sum", "decay"])
def test_later_entries_do_not_reach_a_copy(mode: str) -> None:
    first, second, third = blocks_of(0, 3, True)
    ledger = Ledger(mode)
    ledger.add(*first)
    ledger.add(*second)
    kept = ledger.copy()
    before = [one.clone() for trio in kept.history(*first[:2]) for one in trio]
    ledger.add(*third)
    after = [one for trio in kept.history(*first[:2]) for one in trio]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    assert (kept.depth, ledger.depth) == (2, 3)
    assert not torch.equal(ledger.history(*first[:2])[0].pos, before[0])
    # and the copy goes on by itself to the same place
    kept.add(*third)
    assert torch.equal(kept.history(*first[:2])[0].pos, ledger.history(*first[:2])[0].pos)
