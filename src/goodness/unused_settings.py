"""Dead weight, named before a run starts: settings that nothing reads, weights that multiply nothing.

A part says of its own settings when they do nothing (`Part.idle`), a term what it looks at (`Term.looks_at`), a rule
whether it has one weight only (`Rule.only_weight`); what follows from several parts at once is here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from goodness.config import Config, Readout
from goodness.nn.unbuilt import look_into
from goodness.parts import MULTIPLIES_NOTHING, Fact, Part, Term
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


def idle_settings(config: Config, classes: int | None = None) -> list[Idle]:
    """What a user could be misled by: settings off their default that do nothing, and weights that multiply nothing.

    Off its default is a setting that differs from its class's default, or from the preset the configuration names.
    With `classes` known, a choice of wrong labels where there is none to make counts too.
    """
    base = preset(config.preset) if config.preset in presets else None
    switched_off = tuple(f"{name}." for name, term in _terms(config) if _is_off(term, config))

    def is_set(name: str, of_preset: bool) -> bool:
        value, standard = map(_told, _look(config, name))
        is_off = name.startswith(switched_off)
        before = standard if is_off else value
        if base is not None:
            with contextlib.suppress(KeyError, AttributeError, IndexError):  # the preset may have other parts
                before = _told(_look(base, name)[0])
        # What the preset had set for a term that is off went with the term.
        return value != before or (value != standard and not is_off and not (of_preset and base is not None))

    found: dict[str, Idle] = {}
    for fact in idle_facts(config, classes):
        names, (value, _) = [fact.field], _look(config, fact.field)
        if isinstance(value, Part) and not fact.always and not is_set(fact.field, fact.of_preset):
            names = [f"{fact.field}.{one.name}" for one in dataclasses.fields(value)]
        for name in names:
            if name not in found and (fact.always or is_set(name, fact.of_preset)):
                found[name] = Idle(name, fact.why, _told(_look(config, name)[0]), fact.what)
    return list(found.values())


def idle_facts(config: Config, classes: int | None = None) -> list[Fact]:
    """Every setting that does nothing in this configuration, at whatever value; a field that stands for a whole part
    (`rule`, or a term's `weight`) speaks for all settings of that part."""
    if not config.is_cumulative:
        return []
    facts = [*_in_backprop(config)] if config.trainer == "backprop" else [*_in_forward_forward(config, classes)]
    facts += _in_shape(config)
    if config.optim.kind != "muon":
        facts.append(Fact("optim.momentum", "it is Muon's and SGD's, and optim.kind is adamw"))
    for name, term in _terms(config):
        if _is_off(term, config):
            why = f"{name}.weight is 0, so that the term is off"
            facts += [Fact(f"{name}.{one.name}", why) for one in dataclasses.fields(term) if one.name != "weight"]
        elif config.trainer == "ff" or term.joins_backprop:
            facts += _by_itself(name, term, config)
    return facts


def _by_itself(name: str, part: Part, config: Config) -> Iterator[Fact]:
    """What a part says of its own settings, under their dotted names."""
    for said in part.idle(config):
        fact = said if isinstance(said, Fact) else Fact(*said)
        field = f"{name}.{fact.field}" if fact.field else name
        is_weight = fact.field == "weight" and isinstance(part, Term) and part.weight != 0
        yield Fact(field, fact.why, *MULTIPLIES_NOTHING) if is_weight else fact._replace(field=field)


def _in_shape(config: Config) -> Iterator[Fact]:
    """What the network's shape leaves without work, under either trainer."""
    model = config.model
    yield from _by_itself("model.block", model.block, config)
    if model.stem.kind == "pixels":
        why = "the stem hands the pixels on as they are (model.stem.kind)"
        yield from (Fact(name, why) for name in ("model.width", "model.stem.channels", "model.stem.patch"))
    if model.stem.kind == "vector":
        why = "the stem is one linear map (model.stem.kind)"
        yield from (Fact(name, why) for name in ("model.stem.channels", "model.stem.patch"))
    else:
        yield Fact("model.stem.tokens", "it is the vector stem's, and model.stem.kind is another")


def _in_backprop(config: Config) -> Iterator[Fact]:
    why = "backpropagation trains the backbone alone, without labels, goodness and local losses"
    of_model = ("label", "label_at", "goodness", "activation", "normalise", "token_norm", "warm_start")
    for name in ("rule", "negatives", "beta", "eta", "views", "history", *(f"model.{one}" for one in of_model)):
        yield Fact(name, why)
    for name in ("optim.sam", "optim.freeze", "step.mode", "step.handoff"):
        yield Fact(name, "backpropagation takes one plain step for the whole network")
    yield Fact("keep.memory_mb", "there are no label hypotheses to keep in memory")
    for name, term in _terms(config):
        if not term.joins_backprop and not _is_off(term, config):
            known = "backpropagation adds the router's losses to its cross-entropy, and no other term"
            yield Fact(f"{name}.weight", known, *MULTIPLIES_NOTHING)
    for one in dataclasses.fields(Readout):
        if one.name != "epochs" or config.readout.epochs > 0:  # no epochs is just what happens
            yield Fact(f"readout.{one.name}", "Stage 2 reads label hypotheses, and backpropagation leaves none")


def _in_forward_forward(config: Config, classes: int | None) -> Iterator[Fact]:
    model, blocks = config.model, config.model.blocks
    sees = {name: term.looks_at(config) for name, term in _terms(config) if not _is_off(term, config)}
    seen = {what for each in sees.values() for what in each}
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
        yield from (Fact(f"model.{name}", handed) for name in ("activation", "normalise", "token_norm"))
        yield Fact("step.handoff", handed)
        yield from (Fact(name, alone) for name in ("model.label_at", "model.warm_start", "optim.freeze"))
    else:
        if not model.normalise:
            yield Fact("model.token_norm", "tokens are handed on without normalisation (model.normalise)")
        if model.block.ends_in_relu and model.activation == "none":
            yield Fact("model.activation", "the tokens have been through the stage's own ReLU", "is the same as relu")
        if _nothing_fits_the_first_block(config):
            yield Fact("model.warm_start", "no later block has a weight matrix of the first one's shape")
    if config.step.mode == "fused":
        yield Fact("step.handoff", "a fused step updates all blocks at once")


def _nothing_fits_the_first_block(config: Config) -> bool:
    """Whether no later block has a matrix of the same name and shape as the first: vectors start alike anyway."""
    network = look_into(config.model)
    if network is None:
        return False
    first, *later = ({name: value.shape for name, value in block.named_parameters()} for block in network.blocks)
    return not any(len(shape) > 1 and other.get(name) == shape for name, shape in first.items() for other in later)


def _terms(config: Config) -> list[tuple[str, Term]]:
    return [(f"objective.{name}", term) for name, term in config.objective.items()]


def _is_off(term: Term, config: Config) -> bool:
    blocks = config.model.blocks
    return not any(term.acts_at(depth, blocks) for depth in range(blocks))


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
    elif rule.only_weight(config) == 0:
        yield Fact("history", "the rule's weight is always 0")
    elif rule.only_weight(config) == 1:
        yield Fact("history", "nothing fades under a weight of 1")


def _in_negatives(config: Config, classes: int | None, sees: dict[str, frozenset[str]]) -> Iterator[Fact]:
    """`sees` has what each term with a weight looks at."""
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
        yield Fact("negatives", "no term with a weight looks at a wrong label", of_preset=True)
    if beside or (config.eta < 1 and in_blend):
        yield from _by_itself("negatives", config.negatives, config)


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
