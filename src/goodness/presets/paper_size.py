"""The paper's size (L4/D256), with experts: the thirteen variants of Table full_config, lcff and gated."""

from __future__ import annotations

import goodness.presets.dense  # noqa: F401  (what these derive from)
from goodness.methods.cumulative.collaboration import Progressive, Ramp
from goodness.methods.cumulative.negatives import Teacher
from goodness.methods.cumulative.routing import Balance, RouterZ
from goodness.methods.cumulative.terms import Current, DepthOrder
from goodness.nn.hybrid import Hybrid
from goodness.presets.naming import Changes, variant

EXPERTS: Changes = {
    "model.block": Hybrid(hidden=48, experts=32, top_k=4),
    "objective.balance": Balance(),
    "objective.router-z": RouterZ(),
}
"""The paper's feed-forward layer: 32 experts, four a token, with the router's two regularisers.

48 hidden units an expert keep the network at 7.5 M parameters, within the paper's 6 to 8 M.
"""

SAM: Changes = {"optim.sam": 0.05}


@variant("gamma0", of="gamma0-dense")
def gamma0() -> Changes:
    """gamma0-dense with the paper's 32 experts."""
    return EXPERTS


@variant("lcff", of="lcff-dense")
def lcff() -> Changes:
    """lcff-dense with the paper's 32 experts and SAM."""
    return EXPERTS | SAM


@variant("cp-fair", of="cp-fair-dense")
def cp_fair() -> Changes:
    """cp-fair-dense with the paper's 32 experts and SAM."""
    return EXPERTS | SAM


@variant("gated", of="gated-dense")
def gated() -> Changes:
    """gated-dense with the paper's 32 experts and SAM."""
    return EXPERTS | SAM


@variant("baseline", of="gamma0")
def baseline() -> Changes:
    """The paper's baseline: gamma = 0.7, a flat current-block loss, memory (64 slots are our choice), tokens handed on
    at their own norm."""
    return {
        "epochs": 287,
        "rule.gamma": 0.7,
        "objective.depth": DepthOrder(weight=0.1),
        "model.block.memory": 64,
        "model.normalise": False,
        **SAM,
    }


@variant("nomem-l2", of="baseline")
def nomem_l2() -> Changes:
    """The baseline without memory, its tokens scaled to one norm between blocks, for 362 epochs."""
    return {"epochs": 362, "model.block.memory": 0, "model.normalise": True}


@variant("topk-depth", of="baseline")
def topk_depth() -> Changes:
    """Top-k NL: a wrong label drawn from the three hardest; "sched (1.0)": a current loss that doubles over depth."""
    return {"negatives.among": 3, "objective.curr.rho": 1.0}


@variant("greedy-freeze", of="baseline")
def greedy_freeze() -> Changes:
    """Greedy freeze: blocks learn one after the other, a quarter of the run each."""
    return {"optim.freeze": "greedy"}


@variant("prefix-freeze", of="baseline")
def prefix_freeze() -> Changes:
    """Prefix freeze with the triangle activation: all blocks learn from the start and freeze from the first to the
    last."""
    return {"optim.freeze": "prefix", "model.activation": "triangle"}


LONG_RUN: Changes = {"batch": 128, "epochs": 460, "rule.gamma": 1.0, "readout.epochs": 300}
"""What fixed-nl and block0-label share."""


@variant("fixed-nl", of="baseline")
def fixed_nl() -> Changes:
    """gamma = 1, and the wrong label that the first block mined stays through all blocks ("mine_once")."""
    return {**LONG_RUN, "negatives.once": True, "objective.curr.weight": 0.25}


@variant("block0-label", of="baseline")
def block0_label() -> Changes:
    """gamma = 1, and the label enters the first block alone."""
    return {**LONG_RUN, "model.label_at": "first"}


@variant("gamma-ramp", of="baseline")
def gamma_ramp() -> Changes:
    """gamma rises from 0 to 0.7 over the epochs, with two wrong labels an image, cp-fair's current loss and SupCon in
    the deepest block alone. The paper's run stopped after 200 epochs, before Stage 2."""
    return {
        "epochs": 200,
        "rule": Ramp(first=0.0, last=0.7),
        "negatives.count": 2,
        "objective.curr": Current(weight=0.25, rho=3.0),
        "objective.supcon.at": "last",
        "readout.epochs": 0,
    }


@variant("cp-fair-lc", of="cp-fair")
def cp_fair_lc() -> Changes:
    """cp-fair with little contrastive learning (0.15 in place of 0.5)."""
    return {"objective.supcon.weight": 0.15}


FEWER_EXPERTS: Changes = {"model.block.experts": 24, "model.block.top_k": 3}

LATE_CONTRAST: Changes = {"objective.supcon.late": 0.15, "objective.supcon.temperature_last": 0.1}
"""Dual-phase contrastive (0.5, then cp-fair-lc's 0.15 from half of the training) and temperature annealing (0.2 to 0.1)
as we understand them."""


@variant("dp-fair", of="cp-fair")
def dp_fair() -> Changes:
    """Six progressive mechanisms, unnamed in the paper; we take gamma rising over depth, cp-fair's current loss and
    depth order, k rising over the epochs, SupCon in two phases and its temperature falling. No Stage 2."""
    return {
        **FEWER_EXPERTS,
        **LATE_CONTRAST,
        "rule": Progressive(first=0.0, last=0.7),
        "negatives.ramp": "epochs",
        "readout.epochs": 0,
    }


@variant("multi-tech", of="cp-fair")
def multi_tech() -> Changes:
    """Ten techniques on cp-fair: triangle activation, two wrong labels, diversity loss, probes, gamma ramp, warm start,
    dual-phase and annealed SupCon, 24 experts, wider mining (k from 12 to 24)."""
    return {
        **FEWER_EXPERTS,
        **LATE_CONTRAST,
        "rule": Ramp(first=0.0, last=0.7),
        "negatives": Teacher(count=2, k_first=12, k_last=24),
        "objective.diversity.weight": 0.05,
        "objective.probe.weight": 0.1,
        "model.activation": "triangle",
        "model.warm_start": True,
    }
