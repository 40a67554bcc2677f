"""The audit of any method: it says which blocks learn together, and finds what a method does not declare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import goodness
from goodness import cli
from goodness.config import Optim, Step, override
from goodness.draws import Draws
from goodness.health.method_audit import MethodAudit, audit_method
from goodness.methods.base import Method, Moment, Out, Plan, Signal
from goodness.methods.build import build_method
from goodness.methods.mono_forward import MonoForward
from goodness.nn.networks import Mlp
from goodness.nn.scff_cnn import ScffCnn
from goodness.nn.trifecta_cnn import TrifectaCnn
from goodness.parts import ImageFacts, MethodPart, methods, register_method
from goodness.presets import preset, presets
from goodness.training.trainer import Trainer
from tiny_runs import blobs_at_hand

FACTS = ImageFacts((1, 4, 4), 3, (0.0,), (1.0,))
WIDTHS = [8, 8, 8]


class Plain(MonoForward):
    """Strict."""


class Leaks(MonoForward):
    """A block goes through the one before it a second time, with its gradient."""

    def through(self, depth: int, s: Signal) -> Out:
        x = s["x"] if depth != 1 else self.blocks[0](s["images"])
        out = super().through(depth, {"x": x})
        return out._replace(on={**out.on, "images": s.get("images", s["x"])})


class LooksAhead(MonoForward):
    """Every block hears the last block's opinion, from a pass before the step."""

    def streams(self, images: Tensor, labels: Tensor, step: Any) -> Signal:
        *_, (_, _, out) = self.walk({"x": images})
        assert out.speaks is not None
        return {"x": images, "last": out.speaks}

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        assert out.speaks is not None
        return F.cross_entropy(out.speaks + s["last"], s["labels"])


class LooksAheadOpenly(LooksAhead):
    later = True


class Together(MonoForward):
    """Two units that share a block, one in each half of the training."""

    def plan(self, moment: Moment) -> Plan:
        return Plan(((0, 1),) if 2 * moment.step < moment.steps else ((1, 2),))


class AllAtOnce(MonoForward):
    def plan(self, moment: Moment) -> Plan:
        return Plan(((0, 1, 2),))


class Brief(MonoForward):
    """Blocks 1 and 2 learn together for a thirtieth of the training."""

    def plan(self, moment: Moment) -> Plan:
        share = moment.step / moment.steps
        return Plan(((1, 2),)) if 0.6 < share < 0.63 else super().plan(moment)


class HidesLabels(MonoForward):
    uses_labels = False


class Blind(Method):
    """No labels."""

    uses_labels = False

    def through(self, depth: int, s: Signal) -> Out:
        x = self.blocks[depth](s["x"])
        return Out({"x": x}, x[:, :3])

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        return out.on["x"].square().mean()


def blocks() -> list[nn.Module]:
    torch.manual_seed(0)
    return Mlp(widths=tuple(WIDTHS)).build((1, 4, 4), FACTS, None)  # type: ignore[arg-type]


def audit(kind: Callable[..., Method], mode: Any = "fused") -> MethodAudit:
    def make() -> Trainer:
        given = [WIDTHS] if issubclass(kind, MonoForward) else []  # type: ignore[arg-type]
        method = kind(blocks(), 3, *given)
        return Trainer(method, Optim(), Step(mode=mode), draws=Draws(torch.device("cpu"), 1))

    views = torch.rand(1, 6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return audit_method(make, views, torch.arange(6) % 3)


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize(
    ("kind", "tag", "edges"),
    [
        (Plain, "strict", ()),
        (Leaks, "leaking", ()),
        (Together, "overlapping", ((0, 1), (1, 2))),
        (AllAtOnce, "joined", ((0, 1), (1, 2))),
        (Brief, "overlapping", ((1, 2),)),
    ],
)
def test_it_says_which_blocks_learn_together(
    kind: type[Method], tag: str, edges: tuple[tuple[int, int], ...], mode: str
) -> None:
    found = audit(kind, mode)
    assert (found.tag, found.edges) == (tag, edges)
    assert found.is_as_declared == (kind is not Leaks)


def test_a_leak_is_named_by_unit_and_parameter() -> None:
    leaks = audit(Leaks).leaks
    assert {unit for unit, _ in leaks} == {(1,)}
    assert {name.split(".")[:2] == ["blocks", "0"] for _, name in leaks} == {True}


def test_a_look_at_later_blocks_is_found_and_must_be_declared() -> None:
    found = audit(LooksAhead)
    assert (found.tag, found.later, found.undeclared) == ("strict", ((0,), (1,)), ("later",))
    openly = audit(LooksAheadOpenly)
    assert openly.later == found.later
    assert openly.is_as_declared
    assert audit(Plain).later == ()


def test_whether_labels_are_used_is_found_and_must_be_declared() -> None:
    assert [audit(kind).uses_labels for kind in (Plain, Blind, HidesLabels)] == [True, False, True]
    assert audit(HidesLabels).undeclared == ("labels",)
    assert audit(Blind).is_as_declared


SMALL = {
    "scff": {"network": ScffCnn(channels=(4, 5, 6), kernels=(3, 3, 1)), "method.features": 32},
    "trifecta": {"network": TrifectaCnn(channels=(4, 4, 4), pools=(1,))},
}


@pytest.mark.parametrize(
    ("name", "tag", "uses_labels", "readout"),
    [("scff", "strict", False, True), ("trifecta", "overlapping", True, False)],
)
def test_the_presets_are_what_their_pages_say(name: str, tag: str, uses_labels: bool, readout: bool) -> None:
    config = override(preset(name), SMALL[name]).check()
    facts = ImageFacts((1, 8, 8), 4, (0.0,), (1.0,))

    def make() -> Trainer:
        method = build_method(config, facts, 1)
        return Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), 1))

    views = torch.rand(1, 6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = audit_method(make, views, torch.arange(6) % 4)
    assert (found.tag, found.uses_labels, found.readout, found.later) == (tag, uses_labels, readout, ())
    assert found.is_as_declared
    assert found.edges == (((0, 1), (1, 2)) if name == "trifecta" else ())


# On the command line


@pytest.fixture
def own_presets() -> Iterator[None]:
    """Presets `leaky` and `tiny-trifecta`, for digits."""
    known, parts = dict(presets._parts), dict(methods._parts)

    @register_method("leaky")
    class LeakyPart(MethodPart):
        def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Method:
            return Leaks(blocks, facts.classes, WIDTHS)

    tiny = override(preset("trifecta"), {**SMALL["trifecta"], "data": "digits"})
    presets.register("tiny-trifecta")(lambda: tiny)
    leaky = override(tiny, {"method": LeakyPart(), "network": Mlp(widths=tuple(WIDTHS))})
    presets.register("leaky")(lambda: leaky)
    yield
    presets._parts, methods._parts = known, parts


def say(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main(["audit", *map(str, words)])
    return code, capsys.readouterr().out


@pytest.mark.usefixtures("own_presets")
def test_the_command_prints_the_tag_and_ends_with_one_where_gradients_leak(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = say(capsys, "tiny-trifecta")
    assert (code, "overlapping" in output, "0-1, 1-2" in output) == (0, True, True)
    code, output = say(capsys, "tiny-trifecta", "--json")
    found = json.loads(output)
    assert (code, found["tag"], found["edges"], found["is_local"]) == (0, "overlapping", [[0, 1], [1, 2]], True)
    code, output = say(capsys, "leaky", "--json")
    found = json.loads(output)
    assert (code, found["tag"], found["is_local"], found["leaks"][0]["unit"]) == (1, "leaking", False, [1])
    assert say(capsys, "leaky")[0] == 1


def test_the_command_audits_a_run_of_a_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with blobs_at_hand():
        run = goodness.train(
            "scff", data="few-digits", epochs=3, batch=50, device="cpu", out=tmp_path / "run", changes=SMALL["scff"]
        )
    code, output = say(capsys, run.path, "--json")
    found = json.loads(output)
    assert (code, found["tag"], found["uses_labels"], found["readout"]) == (0, "strict", False, True)
