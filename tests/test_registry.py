"""Registries: names to parts, kind errors, and parts from outside the package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import goodness
from goodness import parts
from goodness.config import Config, from_dict, override, to_dict
from goodness.errors import ConfigError, UserError, nearest
from goodness.methods.cumulative.facts import Facts, Past
from goodness.registry import Registry


@pytest.fixture
def clean() -> Iterator[None]:
    """The package's registries, put back afterwards."""
    before = {registry: dict(registry._parts) for registry in parts.REGISTRIES.values()}
    yield
    for registry, known in before.items():
        registry._parts = known


def test_a_registry_keeps_order_and_tells_a_class_its_name() -> None:
    registry: Registry[type] = Registry("colour")

    @registry.register("red")
    class Red:
        kind = ""

    @registry.register("blue")
    class Blue:
        kind = ""

    assert list(registry) == ["red", "blue"]
    assert registry["red"] is Red
    assert dict(registry.items()) == {"red": Red, "blue": Blue}
    assert Blue.kind == "blue"
    assert "red" in registry
    assert "green" not in registry


def test_functions_may_be_registered_too() -> None:
    registry: Registry[Callable[[], int]] = Registry("number")

    @registry.register("one")
    def one() -> int:
        return 1

    assert registry["one"]() == 1


def test_an_unknown_name_is_a_users_error_that_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown collaboration rule 'gatd': did you mean 'gated'"):
        parts.rules["gatd"]
    with pytest.raises(ConfigError, match=r"unknown term 'zzz': known: .*aspects.*block"):
        parts.terms["zzz"]
    assert issubclass(ConfigError, UserError)
    assert ConfigError.exit_code == 2


def test_nearest_lists_everything_when_nothing_is_near() -> None:
    assert nearest("qqq", ["b", "a"]) == "known: a, b"
    assert nearest("lcf", ["lcff", "gated"]) == "did you mean 'lcff'?"


def test_a_second_class_of_another_name_is_refused(clean: None) -> None:
    with pytest.raises(ConfigError, match="a collaboration rule named 'constant' exists already"):

        @goodness.register_rule("constant")
        @dataclass(frozen=True, kw_only=True)
        class Other(goodness.Rule):
            pass

    assert parts.rules["constant"].__name__ == "Constant"


def test_the_same_class_defined_again_replaces_itself(clean: None) -> None:
    """A notebook cell that is run twice."""

    def cell(value: float) -> type[goodness.Rule]:
        @goodness.register_rule("from-a-notebook")
        @dataclass(frozen=True, kw_only=True)
        class Mine(goodness.Rule):
            gamma: float = value

        return Mine

    cell(0.1)
    second = cell(0.2)
    assert parts.rules["from-a-notebook"] is second


def test_parts_from_outside_work_by_name_and_survive_the_round_trip(clean: None) -> None:
    @goodness.register_rule("half-of-the-last")
    @dataclass(frozen=True, kw_only=True)
    class HalfOfTheLast(goodness.Rule):
        share: float = 0.5

        def weight(self, past: Past) -> Tensor:
            return self.share * (past.previous > 0).to(past.previous.dtype)

    @goodness.register_term("loudness")
    @dataclass(frozen=True, kw_only=True)
    class Loudness(goodness.Term):
        power: tuple[int, int] = (1, 2)

        def loss(self, facts: Facts, module: None) -> Tensor:
            return facts.goodness.pos.mean()

    config = override(Config(), {"rule": "half-of-the-last", "rule.share": 0.25, "objective.loudness.power": [3, 4]})
    assert config.rule == HalfOfTheLast(share=0.25)
    assert config.objective["loudness"] == Loudness(power=(3, 4))
    assert '"kind": "half-of-the-last"' in json.dumps(to_dict(config))
    assert to_dict(config)["objective"]["loudness"] == {"kind": "loudness", "weight": 1.0, "power": [3, 4]}
    assert from_dict(to_dict(config)) == config
    past = Past(torch.zeros(2), torch.tensor([1.0, -1.0]), 1, 2, 0.0)
    assert config.rule.weight(past).tolist() == [0.25, 0.0]


@pytest.mark.parametrize("registry", list(parts.REGISTRIES.values()), ids=lambda registry: registry.kind)
def test_every_part_has_defaults_that_pass_its_own_check_a_name_and_a_docstring(registry: Registry) -> None:
    assert list(registry)
    for name, part in registry.items():
        made = part()
        made.check()
        assert made.kind == name
        assert part.__doc__
        assert not part.__doc__.startswith(f"{part.__name__}(")  # a sentence, not dataclass's signature
