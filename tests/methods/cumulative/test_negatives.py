"""Mining: fair draws, the hardest of them (one or several) by whichever way, each distinct draw scored once."""

from __future__ import annotations

import importlib
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.negatives import (
    Mining,
    Online,
    Random,
    Score,
    Teacher,
    draw,
    draw_distinct,
    first_places,
    hardest,
    hardest_plainly,
    one_of_the_hardest,
    room,
)


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


SETTINGS = {
    "seed": st.integers(0, 10_000),
    "batch": st.integers(1, 6),
    "classes": st.integers(2, 7),
    "k": st.integers(1, 14),
}
settings_of_mining = given(**SETTINGS)


@settings_of_mining
def test_the_hardest_is_the_same_by_every_way(seed: int, batch: int, classes: int, k: int) -> None:
    """Fixed shapes with k below, at and above the number of wrong labels, ragged shapes, and the plain loop."""
    table = Table(torch.randn(batch, classes, generator=torch.Generator().manual_seed(seed + 1)))
    plainly = hardest_plainly(mining(seed, batch, classes, k), table, k)
    for fixed in (False, True):
        one = mining(seed, batch, classes, k, fixed=fixed)
        assert torch.equal(hardest(one, table, k), plainly)
        assert torch.equal(hardest(one, table, k, most=k + 3), plainly)  # with room for draws that are not made
    # and by Algorithm hnm, one example at a time
    given_draws = mining(seed, batch, classes, k)
    for i, y in enumerate(given_draws.labels.tolist()):
        candidates = [(y + 1 + min(int(u * (classes - 1)), classes - 2)) % classes for u in given_draws.uniforms[i]]
        best = max(candidates, key=lambda label, i=i: table.goodness[i, label].item())
        assert plainly[i].item() == best != y


def ranked_by_loop(one: Mining, goodness: Tensor, k: int) -> list[list[int]]:
    """For every example the distinct labels among its first k draws, the hardest first."""
    ranked = []
    for i, y in enumerate(one.labels.tolist()):
        drawn = {(y + 1 + min(int(u * (one.classes - 1)), one.classes - 2)) % one.classes for u in one.uniforms[i, :k]}
        ranked.append(sorted(drawn, key=lambda label, i=i: goodness[i, label].item(), reverse=True))
    return ranked


def doubles(seed: int, batch: int, classes: int) -> Table:
    generator = torch.Generator().manual_seed(seed)
    return Table(torch.randn(batch, classes, generator=generator, dtype=torch.float64))


@given(**SETTINGS, count=st.integers(1, 8))
def test_several_negatives_are_the_hardest_distinct_draws_stream_after_stream_by_every_way(
    seed: int, batch: int, classes: int, k: int, count: int
) -> None:
    """Where the distinct draws run out, the hardest stands again."""
    table, columns = doubles(seed + 1, batch, classes), max(k, count)
    one = mining(seed, batch, classes, columns)
    ranked = ranked_by_loop(one, table.goodness, k)
    expected = [(labels + [labels[0]] * count)[j] for j in range(count) for labels in ranked]
    assert hardest_plainly(one, table, k, count).tolist() == expected
    for fixed in (False, True):
        one = mining(seed, batch, classes, columns, fixed=fixed, teacher=table)
        assert hardest(one, table, k, count).tolist() == expected
        assert Teacher(k_first=k, k_last=k, count=count).choose(one).tolist() == expected


@settings_of_mining
def test_the_first_stream_of_several_is_the_only_one_of_one(seed: int, batch: int, classes: int, k: int) -> None:
    table = doubles(seed, batch, classes)
    for fixed in (False, True):
        one = mining(seed, batch, classes, max(k, 3), fixed=fixed)
        assert torch.equal(hardest(one, table, k, 3)[:batch], hardest(one, table, k))


@given(**SETTINGS, among=st.integers(2, 8))
def test_one_among_the_hardest_is_where_the_last_uniform_falls_by_every_way(
    seed: int, batch: int, classes: int, k: int, among: int
) -> None:
    table = doubles(seed + 1, batch, classes)
    one = mining(seed, batch, classes, k + 1)
    expected = []
    for labels, u in zip(ranked_by_loop(one, table.goodness, k), one.uniforms[:, -1]):
        reachable = labels[:among]
        expected.append(reachable[min(int(u * len(reachable)), len(reachable) - 1)])
    for fixed in (False, True):
        one = mining(seed, batch, classes, k + 1, fixed=fixed, online=table)
        assert Online(k_first=k, k_last=k, among=among).choose(one).tolist() == expected


@pytest.mark.parametrize(("among", "shares"), [(2, [6, 6]), (3, [4, 4, 4]), (4, [3, 3, 3, 3]), (9, [3, 3, 3, 3])])
def test_the_label_is_drawn_evenly_from_the_hardest_or_as_many_as_there_are(among: int, shares: list[int]) -> None:
    """Twelve examples alike, all four wrong labels drawn, the last uniform spread evenly over [0, 1)."""
    draws = ((torch.arange(4) + 0.5) / 4).expand(12, 4)
    spread = ((torch.arange(12) + 0.5) / 12).unsqueeze(1)
    goodness = torch.tensor([9.0, 1.0, 4.0, 3.0, 2.0]).expand(12, 5)
    alike = Mining(
        torch.zeros(12, dtype=torch.int64), 5, torch.cat([draws, spread], 1), 0, 4, 0.0, refuse, refuse, False
    )
    counted = Counter(one_of_the_hardest(alike, Table(goodness), 4, among).tolist())
    assert [counted[label] for label in [2, 3, 4, 1]] == shares + [0] * (4 - len(shares))


def test_a_last_uniform_that_rounds_to_one_still_takes_one_of_the_hardest() -> None:
    one = Mining(torch.tensor([0]), 4, torch.tensor([[0.1, 0.5, 0.9, 1.0]]), 0, 4, 0.0, refuse, refuse, False)
    assert one_of_the_hardest(one, Table(torch.tensor([[0.0, 1.0, 2.0, 3.0]])), 3, 2).tolist() == [2]


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


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 7), st.integers(1, 9))
def test_random_takes_several_without_replacement_and_then_goes_round_again(
    seed: int, batch: int, classes: int, count: int
) -> None:
    one = mining(seed, batch, classes, count)
    streams = Random(count=count).choose(one).reshape(count, batch)
    for i, y in enumerate(one.labels.tolist()):
        left, expected = [(y + 1 + offset) % classes for offset in range(classes - 1)], []
        for u in one.uniforms[i, : classes - 1]:  # the first of those left takes the place of the one drawn
            place = min(int(u * len(left)), len(left) - 1)
            expected.append(left[place])
            left = [left[0] if j == place else label for j, label in enumerate(left)][1:]
        assert streams[:, i].tolist() == [expected[j % (classes - 1)] for j in range(count)]
        assert len(set(expected)) == len(expected)
        assert y not in expected
    assert torch.equal(streams[0], Random().choose(one))


def test_random_gives_every_ordered_pair_of_wrong_labels_the_same_chance() -> None:
    first, second = (torch.arange(40) + 0.5) / 40, (torch.arange(30) + 0.5) / 30
    pairs = torch.cartesian_prod(first, second)
    counted = Counter(zip(*(one.tolist() for one in draw_distinct(pairs, 5, 2))))
    assert counted == {(a, b): 100 for a in range(4) for b in range(4) if a != b}


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


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (Teacher(count=0), "count"),
        (Online(count=-1), "count"),
        (Random(count=0), "count"),
        (Teacher(among=0), "among"),
        (Online(among=2, count=2), "among 2.*count 2"),
    ],
)
def test_several_negatives_out_of_range_are_refused_by_name(part: Teacher | Online | Random, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"negatives\.{field}"):
        part.check()


@pytest.mark.parametrize("part", [Teacher(count=3), Online(among=3), Random(count=3)])
def test_several_negatives_in_range_are_taken(part: Teacher | Online | Random) -> None:
    part.check()


@pytest.mark.parametrize(("classes", "k"), [(10, 8), (10, 16), (3, 1), (2, 4), (200, 8)])
def test_room_for_distinct_draws_is_enough_and_saves_work(classes: int, k: int) -> None:
    batch, draws = 512, torch.Generator().manual_seed(0)
    least = room(k, classes - 1, batch)
    assert least <= batch * min(k, classes - 1)
    for _ in range(20):
        drawn = draw(torch.rand(batch, k, generator=draws), classes)
        assert sum(len(set(row)) for row in drawn.tolist()) <= least
    assert room(8, 9, 512) < 0.75 * 8 * 512


@pytest.mark.parametrize("k", [3, 8, 16])
def test_fixed_shapes_score_the_same_labels_in_fewer_places(k: int) -> None:
    draws = torch.Generator().manual_seed(k)
    labels, table = torch.randint(10, (512,), generator=draws), torch.randn(512, 10, generator=draws)
    scored = []

    def score(rows: Tensor, candidates: Tensor) -> Tensor:
        scored.append(len(rows))
        return table[rows, candidates]

    mining = Mining(
        labels=labels, classes=10, uniforms=torch.rand(512, 16, generator=draws), depth=0, blocks=1, progress=0.0,
        teacher=score, online=score, fixed_shapes=True,
    )  # fmt: skip
    found = hardest(mining, score, k)
    assert scored == [room(k, 9, 512)]
    assert torch.equal(found, hardest_plainly(mining, score, k))
    assert bool((found != labels).all())


def test_first_places_beyond_the_last_are_none() -> None:
    chosen = torch.tensor([False, True, True, False, True])
    assert first_places(chosen, 2).tolist() == [1, 2]
    assert first_places(chosen, 4).tolist() == [1, 2, 4, 5]


def test_candidates_beyond_the_room_stay_unscored_and_labels_stay_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    negatives = importlib.import_module("goodness.methods.cumulative.negatives")
    monkeypatch.setattr(negatives, "room", lambda k, wrongs, batch: batch)
    one = mining(0, 6, 5, 3, fixed=True)
    table = Table(torch.randn(6, 5))
    found = hardest(one, table, 3)
    assert len(table.asked) == 6
    assert bool(((found >= 0) & (found < 5) & (found != one.labels)).all())
