"""A recorded step, replayed, is the step: what moves reaches it, nothing else is frozen, and a bad one stops."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import goodness
from goodness.draws import Draws
from goodness.methods.cumulative.facts import Facts
from goodness.nn.network import Network
from goodness.parts import Term, terms
from goodness.runs.checkpoint import Checkpoints
from goodness.step_context import Moment
from goodness.training import replay
from goodness.training.finite import Guard, NonFiniteLoss
from goodness.training.step import Stepper
from tiny_runs import BLOBS, blobs_at_hand, shrunk, what_a_run_leaves

SHORT = {**BLOBS, "epochs": 3, "step.replay": "on", "keep.checkpoint_steps": 5}


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def trained(preset: str, changes: dict[str, Any], out: Path) -> tuple[dict[str, Any], list[str]]:
    """What the run leaves without its settings, and its notes."""
    notes: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "note":
            notes.append(event["text"])

    goodness.train(shrunk(preset, changes), out=out, device="cpu", listen=listen)
    return what_a_run_leaves(out), [note for note in notes if "recorded" in note]


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("gamma0-dense", {}),
    "gated": ("gated-dense", {}),
    "ramp": ("gamma0-dense", {"rule": "ramp", "rule.last": 0.7}),
    "mining over epochs": ("gamma0-dense", {"negatives.ramp": "epochs", "negatives.k_first": 1, "negatives.k_last": 3}),
    "random negatives": ("gamma0-dense", {"negatives": "random"}),
    "sam": ("gamma0-dense", {"optim.sam": 0.05}),
    "sequential": ("gamma0-dense", {"step.mode": "sequential"}),
    "greedy": ("gamma0-dense", {"optim.freeze": "greedy", "epochs": 4}),
    "late supcon": ("gamma0-dense", {"objective.supcon.late": 0.1, "objective.supcon.temperature_last": 0.1}),
    "backprop": ("gamma0-dense", {"trainer": "backprop"}),
    "sprint": ("sprint", {}),
    "prefix, dead aspects masked": ("gamma0-dense", {"negatives": "prefix", "model.goodness.mask_dead": True}),
    "backprop by Muon": ("gamma0-dense", {"trainer": "backprop", "optim.kind": "muon"}),
}


@pytest.mark.parametrize("case", CASES)
def test_replayed_steps_end_in_the_bits_of_steps_as_they_are(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset, changes = CASES[case]
    recorded: list[replay.Recording] = []
    make = replay.Repetition.__init__
    monkeypatch.setattr(
        replay.Repetition, "__init__", lambda self, *given: (recorded.append(self), make(self, *given))[1]
    )
    monkeypatch.setattr(replay, "WARM_STEPS", 2)
    replayed, notes = trained(preset, {**SHORT, **changes}, tmp_path / "replayed")
    assert recorded
    assert notes == []
    monkeypatch.setattr(replay, "WARM_STEPS", 10**9)
    count = len(recorded)
    as_it_is, _ = trained(preset, {**SHORT, **changes}, tmp_path / "as it is")
    assert len(recorded) == count
    assert replayed == as_it_is


def test_learning_to_read_from_tensors_changes_nothing_but_the_last_digits(tmp_path: Path) -> None:
    on, _ = trained("gamma0-dense", SHORT, tmp_path / "on")
    off, _ = trained("gamma0-dense", {**SHORT, "step.replay": "off"}, tmp_path / "off")
    for mine, theirs in zip(on["metrics"], off["metrics"], strict=True):
        for block, other in zip(mine["train"]["blocks"], theirs["train"]["blocks"], strict=True):
            assert block["loss"] == pytest.approx(other["loss"], rel=1e-4)


@pytest.mark.parametrize(
    "changes", [{}, {"negatives": "prefix", "model.token_norm": "unit", "model.goodness.mask_dead": True}], ids=str
)
def test_a_replayed_run_that_is_stopped_and_resumed_ends_in_the_same_bits(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "WARM_STEPS", 1)
    changes = {**SHORT, **changes}
    whole, _ = trained("gamma0-dense", changes, tmp_path / "whole")

    class Kill(Exception):
        pass

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "step" and (event["epoch"], event["step"]) == (1, 3):
            raise Kill

    with pytest.raises(Kill):
        goodness.train(shrunk("gamma0-dense", changes), out=tmp_path / "run", device="cpu", listen=kill)
    goodness.resume(tmp_path / "run", device="cpu")
    assert what_a_run_leaves(tmp_path / "run") == whole


@dataclass(frozen=True, kw_only=True)
class Poison(Term):
    """Not a number from a certain progress on: what a recorded step can see as well."""

    def loss(self, facts: Facts, module: None) -> Tensor:
        return torch.where((facts.progress > 0.3) & (facts.depth == 1), torch.nan, 0.0) * facts.goodness.pos.mean()


@pytest.fixture
def poison():
    terms.register("poison")(Poison)
    yield Poison()
    del terms._parts["poison"]


@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_a_step_that_is_not_finite_stops_the_run_before_anything_is_saved(
    mode: str, poison: Poison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "WARM_STEPS", 1)
    changes = {**SHORT, "objective.poison": poison, "step.mode": mode, "keep.checkpoint_steps": 3}
    with pytest.raises(NonFiniteLoss, match=r"^block 1: term 'poison' is nan at epoch 1, step 0"):
        goodness.train(shrunk("gamma0-dense", changes), out=tmp_path / "run", device="cpu")
    found = Checkpoints(tmp_path / "run" / "checkpoints").latest()
    assert found is not None
    assert all(bool(value.isfinite().all()) for value in found[0].values())
    assert (found[1]["position"]["epoch"], found[1]["position"]["step"]) == (0, 3)


def test_after_a_bad_step_no_weight_moves_and_nothing_is_remembered() -> None:
    guard = Guard(torch.device("cpu"))
    guard.now.fill_(4)
    guard.note(torch.tensor([1.0, 2.0]))
    assert guard.first_bad() is None
    kept, before = torch.ones(2), torch.zeros(2)
    guard.undo([kept], [before])
    assert kept.tolist() == [1, 1]
    guard.note(torch.tensor([1.0, torch.inf]))
    guard.now.fill_(5)
    guard.note(torch.tensor([torch.nan]))
    assert guard.first_bad() == 4
    guard.undo([kept], [before])
    assert kept.tolist() == [0, 0]


@pytest.mark.parametrize("changes", [{}, {"step.mode": "sequential"}, {"optim.sam": 0.05}])
def test_nothing_learned_or_remembered_takes_in_a_bad_step(changes: dict[str, Any], poison: Poison) -> None:
    config = shrunk("gamma0-dense", {"objective.poison": poison, **changes}, blocks=3)
    torch.manual_seed(0)
    guard = Guard(torch.device("cpu"))
    stepper = Stepper(Network(config.model, (1, 8, 8), 4, terms=config.objective), config, guard=guard)
    views, labels = torch.rand(3, 8, 1, 8, 8), torch.arange(8) % 4

    def everything() -> dict[str, Tensor]:
        found = {f"network.{name}": value for name, value in stepper.network.state_dict().items()}
        found |= {f"teacher.{name}": value for name, value in stepper.teacher.network.state_dict().items()}
        for depth, optimiser in enumerate(stepper.optimisers):
            for number, state in enumerate(optimiser.state.values()):
                found |= {f"blocks.{depth}.optimiser.{number}.{name}": value for name, value in state.items()}
        return {name: value.clone() for name, value in found.items()}

    at = lambda step, progress: Moment(0, step, step, 9, progress)  # noqa: E731
    stepper(views, labels, at(0, 0.0))
    before = everything()
    guard.now.fill_(1)
    stepper(views, labels, at(1, 0.5))
    guard.now.fill_(2)
    assert guard.first_bad() == 1
    stepper(views, labels, at(2, 0.5))
    changed = {name for name, value in everything().items() if not torch.equal(value, before[name])}
    first = ("network.stem", "teacher.stem", "network.blocks.0", "teacher.blocks.0", "blocks.0.")
    if changes.get("step.mode") == "sequential":  # block 0 had made its step when block 1's turned out to be bad
        assert changed
        assert all(name.startswith(first) for name in changed)
    else:
        assert changed == set()


def test_looking_at_gradients_does_not_disturb_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look takes fewer images than a step, just when the next step is to be recorded."""
    stage1 = importlib.import_module("goodness.training.stage1")
    monkeypatch.setattr(stage1, "GRADIENT_IMAGES", 8)
    monkeypatch.setattr(replay, "WARM_STEPS", 3)
    settings = {**SHORT, "keep.evaluate_every": 1}
    replayed, notes = trained("gamma0-dense", settings, tmp_path / "replayed")
    monkeypatch.setattr(replay, "WARM_STEPS", 10**9)
    assert replayed == trained("gamma0-dense", settings, tmp_path / "as it is")[0]
    assert notes == []


def test_what_draws_by_itself_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WARM_STEPS", 1)
    from goodness.nn.attention import RMSNorm

    plain = RMSNorm.forward
    noisy = lambda self, x: plain(self, torch.nn.functional.dropout(x, 0.1, training=self.training))  # noqa: E731
    monkeypatch.setattr(RMSNorm, "forward", noisy)
    noted, notes = trained("gamma0-dense", SHORT, tmp_path / "run")
    assert notes == ["steps are not recorded, so they may be slower: a block draws random numbers of its own"]
    monkeypatch.setattr(replay, "WARM_STEPS", 10**9)
    as_it_is, _ = trained("gamma0-dense", SHORT, tmp_path / "as it is")
    assert noted == as_it_is


def test_refilled_places_hold_what_asking_gives() -> None:
    draws = Draws(torch.device("cpu"), 7)
    asked = draws((3, 2), "mine", 4, 5, 1)
    places = draws.places()
    draws.refill(places, 4, 5)
    with draws.kept_in(places):
        assert torch.equal(draws((3, 2), "mine", 0, 0, 1), asked)
        with pytest.raises(RuntimeError, match="'ni' that it has not drawn before"):
            draws((3, 2), "ni", 0, 0)
    assert not torch.equal(draws((3, 2), "mine", 0, 0, 1), asked)
