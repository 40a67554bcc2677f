"""The moving average of a network with batch norm: its running statistics fit its weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from goodness.api import load_data, make_config
from goodness.draws import Draws
from goodness.methods.base import Method, Moment
from goodness.methods.build import build_method, evidence_of
from goodness.methods.mono_forward import MonoForward
from goodness.step_context import Moment as Place
from goodness.training import trainer as training
from goodness.training.local import facts_of
from goodness.training.optim import average_decay
from goodness.training.trainer import Trainer


def accuracy(method: Method, images: Tensor, labels: Tensor) -> float:
    scores = evidence_of(method, images).sum(dim=0)
    return float((scores.argmax(dim=1) == labels).float().mean())


def test_averaged_weights_predict_with_averaged_statistics_and_not_with_the_latest() -> None:
    changes = {"data": "digits", "method": "mono-forward", "network": "cnn", "network.channels": (16, 32, 32)}
    config = make_config("cwc", {**changes, "optim.ema": 0.999, "optim.lr": 0.05})
    data = load_data(config)
    method = build_method(config, facts_of(data), 1)
    trainer = Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), 1))
    for step in range(200):
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(step))[:64]
        views, labels = data.train.images[rows].float()[None] / 255, data.train.labels[rows]
        trainer.step(views, labels, Place(0, step, step, 200, 0.0), Moment(0, 1, step, 200))

    latest, own = dict(method.named_buffers()), trainer.evaluated()
    mixed = copy.deepcopy(own)
    for name, value in mixed.named_buffers():
        value.copy_(latest[name])
    test = data.test
    assert accuracy(own, test.images, test.labels) > 0.94
    assert accuracy(mixed, test.images, test.labels) < 0.9


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_the_teachers_statistics_follow_as_written_out(ema: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied in the first steps, then averaged with the weights' own share; whole numbers are copied always."""
    monkeypatch.setattr(training, "SETTLING", 3)
    config = make_config("cwc", {"method": "mono-forward", "network": "mlp", "optim.ema": ema})
    method = MonoForward([nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5))], 3, [5])
    trainer = Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), 1))
    norm = method.blocks[0][2]  # type: ignore[index]
    expected = norm.running_mean.clone()
    for step in range(8):
        images, labels = torch.rand(1, 6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
        trainer.step(images, labels, Place(0, step, step, 8, 0.0), Moment(0, 1, step, 8))
        share = 1.0 if step < 3 else 1 - average_decay(step, ema)
        expected = expected + share * (norm.running_mean - expected)
        found = trainer.evaluated().blocks[0][2]  # type: ignore[index]
        torch.testing.assert_close(found.running_mean, expected)
        assert int(found.num_batches_tracked) == step + 1
