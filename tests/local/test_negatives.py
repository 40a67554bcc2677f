"""Mining: fair draws, the hardest of them by whichever way, and each distinct draw scored once."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.errors import ConfigError
from goodness.local.negatives import Mining, Online, Random, Score, Teacher, draw, hardest, hardest_plainly


class Table:
    """A scorer that looks goodness `[batch, classes]` up and remembers what it was asked."""

    def __init__(self, goodness: Tensor) -> None:
        self.goodness = goodness
        self.asked: list[tuple[int, int]] = []

    def __call__(self, rows: Tensor, labels: Tensor) -> Tensor:
        assert rows.shape == labels.shape
        self.asked += list(zip(rows.tolist(), labels.tolist()))
        return self.goodness[rows, labels]


def refuse(rows: Tensor, labels: Tensor) -> Tensor:
    raise AssertionError("nothing should be scored")


def mining(
    seed: int,
    batch: int,
    classes: int,
    k: int,
    *,
    fixed: bool = False,
    teacher: Score = refuse,
    online: Score = refuse,
    depth: int = 0,
    progress: float = 0.0,
) -> Mining:
    generator = torch.Generator().manual_seed(seed)
    return Mining(
        labels=torch.randint(classes, (batch,), generator=generator),
        classes=classes,
        uniforms=torch.rand(batch, k, generator=generator),
        depth=depth,
        blocks=4,
        progress=progress,
        teacher=teacher,
        online=online,
        fixed_shapes=fixed,
    )


@pytest.mark.parametrize("classes", [2, 3, 10, 200])
def test_draws_are_uniform_over_the_wrong_labels_and_never_the_true_one(classes: int) -> None:
    grid = (torch.arange(1000 * (classes - 1)) + 0.5) / (1000 * (classes - 1))  # every thousandth of each share
    assert sorted(Counter(draw(grid, classes).tolist()).items()) == [(o, 1000) for o in range(classes - 1)]
    one = Mining(torch.tensor([0, classes - 1]), classes, torch.zeros(2, 1), 0, 4, 0.0, refuse, refuse, False)
    wrong = one.wrong(torch.arange(classes - 1).expand(2, -1))
    assert set(wrong[0].tolist()) == set(range(classes)) - {0}
    assert set(wrong[1].tolist()) == set(range(classes)) - {classes - 1}


def test_a_uniform_that_rounds_to_one_still_draws_a_wrong_label() -> None:
    assert draw(torch.tensor([0.0, 1 - 2**-24, 1.0]), 5).tolist() == [0, 3, 3]


settings_of_mining = given(
    seed=st.integers(0, 10_000), batch=st.integers(1, 6), classes=st.integers(2, 7), k=st.integers(1, 14)
)


@settings_of_mining
def test_the_hardest_is_the_same_by_every_way(seed: int, batch: int, classes: int, k: int) -> None:
    """Fixed shapes with k below, at and above the number of wrong labels, ragged shapes, and the plain loop."""
    table = Table(torch.randn(batch, classes, generator=torch.Generator().manual_seed(seed + 1)))
    plainly = hardest_plainly(mining(seed, batch, classes, k), table, k)
    for fixed in (False, True):
        assert torch.equal(hardest(mining(seed, batch, classes, k, fixed=fixed), table, k), plainly)
    # and by Algorithm hnm, one example at a time
    given_draws = mining(seed, batch, classes, k)
    for i, y in enumerate(given_draws.labels.tolist()):
        candidates = [(y + 1 + min(int(u * (classes - 1)), classes - 2)) % classes for u in given_draws.uniforms[i]]
        best = max(candidates, key=lambda label, i=i: table.goodness[i, label].item())
        assert plainly[i].item() == best != y


@settings_of_mining
def test_the_ragged_way_scores_each_distinct_draw_once(seed: int, batch: int, classes: int, k: int) -> None:
    one = mining(seed, batch, classes, k)
    table = Table(torch.randn(batch, classes, generator=torch.Generator().manual_seed(seed)))
    hardest(one, table, k)
    drawn = one.wrong(draw(one.uniforms, classes))
    distinct = {(i, label) for i in range(batch) for label in drawn[i].tolist()}
    assert len(table.asked) == len(distinct)
    assert set(table.asked) == distinct


@settings_of_mining
def test_fixed_shapes_score_the_draws_or_all_wrong_labels_whichever_is_fewer(
    seed: int, batch: int, classes: int, k: int
) -> None:
    table = Table(torch.randn(batch, classes))
    hardest(mining(seed, batch, classes, k, fixed=True), table, k)
    assert len(table.asked) == batch * min(k, classes - 1)


def test_scores_of_minus_a_million_still_beat_the_labels_that_were_not_drawn() -> None:
    table = Table(torch.full((3, 6), -1e6))
    one = mining(0, 3, 6, 2)
    chosen = hardest(one, table, 2)
    drawn = one.wrong(draw(one.uniforms, 6))
    assert all(chosen[i].item() in drawn[i].tolist() for i in range(3))


def test_teacher_and_online_each_ask_their_own_scorer() -> None:
    table = Table(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))
    by_teacher = Teacher(k_first=3, k_last=3).choose(mining(0, 4, 5, 3, teacher=table))
    by_online = Online(k_first=3, k_last=3).choose(mining(0, 4, 5, 3, online=table))
    assert torch.equal(by_teacher, by_online)
    assert torch.equal(by_teacher, hardest_plainly(mining(0, 4, 5, 3), table, 3))


def test_random_scores_nothing_and_takes_the_first_draw() -> None:
    one = mining(0, 50, 5, 1)
    chosen = Random().choose(one)
    expected = [(y + 1 + int(u * 4)) % 5 for y, u in zip(one.labels.tolist(), one.uniforms[:, 0].tolist())]
    assert chosen.tolist() == expected
    assert bool((chosen != one.labels).all())


@pytest.mark.parametrize(("ramp", "expected"), [("depth", [8, 11, 13, 16]), ("epochs", [12, 12, 12, 12])])
def test_the_number_of_candidates_ramps_over_depth_or_epochs(ramp: str, expected: list[int]) -> None:
    part = Teacher(k_first=8, k_last=16, ramp=ramp)
    assert [part.candidates(mining(0, 2, 5, 1, depth=d, progress=0.5)) for d in range(4)] == expected


def test_only_the_ramped_number_of_draws_is_looked_at() -> None:
    table = Table(torch.randn(6, 40, generator=torch.Generator().manual_seed(0)))
    one = mining(1, 6, 40, 16, teacher=table, depth=0)
    chosen = Teacher(k_first=2, k_last=16).choose(one)
    first_two = one.wrong(draw(one.uniforms[:, :2], 40))
    assert bool((chosen[:, None] == first_two).any(dim=1).all())


@pytest.mark.parametrize("field", ["k_first", "k_last"])
def test_fewer_than_one_candidate_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"negatives\.{field}"):
        Teacher(**{field: 0}).check()
