"""Named runs: functions that return a configuration, each derived from another by a few named changes.

Every run that the paper names is here; what it prints for them is in `goodness.paper.accuracies`. Where a name or a
cell of its tables is not explained, the docstring says what we took it to mean (more in docs/decisions.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from goodness.config import Config, Keep, Model, Optim, Readout, Stem, override
from goodness.local.collaboration import Constant, Gated, Progressive, Ramp
from goodness.local.negatives import Online, Random, Teacher
from goodness.local.routing import Balance, RouterZ
from goodness.local.supcon import SupCon
from goodness.local.terms import Aspects, Block, Current, DepthOrder, MissingGradient, Reconstruction
from goodness.model.hybrid import Hybrid
from goodness.model.plain_cnn import ConvStages
from goodness.parts import Rule
from goodness.registry import Registry

presets: Registry[Callable[[], Config]] = Registry("preset")

Changes = dict[str, Any]
"""Dotted fields and their new values, as `override` takes them."""

_bases: dict[str, str] = {}


def preset(name: str) -> Config:
    """The configuration of a named run."""
    return override(presets[name](), {"preset": name})


def variant(name: str, of: str) -> Callable[[Callable[[], Changes]], Callable[[], Changes]]:
    """Decorator: the function returns what `name` changes in the preset `of`, and its docstring says what that is."""
    base = presets[of]

    def register(changes: Callable[[], Changes]) -> Callable[[], Changes]:
        @functools.wraps(changes)
        def config() -> Config:
            return override(base(), changes())

        presets.register(name)(config)
        _bases[name] = of
        return changes

    return register


def add_variants(prefix: str, of: str, rows: Mapping[str, tuple[str, Changes]]) -> None:
    """Register a table of variants too small for functions of their own: end of the name, what it is, what changes."""
    for end, (about, changes) in rows.items():

        def row(changes: Changes = changes) -> Changes:
            return changes

        name = f"{prefix}-{end}"
        row.__doc__, row.__name__, row.__qualname__ = about, name, name  # by which the registry tells rows apart
        variant(name, of=of)(row)


def base_of(name: str) -> str | None:
    """The preset that `name` derives from; None for one that stands alone."""
    presets[name]  # an unknown name is an error
    return _bases.get(name)


def without(*terms: str) -> Changes:
    """The changes that take these terms out of the objective."""
    return {f"objective.{term}": None for term in terms}


# Dense feed-forward layers, no SAM: where to start

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


@variant("mgc-dense", of="gamma0-dense")
def mgc_dense() -> Changes:
    """The missing-gradient compensated loss on gamma = 0.7: the experiment the paper proposes and leaves open."""
    return {
        "rule": Constant(gamma=0.7),
        **without("block", "curr"),
        "objective.mgc": MissingGradient(),
        "objective.aspects": Aspects(history=False),
    }


# The paper's size (L4/D256), with experts: the thirteen variants of Table full_config, lcff and gated

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


# cp-fair, one component less (Table component_ablation)

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


# The causal sweep at reduced scale (D128): the collaboration rule changes, and nothing else

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


# Other data sets


@variant("cifar100-gamma0", of="gamma0-dense")
def cifar100_gamma0() -> Changes:
    """CIFAR-100, block-local, no current-block loss: in this contrast of three the rule alone differs."""
    return {"data": "cifar100", "batch": 256, **without("curr")}


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
    return {"data": "cifar100", "batch": 256, "epochs": 362}


@variant("tiny-gamma0", of="gamma0-dense")
def tiny_gamma0() -> Changes:
    """Tiny ImageNet, block-local, with k from 20 to 40."""
    return {"data": "tiny-imagenet", "batch": 256, "negatives": Teacher(k_first=20, k_last=40)}


# Controls: backpropagation, and less of a backbone (Table bp_ff_ablation)


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


# On a laptop


@presets.register("demo")
def demo() -> Config:
    """A small network for scikit-learn's digits, half a minute on one core. Local rule; --rule names others."""
    return Config(
        data="digits",
        seed=1,
        epochs=20,
        batch=64,
        augment="none",
        rule=Constant(gamma=0.0),
        negatives=Teacher(k_first=4, k_last=4),
        objective={"aspects": Aspects(lambdas=(1.5, 0.2, 0.0, 0.3)), "block": Block()},  # no memory, no sharpness
        model=Model(width=48, stem=Stem(channels=32, patch=2), block=Hybrid(heads=4, hidden=96)),
        optim=Optim(lr=6e-3, ema=0.99),
        keep=Keep(evaluate_every=5, report="last"),
        readout=Readout(epochs=5, batch=64, width=64),
    )


SECTIONS = {
    "gamma0-dense": "Dense: start here",
    "gamma0": "The paper's size",
    "cp-fair-no-sam": "cp-fair, one part less",
    "cp-fair-k1": "cp-fair in detail",
    "d128-gamma0": "Rules at L4/D128",
    "l8-gamma0": "Rules at L8/D128",
    "cifar100-gamma0": "Other data sets",
    "bp-strong": "Controls",
    "demo": "On a laptop",
}
"""A title for each stretch of the presets above, by the name that it begins with."""


def section_of(name: str) -> str:
    """The title a preset stands under in a list; one that another module has registered stands under "Your own"."""
    if presets[name].__module__ != __name__:
        return "Your own"
    title = ""
    for one in presets:
        title = SECTIONS.get(one, title)
        if one == name:
            break
    return title
