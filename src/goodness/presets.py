"""Named runs: functions that return a configuration, each derived from another by a few named changes."""

from __future__ import annotations

from collections.abc import Callable

from goodness.config import Config, Keep, Model, Optim, Stem, override
from goodness.local.collaboration import Constant, Gated
from goodness.local.negatives import Teacher
from goodness.local.routing import Balance, RouterZ
from goodness.local.supcon import SupCon
from goodness.local.terms import Aspects, Block, Current, DepthOrder, MissingGradient, Reconstruction
from goodness.model.hybrid import Hybrid
from goodness.registry import Registry

presets: Registry[Callable[[], Config]] = Registry("preset")


def preset(name: str) -> Config:
    """The configuration of a named run."""
    return override(presets[name](), {"preset": name})


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


@presets.register("lcff-dense")
def lcff_dense() -> Config:
    """Cumulative (gamma = 1) with no repair beside it: the free-riding baseline."""
    return override(gamma0_dense(), {"rule": Constant(gamma=1.0), "objective.curr": None})


@presets.register("cp-fair-dense")
def cp_fair_dense() -> Config:
    """Cumulative (gamma = 0.7) with the depth-scaled current-block loss and the depth order."""
    return override(
        gamma0_dense(),
        {
            "rule": Constant(gamma=0.7),
            "objective.curr": Current(weight=0.25, rho=3.0),
            "objective.depth": DepthOrder(weight=0.1),
        },
    )


@presets.register("gated-dense")
def gated_dense() -> Config:
    """The hardness gate (kappa = 0) in place of a constant gamma, no other repair."""
    return override(gamma0_dense(), {"rule": Gated(gamma0=0.7, kappa=0.0), "objective.curr": None})


@presets.register("mgc-dense")
def mgc_dense() -> Config:
    """The missing-gradient compensated loss on gamma = 0.7: the experiment the paper proposes and leaves open."""
    return override(
        gamma0_dense(),
        {
            "rule": Constant(gamma=0.7),
            "objective.block": None,
            "objective.curr": None,
            "objective.mgc": MissingGradient(),
            "objective.aspects": Aspects(history=False),
        },
    )


def with_experts(config: Config) -> Config:
    """The paper's feed-forward layer: 32 experts, four a token, with the router's two regularisers.

    48 hidden units an expert keep the network at 7.4 M parameters, within the paper's 6 to 8 M.
    """
    changes = {
        "model.block": Hybrid(hidden=48, experts=32, top_k=4),
        "objective.balance": Balance(),
        "objective.router-z": RouterZ(),
    }
    return override(config, changes)


@presets.register("gamma0")
def gamma0() -> Config:
    """gamma0-dense with the paper's 32 experts."""
    return with_experts(gamma0_dense())


@presets.register("lcff")
def lcff() -> Config:
    """lcff-dense with the paper's 32 experts and SAM."""
    return override(with_experts(lcff_dense()), {"optim.sam": 0.05})


@presets.register("cp-fair")
def cp_fair() -> Config:
    """cp-fair-dense with the paper's 32 experts and SAM."""
    return override(with_experts(cp_fair_dense()), {"optim.sam": 0.05})


@presets.register("gated")
def gated() -> Config:
    """gated-dense with the paper's 32 experts and SAM."""
    return override(with_experts(gated_dense()), {"optim.sam": 0.05})


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
        objective={"aspects": Aspects(lambdas=(1.0, 1.0, 1.0, 1.0)), "block": Block()},
        model=Model(width=48, stem=Stem(channels=32, patch=2), block=Hybrid(heads=4, hidden=96)),
        optim=Optim(lr=6e-3, ema=0.99),
        keep=Keep(evaluate_every=5, report="last"),
    )
