"""Block health from goodness under every label, whatever its origin: which blocks work, which ride for free.

Symbols: g^(d)_y goodness of block d under label y; m = g+ - g-; P = sum of earlier m; R attenuation ratio; F
free-riding index. `worst` means the wrong label with the highest goodness of that block, `mined` the one that mining
picks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from goodness.config import Config
from goodness.draws import uniforms
from goodness.errors import RunError
from goodness.health.margins import (
    TOP5_CLASSES,
    evaluation_measures,
    inherited_margin,
    mined_labels,
    top_k_accuracy,
    worst_margin,
)
from goodness.health.measures import free_riding_index
from goodness.methods.cumulative.barrier import attenuation, residual_weights
from goodness.methods.cumulative.negatives import Mined
from goodness.methods.cumulative.streams import wrong_images
from goodness.methods.cumulative.terms import Current

COLLAPSED = 1 / 3
"""A block with less than this share of the best block's own evidence rides, if its gradient is attenuated too."""
ATTENUATED = 0.5
"""A mean attenuation below this: the earlier blocks take more than half of the gradient away."""
VANISHED = 0.05
"""A block with less than this share of block 0's own evidence rides, however its gradient fares."""
LABEL_BLIND = 1e-4
"""A block is dead where its goodness varies over the labels by less than this share of what another block's does."""
GUESSING = 2.0
"""Standard errors above chance up to which a block that is right so often on its own may as well guess."""
CURVE = 21
"""Points of the early-exit curve before the last, which is the whole network."""
MARGINS = 200
"""Quantiles kept of the cumulative margin."""
POINTS = 300
"""Examples per block in the attenuation scatter."""


class Aspects(NamedTuple):
    """One block's aspects: their names, the weights with which they enter its goodness, values `[n, classes, A]`."""

    names: tuple[str, ...]
    weights: Tensor
    values: Tensor


def health_of_goodness(
    goodness: Tensor,
    labels: Tensor,
    config: Config,
    *,
    split: str = "test",
    classes: Sequence[str] | None = None,
    aspects: Sequence[Aspects] | None = None,
) -> dict[str, Any]:
    """Block health from goodness `[blocks, n, classes]` and labels `[n]`, ready for JSON.

    Of every block (`blocks`), beside what `evaluation_measures` says of it:
    sep_cur_rate   share of examples whose worst margin is positive: how often this block alone is right
    g_worst        mean goodness of the worst wrong label
    evidence       mean of max(0, worst margin): what the verdict compares, meaningful where most margins are negative
    own, inherited   mean share of block d in the positive mined margins of blocks 0..d, and the rest
    free_riding    F, the mean of 1 - min(1, R)
    sep_cur_mined_rate, sep_mined   against the mined label: share of examples that this block alone has right, mean
                   margin of blocks 0..d
    residual_ess   where the current-block term weighs by what is unresolved: the share of examples that it in effect
                   uses, 1 / mean of w^2
    aspects        each aspect's weight, and its mean margin to the block's worst label; weighed, they sum to sep_cur

    Of the whole: accuracy, confusion (rows are true labels), per_class, truncation (accuracy of blocks 0..d),
    early_exit, margins (quantiles of the cumulative worst margin), attenuation_points (m, P, R of some examples, with
    their weights in attenuation_weights), ratios of the last block to the first, and a verdict on each block.
    """
    blocks, n, count = goodness.shape
    _require_usable(goodness, labels)
    goodness, names = goodness.double(), list(classes or map(str, range(count)))
    cumulative = goodness.cumsum(dim=0)
    known = assess(goodness, labels, config, split, progress=1.0)
    evidence = evidence_by_block(goodness, labels, config, split)
    described = []
    for depth in range(blocks):
        margin = worst_margin(goodness[depth], labels)
        seen, own = evidence[depth], own_share(evidence[depth].margins)
        block = {
            **known["blocks"][depth],
            "sep_cur_rate": float((margin > 0).double().mean()),
            "g_worst": known["blocks"][depth]["g_pos"] - float(margin.mean()),
            "evidence": float(margin.clamp(min=0).mean()),
            "own": own,
            "inherited": 1 - own if own is not None else None,
            "free_riding": free_riding_index(seen.margin, seen.past, seen.weight, config.beta),
            "sep_cur_mined_rate": float((seen.margin > 0).double().mean()),
            "sep_mined": float(seen.margins.sum(dim=0).mean()),
        }
        current = config.objective.get("curr")
        if depth and isinstance(current, Current) and current.residual and current.coefficient(depth, blocks) != 0:
            block["residual_ess"] = effective_share(
                residual_weights(seen.margins[:-1].sum(dim=0), config.beta, current.w_min, current.w_max)
            )
        if aspects is not None:
            block["aspects"] = aspect_separations(goodness[depth], labels, aspects[depth])
        described.append(block)
    confusion = torch.bincount(labels * count + cumulative[-1].argmax(dim=1), minlength=count * count)
    confusion = confusion.reshape(count, count).tolist()
    spreads = (goodness.amax(dim=2) - goodness.amin(dim=2)).amax(dim=1).tolist()
    return {
        "split": split,
        "n": n,
        "classes": names,
        "beta": config.beta,
        "accuracy": known["accuracy"],
        **({"top5": known["top5"]} if "top5" in known else {}),
        "blocks": described,
        "ratios": {name: _ratio(described[-1][name], described[0][name]) for name in ("sep_cur", "g_pos")},
        "verdict": verdicts(described, spreads, n, count),
        "confusion": confusion,
        "per_class": [_ratio(row[label], sum(row)) for label, row in enumerate(confusion)],
        "truncation": [block["accuracy"] for block in described],
        "early_exit": early_exit(cumulative, labels),
        "margins": _quantiles(worst_margin(cumulative[-1], labels), MARGINS).tolist(),
        "attenuation_points": [seen.points(config.beta) for seen in evidence],
        "attenuation_weights": [seen.weight[evenly(n, POINTS)].tolist() for seen in evidence],
    }


def assess(goodness: Tensor, labels: Tensor, config: Config, split: str, *, progress: float) -> dict[str, Any]:
    """Accuracy, top-5 and what `evaluation_measures` says of each block, from goodness `[blocks, n, classes]`.

    The wrong labels to mine among, and the wrong images where the run trains on such, follow from seed and split.
    """
    labels, partner = labels.cpu(), None
    if config.eta > 0:
        drawn = uniforms(torch.device("cpu"), (len(labels) + goodness.shape[2],), config.seed, "health ni", split)
        partner = wrong_images(labels, drawn[: len(labels)], drawn[len(labels) :])
    blocks = evaluation_measures(
        goodness,
        labels,
        _mining_draws(len(labels), config, split),
        config.rule,
        beta=config.beta,
        history=config.history,
        progress=progress,
        of_blocks=config.model.blocks,
        partner=partner,
    )
    found = {"accuracy": blocks[-1]["accuracy"], "n": len(labels), "blocks": blocks}
    if goodness.shape[2] >= TOP5_CLASSES:
        found["top5"] = top_k_accuracy(goodness.sum(dim=0), labels, 5)
    return found


def _mining_draws(n: int, config: Config, split: str) -> Tensor:
    draws = config.negatives.k_last if isinstance(config.negatives, Mined) else 1
    return uniforms(torch.device("cpu"), (n, draws), config.seed, "health", split)


class Evidence(NamedTuple):
    """What one block and those before it say for the right label, against the label mined at that block."""

    margins: Tensor  # [d + 1, n], m^(0) .. m^(d)
    past: Tensor  # [n], what the rule's weight multiplies: P, or its decaying form
    weight: Tensor  # [n], the rule's

    @property
    def margin(self) -> Tensor:
        return self.margins[-1]

    def points(self, beta: float) -> list[list[float]]:
        """[m, P, R] of some examples, evenly chosen; R is held below infinity, which JSON does not have."""
        some = evenly(len(self.past), POINTS)
        margin, past, weight = self.margin[some], self.past[some], self.weight[some]
        ratio = attenuation(margin, past, weight, beta).clamp(max=1e300)
        return torch.stack([margin, past, ratio], dim=1).tolist()


def evidence_by_block(goodness: Tensor, labels: Tensor, config: Config, split: str) -> list[Evidence]:
    """Every block's `Evidence`, example by example, as `evaluation_measures` takes its means of it."""
    blocks, n, _ = goodness.shape
    drawn = _mining_draws(n, config, split)
    right = goodness.gather(2, labels[None, :, None].expand(blocks, n, 1)).squeeze(2)
    found = []
    for depth in range(blocks):
        wrong = mined_labels(goodness[depth], labels, drawn)
        negative = goodness.gather(2, wrong[None, :, None].expand(blocks, n, 1)).squeeze(2)
        inherited, weight = inherited_margin(
            right[: depth + 1], negative, config.rule, config.history, config.model.blocks, 1.0
        )
        found.append(Evidence((right - negative)[: depth + 1], inherited, weight))
    return found


def own_share(margins: Tensor) -> float | None:
    """Mean over examples of m_d+ / sum over j <= d of m_j+, m+ = max(m, 0), from margins `[d + 1, n]`.

    Of the evidence for the right label, how much is the last block's own. Examples without any do not count; None where
    no example has some.
    """
    positive = margins.clamp(min=0)
    total = positive.sum(dim=0)
    shares = (positive[-1] / total)[total > 0]
    return float(shares.mean()) if len(shares) else None


def effective_share(weights: Tensor) -> float:
    """(mean w)^2 / mean w^2 of non-negative weights: one where all are the same, 1/n where a single one counts."""
    return float(weights.mean().square() / weights.square().mean())


def aspect_separations(goodness: Tensor, labels: Tensor, aspects: Aspects) -> dict[str, dict[str, float]]:
    """Of every aspect its weight, and the mean of g_a+ minus g_a of the block's worst wrong label."""
    worst = goodness.scatter(1, labels[:, None], -torch.inf).argmax(dim=1)
    rows = torch.arange(len(labels))
    values = aspects.values.double()
    apart = (values[rows, labels] - values[rows, worst]).mean(dim=0)
    return {
        name: {"weight": weight, "sep": sep}
        for name, weight, sep in zip(aspects.names, aspects.weights.tolist(), apart.tolist())
    }


def early_exit(cumulative: Tensor, labels: Tensor) -> list[dict[str, float]]:
    """What is lost and saved where an example leaves at the first block whose confidence reaches a threshold.

    Confidence is the cumulative score's margin between best and second label. Thresholds are quantiles of it over all
    blocks but the last, from the one at which all leave at once; the last threshold is one that nothing reaches.
    `blocks` is the mean number used, `saved` the share of the blocks' work not done, `left` the share of examples that
    leave before the last block.
    """
    blocks = len(cumulative)
    best = cumulative.topk(2, dim=2).values
    confidence, predicted = best[..., 0] - best[..., 1], cumulative.argmax(dim=2)
    early = confidence[:-1].flatten()
    thresholds = [0.0]
    if len(early):
        thresholds = [*_quantiles(early, CURVE).unique().tolist(), math.nextafter(float(early.max()), math.inf)]
    curve = []
    for threshold in thresholds:
        leaves = confidence >= threshold
        leaves[-1] = True
        at = leaves.int().argmax(dim=0)  # the first of them
        right = predicted.gather(0, at[None]).squeeze(0) == labels
        used = 1 + float(at.double().mean())
        point = {"threshold": threshold, "accuracy": float(right.double().mean()), "blocks": used}
        curve.append({**point, "saved": 1 - used / blocks, "left": float((at < blocks - 1).double().mean())})
    return curve


def verdicts(blocks: list[dict[str, Any]], spreads: list[float], n: int, classes: int) -> list[dict[str, str]]:
    """Of every block whether it `works`, `rides` or is `dead`, and why.

    dead    its goodness does not depend on the label; or it does, and the block guesses without riding
    rides   its own evidence is less than a third of the best block's and its gradient less than half of what it would
            be without the earlier blocks; or its evidence is less than a twentieth of the first block's
    works   else

    `spreads` are how far each block's goodness varies over the labels, of the example where it does most.
    """
    best, first = max(block["evidence"] for block in blocks), blocks[0]["evidence"]
    told = []
    for depth, block in enumerate(blocks):
        evidence, left = block["evidence"], block["attenuation"]
        of_best, of_first = _ratio(evidence, best) or 0.0, _ratio(evidence, first) or 0.0
        alone = f"on its own it is right for {_percent(block['sep_cur_rate'])} of the examples"
        if spreads[depth] <= LABEL_BLIND * max(spreads):
            state, reason = "dead", "its goodness is the same under every label"
        elif depth > 0 and of_best < COLLAPSED and left < ATTENUATED:
            reason = (
                f"its own evidence is {_percent(of_best)} of the best block's, and {_percent(left)} of its gradient "
            )
            state, reason = "rides", reason + "is left once the earlier blocks' evidence has entered its loss"
        elif depth > 0 and evidence < VANISHED * first:
            state, reason = "rides", f"its own evidence is {_percent(of_first)} of the first block's"
        elif is_guessing(block["sep_cur_rate"], n, classes):
            state, reason = "dead", f"{alone}, and guessing gives {_percent(1 / classes)}"
        else:
            state, reason = "works", f"{alone}, with {_percent(of_best)} of the best block's evidence"
        told.append({"verdict": state, "reason": reason})
    return told


def is_guessing(rate: float, n: int, classes: int) -> bool:
    """Whether being right that often on n examples may be chance; never where all are right, however few they are."""
    chance = 1 / classes
    return rate < 1 and rate <= chance + GUESSING * math.sqrt(chance * (1 - chance) / n)


def _require_usable(goodness: Tensor, labels: Tensor) -> None:
    _, n, classes = goodness.shape
    if labels.shape != (n,) or n < 1 or classes < 2:
        raise ValueError(f"goodness {list(goodness.shape)} and labels {list(labels.shape)}: not [blocks, n, C] and [n]")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ValueError(f"labels run from {int(labels.min())} to {int(labels.max())}, and there are {classes} classes")
    require_finite(goodness)


def require_finite(goodness: Tensor) -> None:
    """Of every block, `[blocks, ...]`."""
    for depth, values in enumerate(goodness):
        if not bool(values.isfinite().all()):
            raise RunError(f"the goodness of block {depth} is not finite: its weights have run away")


def evenly(n: int, most: int) -> Tensor:
    """At most that many of n places, evenly spread, the first and the last among them."""
    return torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).round().long()


def _quantiles(values: Tensor, most: int) -> Tensor:
    """The values in order, or at most that many of them, evenly spread over their ranks."""
    return values.sort().values[evenly(len(values), most)]


def _ratio(value: float, to: float) -> float | None:
    return value / to if to else None


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.0095 else f"{100 * share:.0f} %"
