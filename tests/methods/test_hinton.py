"""Hinton's Forward-Forward: its loss as the paper writes it, its gradients, what it learns and when."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_methods import batch, entering, given, made, small, trainer

import goodness
from goodness.api import load_data
from goodness.cli import main
from goodness.config import Config, override
from goodness.errors import ConfigError
from goodness.methods.base import Moment, Signal, along
from goodness.methods.hinton import HintonPart
from goodness.methods.label_input import behind_labels, likely_wrong_labels
from goodness.nn.hinton_mlp import FullGradientRelu, HintonMlp
from goodness.nn.networks import Mlp
from goodness.step_context import Moment as Place
from goodness.training.optim import learning_rate

TINY = {"network.widths": (7, 5)}


def plain_loss(
    h: np.ndarray, mean: np.ndarray, *, total: bool, threshold: float, peer: float, momentum: float
) -> float:
    """-log p of the right label and -log (1 - p) of the wrong, p = 1 / (1 + exp(-(g - theta))), image by image, and
    peer normalisation; `h` is [images, right and wrong, units]."""
    found = 0.0
    for right, wrong in h:
        for sign, output in ((1, right), (-1, wrong)):
            g = sum(one**2 for one in output) - threshold * len(output)
            g = g if total else g / len(output)
            found += math.log(1 + math.exp(-sign * g))
    mean = momentum * mean + (1 - momentum) * h[:, 0].mean(axis=0)
    return found / (2 * len(h)) + peer * float(((mean.mean() - mean) ** 2).mean())


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method.goodness": "mean", "method.threshold": 2.0},
        {"method.label": "appended", "method.peer": 0.5, "method.peer_momentum": 0.6},
        {"network": "mlp", "method.peer": 0.0, "method.eps": 0.1},
    ],
)
def test_a_layers_loss_is_the_papers(settings: dict[str, Any], depth: int) -> None:
    config = small("hinton", {**settings, **TINY})
    method, part = made(config), config.method
    images, labels = batch()
    wrong = (labels + 1 + int(0.3 * 9)) % 10
    flat = images.flatten(1).numpy().astype(np.float64)
    x = np.zeros((len(flat), 2, 64 if part.label == "first-pixels" else 74))
    for row, of_both in enumerate(zip(labels.tolist(), wrong.tolist())):
        for stream, label in enumerate(of_both):
            one_hot = np.eye(10)[label]
            behind = flat[row][10:] if part.label == "first-pixels" else flat[row]
            x[row, stream] = [*one_hot, *behind]
    for block in method.blocks[: depth + 1]:
        linear = next(one for one in block if isinstance(one, torch.nn.Linear))
        x = x / (np.sqrt((x**2).mean(axis=-1, keepdims=True)) + part.eps)
        x = np.maximum(x @ linear.weight.detach().numpy().T.astype(np.float64) + linear.bias.detach().numpy(), 0)
    expected = plain_loss(
        x,
        np.full(x.shape[-1], 0.5),
        total=part.goodness == "sum",
        threshold=part.threshold,
        peer=part.peer,
        momentum=part.peer_momentum,
    )
    signal = entering(method, depth, images, labels)
    assert method.loss(depth, signal, method.through(depth, signal)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("network", ["mlp", "hinton-mlp"])
@pytest.mark.parametrize("depth", [0, 1])
def test_the_gradient_is_that_of_the_formula_with_peers_passing_units_that_are_off(network: str, depth: int) -> None:
    method = made(small("hinton", {"network": network, **TINY}))
    images, labels = batch()
    signal = entering(method, depth, images, labels)
    method.loss(depth, signal, method.through(depth, signal)).backward()
    linear = next(one for one in method.blocks[depth] if isinstance(one, torch.nn.Linear))
    x = (x_of(signal) if depth == 0 else signal["x"]).double()
    x = x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-8)
    h = (x @ linear.weight.detach().double().T + linear.bias.detach().double()).clamp(min=0)
    units = h.shape[-1]
    p = torch.sigmoid(h.square().sum(-1) - units)
    by_goodness = (p - torch.tensor([1.0, 0.0])) / p.numel()
    by_output = 2 * h * by_goodness[..., None]
    mean = 0.9 * 0.5 + 0.1 * h[:, 0].mean(0)
    by_output[:, 0] += 0.03 * 2 / units * (mean - mean.mean()) * 0.1 / len(h)
    if network == "mlp":
        by_output = by_output * (h > 0)
    expected = torch.einsum("bhu,bhx->ux", by_output, x)
    assert torch.allclose(linear.weight.grad.double(), expected, atol=1e-6)
    assert torch.allclose(linear.bias.grad.double(), by_output.sum((0, 1)), atol=1e-6)


def x_of(signal: Signal) -> torch.Tensor:
    """Block 0's input as one tensor."""
    label = signal["label"]
    return torch.cat([label, signal["pixels"].expand(-1, label.shape[1], -1)], dim=-1)


@pytest.mark.parametrize("changes", [{"network": "mlp"}, {"network": "hinton-mlp"}, {"method.label": "appended"}])
def test_pixels_that_are_multiplied_once_give_what_the_block_gives_under_each_label(changes: dict[str, Any]) -> None:
    method = made(small("hinton", {**TINY, **changes})).double()
    images, labels = batch()
    signal = {name: one.double() for name, one in method.streams(images, labels, given(method)).items()}
    block, found = method.blocks[0], []
    for h in (behind_labels(block, signal["pixels"], signal["label"]), along(block, x_of(signal))):
        gradients = torch.autograd.grad((h.square() * (1 + h)).sum(), list(block.parameters()))
        found.append((h, *gradients))
    for shared, plain in zip(*found):
        assert torch.allclose(shared, plain, rtol=1e-10)


def test_the_full_gradient_relu_is_a_relu_that_passes_every_gradient() -> None:
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    y = FullGradientRelu()(x)
    (y * torch.tensor([5.0, 7.0])).sum().backward()
    assert y.tolist() == [0, 3]
    assert x.grad is not None
    assert x.grad.tolist() == [5, 7]


def test_the_mean_activity_follows_the_right_labels_outputs() -> None:
    one = trainer(small("hinton", TINY))
    images, labels = batch()
    place, moment = Place(0, 0, 0, 10, 0.0), Moment(0, 1, 0, 10)
    before = made(small("hinton", TINY))
    signal = {"labels": labels, **before.streams(images, labels, one_step(one, labels))}
    h = before.through(0, signal).on["x"]
    one.step(images[None], labels, place, moment)
    assert torch.allclose(one.method.activity0, 0.45 + 0.1 * h[:, 0].mean(0))


def one_step(trainer: Any, labels: torch.Tensor) -> Any:
    step = given(trainer.method)
    return step._replace(draw=lambda purpose, *shape: trainer.draws((len(labels), *shape), purpose, 0, 0))


def test_hard_wrong_labels_have_the_softmax_shares_of_the_wrong_scores() -> None:
    scores = torch.tensor([[1.0, 9.0, 0.0, 2.0]])
    labels = torch.tensor([1])
    drawn = [int(likely_wrong_labels(torch.tensor([[u]]), labels, scores)) for u in np.linspace(0, 1, 2001)]
    shares = np.exp([1.0, 0.0, 2.0]) / np.exp([1.0, 0.0, 2.0]).sum()
    assert drawn.count(1) == 0
    assert [drawn.count(one) / 2001 for one in (0, 2, 3)] == pytest.approx(shares, abs=2e-3)
    last_is_right = likely_wrong_labels(torch.tensor([[1.0]]), torch.tensor([3]), scores)
    assert int(last_is_right) == 2


def test_hard_wrong_labels_follow_the_teacher() -> None:
    method = made(small("hinton", {"method.wrong": "hard", **TINY}))
    images, labels = batch()
    signal = method.streams(images, labels, given(method))
    asked = signal["label"].argmax(-1)
    scores = method.evidence(images)[1]
    assert asked[:, 0].tolist() == labels.tolist()
    assert asked[:, 1:].tolist() == likely_wrong_labels(torch.full((12, 1), 0.3), labels, scores).tolist()
    assert not (asked[:, 1] == labels).any()


def test_one_by_one_changes_the_layer_whose_turn_it_is_and_no_other_bit() -> None:
    one = trainer(small("hinton", {"method.order": "one-by-one", "network.widths": (7, 6, 5), "optim.ema": 0.9}))
    images, labels = batch()
    learned = []
    for step in range(6):
        before = {name: value.clone() for name, value in one.method.state_dict().items()}
        one.step(images[None], labels, Place(step, 0, step, 6, step / 6), Moment(step, 6, step, 6))
        after = one.method.state_dict()
        changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
        (depth,) = {int(name.split(".")[1]) for name in changed if name.startswith("blocks.")}
        assert changed - {name for name in changed if name.startswith(f"blocks.{depth}.")} == {f"activity{depth}"}
        learned.append(depth)
    assert learned == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("order", ["together", "one-by-one"])
def test_it_learns_the_digits(order: str, tmp_path: Path) -> None:
    config = small(
        "hinton",
        {
            "epochs": 30,
            "optim.lr": 1e-2,
            "network.widths": (200, 200),
            "method.goodness": "mean",
            "method.order": order,
        },
    )
    result = goodness.train(config, out=tmp_path / "run", device="cpu").result
    assert result["reported"]["accuracy"] > 0.9


def test_prediction_sums_the_goodness_of_all_layers_but_the_first_or_of_all(tmp_path: Path) -> None:
    config = small("hinton", {"epochs": 1, "network.widths": (9, 8, 7)})
    images = load_data(config).test.images[:20]
    for predict, first in (("all-but-first", 1), ("all", 0)):
        run = goodness.train(config, out=tmp_path / predict, device="cpu", changes={"method.predict": predict})
        method = run.method()
        evidence = method.evidence(images / 255)
        assert torch.allclose(run.predict(images), evidence[first:].sum(0), rtol=1e-5)


def test_choosing_the_method_brings_its_network_unless_another_is_chosen() -> None:
    assert override(Config(), {"method.threshold": 2.0, "method": "hinton"}).network == HintonMlp()
    for changes in ({"method": "hinton", "network": "mlp"}, {"network": "mlp", "method": "hinton"}):
        assert override(Config(), changes).network == Mlp()


def test_the_command_line_takes_its_settings(tmp_path: Path) -> None:
    chosen = ["--method", "hinton", "--method.threshold", "2", "--network", "mlp", "--network.widths", "30", "20"]
    options = [*chosen, "--epochs", "1", "--device", "cpu"]
    assert main(["train", "demo", *options, "--out", str(tmp_path / "run")]) == 0
    config = goodness.load(tmp_path / "run").config
    assert isinstance(config.method, HintonPart)
    assert config.method.threshold == 2
    assert config.network == Mlp(widths=(30, 20))
    assert main(["train", "demo", *options, "--method.peer", "-1", "--out", str(tmp_path / "b")]) == 2


def test_the_late_linear_schedule_holds_the_peak_for_half_the_time() -> None:
    rates = [learning_rate(step, 8, 2.0, 0.0, "late-linear") for step in range(9)]
    assert rates == pytest.approx([2, 2, 2, 2, 2, 1.5, 1, 0.5, 0])


@pytest.mark.parametrize(
    "changes",
    [
        {"method.peer": -1.0},
        {"method.peer_momentum": 1.0},
        {"method.eps": 0.0},
        {"method.order": "in turn"},
        {"method.label": "behind"},
        {"method.goodness": "max"},
        {"network.widths": ()},
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes)).split(".")[1]):
        small("hinton", changes)


def test_a_network_of_maps_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    config = small("hinton", {"network": "cnn"})
    with pytest.raises(ConfigError, match="cnn"):
        goodness.train(config, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
