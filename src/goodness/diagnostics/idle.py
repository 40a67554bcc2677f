"""Dead weight, named before a run starts: settings that nothing reads, weights that multiply nothing.

A part says of its own settings when they do nothing (`Part.idle`); what follows from several parts at once is here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from goodness.config import Config, Readout
from goodness.local.collaboration import Constant, Gated, Progressive, Ramp
from goodness.local.extra_terms import Diversity, Probe
from goodness.local.negatives import Mined, Teacher
from goodness.local.routing import Balance, RouterZ
from goodness.local.supcon import SupCon
from goodness.local.terms import Aspects, Block, Current, DepthOrder, MissingGradient, Reconstruction
from goodness.model.head import AspectGoodness
from goodness.model.hybrid import Hybrid
from goodness.model.network import Network
from goodness.model.plain_cnn import ConvStages
from goodness.parts import Part, Rule, Term
from goodness.presets import preset, presets


@dataclass(frozen=True)
class Idle:
    """A setting that does nothing: its dotted name, the reason, its value, and what it does in place of its work."""

    field: str
    why: str
    value: Any = None
    what: str = "has no effect"

    def __str__(self) -> str:
        return f"{self.field} ({self.value}) {self.what}: {self.why}"


class Fact(NamedTuple):
    """That a setting, or a part as a whole, does nothing (or `what` else), whatever its value.

    At its default it misleads nobody: it is told where someone has set it, unless `always`.
    """

    field: str
    why: str
    what: str = "has no effect"
    always: bool = False


MULTIPLIES_NOTHING = ("multiplies nothing", True)
"""How a weight that is not 0 is told of, and that it always is."""


def idle_settings(config: Config, classes: int | None = None) -> list[Idle]:
    """What a user could be misled by: settings off their default that do nothing, and weights that multiply nothing.

    Off its default is a setting that differs from its class's default, or from the preset the configuration names.
    With `classes` known, settings that ask for more wrong labels than there are count too.
    """
    base = preset(config.preset) if config.preset in presets else None
    switched_off = tuple(f"{name}." for name, term in _terms(config) if _is_off(term, config))

    def is_set(name: str) -> bool:
        value, standard = map(_told, _look(config, name))
        is_off = name.startswith(switched_off)
        before = standard if is_off else value
        if base is not None:
            with contextlib.suppress(KeyError, AttributeError, IndexError):  # the preset may have other parts
                before = _told(_look(base, name)[0])
        # What the preset had set for a term that is off went with the term.
        return value != before or (value != standard and not is_off)

    found: dict[str, Idle] = {}
    for fact in idle_facts(config, classes):
        names, (value, _) = [fact.field], _look(config, fact.field)
        if isinstance(value, Part) and not fact.always and not is_set(fact.field):
            names = [f"{fact.field}.{one.name}" for one in dataclasses.fields(value)]
        for name in names:
            if name not in found and (fact.always or is_set(name)):
                found[name] = Idle(name, fact.why, _told(_look(config, name)[0]), fact.what)
    return list(found.values())


def idle_facts(config: Config, classes: int | None = None) -> list[Fact]:
    """Every setting that does nothing in this configuration, at whatever value; a field that stands for a whole part
    (`rule`, or a term's `weight`) speaks for all settings of that part."""
    facts = [*_in_backprop(config)] if config.trainer == "backprop" else [*_in_forward_forward(config, classes)]
    facts += _in_shape(config)
    for name, term in _terms(config):
        if _is_off(term, config):
            why = f"{name}.weight is 0, so that the term is off"
            facts += [Fact(f"{name}.{one.name}", why) for one in dataclasses.fields(term) if one.name != "weight"]
        elif config.trainer == "ff" or isinstance(term, (Balance, RouterZ)):
            facts += _by_itself(name, term, config)
    return facts


def _by_itself(name: str, part: Part, config: Config) -> Iterator[Fact]:
    """What a part says of its own settings."""
    for field, why in part.idle(config):
        is_weight = field == "weight" and isinstance(part, Term) and part.weight != 0
        yield Fact(f"{name}.{field}", why, *MULTIPLIES_NOTHING) if is_weight else Fact(f"{name}.{field}", why)


def _in_shape(config: Config) -> Iterator[Fact]:
    """What the network's shape leaves without work, under either trainer."""
    model = config.model
    yield from _by_itself("model.block", model.block, config)
    if model.stem.kind == "pixels":
        why = "the stem hands the pixels on as they are (model.stem.kind)"
        yield from (Fact(name, why) for name in ("model.width", "model.stem.channels", "model.stem.patch"))


def _in_backprop(config: Config) -> Iterator[Fact]:
    why = "backpropagation trains the backbone alone, without labels, goodness and local losses"
    of_model = ("label", "label_at", "goodness", "activation", "normalise", "warm_start")
    for name in ("rule", "negatives", "beta", "eta", "history", *(f"model.{one}" for one in of_model)):
        yield Fact(name, why)
    for name in ("optim.sam", "optim.freeze", "step.mode", "step.handoff"):
        yield Fact(name, "backpropagation takes one plain step for the whole network")
    yield Fact("keep.memory_mb", "there are no label hypotheses to keep in memory")
    for name, term in _terms(config):
        if not isinstance(term, (Balance, RouterZ)) and not _is_off(term, config):
            known = "backpropagation adds the router's losses to its cross-entropy, and no other term"
            yield Fact(f"{name}.weight", known, *MULTIPLIES_NOTHING)
    for one in dataclasses.fields(Readout):
        if one.name != "epochs" or config.readout.epochs > 0:  # no epochs is just what happens
            yield Fact(f"readout.{one.name}", "Stage 2 reads label hypotheses, and backpropagation leaves none")


def _in_forward_forward(config: Config, classes: int | None) -> Iterator[Fact]:
    model, blocks = config.model, config.model.blocks
    active = [(name, term) for name, term in _terms(config) if not _is_off(term, config)]
    dead = _dead_aspects(config) if any(type(term) is Aspects for _, term in active) else {}
    sees = {name: _sees(term, config, dead) for name, term in active}
    seen = {what for each in sees.values() for what in each}
    for name, term in active:
        if type(term) is Aspects:
            yield from _in_aspects(name, term, config, dead)
    yield from _in_history(config, "history" in seen)
    yield from _in_negatives(config, classes, sees)
    if "beta" not in seen:
        yield Fact("beta", "no term with a weight has a barrier (it only moves the reported attenuation)")
    if not {"blend", "negatives"} & seen and config.eta > 0:
        yield Fact("eta", "no term with a weight blends the two kinds of negatives")
    for name, part in (("model.goodness", model.goodness), ("model.label", model.label)):
        yield from _by_itself(name, part, config)
    if blocks == 1:
        handed = "the one block hands nothing on"
        alone = "there is one block"
        yield from (Fact(name, handed) for name in ("model.activation", "model.normalise", "step.handoff"))
        yield from (Fact(name, alone) for name in ("model.label_at", "model.warm_start", "optim.freeze"))
    elif isinstance(model.block, ConvStages) and model.activation == "none":
        yield Fact("model.activation", "the tokens have been through the stage's own ReLU", "is the same as relu")
    if config.step.mode == "fused":
        yield Fact("step.handoff", "a fused step updates all blocks at once")


# What the terms look at

EVERYTHING = frozenset({"history", "beta", "blend", "negatives"})
"""The earlier blocks by the rule's weight, the barrier's beta, the wrong labels and images as eta blends them, and
negatives beside that blend. A term from outside may look at all of it."""

SEEN_BY: dict[type[Term], frozenset[str]] = {
    Block: frozenset({"history", "beta", "blend"}),
    MissingGradient: frozenset({"history", "beta", "blend"}),
    Current: frozenset({"beta", "blend"}),
    DepthOrder: frozenset({"negatives"}),
    Balance: frozenset({"negatives"}),  # the router sends the negatives' tokens too
    RouterZ: frozenset({"negatives"}),
    SupCon: frozenset(),
    Reconstruction: frozenset(),
    Diversity: frozenset(),
    Probe: frozenset(),
}


def _sees(term: Term, config: Config, dead: dict[int, str]) -> frozenset[str]:
    if type(term) is Aspects:
        live = _live_losses(term, dead)
        found = {"blend"} if live else set()
        found |= {"history"} if live and term.history else set()
        return frozenset(found | ({"beta"} if "rank" in live else set()))
    if type(term) is DepthOrder and config.model.blocks == 1:
        return frozenset()
    return SEEN_BY.get(type(term), EVERYTHING)


def _terms(config: Config) -> list[tuple[str, Term]]:
    return [(f"objective.{name}", term) for name, term in config.objective.items()]


def _is_off(term: Term, config: Config) -> bool:
    blocks = config.model.blocks
    return all(term.coefficient(depth, blocks) == 0 for depth in range(blocks))


# Aspects


def _dead_aspects(config: Config) -> dict[int, str]:
    """The aspects that are zero in every block, by place and name; none where that cannot be found out."""
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            network = Network(config.model, (3, 32, 32), 10)
    except Exception:  # a part from outside may want real tensors or other images: then nothing is said
        return {}
    heads = [network.block(depth).head for depth in range(len(network.blocks))]
    by_place = zip(heads[0].names, *(head.active for head in heads))
    return {place: name for place, (name, *is_active) in enumerate(by_place) if not any(is_active)}


def _live_losses(term: Aspects, dead: dict[int, str]) -> list[str]:
    """The losses of the aspects that have a weight and can differ from zero."""
    return [kind for a, (weight, kind) in enumerate(zip(term.lambdas, term.losses)) if weight != 0 and a not in dead]


def _in_aspects(name: str, term: Aspects, config: Config, dead: dict[int, str]) -> Iterator[Fact]:
    for a, weight in enumerate(term.lambdas):
        if a in dead and weight != 0:
            yield Fact(f"{name}.lambdas[{a}]", _why_dead(dead[a], config), *MULTIPLIES_NOTHING)
        if a in dead or weight == 0:
            why = f"{name}.lambdas[{a}] is 0" if weight == 0 else _why_dead(dead[a], config)
            yield Fact(f"{name}.losses[{a}]", why)
    live = _live_losses(term, dead)
    if not live:
        yield Fact(f"{name}.weight", "every aspect has a lambda of 0 or is always zero", *MULTIPLIES_NOTHING)
    if "margin" not in live:
        yield Fact(f"{name}.theta_init", "no aspect at work has the margin loss, whose threshold it is")
    if config.model.blocks == 1:
        yield Fact(f"{name}.history", "there is one block, and no earlier one")
    elif _weighs_nothing(config.rule, config):
        yield Fact(f"{name}.history", "the rule's weight is always 0")


def _why_dead(aspect: str, config: Config) -> str:
    if aspect == "sharpness" and isinstance(config.model.goodness, AspectGoodness):
        if isinstance(config.model.block, Hybrid):
            return "sharpness is always zero without memory (--model.block.memory 64 would give it one)"
        return "sharpness is always zero without memory, and no block here has one"
    return f"{aspect} is always zero"


# History


def _in_history(config: Config, is_seen: bool) -> Iterator[Fact]:
    blocks, rule = config.model.blocks, config.rule
    unseen = "no term with a weight looks at the earlier blocks (it only moves the reported attenuation)"
    if blocks == 1:
        yield Fact("rule", "there is one block, and no earlier one")
    elif not is_seen:
        yield Fact("rule", unseen)
    else:
        yield from _by_itself("rule", rule, config)
    if blocks < 3:
        yield Fact("history", "fading takes three blocks to show")
    elif not is_seen:
        yield Fact("history", unseen)
    elif _weighs_nothing(rule, config):
        yield Fact("history", "the rule's weight is always 0")
    elif rule == Constant(gamma=1.0):
        yield Fact("history", "nothing fades under a weight of 1")


def _weighs_nothing(rule: Rule, config: Config) -> bool:
    """Whether the history's weight is zero all the time, in every block."""
    if type(rule) is Constant:
        return rule.gamma == 0
    if type(rule) is Gated:
        return rule.gamma0 == 0
    if type(rule) is Ramp:
        return rule.first == 0 and (rule.last == 0 or config.epochs == 1)
    if type(rule) is Progressive:
        return rule.last == 0 and (rule.first == 0 or config.model.blocks == 2)
    return False


# Negatives


def _in_negatives(config: Config, classes: int | None, sees: dict[str, frozenset[str]]) -> Iterator[Fact]:
    """`sees` has what each term with a weight looks at."""
    negatives = config.negatives
    beside = [name for name, seen in sees.items() if "negatives" in seen]
    in_blend = any("blend" in seen for seen in sees.values())
    if classes == 2:
        if not beside:  # a router sees every stream, however often the one label stands
            yield Fact("negatives", "two classes leave one wrong label, and nothing to choose")
        return
    if in_blend and config.eta == 1:
        why = "eta is 1, so that wrong labels are chosen and scored, and no blended loss weighs them"
        what = f"reaches {', '.join(beside)} and no other term" if beside else "has no effect"
        yield Fact("negatives", why, what, always=True)
    elif not in_blend and not beside:
        yield Fact("negatives", "no term with a weight looks at a wrong label")
    if not beside and (config.eta == 1 or not in_blend):
        return
    yield from _by_itself("negatives", negatives, config)
    if config.model.blocks == 1:
        yield Fact("negatives.once", "there is one block to choose for")
    draws = None
    if isinstance(negatives, Mined):
        draws = negatives.k_first if negatives.once else max(negatives.k_first, negatives.k_last)
    if type(negatives) is Teacher and config.optim.ema == 0 and draws != 1:
        why = "optim.ema is 0, so that the moving average is the network itself"
        yield Fact("negatives", why, "mines as online would", always=True)
    for name in ("count", "among"):
        wanted = getattr(negatives, name, 1)
        if classes is not None and wanted > classes - 1:
            why = f"{classes} classes have {classes - 1} wrong labels"
            yield Fact(f"negatives.{name}", why, "asks for more than there is", always=True)
        elif draws is not None and wanted > draws and (name == "count" or draws > 1):
            why = f"{draws} draws give at most {draws} labels (negatives.k_first, negatives.k_last)"
            yield Fact(f"negatives.{name}", why, "asks for more than there is", always=True)


# Values by dotted name


def _look(config: Config, name: str) -> tuple[Any, Any]:
    """What stands under a dotted name, and what stands there when nobody sets it; `objective.aspects.lambdas[2]` too.

    Nobody's choice of a setting is the default of the part's class, or the configuration's where that has such a part.
    """
    node: Any = config
    default: Any = None
    for step in re.findall(r"[^.\[\]]+", name):
        like = default if type(default) is type(node) else None
        if isinstance(node, dict):
            node, default = node[step], None
        elif isinstance(node, tuple):
            place = int(step)
            node, default = node[place], like[place] if like is not None and place < len(like) else None
        else:
            child = getattr(node, step)
            node, default = child, _default_of(node, step) if like is None else getattr(like, step)
    return node, default


def _default_of(node: Any, name: str) -> Any:
    field = next(one for one in dataclasses.fields(node) if one.name == name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _told(value: Any) -> Any:
    """A setting as a user writes it: a part by its name."""
    return value.kind if isinstance(value, Part) else value
