"""A run's configuration: frozen, keyword-only, checked before any work is done, saved and read back exactly."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from goodness import parts
from goodness.errors import ConfigError, UnknownName, nearest
from goodness.methods.cumulative.choice import Choice  # noqa: F401  (registers the term)
from goodness.methods.cumulative.collaboration import Constant, Gated
from goodness.methods.cumulative.extra_terms import Diversity  # noqa: F401  (registers its terms)
from goodness.methods.cumulative.negatives import Teacher, keeps_prefix
from goodness.methods.cumulative.part import CumulativePart
from goodness.methods.cumulative.routing import Balance  # noqa: F401  (registers its terms)
from goodness.methods.cumulative.supcon import SupCon  # noqa: F401  (registers the term)
from goodness.methods.cumulative.terms import Aspects, Block
from goodness.methods.known import mono_forward  # noqa: F401  (registers all methods)
from goodness.nn.head import AspectGoodness
from goodness.nn.hybrid import Hybrid
from goodness.nn.label import Scale
from goodness.nn.networks import Backbone
from goodness.nn.plain_cnn import ConvStages  # noqa: F401  (registers the block)
from goodness.nn.pyramid import Pyramid  # noqa: F401  (registers the block)
from goodness.parts import (
    BlockPart,
    GoodnessPart,
    LabelPart,
    MethodPart,
    NegativesPart,
    NetworkPart,
    Part,
    Rule,
    Term,
)

C = TypeVar("C")

FORMAT = 7
"""Of config.json. Goes up when a field is added; its default must then mean what older runs did."""


@dataclass(frozen=True, kw_only=True)
class Stem:
    """What turns images into tokens; it learns with block 0."""

    kind: Literal["conv", "pixels", "vector"] = "conv"
    """Convolutions and a patch embedding; the pixels as they are (one token each, for convolutional blocks); or all
    numbers at once by one linear map (for embedded texts)."""
    channels: int = 384
    """Channels before the patch embedding (a quarter of them after the first convolution)."""
    patch: int | None = None
    """Side of a patch after the stem's halving; None picks the smallest with at most 8x8 tokens."""
    tokens: int = 8
    """How many tokens the linear map of a vector stem makes."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network's shape. Image size, channels and classes come from the data."""

    width: int = 256
    """Width of a token."""
    blocks: int = 4
    """How many blocks (L)."""
    label_at: Literal["every", "first"] = "every"
    """Blocks that see the label."""
    activation: Literal["relu", "triangle", "none"] = "relu"
    """What tokens pass through on their way to the next block; triangle subtracts a token's mean before the ReLU."""
    normalise: bool = True
    """Whether tokens are scaled to one norm on their way to the next block."""
    token_norm: Literal["quarter", "unit"] = "quarter"
    """That norm: width^(1/4), or 1."""
    warm_start: bool = False
    """Whether all blocks begin with the first block's initial weights."""
    stem: Stem = field(default_factory=Stem)
    block: BlockPart = field(default_factory=Hybrid)
    goodness: GoodnessPart = field(default_factory=AspectGoodness)
    label: LabelPart = field(default_factory=Scale)


@dataclass(frozen=True, kw_only=True)
class Optim:
    """Every block's own optimiser, its schedule, and the moving average of its weights."""

    kind: Literal["adamw", "muon", "adam", "sgd"] = "adamw"
    """AdamW, or Muon for the matrices and filters of stem and bodies (the rest, label vectors and heads too, stays
    with AdamW): its update is the momentum with all singular values made about one. Methods other than the paper's
    can also take Adam or SGD, whose weight decay is part of the gradient."""
    lr: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "linear", "late-linear", "constant"] = "cosine"
    """What follows the warm-up: a cosine or a line to zero, the peak and from half of it on a line to zero, or the
    peak all along."""
    warmup: float = 15 / 362
    """Share of the training over which the learning rate rises."""
    weight_decay: float = 0.05
    """Weight decay, on matrices only."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW and Adam."""
    momentum: float = 0.95
    """Decay rate of Muon and SGD."""
    clip: float = 1.0
    """Largest gradient norm of a block; 0 switches clipping off."""
    sam: float = 0.0
    """Radius of sharpness-aware minimisation in each block (the paper's 0.05); 0 is plain AdamW."""
    ema: float = 0.999
    """Decay of the moving average (the teacher): min(ema, 1 - 1 / (t + 2)) at step t; 0 is the network itself."""
    freeze: Literal["none", "greedy", "prefix"] = "none"
    """When blocks learn: all the time; one after the other, an equal share of the run each (greedy); or all from the
    start, frozen from the first to the last at equal steps (prefix). Each has a schedule of its own over that time."""


@dataclass(frozen=True, kw_only=True)
class Readout:
    """Stage 2: a head trained by backpropagation on the frozen network's features, all label hypotheses at once."""

    epochs: int = 20
    """Passes over the training split; 0 where the paper's protocol has no Stage 2."""
    batch: int = 512
    """Images per step."""
    width: int = 1536
    """Width of a hypothesis in the head (the paper's diagram, 18 M parameters; 320 makes it one million)."""
    heads: int = 8
    """Heads of the attention across hypotheses."""
    lr: float = 1e-3
    """Peak learning rate; a cosine to zero follows the warm-up."""
    warmup: float = 0.05
    """Share of the training over which the learning rate rises."""
    weight_decay: float = 0.05
    """Decoupled weight decay, on matrices only; AdamW's betas are `optim.betas`."""
    clip: float = 1.0
    """Largest gradient norm; 0 switches clipping off."""
    augment: str | None = None
    """Augmentation recipe; None is the run's own. Features are computed anew on every batch."""
    mixup: float = 0.0
    """Mixup's alpha; 0 leaves images unmixed."""
    cutmix: float = 0.0
    """CutMix's alpha; with both, each batch takes one of the two."""
    weights: Literal["best", "last"] = "best"
    """Which of Stage 1's weights are frozen: best on validation, or the last; both are the moving average's."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """How a step is carried out; none of it changes what is learned, except `after_update`."""

    mode: Literal["fused", "sequential"] = "fused"
    """One backward for all blocks, or one graph at a time (the reference, and the low-memory mode)."""
    handoff: Literal["before_update", "after_update"] = "before_update"
    """Whether the next block sees tokens from before or after this block's update (the latter: sequential alone)."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the blocks; auto does so on a GPU."""
    replay: Literal["auto", "on", "off"] = "auto"
    """Record a step once and replay it, without Python's part of it; auto does so on a CUDA device."""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """What is measured and saved along the way."""

    evaluate_every: int = 1
    """Epochs between evaluations on the validation split."""
    checkpoint_seconds: float = 60.0
    """Least time between checkpoints, which are written at the end of an epoch."""
    checkpoint_steps: int = 0
    """Also write a checkpoint every so many steps; 0 does not."""
    report: Literal["best", "last"] = "best"
    """Which weights the headline reports: best on validation (last where there is no validation split), or last."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too."""
    memory_mb: int | None = None
    """Cap on what a batch of label hypotheses may take, in evaluation and in Stage 2; None is an eighth of a GPU's
    memory, and on a CPU 128 in evaluation and 1024 in the training of Stage 2."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides what a run learns."""

    preset: str = "custom"
    """The named run this one derives from."""
    trainer: Literal["ff", "backprop"] = "ff"
    """Block-local Forward-Forward, or end-to-end backpropagation on the same backbone without labels and goodness."""
    data: str = "cifar10"
    """Data set: digits, mnist, fashion-mnist, cifar10, cifar100, tiny-imagenet, folder:PATH; texts imdb, newsgroups,
    ag-news, texts:PATH."""
    method: MethodPart = field(default_factory=CumulativePart)
    """The method of local learning: cumulative is the paper's."""
    network: NetworkPart = field(default_factory=Backbone)
    """The network of methods other than cumulative; backbone is the paper's, as `model` describes it."""
    seed: int = 42
    """Seeds initial weights, batch order, augmentation and mining. The split has its own."""
    epochs: int = 362
    """Passes over the training split."""
    batch: int = 512
    """Images per step."""
    deterministic: bool = False
    """Same bits every time on the same machine, and across kill and resume."""
    augment: str = "ff"
    """Augmentation recipe: ff, bp-strong, weak, sprint, flip, crop-rotate or none."""
    views: Literal[1, 3] = 3
    """Augmented views of an image in a step: two under the right label and one for the negatives, or one for all."""
    split_seed: int = 42
    """Seeds the validation hold-out; the same for every run, so that runs can be compared."""
    val: int | None = None
    """Images held out for validation; None takes the data set's own protocol."""
    beta: float = 4.0
    """Sharpness of the barrier softplus(-beta u)."""
    eta: float = 0.5
    """Share of wrong-image against wrong-label negatives; 0 drops the wrong-image stream."""
    history: Literal["sum", "decay"] = "sum"
    """How earlier blocks add up: plainly, or fading with every block."""
    rule: Rule = field(default_factory=lambda: Constant(gamma=0.0))
    negatives: NegativesPart = field(default_factory=Teacher)
    objective: dict[str, Term] = field(default_factory=lambda: {"aspects": Aspects(), "block": Block()})
    model: Model = field(default_factory=Model)
    optim: Optim = field(default_factory=Optim)
    step: Step = field(default_factory=Step)
    keep: Keep = field(default_factory=Keep)
    readout: Readout = field(default_factory=Readout)

    def check(self) -> Config:
        """Raise ConfigError at the first field out of range; return the configuration itself."""
        for name, value in _flat(to_dict(self)).items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, float) and not math.isfinite(one):
                    raise ConfigError(f"{name} must be a finite number, got {one}")
        at_least = {
            "epochs": (self.epochs, 1),
            "batch": (self.batch, 2),
            "seed": (self.seed, 0),
            "split_seed": (self.split_seed, 0),
            "val": (self.val or 0, 0),
            "eta": (self.eta, 0),
            "model.width": (self.model.width, 4),
            "model.blocks": (self.model.blocks, 1),
            "model.stem.channels": (self.model.stem.channels, 1),
            "model.stem.patch": (1 if self.model.stem.patch is None else self.model.stem.patch, 1),
            "model.stem.tokens": (self.model.stem.tokens, 1),
            "optim.weight_decay": (self.optim.weight_decay, 0),
            "optim.clip": (self.optim.clip, 0),
            "optim.sam": (self.optim.sam, 0),
            "optim.warmup": (self.optim.warmup, 0),
            "optim.ema": (self.optim.ema, 0),
            "keep.evaluate_every": (self.keep.evaluate_every, 1),
            "keep.checkpoint_seconds": (self.keep.checkpoint_seconds, 0),
            "keep.checkpoint_steps": (self.keep.checkpoint_steps, 0),
            "keep.memory_mb": (1 if self.keep.memory_mb is None else self.keep.memory_mb, 1),
            "readout.epochs": (self.readout.epochs, 0),
            "readout.batch": (self.readout.batch, 1),
            "readout.width": (self.readout.width, 1),
            "readout.heads": (self.readout.heads, 1),
            "readout.warmup": (self.readout.warmup, 0),
            "readout.weight_decay": (self.readout.weight_decay, 0),
            "readout.clip": (self.readout.clip, 0),
            "readout.mixup": (self.readout.mixup, 0),
            "readout.cutmix": (self.readout.cutmix, 0),
        }
        for name, value in _flat(to_dict(self)).items():
            if isinstance(value, int) and abs(value) >= 2**63:
                raise ConfigError(f"{name} is too large a number: {value}")
        for name, (value, least) in at_least.items():
            if not value >= least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        at_most = {
            "eta": (self.eta, 1),
            "optim.warmup": (self.optim.warmup, 1),
            "optim.ema": (self.optim.ema, 1),
            "readout.warmup": (self.readout.warmup, 1),
        }
        for name, (value, most) in at_most.items():
            if not value <= most:
                raise ConfigError(f"{name} must be at most {most}, got {value}")
        positive = {"beta": self.beta, "optim.lr": self.optim.lr, "readout.lr": self.readout.lr}
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name} must be positive, got {value}")
        if self.readout.width % self.readout.heads:
            raise ConfigError(
                f"readout.width {self.readout.width} must be a multiple of readout.heads ({self.readout.heads})"
            )
        if not 0 <= self.optim.momentum < 1:
            raise ConfigError(f"optim.momentum must lie in [0, 1), got {self.optim.momentum}")
        if not all(0 <= one < 1 for one in self.optim.betas):
            raise ConfigError(f"optim.betas must lie in [0, 1), got {self.optim.betas}")
        if self.step.handoff == "after_update" and self.step.mode == "fused":
            raise ConfigError("step.handoff after_update needs step.mode sequential: fused updates all blocks at once")
        self._check_method()
        used = {name for name, term in self.objective.items() if term.weight != 0}
        if not used and self.trainer == "ff":
            raise ConfigError("objective has no term with a weight: give one, such as --objective.block.weight 1")
        if "mgc" in used and {"block", "curr"} & used:
            raise ConfigError(
                "objective.mgc takes the place of block and curr: give those a weight of 0 (--objective.block.weight 0)"
            )
        for part in (self.rule, self.negatives, self.model.block, self.model.goodness, self.model.label):
            part.check()
        if self.model.label.is_late and self.model.label_at == "first":
            raise ConfigError(
                f"model.label '{self.model.label.kind}' stays out of the tokens, so blocks after the first would see "
                "none at all: leave model.label_at at every"
            )
        if keeps_prefix(self.negatives) and self.model.label.is_late:
            raise ConfigError(
                f"model.label '{self.model.label.kind}' stays out of the tokens, so there is no prefix under a label: "
                "use --negatives teacher, which mines the same"
            )
        if keeps_prefix(self.negatives) and self.step.handoff == "after_update":
            raise ConfigError("negatives 'prefix' mines before any block's update: leave step.handoff at before_update")
        self.model.block.check_model(self.model)
        for term in self.objective.values():
            term.check()
            if term.weight != 0:
                term.check_model(self.model)
        return self

    @property
    def is_cumulative(self) -> bool:
        """Whether it is the paper's method, with settings of its own all over the configuration."""
        return isinstance(self.method, CumulativePart)

    def _check_method(self) -> None:
        """Refuse settings of another method than the one chosen."""
        self.method.check()
        self.network.check()
        plain, at_the_papers = Config(), list(OF_THE_PAPER)
        if self.is_cumulative:
            if self.network != plain.network:
                raise ConfigError(f"network '{self.network.kind}' is for other methods; cumulative has model.*")
            if self.optim.kind in ("adam", "sgd"):
                raise ConfigError(f"optim.kind {self.optim.kind} is for other methods; cumulative has adamw and muon")
            return
        if self.optim.freeze != "none":
            raise ConfigError(
                f"optim.freeze is for method cumulative; {self.method.kind} says itself which blocks learn"
            )
        if self.trainer != "ff":
            raise ConfigError(f"trainer {self.trainer} goes with method cumulative; take --method backprop")
        at_the_papers += [] if isinstance(self.network, Backbone) else ["model"]
        changed = [name for name in at_the_papers if getattr(self, name) != getattr(plain, name)]
        if changed:
            raise ConfigError(f"{changed[0]} is a setting of method cumulative, and the method is {self.method.kind}")


CHOOSING = ("method", "network")
"""Fields that are set before all others: choosing one resets what a preset said of another."""
OF_THE_PAPER = ("rule", "negatives", "objective", "beta", "eta", "history")
"""Settings of method cumulative."""

NAMED_RULES: dict[str, Rule] = {
    "local": Constant(gamma=0.0),
    "lcff": Constant(gamma=1.0),
    "gated": Gated(kappa=0.0),
    "constant": Constant(gamma=0.7),
}
"""Settings of the rules that the paper has names for; every registered rule's own name works beside them."""


def rule_name(rule: Rule) -> str:
    """The name of a rule with its settings, or its kind and what is set: 'lcff', 'gated, kappa 2.0'."""
    for name, known in NAMED_RULES.items():
        if rule == known:
            return name
    plain = type(rule)()
    names = [one.name for one in dataclasses.fields(rule)]
    changed = [f"{name} {getattr(rule, name)}" for name in names if getattr(rule, name) != getattr(plain, name)]
    return ", ".join([rule.kind, *changed])


def named_part(base: type[Part], name: str) -> Part:
    """A part by name with its default settings; rules also by the names the paper gives their settings."""
    if base is Rule and name in NAMED_RULES:
        return NAMED_RULES[name]
    registry = parts.REGISTRIES[base]
    if base is Rule and name not in registry:
        known = {*registry, *NAMED_RULES}
        raise UnknownName(f"unknown collaboration rule '{name}': {nearest(name, known)}")
    return registry[name]()


def part_fields(config: Any, prefix: str = "") -> dict[str, type[Part]]:
    """Dotted names of the fields that hold a named part, with the base class each takes."""
    found: dict[str, type[Part]] = {}
    for name, hint in _hints(type(config)).items():
        if isinstance(hint, type) and hint in parts.REGISTRIES:
            found[prefix + name] = hint
        elif dataclasses.is_dataclass(hint):
            found |= part_fields(getattr(config, name), f"{prefix}{name}.")
    return found


def override(config: C, changes: Mapping[str, Any]) -> C:
    """A copy with dotted fields changed: `override(config, {"objective.curr.rho": 3, "rule": "gated"})`.

    A part is changed by its name or by an instance; naming a term that is not there adds it; None takes a term away.
    """
    chosen = [path for path in CHOOSING if path in changes]
    for path in [*chosen, *(path for path in changes if path not in chosen)]:
        config = _set(config, path.split("."), changes[path], path)
        if path == "method" and isinstance(config, Config) and isinstance(config.network, Backbone):
            network = named_part(NetworkPart, config.method.default_network)
            config = dataclasses.replace(config, network=network)
        if path in chosen and isinstance(config, Config):
            config = without_foreign_settings(config)
    return config


def without_foreign_settings(config: Config) -> Config:
    """A configuration whose method or network has just been chosen, less what a preset set for the paper's."""
    if config.is_cumulative:
        return config
    plain, names = Config(), [*OF_THE_PAPER, *([] if isinstance(config.network, Backbone) else ["model"])]
    return dataclasses.replace(config, **{name: getattr(plain, name) for name in names}, views=1)


def _set(node: Any, names: list[str], value: Any, path: str) -> Any:
    name, rest = names[0], names[1:]
    if isinstance(node, dict):  # the terms of the objective
        child = node.get(name)
        if not rest and value is None:
            if child is None:
                parts.terms[name]  # a misspelt term is an error, one that is merely not there is none
            return {key: term for key, term in node.items() if key != name}
        if child is None:
            child = parts.terms[name]()
        if not rest:
            child = value if isinstance(value, Term) else dataclasses.replace(child, weight=_coerce(value, float, path))
            return {**node, name: child}
        return {**node, name: _set(child, rest, value, path)}
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        raise ConfigError(
            f"unknown field '{path}': {path.removesuffix('.' + '.'.join(names))} has no fields of its own"
        )
    hints = _hints(type(node))
    if name not in hints:
        raise ConfigError(f"unknown field '{path}': {nearest(name, hints)}")
    if rest:
        return dataclasses.replace(node, **{name: _set(getattr(node, name), rest, value, path)})
    hint = hints[name]
    if isinstance(hint, type) and hint in parts.REGISTRIES and isinstance(value, str):
        value = named_part(hint, value)
    return dataclasses.replace(node, **{name: _coerce(value, hint, path)})


def to_dict(value: Any) -> Any:
    """Plain JSON data; a part carries its registered name as `kind`."""
    if isinstance(value, Part):
        if "kind" not in vars(type(value)):
            raise ConfigError(
                f"{type(value).__name__} is not registered: a run could not be read back; see docs/own-parts.md"
            )
        own = {one.name: to_dict(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {"kind": value.kind, **own}
    if dataclasses.is_dataclass(value):
        written = {one.name: to_dict(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {"format": FORMAT, **written} if isinstance(value, Config) else written
    if isinstance(value, dict):
        return {name: to_dict(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [to_dict(one) for one in value]
    return value


def from_dict(data: Any) -> Config:
    """Read a configuration back; an unknown or missing field, or a wrong type, is an error that names it.

    A file of an older format may lack the fields that came later: their defaults are what it did.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"expected a configuration object, got {data!r}")
    written = data.get("format")
    if not isinstance(written, int) or not 1 <= written <= FORMAT:
        raise ConfigError(f"the configuration has format {written!r}; this version reads 1 to {FORMAT}")
    of_file = ("format", "stage")  # of config.json itself, not of what is configured
    settings = {k: v for k, v in data.items() if k not in of_file}
    if written < 3 and isinstance(settings.get("step"), dict):  # steps were not recorded then, and round in another way
        settings["step"] = {"replay": "off", **settings["step"]}
    return _read(settings, Config, "", may_lack=written < FORMAT)


STAGE_2 = "readout."
"""How the fields begin that say what Stage 2 is. Stage 1 is the same whatever they are."""


def differences(config: Any, base: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted fields in which two configurations differ: name to (base's value, config's value)."""
    mine, theirs = _flat(to_dict(config)), _flat(to_dict(base))
    names = [*theirs, *(name for name in mine if name not in theirs)]
    return {name: (theirs.get(name), mine.get(name)) for name in names if theirs.get(name) != mine.get(name)}


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    names = [one.name for one in dataclasses.fields(kind)]
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in names}


def _read(data: Any, kind: Any, path: str, may_lack: bool) -> Any:
    if isinstance(kind, type) and issubclass(kind, Part):
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise ConfigError(f"{path}: expected an object with a 'kind', got {data!r}")
        chosen = parts.REGISTRIES[kind][data["kind"]] if kind in parts.REGISTRIES else kind
        return _read_fields({k: v for k, v in data.items() if k != "kind"}, chosen, path, may_lack)
    if dataclasses.is_dataclass(kind):
        return _read_fields(data, kind, path, may_lack)
    if typing.get_origin(kind) is dict:
        _, inner = typing.get_args(kind)
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: expected an object, got {data!r}")
        return {name: _read(value, inner, f"{path}.{name}", may_lack) for name, value in data.items()}
    return _coerce(data, kind, path)


def _read_fields(data: Any, kind: Any, path: str, may_lack: bool) -> Any:
    if not isinstance(data, dict):
        raise ConfigError(f"{path or 'configuration'}: expected an object, got {data!r}")
    hints = _hints(kind)
    prefix = f"{path}." if path else ""
    for name in data:
        if name not in hints:
            raise ConfigError(f"unknown field '{prefix}{name}': {nearest(name, hints)}")
    for name in hints:
        if name not in data and not may_lack:
            raise ConfigError(f"missing field '{prefix}{name}'")
    present = {name: hint for name, hint in hints.items() if name in data}
    return kind(**{name: _read(data[name], hint, prefix + name, may_lack) for name, hint in present.items()})


def _coerce(value: Any, hint: Any, path: str) -> Any:
    """The value as the field's type, or an error that names the field; an int may stand for a float, nothing else."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    wanted = getattr(hint, "__name__", str(hint)) if origin is None else str(hint).replace("typing.", "")
    if origin is Literal:
        if value in arguments:
            return value
        raise ConfigError(f"{path} must be one of {', '.join(map(str, arguments))}, got {value!r}")
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            if option is type(None) and value is None:
                return None
            if option is not type(None) and value is not None:
                return _coerce(value, option, path)
    elif origin is tuple:
        if isinstance(value, (tuple, list)):
            inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
            if len(inner) == len(value):
                return tuple(_coerce(one, kind, f"{path}[{i}]") for i, (one, kind) in enumerate(zip(value, inner)))
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ConfigError(f"{path} must be a finite number, got {number}")
        return number
    elif isinstance(hint, type) and hint is not float and _is_a(value, hint):
        return value
    raise ConfigError(f"{path} must be {wanted}, got {value!r}")


def _is_a(value: Any, kind: type) -> bool:
    """isinstance, except that True is no int here."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
