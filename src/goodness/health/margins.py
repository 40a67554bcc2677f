"""Separation, attenuation and truncation accuracy of each block (Eq. diagnostics), in training and at evaluation.

Symbols: g^(d)_y goodness of block d under label y; m = g+ - g-; P = sum of earlier m; G = sum of g up to d.
`worst` means the wrong label with the highest value, `mined` the one that mining picks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from goodness.health.measures import depth_saturation, loss_collapse
from goodness.methods.cumulative.barrier import attenuation
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.methods.cumulative.ledger import History, Ledger
from goodness.methods.cumulative.negatives import draw
from goodness.methods.cumulative.routing import routing_measures
from goodness.parts import Rule

TOP5_CLASSES = 10
"""With fewer classes a top-5 accuracy says nothing."""


@torch.no_grad()
def training_measures(facts: Facts, values: dict[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    """What one step says of one block, scalars on the device: losses, goodness, mined separation, attenuation."""
    goodness = facts.goodness.detach()
    margin, past = goodness.pos - goodness.nl, facts.earlier.pos - facts.earlier.nl
    inherited = facts.weight * (facts.history.pos - facts.history.nl)
    measured = {
        "loss": loss.detach(),
        **{f"loss_{name}": value.detach() for name, value in values.items()},
        "g_pos": goodness.pos.mean(),
        "g_nl": goodness.nl.mean(),
        "sep_cur_mined": margin.mean(),
        "sep_rate": (margin + past > 0).float().mean(),
        "attenuation": attenuation(margin, inherited, 1.0, facts.beta).clamp(max=1).mean(),
        "rule_weight": facts.weight.mean(),
        **routing_measures(facts.notes),
    }
    if goodness.ni is not None:
        measured["g_ni"] = goodness.ni.mean()
        measured["sep_cur_ni"] = (goodness.pos - goodness.ni).mean()
    return measured


def worst_margin(scores: Tensor, labels: Tensor) -> Tensor:
    """s_y - max over wrong labels of s, `[n]`, from scores `[n, classes]`."""
    right = scores.gather(1, labels[:, None]).squeeze(1)
    others = scores.scatter(1, labels[:, None], -torch.inf)
    return right - others.max(dim=1).values


def top_k_accuracy(scores: Tensor, labels: Tensor, k: int = 1) -> float:
    """Share of examples whose label is among the k highest scores; ties go to the lower label, as argmax does."""
    right = scores.gather(1, labels[:, None])
    lower = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    above = (scores > right) | ((scores == right) & lower)
    return float((above.sum(dim=1) < k).double().mean())


def mined_labels(goodness: Tensor, labels: Tensor, uniforms: Tensor) -> Tensor:
    """The hardest of the drawn wrong labels under one block's goodness `[n, classes]`; uniforms `[n, k]`."""
    classes = goodness.shape[1]
    candidates = (labels[:, None] + 1 + draw(uniforms, classes)) % classes
    return candidates.gather(1, goodness.gather(1, candidates).argmax(dim=1, keepdim=True)).squeeze(1)


def wrong_image_measures(goodness: Tensor, labels: Tensor, partner: Tensor) -> list[dict[str, float]]:
    """Of every block, how far the right image leads another one under the same label (the NI negative).

    From goodness `[blocks, n, classes]`; `partner [n]` names each example's other image, and pairs of one class do not
    count. With g- = g^(d) of image partner(i) under label y_i, and G the sum over blocks 0..d:
    g_ni                         mean of g-
    sep_cur_ni, sep_cur_ni_rate  mean of g+ - g-, share of examples where it is positive
    sep_ni, sep_ni_rate          the same of G+ - G-
    Nothing where all images are of one class.
    """
    kept = labels[partner] != labels
    if not bool(kept.any()):
        return [{} for _ in goodness]
    rows, other, label = kept.nonzero().squeeze(1), partner[kept], labels[kept]
    found, total = [], torch.zeros(len(rows), dtype=goodness.dtype)
    for scores in goodness:
        negative = scores[other, label]
        margin = scores[rows, label] - negative
        total = total + margin
        found.append(
            {
                "g_ni": float(negative.mean()),
                "sep_cur_ni": float(margin.mean()),
                "sep_cur_ni_rate": float((margin > 0).double().mean()),
                "sep_ni": float(total.mean()),
                "sep_ni_rate": float((total > 0).double().mean()),
            }
        )
    return found


def inherited_margin(
    right: Tensor, negative: Tensor, rule: Rule, history: History, blocks: int, progress: float
) -> tuple[Tensor, Tensor]:
    """What the earlier blocks hand to the last of these, and the rule's weight on it, both `[n]`.

    `right` is the right label's goodness `[d + 1, n]` of blocks 0..d, `negative` a wrong label's (more blocks do no
    harm), `blocks` the network's depth.
    """
    depth, nothing = len(right) - 1, right.new_zeros(right.shape[1], 1)
    ledger, no_aspects = Ledger(history), PerStream(nothing, nothing, None)
    for j in range(depth):
        weight = rule.weight(ledger.past(right[j], blocks, progress))
        ledger.add(PerStream(right[j], negative[j], None), no_aspects, weight)
    weight = rule.weight(ledger.past(right[depth], blocks, progress))
    carried, _ = ledger.history(PerStream(right[depth], negative[depth], None), no_aspects)
    return carried.pos - carried.nl, weight


def evaluation_measures(
    goodness: Tensor,
    labels: Tensor,
    uniforms: Tensor,
    rule: Rule,
    *,
    beta: float,
    history: History = "sum",
    progress: float = 1.0,
    of_blocks: int | None = None,
    partner: Tensor | None = None,
) -> list[dict[str, float]]:
    """Health of every block from all labels' goodness `[blocks, n, classes]`.

    sep_cur      mean of g+ minus the worst wrong label's g, this block alone
    sep          the same for the sum over blocks 0..d (the inference margin, weight one whatever the rule)
    sep_cur_mined, sep_rate   against the mined label: mean margin of this block, share of examples with G+ > G-
    attenuation  mean of min(1, R), each example with its own weight under the rule
    rule_weight  mean of that weight (a gate's value), and its 10th and 90th percentile
    loss_collapse  LC, mean barrier of the inference margin to the mined label
    accuracy     of the sum over blocks 0..d
    saturation   DS, that accuracy over the accuracy of all the blocks given

    `of_blocks` is the depth of the network where the goodness is of its first blocks only; rules may look at it.
    With a `partner` for every example, what `wrong_image_measures` says of each block is there too.
    """
    goodness = goodness.double()
    blocks, n, _ = goodness.shape
    depth_of_network = of_blocks or blocks
    cumulative = goodness.cumsum(dim=0)
    accuracies = [top_k_accuracy(scores, labels) for scores in cumulative]
    saturation = depth_saturation(accuracies)
    wrong_image = [{}] * blocks if partner is None else wrong_image_measures(goodness, labels, partner)
    right = goodness.gather(2, labels[None, :, None].expand(blocks, n, 1)).squeeze(2)  # [blocks, n]
    report = []
    for depth in range(blocks):
        wrong = mined_labels(goodness[depth], labels, uniforms)
        negative = goodness.gather(2, wrong[None, :, None].expand(blocks, n, 1)).squeeze(2)
        inherited, weight = inherited_margin(right[: depth + 1], negative, rule, history, depth_of_network, progress)
        margin = right[depth] - negative[depth]
        inference_margin = (right - negative)[: depth + 1].sum(dim=0)
        ratio = attenuation(margin, weight * inherited, 1.0, beta)
        report.append(
            {
                "sep_cur": float(worst_margin(goodness[depth], labels).mean()),
                "sep": float(worst_margin(cumulative[depth], labels).mean()),
                "sep_cur_mined": float(margin.mean()),
                "sep_rate": float((inference_margin > 0).double().mean()),
                "attenuation": float(ratio.clamp(max=1).mean()),
                "loss_collapse": loss_collapse(inference_margin, beta),
                "g_pos": float(right[depth].mean()),
                "g_neg": float(negative[depth].mean()),
                "rule_weight": float(weight.mean()),
                "rule_weight_p10": float(weight.double().quantile(0.1)),
                "rule_weight_p90": float(weight.double().quantile(0.9)),
                "accuracy": accuracies[depth],
                "saturation": saturation[depth],
                **wrong_image[depth],
            }
        )
    return report
