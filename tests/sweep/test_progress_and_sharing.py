"""The time left against a schedule worked out by hand; sharing a GPU only where the cells' own clock says it pays."""

from __future__ import annotations

import json

import pytest

from goodness.sweep.cell import Cell
from goodness.sweep.progress import Place, Snapshot
from goodness.sweep.sharing import EPOCHS, Fixed, Measured, Seen
from goodness.sweep.state import Standing


def place(state: str, epoch: int = 0, seconds: float = 0.0, epochs: int = 10, preset: str = "demo") -> Place:
    cell = Cell(preset=preset, seed=1, overrides={"epochs": epochs})
    return Place(cell, Standing(state=state, epoch=epoch, epochs=epochs, seconds=seconds))  # type: ignore[arg-type]


# Time left


def test_nothing_is_said_of_the_time_before_an_epoch_is_done() -> None:
    assert Snapshot(places=[place("running"), place("waiting")], jobs=1).left is None
    assert Snapshot(places=[place("done", 10, 50.0)], jobs=1).left == 0


def test_a_running_cell_goes_on_at_its_own_pace() -> None:
    snapshot = Snapshot(places=[place("running", 4, 20.0)], jobs=1)
    assert snapshot.left_of(snapshot.places[0]) == pytest.approx(30)
    assert snapshot.left == pytest.approx(30)


@pytest.mark.parametrize(("jobs", "left"), [(1, 30 + 25 + 50 + 50), (2, 30 + 50), (3, 50 + 25), (4, 50)])
def test_the_rest_is_scheduled_so_many_at_a_time(jobs: int, left: float) -> None:
    places = [
        place("done", 10, 50.0),
        place("running", 4, 20.0),
        place("stopped", 5, 25.0),
        place("waiting"),
        place("waiting"),
        place("failed", 1, 5.0),
    ]
    assert Snapshot(places=places, jobs=jobs).left == pytest.approx(left)


def test_a_waiting_cell_takes_as_long_as_its_group_and_else_as_any() -> None:
    slow = place("done", 10, 100.0, preset="gamma0-dense")
    quick = place("done", 10, 10.0)
    waiting = place("waiting")
    assert Snapshot(places=[slow, quick, waiting], jobs=1).left_of(waiting) == pytest.approx(10)
    assert Snapshot(places=[slow, waiting], jobs=1).left_of(waiting) == pytest.approx(100)


# Sharing a GPU


def clock(slots: Measured, paces: dict[str, float], epochs: int = 1 + EPOCHS, group: str = "g") -> None:
    """Let these cells run for some epochs at these seconds an epoch, seen at every one of them."""
    for epoch in range(epochs + 1):
        slots.observe({name: Seen(group, 10 + epoch, epoch * pace) for name, pace in paces.items()})


def test_a_given_number_stays() -> None:
    slots = Fixed(3)
    slots.observe({"a": Seen("g", 5, 1.0)})
    slots.too_many(3)
    assert slots.limit == 3


def test_one_runs_alone_until_its_pace_is_known() -> None:
    slots = Measured()
    assert slots.limit == 1
    clock(slots, {"a": 10.0}, epochs=EPOCHS)
    assert slots.limit == 1
    clock(slots, {"a": 10.0})
    assert slots.limit == 2


@pytest.mark.parametrize(("pace", "speed", "limit"), [(12.0, 20 / 12, 3), (18.5, 20 / 18.5, 1), (20.0, 1.0, 1)])
def test_two_at_once_stay_where_they_get_more_done_together(pace: float, speed: float, limit: int) -> None:
    slots = Measured()
    clock(slots, {"a": 10.0})
    clock(slots, {"a": pace, "b": pace})
    assert slots.speeds[2] == pytest.approx(speed, abs=1e-3)
    assert slots.limit == limit
    assert f"2 at once {speed:.2f}" in slots.note


def test_it_stops_at_the_number_after_which_nothing_is_gained() -> None:
    slots = Measured()
    clock(slots, {"a": 10.0})
    clock(slots, dict.fromkeys("ab", 11.0))
    clock(slots, dict.fromkeys("abc", 12.0))
    assert slots.limit == 4
    clock(slots, dict.fromkeys("abcd", 16.0))
    assert slots.limit == 3
    remembered = Measured.remembered(json.loads(json.dumps(slots.as_dict())))
    assert (remembered.limit, remembered.speeds, remembered.alone) == (3, slots.speeds, slots.alone)


def test_the_first_epoch_of_a_newcomer_is_not_counted() -> None:
    slots = Measured()
    clock(slots, {"a": 10.0})
    slots.observe({"a": Seen("g", 20, 0.0), "b": Seen("g", 0, 0.0)})
    slots.observe({"a": Seen("g", 29, 500.0), "b": Seen("g", 1, 500.0)})  # b has compiled, a was held up
    slots.observe({"a": Seen("g", 29 + EPOCHS, 500.0 + EPOCHS * 12), "b": Seen("g", 1 + EPOCHS, 500.0 + EPOCHS * 12)})
    assert slots.speeds[2] == pytest.approx(20 / 12, abs=1e-3)


def live(slots: Measured, name: str, before: float, pace: float, epochs: int, seen: int) -> None:
    """A cell from its beginning on: it compiles for so long, then trains."""
    for epoch in range(seen + 1):
        slots.observe({name: Seen("g", epoch, before + epoch * pace if epoch else 0.0, epochs)})


@pytest.mark.parametrize(("before", "limit"), [(0.0, 1), (9.0, 1), (60.0, 2), (200.0, 4)])
def test_cells_share_a_card_that_would_wait_for_their_compilers(before: float, limit: int) -> None:
    """Ten epochs of ten seconds: at no joint speed-up two at once pay where a fifth of a life or more is start-up."""
    slots = Measured()
    live(slots, "a", before, 10.0, epochs=10, seen=1 + EPOCHS)
    for count in (2, 3, 4, 5):
        slots.speeds[count] = 1.0
    share = before / (before + 100)
    assert slots.share == pytest.approx(share)
    assert slots.gain(2) == pytest.approx(1 / (share / 2 + 1 - share))
    assert slots.limit == limit
    remembered = Measured.remembered(json.loads(json.dumps(slots.as_dict())))
    assert remembered.limit == limit
    assert f"start-up included {slots.gain(2):.2f}" in slots.note


def test_the_share_is_that_of_a_cell_alone_and_an_earlier_day_keeps_its_weight() -> None:
    slots = Measured(alone={"g": 10.0})
    live(slots, "a", 100.0, 20.0, epochs=10, seen=1 + EPOCHS)  # beside another: half the pace
    assert slots.share == pytest.approx(0.5)
    remembered = Measured.remembered(json.loads(json.dumps(slots.as_dict())))
    live(remembered, "b", 0.0, 10.0, epochs=20, seen=1 + EPOCHS)
    assert remembered.share == pytest.approx(100 / 400)


def test_cells_of_known_pace_come_next_until_the_joint_speed_is_known() -> None:
    slots = Measured()
    assert list(slots.wanted) == []
    clock(slots, {"a": 10.0})
    assert list(slots.wanted) == ["g"]
    clock(slots, {"a": 20.0, "b": 20.0})
    assert slots.limit == 1
    assert list(slots.wanted) == []
    assert list(Fixed(3).wanted) == []


def test_a_cell_that_went_on_from_a_checkpoint_says_nothing_of_its_beginning() -> None:
    slots = Measured()
    for epoch in range(5, 10):
        slots.observe({"a": Seen("g", epoch, 1000.0 + epoch, 20)})
    assert slots.share == 0


def test_cells_whose_pace_alone_is_unknown_say_nothing() -> None:
    slots = Measured()
    clock(slots, {"a": 10.0})
    clock(slots, {"c": 9.0, "d": 9.0}, group="another")
    assert slots.limit == 2
    assert 2 not in slots.speeds


def test_what_does_not_fit_in_memory_is_not_tried_again() -> None:
    slots = Measured()
    clock(slots, {"a": 10.0})
    clock(slots, dict.fromkeys("ab", 11.0))
    slots.too_many(3)
    assert slots.limit == 2
    slots.too_many(1)
    assert slots.limit == 1
