"""Dense feed-forward layers, no SAM: where to start."""

from __future__ import annotations

from goodness.config import Config
from goodness.methods.cumulative.collaboration import Constant, Gated
from goodness.methods.cumulative.negatives import Teacher
from goodness.methods.cumulative.supcon import SupCon
from goodness.methods.cumulative.terms import Aspects, Block, Current, DepthOrder, MissingGradient, Reconstruction
from goodness.presets.naming import Changes, presets, variant, without

DEPTH_SCALED: Changes = {
    "objective.curr": Current(weight=0.25, rho=3.0),
    "objective.depth": DepthOrder(weight=0.1),
}
"""The repair of cp-fair: a current-block loss of 0.25, 0.5, 0.75, 1 over four blocks, and the depth order."""


@presets.register("gamma0-dense")
def gamma0_dense() -> Config:
    """Block-local (gamma = 0), the paper's validation-selected run, with a dense feed-forward layer and no SAM."""
    return Config(
        rule=Constant(gamma=0.0),
        objective={
            "aspects": Aspects(),
            "block": Block(),
            "curr": Current(weight=0.5, rho=0.0),
            "supcon": SupCon(),
            "recon": Reconstruction(),
        },
    )


@variant("lcff-dense", of="gamma0-dense")
def lcff_dense() -> Changes:
    """Cumulative (gamma = 1) with no repair beside it: the free-riding baseline."""
    return {"rule": Constant(gamma=1.0), **without("curr")}


@variant("cp-fair-dense", of="gamma0-dense")
def cp_fair_dense() -> Changes:
    """Cumulative (gamma = 0.7) with the depth-scaled current-block loss and the depth order."""
    return {"rule": Constant(gamma=0.7), **DEPTH_SCALED}


@variant("gated-dense", of="gamma0-dense")
def gated_dense() -> Changes:
    """The hardness gate (kappa = 0) in place of a constant gamma, no other repair."""
    return {"rule": Gated(gamma0=0.7, kappa=0.0), **without("curr")}


@variant("lean", of="gamma0-dense")
def lean() -> Changes:
    """What the paper's own ablations found free is dropped: no wrong images, four draws, no SupCon."""
    return {"eta": 0.0, "negatives": Teacher(k_first=4, k_last=4), **without("supcon")}


@variant("mgc-dense", of="gamma0-dense")
def mgc_dense() -> Changes:
    """The missing-gradient compensated loss on gamma = 0.7: the experiment the paper proposes and leaves open."""
    return {
        "rule": Constant(gamma=0.7),
        **without("block", "curr"),
        "objective.mgc": MissingGradient(),
        "objective.aspects": Aspects(history=False),
    }


@variant("mgc-twin-dense", of="mgc-dense")
def mgc_twin_dense() -> Changes:
    """mgc-dense with nothing given back: what the compensation does shows between the two."""
    return {"objective.block": Block(), **without("mgc")}
