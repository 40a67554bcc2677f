"""DeeperForward: loss, normalisation, shortcuts and dropout against plain twins; it trains like any other method."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import goodness
from goodness.api import load_data, make_config
from goodness.cli import main
from goodness.config import Config
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.health.method_audit import audit_method
from goodness.methods.base import Moment, best_range
from goodness.methods.build import build_method
from goodness.methods.deeperforward import DeeperForward
from goodness.nn.shortcuts import Convolution, Shortcut
from goodness.parts import ImageFacts
from goodness.step_context import Moment as Place
from goodness.training import replay
from goodness.training.local import facts_of
from goodness.training.trainer import Trainer
from interruptions import Killed, kill_after
from tiny_runs import what_a_run_leaves

SMALL: dict[str, Any] = {"data": "digits", "seed": 1, "network.width": 20, "network.stages": 1, "batch": 64}


def config(**changes: Any) -> Config:
    return make_config("deeperforward", {**SMALL, **{name.replace("__", "."): one for name, one in changes.items()}})


def trainer_of(made: Config, seed: int = 1) -> Trainer:
    method = build_method(made, facts_of(load_data(made)), seed)
    return Trainer(method, made.optim, made.step, draws=Draws(torch.device("cpu"), seed))


def batch(count: int = 32) -> tuple[Tensor, Tensor]:
    train = load_data(config()).train
    return train.images[:count].float()[None] / 255, train.labels[:count]


def three_blocks() -> list[nn.Module]:
    """Keeps; adds and keeps, halved; halves its map and concatenates."""
    return [
        Convolution(2, 6, shortcut=Shortcut(keeps=True)),
        Convolution(6, 6, shortcut=Shortcut("add", keeps=True, halves=True)),
        Convolution(6, 6, stride=2, shortcut=Shortcut("concat")),
    ]


# Against plain twins


def test_the_loss_and_its_gradient_are_the_papers() -> None:
    """Cross-entropy on the mean of ReLU over the channels and positions of each class group."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(5, 12, 3, 3, generator=generator, requires_grad=True)
    labels = torch.tensor([0, 5, 2, 3, 3])
    method = DeeperForward([nn.Identity()], 6, (12, 3, 3))
    found = method.loss(0, {"x": maps, "labels": labels}, method.through(0, {"x": maps}))
    (gradient,) = torch.autograd.grad(found, maps)

    total = torch.zeros(())
    for image, label in zip(maps, labels):
        g = torch.stack([image[first : first + 2].clamp(min=0).mean() for first in range(0, 12, 2)])
        total = total - torch.log(torch.exp(g[label]) / torch.exp(g).sum())
    (expected,) = torch.autograd.grad(total / 5, maps)
    torch.testing.assert_close(found, total / 5)
    torch.testing.assert_close(gradient, expected)


def standardised(x: Tensor, groups: int) -> Tensor:
    """Every group of every example to mean 0 and variance 1, written out."""
    out = x.clone()
    for one in out:
        for part in one.chunk(groups):
            part -= part.mean()
            part /= (part.square().mean() + 1e-5).sqrt()
    return out


@torch.no_grad()
def test_shortcuts_join_as_in_a_forward_written_by_hand() -> None:
    blocks = three_blocks()
    method, images = DeeperForward(blocks, 3, (2, 8, 8)), torch.rand(4, 2, 8, 8)
    found = [out for _, _, out in method.walk(method.present(images, torch.zeros(4, 1)))]

    a = F.relu(blocks[0](standardised(images, 1)))
    x0 = standardised(a, 3)
    b = F.relu(blocks[1](x0))
    x1 = standardised(b, 3) + x0
    side = torch.stack([x1[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]).mean(dim=0)
    c = F.relu(blocks[2](x1))
    halves = standardised(c, 3)
    x2 = torch.cat([torch.cat([halves[:, k : k + 2], side[:, k : k + 2]], dim=1) for k in (0, 2, 4)], dim=1)

    for out, x, h in zip(found, (x0, x1, x2), (a, b, c)):
        torch.testing.assert_close(out.on["x"], x, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(out.speaks, h.reshape(4, 3, -1).mean(dim=2))
    torch.testing.assert_close(found[0].on["side"], x0, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1].on["side"], side, atol=1e-5, rtol=1e-4)
    assert "side" not in found[2].on
    assert x2.shape == (4, 12, 4, 4)


def test_what_is_handed_on_tells_nothing_of_the_goodness() -> None:
    method = trainer_of(config()).method
    images = batch()[0][0]
    first = next(iter(method.walk(method.present(images, torch.zeros(32, 1)))))[2]
    handed = first.on["x"].reshape(32, 10, -1).mean(dim=2)
    torch.testing.assert_close(handed, torch.zeros(32, 10), atol=1e-5, rtol=0)


def test_dropout_drops_its_share_by_drawn_masks_and_none_in_evidence() -> None:
    made = config(method__dropout=0.4)
    trainer = trainer_of(made)
    views, labels = batch()
    seen: list[tuple[Tensor, Tensor]] = []
    through = trainer.method.through

    def watched(depth: int, s: dict[str, Tensor]) -> Any:
        out = through(depth, s)
        seen.append((s["kept"], out.on["x"]))
        return out

    trainer.method.through = watched  # type: ignore[method-assign]
    trainer.step(views, labels, Place(0, 0, 0, 9, 0.0), Moment(0, 1, 0, 9))
    assert len(seen) == 5
    for kept, _ in seen:
        assert 0.57 < float(kept.float().mean()) < 0.63
    assert not torch.equal(seen[1][0], seen[2][0])
    evaluated = trainer.evaluated()
    assert torch.equal(evaluated.evidence(views[0]), evaluated.evidence(views[0]))


def test_the_best_range_is_the_one_that_trying_all_finds() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        evidence, labels = torch.randn(5, 40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
        evidence[:, torch.arange(40), labels] += torch.rand(5, 1, generator=generator)

        def right(begin: int, end: int, evidence: Tensor = evidence, labels: Tensor = labels) -> int:
            return int((evidence[begin:end].sum(dim=0).argmax(dim=1) == labels).sum())

        every = {(b, e): right(b, e) for b, e in itertools.combinations(range(6), 2)}
        weights = best_range(evidence, labels)
        chosen = weights.nonzero().squeeze(1).tolist()
        assert chosen == list(range(chosen[0], chosen[-1] + 1))
        assert every[chosen[0], chosen[-1] + 1] == max(every.values())


# The authors' networks


def test_the_17_layer_network_has_the_authors_shapes() -> None:
    made = goodness.preset("deeperforward")
    facts = ImageFacts((3, 32, 32), 10, (0.5,) * 3, (0.25,) * 3)
    method = build_method(made, facts, 1)
    assert isinstance(method, DeeperForward)
    widths = [100] * 5 + [200] * 4 + [400] * 4 + [800] * 4
    sides = [32] * 5 + [16] * 4 + [8] * 4 + [4] * 4
    assert method.shapes == [(width, side, side) for width, side in zip(widths, sides)]
    assert sum(one.numel() for one in method.parameters()) == 9 * (3 * 100 + 4 * sum(w**2 for w in set(widths)))


@pytest.mark.parametrize("side", [8, 28])
def test_the_network_takes_maps_that_do_not_halve_evenly(side: int) -> None:
    facts = ImageFacts((1, side, side), 10, (0.5,), (0.25,))
    method = build_method(config(network__stages=4, network__width=10), facts, 1)
    assert method.evidence(torch.rand(2, 1, side, side)).shape == (17, 2, 10)


def test_without_shortcuts_the_network_is_a_chain_for_any_method() -> None:
    made = config(network__shortcuts=False, network__stages=2, method="mono-forward")
    assert trainer_of(made).method.evidence(torch.rand(2, 1, 8, 8)).shape == (9, 2, 10)


# A whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> goodness.Run:
    out = tmp_path_factory.mktemp("deeperforward") / "run"
    return goodness.train(config(epochs=6, deterministic=True), out=out, device="cpu")


def test_a_few_epochs_on_digits_reach_90_percent(run: goodness.Run) -> None:
    assert run.result["reported"]["accuracy"] >= 0.9


def test_the_blocks_that_predict_were_chosen_on_validation_images(run: goodness.Run) -> None:
    method, val = run.method(), load_data(run.config).val
    evidence = method.evidence(val.images.float() / 255).detach()
    assert torch.equal(method.weights, best_range(evidence, val.labels))


def test_evaluation_health_and_report_of_the_run(run: goodness.Run, tmp_path: Path) -> None:
    again = goodness.evaluate(run.path, device="cpu")
    assert again["accuracy"] == pytest.approx(run.result["reported"]["accuracy"])
    assert len(run.result["health"]["test"]) == 5
    assert main(["health", str(run.path), "--device", "cpu"]) == 0
    assert main(["report", str(run.path), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_fused_steps_end_in_the_bits_of_sequential_ones(run: goodness.Run, tmp_path: Path) -> None:
    other = goodness.train(run.config, out=tmp_path / "run", device="cpu", changes={"step.mode": "sequential"})
    assert what_a_run_leaves(other.path) == what_a_run_leaves(run.path)


def test_replayed_steps_end_in_the_bits_of_steps_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(epochs=2, deterministic=True, step__replay="on")
    notes: list[Any] = []
    replayed = goodness.train(made, out=tmp_path / "replayed", device="cpu", listen=notes.append)
    assert not [event for event in notes if event["event"] == "note"]  # dropout is no reason to refuse
    monkeypatch.setattr(replay, "WARM_STEPS", 10**9)
    as_it_is = goodness.train(made, out=tmp_path / "as it is", device="cpu")
    assert what_a_run_leaves(replayed.path) == what_a_run_leaves(as_it_is.path)


def test_a_run_killed_and_resumed_ends_in_the_same_bits(run: goodness.Run, tmp_path: Path) -> None:
    often = {"keep.checkpoint_steps": 5}
    with pytest.raises(Killed):
        goodness.train(run.config, out=tmp_path / "run", device="cpu", changes=often, listen=kill_after(38))
    resumed = goodness.resume(tmp_path / "run", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(run.path)


def test_the_audit_finds_strict_locality() -> None:
    views, labels = batch()
    audit = audit_method(lambda: trainer_of(config()), views, labels)
    assert (audit.tag, audit.later, audit.uses_labels, audit.readout) == ("strict", (), True, False)


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"network.width": 15}, "block 0"),
        ({"network.width": 0}, "network.width"),
        ({"method.dropout": 1.0}, "method.dropout"),
        ({"network": "tiny-cnn", "network.channels": (10, 20, 45, 40)}, "block 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(changes: dict[str, Any], culprit: str, tmp_path: Path) -> None:
    kept = {name: one for name, one in SMALL.items() if "network" not in changes or not name.startswith("network")}
    with pytest.raises(ConfigError, match=culprit):
        goodness.train("deeperforward", out=tmp_path / "run", device="cpu", changes={**kept, **changes})
