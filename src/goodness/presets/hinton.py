"""Hinton's Forward-Forward on MNIST."""

from __future__ import annotations

from goodness.config import Config, Keep, Optim, Readout
from goodness.methods.hinton import HintonPart
from goodness.nn.hinton_mlp import HintonMlp
from goodness.presets.naming import presets


@presets.register("hinton")
def hinton() -> Config:
    """Hinton's Forward-Forward on MNIST, the recipe of loeweX's port; it predicts by goodness, not by a classifier."""
    return Config(
        data="mnist",
        method=HintonPart(),
        network=HintonMlp(),
        epochs=100,
        batch=100,
        augment="none",
        views=1,
        optim=Optim(
            kind="sgd",
            lr=1e-3,
            schedule="late-linear",
            warmup=0.0,
            weight_decay=3e-4,
            momentum=0.9,
            clip=0.0,
            ema=0.0,
        ),
        keep=Keep(evaluate_every=5, report="last"),
        readout=Readout(epochs=0),
    )
