"""Each term's gradient norm, against a step that has this term alone; and looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import goodness
from goodness.config import Config
from goodness.health.gradients import term_gradient_norms
from goodness.methods.cumulative.objective import Objective
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import Stepper
from tiny_runs import BLOBS, blobs_at_hand, shrunk

MOMENT = Moment(epoch=0, step=3, total_step=3, total_steps=9, progress=0.0)


@pytest.fixture(autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def situation(name: str) -> tuple[Stepper, Config, torch.Tensor, torch.Tensor]:
    config = shrunk(name, blocks=3)
    torch.manual_seed(0)
    network = Network(config.model, (1, 6, 6), 4, terms=config.objective).double()
    views = torch.rand(3, 8, 1, 6, 6, dtype=torch.float64)
    return Stepper(network, config, torch.float32), config, views, torch.arange(8) % 4


def norm_alone(stepper: Stepper, config: Config, name: str, depth: int, views: torch.Tensor, labels: torch.Tensor):
    """Of the gradient that a backward leaves in the block where its objective has this one term."""
    stepper.objective = Objective(config.objective)
    place = stepper.first(views, labels, MOMENT)
    for _ in range(depth):
        place = stepper.next(place, stepper.loss(place), MOMENT)
    stepper.objective = Objective({name: config.objective[name]})
    stepper.network.zero_grad()
    stepper.loss(place).loss.backward()
    return sum(float(p.grad.square().sum()) for p in stepper.owned[depth] if p.grad is not None) ** 0.5


@pytest.mark.parametrize("name", ["cp-fair", "gated-dense"])
def test_a_terms_norm_is_that_of_a_step_with_this_term_alone(name: str) -> None:
    stepper, config, views, labels = situation(name)
    found = term_gradient_norms(stepper, views, labels, MOMENT)
    assert len(found) == 3
    for depth, norms in enumerate(found):
        assert {"aspects", "block"} <= set(norms)
        for term, norm in norms.items():
            if (depth, term) == (0, "depth"):  # the first block has none to stand in order with
                assert norm == 0
                continue
            expected = norm_alone(stepper, config, term, depth, views, labels)
            assert norm == pytest.approx(expected, rel=1e-9, abs=1e-15), (depth, term)
        assert max(norms.values()) > 0


def test_looking_leaves_no_trace() -> None:
    stepper, _, views, labels = situation("cp-fair")
    network = stepper.network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.register_buffer("seen", torch.zeros(()))
    tokens = network.tokens
    network.tokens = lambda images: (network.seen.add_(1), tokens(images))[1]  # type: ignore[method-assign]
    term_gradient_norms(stepper, views, labels, MOMENT)
    assert network.seen == 0
    assert all(parameter.grad is None for parameter in network.parameters())
    for name, value in before.items():
        torch.testing.assert_close(network.state_dict()[name], value, rtol=0, atol=0)


def test_a_run_learns_the_same_whether_or_not_it_is_looked_at(tmp_path: Path) -> None:
    often, once = (
        goodness.train(shrunk("demo", {**BLOBS, "keep.evaluate_every": every}), out=tmp_path / str(every), device="cpu")
        for every in (1, 3)
    )
    assert often.result["weights_sha256"] == once.result["weights_sha256"]
    looked = ["grad_norm_block" in line["train"]["blocks"][1] for line in once.metrics]
    assert looked == [False, False, True]
    assert all("grad_norm_block" in line["train"]["blocks"][1] for line in often.metrics)
    assert once.metrics[-1]["train"] == often.metrics[-1]["train"]
