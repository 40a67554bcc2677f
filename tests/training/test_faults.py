"""When something goes wrong: no weight and no checkpoint takes it in, and the message says what and where."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import goodness
from goodness import parts
from goodness.errors import RunError, UserError
from goodness.methods.cumulative.facts import Facts
from goodness.nn.network import Network
from goodness.parts import Term
from goodness.runs.checkpoint import Checkpoints
from goodness.step_context import Moment
from goodness.training.finite import NonFiniteLoss
from goodness.training.step import Stepper
from interruptions import Killed, kill_after
from tiny_runs import BLOBS, blobs_at_hand, shrunk, what_a_run_leaves

CHANGES = {**BLOBS, "deterministic": True, "keep.checkpoint_steps": 1, "keep.checkpoint_seconds": 0}


class Count(nn.Module):
    """Steps made so far; a buffer, so that a resumed run goes on counting."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class Poison(Term):
    """A harmless term that from some step on turns bad in one block."""

    after: int = 4
    in_block: int = 1
    how: Literal["nan", "inf", "gradient"] = "nan"

    def module(self, width: int, aspects: int) -> nn.Module:
        return Count()

    def loss(self, facts: Facts, module: Count) -> Tensor:
        value = 0.1 * facts.goodness.pos.mean()
        if facts.depth != self.in_block or int(module.seen) < self.after:
            return value
        if self.how == "gradient":
            return torch.sqrt(value - value.detach())  # zero, and infinitely steep there
        return value * float(self.how)

    def after_step(self, facts: Facts, module: Count) -> None:
        module.seen += 1


@pytest.fixture(scope="module", autouse=True)
def made_up_parts() -> Iterator[None]:
    known = dict(parts.terms._parts)
    goodness.register_term("poison")(Poison)
    with blobs_at_hand():
        yield
    parts.terms._parts = known


def halted(path: Path, changes: dict[str, Any], steps: int, **more: Any) -> None:
    """An unfinished run in `path`, with that many steps done and saved."""
    listen = kill_after(steps, "checkpoint")
    with pytest.raises(Killed):
        goodness.train(shrunk("demo", changes), out=path, device="cpu", listen=listen, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run without trouble leaves."""
    path = tmp_path_factory.mktemp("whole") / "run"
    goodness.train(shrunk("demo", CHANGES), out=path, device="cpu")
    return what_a_run_leaves(path)


def saved_position(path: Path) -> dict[str, Any]:
    """Where the newest checkpoint stands; everything in it is finite."""
    found = Checkpoints(path / "checkpoints").latest()
    assert found is not None
    tensors, state = found
    assert {name for name, value in tensors.items() if not bool(value.isfinite().all())} == set()
    return {key: state["position"][key] for key in ("epoch", "step")}


# A loss that is not a number

WORDS = {
    "nan": "term 'poison' is nan",
    "inf": "term 'poison' is inf",
    "gradient": "the gradient of term 'poison' is not finite",
}


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize("how", WORDS)
@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_loss_that_is_not_finite_reaches_no_weight_of_its_block(block: int, how: str, mode: str) -> None:
    config = shrunk(
        "gated-dense",
        {"step.mode": mode, "model.blocks": 3, "objective.poison": Poison(after=1, in_block=block, how=how)},  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    network = Network(config.model, (1, 8, 8), 4, terms=config.objective)
    stepper = Stepper(network, config)
    views, labels = torch.rand(3, 8, 1, 8, 8), torch.arange(8) % 4
    stepper(views, labels, Moment(epoch=0, step=0, total_step=0, total_steps=9, progress=0.0))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    taught = {name: value.clone() for name, value in stepper.teacher.network.state_dict().items()}
    with pytest.raises(NonFiniteLoss, match=f"^block {block}: {WORDS[how]} at epoch 3, step 2") as caught:
        stepper(views, labels, Moment(epoch=3, step=2, total_step=1, total_steps=9, progress=0.5))
    assert (caught.value.depth, caught.value.exit_code) == (block, 1)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    # sequential has updated the blocks before it, with their own finite gradients; fused none
    touched = range(block) if mode == "sequential" else ()
    assert {int(name.split(".")[1]) for name in changed if name.startswith("blocks.")} == set(touched)
    assert any(name.startswith("stem.") for name in changed) == (0 in touched)
    moved = {
        name for name, value in stepper.teacher.network.state_dict().items() if not torch.equal(value, taught[name])
    }
    assert {int(name.split(".")[1]) for name in moved if name.startswith("blocks.")} == set(touched)
    for value in (*network.state_dict().values(), *stepper.teacher.network.state_dict().values()):
        assert bool(value.isfinite().all())
    for optimiser in stepper.optimisers:
        for memory in optimiser.state.values():
            assert all(bool(value.isfinite().all()) for value in memory.values())


@pytest.mark.parametrize(("how", "mode"), [("nan", "fused"), ("gradient", "sequential")])
def test_a_poisoned_run_keeps_its_last_good_checkpoint_and_can_go_on_from_it(
    how: Literal["nan", "gradient"], mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {**CHANGES, "step.mode": mode, "objective.poison": Poison(how=how)}
    message = f"^block 1: {WORDS[how]} at epoch 1, step 1.*no checkpoint has taken it in"
    with pytest.raises(NonFiniteLoss, match=message):
        goodness.train(shrunk("demo", changes), out=tmp_path / "run", device="cpu")
    assert saved_position(tmp_path / "run") == {"epoch": 1, "step": 1}
    with pytest.raises(NonFiniteLoss, match=message):
        goodness.resume(tmp_path / "run", device="cpu")
    assert saved_position(tmp_path / "run") == {"epoch": 1, "step": 1}

    harmless = {**changes, "objective.poison": Poison(how=how, after=1000)}
    spared = goodness.train(shrunk("demo", harmless), out=tmp_path / "spared", device="cpu")
    sweet = Poison.loss
    monkeypatch.setattr(Poison, "loss", lambda self, facts, module: sweet(Poison(after=1000), facts, module))
    cured = goodness.resume(tmp_path / "run", device="cpu")
    assert cured.result["weights_sha256"] == spared.result["weights_sha256"]


# A disk that is full


def failing_fsync(at: int) -> Callable[[int], None]:
    """An fsync whose call number `at` and all later ones find no room."""
    plain, calls = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(handle)

    return fsync


@pytest.mark.parametrize("at", [3, 7, 14, 26, 39])
def test_a_run_that_finds_the_disk_full_says_so_and_goes_on_when_there_is_room(
    at: int, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, config = tmp_path / "run", shrunk("demo", CHANGES)
    monkeypatch.setattr(os, "fsync", failing_fsync(at))
    with pytest.raises(RunError, match=r"No space left on device.*free some space") as caught:
        goodness.train(config, out=path, device="cpu")
    monkeypatch.undo()
    assert caught.value.exit_code == 1
    assert [*path.rglob("*.partial")] == []
    assert not (path / "result.json").exists()
    if at > 10:
        saved_position(path)
    if (path / "config.json").exists():
        goodness.resume(path, device="cpu")
    else:
        goodness.train(config, out=path, device="cpu")
    assert what_a_run_leaves(path) == whole


def test_a_file_limit_in_the_middle_of_a_run_leaves_the_last_checkpoint_whole(
    whole: dict[str, Any], tmp_path: Path
) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)

    def listen(event: dict[str, Any]) -> None:
        if (event["event"], event.get("epoch"), event.get("step")) == ("step", 1, 2):
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))

    try:
        with pytest.raises(RunError, match=r"could not write .*step-000000005\.safetensors: File too large"):
            goodness.train(shrunk("demo", CHANGES), out=tmp_path / "run", device="cpu", listen=listen)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert saved_position(tmp_path / "run") == {"epoch": 1, "step": 1}
    goodness.resume(tmp_path / "run", device="cpu")
    assert what_a_run_leaves(tmp_path / "run") == whole


# Folders and resumption


def test_a_second_run_into_the_folder_of_a_running_one_is_refused_and_harms_nothing(
    whole: dict[str, Any], tmp_path: Path
) -> None:
    refusals = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["epoch"] == 1:
            for second in (
                lambda: goodness.train(shrunk("demo", CHANGES), out=tmp_path / "run", device="cpu"),
                lambda: goodness.resume(tmp_path / "run", device="cpu"),
            ):
                with pytest.raises(UserError, match="is in use by process") as caught:
                    second()
                refusals.append(caught.value.exit_code)

    goodness.train(shrunk("demo", CHANGES), out=tmp_path / "run", device="cpu", listen=listen)
    assert refusals == [2] * 6
    assert what_a_run_leaves(tmp_path / "run") == whole


def test_a_folder_that_holds_a_run_takes_no_new_one(whole: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    halted(path, CHANGES, steps=4)
    with pytest.raises(UserError, match=r"holds an unfinished run; `goodness resume .*run` goes on with it"):
        goodness.train(shrunk("demo", CHANGES), out=path, device="cpu")
    with pytest.raises(UserError, match="is not finished; go on with: goodness resume"):
        _ = goodness.load(path).result
    goodness.resume(path, device="cpu")
    assert what_a_run_leaves(path) == whole
    with pytest.raises(UserError, match="holds a finished run"):
        goodness.train(shrunk("demo", CHANGES), out=path, device="cpu")


def test_a_finished_run_is_resumed_by_returning_it_untouched(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = goodness.train(shrunk("demo", {**CHANGES, "epochs": 1}), out=path, device="cpu")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "run.lock"}
    again = goodness.resume(path, device="cpu", listen=lambda event: pytest.fail(f"nothing to do, yet {event}"))
    assert again.path == run.path
    assert {file: file.read_bytes() for file in before} == before


def test_a_changed_configuration_is_refused_until_it_is_put_back(whole: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    halted(path, CHANGES, steps=4)
    file = path / "config.json"
    kept = file.read_text()
    for field, value in {"seed": 77, "epochs": 4, "batch": 8}.items():
        file.write_text(json.dumps({**json.loads(kept), field: value}))
        with pytest.raises(UserError, match="was changed since the last checkpoint; put it back"):
            goodness.resume(path, device="cpu")
    file.write_text(kept)
    goodness.resume(path, device="cpu")
    assert what_a_run_leaves(path) == whole


def test_other_data_is_refused_and_the_data_folder_is_remembered(tmp_path: Path) -> None:
    path, store = tmp_path / "run", tmp_path / "store"
    store.mkdir()
    (store / "blobs.txt").write_text("5")
    halted(path, CHANGES, steps=4, data_dir=store)
    (store / "blobs.txt").write_text("6")
    with pytest.raises(UserError, match="the data set 'blobs' is not the one this run began with"):
        goodness.resume(path, device="cpu")
    (store / "blobs.txt").write_text("5")
    with pytest.raises(UserError, match="is not the one this run began with"):
        goodness.resume(path, device="cpu", data_dir=tmp_path)
    assert saved_position(path) == {"epoch": 1, "step": 0}
    run = goodness.resume(path, device="cpu")
    assert run.accuracy == goodness.evaluate(path, device="cpu")["accuracy"]


@pytest.mark.parametrize("damage", ["cut", "flipped bit", "emptied"])
def test_a_run_whose_only_checkpoint_is_damaged_says_so_and_does_not_start_over(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    halted(path, CHANGES, steps=4)
    (file,) = (path / "checkpoints").glob("step-*.safetensors")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes({"cut": content[: len(content) // 2], "flipped bit": content, "emptied": b""}[damage])
    lines = (path / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=rf"no checkpoint can be read: .*{file.name}.*Start a new run") as caught:
        goodness.resume(path, device="cpu")
    assert caught.value.exit_code == 1
    assert (path / "metrics.jsonl").read_bytes() == lines


def test_an_older_checkpoint_serves_where_the_newest_is_damaged(whole: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    halted(path, CHANGES, steps=3)
    (file,) = (path / "checkpoints").glob("step-*.safetensors")
    file.with_name("step-000000008.safetensors").write_bytes(file.read_bytes()[:-100])
    goodness.resume(path, device="cpu")
    assert what_a_run_leaves(path) == whole


def test_a_run_without_a_checkpoint_starts_over(whole: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    halted(path, CHANGES, steps=5)
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    assert (path / "metrics.jsonl").stat().st_size > 0
    goodness.resume(path, device="cpu")
    assert what_a_run_leaves(path) == whole
