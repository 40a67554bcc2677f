"""Blocks that learn in turn: whose turn it is moves, everything else stays where it is, to the bit."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import goodness
from goodness.config import Config
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.loop import Interrupted
from goodness.training.optim import learning_rate, learning_window
from goodness.training.step import Stepper
from interruptions import Killed, kill_after, stop_after
from tiny_runs import BLOBS, blobs_at_hand, shrunk, what_a_run_leaves

BLOCKS, STEPS, CLASSES, BATCH = 3, 7, 4, 8
CHANGES = {"model.blocks": BLOCKS, "optim.lr": 1e-2, "optim.warmup": 0.4, "optim.ema": 0.6, "negatives.k_last": 8}
lengths = {"blocks": st.integers(1, 9), "steps": st.integers(1, 500)}


def windows(blocks: int, steps: int, freeze: str) -> list[tuple[int, int]]:
    return [learning_window(depth, blocks, steps, freeze) for depth in range(blocks)]


# Whose turn it is


@given(**lengths)
def test_greedy_windows_follow_each_other_cover_every_step_and_are_equally_long(blocks: int, steps: int) -> None:
    turns = [depth for depth, (begin, end) in enumerate(windows(blocks, steps, "greedy")) for _ in range(begin, end)]
    starts = [begin for begin, _ in windows(blocks, steps, "greedy")]
    assert len(turns) == steps, "every step is one block's"
    assert turns == sorted(turns)
    assert starts == sorted(starts)
    shares = [turns.count(depth) for depth in range(blocks)]
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1 or steps < blocks


@given(**lengths)
def test_prefix_windows_all_begin_at_once_and_end_one_after_the_other(blocks: int, steps: int) -> None:
    begins, ends = zip(*windows(blocks, steps, "prefix"))
    assert set(begins) == {0}
    assert list(ends) == sorted(ends)
    assert ends[-1] == steps
    assert ends == tuple(end for _, end in windows(blocks, steps, "greedy")), "frozen when greedy would go on"


@given(**lengths)
def test_without_freezing_every_block_learns_at_every_step(blocks: int, steps: int) -> None:
    assert set(windows(blocks, steps, "none")) == {(0, steps)}


# Steps


@dataclass
class Step:
    """What one step left: by block what it has learned and the largest gap to its teacher, its rate and measures."""

    learned: list[dict[str, Tensor]]
    gaps: list[float]
    rates: list[float]
    measures: list[dict[str, float]]


def network_for(config: Config) -> Network:
    torch.manual_seed(7)
    return Network(config.model, (1, 8, 8), CLASSES, mean=(0.4,), std=(0.3,), terms=config.objective).double()


def learned(stepper: Stepper, depth: int) -> dict[str, Tensor]:
    """A block's weights (the stem's with the first's), its terms' memories and its optimiser's."""
    state = stepper.network.block(depth).state_dict()
    found = {f"blocks.{depth}.{name}": value.clone() for name, value in state.items()}
    found |= {name: value.detach().clone() for name, value in stepper.network.owned(depth).items()}
    for number, memory in stepper.optimisers[depth].state_dict()["state"].items():
        found |= {f"optimiser.{number}.{name}": value.clone() for name, value in memory.items()}
    return found


def gap(stepper: Stepper, depth: int) -> float:
    online = stepper.network.owned(depth)
    teacher = stepper.teacher.network.owned(depth)
    return max(float((online[name].detach() - value).abs().max()) for name, value in teacher.items())


@functools.cache
def recorded(freeze: str, mode: str, sam: float = 0.0) -> list[Step]:
    """`STEPS` steps in two epochs, from what was there before the first."""
    config = shrunk("cp-fair-dense", {**CHANGES, "optim.freeze": freeze, "step.mode": mode, "optim.sam": sam})
    stepper = Stepper(network_for(config), config)
    everyone = range(BLOCKS)
    steps = [Step([learned(stepper, depth) for depth in everyone], [0.0] * BLOCKS, [0.0] * BLOCKS, [])]
    for step in range(STEPS):
        epoch, within = divmod(step, 4)
        draws = torch.Generator().manual_seed(step)
        views = torch.rand(3, BATCH, 1, 8, 8, generator=draws, dtype=torch.float64)
        labels = torch.randperm(BATCH, generator=draws) % CLASSES
        at = Moment(epoch=epoch, step=within, total_step=step, total_steps=STEPS, progress=epoch / 2)
        measures = [dict(zip(names, values.tolist())) for names, values in stepper(views, labels, at)]
        rates = []
        for optimiser in stepper.optimisers:
            (rate,) = {group["lr"] for group in optimiser.param_groups}
            rates.append(rate)
        after = [learned(stepper, depth) for depth in everyone]
        steps.append(Step(after, [gap(stepper, depth) for depth in everyone], rates, measures))
    return steps


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    return {name for name in one.keys() | other.keys() if name not in one or not torch.equal(one[name], other[name])}


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize("freeze", ["greedy", "prefix"])
def test_only_blocks_in_their_window_move_and_the_others_keep_every_bit(freeze: str, mode: str) -> None:
    assert windows(BLOCKS, STEPS, "greedy") == [(0, 2), (2, 5), (5, 7)]
    steps = recorded(freeze, mode)
    for step, (before, after) in enumerate(itertools.pairwise(steps)):
        for depth, (begin, end) in enumerate(windows(BLOCKS, STEPS, freeze)):
            moved = differing(before.learned[depth], after.learned[depth])
            if begin <= step < end:
                assert any(name.startswith("optimiser.") for name in moved)
                assert f"blocks.{depth}.extras.supcon.queue" in moved
                assert after.measures[depth]["grad_norm"] > 0
            else:
                assert moved == set(), (step, depth)
                assert after.measures[depth]["grad_norm"] == 0
            assert after.measures[depth]["loss"] > 0, "what does not learn is measured all the same"
    for depth in range(BLOCKS):
        moved = differing(steps[0].learned[depth], steps[-1].learned[depth])
        assert steps[0].learned[depth].keys() <= moved | {f"blocks.{depth}.extras.supcon.pointer"}, "all in the end"
        assert ("stem.conv1.weight" in moved) == (depth == 0)


@pytest.mark.parametrize("freeze", ["greedy", "prefix"])
def test_every_window_has_a_schedule_of_its_own(freeze: str) -> None:
    for step, after in enumerate(recorded(freeze, "fused")[1:]):
        for depth, (begin, end) in enumerate(windows(BLOCKS, STEPS, freeze)):
            learns = begin <= step < end
            assert after.rates[depth] == (learning_rate(step - begin, end - begin, 1e-2, 0.4) if learns else 0.0)


@pytest.mark.parametrize(("freeze", "sam"), [("greedy", 0.0), ("prefix", 0.0), ("greedy", 0.05)])
def test_fused_equals_sequential(freeze: str, sam: float) -> None:
    fused, sequential = recorded(freeze, "fused", sam), recorded(freeze, "sequential", sam)
    torch.testing.assert_close(fused[-1].learned, sequential[-1].learned, rtol=1e-9, atol=1e-9)
    for one, other in zip(fused, sequential):
        assert one.gaps == pytest.approx(other.gaps, rel=1e-6, abs=1e-12)
        assert [block["loss"] for block in one.measures] == pytest.approx([block["loss"] for block in other.measures])


def test_the_teacher_of_a_frozen_block_approaches_it_and_that_of_a_waiting_one_is_it() -> None:
    gaps = list(zip(*(step.gaps for step in recorded("greedy", "fused")[1:])))
    for depth, (begin, end) in enumerate(windows(BLOCKS, STEPS, "greedy")):
        assert gaps[depth][:begin] == (0.0,) * begin
        assert min(gaps[depth][begin:end]) > 0
        for step in range(end, STEPS):
            decay = min(0.6, 1 - 1 / (step + 2))
            assert gaps[depth][step] == pytest.approx(decay * gaps[depth][step - 1], rel=1e-6)


# A whole run


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_a_run_interrupted_around_a_windows_border_ends_in_the_same_bits(tmp_path: Path) -> None:
    assert windows(2, 6, "greedy") == [(0, 3), (3, 6)]
    changes = {**BLOBS, "epochs": 2, "deterministic": True, "optim.freeze": "greedy", "keep.checkpoint_steps": 2}
    config = shrunk("demo", {**changes, "keep.checkpoint_seconds": 1e6})
    whole = goodness.train(config, out=tmp_path / "whole", device="cpu")
    for at, is_asked in ((3, True), (4, False)):  # stopped on the border, killed behind it with a checkpoint before it
        folder = tmp_path / str(at)
        with pytest.raises(Interrupted if is_asked else Killed):
            goodness.train(config, out=folder, device="cpu", listen=(stop_after if is_asked else kill_after)(at))
        goodness.resume(folder, device="cpu")
        assert what_a_run_leaves(folder) == what_a_run_leaves(whole.path), at
    frozen = [line["train"]["blocks"][0]["grad_norm"] for line in whole.metrics]
    assert frozen[0] > 0
    assert frozen[1] == 0
