"""Controls: backpropagation, and less of a backbone (Table bp_ff_ablation)."""

from __future__ import annotations

from goodness.methods.cumulative.terms import Block
from goodness.nn.hybrid import Hybrid
from goodness.nn.plain_cnn import ConvStages
from goodness.presets.ablations import ENERGY_ALONE
from goodness.presets.naming import Changes, variant, without


@variant("bp-strong", of="gamma0")
def bp_strong() -> Changes:
    """End-to-end backpropagation on gamma0's backbone, stripped of labels and goodness, with strong augmentation."""
    return {
        "trainer": "backprop",
        "augment": "bp-strong",
        **without("aspects", "block", "curr", "supcon", "recon"),
        "readout.epochs": 0,
    }


@variant("bp-weak", of="bp-strong")
def bp_weak() -> Changes:
    """The same with crop and flip alone."""
    return {"augment": "weak"}


@variant("bp-strong-dense", of="bp-strong")
def bp_strong_dense() -> Changes:
    """bp-strong on gamma0-dense's backbone: a dense feed-forward layer and no router."""
    return {"model.block": Hybrid(), **without("balance", "router-z")}


@variant("cnn-bp", of="bp-strong")
def cnn_bp() -> Changes:
    """A plain CNN of three stages (64, 128, 256 channels) under backpropagation."""
    return {
        "model.stem.kind": "pixels",
        "model.blocks": 3,
        "model.block": ConvStages(channels=(64, 128, 256)),
        **without("balance", "router-z"),
    }


@variant("cnn-ff", of="cnn-bp")
def cnn_ff() -> Changes:
    """The plain CNN under Forward-Forward: its stages are the blocks, goodness is their energy, labels are added."""
    return {
        "trainer": "ff",
        "augment": "ff",
        "model.goodness": "energy",
        "model.label": "add",
        "objective.aspects": ENERGY_ALONE,
        "objective.block": Block(),
    }


@variant("ff-stripped", of="gamma0")
def ff_stripped() -> Changes:
    """The stripped backbone under Forward-Forward; we take it for gamma0 without SupCon, reconstruction and the
    current-block loss (it has no memory anyway)."""
    return without("curr", "supcon", "recon")
