"""Struck by any signal at any moment and resumed, a deterministic run ends in the bits of one never interrupted."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import short_lives

import goodness
import tiny_runs
from tiny_runs import BLOBS, what_a_run_leaves

# A rate so high that validation falls after the first epoch: best and last weights differ.
ROUGH = {"seed": 2, "optim.lr": 0.05, "optim.ema": 0.5}
CHANGES = {**BLOBS, **ROUGH, "deterministic": True, "keep.checkpoint_steps": 2, "keep.checkpoint_seconds": 0}
Lives = list[dict[str, Any]]


Plans = dict[str, tuple[dict[str, Any], Lives]]


class Fate:
    """The other process, in which runs live and are struck; `whole` is what an uninterrupted one leaves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.whole: dict[str, Any] = {}
        self.seconds = 0.0  # what it takes
        self.calls: dict[str, int] = {}  # how often an uninterrupted run passes each place

    def decide(self, plans: Plans, folder: Path) -> dict[str, Lives]:
        """How the lives of each plan ended, by its name; the plan's run lies in the folder of that name."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        ends = {}
        for name, (changes, lives) in plans.items():
            plan = {"out": str(folder / name), "changes": changes, "lives": lives}
            print(json.dumps(plan), file=self.process.stdin, flush=True)
            ends[name] = json.loads(self.process.stdout.readline())
        assert [end for lives in ends.values() for end in lives if end["end"] == "failed"] == []
        return ends


@pytest.fixture(scope="module")
def fate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fate]:
    folder = tmp_path_factory.mktemp("whole")
    paths = [Path(goodness.__file__).parents[1], Path(tiny_runs.__file__).parent]
    with subprocess.Popen(
        [sys.executable, short_lives.__file__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        fate = Fate(process)
        fate.decide({"warm-up": (CHANGES, [{"at": "step", "call": 1}])}, folder)
        begin = time.monotonic()
        ((end,),) = fate.decide({"run": (CHANGES, [{}])}, folder).values()
        fate.seconds = time.monotonic() - begin
        fate.whole, fate.calls = what_a_run_leaves(folder / "run"), end["calls"]
        assert fate.whole["result"]["weights"]["best"]["epoch"] < 2, "best and last must differ, or less is shown"
        yield fate
    assert process.returncode == 0


def assert_same_ends(ends: dict[str, Lives], whole: dict[str, Any], folder: Path) -> None:
    for name, lives in ends.items():
        assert lives[-1]["end"] == "finished", name
        assert what_a_run_leaves(folder / name) == whole, name


def struck_twice(places: list[str], calls: dict[str, int], seed: int) -> Plans:
    """For every place a run that is killed there before a call, in its next life after one, and then left alone."""
    draws = random.Random(seed)
    plans = {}
    for place in places:
        blows = [{"at": place, "call": draws.randint(1, calls[place]), "after": False}]
        blows += [{"at": place, "call": draws.randint(1, max(1, calls[place] // 3)), "after": True}]
        plans[place] = (CHANGES, [*blows, {}])
    return plans


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activity", "places"),
    [
        ("training", ["step", "update", "metrics"]),
        ("evaluation", ["chunk", "predictions"]),
        ("saving", ["fsync", "rename", "removal", "weights"]),
    ],
)
def test_a_run_killed_in_any_activity_ends_with_the_same_bits(
    activity: str, places: list[str], fate: Fate, tmp_path: Path
) -> None:
    ends = fate.decide(struck_twice(places, fate.calls, seed=len(activity)), tmp_path)
    assert all(lives[0]["end"] == "killed" for lives in ends.values()), "each place was reached"
    assert_same_ends(ends, fate.whole, tmp_path)


@pytest.mark.slow
def test_a_run_killed_at_moments_that_nobody_chose_ends_with_the_same_bits(fate: Fate, tmp_path: Path) -> None:
    draws = random.Random()
    for share in (0.6, 0.2, 0.07):  # of the time that a whole run took, which may have been measured on a busy machine
        seconds = [[draws.uniform(0.05 * share, share) * fate.seconds for _ in range(4)] for _ in range(2)]
        plans = {
            f"run {number}": (CHANGES, [*({"seconds": one} for one in lives), {}])
            for number, lives in enumerate(seconds)
        }
        folder = tmp_path / f"{share}"
        folder.mkdir()
        ends = fate.decide(plans, folder)
        assert_same_ends(ends, fate.whole, folder)
        if sum(end["end"] == "killed" for lives in ends.values() for end in lives) >= 2:
            return
    pytest.fail("no blow came in time")


def test_a_run_killed_before_its_first_checkpoint_starts_over_and_ends_with_the_same_bits(
    fate: Fate, tmp_path: Path
) -> None:
    rarely = {**CHANGES, "keep.checkpoint_steps": 0, "keep.checkpoint_seconds": 1e6}
    plans = {
        "in the second epoch": (rarely, [{"at": "step", "call": 5}, {}]),
        "between its configuration and the next file": (rarely, [{"at": "rename", "call": 1, "after": True}, {}]),
        "before its configuration": (rarely, [{"at": "fsync", "call": 1}, {"at": "rename", "call": 1}, {}]),
    }
    ends = fate.decide(plans, tmp_path)
    assert [end["end"] for lives in ends.values() for end in lives].count("killed") == 4
    assert_same_ends(ends, fate.whole, tmp_path)
    # the checkpoint at the end of the last epoch is the only one: nine steps were made after the kill
    assert ends["in the second epoch"][1]["calls"]["step"] == 9


def test_a_checkpoint_saves_the_steps_before_it(fate: Fate, tmp_path: Path) -> None:
    plans = {
        "every second step": ({**CHANGES, "keep.checkpoint_seconds": 1e6}, [{"at": "step", "call": 8}, {}]),
        "every epoch": ({**CHANGES, "keep.checkpoint_steps": 0}, [{"at": "step", "call": 8}, {}]),
    }
    ends = fate.decide(plans, tmp_path)
    assert_same_ends(ends, fate.whole, tmp_path)
    # seven steps were done: the last checkpoint is after the sixth in both cases, the end of an epoch
    assert {name: lives[1]["calls"]["step"] for name, lives in ends.items()} == {
        "every second step": 3,
        "every epoch": 3,
    }


STOPS = {
    "SIGTERM in training": ("SIGTERM", "step", 5, {"epoch": 1, "step": 2}),
    "Ctrl-C in training": ("SIGINT", "update", 1, {"epoch": 0, "step": 1}),
    "SIGTERM in an epoch's evaluation": ("SIGTERM", "chunk", 3, {"epoch": 1, "step": 3}),
    "Ctrl-C in an epoch's evaluation": ("SIGINT", "evaluation", 1, {"epoch": 0, "step": 3}),
    "Ctrl-C in the last evaluation, of the best weights": ("SIGINT", "evaluation", 8, {"epoch": 3, "step": 0}),
    "SIGTERM while saving": ("SIGTERM", "saving", 1, {"epoch": 0, "step": 2}),
}


@pytest.mark.slow
def test_a_request_to_stop_saves_says_how_to_go_on_and_costs_no_bit(fate: Fate, tmp_path: Path) -> None:
    plans = {
        name: (CHANGES, [{"at": place, "call": call, "signal": kind}, {}])
        for name, (kind, place, call, _) in STOPS.items()
    }
    ends = fate.decide(plans, tmp_path)
    for name, (kind, _, _, position) in STOPS.items():
        stopped = ends[name][0]
        assert stopped["end"] == "stopped", name
        assert stopped["code"] == {"SIGTERM": 143, "SIGINT": 130}[kind]
        assert f"go on with: goodness resume {shlex.quote(str(tmp_path / name))}" in stopped["message"]
        place = f"epoch {position['epoch'] + 1} of 3, step {position['step']} of 3"
        assert f"stopped at {place if position['epoch'] < 3 else 'the last evaluation'}" in stopped["message"]
        assert {key: stopped["position"][key] for key in position} == position, f"{name}: saved where it stopped"
    assert_same_ends(ends, fate.whole, tmp_path)


def test_the_seed_decides_the_bits(fate: Fate, tmp_path: Path) -> None:
    ends = fate.decide({"again": (CHANGES, [{}]), "another": ({**CHANGES, "seed": 5}, [{}])}, tmp_path)
    assert_same_ends({"again": ends["again"]}, fate.whole, tmp_path)
    another = what_a_run_leaves(tmp_path / "another")
    assert another["result"]["weights_sha256"] != fate.whole["result"]["weights_sha256"]
    assert another["predictions"] != fate.whole["predictions"]
