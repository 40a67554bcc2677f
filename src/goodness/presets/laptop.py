"""A run for a laptop."""

from __future__ import annotations

from goodness.config import Config, Keep, Model, Optim, Readout, Stem
from goodness.methods.cumulative.collaboration import Constant
from goodness.methods.cumulative.negatives import Teacher
from goodness.methods.cumulative.terms import Aspects, Block
from goodness.nn.hybrid import Hybrid
from goodness.presets.naming import presets


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
