"""The registries: one per kind of part that a configuration names and a user may add to.

A part is a frozen, keyword-only dataclass: its fields are its settings, and it carries the behaviour itself
(a rule weighs, a term scores) or builds the module that does (a block, a goodness, a label injection).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from goodness.errors import ConfigError
from goodness.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from goodness.config import Config
    from goodness.local.facts import Facts, Past
    from goodness.local.negatives import Mining
    from goodness.model.block import GoodnessHead

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What all parts share: the name they are registered under."""

    kind: ClassVar[str] = ""

    def check(self) -> None:
        """Raise ConfigError when a setting is out of range; called once, before any work is done."""

    def idle(self, config: Config) -> list[tuple[str, str]]:
        """The part's own settings that do nothing in this configuration, each with the reason; whatever their value.

        `("rho", "there is one block")`. Told before a run starts, where a setting is not at its default (a term's
        weight: where it is not 0).
        """
        return []


@dataclass(frozen=True, kw_only=True)
class Rule(Part):
    """How much of the ledger enters block d's loss: a weight for every example."""

    def weight(self, past: Past) -> Tensor:
        """The weight `[batch]` of the earlier blocks' evidence, from what they gave (detached)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Term(Part):
    """One summand of a block's loss: a function of that block's facts."""

    weight: float = 1.0
    """What the term is multiplied by."""

    def check_model(self, model: Any) -> None:
        """Raise ConfigError when the term has nothing to look at in this model (a `goodness.config.Model`)."""

    def coefficient(self, depth: int, blocks: int) -> float:
        """The factor at this depth; the weight, unless the term scales with depth."""
        return self.weight

    @property
    def wants_neutral(self) -> bool:
        """Whether the term looks at `facts.neutral`, a pass of the positive views that no label ever enters."""
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

    def choose(self, mining: Mining) -> Tensor:
        """Wrong labels `[count * batch]`, stream after stream: rows j * batch .. (j + 1) * batch are stream j's."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class BlockPart(Part):
    """What turns tokens `[batch, tokens, width]` into tokens, of the same shape unless `output_shape` says other."""

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


@dataclass(frozen=True, kw_only=True)
class LabelPart(Part):
    """How a label hypothesis enters the tokens."""

    def build(self, width: int, classes: int) -> nn.Module:
        """A module `(tokens, labels) -> tokens`."""
        raise NotImplementedError


rules: Registry[type[Rule]] = Registry("collaboration rule")
terms: Registry[type[Term]] = Registry("term")
negatives: Registry[type[NegativesPart]] = Registry("negatives")
blocks: Registry[type[BlockPart]] = Registry("block")
goodnesses: Registry[type[GoodnessPart]] = Registry("goodness")
labels: Registry[type[LabelPart]] = Registry("label injection")

REGISTRIES: dict[type[Part], Registry[Any]] = {
    Rule: rules,
    Term: terms,
    NegativesPart: negatives,
    BlockPart: blocks,
    GoodnessPart: goodnesses,
    LabelPart: labels,
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
