"""Channel-wise competition: its loss is the paper's, its plan freezes blocks for good, and it trains like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goodness
from goodness.api import load_data, make_config
from goodness.cli import main
from goodness.config import Config
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.health.method_audit import audit_method
from goodness.methods.base import Moment
from goodness.methods.build import build_method
from goodness.methods.cwc import CwC
from goodness.parts import ImageFacts
from goodness.step_context import Moment as Place
from goodness.training import replay
from goodness.training.local import facts_of
from goodness.training.trainer import Trainer
from interruptions import Killed, kill_after
from tiny_runs import what_a_run_leaves

SMALL: dict[str, Any] = {"data": "digits", "seed": 1, "network.channels": (20, 40, 40, 40)}


def config(**changes: Any) -> Config:
    return make_config("cwc", {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}})


def trainer_of(made: Config, seed: int = 1) -> Trainer:
    method = build_method(made, facts_of(load_data(made)), seed)
    return Trainer(method, made.optim, made.step, draws=Draws(torch.device("cpu"), seed))


def batch(count: int = 32) -> tuple[Tensor, Tensor]:
    train = load_data(config()).train
    return train.images[:count].float()[None] / 255, train.labels[:count]


def step(trainer: Trainer, number: int, of: int) -> None:
    views, labels = batch()
    trainer.step(views, labels, Place(number, 0, number, of, number / of), Moment(number, of, number, of))


# The loss


@pytest.mark.parametrize("shared", [1, 2])
def test_the_loss_and_its_gradient_are_the_papers(shared: int) -> None:
    """-mean log(exp g_y / sum_c exp g_c), g_c the mean of squares over the channels and positions of group c."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(5, 12, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 5, 2, 3, 3])
    method = CwC([nn.Identity()], 6, groups=(6 // shared,))
    out = method.through(0, {"x": maps})
    found = method.loss(0, {"x": maps, "labels": labels}, out)
    (gradient,) = torch.autograd.grad(found, maps)

    size, total = 2 * shared, torch.zeros((), dtype=torch.float64)
    for image, label in zip(maps, labels):
        g = torch.stack([image[first : first + size].pow(2).mean() for first in range(0, 12, size)])
        total = total - torch.log(torch.exp(g[label // shared]) / torch.exp(g).sum())
    (expected,) = torch.autograd.grad(total / 5, maps)
    torch.testing.assert_close(found.double(), total / 5, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5)


def test_classes_of_one_superclass_have_equal_evidence() -> None:
    method = CwC([nn.Identity()], 6, groups=(3,))
    speaks = method.through(0, {"x": torch.randn(4, 12, 3, 3)}).speaks
    assert speaks is not None
    assert speaks.shape == (4, 6)
    assert torch.equal(speaks[:, ::2], speaks[:, 1::2])


@pytest.mark.parametrize("shape", [(12,), (5, 12)])
def test_vectors_and_tokens_are_grouped_by_their_width(shape: tuple[int, ...]) -> None:
    x = torch.randn(4, *shape)
    speaks = CwC([nn.Identity()], 6).through(0, {"x": x}).speaks
    expected = x.reshape(4, -1, 6, 2).square().mean(dim=(1, 3))
    torch.testing.assert_close(speaks, expected)


# The plan


def test_blocks_learn_in_the_authors_epochs() -> None:
    """Their "Acc" plan of 25 epochs: [0, 11), [0, 16), [0, 21), [0, 25)."""
    method = trainer_of(config()).method
    for epoch in range(25):
        expected = tuple((depth,) for depth, end in enumerate((11, 16, 21, 25)) if epoch < end)
        for number in (2 * epoch, 2 * epoch + 1):
            assert method.plan(Moment(epoch, 25, number, 50)).units == expected


def test_a_run_of_another_length_stretches_the_plan() -> None:
    method = trainer_of(config(method__begin=(0, 2, 4, 6), method__end=(11, 18, 26, 32))).method
    learns = [[depth for (depth,) in method.plan(Moment(0, 1, number, 64)).units] for number in range(64)]
    for depth, (begin, end) in enumerate([(0, 11), (2, 18), (4, 26), (6, 32)]):
        assert [number for number in range(64) if depth in learns[number]] == list(range(2 * begin, 2 * end))


@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_a_frozen_block_keeps_every_bit_while_later_ones_learn(mode: str) -> None:
    trainer = trainer_of(config(step__mode=mode, optim__ema=0.9))
    step(trainer, 0, 100)
    before = {name: value.clone() for name, value in trainer.method.state_dict().items()}
    teacher = {name: value.clone() for name, value in trainer.teacher.state_dict().items()}
    step(trainer, 60, 100)  # block 0 until step 44, block 1 until step 64
    after = trainer.method.state_dict()
    moved = {name.split(".")[1] for name in after if name != "weights" and not torch.equal(after[name], before[name])}
    assert moved == {"1", "2", "3"}
    gaps = [
        float((trainer.teacher.state_dict()[one] - before[one]).abs().sum()) for one in teacher if "0.1.weight" in one
    ]
    then = [float((teacher[one] - before[one]).abs().sum()) for one in teacher if "0.1.weight" in one]
    assert all(now <= once for now, once in zip(gaps, then))  # the average goes on towards what the block has learned
    assert "blocks.0.3.running_mean" in before


# A whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> goodness.Run:
    out = tmp_path_factory.mktemp("cwc") / "run"
    return goodness.train(config(epochs=6, deterministic=True), out=out, device="cpu")


def test_a_few_epochs_on_digits_reach_95_percent_by_the_last_block(run: goodness.Run) -> None:
    assert run.result["reported"]["accuracy"] >= 0.95
    assert run.method().weights.tolist() == [0, 0, 0, 1]


def test_evaluation_health_and_report_of_the_run(run: goodness.Run, tmp_path: Path) -> None:
    again = goodness.evaluate(run.path, device="cpu")
    assert again["accuracy"] == pytest.approx(run.result["reported"]["accuracy"])
    assert len(run.result["health"]["test"]) == 4
    assert main(["health", str(run.path), "--device", "cpu"]) == 0
    assert main(["report", str(run.path), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_fused_steps_end_in_the_bits_of_sequential_ones(run: goodness.Run, tmp_path: Path) -> None:
    other = goodness.train(run.config, out=tmp_path / "run", device="cpu", changes={"step.mode": "sequential"})
    assert what_a_run_leaves(other.path) == what_a_run_leaves(run.path)


def test_replayed_steps_end_in_the_bits_of_steps_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(epochs=4, deterministic=True, step__replay="on")
    replayed = goodness.train(made, out=tmp_path / "replayed", device="cpu")
    monkeypatch.setattr(replay, "WARM_STEPS", 10**9)
    as_it_is = goodness.train(made, out=tmp_path / "as it is", device="cpu")
    assert what_a_run_leaves(replayed.path) == what_a_run_leaves(as_it_is.path)


def test_a_run_killed_while_a_block_is_frozen_and_resumed_ends_in_the_same_bits(
    run: goodness.Run, tmp_path: Path
) -> None:
    often = {"keep.checkpoint_steps": 5}
    with pytest.raises(Killed):
        goodness.train(run.config, out=tmp_path / "run", device="cpu", changes=often, listen=kill_after(38))
    resumed = goodness.resume(tmp_path / "run", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(run.path)


def test_the_audit_finds_strict_locality() -> None:
    views, labels = batch()
    audit = audit_method(lambda: trainer_of(config()), views, labels)
    assert (audit.tag, audit.later, audit.uses_labels, audit.readout) == ("strict", (), True, False)


# Mistakes


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"network.channels": (20, 45, 40, 40)}, "network.channels"),
        ({"network": "cnn", "network.channels": (16, 20), "method.end": ()}, "block 0"),
        ({"method.groups": (10, 10, 10, 4)}, "block 3"),
        ({"method.groups": (10, 10)}, "method.groups"),
        ({"method.end": (3, 4)}, "method.end"),
        ({"method.begin": (0, 0, 9, 0), "method.end": (3, 4, 5, 6)}, "method.begin"),
        ({"method.begin": (0, 0, 0, 0), "method.end": ()}, "method.begin"),
        ({"network.groups": (10,)}, "network.groups"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(changes: dict[str, Any], culprit: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=culprit):
        goodness.train("cwc", out=tmp_path / "run", device="cpu", changes={**SMALL, **changes})


def test_the_cifar100_preset_builds_the_authors_groups() -> None:
    made = goodness.preset("cwc-cifar100")
    facts = ImageFacts((3, 32, 32), 100, (0.5,) * 3, (0.25,) * 3)
    method = build_method(made, facts, 1)
    assert [speaks.shape[1] for speaks in method.evidence(torch.rand(2, 3, 32, 32))] == [100] * 6
    assert isinstance(method, CwC)
    assert method.groups == (20, 20, 20, 20, 100, 100)
