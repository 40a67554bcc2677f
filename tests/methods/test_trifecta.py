"""Trifecta: its loss as in the paper, overlapping units with an optimiser each, and whole runs on digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import goodness
from goodness.config import Config, Step, override
from goodness.data.augment import augment, recipes, uniforms_needed
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.methods.base import Moment
from goodness.methods.base import Step as Given
from goodness.methods.build import build_method
from goodness.methods.trifecta import Trifecta
from goodness.nn.trifecta_cnn import TrifectaCnn
from goodness.parts import ImageFacts
from goodness.presets import preset
from goodness.report.page import write_report
from goodness.step_context import Moment as Place
from goodness.training.trainer import Trainer
from recorded_steps import require_equal, three_ways
from tiny_runs import blobs_at_hand, what_a_run_leaves

FACTS = ImageFacts((1, 8, 8), 4, (0.0,), (1.0,))
TINY: dict[str, Any] = {"network": TrifectaCnn(channels=(6, 8, 8, 8), pools=(1,)), "augment": "none"}
RUN: dict[str, Any] = {**TINY, "data": "few-digits", "epochs": 3, "batch": 20, "deterministic": True}


def small(**changes: Any) -> Config:
    return override(preset("trifecta"), {**TINY, **changes}).check()


def trainer_of(config: Config, options: Step | None = None) -> Trainer:
    method = build_method(config, FACTS, 1)
    return Trainer(method, config.optim, options or config.step, draws=Draws(torch.device("cpu"), 1))


def batch(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(3)
    return torch.rand(1, n, 1, 8, 8, generator=draws), torch.arange(n) % 4


def steps(trainer: Trainer, begin: int, end: int) -> None:
    views, labels = batch()
    for step in range(begin, end):
        trainer.step(views, labels, Place(0, step, step, 10, 0.0), Moment(0, 1, step, 10))


@pytest.mark.parametrize(("step", "unit"), [(0, (0, 1)), (0, (2, 3)), (1, (0,)), (1, (1, 2))])
def test_loss_and_gradients_of_a_unit_are_the_papers(step: int, unit: tuple[int, ...]) -> None:
    """softplus(-alpha (g+ - g-)) of the unit's last block, through both of its blocks and no further."""
    trainer = trainer_of(small())
    method: Trifecta = trainer.method  # type: ignore[assignment]
    views, labels = batch()
    given = Given(lambda purpose, k: trainer.draws((12, k), purpose, 0, step), trainer.teacher, None)
    wrong = method.streams(views[0], labels, given)["asked"][:, 1]
    assert not bool((wrong == labels).any())
    both = torch.cat([views[0], views[0]])
    x = torch.cat([both, method.parts[0](torch.cat([labels, wrong])).reshape(-1, 1, 8, 8)], dim=1)
    for block in method.blocks[: unit[0]]:
        x = block(x).detach()
    for depth in unit:
        x = method.blocks[depth](x)
    g = x.square().mean(dim=(1, 2, 3))
    loss = torch.log1p(torch.exp(-4.0 * (g[:12] - g[12:]))).mean()
    theirs = trainer.parameters(unit)
    wanted = torch.autograd.grad(loss, theirs)
    found: dict[tuple[int, ...], Any] = {}

    def look(turns: list, *_: object) -> None:
        for turn in turns:
            found[turn.unit] = turn.loss.detach(), torch.autograd.grad(turn.loss, trainer.parameters(turn.unit))

    trainer.learn = look  # type: ignore[method-assign]
    steps(trainer, step, step + 1)
    torch.testing.assert_close(found[unit][0], loss.detach())
    for mine, other in zip(found[unit][1], wanted):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_pairs_shift_by_one_block_every_other_step() -> None:
    method = trainer_of(small()).method
    even, odd = (method.plan(Moment(0, 1, step, 10)).units for step in (4, 5))
    assert even == ((0, 1), (2, 3))
    assert odd == ((0,), (1, 2))
    of_three = trainer_of(small(network=TrifectaCnn(channels=(4, 4, 4), pools=()))).method
    assert [of_three.plan(Moment(0, 1, step, 10)).units for step in (0, 1)] == [((0, 1),), ((0,), (1, 2))]
    alone = trainer_of(small(**{"method.overlap": False})).method
    assert {alone.plan(Moment(0, 1, step, 10)).units for step in (0, 1)} == {((0,), (1,), (2,), (3,))}


def test_a_block_of_two_units_has_two_optimiser_states() -> None:
    trainer = trainer_of(small())
    steps(trainer, 0, 4)
    assert set(trainer.optimisers) == {(0, 1), (2, 3), (0,), (1, 2)}
    weight = trainer.method.blocks[1][1].weight
    first, second = (trainer.optimisers[unit].state[weight] for unit in ((0, 1), (1, 2)))
    assert first["step"] == second["step"] == 2
    assert not torch.equal(first["exp_avg"], second["exp_avg"])


def test_who_learns_at_a_step_and_who_rests() -> None:
    trainer = trainer_of(small())
    for step, resting in ((0, ()), (1, (3,))):
        before = [[one.clone() for one in own] for own in trainer.owned]
        steps(trainer, step, step + 1)
        moved = [not all(map(torch.equal, a, b)) for a, b in zip(before, trainer.owned)]
        assert moved == [depth not in resting for depth in range(4)]


@pytest.mark.parametrize("sam", [0.0, 0.05])
def test_one_backward_for_all_units_equals_one_after_another(sam: float) -> None:
    config = small(**{"optim.sam": sam})
    fused, sequential = (trainer_of(config, Step(mode=mode)) for mode in ("fused", "sequential"))
    for trainer in (fused, sequential):
        steps(trainer, 0, 5)
    for (name, a), b in zip(fused.method.state_dict().items(), sequential.method.state_dict().values()):
        assert torch.equal(a, b), name


def test_it_reads_digits_in_seconds(tmp_path: Path) -> None:
    network = TrifectaCnn(channels=(16, 16, 32), pools=(1,))
    run = goodness.train("trifecta", data="digits", epochs=8, batch=64, augment="none", network=network,
                         device="cpu", out=tmp_path)  # fmt: skip
    assert run.accuracy > 0.75


def test_a_run_cut_within_an_epoch_ends_as_one_that_was_not_and_can_be_read(tmp_path: Path) -> None:
    with blobs_at_hand():
        whole = goodness.train("trifecta", **RUN, device="cpu", out=tmp_path / "whole")
        cut = tmp_path / "cut"

        def stop(event: dict[str, Any]) -> None:
            if event["event"] == "checkpoint" and event["step"] == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            goodness.train("trifecta", **RUN, device="cpu", out=cut, listen=stop, changes={"keep.checkpoint_steps": 3})
        resumed = goodness.resume(cut, device="cpu")
        assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole.path)
        assert goodness.evaluate(resumed.path)["accuracy"] == resumed.accuracy
        assert len(goodness.health(resumed)["blocks"]) == 4
        assert write_report([resumed], tmp_path / "page.html", figures=False, device="cpu").is_file()


def test_recorded_steps_end_as_steps_that_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with blobs_at_hand():
        weights, recordings = three_ways("trifecta", RUN, tmp_path, monkeypatch)
    assert recordings == 2
    require_equal(weights)


@pytest.mark.parametrize(
    "changes",
    [{"method.alpha": 0.0}, {"network": TrifectaCnn(channels=())}, {"network": TrifectaCnn(channels=(8, 0))}],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        small(**changes)


def test_rows_of_numbers_do_not_fit_its_network() -> None:
    with pytest.raises(ConfigError, match="mlp"):
        TrifectaCnn().build((5,), ImageFacts((5,), 2, (0.0,), (1.0,)), small())


def test_the_recipe_turns_images_by_at_most_fifteen_degrees() -> None:
    recipe, images = recipes["crop-rotate"], torch.zeros(2, 1, 33, 33, dtype=torch.uint8)
    images[:, 0, 16, 4] = 255  # twelve pixels left of the centre
    still = 4.5 / 9  # no shift
    views = augment(images, torch.tensor([[still, still, 0.5], [still, still, 1.0]]), recipe)
    assert uniforms_needed(recipe) == 3
    assert views[0, 0, 16, 4] == 1
    row, column = (int(one) for one in views[1, 0].nonzero()[0])
    assert (row - 16, 16 - column) == (pytest.approx(12 * 0.2588, abs=1), pytest.approx(12 * 0.9659, abs=1))
