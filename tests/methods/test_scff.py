"""Self-contrastive learning: pairs and loss as in the paper, blocks in turn at their own rates, runs on digits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goodness
from goodness.config import Config, Step, override
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.methods.base import Moment
from goodness.methods.build import build_method
from goodness.methods.scff import Scff, ScffPart
from goodness.nn.networks import Mlp, halves
from goodness.nn.scff_cnn import ScffCnn, Triangle
from goodness.parts import ImageFacts
from goodness.presets import preset
from goodness.report.page import write_report
from goodness.step_context import Moment as Place
from goodness.training.trainer import Trainer
from recorded_steps import require_equal, three_ways
from tiny_runs import blobs_at_hand, what_a_run_leaves

FACTS = ImageFacts((1, 8, 8), 4, (0.0,), (1.0,))
TINY: dict[str, Any] = {"network": ScffCnn(channels=(6, 8, 10), kernels=(3, 3, 1)), "augment": "none"}
RUN: dict[str, Any] = {**TINY, "data": "few-digits", "epochs": 6, "batch": 20, "deterministic": True}
CHEAP = {"method.features": 64}


def small(**changes: Any) -> Config:
    return override(preset("scff"), {**TINY, **CHEAP, **changes}).check()


def trainer_of(config: Config, options: Step | None = None) -> Trainer:
    method = build_method(config, FACTS, 1)
    return Trainer(method, config.optim, options or config.step, draws=Draws(torch.device("cpu"), 1))


def batch(n: int = 5) -> tuple[Tensor, Tensor]:
    return torch.rand(1, n, 1, 8, 8, generator=torch.Generator().manual_seed(3)), torch.arange(n) % 4


def standardised(x: Tensor) -> Tensor:
    """Every example less its mean, over its deviation."""
    flat = x.flatten(1)
    return ((flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + 1e-5).sqrt()).reshape(
        x.shape
    )


def of_pairs(block: nn.Sequential, one: Tensor, other: Tensor) -> Tensor:
    """The paper's layer on images laid beside each other: both halves through the same filters, then added. The bias,
    which stands for both, is added once."""
    pair, conv, width = standardised(torch.cat([one, other], dim=1)), block[0], one.shape[1]
    bias = conv.bias.reshape(1, -1, 1, 1)
    return conv(pair[:, :width]) + conv(pair[:, width:]) - bias


def of_paper(method: Scff, images: Tensor, depth: int) -> Tensor:
    """The loss of a block, written as in the paper; blocks 0 and 2 pair anew."""
    positive = negative = images
    loss = torch.zeros(())
    for d, block in enumerate(method.blocks[: depth + 1]):
        assert isinstance(block, nn.Sequential)
        if d in (0, 2):
            shifted = torch.cat([positive[-1:], positive[:-1]])
            a, b = of_pairs(block, positive, positive), of_pairs(block, positive, shifted)
        else:
            a, b = block[0](standardised(positive)), block[0](standardised(negative))
        high, low = a.relu().pow(2).mean(1), b.relu().pow(2).mean(1)
        part = method.part
        loss = (
            torch.log1p(torch.exp(part.positive[d] - high)).mean()
            + torch.log1p(torch.exp(low - part.negative[d])).mean()
            + part.penalty[d] * high.pow(2).sum(dim=(1, 2)).sqrt().mean()
        )
        positive, negative = (block[1:](one).detach() for one in (a, b))
    return loss


TURNS = [(0, 0), (25, 1), (80, 2)]
"""Steps of a hundred, and who learns then: turns of 6, 4 and 21 epochs."""


@pytest.mark.parametrize(("step", "depth"), TURNS)
def test_loss_and_gradients_of_a_block_are_the_papers(step: int, depth: int) -> None:
    trainer, (views, labels) = trainer_of(small()), batch()
    wanted = of_paper(trainer.method, views[0], depth)  # type: ignore[arg-type]
    theirs = torch.autograd.grad(wanted, trainer.owned[depth])
    found: list[Tensor] = []

    def look(turns: list, *_: object) -> None:
        (turn,) = turns
        found.extend([turn.loss.detach(), *torch.autograd.grad(turn.loss, trainer.owned[depth])])

    trainer.learn = look  # type: ignore[method-assign]
    trainer.step(views, labels, Place(0, step, step, 100, 0.0), Moment(0, 1, step, 100))
    for mine, other in zip(found, [wanted.detach(), *theirs], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_the_triangle_keeps_what_is_above_the_mean_of_the_channels() -> None:
    x = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 3, 1, 1)
    assert Triangle()(x).flatten().tolist() == [0.0, 0.0, 3.0]


def test_goodness_is_taken_in_front_of_activation_and_pooling() -> None:
    body, rest = halves(build_method(small(), FACTS, 1).blocks[0])
    assert [type(layer) for layer in body] == [nn.Conv2d]
    assert [type(layer) for layer in rest] == [Triangle, nn.MaxPool2d]
    whole, nothing = halves(nn.Linear(2, 2))
    assert isinstance(whole, nn.Linear)
    assert isinstance(nothing, nn.Identity)


def test_blocks_take_turns_at_rates_of_their_own() -> None:
    config = small(**{"method.turns": (2.0, 1.0, 1.0), "method.fall": (0.25, 1.0), "method.rates": (1.0, 0.2, 0.02)})
    trainer = trainer_of(config)
    plans = [trainer.method.plan(Moment(0, 1, step, 8)) for step in range(8)]
    assert [plan.units for plan in plans] == [((0,),)] * 4 + [((1,),)] * 2 + [((2,),)] * 2
    rates = [plan.rates[0] for plan in plans if plan.rates]
    assert rates == pytest.approx([1.0, 0.25**0.25, 0.25**0.5, 0.25**0.75, 0.2, 0.2, 0.02, 0.02])
    views, labels = batch()
    for step, depth in ((0, 0), (5, 1), (7, 2)):
        before = [[one.clone() for one in own] for own in trainer.owned]
        trainer.step(views, labels, Place(0, step, step, 8, 0.0), Moment(0, 1, step, 8))
        moved = [not all(map(torch.equal, a, b)) for a, b in zip(before, trainer.owned)]
        assert moved == [other == depth for other in range(3)]
        assert trainer.optimisers[(depth,)].param_groups[0]["lr"] == pytest.approx(config.optim.lr * rates[step])


def test_labels_have_no_part_in_learning() -> None:
    views, labels = batch()
    trainers = [trainer_of(small()) for _ in range(2)]
    for trainer, given in zip(trainers, (labels, (labels + 1) % 4)):
        for step, _ in TURNS:
            trainer.step(views, given, Place(0, step, step, 100, 0.0), Moment(0, 1, step, 100))
    states = [trainer.method.state_dict() for trainer in trainers]
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values()))


def test_evidence_of_an_image_does_not_depend_on_its_neighbours() -> None:
    method = build_method(small(), FACTS, 1).eval()
    images, labels = batch(12)[0][0], torch.arange(12) % 4
    assert isinstance(method, Scff)
    method.ready([(images, labels)])
    with torch.no_grad():
        torch.testing.assert_close(method.evidence(images)[:, 3:5], method.evidence(images[3:5]))


@pytest.mark.parametrize("sam", [0.0, 0.05])
def test_one_backward_equals_one_after_another(sam: float) -> None:
    views, labels = batch()
    config = small(**{"optim.sam": sam})
    fused, sequential = (trainer_of(config, Step(mode=mode)) for mode in ("fused", "sequential"))
    for trainer in (fused, sequential):
        for step, _ in TURNS:
            trainer.step(views, labels, Place(0, step, step, 100, 0.0), Moment(0, 1, step, 100))
    for (name, a), b in zip(fused.method.state_dict().items(), sequential.method.state_dict().values()):
        assert torch.equal(a, b), name


def digits(network: Any, folder: Path, **changes: Any) -> float:
    given = {"epochs": 8, "batch": 50, "augment": "none", "data": "digits", "network": network, **changes}
    return goodness.train("scff", **given, device="cpu", out=folder, changes={"method.features": 256}).accuracy


def test_it_reads_digits_in_seconds_and_better_than_untrained_blocks(tmp_path: Path) -> None:
    network = ScffCnn(channels=(12, 16), kernels=(3, 3))
    trained = digits(network, tmp_path / "trained")
    untrained = digits(network, tmp_path / "untrained", **{"epochs": 1, "batch": 1000, "optim": SLOW})
    assert trained > 0.95
    assert trained > untrained


SLOW = override(preset("scff").optim, {"lr": 1e-9})


def test_it_runs_on_layers_that_know_no_pixels(tmp_path: Path) -> None:
    assert digits(Mlp(widths=(64, 64)), tmp_path, epochs=3) > 0.8


def test_a_run_cut_within_an_epoch_ends_as_one_that_was_not_and_can_be_read(tmp_path: Path) -> None:
    with blobs_at_hand():
        whole = goodness.train("scff", **RUN, device="cpu", out=tmp_path / "whole", changes=CHEAP)
        cut = tmp_path / "cut"

        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "checkpoint" and (event["epoch"], event["step"]) == (1, 1):
                raise KeyboardInterrupt

        often = {**CHEAP, "keep.checkpoint_steps": 3}
        with pytest.raises(KeyboardInterrupt):
            goodness.train("scff", **RUN, device="cpu", out=cut, listen=stop, changes=often)
        resumed = goodness.resume(cut, device="cpu")
        assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole.path)
        assert goodness.evaluate(resumed.path)["accuracy"] == resumed.accuracy
        assert len(goodness.health(resumed)["blocks"]) == 3
        assert write_report([resumed], tmp_path / "page.html", figures=False, device="cpu").is_file()


def test_recorded_steps_end_as_steps_that_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with blobs_at_hand():
        given = {**RUN, "method": small().method, "network": TINY["network"]}
        weights, recordings = three_ways("scff", given, tmp_path, monkeypatch)
    assert recordings == 3
    require_equal(weights)


@pytest.mark.parametrize(
    "changes",
    [
        {"method.turns": (1.0, 0.0)},
        {"method.rates": ()},
        {"method.fall": (-1.0,)},
        {"method.positive": ()},
        {"method.features": 0},
        {"network": ScffCnn(channels=())},
        {"network": ScffCnn(channels=(4, 4), kernels=())},
        {"network": ScffCnn(channels=(4,), kernels=(2,))},
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        small(**changes)


def test_images_too_small_for_the_network_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    network = ScffCnn(channels=(4, 4, 4, 4), kernels=(3, 3, 3, 3))
    with pytest.raises(ConfigError, match="block 3"):
        digits(network, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_copy_of_the_method_shares_nothing() -> None:
    method = build_method(small(), FACTS, 1)
    twin = copy.deepcopy(method)
    assert isinstance(twin, Scff)
    assert twin.part == ScffPart(**{name: getattr(small().method, name) for name in vars(small().method)})
    assert not {id(one) for one in method.parameters()} & {id(one) for one in twin.parameters()}
