"""The run of self-contrastive Forward-Forward (Chen et al. 2025)."""

from __future__ import annotations

from goodness.config import Config, Keep, Optim, Readout
from goodness.methods.scff import ScffPart
from goodness.nn.scff_cnn import ScffCnn
from goodness.presets.naming import presets


@presets.register("scff")
def scff() -> Config:
    """Self-contrastive Forward-Forward on CIFAR-10 with its authors' three-layer network and recipe."""
    return Config(
        data="cifar10",
        epochs=31,
        batch=100,
        augment="flip",
        views=1,
        method=ScffPart(
            positive=(0.0, 5.0, 6.0),
            negative=(1.0, 9.0, 10.0),
            penalty=(0.0012, 0.0007, 0.0005),
            pairs=(True, False, True),
            turns=(6.0, 4.0, 21.0),
            rates=(1.0, 0.2, 0.02),
            fall=(0.343, 0.0115, 1.0),
            features=6144,
        ),
        network=ScffCnn(),
        optim=Optim(kind="adamw", lr=0.01, schedule="constant", warmup=0.0, weight_decay=1e-4, clip=0.0, ema=0.0),
        keep=Keep(evaluate_every=5),
        readout=Readout(epochs=0),
    )
