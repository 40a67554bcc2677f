"""Runs of our own, for the best accuracy in minutes; every block still learns from its own goodness alone."""

from __future__ import annotations

from goodness.config import Config, Keep, Model, Optim, Readout, Stem
from goodness.methods.cumulative.choice import Choice
from goodness.methods.cumulative.collaboration import Constant
from goodness.methods.cumulative.negatives import Random
from goodness.nn.head import EnergyGoodness
from goodness.nn.label import Late
from goodness.nn.pyramid import Pyramid
from goodness.presets.naming import presets


@presets.register("sprint")
def sprint() -> Config:
    """Convolutional blocks, energy as the goodness, late labels that all compete at once, Muon; one view an image."""
    return Config(
        epochs=200,
        augment="sprint",
        views=1,
        eta=0.0,
        rule=Constant(gamma=0.0),
        negatives=Random(),
        objective={"choice": Choice(smoothing=0.1, rise=3.0)},
        model=Model(
            blocks=3,
            activation="none",
            normalise=False,
            stem=Stem(kind="pixels"),
            block=Pyramid(),
            goodness=EnergyGoodness(),
            label=Late(),
        ),
        optim=Optim(kind="muon", lr=3e-3, warmup=0.1, betas=(0.9, 0.99), clip=0.0, ema=0.995),
        keep=Keep(evaluate_every=10),
        readout=Readout(epochs=0),
    )
