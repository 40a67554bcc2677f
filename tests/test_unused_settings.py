"""Dead weight is named: what is reported changes nothing, what is not reported counts, no field goes unread."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import goodness
from goodness import api
from goodness.api import load_data
from goodness.config import Config, Readout, override
from goodness.durable import write_json
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive, Ramp
from goodness.methods.cumulative.negatives import Online, Prefix, Random, Teacher
from goodness.methods.cumulative.supcon import SupCon
from goodness.methods.cumulative.terms import Aspects, Block, Current
from goodness.nn.hybrid import Hybrid
from goodness.nn.plain_cnn import ConvStages
from goodness.presets import preset
from goodness.runs.run_folder import RunFolder
from goodness.training.backprop import Backprop
from goodness.training.loop import Loop, Position
from goodness.training.stage1 import Stage1, build_network
from goodness.training.stage2 import Stage2
from goodness.unused_settings import idle_facts, idle_settings
from interruptions import Killed, kill_after
from tiny_runs import BLOBS, PAPERS_METHOD, blobs_at_hand, shrunk

CPU = torch.device("cpu")
NOWHERE = RunFolder(Path("/nowhere"), None)
SHARPNESS = "objective.aspects.lambdas[2]"


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def small(name: str, changes: Mapping[str, Any] | None = None) -> Config:
    """A preset with every size cut down, three blocks, on made-up data of four classes: two epochs of one step."""
    return shrunk(name, {**BLOBS, "epochs": 2, "batch": 50, **(changes or {})}, blocks=3)


def plain(changes: Mapping[str, Any] | None = None) -> Config:
    """A configuration of no preset in which everything set has an effect: aspects with memory, and the block loss."""
    base = {"preset": "custom", "model.block.memory": 3, "negatives": Teacher(), "optim.ema": 0.5, "readout": Readout()}
    base |= {"objective.aspects": Aspects()}
    return small("demo", {**base, **(changes or {})})


def reported(config: Config, classes: int | None = None) -> set[str]:
    return {idle.field for idle in idle_settings(config, classes)}


def trained(config: Config) -> tuple[Loop, list[list[float]]]:
    """A run's stage after all its epochs, with no folder to write to, and every epoch's losses, block by block."""
    with torch.random.fork_rng(devices=[]):
        kind = Backprop if config.trainer == "backprop" else Stage1
        stage = kind(config, load_data(config), NOWHERE, device=CPU, dtype=torch.float32)
        losses = []
        for epoch in range(config.epochs):
            stage.position, stage.sums = Position(epoch=epoch), []
            stage.train_epoch()
            losses.append([float(sums["values"][sums["names"].index("loss")]) for sums in stage.sums])
    return stage, losses


def outcome(config: Config) -> tuple[list[list[float]], bytes]:
    """All that training and prediction come to: the losses of every epoch and the scores on the test split."""
    stage, losses = trained(config)
    return losses, stage.examine(stage.readings(stage.data.test.images), stage.data.test, "test")[0].numpy().tobytes()


# What is reported changes nothing


ONE_BLOCK = {"model.blocks": 1}
NO_BARRIER = {"objective.aspects": None, "objective.block": None, "objective.recon.weight": 0.05}
FLAT_ASPECTS = {"objective.block": None, "objective.aspects.history": False}
CNN = {
    "model.stem.kind": "pixels",
    "model.block": ConvStages(channels=(4, 6, 8)),
    "model.goodness": "energy",
    "objective.aspects": Aspects(lambdas=(1.0,), losses=("rank",)),
}
BACKPROP = {"trainer": "backprop", "objective.aspects": None, "objective.block": None}

CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    # changes to `plain`; what is reported then, each with a change that must not matter
    # (None: it sizes the table of draws, so that as many others are drawn)
    "sharpness without memory": (
        {"model.block.memory": 0},
        {SHARPNESS: {"objective.aspects.lambdas": (1.5, 0.2, 9.0, 0.3)}},
    ),
    "the loss of a dead aspect": (
        {"model.block.memory": 0, "objective.aspects.losses": ("margin", "rank", "margin", "margin")},
        {
            SHARPNESS: {"objective.aspects.lambdas": (1.5, 0.2, 9.0, 0.3)},
            "objective.aspects.losses[2]": {"objective.aspects.losses": ("margin", "rank", "rank", "margin")},
        },
    ),
    "lambdas of zero": (
        {"objective.aspects.lambdas": (0.0, 0.0, 0.0, 0.0)},
        {"objective.aspects.weight": {"objective.aspects.weight": 5.0}},
    ),
    "a threshold nobody has": (
        {"objective.aspects.losses": ("rank",) * 4, "objective.aspects.theta_init": 2.0},
        {"objective.aspects.theta_init": {"objective.aspects.theta_init": 1.0}},
    ),
    "aspects without a history to leave out": (
        {"objective.aspects.history": False},
        {"objective.aspects.history": {"objective.aspects.history": True}},
    ),
    "a term that is off": (
        {"objective.curr": Current(weight=0.0, rho=2.0, w_max=3.0)},
        {"objective.curr.rho": {"objective.curr.rho": 3.0}, "objective.curr.w_max": {"objective.curr.w_max": 9.0}},
    ),
    "supcon that is off": (
        {"objective.supcon": SupCon(weight=0.0, queue=5, label_free=True)},
        {
            "objective.supcon.queue": {"objective.supcon.queue": 7},
            "objective.supcon.label_free": {"objective.supcon.label_free": False},
        },
    ),
    "growth over one block": (
        {**ONE_BLOCK, "objective.curr": Current(rho=2.0, w_min=0.2)},
        {"objective.curr.rho": {"objective.curr.rho": 0.0}, "objective.curr.w_min": {"objective.curr.w_min": 0.1}},
    ),
    "residual weights that are off": (
        {"objective.curr": Current(residual=False, w_min=0.2)},
        {"objective.curr.w_min": {"objective.curr.w_min": 0.9}},
    ),
    "the order of one block": (
        {**ONE_BLOCK, "objective.depth.weight": 0.1, "objective.depth.delta_pos": 0.3},
        {"objective.depth.weight": {"objective.depth.weight": 7.0}},
    ),
    "mgc's growth over one block": (
        {**ONE_BLOCK, "objective.block": None, "objective.mgc.rho": 2.0},
        {"objective.mgc.rho": {"objective.mgc.rho": 1.0}},
    ),
    "the last of one block": (
        {**ONE_BLOCK, "objective.supcon": SupCon(at="last", queue=8, dimensions=4)},
        {"objective.supcon.at": {"objective.supcon.at": "every"}},
    ),
    "later than the only epoch": (
        {"epochs": 1, "objective.supcon": SupCon(late=0.1, temperature_last=0.1, queue=8, dimensions=4)},
        {
            "objective.supcon.late": {"objective.supcon.late": None},
            "objective.supcon.temperature_last": {"objective.supcon.temperature_last": 5.0},
        },
    ),
    "a rule that no term follows": ({**FLAT_ASPECTS, "rule": "gated"}, {"rule": {"rule": "lcff"}}),
    "a gamma that no term multiplies": (
        {**FLAT_ASPECTS, "rule": Constant(gamma=0.7)},
        {"rule.gamma": {"rule.gamma": 0.2}},
    ),
    "a rule for one block": ({**ONE_BLOCK, "rule": Gated(kappa=2.0)}, {"rule": {"rule": "local"}}),
    "a gamma for one block": ({**ONE_BLOCK, "rule": Constant(gamma=0.7)}, {"rule.gamma": {"rule.gamma": 0.0}}),
    "a gate with nothing behind it": (
        {"rule": Gated(gamma0=0.0, kappa=2.0, tau=3.0)},
        {"rule.kappa": {"rule.kappa": 0.0}, "rule.tau": {"rule.tau": 1.0}},
    ),
    "a gate's source in two blocks": (
        {"model.blocks": 2, "rule": Gated(source="previous")},
        {"rule.source": {"rule.source": "cumulative"}},
    ),
    "progress over two blocks": (
        {"model.blocks": 2, "rule": Progressive(first=0.3)},
        {"rule.first": {"rule.first": 0.0}},
    ),
    "a ramp that is flat": (
        {"rule": Ramp(first=0.5, last=0.5, until=0.5)},
        {"rule.until": {"rule.until": 1.0}},
    ),
    "a ramp over one epoch": (
        {"epochs": 1, "rule": Ramp(first=0.5, last=0.9, until=0.5)},
        {"rule.last": {"rule.last": 0.1}, "rule.until": {"rule.until": 1.0}},
    ),
    "no history to fade": ({"history": "decay"}, {"history": {"history": "sum"}}),
    "a history that gamma 1 keeps": (
        {"history": "decay", "rule": Constant(gamma=1.0)},
        {"history": {"history": "sum"}},
    ),
    "a history of one": (
        {"history": "decay", "rule": "gated", "model.blocks": 2},
        {"history": {"history": "sum"}},
    ),
    "no barrier and no negatives": (
        {**NO_BARRIER, "beta": 2.0, "eta": 0.3, "negatives": "random"},
        {"beta": {"beta": 9.0}, "eta": {"eta": 0.9}, "negatives": {"negatives": Teacher()}},
    ),
    "wrong images alone": ({"eta": 1.0}, {"negatives": {"negatives": Random()}}),
    "once in one block": ({**ONE_BLOCK, "negatives.once": True}, {"negatives.once": {"negatives.once": False}}),
    "draws at the depth there is not": ({**ONE_BLOCK, "negatives.k_last": 3}, {"negatives.k_last": None}),
    "draws where the first block mines alone": (
        {"negatives.once": True, "negatives.k_last": 3},
        {"negatives.k_last": None},
    ),
    "draws at the end of one epoch": (
        {"epochs": 1, "negatives": Teacher(ramp="epochs", k_last=3)},
        {"negatives.k_last": None},
    ),
    "a ramp from three to three": (
        {"negatives": Teacher(k_first=3, k_last=3, ramp="epochs")},
        {"negatives.ramp": {"negatives.ramp": "depth"}},
    ),
    "nothing to choose from one draw": (
        {"negatives": Teacher(k_first=1, k_last=1, mine_on="pos")},
        {"negatives.mine_on": {"negatives.mine_on": "nl"}},
    ),
    "one view for both streams": (
        {**ONE_BLOCK, "augment": "none", "negatives": Teacher(k_first=3, k_last=3, mine_on="pos")},
        {"negatives.mine_on": {"negatives.mine_on": "nl"}},
    ),
    "a teacher that is the network": (
        {"optim.ema": 0.0, "negatives": Teacher(k_first=2, k_last=2)},
        {"negatives": {"negatives": Online(k_first=2, k_last=2)}},
    ),
    "a prefix of one block": (
        {**ONE_BLOCK, "negatives": Prefix(k_first=2, k_last=2)},
        {"negatives": {"negatives": Teacher(k_first=2, k_last=2)}},
    ),
    "a prefix under a label that is kept": (
        {"negatives": Prefix(k_first=2, k_last=2, once=True)},
        {"negatives": {"negatives": Teacher(k_first=2, k_last=2, once=True)}},
    ),
    "a prefix that all views share": (
        {"augment": "none", "negatives": Prefix(k_first=2, k_last=2, mine_on="pos")},
        {"negatives.mine_on": {"negatives.mine_on": "nl"}},
    ),
    "no dead aspect to mask": (
        {"model.goodness.mask_dead": True},
        {"model.goodness.mask_dead": {"model.goodness.mask_dead": False}},
    ),
    "a norm of tokens that keep their own": (
        {"model.normalise": False, "model.token_norm": "unit"},
        {"model.token_norm": {"model.token_norm": "quarter"}},
    ),
    "nothing between one block": (
        {
            **ONE_BLOCK,
            "model.activation": "triangle",
            "model.token_norm": "unit",
            "model.normalise": False,
            "model.label_at": "first",
            "model.warm_start": True,
            "optim.freeze": "greedy",
            "step.mode": "sequential",
            "step.handoff": "after_update",
        },
        {
            "model.activation": {"model.activation": "none"},
            "model.token_norm": {"model.token_norm": "quarter"},
            "model.normalise": {"model.normalise": True},
            "model.label_at": {"model.label_at": "every"},
            "model.warm_start": {"model.warm_start": False},
            "optim.freeze": {"optim.freeze": "prefix"},
            "step.handoff": {"step.handoff": "before_update"},
        },
    ),
    "a stem of pixels": (
        {**CNN, "model.width": 12, "model.stem.channels": 12, "model.stem.patch": 3},
        {
            "model.width": {"model.width": 20},
            "model.stem.channels": {"model.stem.channels": 8},
            "model.stem.patch": {"model.stem.patch": None},
        },
    ),
    "a stem of one linear map": (
        {"model.stem.kind": "vector", "model.stem.channels": 12, "model.stem.patch": 3},
        {"model.stem.channels": {"model.stem.channels": 8}, "model.stem.patch": {"model.stem.patch": None}},
    ),
    "tokens of another stem": ({"model.stem.tokens": 3}, {"model.stem.tokens": {"model.stem.tokens": 8}}),
    "stages beyond the blocks": (
        {**CNN, "model.blocks": 2, "model.width": 256, "model.stem.channels": 384, "model.stem.patch": None},
        {"model.block.channels[2]": {"model.block.channels": (4, 6, 99)}},
    ),
    "a ReLU after a ReLU": (
        {**CNN, "model.activation": "none", "model.width": 256, "model.stem.channels": 384, "model.stem.patch": None},
        {"model.activation": {"model.activation": "relu"}},
    ),
    "no later block like the first": (
        {**CNN, "model.warm_start": True, "model.width": 256, "model.stem.channels": 384, "model.stem.patch": None},
        {"model.warm_start": {"model.warm_start": False}},
    ),
    "backpropagation": (
        {
            **BACKPROP,
            "rule": "gated",
            "negatives.k_last": 3,
            "beta": 2.0,
            "eta": 0.3,
            "history": "decay",
            "model.label": "add",
            "model.label_at": "first",
            "model.goodness.temperature": 0.3,
            "model.activation": "none",
            "model.normalise": False,
            "model.warm_start": True,
            "optim.sam": 0.05,
            "optim.freeze": "greedy",
            "step.mode": "sequential",
            "step.handoff": "after_update",
            "keep.memory_mb": 5,
            "readout.width": 320,
            "objective.curr.rho": 2.0,
        },
        {
            "rule": {"rule": "local"},
            "negatives.k_last": {"negatives.k_last": 16},
            "beta": {"beta": 4.0},
            "eta": {"eta": 0.5},
            "history": {"history": "sum"},
            "model.label": {"model.label": "scale"},
            "model.label_at": {"model.label_at": "every"},
            "model.goodness.temperature": {"model.goodness.temperature": 0.1},
            "model.activation": {"model.activation": "relu"},
            "model.normalise": {"model.normalise": True},
            "model.warm_start": {"model.warm_start": False},
            "optim.sam": {"optim.sam": 0.0},
            "optim.freeze": {"optim.freeze": "none"},
            "step.mode": {"step.mode": "sequential", "step.handoff": "before_update"},
            "step.handoff": {"step.handoff": "before_update"},
            "keep.memory_mb": {"keep.memory_mb": None},
            "readout.width": {"readout.width": 1536},
            "objective.curr.weight": {"objective.curr.weight": 7.0},
        },
    ),
    "a router's loss without a router": (
        {**CNN, **BACKPROP, "model.goodness": "aspects", "objective.balance.weight": 0.01}
        | {"model.width": 256, "model.stem.channels": 384, "model.stem.patch": None},
        {"objective.balance.weight": {"objective.balance.weight": 5.0}},
    ),
}


def test_a_configuration_whose_settings_all_count_is_met_with_silence() -> None:
    assert idle_settings(plain(), classes=4) == []
    assert idle_settings(Config(objective={"block": Block()})) == []


@pytest.mark.parametrize("case", CASES)
def test_a_setting_without_effect_is_reported_and_no_other(case: str) -> None:
    changes, expected = CASES[case]
    assert reported(plain(changes)) == expected.keys()


@pytest.mark.parametrize("case", [case for case, (_, expected) in CASES.items() if None not in expected.values()])
def test_what_is_reported_changes_neither_loss_nor_prediction(case: str) -> None:
    changes, expected = CASES[case]
    config = plain(changes)
    together = {name: value for change in expected.values() for name, value in change.items()}
    assert override(config, together) != config
    assert outcome(config) == outcome(override(config, together))


# What is said of it


def test_the_start_preset_has_one_note_and_it_is_kind() -> None:
    (idle,) = idle_settings(preset("gamma0-dense"), classes=10)
    assert str(idle) == (
        "objective.aspects.lambdas[2] (0.3) multiplies nothing: sharpness is always zero without memory "
        "(--model.block.memory 64 would give it one)"
    )
    assert (idle.field, idle.value) == (SHARPNESS, 0.3)


def test_a_reason_stands_beside_the_setting_and_its_value() -> None:
    (idle,) = idle_settings(plain({"objective.curr": Current(weight=0.0, rho=2.0)}))
    assert str(idle) == "objective.curr.rho (2.0) has no effect: objective.curr.weight is 0, so that the term is off"


SAID_OF_PRESETS = {
    "cp-fair-ni-only": {"negatives": "reaches objective.depth, objective.balance, objective.router-z and no other"},
    "cp-fair-sharpness-only": {"objective.aspects.weight": "multiplies nothing"},
    "cp-fair-no-ema": {"negatives": "mines as online would"},
}


@pytest.mark.parametrize("name", PAPERS_METHOD)
def test_a_preset_reports_a_sharpness_without_memory_and_what_is_written_here(name: str) -> None:
    config = preset(name)
    aspects = config.objective.get("aspects")
    is_dead = config.is_cumulative and isinstance(config.model.block, Hybrid) and config.model.block.memory == 0
    has_dead = is_dead and isinstance(aspects, Aspects) and len(aspects.lambdas) == 4 and aspects.lambdas[2] != 0
    found = {idle.field: str(idle) for idle in idle_settings(config, classes=10)}
    said = SAID_OF_PRESETS.get(name, {})
    assert found.keys() == said.keys() | ({SHARPNESS} if has_dead else set())
    assert all(words in found[field] for field, words in said.items())


def test_a_term_switched_off_takes_what_its_preset_had_set_with_it() -> None:
    """`--objective.curr.weight 0` is an ablation, not a mistake; rho 3 beside it is one, though it is the default."""
    off = {"objective.curr.weight": 0.0}
    assert preset("gamma0-dense").objective["curr"] == Current(weight=0.5, rho=0.0)
    assert reported(override(preset("gamma0-dense"), off)) == {SHARPNESS}
    assert reported(override(preset("gamma0-dense"), {**off, "objective.curr.rho": 3.0})) == {
        SHARPNESS,
        "objective.curr.rho",
    }


def test_a_default_that_differs_from_the_presets_value_was_somebodys_choice() -> None:
    config = override(preset("cp-fair-dense"), {"model.blocks": 1, "rule.gamma": 0.0})
    assert "rule.gamma" in reported(config)


def test_more_wrong_labels_than_draws_give_are_told() -> None:
    assert reported(plain({"negatives.count": 5})) == set()
    (idle,) = idle_settings(plain({"negatives": Teacher(k_first=2, k_last=3, among=4)}))
    assert str(idle) == (
        "negatives.among (4) asks for more than there is: 3 draws give at most 3 labels (negatives.k_first, "
        "negatives.k_last)"
    )
    assert reported(plain({"negatives": Teacher(k_first=2, k_last=3, count=4)})) == {"negatives.count"}


def test_two_classes_leave_nothing_to_choose() -> None:
    assert reported(plain({"negatives": "random"}), classes=2) == {"negatives"}
    assert reported(plain({"negatives.k_first": 3}), classes=2) == {"negatives.k_first"}
    assert reported(plain(), classes=2) == set()


def test_wrong_labels_that_only_the_depth_order_sees_are_told_so() -> None:
    (idle,) = idle_settings(plain({"eta": 1.0, "objective.depth.weight": 0.1}))
    assert str(idle).startswith("negatives (teacher) reaches objective.depth and no other term: eta is 1")


# Parts from outside


@dataclass(frozen=True, kw_only=True)
class Fickle(goodness.Term):
    """A term with a setting that it says is idle."""

    size: float = 1.0
    shape: float = 1.0

    def idle(self, config: Config) -> list[tuple[str, str]]:
        return [("size", "it is Monday"), ("shape", "it is Monday")]

    def loss(self, facts: goodness.Facts, module: None) -> Tensor:
        return facts.goodness.pos.mean()


def with_term(config: Config, term: goodness.Term) -> Config:
    return dataclasses.replace(config, objective={**config.objective, "own": term})


def test_a_part_from_outside_speaks_for_itself() -> None:
    (idle,) = idle_settings(with_term(plain(), Fickle(size=2.0)))
    assert str(idle) == "objective.own.size (2.0) has no effect: it is Monday"


def test_a_term_from_outside_may_look_at_everything() -> None:
    config = plain({**NO_BARRIER, "beta": 2.0, "eta": 0.3, "rule": "gated", "negatives": "random", "history": "decay"})
    assert reported(config) == {"beta", "eta", "rule", "negatives", "history"}
    assert reported(with_term(config, Fickle())) == set()


@dataclass(frozen=True, kw_only=True)
class Aloof(goodness.Term):
    """A term that says what it looks at: nothing that can be set."""

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset()

    def loss(self, facts: goodness.Facts, module: None) -> Tensor:
        return facts.tokens_out.square().mean()


@dataclass(frozen=True, kw_only=True)
class Whole(goodness.Rule):
    """A rule that says that it has one weight."""

    share: float = 1.0

    def only_weight(self, config: Config) -> float | None:
        return self.share

    def weight(self, past: goodness.Past) -> Tensor:
        return torch.full_like(past.total, self.share)


def test_terms_and_rules_from_outside_say_what_they_look_at_and_weigh() -> None:
    unseen = plain({**NO_BARRIER, "beta": 2.0, "eta": 0.3, "rule": "gated", "negatives": "random", "history": "decay"})
    assert reported(with_term(unseen, Aloof())) == reported(unseen)
    fading = override(plain({"history": "decay"}), {"objective.aspects.history": False})
    told = {
        share: reported(dataclasses.replace(fading, rule=Whole(share=share))) & {"history", "objective.aspects.history"}
        for share in (0.0, 0.5, 1.0)
    }
    assert told == {0.0: {"history", "objective.aspects.history"}, 0.5: set(), 1.0: {"history"}}


class Stubborn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gives = ("sharpness",)
        self.scale = float(torch.ones(1).sum())  # refuses to be built without real tensors


@dataclass(frozen=True, kw_only=True)
class StubbornBlock(goodness.BlockPart):
    def build(self, width: int, grid: tuple[int, int]) -> torch.nn.Module:
        return Stubborn()


def test_of_a_block_that_cannot_be_looked_into_nothing_is_said() -> None:
    assert reported(override(plain(), {"model.block": StubbornBlock()})) == set()


# The announcement


def test_a_run_tells_its_listener_before_the_first_step_and_a_resumed_one_does_not(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    kill = kill_after(1, "checkpoint")

    def listen(event: dict[str, Any]) -> None:
        heard.append(event)
        kill(event)

    config = small("gamma0-dense", {"keep.checkpoint_steps": 1})
    with pytest.raises(Killed):
        goodness.train(config, out=tmp_path / "run", device="cpu", listen=listen)
    assert [event["event"] for event in heard] == ["note", "step", "checkpoint"]
    assert heard[0]["text"] == str(idle_settings(config)[0])
    heard.clear()
    goodness.resume(tmp_path / "run", device="cpu", listen=heard.append)
    assert "note" not in {event["event"] for event in heard}


def test_the_command_line_shows_the_note_and_a_library_call_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from goodness.cli import main

    arguments = ["--data", "few-digits", "--epochs", "1", "--batch", "100", "--model.width", "8"]
    arguments += ["--model.block.heads", "2", "--objective.aspects.lambdas", "1", "1", "0.3", "1"]
    assert main(["train", "demo", *arguments, "--device", "cpu", "--out", str(tmp_path / "told")]) == 0
    assert "note: objective.aspects.lambdas[2] (0.3) multiplies nothing" in capfd.readouterr().err
    goodness.train(small("demo"), out=tmp_path / "silent", device="cpu")
    assert capfd.readouterr() == ("", "")


# No field is read by nobody


def nodes(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dataclass in a configuration with its dotted name."""
    yield prefix, config
    for one in dataclasses.fields(config):
        value, name = getattr(config, one.name), f"{prefix}.{one.name}".lstrip(".")
        held = {f"{name}.{key}": term for key, term in value.items()} if isinstance(value, dict) else {name: value}
        for path, child in held.items():
            if dataclasses.is_dataclass(child):
                yield from nodes(child, path)


def leaves(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name."""
    return {
        f"{prefix}.{one.name}".lstrip("."): getattr(node, one.name)
        for prefix, node in nodes(config)
        for one in dataclasses.fields(node)
        if not dataclasses.is_dataclass(getattr(node, one.name)) and one.name != "objective"
    }


@contextmanager
def recorded_reads(config: Config) -> Iterator[set[str]]:
    """The dotted names of this very configuration's settings as they are read; copies of it are not watched."""
    places = {id(node): prefix for prefix, node in nodes(config)}
    watched = {id(node): {one.name for one in dataclasses.fields(node)} for _, node in nodes(config)}
    read: set[str] = set()

    def recording(self: Any, name: str) -> Any:
        if name in watched.get(id(self), ()):
            read.add(f"{places[id(self)]}.{name}".lstrip("."))
        return object.__getattribute__(self, name)

    kinds = {type(node) for _, node in nodes(config)}
    for kind in kinds:
        kind.__getattribute__ = recording
    try:
        yield read
    finally:
        for kind in kinds:
            del kind.__getattribute__


def unread_fields(config: Config) -> set[str]:
    """The settings that data, training and evaluation never look at."""
    with recorded_reads(config) as read:
        stage, _ = trained(config)
        stage.assess("val")
    return leaves(config).keys() - read


READ_ELSEWHERE = {
    "preset": "a name that decides nothing; the run's folder is called after it",
    "readout.weights": "read by api.readout, which picks the network before Stage 2 starts",
}

OF_A_WHOLE_RUN = ("deterministic", "keep.")
"""Read around the steps, by every run alike."""

STAGE_2 = {f"readout.{one.name}" for one in dataclasses.fields(Readout)} - {"readout.weights"}
"""Read by `goodness readout`, and not by a run of Stage 1."""


def is_explained(field: str, config: Config) -> bool:
    """Whether the field, or the part that it belongs to, is known to be idle."""
    idle = {fact.field for fact in idle_facts(config) if fact.what in ("has no effect", "multiplies nothing")}
    part = field.rpartition(".")[0]
    return not idle.isdisjoint({field, part, f"{part}.weight"})


def unexplained(config: Config) -> set[str]:
    unread = unread_fields(config) - READ_ELSEWHERE.keys() - STAGE_2
    return {one for one in unread if not is_explained(one, config) and not one.startswith(OF_A_WHOLE_RUN)}


@pytest.mark.parametrize("name", PAPERS_METHOD)
def test_every_setting_of_a_preset_is_read_or_known_to_be_idle(name: str) -> None:
    assert unexplained(small(name, {"model.blocks": 2})) == set()


@pytest.mark.parametrize("name", ["demo", "bp-strong"])
def test_the_settings_around_the_steps_are_read_in_a_whole_run(name: str, tmp_path: Path) -> None:
    config = small(name, {"model.blocks": 2})
    with (
        recorded_reads(config) as read,
        mock.patch("goodness.training.loop.to_dict", return_value={}),  # to be saved is not to be used
        RunFolder.create(tmp_path / "run") as opened,
    ):
        write_json(opened.config_path, {"stage": "s1"})
        api._go(opened, config, load_data(config), CPU, None, None)
    unread = {one for one in leaves(config) if one.startswith(OF_A_WHOLE_RUN)} - read
    assert {one for one in unread if not is_explained(one, config)} == set()


def test_every_setting_of_stage_2_is_read_in_a_readout(tmp_path: Path) -> None:
    config = small("demo", {"readout.epochs": 1, "readout.width": 8, "readout.heads": 2})
    data = load_data(config)
    with (
        recorded_reads(config) as read,
        mock.patch("goodness.training.loop.to_dict", return_value={}),
        RunFolder.create(tmp_path / "readout") as folder,
    ):
        Stage2(config, data, folder, network=build_network(config, data), device=CPU, dtype=torch.float32).run()
    assert read >= STAGE_2


@dataclass(frozen=True, kw_only=True)
class Forgetful(goodness.Term):
    """A term with a setting that it never looks at, and does not say so."""

    size: float = 1.0
    forgotten: float = 1.0

    def loss(self, facts: goodness.Facts, module: None) -> Tensor:
        return self.size * facts.goodness.pos.mean()


def test_a_setting_that_nobody_reads_is_found() -> None:
    assert unexplained(with_term(plain(), Forgetful())) == {"objective.own.forgotten"}
    assert "__getattribute__" not in vars(Forgetful), "what was watched is as it was"


# What is not reported counts

RICH: dict[str, Any] = {
    "rule": Gated(kappa=1.0),
    "negatives": Teacher(k_first=2, k_last=3),
    "model.block": Hybrid(heads=2, hidden=8, experts=4, top_k=2, memory=3),
    "model.width": 16,
    "objective.diversity.weight": 0.05,
    "objective.probe.weight": 0.1,
    "objective.supcon": SupCon(queue=24, dimensions=4, late=0.2, temperature_last=0.1),
    "optim.ema": 0.5,
    "optim.clip": 0.1,
}
"""Changes to cp-fair with which every setting below has something to do."""

OTHER_VALUES: dict[str, Any] = {
    "batch": 25,
    "model.width": 24,
    "model.block.heads": 4,
    "model.blocks": 2,
    "objective.curr.w_min": 1.0,
    "objective.curr.w_max": 1.0,
    "negatives.among": 2,
    "objective.supcon.queue": 3,
}
"""Where half as much, or one more, is no value or does not bind."""

OF_THE_CLOCK_AND_THE_MACHINE = ("keep.", "readout.")
"""What is measured, saved and trained later."""

SAMPLE = 10
"""Of more than forty; all of them pass (0.3 s each)."""


def numeric_settings(config: Config) -> list[str]:
    def counts(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    every = [name for name, value in leaves(config).items() if counts(value)]
    return [name for name in every if not name.startswith(OF_THE_CLOCK_AND_THE_MACHINE)]


def changed(name: str, value: float) -> Any:
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    if isinstance(value, int):
        return value + 1
    return value / 2 if value else 0.25


def test_a_number_that_is_not_reported_changes_a_loss_or_a_prediction() -> None:
    config = small("cp-fair", RICH)
    assert reported(config, classes=4) == set()
    before = outcome(config)
    names = [name for name in numeric_settings(config) if not is_explained(name, config)]
    assert len(names) > 40
    without_effect = [
        name
        for name in random.Random(1).sample(names, SAMPLE)
        if outcome(override(config, {name: changed(name, leaves(config)[name])})) == before
    ]
    assert without_effect == []
