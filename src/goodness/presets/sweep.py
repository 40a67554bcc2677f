"""The causal sweep at reduced scale (D128): the collaboration rule changes, and nothing else."""

from __future__ import annotations

from goodness.methods.cumulative.collaboration import Constant, Gated
from goodness.parts import Rule
from goodness.presets.dense import DEPTH_SCALED
from goodness.presets.naming import Changes, add_variants, variant, without
from goodness.presets.paper_size import SAM

RULES: dict[str, tuple[str, Rule]] = {
    "cumulative": ("a constant gamma of 0.7", Constant(gamma=0.7)),
    "lcff": ("gamma = 1 (LCFF)", Constant(gamma=1.0)),
    "gated-t1-k0": ("the gate with tau 1, kappa 0", Gated(tau=1.0, kappa=0.0)),
    "gated-t3-k0": ("the gate with tau 3, kappa 0", Gated(tau=3.0, kappa=0.0)),
    "gated-t1-k2": ("the gate with tau 1, kappa 2", Gated(tau=1.0, kappa=2.0)),
    "gated-t1-k4": ("the gate with tau 1, kappa 4", Gated(tau=1.0, kappa=4.0)),
    "gated-t1-k0-previous": (
        "the gate with tau 1, kappa 0 on the previous block's goodness",
        Gated(tau=1.0, kappa=0.0, source="previous"),
    ),
    "gated-t1-k2-previous": (
        "the gate with tau 1, kappa 2 on the previous block's goodness",
        Gated(tau=1.0, kappa=2.0, source="previous"),
    ),
}


def under_rules(what: str) -> dict[str, tuple[str, Changes]]:
    """A row for every rule but the local one."""
    return {end: (f"{what}, under {about}.", {"rule": rule}) for end, (about, rule) in RULES.items()}


@variant("d128-gamma0", of="gamma0")
def d128_gamma0() -> Changes:
    """Block-local at the reduced scale: width 128, 16 experts (48 hidden units each: our choice), 180 + 10 epochs, SAM,
    no current-block loss."""
    return {
        "epochs": 180,
        "model.width": 128,
        "model.block.experts": 16,
        **without("curr"),
        **SAM,
        "readout.epochs": 10,
    }


add_variants("d128", of="d128-gamma0", rows=under_rules("Four blocks, D128"))


@variant("l8-gamma0", of="d128-gamma0")
def l8_gamma0() -> Changes:
    """Block-local with eight blocks of width 128, without SAM."""
    return {"model.blocks": 8, "optim.sam": 0.0}


add_variants("l8", of="l8-gamma0", rows=under_rules("Eight blocks, D128"))


@variant("l8-32e-gamma0", of="l8-gamma0")
def l8_32e_gamma0() -> Changes:
    """l8-gamma0 with 32 experts; the paper prints an accuracy and no settings, so all else is l8-gamma0's."""
    return {"model.block.experts": 32}


@variant("l8-32e-cp-fair", of="l8-32e-gamma0")
def l8_32e_cp_fair() -> Changes:
    """Eight blocks with 32 experts under gamma = 0.7 with cp-fair's current loss and depth order."""
    return {"rule.gamma": 0.7, **DEPTH_SCALED}


@variant("l8-32e-lcff", of="l8-32e-gamma0")
def l8_32e_lcff() -> Changes:
    """Eight blocks with 32 experts under gamma = 1 (LCFF)."""
    return {"rule.gamma": 1.0}
