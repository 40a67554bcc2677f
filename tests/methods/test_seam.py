"""What holds for every method that comes with the library. A new method joins by a line in `CASES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from small_methods import batch, made, small, trainer

import goodness
from goodness.api import load_data
from goodness.config import Config, from_dict, override, to_dict
from goodness.draws import Draws
from goodness.health.method_audit import audit_method
from goodness.methods.base import Method, Moment
from goodness.parts import methods
from goodness.report.page import write_report
from goodness.runs.run import Run
from goodness.step_context import Moment as StepContext
from goodness.training.loop import Interrupted
from goodness.training.trainer import Trainer
from interruptions import Killed, kill_after, stop_after
from tiny_runs import blobs_at_hand, what_a_run_leaves


class Case(NamedTuple):
    """A method on a tiny network, and what the audit must find."""

    changes: dict[str, Any]
    tag: str = "strict"
    edges: tuple[tuple[int, int], ...] = ()
    uses_labels: bool = True
    readout: bool = False


MLP = {"network": "mlp", "network.widths": (20, 16, 12)}
CNN = {"network": "cnn", "network.channels": (4, 6, 8), "network.pools": (0,)}
GROUPED = {"network.channels": (10, 10, 20)}
ALL_ALONG = {"method.begin": (), "method.end": ()}

CASES = {
    "mono-forward": Case(MLP),
    "hinton": Case({"network": "hinton-mlp", "network.widths": (20, 16, 12)}),
    "local-backprop": Case(CNN),
    "backprop": Case(MLP, tag="joined", edges=((0, 1), (1, 2))),
    "cwc": Case({**GROUPED, "network": "cfse", "network.groups": (), "method.groups": (), **ALL_ALONG}),
    "deeperforward": Case({**CNN, **GROUPED}),
    "scff": Case(
        {"network": "scff-cnn", "network.channels": (6, 8, 10), "network.kernels": (3, 3, 1), "method.features": 64},
        uses_labels=False,
        readout=True,
    ),
    "trifecta": Case({**CNN, "network": "trifecta-cnn"}, tag="overlapping", edges=((0, 1), (1, 2))),
}
VARIANTS = {
    "hinton one by one": ("hinton", {"method.order": "one-by-one", "network": "mlp", "network.widths": (20, 16, 12)}),
    "hinton hard": ("hinton", {"method.wrong": "hard", "network.widths": (20, 16, 12), "optim.ema": 0.9}),
    "backprop on maps": ("backprop", CNN),
}
"""More settings, which run folders must bear too."""

RUNS = {**{name: (name, case.changes) for name, case in CASES.items()}, **VARIANTS}
TINY = {"data": "few-digits", "epochs": 4, "batch": 25, "keep.evaluate_every": 1, "keep.checkpoint_seconds": 0.0}
"""Four epochs of four steps."""


@pytest.fixture(scope="module", autouse=True)
def _few_digits() -> Iterator[None]:
    with blobs_at_hand():
        yield


def config_of(name: str, **changes: Any) -> Config:
    method, own = RUNS[name]
    return override(small(method, {**TINY, **own}), changes).check()


def test_every_method_but_the_papers_is_here() -> None:
    assert set(CASES) == set(methods) - {"cumulative"}


@pytest.mark.parametrize("name", CASES)
def test_the_audit_says_whose_gradients_a_loss_has(name: str) -> None:
    case = CASES[name]
    images, labels = batch(20)

    def make() -> Trainer:
        return trainer(small(name, case.changes))

    views = images.expand(make().method.views, *images.shape)
    found = audit_method(make, views, labels)
    assert (found.tag, found.edges, found.uses_labels) == (case.tag, case.edges, case.uses_labels)
    assert (found.leaks, found.later, found.readout) == ((), (), case.readout)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_audit_finds_what_is_declared(name: str) -> None:
    images, labels = batch(20)
    found = audit_method(lambda: trainer(config_of(name)), images[None], labels)
    assert (found.leaks, found.undeclared) == ((), ())


@pytest.mark.parametrize("name", RUNS)
def test_a_step_can_be_made_in_bfloat16(name: str) -> None:
    config, (images, labels) = config_of(name), batch(20)
    method = made(config)
    half = Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), 1), dtype=torch.bfloat16)
    place, moment = StepContext(0, 0, 0, 10, 0.0), Moment(0, 4, 0, 10)
    said = half.step(images.expand(method.views, *images.shape), labels, place, moment)
    assert all(bool(values.isfinite().all()) for _, values in filter(None, said))


@pytest.mark.parametrize("name", RUNS)
def test_a_configuration_comes_back_from_its_file(name: str) -> None:
    config = config_of(name)
    assert from_dict(to_dict(config)) == config


@pytest.mark.parametrize("name", RUNS)
def test_evidence_is_a_number_per_block_image_and_class(name: str) -> None:
    method = made(config_of(name)).eval()
    images, labels = batch(20)
    with torch.no_grad():
        method.ready([(images, labels)])
        evidence = method.evidence(images)
        assert evidence.shape == (3, 20, 10)
        assert evidence.isfinite().all()
        assert torch.allclose(method.evidence(images, 3), evidence, atol=1e-5)  # some labels at a time
        assert torch.allclose(method.evidence(images[:7]), evidence[:, :7], atol=1e-5)  # each image on its own
        assert torch.allclose(method(images), (method.weights[:, None, None] * evidence).sum(0), atol=1e-4)


@pytest.mark.parametrize("name", RUNS)
def test_a_method_takes_up_its_state_exactly(name: str) -> None:
    config, (images, labels) = config_of(name), batch(20)
    method, other = made(config).eval(), made(override(config, {"seed": 7})).eval()
    with torch.no_grad():
        method.ready([(images, labels)])
        other.load_state_dict(method.state_dict())
        assert torch.equal(method.evidence(images), other.evidence(images))
        assert set(other.state_dict()) == set(method.state_dict())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A finished run, trained once for all tests."""
    known: dict[tuple[Any, ...], Run] = {}

    def run(name: str, **changes: Any) -> Run:
        key = (name, *changes.items())
        if key not in known:
            folder = tmp_path_factory.mktemp("run") / "run"
            known[key] = goodness.train(config_of(name, **changes), out=folder, device="cpu")
        return known[key]

    return run


@pytest.mark.parametrize("name", RUNS)
def test_a_run_predicts_evaluates_and_has_health(name: str, whole: Callable[..., Run], tmp_path: Path) -> None:
    run = whole(name)
    data = load_data(run.config)
    scores = run.predict(data.test.images)
    accuracy = (scores.argmax(1) == data.test.labels).float().mean().item()
    assert run.result["reported"]["accuracy"] == pytest.approx(accuracy)
    assert goodness.evaluate(run.path, device="cpu")["accuracy"] == pytest.approx(accuracy)
    health = goodness.health(run.path, device="cpu")
    assert health["accuracy"] == pytest.approx(accuracy)
    assert health["blocks"][-1]["accuracy"] == pytest.approx(accuracy)
    assert run.result["health"]["test"][-1]["accuracy"] == pytest.approx(accuracy)
    assert len(health["blocks"]) == 3
    method = run.method()
    assert isinstance(method, Method)
    assert torch.allclose(method(data.test.images / 255), scores, atol=1e-4)
    assert write_report([run], tmp_path / "report.html").is_file()


@pytest.mark.parametrize("steps", [5, 11])
@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_resumes_to_the_same_bits(
    name: str, steps: int, whole: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        goodness.train(config_of(name), out=tmp_path / "cut", device="cpu", listen=stop_after(steps))
    resumed = goodness.resume(tmp_path / "cut", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole(name).path)


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_resumes_from_its_last_epoch_to_the_same_bits(
    name: str, whole: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        goodness.train(config_of(name), out=tmp_path / "cut", device="cpu", listen=kill_after(10))
    resumed = goodness.resume(tmp_path / "cut", device="cpu")
    assert what_a_run_leaves(resumed.path) == what_a_run_leaves(whole(name).path)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return run.method("last").state_dict()


@pytest.mark.parametrize("changes", [{"step.mode": "sequential"}, {"step.replay": "on"}])
@pytest.mark.parametrize("name", RUNS)
def test_how_a_step_is_carried_out_changes_nothing(
    name: str, changes: dict[str, Any], whole: Callable[..., Run]
) -> None:
    plain, other = weights(whole(name)), weights(whole(name, **changes))
    for key, value in plain.items():
        if changes.get("step.replay") == "on":  # the optimiser rounds a rate in a tensor to float32
            assert torch.allclose(other[key], value, rtol=1e-4, atol=1e-5), key
        else:
            assert torch.equal(other[key], value), key
