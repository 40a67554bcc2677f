"""The configuration: read back exactly, changed by dotted names, and refused with the field's name."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodness import config as config_module
from goodness.config import (
    FORMAT,
    Config,
    Keep,
    Model,
    Optim,
    Stem,
    Step,
    differences,
    from_dict,
    named_part,
    override,
    part_fields,
    to_dict,
)
from goodness.errors import ConfigError
from goodness.methods.cumulative.collaboration import Constant, Gated, Ramp
from goodness.methods.cumulative.negatives import Random, Teacher
from goodness.methods.cumulative.supcon import SupCon
from goodness.methods.cumulative.terms import Aspects, Block, Current, MissingGradient
from goodness.nn.head import AspectGoodness
from goodness.nn.hybrid import Hybrid
from goodness.nn.label import Add
from goodness.parts import REGISTRIES, Rule
from goodness.presets import preset, presets


@pytest.mark.parametrize("name", list(presets))
def test_every_preset_is_valid_named_and_read_back_exactly(name: str) -> None:
    config = preset(name)
    assert config.check() is config
    assert config.preset == name
    again = from_dict(json.loads(json.dumps(to_dict(config))))
    assert again == config
    assert differences(again, config) == {}
    assert presets[name].__doc__


def test_every_registered_part_is_read_back_exactly() -> None:
    for base, registry in REGISTRIES.items():
        for name, part in registry.items():
            data = json.loads(json.dumps(to_dict(part())))
            assert data["kind"] == name
            assert config_module._read(data, base, "", may_lack=False) == part()


def leaves(node: Any, prefix: str = "") -> list[str]:
    """Dotted names of all plain fields."""
    if isinstance(node, dict):
        return [name for key, one in node.items() for name in leaves(one, f"{prefix}{key}.")]
    if dataclasses.is_dataclass(node):
        return [
            name for one in dataclasses.fields(node) for name in leaves(getattr(node, one.name), f"{prefix}{one.name}.")
        ]
    return [prefix[:-1]]


def look_up(node: Any, path: str) -> Any:
    for name in path.split("."):
        node = node[name] if isinstance(node, dict) else getattr(node, name)
    return node


BASE = preset("cp-fair-dense")
PATHS = leaves(BASE)
PLACES = {
    int: st.integers(1, 10**6),
    float: st.floats(-1e6, 1e6) | st.integers(-5, 5),
    bool: st.booleans(),
    str: st.text(max_size=5),
}


def test_the_presets_fields_are_all_within_reach() -> None:
    assert {"rule.gamma", "objective.curr.rho", "model.stem.channels", "optim.lr", "model.block.heads"} <= set(PATHS)


@given(st.data())
def test_an_override_changes_its_field_and_nothing_else(data: st.DataObject) -> None:
    plain = [path for path in PATHS if type(look_up(BASE, path)) in (int, float, bool) or path in ("data", "preset")]
    plain.remove("views")  # which takes two values only
    path = data.draw(st.sampled_from(plain))
    old = look_up(BASE, path)
    new = data.draw(PLACES[type(old)])
    changed = override(BASE, {path: new})
    assert look_up(changed, path) == new
    assert type(look_up(changed, path)) is type(old)  # an int for a float becomes one
    assert set(differences(changed, BASE)) == ({path} if new != old else set())
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert override(changed, {path: old}) == BASE


@given(
    st.sampled_from(PATHS) | st.text("abc.", max_size=6),
    st.sampled_from(["", ".x", "x", ".x.y", ".", ".weight"]),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=3)
    ),
)
def test_any_path_and_value_gives_a_configuration_that_reads_back_or_a_config_error(
    path: str, tail: str, value: Any
) -> None:
    try:
        changed = override(BASE, {path + tail: value})
    except ConfigError:
        return
    assert isinstance(changed, Config)
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed


def mutilated(node: Any) -> st.SearchStrategy[Any]:
    junk = st.sampled_from([None, True, 3, 10**400, -1.5, "x", [], ["kind"], {}, {"kind": 3}, {"kind": "nope"}])
    if not isinstance(node, dict) or not node:
        return junk

    def replaced(key: str) -> st.SearchStrategy[Any]:
        return mutilated(node[key]).map(lambda value: {**node, key: value})

    dropped = st.sampled_from(list(node)).map(lambda key: {k: v for k, v in node.items() if k != key})
    added = st.just({**node, "colour": 1})
    return st.sampled_from(list(node)).flatmap(replaced) | dropped | added | junk


@given(mutilated(to_dict(BASE)))
def test_a_damaged_file_is_a_config_error_and_never_anything_else(data: Any) -> None:
    try:
        config = from_dict(data)
    except ConfigError:
        return
    assert json.loads(json.dumps(to_dict(config))) == data


def test_parts_are_chosen_by_name_by_the_papers_name_or_by_instance() -> None:
    assert override(BASE, {"rule": "gated"}).rule == Gated(kappa=0.0)
    assert override(BASE, {"rule": "local"}).rule == Constant(gamma=0.0)
    assert override(BASE, {"rule": "lcff"}).rule == Constant(gamma=1.0)
    assert override(BASE, {"rule": "ramp", "rule.until": 0.5}).rule == Ramp(until=0.5)
    assert override(BASE, {"negatives": Random()}).negatives == Random()
    assert override(BASE, {"model.label": "add"}).model.label == Add()
    assert named_part(Rule, "constant") == Constant(gamma=0.7)


def test_terms_are_added_by_name_set_by_weight_and_taken_away_by_none() -> None:
    assert override(Config(), {"objective.curr": 0.3}).objective["curr"] == Current(weight=0.3)
    assert override(Config(), {"objective.curr.rho": 1}).objective["curr"] == Current(rho=1.0)
    assert override(Config(), {"objective.supcon": SupCon(queue=4)}).objective["supcon"].queue == 4
    assert list(override(Config(), {"objective.block": None}).objective) == ["aspects"]
    assert override(Config(), {"objective.curr": None}) == Config()  # not there, nothing to take


def test_an_override_leaves_its_source_alone() -> None:
    before = json.dumps(to_dict(BASE))
    override(BASE, {"objective.block.weight": 3.0, "model.width": 8, "rule": "lcff", "objective.curr": None})
    assert json.dumps(to_dict(BASE)) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        BASE.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("epoch", 3, "unknown field 'epoch': did you mean 'epochs'"),
        ("model.widht", 3, "unknown field 'model.widht': did you mean 'width'"),
        ("rule.gama", 0.3, "unknown field 'rule.gama': did you mean 'gamma'"),
        ("objective.curr.roh", 0.3, "unknown field 'objective.curr.roh'.*'rho'"),
        ("epochs.x", 3, "unknown field 'epochs.x': epochs has no fields"),
        ("rule.gamma.x.y", 3, "unknown field 'rule.gamma.x.y': rule.gamma has no fields"),
        ("objective.crr", 0.1, "unknown term 'crr'.*'curr'"),
        ("objective.crr", None, "unknown term 'crr'.*'curr'"),
        ("rule", "gatde", "unknown collaboration rule 'gatde': did you mean 'gated'"),
        ("negatives", "techer", "unknown negatives 'techer': did you mean 'teacher'"),
        ("model.block", "hybird", "unknown block 'hybird': did you mean 'hybrid'"),
        ("epochs", 1.5, "epochs must be int, got 1.5"),
        ("epochs", True, "epochs must be int, got True"),
        ("epochs", "3", "epochs must be int, got '3'"),
        ("beta", "4", "beta must be float, got '4'"),
        ("beta", True, "beta must be float, got True"),
        ("beta", float("nan"), "beta must be a finite number, got nan"),
        ("optim.lr", float("inf"), "optim.lr must be a finite number, got inf"),
        ("optim.lr", 10**400, "optim.lr must be a finite number"),
        ("deterministic", 1, "deterministic must be bool, got 1"),
        ("history", "product", "history must be one of sum, decay, got 'product'"),
        ("val", "all", "val must be int, got 'all'"),
        ("optim.betas", (0.9,), "optim.betas must be tuple"),
        ("optim.betas", (0.9, "x"), r"optim.betas\[1\] must be float"),
        ("rule", Block(), "rule must be Rule"),
        ("model.stem", 3, "model.stem must be Stem"),
        ("objective", {}, "objective must be dict"),
    ],
)
def test_a_wrong_name_or_type_is_refused_by_the_fields_name(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(BASE, {path: value})


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (Config(epochs=0), "epochs"),
        (Config(batch=1), "batch"),
        (Config(seed=-1), "seed"),
        (Config(split_seed=-1), "split_seed"),
        (Config(val=-1), "val"),
        (Config(eta=-0.1), "eta"),
        (Config(eta=1.1), "eta"),
        (Config(beta=0.0), "beta"),
        (Config(model=Model(width=3)), "model.width"),
        (Config(model=Model(blocks=0)), "model.blocks"),
        (Config(model=Model(stem=Stem(channels=0))), "model.stem.channels"),
        (Config(model=Model(stem=Stem(patch=0))), "model.stem.patch"),
        (Config(model=Model(stem=Stem(tokens=0))), "model.stem.tokens"),
        (Config(model=Model(block=Hybrid(hidden=0))), "model.block.hidden"),
        (Config(model=Model(goodness=AspectGoodness(temperature=-1.0))), "model.goodness.temperature"),
        (Config(optim=Optim(lr=0.0)), "optim.lr"),
        (Config(optim=Optim(warmup=1.5)), "optim.warmup"),
        (Config(optim=Optim(warmup=-0.1)), "optim.warmup"),
        (Config(optim=Optim(weight_decay=-1.0)), "optim.weight_decay"),
        (Config(optim=Optim(clip=-1.0)), "optim.clip"),
        (Config(optim=Optim(ema=1.1)), "optim.ema"),
        (Config(optim=Optim(betas=(0.9, 1.0))), "optim.betas"),
        (Config(optim=Optim(betas=(-0.1, 0.9))), "optim.betas"),
        (Config(keep=Keep(evaluate_every=0)), "keep.evaluate_every"),
        (Config(keep=Keep(checkpoint_steps=-1)), "keep.checkpoint_steps"),
        (Config(keep=Keep(checkpoint_seconds=-1.0)), "keep.checkpoint_seconds"),
        (Config(keep=Keep(memory_mb=0)), "keep.memory_mb"),
        (Config(step=Step(handoff="after_update")), "step.handoff"),
        (Config(objective={}), "objective"),
        (Config(objective={"mgc": MissingGradient(), "block": Block()}), "objective.mgc"),
        (Config(objective={"mgc": MissingGradient(), "curr": Current()}), "objective.mgc"),
        (Config(objective={"curr": Current(w_min=2.0)}), "objective.curr"),
        (Config(rule=Constant(gamma=2.0)), "rule.gamma"),
        (Config(negatives=Teacher(k_first=0)), "negatives.k_first"),
        # what is not a number is refused wherever it stands, also where no range is set
        (Config(beta=NAN), "beta"),
        (Config(optim=Optim(lr=NAN)), "optim.lr"),
        (Config(optim=Optim(betas=(0.9, NAN))), "optim.betas"),
        (Config(rule=Gated(kappa=NAN)), "rule.kappa"),
        (Config(rule=Gated(tau=INF)), "rule.tau"),
        (Config(objective={"block": Block(weight=NAN)}), "objective.block.weight"),
        (Config(objective={"aspects": Aspects(lambdas=(1.0, 1.0, 1.0, INF))}), "objective.aspects.lambdas"),
        (Config(model=Model(label=Add(std=NAN))), "model.label.std"),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_fields_name(config: Config, field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} "):
        config.check()


def test_values_at_the_edge_of_their_range_are_taken() -> None:
    Config(
        epochs=1, batch=2, seed=0, val=0, eta=0.0, optim=Optim(warmup=0.0, clip=0.0, ema=0.0, weight_decay=0.0)
    ).check()
    Config(eta=1.0, optim=Optim(warmup=1.0, ema=1.0), step=Step(mode="sequential", handoff="after_update")).check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("epochs"), "missing field 'epochs'"),
        (lambda d: d["optim"].pop("lr"), "missing field 'optim.lr'"),
        (lambda d: d.update(epoch=3), "unknown field 'epoch': did you mean 'epochs'"),
        (lambda d: d["objective"]["curr"].update(roh=3), "unknown field 'objective.curr.roh'"),
        (lambda d: d["rule"].pop("kind"), "rule: expected an object with a 'kind'"),
        (lambda d: d["rule"].update(kind=3), "rule: expected an object with a 'kind'"),
        (lambda d: d["rule"].update(kind="gatde"), "unknown collaboration rule 'gatde': did you mean 'gated'"),
        (lambda d: d["model"].update(stem=3), "model.stem: expected an object, got 3"),
        (lambda d: d.update(objective=[]), "objective: expected an object"),
        (lambda d: d["optim"].update(lr="fast"), "optim.lr must be float, got 'fast'"),
        (lambda d: d["optim"].update(lr=NAN), "optim.lr must be a finite number"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_the_fields_name(change: Any, message: str) -> None:
    data = to_dict(BASE)
    change(data)
    with pytest.raises(ConfigError, match=message):
        from_dict(data)


def test_a_file_that_is_no_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a configuration object"):
        from_dict([1, 2])


def test_an_unknown_preset_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'gated-dens': did you mean 'gated-dense'"):
        preset("gated-dens")


def test_differences_name_what_changed_was_added_and_was_taken_away() -> None:
    changed = override(
        Config(), {"epochs": 3, "rule": Constant(gamma=0.5), "objective.block": None, "objective.mgc.rho": 2}
    )
    assert differences(changed, Config()) == {
        "epochs": (362, 3),
        "rule.gamma": (0.0, 0.5),
        "objective.block.kind": ("block", None),
        "objective.block.weight": (1.0, None),
        "objective.mgc.kind": (None, "mgc"),
        "objective.mgc.weight": (None, 1.0),
        "objective.mgc.rho": (None, 2.0),
        "objective.mgc.epsilon": (None, 1e-06),
    }
    assert differences(Config(), Config()) == {}


def test_part_fields_name_every_place_that_takes_a_part() -> None:
    of_the_paper = {"rule", "negatives", "model.block", "model.goodness", "model.label"}
    assert set(part_fields(Config())) == {"method", "network", *of_the_paper}


def test_the_presets_differ_by_what_their_docstrings_say() -> None:
    local = preset("gamma0-dense")
    assert local.rule == Constant(gamma=0.0)
    assert set(differences(preset("lcff-dense"), local)) >= {"rule.gamma", "objective.curr.weight"}
    assert "curr" not in preset("lcff-dense").objective
    fair = preset("cp-fair-dense")
    assert [fair.objective["curr"].coefficient(d, 4) for d in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert fair.objective["depth"].weight == 0.1
    compensated = preset("mgc-dense")
    assert not {"block", "curr"} & set(compensated.objective)
    assert not compensated.objective["aspects"].history


def test_a_file_of_an_unknown_format_is_refused() -> None:
    for wrong in (0, FORMAT + 1, "1", None):
        with pytest.raises(ConfigError, match=f"this version reads 1 to {FORMAT}"):
            from_dict({**to_dict(BASE), "format": wrong})


def test_a_file_of_an_older_format_may_lack_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_dict(BASE)
    del data["optim"]["clip"]
    with pytest.raises(ConfigError, match=r"missing field 'optim\.clip'"):
        from_dict(data)
    monkeypatch.setattr(config_module, "FORMAT", FORMAT + 1)
    assert from_dict(data) == BASE
    with pytest.raises(ConfigError, match="unknown field 'colour'"):
        from_dict({**data, "colour": 1})


def test_a_vector_stem_comes_back_from_its_file_and_an_older_file_has_none() -> None:
    config = override(BASE, {"model.stem.kind": "vector", "model.stem.tokens": 5})
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    older = {**to_dict(BASE), "format": 4}
    del older["model"]["stem"]["tokens"]
    assert from_dict(older) == BASE


def test_mgc_may_stand_beside_terms_that_weigh_nothing() -> None:
    both = override(BASE, {"objective.mgc.weight": 1.0})
    with pytest.raises(ConfigError, match="takes the place of block and curr"):
        both.check()
    override(both, {"objective.block.weight": 0.0, "objective.curr.weight": 0.0}).check()


def test_an_unregistered_part_cannot_be_saved_as_its_parent() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(Gated):
        pass

    with pytest.raises(ConfigError, match="Mine is not registered"):
        to_dict(override(BASE, {"rule": Mine()}))
