"""The backpropagation control: one loss for the whole stripped network, and a run folder that keeps every promise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import goodness
from goodness import parts
from goodness.api import load_data
from goodness.errors import UserError
from goodness.nn.plain_cnn import ConvStages
from goodness.nn.stripped import StrippedNetwork
from goodness.runs.checkpoint import Checkpoints
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Moment
from goodness.tensor_file import weights_sha256
from goodness.training.backprop import Backprop, build_stripped
from goodness.training.loop import Interrupted
from interruptions import Killed, kill_after, stop_after
from tiny_runs import BLOBS, blobs_at_hand, shrunk, what_a_run_leaves

# A rate so high that validation falls before the end: best and last weights differ.
ROUGH = {**BLOBS, "trainer": "backprop", "seed": 2, "optim.lr": 0.1, "optim.ema": 0.5, "keep.report": "best"}
ROUGH |= {"deterministic": True, "keep.evaluate_every": 1, "keep.checkpoint_steps": 2, "keep.checkpoint_seconds": 1e6}
PLAIN_CNN = {
    "model.stem.kind": "pixels",
    "model.block": ConvStages(channels=(8, 12)),
    "model.goodness": "energy",
    "model.label": "add",
    "objective.aspects": None,
}


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on data that may be mirrored."""
    return goodness.train(shrunk("demo", ROUGH), out=tmp_path_factory.mktemp("bp") / "run", device="cpu")


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Backprop]:
    """Every control that runs in the test."""
    seen: list[Backprop] = []
    plain = Backprop.run

    def recording(self: Backprop) -> dict[str, Any]:
        seen.append(self)
        return plain(self)

    monkeypatch.setattr(Backprop, "run", recording)
    return seen


def train(changes: dict[str, Any], out: Path) -> Run:
    return goodness.train(shrunk("demo", {**BLOBS, "trainer": "backprop", **changes}), out=out, device="cpu")


def scores_by_hand(run: Run, weights: str, split: str, mirrored: bool) -> Tensor:
    network, images = run.stripped(weights), load_data(run.config).split(split).images.float() / 255
    scores = network(images)[0]
    return (scores + network(images.flip(-1))[0]) / 2 if mirrored else scores


# What it leaves


def test_the_rows_cover_weights_splits_and_mirroring_and_can_be_computed_again(run: Run) -> None:
    rows = run.result["accuracy"]
    found = [(row["weights"], row["split"], row["tta"]) for row in rows]
    assert sorted(found) == sorted(itertools.product(("best", "last"), ("val", "test"), (False, True)))
    assert run.result["weights"]["best"]["epoch"] < 2, "else best and last would be the same weights"
    for row in rows:
        assert (row["stage"], row["blocks"], row["n"]) == ("bp", 2, {"val": 20, "test": 40}[row["split"]])
        scores = scores_by_hand(run, row["weights"], row["split"], row["tta"])
        labels = load_data(run.config).split(row["split"]).labels
        assert row["top1"] == pytest.approx(float((scores.argmax(dim=1) == labels).double().mean())), row


def test_evaluate_finds_what_the_result_says(run: Run) -> None:
    for row in run.result["accuracy"]:
        question = {"split": row["split"], "weights": row["weights"], "tta": row["tta"], "device": "cpu"}
        found = goodness.evaluate(run.path, **question)
        assert (found["accuracy"], found["n"], found["stage"]) == (row["top1"], row["n"], "bp")
    reported = run.result["reported"]
    assert goodness.evaluate(run.path, stage="bp", device="cpu")["accuracy"] == reported["accuracy"] == run.accuracy
    assert (reported["stage"], reported["weights"]) == ("bp", "best")
    with pytest.raises(UserError, match="--blocks is for Stage 1"):
        goodness.evaluate(run.path, blocks=1, device="cpu")
    with pytest.raises(UserError, match="is of stage bp, not s1"):
        goodness.evaluate(run.path, stage="s1", device="cpu")


def test_the_kept_predictions_are_what_predict_gives(run: Run) -> None:
    test = load_data(run.config).test
    for name, mirrored in (("test", False), ("test_tta", True)):
        kept = RunFolder.open(run.path, for_writing=False).read_predictions(name)
        assert np.array_equal(kept["scores"], run.predict(test.images, tta=mirrored).numpy())
        assert np.array_equal(kept["labels"], test.labels.numpy())
        by_hand = scores_by_hand(run, "best", "test", mirrored).numpy()
        np.testing.assert_allclose(kept["scores"], by_hand, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="only a Stage 1 can be cut short"):
        run.predict(test.images, blocks=1)


def test_the_lines_say_loss_accuracy_and_norm_and_there_is_no_health_of_blocks(run: Run) -> None:
    assert [line["epoch"] for line in run.metrics] == [0, 1, 2]
    assert all(line["train"].keys() == {"loss", "accuracy", "grad_norm"} for line in run.metrics)
    assert all(line["val"].keys() == {"accuracy", "n"} for line in run.metrics)
    result = run.result
    assert (result["health"], result["epochs"], result["steps"]) == ({}, 3, 9)
    assert result["parameters"] == run.stripped().parameter_count()


def test_a_control_gives_its_stripped_network_and_refuses_blocks_it_does_not_have(run: Run, tmp_path: Path) -> None:
    network = run.stripped()
    assert isinstance(network, StrippedNetwork)
    assert network.class_names == load_data(run.config).classes
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    with pytest.raises(
        UserError, match=r"was trained by backpropagation: it has no blocks to judge \(in Python, `stripped\(\)`"
    ):
        run.network()
    local = goodness.train(shrunk("demo", {**BLOBS, "epochs": 1}), out=tmp_path / "run", device="cpu")
    with pytest.raises(UserError, match=r"was not trained by backpropagation; use `network\(\)`"):
        local.stripped()


# Learning


def test_it_learns_the_blobs(tmp_path: Path, stages: list[Backprop]) -> None:
    made = train({"data": "easy-blobs", "augment": "none", "epochs": 10, "optim.ema": 0.8}, tmp_path / "run")
    losses = [line["train"]["loss"] for line in made.metrics]
    assert losses[-1] < 0.5 * losses[0]
    assert made.accuracy > 0.9
    (stage,) = stages
    untouched = [name for name, p in stage.network.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert untouched == [], "the gradient reaches the stem, every block and the classifier"
    trained = [id(p) for group in stage.optimisers[0].param_groups for p in group["params"]]
    assert sorted(trained) == sorted(id(p) for p in stage.network.parameters())
    start = build_stripped(made.config, load_data(made.config)).state_dict()
    still = {name for name, value in stage.network.state_dict().items() if torch.equal(value, start[name])}
    assert still == {"mean", "std"}


def loss_by_hand(network: StrippedNetwork, views: Tensor, labels: Tensor, balance: float, z: float) -> Tensor:
    """Cross-entropy, and for every block E sum_i f_i P_i and mean (log sum exp)^2 with their weights."""
    tokens, extra = network.stem((views - network.mean) / network.std), torch.zeros(())
    for body in network.blocks:
        tokens, notes = body(tokens)
        if "router_logits" in notes:
            logits, chosen = notes["router_logits"], notes["router_chosen"]
            experts = logits.shape[1]
            share = torch.stack([(chosen == expert).float().mean() for expert in range(experts)])
            extra = extra + balance * experts * (share * logits.softmax(dim=1).mean(dim=0)).sum()
            extra = extra + z * logits.exp().sum(dim=1).log().square().mean()
    shares = network.classify(network.norm(tokens).mean(dim=1)).log_softmax(dim=1)
    return -shares[torch.arange(len(labels)), labels].mean() + extra


@pytest.mark.parametrize("experts", [0, 4])
def test_a_step_is_adamws_on_the_cross_entropy_and_what_the_routers_cost(experts: int, tmp_path: Path) -> None:
    """All training images in one step, written out from the initial weights.

    Adam's first step looks at a gradient's length only where it comes near epsilon: hence the tiny limit.
    """
    changes = {"epochs": 1, "batch": 50, "augment": "none", "optim.warmup": 0.0, "optim.ema": 0.0, "optim.clip": 1e-6}
    if experts:
        changes |= {"model.block.experts": experts, "model.block.top_k": 2}
        changes |= {"objective.balance.weight": 0.5, "objective.router-z.weight": 0.3}
    made = train(changes, tmp_path / "run")
    config, data = made.config, load_data(made.config)
    network = build_stripped(config, data)
    loss = loss_by_hand(network, data.train.images / 255, data.train.labels, 0.5, 0.3)
    loss.backward()
    norm = sum(float(p.grad.double().square().sum()) for p in network.parameters() if p.grad is not None) ** 0.5
    assert made.metrics[0]["train"]["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert made.metrics[0]["train"]["grad_norm"] == pytest.approx(norm, rel=1e-4)
    after, rate = made.stripped("last").state_dict(), config.optim.lr
    for name, p in network.named_parameters():
        assert p.grad is not None
        gradient = p.grad * 1e-6 / norm
        decayed = p.detach() * (1 - rate * (config.optim.weight_decay if p.dim() > 1 else 0.0))
        expected = decayed - rate * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(after[name], expected, rtol=1e-3, atol=1e-5)


def test_the_terms_of_forward_forward_play_no_part(tmp_path: Path) -> None:
    bare = train({"epochs": 1, "objective.aspects": None, "objective.block": None}, tmp_path / "bare")
    full = train({"epochs": 1, "objective.supcon.queue": 8, "rule": "lcff", "beta": 1.0}, tmp_path / "full")
    assert bare.result["weights_sha256"] == full.result["weights_sha256"]


def test_what_is_judged_is_the_running_mean_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naive: dict[str, Tensor] = {}
    plain = Backprop.step

    def step(self: Backprop, rows: Tensor, moment: Moment) -> Any:
        if not naive:
            naive.update({name: p.detach().clone() for name, p in self.network.named_parameters()})
        found = plain(self, rows, moment)
        decay = min(0.7, 1 - 1 / (moment.total_step + 2))
        for name, p in self.network.named_parameters():
            naive[name] = decay * naive[name] + (1 - decay) * p.detach()
        return found

    monkeypatch.setattr(Backprop, "step", step)
    made = train({"epochs": 2, "optim.ema": 0.7}, tmp_path / "run")
    for name, p in made.stripped("last").named_parameters():
        torch.testing.assert_close(p, naive[name], rtol=1e-4, atol=1e-6)


class Counting(nn.Module):
    """A body with a memory that no gradient fills, and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix, self.drop = nn.Linear(width, width), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return tokens + self.drop(self.mix(tokens))


@dataclass(frozen=True, kw_only=True)
class CountingBlock(goodness.BlockPart):
    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return Counting(width)


def test_the_running_mean_takes_a_blocks_buffers_over_and_dropout_is_keyed(tmp_path: Path) -> None:
    parts.blocks.register("counting")(CountingBlock)
    try:
        runs = []
        for name in ("one", "two"):
            torch.rand(len(runs) + 3)  # the caller's own draws do not matter
            runs.append(train({"model.block": "counting", "epochs": 2, "deterministic": True}, tmp_path / name))
        assert [float(body.calls) for body in runs[0].stripped("last").blocks] == [6, 6]
        assert runs[0].result["weights_sha256"] == runs[1].result["weights_sha256"]
        assert goodness.evaluate(runs[0].path, device="cpu")["accuracy"] == runs[0].accuracy
    finally:
        del parts.blocks._parts["counting"]


@pytest.mark.parametrize("trainer", ["backprop", "ff"])
def test_a_plain_cnn_trains_under_both_trainers(trainer: str, tmp_path: Path) -> None:
    made = train({**PLAIN_CNN, "trainer": trainer, "data": "easy-blobs", "augment": "none"}, tmp_path / "run")
    network = made.stripped() if trainer == "backprop" else made.network()
    assert network.shapes == [(1, (6, 6)), (8, (3, 3)), (12, (2, 2))]
    before = [line["train"] for line in made.metrics]
    losses = [[line["loss"]] if trainer == "backprop" else [one["loss"] for one in line["blocks"]] for line in before]
    assert all(last < first for first, last in zip(losses[0], losses[-1])), "every loss falls"
    assert goodness.evaluate(made.path, device="cpu")["accuracy"] == made.accuracy
    assert len(losses[0]) == (1 if trainer == "backprop" else 2)


# Interruption and repetition


@pytest.mark.parametrize(("steps", "is_asked"), [(6, False), (5, True)])
def test_a_control_killed_or_stopped_and_resumed_ends_in_the_same_bits(
    steps: int, is_asked: bool, run: Run, tmp_path: Path
) -> None:
    listen = (stop_after if is_asked else kill_after)(steps)
    with pytest.raises(Interrupted if is_asked else Killed):
        goodness.train(run.config, out=tmp_path / "run", device="cpu", listen=listen)
    torch.rand(steps)  # the caller's own draws do not matter
    assert goodness.resume(tmp_path / "run", device="cpu").stage == "bp"
    assert what_a_run_leaves(tmp_path / "run") == what_a_run_leaves(run.path)


def test_the_seed_decides_the_bits(run: Run, tmp_path: Path) -> None:
    again = goodness.train(run.config, out=tmp_path / "again", device="cpu")
    assert what_a_run_leaves(again.path) == what_a_run_leaves(run.path)
    other = goodness.train(run.config, seed=3, out=tmp_path / "other", device="cpu")
    assert other.result["weights_sha256"] != run.result["weights_sha256"]


def test_the_weights_hash_is_of_the_network_and_its_running_mean(run: Run) -> None:
    found = Checkpoints(run.path / "checkpoints").latest()
    assert found is not None
    learned = {name: value for name, value in found[0].items() if name.startswith(("network.", "average."))}
    assert run.result["weights_sha256"] == weights_sha256(learned)
    last = run.stripped("last").state_dict()
    assert all(torch.equal(value, learned[f"average.{name}"]) for name, value in last.items())


def test_the_initial_weights_depend_on_the_seed_alone() -> None:
    config = shrunk("demo", ROUGH)
    data = load_data(config)
    one = build_stripped(config, data).state_dict()
    torch.rand(7)
    two = build_stripped(shrunk("demo", {**ROUGH, "optim.lr": 0.2}), data).state_dict()
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert one["mean"].flatten().tolist() == pytest.approx(data.mean)
    assert one["std"].flatten().tolist() == pytest.approx(data.std)
