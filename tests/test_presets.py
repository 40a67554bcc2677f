"""Every named run is valid, derives from one that exists, and comes back from its file as it was."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rich.console import Console

import goodness
from goodness.config import Config, Keep, Model, Optim, Readout, Stem, differences, from_dict, override, to_dict
from goodness.errors import ConfigError
from goodness.methods.build import build_method
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive, Ramp
from goodness.methods.cumulative.negatives import Random, Teacher
from goodness.methods.cumulative.routing import Balance, RouterZ
from goodness.methods.cumulative.supcon import SupCon
from goodness.methods.cumulative.terms import Aspects, Block, Current, DepthOrder, MissingGradient, Reconstruction
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network
from goodness.nn.stripped import StrippedNetwork
from goodness.paper.accuracies import PAPER
from goodness.parts import ImageFacts, Term
from goodness.presets import RULES, SECTIONS, Changes, add_variants, base_of, preset, presets, section_of, variant
from goodness.report.tables import presets_table

NAMES = list(presets)
EXPLORATORY = ["topk-depth", "greedy-freeze", "prefix-freeze", "fixed-nl", "block0-label", "gamma-ramp"]
VARIANTS = ["baseline", "nomem-l2", *EXPLORATORY, "cp-fair", "cp-fair-lc", "dp-fair", "multi-tech", "gamma0"]


@pytest.fixture
def _registered_for_this_test_alone() -> Iterator[None]:
    known = dict(presets._parts)
    yield
    presets._parts = known


def setting(name: str, path: str) -> Any:
    """A preset's value of a dotted field."""
    node: Any = goodness.preset(name)
    for part in path.split("."):
        node = node[part] if isinstance(node, dict) else getattr(node, part)
    return node


def by_name(*paths: str) -> dict[str, Any]:
    """Of the thirteen variants: the value of a field, or the values of several."""
    found = {name: tuple(setting(name, path) for path in paths) for name in VARIANTS}
    return found if len(paths) > 1 else {name: one for name, (one,) in found.items()}


def parameters(
    config: Config, shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10, *, with_terms: bool = True
) -> int:
    """At CIFAR-10's size unless another is given; nothing is allocated."""
    with torch.device("meta"):
        if not config.is_cumulative:
            classes = 100 if config.data == "cifar100" else 10
            facts = ImageFacts((3, 32, 32), classes, (0.0,) * 3, (1.0,) * 3)
            return sum(one.numel() for one in build_method(config, facts, 1).parameters())
        if config.trainer == "backprop":
            return StrippedNetwork(config.model, shape, classes).parameter_count()
        return Network(config.model, shape, classes, terms=config.objective if with_terms else None).parameter_count()


# All of them


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_valid_knows_its_name_and_comes_back_from_its_file(name: str) -> None:
    config = goodness.preset(name)
    assert config.check() is config
    assert config.preset == name
    again = from_dict(json.loads(json.dumps(to_dict(config))))
    assert again == config
    assert list(again.objective) == list(config.objective)
    assert parameters(config) > 1e5  # and it can be built


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_what_it_is_in_a_sentence_or_two(name: str) -> None:
    about = presets[name].__doc__ or ""
    assert len(about.split()) > 3
    assert about.rstrip().endswith(".")
    assert len(re.findall(r"\.(?:\s|$)", about)) in (1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_names_a_base_that_came_before_it_and_differs_from_it(name: str) -> None:
    base = base_of(name)
    if base is None:
        assert name in ("gamma0-dense", "sprint", "demo") or not goodness.preset(name).is_cumulative
        return
    assert NAMES.index(base) < NAMES.index(name)
    changed = set(differences(goodness.preset(name), goodness.preset(base))) - {"preset"}
    assert changed
    assert not {field for field in changed if field.startswith(("step.", "keep.", "seed", "split_seed", "history"))}


def test_no_two_presets_are_the_same_run() -> None:
    runs = {name: to_dict(override(goodness.preset(name), {"preset": "custom"})) for name in NAMES}
    assert not [pair for pair in itertools.combinations(NAMES, 2) if runs[pair[0]] == runs[pair[1]]]


def test_asking_for_an_unknown_preset_or_its_base_names_the_nearest() -> None:
    for ask in (preset, base_of, section_of):
        with pytest.raises(ConfigError, match="cp-fair"):
            ask("cp-fare")


# How they are registered


@pytest.mark.usefixtures("_registered_for_this_test_alone")
def test_a_variant_is_its_base_with_the_changes_made() -> None:
    @variant("mine", of="lcff-dense")
    def mine() -> Changes:
        """What I changed."""
        return {"batch": 7, "objective.recon": None}

    add_variants("my", of="mine", rows={"one": ("The first.", {"epochs": 1}), "two": ("The second.", {"epochs": 2})})
    expected = override(preset("lcff-dense"), {"preset": "mine", "batch": 7, "objective.recon": None})
    assert preset("mine") == expected
    assert presets["mine"].__doc__ == "What I changed."
    assert (base_of("mine"), base_of("my-one")) == ("lcff-dense", "mine")
    assert [preset(name).epochs for name in ("my-one", "my-two")] == [1, 2]
    assert [preset(name).batch for name in ("my-one", "my-two")] == [7, 7]
    assert presets["my-two"].__doc__ == "The second."
    assert section_of("mine") == "Your own"
    with pytest.raises(ConfigError, match="a preset named 'mine' exists already"):
        variant("mine", of="demo")(dict)
    with pytest.raises(ConfigError, match="unknown preset 'lcff-dens'"):
        variant("other", of="lcff-dens")


# What was there before the paper's other runs came


def local(rule: Constant | Gated, **terms: Term | None) -> Config:
    """gamma0-dense under a rule, written out; a term of None is left out, an underscore stands for a hyphen."""
    first = {"aspects": Aspects(), "block": Block(), "curr": Current(weight=0.5, rho=0.0)}
    all_terms = {**first, "supcon": SupCon(), "recon": Reconstruction(), **terms}
    return Config(
        rule=rule, objective={name.replace("_", "-"): term for name, term in all_terms.items() if term is not None}
    )


def moe(config: Config, sam: float) -> Config:
    """With 32 experts, written out."""
    return dataclasses.replace(
        config,
        model=Model(block=Hybrid(heads=8, hidden=48, experts=32, top_k=4)),
        objective={**config.objective, "balance": Balance(weight=0.01), "router-z": RouterZ(weight=0.001)},
        optim=Optim(sam=sam),
    )


REPAIR = {"curr": Current(weight=0.25, rho=3.0), "depth": DepthOrder(weight=0.1)}
WRITTEN_OUT = {
    "gamma0-dense": local(Constant(gamma=0.0)),
    "lcff-dense": local(Constant(gamma=1.0), curr=None),
    "cp-fair-dense": local(Constant(gamma=0.7), **REPAIR),
    "gated-dense": local(Gated(gamma0=0.7, tau=1.0, kappa=0.0), curr=None),
    "mgc-dense": local(
        Constant(gamma=0.7), aspects=Aspects(history=False), block=None, curr=None, mgc=MissingGradient()
    ),
    "gamma0": moe(local(Constant(gamma=0.0)), sam=0.0),
    "lcff": moe(local(Constant(gamma=1.0), curr=None), sam=0.05),
    "cp-fair": moe(local(Constant(gamma=0.7), **REPAIR), sam=0.05),
    "gated": moe(local(Gated(gamma0=0.7, tau=1.0, kappa=0.0), curr=None), sam=0.05),
    "demo": Config(
        data="digits",
        seed=1,
        epochs=20,
        batch=64,
        augment="none",
        rule=Constant(gamma=0.0),
        negatives=Teacher(k_first=4, k_last=4),
        objective={"aspects": Aspects(lambdas=(1.5, 0.2, 0.0, 0.3)), "block": Block()},
        model=Model(width=48, stem=Stem(channels=32, patch=2), block=Hybrid(heads=4, hidden=96)),
        optim=Optim(lr=6e-3, ema=0.99),
        keep=Keep(evaluate_every=5, report="last"),
        readout=Readout(epochs=5, batch=64, width=64),
    ),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_the_first_presets_are_what_they_were(name: str) -> None:
    expected = dataclasses.replace(WRITTEN_OUT[name], preset=name)
    assert differences(goodness.preset(name), expected) == {}
    # the order of the terms is the order in which their parts are drawn
    assert list(goodness.preset(name).objective) == list(expected.objective)


# What their names promise


def test_the_dense_presets_differ_in_the_rule_and_the_terms_alone() -> None:
    start = goodness.preset("gamma0-dense")
    for name in ("lcff-dense", "cp-fair-dense", "gated-dense", "mgc-dense"):
        changed = set(differences(goodness.preset(name), start)) - {"preset"}
        assert all(field.startswith(("rule.", "objective.")) for field in changed)


def test_the_thirteen_variants_have_the_tables_settings() -> None:
    """Table full_config, column by column; where a cell is empty the default of its caption holds."""
    few = {"dp-fair", "multi-tech"}
    experts = by_name("model.block.experts", "model.block.top_k")
    assert experts == {name: (24, 3) if name in few else (32, 4) for name in VARIANTS}
    long = {"fixed-nl", "block0-label"}
    assert by_name("batch") == {name: 128 if name in long else 512 for name in VARIANTS}

    epochs = dict.fromkeys(VARIANTS, (362, 20)) | dict.fromkeys(long, (460, 300))
    epochs |= dict.fromkeys(("baseline", "topk-depth", "greedy-freeze", "prefix-freeze"), (287, 20))
    assert by_name("epochs", "readout.epochs") == epochs | {"gamma-ramp": (200, 0), "dp-fair": (362, 0)}

    rules = dict.fromkeys(VARIANTS, Constant(gamma=0.7)) | dict.fromkeys(long, Constant(gamma=1.0))
    rules |= {"gamma-ramp": Ramp(), "multi-tech": Ramp(), "dp-fair": Progressive(), "gamma0": Constant(gamma=0.0)}
    assert by_name("rule") == rules

    current = dict.fromkeys(VARIANTS, (0.5, 0.0)) | {"topk-depth": (0.5, 1.0), "fixed-nl": (0.25, 0.0)}
    current |= dict.fromkeys(("gamma-ramp", "cp-fair", "cp-fair-lc", *few), (0.25, 3.0))
    assert by_name("objective.curr.weight", "objective.curr.rho") == current

    contrast = dict.fromkeys(VARIANTS, (0.5, None)) | dict.fromkeys(few, (0.5, 0.15)) | {"cp-fair-lc": (0.15, None)}
    assert by_name("objective.supcon.weight", "objective.supcon.late") == contrast

    forgetful = {"nomem-l2", "cp-fair", "cp-fair-lc", "gamma0", *few}
    assert {name for name, slots in by_name("model.block.memory").items() if slots == 0} == forgetful
    assert {name for name, scaled in by_name("model.normalise").items() if scaled} == forgetful
    assert {name for name, radius in by_name("optim.sam").items() if radius == 0} == {"gamma0"}
    assert {name for name, terms in by_name("objective").items() if "depth" not in terms} == {"gamma0"}


@pytest.mark.parametrize("scale", ["d128", "l8"])
def test_in_the_causal_sweep_the_rule_alone_differs(scale: str) -> None:
    start = goodness.preset(f"{scale}-gamma0")
    assert start.rule == Constant(gamma=0.0)
    assert start.model.blocks == {"d128": 4, "l8": 8}[scale]
    assert start.optim.sam == {"d128": 0.05, "l8": 0.0}[scale]
    assert start.model.width == 128
    assert start.model.block == Hybrid(heads=8, hidden=48, experts=16, top_k=4)
    assert (start.epochs, start.readout.epochs) == (180, 10)
    assert not {"curr", "depth", "mgc"} & start.objective.keys()
    for end, (_, rule) in RULES.items():
        config = goodness.preset(f"{scale}-{end}")
        assert config.rule == rule
        assert all(field.startswith("rule.") for field in set(differences(config, start)) - {"preset"})
        if isinstance(rule, Gated):
            previous = "-previous" if rule.source == "previous" else ""
            assert end == f"gated-t{rule.tau:.0f}-k{rule.kappa:.0f}{previous}"
            assert rule.gamma0 == 0.7


def test_on_cifar100_the_rule_alone_differs() -> None:
    start = goodness.preset("cifar100-gamma0")
    assert (start.data, start.batch, start.model.block, start.optim.sam) == ("cifar100", 256, Hybrid(), 0.0)
    for name in ("cifar100-gated", "cifar100-cumulative"):
        changed = set(differences(goodness.preset(name), start)) - {"preset"}
        assert all(field.startswith("rule.") for field in changed)


def test_an_ablation_takes_one_thing_from_cp_fair() -> None:
    whole = goodness.preset("cp-fair")
    found = {
        name.removeprefix("cp-fair-"): set(differences(goodness.preset(name), whole)) - {"preset"}
        for name in NAMES
        if base_of(name) == "cp-fair"
    }
    assert found["no-sam"] == {"optim.sam"}
    assert found["no-history"] == {"rule.gamma"}
    assert found["no-ema"] == {"optim.ema"}
    assert found["nl-only"] == found["ni-only"] == {"eta"}
    for term in ("supcon", "curr", "depth"):
        assert all(field.startswith(f"objective.{term}.") for field in found[f"no-{term}"])
    for name in ("k1", "k4", "k8", "k16", "no-mining", "online-mining"):
        assert all(field.startswith("negatives.") for field in found[name])
    assert goodness.preset("cp-fair-no-mining").negatives == Random()
    assert goodness.preset("cp-fair-no-experts") == override(
        goodness.preset("cp-fair-dense"), {"preset": "cp-fair-no-experts", "optim.sam": 0.05}
    )
    for a, name in enumerate(("align", "energy", "sharpness", "learned")):
        assert found[f"{name}-only"] == {"objective.aspects.lambdas"}
        kept = setting(f"cp-fair-{name}-only", "objective.aspects.lambdas")
        assert [weight for weight in kept if weight] == [Aspects().lambdas[a]]
        assert kept[a] > 0


def test_the_controls_have_nothing_of_forward_forward_under_backpropagation() -> None:
    for name in ("bp-strong", "bp-weak", "cnn-bp"):
        config = goodness.preset(name)
        assert config.trainer == "backprop"
        assert config.objective.keys() <= {"balance", "router-z"}
        assert (config.optim.sam, config.readout.epochs) == (0.0, 0)
    assert goodness.preset("cnn-ff").objective.keys() == {"aspects", "block"}
    assert goodness.preset("cnn-ff").model.block == goodness.preset("cnn-bp").model.block
    assert goodness.preset("ff-stripped").model == goodness.preset("bp-strong").model == goodness.preset("gamma0").model


def test_the_demo_has_no_repair_that_would_hide_free_riding() -> None:
    demo = goodness.preset("demo")
    assert demo.objective.keys() == {"aspects", "block"}
    assert demo.rule == Constant(gamma=0.0)
    assert demo.data == "digits"


# Their sizes


@pytest.mark.parametrize("name", VARIANTS)
def test_a_network_with_experts_has_about_the_papers_size(name: str) -> None:
    """Six to eight million; what the terms learn for training alone (projectors, decoders) is not counted."""
    assert 5.5e6 < parameters(goodness.preset(name), with_terms=False) < 8.5e6


def test_sizes_stay_as_they_are() -> None:
    counts = {name: parameters(goodness.preset(name)) for name in ("gamma0-dense", "gamma0", "baseline", "d128-gamma0")}
    assert counts == {"gamma0-dense": 4_887_812, "gamma0": 7_476_484, "baseline": 8_591_620, "d128-gamma0": 2_259_588}


# Their table


def test_the_table_names_every_preset_whole_under_its_sections_title() -> None:
    rows = [
        {
            "name": name,
            "about": presets[name].__doc__ or "",
            "base": base_of(name),
            "changes": {"objective.supcon.temperature_last": 0.1} if base_of(name) else {},
            "paper": dataclasses.asdict(PAPER[name]) if name in PAPER else None,
            "parameters": 7_480_000,
        }
        for name in NAMES
    ]
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(presets_table(rows))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 100
    in_the_first_column = [line[:28].strip() for line in lines]
    assert [word for word in in_the_first_column if word in presets] == NAMES
    assert all(sum(title in line for line in lines) == 1 for title in SECTIONS.values())
    gamma0 = next(i for i, line in enumerate(lines) if line.startswith(" gamma0 "))
    assert "90.50" in lines[gamma0]
    assert "91.32" in lines[gamma0 + 1]
    assert "…" not in capture.get()
