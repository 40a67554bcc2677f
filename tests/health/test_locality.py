"""The locality audit: silent on every preset in both histories, loud on networks and terms that leak on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from goodness.config import Config, Stem, override
from goodness.health.locality import audit_locality
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.nn.network import Network
from goodness.parts import Term
from goodness.presets import preset
from goodness.step_context import Moment
from goodness.training.step import Stepper

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def shrunk(name: str, **changes: Any) -> Config:
    """A preset with every size cut down, everything else as it is."""
    config = override(
        preset(name),
        {
            "model.width": 16,
            "model.block.heads": 2,
            "model.block.hidden": 16,
            "model.stem": Stem(channels=8),
            **changes,
        },
    )
    if "supcon" in config.objective:
        config = override(config, {"objective.supcon.queue": 16, "objective.supcon.dimensions": 8})
    return config.check()


def network_for(config: Config) -> Network:
    torch.manual_seed(0)
    return Network(config.model, (1, 8, 8), 4, terms=config.objective)


FIRST = ["gamma0-dense", "lcff-dense", "cp-fair-dense", "gated-dense", "mgc-dense", "cp-fair", "demo"]
"""One preset of each kind; tests/test_every_preset.py has them all, under their own history."""


def images() -> Tensor:
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def one_step(network: Network, config: Config) -> None:
    """So that queues are filled and thresholds moved."""
    moment = Moment(epoch=0, step=0, total_step=1, total_steps=4, progress=0.0)
    Stepper(network, config)(images().expand(3, -1, -1, -1, -1), LABELS, moment)


@pytest.mark.parametrize("history", ["sum", "decay"])
@pytest.mark.parametrize("name", FIRST)
def test_no_preset_leaks_a_gradient_across_blocks(name: str, history: str) -> None:
    config = shrunk(name, history=history)
    network = network_for(config)
    one_step(network, config)
    assert audit_locality(network, config, images(), LABELS) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"eta": 0.0},
        {"model.label": "add", "model.label_at": "first"},
        {"model.activation": "none", "model.normalise": False},
        {"model.activation": "triangle", "model.block.memory": 4, "optim.sam": 0.05},
        {"model.block.experts": 4, "model.block.top_k": 2, "objective.balance.weight": 0.01},
        {"negatives": "random"},
        {"negatives": "online", "negatives.once": True},
        {"objective.supcon.label_free": True},
        {"rule": "gated", "rule.source": "previous"},
    ],
)
def test_no_option_leaks_a_gradient_across_blocks(changes: dict[str, Any]) -> None:
    config = shrunk("cp-fair-dense", **changes)
    assert audit_locality(network_for(config), config, images(), LABELS) == []


def test_the_audit_changes_no_weight() -> None:
    config = shrunk("cp-fair-dense")
    network = network_for(config)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    audit_locality(network, config, images(), LABELS)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_tokens_handed_on_with_their_graph_are_found_in_every_earlier_block() -> None:
    config = shrunk("gamma0-dense")
    network = network_for(config)
    network.hand_on = torch.relu  # forgets to detach
    leaks = audit_locality(network, config, images(), LABELS)
    reached = {(leak.loss_of_block, int(leak.parameter.split(".")[1])) for leak in leaks if "blocks" in leak.parameter}
    assert reached == {(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}
    assert any(leak.parameter.startswith("stem.") and leak.loss_of_block == 3 for leak in leaks)
    assert all(leak.largest_gradient > 0 for leak in leaks)


@pytest.mark.parametrize("history", ["sum", "decay"])
def test_a_ledger_that_keeps_graphs_is_found_under_a_cumulative_rule(
    history: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PerStream, "detach", lambda self: self)
    config = shrunk("lcff-dense", history=history)
    leaks = audit_locality(network_for(config), config, images(), LABELS)
    assert {leak.loss_of_block for leak in leaks} == {1, 2, 3}
    assert any(leak.parameter.startswith("blocks.0.") for leak in leaks)


@dataclass(frozen=True, kw_only=True)
class Whisper(Term):
    """A term that remembers the last block's goodness with its graph, and adds it to this block's loss."""

    def module(self, width: int, aspects: int) -> None:
        WHISPERED.clear()

    def loss(self, facts: Facts, module: None) -> Tensor:
        heard = WHISPERED[-1] if WHISPERED else facts.goodness.pos.new_zeros(())
        WHISPERED.append(facts.goodness.pos.mean())
        return facts.goodness.pos.mean() + heard


WHISPERED: list[Tensor] = []


def test_a_term_that_whispers_between_blocks_is_found() -> None:
    config = shrunk("gamma0-dense")
    config = override(config, {"objective.block": Whisper()})
    leaks = audit_locality(network_for(config), config, images(), LABELS)
    reached = {(leak.loss_of_block, leak.parameter.split(".")[1]) for leak in leaks if "blocks" in leak.parameter}
    assert reached == {(1, "0"), (2, "1"), (3, "2")}


def test_each_blocks_loss_does_reach_its_own_parameters() -> None:
    """The audit's silence would mean little if nothing were reached at all."""
    config = shrunk("cp-fair-dense")
    network = network_for(config)
    stepper = Stepper(network, override(config, {"step.mode": "sequential", "optim.clip": 0.0}))
    moment = Moment(epoch=0, step=0, total_step=0, total_steps=1, progress=0.0)
    stepper(images().expand(3, -1, -1, -1, -1), LABELS, moment)
    untouched = {name for name, p in network.named_parameters() if p.grad is None or not bool((p.grad != 0).any())}
    assert untouched == set()


def test_an_audit_of_nothing_proves_nothing() -> None:
    config = shrunk("gamma0-dense")
    network = Network(config.model, (3, 8, 8), 4, terms=config.objective)
    images, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    assert audit_locality(network, config, images, labels) == []
    for bad, theirs in (
        (images[:0], labels[:0]),
        (images * torch.nan, labels),
        (images[:, :1], labels),
        (images, labels[:2]),
    ):
        with pytest.raises(ValueError, match="at least two finite images"):
            audit_locality(network, config, bad, theirs)
    with pytest.raises(ValueError, match="lacks what term"):
        audit_locality(Network(config.model, (3, 8, 8), 4), config, images, labels)
    with pytest.raises(ValueError, match="frozen"):
        audit_locality(network.requires_grad_(False), config, images, labels)
