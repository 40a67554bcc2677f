"""Other data sets: CIFAR-100 and Tiny ImageNet."""

from __future__ import annotations

import goodness.presets.paper_size  # noqa: F401  (what these derive from)
from goodness.methods.cumulative.collaboration import Gated
from goodness.methods.cumulative.negatives import Teacher
from goodness.presets.naming import Changes, variant, without

MANY_HYPOTHESES: Changes = {"readout.lr": 1e-4}
"""Ten classes learn as well at 1e-3; on CIFAR-100 the loss of Stage 2 rises at that rate. Tiny ImageNet has more."""


@variant("cifar100-gamma0", of="gamma0-dense")
def cifar100_gamma0() -> Changes:
    """CIFAR-100, block-local, no current-block loss: in this contrast of three the rule alone differs."""
    return {"data": "cifar100", "batch": 256, **without("curr"), **MANY_HYPOTHESES}


@variant("cifar100-gated", of="cifar100-gamma0")
def cifar100_gated() -> Changes:
    """CIFAR-100 under the hardness gate (tau 1, kappa 0)."""
    return {"rule": Gated(tau=1.0, kappa=0.0)}


@variant("cifar100-cumulative", of="cifar100-gamma0")
def cifar100_cumulative() -> Changes:
    """CIFAR-100 under a constant gamma; the paper says gamma > 0, we take its usual 0.7."""
    return {"rule.gamma": 0.7}


@variant("cifar100-baseline", of="baseline")
def cifar100_baseline() -> Changes:
    """The paper's older CIFAR-100 run, gamma = 0.7 with 32 experts; we take it for the baseline on other data."""
    return {"data": "cifar100", "batch": 256, "epochs": 362, **MANY_HYPOTHESES}


@variant("tiny-gamma0", of="gamma0-dense")
def tiny_gamma0() -> Changes:
    """Tiny ImageNet, block-local, with k from 20 to 40."""
    return {
        "data": "tiny-imagenet",
        "batch": 256,
        "negatives": Teacher(k_first=20, k_last=40),
        **MANY_HYPOTHESES,
    }
