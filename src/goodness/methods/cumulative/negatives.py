"""Where the wrong label of the NL stream comes from (Algorithm hnm).

A candidate is drawn with replacement from the wrong labels; the hardest, the one with the highest goodness, is
kept. Drawing the same label twice changes nothing, so each distinct label is scored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from goodness.errors import ConfigError
from goodness.parts import Fact, NegativesPart, register_negatives, within_wrong_labels

if TYPE_CHECKING:
    from goodness.config import Config

Score = Callable[[Tensor, Tensor], Tensor]
"""Goodness `[n]` of example rows `[n]` under labels `[n]`, at the block that mines; no gradient."""


@dataclass(frozen=True)
class Mining:
    """What a choice of negatives may look at, at one block of one step."""

    labels: Tensor  # [batch], the right ones
    classes: int
    uniforms: Tensor  # [batch, at least max(k, count)], in [0, 1), keyed by seed, step and block; the last column
    # is no draw where `among` is above one
    depth: int
    blocks: int
    progress: float
    teacher: Score  # the moving average's block, behind its earlier blocks where the negatives keep their prefix
    online: Score  # the block itself
    fixed_shapes: bool  # True where a compiled graph wants the same shapes at every step

    def wrong(self, offsets: Tensor) -> Tensor:
        """Labels from offsets 0 .. classes - 2: the true label is the one value no offset gives."""
        labels = self.labels.unsqueeze(-1) if offsets.dim() == 2 else self.labels
        return (labels + 1 + offsets) % self.classes


def draw(uniforms: Tensor, classes: int) -> Tensor:
    """Offsets of wrong labels, uniform over 0 .. classes - 2, with replacement."""
    return (uniforms * (classes - 1)).long().clamp_(max=classes - 2)


def draw_distinct(uniforms: Tensor, classes: int, count: int) -> list[Tensor]:
    """`count` offsets `[batch]` without replacement, from one column of uniforms each; the first is `draw`'s.

    Where there are fewer wrong labels than that, the same ones come round again.
    """
    wrongs = classes - 1
    pool = torch.arange(wrongs, device=uniforms.device).repeat(len(uniforms), 1)
    chosen = []
    for j in range(min(count, wrongs)):  # columns from j on hold what has not been drawn yet
        place = j + draw(uniforms[:, j : j + 1], classes - j)
        chosen.append(pool.gather(1, place).squeeze(1))
        pool.scatter_(1, place, pool[:, j : j + 1].clone())
    return [chosen[j % wrongs] for j in range(count)]


def highest_distinct(offsets: Tensor, scores: Tensor, count: int) -> list[Tensor]:
    """The `count` distinct offsets `[batch]` of highest score, the highest first; where they run out, it again.

    Offsets and scores are `[batch, n]`; minus infinity is the score of what may not be chosen.
    """
    chosen: list[Tensor] = []
    for _ in range(count):
        place = scores.argmax(dim=1, keepdim=True)
        best = offsets.gather(1, place)
        if chosen:
            best = torch.where(scores.gather(1, place) == -torch.inf, chosen[0], best)
        chosen.append(best)
        scores = scores.masked_fill(offsets == best, -torch.inf)
    return [best.squeeze(1) for best in chosen]


def hardest(mining: Mining, score: Score, k: int, count: int = 1, most: int = 0) -> Tensor:
    """The `count` hardest distinct labels of k draws, `[count * batch]`, all examples' hardest first.

    Each distinct draw is scored once. Where shapes must be the same at every step, there is room for `room` pairs:
    more than any batch will have, fewer than all; for those of `most` draws where other steps make more than k.
    """
    batch, wrongs = len(mining.labels), mining.classes - 1
    offsets = draw(mining.uniforms[:, :k], mining.classes)
    drawn = torch.zeros(batch, wrongs, dtype=torch.bool, device=offsets.device).scatter_(1, offsets, True)
    all_offsets = torch.arange(wrongs, device=offsets.device).expand(batch, wrongs)
    if mining.fixed_shapes:
        pairs = first_places(drawn.flatten(), room(max(k, most), wrongs, batch))
    else:
        pairs = drawn.flatten().nonzero().squeeze(1)
    rows = torch.div(pairs, wrongs, rounding_mode="floor").clamp(max=batch - 1)
    some = score(rows, (mining.labels[rows] + 1 + pairs % wrongs) % mining.classes)
    scores = some.new_full((batch * wrongs + 1,), -torch.inf).scatter_(0, pairs, some)[:-1].reshape(batch, wrongs)
    return torch.cat([mining.wrong(best) for best in highest_distinct(all_offsets, scores, count)])


def room(k: int, wrongs: int, batch: int) -> int:
    """Places for the distinct ones of k draws out of `wrongs` labels for every image: eight deviations above the mean.

    A batch that needs more comes once in 1e15; its last pairs would stay unscored. In eights, which matrix products
    like; more would only be scored for nothing.
    """
    missed, missed_both = (1 - 1 / wrongs) ** k, max(0.0, 1 - 2 / wrongs) ** k
    mean = wrongs * (1 - missed)
    variance = max(0.0, wrongs * missed + wrongs * (wrongs - 1) * missed_both - (wrongs * missed) ** 2)
    likely = 8 * math.ceil((batch * mean + 8 * math.sqrt(batch * variance)) / 8)
    return min(likely, batch * min(k, wrongs))


def first_places(chosen: Tensor, count: int) -> Tensor:
    """The places `[count]` of the first True ones of a row; `len(chosen)` where there are no more."""
    rank = chosen.cumsum(0) - 1
    rank = torch.where(chosen & (rank < count), rank, count)
    places = torch.full((count + 1,), len(chosen), device=chosen.device)
    return places.scatter_(0, rank, torch.arange(len(chosen), device=chosen.device))[:-1]


def hardest_plainly(mining: Mining, score: Score, k: int, count: int = 1) -> Tensor:
    """The readable twin of `hardest`: score every draw, duplicates too, one draw at a time, and sort."""
    labels = mining.wrong(draw(mining.uniforms[:, :k], mining.classes))
    rows = torch.arange(len(labels), device=labels.device)
    scores = torch.stack([score(rows, labels[:, j]) for j in range(k)], dim=1).tolist()
    streams: list[list[int]] = [[] for _ in range(count)]
    for drawn, given in zip(labels.tolist(), scores):
        falling = sorted(range(k), key=lambda j, given=given: -given[j])
        distinct = list(dict.fromkeys(drawn[j] for j in falling))
        for j, stream in enumerate(streams):
            stream.append(distinct[j] if j < len(distinct) else distinct[0])
    return torch.tensor(streams, device=labels.device).flatten()


def one_of_the_hardest(mining: Mining, score: Score, k: int, among: int, most: int = 0) -> Tensor:
    """One label `[batch]`, drawn evenly from the `among` hardest distinct ones of k draws, or as many as there are."""
    ranked = hardest(mining, score, k, among, most).reshape(among, -1)
    there = 1 + (ranked[1:] != ranked[0]).sum(dim=0)  # past the distinct labels the hardest stands again
    place = (mining.uniforms[:, -1] * there).long().minimum(there - 1)
    return ranked.gather(0, place.unsqueeze(0)).squeeze(0)


@dataclass(frozen=True, kw_only=True)
class Mined(NegativesPart):
    """The hardest of k candidates, or the `count` hardest; k moves from k_first to k_last."""

    k_first: int = 8
    """Candidate draws at the start of the ramp."""
    k_last: int = 16
    """Candidate draws at its end."""
    ramp: Literal["depth", "epochs"] = "depth"
    """What the number of draws ramps over."""
    mine_on: Literal["nl", "pos"] = "nl"
    """Whose tokens the candidates are scored on: the stream's own (they carry the earlier blocks' wrong
    labels) or the first positive view's."""
    among: int = 1
    """Top-k depth: the wrong label is drawn evenly from this many of the hardest."""

    def check(self) -> None:
        super().check()
        if self.k_first < 1 or self.k_last < 1:
            raise ConfigError(
                f"negatives.k_first and negatives.k_last must be at least 1, got {self.k_first}, {self.k_last}"
            )
        if self.among < 1:
            raise ConfigError(f"negatives.among must be at least 1, got {self.among}")
        if self.among > 1 and self.count > 1:
            raise ConfigError(
                f"negatives.among {self.among} draws one label and negatives.count {self.count} takes them all: "
                "leave one of them at 1"
            )

    def check_classes(self, classes: int) -> None:
        super().check_classes(classes)
        within_wrong_labels("among", self.among, classes)

    @property
    def uniforms(self) -> int:
        return max(self.k_first, self.k_last, self.count) + (1 if self.among > 1 else 0)

    @property
    def most_draws(self) -> int:
        """The most draws that any block makes."""
        return self.k_first if self.once else max(self.k_first, self.k_last)

    def idle(self, config: Config) -> list[tuple[str, str] | Fact]:
        at_first_alone = config.model.blocks == 1 or self.once
        found = [*super().idle(config)]
        if self.k_first == self.k_last:
            found.append(("ramp", "k_first and k_last are the same"))
        elif at_first_alone and self.ramp == "depth":
            found.append(("k_last", "the first block alone mines, with k_first draws (the reported health has k_last)"))
        elif config.epochs == 1 and self.ramp == "epochs":
            found.append(("k_last", "the one epoch has k_first draws (the reported health has k_last)"))
        last_counts = all(name != "k_last" for name, *_ in found)
        if self.k_first == 1 and (self.k_last == 1 or not last_counts):
            found += [(name, "a single draw leaves nothing to choose from") for name in ("mine_on", "among")]
        elif (at_first_alone or keeps_prefix(self)) and (config.augment == "none" or config.views == 1):
            why = (
                "all streams have one view" if config.views == 1 else "without augmentation, both streams are the same"
            )
            found.append(("mine_on", f"{why} at the first block"))
        draws = self.most_draws
        few = f"{draws} draws give at most {draws} labels (negatives.k_first, negatives.k_last)"
        for name, wanted in (("count", self.count), ("among", self.among)):
            if wanted > draws and (name == "count" or draws > 1):
                found.append(Fact(name, few, "asks for more than there is", always=True))
        return found

    def signature(self, progress: float) -> Hashable:
        return self._draws(progress) if self.ramp == "epochs" else None

    def candidates(self, mining: Mining) -> int:
        share = mining.progress if self.ramp == "epochs" else mining.depth / max(1, mining.blocks - 1)
        return self._draws(share)

    def _draws(self, share: float) -> int:
        return round(self.k_first + share * (self.k_last - self.k_first))

    def choose(self, mining: Mining) -> Tensor:
        score, k = self.scorer(mining), self.candidates(mining)
        ends = (self.k_first, self.k_last) if self.ramp == "epochs" else (k,)  # or every epoch had shapes of its own
        most = max(ends)
        if self.among > 1:
            return one_of_the_hardest(mining, score, k, self.among, most)
        return hardest(mining, score, k, self.count, most)

    def scorer(self, mining: Mining) -> Score:
        raise NotImplementedError


@register_negatives("teacher")
@dataclass(frozen=True, kw_only=True)
class Teacher(Mined):
    """Scored by the moving average of the block (the paper's default)."""

    def idle(self, config: Config) -> list[tuple[str, str] | Fact]:
        found = super().idle(config)
        if config.optim.ema == 0 and self.most_draws != 1:
            why = "optim.ema is 0, so that the moving average is the network itself"
            found.append(Fact("", why, "mines as online would", always=True))
        return found

    def scorer(self, mining: Mining) -> Score:
        return mining.teacher


@register_negatives("online")
@dataclass(frozen=True, kw_only=True)
class Online(Mined):
    """Scored by the block as it is now."""

    def scorer(self, mining: Mining) -> Score:
        return mining.online


@register_negatives("prefix")
@dataclass(frozen=True, kw_only=True)
class Prefix(Mined):
    """Scored by all blocks of the moving average up to this one, under the candidate from the first block on.

    The stream then carries this label through the earlier blocks too, in its tokens and in its history.
    """

    def idle(self, config: Config) -> list[tuple[str, str] | Fact]:
        found = super().idle(config)
        if self.once or config.model.blocks == 1:
            why = "negatives.once keeps the first block's label" if self.once else "there is one block"
            found.append(Fact("", why, "mines as teacher would", always=True))
        return found

    def scorer(self, mining: Mining) -> Score:
        return mining.teacher


def keeps_prefix(negatives: NegativesPart) -> bool:
    """Whether a block's wrong label enters the stream at the first block, whatever the earlier blocks mined."""
    return isinstance(negatives, Prefix) and not negatives.once


@register_negatives("random")
@dataclass(frozen=True, kw_only=True)
class Random(NegativesPart):
    """Any wrong label, with equal chance; no scoring. Several of them are drawn without replacement."""

    def signature(self, progress: float) -> Hashable:
        return None

    def choose(self, mining: Mining) -> Tensor:
        return torch.cat([mining.wrong(one) for one in draw_distinct(mining.uniforms, mining.classes, self.count)])
