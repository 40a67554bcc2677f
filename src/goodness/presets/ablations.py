"""cp-fair, one component less (Table component_ablation), and its negatives, aspects and teacher (Tables hnm_ksweep and
aspect_ema_ablation)."""

from __future__ import annotations

import goodness.presets.paper_size  # noqa: F401  (what these derive from)
from goodness.methods.cumulative.negatives import Online, Random, Teacher
from goodness.methods.cumulative.terms import Aspects
from goodness.nn.hybrid import Hybrid
from goodness.presets.naming import Changes, add_variants, without

ENERGY_ALONE = Aspects(lambdas=(0.2,), losses=("rank",))
"""The aspect loss of a goodness that is the energy and nothing else, with the weight it has among the four."""

LEAVE_ONE_OUT: dict[str, tuple[str, Changes]] = {
    "no-sam": ("cp-fair under plain AdamW.", {"optim.sam": 0.0}),
    "no-supcon": ("cp-fair without contrastive learning.", without("supcon")),
    "no-history": ("cp-fair without accumulation: gamma = 0, all else as it was.", {"rule.gamma": 0.0}),
    "no-experts": (
        "cp-fair with a dense feed-forward layer of 704 hidden units and no router.",
        {"model.block": Hybrid(), **without("balance", "router-z")},
    ),
    "no-curr": ("cp-fair without the current-block loss.", without("curr")),
    "no-depth": ("cp-fair without the depth order.", without("depth")),
    "one-aspect": (
        "cp-fair whose goodness is the energy alone, a head of one aspect.",
        {"model.goodness": "energy", "objective.aspects": ENERGY_ALONE},
    ),
    "no-mining": ("cp-fair with any wrong label in place of a hard one.", {"negatives": Random()}),
}

add_variants("cp-fair", of="cp-fair", rows=LEAVE_ONE_OUT)


# cp-fair's negatives, aspects and teacher (Tables hnm_ksweep and aspect_ema_ablation)


def only_aspect(number: int) -> Changes:
    """One aspect's loss at its own weight, the others' at zero; the goodness stays the blend of four."""
    kept = tuple(weight if a == number else 0.0 for a, weight in enumerate(Aspects().lambdas))
    return {"objective.aspects.lambdas": kept}


DEEP_DIVES: dict[str, tuple[str, Changes]] = {
    "k1": (
        "cp-fair with one candidate, so that nothing is mined: the paper's row is that of cp-fair-no-mining.",
        {"negatives": Teacher(k_first=1, k_last=1)},
    ),
    "k4": ("cp-fair with the hardest of 4 candidates at every block.", {"negatives": Teacher(k_first=4, k_last=4)}),
    "k8": ("cp-fair with the hardest of 8 candidates at every block.", {"negatives": Teacher(k_first=8, k_last=8)}),
    "k16": ("cp-fair with the hardest of 16 candidates at every block.", {"negatives": Teacher(k_first=16, k_last=16)}),
    "nl-only": ("cp-fair with wrong-label negatives alone.", {"eta": 0.0}),
    "ni-only": ("cp-fair with wrong-image negatives alone.", {"eta": 1.0}),
    "align-only": ("cp-fair with the aspect loss of the alignment alone.", only_aspect(0)),
    "energy-only": ("cp-fair with the aspect loss of the energy alone.", only_aspect(1)),
    "sharpness-only": (
        "cp-fair with the aspect loss of the sharpness alone, which is dead without memory: no aspect loss is left.",
        only_aspect(2),
    ),
    "learned-only": ("cp-fair with the aspect loss of the learned head alone.", only_aspect(3)),
    "no-ema": (
        "cp-fair without a moving average: the network itself mines, evaluates and is selected.",
        {"optim.ema": 0.0},
    ),
    "online-mining": (
        "cp-fair that mines with the network itself and evaluates the moving average.",
        {"negatives": Online()},
    ),
}

add_variants("cp-fair", of="cp-fair", rows=DEEP_DIVES)
