"""Trifecta's own runs (Dooms et al. 2023)."""

from __future__ import annotations

from goodness.config import Config, Keep, Optim, Readout
from goodness.methods.trifecta import TrifectaPart
from goodness.nn.trifecta_cnn import TrifectaCnn
from goodness.presets.naming import Changes, presets, variant


@presets.register("trifecta")
def trifecta() -> Config:
    """Trifecta on CIFAR-10 with its authors' twelve-layer network and recipe."""
    return Config(
        data="cifar10",
        epochs=100,
        augment="crop-rotate",
        views=1,
        method=TrifectaPart(),
        network=TrifectaCnn(),
        optim=Optim(kind="adam", lr=1e-3, schedule="constant", warmup=0.0, weight_decay=0.0, clip=0.0, ema=0.0),
        keep=Keep(evaluate_every=5),
        readout=Readout(epochs=0),
    )


@variant("trifecta-mnist", of="trifecta")
def trifecta_mnist() -> Changes:
    """Trifecta on MNIST with its authors' small network of six layers."""
    return {"data": "mnist", "network": TrifectaCnn(channels=(128, 128, 256, 256, 256, 512), pools=(0, 2, 5))}
