"""The registries: one per kind of part that a configuration names and a user may add to.

A part is a frozen, keyword-only dataclass: its fields are its settings, and it carries the behaviour itself
(a rule weighs, a term scores) or builds the module that does (a block, a goodness, a label injection).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from goodness.errors import ConfigError
from goodness.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from goodness.config import Config
    from goodness.methods.base import Method
    from goodness.methods.cumulative.facts import Facts, Past
    from goodness.methods.cumulative.negatives import Mining
    from goodness.nn.block import GoodnessHead

Kind = TypeVar("Kind", bound=type)


class Fact(NamedTuple):
    """That a setting, or a part as a whole, does nothing (or `what` else), whatever its value.

    At its default it misleads nobody: it is told where someone has set it, unless `always`. A preset that sets it has
    its reasons where `of_preset`.
    """

    field: str
    why: str
    what: str = "has no effect"
    always: bool = False
    of_preset: bool = False


MULTIPLIES_NOTHING = ("multiplies nothing", True)
"""How a weight that is not 0 is told of, and that it always is."""

LOOKED_AT = frozenset({"history", "beta", "blend", "negatives"})
"""All that a term may look at: the earlier blocks by the rule's weight, the barrier's beta, the wrong labels and images
as eta blends them, and negatives beside that blend."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What all parts share: the name they are registered under."""

    kind: ClassVar[str] = ""

    def check(self) -> None:
        """Raise ConfigError when a setting is out of range; called once, before any work is done."""

    def idle(self, config: Config) -> Sequence[tuple[str, str] | Fact]:
        """The part's own settings that do nothing in this configuration, each with the reason; whatever their value.

        `("rho", "there is one block")`. Told before a run starts, where a setting is not at its default (a term's
        weight: where it is not 0). A `Fact` can say more; the field "" is the part as a whole.
        """
        return []


@dataclass(frozen=True, kw_only=True)
class Rule(Part):
    """How much of the ledger enters block d's loss: a weight for every example."""

    def weight(self, past: Past) -> Tensor:
        """The weight `[batch]` of the earlier blocks' evidence, from what they gave (detached)."""
        raise NotImplementedError

    def only_weight(self, config: Config) -> float | None:
        """The weight that every example has in every block with a history, all the time; None where it varies."""
        return None


@dataclass(frozen=True, kw_only=True)
class Term(Part):
    """One summand of a block's loss: a function of that block's facts."""

    joins_backprop: ClassVar[bool] = False
    """Whether the backpropagation control adds the term to its cross-entropy (a router's losses)."""

    weight: float = 1.0
    """What the term is multiplied by."""

    def check_model(self, model: Any) -> None:
        """Raise ConfigError when the term has nothing to look at in this model (a `goodness.config.Model`)."""

    def coefficient(self, depth: int, blocks: int, progress: float | Tensor = 0.0) -> float | Tensor:
        """The factor at this depth and share of the epochs; the weight, unless the term scales with one of them.

        `progress` is a tensor in a step: a compiled graph need not be made anew as it moves.
        """
        return self.weight

    def acts_at(self, depth: int, blocks: int) -> bool:
        """Whether the term is there at this depth: not 0 at the start, in the middle or at the end."""
        return any(float(self.coefficient(depth, blocks, share)) != 0 for share in (0.0, 0.5, 1.0))

    def looks_at(self, config: Config) -> frozenset[str]:
        """Which of `LOOKED_AT` the term's value depends on, so that settings which nothing looks at can be told."""
        return LOOKED_AT

    @property
    def wants_neutral(self) -> bool:
        """Whether the term looks at `facts.neutral`, a pass of the positive views that no label ever enters."""
        return False

    @property
    def wants_every(self) -> bool:
        """Whether the term looks at `facts.every`, the positive views' goodness under every label.

        Only late labels have it: `check_model` should refuse others.
        """
        return False

    def module(self, width: int, aspects: int) -> nn.Module | None:
        """What the term itself learns or remembers in each block (a projector, a queue); none by default."""
        return None

    def module_for(self, width: int, aspects: int, classes: int) -> nn.Module | None:
        """The same for a term that must know the number of classes; what the network calls, and `module` by default."""
        return self.module(width, aspects)

    def loss(self, facts: Facts, module: Any) -> Tensor:
        """The term's value, a scalar, before its coefficient."""
        raise NotImplementedError

    def after_step(self, facts: Facts, module: Any) -> None:
        """Called once the block's gradient has been taken; the place to update a memory."""


@dataclass(frozen=True, kw_only=True)
class NegativesPart(Part):
    """Where the wrong label of the NL stream comes from."""

    once: bool = False
    """Keep the first block's wrong label for all blocks, as prediction does."""
    count: int = 1
    """Wrong-label streams per image (multi-negative): each of the hardest distinct labels has one."""

    def check(self) -> None:
        if self.count < 1:
            raise ConfigError(f"negatives.count must be at least 1, got {self.count}")

    @property
    def uniforms(self) -> int:
        """How many uniform numbers an image needs at a block."""
        return self.count

    def signature(self, progress: float) -> Hashable:
        """Whatever of the progress shapes the choice: as long as it stays the same, a recorded step can be replayed."""
        return progress

    def idle(self, config: Config) -> Sequence[tuple[str, str] | Fact]:
        return [("once", "there is one block to choose for")] if config.model.blocks == 1 else []

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError where more distinct wrong labels are asked for than there are; before a run starts."""
        within_wrong_labels("count", self.count, classes)

    def choose(self, mining: Mining) -> Tensor:
        """Wrong labels `[count * batch]`, stream after stream: rows j * batch .. (j + 1) * batch are stream j's."""
        raise NotImplementedError


def within_wrong_labels(name: str, value: int, classes: int) -> None:
    """Refuse a setting of the negatives that is above the number of wrong labels."""
    if value > classes - 1:
        raise ConfigError(
            f"negatives.{name} {value} asks for more wrong labels than there are: {classes} classes have "
            f"{classes - 1}; give at most --negatives.{name} {classes - 1}"
        )


@dataclass(frozen=True, kw_only=True)
class BlockPart(Part):
    """What turns tokens `[batch, tokens, width]` into tokens, of the same shape unless `output_shape` says other."""

    ends_in_relu: ClassVar[bool] = False
    """Whether the tokens it gives have been through a ReLU, so that another changes nothing."""

    def check_model(self, model: Any) -> None:
        """Raise ConfigError when the block cannot work in this model (a `goodness.config.Model`)."""

    def at(self, depth: int) -> BlockPart:
        """The part that builds the block at this depth; itself, unless blocks differ."""
        return self

    def output_shape(self, width: int, grid: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        """Width and grid of what the built block gives; those of its input, unless it changes them."""
        return width, grid

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        """A module `tokens -> tokens`, or `tokens -> (tokens, notes)`; `grid` is the token map's height and width.

        Notes are named tensors for the goodness and the terms (a router's logits, a memory's sharpness). Rows must
        not depend on each other (no batch statistics): the streams of one step share a batch.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class GoodnessPart(Part):
    """What turns a block's tokens and a label into aspects and one scalar goodness."""

    def build(self, width: int, classes: int) -> GoodnessHead:
        """The module that does it; see `goodness.GoodnessHead` for what it takes and gives."""
        raise NotImplementedError

    def why_zero(self, aspect: str, config: Config) -> str:
        """Why an aspect that is not active in any block is zero there."""
        return f"{aspect} is always zero"


@dataclass(frozen=True, kw_only=True)
class LabelPart(Part):
    """How a label hypothesis enters the tokens."""

    is_late: ClassVar[bool] = False
    """Whether it enters behind the block's body, for the goodness alone: then tokens never see a label, and all
    hypotheses of an image share one pass. The built module has `factors() [classes, width]`, by which it multiplies."""

    def build(self, width: int, classes: int) -> nn.Module:
        """A module `(tokens, labels) -> tokens`."""
        raise NotImplementedError


class ImageFacts(NamedTuple):
    """What a network and a method may know of the data."""

    shape: tuple[int, ...]
    """Of one example."""
    classes: int
    mean: tuple[float, ...]
    """Per channel, of examples in [0, 1]."""
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class MethodPart(Part):
    """A method of local learning: its settings, and what builds it around a network's blocks."""

    version: ClassVar[int] = 1
    """Raised by hand when an unchanged configuration trains to other numbers."""
    default_network: ClassVar[str] = "backbone"
    """The network that choosing the method brings, unless another is chosen."""

    def enters(self, facts: ImageFacts) -> tuple[int, ...]:
        """The shape of one example as block 0 gets it, under one hypothesis; an image's own by default."""
        return facts.shape

    def build(self, blocks: list[nn.Module], facts: ImageFacts) -> Method:
        """The method around these blocks; see `goodness.methods.base`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NetworkPart(Part):
    """A network as a list of blocks, any modules from tensor to tensor."""

    def build(self, shape: tuple[int, ...], facts: ImageFacts, config: Config) -> list[nn.Module]:
        """Blocks whose first takes `[batch, *shape]`: what `MethodPart.enters` says."""
        raise NotImplementedError


rules: Registry[type[Rule]] = Registry("collaboration rule")
terms: Registry[type[Term]] = Registry("term")
negatives: Registry[type[NegativesPart]] = Registry("negatives")
blocks: Registry[type[BlockPart]] = Registry("block")
goodnesses: Registry[type[GoodnessPart]] = Registry("goodness")
labels: Registry[type[LabelPart]] = Registry("label injection")
methods: Registry[type[MethodPart]] = Registry("method")
networks: Registry[type[NetworkPart]] = Registry("network")

REGISTRIES: dict[type[Part], Registry[Any]] = {
    Rule: rules,
    Term: terms,
    NegativesPart: negatives,
    BlockPart: blocks,
    GoodnessPart: goodnesses,
    LabelPart: labels,
    MethodPart: methods,
    NetworkPart: networks,
}


def _decorator(registry: Registry[Any], what: str) -> Callable[[str], Callable[[Kind], Kind]]:
    def register(name: str) -> Callable[[Kind], Kind]:
        return registry.register(name)

    register.__doc__ = f"Class decorator: add a {what} under `name`."
    return register


register_rule = _decorator(rules, "collaboration rule")
register_term = _decorator(terms, "term of the objective")
register_negatives = _decorator(negatives, "choice of wrong labels")
register_block = _decorator(blocks, "block")
register_goodness = _decorator(goodnesses, "goodness")
register_label = _decorator(labels, "label injection")
register_method = _decorator(methods, "method of local learning")
register_network = _decorator(networks, "network")
