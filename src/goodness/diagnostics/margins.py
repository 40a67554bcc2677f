"""Separation, attenuation and truncation accuracy of each block (Eq. diagnostics), in training and at evaluation.

Symbols: g^(d)_y goodness of block d under label y; m = g+ - g-; P = sum of earlier m; G = sum of g up to d.
`worst` means the wrong label with the highest value, `mined` the one that mining picks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from goodness.local.barrier import attenuation, barrier
from goodness.local.facts import Facts, Trio
from goodness.local.ledger import History, Ledger
from goodness.local.negatives import draw
from goodness.local.routing import routing_measures
from goodness.parts import Rule


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


def inherited_margin(
    right: Tensor, negative: Tensor, rule: Rule, history: History, blocks: int, progress: float
) -> tuple[Tensor, Tensor]:
    """What the earlier blocks hand to the last of these, and the rule's weight on it, both `[n]`.

    `right` is the right label's goodness `[d + 1, n]` of blocks 0..d, `negative` a wrong label's (more blocks do no
    harm), `blocks` the network's depth.
    """
    depth, nothing = len(right) - 1, right.new_zeros(right.shape[1], 1)
    ledger, no_aspects = Ledger(history), Trio(nothing, nothing, None)
    for j in range(depth):
        weight = rule.weight(ledger.past(right[j], blocks, progress))
        ledger.add(Trio(right[j], negative[j], None), no_aspects, weight)
    weight = rule.weight(ledger.past(right[depth], blocks, progress))
    carried, _ = ledger.history(Trio(right[depth], negative[depth], None), no_aspects)
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
) -> list[dict[str, float]]:
    """Health of every block from all labels' goodness `[blocks, n, classes]`.

    sep_cur      mean of g+ minus the worst wrong label's g, this block alone
    sep          the same for the sum over blocks 0..d (the inference margin, weight one whatever the rule)
    sep_cur_mined, sep_rate   against the mined label: mean margin of this block, share of examples with G+ > G-
    attenuation  mean of min(1, R), each example with its own weight under the rule
    loss_collapse  LC, mean barrier of the inference margin to the mined label
    accuracy     of the sum over blocks 0..d
    saturation   DS, that accuracy over the accuracy of all the blocks given

    `of_blocks` is the depth of the network where the goodness is of its first blocks only; rules may look at it.
    """
    goodness = goodness.double()
    blocks, n, _ = goodness.shape
    depth_of_network = of_blocks or blocks
    cumulative = goodness.cumsum(dim=0)
    final = top_k_accuracy(cumulative[-1], labels)
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
                "loss_collapse": float(barrier(inference_margin, beta).mean()),
                "g_pos": float(right[depth].mean()),
                "g_neg": float(negative[depth].mean()),
                "rule_weight": float(weight.mean()),
                "accuracy": (accuracy := top_k_accuracy(cumulative[depth], labels)),
                "saturation": accuracy / final if final > 0 else 1.0,
            }
        )
    return report
